//! One writer at a time, across processes, whichever dies, whatever is unlinked.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::child::{Player, play};
use common::hooked::Hooked;
use common::{Home, MIB, flip, key, named, read, store};
use holdfast_region::{Opened, RegionError, RegionState};
use holdfast_sys::lock::{FileLock, LockMode, LockOutcome};

#[test]
fn a_child_plays_its_role() {
    play();
}

/// Guarantee: heap/readers-and-writers
#[test]
fn a_second_opener_is_told_who_holds_the_heap() {
    let home = Home::with_text("words", b"hello");
    let mut child = Player::start(&home, "hold words mine");
    assert_eq!(child.hear(), "holding");
    let error = home.names().open(&named("words"), &key()).unwrap_err();
    assert!(
        matches!(&error, RegionError::Held { holder, .. } if *holder == Some(child.pid())),
        "{error}"
    );
    assert!(error.to_string().contains(&child.pid().to_string()));
    for result in [
        home.names().open_read(&named("words")).map(drop),
        home.names().open_or_create(&named("words"), &key(), MIB).map(drop),
        home.names().create(&named("words"), &key(), MIB).map(drop),
        home.names().remove(&named("words"), &key()),
        home.names().remove_image(&named("words"), &key()),
    ] {
        assert!(
            matches!(result, Err(RegionError::Held { holder, .. }) if holder == Some(child.pid()))
        );
    }
    let summary = home.names().summary(&named("words")).unwrap();
    assert_eq!((summary.state, summary.holder), (RegionState::Held, Some(child.pid())));
    child.go_on();
    child.finish();
    let region = home.names().open(&named("words"), &key()).unwrap();
    assert_eq!((region.opened(), read(&region, 0, 5)), (Opened::Warm, b"mineo".to_vec()));
}

/// A holder that is killed by SIGKILL blocks no other process, and its stores are there.
///
/// Guarantee: heap/readers-and-writers
#[test]
fn sigkilled_holder_blocks_nobody_and_loses_nothing() {
    let home = Home::with_text("words", b"hello");
    for round in 0..20 {
        let mut child = Player::start(&home, &format!("hold words round{round:02}"));
        assert_eq!(child.hear(), "holding");
        child.kill();
        let started = Instant::now();
        let region = home.names().open(&named("words"), &key()).unwrap();
        assert!(started.elapsed().as_secs() < 10, "the dead holder was waited for");
        assert_eq!(region.opened(), Opened::WarmAfterCrash);
        assert!(region.is_dirty());
        assert_eq!(read(&region, 0, 7), format!("round{round:02}").into_bytes());
        region.close().unwrap();
    }
}

#[test]
fn the_same_process_cannot_open_a_heap_twice() {
    let home = Home::with_text("words", b"hello");
    let _first = home.names().open(&named("words"), &key()).unwrap();
    let error = home.names().open(&named("words"), &key()).unwrap_err();
    assert!(
        matches!(error, RegionError::Held { holder, .. } if holder == Some(std::process::id()))
    );
}

/// A record of a dead process whose number came round again names no process.
#[test]
fn reused_pid_in_a_record_names_nobody() {
    let home = Home::with_text("words", b"hello");
    // PID 1 lives in every PID name space, but did not start at tick 987654321.
    std::fs::write(home.pool().join("words.lock"), "1 987654321\n").unwrap();
    assert_eq!(home.names().summary(&named("words")).unwrap().holder, None);
    let _reader = home.names().open_read(&named("words")).unwrap();
    let error = home.names().open(&named("words"), &key()).unwrap_err();
    assert!(matches!(error, RegionError::Held { holder: None, .. }), "{error}");
}

/// A lock file removed by hand does not make two writers.
#[test]
fn removed_lock_file_never_makes_two_writers() {
    let home = Home::with_text("words", b"hello");
    let mut child = Player::start(&home, "hold words mine");
    assert_eq!(child.hear(), "holding");
    std::fs::remove_file(home.pool().join("words.lock")).unwrap();
    assert!(matches!(home.names().open(&named("words"), &key()), Err(RegionError::Held { .. })));
    assert!(matches!(home.names().open_read(&named("words")), Err(RegionError::Held { .. })));
    assert!(matches!(home.names().remove(&named("words"), &key()), Err(RegionError::Held { .. })));
    assert!(matches!(
        home.names().remove_image(&named("words"), &key()),
        Err(RegionError::Held { .. })
    ));
    child.go_on();
    child.finish();
    assert_eq!(home.names().open(&named("words"), &key()).unwrap().opened(), Opened::Warm);
}

