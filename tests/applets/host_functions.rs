//! Functions of the host that an applet calls: what is granted and nothing else, bounded in size,
//! time and depth, and whatever a function does, host and applet go on.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use holdfast_applet::{
    Applet, CallError, Command, Failure, Grants, HostCall, HostFunction, HostFunctionError,
    HostFunctionsError, Limits, Pool, Stdio,
};

use crate::{Home, death, with_each};

/// `NV_TOO_LARGE` and so on: what the applet was told.
const TOO_LARGE: i32 = 30;
const NO_FUNCTION: i32 = 42;
const HOST_FUNCTION: i32 = 43;

const MESSAGE_BYTES_MAX: usize = 64 << 20;

fn double(_: &HostCall<'_>, input: &[u8]) -> Result<Vec<u8>, HostFunctionError> {
    Ok([input, input].concat())
}

fn start(path: &Path, grants: Grants) -> Applet {
    Command::new(path, grants).stdio(Stdio::capture(64 << 10)).spawn().unwrap()
}

/// Has the applet call a function of its host.
fn ask(applet: &Applet, function: &str, input: &[u8]) -> Result<Vec<u8>, CallError> {
    applet.call("ask_host", &[function.as_bytes(), b"\0", input].concat())
}

/// The code that the applet got, and the words.
fn refused(applet: &Applet, function: &str, input: &[u8]) -> (i32, String) {
    match ask(applet, function, input) {
        Err(CallError::Failed { code, message }) => (code, message),
        other => panic!("{other:?}"),
    }
}

/// Bytes go to the function and back, whatever their number, and the applet may call again and
/// again.
///
/// Guarantee: applets/host-functions
#[test]
fn granted_functions_take_and_return_bytes() {
    with_each(|_, path| {
        let grants = Grants::none()
            .function("double", double)
            .function("name", |call: &HostCall<'_>, _: &[u8]| Ok(call.function.into()));
        let applet = start(&path, grants);
        for size in [0, 1, 5, 48, 4095, 4096, 65_536, 300_000, 3 << 20] {
            let input: Vec<u8> = (0..size).map(|at: usize| at as u8).collect();
            assert!(
                ask(&applet, "double", &input).unwrap() == [&input[..], &input].concat(),
                "{size}"
            );
        }
        assert_eq!(ask(&applet, "name", b"").unwrap(), b"name");
        applet.call("ask_host_wrongly", b"").unwrap();
        assert_eq!(applet.call("echo", b"as before").unwrap(), b"as before");
    });
}

/// What is not granted cannot be called, and each applet has its own grants.
///
/// Guarantee: applets/host-functions
#[test]
fn only_granted_functions_can_be_called() {
    with_each(|_, path| {
        let none = start(&path, Grants::none());
        let one = start(&path, Grants::none().function("double", double));
        for name in ["double", "", "doubl", "double2"] {
            assert_eq!(refused(&none, name, b"").0, NO_FUNCTION, "{name:?}");
            if name != "double" {
                assert_eq!(refused(&one, name, b"").0, NO_FUNCTION, "{name:?}");
            }
        }
        let long = "x".repeat(200);
        assert_eq!(refused(&one, &long, b"").0, NO_FUNCTION);
        assert_eq!(ask(&one, "double", b"a").unwrap(), b"aa");
    });
}

/// A function that fails, panics, hangs or returns too much costs the applet an error, and the
/// host nothing.
///
/// Guarantee: applets/host-functions
#[test]
fn faults_of_functions_are_errors_of_the_call() {
    with_each(|_, path| {
        let fail =
            |_: &HostCall<'_>, _: &[u8]| Err(HostFunctionError::new(-7, "not \u{1b}[31m today"));
        let panic = |_: &HostCall<'_>, _: &[u8]| panic!("as it was asked to");
        let hang = |_: &HostCall<'_>, _: &[u8]| {
            std::thread::sleep(Duration::from_secs(3));
            Ok(Vec::new())
        };
        let endless = |_: &HostCall<'_>, _: &[u8]| Ok(vec![0; MESSAGE_BYTES_MAX + 1]);
        let small = HostFunction::new(double).input_bytes_max(8).result_bytes_max(12);
        let grants = Grants::none()
            .function("fail", fail)
            .function("panic", panic)
            .function("hang", HostFunction::new(hang).timeout(Duration::from_millis(50)))
            .function("endless", endless)
            .function("small", small)
            .function("double", double);
        let applet = start(&path, grants);
        for (name, input, code, words) in [
            ("fail", &b""[..], HOST_FUNCTION, "-7: not"),
            ("panic", b"", HOST_FUNCTION, "0: the host function \"panic\" panicked"),
            ("hang", b"", HOST_FUNCTION, "did not return within 50ms"),
            ("endless", b"", TOO_LARGE, "has 67108865 bytes"),
            ("small", b"123456789", TOO_LARGE, "takes 8 bytes"),
            ("small", b"1234567", TOO_LARGE, "has 14 bytes, more than 12"),
        ] {
            let (found, message) = refused(&applet, name, input);
            assert_eq!(found, code, "{name}: {message}");
            assert!(message.contains(words), "{name}: {message}");
            assert_eq!(ask(&applet, "double", b"on").unwrap(), b"onon", "after {name}");
        }
    });
}

