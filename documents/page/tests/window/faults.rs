//! Faults while a window is open.

use std::process::Stdio;
use std::time::Instant;

use holdfast_heap::Owned;
use holdfast_native_heap::open_data_heap;
use holdfast_page::View;
use holdfast_region::{NameSpace, OwnerKey, Places, RegionName};

use crate::screen::{Place, Screen, Window, wait};
use crate::{NOTCH, SIZE, anew, long, view};

/// A page that vanishes stays visible until it is reloaded; then the window shows the error.
///
/// Guarantee: pages/window-waits
#[test]
fn vanished_page_fails_at_reload() {
    let Some(screen) = Screen::start() else { return };
    let place = Place::new();
    let page = place.write("a.html", long("A", ""));
    let mut window = Window::open(&screen, place.program(), &page, SIZE);
    window.focus();
    screen.hands("mousemove 100 100");
    let [top, below] = [0, NOTCH].map(|y| anew(&page, view(SIZE).scrolled(y)));
    screen.wait_for(&top, "the page");
    let text = std::fs::read(&page).unwrap();
    std::fs::remove_file(&page).unwrap();
    screen.hands("click 5");
    screen.wait_for(&below, "what is open can be scrolled");
    screen.hands("key F5");
    let area = [0, 0, SIZE.0, SIZE.1];
    assert!(wait(|| screen.part(area) != below), "nothing is said");
    assert!(window.child.try_wait().unwrap().is_none(), "the window stays");
    std::fs::write(&page, text).unwrap();
    screen.hands("key F5");
    screen.wait_for(&top, "the page is there again");
    let (_, notes) = window.quit();
    assert_eq!(notes, "");
}

/// Without a cache, the window stores nothing and still scrolls.
///
/// Guarantee: pages/window-kills
#[test]
fn window_scrolls_without_a_cache() {
    let Some(screen) = Screen::start() else { return };
    let place = Place::new();
    let page = place.write("a.html", long("A", ""));
    let mut window = Window::open_with(&screen, place.program(), &page, SIZE, &["--no-cache"]);
    window.focus();
    screen.wait_for(&anew(&page, view(SIZE)), "the page");
    screen.hands("key End");
    screen.wait_for(&anew(&page, view(SIZE).scrolled(u32::MAX)), "its end");
    window.quit();
    assert_eq!(place.cache().views().unwrap(), []);
}

/// Guarantee: pages/window-kills
#[test]
fn two_windows_share_one_cache() {
    let (Some(one), Some(other)) = (Screen::start(), Screen::start()) else { return };
    let place = Place::new();
    let pages = ["A", "B"].map(|title| place.write(&format!("{title}.html"), long(title, "")));
    let screens = [&one, &other];
    let mut windows = [0, 1].map(|n| Window::open(screens[n], place.program(), &pages[n], SIZE));
    for n in [0, 1] {
        windows[n].focus();
        screens[n].wait_for(&anew(&pages[n], view(SIZE)), "each its own page");
    }
    assert!(
        wait(|| place.cache().views().unwrap().len() == 2),
        "both are kept while both are open"
    );
    for n in [0, 1] {
        // To the other one's page, by its address, as it is typed.
        screens[n].hands("key ctrl+l");
        screens[n].hands(&format!("type {}", pages[1 - n].display()));
        screens[n].hands("key Return");
        screens[n].wait_for(&anew(&pages[1 - n], view(SIZE)), "the other one's page");
        screens[n].hands("key End");
        screens[n].wait_for(&anew(&pages[1 - n], view(SIZE).scrolled(u32::MAX)), "its end");
    }
    for window in windows {
        window.quit();
    }
    assert_eq!(place.cache().check().unwrap(), []);
    assert_eq!(place.cache().views().unwrap().len(), 2);
}

/// A window killed while it stores a page leaves the cache whole.
///
/// Guarantee: pages/window-kills
#[test]
fn killed_window_leaves_the_cache_whole() {
    let Some(screen) = Screen::start() else { return };
    let place = Place::new();
    let page = place.write("a.html", long("0", ""));
    let open = |more: &[&str]| Window::open_with(&screen, place.program(), &page, SIZE, more);
    let started = Instant::now();
    open(&["--exit-after-first-frame"]).ended();
    let takes = started.elapsed();
    for number in 1..=12 {
        place.write("a.html", long(&number.to_string(), ""));
        let mut window = open(&["--exit-after-first-frame"]);
        // Most kills fall on its end, where it keeps.
        std::thread::sleep(takes.mul_f64(0.6 + f64::from(number) / 20.0));
        // It may have ended.
        let _ = window.child.kill();
        window.child.wait().unwrap();
        let cache = place.cache();
        assert_eq!(cache.check().unwrap(), [], "kill {number}");
        let rows = cache.views().unwrap();
        assert_eq!(rows.len(), 1, "kill {number}: {rows:?}");
        assert!(rows[0].document_bytes > 0, "kill {number}: the view has no document");
    }
    let mut window = open(&[]);
    window.focus();
    screen.wait_for(&anew(&page, view(SIZE)), "after all kills");
    window.quit();
}

