//! Where saved copies, images, logs and releases meet: what one of them leaves must be right for all others.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::mpsc::channel;
use std::time::Duration;

use holdfast_region::Places;
use holdfast_sys::lock::{LockMode, try_lock};

use crate::attach::{Identity, attach_at, read_mark};
use crate::base::OwnFile;
use crate::copy;
use crate::databases::Databases;
use crate::flush::{FAILED, VOID};
use crate::log::log_path;
use crate::pool::Pool;
use crate::recovery::Lost;
use crate::saving::Rescue;

fn page(fill: u8) -> Vec<u8> {
    vec![fill; 4096]
}
fn first_page() -> Vec<u8> {
    let mut p = page(0);
    p[..20].copy_from_slice(b"SQLite format 3\0\x10\0\x01\x01");
    p
}
fn commit(pool: &Pool, blocks: &[(u32, u8)], size: usize) -> crate::error::Result<()> {
    let t = pool.image.header().committed.load(Acquire) + 1;
    let links: Vec<u32> = blocks
        .iter()
        .map(|(b, f)| {
            let l = pool.image.take_free().unwrap();
            pool.image.write(l, 0, &page(*f)).unwrap();
            pool.image.insert(l, *b, t).unwrap();
            l
        })
        .collect();
    pool.commit(&links, (size * 4096) as u64)
}
fn places(folder: &Path) -> Places {
    Places::at(folder.join("home"), folder.join("pool")).unwrap()
}
fn attached(folder: &Path, places: &Places) -> Pool {
    let db = folder.join("db");
    let id = Identity::of(&db).unwrap();
    attach_at(places, (&db, id), Box::new(OwnFile::open(&db).unwrap()), None).unwrap()
}
fn make(folder: &Path, blocks: usize) -> PathBuf {
    let db = folder.join("db");
    std::fs::write(&db, [first_page(), vec![1; 4096 * (blocks - 1)]].concat()).unwrap();
    db
}
fn fresh() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap()
}

#[test]
fn an_image_of_an_earlier_boot_that_somebody_looks_at_is_waited_for() {
    let folder = fresh();
    let db = folder.path().join("db");
    std::fs::write(&db, [first_page(), page(1)].concat()).unwrap();
    let at = |n: &str| folder.path().join(n);
    let places = |boot: u8| Places::at_emulated_dax(at("home"), at("pool"), [boot; 16]).unwrap();
    let [_, ino, born] = Identity::of(&db).unwrap().0;
    let id = |dev| Identity([dev, ino, born]);
    let open =
        |boot, dev| attach_at(&places(boot), (&db, id(dev)), Box::new(OwnFile::open(&db).unwrap()), None);
    let pool = open(1, 0xfe00).unwrap();
    pool.heat(pool.base()).unwrap();
    commit(&pool, &[(1, 77)], 2).unwrap();
    let old = pool.image.path().to_owned();
    drop(pool);
    // The keeper's `evict`, or anybody who looks, for a moment.
    let file = File::options().read(true).write(true).open(&old).unwrap();
    assert!(try_lock(&file, LockMode::Exclusive).unwrap());
    let looks = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        drop(file);
    });
    let pool = open(2, 0xfe10).unwrap();
    looks.join().unwrap();
    assert!(pool.is_hot(), "the commit is lost");
    let link = pool.image.find(1).unwrap();
    let mut found = [0; 4096];
    pool.image.read(link, 0, &mut found).unwrap();
    assert_eq!(found[0], 77);
}

#[test]
fn a_commit_that_finds_its_log_damaged_does_not_wait_for_itself() {
    let folder = fresh();
    let db = make(folder.path(), 3);
    let p = places(folder.path());
    let pool = Arc::new(attached(folder.path(), &p));
    pool.heat(pool.base()).unwrap();
    pool.settings.set("level", "power").unwrap();
    commit(&pool, &[(1, 2)], 3).unwrap();
    // The record is damaged, and somebody died with the log's lock, or a flush failed.
    use std::os::unix::fs::FileExt;
    let log = File::options().write(true).open(log_path(&db)).unwrap();
    log.write_all_at(&[0xee; 16], 4096 + 600).unwrap();
    pool.image.header().log_suspect.store(FAILED, Release);
    let (tell, hear) = channel();
    let other = Arc::clone(&pool);
    std::thread::spawn(move || {
        let r = commit(&other, &[(2, 3)], 3);
        let _ = tell.send(r.is_ok());
    });
    let came = hear.recv_timeout(Duration::from_secs(10));
    assert_eq!(came, Ok(true), "the commit waits for itself");
}