/// A function may be a future: it uses the runtime of the thread that called the applet, and is
/// dropped when its time is over.
///
/// Guarantee: applets/host-functions
#[test]
fn asynchronous_functions_use_the_callers_runtime() {
    struct Dropped(Arc<AtomicUsize>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    with_each(|_, path| {
        let dropped = Arc::new(AtomicUsize::new(0));
        let guards = dropped.clone();
        let wait = HostFunction::asynchronous(|input| async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            Ok(input)
        });
        let hang = HostFunction::asynchronous(move |_| {
            let guard = Dropped(guards.clone());
            async move {
                let _guard = guard;
                tokio::time::sleep(Duration::from_secs(3600)).await;
                Ok(Vec::new())
            }
        });
        let fail = HostFunction::asynchronous(async |_| Err(HostFunctionError::new(7, "no")));
        let grants = Grants::none()
            .function("wait", wait)
            .function("hang", hang.timeout(Duration::from_millis(50)))
            .function("fail", fail);
        let applet = start(&path, grants);
        let calls = move || {
            assert_eq!(ask(&applet, "wait", b"ab").unwrap(), b"ab");
            assert!(refused(&applet, "hang", b"").1.contains("did not return within 50ms"));
            assert!(refused(&applet, "fail", b"").1.contains("7: no"));
            assert_eq!(ask(&applet, "wait", b"on").unwrap(), b"on");
        };
        runtime.block_on(async { tokio::task::spawn_blocking(calls).await.unwrap() });
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
    });
}

/// A call's time is also that of the functions which it calls.
///
/// Guarantee: applets/host-functions
#[test]
fn slow_function_counts_against_the_call() {
    with_each(|_, path| {
        let slow = |_: &HostCall<'_>, _: &[u8]| {
            std::thread::sleep(Duration::from_millis(300));
            Ok(Vec::new())
        };
        let mut limits = Limits::default();
        limits.call_timeout = Some(Duration::from_millis(100));
        let grants = Grants::none().function("slow", slow);
        let applet = Applet::spawn(path, limits, grants).unwrap();
        let death = death(ask(&applet, "slow", b""));
        assert!(death.to_string().contains("100ms"), "{death}");
    });
}

/// A function that calls its applet is refused instead of waiting for itself, and one that calls
/// another applet is not.
///
/// Guarantee: applets/host-functions
#[test]
fn function_cannot_call_back_into_its_applet() {
    with_each(|_, path| {
        let own: Arc<OnceLock<Applet>> = Arc::default();
        let other = Arc::new(start(&path, Grants::none()));
        let (inner, seen) = (own.clone(), Arc::new(Mutex::new(Vec::new())));
        let seen_inside = seen.clone();
        let back = move |_: &HostCall<'_>, input: &[u8]| {
            let applet = inner.get().unwrap();
            let answers = [applet.call("echo", input).is_err(), applet.respawn().is_err()];
            let is_busy = matches!(applet.call("echo", input), Err(CallError::Busy));
            seen_inside.lock().unwrap().push((answers, is_busy, applet.functions().len()));
            Ok(other.call("echo", input).unwrap())
        };
        let aside = back.clone();
        let grants = Grants::none()
            .function("back", back)
            .function("aside", HostFunction::new(aside).timeout(Duration::from_secs(20)));
        assert!(own.set(start(&path, grants)).is_ok());
        let applet = own.get().unwrap();
        for function in ["back", "aside"] {
            assert_eq!(ask(applet, function, b"other").unwrap(), b"other", "{function}");
        }
        assert_eq!(*seen.lock().unwrap(), [([true, true], true, 0); 2]);
        assert_eq!(applet.call("echo", b"on").unwrap(), b"on");
    });
}

/// Nor can it by the way of another applet, whatever threads are on it: that would wait for itself.
///
/// Guarantee: applets/host-functions
#[test]
fn function_cannot_come_back_by_another_applet() {
    with_each(|_, path| {
        let first: Arc<OnceLock<Applet>> = Arc::default();
        let inner = first.clone();
        let back = HostFunction::new(move |_, input| {
            let is_busy = matches!(inner.get().unwrap().call("echo", input), Err(CallError::Busy));
            Ok(vec![u8::from(is_busy)])
        });
        let grants = Grants::none()
            .function("back", back.clone())
            .function("aside", back.timeout(Duration::from_secs(20)));
        let second = start(&path, grants);
        let around = move |_: &HostCall<'_>, name: &[u8]| {
            ask(&second, str::from_utf8(name).unwrap(), b"x")
                .map_err(|error| HostFunctionError::new(1, error.to_string()))
        };
        assert!(first.set(start(&path, Grants::none().function("around", around))).is_ok());
        let applet = first.get().unwrap();
        for name in ["back", "aside"] {
            assert_eq!(ask(applet, "around", name.as_bytes()).unwrap(), [1], "{name}");
        }
    });
}

