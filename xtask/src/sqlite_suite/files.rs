//! Runs SQLite's test files, each in a directory, a pool and a home of its own, several at a time.
//!
//! Invariants: every run is bounded in time and leaves nothing but its log; what a file came to
//! does not depend on the others, but for the time that they take from it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::command::{cannot_start, output, with_timeout};
use crate::failure::Result;

use super::build::{Built, cannot};

const SELECTION: &str = include_str!("selection.tcl");
const RELEASED: &str = include_str!("released.tcl");
const RELEASED_NAME: &str = "released.tcl";
/// The slowest takes 10 s alone.
const FILE_TIMEOUT_S: u32 = 120;
/// Beside processors: most files wait for nothing.
const AT_A_TIME_MIN: usize = 2;

/// How a file of tests is run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RunMode {
    /// As SQLite has made it.
    #[default]
    AsItIs,
    /// The same, and a database releases its file before a test looks at the file itself: its size,
    /// its bytes, a copy.
    Released,
}

/// What a file of tests came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileResult {
    /// How it was run.
    pub(crate) way: RunMode,
    /// The file without `.test`; some names occur in several folders of extensions, so the folder
    /// is in it there.
    pub(crate) name: String,
    /// Why it did not pass, in a few words.
    pub(crate) failed: Option<String>,
    /// How many tests were in it.
    pub(crate) tests: u64,
}

/// The test files of the selection.
pub(crate) fn selection(built: &Built) -> Result<Vec<PathBuf>> {
    let script = built.program("selection.tcl");
    fs::write(&script, SELECTION).map_err(|error| cannot("write", &script, &error))?;
    let folder = built.program("selecting");
    fs::create_dir_all(&folder).map_err(|error| cannot("create", &folder, &error))?;
    let mut list = Command::new(built.program("testfixture"));
    list.arg(&script).arg(built.tests()).current_dir(&folder);
    let said = output(&mut with_timeout(&list, FILE_TIMEOUT_S))?;
    let _ = fs::remove_dir_all(&folder);
    let text = String::from_utf8_lossy(&said).into_owned();
    let mut files: Vec<PathBuf> =
        text.lines().filter_map(|line| line.strip_prefix("FILE ").map(PathBuf::from)).collect();
    files.sort();
    files.dedup();
    Ok(files)
}

/// `select1`, or `fts5/fts5auto` for a file of an extension.
pub(crate) fn name_of(file: &Path) -> String {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let mut above =
        file.components().rev().skip(1).map(|part| part.as_os_str().to_string_lossy().into_owned());
    let folders: Vec<String> = above.by_ref().take_while(|part| part != "ext").collect();
    // `ext` is met only by a file of an extension.
    if file.components().any(|part| part.as_os_str() == "ext") {
        let extension = folders.into_iter().rev().find(|part| part != "test").unwrap_or_default();
        return format!("{extension}/{stem}");
    }
    stem
}

/// How the files are run.
pub(crate) struct Runner<'a> {
    pub(crate) built: &'a Built,
    /// The library with the VFS; `None` for SQLite as it is.
    pub(crate) vfs: Option<&'a Path>,
    /// Where logs go.
    pub(crate) logs: PathBuf,
}

