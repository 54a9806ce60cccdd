//! Commits that go to the journal: what they cost, what a cold open makes of them, and what of a
//! journal is believed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use common::noted::Notes;
use common::{Home, MIB, flip, key, named, other_key, read, truncate};
use holdfast_region::{Durability, FileRemedy, Opened, Region, RegionError, RegionState, Written};

const PAGE: usize = 4096;
const HEADER_BYTES: u64 = 4096;
/// A record of one page: head, page, entry.
const RECORD_BYTES: u64 = 64 + 4096 + 16;
/// What closing writes behind the last record.
const MARK_BYTES: u64 = 64;

/// A small region (1 MiB) with "hello" in its base, and its notes.
fn small() -> (Home, Region, Notes) {
    let home = Home::new();
    let mut region = home.names().create(&named("words"), &key(), MIB).unwrap();
    let notes = Notes::of(&mut region);
    notes.store(&mut region, 0, b"hello");
    assert_eq!(region.commit(Durability::Power).unwrap().written, Written::Base);
    (home, region, notes)
}

/// Commits one page for each text, at pages 1, 2, …
fn commit_texts(region: &mut Region, notes: &Notes, texts: &[&str]) {
    for (index, text) in texts.iter().enumerate() {
        notes.store(region, (index + 1) * PAGE, text.as_bytes());
        let report = region.commit(Durability::Power).unwrap();
        assert_eq!(
            (report.written, report.pages, report.bytes),
            (Written::Journal, 1, RECORD_BYTES)
        );
    }
}

fn lose_image(home: &Home) {
    std::fs::remove_file(home.image("words")).unwrap();
}

fn open(home: &Home) -> Result<Region, RegionError> {
    home.names().open(&named("words"), &key())
}

fn text_at(region: &Region, page: u64) -> String {
    let bytes = read(region, page * PAGE as u64, 8);
    String::from_utf8(bytes.into_iter().take_while(|&byte| byte != 0).collect()).unwrap()
}

fn texts(region: &Region) -> Vec<String> {
    (1..=3).map(|page| text_at(region, page)).collect()
}

/// A power commit appends what changed and a cold open finds it.
#[test]
fn power_commit_appends_and_cold_open_finds_it() {
    let (home, mut region, notes) = small();
    let base_before = home.base("words").metadata().unwrap();
    commit_texts(&mut region, &notes, &["one", "two", "three"]);
    let nothing = region.commit(Durability::Power).unwrap();
    assert_eq!((nothing.written, nothing.bytes), (Written::Nothing, 0));
    assert_eq!(home.journal("words").metadata().unwrap().len(), HEADER_BYTES + 3 * RECORD_BYTES);
    let base_after = home.base("words").metadata().unwrap();
    assert_eq!(
        (base_before.ino(), base_before.mtime_nsec()),
        (base_after.ino(), base_after.mtime_nsec())
    );
    // Never closed: as after a power cut.
    drop(region);
    lose_image(&home);
    let reader = home.names().open_read(&named("words")).unwrap();
    assert_eq!(reader.summary().state, RegionState::Cold);
    assert_eq!(&reader.bytes()[2 * PAGE..2 * PAGE + 4], b"two\0");
    assert_eq!(reader.read_all().unwrap(), reader.bytes());
    assert!(!home.image("words").exists(), "reading built an image");
    drop(reader);
    let region = open(&home).unwrap();
    assert_eq!((region.opened(), region.is_dirty()), (Opened::Cold, false));
    assert_eq!(
        (text_at(&region, 0), texts(&region)),
        ("hello".into(), ["one", "two", "three"].map(String::from).to_vec())
    );
}

#[test]
fn a_journal_is_continued_by_warm_and_cold_sessions() {
    let (home, mut region, notes) = small();
    commit_texts(&mut region, &notes, &["1"]);
    region.close().unwrap();
    for (session, cold) in [(1, false), (2, true), (3, false), (4, true), (5, true)] {
        if cold {
            lose_image(&home);
        }
        let mut region = open(&home).unwrap();
        assert_eq!(region.opened(), if cold { Opened::Cold } else { Opened::Warm });
        let notes = Notes::of(&mut region);
        notes.store(&mut region, session * PAGE, format!("s{session}").as_bytes());
        assert_eq!(region.commit(Durability::Power).unwrap().written, Written::Journal);
        notes.store(&mut region, 9 * PAGE, format!("c{session}").as_bytes());
        let report = region.close().unwrap().checkpoint;
        assert_eq!((report.pages, report.skipped), (1, false));
    }
    assert_eq!(
        home.journal("words").metadata().unwrap().len(),
        HEADER_BYTES + 11 * RECORD_BYTES + MARK_BYTES
    );
    lose_image(&home);
    let region = open(&home).unwrap();
    assert_eq!(
        (texts(&region), text_at(&region, 9)),
        (vec!["s1".into(), "s2".into(), "s3".into()], "c5".into())
    );
}

