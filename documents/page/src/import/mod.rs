//! Fills the cache with the pages of a folder or of a WARC file, several at once.
//!
//! Workers take the pages in order; each lays one out (in a thread of the engine's) and makes its
//! entry. One writer puts the entries into the cache. Between them there is a channel as long as
//! there are workers, so that what waits is bounded.
//!
//! Invariants:
//! - Every page comes to a reported end: kept, unchanged, failed with a reason.
//! - An import lets no page go that it has just kept: it stops when the cache is full of them.
//! - What is kept is whole: an entry comes in one transaction, and an import that was killed is
//!   done again at the cost of what it had not kept yet.

mod error;
mod folder;
mod keep;
mod pages;
mod turns;
mod warc;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Mutex, PoisonError};
use std::thread;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::address::Address;
use crate::cache::Cache;
use crate::error::{CacheError, PageError};
use crate::limits::PageLimits;
use crate::view::View;

pub use error::ImportError;
use keep::CacheWriter;
use pages::{ImportPages, ImportedPage};
use turns::{MemoryGate, Outstanding};
pub use warc::ImportProblem;

/// The most pages that are laid out at once.
pub const JOBS_MAX: usize = 64;

/// What is kept of each page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportScope {
    /// Its document, and how it looks.
    All,
    /// Its document, for queries: nothing is laid out.
    Document,
}

/// An import.
#[derive(Clone, Debug)]
pub struct Import {
    /// A folder, or a WARC file.
    pub from: PathBuf,
    /// How the pages are looked at.
    pub view: View,
    /// How much of a page is taken.
    pub limits: PageLimits,
    /// What is kept.
    pub only: ImportScope,
    /// How many pages are laid out at once.
    pub jobs: usize,
    /// Which pages: their names in the folder, or their addresses.
    pub matching: Option<glob::Pattern>,
    /// The first so many of these.
    pub limit: Option<u64>,
    /// Also hidden files.
    pub hidden: bool,
    /// Pages (by [`page_sum`]) that are done already.
    pub done: Vec<u64>,
    /// Pages that are tried alone, one after the other, before all others.
    pub alone: Vec<u64>,
    /// When the import began, in seconds since 1970: what was used since is not let go.
    pub since_s: u64,
}

/// What a page is named by in [`Import::done`].
#[must_use]
pub fn page_sum(address: &str) -> u64 {
    xxh3_64(address.as_bytes())
}

/// What came of a page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PageOutcome {
    /// It was kept.
    Kept {
        /// Bytes in the cache.
        bytes: u64,
        /// Views of other pages that had to go.
        evicted: u64,
    },
    /// The cache had it.
    Unchanged,
    /// It was not kept.
    Failed {
        /// Why, for people.
        why: String,
    },
}

/// What an import tells while it runs; from several threads.
#[derive(Clone, Debug)]
pub enum ImportEvent<'a> {
    /// It looks what there is: so many bytes of a file are read.
    Looking {
        /// So far.
        bytes: u64,
        /// Of.
        of: u64,
    },
    /// It knows what there is.
    Planned(&'a ImportPlan),
    /// A page is begun.
    Begun {
        /// Its address.
        address: &'a str,
    },
    /// A page is done.
    Done {
        /// Its address.
        address: &'a str,
        /// What came of it.
        outcome: &'a PageOutcome,
    },
}

/// What there is to import.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportPlan {
    /// Pages to do.
    pub pages: u64,
    /// Pages that were not asked for.
    pub left_out: u64,
    /// Hidden files and folders that were not looked at.
    pub hidden: u64,
    /// Links that lead out of the folder.
    pub outside: u64,
    /// Records that are damaged, files and folders that cannot be read.
    pub damaged: u64,
    /// What is wrong with these, the first of them.
    pub troubles: Vec<ImportProblem>,
}

/// How an import ended.
#[derive(Debug)]
pub enum ImportEnd {
    /// All pages are done.
    Done,
    /// It was to stop.
    Stopped,
    /// The cache is full of its own pages.
    Full,
    /// The cache cannot be written.
    Cache(CacheError),
    /// So many pages took too long, whose threads run on, that another process had better do the
    /// rest.
    Weary,
}

/// The result, besides what was reported.
#[derive(Debug)]
pub struct ImportReport {
    /// Why there is no more.
    pub end: ImportEnd,
    /// Responses whose bytes have not the sum that the file says.
    pub wrong_sums: u64,
    /// Pages that waited until they were alone, since there was no room for them beside others.
    pub waited: u64,
}

