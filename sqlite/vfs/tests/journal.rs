//! The rollback journal of a transaction that outgrew the pool, and the file that it is of: in
//! which order they are durable, how long the file is, and what the journal lies beside.

#![allow(unsafe_code, reason = "replaces functions of SQLite's unix VFS, and asks its files")]
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use common::{assert_sound, number, open, open_plain, scratch};
use rusqlite::{Connection, ErrorCode, ffi};

const TABLE: &str = "CREATE TABLE t (a INTEGER PRIMARY KEY, b)";
/// Outgrows a pool of 1 MiB, with a small cache.
const FILL: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1500) \
                    INSERT INTO t (b) SELECT randomblob(3000) FROM n";
const ROWS: &str = "SELECT count(*) FROM t";

type Unlink = unsafe extern "C" fn(*const c_char) -> c_int;
type OpenFolder = unsafe extern "C" fn(*const c_char, *mut c_int) -> c_int;
type SyncFile = unsafe extern "C" fn(*mut ffi::sqlite3_file, c_int) -> c_int;
type SizeOfFile = unsafe extern "C" fn(*mut ffi::sqlite3_file, *mut ffi::sqlite3_int64) -> c_int;

static OPEN_FOLDER: OnceLock<OpenFolder> = OnceLock::new();
static SYNC_FILE: OnceLock<SyncFile> = OnceLock::new();
static SIZE_OF_FILE: OnceLock<SizeOfFile> = OnceLock::new();
/// Whether the disk tells no size.
static HIDES_SIZE: AtomicBool = AtomicBool::new(false);
/// What SQLite's unix VFS did, and to which file; a database that was synced is not named.
static STEPS: Mutex<Vec<(&str, PathBuf)>> = Mutex::new(Vec::new());

fn note(step: &'static str, path: *const c_char) {
    // SAFETY: SQLite's paths end with a zero.
    let path = unsafe { CStr::from_ptr(path) };
    let path = Path::new(OsStr::from_bytes(path.to_bytes())).to_owned();
    STEPS.lock().unwrap().push((step, path));
}

unsafe extern "C" fn unlink(path: *const c_char) -> c_int {
    note("removed", path);
    // SAFETY: as SQLite has called this.
    unsafe { libc::unlink(path) }
}

/// For SQLite's unix VFS that is the first step of syncing it.
unsafe extern "C" fn open_folder(path: *const c_char, folder: *mut c_int) -> c_int {
    note("folder synced", path);
    let open = *OPEN_FOLDER.get().unwrap();
    // SAFETY: as SQLite has called this.
    unsafe { open(path, folder) }
}

unsafe extern "C" fn sync_file(file: *mut ffi::sqlite3_file, flags: c_int) -> c_int {
    STEPS.lock().unwrap().push(("file synced", PathBuf::new()));
    let sync = *SYNC_FILE.get().unwrap();
    // SAFETY: as it was called; the file is one of SQLite's unix VFS.
    unsafe { sync(file, flags) }
}

/// Has SQLite's unix VFS tell its steps. Each test begins with it: no other one has a database open
/// while the functions are replaced.
fn watch() {
    static READY: OnceLock<()> = OnceLock::new();
    READY.get_or_init(|| {
        // SQLite is ready then.
        common::pool();
        // SAFETY: SQLite's own VFS, which stays; the functions are of the types by which it calls
        // them.
        unsafe {
            let unix = ffi::sqlite3_vfs_find(c"unix".as_ptr());
            let (get, set) = ((*unix).xGetSystemCall.unwrap(), (*unix).xSetSystemCall.unwrap());
            let own = get(unix, c"openDirectory".as_ptr()).unwrap();
            let own = std::mem::transmute::<unsafe extern "C" fn(), OpenFolder>(own);
            OPEN_FOLDER.set(own).unwrap();
            let ours = std::mem::transmute::<OpenFolder, unsafe extern "C" fn()>(open_folder);
            assert_eq!(set(unix, c"openDirectory".as_ptr(), Some(ours)), ffi::SQLITE_OK);
            let ours = std::mem::transmute::<Unlink, unsafe extern "C" fn()>(unlink);
            assert_eq!(set(unix, c"unlink".as_ptr(), Some(ours)), ffi::SQLITE_OK);
        }
    });
}

unsafe extern "C" fn size_of_file(
    file: *mut ffi::sqlite3_file,
    size: *mut ffi::sqlite3_int64,
) -> c_int {
    if HIDES_SIZE.load(SeqCst) {
        return ffi::SQLITE_IOERR_FSTAT;
    }
    let size_of = *SIZE_OF_FILE.get().unwrap();
    // SAFETY: as it was called; the file is one of SQLite's unix VFS.
    unsafe { size_of(file, size) }
}

