//! Sums up events while they come, and shows what came out in every form that was asked for.

use std::path::Path;

use holdfast_trace::Event;
use holdfast_trace::classes::Scheme;
use holdfast_trace::report::document::{Sleep, Source};
use holdfast_trace::report::{
    self, By, Look, Page, Part, Report, Whole, WriteError, perfetto, study, write_whole,
};
use holdfast_trace::summary::{Options, Summary};

use super::terminal::{self, Live};
use crate::exit::{Failure, NO_ROOM, OTHER};
use crate::output::print;
use crate::trace_show_args::{ByArg, SchemeArg, ShowArgs, SleepArg, SumArgs};

/// What a trace is summed up in.
pub struct Collector {
    summary: Summary,
    perfetto: Option<Lanes>,
    live: Option<Live>,
}

/// Every call for a viewer. A disk that is full ends this, and not the trace.
struct Lanes {
    writer: Option<perfetto::Writer<Whole>>,
    failed: Option<Failure>,
}

/// How to sum up; logs cannot tell sleep but by the study's rule.
pub fn options(sum: &SumArgs, default_sleep: Sleep) -> Options {
    let scheme = match sum.scheme {
        SchemeArg::Paper => Scheme::Paper,
        SchemeArg::Refined => Scheme::Refined,
    };
    let sleep = match sum.sleep {
        Some(SleepArg::Measured) => Sleep::Measured,
        Some(SleepArg::Paper) => Sleep::Paper,
        None => default_sleep,
    };
    Options { scheme, sleep }
}

impl Collector {
    /// `began_ns` is when the trace began.
    pub fn new(show: &ShowArgs, began_ns: u64, live: Option<Live>) -> Result<Collector, Failure> {
        let options = options(&show.sum, Sleep::Measured);
        let lanes = |path: &Path| {
            let file = Whole::create(path)?;
            let writer = perfetto::Writer::new(file, began_ns, options.scheme)
                .map_err(|error| cannot(path, &error))?;
            Ok::<_, Failure>(Lanes { writer: Some(writer), failed: None })
        };
        let perfetto = show.perfetto.as_deref().map(|path| lanes(&standard_output(path))).transpose()?;
        Ok(Collector { summary: Summary::new(options), perfetto, live })
    }

    pub fn add(&mut self, event: &Event) {
        self.summary.add(event);
        if let Some(lanes) = &mut self.perfetto
            && let Some(writer) = &mut lanes.writer
            && let Err(error) = writer.add(event)
        {
            let failed = writer.out().failed(error).into();
            *lanes = Lanes { writer: None, failed: Some(failed) };
        }
        if let Some(live) = &mut self.live {
            live.draw(&self.summary);
        }
    }

    /// What came out, and what became of the lanes.
    pub fn finish(mut self, source: Source) -> (Report, Result<(), Failure>) {
        // The terminal is given back before anything is printed.
        drop(self.live.take());
        let lanes = match self.perfetto {
            None => Ok(()),
            Some(Lanes { failed: Some(failure), .. }) => Err(failure),
            Some(Lanes { writer, .. }) => writer.map_or(Ok(()), |writer| {
                let (file, done) = writer.finish();
                done.map_err(|error| file.failed(error))?;
                file.finish().map_err(Failure::from)
            }),
        };
        (self.summary.into_report(source), lanes)
    }
}

/// Shows a report in every form that was asked for; `print_tables` is for the tables.
pub fn show(
    report: &Report,
    show: &ShowArgs,
    look: &Look,
    print_tables: impl Fn(&str) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let forms = [
        (&show.html, (|report| report::html(Page::Report(report))) as fn(&Report) -> String),
        (&show.json, |report| report::json(report)),
        (&show.tsv, |report| report::tsv(report)),
        (&show.folded, |report| report::folded(report, Part::Wall)),
    ];
    let mut tables = show.perfetto.as_deref() != Some(Path::new("-"));
    for (path, form) in forms {
        let Some(path) = path else { continue };
        tables &= path.as_os_str() != "-";
        save(path, &form(report))?;
    }
    if !tables {
        return Ok(());
    }
    let mut text = report::terminal(report, look);
    if let Some(case) = show.study {
        text += &study::beside_report(report, case, look.width, look.colour);
    }
    print_tables(&text)
}

/// How tables look on a stream.
pub fn look(sum: &SumArgs, by: Option<ByArg>, stream: terminal::Stream) -> Look {
    let by = by.map(|by| match by {
        ByArg::Class => By::Class,
        ByArg::Call => By::Call,
        ByArg::Thread => By::Thread,
        ByArg::Process => By::Process,
        ByArg::Crossing => By::Crossing,
    });
    Look { width: terminal::width(stream), colour: terminal::colour(stream), top: usize::from(sum.top), by }
}

/// Writes a report to its file; - is standard output.
pub fn save(path: &Path, text: &str) -> Result<(), Failure> {
    if path.as_os_str() == "-" {
        return print(text);
    }
    Ok(write_whole(path, |out| out.write_all(text.as_bytes()))?)
}

fn standard_output(path: &Path) -> std::path::PathBuf {
    if path.as_os_str() == "-" { "/dev/stdout".into() } else { path.to_owned() }
}

fn cannot(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(
        OTHER,
        format!("cannot write {}: {error}; make room or choose another place", path.display()),
    )
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Failure {
        let full = error.source.kind() == std::io::ErrorKind::StorageFull;
        Failure::new(if full { NO_ROOM } else { OTHER }, error)
    }
}
