//! The promises that hold whatever a pool is made of, over each kind that this machine has or can
//! stand for: tmpfs, a disk, emulated persistent memory and, if HOLDFAST_TEST_DAX names a directory
//! in it, persistent memory. HOLDFAST_TEST_DISK names another disk.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::{MIB, key, load, named, number, store, store_number};
use holdfast_region::{
    Consistency, Durability, KernelStorage, NameSpace, Opened, Places, PoolKind, Region,
    RegionError, RegionName, Survives, Written,
};
use tempfile::TempDir;

const LEVELS: [Durability; 3] = [Durability::Process, Durability::System, Durability::Power];

/// A kind of pool, with a home.
struct Backend {
    what: &'static str,
    kind: PoolKind,
    home: TempDir,
    pool: TempDir,
    /// The boot is made up.
    made_up: bool,
}

impl Backend {
    fn new(what: &'static str, pool: TempDir, made_up: bool) -> Backend {
        let found = PoolKind::of(pool.path()).unwrap();
        let kind = match found {
            PoolKind::Tmpfs if made_up => PoolKind::Dax { survives: Survives::Reset },
            found => found,
        };
        Backend { what, kind, home: tempfile::tempdir().unwrap(), pool, made_up }
    }

    fn path(&self) -> PathBuf {
        self.pool.path().join("pool")
    }

    fn names(&self, boot: u8) -> NameSpace {
        let places = match self.made_up {
            true => Places::at_emulated_dax(self.home.path(), self.path(), [boot; 16]),
            false => Places::at(self.home.path(), self.path()),
        };
        let places = places.unwrap();
        assert_eq!(places.pool_kind(), self.kind, "{}", self.what);
        NameSpace::with_storage(places, Arc::new(KernelStorage))
    }

    /// What the next boot finds of the pool, and the name space in it. A made-up one keeps
    /// everything, which a test of what is lost can do nothing with; that is what `resets.rs` is
    /// for.
    fn restart(&self) -> NameSpace {
        match self.kind {
            PoolKind::Tmpfs => std::fs::remove_dir_all(self.path()).unwrap(),
            PoolKind::Disk => {
                let of_boot = Places::at(self.home.path(), self.path()).unwrap().pool().to_owned();
                let of_another = self.path().join("00000000-1111-2222-3333-444444444444");
                std::fs::rename(of_boot, of_another).unwrap();
            }
            _ => {}
        }
        self.names(2)
    }

    fn is_ordered_offered(&self) -> bool {
        self.kind.outlives_boot()
    }
}

/// Runs a check over each kind that there is, and says which these were.
fn over_each(check: impl Fn(&Backend)) {
    let mut backends = vec![Backend::new("a disk", on_a_disk(), false)];
    if Path::new("/dev/shm").is_dir() {
        backends.push(Backend::new("tmpfs", tempfile::tempdir_in("/dev/shm").unwrap(), false));
        backends.push(Backend::new("emulated", tempfile::tempdir_in("/dev/shm").unwrap(), true));
    }
    if let Some(mount) = std::env::var_os("HOLDFAST_TEST_DAX") {
        let backend = Backend::new("persistent memory", tempfile::tempdir_in(mount).unwrap(), true);
        let kind = PoolKind::of(backend.pool.path()).unwrap();
        assert!(kind.outlives_boot(), "HOLDFAST_TEST_DAX names a directory that is no DAX: {kind}");
        backends.push(backend);
    }
    for backend in &backends {
        println!("over {}: {}", backend.what, backend.kind);
        check(backend);
    }
}

fn on_a_disk() -> TempDir {
    let disk = std::env::var_os("HOLDFAST_TEST_DISK").unwrap_or(env!("CARGO_TARGET_TMPDIR").into());
    tempfile::tempdir_in(disk).unwrap()
}

fn words() -> RegionName {
    named("words")
}

fn create(backend: &Backend) -> Region {
    backend.names(1).create(&words(), &key(), 16 * MIB).unwrap()
}

/// What was stored survives its writer over every kind of pool.
///
/// Guarantee: heap/level-never-weaker
#[test]
fn stores_survive_their_writer_in_every_pool() {
    over_each(|backend| {
        let mut region = create(backend);
        assert_eq!(region.pool_kind(), backend.kind);
        assert_eq!(region.needs_order(), backend.is_ordered_offered(), "{}", backend.what);
        store_number(&mut region, 1);
        region.commit(Durability::Process).unwrap();
        drop(region);
        let mut region = backend.names(1).open(&words(), &key()).unwrap();
        assert_eq!(
            (region.opened(), number(&mut region)),
            (Opened::WarmAfterCrash, 1),
            "{}",
            backend.what
        );
        assert!(region.is_dirty());
        region.close().unwrap();
        let mut region = backend.names(1).open(&words(), &key()).unwrap();
        assert_eq!((region.opened(), number(&mut region)), (Opened::Warm, 1), "{}", backend.what);
    });
}

