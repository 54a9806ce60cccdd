//! A kept page: made from the engine's record, and painted again without the engine.
//!
//! Invariant: what cannot be painted as it was (a font is gone, a byte is wrong) is an error before
//! there are any pixels; half a picture is none.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kurbo::Affine;
use peniko::{Blob, FontData, ImageData};
use zerocopy::IntoBytes;
use zerocopy::little_endian::U32;

use crate::about::{ImageRecord, PageDescription};
use crate::address::shown_text;
use crate::ahead::Prefetch;
use crate::engine::LaidOutPage;
use crate::entry::{
    ALL_FONTS, Entry, EntryPart, Header, NO_PICTURE, PICTURE_EVICTED, SCROLL_BOUND, assemble,
    engine_build,
};
use crate::error::EntryDamage;
use crate::fonts::{FontFolders, FontPlace, FontRecord, StampedFolders};
use crate::list::stays::ScrollBehavior;
use crate::list::{self, CommandRecord, List, PaintSource, PaintState, Tables};
use crate::pixels::{Pixels, rasterize};
use crate::places::wire::{
    read_boxes, read_links, read_text, write_boxes, write_links, write_text,
};
use crate::places::{NodeBox, PageLayout};
use crate::record::PaintRecord;
use crate::resource::{Reach, Resource, ResourceSum};
use crate::snapshot::Snapshot;
use crate::view::View;

/// Why a kept page is not shown as it was kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StaleReason {
    /// The page changed.
    #[error("the page changed")]
    Source,
    /// A style sheet or an image changed.
    #[error("{} changed, came or went", shown_text(.0))]
    Resource(String),
    /// A font is gone, or another one.
    #[error("the font {} is gone or changed", .0.display())]
    Font(PathBuf),
    /// It asks for something of the network, which it may now, and might not then, or the other way
    /// round.
    #[error("whether it may ask the network has changed")]
    Network,
    /// Fonts came or went.
    #[error("the fonts of the system changed")]
    Fonts,
    /// Another build drew it.
    #[error("it was kept by another build of the engine")]
    Engine,
    /// The page is too long, or paints what a display list cannot have.
    #[error("only its document is kept, since its picture cannot be")]
    NoPicture,
    /// There was no room for its picture any more.
    #[error("its picture had to go to make room, and its layout is kept")]
    PictureEvicted,
    /// The list ends above: the engine cannot paint so much of the page at once.
    #[error("only the first {lines} lines of it are kept as they look")]
    Beyond {
        /// How many those are.
        lines: u32,
    },
    /// It was kept unscrolled, and parts of it do not scroll.
    #[error("parts of it stay in their place when it is scrolled")]
    ScrollBound,
    /// It is not what was stored.
    #[error("its entry in the cache is damaged: {0}")]
    Damaged(EntryDamage),
    /// The rasterizer gave up on it, which it did not when it was kept.
    #[error("its entry in the cache cannot be drawn")]
    Undrawable,
}

impl From<EntryDamage> for StaleReason {
    fn from(damage: EntryDamage) -> StaleReason {
        if damage.is_of_older_build() { StaleReason::Engine } else { StaleReason::Damaged(damage) }
    }
}

/// What served a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// Its pixels were there.
    Pixels,
    /// Its display list was painted.
    List,
    /// Its layout was there, which was asked for what is where; nothing was laid out or painted.
    Layout,
    /// Its document was there; it was laid out.
    Document,
    /// It was parsed and laid out.
    Nothing,
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Tier::Pixels => "pixels",
            Tier::List => "display list",
            Tier::Layout => "layout",
            Tier::Document => "document",
            Tier::Nothing => "cold",
        })
    }
}

/// What an entry is made from, besides what the engine made.
pub(crate) struct Origin<'a> {
    pub(crate) address: &'a str,
    /// Where it was found at last.
    pub(crate) found: &'a str,
    /// What addresses in it are relative to.
    pub(crate) base: &'a str,
    pub(crate) reach: Reach,
    pub(crate) source: u128,
    pub(crate) view: View,
    /// The state of the fonts before the page was laid out, and with their files.
    pub(crate) fonts: [u64; 2],
    pub(crate) folders: &'a FontFolders,
    pub(crate) now_s: u64,
}

