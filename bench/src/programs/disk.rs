//! Files on the disk of the build, warm, and with their pages dropped from the page cache before
//! each run; and the heap as after a restart of the machine, when it is restored from its
//! checkpoint on that disk.
//!
//! Where the heap is cold, time counts from the start of the process until its answer, on both
//! sides, because the heap is restored before the program begins. It has what the program reads and
//! nothing else, as all of a heap is restored. The programs themselves, and what WebAssembly is
//! compiled to, are in the page cache for all.

use std::fs;
use std::io;
use std::path::PathBuf;

use holdfast_testkit::target_directory;
use tempfile::TempDir;

use super::job::{Ground, Image, Sandbox, Storage, drop_pages};
use super::sequences::{BYTES, INPUT, N, OUTPUT, REVERSE, with_input};
use super::{compress, mail, rounds};
use crate::report::Outcome;
use crate::stats::Series;

pub(super) fn run(runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    sequences(rounds(runs), outcome)?;
    compress(rounds(runs), outcome)?;
    mail(rounds(runs), outcome)
}

/// A directory for files, and the home of a heap in memory beside it.
struct Disk {
    /// Removed at the end.
    _place: TempDir,
    files: PathBuf,
    ground: Ground,
}

impl Disk {
    fn new() -> io::Result<Disk> {
        let place = tempfile::Builder::new().prefix("programs-").tempdir_in(target_directory()?)?;
        let (files, home) = (place.path().join("files"), place.path().join("home"));
        fs::create_dir(&files)?;
        Ok(Disk { _place: place, files, ground: Ground::with_home(home, Image::Memory)? })
    }

    /// Has the kernel forget all files, and the heap.
    fn forget(&self) -> io::Result<()> {
        self.forget_files()?;
        self.forget_heap()
    }

    fn forget_files(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.files)? {
            drop_pages(&entry?.path())?;
        }
        Ok(())
    }

    fn forget_heap(&self) -> io::Result<()> {
        self.ground.forget_heap()
    }
}

/// A program and what it reads.
struct Job {
    name: &'static str,
    arguments: Vec<String>,
    inputs: Vec<String>,
    /// What the section of the program calls `posix`.
    files: Storage,
}

impl Job {
    fn new(name: &'static str, arguments: &[&str], inputs: Vec<String>) -> Job {
        let arguments = arguments.iter().map(|&word| word.to_owned()).collect();
        Job { name, arguments, inputs, files: Storage::Posix }
    }
}

/// The program over files of the disk against the same in a warm heap, which is in memory as in the
/// other sections and in the paper; all in WebAssembly. One that reads nothing is never cold.
fn measured(job: &Job, warm: &Ground, rounds: usize, outcome: &mut Outcome) -> io::Result<()> {
    const WARM_HEAP: usize = 0;
    const WARM: usize = 1;
    const COLD: usize = 2;
    const COLD_ANSWER: usize = 3;
    const COLD_HEAP: usize = 4;
    let disk = Disk::new()?;
    let (ground, directory) = (&disk.ground, disk.files.as_path());
    let arguments: Vec<&str> = job.arguments.iter().map(String::as_str).collect();
    for input in &job.inputs {
        fs::copy(warm.files().join(input), directory.join(input))?;
    }
    let ms = |ground: &Ground, storage| {
        Ok::<_, io::Error>(ground.run(Sandbox::Wasm, storage, directory, &arguments)?.ms)
    };
    // Compiles the program. The heap has room for an object and the one that replaces it afterwards.
    ms(ground, job.files)?;
    ms(warm, Storage::Heap)?;
    ms(warm, Storage::Heap)?;
    let ways = if job.inputs.is_empty() { COLD } else { COLD_HEAP + 1 };
    let mut values: [Series; COLD_HEAP + 1] = Default::default();
    for round in 0..rounds {
        for turn in 0..ways {
            let way = (round + turn) % ways;
            if way == COLD_HEAP {
                ground.remove_heap()?;
                ground.import(directory, &job.inputs)?;
                disk.forget_heap()?;
            }
            // Also before a heap is restored: so nothing of the files is still to be written then.
            if way >= COLD {
                disk.forget_files()?;
            } else if way == WARM {
                for input in &job.inputs {
                    fs::read(directory.join(input))?;
                }
            }
            values[way].push(match way {
                WARM_HEAP => ms(warm, Storage::Heap)?,
                WARM | COLD => ms(ground, job.files)?,
                COLD_ANSWER => ground.answer_ms(job.files, directory, &arguments)?,
                _ => ground.answer_ms(Storage::Heap, directory, &arguments)?,
            });
        }
    }
    let name = job.name;
    let mut add = |key: &str, series, unit| {
        outcome.add(format!("{name}_{key}"), Some(series), unit, None);
    };
    let heap = &values[WARM_HEAP];
    add("vs_posix_disk_warm", values[WARM].over(heap), "x");
    add("posix_disk_ms", values[WARM].clone(), "ms");
    if ways > COLD {
        add("vs_posix_disk_cold", values[COLD].over(heap), "x");
        add("vs_posix_disk_cold_heap_cold", values[COLD_ANSWER].over(&values[COLD_HEAP]), "x");
        add("posix_cold_ms", values[COLD_ANSWER].clone(), "ms");
        add("heap_cold_ms", values[COLD_HEAP].clone(), "ms");
    }
    Ok(())
}

