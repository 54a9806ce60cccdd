//! SQLite's own `speedtest1`, total, in WAL with `synchronous=NORMAL`, in memory, and with ours as
//! the default VFS.
//!
//! The program is that of `cargo xtask sqlite-suite`, with one SQLite for all three.

use std::io::{self, Error};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::heap::ground::Ground;
use crate::race::{Side, race};
use crate::report::{Goal, Outcome};

/// Names the program and the library that makes ours the default VFS; `cargo xtask bench sqlite`
/// builds both.
const PROGRAM: &str = "HOLDFAST_SPEEDTEST1";
const VFS: &str = "HOLDFAST_SPEEDTEST1_VFS";
/// A quarter of its usual size.
const SIZE: &str = "25";

pub(super) fn run(ground: &Ground, runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    let named = |variable| std::env::var_os(variable).map(PathBuf::from);
    let (Some(program), Some(vfs)) = (named(PROGRAM), named(VFS)) else {
        let why = "speedtest1: there is no source of SQLite; `./test` gets it out of the distribution's package";
        outcome.missing.push(why.to_owned());
        return Ok(());
    };
    let once = |options: &[&str], vfs: Option<&Path>| -> io::Result<f64> {
        let folder = ground.on_disk("database")?;
        let mut command = Command::new(&program);
        command.args(["--size", SIZE]).args(options).current_dir(folder).stdin(Stdio::null());
        if let Some(vfs) = vfs {
            command.env("HOLDFAST_SUITE_VFS", vfs);
        }
        let started = Instant::now();
        let output = command.output()?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(Error::other(format!("speedtest1 ended with {}: {said}", output.status)));
        }
        Ok(started.elapsed().as_secs_f64())
    };
    let sides = vec![
        Side::new("ours", || once(&["speed.db"], Some(&vfs))),
        Side::new("wal_normal", || once(&["--journal", "wal", "speed.db"], None)),
        Side::new("memory", || once(&["--memdb"], None)),
    ];
    let times = race(runs.div_ceil(5), sides)?;
    let goal = Some(Goal::AtLeast(1.5));
    outcome.add("speedtest1_vs_wal_normal", times.ratio("wal_normal", "ours"), "x", goal);
    outcome.add("speedtest1_share_of_memory", times.ratio("memory", "ours"), "x", None);
    outcome.add("speedtest1_s", times.of("ours").cloned(), "s", None);
    Ok(())
}
