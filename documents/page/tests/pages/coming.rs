//! Eviction that makes room for a page spares what the page itself needs, though the page that it
//! was kept for goes.

use std::sync::Arc;
use std::time::Duration;

use holdfast_page::{Address, CachePolicy, OpenOptions, Tier, Web, open_with};

use crate::network::{anew, server};
use crate::{Place, limits, view};

/// Evicting a page keeps the parts that other pages need.
///
/// Guarantee: pages/quota
#[test]
fn eviction_spares_shared_parts() {
    let server = server(&[("Cache-Control", "max-age=1000")]);
    let url = server.url("/a.html");
    let (wide, tall, other) = (view(300, 200), view(200, 300), view(250, 250));
    let right = anew(&url, other);
    // As much room as the second view alone takes, with all that it needs.
    let alone = Place::new();
    alone.visit(&url, tall, CachePolicy::Usual).unwrap();
    let needed = alone.cache().stats().unwrap();
    assert!(needed.answers_bytes > 0, "{needed:?}");
    let quota = needed.view_bytes + needed.document_bytes + needed.answers_bytes;

    let place = Place::new();
    place.visit(&url, wide, CachePolicy::Usual).unwrap();
    server.asked();
    let cache = place.cache_of(quota);
    let limits = limits();
    let web = Arc::new(Web::new(Duration::from_secs(60)));
    let opening = OpenOptions::new(tall, &limits, Some(&cache), web);
    let mut opened = open_with(&Address::parse(&url).unwrap(), &opening).unwrap();
    assert_eq!(opened.tier, Tier::Document);
    let kept = opened.to_keep.take().unwrap().keep(&cache).unwrap();
    assert_eq!(kept.evicted, 1);
    let stats = cache.stats().unwrap();
    assert_eq!((stats.views, stats.documents), (1, 1));
    assert_eq!(stats.answers_bytes, needed.answers_bytes, "{stats:?}");

    // Its document, what its server said of it and its parts, and their bytes.
    let again = place.visit(&url, tall, CachePolicy::Usual).unwrap();
    let narrow = place.visit(&url, other, CachePolicy::Usual).unwrap();
    assert_eq!((again.tier, narrow.tier), (Tier::Pixels, Tier::Document));
    assert_eq!(server.paths(), [""; 0], "nobody is asked for what was kept");
    assert_eq!(narrow.pixels, right);
}
