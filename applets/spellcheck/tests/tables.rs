//! Tables through their life: built, found again, cut off and resumed, replaced, refused, removed.

#![allow(clippy::unwrap_used, reason = "a test ends where an expectation fails")]

mod common;

use std::fs;
use std::path::Path;

use common::{Dying, TestMemory, attach, attach_portable, detach, run};
use holdfast_spellcheck::arena::{Arena, HeapArena};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use tempfile::TempDir;

const LIMIT_BYTES: u64 = 64 << 20;

/// A word list of `count` different words and a WordNet index, in a directory.
fn dictionaries(count: u32) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let list: String = (0..count).map(|number| format!("{}\n", word(number))).collect();
    fs::write(dir.path().join("list"), list).unwrap();
    fs::write(dir.path().join("index.adv"), "  1 licence\nad_hoc r 1\nonce r 2\n").unwrap();
    fs::write(dir.path().join("data.adv"), "00001 not a dictionary\n").unwrap();
    dir
}

fn word(number: u32) -> String {
    format!("word{}", number.wrapping_mul(2_654_435_761))
}

fn path(dir: &Path) -> &str {
    dir.to_str().unwrap()
}

fn text(dir: &TempDir, content: &str) -> String {
    let place = dir.path().join("sub");
    fs::create_dir_all(&place).unwrap();
    let file = place.join("text.txt");
    fs::write(&file, content).unwrap();
    file.to_str().unwrap().to_owned()
}

fn counts(dir: &TempDir, content: &str) -> String {
    let number = fs::read_dir(dir.path()).unwrap().count();
    let file = dir.path().join(format!("counts.{number}"));
    fs::write(&file, content).unwrap();
    file.to_str().unwrap().to_owned()
}

/// Tables of a portable heap are the same at another address, where they are read and added to; and
/// they find what those of a heap with pointers find.
///
/// Guarantee: programs/portable
#[test]
fn portable_tables_are_read_at_any_address() {
    let dir = dictionaries(20_000);
    let mut arena = attach_portable(TestMemory::new(LIMIT_BYTES));
    assert_eq!(run(&mut arena, &["--dict", path(dir.path())]).status, Ok(0));
    let before = detach(arena);
    let copy = before.copy();
    let bytes = before.bytes().to_vec();
    // The first copy must not be what is read.
    drop(before);
    let mut arena = attach_portable(copy);
    let mut plain = attach(TestMemory::new(LIMIT_BYTES));
    assert_eq!(run(&mut plain, &["--dict", path(dir.path())]).status, Ok(0));
    let file = text(&dir, "Once more, ad hoc, onse.");
    let (said, expected) = (run(&mut arena, &[&file]), run(&mut plain, &[&file]));
    assert_eq!((&said.status, &said.out), (&expected.status, &expected.out));
    assert!(said.out.contains("onse"), "{}", said.out);
    let memory = detach(arena);
    assert!(memory.bytes() == bytes, "reading wrote something");
    // Another dictionary beside it, at the new place.
    let more = tempfile::tempdir().unwrap();
    fs::write(more.path().join("more"), "onse\n").unwrap();
    let mut arena = attach_portable(memory);
    assert_eq!(run(&mut arena, &["--dict", path(more.path())]).status, Ok(0));
    let said = run(&mut arena, &[&file]);
    assert!(!said.out.contains("onse"), "{}", said.out);
    detach(arena);
}

/// A heap built once needs no dictionary and is not written to.
#[test]
fn built_heap_needs_no_dictionary_and_no_writes() {
    let dir = dictionaries(20_000);
    let mut arena = attach(TestMemory::new(LIMIT_BYTES));
    let built = run(&mut arena, &["--dict", path(dir.path())]);
    assert_eq!(built.status, Ok(0));

    let before = detach(arena);
    let mut arena = attach(before.copy());
    let file = text(&dir, "Once more, ad hoc, onse.");
    let said = run(&mut arena, &[&file]);
    assert_eq!(said.status, Ok(1));
    assert_eq!(said.out, format!("{file}:1:6: more\n{file}:1:20: onse -> once\n"));
    assert_eq!(said.notes, "5 words, 2 unknown, 2 dictionaries\n");
    assert_eq!(detach(arena).bytes(), before.bytes());
}

