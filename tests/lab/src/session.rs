//! One machine of the lab with what it says: has it write, suffer a failure, and look for its
//! records.
//!
//! Invariant: every wait is bounded.

use std::time::{Duration, Instant};

use rand::rngs::StdRng;

use crate::cause::Cause;
use crate::ledger::Ledger;
use crate::machine::{Machine, Parts};
use crate::missing::Result;
use crate::place::{Holder, Place};
use crate::words::{Order, Report};

/// From switching on to the first order, on a machine that does other things, too.
const START_TIMEOUT: Duration = Duration::from_secs(300);
/// For everything else but programs that are brought along.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(180);
/// A writer that lies may be killed in the one moment in which all that it said is true.
const PROOFS_MAX: u64 = 8;
/// How long a hang, a freeze, and the hand on the button last.
const HOLD: Duration = Duration::from_secs(1);
/// From the press of the power key until the keeper has dealt with it.
const SAVING_TIMEOUT: Duration = Duration::from_secs(120);
/// So much more than a record in a heap of the writer's own.
const COSTLIER: u64 = 4;

/// One machine with the ledger of what it says.
pub(crate) struct Session<'a> {
    pub(crate) machine: Machine,
    ledger: &'a mut Ledger,
    /// The failure has announced itself: what is stored to ordinary memory from now on is promised
    /// to no one.
    pub(crate) saving: bool,
}

impl<'a> Session<'a> {
    /// Also says how long it took, and whether the reserved memory was kept.
    pub(crate) fn start(
        parts: &Parts,
        ledger: &'a mut Ledger,
    ) -> Result<(Session<'a>, Duration, bool)> {
        let started = Instant::now();
        let mut session = Session { machine: Machine::start(parts)?, ledger, saving: false };
        let kept = session.wait_until_ready()?;
        Ok((session, started.elapsed(), kept))
    }

    fn wait_until_ready(&mut self) -> Result<bool> {
        self.wait_for("be ready", START_TIMEOUT, |report| match report {
            Report::Ready { memory_kept, .. } => Some(*memory_kept),
            _ => None,
        })
    }

