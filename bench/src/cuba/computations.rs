//! Section `computations` (table 3): page eviction, a logical disk whose cleaner runs, and MD5 of
//! 1 MiB, in C, in applets, and in the languages that the applets relieve.
//!
//! C is the applets' own files as libraries in this process. The two short computations are asked
//! for one by one, where a call costs more than they do, and in batches.
//!
//! Invariants: all sides have the same algorithm and come to the same results, which are compared
//! before anything is timed; MD5 runs on one processor in C and in the applets, as two processors
//! differ by more; of the short computations, the applet has a processor of its own.

use std::cell::RefCell;
use std::io::{self, Error};
use std::time::Instant;

use holdfast_applet::Applet;
use holdfast_model::outside::{KeptIn, Language, Outside, Task, message, writes};
use serde_json::{Value, json};

use super::{deviation_pct, outsides};
use crate::applet::call::native_on;
use crate::applet::libraries::{Eviction, LogicalDisk, Md5};
use crate::applet::processors::{Kept, Placement};
use crate::applet::started::{native, wasm};
use crate::race::{Side, Times, bursts, race};
use crate::report::{Goal, Outcome};

/// Sides, as they are named in keys.
const C: &str = "c";
const APPLET: &str = "applet";
const APPLET_BATCH: &str = "applet_batch";
const WASM: &str = "wasm";
const WASM_BATCH: &str = "wasm_batch";

const MESSAGE_BYTES: usize = 1 << 20;

const HOT_PAGES: u32 = 64;
/// Pages that are looked at before one is chosen.
const PAGES: u32 = 64;
/// Decisions in a batch.
const LISTS: usize = 64;
const DECISIONS: u32 = 4000;
const DECISIONS_OUTSIDE: u32 = 500;

/// A disk of 64 MiB in blocks of 4 KiB, three quarters full.
const BLOCKS: u32 = 1 << 14;
const SEGMENT_BLOCKS: u32 = 16;
const LOGICAL_BLOCKS: u32 = 3 << 12;
/// Writes in a batch.
const BATCH: u32 = 4096;
/// Batches that are compared: the cleaner runs in all but the first.
const COMPARED: usize = 3;

/// The best sandbox of the paper's table: its own for MD5, software fault isolation for the others.
const MD5_VS_C: f64 = 1.08;
const EVICTION_VS_C: f64 = 1.4;
const LOGICAL_DISK_VS_C: f64 = 1.16;

pub(crate) fn run(runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    let outsides = outsides(outcome)?;
    md5(runs, outcome, &outsides)?;
    eviction(runs, outcome, &outsides)?;
    logical_disk(runs, outcome, &outsides)
}

fn md5(runs: usize, outcome: &mut Outcome, outsides: &[RefCell<Outside>]) -> io::Result<()> {
    let library = Md5::load()?;
    let text = message(MESSAGE_BYTES);
    let expected = library.digest(&text);
    let task = Task::Md5 { bytes: MESSAGE_BYTES as u64 };
    let in_hexadecimal: String = expected.iter().map(|byte| format!("{byte:02x}")).collect();
    for outside in outsides {
        agree(outside, &task, &json!(in_hexadecimal))?;
    }
    // What is started from here on is kept there, too.
    let _kept = Kept::on_the_first(None)?;
    let applets = [native("md5")?, wasm("md5")?];
    let buffers = applets.each_ref().map(|applet| {
        let buffer = applet.buffer(text.len()).map_err(Error::other)?;
        buffer.write(0, &text).map_err(Error::other)?;
        Ok::<_, Error>(buffer)
    });
    let [native_buffer, wasm_buffer] = buffers;
    let buffers = [native_buffer?, wasm_buffer?];
    let call = |index: usize| {
        let started = Instant::now();
        let digest = applets[index].call_with_buffer("digest_buffer", b"", &buffers[index]);
        let us = us_since(started);
        if digest.map_err(Error::other)? == expected {
            Ok(us)
        } else {
            Err(Error::other("the digest is another one"))
        }
    };
    let in_c = || {
        let started = Instant::now();
        let digest = library.digest(&text);
        let us = us_since(started);
        if digest == expected { Ok(us) } else { Err(Error::other("the digest is another one")) }
    };
    let mut sides =
        vec![Side::new(C, in_c), Side::new(APPLET, || call(0)), Side::new(WASM, || call(1))];
    sides.extend(outsides.iter().map(|outside| outside_side(outside, &task, 1, 1)));
    let times = race(runs, sides)?;
    add(outcome, "md5", &times, |side| (side == APPLET).then_some(MD5_VS_C));
    Ok(())
}

