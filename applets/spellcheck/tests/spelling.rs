//! From a text to its report.

#![allow(clippy::unwrap_used, reason = "a test ends where an expectation fails")]

mod common;

use std::fs;

use common::{TestMemory, attach, run};
use holdfast_heap::Backing;
use holdfast_spellcheck::arena::HeapArena;

const TEXTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/texts");

fn built(lists: &[(&str, &str)]) -> (HeapArena<TestMemory>, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    for (name, content) in lists {
        fs::write(dir.path().join(name), content).unwrap();
    }
    let mut arena = attach(TestMemory::new(64 << 20));
    assert_eq!(run(&mut arena, &["--dict", dir.path().to_str().unwrap()]).status, Ok(0));
    (arena, dir)
}

/// The words of `text` that are reported, each with its suggestion.
fn reported<B: Backing>(
    arena: &mut HeapArena<B>,
    dir: &tempfile::TempDir,
    text: &str,
) -> Vec<String> {
    let file = dir.path().join("text.txt");
    fs::write(&file, text).unwrap();
    let said = run(arena, &[file.to_str().unwrap()]);
    said.out
        .lines()
        .map(|line| line.splitn(4, ':').nth(3).unwrap().trim_start().to_owned())
        .collect()
}

#[test]
fn a_letter_is_reported_as_expected() {
    let mut arena = attach(TestMemory::new(64 << 20));
    assert_eq!(run(&mut arena, &["--dict", &format!("{TEXTS}/words")]).status, Ok(0));
    let said = run(&mut arena, &[&format!("{TEXTS}/letter.txt")]);
    let expected = fs::read_to_string(format!("{TEXTS}/letter.expected")).unwrap();
    assert_eq!(said.out.replace(&format!("{TEXTS}/"), ""), expected);
    assert_eq!(said.status, Ok(1));
    let lines = expected.lines().count();
    assert!(
        said.notes.ends_with(&format!(" words, {lines} unknown, 5 dictionaries\n")),
        "{}",
        said.notes
    );
}

/// Capitals, possessives and compounds of known words are correct.
#[test]
fn forms_and_compounds_of_known_words_are_right() {
    let (mut arena, dir) =
        built(&[("list", "applet\nwell\nknown\nLondon\nmother-in-law\ndon't\nÜber\n")]);
    let right = "Applet APPLET applet's LONDON London’s well-known Well-Known mother-in-law's DON’T ÜBER \
                 version2 x86-well a GPL3 well\u{AD}known-applets";
    assert_eq!(
        reported(&mut arena, &dir, right),
        ["well\u{AD}known -> well known", "applets -> applet"]
    );
    assert_eq!(
        reported(&mut arena, &dir, "london lodnon well-knwon"),
        ["london -> London", "lodnon -> London", "knwon -> known"]
    );
}

/// The words of a collocation are correct only next to each other.
#[test]
fn collocation_words_are_right_only_together() {
    let (mut arena, dir) =
        built(&[("list", "in\nthe\n"), ("index.adv", "in_vitro r 1\nen_plein_air r 1\n")]);
    assert_eq!(reported(&mut arena, &dir, "in\n  vitro, En plein air"), [""; 0]);
    assert_eq!(reported(&mut arena, &dir, "in, vitro the plein"), ["vitro", "plein"]);
}

/// The same word, of which one place is in company and others are not, in any order.
#[test]
fn company_counts_at_each_place() {
    let (mut arena, dir) = built(&[("list", "in\nthe\n"), ("index.adv", "in_vitro r 1\n")]);
    let text = "in vitro the vitro in vitro vitro, vitro's in\nvitro in-vitro";
    assert_eq!(reported(&mut arena, &dir, text), ["vitro", "vitro", "vitro's", "vitro"]);
}

/// A text with more different words than the checker remembers, twice: it finds each of them, and
/// calls none by another's name.
#[test]
fn forgotten_words_are_found_again() {
    let (mut arena, dir) = built(&[("list", "the\n")]);
    let word = |number: u32| -> String {
        (0..5).map(|at| char::from(b'a' + (number / 26_u32.pow(at) % 26) as u8)).collect()
    };
    let words: Vec<String> = (0..20_000).chain(0..20_000).map(|it| word(it * 577)).collect();
    let found: Vec<String> = reported(&mut arena, &dir, &words.join(" the "))
        .iter()
        .map(|line| line.split(' ').next().unwrap().to_owned())
        .collect();
    assert_eq!(found, words);
}

/// Suggestions prefer likely slips, then the same first letter, then words in more dictionaries.
#[test]
fn suggestions_rank_likely_slips_first() {
    let (mut arena, dir) = built(&[
        (
            "list",
            "the\ntech\ntea\neh\nuntil\nuntile\nbat\ncat\ncab\nallot\nalto\nseparate\ndesperate\n",
        ),
        ("index.noun", "cab n 1\nalto n 1\ntea n 1\n"),
        ("index.adv", "a_lot r 1\n"),
    ]);
    for (word, suggestion) in [
        ("teh", "the"),
        ("untill", "until"),
        ("caf", "cab"),
        ("alot", "a lot"),
        ("seperate", "separate"),
        ("seperete", "separate"),
        ("TEH", "THE"),
    ] {
        assert_eq!(reported(&mut arena, &dir, word), [format!("{word} -> {suggestion}")]);
    }
    assert_eq!(reported(&mut arena, &dir, "xyzzyx"), ["xyzzyx"]);
}

/// A suggestion with another first letter is found if there is no closer one.
#[test]
fn suggestion_may_differ_in_its_first_letter() {
    let (mut arena, dir) = built(&[("list", "Ångström\nphotograph\n")]);
    assert_eq!(
        reported(&mut arena, &dir, "fotograph Angstrom"),
        ["fotograph -> photograph", "Angstrom -> Ångström"]
    );
}

#[test]
fn json_has_the_same_findings_and_the_counts() {
    let (mut arena, dir) = built(&[("list", "the\n")]);
    let file = dir.path().join("text.txt");
    fs::write(&file, "teh\n  \"zzzzzz\"").unwrap();
    let said = run(&mut arena, &["--format", "json", file.to_str().unwrap()]);
    let name = file.to_str().unwrap();
    assert_eq!(
        said.out,
        format!(
            "{{\"unknown\":[\n{{\"file\":\"{name}\",\"line\":1,\"column\":1,\"word\":\"teh\",\"suggestion\":\"the\"}},\n\
             {{\"file\":\"{name}\",\"line\":2,\"column\":4,\"word\":\"zzzzzz\",\"suggestion\":null}}],\n\
             \"words\":2,\"unknown_words\":2,\"dictionaries\":[\"list\"]}}\n"
        )
    );
}

#[test]
fn a_file_that_is_no_text_gets_a_report_and_no_crash() {
    let (mut arena, dir) = built(&[("list", "the\n")]);
    let mut state = 1_u32;
    let noise: Vec<u8> = (0..200_000)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .collect();
    let file = dir.path().join("noise.bin");
    fs::write(&file, noise).unwrap();
    let said = run(&mut arena, &[file.to_str().unwrap()]);
    assert_eq!(said.status, Ok(1));
    assert!(said.notes.contains("suggestions only for the first 1000"), "{}", said.notes);
}
