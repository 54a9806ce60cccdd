//! Every way to find changed pages keeps the same promises: the same cases over all of them, on a
//! file in memory and on one on a disk. What this kernel lacks is named in the output, and the rest
//! is run.
//!
//! The oracle is a copy: a process that takes the changed ranges and copies their bytes has what
//! the mapping has.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use holdfast_sys::dirty::{
    DirtyMethod, DirtyTracker, Mapping, Reporter, available, best, choose, track,
};
use holdfast_sys::file::is_volatile_memory;
use holdfast_sys::mapping::{
    HUGE_PAGE_BYTES, Prot, Reservation, gather_huge_pages, map_shared_fixed,
};
use holdfast_sys::probe::{pagemap_scan, userfaultfd_async_write_protect};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

const PAGE: usize = 4096;

/// A file mapped shared, and its tracker.
struct Tracked {
    // Dropped in this order.
    tracker: Box<dyn DirtyTracker>,
    reporter: Option<Reporter>,
    memory: Memory,
}

/// A file mapped shared at the start of a reservation.
struct Memory {
    range: Reservation,
    file: File,
    len: usize,
}

// SAFETY: all accesses go through atomics, and the mapping lives as long as the value.
unsafe impl Sync for Memory {}

impl Memory {
    fn new(file: File, len: usize, limit: usize) -> Memory {
        file.set_len(len as u64).unwrap();
        let range = Reservation::anywhere(limit, HUGE_PAGE_BYTES).unwrap();
        // SAFETY: the reservation was made here, and nothing refers into it.
        unsafe { map_shared_fixed(range.base(), len, &file, 0, Prot::ReadWrite).unwrap() };
        Memory { range, file, len }
    }

    fn mapping(&self) -> Mapping {
        Mapping { base: self.range.base(), len: self.len, limit: self.range.len() }
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at < self.len);
        // SAFETY: aligned, within the mapping, which is only ever accessed through atomics.
        unsafe { AtomicU64::from_ptr(self.range.base().add(at).cast()) }
    }
}

impl Tracked {
    fn of(memory: Memory, kind: DirtyMethod) -> Tracked {
        // SAFETY: the mapping is the value's own, goes after the tracker, and no thread stores to
        // it yet.
        let tracker = unsafe { track(memory.mapping(), kind).unwrap() };
        assert_eq!(tracker.kind(), kind);
        Tracked { reporter: tracker.reporter(), tracker, memory }
    }

    /// Stores one byte.
    fn store(&self, at: usize, value: u8) {
        assert!(at < self.memory.len);
        // SAFETY: within the mapping, and no other thread is at work in the tests that use this.
        unsafe { self.memory.range.base().add(at).write_volatile(value) };
        report(&self.reporter, at);
    }

    fn take(&mut self) -> Vec<Range<u64>> {
        let ranges = self.tracker.take().unwrap();
        for range in &ranges {
            assert!(range.start < range.end && range.end <= self.memory.len as u64, "{ranges:?}");
            assert!(
                range.start.is_multiple_of(PAGE as u64) && range.end.is_multiple_of(PAGE as u64)
            );
        }
        assert!(
            ranges.windows(2).all(|two| two[0].end < two[1].start),
            "sorted and merged: {ranges:?}"
        );
        ranges
    }

    /// Takes, and checks that exactly these pages are found, by ways that can tell.
    fn expect(&mut self, pages: &[Range<usize>], when: &str) {
        let kind = self.tracker.kind();
        let found = self.take();
        if kind == DirtyMethod::Everything {
            assert_eq!(found, [0..self.memory.len as u64], "{kind}: {when}");
            return;
        }
        let bytes: Vec<_> = pages
            .iter()
            .map(|pages| (pages.start * PAGE) as u64..(pages.end * PAGE) as u64)
            .collect();
        let differs = found.iter().zip(&bytes).find(|(found, expected)| found != expected);
        assert!(
            found == bytes,
            "{kind}: {when}: {} ranges instead of {}, first other one {differs:?}",
            found.len(),
            bytes.len()
        );
    }
}

fn report(reporter: &Option<Reporter>, at: usize) {
    if let Some(reporter) = reporter {
        reporter.report(at as u64..at as u64 + 1);
    }
}