/// The bytes of an entry. One without a picture says what the page was made from, and keeps its
/// document alive.
pub(crate) fn to_entry(
    made: &LaidOutPage,
    taken: &PaintRecord,
    places: &PageLayout,
    snapshot: Option<&Snapshot>,
    origin: &Origin<'_>,
) -> Vec<u8> {
    let height = taken.strips.last().map_or(0, |last| last.end);
    let is_enough = height > 0 && height >= origin.view.height();
    let list = is_enough.then(|| list::capture(&taken.strips).ok()).flatten();
    let is_right = |list: &List| {
        let mut images = list.shared.images.iter();
        images.all(|image| {
            image.data.data().len() as u64 == u64::from(image.width) * u64::from(image.height) * 4
        })
    };
    let list = list.filter(is_right);
    let flags = match (&list, taken.scroll_bound) {
        (None, _) => NO_PICTURE,
        (Some(_), true) => SCROLL_BOUND,
        (Some(_), false) => 0,
    };
    let is_whole = list.is_some() && height >= made.content.1;
    let names_all_fonts = origin.view == View::DOCUMENT || is_whole && !made.has_drawn_text;
    let flags = if names_all_fonts { flags } else { flags | ALL_FONTS };
    let list = list.unwrap_or_default();
    let mut kept_fonts = Vec::new();
    let mut fonts = Vec::new();
    for font in &list.shared.fonts {
        fonts.push(match origin.folders.find(font.data()) {
            Some(path) => FontRecord::of_file(path, font.data()),
            None => {
                let at = kept_fonts.len() as u64;
                kept_fonts.extend_from_slice(font.data());
                FontRecord::of_entry(at, font.data())
            }
        });
    }
    let mut image_pixels = Vec::new();
    let mut images = Vec::new();
    for image in &list.shared.images {
        images.push(ImageRecord::new(image, image_pixels.len() as u64));
        image_pixels.extend_from_slice(image.data.data());
    }
    let about = PageDescription {
        address: origin.address.to_owned(),
        title: made.title.clone(),
        found: origin.found.to_owned(),
        base: origin.base.to_owned(),
        reach: made.wants_network.then_some(origin.reach),
        resources: made.resources.clone(),
        left_out: made.left_out.clone(),
        fonts,
        images,
    };
    let mut header = Header::new();
    header.flags = U32::new(flags);
    header.source = origin.source.to_le_bytes();
    header.engine = engine_build();
    header.fonts = origin.fonts[usize::from(!names_all_fonts)].into();
    header.viewport = [origin.view.width().into(), origin.view.height().into()];
    header.scale_permille = origin.view.scale_permille().into();
    header.height = height.into();
    header.content = [made.content.0.into(), made.content.1.into()];
    header.used_s = origin.now_s.into();
    assemble(
        header,
        [
            &about.write(),
            list.commands.as_bytes(),
            list.starts.as_bytes(),
            list.items.as_bytes(),
            list.tall.as_bytes(),
            list.strips.as_bytes(),
            &list.payload,
            &image_pixels,
            &kept_fonts,
            &write_links(&places.links),
            &write_boxes(&places.boxes),
            &write_text(&places.text),
            &snapshot.map(Snapshot::part).unwrap_or_default(),
        ],
    )
}

/// A page of the cache, where it lies.
pub(crate) struct CachedView<'heap> {
    pub(crate) entry: Entry<'heap>,
    pub(crate) about: PageDescription,
    loaded: LoadedParts,
    pub(crate) ahead: Prefetch,
}

/// The fonts and images of an entry that were needed already.
#[derive(Default)]
pub(crate) struct LoadedParts {
    fonts: RefCell<Vec<Option<Blob<u8>>>>,
    /// Files that were read, by their sums.
    files: RefCell<HashMap<u128, Blob<u8>>>,
    images: RefCell<Vec<Option<ImageData>>>,
}

impl LoadedParts {
    /// A font's file, which is read once however many records name it.
    fn file(&self, record: &FontRecord, path: &Path) -> Result<Blob<u8>, StaleReason> {
        let mut files = self.files.borrow_mut();
        if let Some(blob) = files.get(&record.hash) {
            return Ok(blob.clone());
        }
        let bytes = record.read(path).ok_or_else(|| StaleReason::Font(path.to_owned()))?;
        let blob = Blob::new(Arc::new(bytes));
        files.insert(record.hash, blob.clone());
        Ok(blob)
    }
}