fn sequences(rounds: usize, outcome: &mut Outcome) -> io::Result<()> {
    let warm = with_input(N)?;
    let input = || vec![INPUT.to_owned()];
    for job in [
        Job::new("write512", &["chunks", OUTPUT, "--bytes", BYTES], Vec::new()),
        Job::new("fasta", &["fasta", OUTPUT, "--n", N], Vec::new()),
        Job::new("revcomp", &REVERSE, input()),
        Job::new("knucleotide", &["knucleotide", INPUT], input()),
    ] {
        measured(&job, &warm, rounds, outcome)?;
    }
    Ok(())
}

fn compress(rounds: usize, outcome: &mut Outcome) -> io::Result<()> {
    let Some(folder) = compress::folder(outcome) else { return Ok(()) };
    let (warm, mix) = (Ground::new()?, compress::chosen(&folder)?);
    compress::load(&warm, &mix)?;
    let arguments = ["compress", "--count", compress::COUNT];
    let job = Job::new("compress", &arguments, compress::names(mix.len()));
    let job = Job { files: Storage::Glibc, ..job };
    measured(&job, &warm, rounds, outcome)
}

/// What is read alone: the learning texts or the structure, and the mails that are classified.
fn mail(rounds: usize, outcome: &mut Outcome) -> io::Result<()> {
    const WAYS: [(&str, [&str; 1], Storage); 4] = [
        ("posix", mail::PARSED, Storage::Posix),
        ("buffered", mail::PARSED, Storage::Buffered),
        ("structure_in_file", mail::KEPT, Storage::Buffered),
        ("heap", mail::KEPT, Storage::Heap),
    ];
    let Some(folder) = mail::folder(outcome) else { return Ok(()) };
    let disk = Disk::new()?;
    let (ground, directory) = (&disk.ground, disk.files.as_path());
    mail::write_texts(&folder, 1, directory)?;
    ground.run(Sandbox::Native, Storage::Buffered, directory, &mail::LEARN)?;
    ground.import(directory, &[mail::MODEL, mail::NEW].map(str::to_owned))?;
    let mut values: [Series; WAYS.len()] = Default::default();
    for round in 0..=rounds {
        for (series, (_, arguments, storage)) in values.iter_mut().zip(WAYS) {
            disk.forget()?;
            let ms = ground.answer_ms(storage, directory, &arguments)?;
            // The first round compiles the program.
            if round > 0 {
                series.push(ms);
            }
        }
    }
    let [.., heap] = &values;
    for ((way, ..), series) in WAYS.iter().zip(&values).filter(|((way, ..), _)| *way != "heap") {
        outcome.add(format!("mail_cold_vs_{way}_cold"), Some(series.over(heap)), "x", None);
    }
    for ((way, ..), series) in WAYS.iter().zip(&values) {
        outcome.add(format!("mail_{way}_cold_ms"), Some(series.clone()), "ms", None);
    }
    Ok(())
}
