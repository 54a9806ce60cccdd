//! Regions whose images lie on the disk: larger than the pool, and after a power cut as of the last
//! commit.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use common::child::{Player, places, role, say, wait_for_parent};
use common::faulty::{Fault, FaultyStorage};
use common::{DATA_OFFSET, Home, MIB, key, load, named, other_key, read, store};
use holdfast_region::{
    Durability, ErrorKind, Medium, NameSpace, Opened, Region, RegionError, RegionState,
};
use holdfast_types::Remedy;
use rustix::fs::FallocateFlags;

const EIO: i32 = 5;
const ENOSPC: i32 = 28;
/// More steps than a move has.
const STEPS_MAX: usize = 100;

#[test]
fn a_child_plays_its_role() {
    let Some(role) = role() else { return };
    let names = NameSpace::new(places());
    match role.as_str() {
        "hold" => {
            let mut region = names.open(&named("heap"), &key()).unwrap();
            store(&mut region, 0, b"killed");
            say("holding");
            wait_for_parent();
        }
        // The pool is a tmpfs of 20 MiB.
        "overflow" => {
            let mut region = names.create(&named("heap"), &key(), 64 * MIB).unwrap();
            store(&mut region, 0, b"before");
            let error = fill(&mut region);
            assert!(
                matches!(error, RegionError::NoRoom { disk_bytes, .. } if disk_bytes > 64 * MIB),
                "{error}"
            );
            let remedy = Remedy::PutOnDisk.to_string();
            for hint in [&remedy, places().home().to_str().unwrap()] {
                assert!(error.to_string().contains(hint), "{error}");
            }
            region.close().unwrap();
            names.set_medium(&named("heap"), &key(), Medium::File).unwrap();
            assert!(
                !places().images(Medium::Memory).join("heap.image").exists(),
                "the pool still has the image"
            );
            let mut region = names.open(&named("heap"), &key()).unwrap();
            assert_eq!((region.opened(), region.medium()), (Opened::Warm, Medium::File));
            region.grow(48 * MIB).unwrap();
            store(&mut region, 48 * MIB as usize - 5, b"after");
            region.close().unwrap();
            let mut region = names.open(&named("heap"), &key()).unwrap();
            assert_eq!(load(&mut region, 0, 6), b"before");
            assert_eq!(load(&mut region, 48 * MIB as usize - 5, 5), b"after");
            region.close().unwrap();
            // It does not fit any more, and stays as it is.
            let error = names.set_medium(&named("heap"), &key(), Medium::Memory).unwrap_err();
            assert!(matches!(error, RegionError::NoRoom { .. }), "{error}");
            assert_eq!(names.summary(&named("heap")).unwrap().state, RegionState::Clean);
            assert_eq!(names.open(&named("heap"), &key()).unwrap().medium(), Medium::File);
            say("done");
        }
        // The home is a tmpfs of 20 MiB: a disk that is soon full.
        "full-disk" => {
            let names = names.with_medium(Medium::File);
            let mut region = names.create(&named("heap"), &key(), 64 * MIB).unwrap();
            store(&mut region, 0, b"before");
            region.commit(Durability::Power).unwrap();
            let error = fill(&mut region);
            let RegionError::NoRoomOnDisk { needed_bytes, available_bytes, pool_bytes, .. } = error
            else {
                panic!("{error}")
            };
            assert!(available_bytes < needed_bytes && pool_bytes > needed_bytes, "{error}");
            assert!(error.to_string().contains("HOLDFAST_HOME"), "{error}");
            // Every byte is backed: no store of these dies of SIGBUS.
            let backed_bytes = region.backed_bytes() as usize;
            store(&mut region, MIB as usize, &vec![7; backed_bytes - MIB as usize]);
            let error = region.close().unwrap_err();
            assert!(matches!(error, RegionError::StoreFull { .. }), "{error}");
            let region = names.open(&named("heap"), &key()).unwrap();
            assert_eq!(region.opened(), Opened::WarmAfterCrash);
            assert_eq!(
                (read(&region, 0, 6), read(&region, backed_bytes as u64 - 2, 2)),
                (b"before".to_vec(), vec![7; 2])
            );
            let error = names.create(&named("second"), &key(), 64 * MIB).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NoRoom, "{error}");
            assert_eq!(names.list().unwrap().len(), 1);
            say("done");
        }
        // The same, and a page of the image has lost its room behind our back.
        "failing-disk" => {
            let names = names.with_medium(Medium::File);
            let mut region = names.create(&named("heap"), &key(), 4 * MIB).unwrap();
            store(&mut region, 0, b"before");
            region.commit(Durability::Power).unwrap();
            let mut filler = std::fs::File::create(places().home().join("filler")).unwrap();
            let path = places().images(Medium::File).join("heap.image");
            let image = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
            let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(&image, punch, DATA_OFFSET + 3 * MIB, MIB).unwrap();
            while filler.write(&[1; 4096]).is_ok() {}
            store(&mut region, 3 * MIB as usize, b"lost");
            assert!(region.lost_backing());
            let error = region.commit(Durability::Power).unwrap_err();
            assert!(matches!(error, RegionError::BackingFailed { .. }), "{error}");
            let text = error.to_string();
            assert!(
                !text.contains("cut off")
                    && text.contains("disk")
                    && text.contains("drop the image"),
                "{text}"
            );
            drop(region);
            // What the error says to do.
            filler.set_len(0).unwrap();
            names.remove_image(&named("heap"), &key()).unwrap();
            let mut region = names.open(&named("heap"), &key()).unwrap();
            assert_eq!(
                (region.opened(), load(&mut region, 0, 6)),
                (Opened::Cold, b"before".to_vec())
            );
            say("done");
        }
        _ => panic!("unknown role {role:?}"),
    }
}

