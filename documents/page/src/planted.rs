//! Tests alone: entries with all their sums right, as an attacker that can write the cache makes
//! them. What they cost is bounded by their bytes.

use std::path::PathBuf;

use anyrender::PaintScene;
use anyrender::recording::Scene;
use kurbo::{Affine, Rect};
use peniko::Fill;
use peniko::color::palette::css::{BLUE, RED};
use zerocopy::IntoBytes;

use crate::about::{ImageRecord, PageDescription};
use crate::entry::{EntryPart, Header, PARTS, assemble};
use crate::error::EntryDamage;
use crate::fonts::FontRecord;
use crate::list::{self, List, PaintSource, Strip};
use crate::picture::{CachedView, StaleReason};
use crate::view::View;

fn view() -> View {
    View::new(20, 10, 1000).unwrap()
}

fn list() -> List {
    let mut scene = Scene::new();
    for color in [RED, BLUE, RED] {
        scene.fill(Fill::NonZero, Affine::IDENTITY, color, None, &Rect::new(1.0, 1.0, 9.0, 9.0));
    }
    list::capture(&[Strip { first: 0, end: 10, scene, scrolls: Vec::new() }]).unwrap()
}

fn entry(list: &List, about: &PageDescription) -> Vec<u8> {
    let mut header = Header::new();
    header.viewport = [20.into(), 10.into()];
    header.content = header.viewport;
    header.height = 10.into();
    let about = about.write();
    let mut parts: [&[u8]; PARTS] = [&[]; PARTS];
    for (part, bytes) in [
        (EntryPart::PageDescription, &*about),
        (EntryPart::Commands, list.commands.as_bytes()),
        (EntryPart::Starts, list.starts.as_bytes()),
        (EntryPart::Items, list.items.as_bytes()),
        (EntryPart::Strips, list.strips.as_bytes()),
        (EntryPart::Payload, &list.payload),
        (EntryPart::Images, &[9; 64]),
        (EntryPart::Fonts, &[9; 64]),
    ] {
        parts[part as usize] = bytes;
    }
    assemble(header, parts)
}

/// Guarantee: pages/planted
#[test]
fn commands_that_have_the_same_bytes_are_damage() {
    let mut planted = list();
    let right = entry(&planted, &PageDescription::default());
    assert!(
        crate::Pixels::to_png(&CachedView::open(&right).unwrap().paint(view()).unwrap()).is_ok()
    );
    planted.commands[2] = planted.commands[1];
    let bytes = entry(&planted, &PageDescription::default());
    let painted = CachedView::open(&bytes).unwrap().paint(view());
    assert_eq!(painted, Err(StaleReason::Damaged(EntryDamage::Twice { what: "commands" })));
}

/// Images or fonts that claim the same bytes are damage.
///
/// Guarantee: pages/planted
#[test]
fn shared_bytes_of_images_or_fonts_are_damage() {
    let image =
        |at, width| ImageRecord { width, height: 2, is_bgra: false, is_premultiplied: false, at };
    let opened = |about: &PageDescription| CachedView::open(&entry(&list(), about)).map(drop);
    let mut about = PageDescription {
        images: vec![image(0, 2), image(16, 4), image(48, 2)],
        ..PageDescription::default()
    };
    about.fonts = vec![FontRecord::of_entry(0, &[9; 32]), FontRecord::of_entry(32, &[9; 32])];
    assert_eq!(opened(&about), Ok(()));
    about.images[2].at = 16;
    assert_eq!(opened(&about), Err(EntryDamage::Twice { what: "images" }));
    about.images.pop();
    about.fonts[1] = FontRecord::of_entry(31, &[9; 32]);
    assert_eq!(opened(&about), Err(EntryDamage::Twice { what: "fonts" }));
}

/// An image whose size in pixels overflows is reported as lying outside the entry.
///
/// Guarantee: pages/planted
#[test]
fn image_with_overflowing_size_is_outside() {
    let image = ImageRecord {
        width: 1 << 31,
        height: 1 << 31,
        is_bgra: false,
        is_premultiplied: false,
        at: 0,
    };
    let bytes =
        entry(&list(), &PageDescription { images: vec![image], ..PageDescription::default() });
    let supplied = CachedView::open(&bytes).unwrap().image(0).map(drop);
    assert_eq!(supplied, Err(StaleReason::Damaged(EntryDamage::Outside { what: "image" })));
}

/// A font file is read once even if several records name it.
///
/// Guarantee: pages/planted
#[test]
fn font_file_is_read_once() {
    let folder = tempfile::tempdir().unwrap();
    let paths: Vec<PathBuf> =
        ["a.ttf", "b.ttf"].iter().map(|name| folder.path().join(name)).collect();
    paths.iter().for_each(|path| std::fs::write(path, "font").unwrap());
    let fonts = vec![FontRecord::of_file(paths[0].clone(), b"font"); 3];
    let bytes = entry(&list(), &PageDescription { fonts, ..PageDescription::default() });
    let kept = CachedView::open(&bytes).unwrap();
    let first = kept.font(0, 0).unwrap();
    assert!((1..3).all(|number| kept.font(number, 0).unwrap().data.id() == first.data.id()));
}
