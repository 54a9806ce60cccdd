//! Files that were put back from a backup, replaced, copied or moved: none gets a copy, a log or an
//! image of something else or of another time.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;

use std::time::Duration;

use common::copies::{
    LARGE, LAZY, NUMBER, alone, assert_counted, count_up, create, databases, go_on, log_of,
    lose_the_pool, play, saved,
};
use common::{Player, begin, number, open, open_plain, role, scratch, statistic, try_open};

/// What was put back from a backup gets no copy of a later time.
///
/// Guarantee: sqlite/backups
/// Guarantee: sqlite/older-copies
#[test]
fn restored_backup_gets_no_later_copy() {
    const TEST: &str = "restored_backup_gets_no_later_copy";
    if let Some((role, folder)) = role() {
        return play(&role, &folder);
    }
    let _alone = alone();
    // What is there with the backup of both files, with that of the database alone, and with that
    // of the log alone.
    for (script, both, database, log) in [
        // The files are the same but for the log's last record.
        ("9 flush pause 9 flush pause 9", Some(10), Some(29), Some(10)),
        // What the copy was made on is in the backup, in its log.
        ("9 flush pause checkpoint 9 pause 9", Some(28), None, Some(28)),
        ("9 flush pause 9 checkpoint 9 flush pause 9", Some(10), None, None),
    ] {
        let folder = scratch();
        let path = folder.path().join("db");
        create(&path);
        let files = || [&path, &log_of(&path)].map(|path| std::fs::read(path).unwrap());
        let mut player = Player::start(TEST, script, folder.path());
        assert_eq!(player.first("told: "), 10);
        let [old_database, old_log] = files();
        go_on(folder.path());
        player.first("told: ");
        go_on(folder.path());
        player.first("told: ");
        let copy = saved(&path);
        player.kill("told: ");
        lose_the_pool(&path);
        let [new_database, new_log] = files();
        let copied = std::fs::read(&copy).unwrap();
        for (database, log, expected) in [
            (&old_database, &old_log, both),
            (&old_database, &new_log, database),
            (&new_database, &old_log, log),
        ] {
            std::fs::write(&path, database).unwrap();
            std::fs::write(log_of(&path), log).unwrap();
            std::fs::write(&copy, &copied).unwrap();
            match expected {
                Some(expected) => {
                    holdfast_sqlite::recover(&path, false).unwrap();
                    assert_counted(&open_plain(&path), expected);
                }
                None => {
                    let text = holdfast_sqlite::recover(&path, false).unwrap_err().to_string();
                    assert!(
                        text.contains("backup") && text.contains("recover --discard"),
                        "{text}"
                    );
                    assert!(try_open(&path, "").is_err());
                    assert_eq!(
                        (&std::fs::read(&path).unwrap(), copy.exists()),
                        (database, true),
                        "touched"
                    );
                }
            }
        }
        let _ = std::fs::remove_file(copy);
    }
}

/// The same with the pool, whose image goes on from a newer file.
///
/// Guarantee: sqlite/backups
/// Guarantee: sqlite/older-copies
#[test]
fn restored_backup_gets_nothing_of_a_later_image() {
    const TEST: &str = "restored_backup_gets_nothing_of_a_later_image";
    let Some((_alone, folder)) = begin(play, alone) else { return };
    let path = folder.path().join("db");
    create(&path);
    let mut player = Player::start(TEST, "9 pause checkpoint 9", folder.path());
    assert_eq!(player.first("told: "), 9);
    let backup = std::fs::read(&path).unwrap();
    go_on(folder.path());
    assert_eq!(player.first("told: "), 18);
    player.kill("told: ");
    let newest = std::fs::read(&path).unwrap();
    std::fs::write(&path, &backup).unwrap();
    let text = holdfast_sqlite::recover(&path, false).unwrap_err().to_string();
    assert!(text.contains("overwritten"), "{text}");
    assert!(try_open(&path, "").is_err());
    std::fs::write(&path, &newest).unwrap();
    assert_counted(&open(&path, ""), 18);
}

