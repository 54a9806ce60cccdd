//! The publishers that this user knows: names and public keys, recorded at their first use.
//!
//! The record is `publishers` in the home: a line that names the format, then a line for each
//! publisher, `ed25519 KEY NAME`. It may be edited by hand.
//!
//! Invariants:
//! - A name stands for one key. Another key under that name, or under one that a person may take
//!   for it, is refused; nothing but [`Publishers::remove`] changes that.
//! - A file that is not understood whole is no store without publishers: everything is refused.
//! - The file changes under a lock and is replaced whole: of two processes that meet a publisher
//!   first, one records it, and the other finds that record.
//! - Known publishers are found without the lock, and in a home that cannot be written.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_region::text_file::{self, ReadFault};
use holdfast_region::{KernelStorage, Places, Storage};
use holdfast_sys::lock::FileLock;
use holdfast_types::Remedy;

use crate::applet_file::{AppletFile, Signature};
use crate::error::IdentityError;
use crate::identity::Identity;
use crate::names::{GivenName, PublisherName};
use crate::publisher::{PublicKey, Publisher};

const FILE: &str = "publishers";
const LOCK: &str = "publishers.lock";
/// First line of the file, up to the version.
const TITLE: &str = "holdfast publishers ";
const VERSION: u32 = 1;
/// More publishers than a user knows; bounds what a damaged file can make us read.
const PUBLISHERS_MAX: usize = 4096;
/// Title, and the longest lines.
const FILE_BYTES_MAX: u64 = 64 + 160 * PUBLISHERS_MAX as u64;

/// What is known of the signer of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Trust {
    /// It has no signature.
    NotSigned,
    /// Its publisher is not known: [`Publishers::meet`] records it. The user should be told.
    FirstUse,
    /// Its publisher has the key that is recorded for its name.
    Known,
}

