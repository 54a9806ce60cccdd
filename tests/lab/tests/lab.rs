//! Row H6 of the fault matrix: a machine of its own lives through every failure that it can, and
//! what was acknowledged is there afterwards. `HOLDFAST_CRASH_H6` sets how often (once),
//! `HOLDFAST_SEED` the moments.
//!
//! Needs QEMU, and the kernel that `./test` fetches; without, the test says what it lacks.

#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    reason = "a failed step fails the test, and the panic names its line"
)]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use holdfast_lab::cause::Cause;
use holdfast_lab::initramfs::Programs;
use holdfast_lab::lab::{Files, Lab, Plan};
use holdfast_lab::ledger::Ledger;
use holdfast_lab::missing::LabError;

const SEED_DEFAULT: u64 = 0x486f_6c64_6661_7374;

/// Every acknowledged record is there after every failure of the machine.
///
/// Guarantee: heap/persist
/// Guarantee: heap/reset-ordered
/// Guarantee: sandbox/descriptors
/// Guarantee: keeper/flush
/// Guarantee: keeper/signals
/// Guarantee: sqlite/surviving-pool
/// Guarantee: sqlite/level-power
/// Guarantee: sqlite/lost-pool
/// Guarantee: heap/power
#[test]
fn records_survive_every_machine_failure() {
    let guest = PathBuf::from(env!("CARGO_BIN_EXE_holdfast-lab-guest"));
    let target = guest.parent().and_then(Path::parent).unwrap().to_owned();
    let programs = Programs {
        guest,
        caller: PathBuf::from(env!("CARGO_BIN_EXE_holdfast-lab-caller")),
        applet: target.join("applets").join("notes"),
    };
    let files = Files { kernel: target.join("vm").join("kernel"), programs };
    let lab = match Lab::new(&files, None) {
        Err(LabError::Missing { what }) => {
            println!("not run: {what}");
            return;
        }
        other => other.unwrap(),
    };
    let (rounds, seed) = (number("HOLDFAST_CRASH_H6", 1), number("HOLDFAST_SEED", SEED_DEFAULT));
    let plan =
        Plan { causes: Cause::ALL.to_vec(), rounds, time: None, kept_at: None, seed, early: false };
    let (started, mut ledger) = (Instant::now(), Ledger::default());
    // Past the capture of the test harness: a run takes minutes, and the numbers are the result.
    let mut said = std::io::stdout();
    let run = lab.run(&plan, &mut ledger, &mut |line| writeln!(said, "{line}").unwrap());
    writeln!(said, "\n{}", ledger.to_table()).unwrap();
    if let Err(error) = run {
        panic!("{error}\nseed {seed:#x}");
    }
    assert!(ledger.findings().is_empty(), "seed {seed:#x}: {:#?}", ledger.findings());
    assert_eq!(ledger.harmless(), [], "these failures took nothing away, so they were none");
    let seconds = started.elapsed().as_secs_f64() / Cause::ALL.len() as f64;
    for cause in Cause::ALL {
        let what = cause.describe();
        writeln!(said, "fault H6: {what}: {rounds} trials in {seconds:.1} s, seed {seed:#x}")
            .unwrap();
    }
}

fn number(variable: &str, default: u64) -> u64 {
    let Ok(text) = std::env::var(variable) else { return default };
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.unwrap_or_else(|error| panic!("{variable}={text}: {error}; write a number"))
}
