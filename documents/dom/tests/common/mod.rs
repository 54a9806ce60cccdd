//! The kit of the tests: documents in plain memory, opened again as another process would find
//! them.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "each test uses a part of it; one that cannot go on fails"
)]

use std::path::PathBuf;

use holdfast_dom::{Documents, ParseOptions};
use holdfast_heap::{Heap, OpenOptions, Pointers};
use holdfast_testkit::{TestMemory, target_directory};

pub const POINTERS: Pointers = Pointers { base: 1 << 44, bytes: 8 };

pub fn open(memory: TestMemory) -> Documents<TestMemory> {
    let options = OpenOptions { pointers: Some(POINTERS), format_if_empty: true };
    Documents::new(Heap::open(memory, options).unwrap())
}

pub fn empty() -> Documents<TestMemory> {
    open(TestMemory::new(32 << 20))
}

/// The same heap at another address, as if its process had been killed now.
pub fn reopened(documents: &Documents<TestMemory>) -> Documents<TestMemory> {
    open(documents.heap().backing().copy())
}

/// A document "page" of this source.
pub fn parsed(source: &str) -> Documents<TestMemory> {
    let mut documents = empty();
    documents.parse("page", source.as_bytes(), &ParseOptions::default()).unwrap();
    documents
}

/// Real pages that `./test` has got; with scripts on, as other parsers take them.
pub fn pages() -> Vec<(String, String)> {
    let place = folder("pages");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(place).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "html") {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            found.push((name, String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned()));
        }
    }
    found.sort();
    found
}

/// A folder that `./test` fills.
pub fn folder(name: &str) -> PathBuf {
    target_directory().unwrap().join(name)
}
