//! `write512`, `fasta`, `revcomp`, `knucleotide`: 64 MB of input or output.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Error};
use std::path::Path;

use holdfast_testkit::target_directory;
use rustix::fs::{Advice, fadvise, fsync};

use super::job::{Ground, Said, Sandbox, Storage};
use super::rounds;
use crate::report::{Goal, Outcome};
use crate::stats::Series;

/// Of `fasta`: an output of 63.5 MB. Two thirds of it are sequences that are made at random.
const N: &str = "6250000";
/// Of `write512`.
const BYTES: &str = "64000000";
/// The sizes of an object that `write512` writes over and over: in keys, in bytes, and how often.
const SIZES: [(&str, &str, &str); 5] = [
    ("64kb", "64000", "300"),
    ("1mb", "1000000", "64"),
    ("4mb", "4000000", "16"),
    ("16mb", "16000000", "9"),
    ("64mb", "64000000", "9"),
];
pub(super) const INPUT: &str = "sequences";
pub(super) const OUTPUT: &str = "output";

/// A program of this file.
#[derive(Clone, Copy)]
struct Job {
    /// In keys.
    name: &'static str,
    arguments: &'static [&'static str],
    storages: &'static [Storage],
    sandboxes: &'static [Sandbox],
    /// Heap against the least that files cost with a call for each record.
    vs_posix: Option<f64>,
    has_output: bool,
}

const WRITE512: Job = Job {
    name: "write512",
    arguments: &["chunks", OUTPUT, "--bytes", BYTES],
    storages: &Storage::ALL,
    sandboxes: &Sandbox::ALL,
    vs_posix: Some(15.0),
    has_output: true,
};
const FASTA: Job =
    Job { name: "fasta", arguments: &["fasta", OUTPUT, "--n", N], vs_posix: Some(3.8), ..WRITE512 };
const REVCOMP: Job = Job {
    name: "revcomp",
    arguments: &["revcomp", INPUT, OUTPUT],
    vs_posix: Some(3.5),
    ..WRITE512
};
const KNUCLEOTIDE: Job = Job {
    name: "knucleotide",
    arguments: &["knucleotide", INPUT],
    storages: &[Storage::Posix, Storage::Stdio, Storage::Heap, Storage::Ideal],
    sandboxes: &[Sandbox::Wasm, Sandbox::Native],
    vs_posix: None,
    has_output: false,
};

pub(super) fn write512(runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    // The shortest of them.
    in_turns(&Ground::new()?, WRITE512, runs.div_ceil(2), outcome)?;
    over_and_over(runs.div_ceil(2), outcome)
}

/// `write512` by the size of the object, which one process writes over and over: its first time,
/// and the median of the others, in which the storage's memory is mapped.
fn over_and_over(rounds: usize, outcome: &mut Outcome) -> io::Result<()> {
    const STORAGES: [Storage; 3] = [Storage::Posix, Storage::Heap, Storage::Ideal];
    let ground = Ground::new()?;
    let files = ground.files();
    for sandbox in [Sandbox::Wasm, Sandbox::Native] {
        for (name, bytes, times) in SIZES {
            let arguments = ["chunks", OUTPUT, "--bytes", bytes, "--rounds", times];
            let mut values: [(Series, Series); STORAGES.len()] = Default::default();
            for round in 0..rounds {
                for turn in 0..STORAGES.len() {
                    let index = (round + turn) % STORAGES.len();
                    let said = ground.run(sandbox, STORAGES[index], &files, &arguments)?;
                    values[index].0.push(said.ms);
                    values[index].1.push(said.later_ms.into_iter().collect::<Series>().median());
                }
            }
            let [files, heap, memory] = &values;
            let suffix = sandbox.suffix();
            let mut add = |key: &str, series: Series, goal| {
                outcome.add(format!("write512_{key}{suffix}/{name}"), Some(series), "x", goal);
            };
            add("first_vs_posix", files.0.over(&heap.0), None);
            add("again_vs_posix", files.1.over(&heap.1), Some(Goal::AtLeast(15.0)));
            add("first_vs_ideal", heap.0.over(&memory.0), None);
            add("again_vs_ideal", heap.1.over(&memory.1), None);
        }
    }
    Ok(())
}

