//! The lab: one machine after the other lives through every failure, and its records are looked for after each.
//!
//! Invariants: every wait is bounded; a failure strikes while records are written, at a moment that chance decides.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tempfile::TempDir;

use crate::cause::Cause;
use crate::flash::{Flash, make_ext4};
use crate::initramfs::{self, Brought};
use crate::kernel::Kernel;
use crate::ledger::Ledger;
use crate::machine::{self, Machine, Parts, RESERVED_MIB};
use crate::missing::{Result, host};
use crate::words::{Order, Place, Report};

const FLASH_MIB: u64 = 160;
/// From switching on to the first order, on a machine that does other things, too.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// For everything else but programs that are brought along.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Every heap has so many new records, at least, before a failure; and up to so many more.
const RECORDS_MIN: u64 = 5;
const RECORDS_MORE: u64 = 40;
/// A writer that lies may be killed in the one moment in which all that it said is true.
const PROOFS_MAX: u64 = 8;
/// From the moment at which every heap has its new records to the failure.
const AFTERWARDS_MS_MAX: u64 = 300;
/// How long a hang, a freeze, and the hand on the button last.
const HOLD: Duration = Duration::from_secs(1);

/// What is wanted.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The failures, in the order in which each machine lives through them.
    pub causes: Vec<Cause>,
    /// How often.
    pub rounds: u64,
    /// What decides the moments.
    pub seed: u64,
    /// Whether records are acknowledged before they are committed: then the lab must find losses.
    pub early: bool,
}

/// Where things are.
#[derive(Debug, Clone)]
pub struct Files {
    /// The built program for the machine.
    pub guest: PathBuf,
    /// A directory with `vmlinuz` and `modules/`.
    pub kernel: PathBuf,
}

/// A scratch directory with all that machines are made of.
#[derive(Debug)]
pub struct Lab {
    // Removed with everything in it.
    _directory: TempDir,
    parts: Parts,
}

impl Lab {
    /// Makes images for machines that bring `brought` along.
    ///
    /// # Errors
    /// `Missing` with what this computer lacks; else what failed.
    pub fn new(files: &Files, brought: Option<&Brought>) -> Result<Lab> {
        machine::check()?;
        let kernel = Kernel::find(&files.kernel)?;
        let directory = tempfile::Builder::new().prefix("holdfast-lab-").tempdir();
        let directory = directory.map_err(host("make", "a temporary directory"))?;
        let at = |name: &str| directory.path().join(name);
        let parts = Parts {
            kernel: kernel.image,
            initramfs: at("initramfs"),
            flash: Flash::make(directory.path(), FLASH_MIB << 20)?,
            template: at("template"),
            directory: directory.path().to_owned(),
        };
        initramfs::write(&parts.initramfs, &files.guest, &kernel.modules, brought)?;
        make_ext4(&parts.template, RESERVED_MIB << 20)?;
        Ok(Lab { _directory: directory, parts })
    }

    /// Runs the plan and fills the ledger; `tell` is given a line for each thing that happened.
    ///
    /// # Errors
    /// When a machine did not do what it should. Losses are no error here: they are in the ledger.
    pub fn run(&self, plan: &Plan, ledger: &mut Ledger, tell: &mut dyn FnMut(&str)) -> Result<()> {
        let mut random = StdRng::seed_from_u64(plan.seed);
        for round in 0..plan.rounds {
            // A disk of its own: its files do not pile up.
            Flash::make(&self.parts.directory, FLASH_MIB << 20)?;
            ledger.forget();
            let (mut session, took, _) = Session::start(&self.parts, ledger)?;
            tell(&format!("round {}: started in {:.1} s", round + 1, took.as_secs_f64()));
            if !plan.early {
                session.prove(tell)?;
            }
            for cause in &plan.causes {
                session.write(plan.early, RECORDS_MIN + random.random_range(0..RECORDS_MORE))?;
                // Not always behind the same step of the same heap.
                session.note_for(Duration::from_millis(random.random_range(0..AFTERWARDS_MS_MAX)))?;
                session = session.suffer(*cause, &self.parts, &mut random, tell)?;
                if !session.verify(*cause)? {
                    tell("a heap is not whole; nothing more is done to this machine");
                    break;
                }
            }
        }
        Ok(())
    }

    /// Runs the program that was brought along; `show` is given each line of the console. Returns its exit status.
    ///
    /// # Errors
    /// When the machine did not do what it should, or the program took longer.
    pub fn run_brought(&self, timeout: Duration, show: &mut dyn FnMut(&str)) -> Result<Option<i32>> {
        let mut ledger = Ledger::default();
        let (mut session, ..) = Session::start(&self.parts, &mut ledger)?;
        let mut console = Console::from_end_of(session.machine.console())?;
        session.machine.order(Order::Run)?;
        let until = Instant::now() + timeout;
        loop {
            let heard = session.machine.hear(Duration::from_millis(200))?;
            console.show_new(show)?;
            match heard {
                Some((_, Report::Ended { status })) => return Ok(status),
                _ if Instant::now() > until => {
                    return Err(session.machine.failed(format!("runs the program for {timeout:?} already")));
                }
                _ => {}
            }
        }
    }
}

