//! Progress: one line that is rewritten where a person watches, and else a line now and then. A
//! closed pipe is no failure: there is no reader to tell then.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use holdfast_sys::counted::counted;

use crate::command::importing::report::{Report, shown};

const REWRITTEN_EACH: Duration = Duration::from_millis(200);
const LINE_EACH: Duration = Duration::from_secs(5);

/// Shows an import's progress on standard error.
#[derive(Debug)]
pub(crate) struct Watch {
    is_terminal: bool,
    said: Instant,
    is_shown: bool,
    /// Bytes of a file that were looked through, of so many.
    pub(crate) looking: Option<(u64, u64)>,
}

impl Watch {
    pub(crate) fn new() -> Watch {
        let is_terminal = std::io::stderr().is_terminal();
        Watch { is_terminal, said: Instant::now(), is_shown: false, looking: None }
    }

    /// Shows how far it is, if it is time.
    pub(crate) fn tick(&mut self, report: &Report) {
        let each = if self.is_terminal { REWRITTEN_EACH } else { LINE_EACH };
        if self.said.elapsed() < each {
            return;
        }
        self.said = Instant::now();
        let line = match self.looking {
            Some((bytes, of)) => {
                format!("looking through the file: {} of {} MB", bytes / 1_000_000, of / 1_000_000)
            }
            None => line(report),
        };
        if self.is_terminal {
            write(&format!("\r{line}\x1b[K"));
            self.is_shown = true;
        } else {
            write(&format!("holdfast: {line}\n"));
        }
    }

    /// Says something that stays.
    pub(crate) fn say(&mut self, text: &str) {
        self.clear();
        write(&format!("holdfast: {}\n", shown(text)));
    }

    /// Takes the line away.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            write("\r\x1b[K");
        }
    }
}

fn write(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

fn line(report: &Report) -> String {
    let (done, speed) = (report.done(), report.pages_per_s());
    let left_s = (report.pages.saturating_sub(done) as f64 / speed.max(1e-3)).min(1e7) as u64;
    let left = match (done, left_s) {
        (0, _) => String::new(),
        (_, 0..3600) => format!(", {}:{:02} left", left_s / 60, left_s % 60),
        _ => format!(", {}:{:02} h left", left_s / 3600, left_s / 60 % 60),
    };
    format!(
        "{done} of {}, {speed:.1}/s, {:.1} MB kept, {} failed{left}",
        counted(report.pages, "page"),
        report.bytes as f64 / 1e6,
        report.failed
    )
}
