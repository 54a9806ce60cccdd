//! The window, driven by a keyboard and a mouse on a display of its own, and compared pixel by
//! pixel with pictures that the engine paints of the same pages without a window and without a
//! cache.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod faults;
mod screen;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use holdfast_page::{
    Address, Cache, Files, OpenOptions, PageLimits, PageUse, Pixels, View, open, open_with,
};
use holdfast_region::{NameSpace, Places, RegionName};

use screen::{AROUND, Place, Screen, Window};

fn limits() -> PageLimits {
    PageLimits { time: Duration::from_secs(300), ..PageLimits::default() }
}

fn view((width, height): (u32, u32)) -> View {
    View::new(width, height, 1000).unwrap()
}

/// As the engine paints it, without a cache.
fn anew(page: &Path, view: View) -> Pixels {
    open(&Address::parse(page.to_str().unwrap()).unwrap(), view, &limits(), None).unwrap().pixels
}

/// Where elements are: left, top, right, bottom of each.
fn boxes(page: &Path, selector: &str) -> Vec<[f32; 4]> {
    let mut opening = OpenOptions::new(view(SIZE), &limits(), None, Arc::new(Files));
    opening.want = PageUse::Places;
    let opened = open_with(&Address::parse(page.to_str().unwrap()).unwrap(), &opening).unwrap();
    opened.boxes_of(selector).unwrap().into_iter().map(|one| one.place).collect()
}

fn line_of(page: &Path, selector: &str) -> u32 {
    boxes(page, selector)[0][1] as u32
}

impl Place {
    fn cache(&self) -> Cache {
        let [home, pool] = self.homes();
        let names = NameSpace::new(Places::at(home, pool).unwrap());
        Cache::new(names, RegionName::parse("page-cache").unwrap(), "default", 64 << 20)
    }
}

const SIZE: (u32, u32) = (600, 400);
/// Lines of a turn of the wheel: a wheel of buttons, like that of these hands, counts when it is
/// pressed and when it is let go.
const NOTCH: u32 = 240;

/// Text with things to see and to click on.
fn long(title: &str, more: &str) -> String {
    let lines: String = (0..200)
        .map(|number| {
            format!(
                "<p id=l{number} style='color:hsl({}deg 80% 40%)'>line {number} of {title}</p>",
                number * 7
            )
        })
        .collect();
    format!(
        "<!doctype html><title>{title}</title><body style='background:#f4f8ff'>{more}{lines}</body>"
    )
}

/// A link that is a button at the left top of the page, so many pixels down.
fn button(href: &str, top: u32) -> String {
    format!(
        "<a href='{href}' style='position:absolute;left:300px;top:{top}px;width:120px;height:30px;background:#fc0'>go</a>"
    )
}

/// Guarantee: pages/window
#[test]
fn the_window_shows_the_page_wherever_it_is_scrolled() {
    let Some(screen) = Screen::start() else { return };
    let place = Place::new();
    let page = place.write(
        "a.html",
        long("A", "<div style='width:1500px;height:20px;background:linear-gradient(90deg,red,blue)'></div>"),
    );
    let at = |x: u32, y: u32| anew(&page, view(SIZE).scrolled(y).scrolled_right(x));
    // Made, then kept.
    for round in ["made", "kept"] {
        let mut window = Window::open(&screen, place.program(), &page, SIZE);
        window.focus();
        screen.wait_for(&at(0, 0), round);
        screen.hands("mousemove 200 200 click 5 click 5");
        screen.wait_for(&at(0, 2 * NOTCH), "two notches of the wheel");
        screen.hands("click 4");
        screen.wait_for(&at(0, NOTCH), "one notch back");
        screen.hands("key Next");
        screen.wait_for(&at(0, NOTCH + 400 - 40), "a page down");
        screen.hands("key space key shift+space key Down");
        screen.wait_for(&at(0, NOTCH + 400), "space and back, and an arrow");
        screen.hands("key Right key Right");
        screen.wait_for(&at(80, NOTCH + 400), "to the right");
        screen.hands("key End");
        screen.wait_for(&at(80, u32::MAX), "the end");
        screen.hands("key Home key Left key Left key Left");
        screen.wait_for(&at(0, 0), "the top, and the left edge");
        // Below the thumb: its middle comes there; then it is drawn further down than there is.
        screen.hands(&format!(
            "mousemove {} 300 mousedown 1 mousemove {} 690 mouseup 1",
            SIZE.0 + 7,
            SIZE.0 + 7
        ));
        screen.wait_for(&at(0, u32::MAX), "the scroll bar drawn to its end");
        screen.hands(&format!(
            "mousemove 10 {} mousedown 1 mousemove 900 {} mouseup 1",
            SIZE.1 + 2,
            SIZE.1 + 2
        ));
        screen.wait_for(&at(u32::MAX, u32::MAX), "the other scroll bar");
        window.quit();
    }
}

