//! A region that a user's program has: the image that it stores to, and the region that this is
//! brought to.
//!
//! The borrower gets a copy in sealed memory. What it stored is brought to the region when it
//! commits, when it is gone, and when everything is saved: compared block by block, and published
//! all or nothing (the mode `atomic`, by the redo log). So neither a keeper that is killed nor a
//! borrower that goes on storing leaves half of anything.
//!
//! Invariants:
//! - No byte of the image decides anything: it is compared and copied, up to the size that the
//!   region's header says.
//! - Whatever fails while something is brought leaves the region as of its last publication, and
//!   the image as it is: it can be tried again.
//! - Work on an image is done in slices, between which everybody else is served.

use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Instant;

use holdfast_region::{
    CommitReport, Consistency, Durability, NameSpace, Opened, OwnerKey, Region, RegionError,
    RegionName,
};
use holdfast_sys::file::allocate;
use holdfast_sys::process::ProcessId;

use crate::served::image::sealed;

/// What is read at once.
const PIECE_BYTES: u64 = 1 << 20;
/// What differs is found in blocks of so many bytes.
const BLOCK_BYTES: usize = 4096;

/// A lent region: the image that the program stores to, and the region behind it.
#[derive(Debug)]
pub(crate) struct Loan {
    pub(crate) user: u32,
    /// Whose it is; none when it hung up.
    pub(crate) connection: Option<u64>,
    /// The process that has it, as far as is known.
    pub(crate) process: Option<ProcessId>,
    pub(crate) token: String,
    pub(crate) work: Option<Work>,
    /// When work that failed is tried again.
    pub(crate) pause: Option<Instant>,
    pub(crate) image: File,
    pub(crate) facts: Facts,
    /// When its work was gone on with last, to be fair among those of one user.
    pub(crate) worked: u64,
    name: RegionName,
    key: OwnerKey,
    /// Gone after a failure that it does not survive; opened again for the next attempt.
    region: Option<Region>,
}

/// What the header of the region says; no borrower can change it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Facts {
    pub(crate) address: u64,
    pub(crate) backed_bytes: u64,
    pub(crate) limit_bytes: u64,
    pub(crate) is_new: bool,
}

/// What is being done, and how far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Work {
    pub(crate) what: LoanWork,
    pub(crate) done_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LoanWork {
    /// The image is filled for its borrower.
    Fill,
    /// The image is its borrower's own, and is given back.
    Resume,
    /// What the borrower stored is read, for one of these.
    Commit(Durability),
    Close,
    HungUp,
}

/// What became of a region that is lent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LoanOutcome {
    /// Its region holds what the borrower had at a moment just now.
    Whole,
    /// The borrower stored all the time.
    Busy,
    /// It would have taken longer than there was time.
    Late,
    /// In words.
    Failed(String),
}

impl Work {
    pub(crate) fn new(what: LoanWork) -> Option<Work> {
        Some(Work { what, done_bytes: 0 })
    }
}

impl Loan {
    /// Opens a region for a borrower, or makes it if there is a limit. Without an image of the
    /// borrower's own it gets a new one, which has to be filled.
    pub(crate) fn open(
        names: &NameSpace,
        (name, key, limit_bytes): (&RegionName, &OwnerKey, u64),
        (user, connection, process): (u32, u64, Option<ProcessId>),
        image: Option<File>,
    ) -> Result<Loan, RegionError> {
        let region = match limit_bytes {
            0 => names.open(name, key)?,
            _ => names.open_or_create(name, key, limit_bytes)?,
        };
        let region = prepared(region)?;
        let facts = Facts {
            address: region.address(),
            backed_bytes: region.backed_bytes(),
            limit_bytes: region.limit_bytes(),
            is_new: region.opened() == Opened::Created,
        };
        let work = Work::new(if image.is_none() { LoanWork::Fill } else { LoanWork::Resume });
        // One that comes back may lack what was grown when the keeper died.
        let image = image.map_or_else(|| sealed(facts.limit_bytes), Ok);
        let image = image.and_then(|image| allocate(&image, 0..facts.backed_bytes).map(|()| image));
        let image = image.map_err(|source| failed("make the image of", name, source))?;
        Ok(Loan {
            user,
            connection: Some(connection),
            process,
            token: uuid::Uuid::new_v4().simple().to_string(),
            work,
            pause: None,
            image,
            facts,
            worked: 0,
            name: name.clone(),
            key: key.clone(),
            region: Some(region),
        })
    }

