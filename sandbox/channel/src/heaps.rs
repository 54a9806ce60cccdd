//! The table of the heaps that an applet was granted, in the first page of the shared file, behind
//! the boot record: one entry each, in the order of the grants. The first one is in the boot record
//! as well, for programs that know no table.
//!
//! Invariants: little endian, explicit widths, asserted sizes; the host writes it before the applet
//! starts and never reads it back; the applet copies it once. A page without a table has no entry.

#![forbid(unsafe_code)]

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::boot::{
    BootRegion, REGION_ATOMIC, REGION_COMPARTMENT, REGION_FD, REGION_NEW, REGION_ORDERED,
    REGION_READ_ONLY, REGION_SYNCHRONOUS,
};
use crate::layout::PAGE_BYTES;

/// The most heaps that one applet can be granted.
pub const HEAPS_MAX: usize = 16;
/// The longest name of a heap in an applet, in bytes: that of a compartment.
pub const HEAP_NAME_BYTES_MAX: usize = 128;
/// Where the table begins in the page.
pub const TABLE_OFFSET: u64 = 1024;

/// One heap: its name in the applet, and its region. The image is at the descriptor [`REGION_FD`]
/// plus the index of the entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct HeapEntry {
    name: [u8; HEAP_NAME_BYTES_MAX],
    name_bytes: u32,
    flags: u32,
    address: u64,
    data_offset: u64,
    backed_bytes: u64,
    limit_bytes: u64,
}

/// The table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct HeapTable {
    count: u32,
    entry_bytes: u32,
    reserved: u64,
    entries: [HeapEntry; HEAPS_MAX],
}

const _: () = assert!(size_of::<HeapEntry>() == 168);
const _: () = assert!(TABLE_OFFSET + size_of::<HeapTable>() as u64 <= PAGE_BYTES);

impl HeapEntry {
    /// An entry; `None` if the name is empty or longer than [`HEAP_NAME_BYTES_MAX`].
    #[must_use]
    pub fn new(name: &str, region: &BootRegion) -> Option<HeapEntry> {
        let mut entry = HeapEntry::new_zeroed();
        entry.name.get_mut(..name.len())?.copy_from_slice(name.as_bytes());
        entry.name_bytes = name.len() as u32;
        let flags = [
            (region.is_new, REGION_NEW),
            (region.is_read_only, REGION_READ_ONLY),
            (region.is_atomic, REGION_ATOMIC),
            (region.is_ordered, REGION_ORDERED),
            (region.is_synchronous, REGION_SYNCHRONOUS),
            (region.is_compartment, REGION_COMPARTMENT),
        ];
        entry.flags =
            flags.iter().filter(|(is_set, _)| *is_set).fold(0, |flags, (_, flag)| flags | flag);
        entry.address = region.address;
        entry.data_offset = region.data_offset;
        entry.backed_bytes = region.backed_bytes;
        entry.limit_bytes = region.limit_bytes;
        (!name.is_empty()).then_some(entry)
    }

    /// The name of the heap in the applet; empty if the bytes are no text.
    #[must_use]
    pub fn name(&self) -> &str {
        let bytes = self.name.get(..self.name_bytes as usize).unwrap_or_default();
        core::str::from_utf8(bytes).unwrap_or_default()
    }

    /// The region.
    #[must_use]
    pub fn region(&self) -> BootRegion {
        let has = |flag| self.flags & flag != 0;
        BootRegion {
            address: self.address,
            data_offset: self.data_offset,
            backed_bytes: self.backed_bytes,
            limit_bytes: self.limit_bytes,
            is_new: has(REGION_NEW),
            is_read_only: has(REGION_READ_ONLY),
            is_atomic: has(REGION_ATOMIC),
            is_ordered: has(REGION_ORDERED),
            is_synchronous: has(REGION_SYNCHRONOUS),
            is_compartment: has(REGION_COMPARTMENT),
        }
    }
}

/// Whether a compartment of this name is the one that is asked for: by all of its name, or by that
/// of its worker, which stands behind the `+`. Any is, where none is named.
#[must_use]
pub fn is_compartment_of(name: &str, wanted: Option<&str>) -> bool {
    wanted.is_none_or(|wanted| {
        name == wanted || name.split_once('+').is_some_and(|(_, worker)| worker == wanted)
    })
}

