//! The backing of a native program's heap: a region of its own user's, or one that a keeper lends.

use holdfast_heap::{Backing, GrowError};

use holdfast_native_heap::RegionBacking;

use crate::heap::ServedBacking;

/// The backing of a native program's heap: its own region, or one lent by a keeper.
#[derive(Debug)]
pub enum NativeBacking {
    /// A region of this user's home.
    Own(RegionBacking),
    /// One of a keeper's.
    Served(ServedBacking),
}

impl NativeBacking {
    fn get(&self) -> &dyn Backing {
        match self {
            NativeBacking::Own(backing) => backing,
            NativeBacking::Served(backing) => backing,
        }
    }
}

// SAFETY: every answer is that of the one backing inside, which keeps the contract.
unsafe impl Backing for NativeBacking {
    fn base(&self) -> *mut u8 {
        self.get().base()
    }

    fn backed_bytes(&self) -> u64 {
        self.get().backed_bytes()
    }

    fn limit_bytes(&self) -> u64 {
        self.get().limit_bytes()
    }

    fn is_read_only(&self) -> bool {
        self.get().is_read_only()
    }

    fn is_ordered(&self) -> bool {
        self.get().is_ordered()
    }

    #[inline]
    fn enter_transaction(&self) -> bool {
        match self {
            NativeBacking::Own(backing) => backing.enter_transaction(),
            NativeBacking::Served(backing) => backing.enter_transaction(),
        }
    }

    #[inline]
    fn leave_transaction(&self) {
        match self {
            NativeBacking::Own(backing) => backing.leave_transaction(),
            NativeBacking::Served(backing) => backing.leave_transaction(),
        }
    }

    fn grow(&mut self, bytes: u64) -> Result<u64, GrowError> {
        match self {
            NativeBacking::Own(backing) => backing.grow(bytes),
            NativeBacking::Served(backing) => backing.grow(bytes),
        }
    }
}
