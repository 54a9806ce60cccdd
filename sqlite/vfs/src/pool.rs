//! A database as one process has it open: its image in the pool, its log, its file, settings, and
//! who it is among others.
//!
//! Invariant: a value belongs to the process that made it. In a child that a fork made it is not to
//! be used: see [`Pool::is_ours`].

#![forbid(unsafe_code)]

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};

use holdfast_region::Places;
use holdfast_sys::file::FileId;
use holdfast_sys::own_pid;

use crate::base::Base;
use crate::copy;
use crate::error::SqliteError;
use crate::ffi;
use crate::file_names::file_of;
use crate::flusher::Flusher;
use crate::host;
use crate::identity::Identity;
use crate::image::{BadLink, Image};
use crate::log::{Log, log_path};
use crate::owner::Owner;
use crate::parameters::settings_of_environment;
use crate::pressure::Pressure;
use crate::settings::Settings;

/// An attached database.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) image: Image,
    pub(crate) database: PathBuf,
    /// The file that was opened by that name.
    pub(crate) file: Option<FileId>,
    base: Box<dyn Base>,
    /// Number of this process's entry.
    pub(crate) number: u32,
    pid: u32,
    /// Inode of the name space of process numbers.
    pub(crate) pid_space: u64,
    pub(crate) gate: Mutex<()>,
    pub(crate) log: Mutex<Option<Log>>,
    pub(crate) settings: Settings,
    pub(crate) flusher: Flusher,
    pub(crate) pressure: Pressure,
    /// Where the search for blocks that make room goes on.
    pub(crate) clean_from: AtomicU32,
    /// Where the keeper saves copies.
    pub(crate) copies: PathBuf,
    pub(crate) places: Places,
    pub(crate) identity: Identity,
    /// This process, for the log and the mark.
    pub(crate) owner: Owner,
    connections: AtomicU32,
    poisoned: AtomicBool,
}

impl Pool {
    pub(crate) fn new(
        image: Image,
        (database, identity): (&Path, Identity),
        base: Box<dyn Base>,
        (number, pid_space): (u32, u64),
        (places, owner): (&Places, Owner),
    ) -> Pool {
        Pool {
            image,
            database: database.to_owned(),
            file: file_of(database),
            base,
            number,
            pid: own_pid::get(),
            pid_space,
            gate: Mutex::new(()),
            log: Mutex::new(None),
            settings: settings_of_environment(std::env::vars_os()).unwrap_or_default(),
            flusher: Flusher::default(),
            pressure: Pressure::default(),
            clean_from: AtomicU32::new(0),
            copies: copy::folder(places),
            places: places.clone(),
            identity,
            owner,
            connections: AtomicU32::new(0),
            poisoned: AtomicBool::new(false),
        }
    }

    /// Whether this is the process that attached, and the image is sound as far as is known.
    #[inline]
    pub(crate) fn is_ours(&self) -> bool {
        own_pid::get() == self.pid
    }

    #[inline]
    pub(crate) fn is_poisoned(&self) -> bool {
        self.poisoned.load(Relaxed)
    }

    #[inline]
    pub(crate) fn is_hot(&self) -> bool {
        self.image.mode().is_hot()
    }

    pub(crate) fn base(&self) -> &dyn Base {
        self.base.as_ref()
    }

    pub(crate) fn log_path(&self) -> PathBuf {
        log_path(&self.database)
    }

    /// A number for a new connection; never 0.
    pub(crate) fn next_connection(&self) -> u32 {
        self.connections.fetch_add(1, Relaxed) + 1
    }

    /// Size of the database as of the last commit, in bytes.
    #[inline]
    pub(crate) fn size(&self) -> u64 {
        self.image.commits().size()
    }

    /// The transactions since the redo log was begun: a mark is of one of them.
    pub(crate) fn since_log(&self) -> RangeInclusive<u64> {
        self.image.log_position().base()..=self.image.commits().newest()
    }

    /// Uses the image no more: it contradicts itself.
    #[cold]
    pub(crate) fn poison(&self, what: &'static str) {
        if !self.poisoned.swap(true, Relaxed) {
            host::log(ffi::IOERR, &self.damaged(what).to_string());
        }
    }

    /// For `map_err`: a slot leads astray, so the image is used no more, whatever the pool was
    /// doing.
    #[cold]
    pub(crate) fn astray(&self, _: BadLink) -> SqliteError {
        self.poisoned.store(true, Relaxed);
        self.damaged("a slot leads astray")
    }

    #[cold]
    pub(crate) fn damaged(&self, what: &'static str) -> SqliteError {
        SqliteError::Damaged {
            image: self.image.path().to_owned(),
            database: self.database.clone(),
            what,
        }
    }
}
