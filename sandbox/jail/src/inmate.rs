//! The state of one program that the supervisor and the handle share.
//!
//! Invariants:
//! - The first cause of an end counts, and `end` is set once; only output that turns out to be lost
//!   changes it after that.
//! - Its PID is used only while the process cannot have been reaped: under `unreaped`. Where the
//!   host ignores `SIGCHLD` the kernel reaps by itself, and what is read by PID then may be another
//!   process's; ends and kills go by descriptor.

#![forbid(unsafe_code)]

use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use holdfast_crossings::Mark;
use holdfast_sys::child::{Reaped, Status};
use holdfast_sys::{child, remote_memory};
use rustix::process::Signal;

use crate::end::{End, KillReason, LimitHit, Usage, signal_name};
use crate::groups::Groups;
use crate::limits::JailLimits;
use crate::policy::{Given, Policy, Step};

/// A crash with less than this share of the address space left counts as having used it up.
const SPARE_SHARE: u64 = 8;

/// One jailed program.
pub(crate) struct Inmate {
    pub(crate) pid: u32,
    /// The process that started it; a forked copy has this handle, too, and leaves the program
    /// alone.
    host: u32,
    pub(crate) pidfd: Arc<OwnedFd>,
    pub(crate) policy: Policy,
    pub(crate) given: Given,
    pub(crate) limits: JailLimits,
    pub(crate) started: Instant,
    /// Up to there the kernel cannot tell its memory from that of this process.
    inherited_peak_bytes: u64,
    /// Bytes of each stream that are kept.
    pub(crate) kept_bytes: usize,
    /// The host discards what it writes, which is neither counted nor kept.
    pub(crate) discards_output: bool,
    pub(crate) on_end: Vec<Arc<dyn Fn() + Send + Sync>>,
    pub(crate) crossings: Mark,
    book: Mutex<Book>,
    changed: Condvar,
    unreaped: RwLock<bool>,
}

/// What changes.
pub(crate) struct Book {
    pub(crate) step: Step,
    cause: Option<End>,
    end: Option<End>,
    usage: Usage,
    pub(crate) output: [Vec<u8>; 2],
    pub(crate) output_bytes: u64,
    pub(crate) is_truncated: bool,
    pub(crate) questions: u64,
    /// How often it asked for the network.
    pub(crate) network_refusals: u64,
    /// What it wrote could not be passed on, which counts for more than a status.
    has_lost_output: bool,
    /// Threads that still pass on what it wrote.
    pub(crate) relays: u32,
    pub(crate) groups: Option<Groups>,
}

/// What an inmate is made of.
pub(crate) struct Particulars {
    pub(crate) pid: u32,
    pub(crate) pidfd: Arc<OwnedFd>,
    pub(crate) policy: Policy,
    pub(crate) given: Given,
    pub(crate) limits: JailLimits,
    pub(crate) started: Instant,
    pub(crate) kept_bytes: usize,
    pub(crate) discards_output: bool,
    pub(crate) on_end: Vec<Arc<dyn Fn() + Send + Sync>>,
    pub(crate) groups: Option<Groups>,
    pub(crate) crossings: Mark,
}

impl Inmate {
    pub(crate) fn new(particulars: Particulars) -> Inmate {
        let Particulars {
            pid,
            pidfd,
            policy,
            given,
            limits,
            started,
            kept_bytes,
            discards_output,
            on_end,
            groups,
            crossings,
        } = particulars;
        let book = Book {
            step: Step::Loader,
            cause: None,
            end: None,
            usage: Usage::default(),
            output: [Vec::new(), Vec::new()],
            output_bytes: 0,
            is_truncated: false,
            questions: 0,
            network_refusals: 0,
            has_lost_output: false,
            relays: 0,
            groups,
        };
        Inmate {
            pid,
            host: std::process::id(),
            pidfd,
            policy,
            given,
            limits,
            started,
            inherited_peak_bytes: child::inherited_peak_bytes(),
            kept_bytes,
            discards_output,
            on_end,
            crossings,
            book: Mutex::new(book),
            changed: Condvar::new(),
            unreaped: RwLock::new(true),
        }
    }

    pub(crate) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends it, with this as the cause unless there is one already.
    pub(crate) fn finish(&self, cause: End) {
        if self.host != std::process::id() {
            return;
        }
        let mut book = self.book();
        if book.end.is_none() {
            book.cause.get_or_insert(cause);
            // Under the lock, before which no process can have reaped it. It may have ended by
            // itself.
            let _ = rustix::process::pidfd_send_signal(&*self.pidfd, Signal::KILL);
        }
    }

