//! The roots whose addresses a program was given, so that it does not free one as if it had no name.
//!
//! To look through all roots at every free would cost too much; to remember the latest addresses costs one comparison.
//! An address that is found here may be stale (its root was removed, or rolled back): whoever finds it looks.

use core::cell::Cell;
use core::ptr::NonNull;

/// Two to the power of the bits that the hash keeps: 64 - 55.
const PLACES: usize = 512;
/// Objects are aligned to it.
const UNIT_BYTES: usize = 16;

/// See the module.
pub(crate) struct KnownRoots([Cell<usize>; PLACES]);

impl KnownRoots {
    pub(crate) fn new() -> KnownRoots {
        KnownRoots([const { Cell::new(0) }; PLACES])
    }

    fn place(&self, object: NonNull<u8>) -> &Cell<usize> {
        // Fibonacci hashing: neighbours fall apart.
        let unit = object.addr().get() / UNIT_BYTES;
        &self.0[((unit as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 55) as usize]
    }

    /// Remembers an address, and forgets the one that had its place.
    pub(crate) fn note(&self, object: NonNull<u8>) {
        self.place(object).set(object.addr().get());
    }

    pub(crate) fn may_have(&self, object: NonNull<u8>) -> bool {
        self.place(object).get() == object.addr().get()
    }

    pub(crate) fn forget(&self, object: NonNull<u8>) {
        if self.may_have(object) {
            self.place(object).set(0);
        }
    }
}
