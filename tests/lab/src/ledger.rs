//! The ledger: what was acknowledged, what was found after each failure, and the table of both.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

mod kept;

use crate::cause::Cause;
use crate::place::{Holder, Place, Pool};
use holdfast_types::Durability;

/// Counts for one failure and one heap or database, over all trials.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// How often it was tried.
    pub trials: u64,
    /// Records that were acknowledged since they were last looked for.
    pub acknowledged: u64,
    /// Acknowledged records that were not found, of whatever promise.
    pub lost: u64,
    /// How often it was not whole.
    pub broken: u64,
    /// The longest that opening took.
    pub opening: Duration,
}

/// All that was seen.
#[derive(Debug, Default)]
pub struct Ledger {
    rounds: u64,
    /// The highest record that was acknowledged, and had been at the last look.
    promised: BTreeMap<Place, (u64, u64)>,
    /// The highest record that is on the disk: no failure takes it.
    secured: BTreeMap<Place, u64>,
    counts: BTreeMap<(Cause, Place), Count>,
    /// From the failure to the moment at which the guest takes orders again; the longest.
    restarts: BTreeMap<Cause, Duration>,
    /// What went wrong, in words.
    findings: Vec<String>,
}

impl Ledger {
    /// Rounds that are done.
    #[must_use]
    pub fn rounds(&self) -> u64 {
        self.rounds
    }

    /// Notes that one more round is done.
    pub fn finish_round(&mut self) {
        self.rounds += 1;
    }

    /// Notes that every record up to this one is promised.
    pub fn acknowledge(&mut self, place: Place, number: u64) {
        let promised = self.promised.entry(place).or_default();
        promised.0 = promised.0.max(number);
    }

    /// Notes that every record up to this one is on the disk, whatever its level.
    pub fn secure(&mut self, place: Place, number: u64) {
        let secured = self.secured.entry(place).or_default();
        *secured = number.max(*secured);
    }

    /// Records that were acknowledged since the last look.
    #[must_use]
    pub fn acknowledged(&self, place: Place) -> u64 {
        self.promised.get(&place).map_or(0, |(highest, before)| highest.saturating_sub(*before))
    }

    /// Notes that after a failure the records up to `number` were there. From now on no more is
    /// promised.
    pub fn found(&mut self, cause: Cause, place: Place, number: u64, opening: Duration) {
        let (highest, before) = self.promised.get(&place).copied().unwrap_or_default();
        let count = self.counts.entry((cause, place)).or_default();
        let lost = highest.saturating_sub(number);
        count.trials += 1;
        count.acknowledged += highest.saturating_sub(before);
        count.lost += lost;
        count.opening = count.opening.max(opening);
        if lost > 0 && cause.is_survived_by(place) {
            self.findings.push(format!(
                "{}: {place}: record {highest} was acknowledged, {number} is the last one there",
                cause.describe()
            ));
        }
        let secured = self.secured.get(&place).copied().unwrap_or_default();
        if number < secured {
            self.findings.push(format!(
                "{}: {place}: a checkpoint had brought record {secured} to the disk, {number} is the last one there",
                cause.describe()
            ));
            self.secured.insert(place, number);
        }
        let there = highest.min(number);
        self.promised.insert(place, (there, there));
    }

    /// Notes that a heap or database is not whole.
    pub fn broken(&mut self, cause: Cause, place: Place, what: &str) {
        let count = self.counts.entry((cause, place)).or_default();
        count.trials += 1;
        count.broken += 1;
        self.findings.push(format!("{}: {place}: {what}", cause.describe()));
        self.promised.remove(&place);
        self.secured.remove(&place);
    }

    /// Notes what else went wrong.
    pub fn object(&mut self, cause: Cause, what: &str) {
        self.findings.push(format!("{}: {what}", cause.describe()));
    }

    /// Notes how long it took until the guest took orders again.
    pub fn restarted(&mut self, cause: Cause, took: Duration) {
        let longest = self.restarts.entry(cause).or_default();
        *longest = took.max(*longest);
    }

    /// Forgets what is promised: the heaps and databases are gone.
    pub fn forget(&mut self) {
        self.promised.clear();
        self.secured.clear();
    }

    /// What was counted for a failure and a place.
    #[must_use]
    pub fn count(&self, cause: Cause, place: Place) -> Count {
        self.counts.get(&(cause, place)).copied().unwrap_or_default()
    }

    /// What was promised and not kept. The lab is red if there is anything.
    #[must_use]
    pub fn findings(&self) -> &[String] {
        &self.findings
    }

    /// Failures after which nothing at all was lost that they should have taken: they were none.
    #[must_use]
    pub fn harmless(&self) -> Vec<Cause> {
        // What lies in ordinary memory only is lost with the machine.
        let gone = Place { holder: Holder::Heap, pool: Pool::Tmpfs, level: Durability::Process };
        let tried = self.counts.iter().filter(|((cause, place), _)| {
            !cause.spares_machine() && *place == gone && !cause.is_survived_by(gone)
        });
        tried
            .filter(|(_, count)| count.acknowledged > 0 && count.lost == 0)
            .map(|((cause, _), _)| *cause)
            .collect()
    }

