//! Files that claim more than there is memory: an error value, and no end of the process.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use common::child::{Player, places, role, say};
use common::noted::Notes;
use common::{Home, MIB, key, named};
use holdfast_region::{
    DamagedFile, Durability, ErrorKind, KernelStorage, NameSpace, RegionError, Storage, Written,
};

/// What the child may have, in KiB.
const ADDRESS_SPACE_KIB: u64 = 2 << 20;
/// More than that.
const LARGE_BYTES: u64 = 16 << 30;
/// Fits once and not twice.
const HALF_BYTES: u64 = 1200 * MIB;

/// Files of which nothing is allocated.
#[derive(Debug)]
struct Holes;

impl Storage for Holes {
    fn create(&self, path: &Path) -> io::Result<File> {
        KernelStorage.create(path)
    }

    fn allocate(&self, file: &File, range: Range<u64>) -> io::Result<()> {
        if file.metadata()?.len() < range.end { file.set_len(range.end) } else { Ok(()) }
    }

    fn set_len(&self, file: &File, len_bytes: u64) -> io::Result<()> {
        KernelStorage.set_len(file, len_bytes)
    }

    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        KernelStorage.write_at(file, bytes, offset)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        KernelStorage.sync(file)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        KernelStorage.sync_directory(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        KernelStorage.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        KernelStorage.remove(path)
    }

    fn available_bytes(&self, path: &Path) -> io::Result<u64> {
        KernelStorage.available_bytes(path)
    }
}

/// A region whose base has 4 MiB, and whose image and journal say that it has grown.
fn make(home: &Home, name: &str, grown_bytes: u64) {
    let names = home.names_over(Arc::new(Holes));
    let mut region = names.create(&named(name), &key(), grown_bytes).unwrap();
    let notes = Notes::of(&mut region);
    notes.store(&mut region, 0, b"base");
    region.commit(Durability::Power).unwrap();
    region.grow(grown_bytes).unwrap();
    notes.store(&mut region, 0, b"more");
    assert_eq!(region.commit(Durability::Power).unwrap().written, Written::Journal);
}

/// What the errors of an operation that wants a whole file in memory must say.
fn refused<T>(outcome: Result<T, RegionError>, path: &Path, bytes: u64) {
    let error = outcome.err().unwrap();
    let is_right = |found: &Path, needed_bytes| found == path && needed_bytes == bytes;
    assert!(
        matches!(&error, RegionError::NoMemory { path, needed_bytes } if is_right(path, *needed_bytes)),
        "{error}"
    );
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().contains("ulimit -v"), "{error}");
}

#[test]
fn a_child_plays_its_role() {
    if role().is_none() {
        return;
    }
    let (names, pool) = (NameSpace::new(places()), places().pool().to_owned());
    let base = places().store().join("large.base");
    refused(DamagedFile::read(&pool.join("foreign")), &pool.join("foreign"), 1 << 40);
    refused(DamagedFile::read(&pool.join("large.image")), &pool.join("large.image"), LARGE_BYTES);
    refused(names.examine(&named("large"), &key()), &pool.join("large.image"), LARGE_BYTES);
    refused(
        names.open_read(&named("half")).unwrap().read_all(),
        &names.summary(&named("half")).unwrap().image.unwrap().path,
        HALF_BYTES,
    );
    // The journal has too much, the base does not.
    let damaged = DamagedFile::read(&base).unwrap();
    assert!(damaged.bytes().starts_with(b"base") && damaged.report().data_bytes == 4 * MIB);
    let why = damaged.report().continuation.clone().unwrap().damaged.unwrap();
    assert!(why.contains("ulimit -v"), "{why}");
    std::fs::remove_file(pool.join("large.image")).unwrap();
    refused(names.examine(&named("large"), &key()), &base, LARGE_BYTES);
    say("done");
}

/// A file that claims more than there is memory is an error that says what to do.
///
/// Guarantee: heap/salvage
#[test]
fn file_larger_than_memory_is_a_helpful_error() {
    let home = Home::new();
    make(&home, "large", LARGE_BYTES);
    make(&home, "half", HALF_BYTES);
    // Whatever it was, it has no header, so its length counts.
    File::create(home.pool().join("foreign")).unwrap().set_len((1 << 40) + 2 * MIB).unwrap();
    let script = format!("ulimit -v {ADDRESS_SPACE_KIB} && exec \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &script, "sh"]).arg(std::env::current_exe().unwrap());
    let mut child = Player::start_with(command, &home, "any");
    assert_eq!(child.hear(), "done");
    child.finish();
}
