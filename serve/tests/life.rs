//! What outlives a page, an applet and a server, and what must not.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use holdfast_serve::ServeError;

use crate::client::{Failed, ask_at, sha256};
use crate::program::{Program, within};
use crate::served::{Home, applet};

/// A heap is there again after the page, and after the server.
///
/// Guarantee: serve/heaps
#[test]
fn heap_outlives_page_and_server() {
    let (home, program) = (Home::new(), applet("echo"));
    let served = home.serve();
    let mut client = served.connect();
    client.start(&program, &["tally"]).unwrap();
    assert_eq!((client.count(), client.count()), (1, 2));
    drop(client);
    // A page that is loaded again waits for the one before.
    let mut client = served.connect();
    client.start(&program, &["tally"]).unwrap();
    assert_eq!(client.count(), 3);
    served.stop();
    let served = home.serve();
    let mut client = served.connect();
    client.start(&program, &["tally"]).unwrap();
    assert_eq!(client.count(), 4);
}

/// What was stored when the server was killed is there.
///
/// Guarantee: serve/heaps
#[test]
fn heap_survives_kills_of_the_server() {
    let (home, program) = (Home::new(), applet("echo"));
    for round in 0..4 {
        let served = Program::start(&home, &[]);
        let mut client = served.own().connect();
        client.start(&program, &["tally"]).unwrap();
        assert_eq!(client.count(), round + 1);
        let applets = served.descendants();
        assert!(!applets.is_empty());
        assert_eq!(served.end_with(Signal::KILL), None);
        within(|| applets.iter().all(|pid| is_gone(*pid)));
    }
}

/// An applet that dies takes nothing but itself: the page hears of it, and its heap is as it was.
///
/// Guarantee: serve/heaps
#[test]
fn heap_survives_the_death_of_the_applet() {
    let (home, program) = (Home::new(), applet("trial"));
    let served = home.serve();
    let mut client = served.connect();
    client.start(&program, &["tally"]).unwrap();
    client.call("count", b"").unwrap();
    for function in ["crash", "count_and_crash", "exit"] {
        let died = client.call(function, b"").unwrap_err();
        assert_eq!(died.kind, 5, "{died:?}");
        let message = client.read();
        assert_eq!((message[0], message[5]), (0x87, 5));
        assert_eq!(client.call("count", b"").unwrap_err().kind, 5);
        client.start(&program, &["tally"]).unwrap();
    }
    assert!(client.call("count", b"").is_ok());
}

/// The close of a page is answered: it does not look like a server that died.
///
/// Guarantee: serve/calls
#[test]
fn close_of_a_page_is_answered() {
    let (home, program) = (Home::new(), applet("echo"));
    let served = home.serve();
    let mut client = served.connect();
    client.socket.close(None).unwrap();
    assert_eq!(client.closed(), 1005);
    // Also in the middle of a call.
    let mut client = served.connect();
    client.start(&program, &[]).unwrap();
    client.begin(1, true, "numbers", b"99999999");
    client.socket.close(None).unwrap();
    assert_eq!(client.closed(), 1005);
}

/// A call that takes too long ends its applet.
///
/// Guarantee: serve/applet-limits
#[test]
fn call_has_a_time_limit() {
    let (home, program) = (Home::new(), applet("trial"));
    let served = home.serve_with(|limits| limits.call_timeout = Duration::from_millis(300));
    let mut client = served.connect();
    client.start(&program, &[]).unwrap();
    let died = client.call("spin", b"").unwrap_err();
    assert!(died.kind == 5 && died.words.contains("300ms"), "{died:?}");
}

/// When the page is gone, its applet is gone soon, whatever it is doing.
///
/// Guarantee: serve/page-death
#[test]
fn applet_dies_with_its_page() {
    let (home, program) = (Home::new(), applet("trial"));
    let served = Program::start(&home, &[]);
    for function in [None, Some("spin"), Some("spin_until_cancelled"), Some("flood")] {
        let mut client = served.own().connect();
        client.start(&program, &["tally"]).unwrap();
        assert!(!served.descendants().is_empty());
        if let Some(function) = function {
            client.begin(1, true, function, b"");
            std::thread::sleep(Duration::from_millis(50));
        }
        // Without a word: the socket is closed as the kernel closes it.
        drop(client);
        let took = within(|| served.descendants().is_empty());
        assert!(took < Duration::from_secs(1), "{function:?}: {took:?}");
    }
}

/// A module in WebAssembly with a memory, whose `_start` is a loop without an end.
const NEVER_SERVES: &[u8] = b"\0asm\x01\0\0\0\
    \x01\x04\x01\x60\0\0\
    \x03\x02\x01\0\
    \x05\x03\x01\0\x01\
    \x07\x13\x02\x06_start\0\0\x06memory\x02\0\
    \x0a\x09\x01\x07\0\x03\x40\x0c\0\x0b\x0b";