/// Guarantee: heap/commit-cost
#[test]
fn a_commit_writes_little_more_than_what_changed() {
    let home = Home::new();
    let mut region = home.names().create(&named("words"), &key(), 64 * MIB).unwrap();
    region.grow(64 * MIB).unwrap();
    let notes = Notes::of(&mut region);
    notes.store(&mut region, 0, &vec![1; 20 << 20]);
    region.commit(Durability::Power).unwrap();
    notes.store(&mut region, 0, b"first");
    region.commit(Durability::Power).unwrap();
    for pages in [1, 16, 256, 4096] {
        let before = home.journal("words").metadata().unwrap().len();
        // Every other page, so that nothing can be gained from neighbours, but for the largest.
        let step = if pages == 4096 { 1 } else { 2 };
        for page in 0..pages {
            notes.store(&mut region, page * step * PAGE, &[pages as u8 | 3; PAGE]);
        }
        let report = region.commit(Durability::Power).unwrap();
        assert_eq!((report.written, report.pages), (Written::Journal, pages as u64));
        let written = home.journal("words").metadata().unwrap().len() - before;
        assert_eq!(written, report.bytes);
        let ratio = written as f64 / (pages * PAGE) as f64;
        println!("{pages} pages: {ratio:.4} bytes written for each changed byte");
        assert!(ratio <= 1.1, "{pages} pages: {ratio}");
    }
}

/// Pages of zeros cost no bytes and come back as zeros.
#[test]
fn zero_pages_cost_no_bytes() {
    let (home, mut region, notes) = small();
    notes.store(&mut region, PAGE, &[7; 100 * PAGE]);
    region.commit(Durability::Power).unwrap();
    notes.store(&mut region, 2 * PAGE, &[0; 98 * PAGE]);
    let report = region.commit(Durability::Power).unwrap();
    assert_eq!((report.pages, report.bytes), (0, 64 + 16));
    drop(region);
    lose_image(&home);
    let region = open(&home).unwrap();
    let mut expected = vec![0; 103 * PAGE];
    expected[..5].copy_from_slice(b"hello");
    expected[PAGE..2 * PAGE].fill(7);
    expected[100 * PAGE..101 * PAGE].fill(7);
    assert!(read(&region, 0, 103 * PAGE) == expected);
}

/// Growth is committed by a record and is there after a cold open.
#[test]
fn growth_is_committed_by_a_record() {
    let home = Home::new();
    let mut region = home.names().create(&named("words"), &key(), 12 * MIB).unwrap();
    let notes = Notes::of(&mut region);
    notes.store(&mut region, 0, b"hello");
    region.commit(Durability::Power).unwrap();
    region.grow(8 * MIB).unwrap();
    let report = region.commit(Durability::Power).unwrap();
    assert_eq!((report.written, report.bytes), (Written::Journal, 64));
    notes.store(&mut region, (8 << 20) - 3, b"end");
    region.commit(Durability::Power).unwrap();
    region.grow(12 * MIB).unwrap();
    drop(region);
    lose_image(&home);
    assert_eq!(home.names().open_read(&named("words")).unwrap().summary().backed_bytes, 8 * MIB);
    let region = open(&home).unwrap();
    assert_eq!(region.backed_bytes(), 8 * MIB, "growth that was not committed is back");
    assert_eq!(read(&region, 8 * MIB - 3, 3), b"end");
}