/// Two places for files: in memory and on a disk.
fn files() -> Vec<(&'static str, File)> {
    let mut files = Vec::new();
    for (what, directory, volatile) in
        [("a tmpfs", "/dev/shm", true), ("a disk", env!("CARGO_TARGET_TMPDIR"), false)]
    {
        if is_volatile_memory(Path::new(directory)).ok() == Some(volatile) {
            files.push((what, tempfile::tempfile_in(directory).unwrap()));
        } else {
            println!("not run: no directory on {what} ({directory})");
        }
    }
    files
}

/// Runs a case with every tracker that works here, in every place, on a mapping of `pages` pages
/// that may become `limit_pages`.
fn with_every_tracker(pages: usize, limit_pages: usize, case: impl Fn(Tracked)) {
    for kind in DirtyMethod::ALL {
        if let Some(error) = available(kind).refusal() {
            println!("not run: {kind} (the kernel says: {error})");
            continue;
        }
        for (what, file) in files() {
            println!("{kind} on {what}");
            case(Tracked::of(Memory::new(file, pages * PAGE, limit_pages * PAGE), kind));
        }
    }
}

/// A store to the first or last byte of a page is found and no other page.
#[test]
fn stores_at_page_edges_dirty_that_page_only() {
    with_every_tracker(64, 64, |mut tracked| {
        for at in [0, PAGE - 1, PAGE, 31 * PAGE + 7, 63 * PAGE, 64 * PAGE - 1] {
            tracked.store(at, 1);
            tracked.expect(&[at / PAGE..at / PAGE + 1], "one byte");
        }
    });
}

#[test]
fn without_a_store_nothing_is_found_whatever_is_read() {
    with_every_tracker(16, 16, |mut tracked| {
        tracked.expect(&[], "new");
        for page in 0..16 {
            assert_eq!(tracked.memory.word(page * PAGE).load(Ordering::Relaxed), 0);
        }
        tracked.expect(&[], "read");
        tracked.store(3 * PAGE, 1);
        tracked.expect(&[3..4], "stored");
        tracked.expect(&[], "taken");
    });
}

#[test]
fn a_page_that_is_stored_to_again_is_found_again() {
    with_every_tracker(8, 8, |mut tracked| {
        for round in 0..5 {
            tracked.store(2 * PAGE + round, 1);
            tracked.store(2 * PAGE + round, 2);
            tracked.expect(&[2..3], "again");
        }
    });
}

/// Neighbours come as one range and thousands of single pages as themselves.
#[test]
fn neighbours_merge_and_single_pages_stay_single() {
    with_every_tracker(4096, 4096, |mut tracked| {
        for page in [70, 5, 4, 6, 63, 64] {
            tracked.store(page * PAGE + 9, 1);
        }
        tracked.expect(&[4..7, 63..65, 70..71], "neighbours");
        let singles: Vec<_> = (0..4096).step_by(2).map(|page| page..page + 1).collect();
        for single in &singles {
            tracked.store(single.start * PAGE, 2);
        }
        tracked.expect(&singles, "every other page");
        for page in 0..4096 {
            tracked.store(page * PAGE, 3);
        }
        tracked.expect(std::slice::from_ref(&(0..4096)), "every page");
    });
}

/// What is added in place is clean and tracked like the rest.
#[test]
fn added_range_is_clean_and_tracked() {
    with_every_tracker(8, 1024, |mut tracked| {
        tracked.store(7 * PAGE, 1);
        for pages in [16, 1024] {
            let (old, new) = (tracked.memory.len, pages * PAGE);
            tracked.memory.file.set_len(new as u64).unwrap();
            // SAFETY: the added part lies in the reservation behind the mapping; no thread stores
            // to it yet.
            unsafe {
                let at = tracked.memory.range.base().add(old);
                map_shared_fixed(at, new - old, &tracked.memory.file, old as u64, Prot::ReadWrite)
                    .unwrap();
                tracked.tracker.extend(new).unwrap();
            }
            tracked.memory.len = new;
            tracked.expect(&[old / PAGE - 1..old / PAGE], "only what was stored before the growth");
            tracked.store(old, 1);
            tracked.store(new - 1, 1);
            tracked.store(0, 1);
            let first_new = old / PAGE;
            tracked
                .expect(&[0..1, first_new..first_new + 1, pages - 1..pages], "old and new parts");
            tracked.store(new - 1, 2);
        }
        for len in [1023 * PAGE, 1025 * PAGE, 1024 * PAGE - 1] {
            // SAFETY: refused before anything is done.
            unsafe { tracked.tracker.extend(len).unwrap_err() };
        }
    });
}

