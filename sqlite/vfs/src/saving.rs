//! Saving databases: what their images have, and their redo logs have not, is copied to the store.
//! No lock is taken and nothing of the database is touched, so it does not matter what its
//! processes do, or where they were stopped.
//!
//! Invariants:
//! - A copy is as of one commit: what it was made of is the same before and after.
//! - It has its name only when it is durable; until then the one before it counts.

#![forbid(unsafe_code)]

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use holdfast_region::Replaced;
use holdfast_sys::file::{private_options, sync_directory};

use crate::copy::{self, Copy, Origin};
use crate::databases::{Database, Databases};
use crate::error::{Result, SqliteError};
use crate::snapshot::Head;

/// How often a database is copied in which a process commits meanwhile.
const TRIES: u32 = 3;

/// What became of a database that was to be saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rescue {
    /// It is saved.
    Written {
        /// Bytes of pages that were written.
        bytes: u64,
    },
    /// There was nothing to save: log, database or a copy have it.
    Nothing,
    /// A process committed each time that it was copied.
    Busy,
}

/// A copy that has no name yet.
struct Built {
    file: File,
    temporary: PathBuf,
    path: PathBuf,
    bytes: u64,
}

enum Begun {
    Built(Built),
    Done(Rescue),
}

impl Databases {
    /// Saves each of several databases; their copies become durable together. In the order of the
    /// databases. Where the store is full, the room of what is in `replaced` is freed.
    ///
    /// # Errors
    /// Of each: when its image cannot be read, or its copy cannot be written, for want of room say.
    /// A disk that fails at the end fails all that were written.
    pub fn save_each(
        &self,
        databases: &[&Database],
        replaced: &mut Replaced,
    ) -> Vec<Result<Rescue>> {
        let copies = self.copies();
        let begun = databases.iter().map(|database| {
            let begun = self.begin(&copies, database);
            if begun.as_ref().is_err_and(SqliteError::is_full) && !replaced.is_empty() {
                *replaced = Replaced::default();
                return self.begin(&copies, database);
            }
            begun
        });
        let begun: Vec<Result<Begun>> = begun.collect();
        // All before the first name, as the copies of heaps.
        let durable: Vec<Result<Begun>> = begun.into_iter().map(|begun| sync(begun?)).collect();
        let named: Vec<Result<Rescue>> = durable.into_iter().map(|begun| name(begun?)).collect();
        let is_written = |named: &Result<Rescue>| matches!(named, Ok(Rescue::Written { .. }));
        if !named.iter().any(is_written) {
            return named;
        }
        let Err(failed) = sync_directory(&copies) else { return named };
        let failure = || SqliteError::Io {
            step: "make durable",
            path: copies.clone(),
            source: io::Error::new(failed.kind(), failed.to_string()),
        };
        named
            .into_iter()
            .map(|named| if is_written(&named) { Err(failure()) } else { named })
            .collect()
    }

    /// Saves one database.
    ///
    /// # Errors
    /// As of [`Databases::save_each`].
    pub fn save(&self, database: &Database) -> Result<Rescue> {
        self.save_each(&[database], &mut Replaced::default()).pop().unwrap_or(Ok(Rescue::Nothing))
    }

    fn begin(&self, copies: &Path, database: &Database) -> Result<Begun> {
        let image = &database.image;
        let read = |source| SqliteError::Io { step: "read", path: image.clone(), source };
        let file = match private_options().read(true).open(image) {
            // It was closed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Begun::Done(Rescue::Nothing));
            }
            file => file.map_err(read)?,
        };
        for _ in 0..TRIES {
            let Some((head, plan)) = Head::read(&file, database.identity).map_err(read)? else {
                return Ok(Begun::Done(Rescue::Nothing));
            };
            let copy = Copy::open(copies, head.header().nonce()).ok().flatten();
            if head.is_in(copy.as_ref(), &file).map_err(read)? {
                return Ok(Begun::Done(Rescue::Nothing));
            }
            let Some(gathered) = head.gather(&file, plan).map_err(read)? else {
                return Ok(Begun::Done(Rescue::Nothing));
            };
            self.make_folder(copies)?;
            let origin = Origin {
                nonce: gathered.nonce,
                reached: gathered.reached,
                transaction: gathered.transaction,
                size: gathered.size,
                identity: database.identity,
                database: head.header().database().unwrap_or_default(),
            };
            let temporary = copy::temporary_path(copies, gathered.nonce);
            let blocks: Vec<u32> = gathered.newest.iter().map(|newest| newest.block).collect();
            let written = copy::write(&temporary, &origin, &blocks, |number, page| {
                gathered.read(&file, number, page)
            });
            let copied = match written {
                Ok(copied) => copied,
                Err(source) => {
                    let _ = std::fs::remove_file(&temporary);
                    return Err(SqliteError::Io { step: "write", path: temporary, source });
                }
            };
            let again = Head::read(&file, database.identity).map_err(read)?;
            let again =
                again.map(|(head, plan)| head.gather(&file, plan)).transpose().map_err(read)?;
            if again.flatten().as_ref() == Some(&gathered) {
                let (path, bytes) = (copy::path_of(copies, gathered.nonce), gathered.bytes());
                return Ok(Begun::Built(Built { file: copied, temporary, path, bytes }));
            }
            let _ = std::fs::remove_file(&temporary);
        }
        Ok(Begun::Done(Rescue::Busy))
    }

    fn make_folder(&self, copies: &Path) -> Result<()> {
        match DirBuilder::new().mode(0o700).create(copies) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            made => made
                .and_then(|()| sync_directory(self.store()))
                .map_err(SqliteError::io("make", copies)),
        }
    }
}

impl Built {
    fn or_remove(&self, step: &'static str, done: io::Result<()>) -> Result<()> {
        done.map_err(|source| {
            let _ = std::fs::remove_file(&self.temporary);
            SqliteError::Io { step, path: self.temporary.clone(), source }
        })
    }
}

/// Makes a copy durable.
fn sync(begun: Begun) -> Result<Begun> {
    if let Begun::Built(built) = &begun {
        built.or_remove("make durable", built.file.sync_all())?;
    }
    Ok(begun)
}

/// Gives a durable copy its name.
fn name(begun: Begun) -> Result<Rescue> {
    let built = match begun {
        Begun::Done(rescue) => return Ok(rescue),
        Begun::Built(built) => built,
    };
    built.or_remove("rename", std::fs::rename(&built.temporary, &built.path))?;
    Ok(Rescue::Written { bytes: built.bytes })
}
