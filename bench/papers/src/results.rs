//! What came of the steps: one file for each in the report's directory, from which every report
//! into that directory is made.
//!
//! Invariants: a file is whole or not there; what is in a file is of the step whose name it has; a
//! file that cannot be used is reported and left out, and never ends a run.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{ReportError, while_doing};
use crate::machine::Machine;
use crate::papers::{Papers, Step};

/// Version of the form of a step's file; files without one are of version 1.
const FORMAT: u32 = 1;

/// One measurement of a step, as the suite prints it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The middle value.
    pub median: Option<f64>,
    /// The least value.
    pub min: Option<f64>,
    /// The largest value.
    pub max: Option<f64>,
    /// How many there are.
    pub n: u64,
    /// Their unit.
    pub unit: String,
    /// What the median should come to.
    pub goal: Option<String>,
}

/// What came of a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Done {
    /// `suite/section`.
    pub step: String,
    /// Its suite.
    pub suite: String,
    /// Repetitions.
    pub runs: u32,
    /// The source that it was built from.
    pub source: String,
    /// When it began, in seconds since 1970.
    pub at: u64,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// Which part of the machine others used meanwhile, from 0 to 1.
    pub others: f64,
    /// The machine.
    pub machine: Machine,
    /// What it measured, by key.
    pub measured: BTreeMap<String, Measured>,
    /// What else must be known to read it.
    pub notes: Vec<String>,
    /// Peers that took no part, and how to get them.
    pub missing: Vec<String>,
    /// Why there is nothing, if the step failed.
    pub failed: Option<String>,
}

impl Done {
    /// Whether another run of the step would bring no more: it did not fail, nothing was missing,
    /// and something was measured.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.failed.is_none() && self.missing.is_empty() && !self.measured.is_empty()
    }
}

/// A step's file.
#[derive(Serialize)]
struct StepFile<'a> {
    format: u32,
    #[serde(flatten)]
    done: &'a Done,
}

/// Of a step's file what can be read in any version.
#[derive(Deserialize)]
struct Version {
    format: Option<u32>,
}

/// The results in a report's directory.
#[derive(Debug)]
pub struct Results {
    folder: PathBuf,
    done: BTreeMap<String, Done>,
}

impl Results {
    /// Reads the results of these papers' steps in a report's directory, which is made, and tried
    /// out by writing to it. `tell` gets a line for each file that cannot be used.
    ///
    /// # Errors
    /// When the directory is none, or cannot be written to.
    pub fn open(
        out: &Path,
        papers: &Papers,
        tell: &mut dyn FnMut(&str),
    ) -> Result<Results, ReportError> {
        let folder = out.join("steps");
        for folder in [out, folder.as_path()] {
            make_writable(folder)?;
        }
        let mut results = Results { folder, done: BTreeMap::new() };
        for step in &papers.step {
            let path = results.path(step);
            match read(&path, step) {
                Ok(done) => results.done.extend(done.map(|done| (step.name(), done))),
                Err(reason) => tell(&format!("{} cannot be used: {reason}", path.display())),
            }
        }
        Ok(results)
    }

    /// What came of a step.
    #[must_use]
    pub fn get(&self, step: &Step) -> Option<&Done> {
        self.done.get(&step.name())
    }

    /// What came of the steps that were run, in the order of the papers' steps.
    #[must_use]
    pub fn in_order(&self, papers: &Papers) -> Vec<Done> {
        papers.step.iter().filter_map(|step| self.get(step)).cloned().collect()
    }

    /// Keeps what came of a step in place of what came of it before.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn keep(&mut self, step: &Step, done: Done) -> Result<(), ReportError> {
        write_json(&self.path(step), &StepFile { format: FORMAT, done: &done })?;
        self.done.insert(step.name(), done);
        Ok(())
    }

    fn path(&self, step: &Step) -> PathBuf {
        self.folder.join(format!("{}.json", step.name().replace('/', ".")))
    }
}

fn read(path: &Path, step: &Step) -> Result<Option<Done>, String> {
    let bytes = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(|error| error.to_string())?,
    };
    let damaged = |error: serde_json::Error| format!("it is damaged: {error}");
    let version: Version = serde_json::from_slice(&bytes).map_err(damaged)?;
    match version.format {
        None | Some(FORMAT) => {}
        Some(other) => return Err(format!("it has version {other}, and this reads {FORMAT}")),
    }
    let done: Done = serde_json::from_slice(&bytes).map_err(damaged)?;
    match done.step == step.name() && done.suite == step.suite {
        true => Ok(Some(done)),
        false => Err(format!("it is of the step {}", done.step)),
    }
}