/// Guarantee: pages/window
#[test]
fn links_lead_on_and_back_leads_to_where_one_was() {
    let Some(screen) = Screen::start() else { return };
    let place = Place::new();
    let top = 1000;
    let links = format!("{}{}", button("b.html", top), button("mailto:a@example.org", top + 60));
    let page = place.write("a.html", long("A", &links));
    let next = place.write("b.html", long("B", &button("#l100", 20)));
    let mut window = Window::open(&screen, place.program(), &page, SIZE);
    window.focus();
    let before = anew(&page, view(SIZE).scrolled(4 * NOTCH));
    screen.wait_for(&anew(&page, view(SIZE)), "the first page");
    screen.hands("mousemove 100 100 click 5 click 5 click 5 click 5");
    screen.wait_for(&before, "scrolled to the link");
    // What is no page is told, and not opened: the page stays.
    screen.hands("mousemove 320 110 click 1 mousemove 900 650");
    screen.wait_for(&before, "a link to elsewhere; the display draws the pointer into its picture");
    screen.hands("mousemove 320 50 click 1 mousemove 900 650");
    screen.wait_for(&anew(&next, view(SIZE)), "the next page");
    screen.hands("mousemove 320 30 click 1 mousemove 900 650");
    let down = line_of(&next, "#l100");
    screen.wait_for(&anew(&next, view(SIZE).scrolled(down)), "a place in the page");
    screen.hands("key alt+Left");
    screen.wait_for(&anew(&next, view(SIZE)), "back to its top");
    screen.hands("key alt+Left");
    screen.wait_for(&before, "back to where one was");
    screen.hands("key alt+Right key alt+Right");
    screen.wait_for(&anew(&next, view(SIZE).scrolled(down)), "forth to the place");
    screen.hands("mousemove 100 200 click 8 click 8 mousemove 900 650");
    screen.wait_for(&before, "back by the mouse");
    window.quit();
}

/// A page that changed is shown in its new form after a reload.
///
/// Guarantee: pages/window
#[test]
fn changed_page_reloads() {
    let Some(screen) = Screen::start() else { return };
    let place = Place::new();
    let page = place.write("a.html", long("A", ""));
    let mut window = Window::open(&screen, place.program(), &page, SIZE);
    window.focus();
    screen.hands("mousemove 100 100");
    screen.wait_for(&anew(&page, view(SIZE)), "as it was");
    screen.hands("click 5");
    screen.wait_for(&anew(&page, view(SIZE).scrolled(NOTCH)), "scrolled");
    let (before, old) =
        (anew(&page, view(SIZE).scrolled(2 * NOTCH)), anew(&page, view(SIZE).scrolled(NOTCH)));
    place.write("a.html", long("another A", ""));
    screen.hands("click 5");
    screen.wait_for(&before, "what is open stays as it was");
    screen.hands("click 4");
    screen.wait_for(&old, "also back up");
    screen.hands("key F5");
    screen.wait_for(&anew(&page, view(SIZE).scrolled(NOTCH)), "loaded again, where one was");
    place.write("a.html", long("a third A", ""));
    screen.hands("key ctrl+shift+r");
    screen.wait_for(&anew(&page, view(SIZE).scrolled(NOTCH)), "and without the cache");
    window.quit();
}

