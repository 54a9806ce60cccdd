//! The places of elements: from the engine as from a kept layout, and where the ink is.

use std::path::Path;
use std::sync::Arc;

use holdfast_page::{
    Files, FindOptions, OpenOptions, OpenPage, PageLayout, PageLimits, PageUse, Place as Corners,
    Tier, View, open_with,
};

use crate::{Place, address, anew, limits, view};

impl Place {
    /// Opens a page to be asked, and keeps it.
    fn ask(&self, page: &Path, view: View) -> OpenPage {
        let cache = self.cache();
        let limits: PageLimits = limits();
        let opening = OpenOptions {
            want: PageUse::Places,
            ..OpenOptions::new(view, &limits, Some(&cache), Arc::new(Files))
        };
        let mut opened = open_with(&address(page), &opening).unwrap();
        if let Some(to_keep) = opened.to_keep.take() {
            to_keep.keep(&cache).unwrap();
        }
        opened
    }

    fn places(&self, page: &Path, view: View) -> PageLayout {
        self.ask(page, view).places.unwrap()
    }
}

fn page(style: &str, body: &str) -> String {
    format!(
        "<!doctype html><style>body {{ margin: 0; font: 20px sans-serif; color: #00f }} u {{ color: #f00; text-decoration: none }} {style}</style>{body}"
    )
}

/// The rectangle of all that is red: the word that is looked for, and nothing else.
fn ink(path: &Path, view: View) -> Corners {
    let pixels = anew(path, view);
    let mut found: Option<[usize; 4]> = None;
    for (number, pixel) in pixels.bytes.chunks_exact(4).enumerate() {
        let is_ink = pixel[0] > 128 && pixel[1] < 100 && pixel[2] < 100;
        if is_ink {
            let (x, y) = (number % pixels.width as usize, number / pixels.width as usize);
            let [x0, y0, x1, y1] = found.unwrap_or([x, y, x, y]);
            found = Some([x0.min(x), y0.min(y), x1.max(x + 1), y1.max(y + 1)]);
        }
    }
    found.unwrap_or_else(|| panic!("nothing is red in {}", path.display())).map(|at| at as f32)
}

/// Whether a place has the ink, and not much more: no letter reaches far beyond, and none is
/// missing at either end.
fn assert_holds(place: Corners, ink: Corners, slack: f32, what: &str) {
    let [x0, y0, x1, y1] = place;
    let is_around =
        x0 <= ink[0] + 1.5 && y0 <= ink[1] + 1.5 && x1 >= ink[2] - 1.5 && y1 >= ink[3] - 1.5;
    let is_near = ink[0] - x0 < slack
        && x1 - ink[2] < slack
        && ink[1] - y0 < 2.0 * slack
        && y1 - ink[3] < 2.0 * slack;
    assert!(is_around && is_near, "{what}: {place:?}, ink at {ink:?}");
}

/// Guarantee: pages/byte-for-byte
/// Guarantee: pages/places
#[test]
fn what_is_found_is_where_the_ink_is() {
    let place = Place::new();
    let cases = [
        ("", "<p>before <u>needle</u> after"),
        (
            "p { text-align: right; padding: 7px 30px; border: 3px solid }",
            "<p>before <u>needle</u>",
        ),
        (
            "p { text-align: center; letter-spacing: 3px; word-spacing: 9px }",
            "<p>a b <u>needle</u> c d",
        ),
        (
            "p { text-align: justify; width: 260px }",
            "<p>words and words <u>needle</u> and many more words behind it",
        ),
        ("", "<p dir=rtl>\u{5d0}\u{5d1}\u{5d2} <u>needle</u> \u{5d3}\u{5d4}"),
        (
            "p { transform: translate(60px, 40px) rotate(90deg); width: 200px; height: 100px }",
            "<p><u>needle</u>",
        ),
        ("p { transform: scale(2); transform-origin: 0 0; width: 200px }", "<p>a <u>needle</u>"),
        ("nav { position: fixed; bottom: 9px; right: 5px }", "<nav>x <u>needle</u></nav><p>text"),
        (
            "p { position: relative; top: 31px; left: 12px; z-index: 3 }",
            "<div style='opacity: .99; padding: 40px'><p>z <u>needle</u></p></div>",
        ),
        ("", "<table><tr><td>one<td>two <u>needle</u><tr><td>3</table>"),
        (
            "",
            "<ul><li>one<li><span style='display: inline-block; padding: 9px'>in <u>needle</u></span> a box</ul>",
        ),
        (
            "p { line-height: 3; font-family: serif; font-size: 31px; text-transform: uppercase }",
            "<p>big <u>needle</u>",
        ),
        (
            "p { display: flex; justify-content: space-between }",
            "<p><b>1</b><i>2</i><u>needle</u></p>",
        ),
        (
            "input { color: #f00; border: 4px solid #00f; padding: 6px; margin: 20px }",
            "<p><input value=needle>",
        ),
    ];
    for (number, (style, body)) in cases.into_iter().enumerate() {
        let file = place.write(&format!("{number}.html"), page(style, body));
        for scale in [1000, 1500] {
            let view = View::new(500, 260, scale).unwrap();
            let found = place.places(&file, view).find("needle", FindOptions::default());
            assert_eq!((found.len(), found[0].places.len()), (1, 1), "{body}: {found:?}");
            assert_eq!(found[0].fixed, body.contains("nav"), "{body}");
            let slack = 9.0 * scale as f32 / 1000.0;
            // Line height of twice the size in one case, and twice the scale in another.
            let slack = if style.contains("scale(2)") { slack * 2.0 } else { slack };
            assert_holds(
                found[0].places[0],
                ink(&file, view),
                slack,
                &format!("{body} {style} at {scale}"),
            );
        }
    }
}

