//! Eviction from a full cache: first pictures, then whole views, and documents with their last
//! view.
//!
//! A view without its picture is the tier below: its layout says what is where, and its document
//! spares the parser. Only of the half of the views that were used longer ago do the pictures go
//! first; where those have none any more, the oldest view goes. Otherwise there would soon be many
//! layouts, and one picture.

use std::collections::HashSet;

use holdfast_heap::HeapError;

use crate::about::PageDescription;
use crate::answers;
use crate::cache::{DOM, Heap, VIEW, dom_prefix, is_counted, names};
use crate::entry::{
    Entry, EntryPart, Header, NO_PICTURE, PARTS, PICTURE_EVICTED, SCROLL_BOUND, assemble,
};
use crate::error::{CacheError, EntryDamage};
use crate::fonts::FontPlace;

/// What went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EvictionCounts {
    pub(crate) views: u64,
    pub(crate) pictures: u64,
}

/// What comes, and what goes not for it.
pub(crate) struct IncomingView<'a> {
    /// The view's name.
    pub(crate) view: &'a str,
    /// What is replaced with it: its document, and what servers said.
    pub(crate) replaced: HashSet<String>,
    /// That, and what it asks for and is there already.
    pub(crate) wanted: HashSet<String>,
    /// Views that were used since then stay, in seconds since 1970.
    pub(crate) spared_since_s: u64,
}

/// Lets pictures and views go until no more than `bytes_max` are left, besides what is replaced.
///
/// # Errors
/// [`CacheError::Full`], when only what was used since is left.
pub(crate) fn make_room(
    heap: &mut Heap,
    coming: &IncomingView<'_>,
    bytes_max: u64,
) -> Result<EvictionCounts, CacheError> {
    let mut evicted = EvictionCounts::default();
    loop {
        let roots = heap.heap().roots();
        let counted =
            roots.filter(|(name, _)| *name != coming.view && !coming.replaced.contains(*name));
        let used: u64 =
            counted.filter(|(name, _)| is_counted(name)).map(|(_, root)| root.bytes).sum();
        if used <= bytes_max {
            return Ok(evicted);
        }
        if drop_lonely(heap, &coming.wanted)? == 0 && !evict_oldest(heap, coming, &mut evicted)? {
            let is_spared = names(heap, VIEW).iter().any(|name| name != coming.view);
            return if is_spared { Err(CacheError::Full) } else { Ok(evicted) };
        }
    }
}

/// Lets one picture or one view go, and what is damaged first of all; `false`, if there is none.
pub(crate) fn evict_oldest(
    heap: &mut Heap,
    coming: &IncomingView<'_>,
    evicted: &mut EvictionCounts,
) -> Result<bool, CacheError> {
    let mut views: Vec<(u64, bool, String)> = names(heap, VIEW)
        .into_iter()
        .filter(|name| name != coming.view)
        .map(|name| {
            let header = heap.bytes(&name).ok_or(EntryDamage::NoHeader).and_then(Header::read);
            header.map_or((0, false, name.clone()), |header| {
                (header.used_s.get(), header.has_picture(), name)
            })
        })
        .filter(|(used_s, ..)| *used_s < coming.spared_since_s)
        .collect();
    views.sort();
    let older = &views[..views.len().div_ceil(2)];
    for (_, _, name) in older.iter().filter(|(_, has_picture, _)| *has_picture) {
        if strip(heap, name)? {
            evicted.pictures += 1;
            return Ok(true);
        }
    }
    let Some((_, _, oldest)) = views.first() else { return Ok(false) };
    heap.transaction(|tx| tx.remove(oldest))?;
    evicted.views += 1;
    drop_lonely(heap, &coming.wanted)?;
    Ok(true)
}

/// Takes the picture out of a view, in one transaction; `false`, if that cannot be done.
fn strip(heap: &mut Heap, name: &str) -> Result<bool, CacheError> {
    let Some(bytes) = heap.bytes(name) else { return Ok(false) };
    // What is damaged goes with its turn.
    let Ok(without) = without_picture(bytes) else { return Ok(false) };
    let stored = heap.transaction(|tx| -> Result<(), HeapError> {
        tx.remove(name)?;
        tx.create(name, without.len() as u64, None, |to| to.copy_from_slice(&without)).map(|_| ())
    });
    match stored {
        Ok(()) => Ok(true),
        // No room for both at once.
        Err(HeapError::OutOfMemory { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The bytes of an entry without what is painted: what it was made from, and what is where. A byte
/// that is not what was stored is an error.
fn without_picture(bytes: &[u8]) -> Result<Vec<u8>, EntryDamage> {
    let entry = Entry::open(bytes)?;
    let mut about = PageDescription::read(entry.part(EntryPart::PageDescription)?)?;
    about.check()?;
    // Files are looked at still; what the page brought went with the picture.
    about.fonts.retain(|font| matches!(font.place, FontPlace::File { .. }));
    about.images.clear();
    let mut header = entry.header;
    header.flags = (header.flags.get() & !(SCROLL_BOUND | NO_PICTURE) | PICTURE_EVICTED).into();
    header.height = 0.into();
    let about = about.write();
    let mut parts: [&[u8]; PARTS] = [&[]; PARTS];
    parts[EntryPart::PageDescription as usize] = &about;
    for part in [EntryPart::Links, EntryPart::Boxes, EntryPart::Text] {
        parts[part as usize] = entry.part(part)?;
    }
    Ok(assemble(header, parts))
}

/// Removes documents of which there is no view, and what servers said that no view asks for, but
/// for those that are named; returns how many.
pub(crate) fn drop_lonely(heap: &mut Heap, but: &HashSet<String>) -> Result<u64, CacheError> {
    let views = names(heap, VIEW);
    let wanted: HashSet<String> = views
        .iter()
        .filter_map(|name| Header::read(heap.bytes(name)?).ok())
        .map(|header| dom_prefix(&header.source, &header.engine))
        .collect();
    let mut dropped = 0;
    for name in answers::lonely(heap, &views, but) {
        heap.transaction(|tx| tx.remove(&name))?;
        dropped += 1;
    }
    for name in names(heap, DOM) {
        let is_wanted = name.rfind(':').is_some_and(|end| wanted.contains(&name[..=end]));
        if !is_wanted && !but.contains(&name) {
            heap.transaction(|tx| tx.remove(&name))?;
            dropped += 1;
        }
    }
    Ok(dropped)
}
