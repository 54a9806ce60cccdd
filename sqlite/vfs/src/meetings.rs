//! Tests of saved copies, images, logs and releases together: what one of them leaves must be right
//! for all others.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use holdfast_region::Places;
use holdfast_sys::lock::{LockMode, try_lock};

use crate::attach::attach_at;
use crate::base::OwnFile;
use crate::copy;
use crate::databases::{Database, Databases};
use crate::identity::Identity;
use crate::image::BLOCK_BYTES;
use crate::log::{Log, log_path};
use crate::recovery::Source;
use crate::saving::Rescue;
use crate::testing::{commit, hot, lose, make_database, places, recovered};

fn fresh() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap()
}

/// All databases of the pool in a folder, and the only one of them.
fn listed(folder: &tempfile::TempDir) -> (Databases, Database) {
    let databases = Databases::of(&places(folder.path()));
    let found = databases.list().unwrap().remove(0);
    (databases, found)
}

fn save(folder: &tempfile::TempDir) -> Rescue {
    let (databases, found) = listed(folder);
    databases.save(&found).unwrap()
}

/// Does something that may wait for ever in a thread of its own; what came of it, or `None`.
fn in_time<T: Send + 'static>(something: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (tell, hear) = channel();
    std::thread::spawn(move || {
        let _ = tell.send(something());
    });
    hear.recv_timeout(Duration::from_secs(20)).ok()
}

/// An image of an earlier boot that another process looks at is waited for.
///
/// Guarantee: sqlite/saved-copies
#[test]
fn old_boots_image_under_inspection_is_waited_for() {
    let folder = fresh();
    let database = make_database(folder.path(), 2);
    let at = |name: &str| folder.path().join(name);
    let [_, inode, born] = Identity::of(&database).unwrap().words();
    let open = |boot: u8, device| {
        let places = Places::at_emulated_dax(at("home"), at("pool"), [boot; 16]).unwrap();
        let base = Box::new(OwnFile::open(&database).unwrap());
        attach_at(&places, (&database, Identity::new([device, inode, born])), base, None)
    };
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
    let mut found = [0; BLOCK_BYTES];
    pool.image.read(link, 0, &mut found).unwrap();
    assert_eq!(found[0], 77);
}

/// A commit that finds its log damaged does not wait for itself.
///
/// Guarantee: sqlite/level-power
#[test]
fn commit_with_damaged_log_does_not_wait_for_itself() {
    let folder = fresh();
    let pool = Arc::new(hot(folder.path(), 3));
    pool.settings.set("level", "power").unwrap();
    commit(&pool, &[(1, 2)], 3).unwrap();
    // The record is damaged, and a process died with the log's lock, or a flush failed.
    let log = File::options().write(true).open(pool.log_path()).unwrap();
    log.write_all_at(&[0xee; 16], BLOCK_BYTES as u64 + 600).unwrap();
    pool.image.log_position().note_failed_record();
    let committed = in_time(move || commit(&pool, &[(2, 3)], 3).is_ok());
    assert_eq!(committed, Some(true), "the commit waits for itself");
}

/// The record of a commit that was taken back is gone before its number is used again.
///
/// Guarantee: sqlite/level-power
#[test]
fn withdrawn_commits_record_is_gone_before_reuse() {
    let folder = fresh();
    let pool = hot(folder.path(), 3);
    let (commits, position) = (pool.image.commits(), pool.image.log_position());
    // A commit of blocks 1 and 2 at level `power` whose fdatasync fails: what it wrote is there all
    // the same.
    let (last, flushed) = (commits.newest(), commits.flushed());
    let (tail, records, reached) = (position.tail(), position.records(), position.base());
    pool.settings.set("level", "power").unwrap();
    commit(&pool, &[(1, 66), (2, 66)], 3).unwrap();
    // As the commit, the record and the rollback leave it.
    position.note_record(tail, 0, records, reached);
    commits.note_flushed(flushed);
    position.note_void_record();
    commits.retract_to(last);
    for block in [1, 2] {
        let link = pool.image.find(block).unwrap();
        pool.image.remove(link).unwrap();
    }
    pool.settings.set("level", "process").unwrap();
    commit(&pool, &[(1, 10)], 3).unwrap();
    commit(&pool, &[(1, 11)], 3).unwrap();
    assert!(matches!(save(&folder), Rescue::Written { .. }));
    lose(pool);
    let (source, bytes) = recovered(folder.path());
    let firsts = (bytes[BLOCK_BYTES], bytes[2 * BLOCK_BYTES]);
    assert_eq!(
        (source, firsts),
        (Source::Copy, (11, 1)),
        "a mixture with a transaction that was rolled back"
    );
}

