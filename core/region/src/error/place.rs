//! Why a directory, or a pool, cannot be used.

#![forbid(unsafe_code)]

use std::io;
use std::path::{Path, PathBuf};

use holdfast_types::Remedy;

use crate::error::kind::ErrorKind;

/// Why a directory cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlaceError {
    /// Nothing says where the home is.
    #[error("no home directory is known; set HOLDFAST_HOME or HOME to an absolute path")]
    NoHome,
    /// A variable holds a relative path, which would mean another place in every directory.
    #[error("{variable} is {}, a relative path; make it absolute", value.display())]
    NotAbsolute {
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: PathBuf,
    },
    /// No tmpfs for the pool.
    #[error(
        "no tmpfs for the pool: {} is none and XDG_RUNTIME_DIR names none; mount one at /dev/shm, or set \
         HOLDFAST_POOL to a directory (on a disk, images survive reboots but every store is written back)",
        tried.display()
    )]
    NoTmpfs {
        /// Where one was expected.
        tried: PathBuf,
    },
    /// A path of ours is a symbolic link.
    #[error("{} is a symbolic link, and could lead anywhere; {}", path.display(), elsewhere(path))]
    SymbolicLink {
        /// The path.
        path: PathBuf,
    },
    /// A path of ours is no directory (or, for a file, no regular file).
    #[error("{} is not what it should be, a {expected}; {}", path.display(), instead_of(expected))]
    WrongKind {
        /// The path.
        path: PathBuf,
        /// What should be there.
        expected: &'static str,
    },
    /// A path of ours belongs to another user.
    #[error(
        "{} belongs to user {owner} and not to user {us}; {}",
        path.display(), elsewhere(path)
    )]
    NotOurs {
        /// The path.
        path: PathBuf,
        /// The user that owns it.
        owner: u32,
        /// The user of this process.
        us: u32,
    },
    /// Other users may enter a directory that must be private.
    #[error("{} has mode {mode:04o}, open to other users; {}", path.display(), closed(path, *mode, *remedy_mode))]
    NotPrivate {
        /// The path.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
        /// The bits that it should have.
        remedy_mode: u32,
    },
    /// Other users may write to the home, and put other directories in the place of those in it.
    #[error(
        "{} has mode {mode:04o}: other users may write to it, and take away the heaps and keys in it; {}",
        path.display(), closed_to_writing(path, *mode)
    )]
    WritableByOthers {
        /// The home.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The pool cannot stand for persistent memory.
    #[error(
        "{} is neither a tmpfs nor persistent memory, so it cannot stand for the latter in an experiment; choose a \
         directory on a tmpfs with HOLDFAST_POOL, or unset HOLDFAST_EMULATE_DAX", pool.display()
    )]
    NotEmulable {
        /// The pool.
        pool: PathBuf,
    },
    /// The heaps of the home have their images in persistent memory that is not there now.
    #[error(
        "the newest state of the heaps of {} is in the pool {}, in memory that survives a reset, and that is not mounted \
         now; mount it (docs/guides/reserved-ram.md) and set HOLDFAST_POOL={1}. If it is gone for good, remove {2}: heaps \
         are then as of their last commit at level `power`", home.display(), in_use.display(), record.display()
    )]
    PoolNotMounted {
        /// The home.
        home: PathBuf,
        /// The pool with images.
        in_use: PathBuf,
        /// What says so.
        record: PathBuf,
    },
    /// The heaps of the home have their images in another pool.
    #[error(
        "the heaps of {} are in the pool {}, and {} would make second copies of them; set HOLDFAST_POOL={1}, or move \
         to the new pool: {}", home.display(), in_use.display(), ours.display(),
        Remedy::LeavePool { pool: &in_use.display() }
    )]
    OtherPool {
        /// The home.
        home: PathBuf,
        /// The pool with images.
        in_use: PathBuf,
        /// The one that was asked for.
        ours: PathBuf,
    },
    /// The pool belongs to another home.
    #[error(
        "the pool {} belongs to the home {}, not to {}; a pool serves one home: unset HOLDFAST_POOL (each home then has a \
         pool of its own), set it to another directory, or use the home that the pool belongs to with HOLDFAST_HOME={1}",
        pool.display(), owner.display(), home.display()
    )]
    PoolOfOther {
        /// The pool.
        pool: PathBuf,
        /// The home that was refused.
        home: PathBuf,
        /// The home that it belongs to.
        owner: PathBuf,
    },
    /// The pool belongs to the home that this one is a copy of.
    #[error(
        "the pool {} belongs to the home {}, of which {} is a copy (both have the same file `identity`); use the original, \
         or make the copy a home of its own: remove {2}/identity and {2}/pool-in-use, and choose another pool for it with \
         HOLDFAST_POOL",
        pool.display(), owner.display(), home.display()
    )]
    PoolOfCopy {
        /// The pool.
        pool: PathBuf,
        /// The copy.
        home: PathBuf,
        /// The original.
        owner: PathBuf,
    },
    /// The pool has images of a home that is gone, or that is not known.
    #[error(
        "the pool {} has images that the home {} does not know ({names}){}; use the home that they belong to \
         (HOLDFAST_HOME), or choose another pool with HOLDFAST_POOL. If that home is gone, {}; `rm -r {0}` removes the pool \
         with all that is in it",
        pool.display(), home.display(), lost_text(owner.as_deref()), Remedy::AdoptPool
    )]
    PoolOfLost {
        /// The pool.
        pool: PathBuf,
        /// The home that was refused.
        home: PathBuf,
        /// The home that the pool belonged to, if its record says one.
        owner: Option<PathBuf>,
        /// Images that the home does not know, or the first of them.
        names: String,
    },
    /// An image of a pool that is to be adopted has the name of another heap of the home.
    #[error(
        "the image of the heap {name:?} in the pool {} is another heap than {name:?} in the store of {}; save one of them \
         under another name first: in a home with another pool, {}; then remove that image",
        pool.display(), home.display(),
        Remedy::Salvage { file: &pool.join(format!("{name}.image")).display() }
    )]
    PoolClash {
        /// The pool.
        pool: PathBuf,
        /// The home.
        home: PathBuf,
        /// The name of both heaps.
        name: String,
    },
    /// What says whose the pool is cannot be read.
    #[error(
        "{}, which says whose the pool is, {what}; choose another pool with HOLDFAST_POOL, use the version of Holdfast that \
         made this one, or remove that file if no home uses the pool", path.display()
    )]
    PoolRecord {
        /// The record.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The kernel refused.
    #[error("cannot {step} {}: {source}; check its permissions, or set HOLDFAST_HOME and HOLDFAST_POOL", path.display())]
    Io {
        /// The step, as a verb.
        step: &'static str,
        /// The path.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl PlaceError {
    /// What kind of failure this is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            PlaceError::PoolOfOther { .. }
            | PlaceError::PoolOfCopy { .. }
            | PlaceError::PoolOfLost { .. }
            | PlaceError::PoolClash { .. } => ErrorKind::Denied,
            _ => ErrorKind::Io,
        }
    }
}

