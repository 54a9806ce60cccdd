//! From a request to the files of a report.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::error::{ReportError, while_doing};
use crate::papers::{PATH, Papers, Step};
use crate::report::Report;
use crate::results::{Results, replace, write_json};
use crate::session::{Earlier, Session};
use crate::{html, markdown};

/// The report for programs; it has all that the others are written from.
const JSON: &str = "results.json";

/// A report to be made.
#[derive(Debug, Clone)]
pub struct Request {
    /// Suites whose steps are to be run, or none for all.
    pub suites: Vec<String>,
    /// The steps of a quick run alone, with few repetitions.
    pub quick: bool,
    /// Which steps of earlier runs count.
    pub earlier: Earlier,
    /// The source tree; without, the one that the current directory is in.
    pub source: Option<PathBuf>,
    /// The report's directory, which is made.
    pub out: PathBuf,
}

/// Runs what was asked for and writes a report of all results that are in its directory then, of
/// earlier runs as well: `index.html`, `results.md` and `results.json`. They are written behind
/// each step, so that a run that is stopped leaves a report. `tell` gets a line for each thing that
/// a person waits for or should know.
///
/// A directory with a `results.json` and none of the steps' results, as of a report that is kept in
/// the source tree, gets its report again with [`Earlier::Only`], as the table of papers is now.
///
/// # Errors
/// [`ReportError`]. [`ReportError::StepsFailed`] comes when the report is written.
pub fn make(request: &Request, tell: &mut dyn FnMut(&str)) -> Result<Report, ReportError> {
    make_with(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()), request, tell)
}

fn make_with(
    cargo: OsString,
    request: &Request,
    tell: &mut dyn FnMut(&str),
) -> Result<Report, ReportError> {
    let source = source(request.source.as_deref())?;
    let papers = Papers::of_source(&source)?;
    let plan = papers.plan(&request.suites, request.quick)?;
    let mut results = Results::open(&request.out, &papers, tell)?;
    let out = request.out.canonicalize().map_err(while_doing("cannot find the directory"))?;
    let session = Session { source, out: out.clone(), cargo, earlier: request.earlier };
    session
        .run(&plan, &mut results, tell, &mut |results| write(&papers, results, &out).map(drop))?;
    let report = match write(&papers, &results, &out)? {
        None if request.earlier == Earlier::Only && results.in_order(&papers).is_empty() => {
            renew(&papers, &out)?
        }
        written => written,
    };
    let report = report.ok_or_else(|| ReportError::NoResults { out: request.out.clone() })?;
    let failed = failed_steps(&plan, &results);
    match failed.is_empty() {
        true => Ok(report),
        false => Err(ReportError::StepsFailed {
            failed,
            count: plan.len(),
            page: request.out.join("index.html"),
        }),
    }
}

/// Writes the report, unless nothing was measured.
fn write(papers: &Papers, results: &Results, out: &Path) -> Result<Option<Report>, ReportError> {
    let done = results.in_order(papers);
    if done.iter().all(|done| done.measured.is_empty()) {
        return Ok(None);
    }
    let report = Report::new(papers, &done);
    write_files(&report, out)?;
    Ok(Some(report))
}

/// Writes the report of a directory's `results.json` again, if there is one.
fn renew(papers: &Papers, out: &Path) -> Result<Option<Report>, ReportError> {
    let path = out.join(JSON);
    if !path.exists() {
        return Ok(None);
    }
    let read =
        || -> std::io::Result<Report> { Ok(serde_json::from_slice(&std::fs::read(&path)?)?) };
    let report = read().map_err(while_doing(format!("cannot read {}", path.display())))?;
    let report = report.renewed(papers);
    write_files(&report, out)?;
    Ok(Some(report))
}

fn write_files(report: &Report, out: &Path) -> Result<(), ReportError> {
    write_json(&out.join(JSON), report)?;
    replace(&out.join("results.md"), markdown::markdown(report).as_bytes())?;
    replace(&out.join("index.html"), html::page(report).as_bytes())
}

fn failed_steps(plan: &[(Step, u32)], results: &Results) -> Vec<String> {
    let steps = plan.iter().map(|(step, _)| step);
    let failed = |step: &&Step| results.get(step).is_some_and(|done| done.failed.is_some());
    steps.filter(failed).map(Step::name).collect()
}

