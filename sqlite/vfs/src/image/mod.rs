//! The image of a database in the pool: its file, mapped, and all that processes share in it.
//!
//! This folder owns every atomic word of an image. Others see its parts, [`Commits`], [`Locks`],
//! [`LogPosition`] and [`Mode`], and the page map: each change is a named method, which states its
//! memory order and the reason. It knows nothing of what is above: connections, the log's file.
//!
//! Invariants:
//! - A slot's page is only reached when the slot has memory (`back`), so that no store can fail.
//! - What is read from the file is believed only within bounds: a slot's number that is too large
//!   is an error value.
//! - A page is only read or written under a lock that keeps other writers out: see `locks.rs`.

#![allow(unsafe_code, reason = "memory that is mapped and shared")]

mod commits;
mod header;
pub(crate) mod layout;
mod locks;
mod log_position;
mod mode;
mod slots;

/// What the words of an image are. The model of them in `model.rs` has its own.
mod atomic {
    pub(super) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
}

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use holdfast_region::{Places, make_room};
use holdfast_sys::file::allocate;
use holdfast_sys::mapping::{Prot, Reservation, map_shared_fixed, map_synchronous_fixed};

use self::header::Header;
use self::layout::{
    BUCKETS_AT, CHUNK_SLOTS, FIRST_SLOTS, NAME_AT, NAME_BYTES_MAX, PATH_AT, PATH_BYTES_MAX,
};
use self::layout::{PROCESSES_AT, PROCESSES_MAX};
use self::slots::{Room, Slot};
use crate::identity::Identity;

pub(crate) use self::commits::Commits;
pub(crate) use self::header::{Found, HeaderCopy, examine};
pub(crate) use self::layout::{BLOCK_BYTES, LEASES_AT, Plan};
pub(crate) use self::locks::{Introduction, Locks, ProcessEntry, ShortLock, Writer};
pub(crate) use self::locks::{WriterId, WriterLevel};
pub(crate) use self::log_position::{LogPosition, Suspicion};
pub(crate) use self::mode::Mode;
pub(crate) use self::slots::{NoSlot, scan};

/// How long an image that found no room to be made does without.
const ROOM_PAUSE: Duration = Duration::from_secs(10);

/// An image that is mapped.
#[derive(Debug)]
pub(crate) struct Image {
    file: File,
    path: PathBuf,
    memory: Reservation,
    base: *mut u8,
    plan: Plan,
    /// Stores are to be written back from the processor's caches.
    is_persistent: bool,
    /// What is written back is not lost with what leads to it (`MAP_SYNC`).
    is_synchronous: bool,
    /// Whose pool it grows in, and since when there is no room to be made.
    room: Option<(Places, Mutex<Option<Instant>>)>,
}

// SAFETY: what is shared in the mapping is atomics, and pages that locks guard.
unsafe impl Send for Image {}
// SAFETY: as above.
unsafe impl Sync for Image {}

/// A number in the image leads nowhere.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BadLink;

impl Image {
    /// Maps a file, which gets the size that `plan` asks for; what is in front of the slots gets
    /// memory.
    pub(crate) fn map(
        file: File,
        path: &Path,
        plan: Plan,
        is_persistent: bool,
    ) -> io::Result<Image> {
        if file.metadata()?.len() < plan.bytes as u64 {
            file.set_len(plan.bytes as u64)?;
        }
        allocate(&file, 0..plan.slots_at as u64)?;
        let memory = Reservation::anywhere(plan.bytes, BLOCK_BYTES)?;
        let base = memory.base();
        // SAFETY: the reservation made above is as long, and no process knows of it.
        let is_synchronous = unsafe {
            is_persistent
                && map_synchronous_fixed(base, plan.bytes, &file, 0, Prot::ReadWrite).is_ok()
        };
        if !is_synchronous {
            // SAFETY: as above.
            unsafe { map_shared_fixed(base, plan.bytes, &file, 0, Prot::ReadWrite)? };
        }
        let path = path.to_owned();
        Ok(Image { file, path, memory, base, plan, is_persistent, is_synchronous, room: None })
    }

    /// From now on it makes room where it finds none.
    pub(crate) fn grow_in(&mut self, places: &Places) {
        self.room = Some((places.clone(), Mutex::default()));
    }

