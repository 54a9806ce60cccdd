//! The example does what the guide says of it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../examples/links.rs"]
mod links;

use holdfast_region::Places;

/// The Rust example parses its page once and marks all links.
///
/// Guarantee: documents/readers
#[test]
fn rust_example_parses_once_and_marks_links() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("index.html");
    std::fs::write(&page, "<a href=/1>first</a> <a>none</a> <a href=/2>second</a>").unwrap();
    let run = || {
        let places = Places::at(folder.path().join("home"), folder.path().join("pool")).unwrap();
        links::links(places, page.to_str().unwrap()).unwrap()
    };
    let rest = "first -> /1\nsecond -> /2\n2 links visited\n";
    let first = run();
    assert!(first.starts_with("parsed: ") && first.ends_with(rest), "{first}");
    std::fs::remove_file(&page).unwrap();
    assert_eq!(run(), rest);
}
