//! Traces beside each other: `diff`, `matrix`, and logs of strace.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use holdfast_sys::counted::counted;
use holdfast_trace::diff::{self, Diff, Runs};
use holdfast_trace::import::{self, StraceComparison};
use holdfast_trace::matrix::{self, MatrixError, Plan, Run};
use holdfast_trace::report::document::{FORMAT, Sleep};
use holdfast_trace::report::{self, Look, Page, Report, study};
use holdfast_trace::{
    CallsInMemory, Crossings, Ending, Event, Program, Recording, Scheme, Settings, StopFlag,
    Summary, Target,
};

use crate::args::ReportArgs;
use crate::collect::{self, Collector, first_failure, save};
use crate::failure;
use crate::measure::{catch_unless_ignored, choose};
use crate::show_args::{CompareArgs, DiffArgs, ImportArgs, MatrixArgs, SumArgs};
use crate::terminal::{SilencedStream, Stream};
use holdfast_command::exit::{BAD_FILE, Failure, NOT_FOUND, OTHER, USAGE};
use holdfast_command::output::{print_as_is, say};

/// A report in JSON is not larger than this.
const JSON_BYTES_MAX: u64 = 1 << 30;

/// Shows a recording again.
pub(crate) fn report(options: &ReportArgs) -> Result<u8, Failure> {
    let look = collect::look(&options.show.sum, options.show.by, Stream::Output);
    if options.show.perfetto.is_none() {
        let report = load(&options.file, &options.show.sum)?;
        collect::show(&report, &options.show, &look, print_as_is)?;
        return Ok(status([&report]));
    }
    // Every call is wanted, so it takes a recording.
    let mut recording = Recording::open(&options.file).map_err(failure::of_recording)?;
    let mut collector = Collector::new(&options.show, recording.about().began_ns, None)?;
    let scheme = collect::options(&options.show.sum, Sleep::Measured).scheme;
    let crossings = read(&options.file, &mut recording, scheme, |event| collector.add(event));
    let (mut report, lanes) = collector.finish((&recording).into());
    report.crossings = crossings;
    let shown = collect::show(&report, &options.show, &look, print_as_is);
    first_failure([lanes, shown])?;
    Ok(status([&report]))
}

/// The exit code when all was shown that there is: a recording that lacks something is no success.
fn status<'a>(reports: impl IntoIterator<Item = &'a Report>) -> u8 {
    let lacks = |report: &Report| !report.source.incomplete.is_empty();
    if reports.into_iter().any(lacks) { BAD_FILE } else { 0 }
}

/// Reads a recording, as far as it is good; or a report that was written as JSON, which cannot be
/// summed up anew.
fn load(path: &Path, sum: &SumArgs) -> Result<Report, Failure> {
    let wanted = collect::options(sum, Sleep::Measured);
    if let Some(report) = load_json(path)? {
        let other_scheme = sum.scheme.is_some() && report.scheme != wanted.scheme;
        let other_sleep = sum.sleep.is_some() && report.sleep != wanted.sleep;
        if other_scheme || other_sleep {
            let message = format!(
                "{} was summed up with {}, and cannot be otherwise; leave these options out, or give the recording that it was made from",
                path.display(),
                ways(&report)
            );
            return Err(Failure::new(USAGE, message));
        }
        return Ok(report);
    }
    let mut recording = Recording::open(path).map_err(failure::of_recording)?;
    let mut summary = Summary::new(wanted);
    let crossings = read(path, &mut recording, wanted.scheme, |event| summary.add(event));
    Ok(Report { crossings, ..summary.into_report((&recording).into()) })
}

/// Reads a recording to its end, says how that is, and gives the sandbox view.
fn read(
    path: &Path,
    recording: &mut Recording,
    scheme: Scheme,
    mut add: impl FnMut(&Event),
) -> Option<Crossings> {
    let mut kept = recording.crossings().map(|_| CallsInMemory::new(scheme));
    for event in &mut *recording {
        add(&event);
        kept.iter_mut().for_each(|kept| kept.add(&event));
    }
    say_how_it_ends(path, recording);
    kept.zip(recording.crossings()).map(|(kept, mut record)| kept.join(&mut record))
}

/// The options by which a report was summed up.
fn ways(report: &Report) -> String {
    let scheme = match report.scheme {
        Scheme::Paper => "paper",
        Scheme::Refined => "refined",
    };
    let sleep = match report.sleep {
        Sleep::Measured => "measured",
        Sleep::Paper => "paper",
    };
    format!("--scheme {scheme} --sleep {sleep}")
}

fn say_how_it_ends(path: &Path, recording: &Recording) {
    let notes = recording.ending().map_or_else(Vec::new, Ending::notes);
    if !notes.is_empty() {
        say(format_args!("{}: {}", path.display(), notes.join(" ")));
    }
}