/// A journal that grew too long is folded into a new base.
///
/// Guarantee: heap/commit-cost
#[test]
fn long_journal_is_folded_into_a_new_base() {
    let (home, mut region, notes) = small();
    let mut journal_bytes_max = 0;
    let mut folds = 0;
    for round in 0..20_u8 {
        notes.store(&mut region, 0, &[round + 1; 200 * PAGE]);
        match region.commit(Durability::Power).unwrap().written {
            Written::Base => {
                folds += 1;
                assert!(!home.journal("words").exists(), "a stale journal stays");
            }
            written => assert_eq!(written, Written::Journal),
        }
        journal_bytes_max =
            journal_bytes_max.max(home.journal("words").metadata().map_or(0, |found| found.len()));
    }
    assert_eq!(folds, 2);
    assert!((4 * MIB..5 * MIB).contains(&journal_bytes_max), "{journal_bytes_max}");
    region.close().unwrap();
    lose_image(&home);
    assert!(read(&open(&home).unwrap(), 0, 200 * PAGE) == [20; 200 * PAGE]);
}

/// The level process writes nothing and the level system is done as power where a pool ends with
/// the boot.
///
/// Guarantee: heap/level-never-weaker
#[test]
fn level_process_writes_nothing_and_system_is_power() {
    let (home, mut region, notes) = small();
    notes.store(&mut region, PAGE, b"one");
    let process = region.commit(Durability::Process).unwrap();
    assert_eq!((process.written, process.level), (Written::Nothing, Durability::Process));
    assert!(region.is_dirty() && !home.journal("words").exists());
    assert!(!region.needs_order());
    region.unmap().unwrap();
    region.promise_order().unwrap();
    assert!(!region.is_ordered(), "a promise does not make a tmpfs last");
    let system = region.commit(Durability::System).unwrap();
    assert_eq!((system.written, system.level), (Written::Journal, Durability::Power));
    drop(region);
    lose_image(&home);
    assert_eq!(text_at(&open(&home).unwrap(), 1), "one");
}

/// A torn last record is cut off and the journal goes on.
///
/// Guarantee: heap/damaged-journal
#[test]
fn torn_last_record_is_cut_off() {
    let (home, mut region, notes) = small();
    commit_texts(&mut region, &notes, &["one", "two", "three"]);
    drop(region);
    lose_image(&home);
    let whole = std::fs::read(home.journal("words")).unwrap();
    let last = (HEADER_BYTES + 2 * RECORD_BYTES) as usize;
    for len in (0..RECORD_BYTES as usize).filter(|len| len % 97 == 0 || *len < 70 || *len > 4160) {
        for filled in [0, 300] {
            let mut bytes = whole[..last + len].to_vec();
            // What follows may be rubbish that the disk had there.
            bytes.extend(std::iter::repeat_n(0xA5, filled));
            std::fs::write(home.journal("words"), &bytes).unwrap();
            let reader = home.names().open_read(&named("words")).unwrap();
            assert_eq!(&reader.bytes()[2 * PAGE..2 * PAGE + 4], b"two\0", "length {len}");
            assert_eq!(reader.bytes()[3 * PAGE], 0, "length {len}");
        }
        if len % 97 == 0 {
            let mut region = open(&home).unwrap();
            let notes = Notes::of(&mut region);
            notes.store(&mut region, 3 * PAGE, b"new");
            assert_eq!(region.commit(Durability::Power).unwrap().written, Written::Journal);
            drop(region);
            lose_image(&home);
            assert_eq!(home.journal("words").metadata().unwrap().len(), whole.len() as u64);
            let region = open(&home).unwrap();
            assert_eq!(texts(&region), ["one", "two", "new"], "length {len}");
            drop(region);
            lose_image(&home);
        }
    }
}

/// Opens cold for writing and for reading; both must say which record is damaged, and change
/// nothing.
fn reported(home: &Home) -> Option<(u64, u64)> {
    let before = std::fs::read(home.journal("words")).unwrap();
    let outcome = match (open(home), home.names().open_read(&named("words"))) {
        (Ok(_), Ok(_)) => None,
        (
            Err(RegionError::JournalDamaged { record, offset, remedy, .. }),
            Err(RegionError::JournalDamaged { .. }),
        ) => {
            assert!(
                matches!(&remedy, FileRemedy::MoveJournal { journal, .. } if *journal == home.journal("words"))
            );
            assert!(!home.image("words").exists(), "a bad journal made an image");
            Some((record, offset))
        }
        other => panic!("{other:?}"),
    };
    assert!(std::fs::read(home.journal("words")).unwrap() == before);
    outcome
}

