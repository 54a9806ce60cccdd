//! The cache stays as small as it may be: what was used longest ago goes.

use std::sync::Arc;

use holdfast_page::{
    CacheError, Files, FindOptions, OpenOptions, PageUse, StaleReason, Tier, open, open_with,
};
use holdfast_region::{OwnerKey, RegionName};

use crate::{CACHE, HEADER_BYTES, Place, address, anew, limits, view};

/// Above the quota, the least recently used pictures are evicted, then whole views with their
/// documents.
///
/// Guarantee: pages/quota
#[test]
fn quota_evicts_pictures_then_views() {
    let place = Place::new();
    let view = view(300, 200);
    let text = "<p>text that takes some room in the cache of pages".repeat(200);
    let pages: Vec<_> = (0..8)
        .map(|n| place.write(&format!("{n}.html"), format!("<!doctype html><h1>{n}</h1>{text}")))
        .collect();
    place.open(&pages[0], view);
    let row = place.cache().views().unwrap().remove(0);
    let one = place.cache().stats().unwrap();
    assert_eq!((one.picture_bytes, one.layout_bytes), (row.picture_bytes, row.layout_bytes));
    assert!(row.picture_bytes > row.layout_bytes && row.layout_bytes > 1_000, "{row:?}");
    let quota = (one.view_bytes + one.document_bytes) * 3 + one.view_bytes / 2;
    place.cache().remove(&[row.name]).unwrap();
    assert_eq!(place.cache().stats().unwrap().documents, 0, "a document goes with its last view");
    let cache = place.cache_of(quota);
    let row_of = |number: usize| {
        let end = format!("/{number}.html");
        cache.views().unwrap().into_iter().find(|row| row.address.ends_with(&end))
    };
    let (mut views, mut pictures) = (0, 0);
    for (number, page) in pages.iter().enumerate() {
        let mut opened = open(&address(page), view, &limits(), Some(&cache)).unwrap();
        let kept = opened.to_keep.take().unwrap().keep(&cache).unwrap();
        (views, pictures) = (views + kept.evicted, pictures + kept.pictures_evicted);
        // Used at times that differ, which the clock of seconds does not show.
        set_used(&place, &row_of(number).unwrap().name, 1_000 + number as u64);
        if number == 2 {
            // The oldest is used again.
            set_used(&place, &row_of(0).unwrap().name, 5_000);
        }
        let stats = cache.stats().unwrap();
        assert!(stats.view_bytes + stats.document_bytes <= quota, "{stats:?}");
        assert_eq!(stats.views, stats.documents);
        if number == 3 {
            let first = row_of(1).unwrap();
            assert!(
                (views, first.picture_bytes) == (0, 0) && first.layout_bytes == row.layout_bytes,
                "{first:?}"
            );
        }
    }
    let rows = cache.views().unwrap();
    assert!(
        views > 0 && pictures >= 3 && rows.len() as u64 == 8 - views,
        "{views} {pictures} {rows:?}"
    );
    // Last used first: the newer half have their pictures, and what is gone was used before all
    // that is there.
    let ends: Vec<&str> = rows.iter().map(|row| &row.address[row.address.len() - 6..]).collect();
    assert_eq!(ends[..2], ["0.html", "7.html"]);
    assert!(rows[..rows.len() / 2].iter().all(|row| row.picture_bytes > 0), "{rows:?}");
    assert!(rows.iter().any(|row| row.picture_bytes == 0), "{rows:?}");
    assert!(row_of(1).is_none() && rows.iter().all(|row| row.damage.is_none()), "{rows:?}");
    assert_eq!(place.cache().check().unwrap(), []);
}

