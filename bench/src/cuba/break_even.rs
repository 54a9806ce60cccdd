//! Section `break_even` (figures 2 to 4 and 9): what the model predicts for MD5 over sizes of its
//! message, from a short message and from long ones, beside what is measured.
//!
//! Where both sides spin, a call costs less than the shortest message takes a language, so each
//! message pays. A break-even is looked for in two dearer situations as well: both sides sleep
//! until each message, and the applet is started for one message.
//!
//! Invariants: what the model is given and what it is checked against are measured in the same
//! rounds, on messages of other sizes, by calls of the same kind; both sides come to the same
//! digests.

use std::cell::RefCell;
use std::io::{self, Error};
use std::time::Instant;

use holdfast_applet::{Applet, SharedBuffer};
use holdfast_model::outside::{Language, Outside, Task, message};
use holdfast_model::{Cost, Microseconds, Workload, break_even};

use super::outsides;
use crate::applet::processors::Placement;
use crate::applet::started::native;
use crate::applet::{call, libraries::Md5};
use crate::race::{Side, Times, bursts, race};
use crate::report::{Goal, Outcome};
use crate::stats::Series;

/// Copied to the buffer before each call, as all messages but the next.
const SHORT: &str = "short message";
/// It lies in the buffer.
const LONG: &str = "long message";
const WRITTEN: &str = "long message, written";
const SHORT_ASLEEP: &str = "short message, asleep";
const WRITTEN_ASLEEP: &str = "long message, written, asleep";
const STARTED: &str = "short message, in a new applet";
/// The sizes of the paper's figure 9, as `holdfast model` has them, and the smallest there is.
const SIZES: [(usize, &str, [&str; 2]); 9] = [
    (1, "1b", ["applet 1 B", "outside 1 B"]),
    (64, "64b", ["applet 64 B", "outside 64 B"]),
    (256, "256b", ["applet 256 B", "outside 256 B"]),
    (1 << 10, "1kib", ["applet 1 KiB", "outside 1 KiB"]),
    (4 << 10, "4kib", ["applet 4 KiB", "outside 4 KiB"]),
    (16 << 10, "16kib", ["applet 16 KiB", "outside 16 KiB"]),
    (64 << 10, "64kib", ["applet 64 KiB", "outside 64 KiB"]),
    (256 << 10, "256kib", ["applet 256 KiB", "outside 256 KiB"]),
    (1 << 20, "1mib", ["applet 1 MiB", "outside 1 MiB"]),
];
const NOTHING_OUTSIDE: &str = "nothing, outside";
const LONG_OUTSIDE: &str = "long message, outside";
/// Of no size that is predicted.
const SHORT_BYTES: usize = 8;
const LONG_BYTES: usize = 768 << 10;
const LONG_OUTSIDE_BYTES: usize = 96 << 10;
/// Somewhat more than what is searched where both sides sleep.
const LONG_ASLEEP_BYTES: usize = 96 << 10;
/// How often a long message is taken in one measurement.
const LONG_CALLS: u32 = 10;
/// How often an applet is started in one measurement.
const STARTS: usize = 3;
const BLOCK_BYTES: f64 = 64.0;
/// What one measurement takes, about.
const MEASURED_US: f64 = 4000.0;
/// Above this size no break-even is looked for.
const BREAK_EVEN_BYTES_MAX: u64 = 1 << 16;
/// Times of both sides at each step of that search.
const SEARCH_ROUNDS: usize = 5;

/// What a model is given of an applet besides the message that lies there.
struct Given {
    short: &'static str,
    written: &'static str,
    written_bytes: usize,
}

const SPINNING: Given = Given { short: SHORT, written: WRITTEN, written_bytes: LONG_BYTES };
const ASLEEP: Given =
    Given { short: SHORT_ASLEEP, written: WRITTEN_ASLEEP, written_bytes: LONG_ASLEEP_BYTES };

pub(crate) fn run(runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    let applet = Md5Applet::start(Placement::apart()?)?;
    let asleep = Md5Applet::start(Placement::Together)?;
    for outside in outsides(outcome)? {
        // PyPy is near enough to C to have nothing of its own to show.
        if outside.borrow().language() != Language::PyPy {
            compare(runs, outcome, &applet, &asleep, &outside)?;
        }
    }
    Ok(())
}

