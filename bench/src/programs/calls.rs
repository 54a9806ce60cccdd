//! System calls while a program works, counted by strace between the two marks that it prints: those
//! of its third round. Until the second has ended the heap grows, as an object is there twice while it
//! is replaced; what that takes is counted by itself, in a heap that is made for it. The calls that the
//! same round takes in ordinary memory are `malloc`'s and not counted. The spell checker has no rounds
//! and no marks, and is left out.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Error};
use std::path::PathBuf;
use std::process::Command;

use tempfile::NamedTempFile;

use super::job::{Ground, Sandbox, Storage, output};
use super::sequences::{INPUT, with_input};
use super::{compress, mail};
use crate::report::{Goal, Outcome};
use crate::stats::Series;

/// 1 MB of input or output, as strace takes long for each call.
const N: &str = "100000";
const BYTES: &str = "1000000";
const MEGABYTE: f64 = 1e6;
const ROUNDS: usize = 3;
/// Of the mails that are learnt every 20th, which is 1 MB as well.
const MAIL_STEP: usize = 20;

/// A program that is counted.
struct Job {
    name: &'static str,
    /// What it does in the heap, and what it does with files.
    in_heap: Vec<String>,
    with_files: Vec<String>,
    megabytes: f64,
}

impl Job {
    /// The same with all storages.
    fn new(name: &'static str, words: &[&str], bytes: u64) -> Job {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        let megabytes = bytes as f64 / MEGABYTE;
        Job { name, in_heap: words.clone(), with_files: words, megabytes }
    }
}

pub(super) fn run(_runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    if Command::new("strace").arg("--version").output().is_err() {
        outcome.missing.push("strace: `apt-get install strace` brings it".to_owned());
        return Ok(());
    }
    let ground = with_input(N)?;
    for job in jobs(&ground, outcome)? {
        for sandbox in [Sandbox::Wasm, Sandbox::Native] {
            count(&ground, &job, sandbox, outcome)?;
        }
    }
    growth(outcome)
}

/// The calls with which a new heap grows by 32 MB, for an object of half that size that is written
/// twice.
fn growth(outcome: &mut Outcome) -> io::Result<()> {
    let words = ["chunks", "output", "--bytes", "16000000"];
    for sandbox in [Sandbox::Wasm, Sandbox::Native] {
        let ground = Ground::new()?;
        let log = traced(&ground, sandbox, Storage::Heap, &words)?;
        let key = format!("write512_heap_syscalls_of_growth{}", sandbox.suffix());
        let calls = calls_between(&log, 0, 2)? as f64;
        outcome.add(key, Some(Series::from_iter([calls])), "", None);
    }
    Ok(())
}

/// The programs, with their inputs among the files and in the heap.
fn jobs(ground: &Ground, outcome: &mut Outcome) -> io::Result<Vec<Job>> {
    let files = ground.files();
    let sequences = fs::metadata(files.join(INPUT))?.len();
    let bytes = BYTES.parse().map_err(Error::other)?;
    let mut jobs = vec![
        Job::new("write512", &["chunks", "output", "--bytes", BYTES], bytes),
        Job::new("fasta", &["fasta", "output", "--n", N], sequences),
        Job::new("revcomp", &["revcomp", INPUT, "output"], sequences),
        Job::new("knucleotide", &["knucleotide", INPUT], sequences),
    ];
    if let Some(folder) = compress::folder(outcome) {
        let mix = first_megabyte(compress::chosen(&folder)?)?;
        let bytes = compress::load(ground, &mix)?;
        let count = mix.len().to_string();
        jobs.push(Job::new("compress", &["compress", "--count", &count], bytes));
    }
    if let Some(folder) = mail::folder(outcome) {
        mail::write_texts(&folder, MAIL_STEP, &files)?;
        mail::learn_written(ground)?;
        ground.import(&files, &[mail::NEW.to_owned()])?;
        let parsed = Job::new("mail", &mail::PARSED, mail::read_bytes(&files)?);
        jobs.push(Job { in_heap: mail::KEPT.map(str::to_owned).to_vec(), ..parsed });
    }
    Ok(jobs)
}

/// The first of these files that have 1 MB together.
fn first_megabyte(paths: Vec<PathBuf>) -> io::Result<Vec<PathBuf>> {
    let mut bytes = 0;
    let mut first = Vec::new();
    for path in paths {
        if bytes as f64 >= MEGABYTE {
            break;
        }
        bytes += fs::metadata(&path)?.len();
        first.push(path);
    }
    Ok(first)
}

