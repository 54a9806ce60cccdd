//! Names of roots at the command line, which the author of the heap chose: they steer no terminal,
//! and however many and long they are said to be, the tools end soon and say what is so.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

use holdfast_heap::layout::*;
use holdfast_native_heap::open_heap;
use holdfast_region::{OwnerKey, RegionName};
use holdfast_testkit::Scratch;
use xxhash_rust::xxh3::xxh3_64;

use crate::{scratch, succeed, tell};

/// Where a heap's data starts in an image.
const DATA_OFFSET: u64 = 2 << 20;

fn json(scratch: &Scratch, arguments: &[&str]) -> serde_json::Value {
    let told = tell(scratch.holdfast().arg("heap").args(arguments).arg("--json"));
    serde_json::from_str(&told.out)
        .unwrap_or_else(|error| panic!("{error}: {}{}", told.out, told.err))
}

/// Names that could steer a terminal are escaped in text and exact in JSON.
///
/// Guarantee: heap/hostile-content
#[test]
fn root_names_are_escaped_in_text_not_in_json() {
    const WILD: &str = "\u{1b}]0;owned\u{7}\u{1b}[2J\r\n\u{9b}31m\u{202E}Gästebuch";
    let (scratch, name) = (scratch(), RegionName::parse("wild").unwrap());
    let names = scratch.names().unwrap();
    let key = OwnerKey::load_or_create(names.places(), "default").unwrap();
    let (heap, region) = open_heap(names.create(&name, &key, 8 << 20).unwrap()).unwrap();
    drop(heap.close());
    region.close().unwrap();
    succeed(scratch.holdfast().args(["heap", "snapshot", "wild", "before"]));
    let (mut heap, region) = open_heap(names.open(&name, &key).unwrap()).unwrap();
    heap.create_root(WILD, 100).unwrap();
    drop(heap.close());
    region.close().unwrap();

    let image = scratch.image("wild");
    let image = image.to_str().unwrap();
    let shown = [
        &["show", "wild"][..],
        &["stats", "wild"],
        &["diff", "wild", "before"],
        &["salvage", image],
    ];
    for arguments in shown {
        let told = tell(scratch.holdfast().arg("heap").args(arguments));
        assert!(
            told.out.contains("\\u{1b}]0;owned\\u{7}\\u{1b}[2J\\r\\n\\u{9b}31m\\u{202e}Gästebuch"),
            "{}",
            told.out
        );
        let steers = |c: char| c.is_control() && c != '\n' || c == '\u{202E}';
        assert!(
            !told.out.contains(steers) && !told.err.contains(steers),
            "{arguments:?}: {:?}",
            told.out
        );
        assert_eq!(json(&scratch, arguments)["roots"][0]["name"], WILD, "{arguments:?}");
    }
}

/// A heap with a table of 131,072 slots that all lead to one entry, whose name is said to be so
/// long.
fn hostile(scratch: &Scratch, name_bytes: u64) {
    const SLOTS: u64 = 1 << 17;
    let names = scratch.names().unwrap();
    let key = OwnerKey::load_or_create(names.places(), "default").unwrap();
    let name = RegionName::parse("hostile").unwrap();
    let (mut heap, region) = open_heap(names.create(&name, &key, 8 << 20).unwrap()).unwrap();
    let entry = heap.alloc_zeroed(2 << 20).unwrap();
    let table = heap.alloc_zeroed(SLOTS * 8).unwrap();
    let (entry, table) = (heap.offset_of(entry).unwrap(), heap.offset_of(table).unwrap());
    drop(heap.close());
    region.close().unwrap();
    let image = OpenOptions::new().write(true).open(scratch.image("hostile")).unwrap();
    let put = |offset: u64, words: &[u64]| {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        image.write_all_at(&bytes, DATA_OFFSET + offset).unwrap();
    };
    let hash = xxh3_64(&[0; ROOT_NAME_BYTES_MAX]);
    put(entry, &[entry, 8, hash, name_bytes]);
    put(table, &vec![entry | hash >> 48 << 48; SLOTS as usize]);
    put(SUPER_ROOTS, &[table, SLOTS, SLOTS, SLOTS]);
}

/// A root table with huge names costs the tools little and is reported.
///
/// Guarantee: heap/hostile-content
#[test]
fn hostile_root_table_costs_the_tools_little() {
    for (name_bytes, roots, listed) in [(1 << 20, 0, 0), (255, 1 << 17, 100_000)] {
        let scratch = scratch();
        hostile(&scratch, name_bytes);
        let image = scratch.image("hostile");
        let image = image.to_str().unwrap();
        for arguments in [&["show", "hostile"][..], &["stats", "hostile"], &["salvage", image]] {
            let told = json(&scratch, arguments);
            let counted = (told["root_count"].as_u64(), told["roots"].as_array().map(Vec::len));
            assert_eq!(counted, (Some(roots), Some(listed)), "{arguments:?} {name_bytes}");
        }
        assert_eq!(tell(scratch.holdfast().args(["heap", "check", "hostile"])).status, 1);
        assert_eq!(tell(scratch.holdfast().args(["heap", "leaks", "hostile"])).status, 5);
        // Where the names fit, a repair looks for a flipped bit for half a minute.
        if roots == 0 {
            assert_eq!(tell(scratch.holdfast().args(["heap", "repair", "hostile"])).status, 5);
        }
    }
}
