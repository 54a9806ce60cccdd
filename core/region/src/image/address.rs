//! Native addresses: every region of a home has a range of its own, far from where Linux puts
//! anything.
//!
//! Invariants:
//! - All of them lie in one window, which a process reserves in one call before it maps its first
//!   region. So what the process allocates later never takes a region's place.
//! - An address is chosen once, at creation (or by a relocation), under the lock on all names, and
//!   stored in the headers. Where the search starts depends on the home, so that heaps of two homes
//!   seldom meet in one process; what the choosing process has mapped is avoided, if that is
//!   possible.

#![forbid(unsafe_code)]

use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use holdfast_sys::mapping::Reservation;
use holdfast_sys::probe::address_space_limit_bytes;
use holdfast_sys::process::{Occupant, occupants};
use holdfast_sys::window::{ClaimError, Coverage, Window};
use serde::Serialize;
use xxhash_rust::xxh3::xxh3_64;

use crate::error::{RegionError, Result};
use crate::media::format::{ADDRESS_UNIT_BYTES, WINDOW_END, WINDOW_START};

/// The window of this process.
static WINDOW: Window = Window::new(WINDOW_START as usize..WINDOW_END as usize);

/// How the addresses of regions are kept free in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum AddressWindow {
    /// Nothing is reserved: no region was mapped at its address yet.
    Untouched,
    /// All addresses are reserved.
    Whole,
    /// All that were free are: something sat among them before the first region was mapped.
    Partial {
        /// Bytes that are reserved.
        reserved_bytes: u64,
    },
    /// Only those of mapped regions are: the kernel refused more, because of `RLIMIT_AS`.
    OneByOne,
}

impl From<Coverage> for AddressWindow {
    fn from(coverage: Coverage) -> AddressWindow {
        match coverage {
            Coverage::Untouched => AddressWindow::Untouched,
            Coverage::Whole => AddressWindow::Whole,
            Coverage::Pieces { reserved_bytes } => AddressWindow::Partial { reserved_bytes },
            // Also what a later version may add: nothing more is promised then.
            _ => AddressWindow::OneByOne,
        }
    }
}

/// Reserves the addresses of all regions, if that was not done before: 64 TiB of address space, no
/// memory. The first [`Region::map_native`](crate::Region::map_native) does it; a program that is
/// about to load what may squat there does it earlier.
pub fn reserve_addresses() -> AddressWindow {
    WINDOW.reserve().into()
}

/// What is reserved in this process now.
#[must_use]
pub fn address_window() -> AddressWindow {
    WINDOW.coverage().into()
}

/// Takes a region's range in this process, for a region that this crate does not map: one that a
/// keeper lends.
///
/// # Errors
/// `AddressTaken`, `AddressSpace`, `AddressesExhausted`.
pub fn claim_addresses(address: u64, limit_bytes: u64) -> Result<Reservation> {
    claim(address, limit_bytes)
}

/// Takes a region's range in this process.
pub(crate) fn claim(address: u64, limit_bytes: u64) -> Result<Reservation> {
    let len = usize::try_from(limit_bytes)
        .map_err(|_| RegionError::AddressesExhausted { limit_bytes })?;
    WINDOW.claim(address as usize, len).map_err(|error| match occupant_or_refusal(error) {
        Ok(by) => RegionError::AddressTaken { address, by },
        Err(source) => address_space(limit_bytes, source),
    })
}

/// The occupant of the claimed range, or the kernel's reason.
pub(crate) fn occupant_or_refusal(error: ClaimError) -> std::result::Result<Occupant, io::Error> {
    let unknown = "something that is gone by now";
    let addresses = |range: Range<usize>| range.start as u64..range.end as u64;
    match error {
        ClaimError::Claimed { by } => {
            let what = "another heap that this process has open".to_owned();
            Ok(Occupant { range: addresses(by), what })
        }
        ClaimError::Taken { part } => {
            let range = addresses(part);
            let found = occupants(range.clone()).ok().and_then(|found| found.into_iter().next());
            Ok(found.unwrap_or_else(|| Occupant { range, what: unknown.to_owned() }))
        }
        ClaimError::Refused(source) => Err(source),
    }
}

/// The kernel grants a region no address space.
pub(crate) fn address_space(needed_bytes: u64, source: io::Error) -> RegionError {
    RegionError::AddressSpace { needed_bytes, limit_bytes: address_space_limit_bytes(), source }
}

