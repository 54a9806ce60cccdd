//! Pictures in SVG: painted, kept, and hostile ones.

use std::time::{Duration, Instant};

use holdfast_page::{OpenPage, Pixels, Tier};

use crate::{Place, anew, png, view};

fn pixel(pixels: &Pixels, x: u32, y: u32) -> [u8; 3] {
    let at = ((y * pixels.width + x) * 4) as usize;
    pixels.bytes[at..at + 3].try_into().unwrap()
}

fn has_color(pixels: &Pixels, color: [u8; 3]) -> bool {
    pixels.bytes.chunks_exact(4).any(|pixel| pixel[..3] == color)
}

const RED: [u8; 3] = [255, 0, 0];
const GREEN: [u8; 3] = [0, 128, 0];
const BLUE: [u8; 3] = [0, 0, 255];
const WHITE: [u8; 3] = [255, 255, 255];
const HEAD: &str = "<!doctype html><style>body { margin: 0 } img, svg { display: block }</style>";

/// Guarantee: pages/svg
#[test]
fn pictures_in_svg_are_painted_and_kept() {
    let place = Place::new();
    let rect = |color: &str| format!("<rect width='40' height='40' fill='{color}'/>");
    let file = |body: &str| {
        format!(
            "<?xml version='1.0'?><svg xmlns='http://www.w3.org/2000/svg' xmlns:xlink='http://www.w3.org/1999/xlink' \
            width='40' height='40'>{body}</svg>"
        )
    };
    place.write("green.svg", file(&rect("green")));
    place.write("ground.svg", file(&rect("tan")));
    let inner = data_png();
    place.write("rich.svg", file(&format!(
        "<defs><linearGradient id='l'><stop stop-color='red'/><stop offset='1' stop-color='blue'/></linearGradient>\
         <clipPath id='c'><circle cx='20' cy='20' r='15'/></clipPath><g id='u'><path d='M0 0L9 9H3z'/></g></defs>\
         <g opacity='.5' clip-path='url(#c)'><rect width='40' height='40' fill='url(#l)'/></g>\
         <use xlink:href='#u' x='5' y='5' stroke='navy' stroke-dasharray='2 1'/><text x='2' y='30'>Text</text>\
         <image xlink:href='{inner}' x='30' y='30' width='6' height='6'/>"
    )));
    let page = place.write("a.html", format!(
        "{HEAD}<svg viewbox='0 0 10 10' width=40 height=40 @click='x' :class=y xmlns:v=z v:a=b>\
         <rect width=10 height=10 style='fill: red'/></svg><img src=green.svg>\
         <div style='height: 40px; width: 40px; background: url(ground.svg)'></div><img src=rich.svg>\
         <p style='color: blue'><svg width=40 height=40 fill=currentColor><path d='M0 0h40v40H0z'/></svg><p>text\
         <div style='height: 3000px'></div><img src=rich.svg>"
    ));
    let wide = view(300, 400);
    let first = place.open(&page, wide);
    assert_eq!(first.tier, Tier::Nothing);
    assert_eq!(first.notes, Vec::<String>::new());
    assert_eq!(pixel(&first.pixels, 20, 20), RED);
    assert_eq!(pixel(&first.pixels, 20, 60), GREEN);
    assert_eq!(pixel(&first.pixels, 20, 100), [210, 180, 140]);
    assert!(has_color(&first.pixels, BLUE), "the colour of the text around it");
    assert_eq!(place.open(&page, wide).tier, Tier::Pixels);
    for scroll in [0, 60, 777, 3_000] {
        let view = wide.scrolled(scroll);
        let again = place.repainted(&page, view);
        assert_eq!(again.tier, Tier::List, "{scroll}: {:?}", again.stale);
        assert!(again.pixels == anew(&page, view), "{scroll}");
    }
    place.write("green.svg", file(&rect("blue")));
    let changed = place.open(&page, wide);
    assert_eq!(changed.tier, Tier::Document);
    assert_eq!(pixel(&changed.pixels, 20, 60), BLUE);
}

fn data_png() -> String {
    let text: String =
        png(6, 6, [9, 99, 199, 255]).iter().map(|byte| format!("%{byte:02X}")).collect();
    format!("data:image/png,{text}")
}

