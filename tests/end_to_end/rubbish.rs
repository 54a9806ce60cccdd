//! Rubbish and its removal: heaps that nothing can read, files of killed programs, copies that
//! repairs kept.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;

use holdfast_testkit::Scratch;

use crate::guestbook::{assert_both_entries, with_two_entries};
use crate::{succeed, tell};

fn heap(scratch: &Scratch, arguments: &[&str]) -> Command {
    let mut command = scratch.holdfast();
    command.arg("heap").args(arguments);
    command
}

/// A heap that cannot be read is shown with what is known and can be removed.
///
/// Guarantee: heap/salvage
#[test]
fn unreadable_heap_is_listed_and_removable() {
    let scratch = with_two_entries();
    let whole = tell(&mut heap(&scratch, &["rm", "--damaged", "book"]));
    assert!(whole.status == 2 && whole.err.contains("tells whose it is"), "{}", whole.err);
    fs::write(scratch.image("book"), b"Dear diary, today".repeat(1000)).unwrap();
    let half = tell(&mut heap(&scratch, &["rm", "--damaged", "book"]));
    assert_eq!(half.status, 2, "the checkpoint is whole: {}", half.err);
    assert!(scratch.image("book").exists() && scratch.base("book").exists());

    fs::write(scratch.base("book"), b"Dear diary, today".repeat(1000)).unwrap();
    let shown = tell(&mut heap(&scratch, &["show", "book"]));
    assert_eq!(shown.status, 5);
    for absent in ["see `holdfast heap show`", "uuid", "1970"] {
        assert!(!shown.out.contains(absent), "{absent}: {}", shown.out);
    }
    assert_eq!(shown.out.matches("\nnote ").count(), 1, "{}", shown.out);
    let refused = tell(&mut heap(&scratch, &["rm", "book"]));
    assert!(
        refused.status == 5 && refused.err.contains("heap rm --damaged book"),
        "{}",
        refused.err
    );
    let removed = succeed(&mut heap(&scratch, &["rm", "--damaged", "book"]));
    for path in [scratch.image("book"), scratch.base("book")] {
        assert!(removed.contains(path.to_str().unwrap()) && !path.exists(), "{removed}");
    }
    assert_eq!(succeed(&mut heap(&scratch, &["ls", "--json"])).trim(), "[]");
}

/// Of a process that is no more.
fn dead() -> u32 {
    let mut child = Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    child.id()
}

/// Files that no heap needs are listed by `doctor` and `tidy` and removed on request.
///
/// Guarantee: heap/tidy
#[test]
fn unused_files_are_listed_and_tidied() {
    let scratch = with_two_entries();
    let mut image = fs::read(scratch.image("book")).unwrap();
    image[100] ^= 1;
    fs::write(scratch.image("book"), image).unwrap();
    let repaired: serde_json::Value =
        serde_json::from_str(&succeed(&mut heap(&scratch, &["repair", "book", "--json"]))).unwrap();
    let copies = PathBuf::from(repaired["copies"].as_str().unwrap());
    let copied = fs::metadata(copies.join("book.image")).unwrap();
    assert!(copied.blocks() * 512 < copied.len() / 8, "no hole in the copy: {}", copied.blocks());

    let pid = dead();
    let rubbish: Vec<PathBuf> = ["never-born", "book"]
        .iter()
        .flat_map(|name| {
            [scratch.pool(), scratch.home().join("store")]
                .map(|place| place.join(format!(".{name}.tmp-{pid}")))
        })
        .collect();
    rubbish.iter().for_each(|path| fs::write(path, [1; 10_000]).unwrap());
    let listed = tell(&mut heap(&scratch, &["tidy"]));
    assert_eq!(listed.out.lines().count(), 1 + rubbish.len(), "{}", listed.out);
    assert!(
        listed.err.contains("that repairs kept") && listed.err.contains("--yes"),
        "{}",
        listed.err
    );
    assert!(tell(scratch.holdfast().arg("doctor")).out.contains("holdfast heap tidy"));
    assert!(rubbish.iter().all(|path| path.exists()));

    succeed(&mut heap(&scratch, &["tidy", "--yes"]));
    assert!(!rubbish.iter().any(|path| path.exists()) && copies.exists());
    assert!(!scratch.pool().join("never-born.lock").exists());
    assert!(
        succeed(&mut heap(&scratch, &["tidy", "--yes", "--keep", "0s"]))
            .contains("removed 1 of these")
    );
    assert!(!copies.exists() && !scratch.home().join("store/damaged/book").exists());
    let none: serde_json::Value =
        serde_json::from_str(&succeed(&mut heap(&scratch, &["tidy", "--json", "--keep", "0s"])))
            .unwrap();
    assert_eq!(none.as_array().unwrap().len(), 0);
    assert_both_entries(&scratch);
}
