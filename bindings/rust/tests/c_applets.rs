//! Native applets in C and C++, which link the installed library, under a host without a jail.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod compilers;
mod host;

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use compilers::{Programs, has};
use holdfast_channel::protocol::HostMessage;
use holdfast_channel::{ChannelError, Layout};
use host::{Answer, Host, Image};

fn failure(code: i32, text: &str) -> Answer {
    Answer::Failure { code, text: text.to_owned() }
}

/// An applet in C serves and finds its heap again, however it is linked.
///
/// Guarantee: applets/languages
#[test]
fn c_applet_serves_with_every_kind_of_linking() {
    if !has("cc") || !has("pkg-config") {
        return;
    }
    let programs = Programs::new();
    let mut image = Image::new(64 << 20);
    let mut counted = 0_u64;
    for options in [&["-fPIE", "-pie"][..], &["-no-pie"], &["-static"], &["-static-pie", "-fPIE"]] {
        let program = programs.compile("applets/echo/main.c", options);
        let mut host = Host::serving(Command::new(program), Some(image));
        assert_eq!(host.names, ["echo", "reverse", "upper", "count", "numbers"]);
        let large: Vec<u8> = (0..2_000_000_u32).map(|index| (index % 255) as u8).collect();
        assert!(host.call("echo", &large) == large);
        assert_eq!(host.call("reverse", b"Holdfast"), b"tsafdloH");
        assert_eq!(host.call("reverse", b""), b"");
        counted += 1;
        assert_eq!(host.call("count", b""), counted.to_le_bytes(), "{options:?}");
        let buffer = host.memory.buffer(10_000).unwrap();
        buffer.copy_in(0, b"in place").unwrap();
        let call = host.begin("upper", b"", buffer.handle());
        assert_eq!(host.finish(call), Ok(Answer::Result(Vec::new())));
        let mut text = [0; 9];
        buffer.copy_out(0, &mut text).unwrap();
        assert_eq!(&text, b"IN PLACE\0");
        assert_eq!(host.call("numbers", b"5000"), b"");
        assert!(
            (1..=5000)
                .map(|number| number.to_string().into_bytes())
                .eq(host.chunks.iter().cloned())
        );
        assert!(matches!(host.try_call("numbers", b"x"), Ok(Answer::Failure { code: 2, .. })));
        image = host.end().unwrap();
        image.region.is_new = false;
        image.assert_sound();
    }
}

/// Guarantee: applets/cancel
#[test]
fn a_stream_in_c_ends_when_the_host_cancels_it() {
    if !has("cc") || !has("pkg-config") {
        return;
    }
    let programs = Programs::new();
    let mut host = Host::serving(Command::new(programs.compile("applets/echo/main.c", &[])), None);
    let call = host.begin("numbers", b"100000000", Default::default());
    for number in 1..=3 {
        assert_eq!(host.receive().unwrap().1, number.to_string().into_bytes());
    }
    host.send(HostMessage::Cancel { call }.into(), b"").unwrap();
    assert_eq!(host.finish(call), Ok(failure(1, "cancelled")));
    assert_eq!(host.call("echo", b"on"), b"on");
    host.end();
}

/// Every function of the C header does what the header says, also when it fails.
///
/// Guarantee: applets/languages
#[test]
fn every_header_function_works_and_fails_as_told() {
    if !has("cc") || !has("pkg-config") {
        return;
    }
    let programs = Programs::new();
    let program = programs.compile("bindings/c/tests/programs/edges.c", &[]);
    let mut host = Host::serving(Command::new(&program), None);
    assert_eq!(host.call("checks", b"input"), b"result");
    assert_eq!(host.chunks, [&b"chunk"[..], b""]);
    assert_eq!(host.try_call("fails", b""), Ok(failure(42, "fail\u{fffd}ed")));
    assert_eq!(host.try_call("fails silently", b""), Ok(failure(1, "")));
    assert_eq!(host.try_call("crashes", b""), Err(ChannelError::PeerGone));
    assert_eq!(host.wait().signal(), Some(libc::SIGABRT));
    // And without a host.
    let output =
        Command::new("sh").arg("-c").arg("exec \"$0\" 3<&-").arg(&program).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("run it with holdfast run"), "{said}");
    assert_eq!(output.status.code(), Some(26), "NV_NO_HOST");
}

/// C++ exceptions become failures of the call, and none passes through the library.
///
/// Guarantee: applets/panics
#[test]
fn cpp_exceptions_become_failures() {
    if !has("g++") || !has("pkg-config") {
        return;
    }
    let programs = Programs::new();
    let program = programs.compile("bindings/c/tests/programs/throws.cpp", &[]);
    let mut host = Host::serving(quiet(&program), None);
    assert_eq!(host.try_call("failure", b"it"), Ok(failure(7, "failed 1 times on it")));
    assert_eq!(host.try_call("failure", b"that"), Ok(failure(7, "failed 2 times on that")));
    let out_of_range = host.try_call("error", b"").unwrap();
    assert!(
        matches!(&out_of_range, Answer::Failure { code: 1, text } if text.contains("range")),
        "{out_of_range:?}"
    );
    assert_eq!(
        host.try_call("other", b""),
        Ok(failure(1, "the function threw what is no std::exception"))
    );
    let twice = host.try_call("twice", b"").unwrap();
    assert!(
        matches!(&twice, Answer::Failure { code: 1, text } if text.contains("reply once")),
        "{twice:?}"
    );
    let no_heap = host.try_call("no heap", b"").unwrap();
    assert!(
        matches!(&no_heap, Answer::Failure { code: 1, text } if text.contains("--heap")),
        "{no_heap:?}"
    );
    assert_eq!(host.try_call("past the library", b""), Err(ChannelError::PeerGone));
    assert_eq!(host.wait().signal(), Some(libc::SIGABRT));
}

