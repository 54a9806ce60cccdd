//! The viewer without a window: what is done goes in, what is asked for comes out.

use super::talk::{OpenedView, PageRequest};
use super::*;

pub(super) const SIZE: (u32, u32) = (400, 300);

pub(super) fn address(text: &str) -> Address {
    Address::parse(text).unwrap()
}

pub(super) fn viewer() -> Viewer {
    viewer_at(address("file:///pages/a.html"))
}

fn viewer_at(address: Address) -> Viewer {
    Viewer::new(address, View::new(SIZE.0, SIZE.1, 1000).unwrap(), 1000)
}

fn pixels() -> Pixels {
    Pixels { width: SIZE.0, height: SIZE.1, bytes: vec![0x20; (SIZE.0 * SIZE.1 * 4) as usize] }
}

/// The page that was asked for last.
pub(super) fn asked(viewer: &mut Viewer) -> PageRequest {
    let asks = viewer.take_asks().into_iter().rev();
    let mut opens = asks
        .filter_map(|ask| if let ViewerRequest::Open(asked) = ask { Some(asked) } else { None });
    opens.next().unwrap()
}

pub(super) fn link(href: &str, top: f32, fixed: bool) -> Link {
    Link { place: [10.0, top, 110.0, top + 20.0], href: href.to_owned(), fixed }
}

/// Some links of a page.
pub(super) fn links() -> Vec<Link> {
    vec![
        link("b.html", 50.0, false),
        link("#end", 500.0, false),
        link("mailto:someone@example.org", 600.0, false),
        link("fixed.html", 200.0, true),
    ]
}

/// Answers with a page of 2,000 lines that has some links.
pub(super) fn answer(viewer: &mut Viewer, asked: &PageRequest) {
    answer_with(viewer, asked, Some(links()));
}

pub(super) fn answer_with(viewer: &mut Viewer, asked: &PageRequest, links: Option<Vec<Link>>) {
    answer_from(viewer, asked, links, asked.address.as_str());
}

/// The same with a page that says what addresses in it are relative to.
fn answer_from(viewer: &mut Viewer, asked: &PageRequest, links: Option<Vec<Link>>, base: &str) {
    let scroll = (asked.view.scroll_x_within(SIZE.0), asked.view.scroll_within(2000));
    viewer.answer(ViewerEvent::Opened(Box::new(OpenedView {
        id: asked.id,
        base: base.to_owned(),
        title: asked.address.as_str().rsplit('/').next().unwrap().to_owned(),
        content: (SIZE.0, 2000),
        links,
        served: OpenStats { tier: Some(crate::Tier::List), ..OpenStats::default() },
        notes: Vec::new(),
        failure: None,
        first: PaintedView { page: asked.id, scroll, pixels: Ok(pixels()) },
    })));
}

/// Paints what was asked for; returns how far the page is scrolled in it.
pub(super) fn paint(viewer: &mut Viewer) -> (u32, u32) {
    let asks = viewer.take_asks();
    let paint = asks.iter().rev().find_map(|ask| match ask {
        ViewerRequest::Paint { page, scroll } => Some((*page, *scroll)),
        _ => None,
    });
    let (page, scroll) = paint.unwrap_or_else(|| panic!("{asks:?}"));
    viewer.answer(ViewerEvent::Painted(PaintedView { page, scroll, pixels: Ok(pixels()) }));
    scroll
}

pub(super) fn open() -> Viewer {
    let mut viewer = viewer();
    let first = asked(&mut viewer);
    answer(&mut viewer, &first);
    viewer.take_asks();
    viewer
}

pub(super) fn key(viewer: &mut Viewer, key: Key) {
    let text = if let Key::Char(one) = key { one.to_string() } else { String::new() };
    viewer.input(Input::Key(key, Modifiers::default(), text));
}

fn ctrl(viewer: &mut Viewer, one: char) {
    viewer.input(Input::Key(
        Key::Char(one),
        Modifiers { ctrl: true, ..Modifiers::default() },
        String::new(),
    ));
}

fn write(viewer: &mut Viewer, text: &str) {
    text.chars().for_each(|one| key(viewer, Key::Char(one)));
}

pub(super) fn click(viewer: &mut Viewer, x: f64, y: f64) {
    viewer.input(Input::Pointer(x, y));
    viewer.input(Input::Press(Button::Left));
    viewer.input(Input::Release(Button::Left));
}

pub(super) fn back(viewer: &mut Viewer) {
    viewer.input(Input::Press(Button::Back));
}

