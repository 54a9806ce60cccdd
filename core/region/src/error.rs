//! The one error type of opening, creating, removing, growing and checkpointing a region.
//!
//! Fields carry what happened; the message adds what to do next. No variant means that data was
//! changed: every operation that fails leaves image and base as they were, unless the variant says
//! otherwise.

#![forbid(unsafe_code)]

pub(crate) mod access;
pub(crate) mod key;
pub(crate) mod kind;
pub(crate) mod limit;
pub(crate) mod place;
pub(crate) mod remedy;
pub(crate) mod room;
pub(crate) mod snapshot;
pub(crate) mod stream;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_sys::process::Occupant;
use holdfast_sys::shortage;
use holdfast_types::{Remedy, RequestStatus};

use crate::error::access::AccessError;
use crate::error::key::KeyError;
pub use crate::error::kind::ErrorKind;
use crate::error::limit::LimitError;
use crate::error::place::PlaceError;
pub use crate::error::remedy::FileRemedy;
use crate::error::remedy::{in_units, io_remedy, near_text};
use crate::error::room::RoomReport;
use crate::error::snapshot::SnapshotError;
use crate::error::stream::StreamError;
use crate::name::NameError;

/// Short for results of this crate.
pub type Result<T> = std::result::Result<T, RegionError>;

