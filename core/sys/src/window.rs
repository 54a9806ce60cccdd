//! A window of address space that is reserved in one call, and from which ranges at given addresses
//! are claimed.
//!
//! Invariants:
//! - What sits in the window already is never replaced: the window is then reserved in the pieces
//!   that are free.
//! - A claimed range is one claim's alone. Giving it back leaves it reserved, so nothing else in
//!   the process gets in between two claims.
//! - Where the kernel grants no large reservation (`RLIMIT_AS`), each claim reserves its own range
//!   and frees it.
//!
//! Nothing is reserved before the first claim.

use std::io;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::mapping::{Reservation, map_none_fixed};
use crate::process::occupants;

/// How much of a window is reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Coverage {
    /// Nothing yet: there was no claim.
    Untouched,
    /// All of it, by one call.
    Whole,
    /// All that was free: something sits in it.
    Pieces {
        /// Bytes that are reserved.
        reserved_bytes: u64,
    },
    /// Only what is claimed: the kernel refused the large reservation.
    OneByOne,
}

/// Why a range cannot be claimed.
#[derive(Debug)]
pub enum ClaimError {
    /// An earlier claim has a part of it.
    Claimed {
        /// That claim.
        by: Range<usize>,
    },
    /// Something else has a part of it.
    Taken {
        /// A part in which something sits.
        part: Range<usize>,
    },
    /// The kernel refused.
    Refused(io::Error),
}

/// A reserved range of addresses.
#[derive(Debug)]
pub struct Window {
    range: Range<usize>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    coverage: Coverage,
    /// Reserved by us, sorted, none touching another.
    pieces: Vec<Range<usize>>,
    claims: Vec<Range<usize>>,
}

