//! Python beside the applets: one `python3` that does the same computations, in the plain Python
//! that is part of this program.
//!
//! Invariant: the process ends with the value; it reads no file but Python's own library.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::measure::Measure;
use holdfast_command::exit::{Failure, host};

const PROGRAM: &str = "python3";
const DRIVER: &str = include_str!("driver.py");
/// What each task's name in the driver stands for.
const SOURCES: [(&str, &str); 3] = [
    ("md5", include_str!("../../../../../applets/md5/reference.py")),
    ("eviction", include_str!("../../../../../applets/eviction/reference.py")),
    ("logical_disk", include_str!("../../../../../applets/logicaldisk/reference.py")),
];

/// What is to be computed; the names are those of the driver.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "task", content = "arguments", rename_all = "snake_case")]
pub(crate) enum Task {
    /// The digest of [`message`](super::measure::message).
    Md5 {
        /// Its size.
        bytes: u64,
    },
    /// A choice among pages with the first `hot` ones hot.
    Eviction { hot: u32, pages: Vec<u32> },
    /// Writes of the next `batch` blocks, round and round.
    LogicalDisk { blocks: u32, segment_blocks: u32, logical_blocks: u32, batch: u32 },
}

#[derive(Serialize)]
struct Order<'a> {
    #[serde(flatten)]
    task: &'a Task,
    times: u32,
}

#[derive(Deserialize)]
struct Answer {
    us: f64,
    result: Value,
}

#[derive(Deserialize)]
struct Greeting {
    version: String,
}

/// A running `python3` that answers one computation at a time.
pub(crate) struct Python {
    child: Child,
    /// Taken away when it is to end.
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    version: String,
}

impl Python {
    pub(crate) fn start() -> Result<Python, Failure> {
        let mut child = Command::new(PROGRAM)
            // Neither the environment nor the directory have a say in what it loads.
            .args(["-I", "-B", "-c", DRIVER])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| {
                host(format!(
                    "cannot start {PROGRAM}, with which the applet is compared: {error}; install Python 3 (`apt-get install \
                     python3`), or put it into PATH"
                ))
            })?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(ended());
        };
        let mut python =
            Python { child, input, output: BufReader::new(output), version: String::new() };
        python.tell(&BTreeMap::from(SOURCES))?;
        python.version = python.hear::<Greeting>()?.version;
        Ok(python)
    }

    /// `3.13.1`.
    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// Does a task so many times: microseconds for once, and the last result.
    pub(crate) fn run(&mut self, task: &Task, times: u32) -> Result<(f64, Value), Failure> {
        self.tell(&Order { task, times })?;
        let Answer { us, result } = self.hear()?;
        Ok((us, result))
    }

    fn tell(&mut self, what: &impl Serialize) -> Result<(), Failure> {
        let line = serde_json::to_string(what).map_err(host)? + "\n";
        self.input.write_all(line.as_bytes()).and_then(|()| self.input.flush()).map_err(|_| ended())
    }

    fn hear<A: for<'a> Deserialize<'a>>(&mut self) -> Result<A, Failure> {
        let mut line = String::new();
        match self.output.read_line(&mut line) {
            Ok(1..) => serde_json::from_str(&line).map_err(|_| {
                host(format!("{PROGRAM} gave no answer but {line:?}; is it Python 3?"))
            }),
            _ => Err(ended()),
        }
    }
}

/// A task as something to be measured.
pub(crate) fn in_python<'a>(python: &'a RefCell<Python>, task: &Task) -> Measure<'a> {
    let task = task.clone();
    Box::new(move |times| python.borrow_mut().run(&task, times).map(|(us, _)| us))
}

impl Drop for Python {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn ended() -> Failure {
    host(format!(
        "{PROGRAM} ended before it answered; what it said is above, and `{PROGRAM} --version` should say 3.6 or newer"
    ))
}
