//! Compartments for the threads of an applet: each is one thread's, is never merged with another,
//! and is full for itself. In WebAssembly there is one for each applet.

use std::path::{Path, PathBuf};
use std::time::Duration;

use holdfast_applet::{
    Applet, CallError, Command, Grants, Limits, Pool, Recovery, SandboxKind, Stdio, thread_name,
};
use holdfast_region::{Consistency, NameSpace, OwnerKey, Region, RegionName};
use holdfast_testkit::{Soundness, applet_file, heap_soundness};

use crate::{Home, MIB, death};

/// `NV_NOT_GRANTED` and so on.
const NOT_GRANTED: u64 = 1;
const LIMIT_REACHED: u64 = 2;
const UNSUPPORTED: u64 = 4;
const NOT_ALLOCATED: u8 = 6;
const NO_SUCH_ROOT: u8 = 10;
const BAD_RANGE: u8 = 12;
const IN_TRANSACTION: u8 = 14;
const HELD: u64 = 15;
const IS_OPEN: u8 = 18;
const OTHER_HEAP: u8 = 41;

const QUOTA_BYTES: u64 = 2 * MIB;

/// The applet in its native forms.
fn native_forms() -> [PathBuf; 2] {
    ["compartments", "compartments-static"].map(|name| applet_file(name).unwrap())
}

/// Does the same with each form, and as many compartments as it can have, at most four.
fn with_each(test: impl Fn(PathBuf, u32)) {
    let wasm = applet_file("compartments.wasm").unwrap();
    for (path, count) in native_forms().into_iter().map(|path| (path, 4)).chain([(wasm, 1)]) {
        eprintln!("{}", path.display());
        test(path, count);
    }
}

fn name(text: &str) -> RegionName {
    RegionName::parse(text).unwrap()
}

fn key() -> OwnerKey {
    OwnerKey::from_bytes([5; 32])
}

fn parent(names: &NameSpace) -> Region {
    names.open_or_create(&name("jobs"), &key(), 64 * MIB).unwrap()
}

/// The heap `jobs`, and so many compartments of it.
fn grants(home: &Home, count: u32) -> Grants {
    let names = home.names();
    let grants = Grants::none().heap(parent(&names));
    grants.compartments(&names, &name("jobs"), &key(), count, QUOTA_BYTES).unwrap()
}

fn start(path: &Path, grants: Grants) -> Applet {
    Command::new(path, grants).stdio(Stdio::capture(64 << 10)).spawn().unwrap()
}

fn ask(applet: &Applet, function: &str, input: &str) -> Result<u64, CallError> {
    let result = applet.call(function, input.as_bytes())?;
    Ok(u64::from_le_bytes(result.try_into().unwrap()))
}

fn thread_names(count: u32) -> Vec<String> {
    (1..=count).map(|number| thread_name(number).unwrap().to_string()).collect()
}

fn assert_sound(home: &Home, count: u32) {
    for thread in thread_names(count) {
        let soundness = heap_soundness(&home.names(), &format!("jobs+{thread}")).unwrap();
        assert!(matches!(soundness, Soundness::Sound { .. }), "{thread}: {soundness:?}");
    }
}

/// What threads do without naming a heap goes to the compartment that each has entered, or to the
/// heap that was granted first; it is there in the next run, under either name.
///
/// Guarantee: applets/compartments
#[test]
fn each_thread_works_in_its_own() {
    with_each(|path, count| {
        let home = Home::new();
        let all = thread_names(count);
        let applet = start(&path, grants(&home, count));
        assert_eq!(ask(&applet, "add", &all.join(" ")).unwrap(), 0);
        applet.call("add_outside", b"").unwrap();
        assert_eq!(ask(&applet, "add", &all[0]).unwrap(), 0);
        assert_eq!(ask(&applet, "look_outside", "").unwrap(), 1);
        applet.close().unwrap();
        let applet = start(&path, grants(&home, count));
        for (at, thread) in all.iter().enumerate() {
            let expected = if at == 0 { 200 } else { 100 };
            assert_eq!(ask(&applet, "look", thread).unwrap(), expected, "{thread}");
            assert_eq!(ask(&applet, "look", &format!("jobs+{thread}")).unwrap(), expected);
        }
        assert_eq!(ask(&applet, "look_outside", "").unwrap(), 1);
        applet.close().unwrap();
        assert_sound(&home, count);
    });
}

