//! The process that does the work. It is told what is done already, and tells what it does, a line
//! of JSON each.

use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::available_parallelism;
use std::time::Duration;

use holdfast_heap::HeapError;
use holdfast_native_heap::OpenHeapError;
use holdfast_region::ErrorKind;
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};

use crate::command::args::{ImportArgs, OnlyArg};
use crate::command::importing::PartOrder;
use crate::command::{BAD_FILE, DATA_BYTES_MAX, Failure, NO_ROOM, NOT_FOUND, OTHER, cache};
use crate::{
    CacheError, Import, ImportEnd, ImportError, ImportEvent, ImportPlan, ImportScope, PageLimits,
    PageOutcome,
};

/// Unless it is said how many; each may take a good part of the memory.
const JOBS_USUAL_MAX: u64 = 16;
/// Data for each further page that is laid out at the same time, its stack among it.
const DATA_BYTES_MORE: u64 = 1 << 30;

/// A line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PartMessage {
    Looking { bytes: u64, of: u64 },
    Planned(ImportPlan),
    Begun { address: String },
    Done { address: String, outcome: PageOutcome },
    Ended { ended: PartEnd, wrong_sums: u64, waited: u64 },
    Failed { code: u8, message: String },
}

/// How it ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PartEnd {
    Done,
    Stopped,
    /// The cache is full of its own pages.
    Full,
    Cache {
        code: u8,
        message: String,
    },
    /// Another process had better do the rest.
    Weary,
}

fn jobs(args: &ImportArgs) -> u64 {
    let usual =
        || available_parallelism().map_or(1, |count| count.get() as u64).min(JOBS_USUAL_MAX);
    args.jobs.unwrap_or_else(usual)
}

/// Data of the process that does the work.
pub(crate) fn data_bytes_max(args: &ImportArgs) -> u64 {
    DATA_BYTES_MAX + (jobs(args) - 1) * DATA_BYTES_MORE
}

/// Does it.
pub(crate) fn work(args: &ImportArgs) -> Result<u8, Failure> {
    // Nothing reads it any more.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        let _ = signal_hook::flag::register(signal, Arc::clone(&stop));
    }
    let tell = |told: &PartMessage| {
        let mut line = serde_json::to_vec(told).unwrap_or_default();
        line.push(b'\n');
        let mut out = std::io::stdout().lock();
        if out.write_all(&line).and_then(|()| out.flush()).is_err() {
            stop.store(true, Ordering::Relaxed);
        }
    };
    if let Err(Failure { code, message }) = work_on(args, &stop, &tell) {
        tell(&PartMessage::Failed { code, message });
    }
    Ok(0)
}

fn work_on(
    args: &ImportArgs,
    stop: &AtomicBool,
    tell: &(dyn Fn(&PartMessage) + Sync),
) -> Result<(), Failure> {
    let mut order = Vec::new();
    let read = std::io::stdin().read_to_end(&mut order).map_err(|error| error.to_string());
    let order: PartOrder = read
        .and_then(|_| serde_json::from_slice(&order).map_err(|error| error.to_string()))
        .map_err(|error| Failure {
            code: OTHER,
            message: format!("no order was given: {error}"),
        })?;
    let time = Duration::from_secs(args.timeout);
    let limits = PageLimits { time, network: time, ..PageLimits::default() };
    let import = Import {
        from: args.from.clone(),
        view: args.viewport.view()?,
        limits,
        only: if args.only == Some(OnlyArg::Document) {
            ImportScope::Document
        } else {
            ImportScope::All
        },
        jobs: jobs(args) as usize,
        matching: args.matching.clone(),
        limit: args.limit,
        hidden: args.hidden,
        done: order.done,
        alone: order.alone,
        since_s: order.since_s,
    };
    let hear = |event: ImportEvent<'_>| {
        tell(&match event {
            ImportEvent::Looking { bytes, of } => PartMessage::Looking { bytes, of },
            ImportEvent::Planned(plan) => PartMessage::Planned(plan.clone()),
            ImportEvent::Begun { address } => PartMessage::Begun { address: address.to_owned() },
            ImportEvent::Done { address, outcome } => {
                PartMessage::Done { address: address.to_owned(), outcome: outcome.clone() }
            }
        });
    };
    let imported = import.run(&cache(&args.place)?, stop, &hear)?;
    let ended = match imported.end {
        ImportEnd::Done => PartEnd::Done,
        ImportEnd::Stopped => PartEnd::Stopped,
        ImportEnd::Full => PartEnd::Full,
        ImportEnd::Cache(error) => PartEnd::Cache {
            code: if is_no_room(&error) { NO_ROOM } else { OTHER },
            message: error.to_string(),
        },
        ImportEnd::Weary => PartEnd::Weary,
    };
    tell(&PartMessage::Ended { ended, wrong_sums: imported.wrong_sums, waited: imported.waited });
    Ok(())
}

fn is_no_room(error: &CacheError) -> bool {
    match error {
        CacheError::Region(error) | CacheError::Open(OpenHeapError::Region(error)) => {
            error.kind() == ErrorKind::NoRoom
        }
        CacheError::Heap(error) => matches!(error, HeapError::OutOfMemory { .. }),
        _ => false,
    }
}

impl From<ImportError> for Failure {
    fn from(error: ImportError) -> Failure {
        let code = match &error {
            ImportError::Read { error, .. } if error.kind() == std::io::ErrorKind::NotFound => {
                NOT_FOUND
            }
            ImportError::NotWarc { .. }
            | ImportError::PackedAsWhole { .. }
            | ImportError::TooMany { .. } => BAD_FILE,
            ImportError::Stopped => super::STOPPED,
            _ => OTHER,
        };
        Failure { code, message: error.to_string() }
    }
}
