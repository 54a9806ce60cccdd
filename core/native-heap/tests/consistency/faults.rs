//! Full disks and lost images, in both modes.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use holdfast_region::{
    CommitReport, Consistency, FileView, KernelStorage, Opened, Region, RegionError, Storage,
    Written,
};

use crate::session::{Home, MODES};

/// More steps than a commit has.
const STEPS_MAX: i64 = 200;

/// From a step on, all fail for want of room, half of a write done.
#[derive(Debug)]
struct Full(AtomicI64);

impl Full {
    fn healthy() -> Arc<Full> {
        Arc::new(Full(AtomicI64::new(i64::MAX)))
    }

    fn after(&self, steps: i64) {
        self.0.store(steps, Ordering::SeqCst);
    }

    fn has_struck(&self) -> bool {
        self.0.load(Ordering::SeqCst) < 0
    }

    fn step(&self) -> io::Result<()> {
        let left = self.0.fetch_sub(1, Ordering::SeqCst);
        if left > 0 { Ok(()) } else { Err(io::Error::from(io::ErrorKind::StorageFull)) }
    }
}

impl Storage for Full {
    fn create(&self, path: &Path) -> io::Result<File> {
        self.step()?;
        KernelStorage.create(path)
    }
    fn allocate(&self, file: &File, range: Range<u64>) -> io::Result<()> {
        self.step()?;
        KernelStorage.allocate(file, range)
    }
    fn set_len(&self, file: &File, len_bytes: u64) -> io::Result<()> {
        self.step()?;
        KernelStorage.set_len(file, len_bytes)
    }
    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        let room = self.step();
        let bytes = if room.is_ok() { bytes } else { &bytes[..bytes.len() / 2] };
        KernelStorage.write_at(file, bytes, offset).and(room)
    }
    fn store(&self, view: &mut FileView, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let room = self.step();
        let bytes = if room.is_ok() { bytes } else { &bytes[..bytes.len() / 2] };
        view.store(offset, bytes).and(room)
    }
    fn sync(&self, _: &File) -> io::Result<()> {
        self.step()
    }
    fn sync_directory(&self, _: &Path) -> io::Result<()> {
        self.step()
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step()?;
        KernelStorage.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.step()?;
        KernelStorage.remove(path)
    }
    fn available_bytes(&self, path: &Path) -> io::Result<u64> {
        KernelStorage.available_bytes(path)
    }
}

/// A disk that is full from any step of a commit on loses nothing.
///
/// Guarantee: heap/no-false-acknowledgement
/// Guarantee: heap/power
#[test]
fn full_disk_at_any_commit_step_loses_nothing() {
    for mode in MODES {
        // The first commit of a session makes a base, the next ones go to the journal.
        for by_journal in [false, true] {
            for step in 0.. {
                assert!(step < STEPS_MAX);
                let home = Home::new();
                let disk = Full::healthy();
                let mut session = home.open_over(mode, disk.clone());
                session.work();
                session.make_steps(30);
                if by_journal {
                    session.commit_to_disk().unwrap();
                }
                session.step().unwrap();
                disk.after(step);
                let committed = session.commit_to_disk();
                let struck = disk.has_struck();
                disk.after(i64::MAX);
                let context = format!("full from step {step} on, journal: {by_journal}");
                session.verify(31, &context);
                let Err(error) = committed else {
                    assert!(!struck && step > 4, "{mode:?}, {context}");
                    let written = if by_journal { Written::Journal } else { Written::Base };
                    assert_eq!(committed.unwrap().written, written);
                    break;
                };
                if step % 2 == 0 {
                    // The program gives up.
                    session.die();
                    let mut session = home.open(mode);
                    let found = session.work().load(0);
                    assert!(
                        found == 31 || found == 30 && mode == Consistency::Atomic,
                        "{error}, {context}"
                    );
                    session.verify(found, &context);
                } else {
                    // It tries again, or starts again where it is told to.
                    match session.commit_to_disk() {
                        Ok(CommitReport { written, .. }) => {
                            assert_ne!(written, Written::Nothing, "{mode:?}, {context}");
                            session.die();
                            home.lose_image();
                        }
                        Err(RegionError::Poisoned { .. }) if mode == Consistency::Atomic => {
                            session.die()
                        }
                        Err(error) => panic!("{mode:?}, {context}: {error}"),
                    }
                    home.open(mode).verify(31, &context);
                }
            }
        }
    }
}

/// An image that was cut off is found by a commit and by a rollback.
///
/// Guarantee: programs/rollback
#[test]
fn truncated_image_is_found_by_commit_and_rollback() {
    for (mode, by_rollback) in MODES.into_iter().flat_map(|mode| [(mode, false), (mode, true)]) {
        let home = Home::new();
        let mut session = home.open(mode);
        session.work();
        session.make_steps(5);
        session.commit_to_disk().unwrap();
        session.step().unwrap();
        File::options().write(true).open(home.image()).unwrap().set_len(0).unwrap();
        let error = match by_rollback {
            true => session.region.with(Region::rollback).map(drop).unwrap_err(),
            false => session.commit_to_disk().map(drop).unwrap_err(),
        };
        match error {
            RegionError::BackingLost { .. } => {}
            RegionError::NotAtomic { .. } if mode == Consistency::Direct && by_rollback => {}
            error => panic!("{mode:?}, rollback: {by_rollback}: {error}"),
        }
        session.die();
        home.lose_image();
        home.open(mode).verify(5, "the last commit to the disk");
    }
}

/// A heap whose image is lost is as of the last commit to the disk.
///
/// Guarantee: heap/no-false-acknowledgement
/// Guarantee: heap/power
#[test]
fn lost_image_returns_heap_to_last_durable_commit() {
    for (mode, next) in MODES.into_iter().flat_map(|mode| MODES.map(|next| (mode, next))) {
        let home = Home::new();
        let mut session = home.open(mode);
        session.work();
        for round in 0..3 {
            session.make_steps(10);
            session.commit_to_disk().unwrap();
            session.make_steps(5);
            if mode == Consistency::Atomic {
                session.step().unwrap();
            }
            session.die();
            home.lose_image();
            let lost = 10 * (round + 1);
            session = home.open(if round % 2 == 0 { next } else { mode });
            assert_eq!(session.region.with(|region| region.opened()), Opened::Cold);
            session.verify(lost, "the last commit to the disk");
            session.die();
            session = home.open(mode);
        }
        // A checkpoint is of what counts, an end in order of everything.
        session.make_steps(4);
        if mode == Consistency::Atomic {
            session.step().unwrap();
        }
        session.region.checkpoint().unwrap();
        session.die();
        home.lose_image();
        let mut session = home.open(mode);
        session.verify(34, "the checkpoint");
        session.make_steps(1);
        session.step().unwrap();
        session.close();
        home.lose_image();
        home.open(next).verify(36, "closed in order");
    }
}
