//! Damaged, foreign, misplaced files: a typed error that says what to do, and not a byte changed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::noted::Notes;
use common::{DATA_OFFSET, Home, MIB, flip, key, load, make_newer, named, read, store, truncate};
use holdfast_region::{Durability, ErrorKind, FileRemedy, Opened, RegionError, Written};
use holdfast_types::Remedy;

const SLOT_BYTES: u64 = 4096;

/// Header and length: what an open that fails must not change. (Whole files are compared where it
/// matters; doing that four thousand times would only test the patience of the reader.)
fn face(path: &Path) -> (Vec<u8>, u64) {
    let file = std::fs::File::open(path).unwrap();
    let len_bytes = file.metadata().unwrap().len();
    let mut head = vec![0; len_bytes.min(2 * SLOT_BYTES) as usize];
    file.read_exact_at(&mut head, 0).unwrap();
    (head, len_bytes)
}

/// Opens for writing and reading; both must fail, alike, and change nothing.
fn open_fails(home: &Home) -> RegionError {
    let (image, base) = (home.image("words"), home.base("words"));
    let before: Vec<_> = [&image, &base].map(|path| path.exists().then(|| face(path))).into();
    let reading = home.names().open_read(&named("words")).unwrap_err();
    let error = home.names().open(&named("words"), &key()).unwrap_err();
    assert_eq!(
        std::mem::discriminant(&reading),
        std::mem::discriminant(&error),
        "{reading} / {error}"
    );
    let after: Vec<_> = [&image, &base].map(|path| path.exists().then(|| face(path))).into();
    assert!(before == after, "a failed open changed a file");
    assert!(home.leftovers().is_empty());
    error
}

fn remedy_of(error: &RegionError) -> &FileRemedy {
    match error {
        RegionError::Truncated { remedy, .. }
        | RegionError::Foreign { remedy, .. }
        | RegionError::HeaderDamaged { remedy, .. }
        | RegionError::DataDamaged { remedy, .. }
        | RegionError::BackingLost { remedy, .. } => remedy,
        other => panic!("no remedy in {other:?}"),
    }
}

/// A truncated image is refused and the whole checkpoint is the remedy.
///
/// Guarantee: heap/damaged-headers
#[test]
fn truncated_image_is_refused_in_favour_of_checkpoint() {
    let home = Home::with_text("words", b"hello");
    for len_bytes in
        [DATA_OFFSET + 4 * MIB - 1, DATA_OFFSET + 1, DATA_OFFSET, 8192, 8191, 4096, 100, 8, 3, 0]
    {
        truncate(&home.image("words"), len_bytes);
        let error = open_fails(&home);
        let RegionError::Truncated { found_bytes, needed_bytes, remedy, .. } = &error else {
            panic!("{error}")
        };
        assert_eq!(*found_bytes, len_bytes);
        assert!(*needed_bytes > len_bytes);
        assert!(
            matches!(remedy, FileRemedy::DropImage { base, .. } if *base == home.base("words"))
        );
        let remedy = Remedy::RemoveImage { heap: Some("words") };
        assert!(error.to_string().contains(&remedy.to_string()), "{error}");
        assert_eq!(error.kind(), ErrorKind::BadFile);
    }
    home.names().remove_image(&named("words"), &key()).unwrap();
    let region = home.names().open(&named("words"), &key()).unwrap();
    assert_eq!((region.opened(), read(&region, 0, 5)), (Opened::Cold, b"hello".to_vec()));
}

/// A header slot damaged in any byte costs nothing as long as the other is whole.
#[test]
fn one_damaged_header_slot_costs_nothing() {
    let home = Home::with_text("words", b"hello");
    let image = std::fs::read(home.image("words")).unwrap();
    let file = OpenOptions::new().write(true).open(home.image("words")).unwrap();
    let names = home.names();
    for position in 0..2 * SLOT_BYTES {
        flip(&home.image("words"), position);
        let region = names.open(&named("words"), &key()).unwrap();
        // Which slot was newer cannot be known any more, so the region counts as dirty.
        assert_eq!(region.opened(), Opened::WarmAfterCrash, "byte {position}");
        assert!(region.is_dirty());
        drop(region);
        file.write_all_at(&image[..2 * SLOT_BYTES as usize], 0).unwrap();
    }
    let region = names.open(&named("words"), &key()).unwrap();
    assert_eq!((region.opened(), read(&region, 0, 5)), (Opened::Warm, b"hello".to_vec()));
}

