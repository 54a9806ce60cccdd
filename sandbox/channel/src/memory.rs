//! The shared file: made, laid out and mapped by the host; opened and checked by an applet that has
//! a standard library.
//!
//! Invariants: boot page and rings are backed with memory before another process has the file,
//! buffers before the peer learns of them, so the host touches nothing that could fail. The host
//! writes the boot record once and never reads it.

use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::vec::Vec;

use holdfast_sys::own_pid;
use holdfast_sys::shared_memory::SharedMemory;
use zerocopy::IntoBytes;

use crate::Side;
use crate::arena::{self, ArenaBuffer, BufferError};
use crate::boot::Boot;
use crate::endpoint::Endpoint;
use crate::error::BootError;
use crate::heaps::{HeapEntry, HeapTable, TABLE_OFFSET};
use crate::host::{Bell, HostWait};
use crate::layout::{Handle, Layout, PAGE_BYTES};
use crate::shared::Shared;

/// The mapped file of a channel.
#[derive(Debug)]
pub struct ChannelMemory {
    memory: SharedMemory,
    layout: Layout,
    boot: Boot,
    /// What of the arena is given out, in order; relative to its start.
    buffers: Mutex<Vec<Range<u64>>>,
    /// The process that has it: in a forked copy of it the file is the same, and the list of
    /// buffers is not.
    owner: u32,
}

/// Why there is no channel.
#[derive(Debug)]
#[non_exhaustive]
pub enum MemoryError {
    /// The kernel refused memory, a descriptor or address space.
    System(io::Error),
    /// The file is not a channel.
    Boot(BootError),
}

impl fmt::Display for MemoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System(error) => write!(
                f,
                "no memory for a channel could be had ({error}); raise the limits of memory and open files, or end \
                 something"
            ),
            Self::Boot(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for MemoryError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::System(error) => Some(error),
            Self::Boot(error) => Some(error),
        }
    }
}

impl ChannelMemory {
    /// A new channel, for one applet with these heaps: the file, mapped, with its boot record.
    ///
    /// # Errors
    /// When the kernel refuses memory, a descriptor or address space.
    pub fn create(
        layout: Layout,
        heaps: &[HeapEntry],
        serve: bool,
    ) -> Result<Arc<ChannelMemory>, MemoryError> {
        let boot = Boot::new(&layout, heaps.first().map(HeapEntry::region), serve);
        let memory = SharedMemory::create("holdfast-channel", layout.total_bytes())
            .map_err(MemoryError::System)?;
        memory.back(0..layout.arena_offset()).map_err(MemoryError::System)?;
        let made = ChannelMemory {
            memory,
            layout,
            boot,
            buffers: Mutex::default(),
            owner: own_pid::get(),
        };
        // It is as large as its layout says, so there is room.
        made.shared().write(0, boot.as_bytes()).ok_or_else(too_short)?;
        let table = HeapTable::new(heaps);
        made.shared().write(TABLE_OFFSET as usize, table.as_bytes()).ok_or_else(too_short)?;
        Ok(Arc::new(made))
    }

    /// The channel of a program that was started as an applet, of the descriptor at which it was
    /// started with it.
    ///
    /// # Errors
    /// When it is no channel, of another version, or cannot be mapped.
    pub fn open(descriptor: OwnedFd) -> Result<Arc<ChannelMemory>, MemoryError> {
        let memory = SharedMemory::open(descriptor).map_err(MemoryError::System)?;
        let all = whole(&memory);
        let mut page = [0; PAGE_BYTES as usize];
        all.read(0, &mut page).ok_or(MemoryError::Boot(BootError::NotAChannel))?;
        let boot = Boot::parse(&page).map_err(MemoryError::Boot)?;
        let layout = boot.layout(all.bytes() as u64).map_err(MemoryError::Boot)?;
        Ok(Arc::new(ChannelMemory {
            memory,
            layout,
            boot,
            buffers: Mutex::default(),
            owner: own_pid::get(),
        }))
    }

    /// The host's end, and the bell that ends its waits. To be asked for once: two ends on one side
    /// read each other's messages.
    #[must_use]
    pub fn host(self: &Arc<Self>) -> Option<(Endpoint<HostWait>, Bell)> {
        self.end(Side::Host)
    }

    /// The applet's end; likewise.
    #[must_use]
    pub fn applet(self: &Arc<Self>) -> Option<(Endpoint<HostWait>, Bell)> {
        self.end(Side::Applet)
    }

    fn end(self: &Arc<Self>, side: Side) -> Option<(Endpoint<HostWait>, Bell)> {
        let (wait, bell) = HostWait::new(Arc::clone(self), side)?;
        // The endpoint owns the waiter, and with it the mapping.
        Some((Endpoint::over(self.shared(), &self.layout, side, wait)?, bell))
    }