impl Window {
    /// The window over a range of addresses, page-aligned. Nothing is reserved yet.
    #[must_use]
    pub const fn new(range: Range<usize>) -> Window {
        let state = State { coverage: Coverage::Untouched, pieces: Vec::new(), claims: Vec::new() };
        Window { range, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change to the lists is one step, so a panic elsewhere leaves them whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves what is free of the window, unless that was done before.
    pub fn reserve(&self) -> Coverage {
        let mut state = self.state();
        self.reserve_once(&mut state);
        state.coverage
    }

    /// What is reserved now.
    #[must_use]
    pub fn coverage(&self) -> Coverage {
        self.state().coverage
    }

    /// Ranges of the window that cannot be claimed now: other claims, and what sits there.
    ///
    /// # Errors
    /// When `/proc` is not readable.
    pub fn occupied(&self) -> io::Result<Vec<Range<u64>>> {
        let state = self.state();
        let mut occupied: Vec<_> = state.claims.iter().map(as_addresses).collect();
        for gap in without(&self.range, &state.pieces) {
            occupied.extend(occupants(as_addresses(&gap))?.into_iter().map(|found| found.range));
        }
        Ok(occupied)
    }

    /// Takes `len` bytes at `address` for the caller alone. The drop of the result gives them back.
    ///
    /// # Errors
    /// [`ClaimError`]; nothing has changed then. `InvalidInput` for what is not in the window.
    pub fn claim(&'static self, address: usize, len: usize) -> Result<Reservation, ClaimError> {
        let wanted = address..address.saturating_add(len);
        if len == 0 || wanted.start < self.range.start || wanted.end > self.range.end {
            return Err(ClaimError::Refused(io::ErrorKind::InvalidInput.into()));
        }
        let mut state = self.state();
        self.reserve_once(&mut state);
        self.take(&mut state, &wanted)?;
        state.claims.push(wanted);
        Ok(Reservation::of_window(self, address, len))
    }

    /// Gives a claim the `added` bytes behind its `len` bytes, too.
    ///
    /// # Errors
    /// As [`Window::claim`].
    pub(crate) fn extend(&self, base: *mut u8, len: usize, added: usize) -> Result<(), ClaimError> {
        let end = base as usize + len;
        let wanted = end..end.saturating_add(added);
        if wanted.end > self.range.end {
            return Err(ClaimError::Refused(io::ErrorKind::InvalidInput.into()));
        }
        let mut state = self.state();
        self.take(&mut state, &wanted)?;
        for claim in state.claims.iter_mut().filter(|claim| claim.start == base as usize) {
            claim.end = wanted.end;
        }
        Ok(())
    }

    /// Takes a range that is in the window and in no claim: what is not reserved yet is from here
    /// on.
    fn take(&self, state: &mut State, wanted: &Range<usize>) -> Result<(), ClaimError> {
        if let Some(by) = state.claims.iter().find(|claim| overlap(claim, wanted)) {
            return Err(ClaimError::Claimed { by: by.clone() });
        }
        let missing = without(wanted, &state.pieces);
        let mut added = Vec::with_capacity(missing.len());
        for part in &missing {
            match Reservation::at(part.start, part.len()) {
                Ok(reservation) => added.push(reservation),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    return Err(ClaimError::Taken { part: part.clone() });
                }
                Err(error) => return Err(ClaimError::Refused(error)),
            }
        }
        // From here on they are the window's.
        added.into_iter().for_each(Reservation::keep);
        if state.coverage != Coverage::OneByOne && !missing.is_empty() {
            state.pieces.extend(missing);
            state.pieces = joined(std::mem::take(&mut state.pieces));
            state.coverage = self.coverage_of(&state.pieces);
        }
        Ok(())
    }

    /// Ends a claim; called by the drop of its reservation.
    pub(crate) fn give_back(&self, base: *mut u8, len: usize) {
        let mut state = self.state();
        // A claim that cannot be cleared stays one: what is mapped there must not be taken for free
        // space.
        if clear(state.coverage, base, len) {
            state.claims.retain(|claim| claim.start != base as usize);
        }
    }

    /// Gives back what a claim has from its first `kept` bytes on, and says whether it did.
    pub(crate) fn shorten(&self, base: *mut u8, len: usize, kept: usize) -> bool {
        let mut state = self.state();
        let cleared = clear(state.coverage, base.wrapping_add(kept), len - kept);
        if cleared {
            for claim in state.claims.iter_mut().filter(|claim| claim.start == base as usize) {
                claim.end = claim.start + kept;
            }
        }
        cleared
    }

    fn reserve_once(&self, state: &mut State) {
        if state.coverage != Coverage::Untouched {
            return;
        }
        match Reservation::at(self.range.start, self.range.len()) {
            Ok(whole) => {
                whole.keep();
                state.pieces = vec![self.range.clone()];
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                state.pieces = self.reserve_gaps();
            }
            Err(_) => {}
        }
        state.coverage = self.coverage_of(&state.pieces);
    }

    /// Reserves what is free; a gap that is taken meanwhile stays taken.
    fn reserve_gaps(&self) -> Vec<Range<usize>> {
        let Ok(found) = occupants(as_addresses(&self.range)) else { return Vec::new() };
        let taken: Vec<_> = found
            .into_iter()
            .map(|found| found.range.start as usize..found.range.end as usize)
            .collect();
        let mut reserved = Vec::new();
        for gap in without(&self.range, &taken) {
            if let Ok(piece) = Reservation::at(gap.start, gap.len()) {
                piece.keep();
                reserved.push(gap);
            }
        }
        reserved
    }

    fn coverage_of(&self, pieces: &[Range<usize>]) -> Coverage {
        match pieces {
            [] => Coverage::OneByOne,
            [one] if *one == self.range => Coverage::Whole,
            pieces => Coverage::Pieces {
                reserved_bytes: pieces.iter().map(|piece| piece.len() as u64).sum(),
            },
        }
    }
}

/// Ends what is mapped in a part of a claim, which its owner gives up.
fn clear(coverage: Coverage, base: *mut u8, len: usize) -> bool {
    if coverage == Coverage::OneByOne {
        // SAFETY: the claim's owner gives the range up, and no reference into it is left (contract
        // of those who mapped there).
        unsafe { rustix::mm::munmap(base.cast(), len) }.is_ok()
    } else {
        // SAFETY: as above.
        unsafe { map_none_fixed(base, len) }.is_ok()
    }
}

fn as_addresses(range: &Range<usize>) -> Range<u64> {
    range.start as u64..range.end as u64
}

fn overlap(one: &Range<usize>, other: &Range<usize>) -> bool {
    one.start < other.end && other.start < one.end
}

/// What is left of `range` without `parts`, which are sorted.
fn without(range: &Range<usize>, parts: &[Range<usize>]) -> Vec<Range<usize>> {
    let mut left = Vec::new();
    let mut from = range.start;
    for part in parts.iter().filter(|part| overlap(part, range)) {
        if from < part.start {
            left.push(from..part.start);
        }
        from = from.max(part.end);
    }
    if from < range.end {
        left.push(from..range.end);
    }
    left
}

/// Sorts, and makes one of those that touch.
fn joined(mut ranges: Vec<Range<usize>>) -> Vec<Range<usize>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut joined: Vec<Range<usize>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::{Prot, map_anon_fixed};

    const GIB: usize = 1 << 30;