    /// Whether room was made. Where there is none to be made, that is not tried again at once: a
    /// transaction goes on without.
    fn makes_room(&self, bytes: u64) -> bool {
        let Some((places, since)) = &self.room else { return false };
        let mut since = since.lock().unwrap_or_else(PoisonError::into_inner);
        if since.is_some_and(|since| since.elapsed() < ROOM_PAUSE) {
            return false;
        }
        let made = make_room(places, bytes).is_ok_and(|made| made.freed_bytes > 0);
        *since = (!made).then(Instant::now);
        made
    }

    fn allocate(&self, range: Range<u64>) -> io::Result<()> {
        match allocate(&self.file, range.clone()) {
            Err(error)
                if error.kind() == io::ErrorKind::StorageFull
                    && self.makes_room(range.end - range.start) =>
            {
                allocate(&self.file, range)
            }
            other => other,
        }
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// The image's file, opened once more, also where it has no name any more: what is locked by it
    /// is not locked by the image's own, nor by what a child inherits. Without `/proc` it is the
    /// file as it is open.
    pub(crate) fn open_again(&self) -> io::Result<File> {
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let opened = File::options().read(true).write(true).open(path);
        opened.or_else(|_| self.file.try_clone())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn plan(&self) -> Plan {
        self.plan
    }

    pub(crate) fn is_persistent(&self) -> bool {
        self.is_persistent
    }

    /// Whether what is written back survives a reset, wherever in the file it is.
    pub(crate) fn is_synchronous(&self) -> bool {
        self.is_synchronous
    }

    #[inline]
    fn header(&self) -> &Header {
        // SAFETY: the mapping is longer than a header, aligned to pages, has memory there, and
        // holds atomics.
        unsafe { &*self.base.cast::<Header>() }
    }

    /// Which transactions count.
    #[inline]
    pub(crate) fn commits(&self) -> Commits<'_> {
        self.header().commits()
    }

    /// The locks of readers, writer, commit and flush.
    #[inline]
    pub(crate) fn locks(&self) -> Locks<'_> {
        // SAFETY: the table is behind the header, has memory, and holds atomics.
        let entries =
            unsafe { &*self.base.add(PROCESSES_AT).cast::<[ProcessEntry; PROCESSES_MAX]>() };
        self.header().locks(entries)
    }

