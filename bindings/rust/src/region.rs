//! The granted region as the heap's backing, and the way to get it.
//!
//! Invariant: in WebAssembly `malloc` is initialised before the region appears. Older C libraries
//! take everything up to the end of linear memory for `malloc` at its first use; they must never
//! see the region there.

use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering};

use holdfast_channel::BootError;
use holdfast_heap::{Backing, GrowError, OpenError, OpenOptions, Pointers};
use holdfast_types::Durability;
use holdfast_types::RequestStatus;

use crate::platform;

/// What to tell a user who starts a native applet by hand.
pub(crate) const NO_HOST: &str =
    "this program is an applet and was not started by a host; run it with holdfast run";

/// The applet's persistent heap.
pub type Heap = holdfast_heap::Heap<HostRegion>;

/// What the host has granted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Granted {
    pub(crate) address: u64,
    pub(crate) backed_bytes: u64,
    pub(crate) limit_bytes: u64,
    pub(crate) is_new: bool,
    pub(crate) is_read_only: bool,
    /// What is stored counts when the host publishes it.
    pub(crate) is_atomic: bool,
    /// It survives a reset of the machine, if the heap keeps the order of its stores.
    pub(crate) is_ordered: bool,
}

/// The region that the host mapped into this program's memory, or had it map.
#[derive(Debug)]
pub struct HostRegion {
    granted: Granted,
}

impl HostRegion {
    /// Whether the region was made in this run.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.granted.is_new
    }

    /// Whether the run's key may only read the heap. Reading works as ever; what would change the
    /// heap is [`HeapError::ReadOnly`](crate::HeapError::ReadOnly), and a plain store ends the
    /// program.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.granted.is_read_only
    }
}

// SAFETY: the region is mapped at a fixed address, backed as the host says, never shrinks, and is
// this program's alone; `attach` hands out one value per program.
unsafe impl Backing for HostRegion {
    fn base(&self) -> *mut u8 {
        self.granted.address as usize as *mut u8
    }

    fn backed_bytes(&self) -> u64 {
        self.granted.backed_bytes
    }

    fn limit_bytes(&self) -> u64 {
        self.granted.limit_bytes
    }

    fn is_read_only(&self) -> bool {
        HostRegion::is_read_only(self)
    }

    fn is_ordered(&self) -> bool {
        self.granted.is_ordered
    }

    fn grow(&mut self, bytes: u64) -> Result<u64, GrowError> {
        match platform::grow(bytes) {
            Ok(backed) => {
                self.granted.backed_bytes = backed;
                Ok(backed)
            }
            Err(RequestStatus::LimitReached) => {
                Err(GrowError::LimitReached { limit_bytes: self.granted.limit_bytes })
            }
            Err(RequestStatus::NoRoom) => Err(GrowError::NoRoom),
            Err(_) => Err(GrowError::Failed),
        }
    }
}

/// Why there is no heap.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AttachError {
    /// The run was started without `--heap`.
    NotGranted,
    /// No host has started this program.
    NoHost,
    /// This program has attached already.
    AlreadyAttached,
    /// There is no room for the region at its address: in WebAssembly the module's memory has a
    /// declared maximum, or 2 GiB in use already; natively something else is there.
    MemoryShape,
    /// The heap's memory is said to survive a reset of the machine, and cannot be mapped so that
    /// what is written back does.
    NotSynchronous,
    /// The host has rolled the heap back, and it was not handed to the function that serves.
    NotKept,
    /// The host's channel is not for this program.
    Boot(BootError),
    /// The host or the system failed; its code.
    Host(i32),
    /// The region's bytes are not a heap for this program.
    Open(OpenError),
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotGranted => f.write_str(
                "no heap was granted; its host grants one: `holdfast run --heap NAME`, in Python heap=\"NAME\", in Rust \
                 Grants::heap",
            ),
            Self::NoHost => f.write_str(NO_HOST),
            Self::AlreadyAttached => f.write_str("the heap is attached already; pass the value on that attach returned"),
            Self::MemoryShape if cfg!(target_family = "wasm") => f.write_str(
                "the module's memory has no room for the heap at 2 GiB; link it without a maximum memory size \
                 and attach before allocating that much",
            ),
            Self::MemoryShape => f.write_str(
                "the heap's address is taken, or its limit exceeds the program's address space; attach before anything \
                 large is mapped, and start the applet with room for the heap's limit",
            ),
            Self::NotSynchronous => f.write_str(
                "the heap's pool is no persistent memory for this program (MAP_SYNC is refused), so no commit at level \
                 `system` would hold; `holdfast doctor` says what the pool is",
            ),
            Self::NotKept => f.write_str(
                "the host took the heap back to its last commit, which this program's handle does not know; in the mode \
                 atomic serve with serve_heap",
            ),
            Self::Host(code) => write!(f, "the host could not map the heap (code {code}); run `holdfast doctor`"),
            Self::Boot(error) => error.fmt(f),
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