/// A file that was copied gets no copy of the other and one that was moved gets its own.
///
/// Guarantee: sqlite/backups
/// Guarantee: sqlite/older-copies
#[test]
fn copied_file_gets_no_copy_and_moved_one_its_own() {
    const TEST: &str = "copied_file_gets_no_copy_and_moved_one_its_own";
    let Some((_alone, folder)) = begin(play, alone) else { return };
    let path = folder.path().join("db");
    create(&path);
    let mut player = Player::start(TEST, "9 flush 9", folder.path());
    assert_eq!(player.first("told: "), 19);
    saved(&path);
    player.kill("told: ");
    lose_the_pool(&path);
    let (copied, moved) = (folder.path().join("copied"), folder.path().join("moved"));
    std::fs::copy(&path, &copied).unwrap();
    std::fs::copy(log_of(&path), log_of(&copied)).unwrap();
    assert!(holdfast_sqlite::status(&copied).unwrap().saved.is_none());
    assert_counted(&open(&copied, ""), 10);
    std::fs::rename(&path, &moved).unwrap();
    std::fs::rename(log_of(&path), log_of(&moved)).unwrap();
    assert!(holdfast_sqlite::status(&moved).unwrap().saved.is_some());
    assert_counted(&open(&moved, ""), 19);
}

/// A database that was replaced gets nothing of the copy.
///
/// Guarantee: sqlite/backups
/// Guarantee: sqlite/older-copies
#[test]
fn replaced_database_gets_nothing_of_the_copy() {
    const TEST: &str = "replaced_database_gets_nothing_of_the_copy";
    let Some((_alone, folder)) = begin(play, alone) else { return };
    let (path, other) = (folder.path().join("db"), folder.path().join("other"));
    create(&path);
    create(&other);
    count_up(&open(&other, ""), 3);
    let mut player = Player::start(TEST, "9 flush 9", folder.path());
    assert_eq!(player.first("told: "), 19);
    let copy = saved(&path);
    player.kill("told: ");
    lose_the_pool(&path);
    // In place, so it is the same file with another content, and the log of the old one beside it.
    std::fs::write(&path, std::fs::read(&other).unwrap()).unwrap();
    let connection = open(&path, LAZY);
    assert_counted(&connection, 3);
    count_up(&connection, 1);
    assert_eq!(statistic(&connection, "hot"), 1);
    drop(connection);
    assert_counted(&open_plain(&path), 4);
    databases().tidy(&[]).unwrap();
    assert!(!copy.exists(), "its file has another content now");
}

/// Such a transaction writes to the file without a checkpoint: what was in it before is older than
/// log and image.
///
/// Guarantee: sqlite/backups
/// Guarantee: sqlite/older-copies
#[test]
fn file_before_an_outgrown_transaction_is_told_apart() {
    const TEST: &str = "file_before_an_outgrown_transaction_is_told_apart";
    if let Some((_, folder)) = role() {
        let connection = open(&folder.join("db"), &format!("{LAZY}&pool_limit=1048576"));
        connection.execute_batch("PRAGMA cache_size=10").unwrap();
        count_up(&connection, 5);
        connection.execute_batch("PRAGMA holdfast_checkpoint").unwrap();
        println!("\ntold: {}", number(&connection, NUMBER));
        while !folder.join("go on").exists() {
            std::thread::sleep(Duration::from_millis(1));
        }
        connection.execute_batch(LARGE).unwrap();
        println!("\ntold: {}", number(&connection, NUMBER));
        std::thread::sleep(Duration::from_secs(600));
    }
    let _alone = alone();
    for has_pool in [true, false] {
        let folder = scratch();
        let path = folder.path().join("db");
        create(&path);
        let mut player = Player::start(TEST, "writer", folder.path());
        assert_eq!(player.first("told: "), 5);
        let backup = std::fs::read(&path).unwrap();
        go_on(folder.path());
        let told = player.first("told: ");
        player.kill("told: ");
        if !has_pool {
            lose_the_pool(&path);
        }
        let newest = std::fs::read(&path).unwrap();
        std::fs::write(&path, &backup).unwrap();
        let refused = holdfast_sqlite::recover(&path, false);
        assert!(refused.is_err() && try_open(&path, "").is_err(), "{refused:?}");
        std::fs::write(&path, &newest).unwrap();
        assert_counted(&open(&path, ""), told);
    }
}
