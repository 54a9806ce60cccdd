//! Servers that take back what they gave, or have nothing: what is kept then, and what not.

use holdfast_page::{Asking, Tier};

use crate::network::{anew, server};
use crate::server::Reply;
use crate::{Place, view};

const PAGE: &str = "<!doctype html><link rel=stylesheet href=/a.css><p>text";

#[test]
fn what_a_server_does_not_want_to_be_kept_any_more_is_shown_once_and_goes() {
    let is_said =
        |notes: &[String]| notes.iter().any(|note| note.contains("not kept any more: the server of"));
    let tag = ("ETag", "\"one\"");
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
        place.visit(&url, view(200, 200), Asking::Usual).unwrap();
        assert_eq!(place.cache().views().unwrap().len(), 2);
        server.say("/a.html", page(tag, text).with("Cache-Control", "no-store"));
        let opened = place.usual(&url);
        if text == "text" {
            assert_eq!((opened.tier, opened.pixels == first.pixels), (Tier::List, true));
            assert!(is_said(&opened.notes), "{:?}", opened.notes);
        } else {
            assert_eq!((opened.tier, &opened.pixels), (Tier::Nothing, &anew(&url, view(300, 200))));
            assert!(opened.notes.iter().any(|note| note.contains("not kept")), "{:?}", opened.notes);
        }
        assert_eq!(place.cache().views().unwrap(), [], "of no viewport, and not as it was before");
        let stats = place.cache().stats().unwrap();
        assert_eq!((stats.documents, stats.answers_bytes), (0, 0));
        assert!(place.visit(&url, view(300, 200), Asking::Offline).is_err());
        let again = place.usual(&url);
        assert!(again.tier == Tier::Nothing && !is_said(&again.notes), "{:?}", again.notes);
        assert_eq!(place.cache().views().unwrap(), []);
    }
}

#[test]
fn a_part_that_must_not_be_kept_any_more_takes_the_pages_that_ask_for_it_along_and_no_others() {
    let (place, server) = (Place::new(), server(&[("ETag", "\"one\"")]));
    server.say("/b.html", Reply::html(PAGE.replace("text", "b")).with("ETag", "\"b\""));
    server.say("/c.html", Reply::html("<!doctype html><p>c").with("ETag", "\"c\""));
    for page in ["/a.html", "/b.html", "/c.html"] {
        place.usual(&server.url(page));
    }
    let secret = Reply::css("h1 { color: red }").with("ETag", "\"one\"").with("Cache-Control", "no-store");
    server.say("/a.css", secret);
    let opened = place.usual(&server.url("/a.html"));
    let is_told = |note: &String| note.contains("/a.css does not want it to be");
    assert!(opened.tier == Tier::List && opened.notes.iter().any(is_told), "{:?}", opened.notes);
    let left: Vec<String> = place.cache().views().unwrap().into_iter().map(|row| row.address).collect();
    assert_eq!(left, [server.url("/c.html")]);
    assert_eq!(place.usual(&server.url("/c.html")).tier, Tier::List);
}
