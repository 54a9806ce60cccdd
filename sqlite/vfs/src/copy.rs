//! Saved copies: what an image had that neither database nor redo log have, in the store; made by
//! the keeper, one file for each nonce. See `docs/format.md`.
//!
//! Invariants:
//! - A copy has its name only when it is whole and durable; one that replaces it does so at once.
//! - It is applied, whole, to the file that it was made of (inode, time of birth), and only where
//!   that file and its log are at least as new as what the copy was made on top of, and not yet at
//!   its transaction: see [`Copy::fits`].
//! - It is removed after the database file has what it holds, durable and without a mark; so a
//!   process that dies on the way there leaves what makes the next one do the same.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use holdfast_region::Places;
use holdfast_sys::file::private_options;
use holdfast_sys::write_out;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::apply::Blocks;
use crate::error::SqliteError;
use crate::identity::Identity;
use crate::image::BLOCK_BYTES;

const MAGIC: &[u8; 8] = b"HFsqcpy\x01";
const WORDS: usize = 9;
const HEADER_BYTES: usize = MAGIC.len() + (WORDS + 1) * 8;
/// Pages begin at a multiple of it.
const SECTOR_BYTES: usize = 512;
const SUM_BYTES: u64 = 8;
/// What is read and written at once.
const PIECE_BYTES: usize = 256 << 10;
/// No path is longer, whatever wrote it here.
const PATH_BYTES_MAX: u64 = 1 << 16;

/// What a copy is of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) nonce: u64,
    /// As of which transaction database file and log were together, at least, when it was made: it
    /// has what changed since.
    pub(crate) reached: u64,
    /// As of which transaction it is.
    pub(crate) transaction: u64,
    /// Of the database with it, in bytes.
    pub(crate) size: u64,
    pub(crate) identity: Identity,
    /// Where the database was; may be empty.
    pub(crate) database: PathBuf,
}

/// A copy whose header is whole.
#[derive(Debug)]
pub(crate) struct Copy {
    file: File,
    path: PathBuf,
    pub(crate) origin: Origin,
    blocks: u32,
}

/// How a copy stands to a database and its log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fit {
    /// It has what they lack.
    Newer,
    /// They have all that it has.
    Older,
    /// It is of another file: of the one that this is a copy of, say.
    OtherFile,
    /// They are older than what it was made on top of: they were put back from a backup, say.
    NoBase,
}

/// Where copies are.
pub(crate) fn folder(places: &Places) -> PathBuf {
    places.store().join("databases")
}

/// The copy of a nonce.
pub(crate) fn path_of(folder: &Path, nonce: u64) -> PathBuf {
    folder.join(format!("{nonce:016x}.copy"))
}

/// One in the making.
pub(crate) fn temporary_path(folder: &Path, nonce: u64) -> PathBuf {
    folder.join(format!(".{nonce:016x}.new"))
}

/// Removes a copy whose database does not need it any more. One that stays is never applied, and
/// the keeper removes it.
pub(crate) fn remove(folder: &Path, nonce: u64) {
    let _ = std::fs::remove_file(path_of(folder, nonce));
}

/// Writes a copy to a new file, which is not durable yet. `page` fills in one block after the
/// other.
pub(crate) fn write<E: From<io::Error>>(
    path: &Path,
    origin: &Origin,
    blocks: &[u32],
    mut page: impl FnMut(usize, &mut [u8]) -> Result<(), E>,
) -> Result<File, E> {
    let mut file = private_options().write(true).create(true).truncate(true).open(path)?;
    let name = origin.database.as_os_str().as_bytes();
    let words: [u64; WORDS] = [
        origin.nonce,
        origin.reached,
        origin.transaction,
        origin.size,
        origin.identity.words()[0],
        origin.identity.words()[1],
        origin.identity.words()[2],
        blocks.len() as u64,
        name.len() as u64,
    ];
    let mut piece = Vec::with_capacity(PIECE_BYTES + BLOCK_BYTES);
    piece.extend_from_slice(MAGIC);
    piece.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    let sum = xxh3_64(&piece);
    piece.extend_from_slice(&sum.to_le_bytes());
    piece.extend_from_slice(name);
    piece.extend(blocks.iter().flat_map(|block| block.to_le_bytes()));
    piece.resize(piece.len().next_multiple_of(SECTOR_BYTES), 0);
    let mut sum = Xxh3::new();
    for number in 0..blocks.len() {
        if piece.len() >= PIECE_BYTES {
            sum.update(&piece);
            file.write_all(&piece)?;
            piece.clear();
        }
        let start = piece.len();
        piece.resize(start + BLOCK_BYTES, 0);
        page(number, &mut piece[start..])?;
    }
    sum.update(&piece);
    piece.extend_from_slice(&sum.digest().to_le_bytes());
    file.write_all(&piece)?;
    // A process that syncs it later finds the disk at it.
    let _ = write_out::begin(&file, 0..file.metadata()?.len());
    Ok(file)
}

