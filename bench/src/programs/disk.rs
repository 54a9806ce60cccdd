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
use super::sequences::{INPUT, N, REVERSE, with_input};
use super::{mail, rounds};
use crate::report::Outcome;
use crate::stats::Series;

pub(super) fn run(runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    revcomp(rounds(runs), outcome)?;
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
        for entry in fs::read_dir(&self.files)? {
            drop_pages(&entry?.path())?;
        }
        self.ground.forget_heap()
    }
}

/// In WebAssembly. The warm heap is in memory, as in the other sections and in the paper.
fn revcomp(rounds: usize, outcome: &mut Outcome) -> io::Result<()> {
    let (warm, disk) = (with_input(N)?, Disk::new()?);
    let (ground, directory) = (&disk.ground, disk.files.as_path());
    fs::copy(warm.files().join(INPUT), directory.join(INPUT))?;
    let ms = |ground: &Ground, storage| {
        Ok::<_, io::Error>(ground.run(Sandbox::Wasm, storage, directory, &REVERSE)?.ms)
    };
    // Compiles the program.
    ms(ground, Storage::Posix)?;
    let mut values: [Series; 5] = Default::default();
    for _ in 0..rounds {
        values[0].push(ms(&warm, Storage::Heap)?);
        values[1].push(ms(ground, Storage::Posix)?);
        drop_pages(&directory.join(INPUT))?;
        values[2].push(ms(ground, Storage::Posix)?);
        ground.remove_heap()?;
        ground.import(directory, &[INPUT.to_owned()])?;
        for (series, storage) in values[3..].iter_mut().zip([Storage::Posix, Storage::Heap]) {
            disk.forget()?;
            series.push(ground.answer_ms(storage, directory, &REVERSE)?);
        }
    }
    let [heap, warm, cold, cold_answer, cold_heap] = values;
    let mut add = |key: &str, series| outcome.add(key.to_owned(), Some(series), "x", None);
    add("revcomp_vs_posix_disk_warm", warm.over(&heap));
    add("revcomp_vs_posix_disk_cold", cold.over(&heap));
    add("revcomp_vs_posix_disk_cold_heap_cold", cold_answer.over(&cold_heap));
    outcome.add("revcomp_posix_cold_ms", Some(cold_answer), "ms", None);
    outcome.add("revcomp_heap_cold_ms", Some(cold_heap), "ms", None);
    Ok(())
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
