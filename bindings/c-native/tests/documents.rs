//! Documents in a heap from C and C++: `holdfast_document.h`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

use common::{Bench, Linking, has, prefix, succeeded};
use holdfast_testkit::{Soundness, heap_soundness};

/// Kills of a program that changes a document all the time.
const KILLS: u64 = 20;

fn lacks_tools() -> bool {
    !has("pkg-config") || !has("cc") || !has("g++")
}

fn said_nothing(source: &str, command: &str) {
    if lacks_tools() {
        return;
    }
    let bench = Bench::new();
    std::fs::write(bench.path("page.html"), "<p><em>a</em>").unwrap();
    let program = bench.compile(source, Linking::Shared);
    let mut run = bench.command(&program);
    run.arg(command).env("HOLDFAST_HEAP", "heap").env("PAGE", bench.path("page.html"));
    assert_eq!(succeeded(&run.output().unwrap()), "");
    let soundness = heap_soundness(&bench.names(), "heap").unwrap();
    assert!(matches!(soundness, Soundness::Sound { .. }), "{soundness:?}");
}

/// C code walks, searches and serialises a document, also after its heap was reopened.
///
/// Guarantee: documents/c
#[test]
fn c_reads_and_searches_a_reopened_document() {
    said_nothing("documents.c", "all");
}

/// Edits from C belong to the open transaction, and a refused edit does not end it.
///
/// Guarantee: documents/c
#[test]
fn c_edits_join_the_open_transaction() {
    said_nothing("documents.c", "changes");
}

/// C refuses a document that was closed, replaced, removed or rolled back.
///
/// Guarantee: documents/c
#[test]
fn c_refuses_a_document_that_is_no_longer_valid() {
    said_nothing("documents.c", "stale");
}

/// A thread that parsed a page in its compartment made the open documents of that name useless in
/// the heaps of all other threads.
///
/// Guarantee: documents/c
#[test]
fn page_of_one_compartment_leaves_those_of_others_open() {
    said_nothing("documents.c", "compartments");
}

/// Document errors in C have a code and a place, and a refused page leaves the old one.
///
/// Guarantee: documents/c
#[test]
fn c_document_errors_have_a_code_and_a_place() {
    said_nothing("documents.c", "errors");
}

/// Guarantee: documents/c
#[test]
fn the_header_of_documents_is_of_use_in_cpp() {
    said_nothing("documents.cpp", "");
}

/// The library exports every function of the document header and no other.
///
/// Guarantee: documents/c
#[test]
fn document_header_and_library_match() {
    let header = std::fs::read_to_string("../c/include/holdfast_document.h").unwrap();
    let code: String = header
        .split("/*")
        .map(|part| part.split_once("*/").map_or(part, |(_, code)| code))
        .collect();
    let names = |text: &str| -> Vec<String> {
        let starts = text.match_indices("nv_doc_").map(|(at, _)| &text[at..]);
        let name = |start: &str| {
            start.split(|c: char| c != '_' && !c.is_ascii_alphanumeric()).next().map(str::to_owned)
        };
        let mut names: Vec<String> = starts.filter_map(name).collect();
        names.sort();
        names.dedup();
        names
    };
    let types = ["nv_doc_limits", "nv_doc_attribute_place"];
    let declared: Vec<String> =
        names(&code).into_iter().filter(|name| !types.contains(&name.as_str())).collect();
    let library = std::fs::read(prefix().join("lib/libholdfast.so")).unwrap();
    let symbols: Vec<u8> =
        library.iter().map(|byte| if byte.is_ascii_graphic() { *byte } else { b' ' }).collect();
    let symbols = String::from_utf8(symbols).unwrap();
    let exported =
        symbols.split(' ').filter(|word| word.starts_with("nv_doc_")).collect::<Vec<_>>().join(" ");
    assert_eq!(names(&exported), declared);
    assert!(declared.len() > 30, "{declared:?}");
}

/// After a kill of a C program, each transaction on a document is complete or absent.
///
/// Guarantee: documents/c
#[test]
fn kill_of_a_c_program_leaves_document_edits_whole() {
    if lacks_tools() {
        return;
    }
    let bench = Bench::new();
    let program = bench.compile("documents.c", Linking::Static);
    for round in 0..KILLS {
        let mut killed = bench.unbounded(&program);
        killed.arg("kill-me").env("HOLDFAST_HEAP", "heap").stdout(Stdio::piped());
        let mut killed = killed.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(killed.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "changing\n");
        std::thread::sleep(Duration::from_micros(round * 177));
        killed.kill().unwrap();
        killed.wait().unwrap();
        assert_eq!(bench.run(&program, "after-the-kill"), "");
    }
}

/// Guarantee: documents/c
#[test]
fn the_example_in_c_parses_once_and_marks_all_links() {
    if lacks_tools() {
        return;
    }
    let bench = Bench::new();
    let page = bench.path("index.html");
    std::fs::write(&page, "<a href=/1>first</a> <a>none</a> <a href=/2>second</a>").unwrap();
    let program = bench.compile("../../examples/links.c", Linking::Shared);
    let run = |words: &[&str]| {
        succeeded(&bench.command(&program).arg(&page).args(words).output().unwrap())
    };
    let links = "first -> /1\nsecond -> /2\n2 links, ";
    assert_eq!(run(&[]), format!("parsed\n{links}not visited\n"));
    std::fs::remove_file(&page).unwrap();
    assert_eq!(run(&["visited"]), format!("{links}visited\n"));
    assert_eq!(run(&[]), format!("{links}visited\n"));
}
