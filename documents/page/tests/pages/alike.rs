//! A kept page looks as a new one, byte for byte.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use holdfast_page::{StaleReason, Tier, View};

use crate::{Place, anew, is_drawn, png, view};

/// Text in several fonts and sizes, with all that surrounds it.
const TEXT: &str = "<!doctype html><title>Text</title><style>body { font: 16px sans-serif; background: #f4f4ff }
    h1 { text-shadow: 1px 1px 2px gray } .big { font-size: 60px; line-height: 1 } mark { border-radius: 4px }
    pre { border: 1px dashed red; overflow: hidden; height: 40px } s { text-decoration-style: wavy }</style>
    <h1>Überschrift &amp; Text</h1><p>Some <b>bold</b>, <i>italic</i>, <code>fixed</code>, <mark>marked</mark>, <s>gone</s>,
    <sup>up</sup> and <a href='#there'>linked</a> words. \u{3b1}\u{3b2}\u{3b3} \u{416}\u{417} \u{5d0}\u{5d1} \u{2211}\u{221e} x\u{301}\u{302}\u{303}.
    <p class=big>Large letters<p style='font-family: serif'>And others.<pre>a
    b
    c
    d</pre><ul><li>one<li>two<ol><li>in</ol></ul><dl><dt>t<dd>d</dl><hr><blockquote>quoted</blockquote>";