/// Both header slots damaged in the same byte give an error for every byte.
///
/// Guarantee: heap/damaged-headers
#[test]
fn two_damaged_header_slots_are_an_error() {
    let home = Home::new();
    let mut region = home.names().create(&named("words"), &key(), MIB).unwrap();
    store(&mut region, 0, b"hello");
    region.close().unwrap();
    for position in 0..SLOT_BYTES {
        for slot in 0..2 {
            flip(&home.image("words"), slot * SLOT_BYTES + position);
        }
        let error = open_fails(&home);
        match error {
            RegionError::Foreign { ref remedy, .. }
            | RegionError::HeaderDamaged { ref remedy, .. } => {
                assert!(matches!(remedy, FileRemedy::DropImage { .. }));
                assert_eq!(
                    matches!(error, RegionError::Foreign { .. }),
                    position < 8,
                    "byte {position}"
                );
            }
            RegionError::NewerFormat { .. } => {
                assert!((8..12).contains(&position), "byte {position}")
            }
            other => panic!("byte {position}: {other}"),
        }
        for slot in 0..2 {
            flip(&home.image("words"), slot * SLOT_BYTES + position);
        }
    }
    assert_eq!(home.names().open(&named("words"), &key()).unwrap().opened(), Opened::Warm);
}

/// Growth survives the loss of the header slot that tells of it.
#[test]
fn growth_survives_the_loss_of_its_header_slot() {
    let home = Home::with_text("words", b"hello");
    let mut region = home.names().open(&named("words"), &key()).unwrap();
    region.grow(8 * MIB).unwrap();
    store(&mut region, 7 << 20, b"grown");
    drop(region);
    // The newest header is in one of the slots; whichever is damaged, nothing may be lost.
    for slot in 0..2 {
        flip(&home.image("words"), slot * SLOT_BYTES + 60);
        let region = home.names().open(&named("words"), &key()).unwrap();
        assert_eq!(region.backed_bytes(), 8 * MIB);
        assert_eq!(read(&region, 7 << 20, 5), b"grown");
        assert_eq!(region.opened(), Opened::WarmAfterCrash);
    }
}

/// A flipped bit in the data of a base file is found before it is used.
///
/// Guarantee: heap/damaged-headers
#[test]
fn flipped_base_bit_is_found_before_use() {
    let home = Home::with_text("words", b"hello");
    std::fs::remove_file(home.image("words")).unwrap();
    for offset in [0, 4, 4096, 2 * MIB, 4 * MIB - 1] {
        flip(&home.base("words"), DATA_OFFSET + offset);
        let error = open_fails(&home);
        assert!(
            matches!(&error, RegionError::DataDamaged { expected, found, .. } if expected != found)
        );
        assert!(
            matches!(remedy_of(&error), FileRemedy::RestoreFile { path } if *path == home.base("words"))
        );
        assert!(!home.image("words").exists(), "a bad base made an image");
        flip(&home.base("words"), DATA_OFFSET + offset);
    }
    assert_eq!(read(&home.names().open(&named("words"), &key()).unwrap(), 0, 5), b"hello");
}

#[test]
fn a_truncated_base_file_is_refused() {
    let home = Home::with_text("words", b"hello");
    std::fs::remove_file(home.image("words")).unwrap();
    for len_bytes in [DATA_OFFSET + 4 * MIB - 1, DATA_OFFSET, 8191, 0] {
        truncate(&home.base("words"), len_bytes);
        let error = open_fails(&home);
        assert!(
            matches!(error, RegionError::Truncated { found_bytes, .. } if found_bytes == len_bytes)
        );
        assert!(matches!(remedy_of(&error), FileRemedy::RestoreFile { .. }));
    }
}

/// A base file with one damaged header slot still opens.
#[test]
fn base_with_one_damaged_header_slot_opens() {
    for slot in 0..2 {
        let home = Home::with_text("words", b"hello");
        std::fs::remove_file(home.image("words")).unwrap();
        flip(&home.base("words"), slot * SLOT_BYTES + 100);
        let region = home.names().open(&named("words"), &key()).unwrap();
        assert_eq!((region.opened(), read(&region, 0, 5)), (Opened::Cold, b"hello".to_vec()));
    }
}

/// Guarantee: heap/damaged-headers
#[test]
fn a_foreign_file_is_called_foreign_and_left_alone() {
    let home = Home::with_text("words", b"hello");
    for content in [&b"#!/bin/sh\n"[..], b"HOLDFASt", &[0; 3 << 20], &[0xff; 9000]] {
        std::fs::write(home.image("words"), content).unwrap();
        let error = open_fails(&home);
        assert!(matches!(error, RegionError::Foreign { .. }), "{error}");
        assert!(std::fs::read(home.image("words")).unwrap() == content);
    }
}

