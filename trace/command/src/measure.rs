//! Makes a trace: chooses the backend, keeps the events, and gives the terminal's signals to whom
//! they are for.

use std::sync::Arc;

use holdfast_trace::report::Report;
use holdfast_trace::{
    Backend, BpfBackend, End, Event, Outcome, Program, PtraceBackend, Recorder, Settings, StopFlag,
    Target, TraceError,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use crate::args::{AttachArgs, BackendArg, MeasureArgs, RunArgs};
use crate::collect::{self, Collector, first_failure};
use crate::crossing::Crossing;
use crate::failure;
use crate::show_args::ShowArgs;
use crate::terminal::{Live, Stream};
use holdfast_command::exit::{Failure, HOST_FAILED, OTHER};
use holdfast_command::output::{print_as_is, print_beside, say};

pub(crate) fn run(options: RunArgs) -> Result<u8, Failure> {
    let mut settings = Settings {
        pin: options.pin,
        ..Settings::new(Target::Start(Program { command: options.command }))
    };
    let crossing =
        options.sandbox.then(|| Crossing::begin(&mut settings, &options.show)).transpose()?;
    let stop = settings.stop.clone();
    // The terminal sends these to the program as well, whose business they are until it has ended.
    // What it left in the background does not get them.
    catch_unless_ignored(&[SIGINT, SIGQUIT], &settings.stop_after_end, HOST_FAILED)?;
    catch_unless_ignored(&[SIGTERM, SIGHUP], &stop, HOST_FAILED)?;
    let backend =
        choose(options.measure.backend, settings).map_err(|error| failure::of_run(&error))?;
    let traced =
        trace(backend, &options.measure, &options.show, crossing).map_err(|error| match error {
            Stopped::Trace(error) => failure::of_run(&error),
            Stopped::Other(failure) => Failure { code: HOST_FAILED, ..failure },
        })?;
    // Standard output is the program's.
    let look = collect::look(&options.show.sum, options.show.by, Stream::Error);
    let shown = collect::show(&traced.report, &options.show, &look, print_beside);
    let status = match traced.outcome.end {
        Some(End::Exited(status)) => status,
        Some(End::Killed(signal)) => 128 | signal,
        None => {
            say("the program was let go before it ended, and goes on untraced");
            0
        }
    };
    match first_failure([shown, traced.lanes, traced.recording]) {
        Err(failure) if status == 0 => return Err(Failure { code: HOST_FAILED, ..failure }),
        Err(failure) => say(&failure.message),
        Ok(()) => {}
    }
    Ok(status)
}

pub(crate) fn attach(options: AttachArgs) -> Result<u8, Failure> {
    let target = match options.cgroup {
        Some(path) => Target::Cgroup(path),
        None => Target::Attach(options.process),
    };
    let settings = Settings { limit: options.time, ..Settings::new(target) };
    catch(&[SIGINT, SIGQUIT, SIGTERM], &settings.stop, OTHER)?;
    catch_unless_ignored(&[SIGHUP], &settings.stop, OTHER)?;
    let backend = choose(options.measure.backend, settings).map_err(failure::of_trace)?;
    let traced =
        trace(backend, &options.measure, &options.show, None).map_err(|error| match error {
            Stopped::Trace(error) => failure::of_trace(error),
            Stopped::Other(failure) => failure,
        })?;
    let look = collect::look(&options.show.sum, options.show.by, Stream::Output);
    let shown = collect::show(&traced.report, &options.show, &look, print_as_is);
    first_failure([shown, traced.lanes, traced.recording])?;
    Ok(0)
}

/// These signals do nothing but raise the flag. Programs that are started have them as usual.
pub(crate) fn catch(signals: &[i32], flag: &StopFlag, code: u8) -> Result<(), Failure> {
    for signal in signals {
        signal_hook::flag::register(*signal, Arc::clone(&flag.shared()))
            .map_err(|error| Failure::new(code, format!("cannot handle signals: {error}")))?;
    }
    Ok(())
}

/// The same, but for signals that this process was started to ignore, as by `nohup` or in the
/// background of a script. What it starts ignores them as well, as it would untraced.
pub(crate) fn catch_unless_ignored(
    signals: &[i32],
    flag: &StopFlag,
    code: u8,
) -> Result<(), Failure> {
    let signals: Vec<_> = signals.iter().copied().filter(|signal| !is_ignored(*signal)).collect();
    catch(&signals, flag, code)
}

/// Whether this process ignores a signal.
pub(crate) fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read("/proc/self/status").unwrap_or_default();
    let status = String::from_utf8_lossy(&status);
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    (mask >> (signal - 1)) & 1 == 1
}

/// The backend that was asked for; with `auto` ptrace where BPF cannot be used, which is said.
pub(crate) fn choose(
    wanted: BackendArg,
    settings: Settings,
) -> Result<Box<dyn Backend>, TraceError> {
    let ptrace = |settings| -> Result<Box<dyn Backend>, TraceError> {
        Ok(Box::new(PtraceBackend::new(settings)?))
    };
    if wanted == BackendArg::Ptrace {
        return ptrace(settings);
    }
    match BpfBackend::new(settings.clone()) {
        Ok(backend) => Ok(Box::new(backend)),
        Err(TraceError::Unavailable { why, .. })
            if wanted == BackendArg::Auto && !needs_bpf(&settings) =>
        {
            say(format_args!(
                "ptrace is used, which slows the program down: BPF cannot be ({why})"
            ));
            ptrace(settings)
        }
        Err(error) => Err(error),
    }
}

fn needs_bpf(settings: &Settings) -> bool {
    matches!(settings.target, Target::Cgroup(_))
}

/// A trace that was made.
struct Traced {
    report: Report,
    outcome: Outcome,
    /// What became of the lanes for a viewer, if they were wanted.
    lanes: Result<(), Failure>,
    /// What became of the recording, if one was wanted. The trace counts without it.
    recording: Result<(), Failure>,
}

/// Why no trace was made.
enum Stopped {
    Trace(TraceError),
    Other(Failure),
}

fn trace(
    backend: Box<dyn Backend>,
    measure: &MeasureArgs,
    show: &ShowArgs,
    mut crossing: Option<Crossing>,
) -> Result<Traced, Stopped> {
    let about = backend.about();
    let recorder = measure.output.as_ref().map(|path| match &crossing {
        Some(_) => Recorder::create_with_crossings(path, &about),
        None => Recorder::create(path, &about),
    });
    let recorder = recorder.transpose();
    let mut recorder = recorder.map_err(|error| Stopped::Other(failure::of_recording(error)))?;
    let live = measure.watch.then(Live::open).transpose().map_err(Stopped::Other)?;
    let mut collector = Collector::new(show, about.began_ns, live).map_err(Stopped::Other)?;
    let outcome = backend.run(&mut |event: Event| {
        collector.add(&event);
        if let Some(crossing) = &mut crossing {
            crossing.add(&event);
        }
        if let Some(recorder) = &mut recorder {
            recorder.record(&event);
        }
    });
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(error) => {
            // The terminal is given back before this is told.
            drop(collector);
            return Err(Stopped::Trace(error));
        }
    };
    let (mut report, lanes) = collector.finish((&outcome.about).into());
    if let Some(crossing) = crossing {
        report.crossings = Some(crossing.finish(recorder.as_mut()));
    }
    let recording = recorder.map_or(Ok(()), |recorder| {
        recorder.finish(&outcome.about).map(drop).map_err(failure::of_recording)
    });
    Ok(Traced { report, outcome, lanes, recording })
}
