//! `holdfast call`: starts an applet, calls one of its functions, and prints the result.
//!
//! Invariant: standard output has the result and nothing else; what the applet writes goes to
//! standard error.

use std::fs::File;
use std::io::{ErrorKind, IsTerminal, Read, Write};
use std::path::Path;
use std::time::Duration;

use holdfast_applet::{Applet, Call, CallError, CloseError, Limits, Stdio};
use holdfast_sys::counted::counted;
use holdfast_sys::terminal::ShownLines;

use crate::args::CallArgs;
use crate::granted::prepare;
use crate::run::{explain, show_metrics};
use holdfast_command::exit::{FOUND, Failure, host, usage};
use holdfast_command::output::{print, say};
use holdfast_command::size::show_size;

/// Captured output of an applet that is called, which has no streams of its own.
const OUTPUT_BYTES_MAX: usize = 64 << 10;

/// The longest message; what is read of an input without an end.
const INPUT_BYTES_MAX: u64 = 64 << 20;

pub fn run(args: CallArgs) -> Result<u8, Failure> {
    let input = input(&args)?;
    let metrics = args.applet.metrics;
    let (command, mut limits, heaps) = prepare(args.applet, Vec::new())?;
    limit_times(&mut limits, args.timeout);
    let applet = match command.limits(limits).stdio(Stdio::capture(OUTPUT_BYTES_MAX)).spawn() {
        Ok(applet) => applet,
        Err(error) => {
            show_output(&error.stdout, &error.stderr, error.is_output_truncated);
            return Err(explain(&error, heaps));
        }
    };
    match applet.weaker().len() {
        0 => {}
        count => say(format_args!(
            "{} of the sandbox missing or incomplete here; `holdfast doctor` says which",
            counted(count, "layer")
        )),
    }
    let done = match &args.function {
        None => list(&applet),
        Some(function) => call(&applet, function, &input),
    };
    let cost = applet.metrics();
    let closed = applet.close();
    if let Ok(said) = &closed {
        show_output(&said.stdout, &said.stderr, said.is_output_truncated);
    }
    if metrics {
        show_metrics(&cost);
    }
    with_close(done, closed.map(drop))
}

/// Limits the call and what goes before it. An applet that is given longer than the default for a
/// call may also take so long until it serves: no other option raises that limit.
fn limit_times(limits: &mut Limits, timeout: Option<Duration>) {
    limits.call_timeout = timeout;
    limits.compile_timeout = timeout;
    limits.start_timeout = limits.start_timeout.max(timeout.unwrap_or_default());
}

/// The end of the command, whose result is printed already: the failure of the call, if it failed,
/// and that of the close beside it.
fn with_close(done: Result<u8, Failure>, closed: Result<(), CloseError>) -> Result<u8, Failure> {
    let Err(error) = closed else { return done };
    let text = format!("the applet was not closed in order: {error}");
    match done {
        Ok(_) => Err(host(text)),
        Err(failure) => Err(Failure::new(failure.code, format!("{}; {text}", failure.message))),
    }
}

/// What the applet wrote belongs to the person, not to the result. A terminal gets it without what
/// would steer it.
fn show_output(stdout: &[u8], stderr: &[u8], is_truncated: bool) {
    let said = [stdout, stderr].concat();
    let mut out = std::io::stderr();
    if out.is_terminal() {
        let _ = write!(out, "{}", ShownLines(&String::from_utf8_lossy(&said)));
    } else {
        let _ = out.write_all(&said);
    }
    if is_truncated {
        say(format_args!(
            "the applet wrote more than the {} that are kept of each of its outputs; the rest was dropped",
            show_size(OUTPUT_BYTES_MAX as u64)
        ));
    }
}

fn input(args: &CallArgs) -> Result<Vec<u8>, Failure> {
    let read = |source: Box<dyn Read>| {
        let mut bytes = Vec::new();
        source.take(INPUT_BYTES_MAX + 1).read_to_end(&mut bytes).map(|_| bytes)
    };
    let bytes = match (&args.from, &args.text) {
        (Some(path), _) if path == Path::new("-") => read(Box::new(std::io::stdin()))
            .map_err(|error| host(format!("cannot read standard input: {error}"))),
        (Some(path), _) => {
            File::open(path).and_then(|file| read(Box::new(file))).map_err(|error| {
                usage(format!(
                    "cannot read {}: {error}; check the path after --input",
                    path.display()
                ))
            })
        }
        (None, text) => Ok(text.clone().unwrap_or_default().into_bytes()),
    }?;
    if bytes.len() as u64 > INPUT_BYTES_MAX {
        return Err(usage(
            "the input has more than 64 MiB; split it, or call from a program, with a shared buffer",
        ));
    }
    Ok(bytes)
}

fn list(applet: &Applet) -> Result<u8, Failure> {
    let mut text = applet.functions().join("\n");
    if !text.is_empty() {
        text.push('\n');
    }
    print(&text)?;
    Ok(0)
}

fn call(applet: &Applet, function: &str, input: &[u8]) -> Result<u8, Failure> {
    let parts = applet.stream(Call::new(function, input)).map_err(failure)?;
    let mut out = std::io::stdout().lock();
    for part in parts {
        let part = part.map_err(failure)?;
        match out.write_all(&part.bytes).and_then(|()| out.flush()) {
            Ok(()) => {}
            // The reader has seen enough.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(0),
            Err(error) => return Err(host(format!("cannot write the result: {error}"))),
        }
    }
    Ok(0)
}

/// The end of a command whose call did not come to a result.
pub fn failure(error: CallError) -> Failure {
    match &error {
        CallError::Died(death) => explain(death, Vec::new()),
        CallError::UnknownFunction { .. } => usage(error),
        CallError::Failed { .. } => Failure::new(FOUND, error),
        _ => host(error),
    }
}

#[cfg(test)]
mod tests {
    use holdfast_command::exit::HOST_FAILED;
    use holdfast_region::RegionError;

    use super::*;

    /// The option that an error about a slow start names raises that limit, and never lowers it.
    ///
    /// Guarantee: heap/messages
    #[test]
    fn timeout_raises_the_limit_of_the_start() {
        let default = Limits::default().start_timeout;
        for (timeout, start) in [
            (None, default),
            (Some(Duration::from_secs(1)), default),
            (Some(default * 4), default * 4),
        ] {
            let mut limits = Limits::default();
            limit_times(&mut limits, timeout);
            let found = (limits.call_timeout, limits.compile_timeout, limits.start_timeout);
            assert_eq!(found, (timeout, timeout, start));
        }
    }

    /// The call's error comes first and gives the exit code; an error of the close is always printed.
    #[test]
    fn failed_close_is_told_beside_the_call() {
        let failed = || Failure::new(FOUND, "the function failed");
        let unclosed = || CloseError::from(RegionError::NotAtomic { name: "notes".to_owned() });
        let told = format!("the applet was not closed in order: {}", unclosed());
        let cases = [
            (Err(failed()), Ok(()), FOUND, "the function failed".to_owned()),
            (Err(failed()), Err(unclosed()), FOUND, format!("the function failed; {told}")),
            (Ok(0), Err(unclosed()), HOST_FAILED, told),
        ];
        for (done, closed, code, message) in cases {
            let failure = with_close(done, closed).unwrap_err();
            assert_eq!((failure.code, failure.message), (code, message));
        }
        assert_eq!(with_close(Ok(0), Ok(())).unwrap(), 0);
    }
}
