//! The tie between one applet's linear memory and its region: who maps it, grows it and takes it
//! away again.
//!
//! The linear memory (owned by the store) and the `holdfast` imports share one [`HeapLink`].
//!
//! Invariants:
//! - The region is mapped only while the linear memory exists: its drop calls [`HeapLink::unmap`]
//!   before the address space is given back.
//! - After attachment every byte below the size is volatile, backed by the region, or under a
//!   guard.
//! - All calls come from the thread that runs the applet, between its instructions; the lock is
//!   never held while the applet runs and never taken in a signal handler.
#![deny(unsafe_code)]

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdfast_region::{Consistency, Opened, Region, RegionError};
use holdfast_sys::fault::HoleGuard;

use crate::arena::{BufferArena, MappedArena};
use crate::error::WasmError;
use crate::layout::{HEAP_BASE, HeapPart, Layout};
use holdfast_types::RequestStatus;

/// Stops the applet soon; called from a signal handler, so it must be async-signal-safe.
pub(crate) type StopApplet = Arc<dyn Fn() + Send + Sync>;

/// What the host must know after a fault that was resolved under its feet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HostFault {
    /// Host code touched a hole on the applet's behalf.
    Hole(&'static str),
    /// Host code, or the kernel, would have stored to a heap that may only be read.
    ReadOnly,
    /// The image was cut off while mapped.
    BackingLost,
    /// The machine had no memory for a page of the arena.
    ArenaLost,
}

/// What the applet learns on attachment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attached {
    pub(crate) backed_bytes: u64,
    pub(crate) limit_bytes: u64,
    pub(crate) created: bool,
    pub(crate) read_only: bool,
    pub(crate) atomic: bool,
}

struct LinkState {
    region: Option<Region>,
    arena: Option<BufferArena>,
    /// While it is mapped.
    mapped_arena: Option<MappedArena>,
    layout: Layout,
    /// Set while the growth of the memory means "attach heap and arena".
    attaching: Option<StopApplet>,
    guards: Option<Guards>,
    base: usize,
    /// The first failure that the applet saw only as a number.
    error: Option<RegionError>,
    /// Where a hole was that the applet wanted the kernel to write to.
    kernel_hole: Option<u64>,
    /// The applet wanted the kernel to write to a heap that may only be read.
    kernel_store: bool,
}

struct Guards {
    low: HoleGuard,
    high: HoleGuard,
}

/// See the module's documentation.
pub(crate) struct HeapLink(Mutex<LinkState>);

