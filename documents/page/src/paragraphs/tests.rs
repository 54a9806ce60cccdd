//! Long paragraphs, broken wherever they can be, beside the same ones whole.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;
use std::sync::mpsc::channel;

use holdfast_dom::{LoosePage, ParseOptions};

use super::*;
use crate::engine::{self, DomBytes, LaidOutPage, LayoutJob};
use crate::fetch::Files;
use crate::limits::PageLimits;
use crate::pixels::Pixels;
use crate::places::text::LinePiece;
use crate::places::{FindOptions, NodeBox, PageLayout, TextBlock};
use crate::resource::Reach;
use crate::sources::{CachePolicy, Sources};
use crate::steps::held::ends;
use crate::view::View;

fn job(page: &str, view: View) -> LayoutJob {
    let limits = PageLimits::default();
    let parsed = LoosePage::parse(page.as_bytes(), &ParseOptions::default()).unwrap();
    LayoutJob {
        dom: DomBytes::copy(parsed.bytes()),
        base_url: "file:///".to_owned(),
        encoding: encoding_rs::UTF_8,
        view,
        limits,
        reach: Reach::Files,
        sources: Arc::new(Sources::new(Arc::new(Files), None, CachePolicy::Usual, &limits)),
        fragment: None,
        record: false,
        places: true,
    }
}

/// A page that was laid out.
struct Laid {
    pixels: Pixels,
    content: (u32, u32),
    left_out: Vec<String>,
    places: PageLayout,
}

fn made(page: &str, view: View, bounds: Bounds) -> Laid {
    let (sender, made) = channel();
    let (hand, coming) = ends(move |made: LaidOutPage| sender.send(made).unwrap());
    let rest = engine::make(&job(page, view), bounds, &hand).unwrap();
    drop(coming);
    let LaidOutPage { pixels, content, left_out, .. } = made.try_recv().unwrap();
    Laid { pixels, content, left_out, places: rest.places.unwrap() }
}

fn view(scale: u32) -> View {
    View::new(500, 900, scale).unwrap()
}

/// No part ends but with a line.
const LINES: Bounds = Bounds { styles_max: 8, line: 1, far: 1, word: u32::MAX, element: u32::MAX };

