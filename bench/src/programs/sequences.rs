//! `write512`, `fasta`, `revcomp`, `knucleotide`: 64 MB of input or output.

use std::collections::BTreeMap;
use std::io::{self, Error};
use std::thread;
use std::time::Duration;

use super::job::{Ground, Said, Sandbox, Storage};
use super::rounds;
use crate::report::{Goal, Outcome};
use crate::stats::Series;

/// Of `fasta`: an output of 63.5 MB. Two thirds of it are sequences that are made at random.
pub(super) const N: &str = "6250000";
/// Of `write512`.
pub(super) const BYTES: &str = "64000000";
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
    /// Each run makes a heap of its own.
    new_heap: bool,
}

const WRITE512: Job = Job {
    name: "write512",
    arguments: &["chunks", OUTPUT, "--bytes", BYTES],
    storages: &Storage::ALL,
    sandboxes: &Sandbox::ALL,
    vs_posix: Some(15.0),
    has_output: true,
    new_heap: true,
};
const FASTA: Job = Job {
    name: "fasta",
    arguments: &["fasta", OUTPUT, "--n", N],
    vs_posix: Some(3.8),
    new_heap: false,
    ..WRITE512
};
pub(super) const REVERSE: [&str; 3] = ["revcomp", INPUT, OUTPUT];
const REVCOMP: Job = Job { name: "revcomp", arguments: &REVERSE, vs_posix: Some(3.5), ..FASTA };
const KNUCLEOTIDE: Job = Job {
    name: "knucleotide",
    arguments: &["knucleotide", INPUT],
    vs_posix: None,
    has_output: false,
    new_heap: false,
    ..WRITE512
};

/// How long the same 64 MB take in a heap depends on the memory that the object gets, by a factor of
/// 17 (AMD EPYC, native and WebAssembly alike; milliseconds, page faults of the process):
/// - 37, 16,300: new memory in small pages, where the kernel has no huge ones.
/// - 22, 16,100: free memory of the heap in small pages: each of them faults.
/// - 7, 610: new memory in huge pages, which are cleared within the time.
/// - 2, 700 to 1,000: free memory in huge pages.
///
/// Ordinary memory is always new: 22 and 16,050, cleared as it faults; and so are the pages of a
/// file, which is cut to nothing before it is written. So what counts as `write512` and `first` is
/// a heap that is made for the run, and what a heap gains by keeping its memory is in `kept_heap`
/// and `again`.
pub(super) fn write512(runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    // The shortest of them.
    let rounds = runs.div_ceil(2);
    let ground = Ground::new()?;
    in_turns(&ground, WRITE512, rounds, outcome)?;
    after_idling(&ground, runs.div_ceil(3), outcome)?;
    kept_heap(&ground, rounds, outcome)?;
    over_and_over(&ground, rounds, outcome)
}

/// `write512` in a new heap on a machine that was idle for a while: a virtual one has given its free
/// memory back to its host by then, which is what a program finds that starts once an hour.
fn after_idling(ground: &Ground, rounds: usize, outcome: &mut Outcome) -> io::Result<()> {
    /// Linux looks for memory that was free for two seconds, and gives back a sixteenth at once.
    const IDLE: Duration = Duration::from_secs(12);
    const STORAGES: [Storage; 3] = [Storage::Posix, Storage::Heap, Storage::Ideal];
    let (files, mut values) = (ground.files(), Values::default());
    for round in 0..rounds {
        for turn in 0..STORAGES.len() {
            let storage = STORAGES[(round + turn) % STORAGES.len()];
            if storage == Storage::Heap {
                ground.remove_heap()?;
            }
            thread::sleep(IDLE);
            let arguments = WRITE512.arguments;
            let said = ground.run_in_any_memory(Sandbox::Wasm, storage, &files, arguments)?;
            values.add(storage, &said);
        }
    }
    let against = |one, other| ratio(&values.ms, one, other);
    let mut add = |key: &str, series, unit| {
        outcome.add(format!("write512_after_idling_{key}"), series, unit, None);
    };
    add("vs_posix", against(Storage::Posix, Storage::Heap), "x");
    add("vs_ideal", against(Storage::Heap, Storage::Ideal), "x");
    for storage in STORAGES {
        add(&format!("{}_ms", storage.name()), values.ms.get(storage.name()).cloned(), "ms");
    }
    Ok(())
}