/// An address for a region of `limit_bytes`, given the ranges of all others of its home.
pub(crate) fn choose_address(
    home: &Path,
    others: Vec<Range<u64>>,
    limit_bytes: u64,
) -> Result<u64> {
    let units = (WINDOW_END - WINDOW_START) / ADDRESS_UNIT_BYTES;
    let start = WINDOW_START + xxh3_64(home.as_os_str().as_bytes()) % units * ADDRESS_UNIT_BYTES;
    // Without /proc it is not known; mapping then tells.
    let mut here = WINDOW.occupied().unwrap_or_default();
    here.extend_from_slice(&others);
    first_free(here, limit_bytes, start)
        .or_else(|| first_free(others, limit_bytes, start))
        .ok_or(RegionError::AddressesExhausted { limit_bytes })
}

/// An address in a range that no region of its home has, for a region of `limit_bytes`; none where
/// this process has something else there.
pub(crate) fn choose_between(free: &Range<u64>, limit_bytes: u64) -> Option<u64> {
    let mut here = WINDOW.occupied().unwrap_or_default();
    here.sort_unstable_by_key(|range| range.start);
    let address = free_from(&here, limit_bytes, free.start)?;
    (address + limit_bytes <= free.end).then_some(address)
}

/// The first free address from `start` on, or else from the beginning of the window on.
fn first_free(mut taken: Vec<Range<u64>>, limit_bytes: u64, start: u64) -> Option<u64> {
    taken.sort_unstable_by_key(|range| range.start);
    free_from(&taken, limit_bytes, start).or_else(|| free_from(&taken, limit_bytes, WINDOW_START))
}

fn free_from(taken: &[Range<u64>], limit_bytes: u64, start: u64) -> Option<u64> {
    let mut candidate = start;
    for range in taken.iter().filter(|range| range.end > start) {
        if candidate.checked_add(limit_bytes)? <= range.start {
            break;
        }
        candidate = candidate.max(range.end.checked_next_multiple_of(ADDRESS_UNIT_BYTES)?);
    }
    (candidate.checked_add(limit_bytes)? <= WINDOW_END).then_some(candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: u64 = ADDRESS_UNIT_BYTES;

    fn first_free(taken: Vec<Range<u64>>, limit_bytes: u64) -> Option<u64> {
        super::first_free(taken, limit_bytes, WINDOW_START)
    }

    fn range(slot: u64, limit_bytes: u64) -> Range<u64> {
        WINDOW_START + slot * UNIT..WINDOW_START + slot * UNIT + limit_bytes
    }

    #[test]
    fn the_first_gap_that_is_large_enough_is_taken() {
        assert_eq!(first_free(vec![], 1), Some(WINDOW_START));
        let taken = vec![range(3, 5), range(0, UNIT), range(7, 2 * UNIT + 1)];
        assert_eq!(first_free(taken.clone(), UNIT), Some(WINDOW_START + UNIT));
        assert_eq!(first_free(taken.clone(), 2 * UNIT + 1), Some(WINDOW_START + 4 * UNIT));
        assert_eq!(first_free(taken, 4 * UNIT), Some(WINDOW_START + 10 * UNIT));
    }

    /// Overlapping ranges and copies of a header do no harm.
    #[test]
    fn overlapping_ranges_and_header_copies_are_harmless() {
        let taken = vec![range(0, 4 * UNIT), range(0, 4 * UNIT), range(1, 5)];
        assert_eq!(first_free(taken, 1), Some(WINDOW_START + 4 * UNIT));
    }

    #[test]
    fn a_full_window_is_an_answer_and_not_an_overflow() {
        let all = WINDOW_END - WINDOW_START;
        assert_eq!(first_free(vec![range(0, all)], 1), None);
        assert_eq!(first_free(vec![range(0, UNIT)], all), None);
        let everything = 0..u64::MAX;
        assert_eq!(first_free(vec![everything], 1), None);
        assert_eq!(first_free(vec![], u64::MAX), None);
    }

    #[test]
    fn a_search_that_starts_late_goes_on_at_the_beginning() {
        let start = WINDOW_END - 2 * UNIT;
        assert_eq!(super::first_free(vec![], UNIT, start), Some(start));
        let last = vec![start..WINDOW_END, range(0, UNIT)];
        assert_eq!(super::first_free(last, UNIT, start), Some(WINDOW_START + UNIT));
        assert_eq!(super::first_free(vec![], 3 * UNIT, start), Some(WINDOW_START));
    }

    /// Homes start at places of their own and each always at the same.
    #[test]
    fn each_home_starts_at_its_own_fixed_place() {
        let of = |home: &str| choose_address(Path::new(home), vec![], UNIT).unwrap();
        assert_eq!(of("/home/ada"), of("/home/ada"));
        assert_ne!(of("/home/ada"), of("/home/bob"));
        assert!(of("/home/ada").is_multiple_of(UNIT));
    }
}
