//! Section `host_functions`: what it costs an applet to call its host, 8 bytes each way.

use std::io;

use holdfast_applet::{Applet, Grants, HostCall};
use holdfast_testkit::applet_file;

use super::call::{calls_us, native_on};
use super::processors::Placement;
use super::started::start;
use crate::race::{Side, bursts, race};
use crate::report::{Goal, Outcome};

const WASM: &str = "WebAssembly calls its host";
const NATIVE: &str = "a native applet calls its host";
const CALLED: &str = "a host calls a native applet";

/// In one call of the applet, and how many of these.
const CALLS: u64 = 200;
const ROUNDS: u32 = 100;

pub(crate) fn run(runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    let grants =
        || Grants::none().function("echo", |_: &HostCall<'_>, input: &[u8]| Ok(input.to_vec()));
    let asking = |file: &str| start(applet_file(file)?, grants());
    let apart = Placement::apart()?;
    let in_native = {
        let _kept = apart.hold_for_other()?;
        asking("trial")?
    };
    let (in_wasm, called) = (asking("trial.wasm")?, native_on(apart, "echo")?);
    let sides = vec![
        Side::new(WASM, || asked_us(&in_wasm)),
        Side::new(NATIVE, || {
            let _kept = apart.hold_this()?;
            asked_us(&in_native)
        }),
        Side::new(CALLED, || {
            let _kept = apart.hold_this()?;
            calls_us(&called)
        }),
    ];
    let times = race(runs, sides)?;
    let wasm = times.of(WASM).cloned();
    outcome.add("host_function_wasm_us", wasm, "us", Some(Goal::AtMost(0.15)));
    let ratio = times.ratio(NATIVE, CALLED);
    outcome.add("host_function_native_vs_call", ratio, "x", Some(Goal::AtMost(1.2)));
    outcome.add("host_function_native_us", times.of(NATIVE).cloned(), "us", None);
    Ok(())
}

/// Microseconds for a host function that an applet calls in a loop, in one call of its own.
fn asked_us(applet: &Applet) -> io::Result<f64> {
    let us = bursts(ROUNDS, || {
        applet.call("ask_host_often", &CALLS.to_le_bytes()).map_err(io::Error::other)?;
        Ok(())
    })?;
    Ok(us / CALLS as f64)
}
