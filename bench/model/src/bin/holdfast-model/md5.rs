//! Calls that compute nothing, and MD5 over sizes of messages, in applets and in Python.
//!
//! What the model is given and what it is checked against are measured in the same rounds, but
//! apart from each other: a small call, a long message, and a copy on the one hand, messages of
//! other sizes on the other.

use std::cell::RefCell;

use holdfast_applet::{Applet, SharedBuffer};
use holdfast_model::outside::message;
use holdfast_model::{Comparison, Cost, Point, Workload};

use crate::measure::{Times, microseconds, repeated, rested, rounds};
use crate::python::{Python, Task, in_python};
use crate::report::{CallCost, Speed};
use holdfast_cli::call_failure as failure;
use holdfast_command::exit::{Failure, host};

/// Functions of the applet.
pub(crate) const ECHO: &str = "echo";
pub(crate) const DIGEST: &str = "digest_buffer";
/// What goes there and comes back in a small call.
const SMALL: &[u8] = b"8 bytes.";
/// The sizes of the paper's figure 9.
const SIZES_BYTES: [usize; 8] = [64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
/// Messages that are long enough for what a byte costs, and of no size that is predicted: in the
/// applet, and in Python.
const LONG_BYTES: usize = 8 << 20;
const LONG_IN_PYTHON_BYTES: usize = 96 << 10;
/// MD5 computes one block of this size more than the message has.
const BLOCK_BYTES: f64 = 64.0;

/// What was found.
pub(crate) struct Measured {
    /// Native, native after a pause, WebAssembly.
    pub calls: Vec<CallCost>,
    /// Native, WebAssembly.
    pub speeds: Vec<Speed>,
    /// Of the native applet.
    pub md5: Comparison,
}

/// The WebAssembly form takes part if there is one.
pub(crate) fn measure(
    native: &Applet,
    wasm: Option<&Applet>,
    python: &RefCell<Python>,
    runs: u32,
) -> Result<Measured, Failure> {
    let text = message(LONG_BYTES);
    let long = buffer(native, &text)?;
    let long_in_wasm = wasm.map(|wasm| buffer(wasm, &text).map(|long| (wasm, long))).transpose()?;
    // What a host has to do with a message that lies in its own memory.
    let room = native.buffer(SIZES_BYTES[SIZES_BYTES.len() - 1]).map_err(failure)?;
    let digest = |bytes: usize| {
        room.write(0, &text[..bytes]).map_err(host)?;
        let size = (bytes as u64).to_le_bytes();
        // As the calls of which the costs are known: `call_with` asks the kernel for times, too.
        native.call_with_buffer(DIGEST, &size, &room).map_err(failure)
    };
    let task = |bytes: usize| Task::Md5 { bytes: bytes as u64 };
    for bytes in SIZES_BYTES {
        agree(&digest(bytes)?, &python.borrow_mut().run(&task(bytes), 1)?.1)?;
    }

    let mut all = vec![
        repeated(|| small(native)),
        rested(|| small(native)),
        repeated(|| whole(native, &long)),
        repeated(|| room.write(0, &text[..room.len()]).map_err(host)),
        in_python(python, &task(0)),
        in_python(python, &task(LONG_IN_PYTHON_BYTES)),
    ];
    let known = all.len();
    for bytes in SIZES_BYTES {
        all.push(repeated(move || digest(bytes).map(drop)));
        all.push(in_python(python, &task(bytes)));
    }
    if let Some((wasm, long)) = &long_in_wasm {
        all.push(repeated(|| small(wasm)));
        all.push(repeated(|| whole(wasm, long)));
    }
    let times = rounds(runs, all)?;

    let (nothing_us, long_us) = (times[4].median_us(), times[5].median_us());
    let interface = cost(nothing_us, (long_us - nothing_us) / LONG_IN_PYTHON_BYTES as f64)?;
    let call = |name: &str, times: &Times| {
        Ok::<_, Failure>(CallCost { name: name.to_owned(), call: times.taken()? })
    };
    let speed = |name: &str, call: &Times, long: &Times| {
        let us = (long.median_us() - call.median_us()).max(f64::MIN_POSITIVE);
        let us_per_byte = us / LONG_BYTES as f64;
        Speed {
            name: name.to_owned(),
            us_per_byte,
            speedup: interface.per_byte_us.get() / us_per_byte,
        }
    };
    let mut calls: Vec<CallCost> =
        vec![call("native", &times[0])?, call("native, after a pause", &times[1])?];
    let mut speeds = vec![speed("native", &times[0], &times[2])];
    let (points, in_wasm) = times[known..].split_at(2 * SIZES_BYTES.len());
    if let [small, long] = in_wasm {
        calls.push(call("WebAssembly", small)?);
        speeds.push(speed("WebAssembly", small, long));
    }
    let workload = Workload {
        name: format!("MD5, outside in Python {}", python.borrow().version()),
        call: cost(times[0].median_us(), times[3].median_us() / room.len() as f64)?,
        applet: cost(BLOCK_BYTES * speeds[0].us_per_byte, speeds[0].us_per_byte)?,
        interface,
    };
    let point = |(&bytes, times): (&usize, &[Times])| {
        let (applet, interface) = (times[0].sample()?, Some(times[1].sample()?));
        Ok::<_, Failure>(Point { bytes: bytes as u64, applet, interface })
    };
    let points = SIZES_BYTES
        .iter()
        .zip(points.chunks_exact(2))
        .map(point)
        .collect::<Result<Vec<_>, Failure>>()?;
    Ok(Measured { calls, speeds, md5: Comparison::of(workload, &points) })
}

fn buffer(applet: &Applet, text: &[u8]) -> Result<SharedBuffer, Failure> {
    let buffer = applet.buffer(text.len()).map_err(failure)?;
    buffer.write(0, text).map_err(host)?;
    Ok(buffer)
}

fn small(applet: &Applet) -> Result<(), Failure> {
    match applet.call(ECHO, SMALL).map_err(failure)? {
        same if same == SMALL => Ok(()),
        _ => Err(host("the applet's echo is not what it was given; is it the applet md5?")),
    }
}

/// The digest of a buffer.
fn whole(applet: &Applet, buffer: &SharedBuffer) -> Result<(), Failure> {
    applet.call_with_buffer(DIGEST, b"", buffer).map(drop).map_err(failure)
}

fn cost(fixed_us: f64, per_byte_us: f64) -> Result<Cost, Failure> {
    Ok(Cost { fixed_us: microseconds(fixed_us)?, per_byte_us: microseconds(per_byte_us)? })
}

/// Both sides have come to the same digest.
fn agree(ours: &[u8], theirs: &serde_json::Value) -> Result<(), Failure> {
    let ours: String = ours.iter().map(|byte| format!("{byte:02x}")).collect();
    if *theirs == ours {
        return Ok(());
    }
    Err(host(
        "applet and Python come to different digests; is it the applet md5 of this version of Holdfast?",
    ))
}
