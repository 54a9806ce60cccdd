//! Applets with a heap: what they stored is at its last commit, whatever they die of.

use holdfast_applet::{Applet, CallError, Grants, Limits, Recovery, SandboxKind};
use holdfast_region::{OwnerKey, RegionName};

use crate::{Home, ask, death, with_each};

/// What a call committed survives the death of the applet; an open transaction does not.
///
/// Guarantee: applets/death
/// Guarantee: applets/heap-after-death
#[test]
fn only_committed_work_survives_an_applet_death() {
    with_each(|_, path| {
        let home = Home::new();
        let applet = home.spawn(path);
        for expected in 1..=5 {
            assert_eq!(ask(&applet, "count", 0).unwrap(), expected);
        }
        for round in 0..3 {
            let error = death(applet.call("count_and_crash", b""));
            let recovery = error.heaps[0].recovery.as_ref().unwrap();
            assert!(matches!(recovery, Ok(Recovery::RolledBack)), "{recovery:?}");
            applet.respawn().unwrap();
            assert_eq!(ask(&applet, "count", 0).unwrap(), 6 + round);
        }
        let failed = applet.call("count_and_fail", b"");
        assert!(matches!(failed, Err(CallError::Failed { .. })), "{failed:?}");
        assert_eq!(ask(&applet, "look", 0).unwrap(), 8);
        applet.close().unwrap();
    });
}

/// The next applet finds the heap again, also from the store when the pool file is gone.
///
/// Guarantee: applets/death
/// Guarantee: applets/heap-after-death
#[test]
fn next_applet_finds_the_heap_again() {
    with_each(|_, path| {
        let home = Home::new();
        let applet = home.spawn(path.clone());
        ask(&applet, "count", 0).unwrap();
        applet.call("commit", &2_u64.to_le_bytes()).unwrap();
        ask(&applet, "count", 0).unwrap();
        assert!(!applet.close().unwrap().heaps[0].checkpoint.skipped);
        let image = home.0.path().join("pool").join("numbers.image");
        std::fs::remove_file(image).unwrap();
        let applet = home.spawn(path);
        assert_eq!(ask(&applet, "look", 0).unwrap(), 2);
    });
}

/// Guarantee: applets/no-messages
#[test]
fn a_heap_grows_to_its_limit_and_says_when_it_is_full() {
    with_each(|_, path| {
        let home = Home::new();
        let applet = home.spawn(path);
        let objects = ask(&applet, "fill", 0).unwrap();
        assert!((28_000..32_768).contains(&objects), "{objects} objects in 32 MiB");
        assert_eq!(ask(&applet, "fill", 0).unwrap(), 0);
        assert_eq!(applet.metrics().heap_backed_bytes, 32 << 20);
        assert_eq!(ask(&applet, "look", 0).unwrap(), 0);
    });
}

/// In atomic mode, the stores of each call are kept completely or not at all.
///
/// Guarantee: applets/death
/// Guarantee: applets/heap-after-death
#[test]
fn atomic_mode_makes_each_call_all_or_nothing() {
    with_each(|_, path| {
        let home = Home::new();
        let applet = home.spawn_atomic(path.clone());
        assert_eq!(ask(&applet, "store", 11).unwrap(), 11);
        // More than once: a new start has the same mode.
        for ends in ["store_and_crash", "store_and_exit", "store_and_crash"] {
            let failed = ask(&applet, "store_and_fail", 12);
            assert!(matches!(failed, Err(CallError::Failed { .. })), "{failed:?}");
            assert_eq!(ask(&applet, "look", 0).unwrap(), 11);
            death(ask(&applet, ends, 13));
            applet.respawn().unwrap();
            assert_eq!(ask(&applet, "look", 0).unwrap(), 11, "{ends}");
        }
        assert_eq!(ask(&applet, "store", 14).unwrap(), 14);
        assert_eq!(ask(&applet, "store", 15).unwrap(), 15);
        death(applet.call("abort", b""));
        drop(applet);
        let applet = home.spawn(path);
        assert_eq!(ask(&applet, "look", 0).unwrap(), 15);
    });
}

/// Stores out of range kill the applet and never the host.
///
/// Guarantee: applets/death
#[test]
fn out_of_range_stores_kill_only_the_applet() {
    with_each(|_, path| {
        let home = Home::new();
        let applet = home.spawn(path);
        ask(&applet, "count", 0).unwrap();
        let error = death(applet.call("store_out_of_range", b""));
        assert_eq!(error.kind(), holdfast_applet::FailureKind::Trap, "{error}");
        applet.respawn().unwrap();
        assert_eq!(ask(&applet, "look", 0).unwrap(), 1);
    });
}

/// A store to a read-only heap ends the applet, and the error says so.
///
/// Guarantee: applets/read-only-heap
#[test]
fn store_to_a_read_only_heap_ends_the_applet() {
    with_each(|_, path| {
        let home = Home::new();
        let applet = home.spawn(path.clone());
        assert_eq!(ask(&applet, "count", 0).unwrap(), 1);
        applet.close().unwrap();
        let (name, key) = (RegionName::parse("numbers").unwrap(), OwnerKey::from_bytes([5; 32]));
        let region = home.names().open_read_only(&name, &key).unwrap();
        let applet =
            Applet::spawn(path.clone(), Limits::default(), Grants::none().heap(region)).unwrap();
        assert_eq!(ask(&applet, "look", 0).unwrap(), 1);
        let error = death(ask(&applet, "store", 7));
        assert!(error.to_string().contains("may only read"), "{error}");
        // Another crash says nothing of it, unless it looks the same.
        applet.respawn().unwrap();
        let error = death(applet.call("abort", b""));
        assert!(!error.to_string().contains("may only read"), "{error}");
    });
}

/// A burst of transactions sends no message and makes no forbidden system call.
///
/// Guarantee: applets/no-messages
#[test]
fn transactions_send_no_messages() {
    with_each(|kind, path| {
        let home = Home::new();
        let applet = home.spawn(path);
        assert_eq!(ask(&applet, "transactions", 1).unwrap(), 1);
        let before = applet.metrics().messages;
        assert_eq!(ask(&applet, "transactions", 50_000).unwrap(), 50_001);
        let sent = applet.metrics().messages - before;
        assert_eq!(sent, 2, "{kind}");
    });
}

#[test]
fn an_applet_without_a_heap_is_told_so_and_serves_on() {
    with_each(|kind, path| {
        let applet = crate::spawn(path);
        let error = applet.call("count", b"").unwrap_err();
        assert!(
            matches!(&error, CallError::Failed { message, .. } if message.contains("heap")),
            "{kind}: {error}"
        );
        assert_eq!(applet.call("echo", b"x").unwrap(), b"x");
    });
}

/// Native and WebAssembly applets do not misread each other's heaps.
///
/// Guarantee: applets/kinds-apart
#[test]
fn applet_kinds_do_not_share_a_heap_layout() {
    let [(_, native), _, (_, wasm)] = crate::forms();
    let home = Home::new();
    let applet = home.spawn(native.clone());
    ask(&applet, "count", 0).unwrap();
    applet.close().unwrap();
    let applet = home.spawn(wasm);
    let error = applet.call("count", b"").unwrap_err();
    assert!(matches!(error, CallError::Failed { .. }), "{error}");
    applet.close().unwrap();
    assert_eq!(ask(&home.spawn(native), "look", 0).unwrap(), 1);
    assert_eq!(
        SandboxKind::of(std::path::Path::new("/proc/self/exe")).unwrap(),
        SandboxKind::Native
    );
}