/// A damaged image without a whole checkpoint does not promise one.
#[test]
fn no_checkpoint_is_promised_where_none_is_whole() {
    let home = Home::with_text("words", b"hello");
    flip(&home.base("words"), DATA_OFFSET);
    truncate(&home.image("words"), 5000);
    let error = open_fails(&home);
    assert!(
        matches!(remedy_of(&error), FileRemedy::RestoreFile { path } if *path == home.image("words"))
    );
    let refused = home.names().remove_image(&named("words"), &key()).unwrap_err();
    assert!(matches!(refused, RegionError::DataDamaged { .. }), "{refused}");
    std::fs::remove_file(home.base("words")).unwrap();
    let refused = home.names().remove_image(&named("words"), &key()).unwrap_err();
    assert!(matches!(refused, RegionError::OnlyCopy { .. }), "{refused}");
    assert!(home.image("words").exists());
}

#[test]
fn a_damaged_region_can_be_removed_by_its_owner() {
    let home = Home::with_text("words", b"hello");
    std::fs::write(home.image("words"), b"rubbish").unwrap();
    assert!(matches!(
        home.names().remove(&named("words"), &common::other_key()),
        Err(RegionError::NotOwner { .. })
    ));
    home.names().remove(&named("words"), &key()).unwrap();
    assert!(!home.image("words").exists() && !home.base("words").exists());
}

/// Guarantee: heap/damaged-headers
#[test]
fn a_file_of_a_newer_format_is_not_called_damaged() {
    let home = Home::with_text("words", b"hello");
    let file = OpenOptions::new().write(true).open(home.image("words")).unwrap();
    for slot in 0..2 {
        file.write_all_at(&2u32.to_le_bytes(), slot * SLOT_BYTES + 8).unwrap();
    }
    let error = open_fails(&home);
    assert!(matches!(error, RegionError::NewerFormat { found: 2, known: 1, .. }), "{error}");
}

/// A newer program wrote the base file or the journal beside an image that this one can use.
///
/// Guarantee: heap/old-formats
#[test]
fn newer_base_or_journal_is_never_replaced() {
    for newer in [Home::base as fn(&Home, &str) -> PathBuf, Home::journal] {
        let home = Home::with_text("words", b"hello");
        let names = home.names();
        let mut region = names.open(&named("words"), &key()).unwrap();
        let notes = Notes::of(&mut region);
        notes.store(&mut region, 0, b"later");
        assert_eq!(region.commit(Durability::Power).unwrap().written, Written::Journal);
        region.close().unwrap();
        make_newer(&newer(&home, "words"));
        let files = [home.base("words"), home.journal("words")];
        let content = || files.each_ref().map(|path| std::fs::read(path).unwrap());
        let before = content();
        let mut region = names.open(&named("words"), &key()).unwrap();
        store(&mut region, 0, b"mine!");
        let refused = [
            region.commit(Durability::Power).map(drop),
            region.close().map(drop),
            names.snapshot(&named("words"), &key(), &named("first")).map(drop),
            names.evict(&named("words")).map(drop),
        ];
        for refused in refused {
            let error = refused.unwrap_err();
            assert!(
                matches!(error, RegionError::NewerFormat { found: 2, known: 1, .. }),
                "{error}"
            );
        }
        assert!(content() == before, "a newer program's file was changed");
        assert_eq!(read(&names.open(&named("words"), &key()).unwrap(), 0, 5), b"mine!");
    }
}

/// What was put in the place of a base file, beside a good image, may be all that there is of
/// another region.
///
/// Guarantee: heap/checkpoint
#[test]
fn base_of_another_region_is_never_replaced() {
    let put: [fn(&Home); 2] = [
        |home| {
            home.names().create(&named("letters"), &key(), MIB).unwrap().close().unwrap();
            std::fs::rename(home.base("letters"), home.base("words")).unwrap();
        },
        |home| {
            let other = Home::with_text("words", b"other");
            std::fs::copy(other.base("words"), home.base("words")).unwrap();
        },
    ];
    for (case, put) in put.into_iter().enumerate() {
        let home = Home::with_text("words", b"hello");
        let names = home.names();
        put(&home);
        let before = std::fs::read(home.base("words")).unwrap();
        let mut region = names.open(&named("words"), &key()).unwrap();
        store(&mut region, 0, b"mine!");
        let refused = [
            region.commit(Durability::Power).map(drop),
            region.close().map(drop),
            names.checkpoint_unheld(&named("words")).map(drop),
            names.snapshot(&named("words"), &key(), &named("first")).map(drop),
            names.evict(&named("words")).map(drop),
        ];
        for refused in refused {
            let error = refused.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BadFile, "{error}");
            match error {
                RegionError::Renamed { name_in_header, .. } if case == 0 => {
                    assert_eq!(name_in_header, "letters")
                }
                RegionError::Clash { base, image, .. } if case == 1 => {
                    assert_eq!((base, image), (home.base("words"), home.image("words")))
                }
                other => panic!("case {case}: {other}"),
            }
        }
        assert!(std::fs::read(home.base("words")).unwrap() == before, "case {case}: it is gone");
        // As the messages say.
        std::fs::rename(home.base("words"), home.path().join("aside")).unwrap();
        let region = names.open(&named("words"), &key()).unwrap();
        assert_eq!(read(&region, 0, 5), b"mine!");
        region.close().unwrap();
        assert!(home.base("words").exists());
    }
}