/// `write512` in a heap that has had the object twice: it gets the memory of the first one. The page
/// faults say how much of that is in huge pages.
fn kept_heap(ground: &Ground, rounds: usize, outcome: &mut Outcome) -> io::Result<()> {
    const PEERS: [Storage; 2] = [Storage::Posix, Storage::Ideal];
    let files = ground.files();
    for sandbox in [Sandbox::Wasm, Sandbox::Native] {
        let run = |storage| ground.run(sandbox, storage, &files, WRITE512.arguments);
        let mut values = Values::default();
        for _ in 0..rounds {
            ground.remove_heap()?;
            run(Storage::Heap)?;
            run(Storage::Heap)?;
            values.add(Storage::Heap, &run(Storage::Heap)?);
            for storage in PEERS {
                values.add(storage, &run(storage)?);
            }
        }
        let suffix = sandbox.suffix();
        let mut add = |key: &str, series, unit, goal| {
            outcome.add(format!("write512_kept_heap_{key}{suffix}"), series, unit, goal);
        };
        let against = |one, other| ratio(&values.ms, one, other);
        let goal = Some(Goal::AtLeast(15.0));
        add("vs_posix", against(Storage::Posix, Storage::Heap), "x", goal);
        add("vs_ideal", against(Storage::Heap, Storage::Ideal), "x", Some(Goal::AtMost(1.05)));
        let of_heap = |values: &BTreeMap<_, Series>| values.get(Storage::Heap.name()).cloned();
        add("ms", of_heap(&values.ms), "ms", None);
        add("page_faults", of_heap(&values.page_faults), "", None);
    }
    Ok(())
}

/// `write512` by the size of the object, which one process writes over and over: its first time,
/// in a new heap, and the median of the others, in which the storage's memory is mapped.
fn over_and_over(ground: &Ground, rounds: usize, outcome: &mut Outcome) -> io::Result<()> {
    const STORAGES: [Storage; 3] = [Storage::Posix, Storage::Heap, Storage::Ideal];
    let files = ground.files();
    for sandbox in [Sandbox::Wasm, Sandbox::Native] {
        for (name, bytes, times) in SIZES {
            let arguments = ["chunks", OUTPUT, "--bytes", bytes, "--rounds", times];
            let mut values: [(Series, Series); STORAGES.len()] = Default::default();
            for round in 0..rounds {
                for turn in 0..STORAGES.len() {
                    let index = (round + turn) % STORAGES.len();
                    if STORAGES[index] == Storage::Heap {
                        ground.remove_heap()?;
                    }
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
            add("again_vs_ideal", heap.1.over(&memory.1), Some(Goal::AtMost(1.05)));
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
    pub(super) encoding_ms: BTreeMap<&'static str, Series>,
    pub(super) run_ms: BTreeMap<&'static str, Series>,
    pub(super) crossings: BTreeMap<&'static str, Series>,
    pub(super) switches: BTreeMap<&'static str, Series>,
    page_faults: BTreeMap<&'static str, Series>,
}

impl Values {
    pub(super) fn add(&mut self, storage: Storage, said: &Said) {
        let name = storage.name();
        self.ms.entry(name).or_default().push(said.ms);
        self.reading_ms.entry(name).or_default().push(said.reading_ms);
        self.encoding_ms.entry(name).or_default().push(said.encoding_ms);
        self.run_ms.entry(name).or_default().push(said.run_ms);
        self.crossings.entry(name).or_default().push(said.crossings);
        self.switches.entry(name).or_default().push(said.usage.switches);
        self.page_faults.entry(name).or_default().push(said.usage.page_faults);
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
                if job.new_heap && storage == Storage::Heap {
                    ground.remove_heap()?;
                }
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
    for peer in [Storage::Posix, Storage::Stdio] {
        let left = ratio(&values.ms, Storage::Ideal, peer);
        let share_pct = left.map(|series| series.map(|share| (1.0 - share) * 100.0));
        add(format!("{name}_{}_io_pct{suffix}", peer.name()), share_pct, "%", None);
    }
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
    for (storage, series) in &values.page_faults {
        add(format!("{name}_{storage}_page_faults{suffix}"), Some(series.clone()), "", None);
    }
}
