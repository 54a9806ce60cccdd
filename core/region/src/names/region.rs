//! A region that this process has open: its state, and what reads it. What changes it is in the
//! modules below, each of which knows this one and not its siblings' callers: [`mapping`],
//! [`stores`], [`commit`], [`publication`] (the mode `atomic`), [`order`], [`growth`], [`limit`],
//! [`lending`], [`relocation`], [`repairing`] and [`closing`].
//!
//! Invariants:
//! - While a [`Region`] lives it holds the name's lock, so it is the only writer; one that may only
//!   be read shares the lock with other readers, so there is no writer.
//! - A region that may only be read is never dirty, never grows, and changes no byte of a
//!   file; its open allocates what an image at rest gave back.
//! - The header says `Open` from before the first store can happen until after the last checkpoint
//!   is durable; a header that says `Clean` means that base and image hold the same data.
//! - The [`Debt`] is what the store is known to lack besides the stores to the mapping. While it is
//!   unknown a mapping is writable from the start.
//! - After a failed header write it is not known which header is in force: the region is poisoned,
//!   and only the next open, which reads the header again, can go on.
//! - A region that is dropped without [`Region::close`] stays `Open` in its header: nothing is lost
//!   (stores are in the image), the next open is `WarmAfterCrash` and owes a checkpoint.

pub(crate) mod closing;
pub(crate) mod commit;
mod growth;
pub(crate) mod lending;
mod limit;
mod mapping;
mod order;
pub(crate) mod publication;
mod relocation;
mod repairing;
mod stores;

use crate::error::access::AccessError;
use crate::error::{RegionError, Result};
use crate::image::address::address_window;
use crate::image::dirty::{DirtySource, Tracking};
use crate::image::memory::Consistency;
use crate::image::memory::{MappedData, Notify};
use crate::media::allotment::Allotment;
use crate::media::files::redo_path;
use crate::media::format::{DATA_OFFSET, GROWTH_STEP_BYTES};
use crate::media::image::Image;
use crate::media::medium::Medium;
use crate::media::pending::Unwritten;
use crate::media::redo::Redo;
use crate::name::RegionName;
use crate::names::access::Access;
use crate::names::key::OwnerKey;
use crate::names::namespace::NameSpace;
use crate::names::quotas::is_workers_key;
use crate::store::debt::Debt;
use crate::store::journal_slot::JournalSlot;
use crate::store::stored::remedy_for_image;
use holdfast_sys::lock::FileLock;
use serde::Serialize;
use std::fmt;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

/// How a region came to be open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Opened {
    /// It was made just now, all zero.
    Created,
    /// The image was in the pool, closed in order.
    Warm,
    /// The image was in the pool; its last writer ended without closing it.
    WarmAfterCrash,
    /// The image was in a pool that outlived the machine's last boot; its last writer, an ordered
    /// one, ended with it.
    WarmAfterReset,
    /// The image was rebuilt from the store.
    Cold,
    /// The image was rebuilt from a rescue copy, which is newer than the last commit; its last
    /// writer ended without closing it.
    Rescued,
}

/// What a checkpoint wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct CheckpointReport {
    /// Data bytes written.
    pub bytes: u64,
    /// Pages written; pages of zeros are holes.
    pub pages: u64,
    /// Nothing had changed since the last checkpoint, so nothing was written.
    pub skipped: bool,
}

/// Whether stores can happen, and through what.
#[allow(clippy::large_enum_variant, reason = "there is one for each region")]
enum Attachment {
    None,
    /// This process has it mapped.
    Mapped(MappedData),
    /// Another process stores to the image (see [`lending`]).
    Lent,
}

impl Attachment {
    fn mapped(&self) -> Option<&MappedData> {
        if let Attachment::Mapped(mapped) = self { Some(mapped) } else { None }
    }

    fn mapped_mut(&mut self) -> Option<&mut MappedData> {
        if let Attachment::Mapped(mapped) = self { Some(mapped) } else { None }
    }
}

/// What may be done with the region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Session {
    /// It may be mapped and read.
    Reader,
    /// It may be changed.
    Writer,
    /// A step that changes what a file says is under way, or broke off: it is not known which
    /// header is in force, or whether the image is whole. Nothing more is done.
    Poisoned,
}

/// With whose key a region is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holder {
    Owner,
    /// A compartment's worker, or one that was handed the compartment.
    Worker,
    /// A key that the owner lets write, and grow the region so far.
    Grantee {
        quota_bytes: Option<u64>,
    },
}

