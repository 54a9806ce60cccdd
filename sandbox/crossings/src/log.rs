//! The host's side of the record of what crossed sandboxes: one for each process, written in whole
//! frames to a file that all hosts of a trace share. Marks (`mark`) end up here.
//!
//! Invariants:
//! - A frame is one write at the file's end, so those of several processes never mix.
//! - The calls that this makes are marked: waits for its lock and the like are marked as its own,
//!   and each frame says when and by which thread it was written.

use std::cell::Cell;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{IoSlice, Write};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};

use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};
use zerocopy::IntoBytes;

use crate::record::{
    AppletKind, FLAG_AT_REST, FRAME_BYTES, FRAME_BYTES_MAX, FrameHead, MAGIC, NAME_BYTES_MAX,
    RECORD_BYTES_MAX, Record,
};

/// Records are written this long after the first of them at the latest, as soon as another one
/// comes.
const WRITTEN_AFTER_NS: u64 = 1_000_000_000;
/// What one process writes in all; what comes after is counted.
const LOG_BYTES_MAX: u64 = 256 << 20;
/// Names that are kept of one process; all others are one.
const NAMES_MAX: usize = 4096;
const OTHER_NAMES: &str = "all others";

/// This process's file of crossings, written frame by frame.
#[derive(Debug)]
pub(crate) struct Log {
    inner: Mutex<Inner>,
    /// Counts up when this turns out to be a forked copy: what threads know of themselves is
    /// another's then.
    generation: AtomicU32,
}

#[derive(Debug)]
struct Inner {
    file: File,
    process: u32,
    gathered: Vec<u8>,
    records: u32,
    /// When the first of them was marked that has a time; 0 if there is none.
    since_ns: u64,
    sequence: u32,
    written_bytes: u64,
    /// From so many written bytes on nothing is kept.
    bytes_max: u64,
    dropped: u64,
    has_failed: bool,
    names: HashMap<String, u32>,
    applets: u32,
    /// Applets that are there.
    alive: u32,
    /// When the processes of applets began.
    began_ns: HashMap<u32, u64>,
}

thread_local! {
    /// The generation that it was asked in, and the thread's number; 0 before.
    static THREAD: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
}

/// The record of this process, if a tracer wants one. Looked for once.
pub(crate) fn log() -> Option<&'static Log> {
    static LOG: OnceLock<Option<Log>> = OnceLock::new();
    LOG.get_or_init(|| {
        let path = std::env::var_os(crate::VARIABLE)?;
        let start_ns = now_ns();
        let file = OpenOptions::new().append(true).open(path).ok()?;
        // Anything else is not the tracer's: it may be a file that its owner wants to keep.
        file.metadata().ok().filter(|file| file.is_file() && file.nlink() == 0)?;
        // A write beyond the limit on files ends the process by a signal, and others write to this
        // file: how long it is by then is not known. The view says that such a host keeps no
        // record.
        if getrlimit(Resource::Fsize).current.is_some() {
            return None;
        }
        let log = Log::new(file, LOG_BYTES_MAX);
        log.own(start_ns);
        Some(log)
    })
    .as_ref()
}

pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // Neither is ever negative.
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

impl Log {
    pub(crate) fn new(file: File, bytes_max: u64) -> Log {
        let inner = Inner {
            file,
            process: std::process::id(),
            gathered: Vec::with_capacity(FRAME_BYTES + RECORD_BYTES_MAX),
            records: 0,
            since_ns: 0,
            sequence: 0,
            written_bytes: 0,
            bytes_max,
            dropped: 0,
            has_failed: false,
            names: HashMap::with_capacity(64),
            applets: 0,
            alive: 0,
            began_ns: HashMap::new(),
        };
        Log { inner: Mutex::new(inner), generation: AtomicU32::new(1) }
    }

    /// An applet is being started: its number.
    pub(crate) fn begin(&self, kind: AppletKind, name: &str) -> u32 {
        let start_ns = now_ns();
        let mut inner = self.lock();
        let process = std::process::id();
        if inner.process != process {
            inner.start_anew(process);
            self.generation.fetch_add(1, Ordering::Relaxed);
        }
        inner.applets += 1;
        inner.alive += 1;
        let applet = inner.applets;
        let name = inner.number_of(name);
        inner.add(&Record::Applet { applet, kind, name, at_ns: start_ns }, start_ns);
        drop(inner);
        self.own(start_ns);
        applet
    }

    /// An applet's process begins.
    pub(crate) fn began(&self, applet: u32, at_ns: u64) {
        self.lock().began_ns.insert(applet, at_ns);
    }

    pub(crate) fn began_ns(&self, applet: u32) -> Option<u64> {
        self.lock().began_ns.get(&applet).copied()
    }

    /// An applet is gone.
    pub(crate) fn end(&self, applet: u32) {
        let thread = self.thread();
        let mut inner = self.lock();
        inner.began_ns.remove(&applet);
        inner.alive = inner.alive.saturating_sub(1);
        inner.write_if_due(thread, 0);
    }

