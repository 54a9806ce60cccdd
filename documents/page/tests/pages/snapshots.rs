//! Pixels that are kept: shown where they are what would be painted, and nowhere else.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use holdfast_page::{
    EntryDamage, Files, FindOptions, OpenOptions, OpenPage, PageUse, StaleReason, Tier, View, open,
    open_kept_file, open_with,
};

use crate::damage::plant;
use crate::{Place, address, anew, limits, png, view};

const PAGE: &str = "<!doctype html><title>Page</title><link rel=stylesheet href=a.css><h1>Some <i>text</i></h1><img src=a.png>
    <p>and more of it<div style='height: 900px'></div><h2 id=there>There</h2><div style='height: 900px'></div>";

/// Where a header says how many bytes of pixels there are, after where they are.
const BYTES_AT: usize = 88 + 12 * 16 + 8;

/// Where the pixels are in an entry, and how many bytes: docs/format.md.
fn pixels_of(entry: &[u8]) -> (usize, usize) {
    let word = |at: usize| u64::from_le_bytes(entry[at..at + 8].try_into().unwrap()) as usize;
    (word(BYTES_AT - 8), word(BYTES_AT))
}

/// The entry of the only page.
fn entry(place: &Place) -> (String, Vec<u8>) {
    let row = place.cache().views().unwrap().remove(0);
    let mut entry = Vec::new();
    place.spoil(|heap| entry.extend_from_slice(heap.bytes(&row.name).unwrap()));
    assert_eq!(row.pixels_bytes as usize, pixels_of(&entry).1);
    (row.name, entry)
}

fn replace(place: &Place, name: &str, entry: &[u8]) {
    place.spoil(|heap| {
        heap.transaction(|tx| {
            tx.remove(name)?;
            tx.create(name, entry.len() as u64, None, |to| to.copy_from_slice(entry))
        })
        .unwrap();
    });
}

fn page(place: &Place) -> std::path::PathBuf {
    place.write("a.css", "h1 { color: navy }");
    place.write("a.png", png(30, 10, [9, 99, 9, 255]));
    place.write("a.html", PAGE)
}

/// A page that must not be shown from its pixels; it is made anew as it looks now.
fn is_made_anew(place: &Place, page: &Path, view: View) -> OpenPage {
    let opened = place.open(page, view);
    assert!(opened.tier == Tier::Document && opened.pixels == anew(page, view), "{}", opened.tier);
    assert_eq!(place.open(page, view).tier, Tier::Pixels, "it is kept again");
    opened
}

/// Stored pixels are shown only in the view they were made for; other views are painted from the
/// list.
///
/// Guarantee: pages/kept-pixels
#[test]
fn pixels_serve_their_own_view_only() {
    let place = Place::new();
    let page = page(&place);
    let view = view(300, 200);
    let first = place.open(&page, view.scrolled(77));
    assert_eq!((first.tier, first.scroll), (Tier::Nothing, 77));
    for (scroll, scroll_x, tier) in [
        (77, 0, Tier::Pixels),
        (0, 0, Tier::List),
        (76, 0, Tier::List),
        (78, 0, Tier::List),
        (77, 9, Tier::Pixels),
    ] {
        let there = view.scrolled(scroll).scrolled_right(scroll_x);
        let opened = place.open(&page, there);
        assert_eq!((opened.tier, opened.scroll), (tier, scroll), "{scroll} {scroll_x}");
        assert!(opened.pixels == anew(&page, there), "{scroll} {scroll_x}");
    }
    let again = place.repainted(&page, view.scrolled(77));
    assert_eq!((again.tier, again.pixels == first.pixels), (Tier::List, true));
    let other = View::new(300, 200, 1_500).unwrap().scrolled(77);
    assert_eq!(place.open(&page, other).tier, Tier::Document, "another scale");
}

/// A page wider than the viewport has its pixels from the position it was scrolled to.
///
/// Guarantee: pages/kept-pixels
#[test]
fn wide_page_keeps_pixels_where_scrolled() {
    let place = Place::new();
    let page = place.write(
        "a.html",
        "<!doctype html><div style='width: 900px; background: linear-gradient(red, blue)'>text</div>",
    );
    let right = view(300, 200).scrolled_right(120);
    place.open(&page, right);
    for (there, tier) in [(right, Tier::Pixels), (view(300, 200), Tier::List)] {
        let opened = place.open(&page, there);
        assert_eq!((opened.tier, opened.pixels == anew(&page, there)), (tier, true));
    }
}

