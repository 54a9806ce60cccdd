//! The records in a heap: a chain of objects, each with a number, bytes that follow from it, and a
//! checksum; and a note that every record frees and allocates anew.
//!
//! Invariants: a record comes in one transaction with everything that belongs to it. So a heap has
//! the records 1 to n, for some n, or something was lost.

use std::ptr::NonNull;

use holdfast_heap::{Heap, HeapError, check};
use holdfast_native_heap::RegionBacking;
use holdfast_region::Region;
use xxhash_rust::xxh3::xxh3_64;

const ROOT: &str = "records";
const BYTES_MAX: u64 = 700;
const NOTE_BYTES_MAX: u64 = 300;

/// The root object. Plain pointers: the region is mapped at its own address.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Chain {
    count: u64,
    newest: *mut Record,
    note: *mut u8,
}

/// What a record begins with; its bytes follow.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Record {
    number: u64,
    older: *mut Record,
    bytes: u64,
    checksum: u64,
}

const RECORD_BYTES: u64 = size_of::<Record>() as u64;

/// The chain of a heap, which is made if there is none.
fn chain(heap: &mut Heap<RegionBacking>) -> Result<NonNull<Chain>, HeapError> {
    match heap.root(ROOT) {
        Some(root) => Ok(root.pointer.cast()),
        None => heap.create_root(ROOT, size_of::<Chain>() as u64).map(NonNull::cast),
    }
}

/// How many records the heap says that it has.
///
/// # Errors
/// Those of making the chain, if there is none.
pub fn count(heap: &mut Heap<RegionBacking>) -> Result<u64, HeapError> {
    let chain = chain(heap)?;
    // SAFETY: the root was made with this size, and this is the only thread that uses the heap.
    Ok(unsafe { chain.read() }.count)
}

/// Adds the next record, in a transaction of its own, and returns its number.
///
/// # Errors
/// Those of the heap; nothing has changed then.
pub fn add(heap: &mut Heap<RegionBacking>) -> Result<u64, HeapError> {
    let chain = chain(heap)?;
    heap.transaction(|heap| {
        // SAFETY: as in `count`.
        let old = unsafe { chain.read() };
        let number = old.count + 1;
        let content = content(number);
        let object = heap.alloc(RECORD_BYTES + content.len() as u64)?;
        let record = Record {
            number,
            older: old.newest,
            bytes: content.len() as u64,
            checksum: checksum(number, &content),
        };
        let newest = object.cast::<Record>();
        let note = heap.alloc(1 + mix(number) % NOTE_BYTES_MAX)?;
        heap.add_range(chain.as_ptr().cast(), size_of::<Chain>() as u64)?;
        // SAFETY: the object has room for both parts and is aligned to 16 bytes; the chain's old
        // bytes were noted.
        unsafe {
            newest.write(record);
            object
                .as_ptr()
                .add(RECORD_BYTES as usize)
                .copy_from_nonoverlapping(content.as_ptr(), content.len());
            chain.write(Chain { count: number, newest: newest.as_ptr(), note: note.as_ptr() });
        }
        if let Some(note) = NonNull::new(old.note) {
            heap.free(note)?;
        }
        Ok(number)
    })
}

/// Follows the chain from its newest record to its first, and returns how many there are.
///
/// # Errors
/// What is wrong with the first record that is not as it was written.
pub fn verify(heap: &mut Heap<RegionBacking>) -> Result<u64, String> {
    let chain = chain(heap).map_err(|error| error.to_string())?;
    // SAFETY: as in `count`.
    let Chain { count, newest, .. } = unsafe { chain.read() };
    let mut next = newest;
    for number in (1..=count).rev() {
        let pointer =
            NonNull::new(next).ok_or_else(|| format!("record {number} of {count} is missing"))?;
        let usable = heap
            .usable_bytes(pointer.cast())
            .map_err(|error| format!("record {number}: {error}"))?;
        if usable < RECORD_BYTES {
            return Err(format!("record {number} has {usable} bytes only"));
        }
        // SAFETY: the heap says that an object of this size begins here; it has no other user.
        let record = unsafe { pointer.read() };
        if record.number != number || usable - RECORD_BYTES < record.bytes {
            return Err(format!("in the place of record {number} of {count} is {record:?}"));
        }
        // SAFETY: as above; the object has this many bytes behind its beginning.
        let content = unsafe {
            std::slice::from_raw_parts(pointer.as_ptr().add(1).cast::<u8>(), record.bytes as usize)
        };
        if record.checksum != checksum(number, content) || content != self::content(number) {
            return Err(format!("record {number} of {count} has other bytes than were written"));
        }
        next = record.older;
    }
    if next.is_null() {
        Ok(count)
    } else {
        Err("there is something behind the first record".to_owned())
    }
}

/// What the checker finds in the bytes of a region whose heap is closed.
///
/// # Errors
/// When the region is not mapped.
pub fn findings(region: &Region) -> Result<Vec<String>, String> {
    let start = region.mapping().ok_or("the region is not mapped")?;
    let bytes = usize::try_from(region.backed_bytes()).map_err(|error| error.to_string())?;
    // SAFETY: the region has this many bytes mapped there, and no thread stores to them: its heap
    // is closed, and the lock of the region keeps other processes away.
    let bytes = unsafe { std::slice::from_raw_parts(start.as_ptr(), bytes) };
    let mut findings = Vec::new();
    check(bytes, &mut |finding| findings.push(format!("{finding:?}")));
    Ok(findings)
}

/// The bytes of a record.
pub(super) fn content(number: u64) -> Vec<u8> {
    let bytes = mix(number) % BYTES_MAX;
    (0..bytes).map(|at| mix(number ^ (at << 32)) as u8).collect()
}

/// The checksum of a record's bytes.
pub(super) fn checksum(number: u64, content: &[u8]) -> u64 {
    xxh3_64(content) ^ number
}

/// Spreads a number over all bits.
fn mix(number: u64) -> u64 {
    xxh3_64(&number.to_le_bytes())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use holdfast_native_heap::open_heap;
    use holdfast_region::{NameSpace, OwnerKey, Places, RegionName};

    /// Records are counted, and a changed byte and a wrong count are found.
    #[test]
    fn changed_record_or_wrong_count_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let places =
            Places::at(directory.path().join("home"), directory.path().join("pool")).unwrap();
        let name = RegionName::parse("heap").unwrap();
        let region =
            NameSpace::new(places).create(&name, &OwnerKey::from_bytes([7; 32]), 16 << 20).unwrap();
        let (mut heap, region) = open_heap(region).unwrap();
        assert_eq!(verify(&mut heap), Ok(0));
        for number in 1..=50 {
            assert_eq!(add(&mut heap).unwrap(), number);
        }
        assert_eq!((count(&mut heap).unwrap(), verify(&mut heap)), (50, Ok(50)));
        let chain = chain(&mut heap).unwrap();
        // SAFETY: the test has the heap to itself.
        unsafe { (*chain.as_ptr()).count = 51 };
        assert!(verify(&mut heap).is_err_and(|what| what.contains("record 51")));
        // SAFETY: as above; the newest record has this number of bytes behind its beginning.
        unsafe {
            (*chain.as_ptr()).count = 50;
            (*(*chain.as_ptr()).newest).checksum ^= 1;
        }
        assert!(verify(&mut heap).is_err_and(|what| what.contains("other bytes")));
        drop(heap.close());
        region.close().unwrap();
    }
}