    /// A name's number.
    pub(crate) fn name(&self, text: &str) -> u32 {
        let start_ns = now_ns();
        let mut inner = self.lock();
        let names = inner.names.len();
        let number = inner.number_of(text);
        let is_new = inner.names.len() > names;
        drop(inner);
        if is_new {
            self.own(start_ns);
        }
        number
    }

    /// The number of this thread.
    pub(crate) fn thread(&self) -> u32 {
        let generation = self.generation.load(Ordering::Relaxed);
        let (asked_in, thread) = THREAD.get();
        if asked_in == generation {
            return thread;
        }
        let start_ns = now_ns();
        let thread = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
        THREAD.set((generation, thread));
        self.own(start_ns);
        thread
    }

    /// Keeps a record that ends at this time.
    pub(crate) fn add(&self, record: &Record, at_ns: u64) {
        let thread = self.thread();
        let mut inner = self.lock();
        inner.add(record, at_ns);
        inner.write_if_due(thread, at_ns);
    }

    #[cfg(test)]
    pub(crate) fn dropped(&self) -> u64 {
        self.lock().dropped
    }

    /// The record's own work on this thread, since then.
    fn own(&self, start_ns: u64) {
        let thread = self.thread();
        let end_ns = now_ns();
        self.lock().add(&Record::Own { thread, start_ns, end_ns }, end_ns);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        match self.inner.try_lock() {
            Ok(inner) => return inner,
            Err(TryLockError::Poisoned(inner)) => return inner.into_inner(),
            Err(TryLockError::WouldBlock) => {}
        }
        let (thread, start_ns) = (self.thread(), now_ns());
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let end_ns = now_ns();
        inner.add(&Record::Own { thread, start_ns, end_ns }, end_ns);
        inner
    }
}

impl Inner {
    /// A forked copy begins with nothing: what was gathered is the other process's, which writes
    /// it.
    fn start_anew(&mut self, process: u32) {
        self.process = process;
        self.gathered.clear();
        self.names.clear();
        self.began_ns.clear();
        (self.records, self.sequence, self.applets, self.alive) = (0, 0, 0, 0);
        (self.dropped, self.written_bytes, self.since_ns) = (0, 0, 0);
    }

    fn number_of(&mut self, text: &str) -> u32 {
        let text = cut(text);
        if let Some(number) = self.names.get(text) {
            return *number;
        }
        let text = if self.names.len() < NAMES_MAX { text } else { OTHER_NAMES };
        if let Some(number) = self.names.get(text) {
            return *number;
        }
        let number = self.names.len() as u32;
        self.names.insert(text.to_owned(), number);
        self.add(&Record::Name { number, text: text.to_owned() }, 0);
        number
    }

    fn add(&mut self, record: &Record, at_ns: u64) {
        // A frame that is due may have to wait for who holds the thread's number; there is room for
        // some more.
        let is_full = self.gathered.len() > FRAME_BYTES_MAX - RECORD_BYTES_MAX;
        if self.has_failed || is_full || self.written_bytes >= self.bytes_max {
            self.dropped += 1;
            return;
        }
        if self.since_ns == 0 {
            self.since_ns = at_ns;
        }
        match postcard::to_slice(record, &mut [0; RECORD_BYTES_MAX]) {
            Ok(bytes) => {
                self.gathered.extend_from_slice(bytes);
                self.records += 1;
            }
            Err(_) => self.dropped += 1,
        }
    }

    fn write_if_due(&mut self, thread: u32, now_ns: u64) {
        let is_old = self.since_ns > 0 && now_ns.saturating_sub(self.since_ns) > WRITTEN_AFTER_NS;
        if self.alive == 0 || is_old || self.gathered.len() >= FRAME_BYTES {
            self.write(thread);
        }
    }

    fn write(&mut self, thread: u32) {
        if self.has_failed {
            return;
        }
        let mut head = FrameHead {
            magic: MAGIC,
            process: self.process.into(),
            sequence: self.sequence.into(),
            flags: if self.alive == 0 { FLAG_AT_REST } else { 0 }.into(),
            bytes: (self.gathered.len() as u32).into(),
            records: self.records.into(),
            dropped: self.dropped.into(),
            thread: thread.into(),
            reserved: 0.into(),
            written_ns: now_ns().into(),
            sum: 0.into(),
        };
        head.sum = head.sum_with(&self.gathered).into();
        let frame = [IoSlice::new(head.as_bytes()), IoSlice::new(&self.gathered)];
        let bytes = head.as_bytes().len() + self.gathered.len();
        match self.file.write_vectored(&frame) {
            Ok(written) if written == bytes => self.written_bytes += bytes as u64,
            // A part of a frame cannot be taken back from a file that others write to as well.
            Ok(_) => self.has_failed = true,
            Err(_) => self.dropped += u64::from(self.records),
        }
        self.sequence += 1;
        // What comes after the last record that is kept is not to be written again and again.
        (self.records, self.since_ns) = (0, 0);
        self.gathered.clear();
    }
}

/// As much of a name as is kept.
fn cut(text: &str) -> &str {
    let mut end = text.len().min(NAME_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
