//! Decisions of microseconds, in an applet and in Python: where a call is too small to pay.

use std::cell::RefCell;

use holdfast_applet::Applet;
use serde::Serialize;
use serde_json::{Value, json};

use crate::measure::{Measure, Taken, repeated, rounds};
use crate::python::{KeptIn, Python, Task, in_python};
use holdfast_cli::call_failure as failure;
use holdfast_command::exit::{Failure, host};

const HOT_PAGES: u32 = 64;
/// Pages that are looked at before one is chosen.
const PAGES: [u32; 3] = [1, 8, 64];
/// Blocks on the disk, in a segment, and of the disk as its user sees it. Written round and round,
/// it never needs cleaning.
const BLOCKS: u32 = 1 << 16;
const SEGMENT_BLOCKS: u32 = 16;
const LOGICAL_BLOCKS: u32 = 1 << 15;
/// Blocks that are written by one call.
const BATCHES: [u32; 4] = [1, 16, 256, 4096];

/// One extension with one size of its calls.
#[derive(Debug, Serialize)]
pub(crate) struct Policy {
    /// `eviction` or `logical_disk`.
    pub name: &'static str,
    /// Pages that are looked at, or blocks that are written, in a call.
    pub items: u32,
    /// A whole call.
    pub applet: Taken,
    /// The same in Python, without a call.
    pub interface: Taken,
    /// Whether the call takes less time.
    pub pays: bool,
}

/// The page to be evicted.
pub(crate) fn eviction(
    applet: &Applet,
    python: &RefCell<Python>,
    runs: u32,
) -> Result<Vec<Policy>, Failure> {
    applet.call("hot", &bytes(0..HOT_PAGES)).map_err(failure)?;
    let measure = |&items: &u32| {
        // The last one is the first that is not hot.
        let pages: Vec<u32> = (1..items).chain([HOT_PAGES]).collect();
        let input = bytes(pages.iter().copied());
        let task = Task::Eviction { hot: HOT_PAGES, pages, kept_in: KeptIn::Set };
        let ours = applet.call("evict", &input).map_err(failure)?;
        agree("eviction", &ours, &python.borrow_mut().run(&task, 1)?.1)?;
        let call = repeated(|| applet.call("evict", &input).map(drop).map_err(failure));
        policy("eviction", items, runs, python, &task, call)
    };
    PAGES.iter().map(measure).collect()
}

/// Places for blocks that are written.
pub(crate) fn logical_disk(
    applet: &Applet,
    python: &RefCell<Python>,
    runs: u32,
) -> Result<Vec<Policy>, Failure> {
    let measure = |&batch: &u32| {
        let disk = bytes([BLOCKS, SEGMENT_BLOCKS, LOGICAL_BLOCKS].into_iter());
        applet.call("format", &disk).map_err(failure)?;
        let mut at = 0;
        let mut write = || {
            let places = applet.call("write", &bytes(at..at + batch)).map_err(failure)?;
            at = (at + batch) % LOGICAL_BLOCKS;
            Ok::<_, Failure>(places)
        };
        let task = Task::LogicalDisk {
            blocks: BLOCKS,
            segment_blocks: SEGMENT_BLOCKS,
            logical_blocks: LOGICAL_BLOCKS,
            batch,
        };
        agree("logicaldisk", &write()?, &python.borrow_mut().run(&task, 1)?.1)?;
        let call = repeated(|| write().map(drop));
        policy("logical_disk", batch, runs, python, &task, call)
    };
    BATCHES.iter().map(measure).collect()
}

fn policy(
    name: &'static str,
    items: u32,
    runs: u32,
    python: &RefCell<Python>,
    task: &Task,
    call: Measure<'_>,
) -> Result<Policy, Failure> {
    let times = rounds(runs, vec![call, in_python(python, task)])?;
    let (applet, interface) = (times[0].taken()?, times[1].taken()?);
    Ok(Policy { name, items, applet, interface, pays: applet.median_us < interface.median_us })
}

/// As the applets want their numbers.
fn bytes(numbers: impl Iterator<Item = u32>) -> Vec<u8> {
    numbers.flat_map(u32::to_le_bytes).collect()
}

/// Both sides have come to the same numbers.
fn agree(applet: &str, ours: &[u8], theirs: &Value) -> Result<(), Failure> {
    let numbers: Vec<u32> = ours
        .chunks_exact(4)
        .map(|number| number.iter().rev().fold(0, |value, byte| value << 8 | u32::from(*byte)))
        .collect();
    let same = match theirs {
        Value::Array(_) => json!(numbers) == *theirs,
        one => json!(numbers) == json!([one]),
    };
    if same {
        return Ok(());
    }
    Err(host(format!(
        "the applet {applet} and Python come to different results; is it the applet of this version of Holdfast?"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_agree_number_by_number() {
        assert!(agree("x", &[1, 0, 0, 0], &json!(1)).is_ok());
        assert!(agree("x", &[1, 0, 0, 0, 2, 1, 0, 0], &json!([1, 258])).is_ok());
        assert!(agree("x", &[1, 0, 0, 0], &json!(2)).is_err());
        assert!(agree("x", &[], &json!([1])).is_err());
    }
}