/// A summary of version three is made again, or left alone where the heap is for reading.
#[test]
fn old_summary_is_made_again_or_left_alone() {
    const MAGIC: &[u8] = b"SPELLSUM";
    let dir = dictionaries(20_000);
    let mut arena = attach(TestMemory::new(LIMIT_BYTES));
    assert_eq!(run(&mut arena, &["--dict", path(dir.path())]).status, Ok(0));
    let mut memory = detach(arena);
    let versions = |memory: &TestMemory| -> Vec<usize> {
        let found = memory.bytes().windows(MAGIC.len()).enumerate();
        found.filter(|(_, bytes)| *bytes == MAGIC).map(|(at, _)| at + MAGIC.len()).collect()
    };
    let version_at = versions(&memory)[0];
    assert_eq!(memory.bytes()[version_at], 4);
    memory.bytes_mut()[version_at] = 3;
    let file = text(&dir, "Once more, ad hoc, onse.");
    let expected = format!("{file}:1:6: more\n{file}:1:20: onse -> once\n");
    let mut arena = Dying::read_only(memory.copy());
    let said = run(&mut arena, &[&file]);
    assert_eq!((said.status, said.out), (Ok(1), expected.clone()));
    let mut arena = attach(memory);
    let said = run(&mut arena, &[&file]);
    assert_eq!((said.status, said.out), (Ok(1), expected));
    // The old one was freed.
    let memory = detach(arena);
    assert!(versions(&memory).iter().any(|at| memory.bytes()[*at] == 4));
}

/// What is suggested does not depend on whether there is a list: a run without a heap has none for a
/// few words, and makes one for many.
#[test]
fn list_and_blocks_give_the_same_suggestions() {
    let random = &mut SmallRng::seed_from_u64(3);
    let letters = ["a", "e", "i", "n", "r", "s", "t", "A", "\u{E9}", "\u{FC}", "'"];
    let mut word = |count| -> String {
        (0..count).map(|_| letters[random.random_range(0..letters.len())]).collect()
    };
    let dir = tempfile::tempdir().unwrap();
    let list: String = (0..4000).map(|number| word(3 + number % 8) + "\n").collect();
    fs::write(dir.path().join("list"), list).unwrap();
    let words: String = (0..600).map(|number| word(3 + number % 8) + " ").collect();
    let file = text(&dir, &words);
    let few = path(dir.path()).to_owned() + "/sub/few.txt";
    let first: Vec<_> = words.split_inclusive(' ').take(40).collect();
    fs::write(&few, first.concat()).unwrap();
    for (file, suggestions) in [(&file, 100), (&few, 10)] {
        let arguments = ["--dict", path(dir.path()), file];
        let kept = run(&mut attach(TestMemory::new(LIMIT_BYTES)), &arguments);
        let volatile = run(&mut Dying::volatile(TestMemory::new(LIMIT_BYTES)), &arguments);
        let found = kept.out.lines().filter(|line| line.contains("->")).count();
        assert!(found > suggestions, "{}", kept.out);
        assert_eq!(kept.out, volatile.out);
    }
}

/// Every batch is acknowledged with the number of words done so far.
#[test]
fn every_batch_is_acknowledged_with_its_progress() {
    let dir = dictionaries(2500);
    let mut arena = attach(TestMemory::new(LIMIT_BYTES));
    let said = run(&mut arena, &["--dict", path(dir.path()), "--ack", "--batch", "1000"]);
    assert!(
        said.out.starts_with("ack spellcheck/index.adv 2\nack spellcheck/list "),
        "{}",
        said.out
    );
    assert!(said.out.ends_with("ack spellcheck/list 2500\n"), "{}", said.out);

    let file = counts(&dir, &said.out);
    let verified = run(&mut arena, &["--dict", path(dir.path()), "--verify", &file]);
    assert_eq!((verified.status, verified.out.as_str()), (Ok(0), "verified 2502\n"));
}