/// Grows until there is no room.
fn fill(region: &mut Region) -> RegionError {
    loop {
        if let Err(error) = region.grow(region.backed_bytes() + 1) {
            return error;
        }
    }
}

/// Runs a child that sees a small tmpfs at a place; `false` where that is forbidden.
fn with_small_tmpfs(home: &Home, at: &std::path::Path, role: &str) -> bool {
    home.places();
    let mount = ["-Urm", "mount", "-t", "tmpfs", "none", "/mnt"];
    if !Command::new("unshare").args(mount).output().is_ok_and(|output| output.status.success()) {
        println!("not run: this system forbids mounting a tmpfs in a user name space");
        return false;
    }
    let script = "mount -t tmpfs -o size=20m,mode=0700 none \"$AT\" && exec \"$@\"";
    let mut command = Command::new("unshare");
    command
        .args(["-Urm", "sh", "-c", script, "sh"])
        .env("AT", at)
        .arg(std::env::current_exe().unwrap());
    let mut child = Player::start_with(command, home, role);
    assert_eq!(child.hear(), "done");
    child.finish();
    true
}

fn on_disk(home: &Home) -> NameSpace {
    home.names().with_medium(Medium::File)
}

fn disk_image(home: &Home) -> PathBuf {
    home.places().images(Medium::File).join("heap.image")
}

/// Another boot: the directory of the last one has another name, and its images are as a power cut
/// left them.
fn cut_power(home: &Home, tear: impl FnOnce(&std::fs::File)) -> PathBuf {
    let of_boot = home.places().images(Medium::File).to_owned();
    tear(&std::fs::OpenOptions::new().write(true).open(of_boot.join("heap.image")).unwrap());
    let of_another = of_boot.with_file_name("00000000-1111-2222-3333-444444444444");
    std::fs::rename(&of_boot, &of_another).unwrap();
    // The pool was memory.
    std::fs::remove_dir_all(home.pool()).unwrap();
    of_another
}

/// A heap that outgrows the pool moves to the disk and grows on.
///
/// Guarantee: heap/heap-on-disk
#[test]
fn outgrown_heap_moves_to_disk_and_grows_on() {
    let home = Home::new();
    with_small_tmpfs(&home, home.pool(), "overflow");
}

/// A full disk under a heap is an error value and all earlier data is there.
///
/// Guarantee: heap/heap-on-disk
#[test]
fn full_disk_is_an_error_and_loses_nothing() {
    let home = Home::new();
    with_small_tmpfs(&home, home.path(), "full-disk");
}