/// Guarantee: pages/kept-pixels
#[test]
fn pixels_past_the_end_of_a_page_are_those_of_its_end() {
    let place = Place::new();
    let page = page(&place);
    let end = place.open(&page, view(300, 200).scrolled(1_000_000));
    assert!(end.scroll > 1_500);
    for scroll in [1_000_000, end.scroll, end.scroll + 1] {
        let opened = place.open(&page, view(300, 200).scrolled(scroll));
        assert_eq!((opened.tier, opened.pixels == end.pixels), (Tier::Pixels, true), "{scroll}");
    }
}

/// Pixels of a fragment of a page are shown at that fragment.
///
/// Guarantee: pages/kept-pixels
#[test]
fn pixels_of_a_fragment_serve_that_fragment() {
    let place = Place::new();
    let page = page(&place);
    let named = format!("{}#there", page.display());
    let cache = place.cache();
    let open = |name: &str| {
        let name = holdfast_page::Address::parse(name).unwrap();
        let mut opened = open(&name, view(300, 200), &limits(), Some(&cache)).unwrap();
        if let Some(to_keep) = opened.to_keep.take() {
            to_keep.keep(&cache).unwrap();
        }
        opened
    };
    let first = open(&named);
    assert!(first.tier == Tier::Nothing && first.scroll > 900);
    let again = open(&named);
    assert_eq!(
        (again.tier, again.scroll, again.pixels == first.pixels),
        (Tier::Pixels, first.scroll, true)
    );
    let top = open(page.to_str().unwrap());
    assert_eq!(
        (top.tier, top.scroll, top.pixels == anew(&page, view(300, 200))),
        (Tier::List, 0, true)
    );
}

/// Pixels of a page are not shown after any part of the page changed.
///
/// Guarantee: pages/changed
#[test]
fn pixels_of_a_changed_page_are_not_shown() {
    let place = Place::new();
    let page = page(&place);
    let view = view(300, 200);
    place.open(&page, view);
    assert_eq!(place.open(&page, view).tier, Tier::Pixels);
    place.write("a.css", "h1 { color: gold }");
    assert!(matches!(is_made_anew(&place, &page, view).stale, Some(StaleReason::Resource(_))));
    place.write("a.png", png(30, 10, [99, 9, 9, 255]));
    assert!(matches!(is_made_anew(&place, &page, view).stale, Some(StaleReason::Resource(_))));
    place.write("a.html", PAGE.replace("Some", "Same"));
    let opened = place.open(&page, view);
    assert_eq!(
        (opened.tier, opened.stale, opened.pixels == anew(&page, view)),
        (Tier::Nothing, Some(StaleReason::Source), true)
    );
}

/// A page whose list cannot be stored opens from its pixels at the place where it first opened.
///
/// Guarantee: pages/kept-pixels
#[test]
fn page_without_a_list_opens_from_pixels() {
    let place = Place::new();
    let page = place.write(
        "a.html",
        "<!doctype html><title>Tall</title><h1>Top</h1><div style='height: 5000000px'></div><p>end",
    );
    let view = view(300, 200);
    let first = place.open(&page, view);
    assert_eq!(first.tier, Tier::Nothing);
    let again = place.open(&page, view);
    assert_eq!((again.tier, again.stale, again.pixels == first.pixels), (Tier::Pixels, None, true));
    assert_eq!(place.repainted(&page, view).stale, Some(StaleReason::NoPicture));
    let below = place.open(&page, view.scrolled(500));
    assert_eq!((below.tier, below.stale), (Tier::Document, Some(StaleReason::NoPicture)));
    assert_eq!(place.open(&page, view).tier, Tier::Pixels, "they are kept still");
    // A question about places is answered from the kept layout.
    let cache = place.cache();
    let opening = OpenOptions {
        want: PageUse::Places,
        ..OpenOptions::new(view, &limits(), Some(&cache), Arc::new(Files))
    };
    let asked = open_with(&address(&page), &opening).unwrap();
    let found = asked.places.unwrap().find("Top", FindOptions::default());
    assert_eq!((asked.tier, found.len()), (Tier::Layout, 1));
}

