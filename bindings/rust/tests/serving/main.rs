//! Native applets in Rust under a host without a jail. The applet is this test program once more:
//! it runs `applets::run` when its environment says so.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod applets;
#[path = "../host/mod.rs"]
mod host;

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use holdfast_channel::protocol::HostMessage;
use holdfast_channel::{ChannelError, Handle, Header, Layout};
use holdfast_types::RequestStatus;
use host::{Answer, Host, Image};

/// The names of the applets.
const KIND: &str = "HOLDFAST_TEST_APPLET";

/// This is the applet, and no test: in the test it does nothing.
#[test]
fn the_applet_of_these_tests() {
    if let Some(kind) = std::env::var_os(KIND) {
        applets::run(kind.to_str().unwrap());
        // Not the way of a test: its harness has threads.
        std::process::exit(0);
    }
}

fn applet(kind: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "the_applet_of_these_tests", "--nocapture"]).env(KIND, kind);
    command.stdout(Stdio::null());
    command
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().unwrap())
}

fn failure(code: i32, text: &str) -> Answer {
    Answer::Failure { code, text: text.to_owned() }
}

/// Guarantee: applets/results
/// Guarantee: applets/streams
#[test]
fn a_native_applet_serves_calls_of_any_size() {
    let mut host = Host::serving(applet("messages"), None);
    assert_eq!(host.names[..3], ["echo", "nothing", "fail"]);
    assert_eq!(host.call("nothing", b"in vain"), b"");
    // Around what fits into a record and into the ring, and far more.
    let sizes =
        [0, 1, 7, 8, 100, 131_023, 131_024, 131_025, 262_144, 262_145, 3_000_001, 40_000_000];
    for bytes in sizes {
        let input: Vec<u8> = (0..bytes).map(|index| (index % 251) as u8).collect();
        assert!(host.call("echo", &input) == input, "{bytes} bytes");
    }
    for count in 1..=1000 {
        assert_eq!(number(&host.call("captured", b"")), count);
    }
    assert_eq!(host.call("twice", b""), b"first");
    host.end();
}

/// A failed call has its code and text, and the applet continues.
///
/// Guarantee: applets/results
/// Guarantee: applets/streams
#[test]
fn failed_call_has_code_and_text() {
    let mut host = Host::serving(applet("messages"), None);
    assert_eq!(host.try_call("fail", b"abc"), Ok(failure(7, "3 bytes are no good")));
    assert_eq!(host.try_call("error", b""), Ok(failure(1, "it did not work")));
    assert_eq!(host.try_call("late failure", b""), Ok(failure(1, "it broke later")));
    assert_eq!(host.chunks, [b"one"]);
    // Larger than what an applet takes: nothing of it is run.
    let refused = host.try_call("echo", &vec![0; (64 << 20) + 1]).unwrap();
    let Answer::Failure { code: holdfast_guest::CODE_NOT_RUN, text } = refused else {
        panic!("{refused:?}")
    };
    assert!(text.contains("shared buffer"), "{text}");
    assert_eq!(host.call("echo", b"still here"), b"still here");
    host.end();
}

/// Guarantee: applets/results
/// Guarantee: applets/streams
#[test]
fn a_stream_longer_than_the_ring_arrives_in_order() {
    let mut host = Host::serving(applet("messages"), None);
    assert_eq!(host.call("stream", &100_000_u32.to_le_bytes()), b"");
    assert!(
        host.chunks
            .iter()
            .enumerate()
            .all(|(index, chunk)| chunk[..] == (index as u32).to_le_bytes())
    );
    assert_eq!(host.chunks.len(), 100_000);
    host.end();
}

/// A cancelled call notices the cancellation, and the next call is not cancelled.
///
/// Guarantee: applets/cancel
#[test]
fn cancelled_call_leaves_the_next_one_alone() {
    let mut host = Host::serving(applet("messages"), None);
    for _ in 0..3 {
        let call = host.begin("wait", b"", Handle::default());
        // It is under way.
        let (_, chunk) = host.receive().unwrap();
        assert_eq!(chunk, b"waiting");
        host.send(HostMessage::Cancel { call }.into(), b"").unwrap();
        assert_eq!(host.finish(call), Ok(failure(9, "cancelled")));
        // Too late: nothing waits for it.
        host.send(HostMessage::Cancel { call }.into(), b"").unwrap();
        assert_eq!(host.call("is cancelled", b""), [0]);
    }
    host.end();
}