/// The applet, a long message in one buffer, and room for others.
struct Md5Applet {
    applet: Applet,
    place: Placement,
    long: SharedBuffer,
    room: SharedBuffer,
    text: Vec<u8>,
}

impl Md5Applet {
    fn start(place: Placement) -> io::Result<Md5Applet> {
        let applet = call::native_on(place, "md5")?;
        let text = message(1 << 20);
        let long = applet.buffer(LONG_BYTES).map_err(Error::other)?;
        long.write(0, &text[..LONG_BYTES]).map_err(Error::other)?;
        let room = applet.buffer(1 << 20).map_err(Error::other)?;
        Ok(Md5Applet { applet, place, long, room, text })
    }

    fn long_us(&self) -> io::Result<f64> {
        let _kept = self.place.hold_this()?;
        bursts(LONG_CALLS, || {
            let called = self.applet.call_with_buffer("digest_buffer", b"", &self.long);
            called.map(drop).map_err(Error::other)
        })
    }

    /// What a host has to do with a message that lies in its own memory. What the call costs the
    /// applet is not counted, as for the long message: the kernel would be asked for it.
    fn digest(&self, bytes: usize) -> io::Result<Vec<u8>> {
        self.room.write(0, &self.text[..bytes]).map_err(Error::other)?;
        let size = (bytes as u64).to_le_bytes();
        self.applet.call_with_buffer("digest_buffer", &size, &self.room).map_err(Error::other)
    }

    fn digest_us(&self, bytes: usize) -> io::Result<f64> {
        self.digests_us(bytes, often(10.0 + bytes as f64 / 500.0))
    }

    fn digests_us(&self, bytes: usize, count: u32) -> io::Result<f64> {
        let _kept = self.place.hold_this()?;
        bursts(count, || self.digest(bytes).map(drop))
    }
}

/// From nothing until the digest is there, in an applet that is started for it. Its end is waited
/// for, but not measured.
fn started_us(text: &[u8]) -> io::Result<f64> {
    let mut taken_us = Series::default();
    for _ in 0..STARTS {
        let started = Instant::now();
        let applet = native("md5")?;
        applet.call("digest", text).map(drop).map_err(Error::other)?;
        taken_us.push(started.elapsed().as_secs_f64() * 1e6);
    }
    Ok(taken_us.median())
}