/// No level is weakened over any kind of pool and the report says which was reached.
///
/// Guarantee: heap/level-never-weaker
#[test]
fn no_level_is_weakened_in_any_pool() {
    over_each(|backend| {
        for (ordered, consistency) in [
            (false, Consistency::Direct),
            (true, Consistency::Direct),
            (false, Consistency::Atomic),
        ] {
            let name = named(&format!("words-{ordered}-{consistency:?}"));
            let mut region = backend.names(1).create(&name, &key(), 16 * MIB).unwrap();
            if ordered {
                region.promise_order().unwrap();
            }
            region.set_consistency(consistency).unwrap();
            for (level, number) in LEVELS.into_iter().zip(1..) {
                store_number(&mut region, number);
                let report = region.commit(level).unwrap();
                let context = format!("{}, {name}, {level:?}: {report:?}", backend.what);
                assert!(report.level >= level, "{context}");
                let in_memory = match backend.kind {
                    PoolKind::Dax { survives: Survives::Reset } => level == Durability::System,
                    PoolKind::Dax { .. } => level >= Durability::System,
                    _ => false,
                };
                let in_memory = in_memory && (ordered || consistency == Consistency::Atomic);
                assert_eq!(report.written == Written::Memory, in_memory, "{context}");
                assert_eq!(
                    report.written == Written::Nothing,
                    level == Durability::Process,
                    "{context}"
                );
            }
            region.close().unwrap();
        }
    });
}

/// What was committed at each level above process is there after a restart of every kind of pool.
///
/// Guarantee: heap/level-never-weaker
/// Guarantee: heap/power
#[test]
fn commits_survive_restart_in_every_pool() {
    for level in [Durability::System, Durability::Power] {
        for ordered in [false, true] {
            over_each(|backend| {
                let mut region = create(backend);
                if ordered {
                    region.promise_order().unwrap();
                }
                store_number(&mut region, 1);
                region.commit(level).unwrap();
                region.grow(9 * MIB).unwrap();
                store(&mut region, 8 * MIB as usize, b"grown");
                region.commit(level).unwrap();
                drop(region);
                let mut region = backend.restart().open(&words(), &key()).unwrap();
                let expected = match backend.kind.outlives_boot() && ordered {
                    true => Opened::WarmAfterReset,
                    false => Opened::Cold,
                };
                assert_eq!(region.opened(), expected, "{}", backend.what);
                assert_eq!(number(&mut region), 1, "{}", backend.what);
                assert_eq!(load(&mut region, 8 * MIB as usize, 5), b"grown");
                region.close().unwrap();
            });
        }
    }
}

/// A region that was closed is there after a restart of every kind of pool.
#[test]
fn closed_region_survives_restart_in_every_pool() {
    over_each(|backend| {
        let mut region = create(backend);
        store_number(&mut region, 5);
        region.close().unwrap();
        let names = backend.restart();
        let mut region = names.open(&words(), &key()).unwrap();
        let expected = if backend.kind.outlives_boot() { Opened::Warm } else { Opened::Cold };
        assert_eq!((region.opened(), number(&mut region)), (expected, 5), "{}", backend.what);
        region.close().unwrap();
        names.evict(&words()).unwrap();
        let mut region = names.open(&words(), &key()).unwrap();
        assert_eq!((region.opened(), number(&mut region)), (Opened::Cold, 5), "{}", backend.what);
    });
}

/// Publications are whole or undone over every kind of pool.
///
/// Guarantee: heap/reset-unordered
#[test]
fn publications_are_whole_or_undone_in_every_pool() {
    over_each(|backend| {
        let mut region = create(backend);
        region.set_consistency(Consistency::Atomic).unwrap();
        store_number(&mut region, 1);
        region.publish().unwrap();
        store_number(&mut region, 2);
        region.rollback().unwrap();
        assert_eq!(number(&mut region), 1);
        store_number(&mut region, 3);
        region.commit(Durability::System).unwrap();
        store_number(&mut region, 4);
        drop(region);
        let mut region = backend.restart().open(&words(), &key()).unwrap();
        assert_eq!(number(&mut region), 3, "{}", backend.what);
        region.close().unwrap();
    });
}

#[test]
fn one_writer_or_many_readers_over_every_kind_of_pool() {
    over_each(|backend| {
        let names = backend.names(1);
        let mut region = create(backend);
        store_number(&mut region, 9);
        assert!(matches!(names.open(&words(), &key()), Err(RegionError::Held { .. })));
        region.close().unwrap();
        let readers = [0; 2].map(|_| names.open_read_only(&words(), &key()).unwrap());
        assert!(matches!(names.open(&words(), &key()), Err(RegionError::Held { .. })));
        for mut reader in readers {
            assert_eq!(number(&mut reader), 9, "{}", backend.what);
        }
        names.remove(&words(), &key()).unwrap();
        assert!(names.list().unwrap().is_empty());
    });
}