    /// Where the redo log goes on.
    #[inline]
    pub(crate) fn log_position(&self) -> LogPosition<'_> {
        self.header().log_position()
    }

    /// Where the newest state is.
    #[inline]
    pub(crate) fn mode(&self) -> Mode<'_> {
        self.header().mode()
    }

    #[inline]
    fn room(&self) -> Room<'_> {
        self.header().room()
    }

    /// Makes a file of zeros an image that holds nothing.
    pub(crate) fn format(&self, identity: Identity, limit_slots: u32) {
        self.set_limit(limit_slots);
        self.commits().format();
        self.header().identify(self.plan.capacity, identity);
        self.write_back_header();
    }

    /// The boot in which it is attached.
    pub(crate) fn set_boot(&self, boot: [u8; 16]) {
        self.header().set_boot(boot);
    }

    #[inline]
    fn bucket(&self, block: u32) -> &AtomicU32 {
        let number = (block & (self.plan.capacity - 1)) as usize;
        // SAFETY: the capacity is a power of two, so the number is below it, and buckets have
        // memory.
        unsafe { &*self.base.add(BUCKETS_AT).cast::<AtomicU32>().add(number) }
    }

    fn clear_buckets(&self) {
        (0..self.plan.capacity).for_each(|number| self.bucket(number).store(0, Ordering::Relaxed));
    }

    /// A slot, by its number plus one, as links are stored.
    #[inline]
    fn slot(&self, link: u32) -> Result<&Slot, BadLink> {
        let number = link.wrapping_sub(1);
        if number >= self.room().backed().min(self.plan.capacity) {
            return Err(BadLink);
        }
        // SAFETY: below the capacity, and it has memory.
        Ok(unsafe { &*self.base.add(self.plan.slots_at).cast::<Slot>().add(number as usize) })
    }

    #[inline]
    fn page(&self, link: u32) -> Result<*mut u8, BadLink> {
        self.slot(link)?;
        // SAFETY: `slot` has checked the number.
        Ok(unsafe { self.base.add(self.plan.pages_at + (link - 1) as usize * BLOCK_BYTES) })
    }

    /// Copies from the page of a slot.
    #[inline]
    pub(crate) fn read(&self, link: u32, offset: usize, target: &mut [u8]) -> Result<(), BadLink> {
        let page = self.page(link)?;
        if offset + target.len() > BLOCK_BYTES {
            return Err(BadLink);
        }
        // SAFETY: inside of the page; the target is the caller's own.
        unsafe { page.add(offset).copy_to_nonoverlapping(target.as_mut_ptr(), target.len()) };
        Ok(())
    }

    /// Copies to the page of a slot.
    #[inline]
    pub(crate) fn write(&self, link: u32, offset: usize, source: &[u8]) -> Result<(), BadLink> {
        let page = self.page(link)?;
        if offset + source.len() > BLOCK_BYTES {
            return Err(BadLink);
        }
        // SAFETY: inside of the page; the slot is free for everybody but the writer.
        unsafe { page.add(offset).copy_from_nonoverlapping(source.as_ptr(), source.len()) };
        Ok(())
    }

    /// Gives memory to some more slots.
    fn back_more(&self) -> io::Result<()> {
        let backed = self.room().backed();
        if backed >= self.plan.capacity {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let slots = (self.plan.slots_at + backed as usize * size_of::<Slot>()) as u64;
        let pages = (self.plan.pages_at + backed as usize * BLOCK_BYTES) as u64;
        let more = backed.clamp(FIRST_SLOTS, CHUNK_SLOTS);
        self.allocate(slots..slots + u64::from(more) * size_of::<Slot>() as u64)?;
        self.allocate(pages..pages + u64::from(more) * BLOCK_BYTES as u64)?;
        self.room().note_backed(more);
        Ok(())
    }

    /// Starts to write a slot and its page back from the caches, where that means anything; writing
    /// the header back waits for it.
    #[inline]
    pub(crate) fn write_back_slot(&self, link: u32) {
        if let (true, Ok(page), Ok(slot)) = (self.is_persistent, self.page(link), self.slot(link)) {
            // SAFETY: both are mapped.
            unsafe {
                holdfast_persist::write_back(page, BLOCK_BYTES);
                holdfast_persist::write_back((&raw const *slot).cast(), size_of::<Slot>());
            }
        }
    }

    /// Writes the header back.
    #[inline]
    pub(crate) fn write_back_header(&self) {
        if self.is_persistent {
            // SAFETY: mapped.
            unsafe { holdfast_persist::persist(self.base, size_of::<Header>()) };
        }
    }

    /// The name of the super-journal, where a transaction is prepared; where a journal may be on the
    /// disk, that of its database.
    pub(crate) fn name(&self) -> Vec<u8> {
        let bytes = self.header().name_bytes().min(NAME_BYTES_MAX);
        let mut name = vec![0; bytes];
        // SAFETY: inside of the block that is for the name.
        unsafe { self.base.add(NAME_AT).copy_to_nonoverlapping(name.as_mut_ptr(), bytes) };
        name
    }

    /// Stores such a name; false when it is too long.
    pub(crate) fn set_name(&self, name: &[u8]) -> bool {
        if name.len() > NAME_BYTES_MAX {
            return false;
        }
        // SAFETY: inside of the block that is for the name; only the writer comes here.
        unsafe { self.base.add(NAME_AT).copy_from_nonoverlapping(name.as_ptr(), name.len()) };
        self.header().set_name_bytes(name.len());
        true
    }

    /// Notes where the database is, for the keeper. A path that is too long is not known.
    pub(crate) fn note_path(&self, database: &Path) -> io::Result<()> {
        let path = std::path::absolute(database)?;
        let bytes = path.as_os_str().as_bytes();
        let known = if bytes.len() > PATH_BYTES_MAX { &[] } else { bytes };
        self.file.write_all_at(known, PATH_AT as u64)?;
        self.header().set_path_bytes(known.len());
        Ok(())
    }

    /// Bytes of address space.
    pub(crate) fn bytes(&self) -> usize {
        self.memory.len()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by it")]
mod tests {
    use super::*;

    /// An image that is mapped with less than its pool needs says so.
    ///
    /// Guarantee: sqlite/surviving-pool
    #[test]
    fn short_image_mapping_is_reported() {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = directory.path().join("image");
        for is_persistent in [false, true] {
            let file = File::options()
                .read(true)
                .write(true)
                .create(true)
                .truncate(true)
                .open(&path)
                .unwrap();
            let image = Image::map(file, &path, Plan::new(256), is_persistent).unwrap();
            assert!(!image.is_synchronous(), "a tmpfs has no MAP_SYNC");
        }
    }
}
