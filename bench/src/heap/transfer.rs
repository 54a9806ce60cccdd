//! Heaps that travel: import against `cp` of the same stream, export and check against one reading
//! of the file.
//!
//! All files are in the page cache, and what is written goes where both sides write.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Error, Read};
use std::path::Path;
use std::time::Instant;

use holdfast_heap::inspect;

use super::ground::{Ground, Home, Store, name};
use super::live::{LiveHeap, heap_error};
use crate::race::{Side, Times, race};
use crate::timing::ms_since;

const NAME: &str = "bench";
const IMPORTED: &str = "imported";
/// What fills a segment of a heap.
const OBJECT_BYTES: u64 = 63 << 16;
/// What the command reads and writes with.
const BUFFER_BYTES: usize = 256 << 10;

/// The sides.
pub(crate) const IMPORT: &str = "import";
pub(crate) const CP: &str = "cp";
pub(crate) const EXPORT: &str = "export";
pub(crate) const CHECK: &str = "check";
pub(crate) const READ: &str = "read";

/// A closed heap of so many bytes of noise, which no zeros and no repetition make cheaper.
fn filled(home: &Home, bytes: u64) -> io::Result<()> {
    let mut live = LiveHeap::create(home, bytes + (64 << 20))?;
    let mut noise = 0x9E37_79B9_7F4A_7C15_u64;
    for number in 0..(bytes >> 22).max(1) {
        let root = live.heap.create_root(&format!("part-{number}"), OBJECT_BYTES);
        let words = root.map_err(heap_error)?.cast::<u64>();
        for word in 0..OBJECT_BYTES as usize / 8 {
            noise ^= noise << 13;
            noise ^= noise >> 7;
            noise ^= noise << 17;
            // SAFETY: a new object of that size, aligned to 16, of which nothing else knows.
            unsafe { words.add(word).write(noise) };
        }
    }
    live.close().map(drop)
}

/// Milliseconds of an import of a heap of so many bytes into a store on the disk, and of `cp` of
/// the same stream to the same disk.
pub(crate) fn imports(ground: &Ground, rounds: usize, bytes: u64) -> io::Result<Times> {
    let home = ground.home(Store::Disk)?;
    filled(&home, bytes)?;
    let streams = ground.on_disk("streams")?;
    let (stream, copy) = (streams.join("stream"), streams.join("copy"));
    export_to(&home, &stream)?;
    home.names.remove(&name(NAME)?, &home.key).map_err(Error::other)?;
    let imported = name(IMPORTED)?;
    let import = Side::new(IMPORT, || {
        let started = Instant::now();
        let mut input = BufReader::with_capacity(BUFFER_BYTES, File::open(&stream)?);
        home.names.import(&imported, &home.key, &mut input).map_err(Error::other)?;
        let taken_ms = ms_since(started);
        home.names.remove(&imported, &home.key).map_err(Error::other)?;
        Ok(taken_ms)
    });
    let cp = Side::new(CP, || {
        let started = Instant::now();
        // The system call that cp makes, without the start of a process, which a small file would
        // feel; as durable as what was imported.
        fs::copy(&stream, &copy)?;
        File::open(&copy)?.sync_all()?;
        let taken_ms = ms_since(started);
        fs::remove_file(&copy)?;
        Ok(taken_ms)
    });
    race(rounds, vec![import, cp])
}

/// Milliseconds of an export and of a check of a heap of so many bytes, and of one reading of its
/// image.
pub(crate) fn readings(ground: &Ground, rounds: usize, bytes: u64) -> io::Result<Times> {
    let home = ground.home(Store::Memory)?;
    filled(&home, bytes)?;
    let heap = name(NAME)?;
    let export = Side::new(EXPORT, || {
        let started = Instant::now();
        export_to(&home, Path::new("/dev/null"))?;
        Ok(ms_since(started))
    });
    let check = Side::new(CHECK, || {
        let started = Instant::now();
        let reader = home.names.open_read(&heap).map_err(Error::other)?;
        let mut copy = reader.private_copy().map_err(Error::other)?;
        let found = inspect(copy.words_mut(), &mut |_| {}, &mut |_, _| {}).map_err(heap_error)?;
        drop((copy, reader));
        let lost = home.names.lost_redundancy(&heap).map_err(Error::other)?;
        if !found.report.is_sound() || !lost.is_empty() {
            return Err(Error::other("the heap is damaged"));
        }
        Ok(ms_since(started))
    });
    let read = Side::new(READ, || {
        let started = Instant::now();
        let mut file = File::open(home.image(NAME))?;
        let mut buffer = vec![0; BUFFER_BYTES];
        while file.read(&mut buffer)? > 0 {}
        Ok(ms_since(started))
    });
    race(rounds, vec![export, check, read])
}

fn export_to(home: &Home, path: &Path) -> io::Result<()> {
    let reader = home.names.open_read(&name(NAME)?).map_err(Error::other)?;
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, File::create(path)?);
    reader.export(&mut out).map(drop).map_err(Error::other)
}