/// One language beside the applet. The keys of Python, the slow one as the paper's Java was, have no
/// name in them.
fn compare(
    runs: usize,
    outcome: &mut Outcome,
    applet: &Md5Applet,
    asleep: &Md5Applet,
    outside: &RefCell<Outside>,
) -> io::Result<()> {
    let library = Md5::load()?;
    for (bytes, ..) in SIZES {
        let (ours, theirs) = (applet.digest(bytes)?, in_language(outside, bytes, 1)?.1);
        if ours != library.digest(&applet.text[..bytes]) || theirs != hexadecimal(&ours) {
            return Err(Error::other("applet, C and language come to different digests"));
        }
    }
    let language = outside.borrow().language();
    // Where a language is quick, no message of the sizes that are searched pays for a start.
    let is_slow = language == Language::Python;
    let mut sides = vec![
        Side::new(SHORT, || applet.digest_us(SHORT_BYTES)),
        Side::new(LONG, || applet.long_us()),
        Side::new(WRITTEN, || applet.digests_us(LONG_BYTES, LONG_CALLS)),
        Side::new(SHORT_ASLEEP, || asleep.digest_us(SHORT_BYTES)),
        Side::new(WRITTEN_ASLEEP, || asleep.digest_us(LONG_ASLEEP_BYTES)),
        Side::new(NOTHING_OUTSIDE, || outside_us(outside, 0)),
        Side::new(LONG_OUTSIDE, || outside_us(outside, LONG_OUTSIDE_BYTES)),
    ];
    if is_slow {
        sides.push(Side::new(STARTED, || started_us(&applet.text[..SHORT_BYTES])));
    }
    for (bytes, _, [ours, theirs]) in SIZES {
        sides.push(Side::new(ours, move || applet.digest_us(bytes)));
        sides.push(Side::new(theirs, move || outside_us(outside, bytes)));
    }
    let times = race(runs, sides)?;
    let workload = workload_of(&times, &SPINNING)?;

    let prefix = |what: &str| match language {
        Language::Python => what.to_owned(),
        other => format!("{what}_{}", other.name()),
    };
    let mut offs = Series::default();
    for (bytes, size, [ours, theirs]) in SIZES {
        let key = |what: &str| format!("{}_{size}_{what}", prefix("figure9"));
        let predicted_us = workload.applet_us(bytes as u64);
        outcome.add(key("applet_us"), times.of(ours).cloned(), "us", None);
        outcome.add(key("predicted_us"), Some(one(predicted_us)), "us", None);
        outcome.add(key("outside_us"), times.of(theirs).cloned(), "us", None);
        let outside_us = workload.interface_us(bytes as u64);
        outcome.add(key("outside_predicted_us"), Some(one(outside_us)), "us", None);
        if let Some(ours) = times.of(ours) {
            offs.push((ours.median() / predicted_us - 1.0).abs() * 100.0);
        }
    }
    outcome.add(prefix("figure9") + "_model_off_pct", Some(offs), "%", Some(Goal::AtMost(10.0)));

    // Figures 2 to 4: the shortest computation that pays, by the call and the speed-up.
    if let Some(speedup) = workload.speedup() {
        outcome.add(prefix("break_even") + "_speedup", Some(one(speedup)), "x", None);
        if let Some(point) = break_even(workload.call.fixed_us, speedup) {
            let key = prefix("break_even");
            outcome.add(key.clone() + "_in_applet_us", Some(one(point.applet_us)), "us", None);
            outcome.add(key + "_outside_us", Some(one(point.interface_us)), "us", None);
        }
    }
    let key = prefix("break_even");
    let theirs = |bytes: u64| outside_us(outside, bytes as usize);
    let ours = |bytes: u64| applet.digest_us(bytes as usize);
    add_break_even(outcome, &key, &workload, &ours, &theirs)?;
    let ours = |bytes: u64| asleep.digest_us(bytes as usize);
    let sleeping = workload_of(&times, &ASLEEP)?;
    add_break_even(outcome, &format!("{key}_asleep"), &sleeping, &ours, &theirs)?;
    if let Some(started) = times.of(STARTED) {
        let ours = |bytes: u64| started_us(&applet.text[..bytes as usize]);
        let started = in_new_applet(workload, started.median())?;
        add_break_even(outcome, &format!("{key}_started"), &started, &ours, &theirs)?;
    }
    Ok(())
}

/// The shortest message that pays, as the model has it and as it is measured.
fn add_break_even(
    outcome: &mut Outcome,
    key: &str,
    workload: &Workload,
    ours: &dyn Fn(u64) -> io::Result<f64>,
    theirs: &dyn Fn(u64) -> io::Result<f64>,
) -> io::Result<()> {
    let predicted = workload.break_even_bytes();
    let measured = smallest_that_pays(BREAK_EVEN_BYTES_MAX, &mut |bytes| {
        let (mut one, mut other) = (Series::default(), Series::default());
        for _ in 0..SEARCH_ROUNDS {
            one.push(ours(bytes)?);
            other.push(theirs(bytes)?);
        }
        Ok(one.median() <= other.median())
    })?;
    for (what, bytes) in [("bytes_predicted", predicted), ("bytes_measured", measured)] {
        let key = format!("{key}_{what}");
        match bytes {
            Some(bytes) => outcome.add(key, Some(one(bytes as f64)), "B", None),
            None => outcome.note(format!("{key}: no size pays")),
        }
    }
    if let Some(error) = predicted.zip(measured).and_then(|(one, other)| error_pct(one, other)) {
        outcome.add(format!("{key}_prediction_error_pct"), Some(one(error)), "%", None);
    }
    Ok(())
}