impl HeapLink {
    pub(crate) fn new(region: Option<Region>, arena: Option<BufferArena>) -> Arc<Self> {
        Arc::new(HeapLink(Mutex::new(LinkState {
            region,
            arena,
            mapped_arena: None,
            layout: Layout { size_bytes: 0, heap: None },
            attaching: None,
            guards: None,
            base: 0,
            error: None,
            kernel_hole: None,
            kernel_store: false,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, LinkState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn layout(&self) -> Layout {
        self.lock().layout
    }

    /// Whether a heap was granted, attached or not.
    pub(crate) fn has_region(&self) -> bool {
        self.lock().region.is_some()
    }

    /// Bytes of the arena, attached or not.
    pub(crate) fn arena_bytes(&self) -> u64 {
        self.lock().arena.as_ref().map_or(0, |arena| arena.bytes())
    }

    /// Whether heap and arena, whichever there are, are attached.
    pub(crate) fn is_attached(&self) -> bool {
        self.lock().layout.heap.is_some()
    }

    /// Where the volatile memory must end at the latest, and where the attached part is going to.
    pub(crate) fn attachment(&self) -> std::ops::Range<u64> {
        let inner = self.lock();
        let arena_bytes = inner.arena.as_ref().map_or(0, |arena| arena.bytes());
        HEAP_BASE - arena_bytes..HEAP_BASE + inner.region.as_ref().map_or(0, Region::limit_bytes)
    }

    /// The name and the limit of the granted heap.
    pub(crate) fn name_and_limit(&self) -> Option<(String, u64)> {
        self.lock().region.as_ref().map(|region| (region.name().to_string(), region.limit_bytes()))
    }

    /// Bytes that the heap has, and whether it was stored to.
    pub(crate) fn backed_and_dirty(&self) -> Option<(u64, bool)> {
        self.lock().region.as_ref().map(|region| (region.backed_bytes(), region.is_dirty()))
    }

    pub(crate) fn attached(&self) -> Option<Attached> {
        let inner = self.lock();
        let (heap, region) = (inner.layout.heap?, inner.region.as_ref()?);
        Some(Attached {
            backed_bytes: heap.backed_bytes,
            limit_bytes: region.growth_limit_bytes(),
            read_only: region.is_read_only(),
            atomic: region.consistency() == Consistency::Atomic,
            created: region.opened() == Opened::Created,
        })
    }

    /// The next growth of the memory attaches the heap.
    pub(crate) fn begin_attach(&self, stop: StopApplet) {
        self.lock().attaching = Some(stop);
    }

    /// The growth is over; says whether the heap is attached now.
    pub(crate) fn end_attach(&self) -> bool {
        let mut inner = self.lock();
        inner.attaching = None;
        inner.layout.heap.is_some()
    }

    pub(crate) fn is_attaching(&self) -> bool {
        self.lock().attaching.is_some()
    }

    /// Grows the region and moves the guard behind it.
    pub(crate) fn grow(&self, at_least_bytes: u64) -> Result<u64, RequestStatus> {
        let mut inner = self.lock();
        let LinkState { region, layout, guards, base, error, .. } = &mut *inner;
        let (Some(region), Some(heap)) = (region.as_mut(), layout.heap.as_mut()) else {
            return Err(RequestStatus::NotGranted);
        };
        let outcome = region.grow(at_least_bytes);
        // Also after a failure: an error part-way may have backed some of it.
        heap.backed_bytes = region.backed_bytes();
        if let Some(guards) = guards {
            guard_hole(&guards.high, *base, &heap.high_hole());
        }
        outcome.map_err(|failure| {
            let code = RequestStatus::from(&failure);
            if code == RequestStatus::Failed {
                error.get_or_insert(failure);
            }
            code
        })
    }

    /// Makes what was stored so far count, where it does not at once (mode `atomic`).
    pub(crate) fn publish(&self) -> RequestStatus {
        self.with_attached(|region| region.publish().map(drop))
    }

    /// The same, and copies the image to the store, now.
    pub(crate) fn checkpoint(&self) -> RequestStatus {
        self.with_attached(|region| region.publish().and_then(|_| region.checkpoint()).map(drop))
    }

    /// Publishes what was stored, after a call or at the end of a run that was not stopped.
    pub(crate) fn publish_at_end(&self) -> Result<(), RegionError> {
        let mut inner = self.lock();
        match &mut *inner {
            LinkState { region: Some(region), layout: Layout { heap: Some(_), .. }, .. } => {
                region.publish().map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Undoes what was stored since the last publication, if the mode is `atomic`.
    pub(crate) fn roll_back(&self) -> Result<(), RegionError> {
        match &mut *self.lock() {
            LinkState { region: Some(region), layout: Layout { heap: Some(_), .. }, .. }
                if region.consistency() == Consistency::Atomic =>
            {
                region.rollback().map(drop)
            }
            _ => Ok(()),
        }
    }

    /// The same, for an applet that asks for it because it lets go of what it knows of its heap.
    pub(crate) fn roll_back_for_applet(&self) -> RequestStatus {
        self.with_attached(|region| match region.consistency() {
            Consistency::Atomic => region.rollback().map(drop),
            _ => Ok(()),
        })
    }

    fn with_attached(
        &self,
        work: impl FnOnce(&mut Region) -> Result<(), RegionError>,
    ) -> RequestStatus {
        let mut inner = self.lock();
        let LinkState { region: Some(region), layout: Layout { heap: Some(_), .. }, error, .. } =
            &mut *inner
        else {
            return RequestStatus::NotGranted;
        };
        match work(region) {
            Ok(()) => RequestStatus::Ok,
            Err(failure) => {
                let code = RequestStatus::from(&failure);
                error.get_or_insert(failure);
                code
            }
        }
    }

    /// Before the kernel itself writes to the applet's memory at `range`: such a write neither
    /// faults nor traps, it fails, so the pages are made writable first, dirty as the region may
    /// be; a hole, and a heap that may only be read, is reported.
    pub(crate) fn prepare_kernel_write(&self, range: &std::ops::Range<u64>) {
        let mut inner = self.lock();
        let LinkState { region, layout, error, kernel_hole, kernel_store, .. } = &mut *inner;
        if let Some(region) = region
            && let Some(part) = layout.heap_part_of(range)
        {
            let bytes = part.start - HEAP_BASE..part.end - HEAP_BASE;
            if region.is_read_only() {
                *kernel_store = true;
            } else if let Err(failure) = region.make_range_writable(bytes) {
                error.get_or_insert(failure);
            }
        }
        if range.end <= layout.size_bytes && !layout.is_present(range) {
            kernel_hole.get_or_insert(layout.first_absent(range));
        }
    }

    /// Whether the applet must be stopped for something that happened in host code.
    pub(crate) fn host_fault(&self) -> Option<HostFault> {
        let inner = self.lock();
        let heap = inner.layout.heap?;
        if inner.mapped_arena.as_ref().is_some_and(MappedArena::is_lost) {
            return Some(HostFault::ArenaLost);
        }
        if inner.region.as_ref().is_some_and(Region::lost_backing) {
            return Some(HostFault::BackingLost);
        }
        if inner.kernel_store || inner.region.as_ref().is_some_and(Region::refused_store) {
            return Some(HostFault::ReadOnly);
        }
        let guards = inner.guards.as_ref()?;
        let low = guards.low.touched().then(|| heap.low_hole().start);
        let high = guards.high.touched().then(|| heap.high_hole().start);
        low.or(high)
            .or(inner.kernel_hole)
            .map(|address| HostFault::Hole(inner.layout.describe(address)))
    }

    /// The error for a region whose image was cut off under the applet.
    pub(crate) fn backing_lost(&self) -> WasmError {
        match self.lock().region.as_mut().map(Region::checkpoint) {
            Some(Err(error)) => WasmError::Heap(error),
            _ => WasmError::Host {
                step: "keep the heap",
                reason: "its image was cut off while in use".to_owned(),
            },
        }
    }

    /// The failure behind a number that the applet got, once.
    pub(crate) fn take_error(&self) -> Option<RegionError> {
        self.lock().error.take()
    }

    /// Gives the region back to the caller of the run.
    pub(crate) fn take_region(&self) -> Option<Region> {
        self.lock().region.take()
    }

    // --- called by the linear memory
    // -----------------------------------------------------------------

    pub(crate) fn memory_created(&self, base: *mut u8, size_bytes: u64) {
        let mut inner = self.lock();
        inner.base = base as usize;
        inner.layout = Layout { size_bytes, heap: None };
    }

    pub(crate) fn memory_grown(&self, size_bytes: u64) {
        self.lock().layout.size_bytes = size_bytes;
    }

    /// Maps region and arena at their places in the memory and guards the holes around them.
    ///
    /// # Safety
    /// `base` must start a reservation of a whole linear memory, inaccessible from the current size
    /// on, that outlives the mapping ([`HeapLink::unmap`] is called before it ends).
    #[allow(unsafe_code, reason = "the one place where region and linear memory meet")]
    pub(crate) unsafe fn map(&self, base: *mut u8, new_size_bytes: u64) -> std::io::Result<()> {
        let mut inner = self.lock();
        let LinkState {
            region,
            arena,
            mapped_arena,
            layout,
            attaching: Some(stop),
            guards,
            error,
            ..
        } = &mut *inner
        else {
            return Err(std::io::Error::other("no heap is being attached"));
        };
        let heap = HeapPart {
            volatile_low_bytes: layout.size_bytes,
            arena_bytes: arena.as_ref().map_or(0, |arena| arena.bytes()),
            backed_bytes: region.as_ref().map_or(0, Region::backed_bytes),
            limit_bytes: region.as_ref().map_or(0, Region::limit_bytes),
            read_only: region.as_ref().is_some_and(Region::is_read_only),
        };
        if layout.heap.is_some()
            || layout.size_bytes > heap.arena_range().start
            || new_size_bytes != heap.end()
        {
            return Err(std::io::Error::other("the memory cannot take the heap"));
        }
        // SAFETY: `stop` is async-signal-safe (the type's contract).
        let new_guards = unsafe {
            Guards { low: HoleGuard::new(stop.clone())?, high: HoleGuard::new(stop.clone())? }
        };
        let mapped = match arena {
            // SAFETY: the range lies in the reservation, which is inaccessible there as the
            // volatile part ends below; no other thread knows of it yet.
            Some(arena) => Some(unsafe { MappedArena::map(base, arena, stop.clone())? }),
            None => None,
        };
        if let Some(region) = region {
            region.set_lost_notify(stop.clone());
            // SAFETY: the reservation covers HEAP_BASE + limit (new_size_bytes fits a linear
            // memory), is inaccessible there as the volatile part ends below, and outlives the
            // mapping (our contract).
            if let Err(failure) = unsafe { region.map_into(base.wrapping_add(HEAP_BASE as usize)) }
            {
                if let Some(mapped) = mapped {
                    // SAFETY: it was mapped above; the memory does not reach that far yet.
                    unsafe { mapped.unmap(base)? };
                }
                let text = failure.to_string();
                error.get_or_insert(failure);
                return Err(std::io::Error::other(text));
            }
        }
        *mapped_arena = mapped;
        guard_hole(&new_guards.low, base as usize, &heap.low_hole());
        guard_hole(&new_guards.high, base as usize, &heap.high_hole());
        *guards = Some(new_guards);
        *layout = Layout { size_bytes: new_size_bytes, heap: Some(heap) };
        Ok(())
    }

    /// Takes the region and the guards out of the memory, which is about to go.
    pub(crate) fn unmap(&self) {
        let mut inner = self.lock();
        let LinkState { region, mapped_arena, layout, guards, error, base, .. } = &mut *inner;
        *guards = None;
        // What it watched goes with the address space.
        *mapped_arena = None;
        *base = 0;
        if layout.heap.take().is_some()
            && let Some(region) = region
            && let Err(failure) = region.unmap()
        {
            error.get_or_insert(failure);
        }
    }
}

#[allow(unsafe_code, reason = "the guard needs to know that the hole is ours")]
fn guard_hole(guard: &HoleGuard, base: usize, hole: &std::ops::Range<u64>) {
    let address = |offset: u64| std::ptr::without_provenance_mut(base + offset as usize);
    // SAFETY: the hole is inaccessible address space of the linear memory's reservation,
    // page-aligned (all sizes are multiples of a wasm page), and the applet's thread is here, not
    // faulting.
    unsafe { guard.set_range(address(hole.start)..address(hole.end)) };
}