/// When the page is gone, an applet that does not serve yet is not waited for either: its place and
/// its heap are free soon.
///
/// Guarantee: serve/page-death
#[test]
fn applet_that_starts_dies_with_its_page() {
    let (home, echo) = (Home::new(), applet("echo"));
    let served = home.serve_with(|limits| {
        limits.applets = 1;
        limits.start_timeout = Duration::from_secs(60);
    });
    let mut client = served.connect();
    // So that it is known, and compiled, when the time counts.
    client.start(&echo, &["tally"]).unwrap();
    client.close();
    client.begin_start(NEVER_SERVES, &["tally"]);
    let mut other = served.connect();
    let refused = other.start(&echo, &["tally"]).unwrap_err();
    assert!(refused.words.contains("as many applets as it may"), "{refused:?}");
    drop(client);
    let took = within(|| other.start(&echo, &["tally"]).is_ok());
    assert!(took < Duration::from_secs(2), "{took:?}");
}

/// The server ends in order: its applets are gone, their heaps are closed, and it exits with 0.
///
/// Guarantee: serve/end
#[test]
fn server_ends_in_order() {
    let (home, program) = (Home::new(), applet("trial"));
    for signal in [Signal::TERM, Signal::INT] {
        let served = Program::start(&home, &[]);
        let mut client = served.own().connect();
        client.start(&program, &["tally"]).unwrap();
        client.call("count", b"").unwrap();
        client.begin(1, false, "spin", b"");
        let applets = served.descendants();
        assert_eq!(served.end_with(signal), Some(0));
        assert!(applets.iter().all(|pid| is_gone(*pid)));
        assert_eq!(client.closed(), 1001);
        let names = holdfast_region::NameSpace::new(home.places());
        let heap = names.summary(&"tally".parse().unwrap()).unwrap();
        assert_eq!((heap.holder, heap.base.is_some()), (None, true));
    }
}

/// A page that never reads delays the end of the server by a moment only, and its heaps are closed.
///
/// Guarantee: serve/end
#[test]
fn page_that_never_reads_does_not_delay_the_end() {
    let (home, program) = (Home::new(), applet("trial"));
    let served = home.serve();
    let mut client = served.connect();
    client.start(&program, &["tally"]).unwrap();
    client.call("count", b"").unwrap();
    // The page asks for more parts than fit into what is on the way to it.
    client.begin(1, true, "flood", b"");
    client.message(7, &[1, 1, 4000], b"");
    assert_eq!(client.read()[0], 0x84);
    std::thread::sleep(Duration::from_millis(500));
    let start = Instant::now();
    served.stop();
    assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
    let names = holdfast_region::NameSpace::new(home.places());
    let heap = names.summary(&"tally".parse().unwrap()).unwrap();
    assert_eq!((heap.holder, heap.base.is_some()), (None, true));
}

/// A port of another address is refused, with the way to do it right.
///
/// Guarantee: serve/loopback
#[test]
fn only_the_loopback_address_is_listened_at() {
    let home = Home::new();
    for address in ["0.0.0.0:0", "192.0.2.1:80", "[::]:0"] {
        let mut command = Program::command(&home);
        command.arg("--web").arg(home.web()).args(["--listen", address]);
        let output = command.output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && error.contains("127.0.0.1:PORT"), "{error}");
    }
}

/// Each address that is listened at answers what a browser sends there, the one of port 80, which
/// it leaves out, too.
///
/// Guarantee: serve/loopback
#[test]
fn every_loopback_address_answers_its_browser() {
    let (home, program) = (Home::new(), applet("echo"));
    for listen in ["127.0.0.2:0", "127.1.2.3:80", "[::1]:0", "[::ffff:127.0.0.1]:0"] {
        let served = match home.serve_at(listen.parse().unwrap(), |_| {}) {
            // Port 80 is root's on some machines, and IPv6 off on others.
            Err(ServeError::Listen { .. }) => continue,
            served => served.unwrap(),
        };
        let own = served.own();
        let file = ask_at(served.address, "GET", "/", &[("host", &own.host)]);
        assert_eq!(file.status, 200, "{listen}: {file:?}");
        let mut client = own.connect();
        client.start(&program, &[]).unwrap();
        assert_eq!(client.call("echo", b"x").unwrap(), b"x");
        for host in ["127.0.0.1", "[::1]", "localhost", "127.0.0.1:80"].map(str::to_owned) {
            let misdirected = ask_at(served.address, "GET", "/", &[("host", &host)]);
            assert_eq!(misdirected.status, 421, "{listen} {host}");
        }
    }
}

