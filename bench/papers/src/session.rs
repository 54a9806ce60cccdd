//! Runs the steps of a report, each as `cargo xtask bench SUITE --only SECTION --json`, and keeps
//! what each found in a file of its own.
//!
//! A run that was stopped goes on behind its last whole step: a step whose file is there, is of the
//! same source and has as many repetitions is not run again.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::error::{ReportError, while_doing};
use crate::machine::{Account, Machine, adopt_orphans, collect_orphans};
use crate::papers::Step;

/// How long what a step left behind may take to end, to be counted with it.
const PATIENCE: Duration = Duration::from_secs(2);

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
    /// How long it took.
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

/// How a run is made.
#[derive(Debug, Clone)]
pub struct Session {
    /// The source tree.
    pub source: PathBuf,
    /// Where the report goes.
    pub out: PathBuf,
    /// Which steps of earlier runs count.
    pub earlier: Earlier,
}

/// Which steps of earlier runs into the same directory count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Earlier {
    /// None.
    Never,
    /// Those of the same source.
    #[default]
    OfThisSource,
    /// Those of any source; the report names the source of each that is of another one than most.
    OfAnySource,
    /// All, with as many repetitions as they had, also those that failed; and nothing is measured.
    Only,
}

impl Session {
    /// Runs a plan; `tell` gets a line for each thing that a person waits for. Returns what came of
    /// each step, in the plan's order. A step that fails is one of the results.
    ///
    /// # Errors
    /// When the source cannot be built, or results cannot be kept.
    pub fn run(
        &self,
        plan: &[(Step, u32)],
        tell: &mut dyn FnMut(&str),
    ) -> Result<Vec<Done>, ReportError> {
        let source = fingerprint(&self.source);
        let steps = self.steps()?;
        let mut all = Vec::new();
        let open: Vec<_> = plan
            .iter()
            .map(|(step, runs)| Ok((step, *runs, self.earlier(step, *runs, &source)?)))
            .collect::<Result<_, ReportError>>()?;
        if self.earlier == Earlier::Only {
            return Ok(open.into_iter().filter_map(|(.., done)| done).collect());
        }
        adopt_orphans();
        self.build(open.iter().filter(|(.., done)| done.is_none()).map(|(step, ..)| *step), tell)?;
        for (number, (step, runs, earlier)) in open.into_iter().enumerate() {
            let head = format!("[{}/{}] {}", number + 1, plan.len(), step.name());
            if let Some(done) = earlier {
                tell(&format!("{head}: done before"));
                all.push(done);
                continue;
            }
            tell(&format!("{head} ..."));
            let done = self.step(step, runs, &source);
            tell(&format!("{head}: {}", outcome_line(&done)));
            keep(&steps.join(file_name(step)), &done)?;
            all.push(done);
        }
        Ok(all)
    }

    fn steps(&self) -> Result<PathBuf, ReportError> {
        let steps = self.out.join("steps");
        fs::create_dir_all(&steps)
            .map_err(while_doing(format!("cannot create {}", steps.display())))?;
        Ok(steps)
    }