/// What is not granted, and the heap itself, cannot be entered; where only heaps are granted,
/// nothing can.
///
/// Guarantee: applets/compartments
#[test]
fn only_granted_compartments_are_entered() {
    with_each(|path, count| {
        let home = Home::new();
        let applet = start(&path, grants(&home, count));
        // The last one is the empty name, which is none, and not any.
        let unknown =
            ["jobs", "thread-9", "jobs+thread-9", "thread", "+thread-1", "x+thread-1", "-"];
        for unknown in unknown {
            assert_eq!(ask(&applet, "enter_error", unknown).unwrap(), NOT_GRANTED, "{unknown}");
        }
        assert_eq!(ask(&applet, "enter_error", "thread-1").unwrap(), 0);
        applet.close().unwrap();
        let applet = start(&path, Grants::none().heap(parent(&home.names())));
        assert_eq!(ask(&applet, "enter_error", "thread-1").unwrap(), NOT_GRANTED);
        applet.close().unwrap();
    });
}

/// A thread has one compartment at a time, enters none with an open transaction, and has a
/// transaction in it or outside; what it leaves open is rolled back.
///
/// Guarantee: applets/compartments
/// Guarantee: applets/one-heap-transactions
#[test]
fn a_thread_is_in_one_at_a_time() {
    with_each(|path, count| {
        let home = Home::new();
        let applet = start(&path, grants(&home, count));
        let codes = applet.call("misuse", b"thread-1").unwrap();
        assert_eq!(codes, [IN_TRANSACTION, IS_OPEN, IS_OPEN, OTHER_HEAP, 0, NO_SUCH_ROOT]);
        applet.close().unwrap();
        assert_sound(&home, 1);
    });
}

/// No operation of one heap reaches an object of another one, in either direction.
///
/// Guarantee: applets/compartments-apart
#[test]
fn compartments_are_never_merged() {
    const REFUSED: [u8; 6] =
        [NOT_ALLOCATED, NOT_ALLOCATED, NOT_ALLOCATED, BAD_RANGE, BAD_RANGE, NO_SUCH_ROOT];
    with_each(|path, count| {
        let home = Home::new();
        let applet = start(&path, grants(&home, count));
        let both_ways = [REFUSED, REFUSED].concat();
        assert_eq!(applet.call("cross", b"thread-1").unwrap(), both_ways);
        if count > 1 {
            assert_eq!(applet.call("cross", b"thread-1 thread-2").unwrap(), both_ways);
            assert_eq!(applet.call("cross", b"thread-4 thread-3").unwrap(), both_ways);
        }
        applet.close().unwrap();
        assert_sound(&home, count);
    });
}

/// A full compartment is an error in that one only.
///
/// Guarantee: applets/compartments-quota
#[test]
fn a_full_compartment_fills_no_other() {
    with_each(|path, count| {
        let home = Home::new();
        let applet = start(&path, grants(&home, count));
        let all = thread_names(count);
        assert_eq!(ask(&applet, "add", &all.join(" ")).unwrap(), 0);
        assert_eq!(ask(&applet, "fill", &all[0]).unwrap(), LIMIT_REACHED);
        if count > 1 {
            assert_eq!(ask(&applet, "add", &all[1..].join(" ")).unwrap(), 0);
        }
        applet.call("add_outside", b"").unwrap();
        assert_eq!(ask(&applet, "look", &all[0]).unwrap(), 100);
        applet.close().unwrap();
        let summary = home.names().summary(&RegionName::parse_any("jobs+thread-1").unwrap());
        assert_eq!(summary.unwrap().limit_bytes, QUOTA_BYTES);
        assert_sound(&home, count);
    });
}

