//! Pages that keep to the protocol.

use crate::client::{Failed, sha256, start_text};
use crate::served::{Home, applet};

/// A page uploads an applet once; it calls functions, gets failures with their codes, and closes.
///
/// Guarantee: serve/calls
/// Guarantee: serve/content-addressed
#[test]
fn page_uploads_once_and_calls() {
    for name in ["echo", "echo.wasm"] {
        let (home, program) = (Home::new(), applet(name));
        let served = home.serve();
        let mut client = served.connect();
        assert_eq!(client.start(&program, &[]), Ok(true), "{name}");
        assert_eq!(client.call("reverse", b"abc").unwrap(), b"cba");
        let large: Vec<u8> = (0..3_000_000).map(|at| (at / 7) as u8).collect();
        assert!(client.call("echo", &large).unwrap() == large);
        let Err(Failed { kind: 2, words }) = client.call("ehco", b"") else { panic!("it has it") };
        assert!(words.contains("\"echo\""), "{words}");
        let failed = client.call("numbers", b"x").unwrap_err();
        assert_eq!(failed.kind, 1);
        assert!(failed.words.contains("decimal"), "{failed:?}");
        client.close();
        assert_eq!(client.start(&program, &[]), Ok(false), "its bytes are known");
        drop(client);
        assert_eq!(served.connect().start(&program, &[]), Ok(false));
        let kept = home.home().join("applets").join(sha256(&program));
        std::fs::remove_file(&kept).unwrap();
        std::fs::write(&kept, b"\x7fELF poison").unwrap();
        assert_eq!(served.connect().start(&program, &[]), Ok(true), "a changed file is not used");
    }
}

/// Parts come as the page takes them; a cancelled call ends, and the applet goes on.
///
/// Guarantee: serve/calls
#[test]
fn streams_wait_for_the_page_and_are_cancelled() {
    let (home, program) = (Home::new(), applet("echo"));
    let served = home.serve();
    let mut client = served.connect();
    client.start(&program, &[]).unwrap();
    client.begin(1, true, "numbers", b"100");
    for number in 1..=32 {
        let message = client.read();
        assert_eq!((message[0], &message[10..]), (0x84, number.to_string().as_bytes()));
    }
    // The window is used up; what comes next is the answer to something else.
    client.message(2, &[2], start_text(&program, &[]).as_bytes());
    assert_eq!(client.read()[0], 0x83);
    client.message(7, &[1, 1, 1000], b"");
    for number in 33..=100 {
        let message = client.read();
        assert_eq!((message[0], &message[10..]), (0x84, number.to_string().as_bytes()));
    }
    assert_eq!(client.read()[0], 0x85);
    client.begin(2, true, "numbers", b"99999999");
    client.begin(3, false, "echo", b"behind");
    client.message(7, &[1, 2, 100], b"");
    (0..132).for_each(|_| assert_eq!(client.read()[0], 0x84));
    client.message(6, &[1, 2], b"");
    let failed = client.read();
    assert_eq!((failed[0], failed[5], failed[9]), (0x86, 2, 4), "{failed:?}");
    let done = client.read();
    assert_eq!((done[0], &done[10..]), (0x85, &b"behind"[..]));
}

/// A page that closes an applet reads its streams no more: a stream that it left is cancelled, and
/// what waits behind it is still called.
///
/// Guarantee: serve/calls
#[test]
fn close_waits_for_no_reader() {
    let (home, program) = (Home::new(), applet("echo"));
    let served = home.serve();
    let mut client = served.connect();
    client.start(&program, &["tally"]).unwrap();
    client.begin(1, true, "numbers", b"99999999");
    client.begin(2, true, "numbers", b"10");
    client.begin(3, false, "echo", b"behind");
    (0..32).for_each(|_| assert_eq!(client.read()[0], 0x84));
    client.message(8, &[1], b"");
    let failed = client.read();
    assert_eq!((failed[0], failed[5], failed[9]), (0x86, 1, 4), "{failed:?}");
    (0..10).for_each(|_| assert_eq!(client.read()[0], 0x84));
    let done = client.read();
    assert_eq!((done[0], done[5]), (0x85, 2));
    let done = client.read();
    assert_eq!((done[0], done[5], &done[10..]), (0x85, 3, &b"behind"[..]));
    let ended = client.read();
    assert_eq!((ended[0], ended[5]), (0x87, 0), "{ended:?}");
    client.start(&program, &["tally"]).unwrap();
    assert_eq!(client.count(), 1, "its heap was closed in order");
}

/// A call that waits is cancelled before it begins.
///
/// Guarantee: serve/calls
#[test]
fn waiting_call_is_cancelled() {
    let (home, program) = (Home::new(), applet("echo"));
    let served = home.serve();
    let mut client = served.connect();
    client.start(&program, &["tally"]).unwrap();
    client.begin(1, true, "numbers", b"1000");
    client.begin(2, false, "count", b"");
    client.message(6, &[1, 2], b"");
    client.message(6, &[1, 1], b"");
    let mut ends = Vec::new();
    while ends.len() < 2 {
        let message = client.read();
        if message[0] == 0x86 {
            ends.push((message[5], message[9]));
        }
    }
    assert_eq!(ends, [(1, 4), (2, 4)]);
    assert_eq!(client.count(), 1, "the cancelled call counted nothing");
}

/// Two names of a heap's grant, and a grant for reading.
///
/// Guarantee: serve/calls
#[test]
fn heaps_are_granted_as_asked() {
    let (home, program) = (Home::new(), applet("echo"));
    let served = home.serve();
    let mut client = served.connect();
    let start = |access: &str| {
        format!(
            "{{\"sha256\":\"{}\",\"heaps\":[{{\"heap\":\"tally\",\"name\":\"mine\",\"access\":\"{access}\"}}]}}",
            sha256(&program)
        )
    };
    let missing = client.start_as(1, &program, &start("read-only")).unwrap_err();
    assert_eq!(missing.kind, 8, "{missing:?}");
    client.start_as(1, &program, &start("read-write")).unwrap();
    assert_eq!(client.count(), 1);
    client.close();
    client.start_as(1, &program, &start("read-only")).unwrap();
    assert_eq!(client.call("count", b"").unwrap_err().kind, 1);
}