/// The engine's SVG reads files by their names.
///
/// Guarantee: pages/svg-bounds
#[test]
fn pictures_read_no_files() {
    let place = Place::new();
    let secret = place.write("secret.png", png(40, 40, [1, 200, 3, 255]));
    let path = secret.to_str().unwrap();
    let ways = |name: &str| {
        [
            format!("<{name} href='{path}' width='40' height='40'/>"),
            format!("<{name} xlink:href='file://{path}' width='40' height='40'/>"),
            format!(
                "<{name} xmlns:x='http://www.w3.org/1999/xlink' x:href='{path}' width='40' height='40'/>"
            ),
            format!(
                "<filter id='f'><feImage href='{path}'/></filter><rect width='40' height='40' filter='url(#f)'/>"
            ),
        ]
    };
    let mut bodies: Vec<String> = ways("image").into();
    bodies.extend(ways("image").map(|way| format!("<g>{way}</g>")));
    for (number, body) in bodies.iter().enumerate() {
        let namespaces =
            "xmlns='http://www.w3.org/2000/svg' xmlns:xlink='http://www.w3.org/1999/xlink'";
        place.write("a.svg", format!("<svg {namespaces} width='40' height='40'>{body}</svg>"));
        let page = place.write(
            "a.html",
            format!("{HEAD}<svg width=40 height=40>{body}</svg><img src=a.svg><img src='a.svg#x'>"),
        );
        let opened = place.open(&page, view(60, 100));
        assert!(!has_color(&opened.pixels, [1, 200, 3]), "{number}: {body}");
        assert!(
            opened.notes.iter().any(|note| note.contains("of pictures in SVG: ")),
            "{:?}",
            opened.notes
        );
    }
    // Elements that HTML makes of other text than XML.
    for inner in [
        format!(
            "<foreignObject><xmp></foreignObject><image href='{path}' width='40' height='40'/></xmp>"
        ),
        format!("<desc><style></desc><image href='{path}' width='40' height='40'/></style></desc>"),
        format!("<title><math><image href='{path}'></math></title>"),
        format!("<s:image href='{path}' width='40' height='40' />"),
    ] {
        let page = place.write(
            "b.html",
            format!("{HEAD}<svg xmlns:s='http://www.w3.org/2000/svg'>{inner}</svg>"),
        );
        let opened = place.open(&page, view(60, 100));
        assert!(!has_color(&opened.pixels, [1, 200, 3]), "{inner}");
    }
}