pub(super) fn fasta(runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    in_turns(&Ground::new()?, FASTA, rounds(runs), outcome)
}

pub(super) fn revcomp(runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    in_turns(&with_input(N)?, REVCOMP, rounds(runs), outcome)
}

pub(super) fn knucleotide(runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    in_turns(&with_input(N)?, KNUCLEOTIDE, rounds(runs), outcome)
}

/// With the output of `fasta` for this number among the files and in the heap.
pub(super) fn with_input(n: &str) -> io::Result<Ground> {
    let ground = Ground::new()?;
    let files = ground.files();
    for storage in [Storage::Buffered, Storage::Heap] {
        ground.run(Sandbox::Native, storage, &files, &["fasta", INPUT, "--n", n])?;
    }
    Ok(ground)
}

/// The values of each storage.
#[derive(Default)]
pub(super) struct Values {
    pub(super) ms: BTreeMap<&'static str, Series>,
    reading_ms: BTreeMap<&'static str, Series>,
    pub(super) run_ms: BTreeMap<&'static str, Series>,
    pub(super) crossings: BTreeMap<&'static str, Series>,
    pub(super) switches: BTreeMap<&'static str, Series>,
}

impl Values {
    pub(super) fn add(&mut self, storage: Storage, said: &Said) {
        let name = storage.name();
        self.ms.entry(name).or_default().push(said.ms);
        self.reading_ms.entry(name).or_default().push(said.reading_ms);
        self.run_ms.entry(name).or_default().push(said.run_ms);
        self.crossings.entry(name).or_default().push(said.crossings);
        self.switches.entry(name).or_default().push(said.switches);
    }
}

pub(super) fn ratio(
    values: &BTreeMap<&'static str, Series>,
    one: Storage,
    other: Storage,
) -> Option<Series> {
    Some(values.get(one.name())?.over(values.get(other.name())?))
}

/// All storages in turns, in each of the sandboxes.
fn in_turns(ground: &Ground, job: Job, rounds: usize, outcome: &mut Outcome) -> io::Result<()> {
    let files = ground.files();
    let mut expected = None;
    for sandbox in job.sandboxes {
        let storages: Vec<Storage> =
            job.storages.iter().copied().filter(|storage| storage.is_in(*sandbox)).collect();
        check(ground, job, *sandbox, &storages, &mut expected)?;
        let mut values = Values::default();
        for round in 0..rounds {
            for turn in 0..storages.len() {
                let storage = storages[(round + turn) % storages.len()];
                values.add(storage, &ground.run(*sandbox, storage, &files, job.arguments)?);
            }
        }
        report(job, *sandbox, &values, outcome);
    }
    Ok(())
}

/// One run of each that is not timed: caches are warm then, and results must be the same.
fn check(
    ground: &Ground,
    job: Job,
    sandbox: Sandbox,
    storages: &[Storage],
    expected: &mut Option<String>,
) -> io::Result<()> {
    let files = ground.files();
    for storage in storages {
        let mut result = ground.run(sandbox, *storage, &files, job.arguments)?.result;
        // What was in ordinary memory is gone.
        if job.has_output && *storage != Storage::Ideal {
            result = ground.run(sandbox, *storage, &files, &["digest", OUTPUT])?.result;
        } else if job.has_output {
            continue;
        }
        let expected = expected.get_or_insert_with(|| result.clone());
        if *expected != result {
            return Err(Error::other(format!(
                "{} with {} in {sandbox:?} made {result}\ninstead of {expected}",
                job.name,
                storage.name()
            )));
        }
    }
    Ok(())
}