    pub(crate) fn end(&self) -> Option<End> {
        self.book().end.clone()
    }

    /// Waits until it has ended and what it wrote was passed on; `None` where the time is over
    /// before that, or in a forked copy of the host.
    pub(crate) fn wait(&self, timeout: Option<Duration>) -> Option<End> {
        self.wait_until(timeout, |book| book.end.is_some() && book.relays == 0)
    }

    /// The same for the end alone, as a relay may have a reader that never reads.
    pub(crate) fn wait_for_end(&self, timeout: Option<Duration>) -> Option<End> {
        self.wait_until(timeout, |book| book.end.is_some())
    }

    fn wait_until(
        &self,
        timeout: Option<Duration>,
        is_over: impl Fn(&Book) -> bool,
    ) -> Option<End> {
        if self.host != std::process::id() {
            return None;
        }
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut book = self.book();
        while !is_over(&book) {
            book = match deadline {
                None => self.changed.wait(book).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return None;
                    }
                    self.changed.wait_timeout(book, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        book.end.clone()
    }

    /// It has written more; too much ends it.
    pub(crate) fn count_output(&self, bytes: usize) {
        let limit_bytes = self.limits.output_bytes;
        let is_too_much = {
            let mut book = self.book();
            book.output_bytes = book.output_bytes.saturating_add(bytes as u64);
            book.output_bytes > limit_bytes
        };
        if is_too_much {
            self.finish(End::Limit(LimitHit::Output { limit_bytes }));
        }
    }

    /// What it wrote cannot be passed on: it ends, or, where it has ended in order, that end is
    /// none.
    pub(crate) fn lose_output(&self, what: String) {
        let cause = End::Killed(KillReason::Other { what });
        let mut book = self.book();
        if let Some(End::Exited { .. }) = book.end {
            book.end = Some(cause);
            return;
        }
        book.has_lost_output = true;
        drop(book);
        self.finish(cause);
    }

    /// A relay has begun, or has passed everything on.
    pub(crate) fn count_relay(&self, has_begun: bool) {
        let mut book = self.book();
        book.relays =
            if has_begun { book.relays.saturating_add(1) } else { book.relays.saturating_sub(1) };
        drop(book);
        self.changed.notify_all();
    }

    /// Does something with the PID, unless the process has been reaped.
    fn with_pid<T>(&self, work: impl FnOnce(u32) -> io::Result<T>) -> io::Result<T> {
        let unreaped = self.unreaped.read().unwrap_or_else(PoisonError::into_inner);
        if !*unreaped {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        work(self.pid)
    }

    pub(crate) fn cpu_time(&self) -> Duration {
        self.with_pid(child::cpu_time).unwrap_or_else(|_| self.book().usage.cpu_time)
    }

    pub(crate) fn usage(&self) -> Usage {
        let live = self.with_pid(|pid| {
            let status = Memory::of(pid)?;
            let (cpu_time, wall_time) = (child::cpu_time(pid)?, self.started.elapsed());
            Ok(Usage { cpu_time, wall_time, peak_memory_bytes: status.peak_resident_bytes })
        });
        // One that has ended but is not reaped yet has no memory to tell of.
        live.unwrap_or_else(|_| {
            let book = self.book();
            match &book.end {
                Some(_) => book.usage,
                None => Usage { wall_time: self.started.elapsed(), ..book.usage },
            }
        })
    }

    pub(crate) fn read_memory(&self, address: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.with_pid(|pid| remote_memory::read(pid, address, buffer))
    }

    pub(crate) fn changed_pages(&self, range: Range<u64>) -> io::Result<Vec<Range<u64>>> {
        self.with_pid(|pid| remote_memory::own_pages(pid, range))
    }

    /// How many threads it has.
    pub(crate) fn threads(&self) -> io::Result<u64> {
        let pid = self.pid;
        self.with_pid(|_| Ok(Memory::of(pid)?.threads))
    }

    /// Which limit of its memory it has nearly reached: bytes.
    pub(crate) fn full_bytes(&self) -> Option<u64> {
        let memory = self.with_pid(Memory::of).ok()?;
        let JailLimits { address_space_bytes, private_bytes, .. } = self.limits;
        let all =
            is_nearly_all(memory.peak_bytes, address_space_bytes).then_some(address_space_bytes);
        all.or_else(|| is_nearly_all(memory.private_bytes, private_bytes).then_some(private_bytes))
    }

    /// Reaps it if no process is using its PID: false when it has to be tried again.
    pub(crate) fn reap(&self) -> bool {
        let Ok(mut unreaped) = self.unreaped.try_write() else { return false };
        let reaped = match child::reap(self.pid, false) {
            Ok(None) => return false,
            Ok(Some(reaped)) => Some(reaped),
            Err(_) => None,
        };
        *unreaped = false;
        drop(unreaped);
        let wall_time = self.started.elapsed();
        let groups = {
            let mut book = self.book();
            let cause = book.cause.take();
            let out_of_memory = book.groups.as_ref().is_some_and(Groups::ran_out_of_memory);
            if let Some(Reaped { cpu_time, peak_memory_bytes, .. }) = reaped {
                book.usage = Usage { cpu_time, peak_memory_bytes, wall_time };
            }
            let has_lost_output = book.has_lost_output;
            book.end = Some(match self.verdict(reaped, cause.clone(), out_of_memory) {
                End::Exited { .. } if has_lost_output => cause.unwrap_or(End::Unknown),
                end => end,
            });
            book.groups.take()
        };
        self.changed.notify_all();
        for callback in &self.on_end {
            // A callback that panics must not take all other jails with it.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| callback()));
        }
        drop(groups);
        true
    }

    fn verdict(&self, reaped: Option<Reaped>, cause: Option<End>, out_of_memory: bool) -> End {
        let Some(reaped) = reaped else { return cause.unwrap_or(End::Unknown) };
        let JailLimits {
            cpu_time,
            file_size_bytes,
            address_space_bytes,
            private_bytes,
            memory_bytes,
            ..
        } = self.limits;
        let limit_bytes = address_space_bytes.min(private_bytes);
        match reaped.status {
            // It was quicker than the code that wanted to end it.
            Status::Exited(status) => End::Exited { status },
            Status::Signal(libc::SIGKILL) if cause.is_some() => cause.unwrap_or(End::Unknown),
            Status::Signal(libc::SIGKILL | libc::SIGXCPU)
                if cpu_time.is_some_and(|limit| reaped.cpu_time >= limit) =>
            {
                End::Limit(LimitHit::CpuTime { limit: cpu_time.unwrap_or_default() })
            }
            Status::Signal(libc::SIGKILL) if out_of_memory => {
                End::Limit(LimitHit::Memory { limit_bytes: memory_bytes.unwrap_or(0) })
            }
            Status::Signal(libc::SIGXFSZ) => {
                End::Limit(LimitHit::FileSize { limit_bytes: file_size_bytes })
            }
            Status::Signal(libc::SIGSEGV | libc::SIGBUS | libc::SIGABRT | libc::SIGKILL)
                if reaped.peak_memory_bytes > self.inherited_peak_bytes
                    && is_nearly_all(reaped.peak_memory_bytes, limit_bytes) =>
            {
                End::Limit(LimitHit::AddressSpace { limit_bytes })
            }
            Status::Signal(signal) => End::Signal { signal, name: signal_name(signal) },
        }
    }
}

fn is_nearly_all(bytes: u64, limit_bytes: u64) -> bool {
    bytes >= limit_bytes - limit_bytes / SPARE_SHARE
}

/// What `/proc/PID/status` says of a living process.
struct Memory {
    threads: u64,
    peak_bytes: u64,
    private_bytes: u64,
    peak_resident_bytes: u64,
}

impl Memory {
    fn of(pid: u32) -> io::Result<Memory> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let field = |name: &str| {
            let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
            rest.split_whitespace().next()?.parse::<u64>().ok()
        };
        let gone = || io::Error::from_raw_os_error(libc::ESRCH);
        Ok(Memory {
            threads: field("Threads:").ok_or_else(gone)?,
            peak_bytes: field("VmPeak:").ok_or_else(gone)? << 10,
            private_bytes: field("VmData:").ok_or_else(gone)? << 10,
            peak_resident_bytes: field("VmHWM:").ok_or_else(gone)? << 10,
        })
    }
}

impl fmt::Debug for Inmate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Inmate").field("pid", &self.pid).finish_non_exhaustive()
    }
}