/// A build killed at any moment keeps what was acknowledged and continues from there.
#[test]
fn killed_build_resumes_from_its_last_batch() {
    let dir = dictionaries(6000);
    let arguments = ["--dict", path(dir.path()), "--ack", "--batch", "300"];
    let everything = counts(&dir, "spellcheck/list 6000\nspellcheck/index.adv 2\n");
    let whole = run(&mut attach(TestMemory::new(LIMIT_BYTES)), &arguments).out;
    let mut kills = 0;
    for kill_at in (0..24).chain((24..).step_by(191)) {
        let Some((memory, acknowledged)) =
            Dying::run(TestMemory::new(LIMIT_BYTES), kill_at, &arguments)
        else {
            break;
        };
        kills += 1;
        let mut arena = attach(memory);
        let done = counts(&dir, &acknowledged);
        let verified = run(&mut arena, &["--dict", path(dir.path()), "--verify", &done]);
        assert_eq!(verified.status, Ok(0), "kill at {kill_at}: {}", verified.out);

        let resumed = run(&mut arena, &arguments);
        assert_eq!(resumed.status, Ok(0), "kill at {kill_at}");
        let again = acknowledged
            .lines()
            .filter(|line| resumed.out.lines().any(|other| other == *line))
            .count();
        assert_eq!(again, 0, "kill at {kill_at}: batches were done twice");
        assert!(whole.starts_with(&acknowledged), "kill at {kill_at}");
        let verified = run(&mut arena, &["--dict", path(dir.path()), "--verify", &everything]);
        assert_eq!(
            (verified.status, verified.out.as_str()),
            (Ok(0), "verified 6002\n"),
            "kill at {kill_at}"
        );
        detach(arena);
    }
    assert!(kills > 40, "{kills}");
}

#[test]
fn a_rebuild_that_is_killed_anywhere_is_made_good() {
    let dir = dictionaries(3000);
    let arguments = ["--dict", path(dir.path())];
    let mut arena = attach(TestMemory::new(LIMIT_BYTES));
    assert_eq!(run(&mut arena, &arguments).status, Ok(0));
    let old = detach(arena);
    let list: String = (3000..5000).map(|number| format!("{}\n", word(number))).collect();
    fs::write(dir.path().join("list"), list).unwrap();
    let everything = counts(&dir, "spellcheck/list 2000\nspellcheck/index.adv 2\n");
    for kill_at in (0..16).chain((16..).step_by(397)) {
        let Some((memory, _)) = Dying::run(old.copy(), kill_at, &arguments) else { break };
        let mut arena = attach(memory);
        assert_eq!(run(&mut arena, &arguments).status, Ok(0), "kill at {kill_at}");
        let verified = run(&mut arena, &["--dict", path(dir.path()), "--verify", &everything]);
        assert_eq!(
            (verified.status, verified.out.as_str()),
            (Ok(0), "verified 2002\n"),
            "kill at {kill_at}"
        );
        let file = text(&dir, &word(1).replace(|it: char| it.is_ascii_digit(), ""));
        assert_eq!(run(&mut arena, &[&file]).status, Ok(1), "the old words are gone");
        detach(arena);
    }
}

/// The letters of a number: texts with digits are not checked.
fn spelled(number: u32) -> String {
    number.to_string().bytes().map(|digit| char::from(digit - b'0' + b'a')).collect()
}

