//! The cache stays as small as it may be: what was used longest ago goes.

use holdfast_page::{CacheError, Tier, open};

use crate::{HEADER_BYTES, Place, address, limits, view};

#[test]
fn beyond_the_quota_the_pages_that_were_used_longest_ago_go_with_their_documents() {
    let place = Place::new();
    let view = view(300, 200);
    let text = "<p>text that takes some room in the cache of pages".repeat(200);
    let pages: Vec<_> = (0..6)
        .map(|n| place.write(&format!("{n}.html"), format!("<!doctype html><h1>{n}</h1>{text}")))
        .collect();
    place.open(&pages[0], view);
    let one = place.cache().stats().unwrap();
    let quota = (one.view_bytes + one.document_bytes) * 3 + one.view_bytes / 2;
    place.cache().remove(&[place.cache().views().unwrap()[0].name.clone()]).unwrap();
    assert_eq!(place.cache().stats().unwrap().documents, 0, "a document goes with its last view");
    let cache = place.cache_of(quota);
    let mut evicted = 0;
    for (number, page) in pages.iter().enumerate() {
        let mut opened = open(&address(page), view, &limits(), Some(&cache)).unwrap();
        evicted += opened.to_keep.take().unwrap().keep(&cache).unwrap().evicted;
        // Used at times that differ, which the clock of seconds does not show.
        let name = cache
            .views()
            .unwrap()
            .into_iter()
            .find(|row| row.address.ends_with(&format!("/{number}.html")))
            .unwrap()
            .name;
        set_used(&place, &name, 1_000 + number as u64);
        if number == 2 {
            // The oldest is used again.
            let first =
                cache.views().unwrap().into_iter().find(|row| row.address.ends_with("/0.html")).unwrap().name;
            set_used(&place, &first, 5_000);
        }
        let stats = cache.stats().unwrap();
        assert!(stats.view_bytes + stats.document_bytes <= quota, "{stats:?}");
        assert_eq!(stats.views, stats.documents);
    }
    let left: Vec<String> = cache.views().unwrap().into_iter().map(|row| row.address).collect();
    let ends: Vec<&str> = left.iter().map(|address| &address[address.len() - 6..]).collect();
    assert_eq!((ends, evicted), (vec!["0.html", "5.html", "4.html"], 3));
}

/// Stores when a view was used, as opening it does.
fn set_used(place: &Place, name: &str, used_s: u64) {
    place.spoil(|heap| {
        heap.transaction(|tx| {
            tx.write(tx.root(name).unwrap(), HEADER_BYTES as u64 - 8, &used_s.to_le_bytes())
        })
        .unwrap();
    });
}

#[test]
fn opening_a_page_notes_that_it_was_used() {
    let place = Place::new();
    let page = place.write("a.html", "<!doctype html><p>text");
    place.open(&page, view(300, 200));
    let row = place.cache().views().unwrap().remove(0);
    set_used(&place, &row.name, 1_000);
    assert_eq!(place.open(&page, view(300, 200)).tier, Tier::List);
    let used = place.cache().views().unwrap()[0].used_s;
    assert!(used >= row.used_s, "{used}");
    assert_eq!(place.open(&page, view(300, 200)).tier, Tier::List, "the note is no damage");
}

#[test]
fn a_page_that_is_larger_than_the_quota_is_shown_and_not_kept() {
    let place = Place::new();
    let page = place.write("a.html", "<!doctype html><p>text");
    let cache = place.cache_of(1_000);
    let mut opened = open(&address(&page), view(300, 200), &limits(), Some(&cache)).unwrap();
    let kept = opened.to_keep.take().unwrap().keep(&cache);
    assert!(matches!(kept, Err(CacheError::TooLarge { quota_bytes: 1_000, .. })), "{kept:?}");
}

#[test]
fn removing_pages_leaves_the_others() {
    let place = Place::new();
    let one = place.write("one.html", "<!doctype html><p>one");
    let other = place.write("other.html", "<!doctype html><p>other");
    place.open(&one, view(300, 200));
    place.open(&one, view(200, 200));
    place.open(&other, view(300, 200));
    let cache = place.cache();
    let of_one: Vec<String> = cache
        .views()
        .unwrap()
        .into_iter()
        .filter(|row| row.address.ends_with("one.html"))
        .map(|row| row.name)
        .collect();
    assert_eq!(cache.remove(&of_one).unwrap(), 2);
    assert_eq!(cache.remove(&of_one).unwrap(), 0);
    let stats = cache.stats().unwrap();
    assert_eq!((stats.views, stats.documents), (1, 1));
    assert_eq!(place.open(&other, view(300, 200)).tier, Tier::List);
    assert_eq!(place.open(&one, view(300, 200)).tier, Tier::Nothing);
}