/// A heap on the disk is warm after a close and after a kill.
///
/// Guarantee: heap/heap-on-disk
#[test]
fn disk_heap_is_warm_after_close_and_kill() {
    let home = Home::new();
    let mut region = on_disk(&home).create(&named("heap"), &key(), 8 * MIB).unwrap();
    store(&mut region, 0, b"closed");
    region.close().unwrap();
    assert!(disk_image(&home).is_file() && !home.image("heap").exists());
    let mut child = Player::start(&home, "hold");
    assert_eq!(child.hear(), "holding");
    child.kill();
    let summary = home.names().summary(&named("heap")).unwrap();
    assert_eq!((summary.medium, summary.state), (Medium::File, RegionState::Crashed));
    assert_eq!(home.names().list().unwrap().len(), 1);
    let region = home.names().open(&named("heap"), &key()).unwrap();
    assert_eq!(
        (region.opened(), read(&region, 0, 6)),
        (Opened::WarmAfterCrash, b"killed".to_vec())
    );
    region.close().unwrap();
    assert!(home.names().open_read(&named("heap")).unwrap().bytes().starts_with(b"killed"));
}

/// After a power cut a heap on the disk is as of its last commit however torn its image is.
///
/// Guarantee: heap/heap-on-disk
/// Guarantee: heap/pools-on-disk
#[test]
fn disk_heap_returns_to_last_commit_after_power_cut() {
    let tears: [fn(&std::fs::File); 3] = [
        |image| image.write_all_at(b"torn", DATA_OFFSET).unwrap(),
        |image| image.write_all_at(&[0; 8192], 0).unwrap(),
        |image| image.set_len(0).unwrap(),
    ];
    for tear in tears {
        let home = Home::new();
        let mut region = on_disk(&home).create(&named("heap"), &key(), 8 * MIB).unwrap();
        store(&mut region, 0, b"first ");
        region.commit(Durability::Power).unwrap();
        store(&mut region, 0, b"second");
        region.commit(Durability::Power).unwrap();
        store(&mut region, 0, b"third ");
        drop(region);
        let of_another = cut_power(&home, tear);
        let names = home.names();
        assert_eq!(names.summary(&named("heap")).unwrap().state, RegionState::Cold);
        let region = names.open(&named("heap"), &key()).unwrap();
        assert_eq!((region.opened(), region.medium()), (Opened::Cold, Medium::File));
        assert_eq!(read(&region, 0, 6), b"second");
        assert!(!of_another.exists(), "the image of the other boot takes room for ever");
        region.close().unwrap();
        assert!(disk_image(&home).is_file());
    }
}

/// A power cut right after the creation leaves an empty heap on the disk.
///
/// Guarantee: heap/heap-on-disk
/// Guarantee: heap/pools-on-disk
#[test]
fn power_cut_after_creation_leaves_an_empty_heap() {
    let home = Home::new();
    drop(on_disk(&home).create(&named("heap"), &key(), 8 * MIB).unwrap());
    cut_power(&home, |image| image.set_len(0).unwrap());
    let region = home.names().open(&named("heap"), &key()).unwrap();
    assert_eq!((region.opened(), region.medium()), (Opened::Cold, Medium::File));
    assert_eq!(read(&region, 0, 6), [0; 6]);
}

/// A creation on the disk that fails in any step leaves nothing behind.
///
/// Guarantee: heap/heap-on-disk
#[test]
fn failed_disk_creation_leaves_nothing() {
    let home = Home::new();
    for step in 0.. {
        assert!(step < STEPS_MAX, "the creation never comes through");
        let storage = Arc::new(FaultyStorage::new(Fault::Once(EIO)));
        storage.arm(step);
        let names = home.names_over(storage.clone()).with_medium(Medium::File);
        let created = names.create(&named("words"), &key(), 8 * MIB).map(drop);
        if !storage.struck() {
            created.unwrap();
            break;
        }
        // Whether old files could be cleared away is nothing that has to stop it.
        if created.is_ok() {
            names.remove(&named("words"), &key()).unwrap();
        }
        assert!(
            matches!(names.summary(&named("words")), Err(RegionError::NotFound { .. })),
            "step {step}"
        );
        assert!(home.leftovers().is_empty(), "step {step}");
    }
}

