//! Saved copies: what only the pool had is there when the pool is lost, and a copy that is older
//! than what database and log hold is never applied.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;

use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use common::copies::{
    COUNT, LARGE, LAZY, NUMBER, alone, assert_counted, count_up, create, databases, found, go_on,
    log_of, lose_the_pool, play, save, saved,
};
use common::{Player, begin, number, open, open_plain, role, scratch};
use holdfast_sqlite::{Recovered, Rescue};

/// How often a writer is stopped, at another moment each time.
const ROUNDS: u64 = 24;

/// What was saved is there when the pool is lost through the vfs and through tools.
///
/// Guarantee: sqlite/recover
/// Guarantee: sqlite/saved-copies
#[test]
fn saved_data_is_there_when_the_pool_is_lost() {
    const TEST: &str = "saved_data_is_there_when_the_pool_is_lost";
    let Some((_alone, folder)) = begin(play, alone) else { return };
    let path = folder.path().join("db");
    create(&path);
    let mut expected = 0;
    for (round, script) in
        ["30", "30 flush 20", "30 checkpoint 20", "10 flush checkpoint flush 9", "1"]
            .iter()
            .enumerate()
    {
        let mut player = Player::start(TEST, script, folder.path());
        let told = player.first("told: ");
        assert!(told > expected);
        expected = told;
        saved(&path);
        assert!(found(&path).has_copy && found(&path).unsaved_bytes == 0);
        assert_eq!(save(&path), Rescue::Nothing, "it is saved already");
        player.kill("told: ");
        lose_the_pool(&path);
        assert!(holdfast_sqlite::status(&path).unwrap().saved.is_some());
        if round % 2 == 0 {
            assert_eq!(holdfast_sqlite::recover(&path, false).unwrap(), Recovered::Saved);
            assert_counted(&open_plain(&path), expected);
        }
        let connection = open(&path, "");
        assert_counted(&connection, expected);
        drop(connection);
        assert_counted(&open_plain(&path), expected);
        assert!(!log_of(&path).exists() && holdfast_sqlite::status(&path).unwrap().saved.is_none());
    }
}

/// What the keeper does in an emergency: the writer is stopped anywhere, in a commit, a flush, a
/// checkpoint, or a transaction that outgrows the pool.
///
/// Guarantee: sqlite/emergency
/// Guarantee: sqlite/saved-copies
#[test]
fn stopped_writer_is_saved_with_all_acknowledged() {
    const TEST: &str = "stopped_writer_is_saved_with_all_acknowledged";
    if let Some((role, folder)) = role() {
        let connection = open(&folder.join("db"), &role);
        connection.execute_batch("PRAGMA cache_size=20").unwrap();
        loop {
            connection.execute_batch(COUNT).unwrap();
            println!("\ntold: {}", number(&connection, NUMBER));
        }
    }
    let _alone = alone();
    let folder = scratch();
    let path = folder.path().join("db");
    create(&path);
    let ways = [
        LAZY,
        "threshold=5",
        "threshold=0&flush=inline",
        "threshold=20&flush=inline",
        "pool_limit=1048576&threshold=20",
        "level=power&threshold=5",
    ];
    for round in 0..ROUNDS {
        let way = ways[round as usize % ways.len()];
        let mut player = Player::start(TEST, way, folder.path());
        let first = player.first("told: ");
        std::thread::sleep(Duration::from_micros(round * 3571 % 40_000));
        player.stop();
        let rescue = save(&path);
        let told = player.kill("told: ").unwrap_or(first);
        assert_ne!(rescue, Rescue::Busy, "{way}: nobody commits");
        lose_the_pool(&path);
        let connection = open(&path, "");
        let found = number(&connection, NUMBER);
        assert!(
            found >= told && found <= told + 1,
            "{way}, {rescue:?}: {told} acknowledged, {found} there"
        );
        assert_counted(&connection, found);
    }
}