/// The model of what was measured. A call that computes nothing is one with a short message, less
/// the block that MD5 computes for it: so the buffer and its first bytes are in it. What a byte
/// takes to get there is what a message that is written takes longer than one that lies there: so
/// the way from the cache of one processor to that of the other is in it, and not only the copy.
fn workload_of(times: &Times, given: &Given) -> io::Result<Workload> {
    let median = |side| times.of(side).map_or(0.0, Series::median);
    let (short_us, nothing_us) = (median(given.short), median(NOTHING_OUTSIDE));
    let applet_us = (median(LONG) - median(SHORT)) / LONG_BYTES as f64;
    let written_us = (median(given.written) - short_us) / given.written_bytes as f64;
    let interface_us = (median(LONG_OUTSIDE) - nothing_us) / LONG_OUTSIDE_BYTES as f64;
    Ok(Workload {
        name: "MD5".to_owned(),
        call: cost(short_us - BLOCK_BYTES * applet_us, written_us - applet_us)?,
        applet: cost(BLOCK_BYTES * applet_us, applet_us)?,
        interface: cost(nothing_us, interface_us)?,
    })
}

/// The same where the applet is started for each message.
fn in_new_applet(workload: Workload, short_us: f64) -> io::Result<Workload> {
    let fixed_us = short_us - workload.applet.fixed_us.get();
    Ok(Workload { call: cost(fixed_us, workload.call.per_byte_us.get())?, ..workload })
}

/// The smallest size that pays, if one up to `max` does; a larger one pays as well.
fn smallest_that_pays(
    max: u64,
    pays: &mut dyn FnMut(u64) -> io::Result<bool>,
) -> io::Result<Option<u64>> {
    // Where the applet is the slower one, small sizes alone may pay: as the model, that is none.
    if !pays(max)? {
        return Ok(None);
    }
    if pays(0)? {
        return Ok(Some(0));
    }
    let (mut low, mut high) = (0, max);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if pays(middle)? {
            high = middle;
        } else {
            low = middle;
        }
    }
    Ok(Some(high))
}

/// How far a prediction is off, in percent of what was measured; nothing can be said of 0 unless
/// both are.
fn error_pct(predicted: u64, measured: u64) -> Option<f64> {
    match (predicted, measured) {
        (0, 0) => Some(0.0),
        (_, 0) => None,
        (predicted, measured) => Some((predicted as f64 / measured as f64 - 1.0) * 100.0),
    }
}

fn cost(fixed_us: f64, per_byte_us: f64) -> io::Result<Cost> {
    // A difference of two measured times may be less than nothing.
    let time = |us: f64| Microseconds::new(us.max(0.0)).map_err(Error::other);
    Ok(Cost { fixed_us: time(fixed_us)?, per_byte_us: time(per_byte_us)? })
}

fn in_language(
    outside: &RefCell<Outside>,
    bytes: usize,
    times: u32,
) -> io::Result<(f64, serde_json::Value)> {
    outside.borrow_mut().run(&Task::Md5 { bytes: bytes as u64 }, times).map_err(Error::other)
}

fn outside_us(outside: &RefCell<Outside>, bytes: usize) -> io::Result<f64> {
    let each_us = match outside.borrow().language() {
        Language::Node => 1.0 + bytes as f64 / 500.0,
        _ => 30.0 + bytes as f64 / 2.0,
    };
    in_language(outside, bytes, often(each_us)).map(|(us, _)| us)
}