    /// The table: failure by place.
    #[must_use]
    pub fn to_table(&self) -> String {
        let mut text = String::from(
            "| failure | what | pool | level | trials | acknowledged | lost | promised | restart s | open ms |\n\
             |---|---|---|---|---|---|---|---|---|---|\n",
        );
        for ((cause, place), count) in &self.counts {
            let promised = if cause.is_survived_by(*place) { "yes" } else { "no" };
            let lost = match count.broken {
                0 => count.lost.to_string(),
                broken => format!("{}; {broken} not whole", count.lost),
            };
            let restart = self
                .restarts
                .get(cause)
                .map_or("-".to_owned(), |took| format!("{:.1}", took.as_secs_f64()));
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} | {lost} | {promised} | {restart} | {:.1} |",
                cause.describe(),
                place.holder.name(),
                place.pool.name(),
                place.level.name(),
                count.trials,
                count.acknowledged,
                count.opening.as_secs_f64() * 1e3,
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHEAP: Place =
        Place { holder: Holder::Heap, pool: Pool::Tmpfs, level: Durability::Process };
    const SAFE: Place = Place { holder: Holder::Heap, pool: Pool::Tmpfs, level: Durability::Power };
    const OPENING: Duration = Duration::from_millis(3);

    /// A lost record is a finding only if it was promised to survive.
    #[test]
    fn only_promised_records_are_findings() {
        let mut ledger = Ledger::default();
        for place in [CHEAP, SAFE] {
            ledger.acknowledge(place, 10);
            ledger.acknowledge(place, 9);
        }
        ledger.found(Cause::Panic, CHEAP, 4, OPENING);
        ledger.found(Cause::Panic, SAFE, 11, OPENING);
        assert!(ledger.findings().is_empty());
        assert_eq!(
            (ledger.count(Cause::Panic, CHEAP).lost, ledger.count(Cause::Panic, SAFE).lost),
            (6, 0)
        );
        // What is gone is promised no more, and what was never acknowledged is not promised for
        // having been there.
        ledger.found(Cause::Crash, CHEAP, 4, OPENING);
        ledger.found(Cause::Crash, SAFE, 10, OPENING);
        assert!(ledger.findings().is_empty());
        ledger.found(Cause::Crash, SAFE, 9, OPENING);
        assert_eq!(ledger.findings().len(), 1);
        assert!(ledger.findings()[0].contains("record 10"), "{:?}", ledger.findings());
        assert!(
            ledger.to_table().contains("| heap | tmpfs | power | 2 | 0 | 1 | yes |"),
            "{}",
            ledger.to_table()
        );
    }

    /// What a checkpoint wrote to disk is promised after every failure.
    #[test]
    fn checkpointed_data_is_promised_after_any_failure() {
        let mut ledger = Ledger::default();
        let place = Place { holder: Holder::Database, ..CHEAP };
        ledger.acknowledge(place, 10);
        ledger.secure(place, 8);
        ledger.found(Cause::PowerCut, place, 8, OPENING);
        assert!(ledger.findings().is_empty(), "{:?}", ledger.findings());
        ledger.found(Cause::PowerCut, place, 7, OPENING);
        assert_eq!(ledger.findings().len(), 1);
        // Told once, and of another database not at all.
        ledger.found(Cause::PowerCut, place, 7, OPENING);
        ledger.forget();
        ledger.found(Cause::PowerCut, place, 0, OPENING);
        assert_eq!(ledger.findings().len(), 1);
    }

    /// A failure of the machine that lost nothing is listed separately.
    #[test]
    fn harmless_machine_failure_is_listed() {
        let mut ledger = Ledger::default();
        ledger.acknowledge(CHEAP, 10);
        ledger.found(Cause::Crash, CHEAP, 10, OPENING);
        ledger.acknowledge(CHEAP, 20);
        ledger.found(Cause::PowerCut, CHEAP, 0, OPENING);
        assert_eq!(ledger.harmless(), []);
        ledger.acknowledge(CHEAP, 30);
        ledger.found(Cause::Panic, CHEAP, 30, OPENING);
        assert_eq!(ledger.harmless(), [Cause::Panic]);
    }

    /// A heap that is not whole is a finding, whatever was promised.
    #[test]
    fn broken_heap_is_always_a_finding() {
        let mut ledger = Ledger::default();
        ledger.acknowledge(CHEAP, 10);
        ledger.broken(Cause::Panic, CHEAP, "record 3 of 10 is missing");
        assert_eq!(ledger.findings().len(), 1);
        assert!(ledger.to_table().contains("0; 1 not whole"));
    }
}
