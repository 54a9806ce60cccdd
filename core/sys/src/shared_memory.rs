//! Memory that processes share: a file without a name, mapped in full.
//!
//! Invariants: the file has the size that is mapped, and no process can change that (it is sealed),
//! so no access to the mapping ends in SIGBUS because a process has cut the file. What is a hole
//! takes no memory until it is touched; a range that was [backed](SharedMemory::back) needs none
//! then.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;

use crate::file::{allocate, cannot_shrink};
use crate::mapping::{Prot, Reservation, map_shared_fixed};

/// What memory is backed and given back in.
#[must_use]
pub fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

/// A mapped memory file, shared with the processes that have its descriptor.
#[derive(Debug)]
pub struct SharedMemory {
    mapping: Reservation,
    file: File,
}

impl SharedMemory {
    /// A new file of that many bytes, all hole, sealed and mapped for loads and stores.
    ///
    /// # Errors
    /// What the kernel reports: no memory, no descriptors, no address space.
    pub fn create(label: &str, bytes: u64) -> io::Result<SharedMemory> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        // No process shall run a program from it; kernels before 6.3 do not know how to say that.
        let descriptor = match rustix::fs::memfd_create(label, flags | MemfdFlags::NOEXEC_SEAL) {
            Err(Errno::INVAL) => rustix::fs::memfd_create(label, flags)?,
            made => made?,
        };
        let file = File::from(descriptor);
        file.set_len(bytes)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        SharedMemory::map(file)
    }

    /// Maps a file that another process has made.
    ///
    /// # Errors
    /// `InvalidInput` when it is not sealed, else what the kernel reports.
    pub fn open(descriptor: OwnedFd) -> io::Result<SharedMemory> {
        if !cannot_shrink(&descriptor)? {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        SharedMemory::map(File::from(descriptor))
    }

    fn map(file: File) -> io::Result<SharedMemory> {
        let bytes =
            usize::try_from(file.metadata()?.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mapping = Reservation::anywhere(bytes, 1)?;
        // SAFETY: the range was reserved just now, and nothing has a reference into it.
        unsafe { map_shared_fixed(mapping.base(), bytes, &file, 0, Prot::ReadWrite)? };
        Ok(SharedMemory { mapping, file })
    }

    /// The first byte. It stays there as long as the value lives.
    #[must_use]
    pub fn base(&self) -> NonNull<u8> {
        // A mapping never begins at 0.
        NonNull::new(self.mapping.base()).unwrap_or(NonNull::dangling())
    }

    /// Bytes of file and mapping, rounded up to whole pages.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.mapping.len()
    }

    /// Another descriptor of the file, closed on exec.
    ///
    /// # Errors
    /// What `dup` reports.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        Ok(self.file.try_clone()?.into())
    }

    /// Backs a range with memory, so that touching it can neither fail nor be refused.
    ///
    /// # Errors
    /// When there is no memory.
    pub fn back(&self, range: Range<u64>) -> io::Result<()> {
        allocate(&self.file, range)
    }

    /// Gives the memory of a range back; it is a hole afterwards, and zero when it is read.
    ///
    /// # Errors
    /// What `fallocate` reports.
    pub fn release(&self, range: Range<u64>) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if range.is_empty() {
            return Ok(());
        }
        loop {
            match rustix::fs::fallocate(&self.file, flags, range.start, range.end - range.start) {
                Err(Errno::INTR) => {}
                done => return Ok(done?),
            }
        }
    }
}

impl AsFd for SharedMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    /// Two mappings share bytes, and no process can cut the file.
    ///
    /// Guarantee: applets/buffers
    #[test]
    fn mappings_share_bytes_and_the_file_cannot_shrink() {
        let one = SharedMemory::create("test", 1 << 20).unwrap();
        let other = SharedMemory::open(one.descriptor().unwrap()).unwrap();
        assert_eq!((one.bytes(), other.bytes()), (1 << 20, 1 << 20));
        // SAFETY: both are mapped in full; nothing else has them.
        unsafe {
            one.base().add(5000).write_volatile(7);
            assert_eq!(other.base().add(5000).read_volatile(), 7);
        }
        assert!(one.file.set_len(4096).is_err() && one.file.set_len(2 << 20).is_err());
        assert!(SharedMemory::open(tempfile::tempfile().unwrap().into()).is_err());
    }

    /// A range takes memory when it is backed and gives it back.
    #[test]
    fn backed_range_takes_memory_and_returns_it() {
        let memory = SharedMemory::create("test", 1 << 20).unwrap();
        let blocks = || memory.file.metadata().unwrap().blocks();
        assert_eq!(blocks(), 0);
        memory.back(4096..4096 + 65_536).unwrap();
        assert_eq!(blocks(), 128);
        // SAFETY: mapped; nothing else has it.
        unsafe { memory.base().add(4096).write_volatile(7) };
        memory.release(4096..4096 + 65_536).unwrap();
        memory.release(0..0).unwrap();
        assert_eq!(blocks(), 0);
        // SAFETY: as above.
        assert_eq!(unsafe { memory.base().add(4096).read_volatile() }, 0);
    }
}
