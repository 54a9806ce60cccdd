//! From a request to the files of a report.

use std::path::{Path, PathBuf};

use crate::error::{ReportError, while_doing};
use crate::papers::{PATH, Papers};
use crate::report::Report;
use crate::session::{Earlier, Session, keep, replace};
use crate::{html, markdown};

/// A report to be made.
#[derive(Debug, Clone)]
pub struct Request {
    /// Suites, or none for all.
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

/// Runs what the report is of and writes it: `index.html`, `results.md` and `results.json`. `tell`
/// gets a line for each thing that a person waits for.
///
/// # Errors
/// [`ReportError`]: nothing was measured, or the report cannot be written.
pub fn make(request: &Request, tell: &mut dyn FnMut(&str)) -> Result<Report, ReportError> {
    let source = source(request.source.as_deref())?;
    let papers = Papers::of_source(&source)?;
    let plan = papers.plan(&request.suites, request.quick)?;
    let create = format!("cannot create {}", request.out.display());
    std::fs::create_dir_all(&request.out).map_err(while_doing(create.as_str()))?;
    let out = request.out.canonicalize().map_err(while_doing(create))?;
    let session = Session { source, out: out.clone(), earlier: request.earlier };
    let done = session.run(&plan, tell)?;
    let report = Report::new(&papers, &done, request.quick);
    keep(&out.join("results.json"), &report)?;
    replace(&out.join("results.md"), markdown::markdown(&report).as_bytes())?;
    replace(&out.join("index.html"), html::page(&report).as_bytes())?;
    Ok(report)
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
    use super::*;

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

    /// A name that is no suite ends the request before anything is built or made.
    #[test]
    fn unknown_suite_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let request = Request {
            suites: vec!["dice".to_owned()],
            quick: true,
            earlier: Earlier::default(),
            source: None,
            out: folder.path().join("report"),
        };
        let error = make(&request, &mut |_| {}).unwrap_err().to_string();
        assert!(error.contains("there is no suite dice; there are: "), "{error}");
        assert!(!request.out.exists());
    }
}
