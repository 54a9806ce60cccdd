//! Memory that another process may write to at any time: the only place that touches it.
//!
//! Invariants:
//! - Every access is an atomic one, of a word or, for payloads, of each word and byte of the range;
//!   long payloads an instruction of the processor copies, which the compiler knows nothing of.
//!   What is loaded is some value that a side stored there; two loads of the same place may
//!   differ, so no code above relies on that.
//! - Every access is checked against the range, whatever computed the place.
//! - No reference to plain bytes of the range is ever made.

use crate::line::LINE_WORDS;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

const WORD_BYTES: usize = size_of::<u64>();

/// From here on it pays to have the processor copy: an instruction that begins slowly, and then
/// moves a line at a time.
const COPIED_AT_ONCE: usize = 1024;

/// A range of shared memory. Copies lead to the same memory.
#[derive(Debug, Clone, Copy)]
pub struct Shared {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the memory is shared with another process already; all accesses are atomic.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// The range of `bytes` bytes at `base`.
    ///
    /// # Safety
    /// As long as the value or a copy of it is used, the range must be mapped for loads and stores,
    /// `base` aligned to 8 bytes, and no code in this process may access it but through such
    /// values, atomics, or raw pointers in places that are not used here at the same time.
    #[must_use]
    pub unsafe fn new(base: NonNull<u8>, bytes: usize) -> Shared {
        Shared { base, bytes }
    }

    /// The first byte. Its user must reckon with the other process's stores.
    #[must_use]
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Bytes of the range.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// A part of it, if it is one and begins at a multiple of 8.
    #[must_use]
    pub fn part(&self, at: u64, bytes: u64) -> Option<Shared> {
        let end = at.checked_add(bytes)?;
        if end > self.bytes as u64 || !at.is_multiple_of(WORD_BYTES as u64) {
            return None;
        }
        // SAFETY: the part lies in the range (checked above), of which `new` was promised
        // everything.
        Some(Shared { base: unsafe { self.base.add(at as usize) }, bytes: bytes as usize })
    }

    /// The word at a multiple of 8.
    pub(crate) fn word(&self, at: usize) -> Option<&AtomicU64> {
        let is_inside = at.is_multiple_of(WORD_BYTES) && at.checked_add(WORD_BYTES)? <= self.bytes;
        // SAFETY: inside and aligned (checked), mapped (promised to `new`), accessed by atomics
        // alone.
        is_inside.then(|| unsafe { AtomicU64::from_ptr(self.base.add(at).cast().as_ptr()) })
    }

    /// The half word at a multiple of 4.
    pub(crate) fn half(&self, at: usize) -> Option<&AtomicU32> {
        let is_inside = at.is_multiple_of(4) && at.checked_add(4)? <= self.bytes;
        // SAFETY: as for `word`.
        is_inside.then(|| unsafe { AtomicU32::from_ptr(self.base.add(at).cast().as_ptr()) })
    }

    /// The line of words at a multiple of 8.
    #[inline]
    pub(crate) fn line(&self, at: usize) -> Option<&[AtomicU64; LINE_WORDS]> {
        let bytes = LINE_WORDS * WORD_BYTES;
        let is_inside = at.is_multiple_of(WORD_BYTES) && at.checked_add(bytes)? <= self.bytes;
        // SAFETY: as for `word`, for each of them.
        is_inside.then(|| unsafe { self.base.add(at).cast().as_ref() })
    }

    /// Copies bytes out; whatever else happens to them, they are read once. `None`, and nothing
    /// copied, when the range has not that many.
    #[must_use]
    pub fn read(&self, at: usize, into: &mut [u8]) -> Option<()> {
        let (head, words) = self.split(at, into.len())?;
        if into.len() >= COPIED_AT_ONCE && MOVES_BYTES {
            // SAFETY: inside (checked by `split`), and private memory of that length.
            unsafe { move_bytes(self.base.add(at).as_ptr(), into.as_mut_ptr(), into.len()) };
            return Some(());
        }
        let (head_into, rest) = into.split_at_mut(head);
        let (words_into, tail_into) = rest.as_chunks_mut::<WORD_BYTES>();
        self.read_bytes(at, head_into);
        for (index, word) in words_into.iter_mut().enumerate() {
            // SAFETY: inside (checked by `split`), aligned since `head` bytes lead to a multiple of
            // 8, and atomic.
            let source =
                unsafe { AtomicU64::from_ptr(self.base.add(at + head).cast().add(index).as_ptr()) };
            *word = source.load(Ordering::Relaxed).to_ne_bytes();
        }
        self.read_bytes(at + head + words * WORD_BYTES, tail_into);
        Some(())
    }

    /// Copies bytes in. `None`, and nothing copied, when the range has not that many.
    #[must_use]
    pub fn write(&self, at: usize, from: &[u8]) -> Option<()> {
        let (head, words) = self.split(at, from.len())?;
        if from.len() >= COPIED_AT_ONCE && MOVES_BYTES {
            // SAFETY: as in `read`.
            unsafe { move_bytes(from.as_ptr(), self.base.add(at).as_ptr(), from.len()) };
            return Some(());
        }
        let (head_from, rest) = from.split_at(head);
        let (words_from, tail_from) = rest.as_chunks::<WORD_BYTES>();
        self.write_bytes(at, head_from);
        for (index, word) in words_from.iter().enumerate() {
            // SAFETY: as in `read`.
            let target =
                unsafe { AtomicU64::from_ptr(self.base.add(at + head).cast().add(index).as_ptr()) };
            target.store(u64::from_ne_bytes(*word), Ordering::Relaxed);
        }
        self.write_bytes(at + head + words * WORD_BYTES, tail_from);
        Some(())
    }

