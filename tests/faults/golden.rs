//! Row H12: files that older versions wrote. Each format on media has golden files: an image and a
//! base file of version 1, a journal of version 1 that continues the base, a packed base file and
//! its journal, a redo log of version 1, with a heap of version 2 in them (one of version 1 is in
//! `core/heap/tests/golden`). They open, and say what they said.
//!
//! They are text: the length, then every word that is not zero. The last test below makes the next
//! ones: `HOLDFAST_GOLDEN=$PWD/tests/faults/golden cargo test -p holdfast-tests --test faults
//! golden_files_are_made`.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use holdfast_heap::inspect;
use holdfast_region::{ErrorKind, Opened, RegionError};
use holdfast_testkit::{Trials, golden};

use crate::home::{Home, key, name};

const IMAGE: &str = include_str!("golden/image-1.txt");
const BASE: &str = include_str!("golden/base-1.txt");
const JOURNAL: &str = include_str!("golden/journal-1.txt");
const PACKED: &str = include_str!("golden/packed-1.txt");
const PACKED_JOURNAL: &str = include_str!("golden/packed-journal-1.txt");
const REDO: &str = include_str!("golden/redo-1.txt");

/// Writes a golden file where it belongs.
fn lay(text: &str, path: &Path) {
    golden::lay(text, path).unwrap();
}

/// Names and sizes of the roots of the heap in these bytes, after a look at its soundness.
fn roots(bytes: &[u8]) -> Vec<(String, u64)> {
    let words = bytes.chunks_exact(8);
    let mut copy: Vec<u64> =
        words.map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
    let mut roots = Vec::new();
    let inspection =
        inspect(&mut copy, &mut |_| {}, &mut |name, bytes| roots.push((name.to_owned(), bytes)));
    assert!(inspection.unwrap().report.is_sound());
    roots.sort();
    roots
}

fn expected(names: &[&str]) -> Vec<(String, u64)> {
    names.iter().map(|name| ((*name).to_owned(), 24)).collect()
}

/// Files of every version so far open and have their contents.
///
/// Guarantee: heap/old-formats
/// Guarantee: sqlite/old-versions
#[test]
fn files_of_every_version_still_open() {
    let mut trials = Trials::of_all("H12", "golden files");
    let home = Home::new();
    let names = home.names();

    trials.next();
    lay(BASE, &home.base());
    let reader = names.open_read(&name()).unwrap();
    assert_eq!(roots(reader.bytes()), expected(&["in the base"]));
    drop(reader);

    trials.next();
    lay(JOURNAL, &home.journal());
    let region = names.open(&name(), &key()).unwrap();
    assert_eq!((region.opened(), region.backed_bytes()), (Opened::Cold, 1 << 20));
    let mut bytes = vec![0; 1 << 20];
    region.read_at(0, &mut bytes).unwrap();
    assert_eq!(roots(&bytes), expected(&["in the base", "in the journal"]));
    // It is used on.
    region.close().unwrap();
    assert_eq!(names.open(&name(), &key()).unwrap().opened(), Opened::Warm);

    trials.next();
    let packed_home = Home::new();
    let packed_names = packed_home.names();
    lay(PACKED, &packed_home.base());
    let reader = packed_names.open_read(&name()).unwrap();
    assert_eq!(roots(reader.bytes()), expected(&["in the base"]));
    drop(reader);
    lay(PACKED_JOURNAL, &packed_home.journal());
    let region = packed_names.open(&name(), &key()).unwrap();
    assert_eq!((region.opened(), region.backed_bytes()), (Opened::Cold, 1 << 20));
    region.read_at(0, &mut bytes).unwrap();
    assert_eq!(roots(&bytes), expected(&["in the base", "in the journal"]));
    drop(region);

    trials.next();
    lay(IMAGE, &home.image());
    let region = names.open(&name(), &key()).unwrap();
    assert_eq!(region.opened(), Opened::WarmAfterCrash);
    region.read_at(0, &mut bytes).unwrap();
    assert_eq!(roots(&bytes), expected(&["in the base", "in the image", "in the journal"]));
    drop(region);

    trials.next();
    lay(IMAGE, &home.image());
    lay(REDO, &home.redo());
    let region = names.open(&name(), &key()).unwrap();
    region.read_at(0, &mut bytes).unwrap();
    assert_eq!(bytes[1 << 19..][..8], *b"by redo\0", "the publication was not finished");
}

