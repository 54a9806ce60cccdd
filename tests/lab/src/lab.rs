//! The lab: one machine after the other lives through every failure, and its records are looked for
//! after each.
//!
//! Invariants: every wait is bounded; a failure strikes while records are written, at a moment that
//! chance decides.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tempfile::TempDir;

use crate::cause::Cause;
use crate::flash::{Flash, make_ext4};
use crate::initramfs::{self, ExtraProgram, Programs};
use crate::kernel::Kernel;
use crate::ledger::Ledger;
use crate::machine::{self, Parts, RESERVED_MIB};
use crate::missing::{Result, host};
use crate::session::Session;
use crate::words::{Order, Report};

const FLASH_MIB: u64 = 160;
/// Every heap has so many new records, at least, before a failure; and up to so many more.
const RECORDS_MIN: u64 = 5;
const RECORDS_MORE: u64 = 40;
/// From the moment at which every heap has its new records to the failure.
const AFTERWARDS_MS_MAX: u64 = 300;
/// What is wanted.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The failures, in the order in which each machine lives through them.
    pub causes: Vec<Cause>,
    /// How often.
    pub rounds: u64,
    /// No round begins after so long.
    pub time: Option<Duration>,
    /// A file that has the ledger after each round, so that a later run goes on from there.
    pub kept_at: Option<PathBuf>,
    /// What decides the moments.
    pub seed: u64,
    /// Whether records are acknowledged before they are committed: then the lab must find losses.
    pub early: bool,
}

/// Where things are.
#[derive(Debug, Clone)]
pub struct Files {
    /// The built programs for the machine.
    pub programs: Programs,
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
    pub fn new(files: &Files, brought: Option<&ExtraProgram>) -> Result<Lab> {
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
        files.programs.check()?;
        initramfs::write(&parts.initramfs, &files.programs, &kernel.modules, brought)?;
        make_ext4(&parts.template, RESERVED_MIB << 20)?;
        Ok(Lab { _directory: directory, parts })
    }

    /// Runs the plan and fills the ledger; `tell` is given a line for each thing that happened.
    ///
    /// # Errors
    /// When a machine did not do what it should. Losses are no error here: they are in the ledger.
    pub fn run(&self, plan: &Plan, ledger: &mut Ledger, tell: &mut dyn FnMut(&str)) -> Result<()> {
        let started = Instant::now();
        while ledger.rounds() < plan.rounds {
            let round = ledger.rounds();
            if plan.time.is_some_and(|time| started.elapsed() > time) {
                tell(&format!("the time is over; {round} of {} rounds are done", plan.rounds));
                break;
            }
            // Of its own, so that a run that goes on is the same as one that was never broken off.
            let mut random = StdRng::seed_from_u64(plan.seed.wrapping_add(round));
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
                session
                    .note_for(Duration::from_millis(random.random_range(0..AFTERWARDS_MS_MAX)))?;
                if cause.is_announced() {
                    session.announce(*cause, tell)?;
                    // The machine goes on for a while, as a device does.
                    session.note_for(Duration::from_millis(
                        random.random_range(0..AFTERWARDS_MS_MAX),
                    ))?;
                }
                session = session.suffer(*cause, &self.parts, &mut random, tell)?;
                session.saving = false;
                if !session.verify(*cause)? {
                    tell("a heap is not whole; nothing more is done to this machine");
                    break;
                }
            }
            ledger.finish_round();
            if let Some(path) = &plan.kept_at {
                ledger.keep(path, plan)?;
            }
        }
        Ok(())
    }

    /// Runs the program that was brought along; `show` is given each line of the console. Returns
    /// its exit status.
    ///
    /// # Errors
    /// When the machine did not do what it should, or the program took longer.
    pub fn run_brought(
        &self,
        timeout: Duration,
        show: &mut dyn FnMut(&str),
    ) -> Result<Option<i32>> {
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
                    return Err(session
                        .machine
                        .failed(format!("runs the program for {timeout:?} already")));
                }
                _ => {}
            }
        }
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
