//! The lease of a lent region, for the next keeper: whether a process still has the region, and
//! which image.
//!
//! A lease is an empty file that no process can write, locked through a file description that the
//! borrower shares: the kernel keeps the lock while one of the borrower's descriptors is open,
//! whatever becomes of the keeper. The note beside it names the loan.
//!
//! Invariants:
//! - A region is lent only after its note says so; a loan that has ended is noted before anybody
//!   else can have the region.
//! - Each loan has a lease of its own, named after its token, which is there before the note names
//!   it and goes after the note names another one: a borrower that keeps an old one disturbs
//!   no process, and one that has the newest is never overlooked.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use holdfast_region::RegionName;
use holdfast_sys::file::private_options;
use holdfast_sys::lock::{LockMode, try_lock};
use serde::{Deserialize, Serialize};

/// More than any note has.
const NOTE_BYTES_MAX: u64 = 4 << 10;

/// The leases of a pool.
#[derive(Debug)]
pub(crate) struct Leases {
    directory: PathBuf,
}

/// Which loan it was, the last one of a region.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Note {
    /// Known to the borrower and to no other process.
    pub(crate) token: String,
    /// The image, told apart from all others of this boot.
    pub(crate) device: u64,
    pub(crate) inode: u64,
    /// Whether the loan goes on.
    pub(crate) is_lent: bool,
}