/// A flipped bit in a record that others follow is reported and not cut off.
///
/// Guarantee: heap/damaged-journal
#[test]
fn flipped_bit_before_other_records_is_reported() {
    let (home, mut region, notes) = small();
    commit_texts(&mut region, &notes, &["one", "two", "three"]);
    drop(region);
    lose_image(&home);
    let journal = home.journal("words");
    for record in [1, 2] {
        let start = HEADER_BYTES + (record - 1) * RECORD_BYTES;
        let everywhere =
            (0..RECORD_BYTES).filter(|at| at % 89 == 0 || *at < 64 || *at >= RECORD_BYTES - 16);
        for at in everywhere {
            flip(&journal, start + at);
            assert_eq!(reported(&home), Some((record, start)), "byte {at} of record {record}");
            flip(&journal, start + at);
        }
    }
    for at in [0, 9, 20, 33, 41, 50, 100, 4090] {
        flip(&journal, at);
        let error = open(&home).unwrap_err();
        let expected = matches!(error, RegionError::JournalDamaged { record: 0, offset: 0, .. })
            || (at < 8 && matches!(error, RegionError::Foreign { .. }));
        assert!(expected, "byte {at}: {error}");
        assert!(home.names().summary(&named("words")).unwrap().damaged.is_some());
        flip(&journal, at);
    }
    // Shifted by the loss of a whole record: the sequence tells.
    let bytes = std::fs::read(&journal).unwrap();
    let (start, end) = (HEADER_BYTES as usize, (HEADER_BYTES + RECORD_BYTES) as usize);
    std::fs::write(&journal, [&bytes[..start], &bytes[end..]].concat()).unwrap();
    assert_eq!(reported(&home), Some((1, HEADER_BYTES)));
    std::fs::write(&journal, &bytes).unwrap();
    assert_eq!(texts(&open(&home).unwrap()), ["one", "two", "three"]);
}

/// A flipped bit in the last record is reported when the region was closed in order.
///
/// Guarantee: heap/damaged-journal
#[test]
fn flipped_last_record_is_reported_after_clean_close() {
    let (home, mut region, notes) = small();
    commit_texts(&mut region, &notes, &["one", "two"]);
    region.close().unwrap();
    lose_image(&home);
    let start = HEADER_BYTES + RECORD_BYTES;
    for at in (0..RECORD_BYTES).step_by(61) {
        flip(&home.journal("words"), start + at);
        assert_eq!(reported(&home), Some((2, start)), "byte {at}");
        flip(&home.journal("words"), start + at);
    }
    // Without the mark it cannot be told from the commit in flight when the power went.
    truncate(&home.journal("words"), start + RECORD_BYTES);
    flip(&home.journal("words"), start + 100);
    assert_eq!(texts(&open(&home).unwrap()), ["one", "", ""]);
}

/// A damaged journal beside a whole image is mended by the next commit.
#[test]
fn next_commit_mends_a_damaged_journal() {
    type Damage<'a> = (&'a str, &'a dyn Fn(&Path));
    let damages: [Damage<'_>; 4] = [
        ("flipped", &|journal| flip(journal, HEADER_BYTES + 100)),
        ("header", &|journal| flip(journal, 40)),
        ("cut", &|journal| truncate(journal, HEADER_BYTES + RECORD_BYTES)),
        ("gone", &|journal| std::fs::remove_file(journal).unwrap()),
    ];
    for (what, damage) in damages {
        let (home, mut region, notes) = small();
        commit_texts(&mut region, &notes, &["one", "two"]);
        region.close().unwrap();
        damage(&home.journal("words"));
        let mut region = open(&home).unwrap();
        assert_eq!(region.opened(), Opened::Warm);
        let notes = Notes::of(&mut region);
        notes.store(&mut region, 3 * PAGE, b"three");
        assert_eq!(region.commit(Durability::Power).unwrap().written, Written::Base, "{what}");
        region.close().unwrap();
        lose_image(&home);
        assert_eq!(texts(&open(&home).unwrap()), ["one", "two", "three"], "{what}");
    }
}

