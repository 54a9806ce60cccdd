//! `holdfast run`.

use std::path::Path;
use std::time::Duration;

use holdfast_applet::{
    AppletError, End, Failure as AppletFailure, FailureKind, HeapRequest, KillReason, Metrics,
    Outcome, SandboxKind, Stdio,
};
use holdfast_sys::counted::counted;
use holdfast_sys::terminal::Shown;

use crate::args::RunArgs;
use crate::end_report::EndReport;
use crate::granted::{Granted, prepare};
use holdfast_command::exit::{
    Failure, HOST_FAILED, NO_APPLET, NOT_LOADABLE, TIME_LIMIT, TRAPPED, VIOLATION, host, meaning,
};
use holdfast_command::output::{say, with_progress};
use holdfast_command::size::show_size;

pub fn run(args: RunArgs) -> Result<u8, Failure> {
    let metrics = args.applet.metrics;
    let has_files = !args.applet.dirs.is_empty();
    let (path, heap_args) = (args.applet.applet.clone(), args.applet.heaps.clone());
    let report = EndReport::create(args.report.as_deref(), &args.applet.dirs)?;
    let (command, mut limits, heaps) = match prepare(args.applet, args.args) {
        Ok(prepared) => prepared,
        Err(failure) => {
            report.not_started(&failure)?;
            return Err(failure);
        }
    };
    limits.timeout = args.timeout;
    match command.limits(limits).stdio(Stdio::inherit()).run() {
        Ok(outcome) => {
            let is_native = outcome.metrics.kind == SandboxKind::Native;
            let status = outcome.exit_status;
            let network_refusals = outcome.metrics.network_refusals;
            let cost = outcome.metrics.clone();
            let functions = outcome.functions.clone();
            let done = match finish(outcome, metrics) {
                Ok(done) => done,
                Err(failure) => {
                    report.not_kept(&failure, status, &cost)?;
                    return Err(failure);
                }
            };
            if let Some(functions) = functions {
                let code = if done == 0 { NOT_LOADABLE } else { done };
                let failure = Failure::new(code, only_serves(&path, &functions, &heap_args));
                report.exited(code, status, &cost, Some(&failure.message))?;
                return Err(failure);
            }
            report.exited(done, status, &cost, None)?;
            if let Some(meaning) = meaning(done) {
                say(format_args!(
                    "the applet ended by itself with status {done}: it is its own, and not {meaning}"
                ));
            }
            // A program says that it has no permission, or that something is not there, and not
            // why.
            if status != 0 && network_refusals > 0 {
                say(format_args!(
                    "it ended with status {status}, and had asked for the network ({}), which no applet has: \
                     \"permission denied\" is about that, not about files; fetch what it needs before, and grant it with \
                     --dir",
                    counted(network_refusals, "time")
                ));
            } else if is_native && status != 0 && (!has_files || heap_args.is_empty()) {
                let missing: Vec<_> = [
                    heap_args.is_empty().then_some("no heap (--heap NAME)"),
                    (!has_files).then_some("no files but the system's libraries (--dir DIRECTORY)"),
                ]
                .into_iter()
                .flatten()
                .collect();
                say(format_args!(
                    "it ended with status {status}, and was granted {}; grant what it looked for",
                    missing.join(" and ")
                ));
            }
            Ok(done)
        }
        Err(error) => {
            if metrics {
                show_metrics(&error.metrics);
            }
            let failure = explain(&error, heaps);
            report.failed(&failure, &error)?;
            Err(failure)
        }
    }
}

/// The end of a run of an applet whose functions are to be called.
fn only_serves(path: &Path, functions: &[String], heaps: &[HeapRequest]) -> String {
    const SHOWN_MAX: usize = 8;
    let path = path.display();
    let heap: String = heaps.iter().map(|heap| format!(" --heap {heap}")).collect();
    let Some(first) = functions.first() else {
        return format!(
            "{path} serves calls and exports no function, so there is nothing to run in it"
        );
    };
    let names: Vec<_> =
        functions.iter().take(SHOWN_MAX).map(|name| Shown(name).to_string()).collect();
    let more = if functions.len() > SHOWN_MAX { ", ..." } else { "" };
    format!(
        "{path} serves calls, and `run` makes none: of its functions ({}{more}) none ran; call one with `holdfast call \
         {path} {}{heap}`",
        names.join(", "),
        Shown(first)
    )
}