/// Boxes of fixed parts are reported where the engine paints them.
///
/// Guarantee: pages/byte-for-byte
/// Guarantee: pages/places
#[test]
fn fixed_boxes_are_as_painted() {
    let place = Place::new();
    let tall = "<main style='height: 2000px'></main>";
    // This engine lets what is fixed and has a `z-index` go with the page: then that is where it
    // is.
    for style in ["", "z-index: 5", "transform: rotate(2deg)", "overflow: hidden"] {
        for around in ["section", "section style='transform: translateX(9px)'"] {
            let nav = format!(
                "<{around}><nav style='position: fixed; top: 70px; {style}'><u>needle</u></nav></section>"
            );
            let file = place.write("a.html", page("", &format!("{nav}{tall}")));
            let view = view(300, 200);
            let found = place.places(&file, view).find("needle", FindOptions::default()).remove(0);
            let scroll = 31;
            let mut there = found.places[0];
            if !found.fixed {
                there[1] -= scroll as f32;
                there[3] -= scroll as f32;
            }
            assert_holds(
                there,
                ink(&file, view.scrolled(scroll)),
                12.0,
                &format!("{style} in {around}: {}", found.fixed),
            );
        }
    }
}

/// A match over a line end has two places, and white space matches as it is laid out.
///
/// Guarantee: pages/places
#[test]
fn match_over_two_lines_has_two_places() {
    let place = Place::new();
    let file = place.write(
        "a.html",
        page(
            "p { width: 200px }",
            "<p>some   words\n\n of a <b>long</b> line<br>new line</p><p>other",
        ),
    );
    let places = place.places(&file, view(400, 300));
    let found = |text: &str| places.find(text, FindOptions::default());
    let whole = found("SOME words of a long line new LINE");
    assert_eq!(whole.len(), 1, "{:?}", places.text);
    let lines = places.text[0].lines();
    assert_eq!((whole[0].places.len(), lines.len()), (lines.len(), 3), "{whole:?} {lines:?}");
    assert!(whole[0].places.windows(2).all(|pair| pair[1][1] >= pair[0][3] - 8.0), "{whole:?}");
    for (line, place) in lines.iter().zip(&whole[0].places) {
        assert!(line.baseline > place[1] && line.baseline < place[3], "{line:?} {place:?}");
    }
    assert_eq!(found("line other"), [], "one block's text does not go on in another");
    assert_eq!(found("long").len(), 1);
    let at = found("long")[0].places[0];
    let there = places.text_at((at[0] + at[2]) / 2.0, (at[1] + at[3]) / 2.0, 0).unwrap();
    assert!("long".contains(&there.text[there.range.clone()]), "{there:?}");
    assert_eq!(there.node, places.text[0].node());
    assert_eq!(places.text_at(399.0, 299.0, 0), None);
}

/// Guarantee: pages/places
#[test]
fn text_that_is_not_to_be_seen_is_not_found() {
    let place = Place::new();
    let body = "<p hidden>needle</p><p style='visibility: hidden'>needle</p><p style='opacity: 0'><b>needle</b></p>
        <template>needle</template><script>needle</script><input type=password value=needle><input type=hidden value=needle>
        <p>nee<img src='data:,' width=5 height=5>dle";
    let file = place.write("a.html", page("", body));
    assert_eq!(place.places(&file, view(400, 300)).find("needle", FindOptions::default()), []);
}

/// The address of a link was taken once for each of its lines, however long it was: a page of 2 MiB
/// could come to gigabytes of it.
///
/// Guarantee: pages/memory
#[test]
fn long_address_of_many_lines_is_bounded() {
    let place = Place::new();
    let (href, lines) = ("x".repeat((1 << 20) - 1), "y<br>".repeat(100));
    let body = format!("<a href='{href}'>{lines}</a><a href=b>z</a>");
    let file = place.write("a.html", page("", &body));
    let limits = limits();
    let opening = OpenOptions {
        want: PageUse::Places,
        ..OpenOptions::new(view(300, 200), &limits, None, Arc::new(Files))
    };
    let places = open_with(&address(&file), &opening).unwrap().places.unwrap();
    let long = places.links.iter().filter(|link| link.href.len() > 1).count();
    assert!((1..=64).contains(&long), "{long}");
    assert_eq!(places.links.last().map(|link| &*link.href), Some("b"), "a short one has room");
}

