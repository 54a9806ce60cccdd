//! Pages that should not have been written: bounded, and errors that say so.

use std::time::{Duration, Instant};

use holdfast_page::{PageError, PageLimits, Tier, View, open};

use crate::{Place, address, anew, limits, png, view};

/// A page at the depth limit is laid out, and a deeper one is refused.
///
/// Guarantee: pages/too-much
#[test]
fn depth_limit_of_a_page_holds() {
    let place = Place::new();
    let depth = limits().depth as usize - 3;
    for (open, close) in [
        ("<div>", "</div>"),
        ("<span>", "</span>"),
        ("<div style='display: flex'>", "</div>"),
        ("<div style='display: grid'>", "</div>"),
        ("<div style='overflow: hidden; opacity: .99; position: relative; z-index: 1'>", "</div>"),
        ("<ul><li>", "</li></ul>"),
    ] {
        let levels = open.matches('<').count();
        let page = |times: usize| {
            let (open, close) = (open.repeat(times / levels), close.repeat(times / levels));
            place.write("deep.html", format!("<!doctype html><body>{open}x{close}"))
        };
        let deep = page(depth);
        assert_eq!(place.open(&deep, view(300, 200)).tier, Tier::Nothing, "{open}");
        assert_eq!(place.open(&deep, view(300, 200)).pixels, anew(&deep, view(300, 200)), "{open}");
        let deeper = page(depth + 8);
        let refused = place.try_open(&deeper, view(300, 200));
        assert!(matches!(refused, Err(PageError::Dom(_))), "{open}: {refused:?}");
    }
}

/// Guarantee: pages/too-much
#[test]
fn what_is_too_much_is_an_error_or_left_out_and_said() {
    let place = Place::new();
    let small =
        PageLimits { source_bytes: 1_000, nodes: 50, resources: 3, image_pixels: 100, ..limits() };
    let try_open = |text: &str| {
        let page = place.write("much.html", text);
        open(&address(&page), view(300, 200), &small, None)
    };
    let long = try_open(&"x".repeat(1_001));
    assert!(matches!(&long, Err(PageError::Fetch { .. })), "{long:?}");
    let many = try_open(&"<b>".repeat(60));
    assert!(matches!(&many, Err(PageError::Dom(_))), "{many:?}");
    let asking = try_open(
        "<img src=a.png><img src=b.png><link rel=stylesheet href=c.css><img src=d.png><img src=e.png>",
    );
    let notes = asking.unwrap().notes;
    assert_eq!(notes.iter().filter(|note| note.contains("asks for more")).count(), 1, "{notes:?}");
    place.write("big.png", png(20, 20, [1, 2, 3, 255]));
    let notes = try_open("<img src=big.png>").unwrap().notes;
    assert!(notes.iter().any(|note| note.contains("more pixels")), "{notes:?}");
}

/// Guarantee: pages/too-much
#[test]
fn style_sheets_that_import_each_other_end() {
    let place = Place::new();
    place.write("a.css", "@import 'b.css'; p { color: red }");
    place.write("b.css", "@import 'a.css'; @import 'b.css'; p { background: blue }");
    let page = place.write("a.html", "<!doctype html><link rel=stylesheet href=a.css><p>text");
    let opened = place.open(&page, view(300, 200));
    assert_eq!(place.open(&page, view(300, 200)).pixels, opened.pixels);
}

/// A named pipe or a directory in place of a style sheet does not block the page.
///
/// Guarantee: pages/too-much
#[test]
fn pipe_as_style_sheet_is_not_waited_for() {
    let place = Place::new();
    let pipe = place.write("x", "").with_file_name("pipe.css");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let page = place.write(
        "a.html",
        "<!doctype html><link rel=stylesheet href=pipe.css><link rel=stylesheet href=.><img src=/dev/zero>
        <iframe src=a.html></iframe><p>text",
    );
    let started = Instant::now();
    let opened = place.open(&page, view(300, 200));
    assert!(started.elapsed() < Duration::from_secs(60));
    assert!(
        opened.notes.iter().any(|note| note.contains("not a regular file")),
        "{:?}",
        opened.notes
    );
    assert_eq!(place.open(&page, view(300, 200)).tier, Tier::Pixels);
}

/// Guarantee: pages/too-much
#[test]
fn a_page_that_takes_too_long_is_given_up() {
    let place = Place::new();
    let page =
        place.write("a.html", format!("<!doctype html>{}", "<p>text <b>bold</b>".repeat(2_000)));
    let short = PageLimits { time: Duration::from_millis(1), ..limits() };
    let opened = open(&address(&page), view(300, 200), &short, None);
    assert!(matches!(opened, Err(PageError::TimeOut { .. })), "{opened:?}");
}

/// Sizes that make no sense are refused before any work is done.
///
/// Guarantee: pages/too-much
#[test]
fn senseless_sizes_are_refused_first() {
    for (width, height, scale) in
        [(0, 10, 1_000), (10, 0, 1_000), (20_000, 10, 1_000), (10, 10, 0), (10, 10, 90_000)]
    {
        let refused = View::new(width, height, scale);
        assert!(matches!(refused, Err(PageError::Range { .. })), "{refused:?}");
    }
}

/// Guarantee: pages/too-much
#[test]
fn pages_without_anything_are_white() {
    let place = Place::new();
    for text in
        ["", " ", "<!doctype html>", "<html hidden>", "\u{feff}", "<!--", "</html>", "<frameset>"]
    {
        let page = place.write("a.html", text);
        let opened = place.open(&page, view(30, 20));
        assert!(opened.pixels.bytes.iter().all(|byte| *byte == 255), "{text:?}");
        assert_eq!(place.open(&page, view(30, 20)).tier, Tier::Pixels, "{text:?}");
    }
}

/// The engine panicked at an address that is none, and there was no page.
///
/// Guarantee: pages/too-much
#[test]
fn addresses_that_are_none_lead_nowhere() {
    let place = Place::new();
    let look = |image: &str, link: &str| {
        let text = format!(
            "<!doctype html><p>text<img alt=picture {image}><link rel=stylesheet {link}><p>more"
        );
        open(&address(&place.write("a.html", text)), view(300, 200), &limits(), None).unwrap()
    };
    let without = look("", "");
    for address in ["http://", "http://[", "https://a:b:c/", "http://x:99999/a.png"] {
        let opened = look(&format!("src='{address}'"), &format!("href='{address}'"));
        assert_eq!((opened.pixels == without.pixels, opened.notes.len()), (true, 0), "{address}");
    }
}

/// `/bin/ls` was laid out as a page.
///
/// Guarantee: pages/too-much
#[test]
fn binaries_are_refused_by_name() {
    let place = Place::new();
    let open =
        |name: &str, content: &[u8]| place.try_open(&place.write(name, content), view(30, 20));
    for (name, content, kind) in [
        ("ls", &b"\x7FELF\x02\x01\x01\0\0\0"[..], "a program (ELF)"),
        ("a.png", &png(2, 2, [1, 2, 3, 255]), "an image (PNG)"),
        ("data.txt", b"text\0text", "binary data"),
    ] {
        let refused = open(name, content).unwrap_err().to_string();
        assert!(refused.contains(&format!("it is no page but {kind}")), "{refused}");
    }
    // Text without a tag, and what is named a page, are pages.
    for (name, content) in [("notes.txt", &b"text"[..]), ("a.html", b"a\0b"), ("page", b" <p>\0x")]
    {
        assert!(open(name, content).is_ok(), "{name}");
    }
    assert_eq!(place.cache().views().unwrap().len(), 3);
}