/// A function has the stack and the asynchronous runtime of the thread that called the applet, and
/// not what the applet has left of its own.
///
/// Guarantee: applets/host-functions
#[test]
fn function_runs_on_its_callers_stack() {
    fn recurse(depth: usize) -> usize {
        let frame = std::hint::black_box([1_u8; 4096]);
        if depth == 0 { frame.len() } else { recurse(depth - 1) + usize::from(frame[depth % 4096]) }
    }
    with_each(|_, path| {
        let deep = |_: &HostCall<'_>, _: &[u8]| {
            let is_outside = tokio::runtime::Handle::try_current().is_err();
            Ok(vec![u8::from(recurse(1500) > 4096), u8::from(is_outside)])
        };
        let applet = start(&path, Grants::none().function("deep", deep));
        let call = move || ask(&applet, "deep", b"").unwrap();
        let thread = std::thread::Builder::new().stack_size(32 << 20).spawn(call).unwrap();
        assert_eq!(thread.join().unwrap(), [1, 1]);
    });
}

/// The limit of results is none of what an applet passes to its host's functions.
///
/// Guarantee: applets/host-functions
#[test]
fn inputs_of_functions_have_their_own_limit() {
    with_each(|_, path| {
        let mut limits = Limits::default();
        limits.result_bytes = 64 << 10;
        let count = |_: &HostCall<'_>, input: &[u8]| Ok(input.len().to_le_bytes().to_vec());
        let grants = Grants::none()
            .function("count", count)
            .function("small", HostFunction::new(count).input_bytes_max(1 << 20));
        let applet = Applet::spawn(&path, limits, grants).unwrap();
        for bytes in [300_000, 5 << 20] {
            let counted = ask(&applet, "count", &vec![7; bytes]).unwrap();
            assert_eq!(counted, bytes.to_le_bytes());
        }
        assert_eq!(refused(&applet, "small", &[7; 2 << 20]).0, TOO_LARGE);
        assert_eq!(ask(&applet, "count", b"on").unwrap(), 2_usize.to_le_bytes());
    });
}

/// A heap with an open transaction is held while the host's function runs: nothing sees or changes
/// it, and the transaction goes on.
///
/// Guarantee: applets/host-functions
#[test]
fn open_transaction_survives_a_host_function() {
    with_each(|_, path| {
        let home = Home::new();
        let names = home.names();
        let held = Arc::new(AtomicUsize::new(0));
        let counted = held.clone();
        let peek = move |_: &HostCall<'_>, _: &[u8]| {
            let key = holdfast_region::OwnerKey::from_bytes([5; 32]);
            let name = holdfast_region::RegionName::parse("numbers").unwrap();
            if names.open(&name, &key).is_err() {
                counted.fetch_add(1, Ordering::Relaxed);
            }
            Ok(Vec::new())
        };
        let grants = Grants::none().heap(home.region()).function("peek", peek);
        let applet = start(&path, grants);
        for round in 1..=3u64 {
            let found = applet.call("ask_host_in_transaction", b"").unwrap();
            assert_eq!(found, round.to_le_bytes());
        }
        assert_eq!(held.load(Ordering::Relaxed), 3);
        let look = applet.call("look", b"").unwrap();
        assert_eq!(look, 3u64.to_le_bytes());
    });
}

/// Programs that run to their end, pools and restarted applets have their functions, too.
///
/// Guarantee: applets/host-functions
#[test]
fn functions_are_there_in_runs_pools_and_restarts() {
    with_each(|_, path| {
        let home = Home::new();
        let grants = Grants::none().heap(home.region()).function("double", double).arg("--ask");
        let outcome = Command::new(&path, grants).stdio(Stdio::capture(1 << 10)).run().unwrap();
        assert_eq!(String::from_utf8_lossy(&outcome.stdout), "0 runrun\n");
        drop(outcome);
        let command = {
            let path: PathBuf = path.clone();
            move || Ok(Command::new(&path, Grants::none().function("double", double)))
        };
        let pool = Pool::new(2, true, command).unwrap();
        let (one, two) = (pool.take().unwrap(), pool.take().unwrap());
        assert_eq!(ask(&one, "double", b"1").unwrap(), b"11");
        assert_eq!(ask(&two, "double", b"2").unwrap(), b"22");
        let applet = start(&path, Grants::none().function("double", double));
        death(applet.call("crash", b""));
        applet.respawn().unwrap();
        assert_eq!(ask(&applet, "double", b"3").unwrap(), b"33");
    });
}

#[test]
fn impossible_grants_of_functions_are_refused() {
    with_each(|_, path| {
        let grants = Grants::none().function("a", double).function("a", double);
        let Err(error) = Command::new(&path, grants).spawn() else { panic!("it started") };
        let is_right = matches!(
            &error.failure,
            Failure::HostFunctions(HostFunctionsError::SameName { .. })
                | Failure::Wasm(holdfast_applet::WasmError::HostFunctions(_))
        );
        assert!(is_right, "{error}");
    });
}