/// None if it is something else than JSON.
fn load_json(path: &Path) -> Result<Option<Report>, Failure> {
    #[derive(serde::Deserialize)]
    struct Version {
        format: u32,
    }
    // What cannot be opened is reported by the code that opens it as a recording.
    let Ok(file) = File::open(path) else { return Ok(None) };
    if !file.metadata().is_ok_and(|file| file.is_file()) {
        return Ok(None);
    }
    let mut file = BufReader::new(file.take(JSON_BYTES_MAX));
    if file.fill_buf().is_ok_and(|start| start.first() != Some(&b'{')) {
        return Ok(None);
    }
    let mut text = String::new();
    let bad = |why: String| Failure::new(BAD_FILE, format!("{} {why}", path.display()));
    file.read_to_string(&mut text).map_err(|error| bad(format!("cannot be read: {error}")))?;
    let foreign = |error| bad(format!("is no report of `holdfast trace --json` ({error})"));
    let Version { format } = serde_json::from_str(&text).map_err(foreign)?;
    if format > FORMAT {
        return Err(bad(format!(
            "has version {format} of the format and this program knows up to {FORMAT}; use a newer holdfast"
        )));
    }
    serde_json::from_str(&text).map(Some).map_err(foreign)
}

pub(crate) fn diff(options: &DiffArgs) -> Result<u8, Failure> {
    let sum = &options.compare.sum;
    let (a, b) = (side(&options.a, sum)?, side(&options.b, sum)?);
    summed_up_alike(a.iter().chain(&b))?;
    let status = status(a.iter().chain(&b).map(|(_, report)| report));
    let runs = |path: &Path, side: Vec<(PathBuf, Report)>| Runs {
        name: path.display().to_string(),
        reports: side.into_iter().map(|(_, report)| report).collect(),
    };
    let diff = Diff::of(&runs(&options.a, a), &runs(&options.b, b));
    let page = || report::html(Page::Diff(&diff));
    show(&options.compare, page, || report::pretty(&diff), |look| diff::terminal(&diff, look))?;
    Ok(status)
}

/// A file is one run, a directory one for each recording in it.
fn side(path: &Path, sum: &SumArgs) -> Result<Vec<(PathBuf, Report)>, Failure> {
    let mut files = vec![path.to_owned()];
    if path.is_dir() {
        let entries = std::fs::read_dir(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let entries = entries.map_err(|error| {
            Failure::new(OTHER, format!("cannot read {}: {error}", path.display()))
        })?;
        files =
            entries.into_iter().map(|entry| entry.path()).filter(|path| path.is_file()).collect();
        files.sort();
    }
    let loaded = files.into_iter().map(|file| load(&file, sum).map(|report| (file, report)));
    let reports = loaded.collect::<Result<Vec<_>, _>>()?;
    if reports.is_empty() {
        let message = format!(
            "there is no recording in {}; make some with `holdfast trace run -o FILE`",
            path.display()
        );
        return Err(Failure::new(NOT_FOUND, message));
    }
    Ok(reports)
}

/// All as the first one was.
fn summed_up_alike<'a>(
    mut reports: impl Iterator<Item = &'a (PathBuf, Report)>,
) -> Result<(), Failure> {
    let Some((first, like)) = reports.next() else { return Ok(()) };
    match reports.find(|(_, report)| (report.scheme, report.sleep) != (like.scheme, like.sleep)) {
        None => Ok(()),
        Some((file, report)) => Err(Failure::new(
            USAGE,
            format!(
                "{} is summed up with {}, and {} with {}, so they cannot be compared; give recordings in place of reports in JSON, or \
                 for recordings the options that the report in JSON has",
                first.display(),
                ways(like),
                file.display(),
                ways(report)
            ),
        )),
    }
}

/// In every form that was asked for; one that cannot be written costs none of the others.
fn show(
    options: &CompareArgs,
    page: impl Fn() -> String,
    json: impl Fn() -> String,
    tables: impl Fn(&Look) -> String,
) -> Result<(), Failure> {
    let mut done = Vec::new();
    if let Some(path) = &options.html {
        done.push(save(path, &page()));
    }
    if let Some(path) = &options.json {
        done.push(save(path, &json()));
    }
    let is_output = |path: &PathBuf| path.as_os_str() == "-";
    if ![&options.html, &options.json].into_iter().flatten().any(is_output) {
        done.push(print_as_is(&tables(&collect::look(&options.sum, None, Stream::Output))));
    }
    first_failure(done)
}

