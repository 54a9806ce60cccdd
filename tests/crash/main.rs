//! Kills a writer at random moments, a thousand times, and looks after every single time: the heap
//! is sound, and every word whose batch was acknowledged before the kill is found.
//!
//! The writer is the main job's build (`spellcheck --ack`), which says after each committed batch
//! how many words are in which table. Two lanes, each with a heap of its own, share the home, so
//! that kills also hit one writer beside another.
//!
//! `HOLDFAST_KILLS` sets the number of kills (1000), `HOLDFAST_SEED` the random moments.

#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    reason = "a failed step fails the test, and the panic names its line"
)]

mod acks;
mod lane;

use std::io::Write;
use std::time::Instant;

use holdfast_testkit::{Programs, Scratch, Spellcheck};

use lane::{Counts, Lane};

const KILLS_DEFAULT: u64 = 1000;
const SEED_DEFAULT: u64 = 0x486f_6c64_6661_7374;
const LANES: u64 = 2;

const TEXT: &str =
    "A short text: the tables are what this is about. Onomatopoeia is in them, xqzzyt is not.\n";

/// Guarantee: heap/kill-any-instruction
#[test]
fn kills_at_random_moments_lose_no_acknowledged_word() {
    let kills = number("HOLDFAST_KILLS", KILLS_DEFAULT);
    let seed = number("HOLDFAST_SEED", SEED_DEFAULT);
    let scratch = Scratch::new(Programs::find().unwrap()).unwrap();
    let text = scratch.write("text", TEXT).unwrap();
    let job = Spellcheck::new(&scratch, &text).unwrap();
    // Compiles the applet into the home's cache, so that the kills hit the build and not the
    // compiler.
    let warmed_up = job.old_way(&[]).output().unwrap();
    assert_eq!(warmed_up.status.code(), Some(1), "{}", String::from_utf8_lossy(&warmed_up.stderr));

    let started = Instant::now();
    let counts = std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..LANES)
            .map(|number| {
                let (scratch, job) = (&scratch, &job);
                let quota = kills / LANES + u64::from(number < kills % LANES);
                scope.spawn(move || Lane::new(scratch, job, number, seed).run(quota))
            })
            .collect();
        lanes.into_iter().fold(Counts::default(), |sum, lane| match lane.join() {
            Ok(counts) => sum + counts,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    });
    // Past the capture of the test harness: these numbers are the result.
    writeln!(
        std::io::stdout(),
        "crash: {counts}; seed {seed:#x}; {:.0} s",
        started.elapsed().as_secs_f64()
    )
    .unwrap();
    assert_eq!(counts.kills, kills);
    assert!(
        counts.in_build * 2 >= kills,
        "most kills must hit the build, or this proves little: {counts}"
    );
}

fn number(variable: &str, default: u64) -> u64 {
    let Ok(text) = std::env::var(variable) else { return default };
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.unwrap_or_else(|error| panic!("{variable}={text}: {error}; write a number"))
}