    /// Each test has a window of its own, far from the others.
    fn window(number: usize) -> &'static Window {
        let start = 0x0800_0000_0000 + number * (64 * GIB);
        Box::leak(Box::new(Window::new(start..start + 16 * GIB)))
    }

    /// A window is reserved whole at the first claim and stays reserved.
    ///
    /// Guarantee: heap/fixed-address
    #[test]
    fn window_is_reserved_at_first_claim_and_stays() {
        let window = window(0);
        assert_eq!(window.coverage(), Coverage::Untouched);
        let start = window.range.start;
        let claim = window.claim(start + GIB, GIB).unwrap();
        assert_eq!(window.coverage(), Coverage::Whole);
        // SAFETY: the range is this test's claim.
        unsafe { map_anon_fixed(claim.base(), 4096, Prot::ReadWrite).unwrap() };
        // SAFETY: mapped just now.
        unsafe { claim.base().write_volatile(7) };
        drop(claim);
        let error = Reservation::at(start + GIB, 4096).unwrap_err();
        assert_eq!(
            error.kind(),
            io::ErrorKind::AlreadyExists,
            "the range was not given back to the window"
        );
        let again = window.claim(start + GIB, GIB).unwrap();
        // SAFETY: the range is this test's claim; what was mapped there must be gone.
        unsafe { map_anon_fixed(again.base(), 4096, Prot::Read).unwrap() };
        // SAFETY: mapped just now.
        assert_eq!(unsafe { again.base().read_volatile() }, 0);
    }

    /// Claims never overlap and the second names the first.
    #[test]
    fn claims_never_overlap_and_name_the_first() {
        let window = window(1);
        let start = window.range.start;
        let first = window.claim(start, 2 * GIB).unwrap();
        let Err(ClaimError::Claimed { by }) = window.claim(start + GIB, 4096) else {
            panic!("claimed twice")
        };
        assert_eq!(by, start..start + 2 * GIB);
        drop(first);
        assert!(window.claim(start + GIB, 4096).is_ok());
        assert!(matches!(window.claim(start - 4096, 4096), Err(ClaimError::Refused(_))));
        assert!(matches!(window.claim(start + 15 * GIB, 2 * GIB), Err(ClaimError::Refused(_))));
    }

    /// A claim is extended into free addresses only and what it gives up can be claimed.
    #[test]
    fn claim_extends_into_free_addresses_only() {
        let window = window(3);
        let start = window.range.start;
        let mut first = window.claim(start, GIB).unwrap();
        let second = window.claim(start + 2 * GIB, GIB).unwrap();
        let Err(ClaimError::Claimed { by }) = first.extend(2 * GIB + 4096) else {
            panic!("claimed twice")
        };
        assert_eq!((by, first.len()), (start + 2 * GIB..start + 3 * GIB, GIB));
        first.extend(2 * GIB).unwrap();
        assert!(matches!(window.claim(start + GIB, GIB), Err(ClaimError::Claimed { .. })));
        // SAFETY: the range is this test's claim.
        unsafe { map_anon_fixed(first.base().add(GIB), 4096, Prot::ReadWrite).unwrap() };
        first.shorten(GIB);
        assert_eq!(first.len(), GIB);
        let error = Reservation::at(start + GIB, 4096).unwrap_err();
        assert_eq!(
            error.kind(),
            io::ErrorKind::AlreadyExists,
            "the rest was not given back to the window"
        );
        let behind = window.claim(start + GIB, GIB).unwrap();
        drop((first, second, behind));
        let mut all = window.claim(start, GIB).unwrap();
        assert!(matches!(all.extend(17 * GIB), Err(ClaimError::Refused(_))));
        all.extend(16 * GIB).unwrap();
    }

    /// A squatter shrinks the window and its place is ours when it goes.
    #[test]
    fn squatter_shrinks_the_window_until_it_leaves() {
        let window = window(2);
        let start = window.range.start;
        let squatter = Reservation::at(start + 4 * GIB, 4096).unwrap();
        let early = window.claim(start, GIB).unwrap();
        assert_eq!(
            window.coverage(),
            Coverage::Pieces { reserved_bytes: (16 * GIB - 4096) as u64 }
        );
        let late = window.claim(start + 8 * GIB, 8 * GIB).unwrap();
        let Err(ClaimError::Taken { part }) = window.claim(start + 4 * GIB, GIB) else {
            panic!("replaced")
        };
        assert_eq!(part, start + 4 * GIB..start + 4 * GIB + 4096);
        let occupied = window.occupied().unwrap();
        assert!(occupied.contains(&as_addresses(&part)), "{occupied:x?}");
        assert_eq!(occupied.len(), 3);
        drop(squatter);
        let there = window.claim(start + 4 * GIB, GIB).unwrap();
        assert_eq!(window.coverage(), Coverage::Whole);
        drop((early, late, there));
    }

    /// What is left of a range and what touches are computed at every edge.
    #[test]
    fn range_arithmetic_is_right_at_every_edge() {
        let whole: Vec<_> = std::iter::once(10..20).collect();
        assert_eq!(without(&(10..20), &[]), whole);
        assert_eq!(without(&(10..20), &[0..10, 20..30]), whole);
        assert_eq!(without(&(10..20), &[0..12, 14..15, 18..40]), [12..14, 15..18]);
        assert!(without(&(10..20), &[0..40]).is_empty());
        assert_eq!(joined(vec![5..7, 0..2, 2..5, 9..10]), [0..7, 9..10]);
    }
}