/// What each storage takes beyond ordinary memory.
fn count(ground: &Ground, job: &Job, sandbox: Sandbox, outcome: &mut Outcome) -> io::Result<()> {
    let (name, suffix) = (job.name, sandbox.suffix());
    let counted = |storage, words: &[String]| {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        counted(ground, sandbox, storage, &words)
    };
    // What the program's own memory takes: `malloc` asks for it and gives it back.
    let of_memory = counted(Storage::Ideal, &job.in_heap)?;
    let calls = counted(Storage::Heap, &job.in_heap)? - of_memory;
    let key = format!("{name}_heap_syscalls_on_data_path{suffix}");
    outcome.add(key, Some(Series::from_iter([calls])), "", Some(Goal::AtMost(0.0)));
    let of_memory = counted(Storage::Ideal, &job.with_files)?;
    for storage in [Storage::Posix, Storage::Stdio, Storage::Buffered, Storage::Mapped] {
        let calls = (counted(storage, &job.with_files)? - of_memory) / job.megabytes;
        let key = format!("{name}_{}_syscalls_per_mb{suffix}", storage.name());
        outcome.add(key, Some(Series::from_iter([calls])), "", None);
    }
    Ok(())
}

/// The calls of the last of [`ROUNDS`] rounds.
fn counted(
    ground: &Ground,
    sandbox: Sandbox,
    storage: Storage,
    arguments: &[&str],
) -> io::Result<f64> {
    let log = traced(ground, sandbox, storage, arguments)?;
    Ok(calls_between(&log, ROUNDS - 1, ROUNDS)? as f64)
}

/// What strace says of a run of [`ROUNDS`] rounds.
fn traced(
    ground: &Ground,
    sandbox: Sandbox,
    storage: Storage,
    arguments: &[&str],
) -> io::Result<String> {
    let log = NamedTempFile::new()?;
    let program = ground.command(sandbox, storage, &ground.files(), arguments);
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-s", "16", "-o"]).arg(log.path()).arg(program.get_program());
    command.args(program.get_args()).arg("--rounds").arg(ROUNDS.to_string());
    for (name, value) in program.get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    output(command)?;
    fs::read_to_string(log.path())
}

fn calls_between(log: &str, first: usize, last: usize) -> io::Result<usize> {
    between_marks(log, first, last).ok_or_else(|| {
        Error::other("strace saw no marks of the program; run it by hand with `strace -f`")
    })
}

/// How many calls there are from the print of one mark to that of another, without what printing
/// takes: the write, and the host's question whether it can. A call that strace shows in two parts
/// counts if both are between the marks: one that does not end there waits for the program.
fn between_marks(log: &str, first: usize, last: usize) -> Option<usize> {
    // Ordinary memory's advice on huge pages is no part of what a heap is compared with.
    let is_print = |line: &str| {
        ["write(1, ", "poll([{fd=1,", "MADV_HUGEPAGE"].iter().any(|part| line.contains(part))
    };
    let is_mark = |line: &str, mark| line.contains(&format!("write(1, \"mark {mark}\\n"));
    let mut lines = log.lines();
    lines.by_ref().find(|line| is_mark(line, first))?;
    let (mut calls, mut unfinished) = (0, BTreeSet::new());
    for line in lines {
        let process = line.split_whitespace().next();
        if is_mark(line, last) {
            return Some(calls);
        }
        if line.contains(" resumed>") {
            calls += usize::from(unfinished.remove(&process));
        } else if !is_print(line) && line.contains("<unfinished ...>") {
            unfinished.insert(process);
        } else if !is_print(line) {
            calls += usize::from(line.contains('('));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_taken_until_they_have_a_megabyte() {
        let folder = tempfile::tempdir().unwrap();
        let paths = ["a", "b", "c"].map(|name| folder.path().join(name)).to_vec();
        for path in &paths {
            fs::write(path, vec![0; 600_000]).unwrap();
        }
        assert_eq!(first_megabyte(paths.clone()).unwrap(), paths[..2]);
    }

    #[test]
    fn calls_between_marks_are_counted() {
        let log = "7 write(1, \"mark 0\\n\", 7) = 7\n7 read(5, \"\", 61) = 0\n\
                   7 write(1, \"mark 1\\nns 5\"..., 20) = 20\n7 read(5, \"ACGT\"..., 61) = 61\n\
                   8 futex(0x7f, FUTEX_WAKE, 1) = 1\n7 ppoll([{fd=1, events=POLLOUT}], 1) = 1\n\
                   7 write(1, \"mark 2\\nns 5\"..., 20) = 20\n7 close(5) = 0\n";
        assert_eq!(between_marks(log, 1, 2), Some(2));
        assert_eq!(between_marks(log, 0, 1), Some(1));
        assert_eq!(between_marks("7 write(1, \"mark 1\\n\", 7) = 7\n", 1, 2), None);
    }

    /// The host waits for the program in a call, which begins between the marks by chance.
    #[test]
    fn a_call_that_outlasts_the_round_is_not_counted() {
        let log = "7 write(1, \"mark 1\\n\", 7 <unfinished ...>\n9 read(5,  <unfinished ...>\n\
                   7 <... write resumed>) = 7\n8 futex(0x7f, FUTEX_WAIT, 1 <unfinished ...>\n\
                   7 read(6, \"ACGT\"..., 61) = 61\n8 <... futex resumed>) = 0\n\
                   7 write(1, \"mark 2\\nns 5\"..., 20) = 20\n9 <... read resumed>) = 1\n";
        assert_eq!(between_marks(log, 1, 2), Some(2));
    }
}