/// Changes the methods of the database file of a connection. That file, of SQLite's unix VFS, is
/// behind the one of ours, which has two pointers.
fn change_methods(connection: &Connection, change: impl FnOnce(&mut ffi::sqlite3_io_methods)) {
    const BELOW: usize = 16;
    let mut file: *mut ffi::sqlite3_file = std::ptr::null_mut();
    // SAFETY: the files of an open database. The new methods have the types of the old ones, and
    // stay.
    unsafe {
        let (operation, name) = (ffi::SQLITE_FCNTL_FILE_POINTER, c"main".as_ptr());
        let argument = (&raw mut file).cast();
        let code = ffi::sqlite3_file_control(connection.handle(), name, operation, argument);
        assert_eq!(code, ffi::SQLITE_OK);
        let below = file.byte_add(BELOW);
        let mut methods = *(*below).pMethods;
        change(&mut methods);
        (*below).pMethods = Box::leak(Box::new(methods));
    }
}

/// Has the database file of a connection tell when it is synced.
fn watch_syncs(connection: &Connection) {
    change_methods(connection, |methods| {
        SYNC_FILE.set(methods.xSync.unwrap()).unwrap();
        methods.xSync = Some(sync_file);
    });
}

/// What was done to a file, and to any database, since this was asked last.
fn steps_about(path: &Path) -> Vec<&'static str> {
    let mut steps = STEPS.lock().unwrap();
    let is_about = |about: &Path| about == path || about.as_os_str().is_empty();
    let found = steps.iter().filter(|(_, about)| is_about(about)).map(|(step, _)| *step).collect();
    steps.retain(|(_, about)| !is_about(about));
    found
}

/// The journal of an outgrown transaction goes durably, and after the pages that it would undo are
/// durable, whatever SQLite asks for: one that came back with a power cut would undo what was
/// committed after it.
///
/// Guarantee: sqlite/level-power
/// Guarantee: sqlite/outgrown-pool
#[test]
fn outgrown_journal_is_removed_durably() {
    watch();
    let folder = scratch();
    // As SQLite names it.
    let path = folder.path().canonicalize().unwrap().join("db");
    let journal = path.with_file_name("db-journal");
    let connection = open(&path, "pool_limit=1048576");
    connection.execute_batch(&format!("PRAGMA cache_size=20; {TABLE}")).unwrap();
    watch_syncs(&connection);
    for synchronous in ["FULL", "OFF"] {
        connection.execute_batch(&format!("PRAGMA synchronous={synchronous}")).unwrap();
        for end in ["COMMIT", "ROLLBACK"] {
            connection.execute_batch(&format!("BEGIN; {FILL}")).unwrap();
            assert!(journal.exists(), "it did not outgrow the pool");
            steps_about(&journal);
            connection.execute_batch(end).unwrap();
            let mut steps = steps_about(&journal);
            // SQLite may ask for a sync of its own.
            steps.dedup();
            let expected = ["file synced", "removed", "folder synced"];
            assert_eq!(steps, expected, "synchronous={synchronous}, {end}");
        }
    }
    // Where SQLite keeps the journal, and clears it, it is not removed by SQLite.
    for mode in ["PERSIST", "TRUNCATE"] {
        connection.execute_batch(&format!("PRAGMA journal_mode={mode}")).unwrap();
        for end in ["COMMIT", "ROLLBACK"] {
            connection.execute_batch(&format!("BEGIN; {FILL}")).unwrap();
            assert!(journal.exists(), "it did not outgrow the pool");
            connection.execute_batch(end).unwrap();
            assert!(!journal.exists(), "{mode}, {end}");
        }
    }
    assert_eq!(number(&connection, ROWS), 6000);
    assert_sound(&connection);
}

/// A program without the VFS looks at the database while a transaction that outgrew the pool is
/// under way: it is refused, and does not take that one's journal for a dead process's.
///
/// Guarantee: sqlite/outgrown-pool
/// Guarantee: sqlite/without-the-vfs
#[test]
fn journal_in_use_is_not_rolled_back_without_the_vfs() {
    watch();
    let folder = scratch();
    let path = folder.path().join("db");
    let journal = path.with_file_name("db-journal");
    let connection = open(&path, "pool_limit=1048576");
    connection.execute_batch(&format!("PRAGMA cache_size=20; {TABLE}")).unwrap();
    let plain = open_plain(&path);
    for (end, rows) in [("ROLLBACK", 0), ("COMMIT", 1500)] {
        connection.execute_batch(&format!("BEGIN; {FILL}")).unwrap();
        assert!(journal.exists(), "it did not outgrow the pool");
        let refused = plain.query_row(ROWS, [], |row| row.get::<_, i64>(0)).unwrap_err();
        assert_eq!(refused.sqlite_error_code(), Some(ErrorCode::NotADatabase), "{end}: {refused}");
        assert!(journal.exists(), "{end}: it was rolled back");
        connection.execute_batch(end).unwrap();
        assert_eq!(number(&connection, ROWS), rows, "{end}");
        assert_sound(&connection);
    }
    drop(connection);
    assert_eq!(number(&plain, ROWS), 1500);
    assert_sound(&plain);
}

