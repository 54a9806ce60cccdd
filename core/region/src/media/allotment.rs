//! How the limit of a region is shared out between the region and its compartments: one word in
//! its image, in memory that all processes see, so that a growth asks no file for it.
//!
//! The word says what the region has taken for itself and what its compartments may grow to, and
//! both sides change it by compare-and-swap: the process that has the region, when it grows, and
//! one that makes a compartment or raises its limit, under the lock on the name space. Whichever
//! comes second sees what the first one took.
//!
//! Invariants:
//! - Where the word is known, compartments may grow to no more than it says. It may say too much,
//!   after a compartment was removed or a process was killed; then a growth that it refuses is
//!   decided by counting.
//! - What the region takes is in the word before it is allocated. What a process had taken that was
//!   killed before it allocated it, the next writer's open gives back.
//! - A word of zeros (a hole, an image of an earlier version, one that was built anew) is not
//!   known: a process that grows the region counts, under the lock on the name space.
//! - Where the image is cut off, the word is not known.
//!
//! What it must not do: decide anything about bytes. An image whose word is lost is whole.

#![allow(unsafe_code, reason = "a word in a mapped file is what it is")]

use std::fmt;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use holdfast_sys::fault::WriteWatch;
use holdfast_sys::file::next_data;
use holdfast_sys::mapping::{Prot, Reservation};

use crate::media::format::{ALLOTMENT_BYTES, ALLOTMENT_OFFSET, LIMIT_UNIT_BYTES};
use crate::media::sharing::{Sharing, map_file};

/// The word counts.
const KNOWN: u64 = 1 << 63;
/// The image is at rest, and parts of its data area are holes (see `media::rest`). Whether the rest
/// of the word counts does not matter for it.
const AT_REST: u64 = 1 << 62;
/// A share fills so many bits: more units than the largest limit has.
const SHARE_BITS: u32 = 31;
const SHARE_MASK: u64 = (1 << SHARE_BITS) - 1;

/// Who has which part of a limit, in bytes, rounded up to units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shares {
    /// What the region has backed, or is about to.
    pub(crate) taken_bytes: u64,
    /// What its compartments may grow to.
    pub(crate) given_out_bytes: u64,
}

impl Shares {
    /// The word that says it.
    pub(crate) fn encode(self) -> u64 {
        KNOWN | units(self.given_out_bytes) << SHARE_BITS | units(self.taken_bytes)
    }

    /// The same in place of a word that may say that the image is at rest.
    fn encode_over(self, word: u64) -> u64 {
        self.encode() | word & AT_REST
    }

    fn decode(word: u64) -> Option<Shares> {
        (word & KNOWN != 0).then(|| Shares {
            taken_bytes: (word & SHARE_MASK) * LIMIT_UNIT_BYTES,
            given_out_bytes: (word >> SHARE_BITS & SHARE_MASK) * LIMIT_UNIT_BYTES,
        })
    }

    fn fit(self, limit_bytes: u64) -> bool {
        self.taken_bytes.saturating_add(self.given_out_bytes) <= limit_bytes
    }
}

/// More than the word can say is said as the most that it can, which is more than any limit.
fn units(bytes: u64) -> u64 {
    bytes.div_ceil(LIMIT_UNIT_BYTES).min(SHARE_MASK)
}

/// Whether a word as it lies in the file says that the image is at rest.
pub(crate) fn is_at_rest(word: [u8; 8]) -> bool {
    u64::from_le_bytes(word) & AT_REST != 0
}

/// The word of one image, mapped.
pub(crate) struct Allotment {
    /// Released by hand, before the mapping.
    watch: Option<WriteWatch>,
    range: Reservation,
}

// SAFETY: a mapping belongs to the process and to no thread; the word is an atomic.
unsafe impl Send for Allotment {}
// SAFETY: as above.
unsafe impl Sync for Allotment {}

impl Allotment {
    /// Whether the image has the word; in a hole it is not known, and to map it could want memory
    /// that there is none of.
    pub(crate) fn is_in(file: &File) -> io::Result<bool> {
        Ok(next_data(file, ALLOTMENT_OFFSET)?.is_some_and(|data| data.start == ALLOTMENT_OFFSET))
    }

