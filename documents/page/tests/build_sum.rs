//! A sum over all that draws names the build that drew a picture: none of it changes without the
//! sum.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../build/sum.rs"]
mod sum;

use std::path::Path;

/// Guarantee: pages/changed
#[test]
fn another_source_manifest_or_target_is_another_build() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::create_dir_all(at("src/in")).unwrap();
    let manifest = at("Cargo.toml");
    for (name, text) in [
        ("Cargo.toml", "one"),
        ("src/lib.rs", "two"),
        ("src/in/deep.rs", "three"),
        ("src/rules.css", "five"),
        ("src/notes.txt", "four"),
    ] {
        std::fs::write(at(name), text).unwrap();
    }
    let sum = |word: &str| sum::of(&[&manifest], &[&at("src")], &[word.to_owned()]).0;
    let mut seen = vec![sum("target")];
    assert_eq!(sum("target"), seen[0], "the same is the same");
    std::fs::write(at("src/notes.txt"), "no source").unwrap();
    assert_eq!(sum("target"), seen[0]);
    let mut is_another = |what: &str, sum: u64| {
        assert!(!seen.contains(&sum), "{what}");
        seen.push(sum);
    };
    is_another("another target", sum("other"));
    std::fs::write(at("src/in/deep.rs"), "thre\u{65}!").unwrap();
    is_another("another byte", sum("target"));
    std::fs::write(at("src/rules.css"), "six").unwrap();
    is_another("another style sheet", sum("target"));
    std::fs::rename(at("src/in/deep.rs"), at("src/in/name.rs")).unwrap();
    is_another("another name", sum("target"));
    std::fs::write(at("src/in/more.rs"), "").unwrap();
    is_another("one more", sum("target"));
    std::fs::write(&manifest, "other").unwrap();
    is_another("another manifest", sum("target"));
    // A byte that goes from one file to the next.
    std::fs::write(at("src/in/more.rs"), "ab").unwrap();
    std::fs::write(at("src/in/name.rs"), "c").unwrap();
    let one = sum("target");
    std::fs::write(at("src/in/more.rs"), "a").unwrap();
    std::fs::write(at("src/in/name.rs"), "bc").unwrap();
    is_another("a byte in the next file", sum("target"));
    assert!(one != sum("target"));
}

/// Guarantee: pages/changed
#[test]
fn what_draws_is_in_the_sum() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(here.join("build.rs")).unwrap();
    for part in ["\"src\"", "../dom/src", "../../Cargo.lock", "Cargo.toml"] {
        assert!(text.contains(part), "{part}");
    }
    let (_, files) = sum::of(&[], &[&here.join("src")], &[]);
    for file in ["picture.rs", "list/write.rs", "places/take.rs", "hints.css"] {
        assert!(files.contains(&here.join("src").join(file)), "{file}");
    }
}