/// The file of a database that grows in steps is one of an empty database again where the
/// transaction that made it outgrew the pool and was rolled back.
///
/// Guarantee: sqlite/outgrown-pool
#[test]
fn creation_in_steps_is_rolled_back_to_nothing() {
    const STEP: c_int = 1 << 20;
    watch();
    let folder = scratch();
    let path = folder.path().join("db");
    let connection = open(&path, "pool_limit=1048576");
    let mut step = STEP;
    // SAFETY: a connection that is open, and an integer, as SQLite documents.
    let code = unsafe {
        let (operation, name) = (ffi::SQLITE_FCNTL_CHUNK_SIZE, c"main".as_ptr());
        ffi::sqlite3_file_control(connection.handle(), name, operation, (&raw mut step).cast())
    };
    assert_eq!(code, ffi::SQLITE_OK);
    let rolled_back = format!("PRAGMA cache_size=20; BEGIN; {TABLE}; {FILL}; ROLLBACK");
    connection.execute_batch(&rolled_back).unwrap();
    assert_eq!(number(&connection, "SELECT count(*) FROM sqlite_master"), 0);
    connection.execute_batch(&format!("{TABLE}; INSERT INTO t (b) VALUES (1)")).unwrap();
    assert_sound(&connection);
    drop(connection);
    let bytes = path.metadata().unwrap().len();
    assert!(bytes > 0 && bytes.is_multiple_of(STEP as u64), "{bytes} bytes");
    let plain = open_plain(&path);
    assert_eq!(number(&plain, ROWS), 1);
    assert_sound(&plain);
}

/// Where the database was replaced, a transaction that outgrows the pool fails before a page of it
/// is in the file: its journal would be found beside another database.
///
/// Guarantee: sqlite/log-removed
#[test]
fn replaced_database_gets_no_journal_beside_it() {
    watch();
    let folder = scratch();
    let [path, aside, journal] = ["db", "aside", "db-journal"].map(|name| folder.path().join(name));
    let connection = open(&path, "pool_limit=1048576");
    connection.execute_batch(&format!("PRAGMA cache_size=20; {TABLE}")).unwrap();
    std::fs::rename(&path, &aside).unwrap();
    std::fs::write(&path, "another database").unwrap();
    let refused = connection.execute_batch(&format!("BEGIN; {FILL}; COMMIT")).unwrap_err();
    assert_eq!(refused.sqlite_error_code(), Some(ErrorCode::SystemIoFailure), "{refused}");
    // SQLite may have ended the transaction.
    let _ = connection.execute_batch("ROLLBACK");
    assert!(!journal.exists());
    assert_eq!(std::fs::read(&path).unwrap(), b"another database");
    std::fs::rename(&aside, &path).unwrap();
    assert_eq!(number(&connection, ROWS), 0);
    connection.execute_batch(&format!("BEGIN; {FILL}; COMMIT")).unwrap();
    assert_eq!(number(&connection, ROWS), 1500);
    assert_sound(&connection);
}

/// The disk fails while an outgrown transaction is rolled back: the lock is given back all the same,
/// and the next connection rolls back what is left.
///
/// Guarantee: sqlite/disk-errors
/// Guarantee: sqlite/outgrown-pool
#[test]
fn failed_rollback_gives_the_lock_back() {
    watch();
    let folder = scratch();
    let path = folder.path().join("db");
    let connection = open(&path, "pool_limit=1048576");
    connection.execute_batch(&format!("PRAGMA cache_size=20; {TABLE}")).unwrap();
    let other = open(&path, "");
    other.busy_timeout(Duration::from_millis(100)).unwrap();
    assert_eq!(number(&other, ROWS), 0);
    change_methods(&connection, |methods| {
        SIZE_OF_FILE.set(methods.xFileSize.unwrap()).unwrap();
        methods.xFileSize = Some(size_of_file);
    });
    connection.execute_batch(&format!("BEGIN; {FILL}")).unwrap();
    let journal = path.with_file_name("db-journal");
    assert!(journal.exists(), "it did not outgrow the pool");
    HIDES_SIZE.store(true, SeqCst);
    // SQLite may call it done, and leave it to whoever comes next.
    let _ = connection.execute_batch("ROLLBACK");
    HIDES_SIZE.store(false, SeqCst);
    assert!(journal.exists(), "the rollback did not fail");
    assert_eq!(number(&other, ROWS), 0);
    assert!(!journal.exists());
    for (rows, connection) in [&other, &connection].into_iter().enumerate() {
        connection.execute_batch("INSERT INTO t (b) VALUES (1)").unwrap();
        assert_eq!(number(connection, ROWS), rows as i64 + 1);
        assert_sound(connection);
    }
    drop((connection, other));
    let plain = open_plain(&path);
    assert_eq!(number(&plain, ROWS), 2);
    assert_sound(&plain);
}