/// A region whose files cannot be looked at is there: no new one takes its name.
///
/// Guarantee: heap/checkpoint
#[test]
fn region_that_cannot_be_looked_at_is_not_made_anew() {
    let home = Home::with_text("words", b"hello");
    let names = home.names();
    std::fs::remove_file(home.image("words")).unwrap();
    let (store, aside) = (home.path().join("store"), home.path().join("aside"));
    std::fs::rename(&store, &aside).unwrap();
    // A link to itself: whatever is below it cannot be looked at, by root neither.
    std::os::unix::fs::symlink("store", &store).unwrap();
    let refused = names.create(&named("words"), &key(), MIB).unwrap_err();
    assert!(matches!(refused, RegionError::AlreadyExists { .. }), "{refused}");
    let refused = names.open(&named("words"), &key()).unwrap_err();
    assert!(!matches!(refused, RegionError::NotFound { .. }), "{refused}");
    std::fs::remove_file(&store).unwrap();
    std::fs::rename(&aside, &store).unwrap();
    let region = names.open(&named("words"), &key()).unwrap();
    assert_eq!((region.opened(), read(&region, 0, 5)), (Opened::Cold, b"hello".to_vec()));
}

/// A renamed file is refused with the name that it had.
#[test]
fn renamed_file_is_refused_with_its_old_name() {
    let home = Home::with_text("letters", b"hello");
    std::fs::rename(home.image("letters"), home.image("words")).unwrap();
    let error = open_fails(&home);
    assert!(
        matches!(&error, RegionError::Renamed { name_in_header, .. } if name_in_header == "letters")
    );
    std::fs::remove_file(home.image("words")).unwrap();
    std::fs::rename(home.base("letters"), home.base("words")).unwrap();
    assert!(matches!(open_fails(&home), RegionError::Renamed { .. }));
}

/// A directory or a symbolic link in place of an image is refused.
#[test]
fn directory_or_link_as_image_is_refused() {
    let home = Home::with_text("words", b"hello");
    let elsewhere = home.pool().join("elsewhere");
    std::fs::rename(home.image("words"), &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, home.image("words")).unwrap();
    let before = std::fs::read(&elsewhere).unwrap();
    let error = home.names().open(&named("words"), &key()).unwrap_err();
    assert!(error.to_string().contains("symbolic link"), "{error}");
    assert!(std::fs::read(&elsewhere).unwrap() == before);
    std::fs::remove_file(home.image("words")).unwrap();
    std::fs::create_dir(home.image("words")).unwrap();
    let error = home.names().open(&named("words"), &key()).unwrap_err();
    assert!(matches!(error, RegionError::Place(_)), "{error}");
}

/// An image cut off while in use is noticed and never replaces the checkpoint.
#[test]
fn image_cut_off_in_use_never_replaces_checkpoint() {
    let home = Home::with_text("words", b"hello");
    let base_before = std::fs::read(home.base("words")).unwrap();
    for touch in [true, false] {
        let mut region = home.names().open(&named("words"), &key()).unwrap();
        let told = Arc::new(AtomicBool::new(false));
        let tell = told.clone();
        region.set_lost_notify(Arc::new(move || tell.store(true, Ordering::Release)));
        store(&mut region, 1 << 20, b"newest");
        truncate(&home.image("words"), DATA_OFFSET + 4096);
        if touch {
            // No SIGBUS: the page is gone, zeros stand in for it.
            assert_eq!(load(&mut region, 1 << 20, 6), [0; 6]);
            assert!(region.lost_backing());
        }
        assert_eq!(told.load(Ordering::Acquire), touch);
        let error = region.checkpoint().unwrap_err();
        assert!(matches!(error, RegionError::BackingLost { .. }), "{error}");
        assert!(matches!(remedy_of(&error), FileRemedy::DropImage { .. }));
        assert!(matches!(region.grow(8 * MIB), Err(RegionError::Poisoned { .. })));
        assert!(matches!(region.close(), Err(RegionError::Poisoned { .. })));
        assert!(std::fs::read(home.base("words")).unwrap() == base_before);
        assert!(matches!(open_fails(&home), RegionError::Truncated { .. }));
        home.names().remove_image(&named("words"), &key()).unwrap();
        assert_eq!(home.names().open(&named("words"), &key()).unwrap().opened(), Opened::Cold);
    }
}