#[test]
fn a_shared_buffer_is_worked_on_in_place() {
    let mut host = Host::serving(applet("messages"), None);
    assert_eq!(host.try_call("reverse", b""), Ok(failure(2, "there is no buffer")));
    let small = host.memory.buffer(10).unwrap();
    let buffer = host.memory.buffer(1_000_000).unwrap();
    let bytes: Vec<u8> = (0..1_000_000).map(|index| (index % 253) as u8).collect();
    buffer.copy_in(0, &bytes).unwrap();
    small.copy_in(0, b"untouched!").unwrap();
    let call = host.begin("reverse", b"", buffer.handle());
    assert_eq!(host.finish(call), Ok(Answer::Result(Vec::new())));
    let mut back = vec![0; bytes.len()];
    buffer.copy_out(0, &mut back).unwrap();
    assert!(back.iter().eq(bytes.iter().rev()));
    let mut untouched = [0; 10];
    small.copy_out(0, &mut untouched).unwrap();
    assert_eq!(&untouched, b"untouched!");
    host.end();
}

/// Guarantee: applets/panics
#[test]
fn a_function_that_panics_ends_the_applet() {
    let mut command = applet("messages");
    command.stderr(Stdio::null());
    let mut host = Host::serving(command, None);
    assert_eq!(host.try_call("panic", b""), Err(ChannelError::PeerGone));
    assert_eq!(host.wait().signal(), Some(libc::SIGABRT));
}

/// The applet distinguishes a host that breaks the protocol from one that ends the calls.
#[test]
fn protocol_breach_differs_from_a_regular_end() {
    let buffer = Handle { offset: 1 << 40, bytes: 10 };
    for message in [
        HostMessage::Call { call: 1, index: 999, buffer: Handle::default(), time_ns: 0 },
        HostMessage::Call { call: 1, index: 0, buffer, time_ns: 0 },
        HostMessage::Reply { status: RequestStatus::Ok, value: 0 },
    ] {
        let mut command = applet("messages");
        command.stderr(Stdio::null());
        let mut host = Host::serving(command, None);
        host.send(message.into(), b"").unwrap();
        assert_eq!(host.wait().code(), Some(101), "serve returned an error: {message:?}");
    }
}

/// The heap of a native applet is there again in the next process.
///
/// Guarantee: applets/native-heap
#[test]
fn native_heap_is_there_in_the_next_process() {
    let mut image = Image::new(64 << 20);
    for run in 0..3 {
        let mut host = Host::serving(applet("heap"), Some(image));
        for count in 1..=10 {
            assert_eq!(number(&host.call("count", b"")), run * 10 + count);
        }
        image = host.end().unwrap();
        image.region.is_new = false;
        image.assert_sound();
    }
    // Killed, it loses nothing either.
    let mut host = Host::serving(applet("heap"), Some(image));
    assert_eq!(number(&host.call("count", b"")), 31);
    host.signal(libc::SIGKILL);
    assert_eq!(host.wait().signal(), Some(libc::SIGKILL));
    let image = host.image.take().unwrap();
    let mut host = Host::serving(applet("heap"), Some(image));
    assert_eq!(number(&host.call("read", b"")), 31);
    host.end();
}

/// A transaction that a failed call leaves open is rolled back before the host learns of the
/// failure.
///
/// Guarantee: applets/heap-after-death
#[test]
fn failed_call_is_rolled_back_before_its_report() {
    let mut host = Host::serving(applet("heap"), Some(Image::new(64 << 20)));
    assert_eq!(number(&host.call("count", b"")), 1);
    for _ in 0..3 {
        assert_eq!(host.try_call("count and fail", b""), Ok(failure(3, "left open")));
        let image = host.image.as_ref().unwrap();
        // At this moment, seen from outside.
        image.assert_sound();
        assert_eq!(number(&host.call("read", b"")), 1);
        assert_eq!(host.call("names", b""), b"counter");
    }
    host.end();
}

