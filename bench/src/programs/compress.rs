//! `compress`: Snappy over 3,001 files such as a browser's cache has, some 500 MB. A few hundred are
//! most of the bytes: photographs, music, and some videos. The others are of five sources in equal
//! parts: the documentation of Python, of C and C++, of Rust and of OpenCV (HTML, style sheets,
//! scripts, pictures, fonts), and packages of npm (scripts, fonts, pictures, models). Of these a
//! file's chance is in proportion to the square root of its size: then the mix has the paper's 500
//! MB, of which Snappy saves the paper's 28 %.
//!
//! Invariant: which files these are depends on their paths, their sizes and a fixed seed only.

use std::fs;
use std::io::{self, Error};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::job::{Ground, Sandbox, Storage};
use super::rounds;
use super::sequences::{Values, ratio};

use crate::report::{Goal, Outcome};
use crate::stats::Series;

/// As in the paper.
const FILES: usize = 3_001;
pub(super) const COUNT: &str = "3001";
const SEED: u64 = 2013;

/// Names the folder with a folder for each source.
const VARIABLE: &str = "HOLDFAST_CACHE_FILES";

const STORAGES: [Storage; 6] = [
    Storage::Glibc,
    Storage::Stdio,
    Storage::Buffered,
    Storage::Mapped,
    Storage::Heap,
    Storage::Ideal,
];

/// The folder with the files; where there is none, that is said.
pub(super) fn folder(outcome: &mut Outcome) -> Option<PathBuf> {
    let folder = super::folder(VARIABLE);
    if folder.is_none() {
        outcome.missing.push(format!(
            "files of a cache: `cargo xtask bench programs` gets them from apt and npm, or {VARIABLE} names a folder \
             with a folder for each source"
        ));
    }
    folder
}

/// Copies files to where the program takes them from, and into the heap; returns how many bytes
/// they have.
pub(super) fn load(ground: &Ground, mix: &[PathBuf]) -> io::Result<u64> {
    let bytes = copy(mix, &ground.files())?;
    ground.import(&ground.files(), &names(mix.len()))?;
    Ok(bytes)
}

/// The names of so many files that the program takes.
pub(super) fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("file-{number:04}")).collect()
}

/// Copies files to where the program takes them from; returns how many bytes they have.
pub(crate) fn copy(mix: &[PathBuf], to: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for (path, name) in mix.iter().zip(names(mix.len())) {
        bytes += fs::copy(path, to.join(name))?;
    }
    Ok(bytes)
}

pub(super) fn run(runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    let Some(folder) = folder(outcome) else { return Ok(()) };
    let ground = Ground::new()?;
    let mix = chosen(&folder)?;
    let bytes = load(&ground, &mix)?;
    for sandbox in Sandbox::ALL {
        let files = ground.files();
        let storages: Vec<Storage> =
            STORAGES.into_iter().filter(|storage| storage.is_in(sandbox)).collect();
        let arguments = ["compress", "--count", COUNT];
        let mut crossings = Values::default();
        let mut expected = None::<String>;
        for &storage in &storages {
            let said = ground.run(sandbox, storage, &files, &arguments)?;
            let expected = expected.get_or_insert_with(|| said.result.clone());
            let verified = match storage {
                // What was in ordinary memory is gone.
                Storage::Ideal => format!("verified {bytes}"),
                _ => ground.run(sandbox, storage, &files, &["verify", "--count", COUNT])?.result,
            };
            if *expected != said.result || verified != format!("verified {bytes}") {
                return Err(Error::other(format!(
                    "compress with {} in {sandbox:?}: {} and {verified}, instead of {expected}",
                    storage.name(),
                    said.result
                )));
            }
            crossings.add(storage, &said);
        }
        if sandbox == Sandbox::Wasm {
            let after = expected.and_then(|said| said.strip_prefix("bytes ")?.parse::<f64>().ok());
            outcome.note(format!(
                "compress: {} files, {:.0} MB, of which Snappy saves {:.0} %",
                mix.len(),
                bytes as f64 / 1e6,
                (1.0 - after.unwrap_or(f64::NAN) / bytes as f64) * 100.0
            ));
        }
        let mut values = Values::default();
        for round in 0..rounds(runs) {
            for turn in 0..storages.len() {
                let storage = storages[(round + turn) % storages.len()];
                values.add(storage, &ground.run(sandbox, storage, &files, &arguments)?);
            }
        }
        report(sandbox, &values, outcome);
        for storage in storages {
            let key = format!("compress_{}_crossings{}", storage.name(), sandbox.suffix());
            outcome.add(key, crossings.crossings.get(storage.name()).cloned(), "", None);
            let key = format!("compress_{}_switches{}", storage.name(), sandbox.suffix());
            outcome.add(key, values.switches.get(storage.name()).cloned(), "", None);
        }
    }
    Ok(())
}