/// Pixels that do not compress to half their size are not stored.
///
/// Guarantee: pages/kept-pixels
#[test]
fn incompressible_pixels_are_not_kept() {
    let place = Place::new();
    let mut noise = "<!doctype html><body style='margin: 0'>".to_owned();
    for number in 0..400u32 {
        let color = xxhash_rust::xxh3::xxh3_64(&number.to_le_bytes()) & 0xff_ffff;
        let (x, y) = (number % 20, number / 20);
        let _ = write!(
            noise,
            "<div style='position: absolute; left: {x}px; top: {y}px; width: 1px; height: 1px; background: #{color:06x}'></div>"
        );
    }
    let page = place.write("a.html", noise);
    let view = view(20, 20);
    place.open(&page, view);
    let row = place.cache().views().unwrap().remove(0);
    assert!(row.pixels_bytes == 0 && row.picture_bytes > 0, "{row:?}");
    assert_eq!(place.open(&page, view).tier, Tier::List);
}

/// Pixels with any damaged byte are not shown, and a note says so.
///
/// Guarantee: pages/kept-pixels
#[test]
fn rotted_pixels_are_not_shown() {
    let place = Place::new();
    let page = page(&place);
    let view = view(300, 200);
    place.open(&page, view);
    let made = anew(&page, view);
    let (_, whole) = entry(&place);
    let (at, bytes) = pixels_of(&whole);
    assert!(bytes > 500 && at + bytes < whole.len(), "{bytes}");
    let places =
        (at..at + bytes).step_by(bytes / 40 + 1).chain(at..at + 20).chain([at + bytes - 1]);
    for (number, at) in places.enumerate() {
        let (name, mut rotten) = entry(&place);
        rotten[at] ^= 1 << (number % 8);
        replace(&place, &name, &rotten);
        let opened = place.open(&page, view);
        assert!(opened.pixels == made, "byte {at}");
        let is_told = opened.notes.iter().any(|note| note.contains("damaged"));
        assert!(
            matches!(opened.stale, Some(StaleReason::Damaged(_))) && is_told,
            "byte {at}: {:?}",
            opened.stale
        );
        assert_eq!(place.open(&page, view).tier, Tier::Pixels, "it is kept again");
    }
}

/// Too few, too many or truncated pixels are damage, even if their checksums are right.
///
/// Guarantee: pages/kept-pixels
#[test]
fn pixels_of_a_wrong_count_are_damage() {
    let place = Place::new();
    let page = page(&place);
    let view = view(300, 200);
    place.open(&page, view);
    let made = anew(&page, view);
    let (name, whole) = entry(&place);
    let (at, bytes) = pixels_of(&whole);
    let word =
        |number: usize| u32::from_le_bytes(whole[at + number * 4..][..4].try_into().unwrap());
    let [runs, alone, runs_bytes, alone_bytes] = [2, 3, 4, 5].map(word);
    let head_of = |runs: u32, alone: u32, runs_bytes: u32, alone_bytes: u32| {
        [0, 0, runs, alone, runs_bytes, alone_bytes]
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect::<Vec<u8>>()
    };
    let head = |runs, alone, runs_bytes| head_of(runs, alone, runs_bytes, alone_bytes);
    // One run of `alike` pixels, which LZ4 has as plain bytes: a token, and the twelve bytes.
    let one_run = |alike: u32| {
        let run: Vec<u8> =
            [0, alike, 0xff00_0000].iter().flat_map(|word| word.to_le_bytes()).collect();
        [head_of(1, 0, 13, 1), vec![12 << 4], run, vec![0]].concat()
    };
    let bomb = |runs: u32, alone: u32| {
        let mut bomb = vec![0x1f, 0, 1, 0];
        bomb.extend(vec![255; bytes - 200]);
        [head_of(runs, alone, bomb.len() as u32, 0), bomb].concat()
    };
    let planted = [
        ("none", head_of(0, 0, 0, 0), true),
        ("pixels that end outside", head_of(runs, alone, runs_bytes, u32::MAX), true),
        ("too few", one_run(300 * 200 - 1), true),
        ("too many", one_run(300 * 200 + 1), true),
        ("all of one", one_run(300 * 200), false),
        ("one run fewer", head(runs - 1, alone, runs_bytes), true),
        ("one pixel fewer", head(runs, alone - 1, runs_bytes), true),
        ("one pixel more", head(runs, alone + 1, runs_bytes), true),
        ("a part that ends elsewhere", head(runs, alone, runs_bytes - 1), true),
        ("a part that ends outside", head(runs, alone, u32::MAX), true),
        ("runs without end", head(u32::MAX, alone, runs_bytes), true),
        ("pixels without end", head(runs, u32::MAX, runs_bytes), true),
        ("a bomb of runs", bomb(1, 0), true),
        ("a larger bomb", bomb(300 * 200 / 16, 300 * 200), true),
    ];
    for (what, part, is_damage) in planted {
        let mut entry = whole.clone();
        plant(&mut entry, BYTES_AT, &(part.len() as u64).to_le_bytes());
        plant(&mut entry, at, &part);
        replace(&place, &name, &entry);
        let opened = place.open(&page, view);
        if is_damage {
            assert_eq!(
                opened.stale,
                Some(StaleReason::Damaged(EntryDamage::Value { what: "pixels" })),
                "{what}"
            );
            assert!(opened.pixels == made, "{what}");
        } else {
            // Sums do not tell who wrote: this one is believed.
            assert!(
                opened.tier == Tier::Pixels && opened.pixels != made,
                "{what}: {:?}",
                opened.stale
            );
        }
    }
}

