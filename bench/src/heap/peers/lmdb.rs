//! LMDB. Configuration without sync: `MDB_NOSYNC` and a writable map, its fastest; with sync: its
//! default, which writes pages to the file and waits for the disk at every commit.

use std::io::{self, Error};
use std::path::Path;
use std::time::Instant;

use heed::types::Bytes;
use heed::{Database, Env, EnvFlags, EnvOpenOptions};

use crate::heap::kv::{KeyValue, Pair, Sync};
use crate::heap::maps::pair;
use crate::pool::pages::{PAGE_BYTES, PAGES, Pages};

const MAP_BYTES: usize = 1 << 30;

/// An open environment with one table.
pub(crate) struct Lmdb {
    env: Env,
    table: Database<Bytes, Bytes>,
}

impl Lmdb {
    /// An empty one in an empty directory.
    pub(crate) fn new(directory: &Path, sync: Sync) -> io::Result<Lmdb> {
        let mut options = EnvOpenOptions::new();
        options.map_size(MAP_BYTES);
        if sync == Sync::No {
            // SAFETY: nothing needs the file after a crash of the machine, and nothing else writes
            // to the map.
            unsafe { options.flags(EnvFlags::NO_SYNC | EnvFlags::WRITE_MAP) };
        }
        // SAFETY: the directory is this program's own, so nothing else changes the file.
        let env = unsafe { options.open(directory) }.map_err(Error::other)?;
        let mut transaction = env.write_txn().map_err(Error::other)?;
        let table = env.create_database(&mut transaction, None).map_err(Error::other)?;
        transaction.commit().map_err(Error::other)?;
        Ok(Lmdb { env, table })
    }

    /// One that has every page.
    pub(crate) fn with_pages(directory: &Path, sync: Sync) -> io::Result<Lmdb> {
        let lmdb = Lmdb::new(directory, sync)?;
        let mut transaction = lmdb.env.write_txn().map_err(Error::other)?;
        for page in 0..PAGES {
            let content = &[1; PAGE_BYTES][..];
            lmdb.table.put(&mut transaction, &page.to_be_bytes(), content).map_err(Error::other)?;
        }
        transaction.commit().map_err(Error::other)?;
        Ok(lmdb)
    }
}

impl Lmdb {
    /// Inserts the pairs of the example maps, a transaction for each; returns nanoseconds for one.
    pub(crate) fn insert_pairs(&mut self, count: u64) -> io::Result<f64> {
        let started = Instant::now();
        for (key, value) in (0..count).map(pair) {
            let mut transaction = self.env.write_txn().map_err(Error::other)?;
            self.table
                .put(&mut transaction, &key.to_be_bytes(), &value.to_le_bytes())
                .map_err(Error::other)?;
            transaction.commit().map_err(Error::other)?;
        }
        let taken_ns = started.elapsed().as_secs_f64() * 1e9;
        for (key, value) in (0..count).map(pair) {
            if self.get(&key.to_be_bytes())?.as_deref() != Some(&value.to_le_bytes()) {
                return Err(Error::other("a pair is gone"));
            }
        }
        Ok(taken_ns / count as f64)
    }
}

impl Pages for Lmdb {
    fn replace(&mut self, page: usize, content: &[u8; PAGE_BYTES]) -> io::Result<()> {
        let mut transaction = self.env.write_txn().map_err(Error::other)?;
        self.table.put(&mut transaction, &page.to_be_bytes(), content).map_err(Error::other)?;
        transaction.commit().map_err(Error::other)
    }

    fn first_word(&mut self, page: usize) -> io::Result<u64> {
        let found = self.get(&page.to_be_bytes())?;
        let word = found.as_deref().and_then(<[u8]>::first_chunk);
        word.map(|word| u64::from_le_bytes(*word)).ok_or_else(|| Error::other("a page is gone"))
    }
}

impl KeyValue for Lmdb {
    fn insert_all(&mut self, pairs: &[Pair]) -> io::Result<()> {
        let mut transaction = self.env.write_txn().map_err(Error::other)?;
        for (key, value) in pairs {
            self.table.put(&mut transaction, key, value).map_err(Error::other)?;
        }
        transaction.commit().map_err(Error::other)
    }

    fn get(&mut self, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        let transaction = self.env.read_txn().map_err(Error::other)?;
        let found = self.table.get(&transaction, key).map_err(Error::other)?;
        Ok(found.map(<[u8]>::to_vec))
    }
}