/// What one thread has another one is refused, until the first leaves or ends; what it had open
/// when it ended is rolled back.
///
/// Guarantee: applets/compartments
/// Guarantee: applets/compartments-end
#[test]
fn a_thread_that_ends_leaves() {
    for path in native_forms() {
        let home = Home::new();
        for count in [1, 2] {
            let applet = start(&path, grants(&home, count));
            assert_eq!(ask(&applet, "add", "thread-1").unwrap(), 0);
            let found = applet.call("end_inside", b"thread-1").unwrap();
            let numbers: Vec<_> = found
                .chunks_exact(8)
                .map(|number| u64::from_le_bytes(number.try_into().unwrap()))
                .collect();
            let any = if count == 1 { HELD } else { 0 };
            assert_eq!(numbers, [HELD, any, 0, u64::from(count) * 100]);
            applet.close().unwrap();
        }
        assert_sound(&home, 2);
    }
}

/// Threads have transactions in their compartments at the same time, each for itself.
///
/// Guarantee: applets/compartments
#[test]
fn each_compartment_has_its_own_transaction() {
    for path in native_forms() {
        let home = Home::new();
        let applet = start(&path, grants(&home, 2));
        assert_eq!(ask(&applet, "add", "thread-1 thread-2").unwrap(), 0);
        applet.call("transact", b"thread-1 thread-2").unwrap();
        assert_eq!(ask(&applet, "look", "thread-1").unwrap(), 101);
        assert_eq!(ask(&applet, "look", "thread-2").unwrap(), 100);
        applet.close().unwrap();
        assert_sound(&home, 2);
    }
}

/// In the mode `atomic` the host publishes the stores of all threads together: natively such a
/// compartment is refused; in WebAssembly a failed call stores nothing there.
///
/// Guarantee: applets/compartments
#[test]
fn atomic_compartments_are_for_one_thread() {
    with_each(|path, count| {
        let home = Home::new();
        let names = home.names();
        let heap = parent(&names);
        let worker = name("thread-1");
        let mut own = names.open_compartment(&name("jobs"), &worker, &key(), QUOTA_BYTES).unwrap();
        own.set_consistency(Consistency::Atomic).unwrap();
        let applet = start(&path, Grants::none().heap(heap).heap(own));
        let expected = if count == 1 { 0 } else { UNSUPPORTED };
        assert_eq!(ask(&applet, "enter_error", "thread-1").unwrap(), expected);
        if count == 1 {
            assert_eq!(ask(&applet, "add", "thread-1").unwrap(), 0);
            // What the applet remembers of a compartment that it has left goes, too.
            for _ in 0..3 {
                let failed = applet.call("churn", b"thread-1 fail");
                let Err(CallError::Failed { message, .. }) = failed else { panic!("{failed:?}") };
                assert_eq!(message, "as told");
                assert_eq!(ask(&applet, "look", "thread-1").unwrap(), 100);
                assert_eq!(ask(&applet, "churn", "thread-1").unwrap(), 0);
            }
        }
        applet.close().unwrap();
        if count == 1 {
            assert_sound(&home, 1);
        }
    });
}

/// An applet in WebAssembly has one thread, so it gets one compartment.
///
/// Guarantee: applets/compartments-wasm
#[test]
fn webassembly_has_one_compartment() {
    let home = Home::new();
    let path = applet_file("compartments.wasm").unwrap();
    let Err(error) = Command::new(&path, grants(&home, 2)).spawn() else { panic!("it started") };
    let told = error.to_string();
    assert!(told.contains("2 compartments") && told.contains("one thread"), "{told}");
    drop(error);
    // They are free again.
    drop(grants(&home, 2));
}