/// What no browser opens is refused with the reason.
///
/// Guarantee: serve/loopback
#[test]
fn address_that_no_browser_opens_is_refused() {
    let home = Home::new();
    for (address, reason) in [
        ("127.0.0.1:6000", "another protocol's"),
        ("[::1]:22", "another protocol's"),
        ("127.255.255.255:0", "broadcast"),
    ] {
        let mut command = Program::command(&home);
        command.arg("--web").arg(home.web()).args(["--listen", address]);
        let output = command.output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && error.contains(reason), "{error}");
        assert!(!error.contains("other machines"), "{error}");
    }
}

/// The origins that the user allowed are listed and forgotten by the program.
///
/// Guarantee: serve/consent
#[test]
fn origins_are_listed_and_forgotten() {
    let home = Home::new();
    let record = holdfast_serve::OriginRecord::of(&home.places());
    record.allow(&"https://example.org".parse().unwrap()).unwrap();
    let run = |arguments: &[&str]| {
        let output = Program::command(&home).args(arguments).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    assert_eq!(run(&["--origins"]), (Some(0), "https://example.org\n".to_owned()));
    let served = Program::start(&home, &[]);
    let page = crate::client::Page::of(served.port, "https://example.org");
    let mut client = page.connect();
    client.start(&applet("echo"), &[]).unwrap();
    assert_eq!(run(&["--forget", "https://example.org"]), (Some(0), String::new()));
    assert_eq!(page.ask_token().status, 403, "at once");
    assert_eq!(page.socket().err(), Some(403));
    assert_eq!(run(&["--forget", "https://example.org"]).0, Some(1));
    assert_eq!(run(&["--origins"]), (Some(0), String::new()));
    assert_eq!(run(&["--forget", "example.org"]).0, Some(2));
}

/// An applet that does not serve is told from one that dies.
#[test]
fn what_does_not_serve_is_no_applet() {
    let home = Home::new();
    let served = home.serve();
    let mut client = served.connect();
    // Of another machine: AArch64.
    let mut foreign = applet("echo");
    foreign[18] = 183;
    for program in [applet("guestbook"), b"no program".to_vec(), foreign] {
        let Err(Failed { kind: 11, .. }) = client.start(&program, &["tally"]) else {
            panic!("it serves")
        };
    }
    let names = holdfast_region::NameSpace::new(home.places());
    assert!(names.list().unwrap().is_empty(), "no heap is left of a start that failed");
}

/// A module in WebAssembly with a memory, whose `_start` traps in these instructions.
fn trapping(instructions: &[u8]) -> Vec<u8> {
    let head = b"\0asm\x01\0\0\0\
        \x01\x04\x01\x60\0\0\
        \x03\x02\x01\0\
        \x05\x03\x01\0\x01\
        \x07\x13\x02\x06_start\0\0\x06memory\x02\0";
    let body = [b"\0".as_slice(), instructions, b"\x0b"].concat();
    let code = [&[1, body.len() as u8], body.as_slice()].concat();
    [head.as_slice(), &[0x0a, code.len() as u8], &code].concat()
}

/// A start that fails for what the page asked, or because the applet died, does not say that the
/// program is no applet.
///
/// Guarantee: serve/calls
#[test]
fn failed_start_blames_the_program_only_for_its_own() {
    let home = Home::new();
    let served = home.serve();
    let mut client = served.connect();
    let text =
        |program: &[u8], rest: &str| format!("{{\"sha256\":\"{}\",{rest}}}", sha256(program));
    let twice = "\"heaps\":[{\"heap\":\"a\",\"name\":\"x\"},{\"heap\":\"b\",\"name\":\"x\"}]";
    for name in ["echo", "echo.wasm"] {
        let program = applet(name);
        let refused = client.start_as(1, &program, &text(&program, twice)).unwrap_err();
        assert_eq!(refused.kind, 8, "{name}: {refused:?}");
    }
    let program = applet("echo.wasm");
    let little = text(&program, "\"limits\":{\"memoryBytes\":65536}");
    let refused = client.start_as(1, &program, &little).unwrap_err();
    assert_eq!(refused.kind, 8, "{refused:?}");
    // `unreachable`; a division by zero; a load beyond the memory. The server goes on.
    for instructions in [&b"\0"[..], b"\x41\0\x41\0\x6e\x1a", b"\x41\x80\x80\x08\x28\x02\0\x1a"] {
        let died = client.start(&trapping(instructions), &[]).unwrap_err();
        assert_eq!(died.kind, 5, "{instructions:?}: {died:?}");
    }
    let names = holdfast_region::NameSpace::new(home.places());
    assert!(names.list().unwrap().is_empty(), "no heap is left of a start that failed");
}

fn is_gone(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.is_empty() || stat.contains(") Z ")
}