impl Copy {
    /// Opens the copy of a nonce; `None` where there is none.
    ///
    /// # Errors
    /// `InvalidData` when its header is not whole; what the kernel reports.
    pub(crate) fn open(folder: &Path, nonce: u64) -> io::Result<Option<Copy>> {
        let found = Copy::open_at(&path_of(folder, nonce))?;
        match found {
            Some(copy) if copy.origin.nonce != nonce => Err(io::ErrorKind::InvalidData.into()),
            found => Ok(found),
        }
    }

    /// The same, by its path.
    pub(crate) fn open_at(path: &Path) -> io::Result<Option<Copy>> {
        let file = match private_options().read(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let mut header = [0; HEADER_BYTES];
        let length = file.metadata()?.len();
        if length < HEADER_BYTES as u64 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        file.read_exact_at(&mut header, 0)?;
        let word = |number: usize| {
            let at = MAGIC.len() + number * 8;
            u64::from_le_bytes(header[at..at + 8].try_into().unwrap_or_default())
        };
        let (blocks, name_bytes) = (u32::try_from(word(7)), word(8));
        let is_whole = &header[..8] == MAGIC && word(WORDS) == xxh3_64(&header[..HEADER_BYTES - 8]);
        let (true, Ok(blocks), true) = (is_whole, blocks, name_bytes <= PATH_BYTES_MAX) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let mut name = vec![0; name_bytes as usize];
        file.read_exact_at(&mut name, HEADER_BYTES as u64)?;
        let origin = Origin {
            nonce: word(0),
            reached: word(1),
            transaction: word(2),
            size: word(3),
            identity: Identity::new([word(4), word(5), word(6)]),
            database: PathBuf::from(OsStr::from_bytes(&name)),
        };
        let copy = Copy { file, path: path.to_owned(), origin, blocks };
        let expected = copy.pages_at() + u64::from(blocks) * BLOCK_BYTES as u64 + SUM_BYTES;
        if length == expected { Ok(Some(copy)) } else { Err(io::ErrorKind::InvalidData.into()) }
    }

    fn list_at(&self) -> u64 {
        (HEADER_BYTES + self.origin.database.as_os_str().len()) as u64
    }

    fn pages_at(&self) -> u64 {
        (self.list_at() + u64::from(self.blocks) * 4).next_multiple_of(SECTOR_BYTES as u64)
    }

    /// Whether this is to be applied to a database file (by its identity), which is together with
    /// its log as of `reached`.
    ///
    /// Transactions of one nonce are numbered in order, so of log and copy the one with the higher
    /// number is newer. A device's number may be another one after a boot; inode and birth are not.
    pub(crate) fn fits(&self, identity: Identity, reached: u64) -> Fit {
        let (here, there) = (identity.words(), self.origin.identity.words());
        if here[1..] != there[1..] {
            Fit::OtherFile
        } else if reached >= self.origin.transaction {
            Fit::Older
        } else if reached < self.origin.reached {
            Fit::NoBase
        } else {
            Fit::Newer
        }
    }

    /// Reads all of it once; where each block is, if it is whole.
    ///
    /// # Errors
    /// `InvalidData` when it is not; what the kernel reports.
    pub(crate) fn places(&self) -> io::Result<BTreeMap<u32, u64>> {
        let end = self.pages_at() + u64::from(self.blocks) * BLOCK_BYTES as u64;
        let mut sum = Xxh3::new();
        let mut piece = vec![0; PIECE_BYTES];
        let mut at = 0;
        while at < end {
            let bytes = piece.len().min((end - at) as usize);
            self.file.read_exact_at(&mut piece[..bytes], at)?;
            sum.update(&piece[..bytes]);
            at += bytes as u64;
        }
        let mut expected = [0; SUM_BYTES as usize];
        self.file.read_exact_at(&mut expected, end)?;
        if u64::from_le_bytes(expected) != sum.digest() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut list = vec![0; self.blocks as usize * 4];
        self.file.read_exact_at(&mut list, self.list_at())?;
        let numbers = list
            .chunks_exact(4)
            .map(|four| u32::from_le_bytes(four.try_into().unwrap_or_default()));
        let pages = (0..).map(|number: u64| self.pages_at() + number * BLOCK_BYTES as u64);
        Ok(numbers.zip(pages).collect())
    }

    /// As what is written to a database file.
    pub(crate) fn blocks<'a>(&'a self, places: &'a BTreeMap<u32, u64>) -> Blocks<'a> {
        let read = Box::new(|run: &[(u32, u64)], pages: &mut [u8]| {
            let pages = pages.chunks_exact_mut(BLOCK_BYTES);
            run.iter().zip(pages).try_for_each(|((_, place), page)| {
                self.file.read_exact_at(page, *place).map_err(SqliteError::io("read", &self.path))
            })
        });
        Blocks { places, size: self.origin.size, read }
    }
}

/// The copies in a folder, and what keepers that were killed left in the making.
pub(crate) fn all(folder: &Path) -> io::Result<(Vec<PathBuf>, Vec<PathBuf>)> {
    let (mut copies, mut unfinished) = (Vec::new(), Vec::new());
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((copies, unfinished)),
        entries => entries?,
    };
    for entry in entries {
        let path = entry?.path();
        match path.extension().and_then(OsStr::to_str) {
            Some("copy") => copies.push(path),
            Some("new") => unfinished.push(path),
            _ => {}
        }
    }
    Ok((copies, unfinished))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin() -> Origin {
        Origin {
            nonce: 7,
            reached: 40,
            transaction: 50,
            size: 3 * BLOCK_BYTES as u64,
            identity: Identity::new([1, 2, 3]),
            database: "/some/where".into(),
        }
    }