#[test]
fn the_record_of_a_commit_that_was_taken_back_is_gone_before_its_number_is_used_again() {
    let folder = fresh();
    let db = make(folder.path(), 3);
    let p = places(folder.path());
    let pool = attached(folder.path(), &p);
    pool.heat(pool.base()).unwrap();
    let h = pool.image.header();
    // A power commit of blocks 1 and 2 whose fdatasync fails: what it wrote is there all the same.
    let last = h.committed.load(Acquire);
    let (tail, seq, reached, flushed) = (
        h.log_tail.load(Acquire),
        h.log_sequence.load(Acquire),
        h.log_reached.load(Acquire),
        h.flushed.load(Acquire),
    );
    pool.settings.set("level", "power").unwrap();
    {
        commit(&pool, &[(1, 66), (2, 66)], 3).unwrap();
        // as `commit` does on Err, and `finish_record`, and `roll_back`
        h.log_tail.store(tail, Release);
        h.log_sequence.store(seq, Release);
        h.log_reached.store(reached, Release);
        h.flushed.store(flushed, Release);
        h.log_suspect.store(VOID, Release);
        h.committed.store(last, Release);
        for b in [1, 2] {
            let l = pool.image.find(b).unwrap();
            pool.image.remove(l).unwrap();
        }
    }
    pool.settings.set("level", "process").unwrap();
    commit(&pool, &[(1, 10)], 3).unwrap();
    commit(&pool, &[(1, 11)], 3).unwrap();
    let dbs = Databases::of(&p);
    let found = dbs.list().unwrap().remove(0);
    assert!(matches!(dbs.save(&found).unwrap(), Rescue::Written { .. }));
    let image = pool.image.path().to_owned();
    drop(pool);
    std::fs::remove_file(image).unwrap();
    let base = OwnFile::open(&db).unwrap();
    let mark = read_mark(&base).unwrap().0.unwrap();
    let copies = dbs.copies();
    Lost { base: &base, database: &db, identity: Identity::of(&db).unwrap(), mark, copies: &copies }
        .recover_locked()
        .unwrap();
    let b = std::fs::read(&db).unwrap();
    assert_eq!(
        (b[4096], b[8192]),
        (11, 1),
        "a mixture of a transaction that was rolled back and of later ones"
    );
}

#[test]
fn a_pipe_where_a_database_was_holds_nobody_up() {
    let folder = fresh();
    let db = make(folder.path(), 3);
    let p = places(folder.path());
    let pool = attached(folder.path(), &p);
    pool.heat(pool.base()).unwrap();
    commit(&pool, &[(1, 2)], 3).unwrap();
    let dbs = Databases::of(&p);
    let found = dbs.list().unwrap().remove(0);
    dbs.save(&found).unwrap();
    let image = pool.image.path().to_owned();
    drop(pool);
    std::fs::remove_file(image).unwrap();
    std::fs::remove_file(&db).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&db).status().unwrap().success());
    let (tell, hear) = channel();
    std::thread::spawn(move || {
        let r = dbs.tidy(&dbs.list().unwrap());
        let _ = tell.send(r.is_ok());
    });
    assert!(hear.recv_timeout(Duration::from_secs(5)).is_ok(), "the keeper waits for ever");
}

#[test]
fn a_database_that_is_at_work_in_another_pool_is_not_recovered_from_under_it() {
    let folder = fresh();
    let db = make(folder.path(), 3);
    let a = attached(folder.path(), &places(folder.path()));
    a.heat(a.base()).unwrap();
    commit(&a, &[(1, 42)], 3).unwrap();
    let other = Places::at(folder.path().join("home2"), folder.path().join("pool2")).unwrap();
    let id = Identity::of(&db).unwrap();
    let b = attach_at(&other, (&db, id), Box::new(OwnFile::open(&db).unwrap()), None);
    assert!(b.is_err(), "the file of a live database was recovered from under it");
}