/// A page that was written as a PNG is written again from the file that was kept, byte for byte,
/// and shown from its pixels; a file that is none, or has something else in it, is not given away,
/// even if its checksums are right.
///
/// Guarantee: pages/kept-pixels
#[test]
fn kept_file_is_the_one_that_was_written() {
    let place = Place::new();
    let page = page(&place);
    let view = view(300, 200);
    let cache = place.cache();
    let file = |repaint: bool| {
        let limits = limits();
        let opening = OpenOptions {
            want: PageUse::File,
            repaint,
            ..OpenOptions::new(view, &limits, Some(&cache), Arc::new(Files))
        };
        let mut opened = open_with(&address(&page), &opening).unwrap();
        let png = opened.png().unwrap();
        if let Some(to_keep) = opened.to_keep.take() {
            to_keep.keep(&cache).unwrap();
        }
        (opened, png)
    };
    let limits = limits();
    let opening = OpenOptions {
        want: PageUse::File,
        ..OpenOptions::new(view, &limits, Some(&cache), Arc::new(Files))
    };
    let kept_file = || {
        let mut kept = open_kept_file(&address(&page), &opening)?;
        Some(kept.png().unwrap())
    };
    assert_eq!(kept_file(), None, "nothing is kept yet");
    let (first, made) = file(false);
    assert!(kept_file().is_some_and(|kept| kept == made));
    assert_eq!((first.tier, &*made), (Tier::Nothing, &anew(&page, view).to_png().unwrap()));
    let (again, kept) = file(false);
    assert_eq!((again.tier, again.pixels.bytes.len()), (Tier::Pixels, 0), "nothing was unpacked");
    assert!(kept == made);
    assert!(place.open(&page, view).pixels == first.pixels);
    let (painted, kept) = file(true);
    assert!(painted.tier == Tier::List && kept == made);
    // Another size in its header, and a chunk of another kind.
    let (name, whole) = entry(&place);
    let (at, bytes) = pixels_of(&whole);
    let start = at + bytes - made.len();
    assert!(whole[start..at + bytes] == **made);
    for (at, byte) in [(start + 19, 7), (start + 8 + 25 + 4, b't'), (start, 0)] {
        let mut entry = whole.clone();
        plant(&mut entry, at, &[byte]);
        replace(&place, &name, &entry);
        assert_eq!(kept_file(), None, "{at}");
        let (opened, png) = file(false);
        assert!(matches!(opened.stale, Some(StaleReason::Damaged(_))), "{at}: {:?}", opened.stale);
        assert!(png == made, "{at}");
    }
}