fn eviction(runs: usize, outcome: &mut Outcome, outsides: &[RefCell<Outside>]) -> io::Result<()> {
    let library = Eviction::load()?;
    let hot: Vec<u32> = (0..HOT_PAGES).collect();
    // The last one is the first that is not hot.
    let pages: Vec<u32> = (1..PAGES).chain([HOT_PAGES]).collect();
    let lists: Vec<u32> = pages.iter().copied().cycle().take(pages.len() * LISTS).collect();
    let (one, all) = (bytes(&pages), bytes(&[&[PAGES][..], &lists].concat()));
    let expected = bytes(&[HOT_PAGES]);
    let expected_of_all = expected.repeat(LISTS);
    let task = Task::Eviction { hot: HOT_PAGES, pages: pages.clone(), kept_in: KeptIn::List };
    for outside in outsides {
        agree(outside, &task, &json!(HOT_PAGES))?;
    }
    let place = Placement::apart()?;
    let applets = [native_on(place, "eviction")?, wasm("eviction")?];
    for applet in &applets {
        applet.call("hot", &bytes(&hot)).map_err(Error::other)?;
    }
    let (one, all) = (&one, &all);
    let single = |applet| {
        let _kept = place.hold_this()?;
        bursts(DECISIONS, || same(applet, "evict", one, &expected))
    };
    let batch = |applet| {
        let _kept = place.hold_this()?;
        let us = bursts(DECISIONS / 10, || same(applet, "evict_each", all, &expected_of_all))?;
        Ok(us / LISTS as f64)
    };
    let in_c = || {
        let _kept = place.hold_this()?;
        let mut chosen = [0];
        bursts(DECISIONS, || {
            library.choose_each(&pages, pages.len(), &hot, &mut chosen);
            if chosen == [HOT_PAGES] { Ok(()) } else { Err(Error::other("C chose another page")) }
        })
    };
    let [native, wasm] = &applets;
    let mut sides = vec![
        Side::new(C, in_c),
        Side::new(APPLET, || single(native)),
        Side::new(APPLET_BATCH, || batch(native)),
        Side::new(WASM, || single(wasm)),
        Side::new(WASM_BATCH, || batch(wasm)),
    ];
    sides.extend(outsides.iter().map(|outside| outside_side(outside, &task, DECISIONS_OUTSIDE, 1)));
    let times = race(runs, sides)?;
    add(outcome, "eviction", &times, |side| (side == APPLET_BATCH).then_some(EVICTION_VS_C));
    Ok(())
}