/// A damaged image beside a whole journal loses nothing that was committed.
#[test]
fn journal_replaces_a_damaged_image_without_loss() {
    let (home, mut region, notes) = small();
    commit_texts(&mut region, &notes, &["one", "two"]);
    drop(region);
    truncate(&home.image("words"), 5000);
    let error = open(&home).unwrap_err();
    assert!(
        matches!(&error, RegionError::Truncated { remedy: FileRemedy::DropImage { .. }, .. }),
        "{error}"
    );
    // Not if the journal is bad as well.
    flip(&home.journal("words"), HEADER_BYTES + 100);
    let error = open(&home).unwrap_err();
    assert!(
        matches!(&error, RegionError::Truncated { remedy: FileRemedy::RestoreFile { .. }, .. }),
        "{error}"
    );
    let refused = home.names().remove_image(&named("words"), &key()).unwrap_err();
    assert!(matches!(refused, RegionError::JournalDamaged { .. }), "{refused}");
    flip(&home.journal("words"), HEADER_BYTES + 100);
    home.names().remove_image(&named("words"), &key()).unwrap();
    assert_eq!(texts(&open(&home).unwrap()), ["one", "two", ""]);
}

/// A stale journal is ignored and one of a later checkpoint is an error.
///
/// Guarantee: heap/damaged-journal
#[test]
fn stale_journal_is_ignored_and_a_later_one_refused() {
    let (home, mut region, notes) = small();
    let old_base = std::fs::read(home.base("words")).unwrap();
    commit_texts(&mut region, &notes, &["one"]);
    let stale = std::fs::read(home.journal("words")).unwrap();
    // A commit of everything makes a base, and the journal before it is gone.
    notes.store(&mut region, 0, &vec![b'x'; MIB as usize]);
    notes.store(&mut region, PAGE, b"two\0\0\0\0\0");
    region.close().unwrap();
    assert!(!home.journal("words").exists());
    std::fs::write(home.journal("words"), &stale).unwrap();
    lose_image(&home);
    let mut region = open(&home).unwrap();
    assert_eq!(text_at(&region, 1), "two", "a stale journal was applied");
    let notes = Notes::of(&mut region);
    commit_texts(&mut region, &notes, &["three"]);
    assert_ne!(std::fs::read(home.journal("words")).unwrap()[..4096], stale[..4096]);
    drop(region);
    lose_image(&home);
    assert_eq!(text_at(&open(&home).unwrap(), 1), "three");
    lose_image(&home);
    // The first base is put back; its number is lower than that of the journal.
    std::fs::write(home.base("words"), &old_base).unwrap();
    let error = open(&home).unwrap_err();
    assert!(matches!(error, RegionError::JournalMismatch { .. }), "{error}");
    std::fs::remove_file(home.journal("words")).unwrap();
    assert_eq!(text_at(&open(&home).unwrap(), 0), "hello");
}

#[test]
fn the_journal_of_another_region_is_never_applied() {
    let (home, mut region, notes) = small();
    commit_texts(&mut region, &notes, &["one"]);
    drop(region);
    lose_image(&home);
    let (other, region, _) = small();
    region.close().unwrap();
    lose_image(&other);
    std::fs::copy(home.journal("words"), other.journal("words")).unwrap();
    assert_eq!(text_at(&open(&other).unwrap(), 1), "");
}

/// A region is listed with its journal and removed with it.
#[test]
fn region_is_listed_and_removed_with_its_journal() {
    let (home, mut region, notes) = small();
    commit_texts(&mut region, &notes, &["one"]);
    region.close().unwrap();
    let summary = home.names().summary(&named("words")).unwrap();
    assert_eq!(summary.journal.unwrap().len_bytes, HEADER_BYTES + RECORD_BYTES + MARK_BYTES);
    assert_eq!((summary.damaged, summary.state), (None, RegionState::Clean));
    let refused = home.names().remove(&named("words"), &other_key());
    assert!(matches!(refused, Err(RegionError::NotOwner { .. })));
    assert!(home.journal("words").exists());
    home.names().remove(&named("words"), &key()).unwrap();
    assert!(!home.journal("words").exists() && !home.base("words").exists());
}