/// Closing the window at once keeps the page that was being stored.
///
/// Guarantee: pages/window-kills
#[test]
fn closing_at_once_keeps_the_page() {
    let Some(screen) = Screen::start() else { return };
    let place = Place::new();
    let page = place.write("a.html", long("A page", ""));
    let mut tiers = Vec::new();
    for _ in 0..2 {
        let more = ["--exit-after-first-frame", "--json"];
        let (out, notes) = Window::open_with(&screen, place.program(), &page, SIZE, &more).ended();
        let report: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert_eq!(notes, "");
        assert_eq!(report["title"], "A page");
        let [all, window, shown] =
            ["total_ms", "window_ms", "shown_ms"].map(|name| report[name].as_f64().unwrap());
        assert!(shown >= all && shown >= window && window > 0.0, "{report}");
        tiers.push(report["tier"].as_str().unwrap().to_owned());
    }
    assert_eq!(tiers, ["cold", "pixels"]);
    // The same view as without a window.
    let output =
        place.program().arg("open").arg(&page).args(["--viewport", "600x400"]).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("pixels"), "{output:?}");
}

/// A page that is not stored is reported even if the window is closed at once.
///
/// Guarantee: pages/window-kills
#[test]
fn closing_at_once_reports_a_page_not_kept() {
    let Some(screen) = Screen::start() else { return };
    let place = Place::new();
    let page = place.write("a.html", long("A page", ""));
    let more = ["--exit-after-first-frame", "--quota", "1000"];
    let (out, notes) = Window::open_with(&screen, place.program(), &page, SIZE, &more).ended();
    assert!(out.starts_with("cold: "), "{out}");
    assert!(notes.starts_with("holdfast: the page is not kept: the page takes "), "{notes}");
    assert_eq!(notes.lines().count(), 1, "{notes}");
}

/// Fixed parts look the same whether the engine or the list paints them.
///
/// Guarantee: pages/window
#[test]
fn fixed_parts_look_alike_from_list_and_engine() {
    let Some(screen) = Screen::start() else { return };
    let place = Place::new();
    let bar =
        "<div style='position:fixed;top:0;left:0;right:0;height:50px;background:#063'>bar</div>";
    let page = place.write("a.html", long("A", bar));
    for round in ["made", "kept"] {
        let mut window = Window::open(&screen, place.program(), &page, SIZE);
        window.focus();
        screen.wait_for(&anew(&page, view(SIZE)), round);
        screen.hands("key Next");
        screen.wait_for(&anew(&page, view(SIZE).scrolled(360)), "a page down");
        screen.hands("key End");
        screen.wait_for(&anew(&page, View::scrolled(view(SIZE), u32::MAX)), "the end");
        window.quit();
    }
}

/// Changes a byte in the middle of the commands of the only page that is kept.
fn spoil_the_list(place: &Place) {
    let [home, pool] = place.homes();
    let names = NameSpace::new(Places::at(home, pool).unwrap());
    let key = OwnerKey::load_existing(names.places(), "default").unwrap();
    let region = names.open(&RegionName::parse("page-cache").unwrap(), &key).unwrap();
    let (heap, region) = open_data_heap(region).unwrap();
    let mut heap = Owned::new(heap);
    let name =
        heap.heap().roots().find(|(name, _)| name.starts_with("view:")).unwrap().0.to_owned();
    let entry = heap.bytes(&name).unwrap();
    // docs/format.md: the seventh of the parts.
    let word = |at: usize| u64::from_le_bytes(entry[at..at + 8].try_into().unwrap());
    let at = word(88 + 6 * 16) + word(88 + 6 * 16 + 8) / 2;
    let other = [!entry[at as usize]];
    heap.transaction(|tx| tx.write(tx.root(&name).unwrap(), at, &other)).unwrap();
    drop(heap.into_heap().close());
    region.close().unwrap();
}

/// A page shown from pixels can be scrolled, and a damaged list is repaired by that.
///
/// Guarantee: pages/damage
#[test]
fn rotted_list_is_mended_by_scrolling() {
    let Some(screen) = Screen::start() else { return };
    let place = Place::new();
    let page = place.write("a.html", long("A", ""));
    let (out, _) =
        Window::open_with(&screen, place.program(), &page, SIZE, &["--exit-after-first-frame"])
            .ended();
    assert!(out.starts_with("cold"), "{out}");
    spoil_the_list(&place);
    assert_eq!(place.cache().check().unwrap().len(), 1);
    let mut window = Window::open(&screen, place.program(), &page, SIZE);
    window.focus();
    screen.wait_for(&anew(&page, view(SIZE)), "from its pixels");
    let step = SIZE.1 - 40;
    for (keys, scroll) in [
        ("key End", u32::MAX),
        ("key Home", 0),
        (&*"key Next ".repeat(8), step * 8),
        ("key Next", step * 9),
    ] {
        screen.hands(keys.trim_end());
        screen.wait_for(&anew(&page, view(SIZE).scrolled(scroll)), keys);
    }
    window.quit();
    assert_eq!(place.cache().check().unwrap(), []);
}

/// Guarantee: pages/window
#[test]
fn without_a_display_it_is_said_what_to_do() {
    let place = Place::new();
    let page = place.write("a.html", "<!doctype html>a page");
    for (name, value) in
        [("DISPLAY", ""), ("DISPLAY", ":65000"), ("WAYLAND_DISPLAY", "no-such-display")]
    {
        let output = place
            .program()
            .arg("open")
            .arg(&page)
            .arg("--window")
            .env_remove("DISPLAY")
            .env_remove("WAYLAND_DISPLAY")
            .env_remove("WAYLAND_SOCKET")
            .env(name, value)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let notes = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(7), "{notes}");
        assert!(notes.contains("--png") && notes.contains("DISPLAY"), "{notes}");
        assert!(!notes.contains("panicked"), "{notes}");
    }
}
