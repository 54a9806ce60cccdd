//! Why a limit cannot be changed to what was asked for.

#![forbid(unsafe_code)]

use holdfast_sys::process::Occupant;
use holdfast_types::Remedy;

/// Why a limit cannot be changed to what was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LimitError {
    /// The region has more than that.
    #[error(
        "the heap {name:?} has {backed_bytes} bytes already and its limit cannot go below (to {asked_bytes}); \
         choose a larger one"
    )]
    BelowSize {
        /// Name of the region.
        name: String,
        /// What was asked for.
        asked_bytes: u64,
        /// Backed bytes of the region.
        backed_bytes: u64,
    },
    /// It and what its compartments may grow to would not fit.
    #[error(
        "the heap {name:?} and its compartments take {used_bytes} bytes of its limit; a limit of {asked_bytes} is \
         too small: choose one of at least {used_bytes}, or, of its compartments, one that is not needed: {}",
        Remedy::Remove { heap: None }
    )]
    BelowCompartments {
        /// Name of the region.
        name: String,
        /// What was asked for.
        asked_bytes: u64,
        /// The region's size, and the limits of its compartments.
        used_bytes: u64,
    },
    /// The addresses behind the region are another's.
    #[error(
        "the heap {name:?} may grow to {possible_bytes} bytes at its address, not to {asked_bytes}: {behind} \
         comes next; choose a smaller limit"
    )]
    Blocked {
        /// Name of the region.
        name: String,
        /// What was asked for.
        asked_bytes: u64,
        /// The largest limit that is possible.
        possible_bytes: u64,
        /// What the addresses behind it belong to.
        behind: String,
    },
    /// The addresses behind the mapped region are taken by something else in this process.
    #[error(
        "the heap {name:?} cannot grow to {asked_bytes} bytes where it is mapped: {by} comes next in this process; \
         close the heap everywhere, then {}",
        Remedy::RaiseLimit { heap: Some(name) }
    )]
    TakenHere {
        /// Name of the region.
        name: String,
        /// What was asked for.
        asked_bytes: u64,
        /// What sits there.
        by: Occupant,
    },
    /// Data that is to come back finds no room any more.
    #[error(
        "the heap {name:?} needs {needed_bytes} bytes for that data and cannot have them now: {why}; nothing was changed"
    )]
    NoPlace {
        /// Name of the region.
        name: String,
        /// What its data and its compartments take.
        needed_bytes: u64,
        /// What is in the way, and what to do about it.
        why: String,
    },
    /// It is mapped where the caller made room for it.
    #[error(
        "the heap {name:?} is mapped into the {range_bytes} bytes of a sandbox and cannot pass them (to {asked_bytes}); \
         end the applet, then {}",
        Remedy::RaiseLimit { heap: Some(name) }
    )]
    Placed {
        /// Name of the region.
        name: String,
        /// What was asked for.
        asked_bytes: u64,
        /// The range that it was given.
        range_bytes: u64,
    },
}