/// Guarantee: pages/window
#[test]
fn what_is_found_is_coloured_and_one_comes_to_it() {
    let Some(screen) = Screen::start() else { return };
    let place = Place::new();
    let page =
        place.write("a.html", long("A", "").replace("background:#f4f8ff", "background:#fff"));
    let mut window = Window::open(&screen, place.program(), &page, SIZE);
    window.focus();
    let plain = anew(&page, view(SIZE));
    screen.wait_for(&plain, "the page");
    screen.hands("key slash");
    screen.hands("type LINE");
    // White below the letters becomes yellow; one has come to the first line, which is darker.
    let colour = |of: u32, color: [u8; 3]| {
        let [left, top, _, bottom] = boxes(&page, &format!("#l{of}"))[0].map(|at| at as u32);
        let shot = screen.part([left, top, 40, bottom - top]);
        shot.bytes.chunks_exact(4).any(|pixel| pixel[..3] == color)
    };
    let (found, here) = ([0xff, 0xf0, 0x80], [0xff, 0xb0, 0x50]);
    assert!(screen::wait(|| colour(3, found) && colour(0, here)), "nothing is coloured");
    screen.hands("key Return key F3 key F3");
    assert!(
        screen::wait(|| colour(3, here) && colour(0, found)),
        "one does not come to the fourth"
    );
    screen.hands("key shift+F3");
    assert!(screen::wait(|| colour(2, here) && colour(3, found)), "nor back to the third");
    // What is far down is scrolled to.
    screen.hands("key ctrl+u");
    screen.hands("type 150");
    let down = boxes(&page, "#l150")[0][1];
    let seen = (down - SIZE.1 as f32 / 3.0) as u32;
    let scrolled = anew(&page, view(SIZE).scrolled(seen));
    let right_half = |picture: &Pixels| -> Vec<u8> {
        picture
            .bytes
            .chunks_exact(4 * SIZE.0 as usize)
            .flat_map(|line| &line[800..])
            .copied()
            .collect()
    };
    let all = [0, 0, SIZE.0, SIZE.1];
    assert!(
        screen::wait(|| right_half(&screen.part(all)) == right_half(&scrolled)),
        "not scrolled to it"
    );
    screen.hands("key Escape key Home");
    screen.wait_for(&plain, "all colours are gone");
    window.quit();
}

/// Guarantee: pages/window
#[test]
fn a_page_is_laid_out_for_the_window_and_its_zoom() {
    let Some(screen) = Screen::start() else { return };
    let place = Place::new();
    let text =
        format!("<!doctype html><title>A</title><p>{}", "words that flow into lines ".repeat(400));
    let page = place.write("a.html", text);
    let mut window = Window::open(&screen, place.program(), &page, SIZE);
    let id = window.focus();
    screen.wait_for(&anew(&page, view(SIZE)), "as asked for");
    for size in [(800, 500), (333, 250), (601, 401)] {
        screen.hands(&format!("windowsize {id} {} {}", size.0 + AROUND.0, size.1 + AROUND.1));
        screen.wait_for(&anew(&page, view(size)), "in another size");
    }
    let zoomed = |permille| View::new(601, 401, permille).unwrap();
    screen.hands("key ctrl+plus key ctrl+plus");
    screen.wait_for(&anew(&page, zoomed(1250)), "larger");
    screen.hands("key ctrl+0 key ctrl+minus");
    screen.wait_for(&anew(&page, zoomed(900)), "smaller");
    screen.hands("key ctrl+0");
    screen.wait_for(&anew(&page, zoomed(1000)), "as usual");
    // Many sizes in a row: the last one counts.
    for width in (300..700).step_by(20) {
        screen.hands(&format!("windowsize {id} {} {}", width, 426));
    }
    screen.wait_for(&anew(&page, view((680 - AROUND.0, 400))), "the last of many sizes");
    window.quit();
    assert_eq!(place.cache().check().unwrap(), []);
}