/// Without the lock file an opener waits for the image alone, and finds what its holder left there.
#[test]
fn opener_without_a_lock_file_finds_what_was_left() {
    let home = Home::with_text("words", b"hello");
    // Its syncs take no time, so that the opener still waits when it has closed.
    let holding = home.names_over(Arc::new(Hooked::default()));
    let mut holder = holding.open(&named("words"), &key()).unwrap();
    store(&mut holder, 0, b"mine!");
    let (names, lock) = (home.names(), home.pool().join("words.lock"));
    std::fs::remove_file(&lock).unwrap();
    let region = std::thread::scope(|scope| {
        let opener = scope.spawn(|| {
            let mut opened = names.open(&named("words"), &key());
            while matches!(opened, Err(RegionError::Held { .. })) {
                opened = names.open(&named("words"), &key());
            }
            opened.unwrap()
        });
        while !lock.exists() {
            std::thread::yield_now();
        }
        // For the way from the new lock file to the image.
        std::thread::sleep(Duration::from_millis(50));
        holder.grow(8 * MIB).unwrap();
        store(&mut holder, 7 << 20, b"grown");
        holder.close().unwrap();
        opener.join().unwrap()
    });
    assert_eq!((region.opened(), region.backed_bytes()), (Opened::Warm, 8 * MIB));
    assert_eq!(read(&region, 0, 5), b"mine!");
    assert_eq!(read(&region, 7 << 20, 5), b"grown");
}

/// A pool that is emptied under a holder costs nothing if no other process took the name.
#[test]
fn emptied_pool_costs_an_unrivalled_holder_nothing() {
    let home = Home::with_text("words", b"hello");
    let mut region = home.names().open(&named("words"), &key()).unwrap();
    store(&mut region, 0, b"saved");
    std::fs::remove_file(home.image("words")).unwrap();
    region.close().unwrap();
    let region = home.names().open(&named("words"), &key()).unwrap();
    assert_eq!((region.opened(), read(&region, 0, 5)), (Opened::Cold, b"saved".to_vec()));
}

/// A holder whose files were removed does not overwrite the work of its successor.
#[test]
fn displaced_holder_never_overwrites_its_successor() {
    let home = Home::with_text("words", b"hello");
    let mut displaced = home.names().open(&named("words"), &key()).unwrap();
    store(&mut displaced, 0, b"stale");
    displaced.unmap().unwrap();
    std::fs::remove_file(home.image("words")).unwrap();
    std::fs::remove_file(home.pool().join("words.lock")).unwrap();
    let mut successor = home.names().open(&named("words"), &key()).unwrap();
    store(&mut successor, 0, b"fresh");
    successor.checkpoint().unwrap();
    assert!(matches!(displaced.close(), Err(RegionError::Displaced { .. })));
    successor.close().unwrap();
    std::fs::remove_file(home.image("words")).unwrap();
    assert_eq!(read(&home.names().open(&named("words"), &key()).unwrap(), 0, 5), b"fresh");
}

/// Of two processes that create the same name one wins.
#[test]
fn simultaneous_creation_has_one_winner() {
    let home = Home::new();
    home.places();
    for round in 0..10 {
        let role = format!("create race{round}");
        let mut children = [Player::start(&home, &role), Player::start(&home, &role)];
        for child in &mut children {
            assert_eq!(child.hear(), "ready");
        }
        for child in &mut children {
            child.go_on();
        }
        let mut said = children.each_mut().map(Player::hear);
        said.sort();
        assert_eq!(said, ["lost", "won"], "round {round}");
    }
    assert_eq!(home.names().list().unwrap().len(), 10);
    assert!(home.leftovers().is_empty());
}

/// Regions created at the same time get different addresses.
#[test]
fn simultaneous_regions_get_distinct_addresses() {
    let home = Home::new();
    let names = home.names();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let names = &names;
            scope.spawn(move || {
                for i in 0..4 {
                    names.create(&named(&format!("t{thread}-{i}")), &key(), 2 << 30).unwrap();
                }
            });
        }
    });
    let mut addresses: Vec<u64> = names.list().unwrap().iter().map(|found| found.address).collect();
    addresses.sort_unstable();
    assert_eq!(addresses.len(), 32);
    assert!(addresses.windows(2).all(|pair| pair[1] - pair[0] >= 2 << 30));
}

