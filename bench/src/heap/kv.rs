//! A key-value store over the heap against embedded databases: 16-byte keys, 100-byte values,
//! inserted in random order, in batches that are committed.
//!
//! Invariants: all sides get the same pairs in the same order and batches, start from an empty
//! store in a fresh directory, and are read back completely afterwards, outside the measured time.
//!
//! What is not the same: the databases keep keys in order and let readers work beside the writer;
//! the hash map does not. What a commit without sync survives differs too: see `bench/README.md`.

use std::io;
use std::time::Instant;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::ground::Home;
use super::live::{LiveHeap, heap_error};
use super::map::Map;
use crate::race::{Side, Times, race};

const KEY_BYTES: usize = 16;
const VALUE_BYTES: usize = 100;
const PAIRS: usize = 100_000;
const LIMIT_BYTES: u64 = 1 << 30;
/// The heap under test.
pub(crate) const HOLDFAST: &str = "holdfast";

/// A key with its value.
pub(crate) type Pair = ([u8; KEY_BYTES], [u8; VALUE_BYTES]);

/// What can be raced.
pub(crate) trait KeyValue {
    /// Inserts pairs and commits.
    fn insert_all(&mut self, pairs: &[Pair]) -> io::Result<()>;
    /// The value of a key.
    fn get(&mut self, key: &[u8]) -> io::Result<Option<Vec<u8>>>;
}

/// Whether a commit has to survive a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sync {
    /// No: the store is in memory.
    No,
    /// Yes: the store is on a disk.
    Yes,
}

/// How to make an empty store.
pub(crate) type Make<'a> = Box<dyn Fn(Sync) -> io::Result<Box<dyn KeyValue>> + 'a>;

/// A side of the race.
pub(crate) struct Engine<'a> {
    pub(crate) name: &'static str,
    pub(crate) make: Make<'a>,
}

/// The hash map over a heap.
struct Persistent {
    map: Map,
    live: LiveHeap,
    sync: Sync,
}

impl KeyValue for Persistent {
    fn insert_all(&mut self, pairs: &[Pair]) -> io::Result<()> {
        let pairs = pairs.iter().map(|(key, value)| (&key[..], &value[..]));
        self.map.insert_all(&mut self.live.heap, pairs).map_err(heap_error)?;
        if self.sync == Sync::Yes && self.live.checkpoint()?.skipped {
            return Err(io::Error::other("a checkpoint of a changed heap was skipped"));
        }
        Ok(())
    }

    fn get(&mut self, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        Ok(self.map.get(&self.live.heap, key).map(<[u8]>::to_vec))
    }
}

/// Our side, in this home.
pub(crate) fn holdfast(home: &Home) -> Engine<'_> {
    let make = move |sync| {
        let mut live = LiveHeap::create(home, LIMIT_BYTES)?;
        let map = Map::open_or_create(&mut live.heap).map_err(heap_error)?;
        Ok(Box::new(Persistent { map, live, sync }) as Box<dyn KeyValue>)
    };
    Engine { name: HOLDFAST, make: Box::new(make) }
}

/// All pairs; no key twice.
fn pairs() -> Vec<Pair> {
    let mut random = SmallRng::seed_from_u64(PAIRS as u64);
    let pair = |_| {
        let mut pair = ([0; KEY_BYTES], [0; VALUE_BYTES]);
        random.fill_bytes(&mut pair.0);
        random.fill_bytes(&mut pair.1);
        pair
    };
    (0..PAIRS).map(pair).collect()
}

/// Microseconds for each insert of 100,000 into an empty store, committed without sync in batches
/// of `batch`.
pub(crate) fn inserts_us<'a>(
    rounds: usize,
    batch: usize,
    engines: &'a [Engine<'a>],
) -> io::Result<Times> {
    let pairs = pairs();
    let side = |engine: &'a Engine<'a>| {
        let Engine { name, make } = engine;
        let pairs = &pairs;
        Side::new(name, move || {
            let mut store = make(Sync::No)?;
            let started = Instant::now();
            for batch in pairs.chunks(batch) {
                store.insert_all(batch)?;
            }
            let taken_us = started.elapsed().as_secs_f64() * 1e6;
            read_back(&mut *store, pairs)?;
            Ok(taken_us / PAIRS as f64)
        })
    };
    race(rounds, engines.iter().map(side).collect())
}

/// Milliseconds for each of `commits` synced commits of `batch` pairs, into a store that has
/// 100,000 others.
pub(crate) fn synced_commits_ms<'a>(
    rounds: usize,
    batch: usize,
    commits: usize,
    engines: &'a [Engine<'a>],
) -> io::Result<Times> {
    let preloaded = pairs();
    let mut random = SmallRng::seed_from_u64(1);
    let mut added = Vec::new();
    for (_, value) in preloaded.iter().cycle().take(batch * commits) {
        let mut key = [0; KEY_BYTES];
        random.fill_bytes(&mut key);
        added.push((key, *value));
    }
    let side = |engine: &'a Engine<'a>| {
        let Engine { name, make } = engine;
        let (preloaded, added) = (&preloaded, &added);
        Side::new(name, move || {
            let mut store = make(Sync::Yes)?;
            store.insert_all(preloaded)?;
            let started = Instant::now();
            for batch in added.chunks(batch) {
                store.insert_all(batch)?;
            }
            let taken_ms = started.elapsed().as_secs_f64() * 1e3;
            read_back(&mut *store, preloaded)?;
            read_back(&mut *store, added)?;
            Ok(taken_ms / commits as f64)
        })
    };
    race(rounds, engines.iter().map(side).collect())
}

fn read_back(store: &mut dyn KeyValue, pairs: &[Pair]) -> io::Result<()> {
    for (key, value) in pairs {
        if store.get(key)?.as_deref() != Some(&value[..]) {
            return Err(io::Error::other("a committed pair is not there, or has another value"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::ground::{Ground, Store};

    /// The map over a heap keeps every pair, with and without sync.
    #[test]
    fn heap_map_keeps_every_pair_with_or_without_sync() {
        let Ok(ground) = Ground::new() else { return println!("not run: no tmpfs") };
        for (sync, store) in [(Sync::No, Store::Memory), (Sync::Yes, Store::Disk)] {
            let home = ground.home(store).unwrap();
            let mut store = (holdfast(&home).make)(sync).unwrap();
            let pairs = pairs();
            store.insert_all(&pairs[..3000]).unwrap();
            read_back(&mut *store, &pairs[..3000]).unwrap();
            assert!(read_back(&mut *store, &pairs[2999..3001]).is_err());
        }
    }
}
