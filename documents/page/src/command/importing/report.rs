//! The report of an import.

use std::time::Instant;

use holdfast_sys::counted::counted;
use holdfast_sys::terminal::Shown;
use serde::Serialize;

use crate::command::importing::STOPPED;
use crate::command::importing::part::PartEnd;
use crate::command::importing::watch::Watch;
use crate::command::{FOUND, Failure, NO_ROOM, print, print_json};
use crate::{ImportPlan, ImportProblem, PageOutcome};

/// Failures that are named on the terminal, and in JSON.
const SHOWN_MAX: usize = 100;
const LISTED_MAX: usize = 10_000;

/// A page that was not kept.
#[derive(Debug, Serialize)]
struct FailedPage {
    address: String,
    why: String,
}

/// See the module. Sizes in bytes.
#[derive(Debug)]
pub(crate) struct Report {
    started: Instant,
    plan: Option<ImportPlan>,
    pub(crate) pages: u64,
    pub(crate) kept: u64,
    pub(crate) unchanged: u64,
    pub(crate) failed: u64,
    pub(crate) bytes: u64,
    evicted: u64,
    failures: Vec<FailedPage>,
    pub(crate) wrong_sums: u64,
    /// Pages for which there was no room beside others.
    pub(crate) waited: u64,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Printed<'a> {
    ended: &'static str,
    pages: u64,
    kept: u64,
    unchanged: u64,
    failed: &'a [FailedPage],
    failed_count: u64,
    bytes: u64,
    evicted: u64,
    left_out: u64,
    hidden: u64,
    outside: u64,
    damaged: u64,
    troubles: &'a [ImportProblem],
    wrong_sums: u64,
    waited: u64,
    seconds: f64,
    pages_per_s: f64,
}

impl Report {
    pub(crate) fn new() -> Report {
        Report {
            started: Instant::now(),
            plan: None,
            pages: 0,
            kept: 0,
            unchanged: 0,
            failed: 0,
            bytes: 0,
            evicted: 0,
            failures: Vec::new(),
            wrong_sums: 0,
            waited: 0,
        }
    }

    pub(crate) fn done(&self) -> u64 {
        self.kept + self.unchanged + self.failed
    }

    pub(crate) fn pages_per_s(&self) -> f64 {
        self.done() as f64 / self.started.elapsed().as_secs_f64().max(1e-3)
    }

    /// What there is. A later process finds less, since some of it is done.
    pub(crate) fn plan(&mut self, plan: ImportPlan, watch: &mut Watch) {
        if self.plan.is_some() {
            return;
        }
        for ImportProblem { at, url, what } in plan.troubles.iter().take(SHOWN_MAX) {
            let place = at.map(|at| format!("at byte {at}: ")).unwrap_or_default();
            let url = url.as_ref().map(|url| format!("{url}: ")).unwrap_or_default();
            watch.say(&format!("{place}{url}{what}"));
        }
        let more = plan.damaged.saturating_sub(plan.troubles.len() as u64);
        if more > 0 {
            watch.say(&format!("{} not named", counted(more, "more record")));
        }
        self.pages = plan.pages;
        self.plan = Some(plan);
    }

    pub(crate) fn page(&mut self, address: String, outcome: PageOutcome, watch: &mut Watch) {
        match outcome {
            PageOutcome::Kept { bytes, evicted } => {
                self.kept += 1;
                self.bytes += bytes;
                self.evicted += evicted;
            }
            PageOutcome::Unchanged => self.unchanged += 1,
            PageOutcome::Failed { why } => {
                self.failed += 1;
                if self.failures.len() < SHOWN_MAX {
                    // A page that cannot be read names itself.
                    let named = why.contains(&address);
                    watch.say(&if named { why.clone() } else { format!("{address}: {why}") });
                } else if self.failures.len() == SHOWN_MAX {
                    watch.say("further pages that fail are counted, and named by --json");
                }
                if self.failures.len() < LISTED_MAX {
                    self.failures.push(FailedPage { address, why });
                }
            }
        }
    }

    /// Prints it; the exit code.
    pub(crate) fn finish(self, ended: PartEnd, json: bool) -> Result<u8, Failure> {
        let seconds = self.started.elapsed().as_secs_f64();
        let plan = self.plan.as_ref().cloned().unwrap_or_default();
        let code = match &ended {
            PartEnd::Stopped => STOPPED,
            PartEnd::Full => NO_ROOM,
            PartEnd::Cache { code, .. } => *code,
            _ if self.failed + plan.damaged + self.wrong_sums > 0 => FOUND,
            _ => 0,
        };
        if json {
            print_json(&Printed {
                ended: match &ended {
                    PartEnd::Stopped => "stopped",
                    PartEnd::Full => "full",
                    PartEnd::Cache { .. } => "cache",
                    PartEnd::Done | PartEnd::Weary => "done",
                },
                pages: self.pages,
                kept: self.kept,
                unchanged: self.unchanged,
                failed: &self.failures,
                failed_count: self.failed,
                bytes: self.bytes,
                evicted: self.evicted,
                left_out: plan.left_out,
                hidden: plan.hidden,
                outside: plan.outside,
                damaged: plan.damaged,
                troubles: &plan.troubles,
                wrong_sums: self.wrong_sums,
                waited: self.waited,
                seconds,
                pages_per_s: self.done() as f64 / seconds.max(1e-3),
            })?;
        } else {
            print(&format!(
                "{}: {} kept ({:.1} MB), {} unchanged, {} failed; {seconds:.1} s, {:.1} pages/s\n",
                counted(self.pages, "page"),
                self.kept,
                self.bytes as f64 / 1e6,
                self.unchanged,
                self.failed,
                self.done() as f64 / seconds.max(1e-3)
            ))?;
        }
        let left = self.pages - self.done().min(self.pages);
        let mut watch = Watch::new();
        let count = |count: u64, noun: &str, what: &str, watch: &mut Watch| {
            if count > 0 {
                watch.say(&format!("{} {what}", counted(count, noun)));
            }
        };
        count(plan.hidden, "hidden file or folder", "left out; --hidden takes them", &mut watch);
        count(plan.outside, "link", "out of the folder not followed", &mut watch);
        count(
            plan.damaged,
            "record",
            "(or file or folder) damaged, or could not be read",
            &mut watch,
        );
        count(
            self.wrong_sums,
            "response",
            "without the sum that the file says they have",
            &mut watch,
        );
        count(
            self.waited,
            "page",
            "waited for the memory that others had; fewer --jobs are as quick",
            &mut watch,
        );
        count(self.evicted, "view", "that was used longer ago had to go", &mut watch);
        match ended {
            PartEnd::Stopped => watch.say(&format!("stopped; {} left, and the same command goes on there", counted(left, "page"))),
            PartEnd::Full => watch.say(&format!(
                "the cache is full of pages of this import (and of others used meanwhile); {left} are left: raise --quota, or choose by --match"
            )),
            PartEnd::Cache { message, .. } => {
                watch.say(&format!("stopped, since the cache cannot be written: {message}; {} left", counted(left, "page")));
            }
            PartEnd::Done | PartEnd::Weary => {}
        }
        Ok(code)
    }
}

/// What a page says does not steer the terminal.
pub(crate) fn shown(text: &str) -> String {
    Shown(text).to_string()
}
