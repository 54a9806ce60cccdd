//! Applets with a heap: what they stored is at its last commit, whatever they die of.

use holdfast_applet::{Applet, CallError, Grants, Limits, Recovery, SandboxKind};
use holdfast_region::{OwnerKey, RegionName};

use crate::{Home, ask, death, with_each};

/// Guarantee: applets/death
/// Guarantee: applets/heap-after-death
#[test]
fn what_a_call_committed_survives_the_applets_death_and_what_it_left_open_does_not() {
    with_each(|_, path| {
        let home = Home::new();
        let applet = home.spawn(path);
        for expected in 1..=5 {
            assert_eq!(ask(&applet, "count", 0).unwrap(), expected);
        }
        for round in 0..3 {
            let error = death(applet.call("count_and_crash", b""));
            let recovery = error.heap.as_ref().unwrap().recovery.as_ref().unwrap();
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

/// Guarantee: applets/death
/// Guarantee: applets/heap-after-death
#[test]
fn the_heap_is_there_again_for_the_next_applet_also_from_the_store() {
    with_each(|_, path| {
        let home = Home::new();
        let applet = home.spawn(path.clone());
        ask(&applet, "count", 0).unwrap();
        applet.call("commit", &2_u64.to_le_bytes()).unwrap();
        ask(&applet, "count", 0).unwrap();
        assert!(!applet.close().unwrap().heap.unwrap().checkpoint.skipped);
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

/// Guarantee: applets/death
/// Guarantee: applets/heap-after-death
#[test]
fn in_the_mode_atomic_each_call_counts_whole_or_not_at_all() {
    with_each(|_, path| {
        let home = Home::new();
        let applet = home.spawn_atomic(path.clone());
        assert_eq!(ask(&applet, "store", 11).unwrap(), 11);
        let failed = ask(&applet, "store_and_fail", 12);
        assert!(matches!(failed, Err(CallError::Failed { .. })), "{failed:?}");
        assert_eq!(ask(&applet, "look", 0).unwrap(), 11);
        death(ask(&applet, "store_and_crash", 13));
        applet.respawn().unwrap();
        assert_eq!(ask(&applet, "look", 0).unwrap(), 11);
        assert_eq!(ask(&applet, "store", 14).unwrap(), 14);
        assert_eq!(ask(&applet, "store", 15).unwrap(), 15);
        death(applet.call("abort", b""));
        drop(applet);
        let applet = home.spawn(path);
        assert_eq!(ask(&applet, "look", 0).unwrap(), 15);
    });
}

/// Guarantee: applets/death
#[test]
fn stores_out_of_range_kill_the_applet_and_never_the_host() {
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

/// Guarantee: applets/read-only-heap
#[test]
fn a_store_to_a_heap_that_may_only_be_read_ends_the_applet_and_says_so() {
    with_each(|_, path| {
        let home = Home::new();
        let applet = home.spawn(path.clone());
        assert_eq!(ask(&applet, "count", 0).unwrap(), 1);
        applet.close().unwrap();
        let (name, key) = (RegionName::parse("numbers").unwrap(), OwnerKey::from_bytes([5; 32]));
        let region = home.names().open_read_only(&name, &key).unwrap();
        let applet = Applet::spawn(path.clone(), Limits::default(), Grants::none().heap(region)).unwrap();
        assert_eq!(ask(&applet, "look", 0).unwrap(), 1);
        let error = death(ask(&applet, "store", 7));
        assert!(error.to_string().contains("may only read"), "{error}");
        // Another crash says nothing of it, unless it looks the same.
        applet.respawn().unwrap();
        let error = death(applet.call("abort", b""));
        assert!(!error.to_string().contains("may only read"), "{error}");
    });
}

/// Guarantee: applets/no-messages
#[test]
fn a_burst_of_transactions_makes_no_message_and_no_forbidden_call() {
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

/// Guarantee: applets/kinds-apart
#[test]
fn two_kinds_of_applets_do_not_mistake_each_others_heaps() {
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
    assert_eq!(SandboxKind::of(std::path::Path::new("/proc/self/exe")).unwrap(), SandboxKind::Native);
}
