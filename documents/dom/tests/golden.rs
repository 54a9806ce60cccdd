//! Documents of every version of the format that there was are read.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use common::parsed;
use holdfast_dom::{Document, Selector};

const PAGE: &str = "<!DOCTYPE html PUBLIC a b><!--c--><body id=x class='y z'><p title=t>one<svg xlink:href=#l></svg>\
    <template><b>in</b></template>";
const VERSION_1: &str = include_str!("golden/version-1.txt");

/// The words of a document, in hexadecimal, eight in a line.
fn words(bytes: &[u8]) -> String {
    let words: Vec<String> = bytes
        .chunks(4)
        .map(|word| word.iter().map(|byte| format!("{byte:02x}")).collect())
        .collect();
    words.chunks(8).map(|line| line.join(" ") + "\n").collect()
}

fn bytes(words: &str) -> Vec<u8> {
    let lines = words.lines().filter(|line| !line.starts_with('#'));
    let digits: String = lines.flat_map(str::split_whitespace).collect();
    (0..digits.len() / 2)
        .map(|at| u8::from_str_radix(&digits[at * 2..at * 2 + 2], 16).unwrap())
        .collect()
}

/// A document of format version 1 opens, and a page still becomes such a document.
///
/// Guarantee: documents/versions
#[test]
fn version_1_is_still_read_and_written() {
    let now = parsed(PAGE);
    let length = now.open("page").unwrap().size().bytes as usize;
    let memory = now.into_heap().close();
    let start = memory.bytes().windows(8).position(|bytes| bytes == b"HFSTHTML").unwrap();
    let written = words(&memory.bytes()[start..start + length]);
    let kept: String = VERSION_1
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| format!("{line}\n"))
        .collect();
    if written != kept {
        println!("{written}");
    }
    assert!(
        written == kept,
        "the format has changed: raise its version, and keep a document of each"
    );
    let golden = bytes(VERSION_1);
    // Aligned to 8, as a heap's objects are.
    let mut place = vec![0u8; golden.len() + 8];
    let start = place.as_ptr().align_offset(8);
    place[start..start + golden.len()].copy_from_slice(&golden);
    let document = Document::from_bytes(&place[start..start + golden.len()]).unwrap();
    assert_eq!(document.check().unwrap().nodes, 13);
    assert_eq!(document.root().text().unwrap(), "one");
    let found = document.select(&Selector::parse("p[title=t] + *, #x.z > p").unwrap()).unwrap();
    assert_eq!(found.len(), 1);
}
