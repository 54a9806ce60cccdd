//! The tie between one applet's linear memory and its heaps: who maps them, grows them and takes
//! them away again. A heap is known by its index among the grants.
//!
//! The linear memory (owned by the store) and the `holdfast` imports share one [`HeapLink`].
//!
//! Invariants:
//! - The regions are mapped only while the linear memory exists: its drop calls [`HeapLink::unmap`]
//!   before the address space is given back.
//! - After attachment every byte below the size is volatile, backed by a region, or under a
//!   guard.
//! - All calls come from the thread that runs the applet, between its instructions; the lock is
//!   never held while the applet runs and never taken in a signal handler.
#![deny(unsafe_code)]

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdfast_channel::heaps::is_compartment_of;
use holdfast_region::{Consistency, Opened, Region, RegionError};
use holdfast_sys::fault::{HoleGuard, stand_ins};

use crate::arena::{BufferArena, MappedArena};
use crate::error::WasmError;
use crate::heaps::{GrantedHeap, Heaps};
use crate::layout::{AttachedPart, HEAP_BASE, HeapPart, Layout, PlaceConflict, Placing, place};
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
    pub(crate) base: u64,
    pub(crate) backed_bytes: u64,
    pub(crate) limit_bytes: u64,
    pub(crate) created: bool,
    pub(crate) read_only: bool,
    pub(crate) atomic: bool,
    pub(crate) compartment: bool,
}

struct LinkState {
    heaps: Heaps,
    /// The linear offset of each heap.
    places: Vec<u64>,
    arena: Option<BufferArena>,
    /// While it is mapped.
    mapped_arena: Option<MappedArena>,
    layout: Layout,
    /// Set while the growth of the memory means "attach heap and arena".
    attaching: Option<StopApplet>,
    /// One for each hole of the layout, once it is attached.
    guards: Vec<HoleGuard>,
    base: usize,
    /// The first failure that the applet saw only as a number.
    error: Option<RegionError>,
    /// Where a hole was that the applet wanted the kernel to write to.
    kernel_hole: Option<u64>,
    /// The applet wanted the kernel to write to a heap that may only be read.
    kernel_store: bool,
}

/// See the module's documentation.
pub(crate) struct HeapLink {
    state: Mutex<LinkState>,
    /// Whether the layout has heaps and arena, without the lock: each import asks, because without
    /// them there is nothing that host code could fault on. Stored by
    /// [`HeapLink::replace_layout`] alone.
    is_attached: AtomicBool,
    /// Bytes from address 0 on that exist, without the lock: what an applet points to lies there
    /// nearly always. Stored wherever the layout changes.
    low_bytes: AtomicU64,
    /// [`stand_ins`] when nothing was found the last time that all was looked through.
    sound_as_of: AtomicU64,
}

/// No number of stand-ins: all is looked through the next time.
const NEVER: u64 = u64::MAX;

impl HeapLink {
    pub(crate) fn new(heaps: Heaps, arena: Option<BufferArena>) -> Arc<Self> {
        let state = LinkState {
            heaps,
            places: Vec::new(),
            arena,
            mapped_arena: None,
            layout: Layout { size_bytes: 0, attached: None },
            attaching: None,
            guards: Vec::new(),
            base: 0,
            error: None,
            kernel_hole: None,
            kernel_store: false,
        };
        Arc::new(HeapLink {
            state: Mutex::new(state),
            is_attached: AtomicBool::new(false),
            low_bytes: AtomicU64::new(0),
            sound_as_of: AtomicU64::new(NEVER),
        })
    }

