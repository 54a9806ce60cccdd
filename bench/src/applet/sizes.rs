//! Section `sizes`: calls with more and more bytes of input and of result, of the bare channel with
//! each side on a processor of its own, and of whole calls where the scheduler places both sides.

use std::io;

use holdfast_applet::Applet;

use super::channel::{Caller, ROLE};
use super::processors::Placement;
use super::started::native;
use crate::race::{Side, bursts, race};
use crate::report::Outcome;

const CHANNEL: &str = "channel";
const FREE: &str = "channel, free";
const APPLET: &str = "native applet, free";

const ECHO: &str = "echo";
/// Bytes, and as a part of a key.
const SIZES: [(usize, &str); 9] = [
    (0, "0"),
    (48, "48"),
    (64, "64"),
    (256, "256"),
    (1 << 10, "1k"),
    (4 << 10, "4k"),
    (64 << 10, "64k"),
    (1 << 20, "1m"),
    (16 << 20, "16m"),
];
/// Calls for each run, as far as they have no more bytes than this together.
const CALLS: usize = 5_000;
const BYTES: usize = 64 << 20;

pub(crate) fn run(runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    let (mut channel, mut free) = (Caller::start(ROLE)?, Caller::start(ROLE)?);
    let applet = native(ECHO)?;
    let apart = Placement::apart()?;
    if let Placement::On(pair) = apart {
        outcome.note(format!("call_SIZE_channel_us is between {pair}"));
    }
    for (bytes, name) in SIZES {
        let input = vec![7; bytes];
        let calls = (BYTES / bytes.max(1)).min(CALLS) as u32;
        let sides = vec![
            Side::new(CHANNEL, || channel.round_trip_of_us(apart, calls, &input)),
            Side::new(FREE, || free.round_trip_of_us(Placement::Free, calls, &input)),
            Side::new(APPLET, || calls_us(&applet, calls, &input)),
        ];
        let times = race(runs, sides)?;
        let key = |what| format!("call_{name}_{what}_us");
        outcome.add(key("channel"), times.of(CHANNEL).cloned(), "us", None);
        outcome.add(key("channel_free"), times.of(FREE).cloned(), "us", None);
        outcome.add(key("applet_free"), times.of(APPLET).cloned(), "us", None);
    }
    Ok(())
}

fn calls_us(applet: &Applet, calls: u32, input: &[u8]) -> io::Result<f64> {
    bursts(calls, || match applet.call(ECHO, input).map_err(io::Error::other)? {
        same if same == input => Ok(()),
        _ => Err(io::Error::other("the applet's answer is wrong")),
    })
}
