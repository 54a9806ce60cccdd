//! The section `device`: how many bytes each storage writes to the block device for what a program
//! makes, which is `write512`, `fasta`, `revcomp`, `compress`, and the structure that `mail` learns.
//!
//! The device is that of the suite `persistency`: a loop device of our own with ext4. What counts is
//! all that it was asked to write from the start of the process until nothing is left to write: of
//! files, after a sync; of a heap, with the checkpoint that ends its run. The input, and what
//! WebAssembly is compiled to, are there before.

use std::fs;
use std::io;
use std::path::Path;

use super::job::{Ground, Image, Sandbox, Storage};
use super::sequences::{BYTES, INPUT, N, OUTPUT, REVERSE};
use super::{compress, mail, rounds};
use crate::device::Device;
use crate::heap::ground::Ground as Directories;
use crate::report::Outcome;
use crate::stats::Series;

/// What is measured, in keys; its objects; and where they are.
const SIDES: [(&str, Storage, Place); 5] = [
    ("posix", Storage::Posix, Place::Device),
    ("buffered", Storage::Buffered, Place::Device),
    ("tmpfs", Storage::Posix, Place::Memory),
    ("heap", Storage::Heap, Place::Home(Image::Memory)),
    ("heap_on_disk", Storage::Heap, Place::Home(Image::Home)),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Files on the device.
    Device,
    /// Files in memory.
    Memory,
    /// A heap with its home on the device, and its image in memory or beside its checkpoint.
    Home(Image),
}

/// A program that writes.
struct Job {
    name: &'static str,
    arguments: Vec<String>,
    /// Files that it reads, by name.
    inputs: Vec<String>,
}

impl Job {
    fn new(name: &'static str, arguments: &[&str], inputs: Vec<String>) -> Job {
        Job { name, arguments: arguments.iter().map(|&word| word.to_owned()).collect(), inputs }
    }
}

/// A heap of `compress` has 1.3 GiB, and is there twice, as image and checkpoint.
const DEVICE_BYTES: u64 = 6 << 30;

pub(super) fn run(runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    let directories = Directories::new()?;
    let device = match Device::with_bytes(&directories.on_disk("device")?, DEVICE_BYTES)? {
        Ok(device) => device,
        Err(reason) => {
            outcome.missing.push(format!("bytes to a block device: {reason}"));
            return Ok(());
        }
    };
    let source = Ground::new()?;
    for job in jobs(&source, outcome)? {
        let mut bytes: [Series; SIDES.len()] = Default::default();
        for _ in 0..rounds(runs) {
            for (series, (_, storage, place)) in bytes.iter_mut().zip(SIDES) {
                series.push(written(&device, &source, &job, storage, place)?);
            }
        }
        report(job.name, &bytes, outcome);
    }
    Ok(())
}

/// The programs, with their inputs among the files of `source`.
fn jobs(source: &Ground, outcome: &mut Outcome) -> io::Result<Vec<Job>> {
    let files = source.files();
    source.run(Sandbox::Native, Storage::Buffered, &files, &["fasta", INPUT, "--n", N])?;
    let mut jobs = vec![
        Job::new("write512", &["chunks", OUTPUT, "--bytes", BYTES], Vec::new()),
        Job::new("fasta", &["fasta", OUTPUT, "--n", N], Vec::new()),
        Job::new("revcomp", &REVERSE, vec![INPUT.to_owned()]),
    ];
    if let Some(folder) = compress::folder(outcome) {
        let mix = compress::chosen(&folder)?;
        compress::copy(&mix, &files)?;
        let arguments = ["compress", "--count", compress::COUNT];
        jobs.push(Job::new("compress", &arguments, compress::names(mix.len())));
    }
    if let Some(folder) = mail::folder(outcome) {
        mail::write_texts(&folder, 1, &files)?;
        jobs.push(Job::new("mail_learn", &mail::LEARN, mail::names()));
    }
    Ok(jobs)
}

/// Bytes that one run of a program has the device write.
fn written(
    device: &Device,
    source: &Ground,
    job: &Job,
    storage: Storage,
    place: Place,
) -> io::Result<f64> {
    let arguments: Vec<&str> = job.arguments.iter().map(String::as_str).collect();
    let counted = |ground: &Ground, directory: &Path| {
        device.settle()?;
        let before = device.written_bytes()?;
        ground.run(Sandbox::Wasm, storage, directory, &arguments)?;
        device.settle()?;
        Ok((device.written_bytes()? - before) as f64)
    };
    match place {
        Place::Device => {
            let directory = device.directory("files")?;
            for name in &job.inputs {
                fs::copy(source.files().join(name), directory.join(name))?;
            }
            counted(source, &directory)
        }
        Place::Memory => counted(source, &source.files()),
        Place::Home(image) => {
            // One at a time is on the device: it has no room for the files, too.
            device.directory("files")?;
            let ground = Ground::with_home(device.directory("home")?, image)?;
            // Makes the heap, and compiles the program.
            let first = ["chunks", "first", "--bytes", "512"];
            ground.run(Sandbox::Wasm, storage, &source.files(), &first)?;
            ground.import(&source.files(), &job.inputs)?;
            let bytes = counted(&ground, &source.files());
            device.directory("home")?;
            bytes
        }
    }
}

fn report(name: &str, bytes: &[Series], outcome: &mut Outcome) {
    for ((side, ..), series) in SIDES.iter().zip(bytes) {
        let megabytes = series.map(|bytes| bytes / 1e6);
        outcome.add(format!("{name}_{side}_device_mb"), Some(megabytes), "MB", None);
    }
    let of = |side| SIDES.iter().position(|(name, ..)| *name == side).map(|at| &bytes[at]);
    let ratio = of("heap").zip(of("posix")).map(|(heap, posix)| heap.over(posix));
    outcome.add(format!("{name}_device_bytes_vs_posix"), ratio, "x", None);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_name_program_and_side() {
        let mut outcome = Outcome::default();
        let bytes = [40e6, 20e6, 0.0, 10e6, 30e6].map(|bytes| Series::from_iter([bytes]));
        report("fasta", &bytes, &mut outcome);
        let found = |key: &str| {
            let found = outcome.measurements.iter().find(|found| found.key == key);
            found.map(|found| (found.series.median(), found.unit))
        };
        assert_eq!(found("fasta_posix_device_mb"), Some((40.0, "MB")));
        assert_eq!(found("fasta_tmpfs_device_mb"), Some((0.0, "MB")));
        assert_eq!(found("fasta_heap_on_disk_device_mb"), Some((30.0, "MB")));
        assert_eq!(found("fasta_device_bytes_vs_posix"), Some((0.25, "x")));
    }
}
