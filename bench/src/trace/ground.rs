//! The programs that are traced: with many short calls, with calls on many files, and with few
//! calls for their time.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use holdfast_testkit::Programs;
use tempfile::TempDir;

/// The role of this program that makes calls which do nothing.
pub const NULL_CALLS: &str = "trace-null-calls";

/// The role [`NULL_CALLS`]: COUNT.
///
/// # Errors
/// There is no count.
pub fn make_null_calls(words: &[String]) -> io::Result<()> {
    let count = words.first().and_then(|count| count.parse::<u32>().ok());
    let count = count.ok_or_else(|| io::Error::other("say how many calls"))?;
    for _ in 0..count {
        // It reads a number that the kernel has at hand, and no library remembers it.
        std::hint::black_box(rustix::process::getppid());
    }
    Ok(())
}

/// Files in a directory, and directories.
const FILES: usize = 100;
const DIRECTORIES: usize = 200;
/// Files of C.
const UNITS: usize = 24;
const FUNCTIONS: usize = 60;

/// A program that is timed.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) name: &'static str,
    pub(super) command: Vec<String>,
    /// The only CPU that it has; the tracers have all.
    pub(super) cpu: Option<usize>,
}

/// Where it works, and the programs.
#[derive(Debug)]
pub(super) struct Ground {
    directory: TempDir,
    pub(super) holdfast: PathBuf,
    /// This program, in its part of [`super::TIMED`].
    pub(super) timer: PathBuf,
}

impl Ground {
    pub(super) fn new() -> io::Result<Ground> {
        let timer = std::env::current_exe()?;
        let beside = timer.parent().unwrap_or(Path::new("."));
        // On the disk of the build.
        let directory = tempfile::Builder::new().prefix("holdfast-bench-").tempdir_in(beside)?;
        Ok(Ground { directory, holdfast: Programs::find()?.holdfast().to_owned(), timer })
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// One byte at a time, from nothing to nothing.
    pub(super) fn dd(&self, count: u32) -> Work {
        let count = format!("count={count}");
        work(
            "dd",
            &["dd", "if=/dev/zero", "of=/dev/null", "bs=1", &count, "status=none"],
            Some(last_cpu()),
        )
    }

    /// Calls that do nothing.
    pub(super) fn null_calls(&self, count: u32) -> Work {
        let (timer, count) = (self.timer.to_string_lossy(), count.to_string());
        work("null_call", &[timer.as_ref(), NULL_CALLS, count.as_str()], Some(last_cpu()))
    }

    /// Looks at every file of a tree.
    pub(super) fn find(&self) -> io::Result<Work> {
        let tree = self.path("tree");
        for directory in (0..DIRECTORIES).map(|number| tree.join(format!("directory-{number}"))) {
            fs::create_dir_all(&directory)?;
            for file in 0..FILES {
                fs::write(directory.join(format!("file-{file}")), b"text")?;
            }
        }
        let tree = tree.to_string_lossy();
        Ok(work("find", &["find", &tree, "-type", "f", "-size", "+100k"], Some(last_cpu())))
    }

    /// Compiles a program, anew each time, two files at once.
    pub(super) fn make(&self) -> io::Result<Work> {
        let source = self.path("source");
        fs::create_dir_all(&source)?;
        let units: Vec<String> = (0..UNITS).map(|number| format!("unit{number}")).collect();
        for unit in &units {
            let mut text = String::from(
                "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include <math.h>\n",
            );
            for function in 0..FUNCTIONS {
                text += &format!(
                    "double {unit}_{function}(const double *x, int n) {{ double s = 0; for (int i = 0; i < n; i++) \
                     s += x[i] * {function} + (x[i] > {function} ? sqrt(x[i]) : fabs(x[i])); return s; }}\n"
                );
            }
            fs::write(source.join(format!("{unit}.c")), text)?;
        }
        let objects: Vec<String> = units.iter().map(|unit| format!("{unit}.o")).collect();
        let rules = format!("all: {}\n%.o: %.c\n\tcc -O2 -c $< -o $@\n", objects.join(" "));
        fs::write(source.join("Makefile"), rules)?;
        let source = source.to_string_lossy();
        Ok(work("make", &["make", "--silent", "--always-make", "-j2", "-C", &source], None))
    }
}

fn work(name: &'static str, command: &[&str], cpu: Option<usize>) -> Work {
    Work { name, command: command.iter().map(|&word| word.to_owned()).collect(), cpu }
}

/// The first one has the interrupts of many machines.
fn last_cpu() -> usize {
    let cpus = rustix::thread::sched_getaffinity(None);
    let cpus = cpus.map(|set| (0..rustix::thread::CpuSet::MAX_CPU).rfind(|cpu| set.is_set(*cpu)));
    cpus.ok().flatten().unwrap_or(0)
}
