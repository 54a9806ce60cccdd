//! Our sides: records in a heap, whose region has its store on the device and its image in memory.
//!
//! - `Entries` is the map of the suite `heap`: a change is a new object in place of the old one.
//! - `Fixed` is an array of records: a change is announced to a transaction and stored where the
//!   record is.
//!
//! Both are what an application would write; every commit is a transaction of the heap and then a
//! commit of the region.

#![allow(unsafe_code, reason = "reads and writes the objects that it allocates")]

use std::io::{self, Error};
use std::ptr::NonNull;

use holdfast_heap::HeapError;
use holdfast_region::Durability;

use super::records::{Change, RECORD_BYTES, RECORDS, Record, RecordSet, initial};
use crate::heap::ground::Home;
use crate::heap::live::{LiveHeap, heap_error};
use crate::heap::map::Map;

/// The size limit of the region.
const LIMIT_BYTES: u64 = 16 << 20;

/// Whether the program ends, with the checkpoint that this is, or goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Closes,
    StaysOpen,
}

/// A heap and how its commits are made.
struct Committing {
    /// `None` when it was closed.
    live: Option<LiveHeap>,
    level: Durability,
    end: End,
    // The directories of keys and store: kept for as long as the heap is.
    _home: Home,
}

impl Committing {
    fn new(home: Home, level: Durability, end: End) -> io::Result<Committing> {
        let live = LiveHeap::create(&home, LIMIT_BYTES)?;
        Ok(Committing { live: Some(live), level, end, _home: home })
    }

    fn live(&mut self) -> io::Result<&mut LiveHeap> {
        self.live.as_mut().ok_or_else(|| Error::other("the heap was closed"))
    }

    fn commit(&mut self) -> io::Result<()> {
        let level = self.level;
        self.live()?.commit(level).map(drop)
    }

    fn finish(&mut self) -> io::Result<()> {
        match (self.end, self.live.take()) {
            (End::Closes, Some(live)) => live.close().map(drop),
            // It goes as a killed program does, without a checkpoint.
            _ => Ok(()),
        }
    }
}

/// Records as entries of a map.
pub(crate) struct Entries {
    ground: Committing,
    map: Map,
}

impl Entries {
    pub(crate) fn new(home: Home, level: Durability, end: End) -> io::Result<Entries> {
        let mut ground = Committing::new(home, level, end)?;
        let live = ground.live()?;
        let mut map = Map::open_or_create(&mut live.heap).map_err(heap_error)?;
        let pairs: Vec<_> = initial()
            .into_iter()
            .enumerate()
            .map(|(number, content)| (key(number), content))
            .collect();
        let pairs = pairs.iter().map(|(key, content)| (&key[..], &content[..]));
        map.insert_all(&mut live.heap, pairs).map_err(heap_error)?;
        live.checkpoint()?;
        Ok(Entries { ground, map })
    }
}

impl RecordSet for Entries {
    fn commit(&mut self, changes: &[Change]) -> io::Result<()> {
        let pairs: Vec<_> =
            changes.iter().map(|(number, content)| (key(*number), content)).collect();
        let pairs = pairs.iter().map(|(key, content)| (&key[..], &content[..]));
        self.map.insert_all(&mut self.ground.live()?.heap, pairs).map_err(heap_error)?;
        self.ground.commit()
    }

    fn get(&mut self, number: usize) -> io::Result<Record> {
        let found = self.map.get(&self.ground.live()?.heap, &key(number));
        found
            .and_then(|content| content.try_into().ok())
            .ok_or_else(|| Error::other("a record is gone"))
    }

    fn finish(&mut self) -> io::Result<()> {
        self.ground.finish()
    }
}

fn key(number: usize) -> [u8; 8] {
    (number as u64).to_le_bytes()
}

/// Records side by side in one object.
pub(crate) struct Fixed {
    ground: Committing,
    records: NonNull<Record>,
}

impl Fixed {
    pub(crate) fn new(home: Home, level: Durability, end: End) -> io::Result<Fixed> {
        let mut ground = Committing::new(home, level, end)?;
        let live = ground.live()?;
        let bytes = (RECORDS * RECORD_BYTES) as u64;
        let records = live.heap.create_root("records", bytes).map_err(heap_error)?.cast::<Record>();
        for (number, content) in initial().into_iter().enumerate() {
            // SAFETY: a new object of this many records, of which nothing else knows.
            unsafe { records.add(number).write(content) };
        }
        live.checkpoint()?;
        Ok(Fixed { ground, records })
    }
}

impl RecordSet for Fixed {
    fn commit(&mut self, changes: &[Change]) -> io::Result<()> {
        let records = self.records;
        let heap = &mut self.ground.live()?.heap;
        let stored: Result<(), HeapError> = heap.transaction(|heap| {
            for (number, content) in changes.iter().filter(|(number, _)| *number < RECORDS) {
                // SAFETY: below the number of records of the object, which lives as long as its
                // heap.
                let record = unsafe { records.add(*number) };
                heap.add_range(record.as_ptr().cast(), RECORD_BYTES as u64)?;
                // SAFETY: as above; announced.
                unsafe { record.write(*content) };
            }
            Ok(())
        });
        stored.map_err(heap_error)?;
        self.ground.commit()
    }

    fn get(&mut self, number: usize) -> io::Result<Record> {
        self.ground.live()?;
        if number >= RECORDS {
            return Err(Error::other("there is no such record"));
        }
        // SAFETY: below the number of records of the object, and the heap is open.
        Ok(unsafe { self.records.add(number).read() })
    }

    fn finish(&mut self) -> io::Result<()> {
        self.ground.finish()
    }
}