impl HeapTable {
    /// The table of these heaps; of the first [`HEAPS_MAX`].
    #[must_use]
    pub fn new(heaps: &[HeapEntry]) -> HeapTable {
        let mut table = HeapTable::new_zeroed();
        for (entry, heap) in table.entries.iter_mut().zip(heaps) {
            *entry = *heap;
        }
        table.count = heaps.len().min(HEAPS_MAX) as u32;
        table.entry_bytes = size_of::<HeapEntry>() as u32;
        table
    }

    /// Reads the table in a page; one without entries if there is none, or one of another form.
    #[must_use]
    pub fn parse(page: &[u8]) -> HeapTable {
        let found = page
            .get(TABLE_OFFSET as usize..)
            .and_then(|bytes| HeapTable::read_from_prefix(bytes).ok())
            .map(|(table, _)| table)
            .filter(|table| table.entry_bytes as usize == size_of::<HeapEntry>());
        found.unwrap_or_else(HeapTable::new_zeroed)
    }

    /// The heaps, in the order of the grants.
    #[must_use]
    pub fn heaps(&self) -> &[HeapEntry] {
        &self.entries[..(self.count as usize).min(HEAPS_MAX)]
    }
}

/// The descriptor at which an applet finds the image of the heap with this index.
#[must_use]
pub const fn heap_fd(index: usize) -> i32 {
    REGION_FD + index as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(number: u64) -> BootRegion {
        BootRegion {
            address: number << 40,
            data_offset: 8192,
            backed_bytes: number << 20,
            limit_bytes: number << 30,
            is_new: number.is_multiple_of(2),
            is_read_only: number.is_multiple_of(3),
            is_atomic: number.is_multiple_of(5),
            is_ordered: number.is_multiple_of(7),
            is_synchronous: !number.is_multiple_of(2),
            is_compartment: number.is_multiple_of(3),
        }
    }

    fn page(table: &HeapTable) -> std::vec::Vec<u8> {
        let mut page = std::vec![0; PAGE_BYTES as usize];
        let at = TABLE_OFFSET as usize;
        page[at..at + size_of::<HeapTable>()].copy_from_slice(table.as_bytes());
        page
    }

    #[test]
    fn a_table_is_read_as_it_was_written() {
        let names = ["dict", "notes", "words+worker-7"];
        let heaps: std::vec::Vec<_> = names
            .iter()
            .enumerate()
            .map(|(at, name)| HeapEntry::new(name, &region(at as u64 + 1)).unwrap())
            .collect();
        let read = HeapTable::parse(&page(&HeapTable::new(&heaps)));
        assert_eq!(read.heaps().len(), 3);
        for (at, (heap, name)) in read.heaps().iter().zip(names).enumerate() {
            assert_eq!((heap.name(), heap.region()), (name, region(at as u64 + 1)));
        }
        assert_eq!((heap_fd(0), heap_fd(2)), (REGION_FD, REGION_FD + 2));
    }

    #[test]
    fn compartments_are_known_by_either_name() {
        for (name, wanted, is_it) in [
            ("words+worker-7", None, true),
            ("words+worker-7", Some("worker-7"), true),
            ("words+worker-7", Some("words+worker-7"), true),
            ("render", Some("render"), true),
            ("words+worker-7", Some("words"), false),
            ("words+worker-7", Some("worker"), false),
            ("words+worker-7", Some(""), false),
        ] {
            assert_eq!(is_compartment_of(name, wanted), is_it, "{name}, {wanted:?}");
        }
    }

    #[test]
    fn bytes_that_are_no_table_have_no_heaps() {
        assert!(HeapTable::parse(&[]).heaps().is_empty());
        assert!(HeapTable::parse(&[0; PAGE_BYTES as usize]).heaps().is_empty());
        let mut table = HeapTable::new(&[HeapEntry::new("a", &region(1)).unwrap()]);
        table.count = u32::MAX;
        assert_eq!(HeapTable::parse(&page(&table)).heaps().len(), HEAPS_MAX);
        table.entry_bytes += 8;
        assert!(HeapTable::parse(&page(&table)).heaps().is_empty());
        assert!(HeapEntry::new("", &region(1)).is_none());
        assert!(HeapEntry::new(&"x".repeat(HEAP_NAME_BYTES_MAX + 1), &region(1)).is_none());
        let mut entry = HeapEntry::new("name", &region(1)).unwrap();
        entry.name_bytes = u32::MAX;
        assert_eq!(entry.name(), "");
    }
}
