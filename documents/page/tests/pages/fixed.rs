//! Pages of which parts stay where they are when they are scrolled: kept with that, where it can be
//! told, and unscrolled otherwise.

use std::path::PathBuf;

use holdfast_page::{StaleReason, Tier, View};

use crate::alike::compare;
use crate::{Place, anew, png, view};

/// Text under and beside what stays, of a height that is no multiple of anything.
fn page(place: &Place, name: &str, style: &str, body: &str) -> PathBuf {
    let rest: String = (0..60)
        .map(|n| {
            format!("<p>line {n} of a text that goes on and on beside <i>and</i> under it</p>")
        })
        .collect();
    let style = format!(
        "body {{ margin: 0; font: 17px sans-serif; background: #fafaf0 }} main {{ padding: 40px 150px 37px 20px }} {style}"
    );
    place.write(name, format!("<!doctype html><style>{style}</style>{body}<main>{rest}</main>"))
}

const HEADER: &str = "header { position: fixed; top: 0; left: 0; right: 0; height: 31px; background: rgb(0 0 80 / 70%); color: white }";
const FOOTER: &str = "footer { position: fixed; bottom: 0; width: 100%; border-top: 1px solid red; background: linear-gradient(#fff, #ccc) }";
const SIDE: &str = "nav { position: fixed; right: 10px; top: 20%; width: 120px; height: 60%; overflow: hidden; border-radius: 12px;
    background: gold; box-shadow: 3px 3px 9px #0008; opacity: .9 }";

/// What the engine paints at the same place wherever the page is scrolled to.
const STAYING: [(&str, &str, &str); 9] = [
    ("header", HEADER, "<header>A <b>header</b></header>"),
    ("footer", FOOTER, "<footer>A footer</footer>"),
    ("side", SIDE, "<nav>one<br>two<ul><li>three<li>four and more than fits</ul></nav>"),
    ("all", "", "<header>A <b>header</b></header><nav>side</nav><footer>A footer</footer>"),
    (
        "turned",
        "nav { position: fixed; right: 40px; top: 90px; transform: rotate(20deg) scale(1.2); background: pink }",
        "<nav>turned</nav>",
    ),
    (
        "above",
        "nav { position: fixed; top: 10px; right: 0; z-index: 5; background: lime }",
        "<nav>above</nav>",
    ),
    (
        "below",
        "nav { position: fixed; top: 10px; left: 0; width: 300px; height: 90px; z-index: -1; background: aqua }",
        "<nav>below</nav>",
    ),
    (
        "inside",
        "section { overflow: hidden; width: 90px; height: 90px; background: #eee } nav { position: fixed; top: 30px; right: 3px; background: coral }",
        "<section>clips<nav>fixed inside</nav></section>",
    ),
    (
        "nowhere",
        "nav { position: fixed; top: -500px } aside { position: fixed; left: 5000px } footer { position: fixed; bottom: -900px }",
        "<nav>up</nav><aside>right</aside><footer>down</footer>",
    ),
];

/// Fixed parts of a page are stored and painted byte for byte at every scroll position.
///
/// Guarantee: pages/byte-for-byte
#[test]
fn fixed_parts_are_byte_equal_at_every_scroll() {
    let place = Place::new();
    for (name, style, body) in STAYING {
        let all = format!("{HEADER}{FOOTER}{SIDE}");
        let style = if style.is_empty() { &all } else { style };
        let page = page(&place, &format!("{name}.html"), style, body);
        for scale in [1_000, 1_500] {
            compare(
                &place,
                &page,
                View::new(600, 300, scale).unwrap(),
                &[0, 1, 100, 257, 1_111, 2_000, 1_000_000],
            );
        }
    }
}

/// Drawing commands of fixed parts are in every band with the layers around them.
///
/// Guarantee: pages/byte-for-byte
#[test]
fn fixed_commands_are_in_every_band() {
    let place = Place::new();
    let page = page(
        &place,
        "a.html",
        &format!("{SIDE} body {{ opacity: .9 }}"),
        "<nav>one<br>two<br>three</nav>",
    );
    compare(&place, &page, view(500, 250), &[0, 255, 256, 700, 1_300, 1_000_000]);
}