fn report(job: Job, sandbox: Sandbox, values: &Values, outcome: &mut Outcome) {
    let (name, suffix) = (job.name, sandbox.suffix());
    let is_sandboxed = sandbox != Sandbox::Unsandboxed;
    let mut add = |key: String, series, unit, goal: Option<Goal>| {
        outcome.add(key, series, unit, goal);
    };
    let goal = job.vs_posix.map(Goal::AtLeast);
    let heap_against = |peer| ratio(&values.ms, peer, Storage::Heap);
    add(format!("{name}_vs_posix{suffix}"), heap_against(Storage::Posix), "x", goal);
    add(format!("{name}_vs_stdio{suffix}"), heap_against(Storage::Stdio), "x", None);
    add(format!("{name}_vs_buffered{suffix}"), heap_against(Storage::Buffered), "x", None);
    add(format!("{name}_vs_mmap{suffix}"), heap_against(Storage::Mapped), "x", None);
    let ceiling = ratio(&values.ms, Storage::Heap, Storage::Ideal);
    add(format!("{name}_vs_ideal{suffix}"), ceiling, "x", Some(Goal::AtMost(1.05)));
    let whole = ratio(&values.run_ms, Storage::Posix, Storage::Heap);
    add(format!("{name}_run_vs_posix{suffix}"), whole, "x", None);
    if !job.has_output && is_sandboxed {
        let gain = ratio(&values.ms, Storage::Heap, Storage::Posix);
        let gain_pct = gain.map(|series| series.map(|share| (1.0 - share) * 100.0));
        add(format!("{name}_gain_pct{suffix}"), gain_pct, "%", Some(Goal::AtLeast(20.0)));
        let reading = ratio(&values.reading_ms, Storage::Posix, Storage::Heap);
        add(format!("{name}_io_vs_posix{suffix}"), reading, "x", None);
    }
    for (storage, series) in &values.ms {
        add(format!("{name}_{storage}_ms{suffix}"), Some(series.clone()), "ms", None);
    }
    for (storage, series) in &values.crossings {
        add(format!("{name}_{storage}_crossings{suffix}"), Some(series.clone()), "", None);
    }
    for (storage, series) in &values.switches {
        add(format!("{name}_{storage}_switches{suffix}"), Some(series.clone()), "", None);
    }
}

/// `revcomp` in WebAssembly with its files on the disk of the build: warm, and with the pages of
/// its input dropped from the page cache before each run. The heap is where it is in the other
/// sections, as the paper's is.
pub(super) fn disk(runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    let ground = with_input(N)?;
    let place = tempfile::Builder::new().prefix("programs-").tempdir_in(target_directory()?)?;
    let (files, directory) = (ground.files(), place.path());
    std::fs::copy(files.join(INPUT), directory.join(INPUT))?;
    let mut values: [Series; 3] = Default::default();
    for _ in 0..rounds(runs) {
        let run = |storage, directory| {
            Ok::<_, Error>(ground.run(Sandbox::Wasm, storage, directory, REVCOMP.arguments)?.ms)
        };
        values[0].push(run(Storage::Heap, files.as_path())?);
        values[1].push(run(Storage::Posix, directory)?);
        drop_pages(&directory.join(INPUT))?;
        values[2].push(run(Storage::Posix, directory)?);
    }
    let [heap, warm, cold] = &values;
    outcome.add("revcomp_vs_posix_disk_warm", Some(warm.over(heap)), "x", None);
    outcome.add("revcomp_vs_posix_disk_cold", Some(cold.over(heap)), "x", None);
    Ok(())
}

/// Has the kernel forget the pages of a file.
fn drop_pages(path: &Path) -> io::Result<()> {
    let file = File::open(path)?;
    fsync(&file)?;
    fadvise(&file, 0, None, Advice::DontNeed)?;
    Ok(())
}