/// A page whose picture was evicted can be searched and is laid out again from its document.
///
/// Guarantee: pages/viewports
#[test]
fn evicted_picture_leaves_a_searchable_layout() {
    let place = Place::new();
    let view = view(300, 200);
    place.write("a.png", crate::png(60, 60, [9, 99, 9, 255]));
    let text = "<p>text that takes some room in the cache of pages".repeat(200);
    let page = place
        .write("a.html", format!("<!doctype html><a href=b.html>needle</a><img src=a.png>{text}"));
    let other = place.write("b.html", format!("<!doctype html>{text}"));
    place.open(&page, view);
    let stats = place.cache().stats().unwrap();
    let cache =
        place.cache_of(stats.view_bytes * 2 + stats.document_bytes * 2 - stats.picture_bytes / 2);
    let mut opened = open(&address(&other), view, &limits(), Some(&cache)).unwrap();
    let kept = opened.to_keep.take().unwrap().keep(&cache).unwrap();
    assert_eq!((kept.evicted, kept.pictures_evicted), (0, 1));
    let rows = cache.views().unwrap();
    let row = rows.iter().find(|row| row.address.ends_with("a.html")).unwrap();
    assert!(row.picture_bytes == 0 && row.damage.is_none(), "{row:?}");
    let places = cache.places(&row.name).unwrap().unwrap().unwrap();
    assert_eq!((places.links.len(), places.find("needle", FindOptions::default()).len()), (1, 1));

    let opening = OpenOptions {
        want: PageUse::Places,
        ..OpenOptions::new(view, &limits(), Some(&cache), Arc::new(Files))
    };
    let asked = open_with(&address(&page), &opening).unwrap();
    assert_eq!((asked.tier, &asked.stale), (Tier::Layout, &None));
    assert_eq!(asked.boxes_of("a").unwrap().len(), 1);
    let opened = place.open(&page, view);
    assert_eq!((opened.tier, opened.stale), (Tier::Document, Some(StaleReason::PictureEvicted)));
    assert_eq!(opened.pixels, anew(&page, view));
    assert_eq!(place.open(&page, view).tier, Tier::Pixels, "it is kept again");
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

/// Guarantee: pages/quota
#[test]
fn opening_a_page_notes_that_it_was_used() {
    let place = Place::new();
    let page = place.write("a.html", "<!doctype html><p>text");
    place.open(&page, view(300, 200));
    let row = place.cache().views().unwrap().remove(0);
    set_used(&place, &row.name, 1_000);
    assert_eq!(place.open(&page, view(300, 200)).tier, Tier::Pixels);
    let used = place.cache().views().unwrap()[0].used_s;
    assert!(used >= row.used_s, "{used}");
    assert_eq!(place.open(&page, view(300, 200)).tier, Tier::Pixels, "the note is no damage");
}

/// A page larger than the quota is shown but not stored.
///
/// Guarantee: pages/quota
#[test]
fn page_larger_than_the_quota_is_not_kept() {
    let place = Place::new();
    let page = place.write("a.html", "<!doctype html><p>text");
    let cache = place.cache_of(1_000);
    let mut opened = open(&address(&page), view(300, 200), &limits(), Some(&cache)).unwrap();
    let kept = opened.to_keep.take().unwrap().keep(&cache);
    assert!(matches!(kept, Err(CacheError::TooLarge { quota_bytes: 1_000, .. })), "{kept:?}");
}

/// Guarantee: pages/quota
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
    assert_eq!(place.open(&other, view(300, 200)).tier, Tier::Pixels);
    assert_eq!(place.open(&one, view(300, 200)).tier, Tier::Nothing);
}

/// A larger quota also takes effect on a cache that was created with a smaller one.
///
/// Guarantee: pages/import-kills
/// Guarantee: pages/memory
#[test]
fn quota_of_an_existing_cache_grows() {
    let place = Place::new();
    let page = place.write("a.html", "<!doctype html><p>text");
    for quota in [1 << 20, 512 << 20] {
        let cache = place.cache_of(quota);
        let view = view(300, 200 + (quota >> 20) as u32);
        let opened = open(&address(&page), view, &limits(), Some(&cache)).unwrap();
        opened.to_keep.unwrap().keep(&cache).unwrap();
    }
    let names = place.names();
    let key = OwnerKey::load_existing(names.places(), "default").unwrap();
    let region = names.open_read_only(&RegionName::parse(CACHE).unwrap(), &key).unwrap();
    assert!(region.limit_bytes() > 512 << 20, "{}", region.limit_bytes());
}