impl Import {
    /// Does it. `stop` ends it after the pages that are begun.
    ///
    /// # Errors
    /// [`ImportError`], when there is nothing to import from. What is wrong with a page is told of
    /// that page.
    pub fn run(
        &self,
        cache: &Cache,
        stop: &AtomicBool,
        tell: &(dyn Fn(ImportEvent<'_>) + Sync),
    ) -> Result<ImportReport, ImportError> {
        let pages = ImportPages::find(self, stop, tell)?;
        tell(ImportEvent::Planned(&pages.plan));
        let shared = ImportRun {
            import: self,
            pages: &pages,
            cache,
            stop,
            tell,
            next: AtomicUsize::new(0),
            end: Mutex::new(None),
            late: AtomicUsize::new(0),
            turns: MemoryGate::default(),
            waited: AtomicU64::new(0),
        };
        let (alone, rest) = pages.addresses.split_at(pages.alone);
        shared.go(alone, 1)?;
        shared.go(rest, self.jobs.clamp(1, JOBS_MAX))?;
        let end = shared.end.into_inner().unwrap_or_else(PoisonError::into_inner);
        let stopped =
            || if stop.load(Ordering::Relaxed) { ImportEnd::Stopped } else { ImportEnd::Done };
        let waited = shared.waited.into_inner();
        Ok(ImportReport {
            end: end.unwrap_or_else(stopped),
            wrong_sums: pages.wrong_sums(),
            waited,
        })
    }
}

struct ImportRun<'a> {
    import: &'a Import,
    pages: &'a ImportPages,
    cache: &'a Cache,
    stop: &'a AtomicBool,
    tell: &'a (dyn Fn(ImportEvent<'_>) + Sync),
    next: AtomicUsize,
    end: Mutex<Option<ImportEnd>>,
    /// Pages that took too long.
    late: AtomicUsize,
    /// Admits jobs side by side, or one alone.
    turns: MemoryGate,
    waited: AtomicU64,
}

impl ImportRun<'_> {
    /// Does these pages, so many at once.
    fn go(&self, pages: &[String], jobs: usize) -> Result<(), ImportError> {
        self.next.store(0, Ordering::Relaxed);
        let (sender, receiver) = sync_channel(jobs);
        thread::scope(|scope| {
            for number in 0..jobs.min(pages.len()) {
                let sender = sender.clone();
                let work = move || {
                    while let Some(address) = self.take(pages) {
                        (self.tell)(ImportEvent::Begun { address });
                        let Some(made) = self.make(address) else { break };
                        if sender.send((address, made)).is_err() {
                            break;
                        }
                    }
                };
                let worker = thread::Builder::new().name(format!("import {number}"));
                match worker.spawn_scoped(scope, work) {
                    Ok(_) => {}
                    Err(error) if number == 0 => return Err(ImportError::Thread(error)),
                    // Those that there are do it.
                    Err(_) => break,
                }
            }
            drop(sender);
            let mut writer = CacheWriter::new(self.cache, self.import.since_s);
            for (address, made) in receiver {
                let outcome = match made.end(|made| writer.write(made)) {
                    Ok(outcome) => outcome,
                    Err(end) => {
                        // Those that are begun come still, and are let go; they are done the next
                        // time.
                        self.finish(end);
                        continue;
                    }
                };
                (self.tell)(ImportEvent::Done { address, outcome: &outcome });
            }
            Ok(())
        })
    }

    fn take<'p>(&self, pages: &'p [String]) -> Option<&'p String> {
        let over = self.end.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        if over || self.stop.load(Ordering::Relaxed) {
            return None;
        }
        pages.get(self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// The first reason counts.
    fn finish(&self, end: ImportEnd) {
        self.end.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(end);
    }

    /// Nothing, if another process has to do it.
    fn make(&self, address: &str) -> Option<Outstanding<'_, Result<ImportedPage, PageError>>> {
        let is_want_of_room =
            |made: &Result<ImportedPage, PageError>| matches!(made, Err(PageError::Thread(_)));
        let mut made = self.turns.beside_others(|| self.try_to_make(address));
        // No fault of this page, as long as there are others, and what was made of them.
        if is_want_of_room(&made) && !self.has_late() {
            drop(made);
            if self.stop.load(Ordering::Relaxed) {
                return None;
            }
            self.waited.fetch_add(1, Ordering::Relaxed);
            made = self.turns.alone(|| self.try_to_make(address));
        }
        // Threads of pages that took too long have the memory.
        if is_want_of_room(&made) && self.has_late() {
            self.finish(ImportEnd::Weary);
            return None;
        }
        Some(made)
    }

    fn try_to_make(&self, address: &str) -> Result<ImportedPage, PageError> {
        let made = Address::parse(address)
            .and_then(|address| pages::make(self.import, self.cache, &self.pages.from, &address));
        if matches!(made, Err(PageError::TimeOut { .. }))
            && self.late.fetch_add(1, Ordering::Relaxed) + 1 >= self.import.jobs
        {
            self.finish(ImportEnd::Weary);
        }
        made
    }

    fn has_late(&self) -> bool {
        self.late.load(Ordering::Relaxed) > 0
    }
}
