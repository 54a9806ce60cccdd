//! The memory of the tables: the persistent heap or, for comparison, ordinary memory. Everything
//! above this file is the same for both.
//!
//! Invariants:
//! - An [`Address`] is the 4-byte place that tables hold. In a portable heap it counts bytes from
//!   the heap's first one, so applets of every kind read the same tables; in a heap of earlier
//!   versions, which WebAssembly alone has, it is the pointer. It counts bytes, as words are stored
//!   without padding.
//! - [`Place`] turns addresses into pointers; it is a plain addition.

use core::ptr::NonNull;

use holdfast_heap::{Backing, GrowError, Heap, HeapError};

/// A place as tables hold it: 4 bytes, 0 for none.
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
    /// Takes a heap that is portable, or whose pointers are 4 bytes.
    pub fn new(heap: Heap<B>) -> Self {
        // Addresses count from where pointers of the heap do: in a portable one, from its first
        // byte.
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

    /// The address of an object; `None` beyond 4 GiB, which natively a heap may have.
    fn address(&self, pointer: NonNull<u8>) -> Option<Address> {
        Address::try_from(pointer.as_ptr().addr().wrapping_sub(self.place.origin)).ok()
    }

    /// The address of a new object, which is given back if it has none.
    fn address_of_new(&mut self, pointer: NonNull<u8>, bytes: u32) -> Result<Address, HeapError> {
        if let Some(address) = self.address(pointer) {
            return Ok(address);
        }
        self.heap.free(pointer)?;
        let cause = GrowError::LimitReached { limit_bytes: 1 << 32 };
        Err(HeapError::OutOfMemory { wanted_bytes: u64::from(bytes), cause })
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
        let pointer = self.heap.alloc_zeroed(u64::from(bytes))?;
        self.address_of_new(pointer, bytes)
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
        let root = self.heap.root(name)?;
        Some((self.address(root.pointer)?, u32::try_from(root.bytes).ok()?))
    }

    fn create_root(&mut self, name: &str, bytes: u32) -> Result<Address, HeapError> {
        let pointer = self.heap.create_root(name, u64::from(bytes))?;
        if let Some(address) = self.address(pointer) {
            return Ok(address);
        }
        self.heap.remove_root(name)?;
        let cause = GrowError::LimitReached { limit_bytes: 1 << 32 };
        Err(HeapError::OutOfMemory { wanted_bytes: u64::from(bytes), cause })
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
    let cause = GrowError::Failed;
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
            let cause = GrowError::Failed;
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
