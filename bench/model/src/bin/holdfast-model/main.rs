//! The program `holdfast-model` (`holdfast model`): measures what a call costs and how much faster
//! an applet computes, says from where on a call pays, and how far that prediction is off.
//!
//! The arithmetic is in `holdfast-model`; here is what is measured, and how it is shown.

#![forbid(unsafe_code)]
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod args;
mod md5;
mod measure;
mod policies;
mod python;
mod report;

use std::cell::RefCell;
use std::path::Path;
use std::process::ExitCode;

use holdfast_applet::{Applet, Grants, Limits};
use holdfast_model::{BreakEvens, Format, break_even, plot_break_evens, plot_comparison};
use holdfast_region::Places;

use crate::args::Cli;
use crate::md5::{DIGEST, ECHO, Measured};
use crate::measure::microseconds;
use crate::python::Python;
use crate::report::{CallCost, Report};
use holdfast_command::exit::{Failure, NO_APPLET, host, usage};
use holdfast_command::output::{print, print_json, say, with_progress};
use holdfast_command::program;

const BUILD: &str =
    "`cargo xtask applets md5 eviction logicaldisk` in Holdfast's source tree builds it";

fn main() -> ExitCode {
    ExitCode::from(program::run(std::env::args_os(), |cli: Cli| run(&cli)))
}

fn run(args: &Cli) -> Result<u8, Failure> {
    // Before minutes are spent on what cannot be written then.
    let formats = (format(args.plot.as_deref())?, format(args.plot_sizes.as_deref())?);
    let report = with_progress("measuring", || measure(args))?;
    if let (Some(path), Some(format)) = (&args.plot, formats.0) {
        write(path, &plot_break_evens(&report.break_evens, format).map_err(host)?)?;
    }
    if let (Some(path), Some(format)) = (&args.plot_sizes, formats.1) {
        write(path, &plot_comparison(&report.md5, format).map_err(host)?)?;
    }
    if args.json {
        print_json(&report)?
    } else {
        print(&report.to_string())?
    }
    Ok(0)
}

/// What is to be drawn, if anything, into a directory that is there.
fn format(path: Option<&Path>) -> Result<Option<Format>, Failure> {
    let Some(path) = path else { return Ok(None) };
    let format = Format::of(path).map_err(usage)?;
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() && !folder.is_dir() => Err(usage(format!(
            "cannot write {}: there is no directory {}; make it, or choose another place",
            path.display(),
            folder.display()
        ))),
        _ => Ok(Some(format)),
    }
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    holdfast_sys::file::write_shown(path, bytes).map_err(|error| {
        host(format!("cannot write {}: {error}; choose another place", path.display()))
    })
}

fn measure(args: &Cli) -> Result<Report, Failure> {
    let native = start(&args.applet, &[ECHO, DIGEST])?;
    let wasm = args.wasm.as_deref().map(|path| start(path, &[ECHO, DIGEST])).transpose()?;
    let eviction =
        args.eviction.as_deref().map(|path| start(path, &["hot", "evict"])).transpose()?;
    let disk =
        args.logical_disk.as_deref().map(|path| start(path, &["format", "write"])).transpose()?;
    let python = RefCell::new(Python::start()?);
    let runs = args.runs;

    let Measured { calls, speeds, md5 } = md5::measure(&native, wasm.as_ref(), &python, runs)?;
    let mut policies = Vec::new();
    if let Some(applet) = &eviction {
        policies.extend(policies::eviction(applet, &python, runs)?);
    }
    if let Some(applet) = &disk {
        policies.extend(policies::logical_disk(applet, &python, runs)?);
    }
    let mut speedups = BreakEvens::SPEEDUPS.to_vec();
    speedups.push(speeds[0].speedup);
    let curve = |cost: &CallCost| {
        Ok(BreakEvens::over(&cost.name, microseconds(cost.call.median_us)?, &speedups))
    };
    Ok(Report {
        format: 1,
        runs,
        python: python.borrow().version().to_owned(),
        break_even: break_even(microseconds(calls[0].call.median_us)?, speeds[0].speedup),
        break_evens: calls.iter().map(curve).collect::<Result<_, Failure>>()?,
        calls,
        speeds,
        md5,
        policies,
    })
}

/// Starts an applet that has these functions.
fn start(path: &Path, functions: &[&str]) -> Result<Applet, Failure> {
    if !path.exists() {
        let path = path.display();
        return Err(Failure::new(
            NO_APPLET,
            format!("there is no applet {path}; check the path; {BUILD}"),
        ));
    }
    let places = Places::from_env().map_err(host)?;
    let grants = Grants::none().cache_dir(places.cache());
    let applet = Applet::spawn(path, Limits::default(), grants)
        .map_err(|error| holdfast_cli::start_failure(&error))?;
    for note in applet.weaker() {
        say(format_args!("{note}"));
    }
    let found = applet.functions();
    match functions.iter().find(|function| found.iter().all(|name| name != *function)) {
        None => Ok(applet),
        Some(missing) => Err(usage(format!(
            "{} has no function {missing}, so it is not the applet that is measured here; {BUILD}",
            path.display()
        ))),
    }
}