/// A page is requested at once and shown when it arrives.
#[test]
fn page_is_requested_and_then_shown() {
    let mut viewer = viewer();
    assert_eq!(viewer.size(), (414, 326));
    assert!(!viewer.is_settled());
    let first = asked(&mut viewer);
    assert_eq!((first.view.width(), first.view.height()), SIZE);
    assert!(viewer.says().ends_with("opening ..."), "{}", viewer.says());
    answer(&mut viewer, &first);
    assert!(viewer.is_settled() && viewer.title() == "a.html");
    assert!(viewer.says().contains("display list: "), "{}", viewer.says());
    assert!(viewer.take_asks().contains(&ViewerRequest::Show(first.id)));
    let mut frame = vec![0; 414 * 326];
    viewer.compose(&mut frame);
    assert!(
        frame[0] == 0x0020_2020 && frame[400] != 0x0020_2020,
        "the page, and beside it the scroll bar"
    );
}

/// The newest scroll position is painted; the last picture stays visible until then.
///
/// Guarantee: pages/window-waits
#[test]
fn newest_scroll_position_is_painted() {
    let mut viewer = open();
    for _ in 0..5 {
        key(&mut viewer, Key::Down);
    }
    let asks = viewer.take_asks();
    let paints = asks.iter().filter(|ask| matches!(ask, ViewerRequest::Paint { .. })).count();
    assert_eq!(paints, 1, "what was not sent yet is of no use");
    assert!(!viewer.is_settled() && viewer.picture.is_some());
    // Back again while that is on its way: the answers come in their order.
    for _ in 0..5 {
        key(&mut viewer, Key::Up);
    }
    viewer.answer(ViewerEvent::Painted(PaintedView {
        page: 1,
        scroll: (0, 200),
        pixels: Ok(pixels()),
    }));
    assert!(!viewer.is_settled());
    assert_eq!(paint(&mut viewer), (0, 0));
    assert!(viewer.is_settled());
    key(&mut viewer, Key::End);
    assert_eq!(paint(&mut viewer), (0, 1700));
    key(&mut viewer, Key::PageUp);
    assert_eq!(paint(&mut viewer), (0, 1700 - 260));
    viewer.input(Input::Scroll(0.0, 0.4));
    viewer.input(Input::Scroll(0.0, 0.4));
    viewer.input(Input::Scroll(0.0, 0.4));
    assert_eq!(paint(&mut viewer), (0, 1441), "what is less than a pixel counts the next time");
}

/// Guarantee: pages/clicks
/// Guarantee: pages/window
#[test]
fn links_are_followed_where_they_are_seen() {
    let mut viewer = open();
    viewer.input(Input::Pointer(20.0, 60.0));
    assert_eq!(viewer.cursor(), Cursor::Hand);
    assert!(viewer.says().starts_with("/pages/b.html |"), "{}", viewer.says());
    viewer.input(Input::Scroll(0.0, 100.0));
    assert_eq!(viewer.cursor(), Cursor::Hand, "the picture has not followed yet");
    paint(&mut viewer);
    assert_eq!(viewer.cursor(), Cursor::Arrow, "it was scrolled away");
    viewer.input(Input::Pointer(20.0, 210.0));
    assert!(
        viewer.says().starts_with("/pages/fixed.html |"),
        "this one was not: {}",
        viewer.says()
    );
    click(&mut viewer, 20.0, 410.0 - 100.0);
    assert!(viewer.pending.is_none(), "below the page there are no links");
    viewer.input(Input::Scroll(0.0, 400.0));
    paint(&mut viewer);
    click(&mut viewer, 20.0, 110.0);
    assert!(
        viewer.pending.is_none() && viewer.says().contains("mailto:someone@example.org: only"),
        "{}",
        viewer.says()
    );
    click(&mut viewer, 20.0, 10.0);
    let place = ViewerRequest::Place { page: 1, fragment: "end".to_owned() };
    assert!(viewer.take_asks().contains(&place), "the same page is not opened again");
    viewer.answer(ViewerEvent::Place { page: 1, line: Some(1234) });
    assert_eq!(paint(&mut viewer), (0, 1234));
    back(&mut viewer);
    assert_eq!(paint(&mut viewer), (0, 500));
}

/// Where a folder has the name of a page's base, links led from the folder, and styles did not.
///
/// Guarantee: pages/addresses
#[test]
fn links_are_relative_to_the_base_as_it_is_written() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("sub")).unwrap();
    let page = address(folder.path().join("a.html").to_str().unwrap());
    let base = page.url().join("sub").unwrap();
    let mut viewer = viewer_at(page.clone());
    let first = asked(&mut viewer);
    answer_from(&mut viewer, &first, Some(links()), base.as_str());
    click(&mut viewer, 20.0, 60.0);
    assert_eq!(asked(&mut viewer).address, page.join("b.html").unwrap());
}

