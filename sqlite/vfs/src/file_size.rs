//! How long a database file is: from some size on it grows by a little more than SQLite asks for,
//! as with `SQLITE_FCNTL_CHUNK_SIZE`, and the bytes ahead are written. So most flushes that bring a
//! few new pages write over what is there: the file system changes no metadata for them, which on a
//! journalled one is most of what a small flush writes.
//!
//! How many pages a database has, its first page says; SQLite never reads those behind.
//!
//! Invariant: what is ahead is a part of the database's size, in the image, the log and the file.

#![forbid(unsafe_code)]

use crate::base::{Base, read_header};
use crate::error::Result;
use crate::mark;

/// A file grows by this part of its size, in whole pages, and at most by [`AHEAD_BYTES_MAX`].
const AHEAD_PART: u64 = 8;
pub(crate) const AHEAD_BYTES_MAX: u64 = 32 << 10;
/// A shorter one has what it needs.
const SIZE_BYTES_MIN: u64 = 128 << 10;

/// The size of a database that a page makes longer, which ends there.
pub(crate) fn grown(end: u64, page_bytes: u64) -> u64 {
    if end < SIZE_BYTES_MIN || page_bytes == 0 {
        return end;
    }
    let ahead = (end / AHEAD_PART).min(AHEAD_BYTES_MAX);
    end + ahead - ahead % page_bytes
}

/// Gives a file its size when all blocks are written. What is missing is written where it is no
/// more than what may be ahead; without room for that it is a hole, or, where there are no holes,
/// the file ends behind its pages, as the database's header counts them.
pub(crate) fn set(base: &dyn Base, size: u64, header: &[u8]) -> Result<()> {
    let there = base.size()?;
    if there == size {
        return Ok(());
    }
    if let Some(missing) = size.checked_sub(there).filter(|missing| *missing <= AHEAD_BYTES_MAX)
        && base.write(there, &vec![0; missing as usize]).is_ok()
    {
        return Ok(());
    }
    match base.truncate(size) {
        Err(_) if size > there && pages_end(header) <= base.size()? => Ok(()),
        truncated => truncated,
    }
}

/// Takes away what is ahead in a complete file without a mark, for one who has SQLite's EXCLUSIVE.
/// What fails leaves the file as it is.
pub(crate) fn trim(base: &dyn Base) {
    let Ok(header) = read_header(base) else { return };
    // The pages count if the last change of the database is one of an SQLite that counts them.
    let is_counted = header[24..28] == header[92..96] && mark::find(&header).is_none();
    let (end, there) = (pages_end(&header), base.size().unwrap_or_default());
    if is_counted && (1..=AHEAD_BYTES_MAX).contains(&there.saturating_sub(end)) {
        let _ = base.truncate(end);
    }
}

/// Where the pages end that a database's header counts; behind every file, where it counts none.
fn pages_end(header: &[u8]) -> u64 {
    let (Some([high, low]), Some(pages)) =
        (header.get(16..18), header.get(28..32).and_then(|pages| pages.try_into().ok()))
    else {
        return u64::MAX;
    };
    let page_bytes = match u16::from_be_bytes([*high, *low]) {
        1 => 65_536,
        bytes => u64::from(bytes),
    };
    match u32::from_be_bytes(pages) {
        0 => u64::MAX,
        pages => u64::from(pages) * page_bytes,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by it")]
mod tests {
    use std::os::unix::fs::MetadataExt;
    use std::sync::Arc;

    use super::*;
    use crate::base::OwnFile;
    use crate::testing::{Dying, Steps};

    #[test]
    fn a_file_grows_by_whole_pages_and_a_bounded_part() {
        assert_eq!(grown(100 << 10, 4096), 100 << 10);
        assert_eq!(grown(128 << 10, 4096), (128 + 16) << 10);
        assert_eq!(grown(200 << 10, 4096), (200 + 24) << 10);
        assert_eq!(grown(200 << 10, 16 << 10), (200 + 16) << 10);
        assert_eq!(grown(1 << 30, 4096), (1 << 30) + (32 << 10));
        assert_eq!(grown(1 << 30, 64 << 10), 1 << 30);
    }

    /// What is ahead is written where there is room, and no error where there is none.
    #[test]
    fn bytes_ahead_are_written_where_there_is_room() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = folder.path().join("db");
        for (failing, blocks_512) in [(0, 64), (1, 0)] {
            std::fs::write(&path, []).unwrap();
            let steps = Steps::endless();
            let file = Dying(OwnFile::open(&path).unwrap(), Arc::clone(&steps));
            steps.set(0, failing);
            set(&file, 32 << 10, &[]).unwrap();
            let found = std::fs::metadata(&path).unwrap();
            assert_eq!((found.len(), found.blocks()), (32 << 10, blocks_512));
        }
        // A file system without holes, which is full: the pages are what counts.
        for (pages, fits) in [(2, true), (3, false), (0, false)] {
            let mut page = crate::testing::first_page();
            page[31] = pages;
            std::fs::write(&path, [page.clone(), vec![1; 4096]].concat()).unwrap();
            let steps = Steps::endless();
            let file = Dying(OwnFile::open(&path).unwrap(), Arc::clone(&steps));
            steps.set(0, 2);
            assert_eq!(set(&file, 32 << 10, &page).is_ok(), fits, "{pages}");
            assert_eq!(std::fs::metadata(&path).unwrap().len(), 8192);
        }
    }
}
