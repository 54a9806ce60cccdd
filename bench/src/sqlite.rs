//! The suite `sqlite`: the VFS `holdfast` against SQLite's own ways to commit, with the same
//! library, on the workload of the qNVRAM paper. `bench/README.md` says what each key means.
//!
//! Invariants:
//! - All modes use the SQLite that is linked into this program; ours is loaded into it as an
//!   extension.
//! - Modes work in turns in one run, each first every other time, and every database is compared
//!   with what it should hold.
//! - Home and pool are scratch: the program starts itself again with the environment that says so.

mod bytes;
mod calls;
mod child;
mod contention;
mod contest;
#[allow(unsafe_code, reason = "loads an extension into SQLite")]
mod engine;
mod figures;
mod mixes;
mod orders;
mod power;
mod programs;
mod readers;
mod recovery;
mod roles;
mod sizes;
mod slow_disk;
mod speedtest;
mod texts;
mod workload;

use std::io;
use std::process::{Command, ExitCode};

use crate::heap::ground::Ground;
use crate::race::{Side, race};
use crate::report::{Goal, Outcome};
use crate::section;

pub use child::PEER;
use engine::Mode;
pub use roles::play;
use workload::{Order, Workload};

/// Where home and pool of a run are; set by the program itself.
const INSIDE: &str = "HOLDFAST_BENCH_SQLITE";
/// A pool in ordinary memory that is taken for one that outlives the boot, with the write-backs of
/// one.
const EMULATE_DAX: &str = "HOLDFAST_EMULATE_DAX";

/// A part of the suite.
type Section = (&'static str, fn(&Ground, usize, &mut Outcome) -> io::Result<()>);

const SECTIONS: [Section; 15] = [
    ("paper", paper),
    ("sizes", sizes::run),
    ("mixes", mixes::run),
    ("power", power::run),
    ("figure5", figures::five),
    ("long", long),
    ("dax", dax),
    ("calls", calls::run),
    ("bytes", bytes::run),
    ("slow_disk", slow_disk::run),
    ("recovery", recovery::run),
    ("contention", contention::run),
    ("readers", readers::run),
    ("speedtest1", speedtest::run),
    ("programs", programs::run),
];

/// Starts this program again, with the same arguments, in a scratch home; `None` when this is that
/// run.
///
/// # Errors
/// When there is no room for one, or the program cannot be started.
pub fn in_scratch_home() -> io::Result<Option<ExitCode>> {
    if std::env::var_os(INSIDE).is_some() {
        return Ok(None);
    }
    let ground = Ground::new()?;
    let status = again(&ground)?.args(std::env::args_os().skip(1)).status()?;
    Ok(Some(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }))
}

/// This program in a home and a pool of that ground.
fn again(ground: &Ground) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .env("HOLDFAST_HOME", ground.on_disk("home")?)
        .env("HOLDFAST_POOL", ground.in_memory("pool")?);
    command.env(INSIDE, "1");
    Ok(command)
}

/// Runs the suite, or the section with the name `only`; `progress` gets the name of each step.
///
/// # Errors
/// When there is no such section, or a side did not do what it should.
pub fn run(runs: usize, only: Option<&str>, progress: &mut dyn FnMut(&str)) -> io::Result<Outcome> {
    let chosen = section::chosen(&SECTIONS, only)?;
    engine::load()?;
    let ground = Ground::new()?;
    section::run(chosen, progress, |section, outcome| section(&ground, runs, outcome))
}

