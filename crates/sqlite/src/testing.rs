//! What the tests inside this library share: small databases, and pools that commit to them without an SQLite.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Acquire;

use holdfast_region::Places;

use crate::attach::{Identity, attach_at, read_mark};
use crate::base::{Base, OwnFile};
use crate::databases::Databases;
use crate::error::Result;
use crate::layout::BLOCK_BYTES;
use crate::pool::Pool;
use crate::recovery::{Lost, Source};

/// A block that is not the first of its database.
pub(crate) fn page(fill: u8) -> Vec<u8> {
    vec![fill; BLOCK_BYTES]
}

/// The first block of a database of pages of 4 KiB.
pub(crate) fn first_page() -> Vec<u8> {
    let mut page = page(0);
    page[..20].copy_from_slice(b"SQLite format 3\0\x10\0\x01\x01");
    page
}

/// A database of so many blocks, all but the first of ones.
pub(crate) fn make_database(folder: &Path, blocks: usize) -> PathBuf {
    let database = folder.join("db");
    std::fs::write(&database, [first_page(), vec![1; BLOCK_BYTES * (blocks - 1)]].concat()).unwrap();
    database
}

/// Where the pool of the tests in a folder is.
pub(crate) fn places(folder: &Path) -> Places {
    Places::at(folder.join("home"), folder.join("pool")).unwrap()
}

/// The pool of the database in a folder.
pub(crate) fn attached(folder: &Path) -> Pool {
    let base = OwnFile::open(&folder.join("db")).unwrap();
    attached_over(folder, Box::new(base))
}

/// The same over a file that is not quite that one.
pub(crate) fn attached_over(folder: &Path, base: Box<dyn Base>) -> Pool {
    let database = folder.join("db");
    attach_at(&places(folder), (&database, Identity::of(&database).unwrap()), base, None).unwrap()
}

/// A database of so many blocks, hot.
pub(crate) fn hot(folder: &Path, blocks: usize) -> Pool {
    make_database(folder, blocks);
    let pool = attached(folder);
    assert!(pool.heat(pool.base()).unwrap());
    pool
}

/// A version of a block beside the one that counts, as a writer has it before it commits.
pub(crate) fn put(pool: &Pool, block: u32, page: &[u8]) -> u32 {
    let transaction = pool.image.header().committed.load(Acquire) + 1;
    let link = pool.image.take_free().unwrap();
    pool.image.write(link, 0, page).unwrap();
    pool.image.insert(link, block, transaction).unwrap();
    link
}

/// Commits blocks, each of one byte, to a database that has so many then.
pub(crate) fn commit(pool: &Pool, blocks: &[(u32, u8)], size_blocks: usize) -> Result<()> {
    let links: Vec<u32> = blocks.iter().map(|(block, fill)| put(pool, *block, &page(*fill))).collect();
    pool.commit(&links, (size_blocks * BLOCK_BYTES) as u64)
}

/// As if the machine had gone with the pool.
pub(crate) fn lose(pool: Pool) {
    let image = pool.image.path().to_owned();
    drop(pool);
    std::fs::remove_file(image).unwrap();
}

/// Recovers the database in a folder whose pool is lost, and reads it.
pub(crate) fn recovered(folder: &Path) -> (Source, Vec<u8>) {
    let database = folder.join("db");
    let base = OwnFile::open(&database).unwrap();
    let mark = read_mark(&base).unwrap().0.unwrap();
    let copies = Databases::of(&places(folder)).copies();
    let identity = Identity::of(&database).unwrap();
    let source =
        Lost { base: &base, database: &database, identity, mark, copies: &copies }.recover_locked().unwrap();
    (source, std::fs::read(&database).unwrap())
}
