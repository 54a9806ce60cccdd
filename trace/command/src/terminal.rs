//! The terminal: how wide it is, whether it wants colours, and the view of a trace while it goes
//! on.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use holdfast_trace::Summary;
use holdfast_trace::report::document::Source;
use holdfast_trace::report::watch;

use holdfast_command::exit::{Failure, OTHER, USAGE};

/// Where text goes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Stream {
    Output,
    Error,
}

/// Files and pipes are as wide as this.
const WIDTH: usize = 80;
/// Of a terminal that does not say.
const HEIGHT: usize = 24;
/// Beyond this, columns are too far apart to be read.
const WIDTH_MAX: usize = 140;
const INTERVAL: Duration = Duration::from_millis(500);

fn is_terminal(stream: Stream) -> bool {
    match stream {
        Stream::Output => io::stdout().is_terminal(),
        Stream::Error => io::stderr().is_terminal(),
    }
}

pub(crate) fn width(stream: Stream) -> usize {
    if !is_terminal(stream) {
        return WIDTH;
    }
    let (width, _) = match stream {
        Stream::Output => size(io::stdout()),
        Stream::Error => size(io::stderr()),
    };
    width.clamp(20, WIDTH_MAX)
}

pub(crate) fn colour(stream: Stream) -> bool {
    let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    is_terminal(stream) && !unwanted && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Columns and rows. A terminal whose size was never set (a serial line) says 0.
fn size(terminal: impl AsFd) -> (usize, usize) {
    let known =
        |number: u16, otherwise: usize| if number == 0 { otherwise } else { usize::from(number) };
    rustix::termios::tcgetwinsize(terminal)
        .map_or((WIDTH, HEIGHT), |size| (known(size.ws_col, WIDTH), known(size.ws_row, HEIGHT)))
}

/// The view, drawn some times a second while events come.
pub(crate) struct Live {
    view: watch::View<File>,
    terminal: OwnedFd,
    last: Option<Instant>,
    began: Instant,
    colour: bool,
    /// What the traced program would write over the view.
    _hushed: Vec<SilencedStream>,
}

impl Live {
    /// Opens the view on standard error. The traced program's output goes nowhere meanwhile, as far
    /// as it would go to the terminal.
    pub(crate) fn open() -> Result<Live, Failure> {
        if !is_terminal(Stream::Error) {
            return Err(Failure::new(
                USAGE,
                "--watch draws on standard error, which is no terminal; leave it out",
            ));
        }
        let failed =
            |error: io::Error| Failure::new(OTHER, format!("cannot draw on the terminal: {error}"));
        let colour = colour(Stream::Error);
        let terminal = io::stderr().as_fd().try_clone_to_owned().map_err(failed)?;
        let view =
            watch::View::open(File::from(terminal.try_clone().map_err(failed)?)).map_err(failed)?;
        let mut hushed = vec![SilencedStream::begin(Stream::Error).map_err(failed)?];
        if is_terminal(Stream::Output) {
            hushed.push(SilencedStream::begin(Stream::Output).map_err(failed)?);
        }
        Ok(Live { view, terminal, last: None, began: Instant::now(), colour, _hushed: hushed })
    }

    /// Draws, if it is time.
    pub(crate) fn draw(&mut self, summary: &Summary) {
        if self.last.is_some_and(|last| last.elapsed() < INTERVAL) {
            return;
        }
        let lasted_ns = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let report = summary.report(Source { lasted_ns, ..Source::default() });
        let (width, height) = size(&self.terminal);
        // A terminal that is gone is no reason to end a trace.
        let _ = self.view.draw(&watch::screen(&report, width, height, self.colour));
        self.last = Some(Instant::now());
    }
}

/// A standard stream that leads nowhere, for programs that are started meanwhile; as it was when
/// this is dropped.
pub(crate) struct SilencedStream {
    stream: Stream,
    kept: OwnedFd,
}

impl SilencedStream {
    pub(crate) fn begin(stream: Stream) -> io::Result<SilencedStream> {
        let nowhere = File::options().write(true).open("/dev/null")?;
        let kept = match stream {
            Stream::Output => io::stdout().as_fd().try_clone_to_owned()?,
            Stream::Error => io::stderr().as_fd().try_clone_to_owned()?,
        };
        lead(stream, nowhere.as_fd())?;
        Ok(SilencedStream { stream, kept })
    }
}

impl Drop for SilencedStream {
    fn drop(&mut self) {
        let _ = lead(self.stream, self.kept.as_fd());
    }
}

fn lead(stream: Stream, to: impl AsFd) -> io::Result<()> {
    match stream {
        Stream::Output => rustix::stdio::dup2_stdout(to)?,
        Stream::Error => rustix::stdio::dup2_stderr(to)?,
    }
    Ok(())
}