/// Each of them is left out, and named; the rest of the page is there.
///
/// Guarantee: pages/svg-bounds
#[test]
fn hostile_pictures_cost_the_page_nothing_else() {
    let place = Place::new();
    let svg = |body: &str| {
        format!(
            "<svg xmlns='http://www.w3.org/2000/svg' xmlns:x='http://www.w3.org/1999/xlink' width='40' height='40'>{body}</svg>"
        )
    };
    let doubling: String = (0..40)
        .map(|n| format!("<g id='a{n}'><use x:href='#a{}'/><use x:href='#a{}'/></g>", n + 1, n + 1))
        .chain(["<path id='a40' d='M0 0'/>".to_owned()])
        .collect();
    let patterns: String = (0..40)
        .map(|n| format!("<pattern id='p{n}' width='1' height='1'><rect fill='url(#p{})'/><rect fill='url(#p{})'/></pattern>", n + 1, n + 1))
        .collect();
    let large = format!("data:image/png;base64,{}", BIG_PNG);
    let left_out = [
        svg(&doubling),
        svg(&patterns),
        svg(&format!("{}{}", "<g>".repeat(1_200), "</g>".repeat(1_200))),
        svg(&"<g/>".repeat(250_000)),
        svg("<g id='a'><use x:href='#b'/></g><g id='b'><use x:href='#a'/></g>"),
        svg(&format!("<image x:href='{large}' width='9' height='9'/>")),
        format!(
            "<!DOCTYPE svg [<!ENTITY a '{}'>]>{}",
            "x".repeat(100_000),
            svg(&format!("<text>{}</text>", "&a;".repeat(90_000)))
        ),
        svg("<path d='M0 0A1e40 1e40 0 1 1 9e39 9e39'/>"),
        svg(&format!("<path d='M0 0{}'/>", "z".repeat(500_000))),
        svg(&format!(
            "<style>q {}rect{{fill:red}}</style>{}<rect/>{}",
            "g ".repeat(20),
            "<g>".repeat(200),
            "</g>".repeat(200)
        )),
    ];
    // What is painted as far as it goes: no size, no line and no dash takes for ever.
    let painted = [
        svg("<path d='M0 0H1e30' stroke='red' stroke-width='1e30' stroke-dasharray='1e-30'/>"),
        svg("<path d='M0 0h1e8v1e8' stroke='red' fill='none' stroke-dasharray='1e-3'/>"),
        "<svg xmlns='http://www.w3.org/2000/svg' width='1e30' height='1e30' viewBox='0 0 1e-30 1e-30'><circle r='1e30'/></svg>".to_owned(),
        "<svg xmlns='http://www.w3.org/2000/svg' width='-5' height='0'/>".to_owned(),
        "<svg".to_owned(),
        svg("<!-- <svg> --><rect width='nan' height='inf'/><path d='M'/><polygon points='1'/>"),
    ];
    let open = |number: usize, body: &str, is_inline: bool| -> OpenPage {
        let shown = if is_inline {
            body.to_owned()
        } else {
            "<img src=a.svg width=40 height=40>".to_owned()
        };
        place.write("a.svg", body);
        let page = place.write(
            &format!("{number}{is_inline}.html"),
            format!("{HEAD}<div style='height: 40px; background: red'></div>{shown}"),
        );
        let started = Instant::now();
        let opened = place.open(&page, view(60, 100));
        assert!(started.elapsed() < Duration::from_secs(60), "{number}");
        assert_eq!(pixel(&opened.pixels, 20, 20), RED, "{number}: the rest of the page");
        assert!(place.open(&page, view(60, 100)).pixels == opened.pixels, "{number}");
        opened
    };
    for (number, body) in left_out.iter().enumerate() {
        let notes = open(number, body, false).notes;
        assert!(notes.iter().any(|note| note.contains("a.svg: ")), "{number}: {notes:?}");
        // Deep ones and entities are HTML's business then.
        if [0, 1, 4, 5, 7, 8, 9].contains(&number) {
            let notes = open(number, body, true).notes;
            assert!(
                notes.iter().any(|note| note.contains("within the page")),
                "{number}: {notes:?}"
            );
        }
    }
    for (number, body) in painted.iter().enumerate() {
        open(100 + number, body, false);
        open(100 + number, body, true);
    }
}

/// A rule for all lines is one for that of the mark, which the engine does not paint in itself.
///
/// Guarantee: pages/svg
#[test]
fn marks_by_a_rule_for_all_lines_are_painted() {
    let place = Place::new();
    place.write(
        "a.svg",
        "<svg xmlns='http://www.w3.org/2000/svg' width='40' height='40'>\
         <style>path { marker-end: url(#m) }</style>\
         <marker id='m' markerUnits='userSpaceOnUse' markerWidth='20' markerHeight='20' refX='10' refY='10'>\
         <path fill='green' d='M0 0h20v20H0z'/></marker><path d='M5 10L20 20'/></svg>",
    );
    let page = place.write("a.html", format!("{HEAD}<img src=a.svg width=40 height=40>"));
    let opened = place.open(&page, view(60, 100));
    assert_eq!(opened.notes, Vec::<String>::new());
    assert_eq!(pixel(&opened.pixels, 20, 20), GREEN);
}

/// 30,000 x 30,000 pixels, and none of them is there.
const BIG_PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAdTAAAHUwCAYAAABmJ/i6AAAACElEQVR4nAMAAAAAAUgGidIAAAAASUVORK5CYII=";

/// Guarantee: pages/svg
#[test]
fn svg_that_the_engine_does_not_paint_is_named_once() {
    let place = Place::new();
    let body = "<svg width=40 height=40><pattern id=p width=4 height=4><rect width=4 height=4 /></pattern><rect width=40 height=40 fill='url(#p)'/>\
        <mask id=m></mask><filter id=f></filter></svg>";
    let page = place.write("a.html", format!("{HEAD}{}", body.repeat(30)));
    let opened = place.open(&page, view(60, 100));
    assert_eq!(opened.notes, ["left out: of pictures in SVG: filters, masks, patterns"]);
    // No sign in the place of a pattern.
    assert_eq!(pixel(&opened.pixels, 20, 20), WHITE);
}