impl<'heap> CachedView<'heap> {
    pub(crate) fn open(bytes: &'heap [u8]) -> Result<CachedView<'heap>, EntryDamage> {
        CachedView::open_again(bytes, LoadedParts::default())
    }

    /// With what was needed of the same entry before.
    pub(crate) fn open_again(
        bytes: &'heap [u8],
        loaded: LoadedParts,
    ) -> Result<CachedView<'heap>, EntryDamage> {
        let entry = Entry::open(bytes)?;
        let about = PageDescription::read(entry.part(EntryPart::PageDescription)?)?;
        about.check()?;
        loaded.fonts.borrow_mut().resize(about.fonts.len(), None);
        loaded.images.borrow_mut().resize(about.images.len(), None);
        Ok(CachedView { entry, about, loaded, ahead: Prefetch::default() })
    }

    pub(crate) fn into_loaded(self) -> LoadedParts {
        self.loaded
    }

    /// Whether the page would be laid out as it was.
    pub(crate) fn check(
        &self,
        source: u128,
        folders: &StampedFolders,
        reach: Reach,
        found: &dyn Fn(&Resource) -> ResourceSum,
    ) -> Result<(), StaleReason> {
        let header = &self.entry.header;
        if header.engine != engine_build() {
            return Err(StaleReason::Engine);
        }
        if header.source != source.to_le_bytes() {
            return Err(StaleReason::Source);
        }
        if self.about.reach.is_some_and(|kept| kept != reach) {
            return Err(StaleReason::Network);
        }
        let of_files = header.flags.get() & ALL_FONTS != 0;
        if header.fonts.get()
            != if of_files { folders.of_now().stamps()[1] } else { folders.stamp() }
        {
            return Err(StaleReason::Fonts);
        }
        for font in &self.about.fonts {
            if let (FontPlace::File { path, .. }, false) = (&font.place, font.is_there()) {
                return Err(StaleReason::Font(path.clone()));
            }
        }
        for resource in &self.about.resources {
            if found(resource) != resource.found {
                return Err(StaleReason::Resource(resource.url.clone()));
            }
        }
        Ok(())
    }

    /// Whether this place of it is kept as it looks. To be asked last: none of this is kept anew,
    /// and a page that changed is.
    pub(crate) fn check_view(&self, view: View) -> Result<(), StaleReason> {
        let header = &self.entry.header;
        if header.flags.get() & NO_PICTURE != 0 {
            return Err(StaleReason::NoPicture);
        }
        if header.flags.get() & PICTURE_EVICTED != 0 {
            return Err(StaleReason::PictureEvicted);
        }
        let (scroll, lines) = (view.scroll_within(header.content[1].get()), header.height.get());
        let is_scrolled = scroll != 0 || view.scroll_x_within(header.content[0].get()) != 0;
        if header.flags.get() & SCROLL_BOUND != 0 && is_scrolled {
            return Err(StaleReason::ScrollBound);
        }
        if scroll.saturating_add(view.height()) > lines {
            return Err(StaleReason::Beyond { lines });
        }
        Ok(())
    }

    /// What is where.
    pub(crate) fn places(&self) -> Result<PageLayout, EntryDamage> {
        Ok(PageLayout {
            links: read_links(self.entry.part(EntryPart::Links)?)?,
            boxes: self.boxes()?,
            text: read_text(self.entry.part(EntryPart::Text)?)?,
        })
    }

    /// Where elements are.
    pub(crate) fn boxes(&self) -> Result<Vec<NodeBox>, EntryDamage> {
        read_boxes(self.entry.part(EntryPart::Boxes)?)
    }

