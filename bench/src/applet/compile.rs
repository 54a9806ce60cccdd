//! Section `compile`: a first run of a program in WebAssembly, compiled in a process of its own, as
//! it is unless a host asks for less, beside the same run compiled in the host's process; and a
//! later run, which compiles nothing.
//!
//! Each cold run has an empty cache. The programs are an applet of the project, and one that is
//! made here and large: functions with loops, as compilers write them.

use std::fmt::Write;
use std::io;
use std::path::Path;
use std::time::Instant;

use holdfast_applet::{Command, CompileIn, Grants, Limits};
use holdfast_testkit::applet_file;

use crate::race::{Side, race};
use crate::report::{Goal, Outcome};
use crate::timing::ms_since;

const SMALL_OWN: &str = "applet, process of its own";
const SMALL_HOST: &str = "applet, host's process";
const LARGE_OWN: &str = "large program, process of its own";
const LARGE_HOST: &str = "large program, host's process";
const WARM: &str = "applet, compiled before";
/// Some 4 MB of code for the processor.
const LARGE_FUNCTIONS: usize = 6000;

pub(crate) fn run(runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    let directory = tempfile::tempdir()?;
    let small = applet_file("guestbook.wasm")?;
    let large = directory.path().join("large.wat");
    std::fs::write(&large, large_program())?;
    let cache = directory.path().join("cache");
    let sides = vec![
        Side::new(SMALL_OWN, || cold_ms(&small, CompileIn::OwnProcess)),
        Side::new(SMALL_HOST, || cold_ms(&small, CompileIn::ThisProcess)),
        Side::new(LARGE_OWN, || cold_ms(&large, CompileIn::OwnProcess)),
        Side::new(LARGE_HOST, || cold_ms(&large, CompileIn::ThisProcess)),
        Side::new(WARM, || run_ms(&small, CompileIn::OwnProcess, &cache)),
    ];
    let times = race(runs, sides)?;
    let goal = Some(Goal::AtMost(1.1));
    outcome.add("compile_vs_in_process", times.ratio(SMALL_OWN, SMALL_HOST), "x", goal);
    outcome.add("compile_large_vs_in_process", times.ratio(LARGE_OWN, LARGE_HOST), "x", goal);
    outcome.add("compile_ms", times.of(SMALL_OWN).cloned(), "ms", None);
    outcome.add("compile_large_ms", times.of(LARGE_OWN).cloned(), "ms", None);
    outcome.add("compiled_before_ms", times.of(WARM).cloned(), "ms", None);
    Ok(())
}

fn cold_ms(program: &Path, compile_in: CompileIn) -> io::Result<f64> {
    let cache = tempfile::tempdir()?;
    run_ms(program, compile_in, cache.path())
}

/// A run to the end.
fn run_ms(program: &Path, compile_in: CompileIn, cache: &Path) -> io::Result<f64> {
    let mut limits = Limits::default();
    limits.compile_in = compile_in;
    limits.text_bytes = 64 << 20;
    let began = Instant::now();
    let command = Command::new(program, Grants::none().cache_dir(cache)).limits(limits);
    // Without a heap the applet ends with a status of its own.
    command.run().map_err(io::Error::other)?;
    Ok(ms_since(began))
}

/// The text of a module that does nothing when it runs.
fn large_program() -> String {
    let mut text = String::from("(module (memory 1) (func (export \"_start\"))\n");
    for number in 0..LARGE_FUNCTIONS {
        let _ = writeln!(
            text,
            "(func (param $n i32) (result i32) (local $sum i32)
              (loop $again
                (local.set $sum (i32.add (local.get $sum) (i32.load offset={number} (local.get $n))))
                (if (i32.and (local.get $sum) (i32.const {number}))
                  (then (i32.store (local.get $n) (i32.mul (local.get $sum) (i32.const 31)))))
                (local.set $n (i32.sub (local.get $n) (i32.const 4)))
                (br_if $again (i32.gt_s (local.get $n) (i32.const 0))))
              (local.get $sum))"
        );
    }
    text.push(')');
    text
}
