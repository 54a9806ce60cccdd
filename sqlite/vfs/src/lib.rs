//! The SQLite VFS `holdfast`: databases whose newest pages live in the pool, so that a commit is
//! one store and needs no journal. (The paper calls it pPCache, and the writing behind LazyFlush.)
//!
//! Stock SQLite, 3.40 and later, with no patch: it is registered by a loadable extension
//! (`sqlite/extension`) or by a static library (`sqlite/static`). Nothing here links an SQLite: its
//! functions come in a [`Host`].
//!
//! What is where: the *image* in the pool has the newest version of each block that changed; the
//! *redo log* beside the database has all that was flushed; the *database file* is as of the last
//! checkpoint, and bears a mark meanwhile; a *copy* in the store has what a keeper saved of an
//! image when the log was not as far.
//!
//! Invariants of the whole:
//! - The commit is the store of `committed`. What was written before it counts with it, or not at
//!   all.
//! - Pool lost at any moment: database and log are together as of some commit, and the user is
//!   told.
//! - A program without this VFS refuses a database whose newest pages are elsewhere.
//!
//! It must not panic into C, nor close or lock anything in a forked child.

#![deny(unsafe_code)]

mod apply;
mod at_rest;
mod attach;
mod base;
mod changes;
mod commit;
mod complaints;
mod connection;
mod copy;
mod databases;
mod direct;
mod error;
mod ffi;
mod file_names;
mod file_size;
mod flush;
mod flusher;
mod freeing;
#[cfg(test)]
mod golden;
mod growth;
mod handover;
mod heat;
mod host;
mod identity;
mod image;
mod inspection;
mod journal;
mod levels;
mod locking;
mod log;
mod mark;
#[cfg(test)]
mod meetings;
mod memory;
mod methods;
mod names;
mod new_file;
mod offline;
mod owner;
mod parameters;
mod passing;
mod patience;
mod pool;
mod pragma;
mod pressure;
mod recovery;
mod refused;
mod registry;
mod renumbered;
mod saving;
mod settings;
mod snapshot;
mod stub;
#[cfg(test)]
mod testing;
mod vfs;

pub use databases::{Database, Databases, evict_for_room};
pub use error::{Result, SqliteError};
pub use ffi::{IoMethods, RawFile, Vfs};
pub use holdfast_types::Durability;
pub use host::{CreateFunction, Host, SqlFunction, VERSION_MIN};
pub use identity::Identity;
pub use inspection::{State, Status, status};
pub use offline::{Recovered, checkpoint, recover, recover_without_pool, release};
pub use owner::{Owner, Whereabouts};
pub use saving::Rescue;
pub use vfs::{NAME, load, register};
