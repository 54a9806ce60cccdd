//! Servers that take back what they gave, or have nothing: what is kept then, and what not.

use holdfast_page::{CachePolicy, StaleReason, Tier};

use crate::network::{anew, server};
use crate::server::{Reply, Server};
use crate::{Place, png, view};

const PAGE: &str = "<!doctype html><link rel=stylesheet href=/a.css><p>text";

/// A page that the server no longer allows to be stored is shown once and removed.
///
/// Guarantee: pages/no-store
#[test]
fn no_store_page_is_shown_once_and_removed() {
    let is_said = |notes: &[String]| {
        notes.iter().any(|note| note.contains("not kept any more: the server of"))
    };
    // Unchanged, by its tag; the same bytes again; and other ones.
    for (tag, text) in [(Some("\"one\""), "text"), (None, "text"), (Some("\"two\""), "else")] {
        let (place, server) = (Place::new(), server(&[("ETag", "\"one\"")]));
        let url = server.url("/a.html");
        let page = |tag: Option<&str>, text: &str| {
            let page = Reply::html(PAGE.replace("text", text));
            tag.map_or_else(|| page.clone(), |tag| page.clone().with("ETag", tag))
        };
        server.say("/a.html", page(tag.and(Some("\"one\"")), "text"));
        let first = place.usual(&url);
        place.visit(&url, view(200, 200), CachePolicy::Usual).unwrap();
        assert_eq!(place.cache().views().unwrap().len(), 2);
        server.say("/a.html", page(tag, text).with("Cache-Control", "no-store"));
        let opened = place.usual(&url);
        if text == "text" {
            assert_eq!((opened.tier, opened.pixels == first.pixels), (Tier::Pixels, true));
            assert!(is_said(&opened.notes), "{:?}", opened.notes);
        } else {
            assert_eq!((opened.tier, &opened.pixels), (Tier::Nothing, &anew(&url, view(300, 200))));
            assert!(
                opened.notes.iter().any(|note| note.contains("not kept")),
                "{:?}",
                opened.notes
            );
        }
        assert_eq!(place.cache().views().unwrap(), [], "of no viewport, and not as it was before");
        let stats = place.cache().stats().unwrap();
        assert_eq!((stats.documents, stats.answers_bytes), (0, 0));
        assert!(place.visit(&url, view(300, 200), CachePolicy::Offline).is_err());
        let again = place.usual(&url);
        assert!(again.tier == Tier::Nothing && !is_said(&again.notes), "{:?}", again.notes);
        assert_eq!(place.cache().views().unwrap(), []);
    }
}

/// An unreadable view of a page that may no longer be stored is removed with it.
///
/// Guarantee: pages/no-store
#[test]
fn unreadable_view_is_removed_with_no_store() {
    let (place, server) = (Place::new(), server(&[]));
    let url = server.url("/a.html");
    place.usual(&url);
    let name = place.cache().views().unwrap()[0].name.clone();
    // As an older build kept it: this one cannot read of which page it is.
    place.spoil(|heap| heap.transaction(|tx| tx.write(tx.root(&name).unwrap(), 8, &[2])).unwrap());
    server.say("/a.html", Reply::html(PAGE).with("Cache-Control", "no-store"));
    assert_eq!(place.usual(&url).tier, Tier::Nothing);
    let stats = place.cache().stats().unwrap();
    assert_eq!((stats.views, stats.documents, stats.answers_bytes), (0, 0, 0));
}

/// A part that may no longer be stored removes the pages that request it, and no others.
///
/// Guarantee: pages/no-store
#[test]
fn no_store_part_removes_its_pages_only() {
    let (place, server) = (Place::new(), server(&[("ETag", "\"one\"")]));
    server.say("/b.html", Reply::html(PAGE.replace("text", "b")).with("ETag", "\"b\""));
    server.say("/c.html", Reply::html("<!doctype html><p>c").with("ETag", "\"c\""));
    for page in ["/a.html", "/b.html", "/c.html"] {
        place.usual(&server.url(page));
    }
    let secret =
        Reply::css("h1 { color: red }").with("ETag", "\"one\"").with("Cache-Control", "no-store");
    server.say("/a.css", secret);
    let opened = place.usual(&server.url("/a.html"));
    let is_told = |note: &String| note.contains("/a.css does not want it to be");
    assert!(opened.tier == Tier::Pixels && opened.notes.iter().any(is_told), "{:?}", opened.notes);
    let left: Vec<String> =
        place.cache().views().unwrap().into_iter().map(|row| row.address).collect();
    assert_eq!(left, [server.url("/c.html")]);
    assert_eq!(place.usual(&server.url("/c.html")).tier, Tier::Pixels);
}

/// A missing part is not requested again while the answer of its server is fresh.
///
/// Guarantee: pages/servers
#[test]
fn missing_part_stays_missing_while_fresh() {
    let place = Place::new();
    let server = Server::new();
    let url = server.url("/a.html");
    let page = Reply::html("<!doctype html><img src=a.png><img src=b.png><img src=c.png><p>text");
    server.say("/a.html", page.with("Cache-Control", "max-age=1000"));
    server.say("/a.png", Reply::status(404).with("Cache-Control", "max-age=1000"));
    server.say("/b.png", Reply::status(410).with("ETag", "\"b\""));
    server.say("/c.png", Reply::status(404).with("Cache-Control", "no-store"));
    let first = place.usual(&url);
    assert!(
        first
            .notes
            .iter()
            .any(|note| note.contains("/a.png, ") && note.contains("there is nothing")),
        "{:?}",
        first.notes
    );
    server.asked();
    for size in [view(300, 200), view(200, 200)] {
        let opened = place.visit(&url, size, CachePolicy::Usual).unwrap();
        assert_eq!(opened.tier, if size == view(300, 200) { Tier::Pixels } else { Tier::Document });
        assert_eq!(opened.notes.len(), 1, "{:?}", opened.notes);
        assert!(["/a.png", "/b.png", "/c.png"].iter().all(|part| opened.notes[0].contains(part)));
        let asked = server.asked();
        // One that says nothing of it is asked each time, without a tag: it is not that of a
        // picture.
        assert_eq!(
            asked.iter().map(|one| one.0.as_str()).collect::<Vec<_>>(),
            ["/b.png", "/c.png"]
        );
        assert!(
            asked.iter().all(|(_, headers)| !headers.contains_key("if-none-match")),
            "{asked:?}"
        );
    }
    server.say("/b.png", Reply::new("image/png", png(20, 20, [9, 99, 9, 255])));
    let opened = place.usual(&url);
    assert_eq!(opened.stale, Some(StaleReason::Resource(server.url("/b.png"))));
    // It is a page of its own for a request for one, and it is there by now.
    server.say("/a.png", Reply::html("<!doctype html><title>There</title>"));
    assert_eq!(place.usual(&server.url("/a.png")).title, "There");
    let made = place.visit(&url, view(300, 200), CachePolicy::Reload).unwrap();
    assert_eq!(made.pixels, anew(&url, view(300, 200)));
    drop(server);
    assert_eq!(place.visit(&url, view(300, 200), CachePolicy::Offline).unwrap().tier, Tier::Pixels);
}
