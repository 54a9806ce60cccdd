//! The languages that applets are compared with: an interpreter, a process of its own, that does the
//! same computations in the plain Python or JavaScript that is part of this program.
//!
//! Invariant: the process ends with the value; it reads no file but its own library.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde::{Deserialize, Serialize};
use serde_json::Value;

const PYTHON_DRIVER: &str = include_str!("outside/driver.py");
const NODE_DRIVER: &str = include_str!("outside/driver.js");
/// What each task's name in the drivers stands for.
const PYTHON_SOURCES: [(&str, &str); 3] = [
    ("md5", include_str!("../../../applets/md5/reference.py")),
    ("eviction", include_str!("../../../applets/eviction/reference.py")),
    ("logical_disk", include_str!("../../../applets/logicaldisk/reference.py")),
];
const NODE_SOURCES: [(&str, &str); 3] = [
    ("md5", include_str!("../../../applets/md5/reference.js")),
    ("eviction", include_str!("../../../applets/eviction/reference.js")),
    ("logical_disk", include_str!("../../../applets/logicaldisk/reference.js")),
];

/// Number of batches of writes in a task [`Task::CleanedDisk`] before its list starts over.
const BATCHES: u32 = 16;

/// An interpreter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// CPython.
    Python,
    /// PyPy, which compiles Python while it runs.
    PyPy,
    /// JavaScript in Node.js.
    Node,
}

impl Language {
    /// All of them.
    pub const ALL: [Language; 3] = [Language::Python, Language::PyPy, Language::Node];

    /// Its name, in keys of measurements.
    pub fn name(self) -> &'static str {
        match self {
            Language::Python => "python",
            Language::PyPy => "pypy",
            Language::Node => "node",
        }
    }

    /// The program.
    pub fn program(self) -> &'static str {
        match self {
            Language::Python => "python3",
            Language::PyPy => "pypy3",
            Language::Node => "node",
        }
    }

    /// The package of Debian and Ubuntu that has it.
    pub fn package(self) -> &'static str {
        match self {
            Language::Python => "python3",
            Language::PyPy => "pypy3",
            Language::Node => "nodejs",
        }
    }

    fn command(self) -> Command {
        let mut command = Command::new(self.program());
        // Neither the environment nor the directory have a say in what it loads.
        match self {
            Language::Python | Language::PyPy => command.args(["-I", "-B", "-c", PYTHON_DRIVER]),
            Language::Node => command.env_remove("NODE_OPTIONS").args(["-e", NODE_DRIVER]),
        };
        command
    }

    fn sources(self) -> BTreeMap<&'static str, &'static str> {
        match self {
            Language::Python | Language::PyPy => BTreeMap::from(PYTHON_SOURCES),
            Language::Node => BTreeMap::from(NODE_SOURCES),
        }
    }
}

/// How Python keeps the pages that are not to be evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KeptIn {
    /// As one does in Python.
    Set,
    /// As in C: the same algorithm.
    List,
}

/// What is to be computed; the names are those of the drivers.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "task", content = "arguments", rename_all = "snake_case")]
pub enum Task {
    /// The digest of a [`message`], in hexadecimal digits.
    Md5 {
        /// Its size.
        bytes: u64,
    },
    /// A choice among pages.
    Eviction {
        /// So many of the first pages are hot.
        hot: u32,
        /// Least recently used first.
        pages: Vec<u32>,
        /// How the hot ones are kept.
        kept_in: KeptIn,
    },
    /// Writes of the next blocks of a logical disk, round and round; the places. Python only.
    LogicalDisk {
        /// Physical blocks.
        blocks: u32,
        /// Blocks in a segment.
        segment_blocks: u32,
        /// Blocks that its user sees.
        logical_blocks: u32,
        /// Blocks that are written at once.
        batch: u32,
    },
    /// Writes to a full logical disk, by [`writes`], with the cleaner running: what is to be done,
    /// as pairs from and to.
    CleanedDisk {
        /// Physical blocks.
        blocks: u32,
        /// Blocks in a segment.
        segment_blocks: u32,
        /// Blocks that its user sees.
        logical_blocks: u32,
        /// Blocks that are written at once.
        batch: u32,
    },
}

/// A message of this size, the same as the drivers'.
pub fn message(bytes: usize) -> Vec<u8> {
    (0..256u32).flat_map(u32::to_le_bytes).cycle().take(bytes).collect()
}

/// The blocks that a task [`Task::CleanedDisk`] writes, the same as the drivers': a fifth of them
/// gets four writes in five.
pub fn writes(batch: u32, logical_blocks: u32) -> Vec<u32> {
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state
    };
    let write = |_| {
        let among = if (next() >> 16) % 5 == 0 { logical_blocks } else { logical_blocks / 5 };
        (next() >> 8) % among.max(1)
    };
    (0..BATCHES * batch).map(write).collect()
}

/// What keeps an interpreter from computing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutsideError {
    /// It cannot be started.
    #[error(
        "cannot start {program}, with which the applet is compared: {source}; install it (`apt-get install {package}`), or \
         put it into PATH"
    )]
    Start {
        /// The program.
        program: &'static str,
        /// What has it.
        package: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// It answers something else.
    #[error("{program} gave no answer but {line:?}; is it a version of this decade?")]
    NoAnswer {
        /// The program.
        program: &'static str,
        /// What it said.
        line: String,
    },
    /// It is gone.
    #[error(
        "{program} ended before it answered; what it said is above, and `{program} --version` should say Python 3.8, Node.js 18 \
         or newer"
    )]
    Ended {
        /// The program.
        program: &'static str,
    },
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

/// A running interpreter that answers one computation at a time.
#[derive(Debug)]
pub struct Outside {
    language: Language,
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    version: String,
}

