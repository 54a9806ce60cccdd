//! Fuzzing: builds the targets of `tests/fuzz/` with coverage counters, and runs each for a while.
//!
//! The toolchain is the project's own. The counters are those that libFuzzer needs; they are asked
//! for with options of the compiler that every channel has, and only for what is built here.
//!
//! Invariants: every run is bounded in time and memory. Inputs that were found stay in the target
//! directory, so that the next run goes on from there; so does an input that failed, and the
//! failure names it.

use std::path::Path;

use clap::{Args, value_parser};

use crate::command::{cargo, run, with_timeout};
use crate::failure::{Failure, Result};
use crate::release;
use crate::workspace::Workspace;

const TARGETS: [&str; 8] = [
    "channel",
    "document",
    "heap_bytes",
    "heap_operations",
    "heap_tools",
    "keeper_wire",
    "region_files",
    "strace_log",
];
const MINUTES_DEFAULT: u32 = 10;
const MINUTES_MAX: i64 = 24 * 60;
const BUILD_TIMEOUT_S: u32 = 20 * 60;
const MEMORY_MIB_MAX: u32 = 1024;
const INPUT_BYTES_MAX: u32 = 2048;
/// An input that takes longer hangs; a machine that does other things, too, is slow.
const INPUT_TIMEOUT_S: u32 = 150;

const COVERAGE: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing";

/// Arguments of `cargo xtask fuzz`.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Targets; all of them if none is given
    #[arg(value_name = "TARGET", value_parser = TARGETS)]
    pub(crate) targets: Vec<String>,
    /// Minutes for each target
    #[arg(long, value_name = "N", default_value_t = MINUTES_DEFAULT,
          value_parser = value_parser!(u32).range(1..=MINUTES_MAX))]
    pub(crate) minutes: u32,
}

/// Fuzzes the targets, one after the other.
pub(crate) fn fuzz(workspace: &Workspace, arguments: Arguments) -> Result<()> {
    let Arguments { mut targets, minutes } = arguments;
    if targets.is_empty() {
        targets.extend(TARGETS.map(str::to_owned));
    }
    let folder = workspace.target.join("fuzz");
    let platform = release::host()?;
    let mut build = cargo(&workspace.root);
    build.args([
        "build",
        "--release",
        "--manifest-path",
        "tests/fuzz/Cargo.toml",
        "--target",
        &platform,
    ]);
    // A folder of its own, and a platform that is named: so the options stay away from all other
    // builds, and from programs that run while this is built.
    build.arg("--target-dir").arg(&folder).env("RUSTFLAGS", COVERAGE);
    run(&mut with_timeout(&build, BUILD_TIMEOUT_S))?;
    let programs = folder.join(platform).join("release");
    let mut failed = Vec::new();
    for target in targets {
        if let Err(failure) = fuzz_one(&programs, &folder, &target, minutes) {
            eprintln!("{target}: {failure}");
            failed.push(target);
        }
    }
    if failed.is_empty() {
        Ok(())
    } else {
        let inputs = folder.join("failed");
        let text = format!("failed: {}; the inputs are in {}", failed.join(", "), inputs.display());
        Err(Failure::new(format!(
            "{text}: run the program above with one of them as its only argument"
        )))
    }
}

fn fuzz_one(programs: &Path, folder: &Path, target: &str, minutes: u32) -> Result<()> {
    let made = |kind: &str| {
        let path = folder.join(kind).join(target);
        let error = |error| Failure::new(format!("cannot make {}: {error}", path.display()));
        std::fs::create_dir_all(&path).map_err(error).map(|()| path.clone())
    };
    let (corpus, failures) = (made("corpus")?, made("failed")?);
    let mut command = std::process::Command::new(programs.join(target));
    command
        .arg(format!("-max_total_time={}", minutes * 60))
        .arg(format!("-timeout={INPUT_TIMEOUT_S}"))
        .arg(format!("-rss_limit_mb={MEMORY_MIB_MAX}"))
        .arg(format!("-max_len={INPUT_BYTES_MAX}"))
        .args(["-len_control=20", "-print_final_stats=1", "-verbosity=1"])
        .arg(format!("-artifact_prefix={}/", failures.display()))
        .arg(corpus);
    run(&mut with_timeout(&command, minutes * 60 + 10 * 60))
}
