//! The applets of the papers: MD5, page eviction, the logical disk and the video player, as native
//! programs under a host without a jail; each against its definition, or against the same in plain
//! Python.

#![allow(
    clippy::unwrap_used,
    reason = "a failed step fails the test, and the panic names its line"
)]

mod eviction;
#[path = "../../bindings/rust/tests/host/mod.rs"]
mod host;
mod logicaldisk;
mod md5;
mod python;
mod video;

use std::process::Command;

use holdfast_channel::Handle;

use crate::host::{Answer, Host, Image};

/// A native applet that serves.
fn serving(applet: &str, image: Option<Image>) -> Host {
    Host::serving(Command::new(holdfast_testkit::native_applet(applet).unwrap()), image)
}

/// What came of a call that has a buffer.
fn call_with(host: &mut Host, name: &str, input: &[u8], buffer: Handle) -> Answer {
    let number = host.begin(name, input, buffer);
    host.finish(number).unwrap()
}

/// The failure that a call must be: its code, and what its text says.
#[track_caller]
fn assert_fails(answer: Answer, wanted: i32, says: &str) {
    match answer {
        Answer::Failure { code, text } => {
            assert!(code == wanted && text.contains(says), "{code}: {text}")
        }
        Answer::Result(bytes) => panic!("a result of {} bytes", bytes.len()),
    }
}

fn to_bytes(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn to_numbers(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|four| u32::from_le_bytes(four.try_into().unwrap())).collect()
}