    /// Waits for one report; whatever else comes goes to the ledger.
    fn wait_for<T>(
        &mut self,
        what: &str,
        timeout: Duration,
        mut wanted: impl FnMut(&Report) -> Option<T>,
    ) -> Result<T> {
        let until = Instant::now() + timeout;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.machine.hear(left)? {
                Some((_, report)) => {
                    if let Some(found) = wanted(&report) {
                        return Ok(found);
                    }
                    self.note(&report);
                }
                None => {
                    return Err(self.machine.failed(format!("did not {what} within {timeout:?}")));
                }
            }
        }
    }

    fn wait_until_done(&mut self, what: &str) -> Result<()> {
        self.wait_for(what, ANSWER_TIMEOUT, |report| (*report == Report::Done).then_some(()))
    }

    /// Has records written, until every heap has so many new ones, and everything else its share.
    pub(crate) fn write(&mut self, early: bool, records: u64) -> Result<()> {
        self.machine.order(Order::Write { early })?;
        let until = Instant::now() + ANSWER_TIMEOUT;
        let behind = |ledger: &Ledger| {
            Place::all().any(|place| ledger.acknowledged(place) < wanted(place, records))
        };
        while behind(self.ledger) {
            let left = until.saturating_duration_since(Instant::now());
            match self.machine.hear(left)? {
                Some((_, report)) => self.note(&report),
                None => {
                    return Err(self
                        .machine
                        .failed(format!("did not write {records} records in time")));
                }
            }
        }
        Ok(())
    }

    /// Finds the losses of a writer that acknowledges before it commits, or the lab proves nothing.
    /// Then all is as before.
    pub(crate) fn prove(&mut self, tell: &mut dyn FnMut(&str)) -> Result<()> {
        let mut honest = std::mem::take(self.ledger);
        let mut trusted = Holder::ALL.to_vec();
        for _ in 0..PROOFS_MAX {
            self.write(true, 1)?;
            self.kill()?;
            self.verify(Cause::Crash)?;
            let ledger = &*self.ledger;
            let lost = |place| ledger.count(Cause::Crash, place).lost > 0;
            trusted.retain(|holder| !Place::of(*holder).any(lost));
            if trusted.is_empty() {
                tell(&format!("a writer that lies is caught: {}", self.ledger.findings()[0]));
                break;
            }
        }
        std::mem::swap(self.ledger, &mut honest);
        if let Some(holder) = trusted.first() {
            let what = "that was acknowledged and never committed";
            return Err(self
                .machine
                .failed(format!("loses nothing {what} by one {}", holder.name())));
        }
        self.machine.order(Order::Forget)?;
        self.wait_until_done("remove its heaps and databases")
    }

    /// Causes the failure, and waits until the machine takes orders again.
    pub(crate) fn suffer(
        mut self,
        cause: Cause,
        parts: &Parts,
        random: &mut StdRng,
        tell: &mut dyn FnMut(&str),
    ) -> Result<Session<'a>> {
        let mut struck = Instant::now();
        match cause {
            Cause::Crash => self.kill()?,
            Cause::Hang => {
                self.machine.order(Order::Hang)?;
                self.wait_until_done("stop the writer")?;
                std::thread::sleep(HOLD);
                struck = Instant::now();
                self.kill()?;
            }
            Cause::Panic => self.machine.order(Order::Panic)?,
            Cause::Button => {
                self.machine.control("system_powerdown")?;
                let pressed = |report: &Report| (*report == Report::Button).then_some(());
                self.wait_for("notice its power button", ANSWER_TIMEOUT, pressed)?;
                self.note_for(HOLD)?;
                struck = Instant::now();
                self.machine.control("system_reset")?;
            }
            Cause::Hold => {
                struck = Instant::now();
                self.machine.control("system_reset")?;
                // Its holder sees the machine start anew.
                self.machine.power_key(false)?;
            }
            Cause::Freeze => {
                self.machine.control("stop")?;
                self.note_for(HOLD)?;
                struck = Instant::now();
                self.machine.control("system_reset")?;
                self.machine.control("cont")?;
            }
            Cause::PowerCut | Cause::HoldOff => {
                let Session { machine, ledger, saving } = self;
                for (_, report) in machine.cut_power() {
                    note(ledger, saving, &report);
                }
                let cut = parts.flash.cut_power(random)?;
                tell(&format!(
                    "the disk kept {} writes; {} after the last flush are gone, {} are there by half",
                    cut.kept, cut.gone, cut.torn
                ));
                self = Session { machine: Machine::start(parts)?, ledger, saving };
            }
        }
        if cause.spares_machine() {
            return Ok(self);
        }
        let kept = self.wait_until_ready()?;
        let took = struck.elapsed();
        self.ledger.restarted(cause, took);
        let memory = if kept { "kept" } else { "new" };
        tell(&format!(
            "{}: back after {:.1} s, reserved memory {memory}",
            cause.describe(),
            took.as_secs_f64()
        ));
        if kept == cause.takes_memory() {
            return Err(self
                .machine
                .failed(format!("has {memory} reserved memory after: {}", cause.describe())));
        }
        Ok(self)
    }

    /// Has a keeper at work, presses the power key and holds it until the keeper has saved what is
    /// in ordinary memory.
    pub(crate) fn announce(&mut self, cause: Cause, tell: &mut dyn FnMut(&str)) -> Result<()> {
        self.machine.order(Order::Keep)?;
        self.wait_until_done("start a keeper")?;
        // What was said so far is promised.
        while let Some((_, report)) = self.machine.hear(Duration::ZERO)? {
            self.note(&report);
        }
        self.saving = true;
        self.machine.power_key(true)?;
        let saved = |report: &Report| match report {
            Report::Saved { heaps, databases, left, took } => {
                Some((*heaps, *databases, *left, *took))
            }
            _ => None,
        };
        let (heaps, databases, left, took) =
            self.wait_for("save its heaps", SAVING_TIMEOUT, saved)?;
        let what =
            format!("the keeper saved {heaps} heaps and {databases} databases, and left {left}");
        tell(&format!("{what}; it took {:.2} s", took.as_secs_f64()));
        // Those of the other levels may be on the disk as they are; a database may have had its
        // checkpoint just before.
        if heaps == 0 || left > 0 {
            self.ledger.object(cause, &what);
        }
        Ok(())
    }

    fn note(&mut self, report: &Report) {
        note(self.ledger, self.saving, report);
    }

    fn kill(&mut self) -> Result<()> {
        self.machine.order(Order::Kill)?;
        self.wait_until_done("kill the writer")
    }

    /// Listens for so long.
    pub(crate) fn note_for(&mut self, time: Duration) -> Result<()> {
        let until = Instant::now() + time;
        while let Some((_, report)) =
            self.machine.hear(until.saturating_duration_since(Instant::now()))?
        {
            self.note(&report);
            if Instant::now() >= until {
                break;
            }
        }
        Ok(())
    }

    /// Has every heap and database looked at, and notes what is in it; says whether all are whole.
    pub(crate) fn verify(&mut self, cause: Cause) -> Result<bool> {
        self.machine.order(Order::Verify)?;
        let mut seen = Vec::new();
        self.wait_for("verify its records", ANSWER_TIMEOUT, |report| {
            if matches!(report, Report::Found { .. } | Report::Broken { .. }) {
                seen.push(report.clone());
            }
            (*report == Report::Done).then_some(())
        })?;
        let expected = Place::all().count();
        if seen.len() != expected {
            return Err(self
                .machine
                .failed(format!("reports on {} of {expected} heaps and databases", seen.len())));
        }
        let mut whole = true;
        for report in seen {
            match report {
                Report::Found { place, number, opening, opened } => {
                    self.ledger.found(cause, place, number, opening);
                    let right = cause.leaves(place);
                    if !right.is_empty() && !right.contains(&opened.as_str()) {
                        let what = format!(
                            "{place}: was found as {opened}, not as {}",
                            right.join(" or ")
                        );
                        self.ledger.object(cause, &what);
                    }
                }
                Report::Broken { place, what } => {
                    whole = false;
                    self.ledger.broken(cause, place, &what);
                }
                _ => {}
            }
        }
        Ok(whole)
    }
}

/// Statements of SQL and calls of applets cost more than transactions of a heap.
fn wanted(place: Place, records: u64) -> u64 {
    if place.holder == Holder::Heap { records } else { records.div_ceil(COSTLIER) }
}

fn note(ledger: &mut Ledger, saving: bool, report: &Report) {
    match report {
        Report::Acknowledged { place, number } if !(saving && place.is_volatile()) => {
            ledger.acknowledge(*place, *number);
        }
        Report::Kept { place, number } => ledger.secure(*place, *number),
        _ => {}
    }
}
