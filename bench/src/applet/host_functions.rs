//! Section `host_functions`: what it costs an applet to call its host, 8 bytes each way.

use std::io;
use std::time::Instant;

use holdfast_applet::{Applet, Grants, HostCall};
use holdfast_testkit::applet_file;

use super::call::calls_us;
use super::processors::Kept;
use super::started::{native, start};
use crate::race::{Side, race};
use crate::report::{Goal, Outcome};

const WASM: &str = "WebAssembly calls its host";
const NATIVE: &str = "a native applet calls its host";
const CALLED: &str = "a host calls a native applet";

const CALLS: u64 = 20_000;

pub(crate) fn run(runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    let grants =
        || Grants::none().function("echo", |_: &HostCall<'_>, input: &[u8]| Ok(input.to_vec()));
    let asking = |file: &str| start(applet_file(file)?, grants());
    let (in_wasm, in_native, called) = (asking("trial.wasm")?, asking("trial")?, native("echo")?);
    let sides = vec![
        Side::new(WASM, || asked_us(&in_wasm)),
        Side::new(NATIVE, || {
            let _kept = Kept::on_the_first(None)?;
            asked_us(&in_native)
        }),
        Side::new(CALLED, || {
            let _kept = Kept::on_the_first(None)?;
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
    let started = Instant::now();
    applet.call("ask_host_often", &CALLS.to_le_bytes()).map_err(io::Error::other)?;
    Ok(started.elapsed().as_secs_f64() * 1e6 / CALLS as f64)
}
