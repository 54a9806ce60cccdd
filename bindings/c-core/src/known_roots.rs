//! The roots whose addresses a program was given, so that it does not free one as if it had no
//! name.
//!
//! To look through all roots at every free would cost too much; to remember the latest addresses
//! costs one comparison. An address that is found here may be stale (its root was removed, or
//! rolled back, or is another heap's): the code that finds it looks.
//!
//! The table is the process's, because an applet's stack has 64 KiB: a heap that carries it would
//! not be moved there.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Two to the power of the bits that the hash keeps: 64 - 55.
const PLACES: usize = 512;
/// Objects are aligned to it.
const UNIT_BYTES: usize = 16;

static ADDRESSES: [AtomicUsize; PLACES] = [const { AtomicUsize::new(0) }; PLACES];

/// A bit for each place, set for good when something is remembered there: most objects are told
/// apart from roots by one cache line.
static USED: [AtomicU64; PLACES / 64] = [const { AtomicU64::new(0) }; PLACES / 64];

#[inline]
fn place(object: NonNull<u8>) -> usize {
    // Fibonacci hashing: neighbours fall apart.
    let unit = object.addr().get() / UNIT_BYTES;
    ((unit as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 55) as usize
}

/// Remembers an address, and forgets the one that had its place.
pub(crate) fn note(object: NonNull<u8>) {
    let place = place(object);
    ADDRESSES[place].store(object.addr().get(), Ordering::Relaxed);
    USED[place / 64].fetch_or(1 << (place % 64), Ordering::Relaxed);
}

#[inline]
pub(crate) fn may_be(object: NonNull<u8>) -> bool {
    let place = place(object);
    USED[place / 64].load(Ordering::Relaxed) >> (place % 64) & 1 == 1
        && ADDRESSES[place].load(Ordering::Relaxed) == object.addr().get()
}

/// Another thread may have noted another address in its place, which is then forgotten.
pub(crate) fn forget(object: NonNull<u8>) {
    ADDRESSES[place(object)].store(0, Ordering::Relaxed);
}
