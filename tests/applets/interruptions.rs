//! A caller that wants to be heard while its applet does what it likes: floods, stops in the middle
//! of a message, hangs; and a caller that panics in the middle of a call.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use holdfast_applet::{Call, CallError, Command, Failure, Grants, Limits, Pool, SandboxKind};

use crate::{death, forms, spawn, spawn_with, with_each};

const EVERY: Duration = Duration::from_millis(20);
/// So long may a look be kept waiting.
const HEARD_IN: Duration = Duration::from_millis(500);
/// So often is it tried: the machine may do other things.
const TRIES: usize = 5;

/// The outcome of the first of several tries that heard a process in time, or of the last one.
fn heard_in_time(mut once: impl FnMut() -> (Duration, CallError)) -> CallError {
    let mut longest = Duration::MAX;
    for _ in 0..TRIES {
        let (waited, error) = once();
        if waited < HEARD_IN {
            return error;
        }
        longest = longest.min(waited);
    }
    panic!("not heard for {longest:?}");
}

/// Calls, and goes on for so many looks. Says the longest time between two looks, or before the
/// first.
fn longest_wait(
    applet: &holdfast_applet::Applet,
    function: &str,
    input: &[u8],
    looks_max: u32,
) -> (Duration, CallError) {
    let looks = std::sync::Mutex::new((0, Instant::now(), Duration::ZERO));
    let goes_on = || {
        let mut looks = looks.lock().unwrap();
        looks.2 = looks.2.max(looks.1.elapsed());
        (looks.0, looks.1) = (looks.0 + 1, Instant::now());
        looks.0 < looks_max
    };
    let error = applet.call_with(Call::new(function, input).look(EVERY, &goes_on)).unwrap_err();
    let (count, _, longest) = *looks.lock().unwrap();
    assert!(count >= looks_max, "{function}: {count} looks");
    (longest, error)
}

/// An applet that sends without end does not delay the callback of the caller.
///
/// Guarantee: applets/interruptible
/// Guarantee: programs/python-cancel
#[test]
fn endless_sender_cannot_block_the_callback() {
    with_each(|kind, path| {
        let mut limits = Limits::default();
        limits.grace = Duration::from_millis(50);
        let error = heard_in_time(|| {
            longest_wait(&spawn_with(path.clone(), limits.clone()), "flood_empty", b"", 5)
        });
        assert!(matches!(error, CallError::Died(_)), "{kind}: {error}");
    });
}

/// A native applet that requests memory without end does not delay the callback of the caller.
///
/// Guarantee: applets/interruptible
/// Guarantee: programs/python-cancel
#[test]
fn endless_growth_cannot_block_the_callback() {
    for path in
        forms().into_iter().filter(|(kind, _)| *kind == SandboxKind::Native).map(|(_, path)| path)
    {
        let mut limits = Limits::default();
        limits.grace = Duration::from_millis(50);
        let error = heard_in_time(|| {
            let home = crate::Home::new();
            let grants = Grants::none().heap(home.region());
            let applet =
                holdfast_applet::Applet::spawn(path.clone(), limits.clone(), grants).unwrap();
            longest_wait(&applet, "ask_without_end", b"", 5)
        });
        assert!(matches!(death(Err::<(), _>(error)).failure, Failure::IgnoredCancel { .. }));
    }
}

/// A native applet that stalls within a message does not delay the callback of the caller.
///
/// Guarantee: applets/interruptible
/// Guarantee: programs/python-cancel
#[test]
fn stalled_message_cannot_block_the_callback() {
    for path in
        forms().into_iter().filter(|(kind, _)| *kind == SandboxKind::Native).map(|(_, path)| path)
    {
        let mut limits = Limits::default();
        limits.grace = Duration::from_millis(50);
        let started = Instant::now();
        let error = heard_in_time(|| {
            longest_wait(&spawn_with(path.clone(), limits.clone()), "stop_in_a_part", b"", 5)
        });
        let error = death(Err::<(), _>(error));
        assert!(matches!(error.failure, Failure::IgnoredCancel { .. }), "{error}");
        assert!(started.elapsed() < TRIES as u32 * Duration::from_secs(10));
    }
}

/// A native applet that stalls within a message beyond its limit, which is passed over, does not
/// delay the callback of the caller.
///
/// Guarantee: applets/interruptible
/// Guarantee: programs/python-cancel
#[test]
fn stalled_long_message_cannot_block_the_callback() {
    for path in
        forms().into_iter().filter(|(kind, _)| *kind == SandboxKind::Native).map(|(_, path)| path)
    {
        let mut limits = Limits::default();
        limits.grace = Duration::from_millis(50);
        limits.result_bytes = 1 << 20;
        // A caller that is not asked waits for that.
        limits.call_timeout = Some(Duration::from_secs(10));
        let error = heard_in_time(|| {
            longest_wait(&spawn_with(path.clone(), limits.clone()), "stop_in_a_part", b"", 5)
        });
        let error = death(Err::<(), _>(error));
        assert!(matches!(error.failure, Failure::IgnoredCancel { .. }), "{error}");
    }
}