impl Runner<'_> {
    /// Runs all files, each in its way; `told` hears of each.
    pub(crate) fn run(
        &self,
        files: &[PathBuf],
        way: &(dyn Fn(&str) -> RunMode + Sync),
        told: &(dyn Fn(&FileResult) + Sync),
    ) -> Result<Vec<FileResult>> {
        let script = self.built.program(RELEASED_NAME);
        fs::write(&script, RELEASED).map_err(|error| cannot("write", &script, &error))?;
        fs::create_dir_all(&self.logs).map_err(|error| cannot("create", &self.logs, &error))?;
        let next = AtomicUsize::new(0);
        let done = Mutex::new(Vec::new());
        let workers = std::thread::available_parallelism()
            .map_or(AT_A_TIME_MIN, |count| count.get().max(AT_A_TIME_MIN));
        let work = || -> Result<()> {
            while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                let ran = self.one(file, way(&name_of(file)))?;
                told(&ran);
                done.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(ran);
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
            threads.into_iter().try_for_each(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|_| Err(crate::failure::Failure::new("a worker panicked")))
            })
        })?;
        let mut ran = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        ran.sort_by(|one: &FileResult, other: &FileResult| one.name.cmp(&other.name));
        Ok(ran)
    }

    fn one(&self, file: &Path, way: RunMode) -> Result<FileResult> {
        let name = name_of(file);
        let log = self.logs.join(format!("{}.log", name.replace('/', "-")));
        let mut command = Command::new(self.built.program("testfixture"));
        if way == RunMode::Released {
            command.arg(self.built.program(RELEASED_NAME));
        }
        command.arg(file);
        let status = self.scratch(&name, &log, command, FILE_TIMEOUT_S)?;
        let said = fs::read(&log).map_err(|error| cannot("read", &log, &error))?;
        Ok(judge((name, way), &String::from_utf8_lossy(&said), status))
    }

    /// Runs a program with the VFS in an empty directory that is removed afterwards; `None` is a
    /// time limit.
    pub(crate) fn scratch(
        &self,
        name: &str,
        log: &Path,
        mut command: Command,
        timeout_s: u32,
    ) -> Result<Option<i32>> {
        let folder = self.built.programs.join("run").join(name.replace('/', "-"));
        let _ = fs::remove_dir_all(&folder);
        let (work, home) = (folder.join("work"), folder.join("home"));
        fs::create_dir_all(&work).map_err(|error| cannot("create", &work, &error))?;
        // The pool is what it is for a user: memory.
        let pool = Path::new("/dev/shm").join(format!(
            "holdfast-suite-{}-{}",
            std::process::id(),
            name.replace('/', "-")
        ));
        command.current_dir(&work).env_remove("HOLDFAST_SUITE_VFS");
        if let Some(vfs) = self.vfs {
            command
                .env("HOLDFAST_SUITE_VFS", vfs)
                .env("HOLDFAST_HOME", &home)
                .env("HOLDFAST_POOL", &pool);
            // Many of them are about WAL.
            command.env("HOLDFAST_SQLITE_WAL", "pass");
            // And some have parameters of their own in a URI.
            command.env("HOLDFAST_SQLITE_UNKNOWN", "ignore");
        }
        let output = fs::File::create(log).map_err(|error| cannot("write", log, &error))?;
        let errors = output.try_clone().map_err(|error| cannot("write", log, &error))?;
        let mut bounded = with_timeout(&command, timeout_s);
        let status = bounded
            .stdout(output)
            .stderr(errors)
            .status()
            .map_err(|error| cannot_start(&bounded, &error));
        let _ = fs::remove_dir_all(&folder);
        let _ = fs::remove_dir_all(&pool);
        Ok(status?.code().filter(|code| !matches!(code, 124 | 137)))
    }
}

/// A file passes if it ended well and said that nothing in it failed.
fn judge((name, way): (String, RunMode), said: &str, status: Option<i32>) -> FileResult {
    let summary = said.lines().rev().find_map(|line| {
        let (errors, rest) = line.split_once(" errors out of ")?;
        Some((errors.trim().parse::<u64>().ok()?, rest.split(' ').next()?.parse::<u64>().ok()?))
    });
    let tests = summary.map_or(0, |(_, tests)| tests);
    let failed = match (status, summary) {
        (Some(0), Some((0, _))) => None,
        (None, _) => Some("took too long, or was killed".to_owned()),
        (_, Some((errors, tests))) if errors > 0 => Some(format!("{errors} of {tests} tests")),
        (Some(0), _) => Some("nothing of it runs here".to_owned()),
        (Some(status), _) => Some(format!("ended with {status} before its end")),
    };
    FileResult { way, name, failed, tests }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_passes_only_if_it_said_so_and_ended_well() {
        let said = "a-1... Ok\n0 errors out of 192 tests on vm Linux 64-bit\nmemory\n";
        let judged = |said: &str, status| judge(("a".to_owned(), RunMode::AsItIs), said, status);
        assert_eq!(
            judged(said, Some(0)),
            FileResult { way: RunMode::AsItIs, name: "a".to_owned(), failed: None, tests: 192 }
        );
        assert!(judged(said, Some(1)).failed.is_some() && judged(said, None).failed.is_some());
        assert!(judged("a-1... Ok\n", Some(0)).failed.is_some(), "it did not come to its end");
        assert_eq!(judged(&said.replace("0 e", "3 e"), Some(1)).failed.unwrap(), "3 of 192 tests");
    }

    #[test]
    fn a_file_of_an_extension_has_its_folder_in_its_name() {
        assert_eq!(name_of(Path::new("/s/test/select1.test")), "select1");
        assert_eq!(name_of(Path::new("/s/ext/fts5/test/fts5auto.test")), "fts5/fts5auto");
        assert_eq!(name_of(Path::new("/s/ext/rtree/rtreeI.test")), "rtree/rtreeI");
    }
}