fn finish(outcome: Outcome, metrics: bool) -> Result<u8, Failure> {
    for note in &outcome.notes {
        say(format_args!("{note}"));
    }
    let mut cost = outcome.metrics;
    let closed: Vec<_> = outcome
        .heaps
        .into_iter()
        .map(|heap| {
            let name = heap.region.name().clone();
            with_progress(&format!("writing {name} to the store"), || heap.region.close())
        })
        .collect();
    if closed.iter().any(Result::is_ok) {
        // What may have changed is known now.
        cost.heap_dirty = closed.iter().flatten().any(|report| !report.checkpoint.skipped);
    }
    if metrics {
        show_metrics(&cost);
    }
    if let Some(error) = &outcome.heap_error {
        say(format_args!("{error}"));
    }
    closed.into_iter().collect::<Result<Vec<_>, _>>().map_err(host)?;
    Ok(u8::try_from(outcome.exit_status).unwrap_or(u8::MAX))
}

/// The end of a command whose applet did not come to its own.
pub fn explain(error: &AppletError, heaps: Vec<Granted>) -> Failure {
    let code = match error.kind() {
        FailureKind::NotFound => NO_APPLET,
        FailureKind::CannotLoad => NOT_LOADABLE,
        // The host ended it because of the host: its output cannot be written, the kernel has no
        // room.
        FailureKind::Trap if is_the_hosts(&error.failure) => HOST_FAILED,
        FailureKind::Trap => TRAPPED,
        FailureKind::PolicyViolation => VIOLATION,
        FailureKind::TimeLimit => TIME_LIMIT,
        _ => HOST_FAILED,
    };
    // One that ran to its end instead of serving has run: what it stored stays.
    let has_run = matches!(error.failure, AppletFailure::NotServing { .. });
    if matches!(code, NO_APPLET | NOT_LOADABLE) && !has_run {
        Granted::forget_all_made_now(heaps);
    }
    Failure::new(code, in_words_of_the_command(&error.to_string()))
}

/// As [`explain`], of an applet without a heap.
pub fn explain_start(error: &AppletError) -> Failure {
    explain(error, Vec::new())
}

fn is_the_hosts(failure: &AppletFailure) -> bool {
    matches!(failure, AppletFailure::Ended { end: End::Killed(KillReason::Other { .. }) })
}

/// Limits have the names of the library's fields in its messages; who typed a command knows them as
/// options.
fn in_words_of_the_command(message: &str) -> String {
    const OPTIONS: [(&str, &str); 5] = [
        ("(call_timeout)", "(--timeout)"),
        ("(timeout)", "(--timeout)"),
        ("(cpu_time)", "(--cpu-time)"),
        ("(threads)", "(--threads)"),
        ("(memory)", "(--memory)"),
    ];
    OPTIONS
        .iter()
        .fold(message.to_owned(), |message, (field, option)| message.replace(field, option))
}

pub fn show_metrics(metrics: &Metrics) {
    let ms = |time: Duration| time.as_secs_f64() * 1000.0;
    let (start, run, cpu) = (ms(metrics.start_time), ms(metrics.wall_time), ms(metrics.cpu_time));
    match metrics.kind {
        SandboxKind::Wasm => {
            let how = if metrics.compiled { "compiled" } else { "from the cache" };
            let (engine, load) = (ms(metrics.engine_time), ms(metrics.load_time));
            let start = ms(metrics.instantiate_time);
            say(format_args!(
                "engine {engine:.2} ms, load {load:.2} ms ({how}), start {start:.2} ms, run {run:.2} ms (CPU \
                 {cpu:.2} ms)"
            ));
        }
        _ => say(format_args!(
            "start {start:.2} ms, run {run:.2} ms (CPU with the start {cpu:.2} ms)"
        )),
    }
    let fuel = metrics.fuel_used.map(|fuel| format!(", fuel {fuel}")).unwrap_or_default();
    let messages = match metrics.messages {
        0 => String::new(),
        messages => {
            format!(
                ", {} calls, {messages} messages of {}",
                metrics.calls,
                show_size(metrics.message_bytes)
            )
        }
    };
    say(format_args!(
        "volatile memory {} at most, heap {}{}{fuel}{messages}",
        show_size(metrics.peak_memory_bytes),
        show_size(metrics.heap_backed_bytes),
        if metrics.heap_dirty { ", changed" } else { ", unchanged" },
    ));
}
