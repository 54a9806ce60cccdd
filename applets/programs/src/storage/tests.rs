//! All backends hold the same bytes and refuse the same mistakes.

use super::*;
use crate::storage::files::Files;
use crate::storage::heap::{HEADER_BYTES, HeapStorage};
use crate::storage::mapped::Mapped;
use crate::storage::volatile::Volatile;
use crate::{chunks, fasta, knucleotide, revcomp};

use holdfast_heap::{Heap, OpenOptions, Pointers};
use holdfast_testkit::TestMemory;
use xxhash_rust::xxh3::xxh3_64;

fn heap() -> HeapStorage<TestMemory> {
    let options = OpenOptions { pointers: Some(Pointers::PORTABLE), format_if_empty: true };
    HeapStorage::new(Heap::open(TestMemory::new(64 << 20), options).unwrap())
}

/// What all programs make, one from the other's output.
fn everything<S: Storage>(mut storage: S) -> Vec<String> {
    let storage = &mut storage;
    chunks::write(storage, "chunks", 5_000).unwrap();
    fasta::write(storage, "fasta", 3_001).unwrap();
    revcomp::run(storage, "fasta", "revcomp").unwrap();
    // Twice: the second replaces the first.
    revcomp::run(storage, "fasta", "revcomp").unwrap();
    let mut found = vec![knucleotide::run(storage, "fasta").unwrap().text];
    for name in ["chunks", "fasta", "revcomp"] {
        let mut reader = storage.open(name).unwrap();
        let bytes = reader.size_bytes();
        // The first line by itself, so that `rest` begins within.
        let first = reader.line().unwrap().unwrap_or_default().to_vec();
        let rest = reader.rest().unwrap();
        found.push(format!("{bytes} {} {:x} {:x}", rest.len(), xxh3_64(&first), xxh3_64(rest)));
        assert!(reader.line().unwrap().is_none());
    }
    found
}

#[test]
fn backends_hold_the_same_bytes() {
    let expected = everything(Volatile::default());
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_owned();
    assert_eq!(everything(Mapped::new(path.clone())), expected);
    assert_eq!(everything(heap()), expected);
    for buffer_bytes in [0, 1, 61, 1_024, 64 << 10] {
        assert_eq!(everything(Files::new(path.clone(), buffer_bytes)), expected, "{buffer_bytes}");
    }
}

#[test]
fn missing_objects_are_named() {
    fn complaint<S: Storage>(mut storage: S) -> String {
        storage.open("nothing").err().unwrap().to_string()
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_owned();
    assert!(complaint(Files::new(path.clone(), 0)).starts_with("cannot read nothing: No such"));
    assert!(complaint(Mapped::new(path)).starts_with("cannot map nothing: No such"));
    assert!(complaint(heap()).starts_with("there is no nothing in the heap; make it with"));
    assert!(complaint(Volatile::default()).starts_with("there is no nothing in the memory"));
}

/// A writer in memory cannot go beyond what was announced; one that failed changes nothing.
#[test]
fn objects_have_the_size_that_was_announced() {
    fn complaint<S: Storage>(mut storage: S) -> String {
        let mut writer = storage.create("small", 4).unwrap();
        writer.write(b"123").unwrap();
        writer.write(b"45").err().unwrap().to_string()
    }
    let expected = "small gets more than the 4 bytes that were announced for it";
    assert_eq!(complaint(heap()), expected);
    assert_eq!(complaint(Volatile::default()), expected);
}

/// What is made where it stays is what is written, between records and beyond the room, too; and the
/// object takes the room of what was made.
#[test]
fn backends_make_the_same_bytes() {
    fn made<S: Storage>(mut storage: S) -> (S, Vec<Vec<u8>>) {
        let (mut scratch, mut found) = (Vec::new(), Vec::new());
        for (name, bytes) in [("small", 3), ("large", 200_000), ("empty", 0)] {
            // The second replaces the first.
            for byte in [1, 2] {
                let mut writer = storage.create(name, 300_000).unwrap();
                let mut make = |writer: &mut S::Writer| {
                    writer.write_made(bytes + 7, &mut scratch, |space| {
                        space[..bytes].fill(byte);
                        Ok(bytes)
                    })
                };
                make(&mut writer).unwrap();
                writer.write(b"and").unwrap();
                if let Err(error) = make(&mut writer) {
                    assert!(error.to_string().contains("announced"), "{error}");
                }
                storage.finish(writer).unwrap();
            }
            found.push(storage.open(name).unwrap().rest().unwrap().to_vec());
        }
        (storage, found)
    }
    let directory = tempfile::tempdir().unwrap();
    let (storage, found) = made(heap());
    let used_bytes = storage.into_heap().root("small").unwrap().bytes;
    assert_eq!(used_bytes, HEADER_BYTES + 3 + 3 + 3);
    assert_eq!(found[0], [2, 2, 2, b'a', b'n', b'd', 2, 2, 2]);
    assert_eq!(found[2], b"and");
    for buffer_bytes in [0, 61, 64 << 10] {
        let (_, files) = made(Files::new(directory.path().to_owned(), buffer_bytes));
        // Files grow without end; what is in memory has the size that was announced.
        assert_eq!([&files[0], &files[2]], [&found[0], &found[2]], "{buffer_bytes}");
        assert_eq!(files[1].len(), 400_003);
    }
    assert_eq!(made(Volatile::default()).1, found);
    assert_eq!(made(Mapped::new(directory.path().to_owned())).1[0], found[0]);
    assert_eq!(found[1].len(), 200_003);
}

/// An object without its name is not there for who opens the heap after a kill, and the old one is.
#[test]
fn an_unfinished_object_leaves_the_old_one() {
    // Objects that are roots from the start, and those that become one.
    unfinished(100_000);
    unfinished(3 << 20);
}

fn unfinished(capacity_bytes: u64) {
    let mut storage = heap();
    let mut write = |content: &[u8], finish: bool| {
        let mut writer = storage.create("object", capacity_bytes).unwrap();
        writer.write(content).unwrap();
        if finish { storage.finish(writer).map(drop) } else { Ok(()) }
    };
    write(b"old", true).unwrap();
    write(b"new", false).unwrap();
    // The transaction stays open, as a kill leaves it.
    let memory = storage.into_heap().close();
    let options = OpenOptions { pointers: Some(Pointers::PORTABLE), format_if_empty: false };
    let mut storage = HeapStorage::new(Heap::open(memory, options).unwrap());
    assert_eq!(storage.open("object").unwrap().rest().unwrap(), b"old");
}

#[test]
fn an_object_that_is_read_is_not_replaced() {
    let mut storage = heap();
    for _ in 0..2 {
        let writer = storage.create("object", 10).unwrap();
        storage.finish(writer).unwrap();
    }
    let reader = storage.open("object").unwrap();
    let complaint = storage.create("object", 10).unwrap_err().to_string();
    assert!(complaint.starts_with("object is still being read"), "{complaint}");
    drop(reader);
    let writer = storage.create("object", 10).unwrap();
    storage.finish(writer).unwrap();
}

#[test]
fn a_root_of_another_program_is_refused() {
    let storage = heap();
    let mut heap = storage.into_heap();
    heap.create_root("theirs", 100).unwrap();
    heap.create_root("short", 3).unwrap();
    let mut storage = HeapStorage::new(heap);
    for name in ["theirs", "short"] {
        let complaint = storage.open(name).err().unwrap().to_string();
        assert!(complaint.contains("is no object of this program; use a heap of its own"));
        assert!(storage.create(name, 5).is_err());
    }
}