fn quiet(program: &std::path::Path) -> Command {
    let mut command = Command::new(program);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// A map of the C++ standard library lives in the heap of an applet.
///
/// Guarantee: applets/heap-after-death
#[test]
fn cpp_map_lives_in_an_applet_heap() {
    if !has("g++") || !has("pkg-config") {
        return;
    }
    let programs = Programs::new();
    let program = programs.compile("applets/wordcount/main.cpp", &[]);
    let mut image = Image::new(64 << 20);
    image.region.is_atomic = true;
    for run in 1..=2 {
        let mut host = Host::serving(Command::new(&program), Some(image));
        assert_eq!(host.call("add", b"to be, or not to be: that is the question"), b"10");
        host.publish();
        host.forget = true;
        assert_eq!(host.call("count", b"be"), (2 * run).to_string().as_bytes());
        assert_eq!(host.call("count", b"never"), b"0");
        assert_eq!(host.try_call("count", b""), Ok(failure(2, "count takes a word")));
        assert_eq!(host.call("words", b""), b"");
        assert_eq!(host.chunks[0], format!("be {}", 2 * run).into_bytes());
        assert_eq!(host.chunks.len(), 8);
        // Given up.
        let many: String =
            (0..5000).map(|number| format!("word{} ", "x".repeat(number % 400))).collect();
        host.call("add", many.as_bytes());
        host.forget = true;
        assert_eq!(host.call("count", b"word"), b"0");
        image = host.end().unwrap();
        image.region.is_new = false;
        image.assert_sound();
    }
}

/// Threads of an applet share its heap, and each has its own last error.
///
/// Guarantee: applets/native-heap
#[test]
fn applet_threads_share_heap_not_last_error() {
    if !has("cc") || !has("pkg-config") {
        return;
    }
    let programs = Programs::new();
    let program = programs.compile("bindings/c/tests/programs/threads.c", &[]);
    let mut host = Host::serving(Command::new(&program), Some(Image::new(256 << 20)));
    assert_eq!(host.call("spread", b""), b"done");
    assert!(host.grown > 0);
    host.image.as_ref().unwrap().assert_sound();
    let grown = host.grown;
    host.call("between", b"");
    assert_eq!(host.call("joined", b""), [7, 7, 7]);
    assert!(host.grown > grown);
    host.end().unwrap().assert_sound();
}

/// Using the heap of a native applet makes no system call.
///
/// Guarantee: applets/no-messages
#[test]
fn native_heap_use_makes_no_system_call() {
    if !has("cc") || !has("pkg-config") {
        return;
    }
    let programs = Programs::new();
    let program = programs.compile("bindings/c/tests/programs/burst.c", &[]);
    let start = |arguments: &[&str]| {
        let mut command = quiet(&program);
        command.args(arguments);
        let mut host = Host::start(command, Layout::default(), Some(Image::new(64 << 20)));
        assert_eq!(host.listen(), Err(ChannelError::PeerGone));
        let status = host.wait();
        host.image.take().unwrap().assert_sound();
        (status.code(), status.signal())
    };
    assert_eq!(start(&[]), (Some(0), None));
    // So the filter works.
    assert_eq!(start(&["grow"]), (None, Some(libc::SIGSYS)));
}

/// An applet in Zig serves and uses its heap through the C header.
///
/// Guarantee: applets/languages
/// Guarantee: heap/order-promises
#[test]
fn zig_applet_serves_with_the_c_header() {
    let Some(zig) = compilers::zig() else { return };
    let programs = Programs::new();
    let program = programs.path("tally");
    let mut compiler = compilers::bounded(zig);
    compiler.args(["-m", "ziglang", "build-exe", "-O", "ReleaseSafe", "-lc"]);
    compiler.arg(compilers::source().join("bindings/c/tests/programs/tally.zig"));
    compiler
        .arg("-I")
        .arg(compilers::prefix().join("include"))
        .arg("-L")
        .arg(compilers::prefix().join("lib"));
    compiler.arg("-lholdfast_applet").arg(format!("-femit-bin={}", program.display()));
    for cache in ["--cache-dir", "--global-cache-dir"] {
        compiler.arg(cache).arg(compilers::target().join("zig-cache"));
    }
    compilers::succeeded(&mut compiler);
    let note = b"Holdfast\0\0\0\0\x01\0\0\0";
    let file = std::fs::read(&program).unwrap();
    assert!(
        file.windows(note.len()).any(|window| window == note),
        "its linker left the promise of order out"
    );
    let mut image = Image::new(64 << 20);
    for run in 0..2 {
        let mut host = Host::serving(Command::new(&program), Some(image));
        assert_eq!(host.names, ["add", "fail", "names"]);
        for (count, name) in [(1, "ada"), (1, "grace"), (2, "ada"), (3, "ada")] {
            let count = if name == "ada" { run * 3 + count } else { run + count };
            assert_eq!(host.call("add", name.as_bytes()), count.to_string().as_bytes());
        }
        assert_eq!(host.try_call("fail", b""), Ok(failure(5, "as told")));
        host.call("names", b"");
        assert_eq!(host.chunks, [&b"grace"[..], b"ada"]);
        let long = host.try_call("add", &[b'x'; 65]).unwrap();
        assert!(matches!(long, Answer::Failure { code: 1, .. }), "{long:?}");
        image = host.end().unwrap();
        image.assert_sound();
    }
}
