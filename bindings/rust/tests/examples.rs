//! The example in Rust, as `cargo xtask applets` has built it for the jail, under a host without
//! one.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod compilers;
mod host;

use std::process::Command;

use host::{Answer, Host, Image};

fn notes() -> Command {
    let program = std::env::var_os("HOLDFAST_APPLETS")
        .map_or_else(|| compilers::target().join("applets"), Into::into);
    let program = program.join("notes");
    assert!(
        program.exists(),
        "{} is not built; run ./test, or `cargo xtask applets` first",
        program.display()
    );
    Command::new(program)
}

/// Notes stay in order over runs and kills until they are cleared.
///
/// Guarantee: applets/native-heap
#[test]
fn notes_stay_in_order_over_runs_and_kills() {
    let mut host = Host::serving(notes(), Some(Image::new(256 << 20)));
    assert_eq!(host.names, ["add", "get", "list", "clear"]);
    let text = |number: u32| vec![b'a' + (number % 26) as u8; number as usize * 37 % 3000];
    for number in 1..=2000 {
        assert_eq!(host.call("add", &text(number)), number.to_string().as_bytes());
    }
    // Killed while it works: the last note is there or not, and all others are.
    host.begin("add", &vec![b'x'; 100_000], Default::default());
    host.signal(libc::SIGKILL);
    host.wait();
    let mut host = Host::serving(notes(), host.image.take());
    host.image.as_ref().unwrap().assert_sound();
    host.call("list", b"");
    let kept = std::mem::take(&mut host.chunks);
    assert!(kept[..2000].iter().zip(1..).all(|(kept, number)| *kept == text(number)));
    assert!(kept.len() == 2000 || (kept.len() == 2001 && kept[2000].len() == 100_000));
    assert_eq!(host.call("get", b"1234"), text(1234));
    for wrong in [&b"0"[..], b"9999"] {
        assert!(matches!(host.try_call("get", wrong), Ok(Answer::Failure { code: 2, .. })));
    }
    assert!(matches!(host.try_call("get", b"one"), Ok(Answer::Failure { code: 1, .. })));
    host.call("clear", b"");
    host.call("list", b"");
    assert!(host.chunks.is_empty());
    assert_eq!(host.call("add", b"again"), b"1");
    host.end().unwrap().assert_sound();
}
