//! Native applets in Rust under a host without a jail. The applet is this test program once more: it runs
//! `applets::run` when its environment says so.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod host;

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use holdfast_channel::protocol::HostMessage;
use holdfast_channel::{ChannelError, Handle, Header, Layout};
use host::{Answer, Host, Image};

/// The names of the applets.
const KIND: &str = "HOLDFAST_TEST_APPLET";

/// What runs in the process that the host has started.
mod applets {
    use core::sync::atomic::{AtomicU64, Ordering};

    use holdfast_guest::{
        AttachError, Call, Durability, Failure, GrowError, Heap, HeapError, attach, commit, export, seal,
        serve, serve_heap,
    };

    pub(super) fn run(kind: &str) {
        match kind {
            "messages" => messages(),
            "heap" => heap(),
            "loader" => loader(),
            "alone" => alone(),
            other => panic!("there is no applet {other}"),
        }
    }

    /// Functions without a heap.
    fn messages() {
        export("echo", |call| Ok(call.reply(call.input())?)).unwrap();
        export("nothing", |_| Ok(())).unwrap();
        export("fail", |call| Err(call.fail(7, format_args!("{} bytes are no good", call.input().len()))))
            .unwrap();
        export("error", |_| Err(std::io::Error::other("it did not work").into())).unwrap();
        export("late failure", |call| {
            call.send(b"one")?;
            call.reply(b"never seen")?;
            Err(Failure::new(-5, "it broke later"))
        })
        .unwrap();
        export("twice", |call| {
            call.reply(b"first")?;
            let refused = call.reply(b"second").unwrap_err();
            assert!(refused.to_string().contains("reply once"), "{refused}");
            Ok(())
        })
        .unwrap();
        export("panic", |_| panic!("as told")).unwrap();
        export("stream", stream).unwrap();
        export("wait", wait).unwrap();
        export("reverse", reverse).unwrap();
        static CALLS: AtomicU64 = AtomicU64::new(0);
        let calls = &CALLS;
        export("captured", move |call| {
            let count = calls.fetch_add(1, Ordering::Relaxed) + 1;
            Ok(call.reply(&count.to_le_bytes())?)
        })
        .unwrap();
        assert_eq!(export("echo", |_| Ok(())), Err(holdfast_guest::ExportError::NameTaken));
        serve().unwrap();
        assert_eq!(export("late", |_| Ok(())), Err(holdfast_guest::ExportError::Serving));
    }

    fn stream(call: &mut Call) -> Result<(), Failure> {
        let count = u32::from_le_bytes(call.input().try_into()?);
        for number in 0..count {
            call.send(&number.to_le_bytes())?;
        }
        Ok(())
    }

    /// Until it is cancelled.
    fn wait(call: &mut Call) -> Result<(), Failure> {
        call.send(b"waiting")?;
        while !call.is_cancelled() {
            std::hint::spin_loop();
        }
        Err(call.fail(9, "cancelled"))
    }

    fn reverse(call: &mut Call) -> Result<(), Failure> {
        let Some(buffer) = call.buffer() else { return Err(call.fail(2, "there is no buffer")) };
        let mut bytes = vec![0; buffer.len()];
        assert_eq!(buffer.read(0, &mut bytes), buffer.len());
        bytes.reverse();
        assert_eq!(buffer.write(0, &bytes), buffer.len());
        assert_eq!((buffer.read(buffer.len(), &mut bytes), buffer.write(usize::MAX, b"x")), (0, 0));
        Ok(())
    }

    fn counter(heap: &mut Heap) -> Result<*mut u64, HeapError> {
        let root = match heap.root("counter") {
            Some(root) => root.pointer,
            None => heap.create_root("counter", 8)?,
        };
        Ok(root.cast().as_ptr())
    }

