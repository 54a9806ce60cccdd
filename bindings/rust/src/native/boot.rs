//! The first look at the descriptors that the host has installed, and the mappings.
//!
//! Invariants: nothing is mapped or closed before the channel's mark was seen, so a program that no
//! host has started keeps its descriptors; each region is mapped at its address and as the record
//! says, or not at all; all descriptors stay open, so that no file that the program opens later
//! gets their numbers, which the host's policy keeps for them.

use core::ffi::c_void;
use core::ptr::{NonNull, null_mut};

use rustix::fd::BorrowedFd;
use rustix::fs::fstat;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use super::compartments;
use super::wait::FutexWait;
use crate::region::{AttachError, Granted};
use holdfast_channel::boot::BootRegion;
use holdfast_channel::heaps::{HEAPS_MAX, HeapTable, heap_fd};
use holdfast_channel::{Boot, BootError, CHANNEL_FD, Endpoint, Layout, Side};

/// The boot record lies in it.
const PAGE_BYTES: usize = 4096;

/// Why there is no channel.
#[derive(Clone, Copy, Debug)]
pub(super) enum Refused {
    /// None is installed.
    NoHost,
    /// What is installed is not for this program.
    Boot(BootError),
    /// It cannot be mapped; the system's code.
    Map(i32),
}

/// What the host has given.
pub(super) struct Booted {
    pub(super) endpoint: Endpoint<FutexWait>,
    pub(super) heaps: MappedHeaps,
    /// First byte of the mapping, which has `layout`.
    pub(super) base: *mut u8,
    pub(super) layout: Layout,
    /// The host is going to call.
    pub(super) serves: bool,
}

/// The granted heaps: those of the table, or the one of a host that knows no table.
pub(super) struct MappedHeaps {
    table: HeapTable,
    /// In the order of the grants; there is none where the host granted none.
    mapped: [Result<Granted, AttachError>; HEAPS_MAX],
}

impl MappedHeaps {
    /// # Safety
    /// The host has installed the images that the record and the table speak of, and no other code
    /// in this program knows their descriptors.
    unsafe fn map(first: Option<BootRegion>, table: HeapTable) -> MappedHeaps {
        let mut mapped = [Err(AttachError::NotGranted); HEAPS_MAX];
        let map = |index: usize, region: &BootRegion| {
            // SAFETY: the caller's promise.
            let image = unsafe { BorrowedFd::borrow_raw(heap_fd(index)) };
            map_region(index, region, image)
        };
        if let (Some(region), true) = (first, table.heaps().is_empty()) {
            mapped[0] = map(0, &region);
        }
        for (index, (slot, heap)) in mapped.iter_mut().zip(table.heaps()).enumerate() {
            *slot = map(index, &heap.region());
        }
        // SAFETY: the caller boots, once, and no thread has a compartment yet.
        unsafe { compartments::publish(&table, &mapped) };
        MappedHeaps { table, mapped }
    }

    /// The heap of a name; the first one without a name.
    pub(super) fn find(&self, name: Option<&str>) -> Result<Granted, AttachError> {
        let index = match name {
            None => Some(0),
            Some(name) => self.table.heaps().iter().position(|heap| heap.name() == name),
        };
        index
            .and_then(|index| self.mapped.get(index))
            .copied()
            .unwrap_or(Err(AttachError::NotGranted))
    }

    /// The heap with an index, if it was mapped.
    pub(super) fn at(&self, index: u32) -> Option<&Granted> {
        self.mapped.get(index as usize)?.as_ref().ok()
    }
}

pub(super) fn boot() -> Result<Booted, Refused> {
    let map_failed = |errno: Errno| Refused::Map(errno.raw_os_error());
    // SAFETY: the descriptor is only used while it is open: by the call that tells whether it is,
    // and after that.
    let channel = unsafe { BorrowedFd::borrow_raw(CHANNEL_FD) };
    // Too short to touch without a fault, or no file at all: not the host's.
    let file_bytes = fstat(channel).ok().and_then(|stat| u64::try_from(stat.st_size).ok());
    let file_bytes =
        file_bytes.filter(|bytes| *bytes >= PAGE_BYTES as u64).ok_or(Refused::NoHost)?;
    let (boot, table) = match read_record(channel) {
        Ok(found) => found,
        Err(BootError::NotAChannel) => return Err(Refused::NoHost),
        Err(error) => return Err(Refused::Boot(error)),
    };
    let layout = boot.layout(file_bytes).map_err(Refused::Boot)?;
    let bytes = usize::try_from(layout.total_bytes())
        .map_err(|_| Refused::Map(Errno::NOMEM.raw_os_error()))?;
    let both = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping, where nothing is.
    let base = unsafe { mmap(null_mut(), bytes, both, MapFlags::SHARED, channel, 0) }
        .map_err(map_failed)?;
    // SAFETY: the host has installed them, as the record says, and no other code in this program
    // knows them.
    let heaps = unsafe { MappedHeaps::map(boot.region(), table) };
    let start = NonNull::new(base.cast::<u8>()).ok_or(Refused::Map(Errno::NOMEM.raw_os_error()))?;
    // SAFETY: the file is mapped as the layout says, for as long as the process lives, and only the
    // endpoint uses the rings.
    let endpoint = unsafe { Endpoint::new(start, &layout, Side::Applet, FutexWait) };
    let endpoint = endpoint.ok_or(Refused::Boot(BootError::Layout { what: "rings" }))?;
    Ok(Booted { endpoint, heaps, base: base.cast(), layout, serves: boot.wants_serving() })
}