    /// Maps the word of an image that is open for writing.
    pub(crate) fn map(file: &File) -> io::Result<Allotment> {
        let len = ALLOTMENT_BYTES as usize;
        let range = Reservation::anywhere(len, 1)?;
        // SAFETY: the reservation was made just now, and nothing refers into it.
        unsafe {
            map_file(
                range.base(),
                len,
                file,
                ALLOTMENT_OFFSET,
                Prot::ReadWrite,
                false,
                Sharing::Ordinary,
            )?
        };
        // SAFETY: the range is mapped as the watch wants it but for being writable, so that it has
        // only loss of the backing to notice; it is dropped before the mapping.
        let watch = unsafe { WriteWatch::new(range.base(), len, None)? };
        Ok(Allotment { watch: Some(watch), range })
    }

    fn word(&self) -> &AtomicU64 {
        // SAFETY: the mapping is a page long, readable and writable, and lives as long as `self`;
        // every process that has the page uses it as an atomic word.
        unsafe { AtomicU64::from_ptr(self.range.base().cast()) }
    }

    fn is_lost(&self) -> bool {
        self.watch.as_ref().is_some_and(WriteWatch::lost_backing)
    }

    /// Says whether the image is at rest with holes in its data.
    pub(crate) fn set_at_rest(&self, is_at_rest: bool) {
        let _ = match is_at_rest {
            true => self.word().fetch_or(AT_REST, Ordering::SeqCst),
            false => self.word().fetch_and(!AT_REST, Ordering::SeqCst),
        };
    }

    /// What the word says; `None` where that is not known.
    pub(crate) fn shares(&self) -> Option<Shares> {
        let found = Shares::decode(self.word().load(Ordering::SeqCst));
        found.filter(|_| !self.is_lost())
    }

    /// Says what was counted. The caller has the region, and holds the lock on the name space.
    pub(crate) fn set(&self, shares: Shares) {
        let _ = self.word().fetch_update(Ordering::SeqCst, Ordering::SeqCst, |word| {
            Some(shares.encode_over(word))
        });
    }

    /// Takes up to `taken_bytes` in all for the region itself; false, with nothing changed, where
    /// that is more than its limit leaves, or where it is not known. The caller has the region.
    pub(crate) fn take(&self, taken_bytes: u64, limit_bytes: u64) -> bool {
        let taken = self.word().fetch_update(Ordering::SeqCst, Ordering::SeqCst, |word| {
            let wanted = Shares { taken_bytes, ..Shares::decode(word)? };
            wanted.fit(limit_bytes).then(|| wanted.encode_over(word))
        });
        taken.is_ok() && !self.is_lost()
    }

    /// Gives back what was taken beyond this.
    pub(crate) fn take_no_more_than(&self, taken_bytes: u64) {
        let _ = self.word().fetch_update(Ordering::SeqCst, Ordering::SeqCst, |word| {
            Some(Shares { taken_bytes, ..Shares::decode(word)? }.encode_over(word))
        });
    }

    /// Gives out `added_bytes` besides `others_bytes`, which were counted, in a region that has
    /// `backed_bytes` backed; `is_held` tells that a process has it, which may have taken more by
    /// now. The caller holds the lock on the name space.
    ///
    /// # Errors
    /// What is used without them, where the limit does not leave so much; nothing has changed then.
    pub(crate) fn give_out(
        &self,
        (others_bytes, added_bytes): (u64, u64),
        (backed_bytes, is_held): (u64, bool),
        limit_bytes: u64,
    ) -> Result<(), u64> {
        let taken_bytes = |word| match Shares::decode(word) {
            Some(shares) if is_held => shares.taken_bytes.max(backed_bytes),
            _ => backed_bytes,
        };
        let given = self.word().fetch_update(Ordering::SeqCst, Ordering::SeqCst, |word| {
            let given_out_bytes = others_bytes.saturating_add(added_bytes);
            let wanted = Shares { taken_bytes: taken_bytes(word), given_out_bytes };
            wanted.fit(limit_bytes).then(|| wanted.encode_over(word))
        });
        given.map(drop).map_err(|word| others_bytes.saturating_add(taken_bytes(word)))
    }
}

impl Drop for Allotment {
    fn drop(&mut self) {
        self.watch = None;
    }
}

impl fmt::Debug for Allotment {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Allotment").field("shares", &self.shares()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    const MIB: u64 = 1 << 20;

    fn image() -> File {
        let file = tempfile::tempfile().unwrap();
        file.set_len(2 * MIB).unwrap();
        file
    }

