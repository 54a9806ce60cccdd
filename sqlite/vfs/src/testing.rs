//! The kit of the tests inside this library: small databases, pools that commit to them without an
//! SQLite, and disks that fail.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use holdfast_region::Places;

use crate::attach::attach_at;
use crate::base::read_mark;
use crate::base::{Base, OwnFile};
use crate::databases::Databases;
use crate::error::{Result, SqliteError};
use crate::ffi;
use crate::identity::Identity;
use crate::image::BLOCK_BYTES;
use crate::mark;
use crate::pool::Pool;
use crate::recovery::{Lost, Source};

type Action = Box<dyn FnOnce()>;

thread_local! {
    static AFTER_RECORD: RefCell<Option<Action>> = const { RefCell::new(None) };
}

/// What another program does when this thread has written its next record, and has not looked at
/// the names again.
pub(crate) fn when_recorded(action: impl FnOnce() + 'static) {
    AFTER_RECORD.set(Some(Box::new(action)));
}

/// A record is written.
pub(crate) fn after_record() {
    if let Some(action) = AFTER_RECORD.take() {
        action();
    }
}

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
    std::fs::write(&database, [first_page(), vec![1; BLOCK_BYTES * (blocks - 1)]].concat())
        .unwrap();
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
    let transaction = pool.image.commits().newest() + 1;
    let link = pool.image.take_free().unwrap();
    pool.image.write(link, 0, page).unwrap();
    pool.image.insert(link, block, transaction).unwrap();
    link
}

/// Commits blocks, each of one byte, to a database that has so many then.
pub(crate) fn commit(pool: &Pool, blocks: &[(u32, u8)], size_blocks: usize) -> Result<()> {
    let links: Vec<u32> =
        blocks.iter().map(|(block, fill)| put(pool, *block, &page(*fill))).collect();
    pool.commit(&links, (size_blocks * BLOCK_BYTES) as u64).map(drop)
}

/// Commits a block, and makes room for it as a connection does; how many are to be flushed for it.
pub(crate) fn commit_counted(pool: &Pool, block: u32, size_blocks: usize) -> u32 {
    let link = loop {
        match pool.image.take_free() {
            Ok(link) => break link,
            Err(_) => assert!(pool.clean_some().unwrap() > 0),
        }
    };
    let transaction = pool.image.commits().newest() + 1;
    pool.image.write(link, 0, &page(block as u8)).unwrap();
    pool.image.insert(link, block, transaction).unwrap();
    pool.commit(&[link], (size_blocks * BLOCK_BYTES) as u64).unwrap()
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
    let source = Lost { base: &base, database: &database, identity, mark, copies: &copies }
        .recover_locked()
        .unwrap();
    (source, std::fs::read(&database).unwrap())
}

/// The steps that a file takes.
#[derive(Debug)]
pub(crate) struct Steps {
    /// Until one fails.
    pub(crate) left: AtomicUsize,
    /// How many fail then; with all of them it is as if the process had died.
    pub(crate) failing: AtomicUsize,
    /// Only those that wait for the disk count, and fail.
    pub(crate) only_syncs: AtomicBool,
    /// So many reads are done, and the next one fails.
    pub(crate) reads: AtomicUsize,
    /// What another program has written to the file when a sync fails.
    pub(crate) others: Mutex<Option<Vec<u8>>>,
    /// Something was written since the last sync.
    is_dirty: AtomicBool,
    /// The file as the disk has it.
    pub(crate) durable: Mutex<Vec<u8>>,
}

impl Steps {
    pub(crate) fn endless() -> Arc<Steps> {
        let steps = Steps {
            left: AtomicUsize::new(usize::MAX),
            failing: AtomicUsize::new(0),
            only_syncs: AtomicBool::new(false),
            reads: AtomicUsize::new(usize::MAX),
            others: Mutex::new(None),
            is_dirty: AtomicBool::new(false),
            durable: Mutex::new(Vec::new()),
        };
        Arc::new(steps)
    }

    pub(crate) fn set(&self, left: usize, failing: usize) {
        self.left.store(left, SeqCst);
        self.failing.store(failing, SeqCst);
    }

    fn fails(&self) -> bool {
        let one_less = |count: usize| count.checked_sub(1);
        self.left.fetch_update(SeqCst, SeqCst, one_less).is_err()
            && self.failing.fetch_update(SeqCst, SeqCst, one_less).is_ok()
    }
}

