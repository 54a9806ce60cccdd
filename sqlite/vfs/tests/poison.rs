//! A damaged image is used no more, whichever call finds the damage.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;

use std::fs::File;
use std::os::unix::fs::FileExt;

use common::{number, open, scratch};

/// Where the buckets of an image begin, and where its header holds the number of its slots:
/// `docs/format.md`.
const BUCKETS_AT: u64 = 16_384;
const CAPACITY_AT: u64 = 12;

/// A write found a slot that led astray and only failed: the next call went on with the same image.
/// Reads always stopped using it.
///
/// Guarantee: sqlite/damage
#[test]
fn a_corrupt_slot_poisons_a_write_like_a_read() {
    for writes in [false, true] {
        let folder = scratch();
        let path = folder.path().join("db");
        let connection = open(&path, "threshold=infinity");
        connection.execute_batch("CREATE TABLE t (a); INSERT INTO t VALUES (1)").unwrap();
        let other = open(&path, "");
        // In this mode SQLite keeps its pages and locks: its next call of the VFS is the write.
        connection.execute_batch("PRAGMA locking_mode = EXCLUSIVE; UPDATE t SET a = 2").unwrap();
        let path_of_image = holdfast_sqlite::status(&path).unwrap().image.unwrap();
        let image = File::options().read(true).write(true).open(path_of_image).unwrap();
        let mut capacity = [0; 4];
        image.read_exact_at(&mut capacity, CAPACITY_AT).unwrap();
        let mut buckets = vec![0; u32::from_le_bytes(capacity) as usize * 4];
        image.read_exact_at(&mut buckets, BUCKETS_AT).unwrap();
        image.write_all_at(&vec![0xff; buckets.len()], BUCKETS_AT).unwrap();
        if !writes {
            connection.execute_batch("PRAGMA cache_size = 0; PRAGMA shrink_memory").unwrap();
        }
        let sql = if writes { "UPDATE t SET a = 3" } else { "SELECT a FROM t" };
        let found = connection.execute_batch(sql).unwrap_err();
        assert_eq!(
            found.sqlite_error_code(),
            Some(rusqlite::ErrorCode::SystemIoFailure),
            "{sql}: {found}"
        );
        // Also where the damage is gone again, and for each connection of the process.
        image.write_all_at(&buckets, BUCKETS_AT).unwrap();
        drop(connection);
        assert!(
            other.query_row("SELECT a FROM t", [], |_| Ok(())).is_err(),
            "{sql}: the image is used on"
        );
        drop(other);
        assert_eq!(number(&open(&path, ""), "SELECT a FROM t"), 2, "{sql}: a commit is lost");
    }
}