    /// What an earlier run left of a step, if it still counts.
    fn earlier(&self, step: &Step, runs: u32, source: &str) -> Result<Option<Done>, ReportError> {
        let path = self.out.join("steps").join(file_name(step));
        if self.earlier == Earlier::Never {
            return Ok(None);
        }
        let bytes = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(while_doing(format!("cannot read {}", path.display())))?,
        };
        let done: Done = serde_json::from_slice(&bytes)
            .map_err(|error| ReportError::Earlier { path, reason: error.to_string() })?;
        let is_of_source = self.earlier != Earlier::OfThisSource || done.source == source;
        let is_whole = done.failed.is_none() && done.runs >= runs;
        Ok((self.earlier == Earlier::Only || is_whole && is_of_source).then_some(done))
    }

    /// Builds the suites once, so that no step waits for a compiler.
    fn build<'a>(
        &self,
        steps: impl Iterator<Item = &'a Step>,
        tell: &mut dyn FnMut(&str),
    ) -> Result<(), ReportError> {
        let mut built: Vec<&str> = Vec::new();
        for step in steps {
            if built.contains(&step.suite.as_str()) {
                continue;
            }
            tell(&format!("building the suite {} ...", step.suite));
            let mut command = self.xtask(&step.suite);
            let status = command
                .arg("--prepare")
                .stdout(Stdio::null())
                .status()
                .map_err(while_doing("cannot start cargo"))?;
            if !status.success() {
                tell(&format!("the suite {} cannot be built ({status})", step.suite));
            }
            built.push(&step.suite);
        }
        Ok(())
    }

    fn xtask(&self, suite: &str) -> Command {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.args(["xtask", "bench", suite]).current_dir(&self.source).stdin(Stdio::null());
        command
    }

    fn step(&self, step: &Step, runs: u32, source: &str) -> Done {
        let mut command = self.xtask(&step.suite);
        command.args(["--json", "--runs", &runs.to_string()]);
        if let Some(section) = &step.section {
            command.args(["--only", section]);
        }
        // What the build or an earlier step left is not of this one.
        collect_orphans(Duration::ZERO);
        let at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let (before, start) = (Account::now(), Instant::now());
        let output = command.stderr(Stdio::piped()).output();
        let seconds = start.elapsed().as_secs_f64();
        collect_orphans(PATIENCE);
        let others =
            before.zip(Account::now()).map_or(1.0, |(before, now)| now.others_since(before));
        let (found, failed) = match output {
            Err(error) => (Found::default(), Some(format!("cannot start cargo: {error}"))),
            Ok(output) => match Found::of(&output) {
                Ok(found) => (found, None),
                Err(reason) => (Found::default(), Some(reason)),
            },
        };
        Done {
            step: step.name(),
            suite: step.suite.clone(),
            runs,
            source: source.to_owned(),
            at,
            seconds,
            others,
            machine: Machine::here(),
            measured: found.measured,
            notes: found.notes,
            missing: found.missing,
            failed,
        }
    }
}

/// What a suite printed.
#[derive(Debug, Default, PartialEq)]
struct Found {
    measured: BTreeMap<String, Measured>,
    notes: Vec<String>,
    missing: Vec<String>,
}

impl Found {
    fn of(output: &Output) -> Result<Found, String> {
        if !output.status.success() {
            let complaint = complaint(&String::from_utf8_lossy(&output.stderr));
            return Err(format!("it ended with {}: {complaint}", output.status));
        }
        Found::parse(&String::from_utf8_lossy(&output.stdout))
    }

    /// The last line is JSON; notes (of several lines) and missing peers are lines before it.
    fn parse(text: &str) -> Result<Found, String> {
        let lines: Vec<&str> = text.lines().collect();
        let (last, before) = lines.split_last().ok_or("it printed nothing")?;
        let measured = serde_json::from_str(last)
            .map_err(|error| format!("its last line is not the JSON of measurements: {error}"))?;
        let (mut notes, mut missing) = (Vec::<String>::new(), Vec::new());
        let mut in_note = false;
        for line in before {
            if let Some(note) = line.strip_prefix("note: ") {
                notes.push(note.to_owned());
                in_note = true;
            } else if let Some(peer) = line.strip_prefix("missing: ") {
                missing.push(peer.to_owned());
                in_note = false;
            } else if let (true, Some(note)) = (in_note, notes.last_mut()) {
                note.push('\n');
                note.push_str(line);
            }
        }
        Ok(Found { measured, notes, missing })
    }
}

/// The last line that a failed suite wrote, not that of `cargo xtask`, which only says behind it that
/// the suite failed.
fn complaint(stderr: &str) -> String {
    let mut lines = stderr.lines().map(str::trim).filter(|line| !line.is_empty()).rev();
    let last = lines.next().unwrap_or("no message");
    let own = last.starts_with("error: the measurement ended with");
    lines.next().filter(|_| own).unwrap_or(last).to_owned()
}

fn outcome_line(done: &Done) -> String {
    match &done.failed {
        Some(reason) => format!("FAILED, {reason}"),
        None => format!(
            "{} numbers, {:.0} s, others had {:.0} % of the machine",
            done.measured.len(),
            done.seconds,
            done.others * 100.0
        ),
    }
}

fn file_name(step: &Step) -> String {
    format!("{}.json", step.name().replace('/', "."))
}