/// How often something that takes so long is done in one measurement.
fn often(us: f64) -> u32 {
    (MEASURED_US / us).clamp(1.0, 2000.0) as u32
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn one(value: f64) -> Series {
    Series::from_iter([value])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The search finds where a size begins to pay, and the ends.
    #[test]
    fn search_finds_the_smallest_size_that_pays() {
        for limit in [0, 1, 57, 4096, 65536] {
            let found = smallest_that_pays(65536, &mut |bytes| Ok(bytes >= limit)).unwrap();
            assert_eq!(found, Some(limit));
        }
        assert_eq!(smallest_that_pays(65536, &mut |_| Ok(false)).unwrap(), None);
    }

    #[test]
    fn error_is_relative_to_what_was_measured() {
        assert_eq!(error_pct(150, 100), Some(50.0));
        assert_eq!(error_pct(50, 100), Some(-50.0));
        assert_eq!((error_pct(0, 0), error_pct(10, 0)), (Some(0.0), None));
    }

    /// What a byte takes in the paper's C.
    const BYTE_US: f64 = 142.6 / 1024.0;

    /// Times of messages: each byte takes so long to get there, and the call itself takes the
    /// paper's time while both sides are awake, and `asleep_us` where both sleep.
    fn times(to_get_there_us: f64, asleep_us: f64) -> Times {
        let side = |name: &'static str, us: f64| Side::new(name, move || Ok(us));
        let message_us = |call_us: f64, bytes: f64, byte_us: f64| {
            call_us + BLOCK_BYTES * BYTE_US + bytes * byte_us
        };
        let (long, asleep) = (LONG_BYTES as f64, LONG_ASLEEP_BYTES as f64);
        let written_us = BYTE_US + to_get_there_us;
        let sides = vec![
            side(SHORT, message_us(550.0, 0.0, 0.0)),
            side(LONG, message_us(550.0, long, BYTE_US)),
            side(WRITTEN, message_us(550.0, long, written_us)),
            side(SHORT_ASLEEP, message_us(asleep_us, 0.0, 0.0)),
            side(WRITTEN_ASLEEP, message_us(asleep_us, asleep, written_us)),
            side(NOTHING_OUTSIDE, 0.0),
            side(LONG_OUTSIDE, 71.0 * BYTE_US * LONG_OUTSIDE_BYTES as f64),
        ];
        race(1, sides).unwrap()
    }

    /// The paper's three numbers come out of times as this section measures them.
    #[test]
    fn workload_is_that_of_the_times() {
        let workload = workload_of(&times(0.0, 0.0), &SPINNING).unwrap();
        assert!((workload.call.fixed_us.get() - 550.0).abs() < 1e-6);
        assert!((workload.speedup().unwrap() - 71.0).abs() < 1e-6);
        // 57 in the paper's model, and a block that MD5 adds to each message.
        assert_eq!(workload.break_even_bytes(), Some(58));
    }

    /// Getting a message there is a part of the call, and none of what the applet computes.
    #[test]
    fn transfer_is_not_taken_for_computation() {
        let workload = workload_of(&times(0.01, 0.0), &SPINNING).unwrap();
        assert!((workload.call.per_byte_us.get() - 0.01).abs() < 1e-9);
        assert!((workload.applet.per_byte_us.get() - BYTE_US).abs() < 1e-9);
        let mebibyte_us = 550.0 + 64.0 * BYTE_US + (BYTE_US + 0.01) * f64::from(1 << 20);
        assert!((workload.applet_us(1 << 20) / mebibyte_us - 1.0).abs() < 1e-9);
    }

    /// Where a call is dearer, prediction and search come to the same size, which is not nothing.
    #[test]
    fn dearer_calls_have_a_break_even() {
        let times = times(0.01, 6000.0);
        let asleep = workload_of(&times, &ASLEEP).unwrap();
        let started = in_new_applet(workload_of(&times, &SPINNING).unwrap(), 20_000.0).unwrap();
        assert!((started.applet_us(0) - 20_000.0).abs() < 1e-6);
        for (workload, expected) in [(asleep, 618), (started, 2054)] {
            assert_eq!(workload.break_even_bytes(), Some(expected));
            let mut outcome = Outcome::default();
            let ours = |bytes: u64| -> io::Result<f64> { Ok(workload.applet_us(bytes)) };
            let theirs = |bytes: u64| -> io::Result<f64> { Ok(workload.interface_us(bytes)) };
            add_break_even(&mut outcome, "it", &workload, &ours, &theirs).unwrap();
            let found: Vec<_> = outcome
                .measurements
                .iter()
                .map(|found| (&*found.key, found.series.median()))
                .collect();
            let bytes = expected as f64;
            let expected = [
                ("it_bytes_predicted", bytes),
                ("it_bytes_measured", bytes),
                ("it_prediction_error_pct", 0.0),
            ];
            assert_eq!(found, expected);
        }
    }
}
