//! The granted regions as the backings of heaps, and the way to get them.
//!
//! Invariants: each granted heap is attached once at a time. One thread has a transaction in one
//! heap at a time, as two heaps do not commit together. In WebAssembly `malloc` is initialised
//! before the regions appear. Older C libraries take everything up to the end of linear memory for
//! `malloc` at its first use; they must never see the region there.

use core::fmt;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use holdfast_channel::BootError;
use holdfast_channel::heaps::HEAPS_MAX;
use holdfast_heap::{Backing, GrowError, OpenError, OpenOptions, OpenTransactions, Pointers};
use holdfast_types::Durability;
use holdfast_types::RequestStatus;

use crate::{compartment, platform};

/// What to tell a user who starts a native applet by hand.
pub(crate) const NO_HOST: &str =
    "this program is an applet and was not started by a host; run it with holdfast run";

/// The applet's persistent heap.
pub type Heap = holdfast_heap::Heap<HostRegion>;

/// What the host has granted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Granted {
    /// Which of the grants it is; less than [`HEAPS_MAX`].
    pub(crate) index: u32,
    pub(crate) address: u64,
    pub(crate) backed_bytes: u64,
    pub(crate) limit_bytes: u64,
    pub(crate) is_new: bool,
    pub(crate) is_read_only: bool,
    /// What is stored counts when the host publishes it.
    pub(crate) is_atomic: bool,
    /// It survives a reset of the machine, if the heap keeps the order of its stores.
    pub(crate) is_ordered: bool,
    /// A thread may have it for itself.
    pub(crate) is_compartment: bool,
}

impl Granted {
    /// Whether the host may roll it back.
    fn is_revocable(&self) -> bool {
        self.is_atomic && !self.is_read_only
    }
}

/// The region that the host mapped into this program's memory, or had it map.
#[derive(Debug)]
pub struct HostRegion {
    granted: Granted,
    /// The program stores references in it and no pointers.
    portable: bool,
}

impl HostRegion {
    /// Makes everything that was stored to this heap so far durable at a level. Not inside a
    /// transaction: an open one would be rolled back by the program that opens the stored copy.
    ///
    /// # Errors
    /// When the host does not offer the level or failed to reach it.
    pub fn commit(&self, level: Durability) -> Result<(), CommitError> {
        commit_one(self.granted.index, level)
    }