/// A cached layout gives the same answers as a fresh one, and nothing is laid out.
///
/// Guarantee: pages/byte-for-byte
/// Guarantee: pages/places
#[test]
fn kept_layout_equals_a_fresh_one() {
    let place = Place::new();
    let body = "<nav style='position: fixed; top: 0'><a href=one.html>first</a></nav><p style='margin-top: 500px'>see <a href=two.html>the
        other one</a> and <i>words \u{5d0}\u{5d1} e\u{301}</i></p><a href=three.html style='display: block; transform: rotate(90deg)'>x</a>";
    let file = place.write("a.html", page("", body));
    let view = view(300, 200);
    let fresh = place.ask(&file, view);
    let kept = place.ask(&file, view);
    assert_eq!((fresh.tier, kept.tier), (Tier::Nothing, Tier::Layout));
    let (fresh_places, places) = (fresh.places.as_ref().unwrap(), kept.places.as_ref().unwrap());
    assert_eq!((&places.links, &places.boxes), (&fresh_places.links, &fresh_places.boxes));
    let pairs = places.text.iter().zip(&fresh_places.text);
    for (one, other) in pairs {
        assert_eq!(
            (one.text(), one.node(), one.fixed()),
            (other.text(), other.node(), other.fixed())
        );
        for (line, same) in one.lines().iter().zip(other.lines()) {
            assert_eq!((&line.range, line.baseline), (&same.range, same.baseline));
            assert!(
                line.place.iter().zip(same.place).all(|(one, other)| (one - other).abs() < 0.02),
                "{line:?} {same:?}"
            );
        }
    }
    assert_eq!(places.text.len(), fresh_places.text.len());

    // What stays in the viewport is found where it is then.
    let first = &places.links[0];
    assert!(first.fixed && !places.links[1].fixed, "{:?}", places.links);
    let (x, y) = (first.place[0] + 2.0, first.place[1] + 2.0);
    assert_eq!(places.link_at(x, y, 0).map(|link| &*link.href), Some("one.html"));
    assert_eq!(places.link_at(x, y + 70.0, 70).map(|link| &*link.href), Some("one.html"));
    assert_eq!(places.link_at(x, y + 70.0, 0), None);
    let second = &places.links[1].place;
    let there = places.link_at(second[0] + 2.0, second[1] + 2.0, 33).unwrap();
    assert_eq!(there.href, "two.html");

    // A turned block lies across; what is selected has a place.
    let turned = kept.boxes_of("a[href='three.html']").unwrap()[0].place;
    assert!(turned[3] - turned[1] > 250.0 && turned[2] - turned[0] < 60.0, "{turned:?}");
    assert_eq!(kept.boxes_of("a").unwrap().len(), 3);
    assert_eq!(kept.boxes_of("p > i").unwrap(), fresh.boxes_of("p > i").unwrap());
    assert_eq!(kept.boxes_of("table").unwrap(), []);
    assert!(kept.boxes_of("a[").is_err());

    // A page that changed is laid out again.
    place.write("a.html", page("", "<p>changed"));
    let changed = place.ask(&file, view);
    assert_eq!(
        (changed.tier, changed.places.unwrap().find("changed", FindOptions::default()).len()),
        (Tier::Nothing, 1)
    );
}

/// Guarantee: pages/places
#[test]
fn the_program_finds_text_and_elements_and_says_where() {
    let place = Place::new();
    let file = place.write("a.html", page("", "<p>one two</p><p>Two <b id=b>three</b>"));
    let run = |arguments: &[&str]| {
        let mut command = place.program();
        command.args([arguments[0], file.to_str().unwrap()]).args(&arguments[1..]);
        let output = command.args(["--viewport", "300x200", "--timeout", "300"]).output().unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
    };
    let json = |arguments: &[&str]| -> serde_json::Value {
        serde_json::from_str(&run(arguments).1).unwrap()
    };
    let found = json(&["find", "two", "--json"]);
    assert_eq!((found.as_array().unwrap().len(), &found[1]["text"]), (2, &"Two".into()), "{found}");
    assert!(found[0]["places"][0][2].as_f64() > found[0]["places"][0][0].as_f64(), "{found}");
    assert_eq!(json(&["find", "Two", "--case", "--json"]).as_array().unwrap().len(), 1);
    let (code, lines) = run(&["find", "TWO"]);
    assert_eq!((code, lines.lines().count()), (0, 2), "{lines}");
    assert_eq!(run(&["find", "four"]), (1, String::new()));
    let boxes = json(&["boxes", "p, #b", "--json"]);
    assert_eq!(boxes.as_array().unwrap().len(), 3, "{boxes}");
    let (code, lines) = run(&["boxes", "#b", "--no-cache"]);
    assert_eq!((code, lines.lines().count()), (0, 1), "{lines}");
    assert_eq!(run(&["boxes", "table"]).0, 1);
    assert_eq!(run(&["boxes", "p["]).0, 2);
    assert_eq!(
        place.open(&file, view(300, 200)).tier,
        Tier::Pixels,
        "what had to be laid out was kept"
    );
}
