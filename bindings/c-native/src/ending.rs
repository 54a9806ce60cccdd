//! The end of the process, and forks: who may close the heap, and who may not use it.
//!
//! Invariants:
//! - The finaliser runs after the program's own `atexit` handlers and static destructors, which may
//!   still use the heap; it closes only what this very process has opened.
//! - While other threads are left, nothing is unmapped, and what needs the heap at rest is done
//!   only when they cannot store to it any more.
//! - A child that was forked while a heap was open, or while a call was under way, by whatever
//!   call, never gets to the heap.

#![allow(
    unsafe_code,
    reason = "the loader calls this at exit, and the kernel tells of forks by memory"
)]

use std::fs;
use std::io;
use std::ptr::{NonNull, null_mut};
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use holdfast_sys::fault::ask_first;
use holdfast_sys::mapping::{Prot, protect};

use crate::session;

/// Heaps that are open, so that the last one to be closed is known.
static OPEN_HEAPS: AtomicU32 = AtomicU32::new(0);
/// The process that has a heap open, 0 if none.
static OPENER: AtomicU32 = AtomicU32::new(0);
/// The opener, in a child that was forked from it.
static FORKED_FROM: AtomicU32 = AtomicU32::new(0);

/// A page that the kernel fills with zeroes in every child, however it is forked: its first word
/// says whether this is still the process that wrote it. NULL before the first heap, and where the
/// kernel has no such pages.
static MARK: AtomicPtr<AtomicU32> = AtomicPtr::new(null_mut());

/// From now on a fork is noticed and the end of the process closes the heap.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| MARK.store(mark().unwrap_or(null_mut()), Ordering::Release));
    set_mark();
    OPEN_HEAPS.fetch_add(1, Ordering::Relaxed);
    OPENER.store(std::process::id(), Ordering::Release);
}

fn mark() -> Option<*mut AtomicU32> {
    let (bytes, prot) = (size_of::<AtomicU32>(), libc::PROT_READ | libc::PROT_WRITE);
    // SAFETY: a new page at an address of the kernel's choice, which stays for good.
    unsafe {
        let page =
            libc::mmap(null_mut(), bytes, prot, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0);
        let is_there = page != libc::MAP_FAILED;
        (is_there && libc::madvise(page, bytes, libc::MADV_WIPEONFORK) == 0).then_some(page.cast())
    }
}

/// What the mark says of the process that wrote it.
const OURS: u32 = 1;
/// The same, in which threads were in compartments.
const OURS_WITH_COMPARTMENTS: u32 = 2;

fn set_mark() {
    // SAFETY: NULL, or a page of this library that stays for good.
    if let Some(mark) = unsafe { MARK.load(Ordering::Acquire).as_ref() } {
        let of_compartments = session::has_compartments();
        let found = if of_compartments { OURS_WITH_COMPARTMENTS } else { OURS };
        // Never lower: another thread may have entered a compartment since that look.
        mark.fetch_max(found, Ordering::AcqRel);
    }
}

/// A thread is about to be in a compartment, for the first time; a heap is open.
pub(crate) fn note_compartments() {
    set_mark();
}

/// Whether the mark says that this process wrote it, and that no thread was ever in a compartment.
/// `false` where the kernel has no such mark.
#[inline]
pub(crate) fn is_plain() -> bool {
    // SAFETY: as in `set_mark`.
    let mark = unsafe { MARK.load(Ordering::Acquire).as_ref() };
    mark.is_some_and(|mark| mark.load(Ordering::Relaxed) == OURS)
}

/// Whether the mark, or without one the opener, is this process's.
fn is_marked() -> bool {
    // SAFETY: as in `set_mark`.
    match unsafe { MARK.load(Ordering::Acquire).as_ref() } {
        Some(mark) => mark.load(Ordering::Relaxed) != 0,
        None => match OPENER.load(Ordering::Acquire) {
            0 => true,
            opener => opener == std::process::id(),
        },
    }
}

/// The heap is closed.
pub(crate) fn forget() {
    if OPEN_HEAPS.fetch_sub(1, Ordering::Relaxed) == 1 {
        OPENER.store(0, Ordering::Release);
    }
}

/// The process that has the heap, if this one was forked from it.
pub(crate) fn forked_from() -> Option<u32> {
    match FORKED_FROM.load(Ordering::Relaxed) {
        0 if is_marked() => None,
        0 => look_at_parent(),
        opener => Some(opener),
    }
}

/// In a child, once: whether its parent had a heap open, or was inside a call.
#[cold]
fn look_at_parent() -> Option<u32> {
    let opener = OPENER.load(Ordering::Acquire);
    if opener == 0 && !session::is_busy() {
        // Nothing of the parent's is here: the child may open a heap of its own.
        set_mark();
        return None;
    }
    // SAFETY: getppid has no preconditions.
    let parent = unsafe { libc::getppid() }.unsigned_abs();
    let opener = if opener != 0 { opener } else { parent.max(1) };
    FORKED_FROM.store(opener, Ordering::Release);
    Some(opener)
}

/// `PF_EXITING` of the kernel: the thread runs no code of the program any more.
const TASK_EXITING: u64 = 4;

/// Whether no other thread of this process can still run. Where the kernel does not say, one may.
pub(crate) fn is_alone() -> bool {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else { return false };
    let can_run = |task: &fs::DirEntry| {
        // Gone in the meantime; or the fields behind the name, which may itself have blanks and
        // brackets.
        let Ok(stat) = fs::read_to_string(task.path().join("stat")) else { return false };
        let mut fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
        let flags = fields.nth(6).and_then(|flags| flags.parse::<u64>().ok());
        flags.is_none_or(|flags| flags & TASK_EXITING == 0)
    };
    tasks.flatten().filter(can_run).count() <= 1
}

/// Where stores end a thread's way.
static STOPPED: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];

/// From now on a thread that stores to the range stops there for good; a thread that reads it goes
/// on. For the end of the process, at which all threads end.
///
/// # Errors
/// What the kernel reports.
pub(crate) fn stop_stores(start: NonNull<u8>, bytes: usize) -> io::Result<()> {
    STOPPED[0].store(start.addr().get(), Ordering::Relaxed);
    STOPPED[1].store(start.addr().get() + bytes, Ordering::Release);
    // SAFETY: called once in a process, at its end, and `stop` is async-signal-safe. Taking the
    // right to store away from a mapping leaves every reference to it readable.
    unsafe {
        ask_first(stop)?;
        protect(start.as_ptr(), bytes, Prot::Read)
    }
}

fn stop(address: usize) -> bool {
    let end = STOPPED[1].load(Ordering::Acquire);
    while (STOPPED[0].load(Ordering::Relaxed)..end).contains(&address) {
        // SAFETY: no preconditions, async-signal-safe.
        unsafe { libc::pause() };
    }
    false
}

extern "C" fn at_exit() {
    if OPENER.load(Ordering::Acquire) == std::process::id() && forked_from().is_none() {
        session::end();
    }
}

/// What the loader calls last of all.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = at_exit;