/// Writes a file of JSON, in one line because it is for programs, so that it is whole or not there.
pub(crate) fn keep(path: &Path, value: &impl Serialize) -> Result<(), ReportError> {
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

/// A name for the source as it is: the commit and a sum of what differs from it.
fn fingerprint(source: &Path) -> String {
    let git = |arguments: &[&str]| -> Option<Vec<u8>> {
        let output = Command::new("git").arg("-C").arg(source).args(arguments).output().ok()?;
        output.status.success().then_some(output.stdout)
    };
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else {
        return "no commit".to_owned();
    };
    let commit = String::from_utf8_lossy(&commit).trim().to_owned();
    match git(&["diff", "HEAD"]) {
        Some(diff) if diff.is_empty() => commit,
        diff => {
            format!("{commit}+{:08x}", xxhash_rust::xxh3::xxh3_64(&diff.unwrap_or_default()) as u32)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step() -> Step {
        Step {
            suite: "pool".to_owned(),
            section: Some("flush".to_owned()),
            runs: 5,
            quick_runs: None,
        }
    }

    #[test]
    fn output_of_a_suite_is_read_whole() {
        let text = "      median\nx  1.0\nnote: Figure 4\n   MB\nWAL  1\nmissing: PMDK: apt-get\n\
            {\"x\":{\"median\":1.0,\"min\":0.5,\"max\":null,\"n\":3,\"unit\":\"x\",\"goal\":\">= 1\"}}\n";
        let found = Found::parse(text).unwrap();
        assert_eq!(found.notes, ["Figure 4\n   MB\nWAL  1"]);
        assert_eq!(found.missing, ["PMDK: apt-get"]);
        assert_eq!((found.measured["x"].min, found.measured["x"].max), (Some(0.5), None));
        assert!(Found::parse("").unwrap_err().contains("nothing"));
        assert!(Found::parse("a table\n").unwrap_err().contains("last line"));
    }

    #[test]
    fn failed_suite_is_told_by_its_own_complaint() {
        let text = "  building\nholdfast-bench: /dev/loop0: no space left\n\n\
            error: the measurement ended with exit status: 1\n";
        assert_eq!(complaint(text), "holdfast-bench: /dev/loop0: no space left");
        assert_eq!(complaint("error: could not compile\n"), "error: could not compile");
        assert_eq!(complaint(""), "no message");
    }

    /// A stopped run goes on: whole steps of the same source with as many repetitions count, and
    /// nothing else does.
    #[test]
    fn earlier_steps_count_only_if_they_would_be_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let mut session = Session {
            source: folder.path().to_owned(),
            out: folder.path().to_owned(),
            earlier: Earlier::default(),
        };
        let path = session.steps().unwrap().join(file_name(&step()));
        assert_eq!(path.file_name().unwrap(), "pool.flush.json");
        let done = Done {
            step: "pool/flush".to_owned(),
            suite: "pool".to_owned(),
            runs: 5,
            source: "a".to_owned(),
            at: 1,
            seconds: 2.0,
            others: 0.25,
            machine: Machine::here(),
            measured: BTreeMap::new(),
            notes: Vec::new(),
            missing: Vec::new(),
            failed: None,
        };
        assert_eq!(session.earlier(&step(), 5, "a").unwrap(), None);
        keep(&path, &done).unwrap();
        assert_eq!(session.earlier(&step(), 5, "a").unwrap(), Some(done.clone()));
        assert!(session.earlier(&step(), 3, "a").unwrap().is_some());
        assert_eq!(session.earlier(&step(), 6, "a").unwrap(), None);
        assert_eq!(session.earlier(&step(), 5, "b").unwrap(), None);
        session.earlier = Earlier::OfAnySource;
        assert!(session.earlier(&step(), 5, "b").unwrap().is_some());
        session.earlier = Earlier::Only;
        let other = Step { section: None, ..step() };
        let found = session.run(&[(step(), 5), (other, 5)], &mut |_| {}).unwrap();
        assert_eq!(found, std::slice::from_ref(&done), "what was not measured is not");
        session.earlier = Earlier::OfThisSource;
        keep(&path, &Done { failed: Some("no disk".to_owned()), ..done }).unwrap();
        assert_eq!(session.earlier(&step(), 5, "a").unwrap(), None);
        fs::write(&path, "{").unwrap();
        let error = session.earlier(&step(), 5, "a").unwrap_err().to_string();
        assert!(error.contains("--fresh"), "{error}");
        session.earlier = Earlier::Never;
        assert_eq!(session.earlier(&step(), 5, "a").unwrap(), None);
    }
}