fn lost_text(owner: Option<&Path>) -> String {
    match owner {
        Some(owner) => {
            format!("; it belongs to the home {}, which is not there any more", owner.display())
        }
        None => {
            "; an earlier version made it, and nothing says which home it belongs to".to_owned()
        }
    }
}

fn elsewhere(path: &Path) -> String {
    format!(
        "remove {} if it is yours to remove, or choose a directory of your own with HOLDFAST_POOL (such as \
         /dev/shm/NAME) or HOLDFAST_HOME",
        path.display()
    )
}

/// What to do about a path at which something else is. It may be a file of the system, to which a
/// variable leads.
fn instead_of(expected: &str) -> &'static str {
    match expected {
        "directory" => "choose a directory of your own with HOLDFAST_HOME and HOLDFAST_POOL",
        _ => "move it away",
    }
}

/// What to do about a path that is open to others. A directory that everybody may write to is the
/// system's: no message may tell a user to close /tmp.
fn closed(path: &Path, mode: u32, remedy_mode: u32) -> String {
    let close = format!("`chmod {remedy_mode:04o} {}`", path.display());
    if remedy_mode & 0o100 == 0 {
        return format!("{close} closes it");
    }
    let choose = format!(
        "choose a directory of your own with HOLDFAST_HOME and HOLDFAST_POOL, such as {}",
        path.join("NAME").display()
    );
    if mode & 0o1002 != 0 {
        choose
    } else {
        format!("{choose}, or close this one if only Holdfast uses it: {close}")
    }
}

/// What to do about a home that others may write to. One with the sticky bit is a place for all, as
/// /tmp is.
fn closed_to_writing(path: &Path, mode: u32) -> String {
    let choose = "choose a directory of your own with HOLDFAST_HOME";
    if mode & 0o1000 != 0 {
        format!("{choose}, such as {}", path.join("NAME").display())
    } else {
        format!("`chmod go-w {}` forbids it, or {choose}", path.display())
    }
}