/// A picture that is evicted for room takes its pixels along.
///
/// Guarantee: pages/kept-pixels
#[test]
fn evicted_picture_takes_its_pixels() {
    let place = Place::new();
    let view = view(300, 200);
    // One has a list, and of the other there is none.
    for (number, height) in [(1, 500), (2, 5_000_000)] {
        let text = format!(
            "<!doctype html><h1>{number}</h1>{}<div style='height: {height}px'>",
            "<p>text".repeat(40)
        );
        let (page, other) =
            (place.write("a.html", &text), place.write("b.html", text.replace("<h1>", "<h1>1")));
        place.open(&page, view);
        let stats = place.cache().stats().unwrap();
        let row = place.cache().views().unwrap().remove(0);
        assert!(row.pixels_bytes > 500 && row.picture_bytes >= row.pixels_bytes, "{row:?}");
        assert_eq!(
            (stats.pixels_bytes, stats.picture_bytes),
            (row.pixels_bytes, row.picture_bytes)
        );
        let cache =
            place.cache_of((stats.view_bytes + stats.document_bytes) * 2 - row.pixels_bytes / 2);
        let mut opened = open(&address(&other), view, &limits(), Some(&cache)).unwrap();
        let kept = opened.to_keep.take().unwrap().keep(&cache).unwrap();
        assert_eq!((kept.evicted, kept.pictures_evicted), (0, 1));
        let rows = cache.views().unwrap();
        let row = rows.iter().find(|row| row.address.ends_with("a.html")).unwrap();
        assert!((row.pixels_bytes, row.picture_bytes) == (0, 0) && row.damage.is_none(), "{row:?}");
        assert_eq!(place.open(&page, view).stale, Some(StaleReason::PictureEvicted));
        assert_eq!(place.open(&page, view).tier, Tier::Pixels, "they are kept again");
        place.cache().remove(&rows.into_iter().map(|row| row.name).collect::<Vec<_>>()).unwrap();
    }
}

/// An entry in the format of an older build is made again and not reported as damaged.
///
/// Guarantee: pages/damage
#[test]
fn entry_of_an_older_build_is_remade_not_damaged() {
    let place = Place::new();
    let page = page(&place);
    let view = view(300, 200);
    place.open(&page, view);
    for version in [2, 3] {
        let (name, mut old) = entry(&place);
        old[8] = version;
        replace(&place, &name, &old);
        assert_eq!(place.cache().check().unwrap(), []);
        let listed = place.program().arg("ls").output().unwrap();
        let said = String::from_utf8_lossy(&listed.stdout).into_owned();
        assert!(said.contains("of an older build") && !said.contains("damage"), "{said}");
        let opened = is_made_anew(&place, &page, view);
        assert_eq!(opened.stale, Some(StaleReason::Engine));
    }
    // One that no build wrote is damage.
    let (name, mut other) = entry(&place);
    other[8] = 77;
    replace(&place, &name, &other);
    assert_eq!(place.cache().check().unwrap().len(), 1);
    let opened = place.open(&page, view);
    assert_eq!(opened.stale, Some(StaleReason::Damaged(EntryDamage::Version { version: 77 })));
}

/// The program reports pixels from the cache and repaints on request.
///
/// Guarantee: pages/kept-pixels
#[test]
fn program_repaints_on_request() {
    let place = Place::new();
    let page = page(&place);
    let run = |options: &[&str], picture: &str| {
        let png = place.folder.path().join(picture);
        let output = place
            .program()
            .arg("open")
            .arg(&page)
            .args(["--viewport", "300x200", "--timeout", "300", "--json", "--png"])
            .arg(&png)
            .args(options)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        (report["tier"].as_str().unwrap().to_owned(), std::fs::read(png).unwrap())
    };
    let (cold, made) = run(&[], "cold.png");
    let (warm, kept) = run(&[], "warm.png");
    let (again, painted) = run(&["--repaint"], "again.png");
    assert_eq!([&*cold, &warm, &again], ["cold", "pixels", "display list"]);
    assert!(made == kept && made == painted);
    let rows = place.program().args(["ls", "--json"]).output().unwrap();
    let rows: serde_json::Value = serde_json::from_slice(&rows.stdout).unwrap();
    let of = |field: &str| rows[0][field].as_u64().unwrap();
    assert!(of("pixels_bytes") > 500 && of("picture_bytes") > of("pixels_bytes"), "{rows}");
    let stats = place.program().args(["stats", "--json"]).output().unwrap();
    let stats: serde_json::Value = serde_json::from_slice(&stats.stdout).unwrap();
    assert_eq!(stats["pixels_bytes"], rows[0]["pixels_bytes"]);
}