/// A native applet that does not take the input of a call does not delay the callback of the
/// caller.
///
/// Guarantee: applets/interruptible
/// Guarantee: programs/python-cancel
#[test]
fn unread_input_cannot_block_the_callback() {
    let input = vec![7_u8; 8 << 20];
    for path in
        forms().into_iter().filter(|(kind, _)| *kind == SandboxKind::Native).map(|(_, path)| path)
    {
        let mut limits = Limits::default();
        limits.grace = Duration::from_millis(50);
        // A caller that is not asked waits for that.
        limits.call_timeout = Some(Duration::from_secs(10));
        let error = heard_in_time(|| {
            let applet = spawn_with(path.clone(), limits.clone());
            applet.call("stop_reading", b"").unwrap();
            // It stops 100 ms after the call.
            std::thread::sleep(Duration::from_millis(300));
            longest_wait(&applet, "echo", &input, 5)
        });
        let error = death(Err::<(), _>(error));
        assert!(matches!(error.failure, Failure::IgnoredCancel { .. }), "{error}");
    }
}

/// A caller that panics while a native applet does not take its input ends the applet, and the next
/// call finds another one.
///
/// Guarantee: applets/cancel
#[test]
fn caller_panics_while_its_input_is_unread() {
    let input = vec![7_u8; 8 << 20];
    for path in
        forms().into_iter().filter(|(kind, _)| *kind == SandboxKind::Native).map(|(_, path)| path)
    {
        let applet = spawn(path);
        applet.call("stop_reading", b"").unwrap();
        std::thread::sleep(Duration::from_millis(300));
        let goes_on = || -> bool { panic!("as a caller's code may") };
        let call = || applet.call_with(Call::new("echo", &input).look(EVERY, &goes_on));
        assert!(catch_unwind(AssertUnwindSafe(call)).is_err(), "nobody looked");
        assert!(applet.cause_of_death().is_some());
        applet.respawn().unwrap();
        assert!(applet.call("echo", &input).unwrap() == input);
    }
}

/// If a caller panics, its call ends before the next one, and no answer reaches another call.
///
/// Guarantee: applets/cancel
/// Guarantee: applets/pools
#[test]
fn panicking_caller_ends_its_call_first() {
    with_each(|kind, path| {
        let applet = spawn(path);
        let goes_on = || -> bool { panic!("as a caller's code may") };
        for function in ["spin_until_cancelled", "flood_empty_until_cancelled"] {
            let call = || applet.call_with(Call::new(function, b"").look(EVERY, &goes_on));
            assert!(catch_unwind(AssertUnwindSafe(call)).is_err(), "{kind}: nobody looked");
            if applet.cause_of_death().is_some() {
                // What is cancelled late, or in WebAssembly, may not outlive that; it is never
                // mistaken.
                applet.respawn().unwrap();
            }
            assert_eq!(applet.call("echo", b"mine").unwrap(), b"mine", "{kind} after {function}");
        }
    });
}

/// An applet whose caller panicked does not return to a pool.
///
/// Guarantee: applets/cancel
/// Guarantee: applets/pools
#[test]
fn applet_of_a_panicked_caller_leaves_the_pool() {
    with_each(|kind, path| {
        // There is one, and no other to be had: so the pool has room for it.
        let started = AtomicU32::new(0);
        let pool = Pool::new(1, true, move || {
            let is_first = started.fetch_add(1, Ordering::SeqCst) == 0;
            Ok(Command::new(
                if is_first { path.clone() } else { "/nowhere/at/all".into() },
                Grants::none(),
            ))
        })
        .unwrap();
        let goes_on = || -> bool { panic!("as a caller's code may") };
        let user = || {
            let applet = pool.take().unwrap();
            drop(applet.call_with(Call::new("spin_until_cancelled", b"").look(EVERY, &goes_on)));
        };
        assert!(catch_unwind(AssertUnwindSafe(user)).is_err(), "{kind}: nobody looked");
        assert!(pool.take().is_err(), "{kind}: it was given out again");
    });
}

/// A caller that uses its applet where it is asked whether its call goes on is refused, and does
/// not wait for itself; afterwards it is not refused any more.
///
/// Guarantee: applets/busy
/// Guarantee: applets/interruptible
#[test]
fn asked_caller_never_waits_for_itself() {
    with_each(|kind, path| {
        let (tell, told) = mpsc::channel();
        // A thread of its own: one that waits for itself does so for ever.
        std::thread::spawn(move || {
            let applet = spawn(path);
            let (looks, refused) = (AtomicU32::new(0), AtomicU32::new(0));
            let goes_on = || {
                let is_refused = matches!(applet.call("echo", b"x"), Err(CallError::Busy))
                    && matches!(applet.buffer(1), Err(CallError::Busy))
                    && matches!(applet.respawn(), Err(error) if matches!(error.failure, Failure::Busy))
                    && applet.functions().is_empty()
                    && applet.metrics().calls == 0;
                refused.fetch_add(u32::from(is_refused), Ordering::SeqCst);
                looks.fetch_add(1, Ordering::SeqCst);
                false
            };
            let call = Call::new("spin_until_cancelled", b"").look(EVERY, &goes_on);
            let ended = applet.call_with(call).is_err();
            applet.respawn().unwrap();
            let answer = applet.call("echo", b"on").unwrap();
            let counts = (looks.load(Ordering::SeqCst), refused.load(Ordering::SeqCst));
            tell.send((ended, counts, answer)).unwrap();
        });
        let told = told.recv_timeout(Duration::from_secs(60));
        let (ended, (looks, refused), answer) = told.expect("it waits for itself");
        assert!(ended && looks > 0 && refused == looks, "{kind}: {refused} of {looks} refused");
        assert_eq!(answer, b"on");
    });
}
