//! Pages in XHTML look as they are meant, and the same bytes as HTML are another page.

use holdfast_page::{StaleReason, Tier};

use crate::server::{Reply, Server};
use crate::{Place, anew, is_drawn, network, view};

/// Nearly all of it is swallowed when it is read as HTML.
const PAGE: &str = "<?xml version='1.0' encoding='UTF-8'?>
    <!DOCTYPE html PUBLIC '-//W3C//DTD XHTML 1.0 Strict//EN' 'http://www.w3.org/TR/xhtml1/DTD/xhtml1-strict.dtd'>
    <html xmlns='http://www.w3.org/1999/xhtml'><head><title/><script src='a.js'/>
    <style type='text/css'>/*<![CDATA[*/ p { margin: 9px } /*]]>*/ p &gt; b { color: red }</style></head>
    <body><p>one <b>two</b><a id='x'/></p><p>three<br></br>four <![CDATA[<five>]]></p></body></html>";
/// What it means.
const HTML: &str = "<!DOCTYPE html><style>p { margin: 9px } p > b { color: red }</style>
    <p>one <b>two</b><a id=x></a></p><p>three<br>four &lt;five></p>";

/// Guarantee: pages/xhtml
#[test]
fn xhtml_looks_as_it_is_meant() {
    let (place, view) = (Place::new(), view(300, 200));
    let meant = anew(&place.write("meant.html", HTML), view);
    assert!(is_drawn(&meant));
    let as_html = place.write("a.html", PAGE);
    let swallowed = place.open(&as_html, view);
    assert!(swallowed.pixels != meant);
    // The document of the page before, which has the same bytes, is not that of this one.
    for name in ["a.xhtml", "b.XHT"] {
        let page = place.write(name, PAGE);
        let first = place.open(&page, view);
        assert!(first.pixels == meant, "{name}");
        let again = place.open(&page, view);
        assert!(again.tier == Tier::Pixels && again.pixels == meant, "{name}");
    }
    assert_eq!(place.open(&as_html, view).tier, Tier::Pixels);
}

/// Guarantee: pages/xhtml
#[test]
fn server_says_what_is_xhtml() {
    let (place, server) = (Place::new(), Server::new());
    let meant = anew(&place.write("meant.html", HTML), view(300, 200));
    let url = server.url("/a");
    server.say("/a", Reply::html(PAGE));
    assert!(place.usual(&url).pixels != meant);
    server.say("/a", Reply::new("application/xhtml+xml; charset=utf-8", PAGE));
    let other = place.usual(&url);
    assert_eq!(other.stale, Some(StaleReason::Source));
    assert!(other.pixels == meant && network::anew(&url, view(300, 200)) == meant);
    assert_eq!(place.usual(&url).tier, Tier::Pixels);
}

/// Guarantee: pages/xhtml
#[test]
fn query_of_an_xhtml_file_sees_all_of_it() {
    let place = Place::new();
    for (name, count) in [("a.xhtml", "2\n"), ("a.html", "0\n")] {
        let file = place.write(name, PAGE);
        let arguments = ["query", file.to_str().unwrap(), "p", "--count"];
        let output = place.program().args(arguments).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), count, "{name}");
    }
}