    fn written(folder: &Path) -> PathBuf {
        let path = path_of(folder, 7);
        let fill = |number: usize, page: &mut [u8]| -> io::Result<()> {
            page.fill(number as u8 + 1);
            Ok(())
        };
        write(&path, &origin(), &[0, 2], fill).unwrap();
        path
    }

    /// A copy is read as it was written and any byte that changed is noticed.
    ///
    /// Guarantee: keeper/damaged-copy
    #[test]
    fn copy_is_read_back_and_any_changed_byte_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = written(folder.path());
        let copy = Copy::open(folder.path(), 7).unwrap().unwrap();
        assert_eq!(copy.origin, origin());
        let places = copy.places().unwrap();
        let blocks = copy.blocks(&places);
        let mut page = [0; BLOCK_BYTES];
        (blocks.read)(&[(2, places[&2])], &mut page).unwrap();
        assert_eq!((page, blocks.size), ([2; BLOCK_BYTES], 3 * BLOCK_BYTES as u64));
        let whole = std::fs::read(&path).unwrap();
        let sound =
            || Copy::open(folder.path(), 7).is_ok_and(|copy| copy.unwrap().places().is_ok());
        assert!(sound());
        for at in (0..whole.len()).step_by(37).chain(whole.len() - 9..whole.len()) {
            let mut bad = whole.clone();
            bad[at] ^= 0x10;
            std::fs::write(&path, &bad).unwrap();
            assert!(!sound(), "byte {at}");
        }
        for length in [0, 50, HEADER_BYTES, whole.len() - 1] {
            std::fs::write(&path, &whole[..length]).unwrap();
            assert!(!sound(), "{length} bytes");
        }
        std::fs::rename(&path, path_of(folder.path(), 8)).unwrap();
        assert!(Copy::open(folder.path(), 8).is_err(), "it is of another nonce than its name");
        assert!(Copy::open(folder.path(), 9).unwrap().is_none());
    }

    /// A copy fits only its own file between what it was made on and what it holds.
    ///
    /// Guarantee: keeper/no-undo
    /// Guarantee: sqlite/backups
    /// Guarantee: sqlite/older-copies
    #[test]
    fn copy_fits_only_its_own_file_and_time() {
        let folder = tempfile::tempdir().unwrap();
        written(folder.path());
        let copy = Copy::open(folder.path(), 7).unwrap().unwrap();
        let own = Identity::new([9, 2, 3]);
        let fits = [39, 40, 49, 50, 51].map(|reached| copy.fits(own, reached));
        assert_eq!(fits, [Fit::NoBase, Fit::Newer, Fit::Newer, Fit::Older, Fit::Older]);
        assert_eq!(copy.fits(Identity::new([9, 2, 4]), 45), Fit::OtherFile);
        assert_eq!(copy.fits(Identity::new([9, 1, 3]), 45), Fit::OtherFile);
    }
}