/// A file of a newer version is refused by its version and not changed.
///
/// Guarantee: heap/old-formats
/// Guarantee: sqlite/old-versions
#[test]
fn newer_version_is_refused_and_left_unchanged() {
    let mut trials = Trials::of_all("H12", "newer versions");
    for (text, file) in [
        (IMAGE, Home::image as fn(&Home) -> _),
        (BASE, Home::base),
        (PACKED, Home::base),
        (JOURNAL, Home::journal),
    ] {
        trials.next();
        let home = Home::new();
        let names = home.names();
        if text == JOURNAL {
            lay(BASE, &home.base());
        }
        let path = file(&home);
        lay(text, &path);
        let opened = File::options().write(true).open(&path).unwrap();
        for slot in [0, 4096].iter().take(if text == JOURNAL { 1 } else { 2 }) {
            opened.write_all_at(&99_u32.to_le_bytes(), slot + 8).unwrap();
            let sum = xxhash_rust::xxh3::xxh3_64(
                &std::fs::read(&path).unwrap()[*slot as usize..][..4088],
            );
            opened.write_all_at(&sum.to_le_bytes(), slot + 4088).unwrap();
        }
        let before = std::fs::read(&path).unwrap();
        let error = names.open(&name(), &key()).map(drop).unwrap_err();
        assert!(matches!(error, RegionError::NewerFormat { found: 99, known: 1, .. }), "{error}");
        assert_eq!(error.kind(), ErrorKind::BadFile);
        assert!(std::fs::read(&path).unwrap() == before);
    }
}

/// Not a test of its own: with `HOLDFAST_GOLDEN=DIRECTORY` it writes the files anew, of the
/// versions that the code has now; a change that raises a version adds the result beside the old
/// ones.
#[test]
fn golden_files_are_made_on_demand() {
    use holdfast_heap::{Heap, OpenOptions, Pointers};
    use holdfast_region::Durability;
    use holdfast_testkit::TestMemory;

    let home = Home::new();
    let options = || OpenOptions {
        pointers: Some(Pointers { base: 1 << 31, bytes: 4 }),
        format_if_empty: true,
    };
    let mut heap = Heap::open(TestMemory::new(1 << 20), options()).unwrap();
    let mut region = home.names().create(&name(), &key(), 1 << 20).unwrap();
    for (root, commits) in
        [("in the base", true), ("in the journal", true), ("in the image", false)]
    {
        heap.create_root(root, 24).unwrap();
        crate::damage::store(&mut region, 0, heap.backing().bytes());
        if commits {
            region.commit(Durability::Power).unwrap();
        }
    }
    drop(region);
    let image = std::fs::read(home.image()).unwrap();
    let slot = if image[16..24] > image[4096 + 16..4096 + 24] { 0 } else { 4096 };
    let redo = crate::damage::redo_log(&image[slot..slot + 4096], 1 << 19, b"by redo\0");
    let made = [
        ("image", image),
        // Small bases are packed; `base-1.txt` and `journal-1.txt` are of before.
        ("packed", std::fs::read(home.base()).unwrap()),
        ("packed-journal", std::fs::read(home.journal()).unwrap()),
        ("redo", redo),
    ];
    assert!(made.iter().all(|(_, bytes)| bytes.iter().any(|byte| *byte != 0)));
    let Some(folder) = std::env::var_os("HOLDFAST_GOLDEN") else { return };
    for (kind, bytes) in made {
        let text = golden::text(&format!("{kind} (tests/faults/golden.rs)"), &bytes);
        std::fs::write(Path::new(&folder).join(format!("{kind}-1.txt")), text).unwrap();
    }
}
