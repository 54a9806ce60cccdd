//! The cases of html5lib for how a tree is built, each parsed into a heap, and dumped from the heap
//! opened again elsewhere. What the parser itself gets wrong by an older list is accepted, each
//! case with its reason; nothing else is, and nothing may differ from what the same parser builds
//! in its own tree.
#![allow(clippy::unwrap_used, unreachable_pub, reason = "a test that cannot go on fails")]

#[path = "tree_construction/accepted.rs"]
mod accepted;
#[path = "tree_construction/cases.rs"]
mod cases;
mod common;
#[path = "tree_construction/dump.rs"]
mod dump;
#[path = "tree_construction/upstream.rs"]
mod upstream;

use accepted::ACCEPTED;
use cases::{Case, read};
use holdfast_dom::{Documents, ParseOptions};
use holdfast_testkit::TestMemory;

/// Every test case of html5lib gives the expected tree after the heap is reopened.
///
/// Guarantee: documents/html
#[test]
fn html5lib_cases_hold_after_reopening() {
    let files = read(&common::folder("html5lib"));
    if files.is_empty() {
        return println!("not run: the cases of html5lib are not there; ./test gets them");
    }
    let (mut runs, mut failed) = (0, Vec::new());
    for (file, cases) in &files {
        // One heap for a file: documents follow and replace each other in it.
        let mut documents = common::open(TestMemory::new(16 << 20));
        for (number, case) in cases.iter().enumerate() {
            for scripting in case.scripting.map_or(vec![false, true], |only| vec![only]) {
                runs += 1;
                let got = from_heap(&mut documents, case, scripting);
                let upstream = upstream::dumped(case, scripting);
                assert_eq!(
                    got, upstream,
                    "{file} {number} differs from the parser's own tree:\n{}",
                    case.data
                );
                if got != case.document {
                    failed.push((format!("{file}:{number}"), case, got));
                }
            }
        }
    }
    let is_accepted = |name: &str| ACCEPTED.iter().any(|(accepted, _)| *accepted == name);
    for (name, case, got) in &failed {
        if !is_accepted(name) {
            println!("--- {name}\n{}\n--- expected\n{}--- got\n{got}", case.data, case.document);
        }
    }
    let unknown: Vec<&str> =
        failed.iter().map(|(name, ..)| name.as_str()).filter(|name| !is_accepted(name)).collect();
    assert_eq!(unknown, Vec::<&str>::new(), "of {runs} runs");
    for (name, reason) in ACCEPTED {
        assert!(failed.iter().any(|(failed, ..)| failed == name), "{name} passes: {reason}");
    }
    println!("{} of {runs} runs as expected, the rest accepted", runs - failed.len());
}

fn from_heap(documents: &mut Documents<TestMemory>, case: &Case, scripting: bool) -> String {
    let options = ParseOptions {
        scripting,
        fragment_of: case.fragment_of.clone(),
        ..ParseOptions::default()
    };
    documents.parse("case", case.data.as_bytes(), &options).unwrap();
    let documents = common::reopened(documents);
    let document = documents.open("case").unwrap();
    document.check().unwrap();
    dump::dumped(&document, case.fragment_of.is_some())
}