    /// Chooses where each heap lies. `is_first_low`: see [`place`].
    ///
    /// # Errors
    /// Heaps that one linear memory has no room for, or not where they must lie.
    pub(crate) fn place_heaps(&self, is_first_low: bool) -> Result<(), WasmError> {
        let mut inner = self.lock();
        let name = |index: usize| {
            inner
                .heaps
                .iter()
                .nth(index)
                .map(|heap| heap.region.name().to_string())
                .unwrap_or_default()
        };
        let wanted: Vec<_> = inner
            .heaps
            .iter()
            .map(|heap| Placing {
                limit_bytes: heap.region.limit_bytes(),
                base: heap.base,
                // Addresses are given out one after the other, in units of 1 GiB.
                number: heap.region.address() >> 30,
            })
            .collect();
        let places = place(&wanted, is_first_low).map_err(|conflict| match conflict {
            PlaceConflict::Overlap { earlier, later } => WasmError::HeapsOverlap {
                first: name(earlier),
                second: name(later),
                base: wanted.get(later).and_then(|heap| heap.base).unwrap_or_default(),
            },
            PlaceConflict::Short { index, base } => WasmError::HeapPlace {
                name: name(index),
                limit_bytes: wanted.get(index).map_or(0, |heap| heap.limit_bytes),
                base,
            },
            PlaceConflict::NoGap { index } => WasmError::NoRoomForHeap { name: name(index) },
        })?;
        inner.places = places;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, LinkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the memory another layout; what it had.
    fn replace_layout(&self, layout: &mut Layout, new: Layout) -> Layout {
        // The thread that asks is the one that attaches.
        self.is_attached.store(new.attached.is_some(), Ordering::Relaxed);
        self.low_bytes.store(new.low_bytes(), Ordering::Relaxed);
        self.sound_as_of.store(NEVER, Ordering::Relaxed);
        std::mem::replace(layout, new)
    }

    pub(crate) fn layout(&self) -> Layout {
        self.lock().layout.clone()
    }

    /// The index of the heap that the applet knows by this name; the first one without a name.
    pub(crate) fn find(&self, name: Option<&str>) -> Option<usize> {
        let inner = self.lock();
        let is_it = |heap: &str| name.is_none_or(|name| name == heap);
        inner.heaps.iter().position(|heap| is_it(heap.name.as_str()))
    }

    /// The index of the compartment of this name, or of this worker; of the one that there is,
    /// without a name.
    pub(crate) fn find_compartment(&self, name: Option<&str>) -> Option<usize> {
        let inner = self.lock();
        let is_it = |heap: &GrantedHeap| {
            heap.is_compartment() && is_compartment_of(heap.name.as_str(), name)
        };
        inner.heaps.iter().position(is_it)
    }

    /// The first of some ranges that is not all memory that exists, and what lies where it leaves
    /// that.
    pub(crate) fn first_absent(&self, ranges: &[Range<u64>]) -> Option<(usize, &'static str)> {
        let low_bytes = self.low_bytes.load(Ordering::Relaxed);
        if ranges.iter().all(|range| range.end <= low_bytes) {
            return None;
        }
        let layout = &self.lock().layout;
        let index = ranges.iter().position(|range| !layout.is_present(range))?;
        Some((index, layout.describe(layout.first_absent(&ranges[index]))))
    }

    /// Bytes of the arena, attached or not.
    pub(crate) fn arena_bytes(&self) -> u64 {
        self.lock().arena.as_ref().map_or(0, |arena| arena.bytes())
    }

    /// Whether heaps and arena, whichever there are, are attached.
    pub(crate) fn is_attached(&self) -> bool {
        self.is_attached.load(Ordering::Relaxed)
    }

    /// Where the volatile memory must end at the latest, and where the attached part is going to.
    pub(crate) fn attachment(&self) -> Range<u64> {
        let inner = self.lock();
        let arena_bytes = inner.arena.as_ref().map_or(0, |arena| arena.bytes());
        let ends = inner
            .heaps
            .iter()
            .zip(&inner.places)
            .map(|(heap, base)| base + heap.region.limit_bytes());
        HEAP_BASE - arena_bytes..ends.max().unwrap_or(HEAP_BASE)
    }

    /// The names and the limits of the granted heaps.
    pub(crate) fn names_and_limits(&self) -> Vec<(String, u64)> {
        let inner = self.lock();
        let heaps = inner.heaps.iter();
        heaps.map(|heap| (heap.region.name().to_string(), heap.region.limit_bytes())).collect()
    }

    /// Bytes that the heaps have, and whether one was stored to.
    pub(crate) fn backed_and_dirty(&self) -> (u64, bool) {
        let inner = self.lock();
        (inner.heaps.backed_bytes(), inner.heaps.is_dirty())
    }

    pub(crate) fn attached(&self, index: usize) -> Option<Attached> {
        let mut inner = self.lock();
        let part = *inner.layout.attached.as_ref()?.heap(index)?;
        let heap = inner.heaps.at(index)?;
        let compartment = heap.is_compartment();
        let region = &heap.region;
        Some(Attached {
            compartment,
            base: part.base,
            backed_bytes: part.backed_bytes,
            limit_bytes: region.growth_limit_bytes(),
            read_only: region.is_read_only(),
            atomic: region.consistency() == Consistency::Atomic,
            created: region.opened() == Opened::Created,
        })
    }

    /// The next growth of the memory attaches heaps and arena.
    pub(crate) fn begin_attach(&self, stop: StopApplet) {
        self.lock().attaching = Some(stop);
    }

    /// The growth is over; says whether they are attached now.
    pub(crate) fn end_attach(&self) -> bool {
        let mut inner = self.lock();
        inner.attaching = None;
        inner.layout.attached.is_some()
    }

    pub(crate) fn is_attaching(&self) -> bool {
        self.lock().attaching.is_some()
    }

    /// Grows a heap and moves the guard behind it.
    pub(crate) fn grow(&self, index: usize, at_least_bytes: u64) -> Result<u64, RequestStatus> {
        let mut inner = self.lock();
        let LinkState { heaps, layout, guards, base, error, .. } = &mut *inner;
        let (Some(heap), Some(part)) = (heaps.at(index), layout.attached.as_mut()) else {
            return Err(RequestStatus::NotGranted);
        };
        let outcome = heap.region.grow(at_least_bytes);
        // Also after a failure: an error part-way may have backed some of it.
        part.set_backed(index, heap.region.backed_bytes());
        for (guard, hole) in guards.iter().zip(part.holes()) {
            guard_hole(guard, *base, &hole);
        }
        outcome.map_err(|failure| {
            let code = RequestStatus::from(&failure);
            if code == RequestStatus::Failed {
                error.get_or_insert(failure);
            }
            code
        })
    }

    /// Makes what was stored to a heap so far count, where it does not at once (mode `atomic`).
    pub(crate) fn publish(&self, index: usize) -> RequestStatus {
        self.with_attached(index, |region| region.publish().map(drop))
    }

    /// The same, and copies the image to the store, now.
    pub(crate) fn checkpoint(&self, index: usize) -> RequestStatus {
        self.with_attached(index, |region| {
            region.publish().and_then(|_| region.checkpoint()).map(drop)
        })
    }

    /// Publishes what was stored to all heaps, one after the other, after a call or at the end of a
    /// run that was not stopped.
    pub(crate) fn publish_at_end(&self) -> Result<(), RegionError> {
        let mut inner = self.lock();
        if inner.layout.attached.is_some() {
            inner.heaps.iter_mut().try_for_each(|heap| heap.region.publish().map(drop))?;
        }
        Ok(())
    }

    /// Undoes what was stored since the last publication, in the heaps whose mode is `atomic`.
    pub(crate) fn roll_back(&self) -> Result<(), RegionError> {
        let mut inner = self.lock();
        if inner.layout.attached.is_some() {
            let mut atomic = inner
                .heaps
                .iter_mut()
                .filter(|heap| heap.region.consistency() == Consistency::Atomic);
            atomic.try_for_each(|heap| heap.region.rollback().map(drop))?;
        }
        Ok(())
    }

    /// The same in one heap, for an applet that asks for it because it lets go of what it knows of
    /// that.
    pub(crate) fn roll_back_for_applet(&self, index: usize) -> RequestStatus {
        self.with_attached(index, |region| match region.consistency() {
            Consistency::Atomic => region.rollback().map(drop),
            _ => Ok(()),
        })
    }

    fn with_attached(
        &self,
        index: usize,
        work: impl FnOnce(&mut Region) -> Result<(), RegionError>,
    ) -> RequestStatus {
        let mut inner = self.lock();
        let LinkState { heaps, layout: Layout { attached: Some(_), .. }, error, .. } = &mut *inner
        else {
            return RequestStatus::NotGranted;
        };
        let Some(heap) = heaps.at(index) else { return RequestStatus::NotGranted };
        match work(&mut heap.region) {
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
    pub(crate) fn prepare_kernel_write(&self, range: &Range<u64>) {
        let mut inner = self.lock();
        self.sound_as_of.store(NEVER, Ordering::Relaxed);
        let LinkState { heaps, layout, error, kernel_hole, kernel_store, .. } = &mut *inner;
        for (part, found) in layout.heap_parts_of(range) {
            let Some(heap) = heaps.at(part.index) else { continue };
            if heap.region.is_read_only() {
                *kernel_store = true;
            } else if let Err(failure) =
                heap.region.make_range_writable(found.start - part.base..found.end - part.base)
            {
                error.get_or_insert(failure);
            }
        }
        if range.end <= layout.size_bytes && !layout.is_present(range) {
            kernel_hole.get_or_insert(layout.first_absent(range));
        }
    }

    /// Whether the applet must be stopped for something that happened in host code.
    pub(crate) fn host_fault(&self) -> Option<HostFault> {
        if !self.is_attached() {
            return None;
        }
        // Each import asks, and nearly never is there anything to be found.
        let stand_ins = stand_ins();
        if stand_ins == self.sound_as_of.load(Ordering::Relaxed) {
            return None;
        }
        let found = self.look_for_fault();
        if found.is_none() {
            self.sound_as_of.store(stand_ins, Ordering::Relaxed);
        }
        found
    }

    fn look_for_fault(&self) -> Option<HostFault> {
        let inner = self.lock();
        let part = inner.layout.attached.as_ref()?;
        if inner.mapped_arena.as_ref().is_some_and(MappedArena::is_lost) {
            return Some(HostFault::ArenaLost);
        }
        if inner.heaps.iter().any(|heap| heap.region.lost_backing()) {
            return Some(HostFault::BackingLost);
        }
        if inner.kernel_store || inner.heaps.iter().any(|heap| heap.region.refused_store()) {
            return Some(HostFault::ReadOnly);
        }
        let mut holes = inner.guards.iter().zip(part.holes());
        let touched = holes.find(|(guard, _)| guard.touched()).map(|(_, hole)| hole.start);
        touched.or(inner.kernel_hole).map(|address| HostFault::Hole(inner.layout.describe(address)))
    }

    /// The error for a region whose image was cut off under the applet.
    pub(crate) fn backing_lost(&self) -> WasmError {
        let mut inner = self.lock();
        let mut lost = inner.heaps.iter_mut().filter(|heap| heap.region.lost_backing());
        match lost.next().map(|heap| heap.region.checkpoint()) {
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

    /// Gives the heaps back to the caller of the run.
    pub(crate) fn take_heaps(&self) -> Heaps {
        std::mem::take(&mut self.lock().heaps)
    }

    // --- called by the linear memory
    // -----------------------------------------------------------------

    pub(crate) fn memory_created(&self, base: *mut u8, size_bytes: u64) {
        let mut inner = self.lock();
        inner.base = base as usize;
        self.replace_layout(&mut inner.layout, Layout { size_bytes, attached: None });
    }

    pub(crate) fn memory_grown(&self, size_bytes: u64) {
        let mut inner = self.lock();
        inner.layout.size_bytes = size_bytes;
        self.low_bytes.store(inner.layout.low_bytes(), Ordering::Relaxed);
    }

    /// Maps heaps and arena at their places in the memory and guards the holes around them. All of
    /// them, or none.
    ///
    /// # Safety
    /// `base` must start a reservation of a whole linear memory, inaccessible from the current size
    /// on, that outlives the mapping ([`HeapLink::unmap`] is called before it ends).
    #[allow(unsafe_code, reason = "the one place where region and linear memory meet")]
    pub(crate) unsafe fn map(&self, base: *mut u8, new_size_bytes: u64) -> std::io::Result<()> {
        let mut inner = self.lock();
        let LinkState {
            heaps,
            places,
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
        let mut parts: Vec<_> = heaps
            .iter()
            .zip(places.iter())
            .enumerate()
            .map(|(index, (heap, base))| HeapPart {
                index,
                base: *base,
                backed_bytes: heap.region.backed_bytes(),
                limit_bytes: heap.region.limit_bytes(),
                read_only: heap.region.is_read_only(),
            })
            .collect();
        parts.sort_unstable_by_key(|part| part.base);
        let attached = AttachedPart {
            volatile_low_bytes: layout.size_bytes,
            arena_bytes: arena.as_ref().map_or(0, |arena| arena.bytes()),
            heaps: parts.into(),
        };
        if layout.attached.is_some()
            || attached.heaps.len() != heaps.len()
            || layout.size_bytes > attached.arena_range().start
            || new_size_bytes != attached.end()
        {
            return Err(std::io::Error::other("the memory cannot take the heap"));
        }
        let mut new_guards = Vec::new();
        for _ in attached.holes() {
            // SAFETY: `stop` is async-signal-safe (the type's contract).
            new_guards.push(unsafe { HoleGuard::new(stop.clone())? });
        }
        let mapped = match arena {
            // SAFETY: the range lies in the reservation, which is inaccessible there as the
            // volatile part ends below; no other thread knows of it yet.
            Some(arena) => Some(unsafe { MappedArena::map(base, arena, stop.clone())? }),
            None => None,
        };
        let failed = attached.heaps.iter().find_map(|part| {
            let region = &mut heaps.at(part.index)?.region;
            region.set_lost_notify(stop.clone());
            // SAFETY: the reservation covers the place up to its limit (new_size_bytes, which is at
            // least that, fits a linear memory) and no other heap's (they do not overlap: the
            // layout's invariant), is inaccessible there as the volatile part ends below, and
            // outlives the mapping (our contract).
            unsafe { region.map_into(base.wrapping_add(part.base as usize)) }.err()
        });
        if let Some(failure) = failed {
            unmap_all(heaps, error);
            if let Some(mapped) = mapped {
                // SAFETY: it was mapped above; the memory does not reach that far yet.
                unsafe { mapped.unmap(base)? };
            }
            let text = failure.to_string();
            *error = Some(failure);
            return Err(std::io::Error::other(text));
        }
        *mapped_arena = mapped;
        for (guard, hole) in new_guards.iter().zip(attached.holes()) {
            guard_hole(guard, base as usize, &hole);
        }
        *guards = new_guards;
        let new = Layout { size_bytes: new_size_bytes, attached: Some(attached) };
        self.replace_layout(layout, new);
        Ok(())
    }

    /// Takes the heaps and the guards out of the memory, which is about to go.
    pub(crate) fn unmap(&self) {
        let mut inner = self.lock();
        let LinkState { heaps, mapped_arena, layout, guards, error, base, .. } = &mut *inner;
        guards.clear();
        // What it watched goes with the address space.
        *mapped_arena = None;
        *base = 0;
        let new = Layout { size_bytes: layout.size_bytes, attached: None };
        if self.replace_layout(layout, new).attached.is_some() {
            unmap_all(heaps, error);
        }
    }
}

/// Unmaps all heaps that are mapped, and notes the first failure.
fn unmap_all(heaps: &mut Heaps, error: &mut Option<RegionError>) {
    for heap in heaps.iter_mut().filter(|heap| heap.region.mapping().is_some()) {
        if let Err(failure) = heap.region.unmap() {
            error.get_or_insert(failure);
        }
    }
}

#[allow(unsafe_code, reason = "the guard needs to know that the hole is ours")]
fn guard_hole(guard: &HoleGuard, base: usize, hole: &Range<u64>) {
    let address = |offset: u64| std::ptr::without_provenance_mut(base + offset as usize);
    // SAFETY: the hole is inaccessible address space of the linear memory's reservation,
    // page-aligned (all sizes are multiples of a wasm page), and the applet's thread is here, not
    // faulting.
    unsafe { guard.set_range(address(hole.start)..address(hole.end)) };
}
