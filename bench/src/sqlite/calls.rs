//! System calls of a transaction, counted by strace in another process: once with some inserts,
//! once with twice as many; the difference is due to the inserts, whatever start and end take.

use std::io::{self, Error};
use std::process::{Command, Stdio};

use crate::heap::ground::Ground;
use crate::report::{Goal, Outcome};
use crate::stats::Series;

use super::child;
use super::engine::Mode;

const INSERTS: usize = 500;

pub(super) fn run(ground: &Ground, runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    if !is_there(outcome) {
        return Ok(());
    }
    let modes = [
        ("syscalls_per_transaction", Mode::OURS, Some(Goal::AtMost(1.0))),
        ("syscalls_per_transaction_wal_full", Mode::WAL_FULL, None),
        ("syscalls_per_transaction_wal_off", Mode::WAL_OFF, None),
    ];
    for (key, mode, goal) in modes {
        let mut series = Series::default();
        for _ in 0..runs.div_ceil(5) {
            let (once, twice) = (count(ground, mode, INSERTS)?, count(ground, mode, 2 * INSERTS)?);
            series.push((twice - once) / INSERTS as f64);
        }
        outcome.add(key, Some(series), "", goal);
    }
    Ok(())
}

/// Whether there is an strace; if not, that is noted.
pub(super) fn is_there(outcome: &mut Outcome) -> bool {
    let found =
        Command::new("strace").arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let is_there = found.is_ok_and(|status| status.success());
    if !is_there {
        let missing = "strace, which counts system calls; `apt-get install strace`";
        outcome.missing.push(missing.to_owned());
    }
    is_there
}

/// System calls of a process that makes a table and inserts so many rows, of all its threads.
fn count(ground: &Ground, mode: Mode, inserts: usize) -> io::Result<f64> {
    count_side(ground, |path| {
        ["insert", mode.name, path, &inserts.to_string()].map(str::to_owned).to_vec()
    })
}

/// System calls of this program in a role, which gets the path of a fresh database.
pub(super) fn count_side(
    ground: &Ground,
    role: impl FnOnce(&str) -> Vec<String>,
) -> io::Result<f64> {
    let folder = ground.on_disk("database")?;
    let (_, text) = child::database(folder.clone())?;
    let summary = folder.join("calls");
    let words = role(&text);
    let counted = child::side(&words.iter().map(String::as_str).collect::<Vec<_>>())?;
    let mut strace = Command::new("strace");
    strace.args(["-f", "-q", "-c", "-U", "name,calls", "-o"]).arg(&summary);
    strace.arg(counted.get_program()).args(counted.get_args()).stdin(Stdio::null());
    let output = strace.output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(Error::other(format!("strace ended with {}: {said}", output.status)));
    }
    let text = std::fs::read_to_string(&summary)?;
    total(&text).ok_or_else(|| Error::other(format!("strace counted nothing: {text}")))
}

/// The last column of the last line but rules: `total 1234`.
fn total(summary: &str) -> Option<f64> {
    let line = summary.lines().rev().find(|line| line.contains("total"))?;
    line.split_whitespace().find_map(|word| word.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_of_strace_is_found() {
        let summary = "syscall              calls\n------- ---------\nread       4\n------- ---------\ntotal      73\n";
        assert_eq!(total(summary), Some(73.0));
        assert_eq!(total("nothing"), None);
    }
}
