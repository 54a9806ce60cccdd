//! The granted region as the heap's backing, and the way to get it.
//!
//! Invariant: `malloc` is initialised before the region appears. Older C libraries take everything up to
//! the end of linear memory for `malloc` at its first use; they must never see the region there.

use core::fmt;
use core::hint::black_box;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::imports;
use holdfast_heap::{Backing, GrowError, OpenError, OpenOptions, Pointers};

/// The applet's persistent heap.
pub type Heap = holdfast_heap::Heap<HostRegion>;

/// The region that the host mapped into this program's memory.
#[derive(Debug)]
pub struct HostRegion {
    info: imports::RegionInfo,
}

impl HostRegion {
    /// Whether the region was made in this run.
    pub fn is_new(&self) -> bool {
        self.info.flags & 1 == 1
    }

    /// Whether the run's key may only read the heap. Reading works as ever; what would change the heap is
    /// [`HeapError::ReadOnly`](crate::HeapError::ReadOnly), and a plain store ends the program.
    pub fn is_read_only(&self) -> bool {
        self.info.flags & 2 == 2
    }
}

// SAFETY: the host maps the region at a fixed address, backs what it reports, never shrinks it, and gives it
// to this program alone; `attach` hands out one value per program.
unsafe impl Backing for HostRegion {
    fn base(&self) -> *mut u8 {
        self.info.base as usize as *mut u8
    }

    fn backed_bytes(&self) -> u64 {
        self.info.backed
    }

    fn limit_bytes(&self) -> u64 {
        self.info.limit
    }

    fn is_read_only(&self) -> bool {
        HostRegion::is_read_only(self)
    }

    fn grow(&mut self, bytes: u64) -> Result<u64, GrowError> {
        // SAFETY: no pointers are passed.
        match unsafe { imports::grow(bytes as i64) } {
            backed if backed >= 0 => {
                self.info.backed = backed as u64;
                Ok(self.info.backed)
            }
            code if code == -i64::from(imports::LIMIT_REACHED) => {
                Err(GrowError::LimitReached { limit_bytes: self.info.limit })
            }
            code if code == -i64::from(imports::NO_ROOM) => Err(GrowError::NoRoom),
            _ => Err(GrowError::Failed),
        }
    }
}

/// Why there is no heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AttachError {
    /// The run was started without `--heap`.
    NotGranted,
    /// This program has attached already.
    AlreadyAttached,
    /// The module's memory leaves no room for the region: a declared maximum, or 2 GiB in use already.
    MemoryShape,
    /// The host failed; its code.
    Host(i32),
    /// The region's bytes are not a heap for this program.
    Open(OpenError),
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotGranted => f.write_str("no heap was granted; start the applet with --heap NAME"),
            Self::AlreadyAttached => f.write_str("the heap is attached already; pass the value on that attach returned"),
            Self::MemoryShape => f.write_str(
                "the module's memory has no room for the heap at 2 GiB; link it without a maximum memory size \
                 and attach before allocating that much",
            ),
            Self::Host(code) => write!(f, "the host could not map the heap (code {code}); run `holdfast doctor`"),
            Self::Open(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for AttachError {}

impl From<OpenError> for AttachError {
    fn from(error: OpenError) -> Self {
        Self::Open(error)
    }
}

static ATTACHED: AtomicBool = AtomicBool::new(false);

/// Maps the granted heap into this program and opens it: formats a new one, rolls back what a killed run left
/// open, and otherwise costs the same few microseconds whatever the heap's size.
///
/// # Errors
/// When the host granted none, cannot map it here, or its bytes are not a heap for this program.
pub fn attach() -> Result<Heap, AttachError> {
    if ATTACHED.swap(true, Ordering::Relaxed) {
        return Err(AttachError::AlreadyAttached);
    }
    let mut info = imports::RegionInfo::default();
    // SAFETY: a pair of C calls that initialises malloc (see the file's header); `info` is a live record of
    // the layout that the import writes.
    let code = unsafe {
        imports::free(black_box(imports::malloc(1)));
        imports::attach(&mut info)
    };
    match code {
        0 => {}
        imports::NOT_GRANTED => return Err(AttachError::NotGranted),
        imports::MEMORY_SHAPE => return Err(AttachError::MemoryShape),
        code => return Err(AttachError::Host(code)),
    }
    let pointers = Pointers { base: info.base, bytes: size_of::<usize>() as u32 };
    let options = OpenOptions { pointers: Some(pointers), format_if_empty: true };
    Ok(holdfast_heap::Heap::open(HostRegion { info }, options)?)
}

/// Which failure a commit must survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// A crash, hang or kill of the applet or its host. Holds at all times; costs nothing.
    Process,
    /// A crash or reset of the machine.
    System,
    /// Loss of power.
    Power,
}

/// Why a commit is not durable at the level asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CommitError {
    /// The host does not offer the level.
    Unsupported,
    /// The host failed; its code.
    Host(i32),
}

impl fmt::Display for CommitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported => {
                f.write_str("the host does not offer this durability level; ask for `power`")
            }
            Self::Host(code) => {
                write!(f, "the host could not make the commit durable (code {code}); run `holdfast doctor`")
            }
        }
    }
}

impl core::error::Error for CommitError {}

/// Makes everything stored so far durable at a level. Not inside a transaction: an open one would be rolled
/// back by whoever opens the stored copy.
///
/// # Errors
/// When the host does not offer the level or failed to reach it.
pub fn commit(level: Durability) -> Result<(), CommitError> {
    let level = match level {
        Durability::Process => 0,
        Durability::System => 1,
        Durability::Power => 2,
    };
    // SAFETY: no pointers are passed.
    match unsafe { imports::commit(level) } {
        0 => Ok(()),
        imports::UNSUPPORTED => Err(CommitError::Unsupported),
        code => Err(CommitError::Host(code)),
    }
}