impl Leases {
    pub(crate) fn of(pool: &Path) -> io::Result<Leases> {
        let directory = pool.join("served");
        match DirBuilder::new().mode(0o700).create(&directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let leases = Leases { directory };
        leases.remove_strays();
        Ok(leases)
    }

    /// A new lease, held for as long as the descriptor or a copy of it is open.
    pub(crate) fn take(&self, name: &RegionName, token: &str) -> io::Result<OwnedFd> {
        let path = self.lease_path(name, token);
        drop(private_options().write(true).create_new(true).open(&path)?);
        // For reading only: it cannot even be cut off.
        let lease = private_options().read(true).open(&path)?;
        if !try_lock(&lease, LockMode::Exclusive)? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(lease.into())
    }

    /// Whether the borrower of this loan has it still.
    pub(crate) fn is_held(&self, name: &RegionName, note: &Note) -> io::Result<bool> {
        match private_options().read(true).open(self.lease_path(name, &note.token)) {
            Ok(lease) => Ok(!try_lock(&lease, LockMode::Exclusive)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The last loan; none if there was none, or its note is none, which only a process that may
    /// write the pool can have done.
    ///
    /// # Errors
    /// When the note cannot be looked at: there may be a loan.
    pub(crate) fn note(&self, name: &RegionName) -> io::Result<Option<Note>> {
        let file = match private_options().read(true).open(self.note_path(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let mut bytes = Vec::new();
        file.take(NOTE_BYTES_MAX).read_to_end(&mut bytes)?;
        Ok(Note::parse(&bytes))
    }

    /// Whether a program has had the region since before this keeper. What cannot be looked at
    /// counts as held: a second program would be worse.
    pub(crate) fn is_leased(&self, name: &RegionName) -> bool {
        match self.note(name) {
            Ok(Some(note)) => note.is_lent && self.is_held(name, &note).unwrap_or(true),
            Ok(None) => false,
            Err(_) => true,
        }
    }

    /// Notes a loan, whole or not at all; the lease of the one before is no lease any more.
    pub(crate) fn put(&self, name: &RegionName, note: &Note) -> io::Result<()> {
        let temporary = self.directory.join(format!(".{name}.note"));
        remove(&temporary)?;
        let mut file = private_options().write(true).create_new(true).open(&temporary)?;
        file.write_all(&serde_json::to_vec(note)?)?;
        // Of one that cannot be read the lease stays, in no process's way.
        let before = self.note(name).ok().flatten();
        fs::rename(&temporary, self.note_path(name))?;
        match before.filter(|before| before.token != note.token) {
            Some(before) => remove(&self.lease_path(name, &before.token)),
            None => Ok(()),
        }
    }

    /// The region is gone.
    pub(crate) fn forget(&self, name: &RegionName) -> io::Result<()> {
        let note = self.note(name)?;
        remove(&self.note_path(name))?;
        note.map_or(Ok(()), |note| remove(&self.lease_path(name, &note.token)))
    }

    /// What keepers that were killed left, of loans that never were or are over. One that stays is
    /// in no process's way.
    fn remove_strays(&self) {
        for entry in fs::read_dir(&self.directory).into_iter().flatten().flatten() {
            let file = entry.file_name();
            let lease = file.to_str().and_then(|file| file.strip_suffix(".lease"));
            let Some((name, token)) = lease.and_then(|lease| lease.rsplit_once('.')) else {
                continue;
            };
            let Ok(name) = RegionName::parse(name) else { continue };
            let is_stray = |note: Option<Note>| note.is_none_or(|note| note.token != token);
            if self.note(&name).is_ok_and(is_stray) {
                let _ = remove(&entry.path());
            }
        }
    }

    fn lease_path(&self, name: &RegionName, token: &str) -> PathBuf {
        self.directory.join(format!("{name}.{token}.lease"))
    }

    fn note_path(&self, name: &RegionName) -> PathBuf {
        self.directory.join(format!("{name}.note"))
    }
}

impl Note {
    /// The token becomes a part of a path, so it has hexadecimal digits and nothing else.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Note> {
        let note: Note = serde_json::from_slice(bytes).ok()?;
        let is_token =
            !note.token.is_empty() && note.token.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_token.then_some(note)
    }

    pub(crate) fn new(token: String, image: &File) -> io::Result<Note> {
        let found = image.metadata()?;
        Ok(Note { token, device: found.dev(), inode: found.ino(), is_lent: true })
    }

    /// Whether this is the image that was lent.
    pub(crate) fn is_of(&self, image: &File) -> bool {
        image.metadata().is_ok_and(|found| (found.dev(), found.ino()) == (self.device, self.inode))
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A lease is held while a copy of it is open and an old one holds nothing.
    ///
    /// Guarantee: keeper/leases
    #[test]
    fn lease_holds_while_any_copy_is_open() {
        let pool = tempfile::tempdir().unwrap();
        let leases = Leases::of(pool.path()).unwrap();
        let name = RegionName::parse("served.1.words").unwrap();
        let image = tempfile::tempfile().unwrap();
        let note = Note::new("f1".to_owned(), &image).unwrap();
        assert!(!leases.is_held(&name, &note).unwrap());
        let lease = leases.take(&name, "f1").unwrap();
        leases.put(&name, &note).unwrap();
        let copy = lease.try_clone().unwrap();
        drop(lease);
        assert!(leases.is_held(&name, &note).unwrap());
        let newer = Note::new("52".to_owned(), &image).unwrap();
        // A keeper that dies before the note leaves the old one in force.
        drop(leases.take(&name, "52").unwrap());
        assert!(leases.is_leased(&name));
        leases.put(&name, &newer).unwrap();
        assert!(!leases.is_held(&name, &newer).unwrap());
        drop(copy);
    }

    /// Guarantee: heap/hostile-content
    #[test]
    fn notes_that_lead_elsewhere_count_for_nothing() {
        let pool = tempfile::tempdir().unwrap();
        let leases = Leases::of(pool.path()).unwrap();
        let name = RegionName::parse("served.1.words").unwrap();
        let outside = pool.path().join("outside.lease");
        fs::write(&outside, "").unwrap();
        let text = |token: &str| serde_json::json!({"token": token, "device": u64::MAX, "inode": u64::MAX, "is_lent": true});
        for token in ["", "/../../outside", "x/../../outside", "\u{1b}[2J", &"0".repeat(1 << 20)] {
            fs::write(leases.note_path(&name), text(token).to_string()).unwrap();
            assert_eq!(leases.note(&name).unwrap(), None, "{token:?}");
            // The note of a new loan removes the lease of the one before.
            let image = tempfile::tempfile().unwrap();
            leases.put(&name, &Note::new("00ff".to_owned(), &image).unwrap()).unwrap();
            assert!(outside.exists(), "{token:?}");
        }
    }

    /// A region is not lent, and no lease of it goes, while the note of its last loan cannot be
    /// read.
    ///
    /// Guarantee: keeper/leases
    #[test]
    fn note_that_cannot_be_read_counts_as_a_loan() {
        let pool = tempfile::tempdir().unwrap();
        let leases = Leases::of(pool.path()).unwrap();
        let name = RegionName::parse("served.1.words").unwrap();
        assert!(!leases.is_leased(&name));
        let lease = leases.take(&name, "f1").unwrap();
        // It opens, and reading it fails.
        fs::create_dir(leases.note_path(&name)).unwrap();
        assert!(leases.is_leased(&name));
        let next = Leases::of(pool.path()).unwrap();
        assert!(next.lease_path(&name, "f1").exists());
        assert!(next.forget(&name).is_err());
        assert!(next.lease_path(&name, "f1").exists());
        drop(lease);
    }

    /// What killed keepers left goes and what is noted stays.
    #[test]
    fn killed_keepers_leftovers_go_and_notes_stay() {
        let pool = tempfile::tempdir().unwrap();
        let leases = Leases::of(pool.path()).unwrap();
        let name = RegionName::parse("served.1.words").unwrap();
        let note = Note::new("0e".to_owned(), &tempfile::tempfile().unwrap()).unwrap();
        let (noted, stray) = (leases.take(&name, "0e").unwrap(), leases.take(&name, "5a").unwrap());
        leases.put(&name, &note).unwrap();
        let next = Leases::of(pool.path()).unwrap();
        assert!(next.is_held(&name, &note).unwrap());
        assert!(!next.lease_path(&name, "5a").exists());
        next.forget(&name).unwrap();
        assert_eq!(fs::read_dir(&next.directory).unwrap().count(), 0);
        drop((noted, stray));
    }
}