    /// A buffer in the arena for `bytes` bytes, which are zero. The applet can read and write it
    /// from now on, as all of the arena.
    ///
    /// # Errors
    /// When the arena or the machine has no room for it.
    pub fn buffer(self: &Arc<Self>, bytes: u64) -> Result<ArenaBuffer, BufferError> {
        ArenaBuffer::new(Arc::clone(self), bytes)
    }

    /// The buffer that the host has told this applet of; `None` if it does not lie in the arena. (A
    /// host asks its own buffer about what an applet tells it: [`ArenaBuffer::locate`].)
    #[must_use]
    pub fn given(self: &Arc<Self>, handle: Handle) -> Option<ArenaBuffer> {
        ArenaBuffer::given(Arc::clone(self), handle)
    }

    /// A part of the arena, if it is one and begins at a multiple of 8. The user of the value
    /// keeps `self`.
    pub(crate) fn part(&self, handle: Handle) -> Option<Shared> {
        let range = self.layout.locate(handle)?;
        self.shared().part(range.start, handle.bytes)
    }

    /// The layout.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The boot record, as it was written or read.
    #[must_use]
    pub fn boot(&self) -> &Boot {
        &self.boot
    }

    /// Another descriptor of the file, for the applet.
    ///
    /// # Errors
    /// What `dup` reports.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        self.memory.descriptor()
    }

    /// All of it. The user of the value keeps `self`.
    pub(crate) fn shared(&self) -> Shared {
        whole(&self.memory)
    }

    /// Takes a free range of the arena and backs it, zeroed.
    pub(crate) fn take(&self, bytes: u64) -> Result<Range<u64>, BufferError> {
        let mut buffers = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        let (index, range) = arena::first_fit(&buffers, self.layout.arena_bytes(), bytes)?;
        let in_file = self.in_file(&range);
        // What the applet has put there meanwhile is not for the one that gets the buffer.
        self.memory.release(in_file.clone()).map_err(BufferError::System)?;
        self.memory.back(in_file.clone()).map_err(|error| {
            let _ = self.memory.release(in_file);
            BufferError::System(error)
        })?;
        buffers.insert(index, range.clone());
        Ok(range)
    }

    /// Gives such a range back; in a forked copy of its owner, who may be using it, nothing
    /// happens.
    pub(crate) fn give_back(&self, range: &Range<u64>) {
        if self.owner != own_pid::get() {
            return;
        }
        let mut buffers = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        buffers.retain(|taken| taken != range);
        // A failure costs memory until the channel ends, no more.
        let _ = self.memory.release(self.in_file(range));
    }

    fn in_file(&self, range: &Range<u64>) -> Range<u64> {
        let start = self.layout.arena_offset();
        start + range.start..start + range.end
    }
}

impl AsFd for ChannelMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }
}

fn too_short() -> MemoryError {
    MemoryError::Boot(BootError::Layout { what: "size of the file" })
}

fn whole(memory: &SharedMemory) -> Shared {
    // SAFETY: mapped as long as `memory`, which all users of the value keep; page-aligned; this
    // crate touches it through such values alone, and hands out nothing else but raw pointers.
    unsafe { Shared::new(memory.base(), memory.bytes()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boot::BootRegion;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn an_applet_finds_the_layout_that_the_host_made() {
        let layout = Layout::new(8192, 1 << 20).unwrap();
        let region = BootRegion { address: 7 << 40, limit_bytes: 1 << 30, ..BootRegion::default() };
        let host = ChannelMemory::create(layout, &[HeapEntry::new("heap", &region).unwrap()], true)
            .unwrap();
        let applet = ChannelMemory::open(host.descriptor().unwrap()).unwrap();
        assert_eq!((applet.layout(), applet.boot()), (&layout, host.boot()));
        assert_eq!(applet.boot().region(), Some(region));
        assert!(applet.as_fd().as_raw_fd() >= 0);
    }

    #[test]
    fn what_is_no_channel_is_refused() {
        let memory = SharedMemory::create("test", 1 << 20).unwrap();
        let opened = ChannelMemory::open(memory.descriptor().unwrap());
        assert!(matches!(opened, Err(MemoryError::Boot(BootError::NotAChannel))), "{opened:?}");
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(matches!(ChannelMemory::open(file.into()), Err(MemoryError::System(_))));
    }

    /// The control page and the rings are allocated before the file is shared; the arena is not.
    #[test]
    fn control_page_and_rings_are_preallocated() {
        let host = ChannelMemory::create(Layout::default(), &[], true).unwrap();
        let file = std::fs::File::from(host.descriptor().unwrap());
        assert_eq!(file.metadata().unwrap().blocks() * 512, host.layout().arena_offset());
    }
}
