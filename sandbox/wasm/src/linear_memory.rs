//! Linear memory that can hold a persistent region: our implementation of wasmtime's
//! `LinearMemory`.
//!
//! The whole address space of a 32-bit memory plus its guard is reserved once, inaccessible; growth
//! makes parts of it accessible and never moves anything. Attachment is a growth like any other for
//! wasmtime (see docs/adr/0002-region-in-linear-memory.md).
//!
//! Invariants: compiled code may address every byte of the reservation, so nothing but this
//! memory's own content may ever be mapped there; the region is taken out before the reservation is
//! given back.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;

use holdfast_sys::mapping::{self, HUGE_PAGE_BYTES, Prot, Reservation};
use holdfast_sys::shortage;
use wasmtime::{LinearMemory, MemoryCreator, MemoryType};

use crate::heap_link::HeapLink;
use crate::layout::LINEAR_MEMORY_BYTES;

thread_local! {
    /// The link of the applet that is being instantiated on this thread: engines are shared by
    /// applets.
    static INSTANTIATING: RefCell<Option<Arc<HeapLink>>> = const { RefCell::new(None) };
}

/// Creates the one memory of each applet of an engine.
pub(crate) struct Creator;

/// Instantiates an applet: memory that is created meanwhile is tied to `link`.
pub(crate) async fn instantiate<T>(
    link: Arc<HeapLink>,
    instantiation: impl Future<Output = T>,
) -> T {
    let mut instantiation = pin!(instantiation);
    poll_fn(|context| {
        INSTANTIATING.set(Some(link.clone()));
        let polled = instantiation.as_mut().poll(context);
        INSTANTIATING.set(None);
        polled
    })
    .await
}

struct AppletMemory {
    reservation: Reservation,
    size_bytes: usize,
    capacity_bytes: usize,
    link: Arc<HeapLink>,
}

// SAFETY: `new_memory` reserves what wasmtime asks for plus the guard, zero-filled on first touch,
// and `AppletMemory` owns it until its drop.
unsafe impl MemoryCreator for Creator {
    fn new_memory(
        &self,
        _ty: MemoryType,
        minimum: usize,
        _maximum: Option<usize>,
        reserved_size_in_bytes: Option<usize>,
        guard_size_in_bytes: usize,
    ) -> Result<Box<dyn LinearMemory>, String> {
        let capacity_bytes = reserved_size_in_bytes.unwrap_or(LINEAR_MEMORY_BYTES as usize);
        let link = INSTANTIATING.take().ok_or("a memory that belongs to no applet")?;
        AppletMemory::new(link, minimum, capacity_bytes, guard_size_in_bytes)
            .map(|memory| Box::new(memory) as Box<dyn LinearMemory>)
            .map_err(|error| {
                let remedy =
                    shortage::remedy(&error).map(|text| format!("; {text}")).unwrap_or_default();
                format!("reserving {capacity_bytes} bytes of address space: {error}{remedy}")
            })
    }
}

impl AppletMemory {
    fn new(
        link: Arc<HeapLink>,
        minimum_bytes: usize,
        capacity_bytes: usize,
        guard_bytes: usize,
    ) -> io::Result<Self> {
        if minimum_bytes > capacity_bytes {
            return Err(io::Error::other("the memory is larger than its address space"));
        }
        // The region lies at a multiple of a huge page in this memory, and at one in its file; so
        // the kernel can map huge pages where the image has them.
        let reservation = Reservation::anywhere(capacity_bytes + guard_bytes, HUGE_PAGE_BYTES)?;
        link.memory_created(reservation.base(), minimum_bytes as u64);
        let memory = AppletMemory { reservation, size_bytes: minimum_bytes, capacity_bytes, link };
        memory.make_accessible(0, minimum_bytes)?;
        Ok(memory)
    }

    fn make_accessible(&self, from_bytes: usize, to_bytes: usize) -> io::Result<()> {
        if from_bytes == to_bytes {
            return Ok(());
        }
        let start = self.reservation.base().wrapping_add(from_bytes);
        // SAFETY: the range lies in this memory's reservation (checked by the callers against the
        // capacity), past everything that is in use, and is private anonymous memory there.
        unsafe { mapping::protect(start, to_bytes - from_bytes, Prot::ReadWrite) }
    }
}

// SAFETY: the base never moves, `byte_size` bytes belong to the applet (accessible, or holes under
// a guard after attachment), and everything from there to the end of the reservation is
// inaccessible.
unsafe impl LinearMemory for AppletMemory {
    fn byte_size(&self) -> usize {
        self.size_bytes
    }

    fn byte_capacity(&self) -> usize {
        self.capacity_bytes
    }

    fn grow_to(&mut self, new_size: usize) -> wasmtime::Result<()> {
        if new_size > self.capacity_bytes || new_size < self.size_bytes {
            return Err(io::Error::other("a linear memory cannot have that size").into());
        }
        if self.link.is_attaching() {
            // SAFETY: the reservation covers the capacity, is inaccessible from `size_bytes` on,
            // and our drop unmaps the region before the reservation ends.
            unsafe { self.link.map(self.reservation.base(), new_size as u64)? };
        } else {
            self.make_accessible(self.size_bytes, new_size)?;
            self.link.memory_grown(new_size as u64);
        }
        self.size_bytes = new_size;
        Ok(())
    }

    fn as_ptr(&self) -> *mut u8 {
        self.reservation.base()
    }
}

impl Drop for AppletMemory {
    fn drop(&mut self) {
        self.link.unmap();
    }
}