/// Copies the record and the table out of the first page, which is mapped for that long.
fn read_record(channel: BorrowedFd<'_>) -> Result<(Boot, HeapTable), BootError> {
    // SAFETY: a new mapping, where nothing is.
    let page =
        unsafe { mmap(null_mut(), PAGE_BYTES, ProtFlags::READ, MapFlags::SHARED, channel, 0) };
    let page = page.map_err(|_| BootError::NotAChannel)?;
    let mut bytes = [0_u8; PAGE_BYTES];
    // SAFETY: the page is mapped, and the file is as long; a channel's cannot be shortened.
    unsafe { page.cast::<u8>().copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) };
    // SAFETY: it was mapped above, and nothing refers to it.
    let _ = unsafe { munmap(page, PAGE_BYTES) };
    Ok((Boot::parse(&bytes)?, HeapTable::parse(&bytes)))
}

/// Maps all that the region can ever be: what is not backed yet becomes usable when it is.
fn map_region(
    index: usize,
    region: &BootRegion,
    image: BorrowedFd<'_>,
) -> Result<Granted, AttachError> {
    let shape = AttachError::MemoryShape;
    let start = usize::try_from(region.address).map_err(|_| shape)? as *mut c_void;
    let bytes = usize::try_from(region.limit_bytes).map_err(|_| shape)?;
    let protection =
        if region.is_read_only { ProtFlags::READ } else { ProtFlags::READ | ProtFlags::WRITE };
    let is_synchronous = region.is_synchronous && !region.is_atomic;
    let kind = match (region.is_atomic, is_synchronous) {
        // The kernel would ask for the whole limit as memory, now.
        (true, _) => MapFlags::PRIVATE | MapFlags::NORESERVE,
        // With less, what the heap writes back could be lost with what leads to it.
        (false, true) => MapFlags::SHARED_VALIDATE | MapFlags::SYNC,
        (false, false) => MapFlags::SHARED,
    };
    let mapped = if is_synchronous {
        // Among the flags that the kernel validates is none that refuses a place that is taken: it
        // is asked for before.
        let nothing = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
        // SAFETY: the kernel refuses when something is there.
        let place = unsafe { mmap_anonymous(start, bytes, ProtFlags::empty(), nothing) };
        match place.map_err(|_| shape)? {
            // SAFETY: nothing else is there but what was mapped just now.
            place if place == start => unsafe {
                mmap(start, bytes, protection, kind | MapFlags::FIXED, image, region.data_offset)
                    .inspect_err(|_| {
                        let _ = munmap(start, bytes);
                    })
            },
            elsewhere => Ok(elsewhere),
        }
    } else {
        let flags = kind | MapFlags::FIXED_NOREPLACE;
        // SAFETY: the kernel refuses when something is there.
        unsafe { mmap(start, bytes, protection, flags, image, region.data_offset) }
    };
    let mapped = mapped.map_err(|errno| match errno {
        Errno::EXIST | Errno::NOMEM => shape,
        Errno::OPNOTSUPP | Errno::INVAL if is_synchronous => AttachError::NotSynchronous,
        errno => AttachError::Host(errno.raw_os_error()),
    })?;
    if mapped != start {
        // A kernel before Linux 4.17 takes the address for a hint.
        // SAFETY: it was mapped just now.
        let _ = unsafe { munmap(mapped, bytes) };
        return Err(shape);
    }
    Ok(Granted {
        index: index as u32,
        address: region.address,
        backed_bytes: region.backed_bytes,
        limit_bytes: region.limit_bytes,
        is_new: region.is_new,
        is_read_only: region.is_read_only,
        is_atomic: region.is_atomic,
        // What is stored to a private mapping the host publishes, in its own order.
        is_ordered: region.is_ordered && !region.is_atomic,
        is_compartment: region.is_compartment,
    })
}
