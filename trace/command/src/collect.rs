//! Sums up events while they come, and shows what came out in every form that was asked for.

use std::path::Path;

use holdfast_trace::report::document::{Sleep, Source};
use holdfast_trace::report::{
    self, Grouping, Look, Page, Part, Report, WholeFile, WriteError, perfetto, study, write_whole,
};
use holdfast_trace::{Event, Scheme, Summary, SummaryOptions as Options};

use crate::failure;
use crate::show_args::{ByArg, SchemeArg, ShowArgs, SleepArg, SumArgs};
use crate::terminal::{self, Live};
use holdfast_command::exit::Failure;
use holdfast_command::output::{print_as_is, say};

/// What a trace is summed up in.
pub(crate) struct Collector {
    summary: Summary,
    perfetto: Option<Lanes>,
    live: Option<Live>,
}

/// Every call for a viewer. A disk that is full ends this, and not the trace.
struct Lanes {
    writer: Option<perfetto::Writer<WholeFile>>,
    failed: Option<Failure>,
}

/// How to sum up; logs cannot tell sleep but by the study's rule.
pub(crate) fn options(sum: &SumArgs, default_sleep: Sleep) -> Options {
    let scheme = match sum.scheme {
        Some(SchemeArg::Refined) => Scheme::Refined,
        Some(SchemeArg::Paper) | None => Scheme::Paper,
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
    pub(crate) fn new(
        show: &ShowArgs,
        began_ns: u64,
        live: Option<Live>,
    ) -> Result<Collector, Failure> {
        let options = options(&show.sum, Sleep::Measured);
        let lanes = |path: &Path| {
            let file = if is_output(path) {
                WholeFile::standard_output()
            } else {
                WholeFile::create(path)
            }
            .map_err(failure::of_write)?;
            let writer = perfetto::Writer::new(file, began_ns, options.scheme)
                .map_err(|source| WriteError { path: path.to_owned(), source, old_stays: false })
                .map_err(failure::of_write)?;
            Ok::<_, Failure>(Lanes { writer: Some(writer), failed: None })
        };
        let perfetto = show.perfetto.as_deref().map(lanes).transpose()?;
        Ok(Collector { summary: Summary::new(options), perfetto, live })
    }

    pub(crate) fn add(&mut self, event: &Event) {
        self.summary.add(event);
        if let Some(lanes) = &mut self.perfetto
            && let Some(writer) = &mut lanes.writer
            && let Err(error) = writer.add(event)
        {
            let failed = failure::of_write(writer.out().failed(error));
            *lanes = Lanes { writer: None, failed: Some(failed) };
        }
        if let Some(live) = &mut self.live {
            live.draw(&self.summary);
        }
    }

    /// What came out, and what became of the lanes.
    pub(crate) fn finish(mut self, source: Source) -> (Report, Result<(), Failure>) {
        // The terminal is given back before anything is printed.
        drop(self.live.take());
        let lanes = match self.perfetto {
            None => Ok(()),
            Some(Lanes { failed: Some(failure), .. }) => Err(failure),
            Some(Lanes { writer, .. }) => writer.map_or(Ok(()), |writer| {
                let (file, done) = writer.finish();
                done.map_err(|error| failure::of_write(file.failed(error)))?;
                file.finish().map_err(failure::of_write)
            }),
        };
        (self.summary.into_report(source), lanes)
    }
}

/// Shows a report in every form that was asked for; `print_tables` is for the tables. A form that
/// cannot be written costs none of the others.
pub(crate) fn show(
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
    let mut done = Vec::new();
    for (path, form) in forms {
        let Some(path) = path else { continue };
        done.push(save(path, &form(report)));
    }
    if !takes_output(show) {
        let mut text = report::terminal(report, look);
        if let Some(case) = show.study {
            text += &study::beside_report(report, case, look.width, look.colour);
        }
        done.push(print_tables(&text));
    }
    first_failure(done)
}

/// Returns the first failure and prints the others.
pub(crate) fn first_failure(
    done: impl IntoIterator<Item = Result<(), Failure>>,
) -> Result<(), Failure> {
    let mut failures = done.into_iter().filter_map(Result::err);
    let first = failures.next();
    failures.for_each(|failure| say(&failure.message));
    first.map_or(Ok(()), Err)
}

/// How tables look on a stream.
pub(crate) fn look(sum: &SumArgs, by: Option<ByArg>, stream: terminal::Stream) -> Look {
    let by = by.map(|by| match by {
        ByArg::Class => Grouping::Class,
        ByArg::Call => Grouping::Call,
        ByArg::Thread => Grouping::Thread,
        ByArg::Process => Grouping::Process,
        ByArg::Crossing => Grouping::Crossing,
    });
    Look {
        width: terminal::width(stream),
        colour: terminal::colour(stream),
        top: usize::from(sum.top),
        by,
    }
}

fn is_output(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Whether a form goes to standard output, where tables would spoil it.
pub(crate) fn takes_output(show: &ShowArgs) -> bool {
    let forms = [&show.html, &show.json, &show.tsv, &show.folded, &show.perfetto];
    forms.into_iter().flatten().any(|path| is_output(path))
}

/// Writes a report to its file; - is standard output.
pub(crate) fn save(path: &Path, text: &str) -> Result<(), Failure> {
    if is_output(path) {
        return print_as_is(text);
    }
    write_whole(path, |out| out.write_all(text.as_bytes())).map_err(failure::of_write)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// A form that cannot be written costs neither the other forms nor the tables.
    #[test]
    fn failed_form_costs_no_other_form() {
        let place = tempfile::tempdir().unwrap();
        let json = place.path().join("report.json");
        let options = ShowArgs {
            sum: SumArgs { scheme: None, sleep: None, top: 10 },
            by: None,
            study: None,
            html: Some("/dev/full".into()),
            json: Some(json.clone()),
            tsv: None,
            folded: None,
            perfetto: None,
        };
        let report = Summary::new(Options::default()).into_report(Source::default());
        let tables = RefCell::new(String::new());
        let failure = show(&report, &options, &Look::default(), |text| {
            tables.borrow_mut().push_str(text);
            Ok(())
        });
        let failure = failure.unwrap_err();
        assert!(failure.message.contains("cannot write /dev/full"), "{}", failure.message);
        assert!(json.exists() && tables.into_inner().contains("OS related"));
    }
}