fn make_writable(folder: &Path) -> Result<(), ReportError> {
    if folder.exists() && !folder.is_dir() {
        return Err(ReportError::NoDirectory { path: folder.to_owned() });
    }
    fs::create_dir_all(folder)
        .map_err(while_doing(format!("cannot create {}", folder.display())))?;
    tempfile::tempfile_in(folder)
        .map(drop)
        .map_err(while_doing(format!("cannot write to {}", folder.display())))
}

/// Writes a file of JSON, in one line because it is for programs, so that it is whole or not there.
pub(crate) fn write_json(path: &Path, value: &impl Serialize) -> Result<(), ReportError> {
    let mut bytes = serde_json::to_vec(value).map_err(|error| ReportError::Io {
        what: format!("cannot write {}", path.display()),
        error: error.into(),
    })?;
    bytes.push(b'\n');
    replace(path, &bytes)
}

/// The same for bytes of any kind.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<(), ReportError> {
    let write = || {
        let folder = path.parent().unwrap_or(Path::new("."));
        let mut file = tempfile::Builder::new()
            .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))
            .tempfile_in(folder)?;
        file.write_all(bytes)?;
        file.persist(path)?;
        Ok(())
    };
    write().map_err(while_doing(format!("cannot write {}", path.display())))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const STEPS: &str = "
        paper = []
        [[step]]
        suite = 'pool'
        section = 'flush'
        runs = 5
        quick_runs = 1
        [[step]]
        suite = 'trace'
        runs = 5
    ";

    pub(crate) fn papers() -> Papers {
        Papers::parse(STEPS).unwrap()
    }

    /// A whole step of the machine that this runs on.
    pub(crate) fn done(step: &Step) -> Done {
        let one = Measured {
            median: Some(1.0),
            min: Some(1.0),
            max: Some(1.0),
            n: 5,
            unit: "s".to_owned(),
            goal: None,
        };
        Done {
            step: step.name(),
            suite: step.suite.clone(),
            runs: 5,
            source: "a".to_owned(),
            at: 1,
            seconds: 2.0,
            others: 0.25,
            machine: Machine::here(),
            measured: BTreeMap::from([("a_s".to_owned(), one)]),
            notes: Vec::new(),
            missing: Vec::new(),
            failed: None,
        }
    }

    fn opened(out: &Path) -> (Results, Vec<String>) {
        let mut told = Vec::new();
        let results = Results::open(out, &papers(), &mut |line| told.push(line.to_owned()));
        (results.unwrap(), told)
    }

    #[test]
    fn results_are_found_again() {
        let folder = tempfile::tempdir().unwrap();
        let papers = papers();
        let (mut results, told) = opened(folder.path());
        assert!(results.in_order(&papers).is_empty() && told.is_empty());
        for step in papers.step.iter().rev() {
            results.keep(step, done(step)).unwrap();
        }
        let (results, told) = opened(folder.path());
        let all: Vec<Done> = papers.step.iter().map(done).collect();
        assert_eq!((results.in_order(&papers), told), (all, vec![]));
        assert!(folder.path().join("steps/pool.flush.json").is_file());
    }

    /// What is half written, of another version or of another step is reported and left out; the
    /// files of before the first version number are read.
    #[test]
    fn unusable_files_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let papers = papers();
        let (results, _) = opened(folder.path());
        let step = &papers.step[0];
        let text = |format: Option<u32>, step: &Step| {
            let mut value = serde_json::to_value(done(step)).unwrap();
            if let Some(format) = format {
                value["format"] = format.into();
            }
            value.to_string()
        };
        let newer = format!("{{\"format\":{}}}", FORMAT + 1);
        for (content, complaint) in [
            (text(Some(FORMAT), step)[..40].to_owned(), Some("damaged")),
            (newer, Some("version 2")),
            (text(Some(FORMAT), &papers.step[1]), Some("of the step trace")),
            (text(Some(FORMAT), step), None),
            (text(None, step), None),
        ] {
            fs::write(results.path(step), &content).unwrap();
            let (results, told) = opened(folder.path());
            assert_eq!(results.get(step).is_some(), complaint.is_none(), "{content}");
            assert_eq!(told.len(), usize::from(complaint.is_some()), "{told:?}");
            let told = told.concat();
            assert!(told.contains(complaint.unwrap_or_default()), "{told}");
        }
    }

    #[test]
    fn directory_that_cannot_be_written_to_is_refused() {
        let error = |out: &str| {
            Results::open(Path::new(out), &papers(), &mut |_| {}).unwrap_err().to_string()
        };
        assert_eq!(error("/dev/null"), "/dev/null is not a directory");
        // The kernel makes no file there, not even for root.
        assert!(error("/proc").contains("/proc"), "{}", error("/proc"));
    }
}
