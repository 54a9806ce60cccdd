//! `heap repair` at the command line: for every kind of damage that the other tests do, the heap is
//! whole afterwards and has both entries, or the files are as they were and the message says what
//! to do.

use std::fs;
use std::path::PathBuf;

use holdfast_region::{OwnerKey, RegionName};
use holdfast_testkit::Scratch;

use crate::guestbook::{assert_both_entries, key_file, with_two_entries};
use crate::{Finished, succeed, tell};

/// Where the applet's data starts in an image.
const DATA_OFFSET: usize = 2 << 20;

fn repair(scratch: &Scratch, more: &[&str]) -> Finished {
    tell(scratch.holdfast().args(["heap", "repair", "book"]).args(more))
}

fn change(path: PathBuf, damage: impl Fn(&mut Vec<u8>)) {
    let mut bytes = fs::read(&path).unwrap();
    damage(&mut bytes);
    fs::write(&path, bytes).unwrap();
}

fn files(scratch: &Scratch) -> [Vec<u8>; 2] {
    [scratch.image("book"), scratch.base("book")].map(|path| fs::read(path).unwrap())
}

fn assert_mended(scratch: &Scratch, words: &[&str]) {
    let told = repair(scratch, &[]);
    assert_eq!(told.status, 0, "{}{}", told.out, told.err);
    for word in words.iter().chain(&["mended: ", "its files as they were are in "]) {
        assert!(told.out.contains(word), "no {word:?} in: {}", told.out);
    }
    assert_both_entries(scratch);
    assert!(repair(scratch, &[]).out.contains("nothing to repair"));
    succeed(scratch.holdfast().args(["heap", "rm", "--image", "book"]));
    assert_both_entries(scratch);
}

fn assert_refused(scratch: &Scratch, words: &[&str]) {
    let before = files(scratch);
    let told = repair(scratch, &[]);
    assert_eq!(told.status, 5, "{}{}", told.out, told.err);
    for word in words.iter().chain(&["heap salvage", "was not changed"]) {
        assert!(
            told.err.contains(word) || told.out.contains(word),
            "no {word:?} in: {}{}",
            told.out,
            told.err
        );
    }
    assert!(files(scratch) == before, "a refused repair changed a file");
}

#[test]
fn lost_headers_are_written_anew() {
    for slots in [&[100][..], &[4196], &[100, 4196]] {
        let scratch = with_two_entries();
        change(scratch.image("book"), |image| slots.iter().for_each(|at| image[*at] ^= 1));
        assert_mended(&scratch, &["book.image", "header"]);
    }
}

/// Damages the data of a base file, which is packed: its last bytes are data.
fn flip_data(base: &mut [u8]) {
    assert!(base.len() < DATA_OFFSET);
    let last = base.len() - 1;
    base[last] ^= 1;
}