/// Guarantee: applets/native-heap
#[test]
fn a_heap_grows_by_a_message_up_to_its_limit() {
    let mut host = Host::serving(applet("heap"), Some(Image::new(64 << 20)));
    for _ in 0..10 {
        host.call("allocate", &3_000_000_u64.to_le_bytes());
    }
    assert!(host.grown > 0);
    let refused = host.try_call("allocate", &50_000_000_u64.to_le_bytes()).unwrap();
    let Answer::Failure { code: 1, text } = refused else { panic!("{refused:?}") };
    assert!(text.contains("limit"), "{text}");
    host.call("allocate", &100_u64.to_le_bytes());
    host.end().unwrap().assert_sound();
}

/// The applet asks the host only for commits that need work of the host.
#[test]
fn costly_commits_are_requested_from_the_host() {
    let mut host = Host::serving(applet("heap"), Some(Image::new(64 << 20)));
    host.call("commit", b"process");
    host.call("commit", b"power");
    assert!(matches!(host.try_call("commit", b"system"), Ok(Answer::Failure { code: 1, .. })));
    assert_eq!(host.commits, [2, 1]);
    let mut image = host.end().unwrap();
    image.region.is_atomic = true;
    let mut host = Host::serving(applet("heap"), Some(image));
    host.call("commit", b"process");
    assert_eq!(host.commits, [0]);
    host.end();
}

/// Guarantee: applets/native-heap
/// Guarantee: applets/read-only-heap
#[test]
fn a_heap_that_may_only_be_read_is_mapped_so() {
    let mut host = Host::serving(applet("heap"), Some(Image::new(64 << 20)));
    host.call("count", b"");
    let mut image = host.end().unwrap();
    image.region.is_read_only = true;
    let before = image.bytes();
    let mut host = Host::serving(applet("heap"), Some(image));
    assert_eq!(number(&host.call("read", b"")), 1);
    let refused = host.try_call("allocate", &5_u64.to_le_bytes()).unwrap();
    assert!(
        matches!(&refused, Answer::Failure { text, .. } if text.contains("only be read")),
        "{refused:?}"
    );
    assert_eq!(host.try_call("store", b""), Err(ChannelError::PeerGone));
    assert_eq!(host.wait().signal(), Some(libc::SIGSEGV));
    assert!(host.image.take().unwrap().bytes() == before);
}

/// In atomic mode, unpublished stores are discarded and the heap remains usable.
///
/// Guarantee: applets/heap-after-death
#[test]
fn atomic_mode_forgets_unpublished_calls() {
    let mut image = Image::new(64 << 20);
    image.region.is_atomic = true;
    let mut host = Host::serving(applet("heap"), Some(image));
    host.call("count", b"");
    host.call("churn", b"kept");
    let nothing = host.image.as_ref().unwrap().bytes();
    assert!(nothing.iter().all(|byte| *byte == 0), "nothing counts yet");
    host.publish();
    host.forget = true;
    assert_eq!(number(&host.call("count", b"")), 2);
    let mut names = "counter,kept".to_owned();
    for round in 0..5 {
        // Given up, after it has changed what the applet remembers of its slabs.
        host.call("churn", b"given up");
        assert!(matches!(
            host.try_call("count and fail", b""),
            Ok(Answer::Failure { code: 3, .. })
        ));
        host.forget = true;
        assert_eq!(number(&host.call("read", b"")), 1, "that of the last publication");
        assert_eq!(host.call("names", b""), names.as_bytes());
        // What is allocated now must be sound over what is there now.
        host.call("churn", format!("round {round}").as_bytes());
        host.publish();
        host.image.as_ref().unwrap().assert_sound();
        names += &format!(",round {round}");
        assert_eq!(host.call("names", b""), names.as_bytes());
        host.forget = true;
    }
    host.end();
}

/// A region whose address is in use is not mapped, and the existing mapping stays.
///
/// Guarantee: heap/persist
/// Guarantee: heap/reset-ordered
/// Guarantee: sandbox/descriptors
/// Guarantee: applets/native-heap
/// Guarantee: applets/read-only-heap
#[test]
fn region_at_a_taken_address_is_not_mapped() {
    // With `MAP_SYNC` the kernel does not know the flag that refuses a place that is taken.
    for is_synchronous in [false, true] {
        let mut image = Image::new(64 << 20);
        (image.region.is_ordered, image.region.is_synchronous) = (is_synchronous, is_synchronous);
        let mut host = Host::serving(applet("taken"), Some(image));
        assert_eq!(host.call("echo", b"without a heap"), b"without a heap");
        host.end();
    }
}