/// Why an operation on a region failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegionError {
    /// The name breaks the rules.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A directory cannot be used.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// A key cannot be used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The key may not do this, or no key may.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// A snapshot is missing, or there is one already.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// A stream cannot be imported.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// A limit cannot be changed to what was asked for.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// Neither image nor base exists.
    #[error("there is no heap {name:?}{}; {}", near_text(near), Remedy::ListHeaps)]
    NotFound {
        /// The name asked for.
        name: String,
        /// Names that are close to it, best first.
        near: Vec<String>,
    },
    /// `create` found an image or a base.
    #[error(
        "the heap {name:?} exists already; open it, or {}",
        Remedy::Remove { heap: Some(name) }
    )]
    AlreadyExists {
        /// The name asked for.
        name: String,
    },
    /// Another opener has the region.
    #[error("the heap {name:?} is held by {}; wait for it to end, or end it", holder_text(*holder))]
    Held {
        /// Name of the region.
        name: String,
        /// The process that writes it; `None` when only readers hold it, or when the holder is
        /// unknown.
        holder: Option<u32>,
    },
    /// The region belongs to another key, which granted this one nothing, or not this.
    #[error(
        "the heap {name:?} belongs to another key; use the key that created it, or {}. To find that key, {}; if \
         its file was lost, put it back from a copy, or {}",
        Remedy::Grant { heap: Some(name) },
        Remedy::ListKeys,
        Remedy::Copy { heap: Some(name) }
    )]
    NotOwner {
        /// Name of the region.
        name: String,
    },
    /// A file ends before the place its header claims, or before the end of the header.
    #[error("{} is cut off: {found_bytes} bytes, {needed_bytes} expected; {remedy}", path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// What it should have.
        needed_bytes: u64,
        /// What it has.
        found_bytes: u64,
        /// What to do.
        remedy: FileRemedy,
    },
    /// The file does not start like a Holdfast file.
    #[error("{} is no Holdfast file; {remedy}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What to do.
        remedy: FileRemedy,
    },
    /// The file is a region's, but under the file name of another one.
    #[error(
        "{} holds the heap {name_in_header:?}, so it was renamed or copied; give it back its own name",
        path.display()
    )]
    Renamed {
        /// The file.
        path: PathBuf,
        /// The name that it was created with.
        name_in_header: String,
    },
    /// Neither header slot is valid.
    #[error("both headers of {} are damaged; {remedy}", path.display())]
    HeaderDamaged {
        /// The file.
        path: PathBuf,
        /// What to do.
        remedy: FileRemedy,
    },
    /// The data area of a base file does not match its checksum.
    #[error(
        "the data of {} is damaged (checksum {found:016x}, {expected:016x} expected); {remedy}",
        path.display()
    )]
    DataDamaged {
        /// The file.
        path: PathBuf,
        /// Checksum in the header.
        expected: u64,
        /// Checksum of the data.
        found: u64,
        /// What to do.
        remedy: FileRemedy,
    },
    /// A record of a journal, or its header (record 0), is damaged, and it is not the end that a
    /// writer who died leaves.
    #[error("the journal {} is damaged at byte {offset} (record {record}); {remedy}", path.display())]
    JournalDamaged {
        /// The journal.
        path: PathBuf,
        /// Number of the first record that is damaged.
        record: u64,
        /// Where it starts.
        offset: u64,
        /// What to do.
        remedy: FileRemedy,
    },
    /// The journal continues a checkpoint that the base file is not.
    #[error(
        "the journal {} continues another checkpoint than the base file beside it, so one of them was replaced \
         by hand; {remedy}",
        path.display()
    )]
    JournalMismatch {
        /// The journal.
        path: PathBuf,
        /// What to do.
        remedy: FileRemedy,
    },
    /// A record of the journal is whole, and says more bytes than the base file's header allows:
    /// that header is an older one. Nothing that was committed is lost.
    #[error(
        "record {record} of the journal {} is whole and makes the heap {backed_bytes} bytes large, where the base file \
         beside it says a limit of {limit_bytes}, so that file's newest header is lost; {remedy}",
        path.display()
    )]
    JournalMisfit {
        /// The journal.
        path: PathBuf,
        /// Number of the record.
        record: u64,
        /// Backed bytes that it says.
        backed_bytes: u64,
        /// The limit that the base file says.
        limit_bytes: u64,
        /// What to do.
        remedy: FileRemedy,
    },
    /// A reset may have torn the image, and there is nothing to go back to.
    #[error(
        "the machine started again while a program whose stores need not have reached memory had {} open, and there is no \
         commit to go back to; {}, or {}",
        path.display(),
        Remedy::Salvage { file: &path.display() },
        Remedy::Remove { heap: Some(name) }
    )]
    Torn {
        /// The image.
        path: PathBuf,
        /// Name of the region.
        name: String,
    },
    /// A rollback in the mode `direct`.
    #[error(
        "the heap {name:?} is open in the mode `direct`, where every store counts at once and no rollback takes it \
         back; change it in transactions, which can be aborted (nv_tx_abort), or open it in the mode `atomic`"
    )]
    NotAtomic {
        /// The region.
        name: String,
    },
    /// A commit of several threads failed in the thread that carried it out.
    #[error("the commit that this one was part of failed: {cause}")]
    SharedCommit {
        /// The failure, the same for all of them.
        cause: Arc<RegionError>,
    },
    /// The file was written by a newer Holdfast.
    #[error(
        "{} has format version {found} (flags {flags:#x}), this program knows version {known}; use a newer \
         Holdfast",
        path.display()
    )]
    NewerFormat {
        /// The file.
        path: PathBuf,
        /// Version in the header.
        found: u32,
        /// Feature flags in the header.
        flags: u32,
        /// Newest version known here.
        known: u32,
    },
    /// The pool has no room; nothing was changed.
    #[error(
        "the pool {} has {} free and {} are needed; {room}{}{} and remove what is not needed, or set \
         HOLDFAST_POOL to a larger tmpfs",
        pool.display(),
        in_units(*available_bytes),
        in_units(*needed_bytes),
        disk_text(*needed_bytes, *disk_bytes, home),
        Remedy::ListHeaps
    )]
    NoRoom {
        /// Bytes that were to be allocated.
        needed_bytes: u64,
        /// Bytes that the pool's file system offers.
        available_bytes: u64,
        /// The pool.
        pool: PathBuf,
        /// The home, on whose disk a heap can lie, too.
        home: PathBuf,
        /// Bytes that this disk offers.
        disk_bytes: u64,
        /// What was done to make room.
        room: Box<RoomReport>,
    },
    /// The disk has no room for an image that lies there; nothing was changed.
    #[error(
        "the heap lies on the disk of {}, which has {} free, and {} are needed (the pool {} has {}); free some, {} and \
         remove what is not needed, or set HOLDFAST_HOME to a larger disk",
        home.display(),
        in_units(*available_bytes),
        in_units(*needed_bytes),
        pool.display(),
        in_units(*pool_bytes),
        Remedy::ListHeaps
    )]
    NoRoomOnDisk {
        /// Bytes that were to be allocated.
        needed_bytes: u64,
        /// Bytes that the disk offers.
        available_bytes: u64,
        /// The home.
        home: PathBuf,
        /// The pool, in which a heap can lie, too.
        pool: PathBuf,
        /// Bytes that its file system offers.
        pool_bytes: u64,
    },
    /// The store has no room for a checkpoint; the earlier checkpoint and the image are whole.
    #[error(
        "the store {} has {} free and a checkpoint needs up to {}; free some, then checkpoint again",
        store.display(),
        in_units(*available_bytes),
        in_units(*needed_bytes)
    )]
    StoreFull {
        /// Upper bound of the bytes that the checkpoint writes.
        needed_bytes: u64,
        /// Bytes that the store's file system offers.
        available_bytes: u64,
        /// The store.
        store: PathBuf,
    },
    /// The region may not grow further.
    #[error(
        "the heap may grow to {} and {} were asked for; {}",
        in_units(*limit_bytes),
        in_units(*asked_bytes),
        Remedy::RaiseLimit { heap: None }
    )]
    LimitReached {
        /// The region's limit.
        limit_bytes: u64,
        /// What was asked for.
        asked_bytes: u64,
    },
    /// The limit asked for at creation is out of range.
    #[error(
        "a heap can have 1 to {max_bytes} bytes and {asked_bytes} were asked for; choose another size"
    )]
    LimitOutOfRange {
        /// What was asked for.
        asked_bytes: u64,
        /// The largest limit.
        max_bytes: u64,
    },
    /// The region's native address is in use in this process.
    #[error(
        "the heap's address {address:#x} is taken in this process by {by}; open it in a fresh process, or before \
         that is mapped (a heap whose objects all have types can also be relocated)"
    )]
    AddressTaken {
        /// The region's address.
        address: u64,
        /// What sits there.
        by: Occupant,
    },
    /// The process may not have as much address space as the region's limit.
    #[error(
        "the kernel gives this process no {needed_bytes} bytes of address space at the heap's address ({source}{}); \
         raise the limit (`ulimit -v unlimited`)",
        limit_text(*limit_bytes)
    )]
    AddressSpace {
        /// The region's limit.
        needed_bytes: u64,
        /// `RLIMIT_AS`, if there is one.
        limit_bytes: Option<u64>,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The window of native addresses has no free slot of that size.
    #[error(
        "no free address range for {limit_bytes} bytes; remove heaps or ask for a smaller limit"
    )]
    AddressesExhausted {
        /// The limit asked for.
        limit_bytes: u64,
    },
    /// Another process kept the lock on the name space for seconds.
    #[error("the name space {} has been locked for seconds; look for a stopped holdfast process", path.display())]
    NamesBusy {
        /// The lock file.
        path: PathBuf,
    },
    /// The region is mapped already.
    #[error("the heap is mapped already; unmap it first")]
    AlreadyMapped,
    /// An earlier I/O error left the state unknown.
    #[error(
        "an earlier I/O error left the heap {name:?} in an unknown state; close it and open it again"
    )]
    Poisoned {
        /// Name of the region.
        name: String,
    },
    /// The image was truncated while it was mapped.
    #[error(
        "the image {} was cut off while in use, so its newest data is gone; {remedy}",
        path.display()
    )]
    BackingLost {
        /// The image.
        path: PathBuf,
        /// What to do.
        remedy: FileRemedy,
    },
    /// The disk under a mapped image failed or was full, though the image has its whole length.
    #[error(
        "the image {} could not be read or allocated while in use (an error of the disk, or no room on it), so what \
         was stored there is gone; look after the disk, then: {remedy}",
        path.display()
    )]
    BackingFailed {
        /// The image.
        path: PathBuf,
        /// What to do.
        remedy: FileRemedy,
    },
    /// Another image took the name while this one was in use, so the pool's files were removed by
    /// hand.
    #[error(
        "{} was replaced while in use, so somebody removed files of the pool by hand; this session's stores \
         were not written to the store: end the other session, then start again from the last checkpoint",
        path.display()
    )]
    Displaced {
        /// The image.
        path: PathBuf,
    },
    /// The base file beside an image is that of another region of the same name.
    #[error(
        "{} is the checkpoint of another heap {name:?} than the image {}, so one of the two was put there by \
         hand; move the one that is not wanted away; to keep both, first {}",
        base.display(),
        image.display(),
        Remedy::Salvage { file: &image.display() }
    )]
    Clash {
        /// The name of both.
        name: String,
        /// The base file.
        base: PathBuf,
        /// The image.
        image: PathBuf,
    },
    /// `remove_image` would have destroyed the only copy.
    #[error(
        "the heap {name:?} has no checkpoint, so its image is the only copy; remove the whole heap instead"
    )]
    OnlyCopy {
        /// Name of the region.
        name: String,
    },
    /// `remove_damaged` of a region whose owner is known.
    #[error(
        "a file of the heap {name:?} tells whose it is, so nothing was removed; its owner can do it: {}",
        Remedy::Remove { heap: Some(name) }
    )]
    OwnerKnown {
        /// Name of the region.
        name: String,
    },
    /// The image has commits that the store has lost.
    #[error(
        "the store lacks commits that the image of the heap {name:?} has (a file of it was removed or replaced); first {}, \
         which brings them there",
        Remedy::Checkpoint { heap: name }
    )]
    StoreBehind {
        /// Name of the region.
        name: String,
    },
    /// `read_at` past the end of the backed data.
    #[error("bytes {offset}..{} are past the {backed_bytes} backed bytes; read less", offset.saturating_add(*len_bytes))]
    OutOfBounds {
        /// Start of the read.
        offset: u64,
        /// Length of the read.
        len_bytes: u64,
        /// Backed bytes of the region.
        backed_bytes: u64,
    },
    /// A file needs more memory at once than the kernel gives; it may claim more than it has.
    #[error(
        "{} needs {needed_bytes} bytes of memory at once, more than this process gets; raise its limit (`ulimit -v`), free \
         some, or take a machine with more, if the file is as large as it says",
        path.display()
    )]
    NoMemory {
        /// The file.
        path: PathBuf,
        /// Bytes that were asked for.
        needed_bytes: u64,
    },
    /// The kernel refused a step.
    #[error("cannot {step} {}: {source}{}", path.display(), io_remedy(source))]
    Io {
        /// The step, as a verb.
        step: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl RegionError {
    /// Of reading so many bytes of a file into memory.
    pub(crate) fn read_whole(
        path: impl Into<PathBuf>,
        needed_bytes: u64,
    ) -> impl FnOnce(io::Error) -> RegionError {
        let path = path.into();
        move |source| match source.kind() {
            io::ErrorKind::OutOfMemory => RegionError::NoMemory { path, needed_bytes },
            _ => RegionError::Io { step: "read", path, source },
        }
    }

    pub(crate) fn io(
        step: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> RegionError {
        let path = path.into();
        move |source| RegionError::Io { step, path, source }
    }
}

fn disk_text(needed_bytes: u64, disk_bytes: u64, home: &Path) -> String {
    let place = format!("{}, which has {} free", home.display(), in_units(disk_bytes));
    if disk_bytes < needed_bytes {
        return format!("nor does it fit on the disk of {place}: ");
    }
    format!("there is room on the disk of {place}: {}, ", Remedy::PutOnDisk)
}

fn limit_text(limit_bytes: Option<u64>) -> String {
    limit_bytes.map_or(String::new(), |bytes| format!("; RLIMIT_AS is {bytes}"))
}

fn holder_text(holder: Option<u32>) -> String {
    match holder {
        Some(pid) => format!("process {pid}"),
        None => "another process (a reader, or one that cannot be named)".to_owned(),
    }
}

impl RegionError {
    /// What kind of failure this is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            RegionError::Name(_)
            | RegionError::LimitOutOfRange { .. }
            | RegionError::AlreadyMapped
            | RegionError::OnlyCopy { .. }
            | RegionError::OwnerKnown { .. }
            | RegionError::StoreBehind { .. }
            | RegionError::NotAtomic { .. }
            | RegionError::OutOfBounds { .. } => ErrorKind::Usage,
            RegionError::SharedCommit { cause } => cause.kind(),
            RegionError::NotFound { .. } | RegionError::Snapshot(SnapshotError::Missing { .. }) => {
                ErrorKind::NotFound
            }
            RegionError::AlreadyExists { .. }
            | RegionError::Snapshot(SnapshotError::Exists { .. }) => ErrorKind::AlreadyExists,
            RegionError::Limit(_) => ErrorKind::Usage,
            RegionError::Stream(StreamError::Unreadable { .. }) => ErrorKind::Io,
            RegionError::Held { .. } | RegionError::NamesBusy { .. } => ErrorKind::Held,
            RegionError::NotOwner { .. } => ErrorKind::Denied,
            RegionError::Access(error) => error.kind(),
            RegionError::Stream(_)
            | RegionError::Truncated { .. }
            | RegionError::Foreign { .. }
            | RegionError::Renamed { .. }
            | RegionError::HeaderDamaged { .. }
            | RegionError::DataDamaged { .. }
            | RegionError::JournalDamaged { .. }
            | RegionError::JournalMismatch { .. }
            | RegionError::JournalMisfit { .. }
            | RegionError::NewerFormat { .. }
            | RegionError::Displaced { .. }
            | RegionError::Clash { .. }
            | RegionError::Torn { .. }
            | RegionError::BackingLost { .. } => ErrorKind::BadFile,
            RegionError::NoRoom { .. }
            | RegionError::NoRoomOnDisk { .. }
            | RegionError::StoreFull { .. }
            | RegionError::LimitReached { .. }
            | RegionError::AddressesExhausted { .. } => ErrorKind::NoRoom,
            RegionError::Key(error) => error.kind(),
            RegionError::Place(error) => error.kind(),
            RegionError::AddressTaken { .. }
            | RegionError::AddressSpace { .. }
            | RegionError::Poisoned { .. }
            | RegionError::NoMemory { .. }
            | RegionError::BackingFailed { .. }
            | RegionError::Io { .. } => ErrorKind::Io,
        }
    }
}