/// A writer killed in any step of a checkpoint leaves a whole base and no rubbish for long.
///
/// Guarantee: heap/checkpoint
#[test]
fn killed_checkpoint_leaves_a_whole_base() {
    let home = Home::with_text("words", b"first");
    let mut finished = false;
    let mut with_leftovers = 0;
    for step in 0..40 {
        let text = format!("step{step:02}");
        let mut child = Player::start(&home, &format!("hang words {text} {step}"));
        match child.hear().as_str() {
            "hanging" => {
                child.kill();
                with_leftovers += usize::from(!home.leftovers().is_empty());
            }
            "finished" => {
                child.finish();
                finished = true;
            }
            other => panic!("the child said {other:?}"),
        }
        // The base alone: whole, and holding this round's or the last checkpoint's text.
        let image = home.image("words");
        let aside = home.pool().join("aside");
        std::fs::rename(&image, &aside).unwrap();
        let reader = home.names().open_read(&named("words")).unwrap();
        let found = reader.bytes()[..6].to_vec();
        assert!(found == text.as_bytes() || !finished, "step {step}: {found:?}");
        drop(reader);
        std::fs::rename(&aside, &image).unwrap();
        // The image: everything that was stored.
        let region = home.names().open(&named("words"), &key()).unwrap();
        assert_eq!(read(&region, 0, 6), text.as_bytes());
        assert_eq!(region.opened(), Opened::WarmAfterCrash);
        region.close().unwrap();
        assert!(home.leftovers().is_empty(), "step {step}");
        if finished {
            break;
        }
    }
    assert!(finished, "the checkpoint has more steps than this test thinks");
    assert!(with_leftovers >= 3, "the kills hit no interesting step");
}

/// A writer leaves the temporary files of a region with a similar name alone.
///
/// Guarantee: heap/tidy
#[test]
fn temporary_files_of_similar_names_are_left_alone() {
    let home = Home::new();
    home.places();
    let stores = [home.pool().to_owned(), home.path().join("store")];
    let [others, left] =
        [".a.tmp-b.tmp-77", ".a.tmp-77"].map(|name| stores.clone().map(|at| at.join(name)));
    others.iter().chain(&left).for_each(|path| std::fs::write(path, b"being built").unwrap());
    let mut region = home.names().create(&named("a"), &key(), MIB).unwrap();
    store(&mut region, 0, b"hello");
    region.close().unwrap();
    assert!(left.iter().all(|path| !path.exists()), "what a writer of this name left stays");
    assert!(others.iter().all(|path| path.exists()), "another region's checkpoint is gone");
    home.names().remove(&named("a"), &key()).unwrap();
    assert!(others.iter().all(|path| path.exists()), "another region's checkpoint is gone");
}

/// Guarantee: heap/tidy
#[test]
fn what_a_living_writer_builds_is_no_leftover() {
    let home = Home::with_text("words", b"before");
    let region = home.names().open(&named("words"), &key()).unwrap();
    let place = |pid: u32| home.path().join("store").join(format!(".words.tmp-{pid}"));
    let (building, left) = (place(std::process::id()), place(u32::MAX));
    for path in [&building, &left] {
        std::fs::write(path, b"half").unwrap();
    }
    let found = home.names().leftovers().unwrap();
    assert_eq!(found.iter().map(|found| &found.path).collect::<Vec<_>>(), [&left]);
    // Nothing is removed beside a writer: who it is says only its lock.
    let refused = home.names().remove_leftover(&found[0]).unwrap_err();
    assert!(matches!(refused, RegionError::Held { .. }) && left.exists(), "{refused}");
    drop(region);
    let found = home.names().leftovers().unwrap();
    assert_eq!(found.len(), 2);
    found.iter().for_each(|found| home.names().remove_leftover(found).unwrap());
    assert!(!building.exists() && !left.exists());
    assert_eq!(read(&home.names().open(&named("words"), &key()).unwrap(), 0, 6), b"before");
}