/// Why a publisher is not accepted, or the record of publishers cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrustError {
    /// The name is known, with another key.
    #[error(
        "publisher `{name}` is known with the key ed25519 {known}, and this program is signed with ed25519 {found}; \
         it is another publisher, or {name} has a new key: ask for it in a way that this program's source has no \
         hand in. If the new key is right, {} and start again",
        Remedy::RemovePublisher { name: name.as_str() }
    )]
    KeyChanged {
        /// The publisher's name.
        name: PublisherName,
        /// The key that is recorded.
        known: PublicKey,
        /// The key of the program's signature.
        found: PublicKey,
    },
    /// A publisher with another key has a name that looks like this one.
    #[error(
        "publisher `{name}` (ed25519 {key}) has a name that looks like `{known}` (ed25519 {known_key}), which is \
         known; if they are two publishers and you trust both, {}",
        Remedy::AddPublisher { publisher: &Publisher::new(name.clone(), *key) }
    )]
    LooksLike {
        /// The name in the program's signature.
        name: PublisherName,
        /// Its key.
        key: PublicKey,
        /// The name that is known.
        known: PublisherName,
        /// Its key.
        known_key: PublicKey,
    },
    /// A line of the record is not understood, or the file is no such record.
    #[error(
        "the record of publishers {} is damaged at line {line}, so no signed program can be used; put it back from \
         a copy, correct the line, or remove the file to meet all publishers anew",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Number of the first bad line; 1 where the whole file is none.
        line: usize,
    },
    /// The record has a newer format.
    #[error("the record of publishers {} has a format that this program does not know (it knows {known}); use a newer Holdfast", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Newest version known here.
        known: u32,
    },
    /// Other users could have written the record.
    #[error(
        "the record of publishers {} can be written by others (mode {mode:03o}, or another owner); check its lines, \
         then make it yours alone (mode 600)",
        path.display()
    )]
    NotPrivate {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// There are too many.
    #[error(
        "{max} publishers are known, which is all that can be; {}",
        Remedy::RemovePublisher { name: "NAME" }
    )]
    TooMany {
        /// How many there can be.
        max: usize,
    },
    /// Another process has the lock.
    #[error("the record of publishers has been locked for seconds ({}); look for a stopped holdfast process", path.display())]
    Busy {
        /// The lock file.
        path: PathBuf,
    },
    /// The kernel refused.
    #[error("cannot {step} {}: {source}", path.display())]
    Io {
        /// The step, as a verb.
        step: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// The record of publishers of one home.
#[derive(Debug, Clone)]
pub struct Publishers {
    path: PathBuf,
    lock: PathBuf,
    storage: Arc<dyn Storage>,
}

impl Publishers {
    /// The record of a home. Nothing is read or made yet.
    #[must_use]
    pub fn of(places: &Places) -> Publishers {
        Publishers::with_storage(places.home(), Arc::new(KernelStorage))
    }

    /// The same, with every change of a file made through `storage`.
    #[must_use]
    pub fn with_storage(home: &Path, storage: Arc<dyn Storage>) -> Publishers {
        Publishers { path: home.join(FILE), lock: home.join(LOCK), storage }
    }

    /// Who an applet is, as [`Identity::of`] has it, and what is known of its publisher. Nothing is
    /// recorded: an applet that is refused its heap does not take a publisher's name. The host
    /// calls [`Publishers::meet`] when the applet has its keys, and before it opens a heap or
    /// starts.
    ///
    /// # Errors
    /// [`TrustError`] about the publisher of a signed program. It must not run as an unsigned one.
    pub fn identify(
        &self,
        file: &AppletFile,
        given: Option<&GivenName>,
    ) -> Result<(Identity, Trust), TrustError> {
        let trust = match file.signature() {
            Some(signature) if self.is_known(signature.publisher())? => Trust::Known,
            Some(_) => Trust::FirstUse,
            None => Trust::NotSigned,
        };
        Ok((Identity::of(file, given), trust))
    }

    /// Reads the file at a path and tells who it is, as [`Publishers::identify`] does. What is
    /// started must be compared with the file that is returned.
    ///
    /// # Errors
    /// `File`, `Trust`.
    pub fn identify_path(
        &self,
        path: &Path,
        given: Option<&GivenName>,
    ) -> Result<(AppletFile, Identity, Trust), IdentityError> {
        let file = AppletFile::of_path(path)
            .map_err(|source| IdentityError::File { path: path.to_owned(), source })?;
        let (identity, trust) = self.identify(&file, given)?;
        Ok((file, identity, trust))
    }

    /// Whether a publisher is known; nothing is recorded.
    ///
    /// # Errors
    /// [`TrustError`], as for [`Publishers::meet`].
    pub fn is_known(&self, publisher: &Publisher) -> Result<bool, TrustError> {
        is_known(&self.list()?, publisher)
    }

    /// Compares a signature's publisher with those known, and records one that is new; `FirstUse`
    /// is said to the caller that recorded it.
    ///
    /// # Errors
    /// [`TrustError`]. Where the record cannot be written, a new publisher is refused.
    pub fn meet(&self, signature: &Signature) -> Result<Trust, TrustError> {
        let publisher = signature.publisher();
        if is_known(&self.list()?, publisher)? {
            return Ok(Trust::Known);
        }
        let _lock = self.acquire()?;
        let mut known = self.list()?;
        // Another process may have been faster.
        if is_known(&known, publisher)? {
            return Ok(Trust::Known);
        }
        known.push(publisher.clone());
        self.write(&known)?;
        Ok(Trust::FirstUse)
    }

    /// All publishers that are known, in the order in which they were met.
    ///
    /// # Errors
    /// `Damaged`, `Newer`, `NotPrivate`, `Io`.
    pub fn list(&self) -> Result<Vec<Publisher>, TrustError> {
        let path = || self.path.clone();
        match text_file::read(&self.path, FILE_BYTES_MAX) {
            Ok(None) => Ok(Vec::new()),
            Ok(Some(text)) => parse(&text).map_err(|fault| match fault {
                ParseFault::Line(line) => TrustError::Damaged { path: path(), line },
                ParseFault::Newer => TrustError::Newer { path: path(), known: VERSION },
            }),
            Err(ReadFault::NotText) => Err(TrustError::Damaged { path: path(), line: 1 }),
            Err(ReadFault::NotPrivate { mode }) => {
                Err(TrustError::NotPrivate { path: path(), mode })
            }
            Err(ReadFault::Io(source)) => {
                Err(TrustError::Io { step: "read", path: path(), source })
            }
        }
    }

    /// Records a publisher whose key the user has from elsewhere, also one with a name that looks
    /// like a known one. Returns whether it is new.
    ///
    /// # Errors
    /// `KeyChanged` when the name is known with another key; those about the record.
    pub fn add(&self, publisher: &Publisher) -> Result<bool, TrustError> {
        let _lock = self.acquire()?;
        let mut known = self.list()?;
        match known.iter().find(|known| known.name() == publisher.name()) {
            Some(same) if same == publisher => return Ok(false),
            Some(other) => return Err(changed(other, publisher)),
            None => known.push(publisher.clone()),
        }
        self.write(&known)?;
        Ok(true)
    }

    /// Forgets a publisher: the next key under its name is a first use. Heaps stay with the old
    /// key. Returns whether it was known.
    ///
    /// # Errors
    /// Those about the record.
    pub fn remove(&self, name: &PublisherName) -> Result<bool, TrustError> {
        let _lock = self.acquire()?;
        let mut known = self.list()?;
        let before = known.len();
        known.retain(|publisher| publisher.name() != name);
        if known.len() == before {
            return Ok(false);
        }
        self.write(&known)?;
        Ok(true)
    }

    fn acquire(&self) -> Result<FileLock, TrustError> {
        let path = self.lock.clone();
        match text_file::lock(&path) {
            Ok(Some(lock)) => Ok(lock),
            Ok(None) => Err(TrustError::Busy { path }),
            Err(source) => Err(TrustError::Io { step: "lock", path, source }),
        }
    }

    fn write(&self, publishers: &[Publisher]) -> Result<(), TrustError> {
        if publishers.len() > PUBLISHERS_MAX {
            return Err(TrustError::TooMany { max: PUBLISHERS_MAX });
        }
        let mut text = format!("{TITLE}{VERSION}\n");
        for publisher in publishers {
            text.push_str(&format!("{publisher}\n"));
        }
        text_file::replace(&*self.storage, &self.path, &text)
            .map_err(|(step, path, source)| TrustError::Io { step, path, source })
    }
}

fn is_known(known: &[Publisher], publisher: &Publisher) -> Result<bool, TrustError> {
    if let Some(same) = known.iter().find(|known| known.name() == publisher.name()) {
        return match same == publisher {
            true => Ok(true),
            false => Err(changed(same, publisher)),
        };
    }
    let skeleton = publisher.name().skeleton();
    let looks_like =
        |known: &&Publisher| known.key() != publisher.key() && known.name().skeleton() == skeleton;
    match known.iter().find(looks_like) {
        Some(known) => Err(TrustError::LooksLike {
            name: publisher.name().clone(),
            key: publisher.key(),
            known: known.name().clone(),
            known_key: known.key(),
        }),
        None => Ok(false),
    }
}

fn changed(known: &Publisher, found: &Publisher) -> TrustError {
    TrustError::KeyChanged { name: found.name().clone(), known: known.key(), found: found.key() }
}

enum ParseFault {
    Line(usize),
    Newer,
}

fn parse(text: &str) -> Result<Vec<Publisher>, ParseFault> {
    let title = text.lines().next().and_then(|line| line.strip_prefix(TITLE));
    match title.and_then(|version| version.parse::<u32>().ok()) {
        Some(VERSION) => {}
        Some(version) if version > VERSION => return Err(ParseFault::Newer),
        _ => return Err(ParseFault::Line(1)),
    }
    let mut publishers: Vec<Publisher> = Vec::new();
    // Cut off in the middle of a line, which may have been longer.
    let line_count = text.matches('\n').count();
    for (index, line) in text.split('\n').enumerate().skip(1) {
        let number = index + 1;
        if index == line_count {
            match line.is_empty() {
                true => break,
                false => return Err(ParseFault::Line(number)),
            }
        }
        let publisher: Publisher = line.parse().map_err(|_| ParseFault::Line(number))?;
        let is_second = publishers.iter().any(|other| other.name() == publisher.name());
        if is_second || publishers.len() >= PUBLISHERS_MAX {
            return Err(ParseFault::Line(number));
        }
        publishers.push(publisher);
    }
    Ok(publishers)
}