/// Each applet of a pool has a compartment of its own, which is its first heap: it may enter it,
/// and no other.
///
/// Guarantee: applets/compartments-wasm
#[test]
fn each_applet_of_a_pool_has_its_own() {
    for (kind, path) in [
        (SandboxKind::Wasm, applet_file("compartments.wasm").unwrap()),
        (SandboxKind::Native, applet_file("compartments").unwrap()),
    ] {
        let home = Home::new();
        parent(&home.names()).close().unwrap();
        let names = home.names();
        let next = std::sync::atomic::AtomicU32::new(1);
        let pool = Pool::new(2, false, move || {
            let number = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let worker = RegionName::parse(&format!("worker-{number}")).unwrap();
            let part = names.open_compartment(&name("jobs"), &worker, &key(), QUOTA_BYTES);
            let grants = Grants::none().heap(part?);
            Ok(Command::new(&path, grants))
        })
        .unwrap();
        let applets: Vec<_> = (0..3).map(|_| pool.take().unwrap()).collect();
        let mut own = Vec::new();
        for (at, applet) in applets.iter().enumerate() {
            let workers = (1..=8).map(|number| format!("worker-{number}"));
            let entered: Vec<_> = workers
                .filter(|worker| ask(applet, "enter_error", worker).unwrap() != NOT_GRANTED)
                .collect();
            let [only] = &entered[..] else { panic!("{kind}: {entered:?}") };
            for _ in 0..=at {
                assert_eq!(ask(applet, "add", only).unwrap(), 0);
            }
            own.push(only.clone());
        }
        own.sort_unstable();
        own.dedup();
        assert_eq!(own.len(), 3, "{kind}");
        for (at, applet) in applets.iter().enumerate() {
            // The compartment is the heap of those that have entered nothing, too.
            assert_eq!(ask(applet, "look_outside", "").unwrap(), 100 * (at as u64 + 1));
        }
    }
}

/// Kills at random while four threads work: each ledger has what was said to count, and at most
/// the entry that was on its way.
///
/// Guarantee: applets/compartments-end
#[test]
fn kills_leave_four_ledgers_whole() {
    for path in native_forms() {
        let home = Home::new();
        let all = thread_names(4);
        let (mut known, mut random) = ([0_u64; 4], 0x9E37_79B9_u64);
        // A loaded machine may take longer to start an applet than some of them live.
        for round in 0..40 {
            if round >= 6 && known.iter().all(|count| *count > 0) {
                break;
            }
            random = random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(11);
            let mut limits = Limits::default();
            limits.timeout = Some(Duration::from_micros(150_000 + (random >> 44) % 150_000));
            let grants = all.iter().fold(grants(&home, 4), |grants, thread| grants.arg(thread));
            let command = Command::new(&path, grants).limits(limits);
            let Err(error) = command.stdio(Stdio::capture(64 << 20)).run() else {
                panic!("it ended by itself")
            };
            for line in String::from_utf8_lossy(&error.stdout).lines() {
                let Some((thread, count)) = line.split_once(' ') else { continue };
                let Some(at) = all.iter().position(|known| known == thread) else { continue };
                let Ok(count) = count.parse() else { continue };
                known[at] = count;
            }
            let applet = start(&path, self::grants(&home, 4));
            for (at, thread) in all.iter().enumerate() {
                let found = ask(&applet, "look", thread).unwrap();
                assert!(
                    (known[at]..=known[at] + 1).contains(&found),
                    "{thread}: {known:?}, {found}"
                );
                known[at] = found;
            }
            applet.close().unwrap();
        }
        assert!(known.iter().all(|count| *count > 0), "{known:?}");
        assert_sound(&home, 4);
    }
}

/// Where the processor has protection keys, a store to a compartment that the thread has not
/// entered ends the applet, with a sentence that names it; where it has none, nothing keeps the
/// store out.
///
/// Guarantee: applets/protection-keys
#[test]
fn keys_keep_strays_out() {
    let are_offered = holdfast_pkeys::is_offered();
    for path in native_forms() {
        let home = Home::new();
        let applet = start(&path, grants(&home, 2));
        assert_eq!(ask(&applet, "add", "thread-1 thread-2").unwrap(), 0);
        if !are_offered {
            applet.call("stray", b"thread-1 thread-2").unwrap();
            continue;
        }
        let error = death(applet.call("stray", b"thread-1 thread-2"));
        let said = String::from_utf8_lossy(&error.stderr).into_owned();
        assert!(said.contains("touched the compartment jobs+thread-1,"), "{said}");
        let told = error.to_string();
        assert!(told.contains("SIGSEGV") && told.contains("\"jobs+thread-1\""), "{told}");
        for heap in error.heaps.iter().filter(|heap| heap.is_compartment) {
            assert!(matches!(heap.recovery, None | Some(Ok(Recovery::InOrder))), "{}", heap.name);
        }
        applet.respawn().unwrap();
        assert_eq!(ask(&applet, "look", "thread-1").unwrap(), 100);
        applet.close().unwrap();
    }
    if !are_offered {
        eprintln!("not run: the processor has no protection keys");
    }
}