#[test]
fn a_copy_of_before_a_release_that_comes_after_it_is_removed() {
    let folder = fresh();
    make(folder.path(), 3);
    let p = places(folder.path());
    let pool = attached(folder.path(), &p);
    pool.heat(pool.base()).unwrap();
    commit(&pool, &[(1, 2)], 3).unwrap();
    let dbs = Databases::of(&p);
    dbs.save(&dbs.list().unwrap()[0]).unwrap();
    let path = copy::path_of(&dbs.copies(), pool.image.header().nonce.load(Acquire));
    let bytes = std::fs::read(&path).unwrap();
    pool.hand_over().unwrap();
    assert!(!path.exists());
    std::fs::write(&path, &bytes).unwrap();
    dbs.tidy(&dbs.list().unwrap()).unwrap();
    assert!(!path.exists(), "it stays beside a cold image");
    std::fs::write(&path, &bytes).unwrap();
    pool.heat(pool.base()).unwrap();
    dbs.tidy(&dbs.list().unwrap()).unwrap();
    assert!(!path.exists());
}

#[test]
fn nothing_is_dirty_after_a_commit_at_level_power() {
    let folder = fresh();
    make(folder.path(), 3);
    let pool = attached(folder.path(), &places(folder.path()));
    pool.heat(pool.base()).unwrap();
    pool.settings.set("level", "power").unwrap();
    commit(&pool, &[(1, 2), (2, 2)], 3).unwrap();
    let h = pool.image.header();
    assert_eq!(h.dirty.load(Acquire), 0);
}

/// A size only, and a shrink followed by growth, at level power, recovered from the log.
#[test]
fn commits_at_level_power_that_change_the_size_only_are_recovered() {
    let folder = fresh();
    let db = make(folder.path(), 4);
    let p = places(folder.path());
    let pool = attached(folder.path(), &p);
    pool.heat(pool.base()).unwrap();
    commit(&pool, &[(2, 9)], 4).unwrap();
    pool.settings.set("level", "power").unwrap();
    commit(&pool, &[(1, 5)], 4).unwrap();
    commit(&pool, &[], 3).unwrap();
    commit(&pool, &[(3, 8)], 4).unwrap();
    commit(&pool, &[], 3).unwrap();
    let h = pool.image.header();
    assert_eq!(h.committed.load(Acquire), h.flushed.load(Acquire));
    let image = pool.image.path().to_owned();
    drop(pool);
    std::fs::remove_file(image).unwrap();
    let base = OwnFile::open(&db).unwrap();
    let mark = read_mark(&base).unwrap().0.unwrap();
    Lost {
        base: &base,
        database: &db,
        identity: Identity::of(&db).unwrap(),
        mark,
        copies: Path::new("/nonexistent"),
    }
    .recover_locked()
    .unwrap();
    let b = std::fs::read(&db).unwrap();
    assert_eq!((b.len(), b[4096], b[8192]), (3 * 4096, 5, 9));
}

/// A saved copy whose log was lost while no flush got through: is it still called saved?
#[test]
fn a_copy_that_a_lost_log_made_useless_is_not_called_saved() {
    let folder = fresh();
    let db = make(folder.path(), 3);
    let p = places(folder.path());
    let pool = attached(folder.path(), &p);
    pool.heat(pool.base()).unwrap();
    commit(&pool, &[(1, 2)], 3).unwrap();
    pool.flush_and_tidy().unwrap();
    commit(&pool, &[(2, 2)], 3).unwrap();
    let dbs = Databases::of(&p);
    assert!(matches!(dbs.save(&dbs.list().unwrap()[0]).unwrap(), Rescue::Written { .. }));
    std::fs::remove_file(log_path(&db)).unwrap();
    // As prepare_log does, before a disk that is full keeps the flush from going through.
    let h = pool.image.header();
    h.flushed.store(h.applied.load(Acquire), Release);
    h.log_reached.store(h.applied.load(Acquire), Release);
    let found = &dbs.list().unwrap()[0];
    assert!(found.unsaved_bytes > 0);
}