/// A program that does not serve uses its heap and seals itself.
///
/// Guarantee: applets/run-or-call
#[test]
fn program_that_does_not_serve_uses_its_heap() {
    let mut host = Host::start(applet("loader"), Layout::default(), Some(Image::new(32 << 20)));
    assert_eq!(host.listen(), Err(ChannelError::PeerGone));
    assert!(host.wait().success() && host.sealed && host.grown > 0);
    assert_eq!(host.commits, [2]);
    host.image.take().unwrap().assert_sound();
}

/// Threads of an applet in Rust have compartments, by guards.
///
/// Guarantee: applets/compartments
/// Guarantee: applets/compartments-end
#[test]
fn threads_enter_compartments() {
    let parts = [Image::compartment(1), Image::compartment(2)];
    let image = Some(Image::new(32 << 20));
    let mut host = Host::start_with(applet("compartments"), Layout::default(), image, &parts);
    assert_eq!(host.listen(), Err(ChannelError::PeerGone));
    assert!(host.wait().success());
    host.image.take().unwrap().assert_sound();
    parts[1].1.assert_sound();
}

/// A region that is a compartment and the first heap has one `Heap` at a time.
///
/// Guarantee: applets/compartments
#[test]
fn a_compartment_is_opened_once() {
    let mut image = Image::new(32 << 20);
    image.region.is_compartment = true;
    let mut host = Host::start(applet("first compartment"), Layout::default(), Some(image));
    assert_eq!(host.listen(), Err(ChannelError::PeerGone));
    assert!(host.wait().success());
}

/// A program that no host started prints that it must be run by one.
///
/// Guarantee: applets/run-or-call
#[test]
fn program_without_a_host_says_so() {
    // With nothing at the descriptor, with something that is no channel, and with a file that is
    // too short for one.
    for redirection in ["3<&-", "3</dev/null", "3<\"$0\"", "3<\"$1\""] {
        let short = tempfile::NamedTempFile::new().unwrap();
        let inner = applet("alone");
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!(
            "exec \"$0\" --exact the_applet_of_these_tests --nocapture {redirection}"
        ));
        command.arg(inner.get_program()).arg(short.path()).env(KIND, "alone");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{redirection}: {output:?}");
    }
}

#[test]
fn a_small_call_takes_microseconds() {
    let mut host = Host::serving(applet("messages"), None);
    let header = |call| HostMessage::Call { call, index: 0, buffer: Handle::default(), time_ns: 0 };
    let mut best = Duration::MAX;
    for round in 0..20 {
        for call in 0..100 {
            let started = Instant::now();
            host.send(Header::from(header(round * 100 + call)), b"12345678").unwrap();
            assert_eq!(host.receive().unwrap().1, b"12345678");
            best = best.min(started.elapsed());
        }
    }
    println!("a call and its answer: {best:?}");
    // A hundred times what it takes on a quiet machine.
    assert!(best < Duration::from_millis(1), "{best:?}");
    host.end();
}

/// A heap orders its stores only where the host asks for it.
///
/// Guarantee: applets/languages
/// Guarantee: heap/order-promises
#[test]
fn heap_orders_stores_only_on_request() {
    let mut image = Image::new(64 << 20);
    for (is_ordered, is_atomic) in [(true, false), (false, false), (true, true)] {
        (image.region.is_ordered, image.region.is_atomic) = (is_ordered, is_atomic);
        let mut host = Host::serving(applet("heap"), Some(image));
        host.call("count", b"");
        assert_eq!(host.call("persist", b""), [u8::from(is_ordered && !is_atomic)]);
        image = host.end().unwrap();
        image.assert_sound();
        image.region.is_new = false;
    }
}

/// A heap that cannot be mapped with `MAP_SYNC` is refused and not mapped without it.
///
/// Guarantee: heap/persist
/// Guarantee: heap/reset-ordered
/// Guarantee: sandbox/descriptors
#[test]
fn heap_without_sync_mapping_is_refused() {
    let mut image = Image::new(64 << 20);
    (image.region.is_ordered, image.region.is_synchronous) = (true, true);
    let before = image.bytes();
    let mut host = Host::serving(applet("synchronous"), Some(image));
    assert_eq!(host.call("echo", b"it serves on"), b"it serves on");
    assert!(host.end().unwrap().bytes() == before);
}