    /// How many bytes of a range lie before its first whole word, and how many whole words follow.
    fn split(&self, at: usize, bytes: usize) -> Option<(usize, usize)> {
        if at.checked_add(bytes)? > self.bytes {
            return None;
        }
        let misaligned = (self.base.as_ptr() as usize).wrapping_add(at) % WORD_BYTES;
        let head = ((WORD_BYTES - misaligned) % WORD_BYTES).min(bytes);
        Some((head, (bytes - head) / WORD_BYTES))
    }

    /// Of a range that [`Shared::split`] has checked.
    fn read_bytes(&self, at: usize, into: &mut [u8]) {
        for (index, byte) in into.iter_mut().enumerate() {
            // SAFETY: inside (the caller's contract), and atomic.
            let source = unsafe { AtomicU8::from_ptr(self.base.add(at + index).as_ptr()) };
            *byte = source.load(Ordering::Relaxed);
        }
    }

    /// Byte by byte, without order: the other side may write them at the same time.
    fn write_bytes(&self, at: usize, from: &[u8]) {
        for (index, byte) in from.iter().enumerate() {
            // SAFETY: inside (the caller's contract), and atomic.
            let target = unsafe { AtomicU8::from_ptr(self.base.add(at + index).as_ptr()) };
            target.store(*byte, Ordering::Relaxed);
        }
    }
}

/// Whether [`move_bytes`] is there.
const MOVES_BYTES: bool = cfg!(all(target_arch = "x86_64", not(miri)));

/// Copies bytes by one instruction of the processor, each once. Stores that follow it in the
/// program are seen after it, and loads before it were made before.
///
/// # Safety
/// Both ranges are mapped for that, and do not overlap.
#[cfg(all(target_arch = "x86_64", not(miri)))]
unsafe fn move_bytes(from: *const u8, into: *mut u8, bytes: usize) {
    // SAFETY: the caller's contract; the direction flag is clear between functions. What another
    // process stores meanwhile the instruction reads or not: no code of this language races.
    unsafe {
        core::arch::asm!(
            "rep movsb",
            inout("rcx") bytes => _,
            inout("rsi") from => _,
            inout("rdi") into => _,
            options(nostack, preserves_flags)
        );
    }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
unsafe fn move_bytes(_: *const u8, _: *mut u8, _: usize) {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;
    use std::vec::Vec;

    fn shared(memory: &mut [u64]) -> Shared {
        let base = NonNull::new(memory.as_mut_ptr().cast()).unwrap();
        // SAFETY: the caller keeps the memory, and does not touch it while the value is used.
        unsafe { Shared::new(base, size_of_val(memory)) }
    }

    /// Bytes are copied from and to every offset, and nothing outside the range changes.
    #[test]
    fn copies_stay_within_their_range() {
        for at in 0..24 {
            for bytes in 0..40 {
                let mut memory = vec![u64::from_ne_bytes([0xee; 8]); 8];
                let shared = shared(&mut memory);
                let from: Vec<u8> = (1..=bytes as u8).collect();
                shared.write(at, &from).unwrap();
                let mut into = vec![0; bytes];
                shared.read(at, &mut into).unwrap();
                assert_eq!(into, from);
                let mut all = vec![0; 64];
                shared.read(0, &mut all).unwrap();
                assert!(all[..at].iter().chain(&all[at + bytes..]).all(|byte| *byte == 0xee));
            }
        }
    }

    /// The same for payloads that the processor copies at once.
    #[test]
    fn long_copies_stay_within_their_range() {
        for at in [0, 1, 7, 8, 63] {
            for bytes in [COPIED_AT_ONCE - 1, COPIED_AT_ONCE, COPIED_AT_ONCE + 1, 3000] {
                let mut memory = vec![u64::from_ne_bytes([0xee; 8]); 512];
                let shared = shared(&mut memory);
                let from: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
                shared.write(at, &from).unwrap();
                let mut into = vec![0; bytes];
                shared.read(at, &mut into).unwrap();
                assert_eq!(into, from);
                let mut all = vec![0; 4096];
                shared.read(0, &mut all).unwrap();
                assert!(all[..at].iter().chain(&all[at + bytes..]).all(|byte| *byte == 0xee));
                assert!(shared.write(4096 - bytes + 1, &from).is_none());
                assert!(shared.read(4096 - bytes + 1, &mut into).is_none());
            }
        }
    }

    #[test]
    fn what_is_not_inside_is_not_touched() {
        let mut memory = [0; 8];
        let shared = shared(&mut memory);
        assert!(shared.read(60, &mut [0; 5]).is_none() && shared.write(65, &[]).is_none());
        assert!(shared.read(usize::MAX, &mut [0; 5]).is_none());
        assert!(
            shared.word(64).is_none()
                && shared.word(4).is_none()
                && shared.word(usize::MAX - 7).is_none()
        );
        assert!(shared.line(0).is_some() && shared.line(8).is_none() && shared.line(4).is_none());
        assert!(shared.half(64).is_none() && shared.half(2).is_none() && shared.half(60).is_some());
        assert!(shared.part(8, 57).is_none() && shared.part(4, 8).is_none());
        assert!(shared.part(u64::MAX - 7, 8).is_none());
        let part = shared.part(56, 8).unwrap();
        assert!(part.write(0, &[7; 8]).is_some() && part.write(1, &[7; 8]).is_none());
        assert_eq!(memory[7], u64::from_ne_bytes([7; 8]));
    }
}