/// A page of this machine whose base is a server's led to no files.
///
/// Guarantee: pages/no-local-files
#[test]
fn files_are_for_pages_of_this_machine_of_any_base() {
    let file = "file:///pages/b.html";
    for (page, leads_to) in
        [("file:///pages/a.html", Some(file)), ("https://example.org/a.html", None)]
    {
        let mut viewer = viewer_at(address(page));
        let first = asked(&mut viewer);
        let links = vec![link(file, 50.0, false), link("c.html", 100.0, false)];
        answer_from(&mut viewer, &first, Some(links), "https://example.org/d/");
        click(&mut viewer, 20.0, 60.0);
        assert_eq!(viewer.awaited().map(Address::as_str), leads_to, "{page}");
        click(&mut viewer, 20.0, 110.0);
        assert_eq!(viewer.awaited().map(Address::as_str), Some("https://example.org/d/c.html"));
    }
}

#[test]
fn back_leads_to_where_one_was_and_forward_again() {
    let mut viewer = open();
    viewer.input(Input::Scroll(0.0, 30.0));
    paint(&mut viewer);
    click(&mut viewer, 20.0, 30.0);
    let next = asked(&mut viewer);
    assert_eq!(next.address, address("file:///pages/b.html"));
    answer(&mut viewer, &next);
    assert_eq!(viewer.title(), "b.html");
    back(&mut viewer);
    let before = asked(&mut viewer);
    assert_eq!(
        (before.address.clone(), before.view.scroll()),
        (address("file:///pages/a.html"), 30)
    );
    answer(&mut viewer, &before);
    assert!(viewer.is_settled() && viewer.scroll == (0, 30));
    back(&mut viewer);
    assert!(viewer.says().starts_with("there is no page before this one"), "{}", viewer.says());
    viewer.input(Input::Press(Button::Forward));
    assert_eq!(asked(&mut viewer).address, address("file:///pages/b.html"));
}

/// Guarantee: pages/window-waits
#[test]
fn a_newer_page_supersedes_one_that_is_on_its_way() {
    let mut viewer = open();
    click(&mut viewer, 20.0, 60.0);
    let older = asked(&mut viewer);
    click(&mut viewer, 20.0, 210.0);
    let newer = asked(&mut viewer);
    answer(&mut viewer, &older);
    assert_eq!(viewer.title(), "a.html", "nobody wants it any more");
    answer(&mut viewer, &newer);
    assert_eq!(viewer.title(), "fixed.html");
    back(&mut viewer);
    assert_eq!(asked(&mut viewer).address, address("file:///pages/a.html"), "it was never there");
    key(&mut viewer, Key::Escape);
    assert!(viewer.is_settled() && matches!(viewer.take_asks()[0], ViewerRequest::Stop(_)));
    assert_eq!(viewer.title(), "fixed.html");
}

#[test]
fn text_is_found_while_it_is_typed() {
    let mut viewer = open();
    key(&mut viewer, Key::Char('/'));
    write(&mut viewer, "a/b");
    assert_eq!(viewer.says(), "Find: a/b| | looking ...");
    let wanted = ViewerRequest::Find { page: 1, text: "a/b".to_owned() };
    assert!(viewer.take_asks().contains(&wanted));
    let one = |top: f32| Match {
        places: vec![[10.0, top, 50.0, top + 10.0]],
        fixed: false,
        node: 1,
        block: 0,
        range: 0..1,
    };
    let matches = vec![one(20.0), one(900.0)];
    viewer.answer(ViewerEvent::Found { page: 1, text: "a".to_owned(), matches: Ok(vec![]) });
    assert_eq!(viewer.says(), "Find: a/b| | looking ...", "an answer to what was asked before");
    viewer.answer(ViewerEvent::Found { page: 1, text: "a/b".to_owned(), matches: Ok(matches) });
    assert_eq!(viewer.says(), "Find: a/b| | 1 of 2");
    key(&mut viewer, Key::Enter);
    assert_eq!(viewer.says(), "Find: a/b| | 2 of 2");
    assert_eq!(paint(&mut viewer), (0, 800));
    key(&mut viewer, Key::Function(3));
    assert_eq!(viewer.says(), "Find: a/b| | 1 of 2");
    key(&mut viewer, Key::Escape);
    assert!(viewer.finding.is_none() && viewer.typing.is_none());
}

#[test]
fn an_address_is_typed_and_what_is_none_is_told() {
    let mut viewer = open();
    ctrl(&mut viewer, 'l');
    write(&mut viewer, "file:///other.htmlx");
    key(&mut viewer, Key::Backspace);
    key(&mut viewer, Key::Enter);
    assert_eq!(asked(&mut viewer).address, address("file:///other.html"));
    ctrl(&mut viewer, 'l');
    write(&mut viewer, "gopher://example.org/");
    key(&mut viewer, Key::Enter);
    assert!(viewer.says().contains("only files"), "{}", viewer.says());
}

