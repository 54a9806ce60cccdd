//! The right to leave set-user-ID and set-group-ID bits on files that are written to
//! (`CAP_FSETID`), which root has.
//!
//! The kernel takes these bits from a file that a process without the right writes to, so that no
//! process can fill in what will be run with its owner's rights. A privileged host that writes on
//! behalf of a program that it does not trust must not have it meanwhile.

#![forbid(unsafe_code)]

use std::cell::Cell;

use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

/// Whether this thread has the right.
#[must_use]
pub fn are_kept() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::FSETID))
}

thread_local! {
    /// Whether a [`Surrendered`] has taken the right from this thread.
    static IS_TAKEN: Cell<bool> = const { Cell::new(false) };
}

/// While this value lives, its thread does not have the right; afterwards it has again, if it had.
/// Must be dropped on the thread that made it.
#[derive(Debug)]
#[must_use = "the right is back when this is dropped"]
pub struct Surrendered {
    was_taken: bool,
    /// Not for other threads.
    _here: std::marker::PhantomData<*const ()>,
}

impl Surrendered {
    /// Gives the right up, if `is_needed`. Two system calls each way.
    pub fn begin(is_needed: bool) -> Surrendered {
        let was_taken = is_needed && are_kept() && set(false);
        if was_taken {
            IS_TAKEN.set(true);
        }
        Surrendered { was_taken, _here: std::marker::PhantomData }
    }
}

impl Drop for Surrendered {
    fn drop(&mut self) {
        if self.was_taken {
            set(true);
            IS_TAKEN.set(false);
        }
    }
}

/// While this value lives, its thread has the right back that a [`Surrendered`] took, for work of
/// its own in between. Must be dropped on the thread that made it.
#[derive(Debug)]
#[must_use = "the right is gone again when this is dropped"]
pub struct Regained {
    was_taken: bool,
    /// Not for other threads.
    _here: std::marker::PhantomData<*const ()>,
}

impl Regained {
    /// Gives the right back, if it was taken. Two system calls each way, then.
    pub fn begin() -> Regained {
        let was_taken = IS_TAKEN.get() && set(true);
        if was_taken {
            IS_TAKEN.set(false);
        }
        Regained { was_taken, _here: std::marker::PhantomData }
    }
}

impl Drop for Regained {
    fn drop(&mut self) {
        if self.was_taken {
            IS_TAKEN.set(set(false));
        }
    }
}

fn set(is_kept: bool) -> bool {
    let Ok(mut sets) = capabilities(None) else { return false };
    sets.effective.set(CapabilitySet::FSETID, is_kept);
    set_capabilities(None, sets).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantee: sandbox/special-files
    #[test]
    fn the_right_is_back_afterwards() {
        let before = are_kept();
        for is_needed in [false, true] {
            let surrendered = Surrendered::begin(is_needed);
            assert_eq!(are_kept(), before && !is_needed);
            for _ in 0..2 {
                let regained = Regained::begin();
                assert_eq!(are_kept(), before);
                drop((Regained::begin(), regained));
                assert_eq!(are_kept(), before && !is_needed);
            }
            drop(surrendered);
            assert_eq!(are_kept(), before);
        }
    }
}