pub(crate) fn import(options: &ImportArgs) -> Result<u8, Failure> {
    if options.show.perfetto.is_some() {
        return Err(Failure::new(
            USAGE,
            "a log of strace has no lanes; --perfetto is for recordings",
        ));
    }
    let name = options.log.display().to_string();
    let sum = collect::options(&options.show.sum, Sleep::Paper);
    let mut summary = Summary::new(sum);
    let cannot = |error: io::Error| {
        let code = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { OTHER };
        Failure::new(code, format!("cannot read {name}: {error}"))
    };
    let imported = if options.log.as_os_str() == "-" {
        import::read(&mut io::stdin().lock(), &mut summary)
    } else {
        let file = File::open(&options.log).map_err(cannot)?;
        import::read(&mut BufReader::with_capacity(1 << 16, file), &mut summary)
    };
    let imported = imported.map_err(cannot)?;
    for (number, text) in &imported.shown {
        say(format_args!("{name}, line {number} is not one of strace's: {text}"));
    }
    if imported.skipped > imported.shown.len() as u64 {
        say(format_args!("{name}: {} could not be read", counted(imported.skipped, "line")));
    }
    if imported.calls == 0 && imported.summed == 0 {
        return Err(Failure::new(
            BAD_FILE,
            format!(
                "there is no call of strace in {name}; make a log with `strace -f -T -ttt -o FILE` or `strace -f -c -o FILE`"
            ),
        ));
    }
    let report = summary.into_report(imported.source(&name));
    let look = collect::look(&options.show.sum, options.show.by, Stream::Output);
    collect::show(&report, &options.show, &look, print_as_is)?;
    if let Some(path) = options.beside.as_ref().filter(|_| !collect::takes_output(&options.show)) {
        let measured = load(path, &options.show.sum)?;
        print_as_is(&format!(
            "\n{}",
            import::terminal(&StraceComparison::of(&report, &measured), &look)
        ))?;
        return Ok(status([&measured]));
    }
    Ok(0)
}

pub(crate) fn matrix(options: MatrixArgs) -> Result<u8, Failure> {
    let stop = StopFlag::default();
    catch_unless_ignored(
        &[signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP],
        &stop,
        OTHER,
    )?;
    let sum = collect::options(&options.compare.sum, Sleep::Measured);
    let plan = Plan {
        platforms: options.on,
        repetitions: options.runs,
        warm_ups: options.warm_ups,
        set_up: options.set_up,
        drop_caches: !options.keep_caches,
        image_bytes: options.image_size,
    };
    let command = options.command;
    let mut trace = |directory: &Path| {
        let settings = Settings {
            pin: options.pin,
            ..Settings::new(Target::Start(Program { command: command.clone() }))
        };
        let settings = Settings { stop: stop.clone(), ..settings };
        let here = WorkingDirectory::enter(directory)?;
        let backend = choose(options.backend, settings)?;
        let mut summary = Summary::new(sum);
        let hushed = SilencedStream::begin(Stream::Output);
        let outcome = backend.run(&mut |event| summary.add(&event));
        drop((hushed, here));
        let outcome = outcome?;
        if stop.is_raised() {
            return Err(MatrixError::Stopped);
        }
        Ok(Run { report: summary.into_report((&outcome.about).into()), end: outcome.end })
    };
    let matrix =
        matrix::run(&plan, &mut trace, &mut |text: &str| say(text)).map_err(failure::of_matrix)?;
    let page = || report::html(Page::Matrix(&matrix));
    show(
        &options.compare,
        page,
        || report::pretty(&matrix),
        |look| {
            let mut text = matrix::terminal(&matrix, look);
            if let Some(case) = options.study {
                let beside =
                    |platform| study::beside_platform(platform, case, look.width, look.colour);
                matrix.platforms.iter().for_each(|platform| text += &beside(platform));
            }
            text
        },
    )?;
    Ok(0)
}

/// The directory that programs are started in; back where it was when this is dropped.
struct WorkingDirectory(PathBuf);

impl WorkingDirectory {
    fn enter(directory: &Path) -> Result<WorkingDirectory, MatrixError> {
        let failed = |source| MatrixError::Directory { path: directory.to_owned(), source };
        let here = WorkingDirectory(std::env::current_dir().map_err(failed)?);
        std::env::set_current_dir(directory).map_err(failed)?;
        Ok(here)
    }
}

impl Drop for WorkingDirectory {
    fn drop(&mut self) {
        let _ = std::env::set_current_dir(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page that cannot be written costs a comparison none of its other forms.
    #[test]
    fn failed_page_costs_no_json() {
        let place = tempfile::tempdir().unwrap();
        let json = place.path().join("diff.json");
        let options = CompareArgs {
            sum: SumArgs { scheme: None, sleep: None, top: 10 },
            html: Some("/dev/full".into()),
            json: Some(json.clone()),
        };
        let shown = show(&options, || "page".into(), || "{}".into(), |_| String::new());
        let failure = shown.unwrap_err();
        assert!(failure.message.contains("cannot write /dev/full"), "{}", failure.message);
        assert_eq!(std::fs::read_to_string(&json).unwrap(), "{}");
    }
}
