//! Images at rest: a small region that no process has gives back what it never used.
//!
//! A new region has its first 4 MiB allocated, so that no store to them can fail. Most of it is
//! never touched, and ten thousand small regions that are closed would fill the machine with
//! nothing. So the last step of closing one gives back the pages that were never written, and
//! opening it allocates them again, before anything is mapped.
//!
//! Invariants:
//! - Before the first hole there is a mark in the image, in the word of [`Allotment`]; it goes when
//!   a writer has filled the last one. A kill anywhere leaves an image that is marked, or has no
//!   holes.
//! - Only images that the last writer closed are marked, and only in memory that a reset takes.
//! - Nothing that was written is given back: contents are the same.

#![forbid(unsafe_code)]

use std::io;
use std::ops::Range;

use holdfast_sys::file::next_data;

use crate::media::allotment::Allotment;
use crate::media::format::{
    ALLOTMENT_BYTES, ALLOTMENT_OFFSET, DATA_OFFSET, GROWTH_STEP_BYTES, SLOTS_BYTES,
};
use crate::media::image::Image;
use crate::media::storage::Storage;

/// Regions with more backed keep all of it: to allocate it again would take too long.
pub(crate) const REST_BYTES_MAX: u64 = GROWTH_STEP_BYTES;
/// Less is not worth the calls.
const GIVEN_BACK_BYTES_MIN: u64 = 64 << 10;

/// Whether an image is small enough, and enough of it was never written, that closing it gives that
/// back.
pub(crate) fn has_unused(image: &Image, storage: &dyn Storage) -> io::Result<bool> {
    Ok(!to_give_back(image, storage)?.is_empty())
}

/// What closing an image gives back: nothing where that is not worth it.
fn to_give_back(image: &Image, storage: &dyn Storage) -> io::Result<Vec<Range<u64>>> {
    if !storage.can_give_back() || image.header.backed_bytes > REST_BYTES_MAX {
        return Ok(Vec::new());
    }
    let unused = unused(image)?;
    let bytes: u64 = unused.iter().map(|range| range.end - range.start).sum();
    Ok(if bytes >= GIVEN_BACK_BYTES_MIN { unused } else { Vec::new() })
}

/// Gives back the pages of the data area that were never written, if there are enough of them. The
/// image is closed, and its lock held.
///
/// # Errors
/// What the kernel reports; the image is whole, and some pages may have been given back.
pub(crate) fn lay_to_rest(image: &mut Image, storage: &dyn Storage) -> io::Result<()> {
    let unused = to_give_back(image, storage)?;
    if unused.is_empty() {
        return Ok(());
    }
    if !Allotment::is_in(&image.file)? {
        let page = ALLOTMENT_OFFSET..ALLOTMENT_OFFSET + ALLOTMENT_BYTES;
        storage.allocate(&image.file, page)?;
    }
    Allotment::map(&image.file)?.set_at_rest(true);
    image.is_at_rest = true;
    unused.into_iter().try_for_each(|range| storage.give_back(&image.file, range))
}

/// Allocates what was given back, and nothing else: a reader changes no byte of a file, so the mark
/// stays. So does the time of the last change, which tells eviction how long the region was not
/// used.
///
/// # Errors
/// `StorageFull` when there is no room.
pub(crate) fn allocate_again(image: &Image, storage: &dyn Storage) -> io::Result<()> {
    let modified = image.file.metadata()?.modified()?;
    storage.allocate(&image.file, DATA_OFFSET..image.header.file_bytes())?;
    image.file.set_modified(modified)
}

/// The same for a writer.
///
/// # Errors
/// As [`allocate_again`]; the image is at rest still.
pub(crate) fn wake(image: &mut Image, storage: &dyn Storage) -> io::Result<()> {
    storage.allocate(&image.file, DATA_OFFSET..image.header.file_bytes())?;
    Allotment::map(&image.file)?.set_at_rest(false);
    image.is_at_rest = false;
    Ok(())
}

/// The word of an image, from its first bytes.
pub(crate) fn is_marked(head: &[u8]) -> bool {
    let word = head.get(SLOTS_BYTES..).and_then(|rest| rest.first_chunk::<8>());
    word.is_some_and(|word| crate::media::allotment::is_at_rest(*word))
}

/// The parts of the data area that hold nothing: for a file in memory, pages that were allocated
/// and never touched, too.
fn unused(image: &Image) -> io::Result<Vec<Range<u64>>> {
    let end = image.header.file_bytes();
    let (mut unused, mut position) = (Vec::new(), DATA_OFFSET);
    while position < end {
        let data = next_data(&image.file, position)?.unwrap_or(end..end);
        let start = data.start.clamp(position, end);
        if start > position {
            unused.push(position..start);
        }
        position = data.end.clamp(start, end);
    }
    Ok(unused)
}
