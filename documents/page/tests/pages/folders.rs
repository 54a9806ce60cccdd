//! Folders as pages.

use holdfast_page::{StaleReason, Tier};

use crate::{Place, anew, is_drawn, view};

/// A directory is shown as its index page or as a listing that follows its changes.
///
/// Guarantee: pages/terminal
#[test]
fn folder_shows_its_index_or_list() {
    let place = Place::new();
    let folder = place.write("x", "").with_file_name("folder");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("a.txt"), "text").unwrap();
    let view = view(800, 400);
    let list = place.open(&folder, view);
    assert!(is_drawn(&list.pixels) && list.title.ends_with("/folder/"), "{}", list.title);
    let again = place.open(&folder, view);
    assert_eq!((again.tier, again.pixels == list.pixels), (Tier::Pixels, true));
    std::fs::write(folder.join("b.txt"), "text").unwrap();
    let changed = place.open(&folder, view);
    assert_eq!((changed.stale, changed.pixels == list.pixels), (Some(StaleReason::Source), false));
    let rows = place.cache().views().unwrap();
    assert!(place.cache().places(&rows[0].name).unwrap().unwrap().unwrap().links.len() >= 3);

    std::fs::write(folder.join("i.css"), "p { color: red }").unwrap();
    let index = folder.join("index.html");
    std::fs::write(
        &index,
        "<!doctype html><title>I</title><link rel=stylesheet href=i.css><p>index",
    )
    .unwrap();
    let opened = place.open(&folder, view);
    assert_eq!((opened.title.as_str(), opened.stale), ("I", Some(StaleReason::Source)));
    assert_eq!(opened.pixels, anew(&index, view), "what it asks for is beside it");
    // No process may look into it.
    let missing = place.try_open(&folder.join("none"), view);
    assert!(missing.is_err());
}

/// A file with a time in the far future is listed without a time.
///
/// Guarantee: pages/redirects
#[test]
fn file_of_the_far_future_has_no_time() {
    let place = Place::new();
    let folder = place.write("x", "").with_file_name("folder");
    std::fs::create_dir(&folder).unwrap();
    let file = std::fs::File::create(folder.join("a.txt")).unwrap();
    let far = std::time::UNIX_EPOCH + std::time::Duration::from_secs(253_402_300_800);
    // Some file systems have no such time.
    let _ = file.set_modified(far);
    assert!(place.open(&folder, view(800, 400)).title.ends_with("/folder/"));
}