/// The source tree: the named one, or the nearest one around the current directory.
fn source(named: Option<&Path>) -> Result<PathBuf, ReportError> {
    let here = std::env::current_dir().map_err(while_doing("cannot tell the current directory"))?;
    let start = named.map_or(here.clone(), |named| here.join(named));
    let candidates = match named {
        Some(_) => 1,
        None => usize::MAX,
    };
    start
        .ancestors()
        .take(candidates)
        .find(|folder| folder.join(PATH).is_file())
        .map(Path::to_owned)
        .ok_or(ReportError::NoSource { directory: start })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::MutexGuard;

    use tempfile::TempDir;

    use super::*;
    use crate::account::tests::alone;

    const TABLE: &str = r#"
        [[step]]
        suite = "pool"
        runs = 5
        quick_runs = 1
        [[step]]
        suite = "trace"
        runs = 5
        quick_runs = 5
        [[paper]]
        id = "qnvram"
        title = "qNVRAM"
        by = "H. Luo"
        [[paper.exhibit]]
        label = "Section 3"
        title = "Emergency"
        setting = "a phone"
        better = "less"
        holds = "It holds."
        fails = "It does not."
        row = [
            { label = "20 MB", unit = "s", suite = "pool", key = "pool_s" },
            { label = "null call", unit = "s", suite = "trace", key = "trace_s" },
        ]
    "#;

    /// Plays `cargo xtask bench SUITE`, and writes down its words. A suite measures nothing but
    /// `SUITE_s`, or does what `SUITE.sh` says.
    const CARGO: &str = r#"#!/bin/sh
        echo "$*" >>calls
        [ -f "$3.sh" ] && . "./$3.sh"
        [ "$4" = --prepare ] && exit
        echo '{"'$3'_s":{"median":1.0,"min":1.0,"max":1.0,"n":5,"unit":"s","goal":null}}'
    "#;

    struct Tree(TempDir, #[expect(dead_code, reason = "it is held")] MutexGuard<'static, ()>);

    impl Tree {
        fn new() -> Tree {
            let tree = Tree(tempfile::tempdir().unwrap(), alone());
            fs::create_dir_all(tree.0.path().join("bench/papers")).unwrap();
            tree.write(PATH, TABLE);
            tree.write("cargo", CARGO);
            let cargo = tree.0.path().join("cargo");
            fs::set_permissions(cargo, fs::Permissions::from_mode(0o755)).unwrap();
            tree
        }

        fn write(&self, name: &str, text: &str) {
            fs::write(self.0.path().join(name), text).unwrap();
        }

        fn out(&self) -> PathBuf {
            self.0.path().join("report")
        }

        /// Makes a report; returns what was told as well, and which steps were run.
        fn make(
            &self,
            suites: &[&str],
            earlier: Earlier,
        ) -> (Result<Report, ReportError>, String, Vec<String>) {
            self.make_of(&Request {
                suites: suites.iter().map(|&suite| suite.to_owned()).collect(),
                quick: false,
                earlier,
                source: Some(self.0.path().to_owned()),
                out: self.out(),
            })
        }

        fn make_of(&self, request: &Request) -> (Result<Report, ReportError>, String, Vec<String>) {
            self.write("calls", "");
            let mut told = String::new();
            let cargo = self.0.path().join("cargo").into_os_string();
            let made = make_with(cargo, request, &mut |line| told += &format!("{line}\n"));
            let calls = fs::read_to_string(self.0.path().join("calls")).unwrap();
            let steps = calls.lines().filter(|line| line.contains("--json"));
            let suite = |line: &str| line.split(' ').nth(2).unwrap().to_owned();
            (made, told, steps.map(suite).collect())
        }
    }

    fn keys(report: &Report) -> Vec<&str> {
        report.suites.values().flat_map(|suite| suite.keys()).map(String::as_str).collect()
    }

    #[test]
    fn directory_without_source_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let request = Request {
            suites: Vec::new(),
            quick: true,
            earlier: Earlier::default(),
            source: Some(folder.path().to_owned()),
            out: folder.path().join("report"),
        };
        let error = make(&request, &mut |_| {}).unwrap_err().to_string();
        assert!(error.contains("--source"), "{error}");
        assert!(!request.out.exists());
    }

    /// A suite without a step ends the request before anything is built or made.
    #[test]
    fn suite_without_steps_is_refused() {
        let tree = Tree::new();
        let (made, ..) = tree.make(&["heap"], Earlier::Never);
        let error = made.unwrap_err().to_string();
        assert!(error.contains("heap has no part in a report"), "{error}");
        assert!(!tree.out().exists());
    }

    /// A report has what earlier runs of other suites left in its directory.
    #[test]
    fn later_run_of_one_suite_keeps_the_others() {
        let tree = Tree::new();
        let (made, _, ran) = tree.make(&[], Earlier::OfAnySource);
        assert_eq!(keys(&made.unwrap()), ["pool_s", "trace_s"]);
        assert_eq!(ran, ["pool", "trace"]);
        let (made, _, ran) = tree.make(&["pool"], Earlier::Never);
        assert_eq!(keys(&made.unwrap()), ["pool_s", "trace_s"]);
        assert_eq!(ran, ["pool"]);
        let (_, told, ran) = tree.make(&[], Earlier::OfAnySource);
        assert!(ran.is_empty() && told.contains("2 of 2 steps were done before"), "{told}");
        let (_, told, ran) = tree.make(&[], Earlier::OfThisSource);
        assert_eq!(ran, ["pool", "trace"], "a source without a commit is never the same");
        assert!(told.contains("no commit"), "{told}");
    }

    /// A step that fails is an error at the end, with the report of the others written.
    #[test]
    fn failed_step_is_an_error_with_a_report() {
        let tree = Tree::new();
        tree.write("trace.sh", "[ $4 = --prepare ] || { echo no root >&2; exit 1; }");
        for earlier in [Earlier::Never, Earlier::Only] {
            let error = tree.make(&[], earlier).0.unwrap_err().to_string();
            assert!(error.starts_with("1 of 2 steps failed (trace); "), "{error}");
        }
        let page = fs::read_to_string(tree.out().join("index.html")).unwrap();
        assert!(page.contains("no root"), "{page}");
        assert!(tree.make(&["pool"], Earlier::Only).0.is_ok(), "trace was not asked for");
    }

    #[test]
    fn no_results_are_an_error() {
        let tree = Tree::new();
        let error = tree.make(&[], Earlier::Only).0.unwrap_err().to_string();
        assert!(error.starts_with("there are no results in "), "{error}");
        tree.write("pool.sh", "exit 1");
        let error = tree.make(&["pool"], Earlier::Never).0.unwrap_err().to_string();
        assert!(error.starts_with("there are no results in "), "{error}");
        assert!(!tree.out().join("index.html").exists());
    }

    /// A report without the results of its steps is written again, as the table is by then; a file
    /// that is no report is an error and stays.
    #[test]
    fn report_is_renewed_from_its_json() {
        let tree = Tree::new();
        tree.make(&[], Earlier::Never).0.unwrap();
        let before = fs::read_to_string(tree.out().join("results.md")).unwrap();
        fs::remove_dir_all(tree.out().join("steps")).unwrap();
        tree.write(PATH, &TABLE.replace("a phone", "It takes {pool pool_s min}."));
        let (made, _, ran) = tree.make(&[], Earlier::Only);
        assert_eq!(keys(&made.unwrap()), ["pool_s", "trace_s"]);
        let after = fs::read_to_string(tree.out().join("results.md")).unwrap();
        assert!(ran.is_empty() && after.contains("It takes 1 s."), "{after}");
        assert_eq!(after.replace("It takes 1 s.", "a phone"), before);
        tree.write("report/results.json", "{");
        let error = tree.make(&[], Earlier::Only).0.unwrap_err().to_string();
        assert!(error.contains("cannot read") && error.contains("results.json"), "{error}");
        assert_eq!(fs::read_to_string(tree.out().join("results.json")).unwrap(), "{");
    }

    /// A suite that cannot be built is not started.
    #[test]
    fn steps_of_an_unbuilt_suite_are_skipped() {
        let tree = Tree::new();
        tree.write("trace.sh", "exit 1");
        let (made, told, ran) = tree.make(&[], Earlier::Never);
        assert!(made.is_err());
        assert_eq!(ran, ["pool"]);
        assert!(told.contains("trace: FAILED, the suite trace cannot be built"), "{told}");
    }

    /// What is stopped in the middle has left a report of the steps before.
    #[test]
    fn report_is_written_behind_each_step() {
        let tree = Tree::new();
        tree.write("trace.sh", "[ $4 = --prepare ] || cp report/results.json seen");
        tree.make(&[], Earlier::Never).0.unwrap();
        let seen = fs::read_to_string(tree.0.path().join("seen")).unwrap();
        assert!(seen.contains("pool_s") && !seen.contains("trace_s\":{"), "{seen}");
    }

    /// A damaged file does not end a run: its step is run again, or left out where none is run.
    #[test]
    fn damaged_step_is_run_again() {
        let tree = Tree::new();
        tree.make(&[], Earlier::Never).0.unwrap();
        fs::write(tree.out().join("steps/pool.json"), "{").unwrap();
        let (made, told, _) = tree.make(&[], Earlier::Only);
        assert_eq!(keys(&made.unwrap()), ["trace_s"]);
        assert!(told.contains("pool.json cannot be used"), "{told}");
        let (made, _, ran) = tree.make(&[], Earlier::OfAnySource);
        assert_eq!(
            (keys(&made.unwrap()), ran),
            (vec!["pool_s", "trace_s"], vec!["pool".to_owned()])
        );
    }

    /// A report that is made later of quick steps says that they had few repetitions.
    #[test]
    fn quick_run_stays_one() {
        let tree = Tree::new();
        let mut request = Request {
            suites: Vec::new(),
            quick: true,
            earlier: Earlier::Never,
            source: Some(tree.0.path().to_owned()),
            out: tree.out(),
        };
        tree.make_of(&request).0.unwrap();
        (request.quick, request.earlier) = (false, Earlier::Only);
        tree.make_of(&request).0.unwrap();
        let text = fs::read_to_string(tree.out().join("results.md")).unwrap();
        assert!(text.contains("A quick run: 1 of 2 steps "), "{text}");
        tree.make(&[], Earlier::OfAnySource).0.unwrap();
        let text = fs::read_to_string(tree.out().join("results.md")).unwrap();
        assert!(!text.contains("A quick run"), "{text}");
    }

    #[test]
    fn file_in_place_of_the_directory_is_refused() {
        let tree = Tree::new();
        tree.write("report", "");
        let (made, _, ran) = tree.make(&[], Earlier::Never);
        let error = made.unwrap_err().to_string();
        assert!(error.ends_with("report is not a directory") && ran.is_empty(), "{error}");
    }
}