/// One machine with the ledger of what it says.
struct Session<'a> {
    machine: Machine,
    ledger: &'a mut Ledger,
}

impl<'a> Session<'a> {
    /// Also says how long it took, and whether the reserved memory was kept.
    fn start(parts: &Parts, ledger: &'a mut Ledger) -> Result<(Session<'a>, Duration, bool)> {
        let started = Instant::now();
        let mut session = Session { machine: Machine::start(parts)?, ledger };
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
                    note(self.ledger, &report);
                }
                None => return Err(self.machine.failed(format!("did not {what} within {timeout:?}"))),
            }
        }
    }

    fn wait_until_done(&mut self, what: &str) -> Result<()> {
        self.wait_for(what, ANSWER_TIMEOUT, |report| (*report == Report::Done).then_some(()))
    }

    /// Has records written, until every heap has so many new ones.
    fn write(&mut self, early: bool, records: u64) -> Result<()> {
        self.machine.order(Order::Write { early })?;
        let until = Instant::now() + ANSWER_TIMEOUT;
        let behind = |ledger: &Ledger| Place::all().any(|place| ledger.acknowledged(place) < records);
        while behind(self.ledger) {
            let left = until.saturating_duration_since(Instant::now());
            match self.machine.hear(left)? {
                Some((_, report)) => note(self.ledger, &report),
                None => return Err(self.machine.failed(format!("did not write {records} records in time"))),
            }
        }
        Ok(())
    }

    /// Finds the losses of a writer that acknowledges before it commits, or the lab proves nothing. Then all is as before.
    fn prove(&mut self, tell: &mut dyn FnMut(&str)) -> Result<()> {
        let mut honest = std::mem::take(self.ledger);
        let mut proven = false;
        for _ in 0..PROOFS_MAX {
            self.write(true, 1)?;
            self.kill()?;
            self.verify(Cause::Crash)?;
            proven |= !self.ledger.findings().is_empty();
            if proven {
                tell(&format!("a writer that lies is caught: {}", self.ledger.findings()[0]));
                break;
            }
        }
        std::mem::swap(self.ledger, &mut honest);
        if !proven {
            return Err(self
                .machine
                .failed("loses nothing that was acknowledged and never committed".to_owned()));
        }
        self.machine.order(Order::Forget)?;
        self.wait_until_done("remove its heaps")
    }

    /// Causes the failure, and waits until the machine takes orders again.
    fn suffer(
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
            Cause::Freeze => {
                self.machine.control("stop")?;
                self.note_for(HOLD)?;
                struck = Instant::now();
                self.machine.control("system_reset")?;
                self.machine.control("cont")?;
            }
            Cause::PowerCut => {
                let Session { machine, ledger } = self;
                for (_, report) in machine.cut_power() {
                    note(ledger, &report);
                }
                let cut = parts.flash.cut_power(random)?;
                tell(&format!(
                    "the disk kept {} writes; {} after the last flush are gone, {} are there by half",
                    cut.kept, cut.gone, cut.torn
                ));
                self = Session { machine: Machine::start(parts)?, ledger };
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
        if kept == (cause == Cause::PowerCut) {
            return Err(self
                .machine
                .failed(format!("has {memory} reserved memory after: {}", cause.describe())));
        }
        Ok(self)
    }

    fn kill(&mut self) -> Result<()> {
        self.machine.order(Order::Kill)?;
        self.wait_until_done("kill the writer")
    }

    /// Listens for so long.
    fn note_for(&mut self, time: Duration) -> Result<()> {
        let until = Instant::now() + time;
        while let Some((_, report)) = self.machine.hear(until.saturating_duration_since(Instant::now()))? {
            note(self.ledger, &report);
            if Instant::now() >= until {
                break;
            }
        }
        Ok(())
    }

    /// Has every heap looked at, and notes what is in it; says whether all are whole.
    fn verify(&mut self, cause: Cause) -> Result<bool> {
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
            return Err(self.machine.failed(format!("reports on {} of {expected} heaps", seen.len())));
        }
        let mut whole = true;
        for report in seen {
            match report {
                Report::Found { place, number, opening, .. } => {
                    self.ledger.found(cause, place, number, opening)
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

fn note(ledger: &mut Ledger, report: &Report) {
    if let Report::Acknowledged { place, number } = report {
        ledger.acknowledge(*place, *number);
    }
}

/// The console's words that are not shown yet.
struct Console {
    path: PathBuf,
    shown: usize,
}

impl Console {
    fn from_end_of(path: &Path) -> Result<Console> {
        let shown = std::fs::read(path).map_err(host("read", path))?.len();
        Ok(Console { path: path.to_owned(), shown })
    }

    fn show_new(&mut self, show: &mut dyn FnMut(&str)) -> Result<()> {
        let bytes = std::fs::read(&self.path).map_err(host("read", &self.path))?;
        let new = &bytes[self.shown.min(bytes.len())..];
        // Whole lines; the rest comes later.
        let end = new.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        for line in String::from_utf8_lossy(&new[..end]).lines() {
            show(line);
        }
        self.shown += end;
        Ok(())
    }
}