/// Guarantee: sqlite/saved-copies
#[test]
fn a_pipe_where_a_database_was_holds_nobody_up() {
    let folder = fresh();
    let pool = hot(folder.path(), 3);
    commit(&pool, &[(1, 2)], 3).unwrap();
    save(&folder);
    let (databases, database) = (listed(&folder).0, pool.database.clone());
    lose(pool);
    std::fs::remove_file(&database).unwrap();
    assert!(Command::new("mkfifo").arg(&database).status().unwrap().success());
    let tidied = in_time(move || databases.tidy(&databases.list().unwrap()).is_ok());
    assert!(tidied.is_some(), "the keeper waits for ever");
}

/// A database that is at work in another pool is not recovered from under it.
///
/// Guarantee: sqlite/other-homes
#[test]
fn database_at_work_elsewhere_is_not_recovered() {
    let folder = fresh();
    let pool = hot(folder.path(), 3);
    commit(&pool, &[(1, 42)], 3).unwrap();
    let other =
        Places::at(folder.path().join("other home"), folder.path().join("other pool")).unwrap();
    let base = Box::new(OwnFile::open(&pool.database).unwrap());
    let identity = Identity::of(&pool.database).unwrap();
    let attached = attach_at(&other, (&pool.database, identity), base, None);
    assert!(attached.is_err(), "the file of a live database was recovered from under it");
}

#[test]
fn a_look_at_a_log_keeps_nobody_from_recovering_by_it() {
    let folder = fresh();
    let pool = hot(folder.path(), 3);
    commit(&pool, &[(1, 2)], 3).unwrap();
    pool.flush_and_tidy().unwrap();
    let looked = Log::look(&pool.log_path()).unwrap();
    lose(pool);
    let (source, bytes) = recovered(folder.path());
    assert_eq!((source, bytes[BLOCK_BYTES]), (Source::Log, 2));
    drop(looked);
}

/// A copy of before a release that comes after it is removed.
///
/// Guarantee: sqlite/saved-copies
#[test]
fn copy_from_before_a_release_is_removed() {
    let folder = fresh();
    let pool = hot(folder.path(), 3);
    commit(&pool, &[(1, 2)], 3).unwrap();
    save(&folder);
    let (databases, _) = listed(&folder);
    let path = copy::path_of(&databases.copies(), pool.image.mode().nonce());
    let bytes = std::fs::read(&path).unwrap();
    pool.hand_over(false).unwrap();
    assert!(!path.exists());
    std::fs::write(&path, &bytes).unwrap();
    databases.tidy(&databases.list().unwrap()).unwrap();
    assert!(!path.exists(), "it stays beside a cold image");
    std::fs::write(&path, &bytes).unwrap();
    pool.heat(pool.base()).unwrap();
    databases.tidy(&databases.list().unwrap()).unwrap();
    assert!(!path.exists());
}

/// Guarantee: sqlite/level-power
#[test]
fn nothing_is_dirty_after_a_commit_at_level_power() {
    let folder = fresh();
    let pool = hot(folder.path(), 3);
    pool.settings.set("level", "power").unwrap();
    commit(&pool, &[(1, 2), (2, 2)], 3).unwrap();
    assert_eq!(pool.image.commits().dirty(), 0);
}

/// A size only, and a shrink followed by growth, recovered from the log.
///
/// Guarantee: sqlite/level-power
#[test]
fn power_commits_of_size_only_are_recovered() {
    let folder = fresh();
    let pool = hot(folder.path(), 4);
    commit(&pool, &[(2, 9)], 4).unwrap();
    pool.settings.set("level", "power").unwrap();
    commit(&pool, &[(1, 5)], 4).unwrap();
    commit(&pool, &[], 3).unwrap();
    commit(&pool, &[(3, 8)], 4).unwrap();
    commit(&pool, &[], 3).unwrap();
    assert!(pool.image.commits().is_flushed());
    lose(pool);
    let (source, bytes) = recovered(folder.path());
    let found = (bytes.len(), bytes[BLOCK_BYTES], bytes[2 * BLOCK_BYTES]);
    assert_eq!((source, found), (Source::Log, (3 * BLOCK_BYTES, 5, 9)));
}

/// While no flush gets through, which would write another log.
///
/// Guarantee: sqlite/saved-copies
#[test]
fn useless_copy_is_not_called_saved() {
    let folder = fresh();
    let pool = hot(folder.path(), 3);
    commit(&pool, &[(1, 2)], 3).unwrap();
    pool.flush_and_tidy().unwrap();
    commit(&pool, &[(2, 2)], 3).unwrap();
    assert!(matches!(save(&folder), Rescue::Written { .. }));
    std::fs::remove_file(log_path(&pool.database)).unwrap();
    // As the next flush does, before a disk that is full stops it.
    let applied = pool.image.commits().forget_flushed();
    pool.image.log_position().fall_back_to(applied);
    assert!(listed(&folder).1.unsaved_bytes > 0);
}