    fn heap() {
        let heap = attach().unwrap();
        assert_eq!(attach().err(), Some(AttachError::AlreadyAttached));
        export("count", |call| {
            let counter = counter(call.heap()?)?;
            // SAFETY: the root has 8 bytes, and nobody else refers to it.
            let count = unsafe {
                *counter += 1;
                *counter
            };
            Ok(call.reply(&count.to_le_bytes())?)
        })
        .unwrap();
        export("read", |call| {
            let root = call.heap()?.root("counter").ok_or(HeapError::NoSuchRoot)?;
            // SAFETY: as above.
            let count = unsafe { *root.pointer.cast::<u64>().as_ptr() };
            Ok(call.reply(&count.to_le_bytes())?)
        })
        .unwrap();
        export("count and fail", |call| {
            let heap = call.heap()?;
            heap.begin()?;
            let counter = counter(heap)?;
            heap.add_range(counter.cast(), 8)?;
            // SAFETY: as above.
            unsafe { *counter += 100 };
            heap.begin()?;
            heap.create_root("in vain", 100)?;
            Err(call.fail(3, "left open"))
        })
        .unwrap();
        export("names", |call| {
            let mut names: Vec<String> = call.heap()?.roots().map(|(name, _)| name.to_owned()).collect();
            names.sort();
            Ok(call.reply(names.join(",").as_bytes())?)
        })
        .unwrap();
        export("allocate", |call| {
            let bytes = u64::from_le_bytes(call.input().try_into()?);
            let object = call.heap()?.alloc(bytes)?;
            // SAFETY: just allocated with that many bytes.
            unsafe { object.as_ptr().write_bytes(7, bytes as usize) };
            Ok(())
        })
        .unwrap();
        export("churn", |call| {
            // Leaves the heap's volatile memory full of slabs and slots.
            let heap = call.heap()?;
            let objects: Vec<_> = (0..2000).map(|index| heap.alloc(16 + index % 500).unwrap()).collect();
            for object in objects.iter().step_by(2) {
                heap.free(*object)?;
            }
            let name = String::from_utf8(call.input().to_vec())?;
            call.heap()?.create_root(&name, 100)?;
            Ok(())
        })
        .unwrap();
        export("commit", |call| {
            let level = match call.input() {
                b"process" => Durability::Process,
                b"system" => Durability::System,
                _ => Durability::Power,
            };
            Ok(commit(level)?)
        })
        .unwrap();
        export("store", |call| {
            let start =
                call.heap()?.root("counter").ok_or(HeapError::NoSuchRoot)?.pointer.cast::<u64>().as_ptr();
            // SAFETY: as above; where the heap may only be read this ends the program.
            unsafe { start.write_volatile(1) };
            Ok(())
        })
        .unwrap();
        let heap = serve_heap(heap).unwrap();
        assert!(heap.usage().chunk_bytes > 0);
    }

    /// A program that does not serve.
    fn loader() {
        let mut heap = attach().unwrap();
        seal().unwrap();
        let large = heap.create_root("large", 20 << 20).unwrap();
        // SAFETY: the root has this many bytes.
        unsafe { large.as_ptr().write_bytes(1, 20 << 20) };
        let refused = heap.alloc(1 << 40).unwrap_err();
        let limit = matches!(refused, HeapError::OutOfMemory { cause: GrowError::LimitReached { .. }, .. });
        assert!(limit, "{refused}");
        commit(Durability::Power).unwrap();
    }

    /// No host has started it.
    fn alone() {
        assert_eq!(attach().err(), Some(AttachError::NoHost));
        for text in [
            serve().unwrap_err().to_string(),
            seal().unwrap_err().to_string(),
            AttachError::NoHost.to_string(),
        ] {
            assert!(text.contains("run it with holdfast run"), "{text}");
        }
        assert!(matches!(commit(Durability::Power), Err(holdfast_guest::CommitError::Host(_))));
    }
}

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

