//! Applets that die, by themselves or because they must: the host gets a typed error, and goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use holdfast_applet::{
    Call, CallError, Command, End, Failure, FailureKind, Grants, Limits, SandboxKind,
};

use crate::{death, spawn, spawn_with, with_each};

/// A crash is an error with its cause, and the applet can be started again.
///
/// Guarantee: applets/death
#[test]
fn crash_has_a_cause_and_respawn_continues() {
    with_each(|kind, path| {
        let applet = spawn(path);
        for function in ["crash", "abort"] {
            let error = death(applet.call(function, b""));
            assert_eq!(error.kind(), FailureKind::Trap, "{error}");
            if kind == SandboxKind::Native {
                let name = if function == "crash" { "SIGSEGV" } else { "SIGABRT" };
                assert!(
                    matches!(&error.failure, Failure::Ended { end: End::Signal { name: found, .. } } if *found == name),
                    "{error}"
                );
            }
            // It stays dead, of the same, until it is started anew.
            assert_eq!(death(applet.call("echo", b"x")).to_string(), error.to_string());
            assert!(applet.cause_of_death().is_some() && applet.functions().is_empty());
            applet.respawn().unwrap();
            assert_eq!(applet.call("echo", b"x").unwrap(), b"x");
        }
    });
}

/// Guarantee: applets/pools
#[test]
fn a_death_that_no_call_has_met_is_known_to_who_asks() {
    with_each(|kind, path| {
        if kind == SandboxKind::Wasm {
            // It runs only while it is called.
            return;
        }
        let applet = spawn(path);
        applet.call("abort_later", b"").unwrap();
        let started = Instant::now();
        while applet.cause_of_death().is_none() {
            assert!(started.elapsed() < Duration::from_secs(30));
            thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(applet.cause_of_death().unwrap().kind(), FailureKind::Trap);
    });
}

/// An exit in the middle of a call ends the applet and not the host.
///
/// Guarantee: applets/death
#[test]
fn exit_in_a_call_ends_only_the_applet() {
    with_each(|_, path| {
        let applet = spawn(path);
        let error = death(applet.call("exit", &7_u64.to_le_bytes()));
        assert_eq!(error.kind(), FailureKind::Trap, "{error}");
        assert!(error.to_string().ends_with("it ended with status 7"), "{error}");
    });
}

/// An applet that serves ends normally when it is run without calls.
///
/// Guarantee: applets/run-or-call
#[test]
fn serving_applet_ends_normally_when_only_run() {
    with_each(|_, path| {
        let outcome =
            Command::new(path, Grants::none()).timeout(Duration::from_secs(30)).run().unwrap();
        assert_eq!(outcome.exit_status, 0);
    });
}

/// A forbidden system call is reported with its name, arguments and place.
///
/// Guarantee: applets/death
#[test]
fn forbidden_call_is_reported_with_its_place() {
    with_each(|kind, path| {
        if kind == SandboxKind::Wasm {
            return;
        }
        let applet = spawn(path);
        let error = death(applet.call("kexec", b""));
        assert_eq!(error.kind(), FailureKind::PolicyViolation);
        let Failure::Ended { end: End::Violation(violation) } = &error.failure else {
            panic!("{error}")
        };
        assert_eq!(
            (violation.name.as_str(), violation.args[0], violation.args[3]),
            ("kexec_load", 11, 44)
        );
        assert!(violation.instruction_pointer != 0);
        applet.respawn().unwrap();
    });
}

/// A call past its deadline is stopped at once, together with its applet.
///
/// Guarantee: applets/cancel
/// Guarantee: applets/deadlines
/// Guarantee: applets/death
#[test]
fn call_past_its_deadline_stops_the_applet() {
    with_each(|_, path| {
        let mut limits = Limits::default();
        limits.call_timeout = Some(Duration::from_millis(200));
        let applet = spawn_with(path, limits);
        let started = Instant::now();
        let error = death(applet.call("spin", b""));
        assert_eq!(error.kind(), FailureKind::TimeLimit, "{error}");
        assert!(error.to_string().contains("200ms"), "{error}");
        assert!(started.elapsed() < Duration::from_secs(10));
        applet.respawn().unwrap();
        let mut flood = applet.stream(Call::new("flood", b"")).unwrap();
        let Some(Err(end)) = flood.find(Result::is_err) else {
            panic!("a flood without an end has one")
        };
        drop(flood);
        let flooded = death(Err::<(), _>(end));
        assert_eq!(flooded.kind(), FailureKind::TimeLimit, "{flooded}");
        applet.respawn().unwrap();
        let own = applet.call_with(Call::new("spin", b"").time_limit(Duration::from_millis(50)));
        assert!(death(own).to_string().contains("50ms"));
    });
}

/// A flood of results is cut at the limit; only an applet that continues to send is killed.
///
/// Guarantee: applets/streams
#[test]
fn flood_is_cut_at_the_result_limit() {
    with_each(|_, path| {
        let mut limits = Limits::default();
        limits.result_bytes = 1 << 20;
        let applet = spawn_with(path, limits);
        for _ in 0..2 {
            let refused = applet.call("flood", b"").unwrap_err();
            assert!(matches!(refused, CallError::ResultTooLarge { .. }), "{refused}");
            assert_eq!(applet.call("echo", b"x").unwrap(), b"x");
        }
        // It does not listen.
        let started = Instant::now();
        let error = death(applet.call("flood_on", b""));
        assert!(matches!(error.failure, Failure::IgnoredCancel { .. }), "{error}");
        assert!(started.elapsed() < Duration::from_secs(10));
    });
}

/// Cancels from another thread once the call is under way.
fn cancel_while(
    applet: &Arc<holdfast_applet::Applet>,
    function: &str,
) -> Result<Vec<u8>, CallError> {
    let canceller = thread::spawn({
        let applet = applet.clone();
        move || {
            for _ in 0..1000 {
                thread::sleep(Duration::from_millis(5));
                if applet.cancel() {
                    return true;
                }
            }
            false
        }
    });
    let result = applet.call(function, b"");
    assert!(canceller.join().unwrap());
    result
}

/// A cancelled call ends, and an applet that checks for cancellation survives it.
///
/// Guarantee: applets/cancel
/// Guarantee: applets/deadlines
/// Guarantee: applets/death
#[test]
fn cancelled_call_ends_and_polite_applet_survives() {
    with_each(|kind, path| {
        let applet = Arc::new(spawn(path));
        let result = cancel_while(&applet, "spin_until_cancelled");
        if kind == SandboxKind::Native {
            assert!(matches!(result, Err(CallError::Cancelled)), "{result:?}");
            assert_eq!(applet.call("echo", b"x").unwrap(), b"x");
        } else {
            death(result);
            applet.respawn().unwrap();
        }
        let deaf = death(cancel_while(&applet, "spin"));
        assert!(deaf.to_string().contains("cancelled"), "{deaf}");
        assert!(!applet.cancel(), "there is no call any more");
    });
}

/// The callback of a waiting caller is asked whether to continue and can cancel the call.
///
/// Guarantee: applets/cancel
/// Guarantee: applets/interruptible
/// Guarantee: programs/python-cancel
#[test]
fn waiting_caller_may_cancel_its_call() {
    with_each(|kind, path| {
        let applet = spawn(path);
        let asked = AtomicU32::new(0);
        let goes_on = || asked.fetch_add(1, Ordering::SeqCst) < 4;
        let call = Call::new("spin_until_cancelled", b"").look(Duration::from_millis(10), &goes_on);
        let started = Instant::now();
        let result = applet.call_with(call);
        assert!(asked.load(Ordering::SeqCst) >= 5 && started.elapsed() < Duration::from_secs(30));
        if kind == SandboxKind::Native {
            assert!(matches!(result, Err(CallError::Cancelled)), "{result:?}");
        } else {
            assert_eq!(death(result).kind(), FailureKind::Cancelled);
            applet.respawn().unwrap();
        }
        let call = Call::new("echo", b"x").look(Duration::ZERO, &|| true);
        assert_eq!(applet.call_with(call).unwrap().bytes, b"x");
        assert_eq!(applet.call("echo", b"x").unwrap(), b"x");
    });
}

/// Dropping a stream early cancels its call; only an applet that continues to send is killed.
///
/// Guarantee: applets/cancel
/// Guarantee: applets/deadlines
/// Guarantee: applets/death
#[test]
fn early_dropped_stream_cancels_its_call() {
    with_each(|_, path| {
        let applet = spawn(path);
        let begin = |function| {
            let mut stream = applet.stream(Call::new(function, b"")).unwrap();
            assert!(stream.next().unwrap().is_ok());
        };
        for _ in 0..2 {
            begin("flood");
            assert_eq!(applet.call("echo", b"x").unwrap(), b"x");
        }
        begin("flood_on");
        let after = death(applet.call("echo", b"x"));
        assert!(matches!(after.failure, Failure::IgnoredCancel { .. }), "{after}");
    });
}

/// Guarantee: applets/deadlines
#[test]
fn patience_without_an_end_is_no_panic() {
    with_each(|_, path| {
        let mut limits = Limits::default();
        limits.grace = Duration::MAX;
        let applet = Arc::new(spawn_with(path, limits));
        let calling = {
            let applet = applet.clone();
            thread::spawn(move || applet.call("spin_until_cancelled", b""))
        };
        while !applet.cancel() {
            thread::sleep(Duration::from_millis(1));
        }
        assert!(calling.join().unwrap().is_err());
        if applet.cause_of_death().is_none() {
            Arc::into_inner(applet).unwrap().close().unwrap();
        }
    });
}

/// A native applet of another release is refused before it starts, with both versions, whether its
/// file says its version or is older than that.
///
/// Guarantee: applets/channel-version
#[test]
fn applet_of_another_version_is_refused_with_both() {
    let ours = holdfast_channel::boot::VERSION;
    with_each(|kind, path| {
        let mut program = std::fs::read(&path).unwrap();
        // Owner and content have so many bytes, then the kind and the owner.
        let note = [&9_u32.to_le_bytes()[..], &[8, 0, 0, 0, 1, 0, 0, 0], b"Holdfast\0"].concat();
        let notes = program.windows(note.len()).filter(|bytes| *bytes == &note[..]).count();
        assert_eq!(notes, usize::from(kind == SandboxKind::Native));
        let Some(at) = program.windows(note.len()).position(|bytes| bytes == note) else { return };
        let folder = tempfile::tempdir().unwrap();
        let start = |program: &[u8]| {
            let file = folder.path().join("applet");
            let _ = std::fs::remove_file(&file);
            std::fs::write(&file, program).unwrap();
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(&file, mode).unwrap();
            Command::new(file, Grants::none()).spawn()
        };
        drop(start(&program).unwrap());
        let is_refused = |program: &[u8], version: u32| {
            let error = start(program).err().unwrap();
            assert!(
                matches!(error.failure, Failure::ChannelVersion { applet, host, .. }
                    if (applet, host) == (version, ours)),
                "{error}"
            );
            assert_eq!(error.kind(), FailureKind::CannotLoad);
        };
        program[at + 28..at + 32].copy_from_slice(&(ours + 1).to_le_bytes());
        is_refused(&program, ours + 1);
        // As notes were before they had a version.
        program[at + 4] = 4;
        is_refused(&program, 1);
    });
}
