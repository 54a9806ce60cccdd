//! A page whose sources changed is made again, and looks so.

use std::path::Path;

use holdfast_page::{OpenPage, PageLimits, StaleReason, Tier, open};

use crate::{HEADER_BYTES, Place, address, anew, limits, png, view};

const PAGE: &str =
    "<!doctype html><link rel=stylesheet href=a.css><h1>Page</h1><img src=a.png><p>text";

/// What is said of a file that changed.
fn changed(file: &Path) -> StaleReason {
    StaleReason::Resource(address(file).as_str().to_owned())
}

/// Opens a page that is kept, and was changed in some way: it must be made anew as if there were no
/// cache, and be kept again.
fn is_made_anew(place: &Place, page: &Path) -> OpenPage {
    let view = view(300, 200);
    let opened = place.open(page, view);
    assert!(!matches!(opened.tier, Tier::Pixels | Tier::List), "an old picture was shown");
    assert_eq!(opened.pixels, anew(page, view));
    let again = place.open(page, view);
    assert_eq!(again.tier, Tier::Pixels);
    assert_eq!(again.pixels, opened.pixels);
    let again = place.repainted(page, view);
    assert_eq!((again.tier, again.pixels == opened.pixels), (Tier::List, true));
    opened
}

/// A page is made again after it, its style sheet or its image changes.
///
/// Guarantee: pages/changed
#[test]
fn changed_page_style_or_image_is_remade() {
    let place = Place::new();
    let page = place.write("a.html", PAGE);
    let style = place.write("a.css", "h1 { color: red }");
    is_made_anew(&place, &page);

    let before = place.open(&page, view(300, 200)).pixels;
    place.write("a.css", "h1 { color: tan }");
    let opened = is_made_anew(&place, &page);
    assert_eq!((opened.tier, opened.stale), (Tier::Document, Some(changed(&style))));
    assert_ne!(opened.pixels, before);

    let image = place.write("a.png", png(20, 20, [9, 99, 9, 255]));
    assert_eq!(is_made_anew(&place, &page).stale, Some(changed(&image)), "an image came");
    place.write("a.png", png(20, 20, [99, 9, 9, 255]));
    assert_eq!(is_made_anew(&place, &page).stale, Some(changed(&image)), "it changed");
    std::fs::remove_file(&image).unwrap();
    assert_eq!(is_made_anew(&place, &page).stale, Some(changed(&image)), "it went");
    std::fs::remove_file(&style).unwrap();
    assert_eq!(is_made_anew(&place, &page).stale, Some(changed(&style)));

    place.write("a.html", PAGE.replace("text", "test"));
    let opened = is_made_anew(&place, &page);
    assert_eq!((opened.tier, opened.stale), (Tier::Nothing, Some(StaleReason::Source)));
}

/// A view stored without a picture is stored again after its style sheet changes.
///
/// Guarantee: pages/changed
#[test]
fn changed_style_renews_a_pictureless_view() {
    let place = Place::new();
    let body = "<p>text".repeat(100);
    let page = place.write(
        "a.html",
        format!("<!doctype html><link rel=stylesheet href=a.css><h1>A</h1>{body}"),
    );
    place.write("tile.png", png(9, 7, [1, 2, 200, 255]));
    let style = place.write("a.css", "h1 { background: url(tile.png) center fixed }");
    let (top, below) = (view(300, 200), view(300, 200).scrolled(150));
    place.open(&page, top);
    assert_eq!(place.open(&page, below).stale, Some(StaleReason::ScrollBound));
    place.write("a.css", "h1 { color: red }");
    assert_eq!(place.open(&page, below).stale, Some(changed(&style)));
    let opened = place.open(&page, below);
    assert_eq!((opened.tier, &opened.stale), (Tier::Pixels, &None));
    assert_eq!(opened.pixels, anew(&page, below));
}