/// A heap that lost a redundant copy is sound, and the check says what is lost.
///
/// Guarantee: heap/check
#[test]
fn heap_without_its_second_copy_is_sound() {
    type Damage = (fn(&Scratch) -> PathBuf, fn(&mut Vec<u8>), &'static str);
    let damages: [Damage; 3] = [
        (
            |scratch| scratch.image("book"),
            |image| image[100] ^= 1,
            "one of its two headers is damaged",
        ),
        (
            |scratch| scratch.base("book"),
            |base| base[4196] ^= 1,
            "one of its two headers is damaged",
        ),
        (|scratch| scratch.base("book"), |base| flip_data(base), "the data of"),
    ];
    for (path, damage, words) in damages {
        let scratch = with_two_entries();
        let check =
            |more: &[&str]| succeed(scratch.holdfast().args(["heap", "check", "book"]).args(more));
        assert!(!check(&[]).contains("redundancy"));
        change(path(&scratch), damage);
        let said = check(&[]);
        assert!(
            said.starts_with("book: sound: ")
                && said.contains("lost redundancy")
                && said.contains(words),
            "{said}"
        );
        let json: serde_json::Value = serde_json::from_str(&check(&["--json"])).unwrap();
        assert_eq!(json[0]["sound"], true);
        assert_eq!(json[0]["lost_redundancy"][0]["path"], path(&scratch).to_str().unwrap());
        assert_eq!(repair(&scratch, &[]).status, 0);
        assert!(!check(&[]).contains("redundancy"));
    }
}

#[test]
fn a_damaged_checkpoint_is_replaced() {
    let damages: [fn(&mut Vec<u8>); 4] = [
        |base| base[100] ^= 1,
        |base| [100, 4196].into_iter().for_each(|at| base[at] ^= 1),
        |base| flip_data(base),
        |base| base.truncate(base.len() - 9),
    ];
    for damage in damages {
        let scratch = with_two_entries();
        change(scratch.base("book"), damage);
        assert_mended(&scratch, &["book.base", "new checkpoint"]);
    }
}

/// Repair restores flipped bits in the tables of the allocator.
#[test]
fn repair_restores_flipped_allocator_bits() {
    let places = [0, 3, 8, 64, 72, 80, 100, 104, 144, 1024, 2048, 2049];
    for at in places {
        let scratch = with_two_entries();
        change(scratch.image("book"), |image| image[DATA_OFFSET + at] ^= 0x10);
        assert_ne!(tell(scratch.holdfast().args(["heap", "check", "book"])).status, 0, "byte {at}");
        assert_mended(&scratch, &[]);
    }
}

/// The check plans the repair: where that loses nothing, going back to the last checkpoint, which
/// loses what was stored since, is not even named.
///
/// Guarantee: heap/check
#[test]
fn check_proposes_the_repair_that_loses_nothing() {
    type Damage = (fn(&mut Vec<u8>), &'static str);
    let damages: [Damage; 4] = [
        (|image| image[DATA_OFFSET + 2048] ^= 0x10, "contradiction"),
        // The superblock: the heap cannot be opened at all.
        (|image| image[DATA_OFFSET + 80] ^= 0x10, "the heap"),
        // Both headers: the image cannot be read at all.
        (|image| [100, 4196].into_iter().for_each(|at| image[at] ^= 1), "header"),
        (|image| image[DATA_OFFSET + 100] ^= 1, ""),
    ];
    for (damage, what) in damages {
        let scratch = with_two_entries();
        change(scratch.image("book"), damage);
        let before = files(&scratch);
        let told = tell(scratch.holdfast().args(["heap", "check", "book"]));
        assert_ne!(told.status, 0);
        let said = told.out + &told.err;
        let proposal = said.find("`holdfast heap repair book` mends it, and nothing is lost");
        let proposal = proposal.unwrap_or_else(|| panic!("no proposal in: {said}"));
        let back = said.find("rm --image").unwrap_or(usize::MAX);
        assert!(said.contains(what) && proposal < back, "{said}");
        assert!(files(&scratch) == before, "the check changed a file");
        assert_eq!(repair(&scratch, &[]).status, 0);
        assert_both_entries(&scratch);
    }
}

/// Guarantee: heap/check
#[test]
fn check_says_where_a_repair_would_lose_something() {
    let scratch = with_two_entries();
    change(scratch.image("book"), |image| image[DATA_OFFSET + 2048..][..8].fill(0xA5));
    let told = tell(scratch.holdfast().args(["heap", "check", "book"]));
    assert!(
        told.out.contains("lists what a repair would lose") && told.out.contains("rm --image"),
        "{}",
        told.out
    );
    let json = tell(scratch.holdfast().args(["heap", "check", "book", "--json"]));
    let json: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(json[0]["repair"], "loses");
    // Without the owner's key nothing can be planned.
    fs::remove_file(key_file(&scratch)).unwrap();
    let told = tell(scratch.holdfast().args(["heap", "check", "book"]));
    assert!(told.out.contains("--key KEY"), "{}", told.out);
}

/// Every heap has a row and counts for the exit code: damage before a heap that is in use, and a file
/// that cannot be read before all else.
///
/// Guarantee: heap/check
#[test]
fn check_counts_heaps_that_cannot_be_read() {
    let scratch = with_two_entries();
    for copy in ["lost", "whole"] {
        succeed(scratch.holdfast().args(["heap", "cp", "book", copy]));
    }
    change(scratch.image("book"), |image| image[DATA_OFFSET + 2048] ^= 0x10);
    change(scratch.base("lost"), |base| [100, 4196].into_iter().for_each(|at| base[at] ^= 1));
    let (names, busy) = (scratch.names().unwrap(), RegionName::parse("busy").unwrap());
    let _held = names.create(&busy, &OwnerKey::from_bytes([7; 32]), 8 << 20).unwrap();
    let check = |words: &[&str]| {
        let told = tell(scratch.holdfast().args(["heap", "check", "--json"]).args(words));
        let rows: serde_json::Value = serde_json::from_str(&told.out)
            .unwrap_or_else(|error| panic!("{words:?}: {error}: {}{}", told.out, told.err));
        (told.status, rows)
    };
    for words in [&["book", "busy", "lost", "whole"][..], &["--all"]] {
        let (status, rows) = check(words);
        let row = |row: &serde_json::Value| {
            let text = |field: &str| row[field].as_str().map(str::to_owned);
            (text("name"), text("state"), row["sound"].as_bool(), text("error").is_some())
        };
        let found: Vec<_> = rows.as_array().unwrap().iter().map(row).collect();
        let expected = [
            ("book", "damaged", Some(false), false),
            ("busy", "held", None, true),
            ("lost", "bad-file", Some(false), true),
            ("whole", "sound", Some(true), false),
        ]
        .map(|(name, state, sound, has_error)| {
            (Some(name.to_owned()), Some(state.to_owned()), sound, has_error)
        });
        assert_eq!(found, expected, "{words:?}: {rows}");
        assert_eq!(status, 5, "{words:?}");
    }
    let cases: [(&[&str], i32); 10] = [
        (&["whole"], 0),
        (&["busy"], 4),
        (&["bok"], 3),
        (&["lost"], 5),
        (&["whole", "busy"], 4),
        (&["bok", "busy"], 3),
        (&["book", "busy"], 1),
        (&["busy", "book"], 1),
        (&["bok", "book"], 1),
        (&["lost", "book"], 5),
    ];
    for (words, expected) in cases {
        let (status, rows) = check(words);
        let count = rows.as_array().unwrap().len();
        assert_eq!((status, count), (expected, words.len()), "{words:?}: {rows}");
    }
}

/// Damage that cannot be repaired with certainty is refused until the loss is accepted.
#[test]
fn uncertain_repair_needs_accepted_loss() {
    let scratch = with_two_entries();
    // The descriptor of the first slab, by more than one bit.
    change(scratch.image("book"), |image| image[DATA_OFFSET + 2048..][..8].fill(0xA5));
    assert_refused(&scratch, &["NOT mended", "no valid head"]);
    let told = repair(&scratch, &["--accept-loss", "--json"]);
    assert_eq!(told.status, 0, "{}{}", told.out, told.err);
    let told: serde_json::Value = serde_json::from_str(&told.out).unwrap();
    assert!(told["findings"][0]["lost"].as_str().unwrap().contains("64 KiB"), "{told}");
    succeed(scratch.holdfast().args(["heap", "check", "book"]));
    let copies = PathBuf::from(told["copies"].as_str().unwrap());
    let salvage = tell(scratch.holdfast().args(["heap", "salvage"]).arg(copies.join("book.image")));
    assert!(salvage.out.contains("guestbook"), "{}", salvage.out);
}

/// An unreadable image is replaced only when its loss is accepted.
#[test]
fn unreadable_image_is_dropped_on_accepted_loss() {
    let damages: [fn(&mut Vec<u8>); 2] = [
        |image| image.truncate(DATA_OFFSET + (1 << 20)),
        |image| *image = b"Dear diary, today".repeat(1000),
    ];
    for damage in damages {
        let scratch = with_two_entries();
        change(scratch.image("book"), damage);
        assert_refused(&scratch, &["LOST: what was stored since the last commit", "--accept-loss"]);
        assert_eq!(repair(&scratch, &["--accept-loss"]).status, 0);
        assert_both_entries(&scratch);
    }
}

/// Repair distinguishes a heap without damage, a missing heap and one beyond repair.
#[test]
fn repair_distinguishes_sound_missing_and_hopeless() {
    let scratch = with_two_entries();
    let before = files(&scratch);
    assert!(repair(&scratch, &[]).out.contains("nothing to repair"));
    assert!(files(&scratch) == before);
    succeed(scratch.holdfast().args(["heap", "cp", "book", "theirs", "--key", "stranger"]));
    assert_eq!(repair(&scratch, &["--key", "stranger"]).status, 8);
    let missing = tell(scratch.holdfast().args(["heap", "repair", "bok"]));
    assert_eq!((missing.status, missing.err.contains("book")), (3, true), "{}", missing.err);
    for path in [scratch.image("book"), scratch.base("book")] {
        change(path, |bytes| [100, 4196].into_iter().for_each(|at| bytes[at] ^= 1));
    }
    let before = files(&scratch);
    let told = repair(&scratch, &["--accept-loss"]);
    assert_eq!((told.status, told.err.contains("heap salvage")), (5, true), "{}", told.err);
    assert!(files(&scratch) == before);
}