    /// Whether no process has got the image yet.
    pub(crate) fn is_filling(&self) -> bool {
        self.work.is_some_and(|work| work.what == LoanWork::Fill)
    }

    /// Its borrower is gone: what that stored is brought, and then the region is free.
    pub(crate) fn hang_up(&mut self) {
        self.connection = None;
        self.work = Work::new(LoanWork::HungUp);
    }

    /// Does a slice of its work; whether it is all done.
    pub(crate) fn step(
        &mut self,
        names: &NameSpace,
        slice_bytes: u64,
    ) -> Result<bool, RegionError> {
        let Some(work) = self.work.filter(|work| work.what != LoanWork::Resume) else {
            return Ok(true);
        };
        let end = self.facts.backed_bytes.min(work.done_bytes + slice_bytes);
        for start in (work.done_bytes..end).step_by(PIECE_BYTES as usize) {
            let bytes = PIECE_BYTES.min(end - start);
            let stepped = match work.what {
                LoanWork::Fill => self.fill(start, bytes),
                _ => self.bring(names, start, bytes).map(drop),
            };
            stepped.inspect_err(|_| self.drop_brought())?;
        }
        if let Some(work) = &mut self.work {
            work.done_bytes = end;
        }
        Ok(end == self.facts.backed_bytes)
    }

    fn fill(&mut self, start: u64, bytes: u64) -> Result<(), RegionError> {
        let mut ours = vec![0; bytes as usize];
        let Some(region) = &self.region else { return Err(self.poisoned()) };
        region.read_at(start, &mut ours)?;
        if ours.iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        self.image
            .write_all_at(&ours, start)
            .map_err(|source| failed("fill the image of", &self.name, source))
    }

    /// Takes over what differs, and says what the image had there.
    fn bring(&mut self, names: &NameSpace, start: u64, bytes: u64) -> Result<Vec<u8>, RegionError> {
        let mut theirs = vec![0; bytes as usize];
        let mut ours = vec![0; bytes as usize];
        let read = self.image.read_exact_at(&mut theirs, start);
        read.map_err(|source| failed("read the image of", &self.name, source))?;
        let region = self.region(names)?;
        region.read_at(start, &mut ours)?;
        let blocks = theirs.chunks(BLOCK_BYTES).zip(ours.chunks(BLOCK_BYTES));
        for (block, (stored, had)) in blocks.enumerate() {
            if stored != had {
                region.copy_in(start + (block * BLOCK_BYTES) as u64, stored)?;
            }
        }
        Ok(theirs)
    }

    /// Everything that was brought counts from now on, and survives what the level names.
    pub(crate) fn commit(
        &mut self,
        names: &NameSpace,
        level: Durability,
    ) -> Result<CommitReport, RegionError> {
        let committed = self.region(names)?.commit(level);
        committed.inspect_err(|_| self.drop_brought())
    }