/// What is painted otherwise than text.
const BOXES: &str = "<!doctype html><title>Boxes</title><style>
    .g { background: linear-gradient(30deg, red, gold 40%, rgb(0 0 255 / 50%)); height: 90px; border-radius: 30px 4px; }
    .r { background: radial-gradient(circle at 30% 40%, white, navy); height: 80px }
    .c { background: conic-gradient(in oklch, red, lime, blue, red); height: 80px; width: 80px }
    .s { box-shadow: 6px 6px 18px 2px #0008, inset 0 0 9px red; height: 50px; margin: 20px; }
    .o { opacity: .4; background: green; height: 40px } .t { transform: rotate(9deg) scale(.8); background: teal; height: 40px }
    .x { overflow: hidden; width: 200px; height: 60px; border: 5px ridge orange } .x div { width: 500px; height: 200px; background: pink }
    .f { display: flex; gap: 9px } .f div { flex: 1; border: 3px double blue; height: 30px }
    .q { display: grid; grid-template-columns: 1fr 2fr; } .q div { outline: 2px solid black; margin: 3px; height: 20px }
    .p { clip-path: circle(30px); background: purple; height: 80px } .n { position: relative; z-index: -1; top: -9px }
    table { border-collapse: collapse } td { border: 2px solid maroon; padding: 6px }</style>
    <div class=g></div><div class=r></div><div class=c></div><div class=s>shadow</div><div class=o></div><div class=t>turned</div>
    <div class=x><div>cut</div></div><div class=f><div>1</div><div>2</div></div><div class=q><div></div><div></div></div>
    <div class=p></div><div class=n>under</div><table><tr><td>1<td>2<tr><td colspan=2>3</table>
    <input value=typed><input type=checkbox checked><button>press</button><textarea>lines</textarea>";

/// With files beside it.
const IMAGES: &str = "<!doctype html><title>Images</title><link rel=stylesheet href=more.css><img src=red.png width=80 height=50>
    <img src=red.png style='border-radius: 20px'><p class=back>on tiles</p><img src=missing.png alt=missing>
    <img src='data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='
    width=30 height=30><div style='height: 3000px'></div><p>the end</p>";

/// So long that there are many bands, and more clips than the engine has at once.
fn long() -> String {
    let mut page =
        "<!doctype html><title>Long</title><style>div { overflow: hidden; width: 300px; height: 18px; \
        border-radius: 6px; background: #dde; white-space: nowrap } main { background: #efe }</style><main>"
            .to_owned();
    for number in 0..2500 {
        let _ = write!(
            page,
            "<div>line {number} of a page that has many, and is wider than its place</div>"
        );
    }
    page
}

fn write_all(place: &Place) -> Vec<PathBuf> {
    place.write("red.png", png(40, 30, [200, 30, 30, 255]));
    place.write("tile.png", png(7, 5, [30, 30, 200, 120]));
    place.write(
        "more.css",
        "@import 'most.css'; .back { background: url(tile.png); padding: 30px }",
    );
    place.write("most.css", "p { color: #063 }");
    vec![
        place.write("text.html", TEXT),
        place.write("boxes.html", BOXES),
        place.write("images.html", IMAGES),
    ]
}

/// The first time by the engine, then from the cache, at several places of the page: from the list,
/// and where it was opened first from its pixels.
pub(crate) fn compare(place: &Place, page: &Path, view: View, scrolls: &[u32]) {
    let first = place.open(page, view);
    assert!(!matches!(first.tier, Tier::Pixels | Tier::List));
    assert!(is_drawn(&first.pixels), "{}: nothing is painted", page.display());
    for scroll in scrolls {
        let there = view.scrolled(*scroll);
        let kept = place.repainted(page, there);
        assert_eq!(kept.tier, Tier::List, "{}, from {scroll}: {:?}", page.display(), kept.stale);
        let shown = place.open(page, there);
        let tier = if shown.scroll == first.scroll { Tier::Pixels } else { Tier::List };
        assert_eq!(shown.tier, tier, "{}, from {scroll}: {:?}", page.display(), shown.stale);
        assert!(
            shown.pixels == kept.pixels,
            "{}, from {scroll}: pixels and list differ",
            page.display()
        );
        let made = anew(page, there);
        if kept.pixels != made {
            let differs = |number: &usize| kept.pixels.bytes[*number] != made.bytes[*number];
            let pixels = (0..made.bytes.len()).filter(differs).map(|number| number / 4);
            let lines: Vec<usize> = pixels.map(|pixel| pixel / made.width as usize).collect();
            panic!(
                "{}, from {scroll}: {} bytes differ, in lines {:?} to {:?}",
                page.display(),
                lines.len(),
                lines.first(),
                lines.last()
            );
        }
    }
}

/// A cached page is painted with exactly the bytes of a fresh layout.
///
/// Guarantee: pages/byte-for-byte
#[test]
fn kept_page_is_byte_equal() {
    let place = Place::new();
    for page in write_all(&place) {
        compare(&place, &page, view(900, 700), &[0, 1, 133, 1000, 7777, 1_000_000]);
        compare(&place, &page, view(333, 200), &[0, 250]);
    }
}

/// A page with more clips than the engine supports is stored as far as possible.
///
/// Guarantee: pages/byte-for-byte
#[test]
fn page_with_many_clips_is_kept_in_part() {
    let place = Place::new();
    let page = place.write("long.html", long());
    let view = view(400, 300);
    compare(&place, &page, view, &[0, 3_900, 4_000, 9_999, 20_000, 30_000]);
    let end = place.open(&page, view.scrolled(1_000_000));
    assert!(
        matches!((end.tier, &end.stale), (Tier::Document, Some(StaleReason::Beyond { .. }))),
        "{:?}",
        end.stale
    );
    assert_eq!(end.pixels, anew(&page, view.scrolled(1_000_000)));
    assert_eq!(place.open(&page, view).tier, Tier::Pixels);
}

/// Letters that extend over the edge of a band are painted in both bands.
///
/// Guarantee: pages/byte-for-byte
#[test]
fn letters_over_a_band_edge_are_in_both() {
    let place = Place::new();
    let line = "<p style='margin: 0; font: 150px sans-serif; line-height: 170px'>gÅjy\u{302}</p>";
    let page = place.write("letters.html", format!("<!doctype html>{}", line.repeat(24)));
    let edges: Vec<u32> = (0..14).map(|band| band * 256).collect();
    compare(&place, &page, view(500, 256), &edges);
}

/// A cached page is byte-equal to a fresh layout at other scale factors.
///
/// Guarantee: pages/byte-for-byte
#[test]
fn kept_page_is_byte_equal_at_other_scales() {
    let place = Place::new();
    for page in write_all(&place) {
        for scale in [1_500, 2_000, 700] {
            compare(&place, &page, View::new(800, 600, scale).unwrap(), &[0, 77, 1_000_000]);
        }
    }
}

/// Real pages are painted from the cache with exactly the bytes of a fresh layout.
///
/// Guarantee: pages/byte-for-byte
/// Guarantee: pages/kept-pixels
#[test]
fn real_pages_are_byte_equal() {
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().to_owned();
    let pages = target.join("pages");
    if !pages.is_dir() {
        println!("not run: there are no real pages at {}; `./test` gets them", pages.display());
        return;
    }
    let place = Place::new();
    for name in ["index", "ch01", "ch12"] {
        compare(
            &place,
            &pages.join(format!("{name}.en.html")),
            view(1280, 800),
            &[0, 555, 1_000_000],
        );
    }
}

/// Another viewport reuses the stored document and lays it out again.
///
/// Guarantee: pages/viewports
#[test]
fn other_viewport_lays_out_the_kept_document() {
    let place = Place::new();
    let page = place.write("text.html", TEXT);
    place.open(&page, view(900, 700));
    let other = place.open(&page, view(500, 700));
    assert_eq!(other.tier, Tier::Document);
    assert_eq!(other.pixels, anew(&page, view(500, 700)));
    assert_eq!(place.open(&page, view(500, 700)).tier, Tier::Pixels);
    assert_eq!(place.open(&page, view(900, 700)).tier, Tier::Pixels);
    assert_eq!(place.cache().stats().unwrap().documents, 1);
}

/// Guarantee: pages/byte-for-byte
/// Guarantee: pages/places
#[test]
fn links_and_elements_are_kept_with_their_places() {
    let place = Place::new();
    let text = "<!doctype html><body style='margin: 0'><div style='height: 500px'></div><p id=p>see <a href=other.html>there</a></p>";
    let page = place.write("links.html", text);
    place.open(&page, view(400, 300));
    let cache = place.cache();
    let row = cache.views().unwrap().remove(0);
    let places = cache.places(&row.name).unwrap().unwrap().unwrap();
    assert_eq!(places.links.len(), 1);
    let [x0, y0, x1, y1] = places.links[0].place;
    assert_eq!(places.links[0].href, "other.html");
    assert!(
        y0 > 500.0 && y1 > y0 + 5.0 && y1 < 600.0 && x1 > x0 + 10.0 && x0 > 10.0,
        "{:?}",
        places.links
    );
    assert!(
        places.boxes.iter().any(|one| one.place[3] - one.place[1] == 500.0),
        "{:?}",
        places.boxes
    );
}