    /// The bytes of the word are those of docs/format.md.
    #[test]
    fn shares_have_the_documented_bits() {
        let shares = Shares { taken_bytes: 4 * MIB, given_out_bytes: 3 * LIMIT_UNIT_BYTES };
        assert_eq!(shares.encode(), 1 << 63 | 3 << 31 | 64);
        assert_eq!(Shares::decode(shares.encode()), Some(shares));
        assert_eq!(Shares::decode(0), None);
        assert_eq!(shares.encode_over(1 << 62), shares.encode() | 1 << 62);
        assert!(
            is_at_rest((1_u64 << 62).to_le_bytes()) && !is_at_rest(shares.encode().to_le_bytes())
        );
        let most = Shares { taken_bytes: u64::MAX, given_out_bytes: u64::MAX };
        assert!(!Shares::decode(most.encode()).unwrap().fit(1 << 40), "too much is never enough");
    }

    /// A word in a hole is not known, and nothing is taken on its word.
    #[test]
    fn unknown_word_allows_nothing() {
        let file = image();
        file.write_all_at(&[0; 8], ALLOTMENT_OFFSET).unwrap();
        let allotment = Allotment::map(&file).unwrap();
        assert_eq!((allotment.shares(), allotment.take(MIB, 8 * MIB)), (None, false));
        allotment.set(Shares { taken_bytes: MIB, given_out_bytes: 2 * MIB });
        assert!(allotment.take(6 * MIB, 8 * MIB));
        assert!(!allotment.take(7 * MIB, 8 * MIB));
        allotment.take_no_more_than(2 * MIB);
        let found = Shares { taken_bytes: 2 * MIB, given_out_bytes: 2 * MIB };
        assert_eq!(allotment.shares(), Some(found));
    }

    /// What a process that was killed had taken does not count, and what a living one has taken
    /// does.
    #[test]
    fn only_a_living_holder_keeps_what_it_took() {
        let file = image();
        file.write_all_at(&[0; 8], ALLOTMENT_OFFSET).unwrap();
        let allotment = Allotment::map(&file).unwrap();
        allotment.set(Shares { taken_bytes: 7 * MIB, given_out_bytes: MIB });
        let asked = (MIB, 2 * MIB);
        assert_eq!(allotment.give_out(asked, (4 * MIB, true), 8 * MIB), Err(8 * MIB));
        assert_eq!(allotment.give_out(asked, (4 * MIB, false), 8 * MIB), Ok(()));
        let found = Shares { taken_bytes: 4 * MIB, given_out_bytes: 3 * MIB };
        assert_eq!(allotment.shares(), Some(found));
    }

    /// An image that was cut off makes the word unknown, and ends no process.
    #[test]
    fn cut_off_image_makes_the_word_unknown() {
        let file = image();
        file.write_all_at(&[0; 8], ALLOTMENT_OFFSET).unwrap();
        let allotment = Allotment::map(&file).unwrap();
        allotment.set(Shares { taken_bytes: MIB, given_out_bytes: 0 });
        file.set_len(4096).unwrap();
        assert_eq!((allotment.shares(), allotment.take(2 * MIB, 8 * MIB)), (None, false));
    }

    /// A region that grows and processes that make compartments never share out more than there
    /// is, whichever process is faster.
    ///
    /// Guarantee: heap/compartments
    #[test]
    fn word_never_shares_out_more_than_the_limit() {
        let file = image();
        file.write_all_at(&[0; 8], ALLOTMENT_OFFSET).unwrap();
        let [ours, theirs] = [(); 2].map(|()| Allotment::map(&file).unwrap());
        let limit_bytes = 1024 * LIMIT_UNIT_BYTES;
        for _ in 0..200 {
            ours.set(Shares { taken_bytes: 0, given_out_bytes: 0 });
            let (taken, given) = std::thread::scope(|scope| {
                let grower = scope.spawn(|| {
                    let steps = (1..=1024).map(|units| units * LIMIT_UNIT_BYTES);
                    steps.take_while(|bytes| ours.take(*bytes, limit_bytes)).last().unwrap_or(0)
                });
                let steps = (0..1024).map(|units| units * LIMIT_UNIT_BYTES);
                let given = steps
                    .take_while(|others| {
                        let asked = (*others, LIMIT_UNIT_BYTES);
                        theirs.give_out(asked, (0, true), limit_bytes).is_ok()
                    })
                    .last()
                    .map_or(0, |others| others + LIMIT_UNIT_BYTES);
                (grower.join().unwrap(), given)
            });
            assert!(taken + given <= limit_bytes, "{taken} taken and {given} given out");
            let found = Shares { taken_bytes: taken, given_out_bytes: given };
            assert_eq!(ours.shares(), Some(found));
        }
    }
}
