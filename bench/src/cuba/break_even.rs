//! Section `break_even` (figures 2 to 4 and 9): what the model predicts for MD5 over sizes of its
//! message, from a call that computes nothing and from long messages, beside what is measured.
//!
//! Invariants: what the model is given and what it is checked against are measured in the same
//! rounds, apart from each other; both sides come to the same digests.

use std::cell::RefCell;
use std::io::{self, Error};

use holdfast_applet::{Applet, Call, SharedBuffer};
use holdfast_model::outside::{Language, Outside, Task, message};
use holdfast_model::{Cost, Microseconds, Workload, break_even};

use super::outsides;
use crate::applet::processors::Placement;
use crate::applet::{call, libraries::Md5};
use crate::race::{Side, Times, bursts, race};
use crate::report::{Goal, Outcome};
use crate::stats::Series;

const CALL: &str = "call";
const LONG: &str = "long message";
const COPY: &str = "copy";
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
const LONG_BYTES: usize = 768 << 10;
const LONG_OUTSIDE_BYTES: usize = 96 << 10;
const BLOCK_BYTES: f64 = 64.0;
/// What one measurement takes, about.
const MEASURED_US: f64 = 4000.0;
/// Above this size no break-even is looked for.
const BREAK_EVEN_BYTES_MAX: u64 = 1 << 16;
/// Times of both sides at each step of that search.
const SEARCH_ROUNDS: usize = 5;

pub(crate) fn run(runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    let place = Placement::apart()?;
    let applet = Md5Applet::start(place)?;
    for outside in outsides(outcome)? {
        // PyPy is near enough to C to have nothing of its own to show.
        if outside.borrow().language() != Language::PyPy {
            compare(runs, outcome, place, &applet, &outside)?;
        }
    }
    Ok(())
}

/// The applet, a long message in one buffer, and room for others.
struct Md5Applet {
    applet: Applet,
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
        Ok(Md5Applet { applet, long, room, text })
    }

    fn nothing(&self) -> io::Result<()> {
        self.applet.call("echo", b"8 bytes.").map(drop).map_err(Error::other)
    }

    fn long(&self) -> io::Result<()> {
        let called = self.applet.call_with_buffer("digest_buffer", b"", &self.long);
        called.map(drop).map_err(Error::other)
    }

    fn copy(&self) -> io::Result<()> {
        self.room.write(0, &self.text[..self.room.len()]).map_err(Error::other)
    }

    /// What a host has to do with a message that lies in its own memory.
    fn digest(&self, bytes: usize) -> io::Result<Vec<u8>> {
        self.room.write(0, &self.text[..bytes]).map_err(Error::other)?;
        let size = (bytes as u64).to_le_bytes();
        let called = self.applet.call_with(Call::new("digest_buffer", &size).buffer(&self.room));
        called.map(|response| response.bytes).map_err(Error::other)
    }

    fn digest_us(&self, place: Placement, bytes: usize) -> io::Result<f64> {
        let _kept = place.hold_this()?;
        bursts(often(10.0 + bytes as f64 / 500.0), || self.digest(bytes).map(drop))
    }
}

/// One language beside the applet. The keys of Python, the slow one as the paper's Java was, have no
/// name in them.
fn compare(
    runs: usize,
    outcome: &mut Outcome,
    place: Placement,
    applet: &Md5Applet,
    outside: &RefCell<Outside>,
) -> io::Result<()> {
    let library = Md5::load()?;
    for (bytes, ..) in SIZES {
        let (ours, theirs) = (applet.digest(bytes)?, in_language(outside, bytes, 1)?.1);
        if ours != library.digest(&applet.text[..bytes]) || theirs != hexadecimal(&ours) {
            return Err(Error::other("applet, C and language come to different digests"));
        }
    }
    let kept = |count: u32, act: &dyn Fn() -> io::Result<()>| {
        let _kept = place.hold_this()?;
        bursts(count, act)
    };
    let mut sides = vec![
        Side::new(CALL, || kept(2000, &|| applet.nothing())),
        Side::new(LONG, || kept(10, &|| applet.long())),
        Side::new(COPY, || kept(20, &|| applet.copy())),
        Side::new(NOTHING_OUTSIDE, || outside_us(outside, 0)),
        Side::new(LONG_OUTSIDE, || outside_us(outside, LONG_OUTSIDE_BYTES)),
    ];
    for (bytes, _, [ours, theirs]) in SIZES {
        sides.push(Side::new(ours, move || applet.digest_us(place, bytes)));
        sides.push(Side::new(theirs, move || outside_us(outside, bytes)));
    }
    let times = race(runs, sides)?;
    let workload = workload(&times)?;

    let language = outside.borrow().language();
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
    let key = |what: &str| format!("{}_{what}", prefix("break_even"));
    let predicted = workload.break_even_bytes();
    let mut pays = |bytes: u64| {
        let (mut ours, mut theirs) = (Series::default(), Series::default());
        for _ in 0..SEARCH_ROUNDS {
            ours.push(applet.digest_us(place, bytes as usize)?);
            theirs.push(outside_us(outside, bytes as usize)?);
        }
        Ok(ours.median() <= theirs.median())
    };
    let measured = smallest_that_pays(BREAK_EVEN_BYTES_MAX, &mut pays)?;
    for (what, bytes) in [("bytes_predicted", predicted), ("bytes_measured", measured)] {
        match bytes {
            Some(bytes) => outcome.add(key(what), Some(one(bytes as f64)), "B", None),
            None => outcome.note(format!("{}: no size pays", key(what))),
        }
    }
    if let Some(error) = predicted.zip(measured).and_then(|(one, other)| error_pct(one, other)) {
        outcome.add(key("prediction_error_pct"), Some(one(error)), "%", None);
    }
    Ok(())
}

/// The model of what was measured.
fn workload(times: &Times) -> io::Result<Workload> {
    let median = |side| times.of(side).map_or(0.0, Series::median);
    let (call_us, nothing_us) = (median(CALL), median(NOTHING_OUTSIDE));
    let applet_us = (median(LONG) - call_us) / LONG_BYTES as f64;
    let interface_us = (median(LONG_OUTSIDE) - nothing_us) / LONG_OUTSIDE_BYTES as f64;
    Ok(Workload {
        name: "MD5".to_owned(),
        call: cost(call_us, median(COPY) / f64::from(1 << 20))?,
        applet: cost(BLOCK_BYTES * applet_us, applet_us)?,
        interface: cost(nothing_us, interface_us)?,
    })
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

    /// The paper's three numbers come out of times as this section measures them.
    #[test]
    fn workload_is_that_of_the_times() {
        let side = |name: &'static str, us: f64| Side::new(name, move || Ok(us));
        let byte_us = 142.6 / 1024.0;
        let long_us = 550.0 + byte_us * LONG_BYTES as f64;
        let outside_us = 71.0 * byte_us * LONG_OUTSIDE_BYTES as f64;
        let sides = vec![
            side(CALL, 550.0),
            side(LONG, long_us),
            side(COPY, 0.0),
            side(NOTHING_OUTSIDE, 0.0),
            side(LONG_OUTSIDE, outside_us),
        ];
        let workload = workload(&race(1, sides).unwrap()).unwrap();
        assert!((workload.speedup().unwrap() - 71.0).abs() < 1e-6);
        // 57 in the paper's model, and a block that MD5 adds to each message.
        assert_eq!(workload.break_even_bytes(), Some(58));
    }
}