#[test]
fn another_size_lays_the_page_out_again_and_zoom_too() {
    let mut viewer = open();
    viewer.input(Input::Resize(614, 426));
    let asked_again = asked(&mut viewer);
    assert!(
        asked_again.is_resize
            && (asked_again.view.width(), asked_again.view.height()) == (600, 400)
    );
    viewer.input(Input::Resize(414, 326));
    let third = asked(&mut viewer);
    assert_eq!((third.view.width(), third.view.height()), SIZE);
    answer(&mut viewer, &third);
    assert!(viewer.is_settled());
    viewer.input(Input::Resize(414, 326));
    assert!(viewer.pending.is_none(), "as it is");
    ctrl(&mut viewer, '+');
    assert_eq!(asked(&mut viewer).view.scale_permille(), 1100);
    ctrl(&mut viewer, '0');
    assert_eq!(asked(&mut viewer).view.scale_permille(), 1000);
    for _ in 0..50 {
        ctrl(&mut viewer, '-');
    }
    assert_eq!(viewer.view().scale_permille(), 250);
    for (width, height) in [(0, 0), (1, 1), (u32::MAX, u32::MAX)] {
        viewer.input(Input::Resize(width, height));
        assert!(viewer.view().width() <= crate::VIEWPORT_MAX);
    }
}

#[test]
fn the_keyboard_goes_from_link_to_link() {
    let mut viewer = open();
    key(&mut viewer, Key::Tab);
    assert!(viewer.says().starts_with("/pages/b.html"), "{}", viewer.says());
    key(&mut viewer, Key::Tab);
    assert!(viewer.says().starts_with("/pages/a.html#end"), "{}", viewer.says());
    assert_eq!(paint(&mut viewer), (0, 400), "it is scrolled to");
    viewer.input(Input::Key(
        Key::Tab,
        Modifiers { shift: true, ..Modifiers::default() },
        String::new(),
    ));
    key(&mut viewer, Key::Enter);
    assert_eq!(asked(&mut viewer).address, address("file:///pages/b.html"));
}

#[test]
fn the_thumb_is_drawn_and_the_page_follows() {
    let mut viewer = open();
    viewer.input(Input::Pointer(405.0, 5.0));
    viewer.input(Input::Press(Button::Left));
    viewer.input(Input::Pointer(405.0, 60.0));
    let (_, y) = paint(&mut viewer);
    assert!((300..450).contains(&y), "{y}");
    viewer.input(Input::Pointer(900.0, 9000.0));
    assert_eq!(paint(&mut viewer), (0, 1700));
    viewer.input(Input::Release(Button::Left));
    viewer.input(Input::Pointer(405.0, 5.0));
    assert!(viewer.is_settled(), "it was let go");
}

#[test]
fn what_steers_a_line_is_left_out_of_it() {
    let mut viewer = viewer();
    viewer.said = Some("a\nb\u{1b}[1m\u{202e}c\u{2028}".to_owned());
    let line = viewer.take_asks().into_iter().find_map(|ask| match ask {
        ViewerRequest::Line(line) => Some(line.left),
        _ => None,
    });
    assert_eq!(line.as_deref(), Some("a b [1m c "));
}

/// Several quick steps back lead as far as the same steps one by one.
///
/// Guarantee: pages/clicks
/// Guarantee: pages/window
#[test]
fn quick_steps_back_add_up() {
    let mut viewer = open();
    for name in ["b.html", "c.html"] {
        viewer.go(address(&format!("file:///pages/{name}")));
        let next = asked(&mut viewer);
        answer(&mut viewer, &next);
    }
    back(&mut viewer);
    back(&mut viewer);
    let first = asked(&mut viewer);
    assert_eq!(first.address, address("file:///pages/a.html"));
    answer(&mut viewer, &first);
    viewer.input(Input::Press(Button::Forward));
    assert_eq!(asked(&mut viewer).address, address("file:///pages/b.html"));
}

/// Several quick zoom steps keep the same text in view.
///
/// Guarantee: pages/clicks
/// Guarantee: pages/window
#[test]
fn quick_zoom_steps_keep_the_text_in_view() {
    let mut viewer = open();
    viewer.input(Input::Scroll(0.0, 1000.0));
    paint(&mut viewer);
    ctrl(&mut viewer, '+');
    ctrl(&mut viewer, '+');
    let page = asked(&mut viewer);
    assert_eq!((page.view.scale_permille(), page.view.scroll()), (1250, 1250));
}

/// If the first page cannot be opened, nothing stays pending.
///
/// Guarantee: pages/clicks
/// Guarantee: pages/window
#[test]
fn failed_first_page_leaves_nothing_pending() {
    let mut viewer = viewer();
    let first = asked(&mut viewer);
    assert!(!viewer.has_nothing());
    viewer.answer(ViewerEvent::Failed { page: first.id, text: "no thread".to_owned() });
    assert!(viewer.has_nothing() && viewer.says().contains("no thread"), "{}", viewer.says());
}