/// A relocation that is under way.
struct Relocating {
    address: u64,
    /// The mode to go back to.
    consistency: Consistency,
    _names: FileLock,
}

/// The word in the image that says how the limit is shared out.
enum AllotmentSlot {
    /// It was not asked for yet.
    Unmapped,
    Mapped(Allotment),
    /// It cannot be had: each growth counts.
    None,
}

/// An open region. See the module for its invariants.
pub struct Region {
    // Fields drop in this order: no mapping may be left when the lock goes.
    attachment: Attachment,
    image: Image,
    lost_notify: Option<Notify>,
    dirty_source: Option<Box<dyn DirtySource>>,
    opened: Opened,
    session: Session,
    holder: Holder,
    consistency: Consistency,
    /// From the first choice of the mode `atomic` on.
    redo: Option<Redo>,
    relocating: Option<Relocating>,
    /// What the store lacks.
    debt: Debt,
    /// What a reset would take; kept for images that outlive one.
    unwritten: Unwritten,
    /// Every store of the next or present mapping or loan is ordered (see
    /// [`Region::promise_order`]).
    order_promised: bool,
    /// A writer that died may have left files that it was building in the store.
    has_leftovers: bool,
    /// Locked by each thread that appends, which need not be the one that has the region.
    journal: Arc<Mutex<JournalSlot>>,
    /// The backing was found lost by a mapping that is gone.
    lost: bool,
    growth_hint_bytes: u64,
    /// The kernel has huge pages, as far as is known, and makes them fast enough.
    has_huge_pages: bool,
    allotment: AllotmentSlot,
    /// The name space that it belongs to.
    names: NameSpace,
    lock: FileLock,
}

impl Region {
    pub(crate) fn new(image: Image, opened: Opened, names: NameSpace, lock: FileLock) -> Region {
        // Until it is known that the key is that of the region above.
        let is_compartment = image.header.name.parent_and_worker().is_some();
        let is_proven = !matches!(opened, Opened::Cold | Opened::Rescued);
        Region {
            attachment: Attachment::None,
            image,
            lost_notify: None,
            dirty_source: None,
            opened,
            session: Session::Writer,
            holder: if is_compartment { Holder::Worker } else { Holder::Owner },
            consistency: Consistency::Direct,
            redo: None,
            relocating: None,
            debt: match opened {
                Opened::Warm | Opened::Cold => Debt::none(is_proven),
                _ => Debt::unknown(is_proven),
            },
            // What the last writer left in the caches counts with the next commit.
            unwritten: match opened {
                Opened::WarmAfterCrash => Unwritten::unknown(),
                _ => Unwritten::default(),
            },
            order_promised: false,
            has_leftovers: opened != Opened::Warm || lock.is_left(),
            journal: Arc::new(Mutex::new(JournalSlot::Unread)),
            lost: false,
            growth_hint_bytes: GROWTH_STEP_BYTES,
            has_huge_pages: true,
            allotment: AllotmentSlot::Unmapped,
            names,
            lock,
        }
    }

    /// For a region that was made just now, once what an earlier one may have left was removed.
    pub(crate) fn without_leftovers(mut self) -> Region {
        self.has_leftovers = false;
        self
    }

    /// For a caller that may use it with this access.
    pub(crate) fn with_access(mut self, access: Access) -> Region {
        self.holder = match access {
            Access::Owner if self.holder == Holder::Worker => Holder::Worker,
            Access::Owner => Holder::Owner,
            Access::Granted(_) => Holder::Grantee { quota_bytes: access.quota_bytes() },
        };
        self
    }

    /// For a caller that opened it by its name with this key.
    pub(crate) fn with_key(mut self, key: &OwnerKey) -> Region {
        self.holder = match self.holder {
            grantee @ Holder::Grantee { .. } => grantee,
            _ if is_workers_key(&self.image.header, key) => Holder::Worker,
            _ => Holder::Owner,
        };
        self
    }

    /// For a caller that only reads. The image must be open for reading only.
    pub(crate) fn into_read_only(mut self) -> Region {
        self.session = Session::Reader;
        // What the store lacks is the next writer's business.
        self.debt = Debt::none(self.debt.is_proven());
        self
    }

    /// The region's name.
    #[must_use]
    pub fn name(&self) -> &RegionName {
        &self.image.header.name
    }

    /// The region's identity, made at creation; no other region has it, whatever its name.
    #[must_use]
    pub fn uuid(&self) -> [u8; 16] {
        self.image.header.uuid
    }