/// The summary matches the tables after changes and kills.
#[test]
fn summary_matches_the_tables_after_kills() {
    let dir = dictionaries(10);
    let lines =
        |range: std::ops::Range<u32>| range.map(|it| spelled(it) + "\n").collect::<String>();
    let list = dir.path().join("list");
    let arguments = ["--dict", path(dir.path())];
    fs::write(&list, lines(10_000..12_000)).unwrap();
    let mut arena = attach(TestMemory::new(LIMIT_BYTES));
    assert_eq!(run(&mut arena, &arguments).status, Ok(0));
    let (old, new) = (text(&dir, &lines(10_000..10_020)), dir.path().join("sub/new.txt"));
    fs::write(&new, lines(20_000..23_000)).unwrap();
    assert_eq!(run(&mut arena, &[&old]).status, Ok(0));
    let before = detach(arena);

    fs::write(&list, lines(20_000..23_000)).unwrap();
    let mut kills = 0;
    for kill_at in (0..40).chain((40..).step_by(311)) {
        let Some((memory, _)) = Dying::run(before.copy(), kill_at, &arguments) else { break };
        kills += 1;
        let mut arena = attach(memory);
        assert_eq!(run(&mut arena, &arguments).status, Ok(0), "kill at {kill_at}");
        assert!(arena.root("spellcheck-summary").is_some(), "kill at {kill_at}");
        assert_eq!(run(&mut arena, &[path(&new)]).status, Ok(0), "kill at {kill_at}");
        let said = run(&mut arena, &[&old]);
        assert!(
            said.notes.starts_with("20 words, 20 unknown"),
            "kill at {kill_at}: {}",
            said.notes
        );
        assert_eq!(run(&mut arena, &["--forget", "list"]).status, Ok(0));
        assert!(arena.root("spellcheck-summary").is_none());
        detach(arena);
    }
    assert!(kills > 20, "{kills}");
}

#[test]
fn rebuilding_and_forgetting_give_every_byte_back() {
    let dir = dictionaries(30_000);
    let mut arena = attach(TestMemory::new(LIMIT_BYTES));
    let list = dir.path().join("list");
    let mut used = Vec::new();
    for round in 0..4 {
        fs::write(&list, fs::read_to_string(&list).unwrap() + &format!("more{round}\n")).unwrap();
        assert_eq!(run(&mut arena, &["--dict", path(dir.path())]).status, Ok(0));
        used.push(arena.heap().usage().chunk_bytes);
    }
    // The roots' own slabs may have been there or not at the first time.
    assert!(used[3] <= used[1], "{used:?}");
    for root in ["list", "spellcheck/index.adv"] {
        let said = run(&mut arena, &["--forget", root]);
        assert_eq!(said.status, Ok(0));
        assert!(said.notes.starts_with("removed spellcheck/"), "{}", said.notes);
    }
    // The allocator keeps its table, its log and one empty slab of each size class that was in use.
    let kept_bytes = arena.heap().usage().chunk_bytes;
    assert!(kept_bytes <= 9 << 16, "{kept_bytes}");
    let said = run(&mut arena, &["--forget", "list"]);
    assert!(said.status.unwrap_err().contains("it has: none"));
    detach(arena);
}

/// Without tables and dictionaries, the error says which option to give.
#[test]
fn missing_tables_and_dictionaries_give_advice() {
    let dir = dictionaries(10);
    let file = text(&dir, "word");
    let error = run(&mut attach(TestMemory::new(LIMIT_BYTES)), &[&file]).status.unwrap_err();
    assert!(error.contains("--dict DIR"), "{error}");
}

/// An unfinished table is not used as the complete dictionary.
#[test]
fn unfinished_table_is_not_used_as_complete() {
    let dir = dictionaries(6000);
    let arguments = ["--dict", path(dir.path()), "--batch", "300"];
    let (memory, _) = Dying::run(TestMemory::new(LIMIT_BYTES), 3000, &arguments).unwrap();
    let file = text(&dir, "word");
    let error = run(&mut attach(memory), &[&file]).status.unwrap_err();
    assert!(
        error.contains("spellcheck/list was cut off at byte") && error.contains("--dict"),
        "{error}"
    );
}