#[test]
fn a_native_applet_serves_calls_of_any_size() {
    let mut host = Host::serving(applet("messages"), None);
    assert_eq!(host.names[..3], ["echo", "nothing", "fail"]);
    assert_eq!(host.call("nothing", b"in vain"), b"");
    // Around what fits into a record and into the ring, and far more.
    let sizes = [0, 1, 7, 8, 100, 131_023, 131_024, 131_025, 262_144, 262_145, 3_000_001, 40_000_000];
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

#[test]
fn a_failed_call_has_its_code_and_its_text_and_the_applet_goes_on() {
    let mut host = Host::serving(applet("messages"), None);
    assert_eq!(host.try_call("fail", b"abc"), Ok(failure(7, "3 bytes are no good")));
    assert_eq!(host.try_call("error", b""), Ok(failure(1, "it did not work")));
    assert_eq!(host.try_call("late failure", b""), Ok(failure(1, "it broke later")));
    assert_eq!(host.chunks, [b"one"]);
    // Larger than what an applet takes: nothing of it is run.
    let refused = host.try_call("echo", &vec![0; (64 << 20) + 1]).unwrap();
    let Answer::Failure { code: holdfast_guest::CODE_NOT_RUN, text } = refused else { panic!("{refused:?}") };
    assert!(text.contains("shared buffer"), "{text}");
    assert_eq!(host.call("echo", b"still here"), b"still here");
    host.end();
}

#[test]
fn a_stream_longer_than_the_ring_arrives_in_order() {
    let mut host = Host::serving(applet("messages"), None);
    assert_eq!(host.call("stream", &100_000_u32.to_le_bytes()), b"");
    assert!(host.chunks.iter().enumerate().all(|(index, chunk)| chunk[..] == (index as u32).to_le_bytes()));
    assert_eq!(host.chunks.len(), 100_000);
    host.end();
}

#[test]
fn a_call_that_is_cancelled_notices_and_the_next_one_is_not() {
    let mut host = Host::serving(applet("messages"), None);
    for _ in 0..3 {
        let call = host.begin("wait", b"", Handle::default());
        // It is under way.
        let (_, chunk) = host.receive().unwrap();
        assert_eq!(chunk, b"waiting");
        host.send(HostMessage::Cancel { call }.into(), b"").unwrap();
        assert_eq!(host.finish(call), Ok(failure(9, "cancelled")));
        // Too late: nobody waits for it.
        host.send(HostMessage::Cancel { call }.into(), b"").unwrap();
        assert_eq!(host.call("echo", b"on"), b"on");
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

#[test]
fn a_function_that_panics_ends_the_applet() {
    let mut command = applet("messages");
    command.stderr(Stdio::null());
    let mut host = Host::serving(command, None);
    assert_eq!(host.try_call("panic", b""), Err(ChannelError::PeerGone));
    assert_eq!(host.wait().signal(), Some(libc::SIGABRT));
}

#[test]
fn a_host_that_breaks_the_protocol_is_told_apart_from_one_that_ends_the_calls() {
    let buffer = Handle { offset: 1 << 40, bytes: 10 };
    for message in [
        HostMessage::Call { call: 1, index: 999, buffer: Handle::default(), time_ns: 0 },
        HostMessage::Call { call: 1, index: 0, buffer, time_ns: 0 },
        HostMessage::Reply { status: 0, value: 0 },
    ] {
        let mut command = applet("messages");
        command.stderr(Stdio::null());
        let mut host = Host::serving(command, None);
        host.send(message.into(), b"").unwrap();
        assert_eq!(host.wait().code(), Some(101), "serve returned an error: {message:?}");
    }
}

#[test]
fn the_heap_of_a_native_applet_is_there_again_in_the_next_process() {
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

#[test]
fn what_a_failed_call_leaves_open_is_rolled_back_before_the_host_hears_of_it() {
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

#[test]
fn commits_are_asked_of_the_host_where_they_cost_something() {
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
    assert!(matches!(&refused, Answer::Failure { text, .. } if text.contains("only be read")), "{refused:?}");
    assert_eq!(host.try_call("store", b""), Err(ChannelError::PeerGone));
    assert_eq!(host.wait().signal(), Some(libc::SIGSEGV));
    assert!(host.image.take().unwrap().bytes() == before);
}

#[test]
fn in_the_mode_atomic_what_is_not_published_is_forgotten_and_the_heap_goes_on() {
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
        assert!(matches!(host.try_call("count and fail", b""), Ok(Answer::Failure { code: 3, .. })));
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

#[test]
fn a_program_that_does_not_serve_uses_its_heap_and_seals() {
    let mut host = Host::start(applet("loader"), Layout::default(), Some(Image::new(32 << 20)));
    assert_eq!(host.listen(), Err(ChannelError::PeerGone));
    assert!(host.wait().success() && host.sealed && host.grown > 0);
    assert_eq!(host.commits, [2]);
    host.image.take().unwrap().assert_sound();
}

#[test]
fn a_program_that_no_host_has_started_is_told_to_be_run_by_one() {
    // With nothing at the descriptor, with something that is no channel, and with a file that is too short for one.
    for redirection in ["3<&-", "3</dev/null", "3<\"$0\"", "3<\"$1\""] {
        let short = tempfile::NamedTempFile::new().unwrap();
        let inner = applet("alone");
        let mut command = Command::new("sh");
        command
            .arg("-c")
            .arg(format!("exec \"$0\" --exact the_applet_of_these_tests --nocapture {redirection}"));
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
        let started = Instant::now();
        for call in 0..100 {
            host.send(Header::from(header(round * 100 + call)), b"12345678").unwrap();
            assert_eq!(host.receive().unwrap().1, b"12345678");
        }
        best = best.min(started.elapsed() / 100);
    }
    println!("a call and its answer: {best:?}");
    // A hundred times what it takes on a quiet machine.
    assert!(best < Duration::from_millis(1), "{best:?}");
    host.end();
}
