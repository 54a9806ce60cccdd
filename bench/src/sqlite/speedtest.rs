//! SQLite's own `speedtest1`, total, in WAL with `synchronous=NORMAL`, in memory, and with ours as
//! the default VFS; at its usual size, and at a quarter, half and twice that.
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
/// What the program does when it is not told a size.
const USUAL_SIZE: u32 = 100;
const SIZES: [u32; 4] = [25, 50, USUAL_SIZE, 200];

pub(super) fn run(ground: &Ground, runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    let named = |variable| std::env::var_os(variable).map(PathBuf::from);
    let (Some(program), Some(vfs)) = (named(PROGRAM), named(VFS)) else {
        let why = "speedtest1: there is no source of SQLite; `./test` gets it out of the distribution's package";
        outcome.missing.push(why.to_owned());
        return Ok(());
    };
    let once = |size: u32, options: &[&str], vfs: Option<&Path>| -> io::Result<f64> {
        let folder = ground.on_disk("database")?;
        let mut command = Command::new(&program);
        command.args(["--size", &size.to_string()]).args(options);
        command.current_dir(folder).stdin(Stdio::null());
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
    for size in SIZES {
        let sides = vec![
            Side::new("ours", || once(size, &["speed.db"], Some(&vfs))),
            Side::new("wal_normal", || once(size, &["--journal", "wal", "speed.db"], None)),
            Side::new("memory", || once(size, &["--memdb"], None)),
        ];
        let times = race(runs.div_ceil(5), sides)?;
        let (end, goal) = match size {
            USUAL_SIZE => (String::new(), Some(Goal::AtLeast(1.5))),
            _ => (format!("_size_{size}"), None),
        };
        for (key, one, other, goal) in [
            ("vs_wal_normal", "wal_normal", "ours", goal),
            ("share_of_memory", "memory", "ours", None),
            ("memory_vs_wal_normal", "wal_normal", "memory", None),
        ] {
            outcome.add(format!("speedtest1_{key}{end}"), times.ratio(one, other), "x", goal);
        }
        outcome.add(format!("speedtest1_s{end}"), times.of("ours").cloned(), "s", None);
    }
    Ok(())
}
