//! Section `md5`: a computation in an applet, over a shared buffer, beside the same code in this
//! process and plain Python.
//!
//! Invariant: what is to show the sandbox's cost alone runs on the same processor as its peer,
//! because two processors differ by more.

use std::io::{self, Error};
use std::time::Instant;

use holdfast_applet::{Applet, SharedBuffer};
use holdfast_model::outside::{self, Language, Outside, Task};

use super::libraries::{Digest, Md5};
use super::processors::Kept;
use super::started::{native, wasm};
use crate::race::{Side, race};
use crate::report::{Goal, Outcome};

const NATIVE: &str = "native applet";
const WASM: &str = "WebAssembly applet";
const IN_PROCESS: &str = "libmd5.so";
const PYTHON: &str = "python3";

/// Rounds for each run: what else the machine does falls into some of them.
const SLICES: usize = 4;

const MESSAGE_BYTES: usize = 16 << 20;
/// Python takes a second for each mebibyte or two.
const PYTHON_BYTES: usize = 128 << 10;

pub(crate) fn run(runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    let message: Vec<u8> = (0..MESSAGE_BYTES).map(|number| (number % 251) as u8).collect();
    let library = Md5::load()?;
    let expected = (library.digest(&message), library.digest(&outside::message(PYTHON_BYTES)));
    let in_process = || {
        let started = Instant::now();
        let digest = library.digest(&message);
        same(&digest, &expected.0)?;
        Ok(ns_per_byte(started, MESSAGE_BYTES))
    };
    {
        // What is started from here on is kept there, too.
        let _kept = Kept::on_the_first(None)?;
        let native = Digesting::start(native("md5")?, &message)?;
        let wasm = Digesting::start(wasm("md5")?, &message)?;
        let sides = vec![
            Side::new(NATIVE, || native.ns_per_byte(&expected.0)),
            Side::new(IN_PROCESS, in_process),
            Side::new(WASM, || wasm.ns_per_byte(&expected.0)),
        ];
        let times = race(runs * SLICES, sides)?;
        outcome.add(
            "md5_vs_native_c",
            times.ratio(NATIVE, IN_PROCESS),
            "x",
            Some(Goal::AtMost(1.02)),
        );
        outcome.add("wasm_md5_vs_native_c", times.ratio(WASM, IN_PROCESS), "x", None);
    }
    let native = Digesting::start(native("md5")?, &message)?;
    let sides = vec![
        Side::new(NATIVE, || native.ns_per_byte(&expected.0)),
        Side::new(IN_PROCESS, in_process),
    ];
    let times = race(runs * SLICES, sides)?;
    outcome.add("md5_free_vs_native_c", times.ratio(NATIVE, IN_PROCESS), "x", None);
    outcome.add("md5_ns_per_byte", times.of(NATIVE).cloned(), "ns", None);
    match Outside::start(Language::Python) {
        Ok(mut python) => {
            let sides = vec![
                Side::new(NATIVE, || native.ns_per_byte(&expected.0)),
                Side::new(PYTHON, || python_ns_per_byte(&mut python, &expected.1)),
            ];
            let times = race(runs, sides)?;
            outcome.add("md5_vs_python_pure", times.ratio(PYTHON, NATIVE), "x", None);
        }
        Err(error) => outcome.missing.push(format!("python3: {error}")),
    }
    Ok(())
}

/// An applet with the message in a shared buffer.
struct Digesting {
    applet: Applet,
    buffer: SharedBuffer,
}

impl Digesting {
    fn start(applet: Applet, message: &[u8]) -> io::Result<Digesting> {
        let buffer = applet.buffer(message.len()).map_err(Error::other)?;
        buffer.write(0, message).map_err(Error::other)?;
        Ok(Digesting { applet, buffer })
    }

    /// A whole call.
    fn ns_per_byte(&self, expected: &Digest) -> io::Result<f64> {
        let started = Instant::now();
        let digest = self
            .applet
            .call_with_buffer("digest_buffer", b"", &self.buffer)
            .map_err(Error::other)?;
        same(&digest, expected)?;
        Ok(ns_per_byte(started, MESSAGE_BYTES))
    }
}

/// The plain Python of `applets/md5`.
fn python_ns_per_byte(python: &mut Outside, expected: &Digest) -> io::Result<f64> {
    let task = Task::Md5 { bytes: PYTHON_BYTES as u64 };
    let (us, digest) = python.run(&task, 1).map_err(Error::other)?;
    let expected: String = expected.iter().map(|byte| format!("{byte:02x}")).collect();
    if digest == expected {
        Ok(us * 1e3 / PYTHON_BYTES as f64)
    } else {
        Err(Error::other("Python's digest is another one"))
    }
}

fn same(digest: &[u8], expected: &Digest) -> io::Result<()> {
    if digest == expected { Ok(()) } else { Err(Error::other("the digest is another one")) }
}

fn ns_per_byte(started: Instant, bytes: usize) -> f64 {
    started.elapsed().as_secs_f64() * 1e9 / bytes as f64
}