/// Pages with paragraphs in which lines end.
fn pages() -> Vec<(&'static str, String)> {
    let words = |count: usize, end: &str| -> String {
        let word = |number: usize| {
            let end = if number % 4 == 3 { end } else { " " };
            format!("<span class=w{}>word{number}</span>{end}", number % 3)
        };
        (0..count).map(word).collect()
    };
    let (lines, breaks) = (words(24, "\n"), words(24, "<br>"));
    let style = "<!doctype html><title>t</title><style>
        body { font: 16px/20px sans-serif; margin: 7px; width: 470px } pre { font: 14px/18px monospace; padding: 5px; background: #eee }
        .w0 { color: #b00 } .w1 { font-weight: bold; background: #ffd } pre > code > .w2:nth-child(5) { color: #00b }
        .w2 + .w0 { font-style: italic } a { text-decoration: underline }
        .before::before { content: 'before ' } .after::after { content: ' after'; color: #070 }
        .u { text-decoration: underline; color: #a0a } .u u { text-decoration-color: #0a0 }";
    let of = |more: &str, body: String| format!("{style}{more}</style><body>{body}");
    vec![
        ("listing", of("", format!("<pre><code>{lines}</code></pre><p>more</p>"))),
        ("listing without code", of("", format!("<pre>{lines}</pre><p>more"))),
        ("line breaks", of("", format!("<p>{breaks}</p><p>more"))),
        (
            "text after a line break",
            of("", format!("<p>  {} <br>  \n x   y<br>\n", breaks.replace("<br>", " <br> \n "))),
        ),
        ("empty lines", of("", format!("<pre>\n\n{}\n\n</pre><p>more", lines.replace('\n', "\n\n\n")))),
        ("newlines alone", of("", format!("<pre>{}</pre><p>more", "<i>\n</i>".repeat(12)))),
        (
            "newlines within elements",
            of("", format!("<pre>{}</pre>", "<b>a<i>b\nc<s>d\n\ne</s></i>f\n</b>g".repeat(5))),
        ),
        (
            "long texts",
            of("", "<pre>a<b>x</b>".to_owned() + &"line of text\n".repeat(20) + "<i>end</i></pre>"),
        ),
        (
            "a link over many lines",
            of("", format!("<pre><a href=x><code>{lines}</code></a> <a href=y>y</a></pre>")),
        ),
        (
            "decorations",
            of(
                "",
                format!(
                    "<div class=u style='text-decoration: overline'><pre class=u>{lines}<u>{lines}</u></pre></div>"
                ),
            ),
        ),
        (
            "put before and behind",
            of("", format!("<pre class='before after'>{lines}<b class='before after'>{lines}</b>x</pre>")),
        ),
        (
            "put before and behind in blocks",
            of(".after::after { display: block }", format!("<pre class='before after'>{lines}</pre>")),
        ),
        ("an indent", of("p { text-indent: 40px }", format!("<p>{breaks}</p>"))),
        ("to the right", of("p { text-align: right }", format!("<p>{breaks}</p>"))),
        (
            "justified",
            of(
                "p { text-align: justify }",
                format!("<p>{}</p>", breaks.repeat(3).replace("word", "a longer word and ")),
            ),
        ),
        ("wrapped", of("pre { white-space: pre-wrap; width: 150px }", format!("<pre>{lines}</pre>"))),
        (
            "newlines kept",
            of("p { white-space: pre-line }", format!("<p>{}</p>", lines.replace('\n', "  \n  "))),
        ),
        ("capitals", of("pre { text-transform: capitalize }", format!("<pre>{lines}</pre>"))),
        (
            "from right to left",
            of("", format!("<pre dir=rtl>{}</pre>", lines.replace("word", "\u{5d0}\u{5d1}\u{5d2} ab"))),
        ),
        (
            "sizes",
            of(
                ".w1 { font-size: 30px; line-height: 34px } .w2 { vertical-align: super; font-size: 10px }",
                format!("<pre><code>{lines}</code></pre>"),
            ),
        ),
        (
            "in a cell",
            of(
                "td { vertical-align: baseline; border: 1px solid; padding: 3px }",
                format!("<table><tr><td>{breaks}<td>{breaks}<tr><td>x</table>"),
            ),
        ),
        ("in a list", of("", format!("<ol><li>{breaks}<li>{breaks}</ol>"))),
        (
            "in flex",
            of(
                "",
                format!("<div style='display: flex; gap: 10px'><div>{breaks}</div><pre>{lines}</pre></div>"),
            ),
        ),
        (
            "in grid",
            of(
                "",
                format!(
                    "<div style='display: grid; grid-template-columns: 1fr 2fr'><div>{breaks}</div><pre>{lines}</pre></div>"
                ),
            ),
        ),
        (
            "in a box in a line",
            of("", format!("<p><span style='display: inline-block; border: 1px solid'>{breaks}</span>")),
        ),
        (
            "beside a float",
            of(
                "",
                format!(
                    "<div style='float: left; width: 90px; height: 70px; background: #ccc'></div><p>{breaks}</p>"
                ),
            ),
        ),
        (
            "with a float in it",
            of(
                "",
                format!(
                    "<p>{breaks}<span style='float: right; background: #ccc; height: 50px'>float</span>{breaks}</p>"
                ),
            ),
        ),
        (
            "with boxes in it",
            of(
                "",
                format!(
                    "<p>{}</p>",
                    breaks.replace(
                        "<br>",
                        "<span style='display: inline-block; width: 20px'><b>a</b><br><i>b</i></span><br>"
                    )
                ),
            ),
        ),
        ("beside blocks", of("", format!("<div>{breaks}<p>block</p>{breaks}<p>block</p>text</div>"))),
        ("a block in a line", of("", format!("<p><b>{breaks}<div>block</div>{breaks}</b></p>"))),
        (
            "transparent boxes",
            of("", format!("<div>{breaks}<span style='display: contents'>{breaks}</span></div>")),
        ),
        ("turned", of("", format!("<pre style='transform: rotate(5deg)'>{lines}</pre>"))),
        (
            "in the way of the scrollbar",
            of("", format!("<pre style='overflow: auto; height: 150px'>{lines}</pre>")),
        ),
        (
            "shrunk to fit",
            of("", format!("<pre style='position: absolute; border: 2px solid'>{lines}</pre>")),
        ),
        (
            "hidden",
            of(
                "",
                format!(
                    "<pre>{lines}<span style='display: none'>{lines}</span><span style='visibility: hidden'>{lines}</span>x</pre>"
                ),
            ),
        ),
    ]
}

/// What is not the same.
fn differences(whole: &Laid, broken: &Laid) -> Vec<&'static str> {
    let (places, others) = (&whole.places, &broken.places);
    let mut what = vec![
        (whole.pixels == broken.pixels, "pixels"),
        (whole.content == broken.content, "content"),
        (places.links == others.links, "links"),
        (is_same_text(&places.text, &others.text), "text"),
        (places.boxes.len() == others.boxes.len(), "number of boxes"),
        (places.boxes.iter().zip(&others.boxes).all(is_same_box), "boxes"),
        (broken.left_out.is_empty(), "notes"),
    ];
    what.retain(|(is_same, _)| !is_same);
    what.into_iter().map(|(_, what)| what).collect()
}

/// A paragraph broken at its line ends looks as if it were laid out whole.
///
/// Guarantee: pages/long-paragraphs
#[test]
fn paragraph_broken_at_line_ends_looks_whole() {
    let mut wrong = Vec::new();
    for (name, page) in pages() {
        for (scale, far) in [(1_000, 1), (2_000, 1), (1_000, 10)] {
            let whole = made(&page, view(scale), Bounds::ENGINE);
            let broken = made(&page, view(scale), Bounds { far, ..LINES });
            let what = differences(&whole, &broken);
            if !what.is_empty() {
                wrong.push(format!("{name} at {scale}, up to {far}: {what:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A part of a long paragraph begins where the lines above it end on a whole pixel.
///
/// Guarantee: pages/long-paragraphs
#[test]
fn parts_begin_at_whole_pixels() {
    let pages = pages();
    let lines_of_half_pixels = [
        "listing",
        "listing without code",
        "a link over many lines",
        "capitals",
        "from right to left",
        "in flex",
    ];
    for name in lines_of_half_pixels {
        let (_, page) = pages.iter().find(|(other, _)| *other == name).unwrap();
        let made = |bounds: Bounds| made(page, view(1_250), bounds);
        let what = differences(&made(Bounds::ENGINE), &made(Bounds { far: 10, ..LINES }));
        assert!(what.is_empty(), "{name}: {what:?}");
        let what = differences(&made(Bounds::ENGINE), &made(LINES));
        assert!(
            !what.is_empty(),
            "{name} looks the same wherever it is broken, so this tells nothing"
        );
    }
}

fn near(one: f32, other: f32) -> bool {
    (one - other).abs() < 1e-3
}

fn is_same_box((one, other): (&NodeBox, &NodeBox)) -> bool {
    (one.node, one.fixed) == (other.node, other.fixed)
        && one.place.into_iter().zip(other.place).all(|(one, other)| near(one, other))
}

/// What is turned is moved by what floating-point numbers make of it.
fn is_same_text(texts: &[TextBlock], others: &[TextBlock]) -> bool {
    let is_same_piece = |(one, other): (&LinePiece, &LinePiece)| {
        let measures = |piece: &LinePiece| [piece.left, piece.top, piece.bottom, piece.baseline];
        let clusters = one.clusters.iter().zip(&other.clusters);
        (one.line, &one.range, one.clusters.len())
            == (other.line, &other.range, other.clusters.len())
            && measures(one).into_iter().zip(measures(other)).all(|(one, other)| near(one, other))
            && clusters.into_iter().all(|(one, other)| {
                (one.start, one.end) == (other.start, other.end) && near(one.right, other.right)
            })
    };
    texts.len() == others.len()
        && texts.iter().zip(others).all(|(one, other)| {
            let (pieces, other_pieces) = (one.pieces(), other.pieces());
            (one.node(), one.text(), one.breaks(), one.placed())
                == (other.node(), other.text(), other.breaks(), other.placed())
                && pieces.len() == other_pieces.len()
                && pieces.iter().zip(other_pieces).all(is_same_piece)
        })
}

fn inked(pixels: &Pixels) -> Vec<usize> {
    let rows = pixels.bytes.chunks_exact(pixels.width as usize * 4).enumerate();
    rows.filter(|(_, row)| row.iter().any(|byte| *byte != 255)).map(|(number, _)| number).collect()
}

/// A long paragraph without line ends is broken between words, and a note says so.
///
/// Guarantee: pages/long-paragraphs
#[test]
fn paragraph_without_lines_breaks_at_words() {
    let words = |count: usize, gap: &str| -> String {
        let word = |number: usize| format!("<span><a href=x>w{number}</a>{gap}</span>");
        (0..count).map(word).collect()
    };
    let page = |style: &str, gap: &str| {
        format!(
            "<!doctype html><style>p {{ font: 16px/20px sans-serif; {style} }}</style><p>{}</p>",
            words(30, gap)
        )
    };
    let bounds = Bounds { styles_max: 50, line: 20, far: 40, word: 40, element: 48 };
    for (name, style, gap, needle) in [
        ("words", "", " ", "w19 w20"),
        ("no words", "", "", "w23"),
        ("no wrapping", "white-space: nowrap", " ", "w23"),
        ("white space kept", "white-space: pre-wrap", " ", "w19 w20"),
    ] {
        let (whole, broken) = (
            made(&page(style, gap), view(1_000), Bounds::ENGINE),
            made(&page(style, gap), view(1_000), bounds),
        );
        assert!(whole.left_out.is_empty());
        let told = broken.left_out.concat();
        let parts = if name == "no wrapping" { (122, 3) } else { (61, 2) };
        assert!(
            told.starts_with(&format!("a paragraph in one: it has {} pieces, ", parts.0))
                && told.contains(&format!("broken into {}, ", parts.1)),
            "{name}: {told}"
        );
        let (whole_places, places) = (&whole.places, &broken.places);
        assert_eq!((whole_places.text.len(), places.text.len()), (1, 1), "{name}");
        assert_eq!(whole_places.text[0].text(), places.text[0].text(), "{name}");
        let found = places.find(needle, FindOptions::default());
        assert_eq!(found.len(), 1, "{name}");
        assert_eq!(whole_places.links.len(), places.links.len(), "{name}");
        assert!(inked(&broken.pixels).len() >= inked(&whole.pixels).len(), "{name}");
    }
}

/// Content that arrives after a paragraph was broken is laid out with all of it.
///
/// Guarantee: pages/long-paragraphs
#[test]
fn late_content_is_laid_out_with_a_broken_paragraph() {
    // The image of a style is asked for once everything was laid out, and is there only in the
    // round after.
    let image = |color: [u8; 4]| {
        let pixels = Pixels { width: 40, height: 30, bytes: color.repeat(1_200) };
        format!("data:image/png;base64,{}", data_encoding::BASE64.encode(&pixels.to_png().unwrap()))
    };
    let (shown, behind) = (image([200, 30, 30, 255]), image([200, 200, 230, 255]));
    for (_, page) in pages().into_iter().take(12) {
        let style = format!(
            "<style>@import 'data:text/css,.w1 {{ color: green; letter-spacing: 2px }}'; html {{ background: url({behind}) }}</style>"
        );
        let page = page.replace("<body>", &format!("<body>{style}<img src='{shown}'>"));
        let what = differences(
            &made(&page, view(1_000), Bounds::ENGINE),
            &made(&page, view(1_000), LINES),
        );
        assert!(what.is_empty(), "{what:?} in {page}");
    }
}

#[test]
fn a_page_with_few_elements_is_not_even_looked_at() {
    assert!(!Paragraphs::new(Bounds::ENGINE, 10_000).is_needed);
    assert!(Paragraphs::new(Bounds::ENGINE, 11_000).is_needed);
}

/// A planned line break that is used early does not hide the later ones.
///
/// Guarantee: pages/long-paragraphs
#[test]
fn early_break_hides_no_later_ones() {
    let lines: String = "<i>a</i> <i>b</i> <i>c</i>\n".repeat(10);
    let begin = "<i>x</i>".repeat(6);
    let page = format!("<!doctype html><pre style='white-space: pre-wrap'>{begin}\n{lines}</pre>");
    let bounds = Bounds { styles_max: 8, line: 1, far: 3, word: 4, element: 100 };
    let what =
        differences(&made(&page, view(1_000), Bounds::ENGINE), &made(&page, view(1_000), bounds));
    assert!(what.is_empty(), "{what:?}");
}