/// A database file that takes them.
#[derive(Debug)]
pub(crate) struct Dying(pub(crate) OwnFile, pub(crate) Arc<Steps>);

impl Dying {
    fn step(&self) -> Result<()> {
        match self.1.fails() {
            true => Err(SqliteError::Base { step: "survive", path: "db".into(), code: ffi::IOERR }),
            false => Ok(()),
        }
    }

    fn change(&self) -> Result<()> {
        if !self.1.only_syncs.load(SeqCst) {
            self.step()?;
        }
        self.1.is_dirty.store(true, SeqCst);
        Ok(())
    }
}

impl Base for Dying {
    fn read(&self, offset: u64, target: &mut [u8]) -> Result<bool> {
        match self.1.reads.fetch_sub(1, SeqCst) {
            0 => Err(SqliteError::Busy { path: "db".into() }),
            _ => self.0.read(offset, target),
        }
    }
    fn write(&self, offset: u64, source: &[u8]) -> Result<()> {
        self.change()?;
        self.0.write(offset, source)
    }
    fn size(&self) -> Result<u64> {
        self.0.size()
    }
    fn truncate(&self, size: u64) -> Result<()> {
        self.change()?;
        self.0.truncate(size)
    }
    fn sync(&self) -> Result<()> {
        let stepped = self.step();
        let mut found = vec![0; self.0.size()? as usize];
        self.0.read(0, &mut found)?;
        // Of one that failed the worst has got through, and the kernel does not write it again.
        if self.1.is_dirty.swap(false, SeqCst) && (stepped.is_ok() || mark::find(&found).is_none())
        {
            *self.1.durable.lock().unwrap() = found;
        }
        let others = self.1.others.lock().unwrap().take_if(|_| stepped.is_err());
        others.map_or(Ok(()), |others| self.0.write(0, &others))?;
        stepped?;
        self.0.sync()
    }
    fn lock_exclusive(&self) -> Result<()> {
        self.0.lock_exclusive()
    }
    fn unlock(&self) -> Result<()> {
        self.0.unlock()
    }
    fn is_being_written(&self) -> Result<bool> {
        self.0.is_being_written()
    }
}

/// What was written: where, and how many bytes.
pub(crate) type Writes = Arc<Mutex<Vec<(u64, usize)>>>;

/// A database file on a slow disk, and what was written to it.
#[derive(Debug)]
pub(crate) struct Slow {
    inner: OwnFile,
    /// What a block takes, and a sync besides.
    block: Duration,
    sync: Duration,
    pub(crate) writes: Writes,
}

impl Slow {
    pub(crate) fn new(database: &Path, block: Duration, sync: Duration) -> Slow {
        Slow { inner: OwnFile::open(database).unwrap(), block, sync, writes: Arc::default() }
    }
}

impl Base for Slow {
    fn read(&self, offset: u64, target: &mut [u8]) -> Result<bool> {
        self.inner.read(offset, target)
    }
    fn write(&self, offset: u64, source: &[u8]) -> Result<()> {
        std::thread::sleep(self.block * source.len().div_ceil(BLOCK_BYTES) as u32);
        self.writes.lock().unwrap().push((offset, source.len()));
        self.inner.write(offset, source)
    }
    fn size(&self) -> Result<u64> {
        self.inner.size()
    }
    fn truncate(&self, size: u64) -> Result<()> {
        self.inner.truncate(size)
    }
    fn sync(&self) -> Result<()> {
        std::thread::sleep(self.sync);
        self.inner.sync()
    }
    fn lock_exclusive(&self) -> Result<()> {
        self.inner.lock_exclusive()
    }
    fn unlock(&self) -> Result<()> {
        self.inner.unlock()
    }
    fn is_being_written(&self) -> Result<bool> {
        self.inner.is_being_written()
    }
}

/// A database of so many blocks on such a disk, hot, in a pool of so many.
pub(crate) fn hot_on_slow(
    folder: &Path,
    (blocks, limit): (usize, u32),
    (block, sync): (Duration, Duration),
) -> (Arc<Pool>, Writes) {
    let slow = Slow::new(&make_database(folder, blocks), block, sync);
    let writes = Arc::clone(&slow.writes);
    let pool = attached_over(folder, Box::new(slow));
    pool.image.set_limit(limit);
    assert!(pool.heat(pool.base()).unwrap());
    writes.lock().unwrap().clear();
    (Arc::new(pool), writes)
}