fn logical_disk(
    runs: usize,
    outcome: &mut Outcome,
    outsides: &[RefCell<Outside>],
) -> io::Result<()> {
    let place = Placement::apart()?;
    let natives = [native_on(place, "logicaldisk")?, native_on(place, "logicaldisk")?];
    let wasms = [wasm("logicaldisk")?, wasm("logicaldisk")?];
    let task = Task::CleanedDisk {
        blocks: BLOCKS,
        segment_blocks: SEGMENT_BLOCKS,
        logical_blocks: LOGICAL_BLOCKS,
        batch: BATCH,
    };
    let mut in_c = InC::full()?;
    let disk = |applet| InApplet::full(applet);
    let [one, many] = [disk(&natives[0])?, disk(&natives[1])?].map(RefCell::new);
    let [wasm_one, wasm_many] = [disk(&wasms[0])?, disk(&wasms[1])?].map(RefCell::new);
    let mut moves = 0;
    for _ in 0..COMPARED {
        let steps = in_c.update(BATCH as usize)?.to_vec();
        moves += steps.len() - BATCH as usize;
        for applet in [&one, &many, &wasm_one, &wasm_many] {
            if applet.borrow_mut().update(BATCH as usize)? != bytes(steps.as_flattened()) {
                return Err(Error::other("the applet logicaldisk has other steps than C"));
            }
        }
        for outside in outsides {
            agree(outside, &task, &json!(steps))?;
        }
    }
    if moves == 0 {
        return Err(Error::other("the cleaner of the logical disk did nothing"));
    }
    outcome.note(format!(
        "the logical disk's cleaner moved {:.2} blocks for each that was written",
        moves as f64 / f64::from(BATCH) / COMPARED as f64
    ));
    let batch = |disk: &RefCell<InApplet<'_>>| {
        let _kept = place.hold_this()?;
        let started = Instant::now();
        disk.borrow_mut().update(BATCH as usize)?;
        Ok(us_since(started) / f64::from(BATCH))
    };
    // A mean of a whole batch, one by one: most writes clean nothing.
    let single = |disk: &RefCell<InApplet<'_>>| {
        let _kept = place.hold_this()?;
        let started = Instant::now();
        for _ in 0..BATCH {
            disk.borrow_mut().update(1)?;
        }
        Ok(us_since(started) / f64::from(BATCH))
    };
    let plain = || {
        let _kept = place.hold_this()?;
        let started = Instant::now();
        in_c.update(BATCH as usize)?;
        Ok(us_since(started) / f64::from(BATCH))
    };
    let mut sides = vec![
        Side::new(C, plain),
        Side::new(APPLET, || single(&one)),
        Side::new(APPLET_BATCH, || batch(&many)),
        Side::new(WASM, || single(&wasm_one)),
        Side::new(WASM_BATCH, || batch(&wasm_many)),
    ];
    sides.extend(outsides.iter().map(|outside| outside_side(outside, &task, 1, BATCH)));
    let times = race(runs, sides)?;
    add(outcome, "logicaldisk", &times, |side| (side == APPLET_BATCH).then_some(LOGICAL_DISK_VS_C));
    Ok(())
}

/// The blocks that are written, one after the other, round and round.
struct Writes {
    blocks: Vec<u32>,
    at: usize,
}

impl Writes {
    fn new() -> Writes {
        Writes { blocks: writes(BATCH, LOGICAL_BLOCKS), at: 0 }
    }

    fn next(&mut self, count: usize) -> &[u32] {
        let from = self.at;
        self.at = (from + count) % self.blocks.len();
        &self.blocks[from..from + count]
    }
}

/// A full disk in C.
struct InC {
    disk: LogicalDisk,
    writes: Writes,
    steps: Vec<[u32; 2]>,
}

impl InC {
    fn full() -> io::Result<InC> {
        let mut disk = LogicalDisk::new(BLOCKS, SEGMENT_BLOCKS, LOGICAL_BLOCKS)?;
        let mut steps = vec![[0; 2]; 4 * LOGICAL_BLOCKS as usize];
        let all: Vec<u32> = (0..LOGICAL_BLOCKS).collect();
        disk.update(&all, &mut steps)?;
        Ok(InC { disk, writes: Writes::new(), steps })
    }

    fn update(&mut self, count: usize) -> io::Result<&[[u32; 2]]> {
        let (written, steps) = self.disk.update(self.writes.next(count), &mut self.steps)?;
        if written == count {
            Ok(&self.steps[..steps])
        } else {
            Err(Error::other("the logical disk in C is full"))
        }
    }
}

/// A full disk in an applet.
struct InApplet<'a> {
    applet: &'a Applet,
    writes: Writes,
}

impl InApplet<'_> {
    fn full(applet: &Applet) -> io::Result<InApplet<'_>> {
        let disk = bytes(&[BLOCKS, SEGMENT_BLOCKS, LOGICAL_BLOCKS]);
        applet.call("format", &disk).map_err(Error::other)?;
        let all: Vec<u32> = (0..LOGICAL_BLOCKS).collect();
        applet.call("update", &bytes(&all)).map_err(Error::other)?;
        Ok(InApplet { applet, writes: Writes::new() })
    }

    fn update(&mut self, count: usize) -> io::Result<Vec<u8>> {
        let input = bytes(self.writes.next(count));
        let steps = self.applet.call("update", &input).map_err(Error::other)?;
        if steps.len() >= 8 * count {
            Ok(steps)
        } else {
            Err(Error::other("the logical disk of the applet is full"))
        }
    }
}