impl Outside {
    /// # Errors
    /// [`OutsideError`]
    pub fn start(language: Language) -> Result<Outside, OutsideError> {
        let (program, package) = (language.program(), language.package());
        let mut child = language
            .command()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|source| OutsideError::Start { program, package, source })?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(OutsideError::Ended { program });
        };
        let output = BufReader::new(output);
        let mut outside = Outside { language, child, input, output, version: String::new() };
        outside.tell(&language.sources())?;
        outside.version = outside.hear::<Greeting>()?.version;
        Ok(outside)
    }

    /// What it interprets.
    pub fn language(&self) -> Language {
        self.language
    }

    /// `3.13.1`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Does a task so many times: microseconds for once, and the last result.
    ///
    /// # Errors
    /// When the interpreter ends or answers something else.
    pub fn run(&mut self, task: &Task, times: u32) -> Result<(f64, Value), OutsideError> {
        self.tell(&Order { task, times })?;
        let Answer { us, result } = self.hear()?;
        Ok((us, result))
    }

    fn ended(&self) -> OutsideError {
        OutsideError::Ended { program: self.language.program() }
    }

    fn tell(&mut self, what: &impl Serialize) -> Result<(), OutsideError> {
        let line = serde_json::to_string(what).map_err(|_| self.ended())? + "\n";
        let told = self.input.write_all(line.as_bytes()).and_then(|()| self.input.flush());
        told.map_err(|_| self.ended())
    }

    fn hear<A: for<'a> Deserialize<'a>>(&mut self) -> Result<A, OutsideError> {
        let mut line = String::new();
        let program = self.language.program();
        match self.output.read_line(&mut line) {
            Ok(1..) => {
                serde_json::from_str(&line).map_err(|_| OutsideError::NoAnswer { program, line })
            }
            _ => Err(self.ended()),
        }
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// What is installed, one after the other.
    fn all(check: impl Fn(&mut Outside)) {
        for language in Language::ALL {
            match Outside::start(language) {
                Ok(mut outside) => check(&mut outside),
                Err(OutsideError::Start { program, .. }) => {
                    println!("not run: there is no {program}");
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Messages have the requested size and repeat their content after 1 KiB.
    #[test]
    fn messages_have_their_size_and_repeat_each_kib() {
        let message = message(1030);
        assert_eq!((message.len(), &message[..5]), (1030, &[0, 0, 0, 0, 1][..]));
        assert_eq!(message[1024..], message[..6]);
    }

    /// Four writes in five go to a fifth of the blocks.
    #[test]
    fn writes_prefer_a_fifth_of_the_blocks() {
        let writes = writes(4096, 1000);
        assert_eq!(writes.len(), 16 * 4096);
        let hot = writes.iter().filter(|&&block| block < 200).count() as f64 / writes.len() as f64;
        assert!((0.82..0.86).contains(&hot), "{hot}");
        assert!(writes.iter().all(|block| *block < 1000));
    }

    /// Digests of RFC 1321's kind: the same in all languages, also of sizes that are no whole words.
    #[test]
    fn languages_come_to_the_same_digests() {
        all(|outside| {
            // md5sum of the message of 1,030 bytes and of nothing.
            for (bytes, digest) in [
                (0, "d41d8cd98f00b204e9800998ecf8427e"),
                (1030, "9886acb4737e9f4080772e94d575383f"),
            ] {
                let (us, result) = outside.run(&Task::Md5 { bytes }, 2).unwrap();
                assert!(us > 0.0);
                assert_eq!(result, json!(digest), "{}", outside.language().name());
            }
        });
    }

    /// The page to be evicted is the first that is not hot, however the hot ones are kept.
    #[test]
    fn languages_choose_the_same_page() {
        all(|outside| {
            for kept_in in [KeptIn::Set, KeptIn::List] {
                let task = |pages: &[u32]| Task::Eviction { hot: 3, pages: pages.into(), kept_in };
                assert_eq!(outside.run(&task(&[2, 1, 7, 9]), 1).unwrap().1, json!(7));
                assert_eq!(outside.run(&task(&[2, 1]), 1).unwrap().1, json!(2));
            }
        });
    }

    /// With the cleaner running, all languages have the same steps, batch after batch.
    #[test]
    fn languages_clean_alike() {
        let task =
            Task::CleanedDisk { blocks: 256, segment_blocks: 16, logical_blocks: 192, batch: 64 };
        let mut steps: Vec<Vec<Value>> = Vec::new();
        let mut count = 0;
        for language in Language::ALL {
            let Ok(mut outside) = Outside::start(language) else {
                println!("not run: there is no {}", language.program());
                continue;
            };
            count += 1;
            steps.push((0..20).map(|_| outside.run(&task, 1).unwrap().1).collect());
        }
        for other in steps.iter().skip(1) {
            assert_eq!(*other, steps[0]);
        }
        let Some(all) = steps.first() else { return };
        let is_move = |step: &&Value| step[0] != json!(u32::MAX);
        let moves = |batch: &Value| batch.as_array().unwrap().iter().filter(is_move).count();
        let writes = |batch: &Value| batch.as_array().unwrap().len() - moves(batch);
        assert!(all.iter().all(|batch| writes(batch) == 64), "{count}");
        assert!(all[1..].iter().map(moves).sum::<usize>() > 64);
    }

    /// A file that is no interpreter gives another error than a missing one.
    #[test]
    fn broken_interpreter_is_an_error() {
        all(|outside| {
            let impossible =
                Task::CleanedDisk { blocks: 1, segment_blocks: 16, logical_blocks: 192, batch: 64 };
            let error = outside.run(&impossible, 1).unwrap_err();
            assert!(matches!(error, OutsideError::Ended { .. }), "{error}");
        });
    }
}