/// Removing a heap or its image removes them from the disk.
#[test]
fn removal_takes_the_image_from_the_disk() {
    let home = Home::new();
    let names = on_disk(&home);
    let mut region = names.create(&named("heap"), &key(), 8 * MIB).unwrap();
    store(&mut region, 0, b"hello");
    region.close().unwrap();
    names.remove_image(&named("heap"), &key()).unwrap();
    assert!(!disk_image(&home).exists());
    let region = names.open(&named("heap"), &key()).unwrap();
    assert_eq!((region.opened(), read(&region, 0, 5)), (Opened::Cold, b"hello".to_vec()));
    region.close().unwrap();
    assert!(matches!(
        names.create(&named("heap"), &key(), MIB),
        Err(RegionError::AlreadyExists { .. })
    ));
    names.remove(&named("heap"), &key()).unwrap();
    assert!(!disk_image(&home).exists());
    assert!(names.list().unwrap().is_empty());
}

/// An image on the disk that is cut off in use is a typed error and no signal.
///
/// Guarantee: heap/heap-on-disk
/// Guarantee: heap/no-sigbus
#[test]
fn truncated_disk_image_is_an_error_and_no_signal() {
    let home = Home::new();
    let mut region = on_disk(&home).create(&named("heap"), &key(), 8 * MIB).unwrap();
    store(&mut region, 0, b"hello");
    region.commit(Durability::Power).unwrap();
    std::fs::OpenOptions::new()
        .write(true)
        .open(disk_image(&home))
        .unwrap()
        .set_len(DATA_OFFSET)
        .unwrap();
    store(&mut region, 2 * MIB as usize, b"lost");
    assert!(region.lost_backing());
    let error = region.close().unwrap_err();
    assert!(matches!(error, RegionError::BackingLost { .. }), "{error}");
}

/// A disk that fails under a heap in use is not called a heap that was cut off.
///
/// Guarantee: heap/heap-on-disk
/// Guarantee: heap/no-sigbus
#[test]
fn failing_disk_is_not_called_truncation() {
    let home = Home::new();
    with_small_tmpfs(&home, home.path(), "failing-disk");
}

/// A move keeps every byte in both directions warm and cold.
///
/// Guarantee: heap/heap-on-disk
#[test]
fn move_keeps_every_byte_both_ways() {
    let home = Home::with_text("heap", b"hello");
    let names = home.names();
    for cold in [false, true] {
        for medium in [Medium::File, Medium::Memory] {
            if cold {
                names.remove_image(&named("heap"), &key()).unwrap();
            }
            assert!(matches!(
                names.set_medium(&named("heap"), &other_key(), medium),
                Err(RegionError::NotOwner { .. })
            ));
            names.set_medium(&named("heap"), &key(), medium).unwrap();
            assert_eq!(
                (home.image("heap").exists(), disk_image(&home).exists()),
                match medium {
                    Medium::File => (false, true),
                    _ => (true, false),
                }
            );
            let region = names.open(&named("heap"), &key()).unwrap();
            assert_eq!((region.opened(), region.medium()), (Opened::Warm, medium));
            assert_eq!(read(&region, 0, 5), b"hello");
            region.close().unwrap();
        }
    }
    assert_eq!(home.leftovers(), Vec::<PathBuf>::new());
}

/// A move that fails or dies in any step leaves the newest bytes on one medium.
///
/// Guarantee: heap/heap-on-disk
#[test]
fn failed_move_leaves_newest_bytes_on_one_medium() {
    for medium in [Medium::File, Medium::Memory] {
        for fault in [Fault::Once(ENOSPC), Fault::Once(EIO), Fault::Dead] {
            for step in 0.. {
                assert!(step < STEPS_MAX, "the move never comes through");
                let home = Home::with_text("heap", b"older");
                let names = home.names();
                if medium == Medium::Memory {
                    names.set_medium(&named("heap"), &key(), Medium::File).unwrap();
                }
                let mut region = names.open(&named("heap"), &key()).unwrap();
                store(&mut region, 0, b"newer");
                drop(region);
                let storage = Arc::new(FaultyStorage::new(fault));
                storage.arm(step);
                let moved =
                    home.names_over(storage.clone()).set_medium(&named("heap"), &key(), medium);
                if !storage.struck() {
                    moved.unwrap();
                    break;
                }
                let mut region = names.open(&named("heap"), &key()).unwrap();
                assert_eq!(load(&mut region, 0, 5), b"newer", "{medium} {fault:?} {step}");
                assert_ne!(home.image("heap").exists(), disk_image(&home).exists());
                region.close().unwrap();
            }
        }
    }
}
