//! `import`: one process looks after the whole, and another does the work.
//!
//! A page can end the process that lays it out (there is no more memory), and one that takes too
//! long leaves a thread behind. So the work is done by a process of its own, which tells each page
//! that it begins and ends; when it is gone, the pages that it had begun are tried one by one by
//! the next one, and the one that ends that, too, is named and left out.

mod part;
mod report;
mod watch;

use std::collections::HashSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use part::{PartEnd, PartMessage};
use report::Report;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGINT, SIGTERM};
use watch::Watch;

use crate::command::args::ImportArgs;
use crate::command::{Failure, OTHER};
use crate::{PageOutcome, page_sum};

pub(crate) use part::data_bytes_max;

/// Processes that pages may end before an import is given up.
const DEATHS_MAX: u32 = 100;
/// How often a person who watches sees news.
const TICK: Duration = Duration::from_millis(200);
/// The exit code of what was stopped.
const STOPPED: u8 = 130;

/// What the process that does the work has to know, besides the command line.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct PartOrder {
    done: Vec<u64>,
    alone: Vec<u64>,
    since_s: u64,
}

pub(crate) fn import(args: &ImportArgs) -> Result<u8, Failure> {
    if args.part {
        return part::work(args);
    }
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // The second one ends it at once.
        signal_hook::flag::register_conditional_shutdown(signal, STOPPED.into(), Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .map_err(|error| other(format!("cannot wait for signals: {error}")))?;
    }
    let since_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let mut whole = WholeImport {
        stop,
        order: PartOrder { since_s, ..PartOrder::default() },
        begun: HashSet::new(),
        report: Report::new(),
        watch: Watch::new(),
    };
    let mut deaths = 0;
    let ended = loop {
        let (ended, status) = whole.part()?;
        match ended {
            Some(PartEnd::Weary) => {
                // Pages that were let go are not to blame for what ends the next one.
                whole.begun.clear();
                continue;
            }
            Some(ended) => break ended,
            None => {}
        }
        deaths += 1;
        whole.after_death(status, deaths)?;
    };
    whole.watch.clear();
    whole.report.finish(ended, args.json)
}

fn other(message: String) -> Failure {
    Failure { code: OTHER, message }
}

/// An import as a whole.
struct WholeImport {
    stop: Arc<AtomicBool>,
    order: PartOrder,
    /// Pages that are begun, and not done.
    begun: HashSet<String>,
    report: Report,
    watch: Watch,
}

impl WholeImport {
    /// Has the work done by a process, as far as that gets.
    fn part(&mut self) -> Result<(Option<PartEnd>, ExitStatus), Failure> {
        let failed = |error: std::io::Error| {
            other(format!("cannot start another process of this program: {error}"))
        };
        let own = std::env::current_exe().map_err(failed)?;
        let mut child = Command::new(own)
            .args(std::env::args_os().skip(1))
            .arg("--part")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // What is typed to stop it comes from here, once.
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let lines = self.begin(&mut child);
        let mut ended = None;
        let mut is_told = false;
        let mut failure = None;
        loop {
            if self.stop.load(Ordering::Relaxed) && !is_told {
                is_told = true;
                // It may have ended.
                let _ = kill_process(Pid::from_child(&child), Signal::INT);
            }
            match lines.recv_timeout(TICK) {
                Ok(PartMessage::Failed { code, message }) => {
                    failure = Some(Failure { code, message })
                }
                Ok(PartMessage::Ended { ended: how, wrong_sums, waited }) => {
                    self.report.wrong_sums += wrong_sums;
                    self.report.waited += waited;
                    ended = Some(how);
                }
                Ok(told) => self.hear(told),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.watch.tick(&self.report);
        }
        let status = child.wait().map_err(failed)?;
        match failure {
            Some(failure) => {
                self.watch.clear();
                Err(failure)
            }
            None => Ok((ended, status)),
        }
    }

    /// Tells the process what to do; what it tells comes by the channel.
    fn begin(&self, child: &mut Child) -> Receiver<PartMessage> {
        let (sender, receiver) = sync_channel(1_000);
        let (input, output) = (child.stdin.take(), child.stdout.take());
        if let (Some(mut input), Ok(order)) = (input, serde_json::to_vec(&self.order)) {
            // It may have ended.
            let _ = input.write_all(&order);
        }
        std::thread::spawn(move || {
            let lines = output
                .map(BufReader::new)
                .into_iter()
                .flat_map(|output| output.lines().map_while(Result::ok));
            for told in lines.filter_map(|line| serde_json::from_str(&line).ok()) {
                if sender.send(told).is_err() {
                    return;
                }
            }
        });
        receiver
    }

    fn hear(&mut self, told: PartMessage) {
        match told {
            PartMessage::Looking { bytes, of } => self.watch.looking = Some((bytes, of)),
            PartMessage::Planned(plan) => {
                self.watch.looking = None;
                self.report.plan(plan, &mut self.watch);
            }
            PartMessage::Begun { address } => {
                self.begun.insert(address);
            }
            PartMessage::Done { address, outcome } => {
                self.begun.remove(&address);
                self.order.done.push(page_sum(&address));
                self.report.page(address, outcome, &mut self.watch);
            }
            PartMessage::Ended { .. } | PartMessage::Failed { .. } => {}
        }
    }

    /// Finds out which page ended the process that did the work.
    fn after_death(&mut self, status: ExitStatus, deaths: u32) -> Result<(), Failure> {
        let how = match status.signal() {
            Some(signal) => format!("signal {signal}"),
            None => format!("exit code {}", status.code().unwrap_or_default()),
        };
        let begun: Vec<String> = self.begun.drain().collect();
        let is_over = deaths >= DEATHS_MAX || begun.is_empty() || self.stop.load(Ordering::Relaxed);
        if let ([only], false) = (&begun[..], is_over) {
            let why = format!(
                "laying it out ended the process ({how}): it takes more memory than there may be"
            );
            self.hear(PartMessage::Done {
                address: only.clone(),
                outcome: PageOutcome::Failed { why },
            });
            return Ok(());
        }
        self.order.alone = begun.iter().map(|address| page_sum(address)).collect();
        if is_over {
            self.watch.clear();
            return Err(other(format!(
                "the process that does the work ended ({how}) for the {deaths}. time; what it kept is kept, and the same command goes on"
            )));
        }
        Ok(())
    }
}