    /// Brings everything at one go, from a borrower that was not asked to be quiet, until a moment
    /// comes at which it was or the attempts or the time are over. Read twice: where nothing
    /// differs, the first reading is what the image held in between.
    pub(crate) fn bring_quietly(
        &mut self,
        names: &NameSpace,
        attempts: u32,
        until: Option<Instant>,
    ) -> Result<LoanOutcome, RegionError> {
        if self.is_filling() {
            return Ok(LoanOutcome::Whole);
        }
        for _ in 0..attempts {
            let read = self.bring_and_look_again(names, until);
            match read.inspect_err(|_| self.drop_brought())? {
                LoanOutcome::Whole => {
                    self.commit(names, Durability::Process)?;
                    return Ok(LoanOutcome::Whole);
                }
                other => {
                    // What is being brought for the borrower's own sake begins again.
                    self.drop_brought();
                    if other == LoanOutcome::Late {
                        return Ok(other);
                    }
                }
            }
        }
        Ok(LoanOutcome::Busy)
    }

    fn bring_and_look_again(
        &mut self,
        names: &NameSpace,
        until: Option<Instant>,
    ) -> Result<LoanOutcome, RegionError> {
        let (mut first, mut second) = (DefaultHasher::new(), DefaultHasher::new());
        let is_late = || until.is_some_and(|until| Instant::now() >= until);
        let backed_bytes = self.facts.backed_bytes;
        for start in (0..backed_bytes).step_by(PIECE_BYTES as usize) {
            if is_late() {
                return Ok(LoanOutcome::Late);
            }
            first.write(&self.bring(names, start, PIECE_BYTES.min(backed_bytes - start))?);
        }
        let mut theirs = vec![0; PIECE_BYTES as usize];
        for start in (0..backed_bytes).step_by(PIECE_BYTES as usize) {
            if is_late() {
                return Ok(LoanOutcome::Late);
            }
            let bytes = PIECE_BYTES.min(backed_bytes - start) as usize;
            let read = self.image.read_exact_at(&mut theirs[..bytes], start);
            read.map_err(|source| failed("read the image of", &self.name, source))?;
            second.write(&theirs[..bytes]);
        }
        let is_whole = first.finish() == second.finish();
        Ok(if is_whole { LoanOutcome::Whole } else { LoanOutcome::Busy })
    }

    /// Allocates more, in the region first: what the borrower stores must have a place to go.
    pub(crate) fn grow(
        &mut self,
        names: &NameSpace,
        at_least_bytes: u64,
    ) -> Result<u64, RegionError> {
        let had = self.facts.backed_bytes;
        let grown = self.region(names)?.grow(at_least_bytes)?;
        if grown > had {
            let allocated = allocate(&self.image, had..grown);
            allocated.map_err(|source| failed("allocate memory for", &self.name, source))?;
            self.facts.backed_bytes = grown;
        }
        Ok(self.facts.backed_bytes)
    }

    /// Everything is brought and counts: the store gets it, and the region is free.
    pub(crate) fn close(&mut self, names: &NameSpace) -> Result<(), RegionError> {
        self.region(names)?;
        match self.region.take() {
            Some(region) => region.close().map(drop),
            None => Ok(()),
        }
    }

    /// What was copied in and does not count must not count later.
    fn drop_brought(&mut self) {
        if let Some(work) = &mut self.work {
            work.done_bytes = 0;
        }
        let dropped = self.region.as_mut().map(Region::rollback);
        if !matches!(dropped, Some(Ok(_))) {
            self.region = None;
        }
    }

    fn region(&mut self, names: &NameSpace) -> Result<&mut Region, RegionError> {
        let region = match self.region.take() {
            Some(region) => region,
            None => prepared(names.open(&self.name, &self.key)?)?,
        };
        Ok(self.region.insert(region))
    }

    fn poisoned(&self) -> RegionError {
        RegionError::Poisoned { name: self.name.to_string() }
    }
}

/// Stores are put into it from outside, and count together.
fn prepared(mut region: Region) -> Result<Region, RegionError> {
    region.set_consistency(Consistency::Atomic)?;
    region.map_native()?;
    Ok(region)
}

fn failed(step: &'static str, name: &RegionName, source: io::Error) -> RegionError {
    RegionError::Io { step, path: name.as_str().into(), source }
}