fn report(sandbox: Sandbox, values: &Values, outcome: &mut Outcome) {
    let suffix = sandbox.suffix();
    let against = |peer| ratio(&values.ms, peer, Storage::Heap);
    let mut add = |key: &str, series, goal: Option<Goal>| {
        outcome.add(format!("compress_{key}{suffix}"), series, "x", goal);
    };
    add("vs_posix", against(Storage::Glibc), Some(Goal::AtLeast(3.0)));
    add("vs_stdio", against(Storage::Stdio), None);
    add("vs_buffered", against(Storage::Buffered), None);
    add("vs_mmap", against(Storage::Mapped), Some(Goal::AtLeast(2.5)));
    let ceiling = ratio(&values.ms, Storage::Heap, Storage::Ideal);
    add("vs_ideal", ceiling, Some(Goal::AtMost(1.05)));
    add("posix_vs_ideal", ratio(&values.ms, Storage::Glibc, Storage::Ideal), None);
    // The most that any storage could gain, were it for nothing: what Snappy takes is left. Of its times
    // the shortest, as memory that is touched for the first time is so within some of them.
    let snappy =
        values.encoding_ms.values().min_by(|one, other| one.median().total_cmp(&other.median()));
    for (key, peer) in [("posix_vs_snappy", Storage::Glibc), ("mmap_vs_snappy", Storage::Mapped)] {
        let most = values.ms.get(peer.name()).zip(snappy).map(|(ms, alone)| ms.over(alone));
        add(key, most, None);
    }
    let key = format!("compress_snappy_ms{suffix}");
    outcome.add(key, snappy.cloned(), "ms", None);
    for (storage, series) in &values.encoding_ms {
        let key = format!("compress_{storage}_snappy_ms{suffix}");
        outcome.add(key, Some(series.clone()), "ms", None);
    }
    for (storage, series) in &values.ms {
        let key = format!("compress_{storage}_ms{suffix}");
        outcome.add(key, Some(Series::clone(series)), "ms", None);
    }
}

/// [`FILES`] files of the sources below a folder, in equal parts where there are enough.
pub(crate) fn chosen(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut sources: Vec<PathBuf> =
        fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    sources.sort();
    let mut sources: Vec<Vec<(f64, PathBuf)>> = sources
        .iter()
        .map(|source| {
            let mut files = Vec::new();
            collect(source, folder, &mut files)?;
            files.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
            Ok(files)
        })
        .collect::<io::Result<_>>()?;
    // The smallest first: what one lacks the others add.
    sources.sort_by_key(Vec::len);
    let (mut mix, count) = (Vec::new(), sources.len());
    for (index, files) in sources.into_iter().enumerate() {
        let part = (FILES - mix.len()).div_ceil(count - index);
        mix.extend(files.into_iter().take(part).map(|(_, path)| path));
    }
    if mix.len() < FILES {
        return Err(Error::other(format!(
            "{} has {} files, and {FILES} are needed; remove it, and it is fetched again",
            folder.display(),
            mix.len()
        )));
    }
    Ok(mix)
}

/// All files below a folder that are not empty, each with the number that says when it is taken.
fn collect(place: &Path, root: &Path, files: &mut Vec<(f64, PathBuf)>) -> io::Result<()> {
    for entry in fs::read_dir(place)? {
        let entry = entry?;
        let (kind, path) = (entry.file_type()?, entry.path());
        if kind.is_dir() {
            collect(&path, root, files)?;
        } else if kind.is_file() {
            let bytes = entry.metadata()?.len();
            if bytes > 0 {
                let name = path.strip_prefix(root).unwrap_or(&path);
                files.push((turn(name, bytes), path));
            }
        }
    }
    Ok(())
}

/// When a file is taken, those with the smallest numbers first: a draw without replacement by weight.
///
/// Source: Efraimidis and Spirakis, "Weighted random sampling with a reservoir", 2006.
fn turn(name: &Path, bytes: u64) -> f64 {
    let drawn = xxh3_64_with_seed(name.as_os_str().as_encoded_bytes(), SEED);
    // Above 0 and at most 1.
    let uniform = ((drawn >> 11) + 1) as f64 / (1_u64 << 53) as f64;
    -uniform.ln() / (bytes as f64).sqrt()
}