/// What a killed keeper left of a rescue copy goes, also while a program has the region.
///
/// Guarantee: heap/tidy
#[test]
fn half_copy_of_a_dead_keeper_is_a_leftover() {
    let home = Home::with_text("words", b"hello");
    let names = home.names();
    let store = home.path().join("store");
    let half = store.join(".words.rescue-tmp");
    std::fs::write(&half, b"half").unwrap();
    let _held = names.open(&named("words"), &key()).unwrap();
    let found = names.leftovers().unwrap();
    assert_eq!(found.iter().map(|found| &found.path).collect::<Vec<_>>(), [&half]);
    let patience = Duration::from_secs(20);
    let keeper = FileLock::acquire(&store.join(".rescue.lock"), LockMode::Exclusive, patience);
    let keeper = keeper.unwrap();
    assert!(matches!(keeper, LockOutcome::Acquired(_)));
    assert!(names.leftovers().unwrap().is_empty(), "it is being made");
    let refused = names.remove_leftover(&found[0]).unwrap_err();
    assert!(matches!(refused, RegionError::Held { .. }) && half.exists(), "{refused}");
    drop(keeper);
    names.remove_leftover(&found[0]).unwrap();
    assert!(!half.exists() && names.leftovers().unwrap().is_empty());
}

/// What a process left that died while it replaced an access table goes in order, also while a
/// program has the region, and with the region.
///
/// Guarantee: heap/tidy
#[test]
fn half_access_table_of_a_dead_process_is_a_leftover() {
    let home = Home::with_text("words", b"hello");
    let (names, words) = (home.names(), named("words"));
    let half = home.path().join("store/.words.grants-tmp");
    std::fs::write(&half, b"half").unwrap();
    let held = names.open(&words, &key()).unwrap();
    let found = names.leftovers().unwrap();
    assert_eq!(found.iter().map(|found| &found.path).collect::<Vec<_>>(), [&half]);
    let lock = home.pool().join(".names.lock");
    let replacing = FileLock::acquire(&lock, LockMode::Exclusive, Duration::from_secs(20)).unwrap();
    assert!(matches!(replacing, LockOutcome::Acquired(_)));
    assert!(names.leftovers().unwrap().is_empty(), "it is being made");
    drop(replacing);
    names.remove_leftover(&found[0]).unwrap();
    assert!(!half.exists() && names.leftovers().unwrap().is_empty());
    drop(held);
    std::fs::write(&half, b"half").unwrap();
    names.examine(&words, &key()).unwrap().mend(&[]).unwrap();
    assert!(!half.exists(), "a repair left it");
    std::fs::write(&half, b"half").unwrap();
    names.remove(&words, &key()).unwrap();
    assert!(!half.exists(), "it outlived its region");
}

/// A full pool is an error value and all earlier data is there.
///
/// Guarantee: heap/room
#[test]
fn full_pool_is_an_error_and_loses_nothing() {
    in_a_small_pool("fill words");
}

/// What is in a pool without any room can be used moved and removed.
///
/// Guarantee: heap/room
#[test]
fn everything_but_growth_works_in_a_full_pool() {
    in_a_small_pool("crowded words");
}

/// Has a child play a role that ends with a pool of 20 MiB filled.
fn in_a_small_pool(role: &str) {
    let home = Home::new();
    home.places();
    let script = "mount -t tmpfs -o size=20m,mode=0700 none \"$POOL\" && exec \"$@\"";
    let allowed =
        Command::new("unshare").args(["-Urm", "mount", "-t", "tmpfs", "none", "/mnt"]).output();
    match allowed {
        Ok(output) if output.status.success() => {}
        other => {
            // Without a mount of its own size the real thing cannot be had; tests/steps.rs injects
            // ENOSPC.
            println!(
                "not run: this system forbids mounting a tmpfs in a user name space ({other:?})"
            );
            return;
        }
    }
    let mut command = Command::new("unshare");
    command
        .args(["-Urm", "sh", "-c", script, "sh"])
        .env("POOL", home.pool())
        .arg(std::env::current_exe().unwrap());
    let mut child = Player::start_with(command, &home, role);
    assert_eq!(child.hear(), "filled");
    child.finish();
}

/// Damage that is found while a process holds the heap is reported as held.
#[test]
fn damage_under_a_holder_is_reported_as_held() {
    let home = Home::with_text("words", b"hello");
    let held = home.names().open(&named("words"), &key()).unwrap();
    flip(&home.image("words"), 0);
    flip(&home.image("words"), 4096);
    assert!(matches!(home.names().open(&named("words"), &key()), Err(RegionError::Held { .. })));
    drop(held);
}