/// Bytes of a mapping that are mapped in huge pages, in the kernel's words.
fn huge_kib(memory: &Memory) -> u64 {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let start = format!("{:x}-", memory.range.base() as usize);
    let lines = smaps.lines().skip_while(|line| !line.starts_with(&start));
    let huge = lines.map_while(|line| (!line.starts_with("VmFlags:")).then_some(line));
    let kib = huge.filter_map(|line| line.strip_prefix("ShmemPmdMapped:"));
    kib.filter_map(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok()).sum()
}

/// A store into a huge page is found however the page became huge.
///
/// Guarantee: heap/dirty-pages
#[test]
fn store_into_huge_page_is_found_however_made() {
    const HUGE_PAGES: usize = HUGE_PAGE_BYTES / PAGE;
    for kind in DirtyMethod::ALL.into_iter().filter(|kind| available(*kind).is_usable()) {
        for gathered_before in [true, false] {
            let Ok(mut file) = tempfile::tempfile_in("/dev/shm") else {
                println!("not run: huge pages ({kind}; there is no /dev/shm)");
                return;
            };
            let len = 4 * HUGE_PAGE_BYTES;
            file.write_all(&vec![7; len]).unwrap();
            if gathered_before && let Err(error) = gather_huge_pages(Duration::MAX, &file, 0, len) {
                println!("not run: huge pages (the kernel says: {error})");
                return;
            }
            let memory = Memory::new(file, len, len);
            for page in 0..len / PAGE {
                assert_eq!(memory.word(page * PAGE).load(Ordering::Relaxed) as u8, 7);
            }
            if gathered_before && huge_kib(&memory) == 0 {
                println!("not run: huge pages ({kind}; gathered, but not mapped as such)");
                return;
            }
            let mut tracked = Tracked::of(memory, kind);
            tracked.store(5 * PAGE, 1);
            if !gathered_before
                && let Err(error) = gather_huge_pages(Duration::MAX, &tracked.memory.file, 0, len)
            {
                println!("not run: huge pages under a tracker ({kind}; the kernel says: {error})");
            }
            tracked.store(HUGE_PAGE_BYTES + 3, 1);
            tracked.store(len - 1, 1);
            let last = 4 * HUGE_PAGES - 1;
            tracked.expect(&[5..6, HUGE_PAGES..HUGE_PAGES + 1, last..last + 1], "huge");
            tracked.store(len - 1, 2);
            tracked.store(len - HUGE_PAGE_BYTES, 2);
            tracked.expect(&[3 * HUGE_PAGES..3 * HUGE_PAGES + 1, last..last + 1], "huge, again");
            assert_eq!(tracked.memory.word(6 * PAGE).load(Ordering::Relaxed) as u8, 7);
        }
    }
}

/// Copies what was taken, as a journal would.
fn apply(tracked: &mut Tracked, copy: &mut [u64]) {
    for range in tracked.take() {
        for at in (range.start as usize..range.end as usize).step_by(8) {
            copy[at / 8] = tracked.memory.word(at).load(Ordering::Relaxed);
        }
    }
}

/// With threads storing all the while the taken ranges make an exact copy.
///
/// Guarantee: heap/dirty-pages
#[test]
fn taken_ranges_make_an_exact_copy_under_stores() {
    const PAGES: usize = 96;
    const THREADS: usize = 3;
    const STORES: u64 = 40_000;
    with_every_tracker(PAGES, PAGES, |mut tracked| {
        let mut copy = vec![0; PAGES * PAGE / 8];
        let running = AtomicUsize::new(THREADS);
        let memory: *const Memory = &raw const tracked.memory;
        // SAFETY: the threads end in the scope below, before `tracked` does, which is not moved
        // meanwhile; taking does not touch the field.
        let memory = unsafe { &*memory };
        let mut takes = 0;
        std::thread::scope(|scope| {
            for thread in 0..THREADS as u64 {
                let (running, reporter) = (&running, tracked.reporter.clone());
                scope.spawn(move || {
                    let mut random = SmallRng::seed_from_u64(thread);
                    for value in 1..=STORES {
                        let at = random.random_range(0..PAGES * PAGE / 8) * 8;
                        memory.word(at).store(value << 8 | thread, Ordering::Relaxed);
                        report(&reporter, at);
                    }
                    running.fetch_sub(1, Ordering::Release);
                });
            }
            // Bounded by the threads, which store a fixed number of times.
            while running.load(Ordering::Acquire) > 0 {
                apply(&mut tracked, &mut copy);
                takes += 1;
            }
        });
        apply(&mut tracked, &mut copy);
        let missed = (0..copy.len())
            .filter(|index| copy[*index] != tracked.memory.word(index * 8).load(Ordering::Relaxed));
        assert_eq!(missed.count(), 0, "{}: words missed in {takes} takes", tracked.tracker.kind());
    });
}