/// A copy that is made while a process commits is as of one commit, or there is none.
///
/// Guarantee: sqlite/saved-copies
#[test]
fn copy_amid_commits_is_as_of_one_commit_or_none() {
    const TEST: &str = "copy_amid_commits_is_as_of_one_commit_or_none";
    if let Some((role, folder)) = role() {
        let connection = open(&folder.join("db"), &role);
        for round in 0_u32.. {
            connection.execute_batch(COUNT).unwrap();
            println!("\ntold: {}", number(&connection, NUMBER));
            if round.is_multiple_of(30) {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
    let _alone = alone();
    let folder = scratch();
    let path = folder.path().join("db");
    create(&path);
    // A page more in each commit, so that a copy takes longer than a commit.
    let spread = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 400) \
                  INSERT INTO wide (b) SELECT randomblob(3000) FROM n; CREATE TRIGGER spread AFTER UPDATE ON counter BEGIN \
                  UPDATE wide SET b = randomblob(3000) WHERE a % 400 = new.n % 400; END";
    open(&path, "")
        .execute_batch(&format!("CREATE TABLE wide (a INTEGER PRIMARY KEY, b); {spread}"))
        .unwrap();
    let (mut before, mut written) = (0, 0);
    for round in 0..ROUNDS {
        let way = if round % 3 == 0 { "threshold=300" } else { LAZY };
        let mut player = Player::start(TEST, way, folder.path());
        let first = player.first("told: ");
        let started = Instant::now();
        while started.elapsed() < Duration::from_millis(50) {
            written += u32::from(matches!(save(&path), Rescue::Written { .. }));
        }
        let told = player.kill("told: ").unwrap_or(first);
        lose_the_pool(&path);
        let connection = open(&path, "");
        let found = number(&connection, NUMBER);
        assert!(
            found >= before && found <= told + 1,
            "{told} acknowledged, {found} there, {before} before"
        );
        assert_counted(&connection, found);
        before = found;
    }
    assert!(written > 0, "somebody committed each time");
}

/// An image of another boot counts as lost and the copy is taken.
///
/// Guarantee: sqlite/saved-copies
#[test]
fn other_boots_image_is_lost_and_the_copy_taken() {
    const TEST: &str = "other_boots_image_is_lost_and_the_copy_taken";
    /// In the header of an image.
    const BOOT_AT: u64 = 40;
    let Some((_alone, folder)) = begin(play, alone) else { return };
    let path = folder.path().join("db");
    create(&path);
    let mut player = Player::start(TEST, "9 flush 9 pause 9", folder.path());
    assert_eq!(player.first("told: "), 19);
    saved(&path);
    go_on(folder.path());
    assert_eq!(player.first("told: "), 28);
    player.kill("told: ");
    let image = std::fs::File::options().write(true).open(found(&path).image).unwrap();
    image.write_all_at(&[7; 16], BOOT_AT).unwrap();
    assert_eq!(found(&path).unsaved_bytes, 0, "nothing of it counts");
    assert_counted(&open(&path, ""), 19);
}

/// A copy that is older than database and log is not applied.
///
/// Guarantee: keeper/no-undo
/// Guarantee: sqlite/backups
/// Guarantee: sqlite/older-copies
#[test]
fn outdated_copy_is_not_applied() {
    const TEST: &str = "outdated_copy_is_not_applied";
    if let Some((role, folder)) = role() {
        return play(&role, &folder);
    }
    let _alone = alone();
    // What happens after the copy was made, and what of it is there without the pool.
    for (script, is_durable) in [
        ("30 pause flush", true),
        ("30 pause flush checkpoint", true),
        ("30 pause 5 checkpoint", true),
        ("30 flush 5 pause 1 checkpoint flush", true),
        ("30 pause checkpoint 5", false),
        ("30 pause 5", false),
    ] {
        let folder = scratch();
        let path = folder.path().join("db");
        create(&path);
        let mut player = Player::start(TEST, script, folder.path());
        let saved_at = player.first("told: ");
        saved(&path);
        go_on(folder.path());
        let last = player.first("told: ");
        player.kill("told: ");
        lose_the_pool(&path);
        let connection = open(&path, "");
        assert_counted(&connection, if is_durable { last } else { saved_at });
    }
}

/// A copy counts for nothing after a close and when the database is marked anew.
///
/// Guarantee: keeper/no-undo
/// Guarantee: sqlite/backups
/// Guarantee: sqlite/older-copies
#[test]
fn copy_is_void_after_close_and_remark() {
    const TEST: &str = "copy_is_void_after_close_and_remark";
    let Some((_alone, folder)) = begin(play, alone) else { return };
    let path = folder.path().join("db");
    create(&path);
    let connection = open(&path, LAZY);
    count_up(&connection, 5);
    let copy = saved(&path);
    let bytes = std::fs::read(&copy).unwrap();
    count_up(&connection, 5);
    drop(connection);
    assert!(!copy.exists(), "the close has left it");
    // As if it had: under its name, and under the one that would be looked for.
    let mut player = Player::start(TEST, "4 flush 3", folder.path());
    assert_eq!(player.first("told: "), 18);
    let newer = saved(&path);
    player.kill("told: ");
    std::fs::write(&copy, &bytes).unwrap();
    std::fs::write(&newer, &bytes).unwrap();
    lose_the_pool(&path);
    assert_eq!(holdfast_sqlite::recover(&path, false).unwrap(), Recovered::LastFlush);
    assert_counted(&open_plain(&path), 15);
    assert!(copy.exists() && newer.exists(), "what is not applied stays");
    databases().tidy(&[]).unwrap();
    assert!(!copy.exists(), "nobody needs it any more");
}

/// Guarantee: keeper/damaged-copy
#[test]
fn a_copy_that_is_not_whole_counts_for_nothing() {
    const TEST: &str = "a_copy_that_is_not_whole_counts_for_nothing";
    let Some((_alone, folder)) = begin(play, alone) else { return };
    let path = folder.path().join("db");
    create(&path);
    let mut player = Player::start(TEST, "9 flush 9", folder.path());
    assert_eq!(player.first("told: "), 19);
    let copy = saved(&path);
    player.kill("told: ");
    lose_the_pool(&path);
    let (whole, database) = (std::fs::read(&copy).unwrap(), std::fs::read(&path).unwrap());
    let log = std::fs::read(log_of(&path)).unwrap();
    let unfinished = copy.with_file_name(format!(".{}.new", copy.file_stem().unwrap().display()));
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    for (bytes, is_named) in
        [(&whole[..whole.len() / 2], true), (&flipped, true), (&[], true), (&whole, false)]
    {
        std::fs::write(&path, &database).unwrap();
        std::fs::write(log_of(&path), &log).unwrap();
        let _ = std::fs::remove_file(&copy);
        std::fs::write(if is_named { &copy } else { &unfinished }, bytes).unwrap();
        assert!(holdfast_sqlite::status(&path).unwrap().saved.is_none());
        assert_eq!(holdfast_sqlite::recover(&path, false).unwrap(), Recovered::LastFlush);
        assert_counted(&open_plain(&path), 10);
    }
    let _ = std::fs::remove_file(&copy);
    databases().tidy(&[]).unwrap();
    assert!(!unfinished.exists());
}

/// A transaction that outgrew the pool is not undone by an older copy and newer ones go on from it.
///
/// Guarantee: keeper/no-undo
/// Guarantee: sqlite/backups
/// Guarantee: sqlite/older-copies
#[test]
fn outgrown_transaction_is_not_undone_by_an_old_copy() {
    const TEST: &str = "outgrown_transaction_is_not_undone_by_an_old_copy";
    if let Some((role, folder)) = role() {
        let connection = open(&folder.join("db"), &format!("{LAZY}&pool_limit=1048576"));
        connection.execute_batch("PRAGMA cache_size=10").unwrap();
        count_up(&connection, 5);
        println!("\ntold: {}", number(&connection, NUMBER));
        while !folder.join("go on").exists() {
            std::thread::sleep(Duration::from_millis(1));
        }
        connection.execute_batch(LARGE).unwrap();
        if role == "newer" {
            count_up(&connection, 3);
        }
        println!("\ntold: {}", number(&connection, NUMBER));
        std::thread::sleep(Duration::from_secs(600));
    }
    let _alone = alone();
    for role in ["older", "newer"] {
        let folder = scratch();
        let path = folder.path().join("db");
        create(&path);
        let mut player = Player::start(TEST, role, folder.path());
        assert_eq!(player.first("told: "), 5);
        saved(&path);
        go_on(folder.path());
        let told = player.first("told: ");
        if role == "newer" {
            saved(&path);
        }
        player.kill("told: ");
        lose_the_pool(&path);
        assert_counted(&open(&path, ""), told);
    }
}