/// A root of the same name with other content is refused by name and can be forgotten.
#[test]
fn foreign_root_is_refused_and_can_be_forgotten() {
    let dir = dictionaries(100);
    let arguments = ["--dict", path(dir.path())];
    let mut arena = attach(TestMemory::new(LIMIT_BYTES));
    for bytes in [16, 72] {
        arena.create_root("spellcheck/list", bytes).unwrap();
        let error = run(&mut arena, &arguments).status.unwrap_err();
        assert!(
            error.contains("spellcheck/list") && error.contains("--forget spellcheck/list"),
            "{error}"
        );
        assert_eq!(run(&mut arena, &["--forget", "list"]).status, Ok(0));
    }
    assert_eq!(run(&mut arena, &arguments).status, Ok(0));
}

/// A table of another layout is refused, and the error names both versions.
#[test]
fn table_of_another_layout_is_refused() {
    let dir = dictionaries(100);
    let arguments = ["--dict", path(dir.path())];
    let mut arena = attach(TestMemory::new(LIMIT_BYTES));
    assert_eq!(run(&mut arena, &arguments).status, Ok(0));
    overwrite_layout_version(&mut arena, 7);
    let error = run(&mut arena, &arguments).status.unwrap_err();
    assert!(error.contains("a table of layout 7, not a table of layout 3"), "{error}");
}

fn overwrite_layout_version(arena: &mut HeapArena<TestMemory>, version: u32) {
    let header = arena.heap().root("spellcheck/list").unwrap().pointer;
    // SAFETY: the layout version stands behind the eight bytes of the magic; nothing else refers to
    // it now.
    unsafe { header.add(8).cast::<u32>().write(version) };
}

/// A heap without room keeps what was committed, and the error says what to do.
#[test]
fn full_heap_keeps_commits_and_gives_advice() {
    let dir = dictionaries(120_000);
    let arguments = ["--dict", path(dir.path()), "--ack"];
    let mut arena = attach(TestMemory::new(1 << 20));
    let said = run(&mut arena, &arguments);
    assert!(said.status.unwrap_err().contains("raise its limit"));
    let done = counts(&dir, &said.out);
    assert_eq!(run(&mut arena, &["--dict", path(dir.path()), "--verify", &done]).status, Ok(0));
    detach(arena);
}

#[test]
fn verification_notices_a_word_that_is_missing() {
    let dir = dictionaries(100);
    let mut arena = attach(TestMemory::new(LIMIT_BYTES));
    assert_eq!(run(&mut arena, &["--dict", path(dir.path())]).status, Ok(0));
    let list = fs::read_to_string(dir.path().join("list")).unwrap();
    fs::write(dir.path().join("list"), format!("intruder\n{list}")).unwrap();
    let done = counts(&dir, "spellcheck/list 5\n");
    let said = run(&mut arena, &["--dict", path(dir.path()), "--verify", &done]);
    assert_eq!((said.status, said.out.as_str()), (Ok(1), "missing spellcheck/list intruder\n"));
}

#[test]
fn two_dictionaries_of_one_name_are_refused() {
    let (one, other) = (dictionaries(10), dictionaries(10));
    let arguments = ["--dict", path(one.path()), "--dict", path(other.path())];
    let error = run(&mut attach(TestMemory::new(LIMIT_BYTES)), &arguments).status.unwrap_err();
    assert!(error.contains("two dictionaries named index.adv"), "{error}");
}

#[test]
fn the_lookup_benchmark_prints_one_line() {
    let dir = dictionaries(1000);
    let mut arena = attach(TestMemory::new(LIMIT_BYTES));
    let file = text(&dir, "once twice ad once");
    let said = run(&mut arena, &["--dict", path(dir.path()), "--bench-lookups", "1000", &file]);
    let value =
        said.out.strip_prefix("lookup_ns ").and_then(|rest| rest.trim_end().parse::<f64>().ok());
    assert!(value.is_some_and(|ns| ns > 0.0), "{}", said.out);
}