/// The story: a fault handler notes a page and is interrupted; the page is taken and protected; the
/// handler goes on and makes it writable. Nothing would ever notice a store to it again.
///
/// Guarantee: heap/dirty-pages
#[test]
fn store_during_take_stays_tracked() {
    const ROUNDS: usize = 400;
    with_every_tracker(2, 2, |mut tracked| {
        if matches!(tracked.tracker.kind(), DirtyMethod::Reported | DirtyMethod::Everything) {
            return; // They hold no page back, so there is nothing to meet.
        }
        let (go, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let memory: *const Memory = &raw const tracked.memory;
        // SAFETY: as in the test above.
        let memory = unsafe { &*memory };
        std::thread::scope(|scope| {
            let (go, done, reporter) = (&go, &done, tracked.reporter.clone());
            scope.spawn(move || {
                for round in 1..=ROUNDS {
                    while go.load(Ordering::Acquire) < round {
                        std::thread::yield_now();
                    }
                    memory.word(PAGE).store(round as u64, Ordering::Relaxed);
                    report(&reporter, PAGE);
                    done.store(round, Ordering::Release);
                }
            });
            let mut unseen = 0;
            for round in 1..=ROUNDS {
                go.store(round, Ordering::Release);
                while done.load(Ordering::Acquire) < round {
                    tracked.take();
                }
                tracked.store(PAGE + 9, round as u8);
                unseen += usize::from(tracked.take().is_empty());
            }
            assert_eq!(unseen, 0, "{}: stores unseen in {ROUNDS} rounds", tracked.tracker.kind());
        });
    });
}

#[test]
fn a_way_works_wherever_the_kernel_has_what_it_needs() {
    assert!(available(DirtyMethod::Protect).is_usable());
    if userfaultfd_async_write_protect().is_usable() && pagemap_scan().is_usable() {
        assert!(available(DirtyMethod::Userfault).is_usable());
    } else {
        println!("not run: uffd (the kernel lacks userfaultfd WP_ASYNC or PAGEMAP_SCAN)");
    }
}

/// Guarantee: heap/dirty-pages
#[test]
fn what_the_kernel_reads_into_the_mapping_is_found() {
    with_every_tracker(32, 32, |mut tracked| {
        let mut source = tempfile::tempfile().unwrap();
        source.write_all(&[9; 3 * PAGE]).unwrap();
        let kind = tracked.tracker.kind();
        for round in 0..3 {
            source.seek(SeekFrom::Start(0)).unwrap();
            let target = 4 * PAGE + 1..7 * PAGE;
            // SAFETY: the range lies in the mapping, and nothing else refers into it while the
            // slice lives.
            let buffer = unsafe {
                std::slice::from_raw_parts_mut(
                    tracked.memory.range.base().add(target.start),
                    target.len(),
                )
            };
            if kind == DirtyMethod::Protect && round == 0 {
                let error = source.read_exact(buffer).unwrap_err();
                assert_eq!(
                    error.raw_os_error(),
                    Some(libc::EFAULT),
                    "the known weakness of {kind}"
                );
                tracked.expect(&[], "nothing was stored");
                continue;
            }
            if !kind.sees_kernel_stores() {
                tracked.tracker.make_writable(target.start as u64..target.end as u64).unwrap();
            }
            source.read_exact(buffer).unwrap();
            if let Some(reporter) = &tracked.reporter {
                reporter.report(target.start as u64..target.end as u64);
            }
            tracked.expect(&[4..7], "read by the kernel");
        }
    });
}

#[test]
fn two_trackers_do_not_see_each_others_pages() {
    for kind in DirtyMethod::ALL.into_iter().filter(|kind| available(*kind).is_usable()) {
        for other in DirtyMethod::ALL.into_iter().filter(|kind| available(*kind).is_usable()) {
            let memory = || Memory::new(tempfile::tempfile().unwrap(), 16 * PAGE, 16 * PAGE);
            let (mut left, mut right) = (Tracked::of(memory(), kind), Tracked::of(memory(), other));
            left.store(PAGE, 1);
            right.store(2 * PAGE, 1);
            left.expect(&[1..2], "left");
            left.store(3 * PAGE, 1);
            right.expect(&[2..3], "right");
            drop(right);
            left.store(4 * PAGE, 1);
            left.expect(&[3..5], "alone");
        }
    }
}

/// After the tracker the mapping is writable and a new tracker starts clean.
#[test]
fn dropped_tracker_leaves_a_writable_mapping() {
    with_every_tracker(16, 16, |tracked| {
        let kind = tracked.tracker.kind();
        tracked.store(PAGE, 1);
        let Tracked { tracker, reporter, memory } = tracked;
        drop((tracker, reporter));
        memory.word(2 * PAGE).store(5, Ordering::Relaxed);
        assert_eq!(memory.word(PAGE).load(Ordering::Relaxed), 1);
        let mut tracked = Tracked::of(memory, kind);
        tracked.expect(&[], "new tracker");
        tracked.store(2 * PAGE, 6);
        tracked.expect(&[2..3], "new tracker, stored");
    });
}

/// A page whose memory is reclaimed after its store is still found.
///
/// Guarantee: heap/dirty-pages
#[test]
fn reclaimed_page_is_still_dirty() {
    for kind in DirtyMethod::ALL.into_iter().filter(|kind| available(*kind).is_usable()) {
        for (what, file) in files().into_iter().filter(|(what, _)| *what == "a disk") {
            let mut tracked = Tracked::of(Memory::new(file, 16 * PAGE, 16 * PAGE), kind);
            tracked.store(3 * PAGE, 1);
            tracked.memory.file.sync_all().unwrap();
            let base = tracked.memory.range.base();
            let mut resident = [0; 16];
            // SAFETY: both calls are for the test's own mapping; neither changes a byte of it, and
            // the second writes one byte for each of the 16 pages.
            unsafe {
                libc::madvise(base.cast(), 16 * PAGE, libc::MADV_PAGEOUT);
                libc::mincore(base.cast(), 16 * PAGE, resident.as_mut_ptr());
            }
            if resident[3] & 1 == 1 {
                println!("not run: reclaimed memory ({kind} on {what}; the kernel keeps the page)");
            }
            tracked.expect(&[3..4], "reclaimed");
            tracked.expect(&[], "reclaimed and taken");
            tracked.store(3 * PAGE, 2);
            tracked.expect(&[3..4], "stored to again");
        }
    }
}

/// The choice is the best that works unless one is asked for.
#[test]
fn best_working_tracker_is_chosen_unless_forced() {
    let memory = Memory::new(tempfile::tempfile().unwrap(), 4 * PAGE, 4 * PAGE);
    // SAFETY: each tracker goes before the next is made, and the mapping goes last.
    unsafe {
        assert_eq!(choose(memory.mapping(), None).unwrap().kind(), best());
        for kind in DirtyMethod::ALL.into_iter().filter(|kind| available(*kind).is_usable()) {
            assert_eq!(choose(memory.mapping(), Some(kind)).unwrap().kind(), kind);
        }
    }
    println!("chosen here: {}", best());
}

/// A way that is refused for one mapping is an error when forced and passed over otherwise.
#[test]
fn refused_tracker_fails_if_forced_else_is_skipped() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(4 * PAGE as u64).unwrap();
    let reading = File::open(file.path()).unwrap();
    let range = Reservation::anywhere(4 * PAGE, PAGE).unwrap();
    let mapping = Mapping { base: range.base(), len: 4 * PAGE, limit: 4 * PAGE };
    // SAFETY: the reservation is the test's own. The file is open for reading only, which the
    // contract forbids for the sake of stores; no thread stores here.
    unsafe {
        map_shared_fixed(range.base(), 4 * PAGE, &reading, 0, Prot::Read).unwrap();
        if available(DirtyMethod::Userfault).is_usable() {
            assert!(track(mapping, DirtyMethod::Userfault).is_err());
        }
        assert_ne!(choose(mapping, None).unwrap().kind(), DirtyMethod::Userfault);
    }
}