    /// Which of the granted heaps it is, in the order of the grants.
    #[must_use]
    pub fn index(&self) -> usize {
        self.granted.index as usize
    }

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

/// The most that is asked for beyond what is needed.
const AHEAD_BYTES_MAX: u64 = 32 << 20;

/// How far to grow where `needed` bytes are: twice what there is, or [`AHEAD_BYTES_MAX`] more.
fn generous(backed_bytes: u64, needed: u64) -> u64 {
    needed.max(backed_bytes.saturating_add(backed_bytes.min(AHEAD_BYTES_MAX)))
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

    fn enter_transaction(&self) -> bool {
        let enter = || TRANSACTIONS.enter(self.index(), platform::thread_mark());
        // The transaction in the other heap may be that of a thread that has ended.
        enter() || (compartment::free_predecessors() && enter())
    }

    fn leave_transaction(&self) {
        TRANSACTIONS.leave(self.granted.index as usize);
    }

    fn grow(&mut self, bytes: u64) -> Result<u64, GrowError> {
        // Each request crosses the sandbox, so this asks for more than is needed where it can.
        let generous = generous(self.granted.backed_bytes, bytes).min(self.granted.limit_bytes);
        let grown = match platform::grow(self.granted.index, generous) {
            Err(RequestStatus::LimitReached | RequestStatus::NoRoom) if generous > bytes => {
                platform::grow(self.granted.index, bytes)
            }
            grown => grown,
        };
        match grown {
            Ok(backed) => {
                self.granted.backed_bytes = backed;
                if let Some(known) = BACKED.get(self.index()) {
                    known.fetch_max(backed, Ordering::Relaxed);
                }
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

impl Drop for HostRegion {
    /// A heap that is let go of in the middle of a transaction ends it, as a kill would, and may be
    /// attached again.
    fn drop(&mut self) {
        abandon(self.index());
    }
}

/// Of the granted heaps.
static TRANSACTIONS: OpenTransactions<HEAPS_MAX> = OpenTransactions::new();

/// What this run has grown each heap to, for the next to open it; 0: nothing.
static BACKED: [AtomicU64; HEAPS_MAX] = [const { AtomicU64::new(0) }; HEAPS_MAX];

/// Whether the calling thread has a transaction open, in whichever heap.
pub(crate) fn is_in_transaction() -> bool {
    TRANSACTIONS.has(platform::thread_mark())
}

/// The thread that held a heap has ended: its transaction is over, and the heap may be attached
/// again.
pub(crate) fn abandon(index: usize) {
    TRANSACTIONS.leave(index);
    detach(index);
}

/// Why there is no heap.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AttachError {
    /// The run was started without a heap, or without one of that name.
    NotGranted,
    /// No host has started this program.
    NoHost,
    /// This program has attached already.
    AlreadyAttached,
    /// Another thread has entered the compartment; or each, where any would do.
    Held,
    /// This thread has entered a compartment already.
    InCompartment,
    /// This thread has a transaction open.
    InTransaction,
    /// The compartment is in the mode `atomic`, in which the host publishes what all threads have
    /// stored together.
    AtomicCompartment,
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
                "no heap was granted, or none of that name; its host grants one: `holdfast run --heap NAME`, in Python \
                 heap=\"NAME\", in Rust Grants::heap",
            ),
            Self::NoHost => f.write_str(NO_HOST),
            Self::AlreadyAttached => f.write_str("this heap is attached already; pass the value on that attach returned"),
            Self::Held => f.write_str(
                "another thread has entered the compartment; wait until it leaves, or have the host grant one for each thread",
            ),
            Self::InCompartment => f.write_str("this thread has entered a compartment; leave it first"),
            Self::InTransaction => f.write_str("this thread has a transaction open; commit or abort it first"),
            Self::AtomicCompartment => f.write_str(
                "the compartment is in the mode atomic, in which threads cannot have one each; have the host grant it in the \
                 mode direct",
            ),
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

/// One bit for each heap that is attached.
static ATTACHED: AtomicU32 = AtomicU32::new(0);

/// One bit for each of them that the host may roll back.
static REVOCABLE: AtomicU32 = AtomicU32::new(0);

const _: () = assert!(HEAPS_MAX <= u32::BITS as usize);

/// Whether a heap is attached that the host may roll back.
pub(crate) fn has_revocable() -> bool {
    REVOCABLE.load(Ordering::Relaxed) != 0
}

fn detach(index: usize) {
    REVOCABLE.fetch_and(!(1 << index), Ordering::Relaxed);
    // The next to attach it sees all that was stored to it.
    ATTACHED.fetch_and(!(1 << index), Ordering::Release);
}

/// Maps the heap that was granted first into this program and opens it: formats a new one, rolls
/// back what a killed run left open, and otherwise costs the same few microseconds whatever the
/// heap's size.
///
/// # Errors
/// When the host granted none, cannot map it here, or its bytes are not a heap for this program.
pub fn attach() -> Result<Heap, AttachError> {
    attach_with(None, false)
}

/// As [`attach`], for a program that stores references ([`Ref`](crate::Ref)) in the heap and no
/// pointers: a new heap becomes a portable one, which native applets, applets in WebAssembly and
/// native programs open that say the same. In WebAssembly it lies wherever there is room.
///
/// # Errors
/// As for [`attach`]; [`OpenError::NotPortable`] for a heap with pointers. One that is portable is
/// refused by [`attach`] with [`OpenError::Portable`].
pub fn attach_portable() -> Result<Heap, AttachError> {
    attach_with(None, true)
}

/// The same with the heap that the program's host has granted under this name.
///
/// # Errors
/// As for [`attach_portable`] and [`attach_named`].
pub fn attach_portable_named(name: &str) -> Result<Heap, AttachError> {
    attach_with(Some(name), true)
}

/// The same with the heap that the program's host has granted under this name. Each is a heap of
/// its own, with its own transactions: a thread that has one open in one heap is refused one in
/// another ([`HeapError::OtherHeap`](crate::HeapError::OtherHeap)). A compartment that was not
/// granted first is entered instead ([`Compartment`](crate::Compartment)).
///
/// # Errors
/// As for [`attach`]; [`AttachError::NotGranted`] if there is none of that name.
pub fn attach_named(name: &str) -> Result<Heap, AttachError> {
    attach_with(Some(name), false)
}

/// Which of the granted heaps the host calls so, in the order of the grants.
///
/// # Errors
/// As for [`attach_named`].
pub fn index_of(name: &str) -> Result<usize, AttachError> {
    if name.is_empty() {
        return Err(AttachError::NotGranted);
    }
    platform::attach(Some(name)).map(|granted| granted.index as usize)
}

/// [`attach`] and [`attach_portable`], of the heap of this name or of the first one, for libraries
/// that know by a value which it is.
///
/// # Errors
/// As for these.
pub fn attach_with(name: Option<&str>, portable: bool) -> Result<Heap, AttachError> {
    if name.is_some_and(str::is_empty) {
        return Err(AttachError::NotGranted);
    }
    let granted = platform::attach(name)?;
    // Any thread may come here.
    if granted.is_compartment && granted.index != 0 {
        return Err(AttachError::NotGranted);
    }
    open_granted(granted, portable)
}

/// Opens a granted heap, unless the program has it already, with all bytes that this run has grown
/// it to: the platform may know only what was there when the program began.
pub(crate) fn open_granted(mut granted: Granted, portable: bool) -> Result<Heap, AttachError> {
    let grown = BACKED.get(granted.index as usize).map_or(0, |known| known.load(Ordering::Relaxed));
    granted.backed_bytes = granted.backed_bytes.max(grown);
    let bit = 1 << granted.index;
    if ATTACHED.fetch_or(bit, Ordering::Acquire) & bit != 0 {
        return Err(AttachError::AlreadyAttached);
    }
    if granted.is_revocable() {
        REVOCABLE.fetch_or(bit, Ordering::Relaxed);
    }
    // The region of one that is refused is dropped there: it can be attached as one of another
    // kind.
    open(HostRegion { granted, portable })
}

fn open(region: HostRegion) -> Result<Heap, AttachError> {
    let pointers = match region.portable {
        true => Pointers::PORTABLE,
        false => Pointers { base: region.granted.address, bytes: size_of::<usize>() as u32 },
    };
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
    if region.granted.is_revocable() {
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

/// [`HostRegion::commit`] of the heap that was granted first.
///
/// # Errors
/// As there.
pub fn commit(level: Durability) -> Result<(), CommitError> {
    commit_one(0, level)
}

fn commit_one(index: u32, level: Durability) -> Result<(), CommitError> {
    platform::commit(index, level.number()).map_err(|status| match status {
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
