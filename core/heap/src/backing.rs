//! The backing of a heap: a range of persistent bytes that can grow in place. Implemented by the
//! guest library over the host's imports, by tests over plain memory, and by native hosts over a
//! region.

use crate::error::GrowError;

/// A growing, never moving range of bytes.
///
/// # Safety
/// Implementations promise, for as long as the value lives:
/// - `base()` is aligned to 16 bytes and never changes;
/// - `[base, base + backed_bytes)` is readable memory that nothing else writes to, and writable
///   unless `is_read_only` says otherwise;
/// - `backed_bytes` never shrinks, is a multiple of 64 KiB, and bytes that `grow` added stay.
pub unsafe trait Backing {
    /// First byte of the range.
    fn base(&self) -> *mut u8;
    /// Bytes that may be used now.
    fn backed_bytes(&self) -> u64;
    /// Bytes that the range can ever have.
    fn limit_bytes(&self) -> u64;
    /// Whether a store to the range would fault; the same for as long as the value lives. The heap
    /// on it can be read, and everything that would change it is an error.
    fn is_read_only(&self) -> bool {
        false
    }
    /// Whether the range is memory that survives a reset of the machine, which loses what is in
    /// caches: then the heap writes its lines back in an order from which it recovers. The same for
    /// as long as the value lives.
    fn is_ordered(&self) -> bool {
        false
    }
    /// The outermost level of a transaction is about to begin; `false` refuses it, because the
    /// caller has one open in another heap, and the two would not commit together.
    fn enter_transaction(&self) -> bool {
        true
    }
    /// The outermost level of a transaction is over. Also called where none was begun.
    fn leave_transaction(&self) {}
    /// Makes at least `bytes` usable in all; returns how many are.
    ///
    /// # Errors
    /// When the limit or the pool does not allow it; nothing has changed then.
    fn grow(&mut self, bytes: u64) -> Result<u64, GrowError>;
}

/// A range that is what it is: for host-side recovery and tools, which never grow a heap.
#[derive(Debug)]
pub struct Fixed {
    base: *mut u8,
    bytes: u64,
    ordered: bool,
}

impl Fixed {
    /// # Safety
    /// As for [`Backing`] (an alignment of 8 is enough to open and check): readable, writable,
    /// unshared, for as long as the value lives.
    pub unsafe fn new(base: *mut u8, bytes: u64) -> Fixed {
        Fixed { base, bytes: bytes & !(crate::layout::CHUNK_BYTES - 1), ordered: false }
    }

    /// The same range as memory that survives a reset: see [`Backing::is_ordered`].
    #[must_use]
    pub fn with_order(self, ordered: bool) -> Fixed {
        Fixed { ordered, ..self }
    }
}

// SAFETY: the contract of `Fixed::new` is the trait's; the range never grows.
unsafe impl Backing for Fixed {
    fn base(&self) -> *mut u8 {
        self.base
    }

    fn backed_bytes(&self) -> u64 {
        self.bytes
    }

    fn limit_bytes(&self) -> u64 {
        self.bytes
    }

    fn is_ordered(&self) -> bool {
        self.ordered
    }

    fn grow(&mut self, _bytes: u64) -> Result<u64, GrowError> {
        Err(GrowError::LimitReached { limit_bytes: self.bytes })
    }
}
