//! What a growth of a heap asks the kernel for: system calls of a process that grows a heap,
//! counted by the tracer of this project (`ptrace`), which sees each.
//!
//! The other side says with a call of its own, [`MARK`], where a growth begins and ends.

use std::ffi::OsString;
use std::io::{self, Error};
use std::os::unix::process::parent_id;

use holdfast_trace::{Backend, Event, Program, PtraceBackend, Settings, Target, call_name};

use super::ground::{Ground, Store, name};

/// The role of the side that is traced.
pub(crate) const ROLE: &str = "growth-of-a-region";
/// Nothing else in a growth calls it.
const MARK: &str = "getppid";
const NAME: &str = "growing";
const LIMIT_BYTES: u64 = 256 << 20;
/// A growth each; the first of a session, and the others.
const GROWTHS: usize = 8;

/// Calls of a growth.
pub(crate) struct Calls {
    /// The first one of a session that opened the heap.
    pub(crate) first: usize,
    /// The most that a later one took.
    pub(crate) later: usize,
}

/// Has a process grow a heap, and counts.
pub(crate) fn host_calls() -> io::Result<Calls> {
    let program = std::env::current_exe()?.into_os_string();
    let command = vec![program, OsString::from(crate::applet::PEER), OsString::from(ROLE)];
    let settings = Settings::new(Target::Start(Program { command }));
    let mut counts = Vec::new();
    let mut inside = None;
    let backend = PtraceBackend::new(settings).map_err(Error::other)?;
    let ended = Box::new(backend).run(&mut |event| {
        if let Event::Call(call) = event {
            if call_name(call.abi, call.number) == MARK {
                match inside.take() {
                    Some(count) => counts.push(count),
                    None => inside = Some(0),
                }
            } else if let Some(count) = &mut inside {
                *count += 1;
            }
        }
    });
    ended.map_err(Error::other)?;
    match counts.split_first() {
        Some((first, later)) if later.len() + 1 == GROWTHS => {
            Ok(Calls { first: *first, later: later.iter().copied().max().unwrap_or(0) })
        }
        _ => Err(Error::other(format!("{} of {GROWTHS} growths were seen", counts.len()))),
    }
}

/// The other side: a heap that was made, closed, and opened again grows in steps of its own.
pub(crate) fn grow() -> io::Result<()> {
    let ground = Ground::new()?;
    let home = ground.home(Store::Memory)?;
    let heap = name(NAME)?;
    let region = home.names.create(&heap, &home.key, LIMIT_BYTES).map_err(Error::other)?;
    region.close().map_err(Error::other)?;
    let mut region = home.names.open(&heap, &home.key).map_err(Error::other)?;
    region.map_native().map_err(Error::other)?;
    for _ in 0..GROWTHS {
        let wanted_bytes = region.backed_bytes() + 1;
        let _ = parent_id();
        let grown = region.grow(wanted_bytes);
        let _ = parent_id();
        grown.map_err(Error::other)?;
    }
    region.close().map(drop).map_err(Error::other)
}