pub(crate) fn is_attached() -> bool {
    ATTACHED.load(Ordering::Relaxed)
}

/// Maps the granted heap into this program and opens it: formats a new one, rolls back what a
/// killed run left open, and otherwise costs the same few microseconds whatever the heap's size.
///
/// # Errors
/// When the host granted none, cannot map it here, or its bytes are not a heap for this program.
pub fn attach() -> Result<Heap, AttachError> {
    if ATTACHED.swap(true, Ordering::Relaxed) {
        return Err(AttachError::AlreadyAttached);
    }
    open(HostRegion { granted: platform::attach()? })
}

fn open(region: HostRegion) -> Result<Heap, AttachError> {
    let pointers = Pointers { base: region.granted.address, bytes: size_of::<usize>() as u32 };
    let options = OpenOptions { pointers: Some(pointers), format_if_empty: true };
    Ok(holdfast_heap::Heap::open(region, options)?)
}

/// Lets go of a heap whose region the host has changed, for libraries that serve
/// ([`HeapKeeper`](crate::HeapKeeper)): an open transaction is given up, and in the mode `atomic`
/// so is all that the host has not published. Pointers to what was published stay valid. [`reopen`]
/// goes on with what the region has now.
///
/// Two steps, because a heap is too large to be on the stack of a small applet more than a few
/// times.
#[inline(never)]
pub fn forget(heap: Heap) -> HostRegion {
    let region = heap.close();
    if region.granted.is_atomic && !region.granted.is_read_only {
        platform::drop_private_pages(&region.granted);
    }
    region
}

/// Opens the heap anew that [`forget`] let go of.
///
/// # Errors
/// When the region's bytes are no heap.
#[inline(never)]
pub fn reopen(region: HostRegion) -> Result<Heap, AttachError> {
    open(region)
}

/// Why a commit is not durable at the level asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
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
                write!(
                    f,
                    "the host could not make the commit durable (code {code}); run `holdfast doctor`"
                )
            }
        }
    }
}

impl core::error::Error for CommitError {}

holdfast_heap::show_as_text!(AttachError, CommitError);

/// Makes everything stored so far durable at a level. Not inside a transaction: an open one would
/// be rolled back by the program that opens the stored copy.
///
/// # Errors
/// When the host does not offer the level or failed to reach it.
pub fn commit(level: Durability) -> Result<(), CommitError> {
    platform::commit(level.number()).map_err(|status| match status {
        RequestStatus::Unsupported => CommitError::Unsupported,
        status => CommitError::Host(status.number()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A `main` that returned an error printed `Error: NotGranted`.
    #[test]
    fn main_prints_the_message_of_an_error() {
        let printed =
            |result: Result<(), AttachError>| std::format!("Error: {:?}", result.unwrap_err());
        let told = printed(Err(AttachError::NotGranted));
        for words in ["no heap was granted", "--heap NAME", "in Python heap=", "Grants::heap"] {
            assert!(told.contains(words), "{told}");
        }
        let told = printed(Err(AttachError::Open(OpenError::NotAHeap)));
        assert!(told.contains("is not a heap"), "{told}");
        let boxed: std::boxed::Box<dyn core::error::Error> = crate::ServeError::NoHost.into();
        assert!(std::format!("{boxed:?}").contains("not started by a host"));
        let told = std::format!("{:?}", crate::HeapError::NotAllocated);
        assert!(told.contains(' '), "{told}");
    }
}
