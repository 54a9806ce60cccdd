//! Applets that are started before they are needed.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use holdfast_applet::{Command, Grants, Pool};

use crate::{forms, with_each};

fn wait_for(pool: &Pool, count: usize) {
    let started = Instant::now();
    while pool.ready() < count {
        assert!(
            started.elapsed() < Duration::from_secs(30),
            "{} of {count} are ready",
            pool.ready()
        );
        thread::sleep(Duration::from_millis(2));
    }
}

/// A pool keeps applets ready and gives a fresh one to each caller.
///
/// Guarantee: applets/pools
#[test]
fn pool_keeps_ready_applets_and_gives_fresh_ones() {
    with_each(|_, path| {
        let pool =
            Pool::new(2, false, move || Ok(Command::new(path.clone(), Grants::none()))).unwrap();
        wait_for(&pool, 2);
        {
            let (one, two) = (pool.take().unwrap(), pool.take().unwrap());
            assert_eq!(one.call("echo", b"1").unwrap(), b"1");
            assert_eq!(two.call("echo", b"2").unwrap(), b"2");
            assert!(one.call("crash", b"").is_err());
            assert_eq!(two.call("echo", b"2").unwrap(), b"2");
        }
        wait_for(&pool, 2);
        assert_eq!(pool.take().unwrap().metrics().calls, 0);
    });
}

/// Guarantee: applets/pools
#[test]
fn a_pool_that_reuses_takes_back_what_lives() {
    with_each(|_, path| {
        // Whatever is ready after the first applet is that one: no other can be started.
        let is_first = AtomicBool::new(true);
        let pool = Pool::new(1, true, move || {
            let is_first = is_first.swap(false, Ordering::SeqCst);
            let path = if is_first { path.clone() } else { "/nowhere/applet".into() };
            Ok(Command::new(path, Grants::none()))
        })
        .unwrap();
        let taken = pool.take().unwrap();
        taken.call("echo", b"1").unwrap();
        drop(taken);
        assert_eq!(pool.ready(), 1);
        let dead = pool.take().unwrap();
        assert_eq!(dead.metrics().calls, 1);
        dead.call("crash", b"").unwrap_err();
        drop(dead);
        assert_eq!(pool.ready(), 0);
    });
}

/// A pool to which applets return keeps no more than its configured size.
///
/// Guarantee: applets/pools
#[test]
fn pool_keeps_no_more_than_its_size() {
    let [(_, path), ..] = forms();
    let (ask, asked) = mpsc::channel();
    let (release, held) = mpsc::channel();
    release.send(()).unwrap();
    let held = Mutex::new(held);
    let pool = Pool::new(1, true, move || {
        ask.send(()).unwrap();
        let _ = held.lock().unwrap().recv();
        Ok(Command::new(path.clone(), Grants::none()))
    })
    .unwrap();
    asked.recv().unwrap();
    let taken = pool.take().unwrap();
    // The next one is being started now, and there when the first one is back.
    asked.recv().unwrap();
    drop(taken);
    release.send(()).unwrap();
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(1) {
        assert_eq!(pool.ready(), 1);
        thread::sleep(Duration::from_millis(5));
    }
}

/// A source that panics in the background is tried again.
///
/// Guarantee: applets/pools
#[test]
fn panicking_source_of_a_pool_is_retried() {
    let [(_, path), ..] = forms();
    let asked = Arc::new(AtomicU32::new(0));
    let count = asked.clone();
    let pool = Pool::new(1, false, move || {
        assert_ne!(count.fetch_add(1, Ordering::SeqCst), 1, "the second one fails");
        Ok(Command::new(path.clone(), Grants::none()))
    })
    .unwrap();
    drop(pool.take().unwrap());
    wait_for(&pool, 1);
    assert_eq!(asked.load(Ordering::SeqCst), 3);
}

/// Guarantee: applets/pools
#[test]
fn a_pool_ends_though_its_source_does_not() {
    let [(_, path), ..] = forms();
    let (release, held) = mpsc::channel::<()>();
    let (held, is_first) = (Mutex::new(held), AtomicBool::new(true));
    let pool = Pool::new(2, false, move || {
        if !is_first.swap(false, Ordering::SeqCst) {
            let _ = held.lock().unwrap().recv();
        }
        Ok(Command::new(path.clone(), Grants::none()))
    })
    .unwrap();
    let started = Instant::now();
    drop(pool);
    assert!(started.elapsed() < Duration::from_secs(10));
    drop(release);
}

/// An applet that died while waiting in a pool is not handed out.
///
/// Guarantee: applets/pools
#[test]
fn dead_applet_in_a_pool_is_never_handed_out() {
    let [(_, path), ..] = forms();
    let pool = Pool::new(1, true, move || Ok(Command::new(path.clone(), Grants::none()))).unwrap();
    wait_for(&pool, 1);
    for _ in 0..3 {
        let taken = pool.take().unwrap();
        taken.call("abort_later", b"").unwrap();
        drop(taken);
        // It dies after 20 ms, which the pool hears of some time later.
        thread::sleep(Duration::from_secs(2));
        assert_eq!(pool.take().unwrap().call("echo", b"x").unwrap(), b"x");
    }
}

#[test]
fn a_pool_of_what_cannot_start_says_so_at_once() {
    let refused = Pool::new(3, false, || Ok(Command::new("/nowhere/applet", Grants::none())));
    assert!(refused.err().unwrap().to_string().contains("/nowhere/applet"));
}
