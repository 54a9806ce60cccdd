//! The memory of the tables: the persistent heap or, for comparison, ordinary memory. Everything
//! above this file is the same for both.
//!
//! Invariants:
//! - An [`Address`] is the 4-byte pointer that tables hold. In an applet it *is* the pointer; in
//!   native tests it counts from the heap's base, so both make the same bytes.
//! - [`Place`] turns addresses into pointers; it is a plain addition (of zero, in an applet).

use core::ptr::NonNull;

use holdfast_heap::{Backing, Heap, HeapError};

/// A pointer as tables hold it: 4 bytes, 0 for none.
pub type Address = u32;

/// What turns an [`Address`] into a pointer of this program.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// What is added to it; a number and not a pointer, because in ordinary memory the pointers
    /// come from many allocations (which are all exposed).
    origin: usize,
}

impl Place {
    pub(crate) fn pointer(self, address: Address) -> *mut u8 {
        core::ptr::with_exposed_provenance_mut(self.origin.wrapping_add(address as usize))
    }
}

/// Memory with named roots and transactions.
///
/// # Safety
/// `alloc_zeroed` returns memory of that many bytes, aligned to 16, that nothing else uses until it
/// is freed and that `place` reaches; a root has the bytes that it says.
pub unsafe trait Arena {
    /// How addresses become pointers.
    fn place(&self) -> Place;
    /// Whether what is in it serves later runs too, so that more work now may save some then.
    fn is_kept(&self) -> bool;
    /// Allocates zeroed memory; in an open transaction it belongs to it.
    ///
    /// # Errors
    /// No room.
    fn alloc_zeroed(&mut self, bytes: u32) -> Result<Address, HeapError>;
    /// Frees what `alloc_zeroed` gave for as many bytes; in an open transaction, when it commits.
    ///
    /// # Errors
    /// Not allocated.
    fn free(&mut self, address: Address, bytes: u32) -> Result<(), HeapError>;
    /// Announces a change of existing bytes.
    ///
    /// # Errors
    /// No room for the log.
    fn add_range(&mut self, address: Address, bytes: u32) -> Result<(), HeapError>;
    /// Opens a transaction.
    ///
    /// # Errors
    /// One is open.
    fn begin(&mut self) -> Result<(), HeapError>;
    /// Makes everything since `begin` count.
    ///
    /// # Errors
    /// None is open.
    fn commit(&mut self) -> Result<(), HeapError>;
    /// Undoes everything since `begin`, if a transaction is open.
    fn abort(&mut self);
    /// Address and size of a named root.
    fn root(&self, name: &str) -> Option<(Address, u32)>;
    /// Makes a named root of zeroes.
    ///
    /// # Errors
    /// The name is taken or unfit, or there is no room.
    fn create_root(&mut self, name: &str, bytes: u32) -> Result<Address, HeapError>;
    /// Removes a root and frees its object.
    ///
    /// # Errors
    /// No such root.
    fn remove_root(&mut self, name: &str) -> Result<(), HeapError>;
    /// Names of the roots that start with `prefix`.
    fn roots(&self, prefix: &str) -> Vec<String>;
}

impl<B: Backing> HeapArena<B> {
    /// Takes a heap whose pointers are 4 bytes.
    pub fn new(heap: Heap<B>) -> Self {
        // The size of a heap with 4-byte pointers and its base fit into 4 GiB; `pointers` says so.
        let origin =
            heap.backing().base().expose_provenance().wrapping_sub(heap.pointers().base as usize);
        HeapArena { heap, place: Place { origin } }
    }

    /// The heap.
    pub fn heap(&self) -> &Heap<B> {
        &self.heap
    }

    /// Gives the heap back.
    pub fn into_heap(self) -> Heap<B> {
        self.heap
    }

    fn address(&self, pointer: NonNull<u8>) -> Address {
        pointer.as_ptr().addr().wrapping_sub(self.place.origin) as Address
    }

    fn pointer(&self, address: Address) -> Result<NonNull<u8>, HeapError> {
        NonNull::new(self.place.pointer(address)).ok_or(HeapError::NotAllocated)
    }
}

/// The persistent heap as an arena.
pub struct HeapArena<B: Backing> {
    heap: Heap<B>,
    place: Place,
}

// SAFETY: the heap's own contract: zeroed memory of that size, aligned to 16, until it is freed.
unsafe impl<B: Backing> Arena for HeapArena<B> {
    fn place(&self) -> Place {
        self.place
    }

    fn is_kept(&self) -> bool {
        true
    }