/// A language as a side: microseconds for one of `each` operations that a task does.
fn outside_side<'a>(outside: &'a RefCell<Outside>, task: &Task, times: u32, each: u32) -> Side<'a> {
    let task = task.clone();
    Side::new(outside.borrow().language().name(), move || {
        let (us, _) = outside.borrow_mut().run(&task, times).map_err(Error::other)?;
        Ok(us / f64::from(each))
    })
}

fn agree(outside: &RefCell<Outside>, task: &Task, expected: &Value) -> io::Result<()> {
    let mut outside = outside.borrow_mut();
    let (_, result) = outside.run(task, 1).map_err(Error::other)?;
    if result == *expected {
        return Ok(());
    }
    let name = outside.language().name();
    Err(Error::other(format!("{name} comes to another result than C")))
}

fn same(applet: &Applet, function: &str, input: &[u8], expected: &[u8]) -> io::Result<()> {
    match applet.call(function, input).map_err(Error::other)? {
        result if result == expected => Ok(()),
        _ => Err(Error::other(format!("the applet's {function} comes to another result than C"))),
    }
}

/// As the applets want their numbers.
fn bytes(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn us_since(started: Instant) -> f64 {
    started.elapsed().as_secs_f64() * 1e6
}

/// A row of table 3: the time of an operation on each side, for one in C, and its deviation.
fn add(
    outcome: &mut Outcome,
    computation: &str,
    times: &Times,
    goal_of: impl Fn(&str) -> Option<f64>,
) {
    let languages = Language::ALL.map(Language::name);
    for side in [C, APPLET, APPLET_BATCH, WASM, WASM_BATCH].into_iter().chain(languages) {
        let Some(taken) = times.of(side) else { continue };
        let key = |what: &str| format!("{computation}_{side}_{what}");
        outcome.add(key("us"), Some(taken.clone()), "us", None);
        if side != C {
            let goal = goal_of(side).map(Goal::AtMost);
            outcome.add(key("vs_c"), times.ratio(side, C), "x", goal);
        }
        outcome.add(key("deviation_pct"), deviation_pct(taken), "%", None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Series;

    /// A row has a ratio for every side but C, and nothing for sides that are not there.
    #[test]
    fn rows_are_those_of_the_sides_that_took_part() {
        let side = |name: &'static str, us| Side::new(name, move || Ok(us));
        let times = race(2, vec![side(C, 2.0), side(WASM, 3.0), side("node", 8.0)]).unwrap();
        let mut outcome = Outcome::default();
        add(&mut outcome, "md5", &times, |side| (side == WASM).then_some(1.4));
        let keys: Vec<&str> = outcome.measurements.iter().map(|one| &*one.key).collect();
        let expected = [
            "md5_c_us",
            "md5_c_deviation_pct",
            "md5_wasm_us",
            "md5_wasm_vs_c",
            "md5_wasm_deviation_pct",
            "md5_node_us",
            "md5_node_vs_c",
            "md5_node_deviation_pct",
        ];
        assert_eq!(keys, expected);
        assert_eq!(outcome.measurements[3].series, Series::from_iter([1.5, 1.5]));
        assert_eq!(outcome.measurements[3].goal, Some(Goal::AtMost(1.4)));
        assert_eq!(outcome.measurements[6].series.median(), 4.0);
    }

    /// Writes follow the list, which starts over at its end.
    #[test]
    fn writes_go_round() {
        let mut writes = Writes { blocks: vec![5, 6, 7, 8], at: 0 };
        assert_eq!(writes.next(2), [5, 6]);
        assert_eq!(writes.next(2), [7, 8]);
        assert_eq!(writes.next(1), [5]);
    }
}
