//! System calls while a program works, counted by strace between the two marks that it prints: those
//! of its second round, in which the heap has grown already. Those that the same round takes in ordinary
//! memory are `malloc`'s and not counted.

use std::io::{self, Error};
use std::process::Command;

use tempfile::NamedTempFile;

use super::job::{Ground, Sandbox, Storage, output};
use crate::report::{Goal, Outcome};
use crate::stats::Series;

/// 1 MB, so that these are calls for each MB: strace takes long for each of them.
const N: &str = "100000";
const BYTES: &str = "1000000";
const INPUT: &str = "sequences";

const JOBS: [(&str, &[&str]); 4] = [
    ("write512", &["chunks", "output", "--bytes", BYTES]),
    ("fasta", &["fasta", "output", "--n", N]),
    ("revcomp", &["revcomp", INPUT, "output"]),
    ("knucleotide", &["knucleotide", INPUT]),
];

pub(super) fn run(_runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    if Command::new("strace").arg("--version").output().is_err() {
        outcome.missing.push("strace: `apt-get install strace` brings it".to_owned());
        return Ok(());
    }
    let ground = Ground::new()?;
    let files = ground.files();
    for storage in [Storage::Buffered, Storage::Heap] {
        ground.run(Sandbox::Native, storage, &files, &["fasta", INPUT, "--n", N])?;
    }
    for (name, arguments) in JOBS {
        for sandbox in [Sandbox::Wasm, Sandbox::Native] {
            let suffix = sandbox.suffix();
            // What the program's own memory takes: `malloc` asks for it and gives it back.
            let ideal = counted(&ground, sandbox, Storage::Ideal, arguments)?;
            for storage in Storage::ALL.into_iter().filter(|storage| *storage != Storage::Ideal) {
                let key = match storage {
                    Storage::Heap => format!("{name}_heap_syscalls_on_data_path{suffix}"),
                    _ => format!("{name}_{}_syscalls_per_mb{suffix}", storage.name()),
                };
                let goal = (storage == Storage::Heap).then_some(Goal::AtMost(0.0));
                let calls = counted(&ground, sandbox, storage, arguments)? - ideal;
                outcome.add(key, Some(Series::from_iter([calls])), "", goal);
            }
        }
    }
    Ok(())
}

/// The calls of the second of three rounds.
fn counted(
    ground: &Ground,
    sandbox: Sandbox,
    storage: Storage,
    arguments: &[&str],
) -> io::Result<f64> {
    let log = NamedTempFile::new()?;
    let program = ground.command(sandbox, storage, &ground.files(), arguments);
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-s", "16", "-o"]).arg(log.path()).arg(program.get_program());
    command.args(program.get_args()).args(["--rounds", "3"]);
    for (name, value) in program.get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    output(command)?;
    let log = std::fs::read_to_string(log.path())?;
    between_marks(&log).map(|calls| calls as f64).ok_or_else(|| {
        Error::other("strace saw no marks of the program; run it by hand with `strace -f`")
    })
}

/// How many calls there are from the print of `mark 1` to that of `mark 2`, without what printing
/// takes: the write, and the host's question whether it can.
fn between_marks(log: &str) -> Option<usize> {
    let is_print = |line: &&str| line.contains("write(1, ") || line.contains("poll([{fd=1,");
    let is_mark = |line: &&str, mark| line.contains(&format!("write(1, \"mark {mark}"));
    let mut lines = log.lines();
    lines.by_ref().find(|line| is_mark(line, 1))?;
    let mut calls = 0;
    for line in lines {
        if is_mark(&line, 2) {
            return Some(calls);
        }
        calls += usize::from(!is_print(&line) && line.contains('('));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_between_marks_are_counted() {
        let log = "7 write(1, \"mark 0\\n\", 7) = 7\n7 read(5, \"\", 61) = 0\n\
                   7 write(1, \"mark 1\\nns 5\"..., 20) = 20\n7 read(5, \"ACGT\"..., 61) = 61\n\
                   8 futex(0x7f, FUTEX_WAKE, 1) = 1\n7 ppoll([{fd=1, events=POLLOUT}], 1) = 1\n\
                   7 write(1, \"mark 2\\nns 5\"..., 20) = 20\n7 close(5) = 0\n";
        assert_eq!(between_marks(log), Some(2));
        assert_eq!(between_marks("7 write(1, \"mark 1\\n\", 7) = 7\n"), None);
    }
}