#[test]
fn a_record_of_another_journal_is_not_believed() {
    let (home, mut region, notes) = small();
    commit_texts(&mut region, &notes, &["one"]);
    drop(region);
    lose_image(&home);
    let (other, mut region, notes) = small();
    commit_texts(&mut region, &notes, &["uno", "dos"]);
    drop(region);
    let foreign = std::fs::read(other.journal("words")).unwrap();
    let journal = std::fs::OpenOptions::new().write(true).open(home.journal("words")).unwrap();
    let second = &foreign[(HEADER_BYTES + RECORD_BYTES) as usize..];
    journal.write_all_at(second, HEADER_BYTES + RECORD_BYTES).unwrap();
    assert_eq!(
        texts(&open(&home).unwrap()),
        ["one", "", ""],
        "a record of another journal was applied"
    );
}

/// A file system may give the inode of a removed file to the next new one. The base of an open
/// region keeps its own, so another one in its place is known for that by the next commit.
///
/// Guarantee: heap/checkpoint
#[test]
fn inode_of_a_base_in_use_is_no_other_files() {
    let (home, mut region, mut notes) = small();
    let base = home.base("words").canonicalize().unwrap();
    let others: Vec<_> =
        (0..16).map(|number| base.with_extension(format!("other{number}"))).collect();
    for session in ["made", "adopted"] {
        if session == "adopted" {
            region.close().unwrap();
            region = open(&home).unwrap();
            notes = Notes::of(&mut region);
        }
        let mut commit = |page: usize, text: &str| {
            notes.store(&mut region, page * PAGE, text.as_bytes());
            region.commit(Durability::Power).unwrap().written
        };
        assert_eq!(commit(1, session), Written::Journal);
        let inode = base.metadata().unwrap().ino();
        let bytes = std::fs::read(&base).unwrap();
        std::fs::remove_file(&base).unwrap();
        for other in &others {
            std::fs::write(other, "").unwrap();
            assert_ne!(other.metadata().unwrap().ino(), inode, "{session}");
        }
        // Also where the file system gives no inode twice.
        let removed = format!("{} (deleted)", base.display());
        let mut open_files = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let is_removed = |path: &Path| {
            std::fs::read_link(path).is_ok_and(|target| target.as_os_str() == removed.as_str())
        };
        assert!(open_files.any(|file| is_removed(&file.path())), "{session}");
        std::fs::write(&others[0], &bytes).unwrap();
        std::fs::rename(&others[0], &base).unwrap();
        others[1..].iter().for_each(|other| std::fs::remove_file(other).unwrap());
        assert_eq!(commit(2, "two"), Written::Base, "{session}");
        assert_eq!(commit(3, "three"), Written::Journal, "{session}");
    }
    drop(region);
    lose_image(&home);
    assert_eq!(texts(&open(&home).unwrap()), ["adopted", "two", "three"]);
}

/// Another program removes or replaces files of the store while a region is open: the region's next
/// commit writes them again.
///
/// Guarantee: heap/checkpoint
#[test]
fn files_lost_in_use_are_made_anew_by_the_next_commit() {
    let replace = |path: &Path| {
        let aside = path.with_extension("aside");
        std::fs::copy(path, &aside).unwrap();
        std::fs::rename(&aside, path).unwrap();
    };
    let losses: [&dyn Fn(&Home); 5] = [
        &|home| std::fs::remove_file(home.base("words")).unwrap(),
        &|home| std::fs::remove_file(home.journal("words")).unwrap(),
        &|home| {
            std::fs::remove_file(home.base("words")).unwrap();
            std::fs::remove_file(home.journal("words")).unwrap();
        },
        &|home| replace(&home.base("words")),
        &|home| replace(&home.journal("words")),
    ];
    for (case, lose) in losses.into_iter().enumerate() {
        for stores_more in [true, false] {
            let (home, mut region, notes) = small();
            commit_texts(&mut region, &notes, &["one", "two"]);
            lose(&home);
            if stores_more {
                notes.store(&mut region, 3 * PAGE, b"three");
            }
            let written = region.commit(Durability::Power).unwrap().written;
            assert_eq!(written, Written::Base, "case {case}, {stores_more}");
            // Once, and then the journal goes on.
            assert_eq!(region.commit(Durability::Power).unwrap().written, Written::Nothing);
            notes.store(&mut region, 2 * PAGE, b"more");
            assert_eq!(region.commit(Durability::Power).unwrap().written, Written::Journal);
            drop(region);
            lose_image(&home);
            let third = if stores_more { "three" } else { "" };
            assert_eq!(texts(&open(&home).unwrap()), ["one", "more", third], "case {case}");
        }
    }
}
