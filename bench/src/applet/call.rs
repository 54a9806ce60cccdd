//! Section `call`: whole calls through the interface that hosts use, beside the bare channel.

use std::io;
use std::time::{Duration, Instant};

use holdfast_applet::Applet;

use super::channel::{Caller, ROLE, VS_WORD};
use super::futex::PingPong;
use super::processors::Placement;
use super::started::{native, wasm};
use crate::race::{Side, bursts, race};
use crate::report::Outcome;

const NATIVE: &str = "native applet";
const RESTED: &str = "native applet after a pause";
const WASM: &str = "WebAssembly applet";
const CHANNEL: &str = "channel";
const WORD: &str = "word";

const CALLS: u32 = 20_000;
const RESTED_CALLS: u32 = 50;
/// After this long, both sides have gone to sleep.
const PAUSE: Duration = Duration::from_millis(2);
const ECHO: &str = "echo";

pub(crate) fn run(runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    let apart = Placement::apart()?;
    if let Placement::On(pair) = apart {
        outcome.note(format!("call_us is between {pair}"));
    }
    let (fast, rested, wasm) = (native_on(apart, ECHO)?, native(ECHO)?, wasm(ECHO)?);
    let mut channel = Caller::start(ROLE)?;
    let sides = vec![
        Side::new(NATIVE, || {
            let _kept = apart.hold_this()?;
            calls_us(&fast)
        }),
        Side::new(RESTED, || rested_calls_us(&rested)),
        Side::new(WASM, || calls_us(&wasm)),
        Side::new(CHANNEL, || channel.round_trip_us(apart, CALLS)),
        // It spins as long as it is there, and so is there only now.
        Side::new(WORD, || PingPong::start(true)?.round_trip_us(apart, CALLS)),
    ];
    let times = race(runs, sides)?;
    outcome.add("call_us", times.of(NATIVE).cloned(), "us", None);
    outcome.add("call_vs_word", times.ratio(NATIVE, WORD), "x", Some(VS_WORD));
    outcome.add("call_vs_channel", times.ratio(NATIVE, CHANNEL), "x", None);
    outcome.add("call_after_pause_us", times.of(RESTED).cloned(), "us", None);
    outcome.add("wasm_call_us", times.of(WASM).cloned(), "us", None);
    Ok(())
}

/// The native form of an applet, which stays where the other side of a placement runs.
pub(crate) fn native_on(place: Placement, name: &str) -> io::Result<Applet> {
    let _kept = place.hold_for_other()?;
    native(name)
}

/// Microseconds for a call with 8 bytes of input and of result.
pub(crate) fn calls_us(applet: &Applet) -> io::Result<f64> {
    let mut number = 0;
    bursts(CALLS, || {
        number += 1;
        echo(applet, number)
    })
}

/// The same where everybody has gone to sleep before each.
fn rested_calls_us(applet: &Applet) -> io::Result<f64> {
    let mut waited = Duration::ZERO;
    for number in 0..RESTED_CALLS {
        std::thread::sleep(PAUSE);
        let started = Instant::now();
        echo(applet, number)?;
        waited += started.elapsed();
    }
    Ok(waited.as_secs_f64() * 1e6 / f64::from(RESTED_CALLS))
}

fn echo(applet: &Applet, number: u32) -> io::Result<()> {
    let input = u64::from(number).to_le_bytes();
    match applet.call(ECHO, &input).map_err(io::Error::other)? {
        same if same == input => Ok(()),
        _ => Err(io::Error::other("the applet's answer is wrong")),
    }
}