/// The paper's workload in all modes.
fn paper(ground: &Ground, runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    let modes = [
        Mode::DELETE_FULL,
        Mode::WAL_FULL,
        Mode::WAL_NORMAL,
        Mode::WAL_OFF,
        Mode::WAL_OFF_EXCLUSIVE,
        Mode::MEMORY,
        Mode::OURS,
        Mode::OURS_EXCLUSIVE,
        Mode::OURS_K5,
        Mode::OURS_K5_BACKGROUND,
        Mode::OURS_K0,
        Mode::OURS_K0_BACKGROUND,
        Mode::OURS_POWER,
    ];
    for (order, suffix) in [(Order::Random, "random"), (Order::Sequential, "sequential")] {
        let times = measured(ground, &modes, &Workload::paper(order), runs)?;
        let random = matches!(order, Order::Random);
        let goal = |random_goal: f64, sequential_goal: Option<f64>| match random {
            true => Some(Goal::AtLeast(random_goal)),
            false => sequential_goal.map(Goal::AtLeast),
        };
        let mut add = |key: &str, theirs: Mode, ours: Mode, goal| {
            outcome.add(format!("{key}_{suffix}"), times.ratio(theirs.name, ours.name), "x", goal);
        };
        add("vs_wal_full", Mode::WAL_FULL, Mode::OURS, goal(40.0, Some(40.0)));
        add("k5_vs_wal_full", Mode::WAL_FULL, Mode::OURS_K5, goal(4.6, Some(13.9)));
        add("k5_background_vs_wal_full", Mode::WAL_FULL, Mode::OURS_K5_BACKGROUND, None);
        add("vs_wal_off", Mode::WAL_OFF, Mode::OURS, goal(4.0, None));
        add("vs_wal_off_exclusive", Mode::WAL_OFF_EXCLUSIVE, Mode::OURS_EXCLUSIVE, None);
        add("vs_wal_normal", Mode::WAL_NORMAL, Mode::OURS, None);
        add("vs_delete_full", Mode::DELETE_FULL, Mode::OURS, None);
        add("power_vs_wal_full", Mode::WAL_FULL, Mode::OURS_POWER, None);
        // In random order under the name that the goal has, in sequence with that behind it.
        let tail = if random { "" } else { "_sequential" };
        let mut add = |key: &str, theirs: Mode, ours: Mode, bound| {
            let goal = random.then_some(Goal::AtLeast(bound));
            outcome.add(format!("{key}{tail}"), times.ratio(theirs.name, ours.name), "x", goal);
        };
        add("k0_vs_wal_full", Mode::WAL_FULL, Mode::OURS_K0, 2.6);
        add("k0_background_vs_wal_full", Mode::WAL_FULL, Mode::OURS_K0_BACKGROUND, 2.6);
        add("share_of_memory_ceiling", Mode::MEMORY, Mode::OURS, 0.65);
        add("share_of_memory_ceiling_exclusive", Mode::MEMORY, Mode::OURS_EXCLUSIVE, 0.85);
        for mode in modes {
            let rate = times
                .of(mode.name)
                .map(|seconds| seconds.map(|s| Workload::paper(order).transactions() / s));
            outcome.add(format!("{}_tps_{suffix}", mode.name), rate, "1/s", None);
        }
    }
    Ok(())
}

/// Three times as many transactions of each kind.
fn long(ground: &Ground, runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    let modes = [Mode::WAL_FULL, Mode::WAL_OFF, Mode::MEMORY, Mode::OURS, Mode::OURS_K5];
    for (order, suffix) in [(Order::Random, "random"), (Order::Sequential, "sequential")] {
        let times = measured(ground, &modes, &Workload::long(order), runs.div_ceil(3))?;
        for (key, theirs, ours) in [
            ("long_vs_wal_full", Mode::WAL_FULL, Mode::OURS),
            ("long_vs_wal_off", Mode::WAL_OFF, Mode::OURS),
            ("long_k5_vs_wal_full", Mode::WAL_FULL, Mode::OURS_K5),
            ("long_share_of_memory_ceiling", Mode::MEMORY, Mode::OURS),
        ] {
            outcome.add(format!("{key}_{suffix}"), times.ratio(theirs.name, ours.name), "x", None);
        }
    }
    Ok(())
}

/// The level `system` in a pool whose lines are written back and drained, which is what persistent
/// memory costs at least.
fn dax(ground: &Ground, runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    let mut command = again(ground)?;
    command.env(EMULATE_DAX, "1").args([PEER, "dax", &runs.to_string()]);
    for (key, series) in child::series(command)? {
        outcome.add(key, Some(series), "x", None);
    }
    Ok(())
}

/// That section from within; prints what `child::series` reads.
fn dax_inside(runs: usize) -> io::Result<()> {
    engine::load()?;
    let ground = Ground::new()?;
    let modes = [Mode::WAL_FULL, Mode::WAL_OFF, Mode::MEMORY, Mode::OURS_SYSTEM];
    for (order, suffix) in [(Order::Random, "random"), (Order::Sequential, "sequential")] {
        let times = measured(&ground, &modes, &Workload::paper(order), runs)?;
        for (key, theirs) in [("vs_wal_full", Mode::WAL_FULL), ("vs_wal_off", Mode::WAL_OFF)] {
            child::tell(
                &format!("clwb_{key}_{suffix}"),
                times.ratio(theirs.name, Mode::OURS_SYSTEM.name),
            )?;
        }
        let share = times.ratio(Mode::MEMORY.name, Mode::OURS_SYSTEM.name);
        child::tell(&format!("clwb_share_of_memory_ceiling_{suffix}"), share)?;
    }
    Ok(())
}

/// Seconds that each mode took, in turns.
fn measured(
    ground: &Ground,
    modes: &[Mode],
    workload: &Workload,
    runs: usize,
) -> io::Result<crate::race::Times> {
    let sides = modes
        .iter()
        .map(|mode| {
            Side::new(mode.name, move || {
                let folder = ground.on_disk("database")?;
                let mut database = engine::Database::open(*mode, &folder.join("paper.db"))?;
                let seconds = workload.run(&mut database)?;
                database.close()?;
                Ok(seconds)
            })
        })
        .collect();
    race(runs, sides)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The error for a missing section lists the sections that exist.
    #[test]
    fn missing_section_error_lists_the_sections() {
        let complaint = run(1, Some("papers"), &mut |_| {}).unwrap_err().to_string();
        assert!(complaint.contains("paper, sizes, mixes, power, figure5, long"), "{complaint}");
    }
}