    fn alloc_zeroed(&mut self, bytes: u32) -> Result<Address, HeapError> {
        self.heap.alloc_zeroed(u64::from(bytes)).map(|pointer| self.address(pointer))
    }

    fn free(&mut self, address: Address, _bytes: u32) -> Result<(), HeapError> {
        let pointer = self.pointer(address)?;
        self.heap.free(pointer)
    }

    #[inline]
    fn add_range(&mut self, address: Address, bytes: u32) -> Result<(), HeapError> {
        self.heap.add_range(self.place.pointer(address), u64::from(bytes))
    }

    fn begin(&mut self) -> Result<(), HeapError> {
        self.heap.begin()
    }

    fn commit(&mut self) -> Result<(), HeapError> {
        self.heap.commit()
    }

    fn abort(&mut self) {
        // An error only says that no transaction is open, which is what is wanted.
        let _ = self.heap.abort();
    }

    fn root(&self, name: &str) -> Option<(Address, u32)> {
        self.heap.root(name).map(|root| (self.address(root.pointer), root.bytes as u32))
    }

    fn create_root(&mut self, name: &str, bytes: u32) -> Result<Address, HeapError> {
        self.heap.create_root(name, u64::from(bytes)).map(|pointer| self.address(pointer))
    }

    fn remove_root(&mut self, name: &str) -> Result<(), HeapError> {
        self.heap.remove_root(name)
    }

    fn roots(&self, prefix: &str) -> Vec<String> {
        self.heap
            .roots()
            .map(|(name, _)| name)
            .filter(|name| name.starts_with(prefix))
            .map(str::to_owned)
            .collect()
    }
}

/// Ordinary memory: nothing outlives the program, and transactions are nothing.
#[cfg(target_family = "wasm")]
#[derive(Default)]
pub struct VolatileArena {
    roots: Vec<(String, Address, u32)>,
}

#[cfg(target_family = "wasm")]
fn layout(bytes: u32) -> Result<core::alloc::Layout, HeapError> {
    let cause = holdfast_heap::GrowError::Failed;
    core::alloc::Layout::from_size_align(bytes.max(1) as usize, 16)
        .map_err(|_| HeapError::OutOfMemory { wanted_bytes: u64::from(bytes), cause })
}

// SAFETY: the global allocator's contract: zeroed memory of that layout until it is freed.
#[cfg(target_family = "wasm")]
unsafe impl Arena for VolatileArena {
    fn place(&self) -> Place {
        Place { origin: 0 }
    }

    fn is_kept(&self) -> bool {
        false
    }

    fn alloc_zeroed(&mut self, bytes: u32) -> Result<Address, HeapError> {
        // SAFETY: the layout is not empty.
        let pointer = unsafe { std::alloc::alloc_zeroed(layout(bytes)?) };
        if pointer.is_null() {
            let cause = holdfast_heap::GrowError::Failed;
            return Err(HeapError::OutOfMemory { wanted_bytes: u64::from(bytes), cause });
        }
        Ok(pointer.expose_provenance() as Address)
    }

    fn free(&mut self, address: Address, bytes: u32) -> Result<(), HeapError> {
        // SAFETY: the caller got the address for as many bytes from `alloc_zeroed`.
        unsafe { std::alloc::dealloc(self.place().pointer(address), layout(bytes)?) };
        Ok(())
    }

    #[inline]
    fn add_range(&mut self, _address: Address, _bytes: u32) -> Result<(), HeapError> {
        Ok(())
    }

    fn begin(&mut self) -> Result<(), HeapError> {
        Ok(())
    }

    fn commit(&mut self) -> Result<(), HeapError> {
        Ok(())
    }

    fn abort(&mut self) {}

    fn root(&self, name: &str) -> Option<(Address, u32)> {
        self.roots.iter().find(|root| root.0 == name).map(|root| (root.1, root.2))
    }

    fn create_root(&mut self, name: &str, bytes: u32) -> Result<Address, HeapError> {
        if self.root(name).is_some() {
            return Err(HeapError::NameTaken);
        }
        let address = self.alloc_zeroed(bytes)?;
        self.roots.push((name.to_owned(), address, bytes));
        Ok(address)
    }

    fn remove_root(&mut self, name: &str) -> Result<(), HeapError> {
        let index =
            self.roots.iter().position(|root| root.0 == name).ok_or(HeapError::NoSuchRoot)?;
        let (_, address, bytes) = self.roots.swap_remove(index);
        self.free(address, bytes)
    }

    fn roots(&self, prefix: &str) -> Vec<String> {
        self.roots
            .iter()
            .map(|root| &root.0)
            .filter(|name| name.starts_with(prefix))
            .cloned()
            .collect()
    }
}