    pub(crate) fn name_space(&self) -> &NameSpace {
        &self.names
    }

    /// What is known of its journal, for callers that append beside other writers.
    pub(crate) fn journal(&self) -> Arc<Mutex<JournalSlot>> {
        self.journal.clone()
    }

    pub(crate) fn image(&self) -> &Image {
        &self.image
    }

    /// How far the region may grow.
    #[must_use]
    pub fn limit_bytes(&self) -> u64 {
        self.image.header.limit_bytes
    }

    /// How much of it is allocated and accessible now.
    #[must_use]
    pub fn backed_bytes(&self) -> u64 {
        self.image.header.backed_bytes
    }

    /// Its native address: where [`Region::map_native`] maps it.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.image.header.address
    }

    /// How it came to be open.
    #[must_use]
    pub fn opened(&self) -> Opened {
        self.opened
    }

    /// Where the region is mapped in this process, if it is.
    #[must_use]
    pub fn mapping(&self) -> Option<NonNull<u8>> {
        self.attachment.mapped().and_then(|mapped| NonNull::new(mapped.base()))
    }

    /// Whether it was opened for reading: stores to it fault, and nothing that changes it is done.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.session == Session::Reader
    }

    /// Whether the store may lack something that the image has, and this process would have to
    /// bring it there.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        (self.lacks()
            || self.is_lent()
            || self.attachment.mapped().is_some_and(MappedData::is_dirty))
            && !self.is_read_only()
    }

    /// Whether host code stored to a region that may only be read, on an applet's behalf. Nothing
    /// of it lasts; what the applet reads there is scratch memory from then on: stop it.
    #[must_use]
    pub fn refused_store(&self) -> bool {
        self.attachment.mapped().is_some_and(MappedData::refused_store)
    }

    fn is_lent(&self) -> bool {
        matches!(self.attachment, Attachment::Lent)
    }

    /// Whether the store lacks something that was found already.
    pub(crate) fn lacks(&self) -> bool {
        self.debt.is_due() || matches!(*JournalSlot::lock(&self.journal), JournalSlot::Broken)
    }

    /// Whether the image was found cut off under the mapping, or its disk could not give a page of
    /// it. What the applet reads and stores there is scratch memory: stop it, and do not trust what
    /// it computes.
    #[must_use]
    pub fn lost_backing(&self) -> bool {
        self.lost || self.attachment.mapped().is_some_and(MappedData::lost_backing)
    }

    /// What to call when the backing is found lost while the region is mapped next;
    /// [`Region::unmap`] forgets it. It runs in a signal handler, so it may only do what is
    /// async-signal-safe: store to an atomic, bump an epoch.
    ///
    /// In a region that may only be read, it also lets stores of host code pass into scratch
    /// memory, and is called for them (see [`Region::refused_store`]). Without it such a store ends
    /// the process.
    pub fn set_lost_notify(&mut self, notify: Arc<dyn Fn() + Send + Sync>) {
        self.lost_notify = Some(notify);
    }

    /// Ends the mapping. Its range is reserved and inaccessible again.
    /// Without a mapping there is nothing to do.
    ///
    /// # Errors
    /// `Io` when the kernel cannot end it; the range then still shows the region's bytes.
    pub fn unmap(&mut self) -> Result<()> {
        // The writer that promised is gone, also where what follows fails.
        self.order_promised = false;
        self.lost = self.lost_backing();
        if self.lost {
            // What stands in for the lost pages is not tracked, and is not to be kept.
            self.debt.set_unknown();
        } else {
            let stored =
                self.take_dirty(Tracking::AsIs).inspect_err(|_| self.unwritten.note_all())?;
            self.note_pending(&stored);
        }
        let ended = match std::mem::replace(&mut self.attachment, Attachment::None) {
            Attachment::Mapped(mapped) => mapped.unmap(),
            Attachment::None => Ok(()),
            Attachment::Lent => {
                self.attachment = Attachment::Lent;
                Ok(())
            }
        };
        // What was to be notified is gone with the mapping: an applet's engine, say.
        self.lost_notify = None;
        ended.map_err(RegionError::io("unmap", &self.image.path))
    }

    /// Makes the mapping writable (and the region dirty) before the first store. Needed only for
    /// stores that the kernel does for a program, such as `read(2)` into the region: they fail with
    /// EFAULT where a store of the program would be noticed and let through.
    ///
    /// # Errors
    /// `Io`; `Access` when the region may only be read.
    pub fn make_writable(&mut self) -> Result<()> {
        self.check_writable()?;
        match self.attachment.mapped_mut() {
            Some(mapped) => {
                mapped.make_writable().map_err(RegionError::io("make writable", &self.image.path))
            }
            None => Ok(()),
        }
    }

    /// The same for a range of bytes, for as few pages as possible; call it before every
    /// such store. A mapping that is dirty need not be writable everywhere: what growth added, and
    /// pages that were committed, may not be.
    ///
    /// # Errors
    /// As [`Region::make_writable`].
    pub fn make_range_writable(&mut self, bytes: Range<u64>) -> Result<()> {
        self.check_writable()?;
        match self.attachment.mapped_mut() {
            Some(mapped) => {
                let made = mapped.make_range_writable(bytes);
                made.map_err(RegionError::io("make writable", &self.image.path))
            }
            None => Ok(()),
        }
    }

    /// Reads backed bytes, whether the region is mapped or not.
    ///
    /// # Errors
    /// `OutOfBounds`, `Io`.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let (len_bytes, backed_bytes) = (buffer.len() as u64, self.backed_bytes());
        if offset.checked_add(len_bytes).is_none_or(|end| end > backed_bytes) {
            return Err(RegionError::OutOfBounds { offset, len_bytes, backed_bytes });
        }
        let read = self.image.file.read_exact_at(buffer, DATA_OFFSET + offset);
        read.map_err(RegionError::io("read", &self.image.path))
    }

    /// The store lacks something from now on, so no store has to be noticed any more.
    pub(crate) fn owe(&mut self) -> Result<()> {
        self.debt.set_unknown();
        self.make_writable()
    }

    pub(crate) fn set_mapped(&mut self, mapped: MappedData) -> Result<()> {
        self.attachment = Attachment::Mapped(mapped);
        if self.debt.is_unknown() { self.make_writable() } else { Ok(()) }
    }

    pub(crate) fn check_mappable(&self) -> Result<()> {
        self.check_usable()?;
        if !matches!(self.attachment, Attachment::None) {
            Err(RegionError::AlreadyMapped)
        } else {
            Ok(())
        }
    }

    pub(crate) fn check_writable(&self) -> Result<()> {
        if !self.is_read_only() {
            return Ok(());
        }
        Err(AccessError::ReadOnly { name: self.name().to_string() }.into())
    }

    pub(crate) fn check_usable(&self) -> Result<()> {
        if self.session == Session::Poisoned {
            Err(RegionError::Poisoned { name: self.name().to_string() })
        } else {
            Ok(())
        }
    }

    pub(crate) fn backing_lost(&self) -> RegionError {
        let path = self.image.path.clone();
        let remedy = remedy_for_image(self.names.places().store(), self.name(), &path);
        // The kernel's signal is the same for both; the length tells.
        let is_whole = self
            .image
            .file
            .metadata()
            .is_ok_and(|found| found.len() >= self.image.header.file_bytes());
        if is_whole {
            RegionError::BackingFailed { path, remedy }
        } else {
            RegionError::BackingLost { path, remedy }
        }
    }

    /// Whether the file that the path names is still ours and still whole.
    pub(crate) fn check_backing(&mut self) -> Result<()> {
        let path = &self.image.path;
        let len_bytes = self.image.file.metadata().map_err(RegionError::io("examine", path))?.len();
        if self.lost_backing() || len_bytes < self.image.header.file_bytes() {
            self.session = Session::Poisoned;
            return Err(self.backing_lost());
        }
        // The pool was emptied under us: the open file is the newest data there is, so it goes to
        // the store. But if another image has the name now, another writer may be at work on it.
        let ours = holdfast_sys::file::path_names_file(path, &self.image.file);
        if !ours.map_err(RegionError::io("examine", path))? && path.symlink_metadata().is_ok() {
            let path = path.clone();
            self.session = Session::Poisoned;
            return Err(RegionError::Displaced { path });
        }
        Ok(())
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Region")
            .field("header", &self.image.header)
            .field("opened", &self.opened)
            .field("mapped", &self.attachment.mapped().is_some())
            .field("addresses", &address_window())
            .field("dirty", &self.is_dirty())
            .field("session", &self.session)
            .field("lock", &self.lock)
            .finish_non_exhaustive()
    }
}

impl Region {
    /// Where its image lies.
    #[must_use]
    pub fn medium(&self) -> Medium {
        self.image.header.medium
    }

    pub(crate) fn redo_path(&self) -> PathBuf {
        redo_path(self.names.places().images(self.medium()), self.name())
    }
}
