//! The main job: a spell checker whose dictionaries are in its heap.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use holdfast_testkit::{Scratch, Spellcheck};

use crate::{scratch, succeed, tell};

const TEXT: &str =
    "It was a darkk and stormy night;\nthe rain fell in torents, onomatopoeia notwithstanding.\n";

fn job<'a>(scratch: &'a Scratch, text: &Path) -> Spellcheck<'a> {
    Spellcheck::new(scratch, text).unwrap()
}

/// The report on a text with two misspelled words.
fn assert_report(report: &str) {
    for word in ["darkk", "torents"] {
        assert!(report.contains(word), "{word} is missing: {report}");
    }
    for word in ["stormy", "onomatopoeia", "notwithstanding"] {
        assert!(!report.contains(word), "{word} is in a dictionary: {report}");
    }
    assert!(report.contains("1:10") && report.contains("2:18"), "lines and columns: {report}");
    assert!(report.contains("dark") && report.contains("torrents"), "suggestions: {report}");
}

/// Cold run, warm run and plain parsing give the same answer, and a warm run writes nothing.
#[test]
fn warm_run_gives_the_same_answer_without_writes() {
    let scratch = scratch();
    let text = scratch.write("text", TEXT).unwrap();
    let job = job(&scratch, &text);
    let cold = tell(&mut job.building("words", &[]));
    assert_eq!(cold.status, 1, "some words are unknown: {}", cold.err);
    assert_report(&cold.out);
    let stored = fs::metadata(scratch.base("words")).unwrap().modified().unwrap();
    let image = fs::read(scratch.image("words")).unwrap();
    let warm = tell(&mut job.warm("words", &[]));
    assert_eq!((warm.status, &warm.out), (cold.status, &cold.out), "{}", warm.err);
    assert_eq!(
        fs::metadata(scratch.base("words")).unwrap().modified().unwrap(),
        stored,
        "a checkpoint was made"
    );
    // The two headers before the data say that it was open and closed; the data must be the same.
    assert!(
        fs::read(scratch.image("words")).unwrap()[2 << 20..] == image[2 << 20..],
        "the data changed"
    );
    let old_way = tell(&mut job.old_way(&[]));
    assert_eq!((old_way.status, &old_way.out), (cold.status, &cold.out), "{}", old_way.err);
}

#[test]
fn a_text_without_unknown_words_ends_with_status_zero() {
    let scratch = scratch();
    let text = scratch.write("text", "It was a dark and stormy night.\n").unwrap();
    succeed(&mut job(&scratch, &text).old_way(&[]));
}

#[test]
fn a_build_that_was_killed_goes_on_where_it_was() {
    let scratch = scratch();
    let text = scratch.write("text", TEXT).unwrap();
    let job = job(&scratch, &text);
    let mut building = job.building("words", &["--ack", "--batch", "64"]);
    let mut killed = building.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(killed.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut done = BTreeMap::new();
    for line in lines.take(20) {
        let (table, words) = acknowledged(&line).unwrap();
        done.insert(table.to_owned(), words);
    }
    killed.kill().unwrap();
    killed.wait().unwrap();
    succeed(scratch.holdfast().args(["heap", "check", "words"]));
    let resumed = tell(&mut job.building("words", &["--ack", "--batch", "64"]));
    for (table, words) in resumed.out.lines().filter_map(acknowledged) {
        let before = done.get(table).copied().unwrap_or(0);
        assert!(words > before, "{table} went back from {before} to {words}");
    }
    let report: Vec<&str> =
        resumed.out.lines().filter(|line| acknowledged(line).is_none()).collect();
    assert_report(&report.join("\n"));
}

/// Table and words of an acknowledgement.
fn acknowledged(line: &str) -> Option<(&str, u64)> {
    let (table, words) = line.strip_prefix("ack ")?.split_once(' ')?;
    Some((table, words.parse().ok()?))
}

/// The tables come back from the store when the pool is gone.
#[test]
fn tables_return_from_the_store_without_the_pool() {
    let scratch = scratch();
    let text = scratch.write("text", TEXT).unwrap();
    let job = job(&scratch, &text);
    let cold = tell(&mut job.building("words", &[]));
    // As after a reboot.
    fs::remove_dir_all(scratch.pool()).unwrap();
    let listed = succeed(scratch.holdfast().args(["heap", "ls", "--json"]));
    let heaps: serde_json::Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(heaps[0]["state"], "cold", "{listed}");
    let back = tell(&mut job.warm("words", &[]));
    assert_eq!((back.status, back.out), (cold.status, cold.out), "{}", back.err);
}

#[test]
fn tools_speak_json_about_a_heap() {
    let scratch = scratch();
    let text = scratch.write("text", TEXT).unwrap();
    tell(&mut job(&scratch, &text).building("words", &[]));
    for arguments in [
        &["heap", "ls", "--json"][..],
        &["heap", "show", "words", "--json"],
        &["heap", "check", "words", "--json"],
        &["heap", "checkpoint", "words", "--json"],
        &["doctor", "--json"],
    ] {
        let printed = succeed(scratch.holdfast().args(arguments));
        let parsed: serde_json::Value = serde_json::from_str(&printed).unwrap();
        assert!(parsed.is_object() || parsed.is_array(), "{printed}");
    }
}

#[test]
fn an_applet_without_a_heap_says_so() {
    let scratch = scratch();
    let applet = scratch.programs().applet("spellcheck").unwrap();
    let told = tell(scratch.holdfast().arg("run").arg(applet).args(["--", "text"]));
    assert_eq!(told.status, 2, "{}", told.err);
    assert!(told.err.contains("--heap") || told.err.contains("--volatile"), "{}", told.err);
}
