//! A native applet that does not take what a function of its host returns. Its caller looks and
//! cancels all the same, and the call ends with its time or with the applet. The applet is
//! `applets/trial`.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use holdfast_applet::{
    Applet, AppletError, Call, End, Failure, Grants, HostFunction, Limits, SandboxKind,
};

use crate::{death, forms};

/// More than the channel holds, and what the applet expects.
const ANSWER_BYTES: usize = 8 << 20;
/// No wait of a test that goes well takes that long.
const LONG: Duration = Duration::from_secs(20);
const EVERY: Duration = Duration::from_millis(20);
/// So long may a caller be kept waiting.
const HEARD_IN: Duration = Duration::from_millis(500);
/// So often is it tried: the machine may do other things.
const TRIES: usize = 5;
const LOOKS: u32 = 5;

/// The applet in its native forms.
fn applets() -> impl Iterator<Item = PathBuf> {
    forms().into_iter().filter(|(kind, _)| *kind == SandboxKind::Native).map(|(_, path)| path)
}

fn answer() -> Vec<u8> {
    (0..ANSWER_BYTES).map(|at| (at * 7 + at / 251) as u8).collect()
}

/// Starts it with a function `fetch`, which notes that it was called.
fn spawn(path: &Path, limits: Limits, is_asked: &Arc<AtomicBool>) -> Applet {
    let (is_asked, answer) = (is_asked.clone(), answer());
    let fetch = HostFunction::new(move |_, _| {
        is_asked.store(true, Ordering::SeqCst);
        Ok(answer.clone())
    });
    Applet::spawn(path, limits, Grants::none().function("fetch", fetch)).unwrap()
}

/// A caller that is not heard waits for the time limit.
fn limits() -> Limits {
    let mut limits = Limits::default();
    limits.grace = Duration::from_millis(50);
    limits.call_timeout = Some(Duration::from_secs(10));
    limits
}

/// The outcome of the first of several tries in which the caller was heard in time.
fn heard_in_time(mut once: impl FnMut() -> (Duration, Arc<AppletError>)) -> Arc<AppletError> {
    let mut shortest = Duration::MAX;
    for _ in 0..TRIES {
        let (waited, error) = once();
        if waited < HEARD_IN {
            return error;
        }
        shortest = shortest.min(waited);
    }
    panic!("not heard for {shortest:?}");
}

/// A native applet that stops in the middle of an answer of its host does not delay the callback of
/// the caller.
///
/// Guarantee: applets/interruptible
/// Guarantee: programs/python-cancel
#[test]
fn unread_answer_cannot_block_the_callback() {
    for path in applets() {
        let error = heard_in_time(|| {
            let is_asked = Arc::new(AtomicBool::new(false));
            let applet = spawn(&path, limits(), &is_asked);
            let looks = Mutex::new((0, Instant::now(), Duration::ZERO));
            let goes_on = || {
                let mut looks = looks.lock().unwrap();
                looks.2 = looks.2.max(looks.1.elapsed());
                (looks.0, looks.1) = (looks.0 + 1, Instant::now());
                looks.0 < LOOKS
            };
            let call = Call::new("stop_in_an_answer", b"").look(EVERY, &goes_on);
            let error = death(applet.call_with(call));
            assert!(is_asked.load(Ordering::SeqCst), "the host was not asked");
            let (count, _, longest) = *looks.lock().unwrap();
            assert!(count >= LOOKS, "{count} looks: {error}");
            (longest, error)
        });
        assert!(matches!(error.failure, Failure::IgnoredCancel { .. }), "{error}");
    }
}

/// A call whose applet stops in the middle of an answer of its host is cancelled within its grace.
///
/// Guarantee: applets/cancel
#[test]
fn unread_answer_cannot_delay_a_cancellation() {
    for path in applets() {
        let error = heard_in_time(|| {
            let is_asked = Arc::new(AtomicBool::new(false));
            let applet = spawn(&path, limits(), &is_asked);
            thread::scope(|scope| {
                let canceller = scope.spawn(|| {
                    let started = Instant::now();
                    while !is_asked.load(Ordering::SeqCst) {
                        assert!(started.elapsed() < LONG, "the host was not asked");
                        thread::sleep(Duration::from_millis(1));
                    }
                    // By then the applet has stopped.
                    thread::sleep(Duration::from_millis(100));
                    let cancelled = Instant::now();
                    assert!(applet.cancel(), "there is no call");
                    cancelled
                });
                let error = death(applet.call("stop_in_an_answer", b""));
                (canceller.join().unwrap().elapsed(), error)
            })
        });
        assert!(matches!(error.failure, Failure::IgnoredCancel { .. }), "{error}");
    }
}

/// A call whose applet stops in the middle of an answer of its host ends at its time limit, or with
/// the applet.
///
/// Guarantee: applets/deadlines
/// Guarantee: applets/death
#[test]
fn unread_answer_ends_with_its_call_or_its_applet() {
    for path in applets() {
        let is_asked = Arc::new(AtomicBool::new(false));
        let mut limits = limits();
        limits.call_timeout = Some(Duration::from_secs(1));
        let applet = spawn(&path, limits, &is_asked);
        let started = Instant::now();
        let error = death(applet.call("stop_in_an_answer", b""));
        assert!(matches!(error.failure, Failure::CallTimeLimit { .. }), "{error}");
        assert!(started.elapsed() < LONG / 4, "{:?}", started.elapsed());
        assert!(is_asked.swap(false, Ordering::SeqCst), "the host was not asked");
        applet.respawn().unwrap();
        let started = Instant::now();
        let aborts = 1_u64.to_le_bytes();
        let call = Call::new("stop_in_an_answer", &aborts).time_limit(LONG);
        let error = death(applet.call_with(call));
        let is_crash = matches!(&error.failure, Failure::Ended { end: End::Signal { .. } });
        assert!(is_crash, "{error}");
        assert!(started.elapsed() < LONG / 4, "{:?}", started.elapsed());
        assert!(is_asked.load(Ordering::SeqCst), "the host was not asked");
    }
}

/// However often the host looks while it answers, the answer arrives whole and once, and a
/// cancellation arrives behind it.
///
/// Guarantee: applets/host-functions
/// Guarantee: applets/interruptible
#[test]
fn answer_arrives_whole_between_looks() {
    let every = Duration::from_nanos(1);
    let mut limits = limits();
    // The function does not ask whether its call is cancelled.
    (limits.grace, limits.call_timeout) = (LONG, Some(2 * LONG));
    for path in applets() {
        let is_asked = Arc::new(AtomicBool::new(false));
        let applet = spawn(&path, limits.clone(), &is_asked);
        let ask = |goes_on: &(dyn Fn() -> bool + Sync)| {
            let found = applet.call_with(Call::new("ask_host", b"fetch\0").look(every, goes_on));
            let found = found.unwrap().bytes;
            assert!(found == answer(), "{} bytes", found.len());
        };
        ask(&|| true);
        assert!(is_asked.swap(false, Ordering::SeqCst), "the host was not asked");
        // Given up from the first look on that follows the host function.
        ask(&|| !is_asked.load(Ordering::SeqCst));
        assert_eq!(applet.call("echo", b"on").unwrap(), b"on");
    }
}
