//! Paragraphs with more pieces than the engine can count in 16 bits.

use std::path::Path;
use std::sync::Arc;

use holdfast_page::{Files, FindOptions, OpenOptions, OpenPage, PageUse, Tier, View, open_with};

use crate::{Place, address, anew, is_drawn, limits, view};

/// More elements than the engine can count, ten a line.
const PIECES: usize = 70_000;
/// As many as it can.
const PIECES_MAX: usize = 65_000;

const STYLE: &str = "<!doctype html><style>body { margin: 0; font: 16px/20px sans-serif } pre { font: 14px/18px monospace; margin: 0 }
    i { font-style: normal; color: #060 } a { color: #00c } p { margin: 0 }</style>";

fn pieces(count: usize, end: &str) -> String {
    let piece = |number: usize| {
        let end = if number % 10 == 9 { end } else { " " };
        format!("<i>w{number}</i>{end}")
    };
    (0..count).map(piece).collect()
}

fn opened(place: &Place, page: &Path, view: View, want: PageUse) -> OpenPage {
    let (cache, limits) = (place.cache(), limits());
    let opening =
        OpenOptions { want, ..OpenOptions::new(view, &limits, Some(&cache), Arc::new(Files)) };
    let mut opened = open_with(&address(page), &opening).unwrap();
    if let Some(to_keep) = opened.to_keep.take() {
        to_keep.keep(&cache).unwrap();
    }
    opened
}

/// A listing with more pieces than the engine can count looks like its beginning alone.
///
/// Guarantee: pages/long-paragraphs
#[test]
fn huge_listing_looks_as_its_beginning() {
    let place = Place::new();
    for (name, open, close, end, line) in [
        ("pre.html", "<pre><code>", "</code></pre>", "\n", 18),
        (
            "br.html",
            "<table><tr><td style='vertical-align: baseline; padding: 0'>",
            "</table>",
            "<br>",
            20,
        ),
    ] {
        let page = |count: usize| {
            let text = pieces(count, end);
            place.write(name, format!("{STYLE}<body>{open}{text}{close}"))
        };
        let views: Vec<View> =
            [0, 1_640, 4_090, 6_400].map(|first| view(600, 300).scrolled(first * line)).to_vec();
        let short: Vec<_> = views.iter().map(|view| anew(&page(PIECES_MAX), *view)).collect();
        let long = page(PIECES);
        for (view, short) in views.iter().zip(&short) {
            assert!(is_drawn(short), "{name} at {view:?}");
            let opened = opened(&place, &long, *view, PageUse::Picture);
            assert_eq!(opened.pixels, *short, "{name} at {view:?}");
            assert_eq!(opened.notes, Vec::<String>::new(), "{name}");
        }
    }
}

/// Text at the end of a part of a long paragraph is found, also in a cached page.
///
/// Guarantee: pages/long-paragraphs
#[test]
fn text_at_the_end_of_a_part_is_found() {
    let place = Place::new();
    // A link over all of it, and a word that is marked behind each place at which it can be broken.
    let text = pieces(PIECES, "\n");
    let page = place.write("a.html", format!("{STYLE}<body><pre><a href=all>{text}</a></pre>"));
    let cold = opened(&place, &page, view(600, 300), PageUse::Places);
    assert_eq!(cold.tier, Tier::Nothing);
    let again = opened(&place, &page, view(600, 300), PageUse::Places);
    assert_eq!(again.tier, Tier::Layout);
    assert_eq!(again.boxes_of("i, a, pre").unwrap(), cold.boxes_of("i, a, pre").unwrap());
    let boxes = again.boxes_of("a").unwrap();
    assert_eq!((boxes.len(), boxes[0].place[1], boxes[0].place[3]), (1, 0.0, 18.0 * 7_000.0));
    let places = again.places.unwrap();
    assert_eq!(places.text.len(), 1);
    assert_eq!(places.text[0].lines().len(), 7_000);
    assert_eq!(places.links.len(), 7_000);
    for line in 1..7_000 {
        // Over the end of each line, whichever a part ends with.
        let (before, behind) = (line * 10 - 1, line * 10);
        if line % 512 == 0 || line % 625 == 0 {
            let found = places.find(&format!("w{before} w{behind}"), FindOptions::default());
            assert_eq!(found.len(), 1, "{line}");
            let tops: Vec<f32> =
                found[0].places.iter().map(|place| (place[1] / 18.0).floor()).collect();
            assert_eq!(tops, [line as f32 - 1.0, line as f32], "{line}");
        }
        let link = places.link_at(5.0, 18.0 * line as f32 + 9.0, 0);
        assert_eq!(link.map(|link| link.href.as_str()), Some("all"), "{line}");
    }
    let fresh = anew(&page, view(600, 300).scrolled(5_100 * 18));
    let kept = opened(&place, &page, view(600, 300).scrolled(5_100 * 18), PageUse::Picture);
    assert_eq!((kept.tier, kept.pixels == fresh), (Tier::List, true));
}

/// A paragraph that cannot be broken invisibly is shown, and a note says so.
///
/// Guarantee: pages/long-paragraphs
#[test]
fn visible_break_of_a_paragraph_is_noted() {
    let place = Place::new();
    let page = place.write("a.html", format!("{STYLE}<body><p>{}</p>", pieces(PIECES, " ")));
    let cold = opened(&place, &page, view(600, 300), PageUse::Picture);
    let told = |opened: &OpenPage| -> Vec<String> {
        opened.notes.iter().filter(|note| note.contains("pieces")).cloned().collect()
    };
    assert_eq!(told(&cold).len(), 1, "{:?}", cold.notes);
    assert!(told(&cold)[0].contains("it has 70001 pieces"), "{:?}", cold.notes);
    let again = opened(&place, &page, view(600, 300), PageUse::Picture);
    assert_eq!(
        (again.tier, &again.pixels, told(&again)),
        (Tier::Pixels, &cold.pixels, told(&cold))
    );
}