    /// Paints the viewport.
    pub(crate) fn paint(&self, view: View) -> Result<Pixels, StaleReason> {
        let scroll = view.scroll_within(self.entry.header.content[1].get());
        let tables = Tables {
            commands: self.entry.table(EntryPart::Commands)?,
            starts: self.entry.table(EntryPart::Starts)?,
            items: self.entry.table(EntryPart::Items)?,
            tall: self.entry.table(EntryPart::Tall)?,
            strips: self.entry.table(EntryPart::Strips)?,
        };
        let chosen = tables.chosen(scroll..scroll.saturating_add(view.height()));
        // As the engine computes it, so that the same bits come out.
        let scale = view.scale_factor_f64();
        let scroll_x = view.scroll_x_within(self.entry.header.content[0].get());
        let [left, up] = [scroll_x, scroll].map(|pixels| 0.0 - f64::from(pixels) / scale * scale);
        let up = Affine::translate((left, up));
        let shift = |scrolls| match scrolls {
            ScrollBehavior::Moves => up,
            ScrollBehavior::Stays => Affine::IDENTITY,
        };
        let mut painted = Ok(());
        let pixels = catch_unwind(AssertUnwindSafe(|| {
            rasterize(view, self.ahead.room(), |painter| {
                painted = self.replay(tables.commands, &chosen, &shift, painter);
            })
        }));
        painted?;
        pixels.map_err(|_| StaleReason::Undrawable)
    }

    fn replay(
        &self,
        records: &[CommandRecord],
        chosen: &[u32],
        shift: &dyn Fn(ScrollBehavior) -> Affine,
        painter: &mut impl anyrender::PaintScene,
    ) -> Result<(), StaleReason> {
        let mut open = PaintState::default();
        let mut painted = Ok(());
        for number in chosen {
            painted = self.one(records, *number, shift, &mut open, painter);
            if painted.is_err() {
                break;
            }
        }
        // The rasterizer wants every layer closed, also of a picture that is thrown away.
        for _ in 0..open.layers {
            painter.pop_layer();
        }
        painted?;
        if open.layers == 0 { Ok(()) } else { Err(EntryDamage::Value { what: "layer" }.into()) }
    }

    fn one(
        &self,
        records: &[CommandRecord],
        number: u32,
        shift: &dyn Fn(ScrollBehavior) -> Affine,
        open: &mut PaintState,
        painter: &mut impl anyrender::PaintScene,
    ) -> Result<(), StaleReason> {
        let record =
            records.get(number as usize).ok_or(EntryDamage::Outside { what: "command" })?;
        let (at, length) = (record.at.get().into(), record.length().into());
        open.commands.next(at, length, "commands")?;
        let bytes = self.entry.piece(EntryPart::Payload, at, length)?;
        list::paint(bytes, shift(record.scrolls()), open, self, painter)
    }
}

impl PaintSource for CachedView<'_> {
    type Error = StaleReason;

    fn font(&self, number: u32, face: u32) -> Result<FontData, StaleReason> {
        let mut fonts = self.loaded.fonts.borrow_mut();
        let number = number as usize;
        let outside = EntryDamage::Outside { what: "font" };
        while fonts.get(number).is_some_and(Option::is_none)
            && let Some((ready, bytes)) = self.ahead.next_font()
        {
            if let (Some(slot), Some(bytes)) = (fonts.get_mut(ready), bytes) {
                *slot = Some(Blob::new(Arc::new(bytes)));
            }
        }
        let (slot, record) =
            fonts.get_mut(number).zip(self.about.fonts.get(number)).ok_or(outside)?;
        let blob = match (&*slot, &record.place) {
            (Some(blob), _) => blob.clone(),
            (None, FontPlace::File { path, .. }) => self.loaded.file(record, path)?,
            (None, FontPlace::Entry { at }) => {
                Blob::new(Arc::new(self.entry.piece(EntryPart::Fonts, *at, record.bytes)?.to_vec()))
            }
        };
        *slot = Some(blob.clone());
        Ok(FontData::new(blob, face))
    }

    fn image(&self, number: u32) -> Result<ImageData, StaleReason> {
        let mut images = self.loaded.images.borrow_mut();
        let number = number as usize;
        let outside = EntryDamage::Outside { what: "image" };
        let (slot, record) =
            images.get_mut(number).zip(self.about.images.get(number)).ok_or(outside)?;
        if let Some(image) = slot {
            return Ok(image.clone());
        }
        let pixels = self.entry.piece(EntryPart::Images, record.at, record.bytes())?.to_vec();
        let image = record.image(Blob::new(Arc::new(pixels)));
        Ok(slot.insert(image).clone())
    }
}