/// A fixed part inside a layer that scrolls is clipped by that layer at every position.
///
/// Guarantee: pages/byte-for-byte
#[test]
fn fixed_part_is_cut_by_its_moving_layer() {
    let place = Place::new();
    let nav = "nav { position: fixed; top: 20px; left: 30px; width: 200px; height: 120px; background: orange }";
    for (name, style) in [
        ("root", "html { opacity: .9; height: 220px; background: #cfc }"),
        ("section", "section { opacity: .9; height: 220px; background: #cfc } nav { z-index: 5 }"),
    ] {
        let body = "<section>layer<nav>inside of it</nav></section>";
        let page = page(&place, &format!("{name}.html"), &format!("{nav} {style}"), body);
        for scale in [1_000, 1_500] {
            let view = View::new(500, 250, scale).unwrap();
            compare(&place, &page, view, &[0, 60, 150, 230, 300, 600, 1_300, 1_000_000]);
        }
    }
}

/// A fixed part is where the engine paints it, also far down a page.
///
/// Guarantee: pages/byte-for-byte
#[test]
fn fixed_part_is_right_far_down_a_page() {
    let place = Place::new();
    let style =
        "main { height: 600000px; background: linear-gradient(red, blue) } nav { position: fixed; top: 20px;
        left: 30px; width: 200px; height: 120px; background: black; color: white } html { margin-top: 7px }";
    for z_index in ["auto", "5"] {
        let style = format!("{style} nav {{ z-index: {z_index} }}");
        let page = page(&place, &format!("{z_index}.html"), &style, "<nav>above</nav>");
        let view = View::new(500, 250, 1_500).unwrap();
        compare(&place, &page, view, &[0, 5, 77_777, 600_001, 800_000, 880_001, 10_000_000]);
    }
}

/// Guarantee: pages/byte-for-byte
#[test]
fn fixed_parts_of_what_is_transformed_go_with_it() {
    let place = Place::new();
    let style = "section { transform: translateX(9px); height: 200px; background: #ddf } nav { position: fixed; top: 20px; background: red }";
    let page = page(&place, "a.html", style, "<section>moved<nav>goes along</nav></section>");
    compare(&place, &page, view(500, 250), &[0, 1, 90, 400, 1_000_000]);
}

/// A background fixed to the viewport is laid out again when the page is scrolled.
///
/// Guarantee: pages/byte-for-byte
#[test]
fn fixed_background_is_laid_out_again() {
    let place = Place::new();
    place.write("tile.png", png(19, 13, [30, 30, 200, 120]));
    for style in [
        "main { background: url(tile.png) center fixed }",
        "main { background: url(tile.png) fixed }",
        "main { background: linear-gradient(red, blue) fixed }",
        "body { background: url(tile.png) bottom right no-repeat fixed }",
    ] {
        let page = page(&place, "a.html", style, "");
        for scale in [1_000, 1_500] {
            let view = View::new(500, 250, scale).unwrap();
            place.open(&page, view);
            for scroll in [0, 1, 90, 777, 1_000_000] {
                let there = view.scrolled(scroll);
                let opened = place.open(&page, there);
                assert!(opened.pixels == anew(&page, there), "{style} from {scroll}");
                let is_told = matches!(
                    (opened.tier, &opened.stale),
                    (Tier::Pixels, None) | (Tier::Document, Some(StaleReason::ScrollBound))
                );
                assert!(is_told, "{style} from {scroll}: {:?}", opened.stale);
                let list = place.repainted(&page, there);
                assert!(
                    scroll != 0 || list.tier == Tier::List && list.pixels == opened.pixels,
                    "{style}"
                );
                println!("{style} {scale} {scroll}: {}", opened.tier);
            }
            assert_eq!(
                place.open(&page, view).tier,
                Tier::Pixels,
                "the unscrolled view is kept still"
            );
        }
    }
}