/// A page with more files than are read in advance is served from its list until one of them
/// changes.
///
/// Guarantee: pages/changed
#[test]
fn page_with_many_files_is_served_from_its_list() {
    let place = Place::new();
    let page = place.write(
        "a.html",
        "<!doctype html><link rel=stylesheet href=a.css><link rel=stylesheet href=b.css><p>text",
    );
    place.write("a.css", format!("p {{ color: red }}{:600}", ""));
    let second = place.write("b.css", format!("p {{ color: tan }}{:600}", ""));
    let limits = PageLimits { resources_bytes: 1_000, ..limits() };
    let cache = place.cache();
    let shown = || {
        let mut opened = open(&address(&page), view(300, 200), &limits, Some(&cache)).unwrap();
        if let Some(to_keep) = opened.to_keep.take() {
            to_keep.keep(&cache).unwrap();
        }
        (opened.tier, opened.stale)
    };
    assert_eq!(shown(), (Tier::Nothing, None));
    assert_eq!(shown(), (Tier::Pixels, None));
    std::fs::remove_file(&second).unwrap();
    assert_eq!(shown(), (Tier::Document, Some(changed(&second))));
    assert_eq!(shown(), (Tier::Pixels, None));
}

/// The same entry as another build would have stored it: the sum of the header is right.
fn of_another_build(entry: &[u8]) -> Vec<u8> {
    let mut bytes = entry.to_vec();
    let summed = HEADER_BYTES - 16;
    bytes[40] ^= 1;
    let sum = xxhash_rust::xxh3::xxh3_64(&bytes[..summed]);
    bytes[summed..summed + 8].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// Guarantee: pages/changed
#[test]
fn a_page_that_another_build_kept_is_made_anew() {
    let place = Place::new();
    let page = place.write("a.html", PAGE);
    let view = view(300, 200);
    place.open(&page, view);
    let name = place.cache().views().unwrap()[0].name.clone();
    place.spoil(|heap| {
        let bytes = of_another_build(heap.bytes(&name).unwrap());
        heap.transaction(|tx| tx.write(tx.root(&name).unwrap(), 0, &bytes)).unwrap();
        // Its document, too, is of that build, which may have parsed the page otherwise.
        let old = heap
            .heap()
            .roots()
            .map(|(name, _)| name.to_owned())
            .find(|name| name.starts_with("dom:"));
        let document = heap.bytes(old.as_ref().unwrap()).unwrap().to_vec();
        let made_from = xxhash_rust::xxh3::xxh3_128(&bytes[24..56]);
        let new = format!("dom:{made_from:032x}:{:016x}", xxhash_rust::xxh3::xxh3_64(&document));
        let kind = Some(holdfast_dom::layout::root_type());
        heap.transaction(|tx| -> Result<(), holdfast_heap::HeapError> {
            tx.remove(old.as_ref().unwrap())?;
            tx.create(&new, document.len() as u64, kind, |to| to.copy_from_slice(&document))
                .map(drop)
        })
        .unwrap();
    });
    assert!(
        place.cache().views().unwrap()[0].document_bytes > 0,
        "it has a document, of its build"
    );
    let opened = is_made_anew(&place, &page);
    assert_eq!((opened.tier, opened.stale), (Tier::Nothing, Some(StaleReason::Engine)));
    assert_eq!(place.cache().stats().unwrap().documents, 1, "the other build's went with its view");
}

/// Guarantee: pages/viewports
#[test]
fn a_page_at_another_place_is_another_page() {
    let place = Place::new();
    let one = place.write("one.html", "<!doctype html><p>the same");
    let other = place.write("other.html", "<!doctype html><p>the same");
    place.open(&one, view(300, 200));
    // What is in it is the same, but not what it may ask for.
    assert_eq!(place.open(&other, view(300, 200)).tier, Tier::Document);
    let stats = place.cache().stats().unwrap();
    assert_eq!((stats.views, stats.documents), (2, 1));
}
