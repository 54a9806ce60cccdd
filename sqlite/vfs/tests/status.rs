//! The reports of `status`, `checkpoint`, `release` and `recover` agree with what an opening of the
//! file finds.

#![allow(unsafe_code, reason = "asks the C library who it runs as")]
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use common::{Player, number, open, open_plain, role, scratch, try_open};
use holdfast_sqlite::{SqliteError, State, checkpoint, recover, release, status};

const COUNT: &str = "SELECT count(*) FROM t";

fn play(role: &str, folder: &Path) {
    if role == "plain" {
        let plain = open_plain(&folder.join("db"));
        plain.execute_batch("PRAGMA cache_size = 2; BEGIN; UPDATE t SET a = 1").unwrap();
        println!("\ntold: 1");
        std::thread::sleep(std::time::Duration::from_secs(600));
    }
    if role == "write" {
        let connection = open(&folder.join("db"), "threshold=infinity");
        for _ in 0..9 {
            connection.execute("INSERT INTO t VALUES (1)", []).unwrap();
        }
        println!("\ntold: {}", number(&connection, COUNT));
        std::thread::sleep(std::time::Duration::from_secs(600));
    }
    // Another user, who may read one file and not the other.
    let readable = status(&folder.join("db")).unwrap();
    assert_eq!((readable.state, readable.is_hot), (State::Complete, false));
    let error = status(&folder.join("closed")).unwrap_err();
    assert!(matches!(error, SqliteError::Io { .. }), "{error}");
    assert!(
        checkpoint(&folder.join("closed")).is_err() && release(&folder.join("closed")).is_err()
    );
    println!("\ntold: 1");
}

fn create(path: &Path, rows: u32) {
    let connection = open_plain(path);
    connection.execute_batch("CREATE TABLE t (a)").unwrap();
    for _ in 0..rows {
        connection.execute("INSERT INTO t VALUES (zeroblob(900))", []).unwrap();
    }
}

/// Whether the database can be read with the VFS, after all that was asked of it.
fn opens(path: &Path) -> bool {
    try_open(path, "")
        .and_then(|found| found.query_row(COUNT, [], |row| row.get::<_, i64>(0)))
        .is_ok()
}

/// Fails unless every question about the file is answered as an opening is, and nothing was
/// changed.
fn assert_refused(path: &Path, part: &str) {
    let before = std::fs::read(path).unwrap();
    match status(path) {
        Ok(found) => {
            assert_eq!(found.state, State::Refused, "{found:?}");
            let problem = found.problem.unwrap();
            assert!(problem.contains(part), "{problem}");
        }
        Err(error) => assert!(error.to_string().contains(part), "{error}"),
    }
    for (what, answer) in [
        ("checkpoint", checkpoint(path)),
        ("release", release(path)),
        ("recover", recover(path, false).map(drop)),
    ] {
        let text = answer.expect_err(what).to_string();
        assert!(text.contains(part), "{what}: {text}");
    }
    assert!(!opens(path), "status says that it cannot be opened ({part}), and it can");
    assert!(std::fs::read(path).unwrap() == before, "it was changed");
}

fn assert_complete(path: &Path) {
    let found = status(path).unwrap();
    assert_eq!((found.state, found.problem), (State::Complete, None));
    checkpoint(path).unwrap();
    release(path).unwrap();
    recover(path, false).unwrap();
}

/// Guarantee: sqlite/status
#[test]
fn status_says_of_a_file_what_an_opening_finds() {
    let folder = scratch();
    let at = |name: &str| folder.path().join(name);
    let (whole, empty) = (at("whole"), at("empty"));
    create(&whole, 40);
    assert_complete(&whole);
    std::fs::write(&empty, "").unwrap();
    assert_complete(&empty);
    let bytes = std::fs::read(&whole).unwrap();
    let write = |name: &str, bytes: &[u8]| {
        std::fs::write(at(name), bytes).unwrap();
        at(name)
    };
    assert_refused(
        &write("cut", &bytes[..bytes.len() / 8192 * 4096]),
        "shorter than its header says",
    );
    assert_refused(&write("text", b"root:x:0:0:root:/root:/bin/bash\n"), "does not begin as one");
    assert_refused(&write("short", &bytes[..99]), "header is damaged");
    let patched = |at: usize, with: u8| {
        let mut patched = bytes.clone();
        patched[at] = with;
        patched
    };
    assert_refused(&write("page", &patched(16, 0x11)), "header is damaged");
    assert_refused(&write("newer", &patched(19, 3)), "newer SQLite");
    for path in [at("none"), folder.path().to_owned()] {
        assert!(
            status(&path).is_err() && checkpoint(&path).is_err() && recover(&path, false).is_err()
        );
    }
    assert!(status(&whole).unwrap().image.is_none());
}