impl RegionError {
    /// Whether it is about a file of which nothing was seen: see [`is_unseen`].
    pub(crate) fn is_unseen(&self) -> bool {
        matches!(self, RegionError::Io { step, source, .. } if is_unseen(step, source))
    }
}

/// Whether a file was not looked at, as it could not be opened, or as this process had no memory or
/// descriptor left: it may be whole, newer, or another region's. A medium that cannot give its
/// bytes is another matter: no program gets them.
pub(crate) fn is_unseen(step: &str, source: &io::Error) -> bool {
    step == "open"
        || source.kind() == io::ErrorKind::OutOfMemory
        || shortage::remedy(source).is_some()
}

/// What an applet is answered whose request about its heap failed so.
impl From<&RegionError> for RequestStatus {
    fn from(error: &RegionError) -> RequestStatus {
        match error {
            RegionError::LimitReached { .. }
            | RegionError::Access(
                AccessError::QuotaReached { .. } | AccessError::NoQuotaLeft { .. },
            ) => RequestStatus::LimitReached,
            RegionError::Access(AccessError::ReadOnly { .. }) => RequestStatus::ReadOnly,
            other if other.kind() == ErrorKind::NoRoom => RequestStatus::NoRoom,
            _ => RequestStatus::Failed,
        }
    }
}
