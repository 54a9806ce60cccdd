//! The ledger in a file, for runs that take hours and may be broken off: lines of text, one for
//! each count.
//!
//! Invariant: the file has whole rounds only, and names the plan that it belongs to; another plan's
//! is refused.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use super::{Count, Ledger};
use crate::cause::Cause;
use crate::lab::Plan;
use crate::missing::{Result, host};

const VERSION: &str = "holdfast-lab-2";

impl Ledger {
    /// The ledger of an earlier run with the same plan; an empty one if there is no file.
    ///
    /// # Errors
    /// When the file cannot be read, or is another plan's.
    pub fn of_file(path: &Path, plan: &Plan) -> Result<Ledger> {
        let text = match fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Ledger::default()),
            other => other.map_err(host("read", path))?,
        };
        let other =
            || io::Error::other("it belongs to other failures or another seed, or is no ledger");
        Ledger::read(&text, plan).ok_or_else(other).map_err(host("go on from", path))
    }

    /// Writes it to a file, whole or not at all.
    ///
    /// # Errors
    /// What the file system says.
    pub fn keep(&self, path: &Path, plan: &Plan) -> Result<()> {
        let temporary = path.with_extension("part");
        let written =
            fs::write(&temporary, self.to_text(plan)).and_then(|()| fs::rename(&temporary, path));
        written.map_err(host("write", path))
    }

    fn to_text(&self, plan: &Plan) -> String {
        let mut text = format!("{}\nrounds {}\n", title(plan), self.rounds);
        // Writing to a String cannot fail.
        for ((cause, place), count) in &self.counts {
            let Count { trials, acknowledged, lost, broken, opening } = count;
            let opening = opening.as_micros();
            let _ = writeln!(
                text,
                "count {cause} {place} {trials} {acknowledged} {lost} {broken} {opening}"
            );
        }
        for (cause, took) in &self.restarts {
            let _ = writeln!(text, "restart {cause} {}", took.as_micros());
        }
        for finding in &self.findings {
            let _ = writeln!(text, "finding {}", finding.replace('\n', "; "));
        }
        text
    }

    fn read(text: &str, plan: &Plan) -> Option<Ledger> {
        let mut lines = text.lines();
        if lines.next()? != title(plan) {
            return None;
        }
        let mut ledger = Ledger::default();
        for line in lines {
            let (word, rest) = line.split_once(' ')?;
            let mut words = rest.split(' ');
            match word {
                "rounds" => ledger.rounds = rest.parse().ok()?,
                "count" => {
                    let key = (Cause::parse(words.next()?)?, words.next()?.parse().ok()?);
                    let mut number = || words.next()?.parse::<u64>().ok();
                    let count = Count {
                        trials: number()?,
                        acknowledged: number()?,
                        lost: number()?,
                        broken: number()?,
                        opening: Duration::from_micros(number()?),
                    };
                    ledger.counts.insert(key, count);
                }
                "restart" => {
                    let cause = Cause::parse(words.next()?)?;
                    ledger
                        .restarts
                        .insert(cause, Duration::from_micros(words.next()?.parse().ok()?));
                }
                "finding" => ledger.findings.push(rest.to_owned()),
                _ => return None,
            }
        }
        Some(ledger)
    }
}

/// What a plan does, apart from how often.
fn title(plan: &Plan) -> String {
    let causes: Vec<_> = plan.causes.iter().map(|cause| cause.name()).collect();
    format!("{VERSION} seed {:#x} early {} {}", plan.seed, plan.early, causes.join(" "))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::place::{Holder, Place, Pool};
    use holdfast_types::Durability;

    fn plan(seed: u64) -> Plan {
        let causes = vec![Cause::Panic, Cause::Hold];
        Plan { causes, rounds: 40, time: None, kept_at: None, seed, early: false }
    }

    /// A ledger resumes where it was interrupted and refuses that of another plan.
    #[test]
    fn ledger_resumes_only_its_own_plan() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ledger");
        assert_eq!(Ledger::of_file(&path, &plan(7)).unwrap().rounds, 0);
        let place = Place { holder: Holder::Applet, pool: Pool::Dax, level: Durability::System };
        let mut ledger = Ledger::default();
        ledger.acknowledge(place, 12);
        ledger.found(Cause::Panic, place, 9, Duration::from_micros(1234));
        ledger.restarted(Cause::Hold, Duration::from_millis(10));
        ledger.object(Cause::Hold, "two\nlines");
        ledger.rounds = 3;
        ledger.keep(&path, &plan(7)).unwrap();
        let read = Ledger::of_file(&path, &plan(7)).unwrap();
        assert_eq!(
            (read.rounds, &read.counts, &read.restarts),
            (3, &ledger.counts, &ledger.restarts)
        );
        assert_eq!(read.findings().len(), 2);
        assert!(read.findings()[1].ends_with("two; lines"), "{:?}", read.findings());
        assert!(Ledger::of_file(&path, &plan(8)).is_err());
        fs::write(&path, "rubbish\n").unwrap();
        assert!(Ledger::of_file(&path, &plan(7)).is_err());
    }
}