/// What other programs do to a file, without the VFS.
///
/// Guarantee: sqlite/status
#[test]
fn other_programs_transactions_are_told() {
    const TEST: &str = "other_programs_transactions_are_told";
    if let Some((role, folder)) = role() {
        return play(&role, &folder);
    }
    let folder = scratch();
    let (path, left) = (folder.path().join("db"), folder.path().join("left"));
    create(&path, 40);
    let mut plain = Player::start(TEST, "plain", folder.path());
    plain.first("told: ");
    assert_eq!(status(&path).unwrap().state, State::Writing);
    assert!(matches!(checkpoint(&path), Err(SqliteError::Busy { .. })));
    // As its death would leave it.
    let journal = |path: &Path| PathBuf::from(format!("{}-journal", path.display()));
    std::fs::copy(&path, &left).unwrap();
    std::fs::copy(journal(&path), journal(&left)).unwrap();
    plain.kill("told: ");
    assert_eq!(status(&path).unwrap().state, State::Journal);
    assert!(opens(&path));
    assert_complete(&path);
    assert_eq!(status(&left).unwrap().state, State::Journal);
    for answer in [checkpoint(&left), release(&left), recover(&left, false).map(drop)] {
        assert!(matches!(answer, Err(SqliteError::JournalLeft { .. })), "{answer:?}");
    }
    assert!(opens(&left));
    assert_complete(&left);
    let plain = open_plain(&path);
    plain.execute_batch("PRAGMA journal_mode = WAL; INSERT INTO t VALUES (1)").unwrap();
    assert_eq!(status(&path).unwrap().state, State::Wal);
    for answer in [checkpoint(&path), release(&path), recover(&path, true).map(drop)] {
        assert!(matches!(answer, Err(SqliteError::WalMode { .. })), "{answer:?}");
    }
}

/// A file whose commits cannot be reached is not complete.
///
/// Guarantee: sqlite/status
#[test]
fn file_with_unreachable_commits_is_incomplete() {
    const TEST: &str = "file_with_unreachable_commits_is_incomplete";
    if let Some((role, folder)) = role() {
        return play(&role, &folder);
    }
    let folder = scratch();
    let (path, log) = (folder.path().join("db"), folder.path().join("db-holdfast"));
    create(&path, 0);
    let before = std::fs::read(&path).unwrap();
    let mut writer = Player::start(TEST, "write", folder.path());
    assert_eq!(writer.first("told: "), 9);
    assert_eq!(status(&path).unwrap().state, State::InUse);
    let marked = std::fs::read(&path).unwrap();
    // Overwritten under a program that goes on, and after its death.
    std::fs::write(&path, &before).unwrap();
    assert_eq!(status(&path).unwrap().state, State::Refused);
    writer.kill("told: ");
    assert_refused(&path, "overwritten");
    std::fs::write(&path, &marked).unwrap();
    let found = status(&path).unwrap();
    assert_eq!((found.state, found.commits[0] - found.commits[1]), (State::Left, 9));
    let image = found.image.unwrap();
    let good = std::fs::read(&image).unwrap();
    let header = |at: usize, with: &[u8]| {
        let mut bad = good.clone();
        bad[at..at + with.len()].copy_from_slice(with);
        bad
    };
    // Its magic; `applied`; its length.
    for bad in [header(0, b"x"), header(112, &[0xff; 8]), good[..good.len() / 2].to_vec()] {
        std::fs::write(&image, bad).unwrap();
        assert_refused(&path, "is damaged");
    }
    // Without the image: another log, and none.
    std::fs::remove_file(&image).unwrap();
    assert_eq!(status(&path).unwrap().state, State::AsFlushed);
    let kept = std::fs::read(&log).unwrap();
    let mut foreign = kept.clone();
    foreign[8] ^= 1;
    std::fs::write(&log, foreign).unwrap();
    assert_refused(&path, "is not of");
    std::fs::remove_file(&log).unwrap();
    assert_refused(&path, "is it a copy?");
    std::fs::write(&log, kept).unwrap();
    std::fs::write(&image, good).unwrap();
    assert_eq!(number(&open(&path, ""), COUNT), 9);
    assert_complete(&path);
}

/// A user that is not root.
const NOBODY: u32 = 65_534;

/// Guarantee: sqlite/status
#[test]
fn what_may_not_be_read_is_not_called_complete() {
    const TEST: &str = "what_may_not_be_read_is_not_called_complete";
    if let Some((role, folder)) = role() {
        return play(&role, &folder);
    }
    // SAFETY: asks for a number.
    let user = (unsafe { libc::geteuid() } == 0).then_some(NOBODY);
    let folder = scratch();
    let mode = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap()
    };
    let own = folder.path().join("own");
    std::fs::create_dir(&own).unwrap();
    create(&folder.path().join("db"), 1);
    create(&folder.path().join("closed"), 1);
    mode(&folder.path().join("db"), 0o444);
    mode(&folder.path().join("closed"), 0o000);
    mode(folder.path(), 0o755);
    if let Some(user) = user {
        std::os::unix::fs::chown(&own, Some(user), Some(user)).unwrap();
        let there = std::env::current_exe().unwrap();
        let hidden = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o1 == 0;
        if let Some(closed) =
            there.ancestors().chain(folder.path().ancestors()).find(|path| hidden(path))
        {
            return println!("not run: another user has no way through {}", closed.display());
        }
    }
    let (home, pool) = (own.join("home"), own.join("pool"));
    let places =
        [("HOLDFAST_HOME", home.to_str().unwrap()), ("HOLDFAST_POOL", pool.to_str().unwrap())];
    let mut player = Player::start_as(user, TEST, "read", folder.path(), &places);
    assert_eq!(player.first("told: "), 1);
    player.finish();
}
