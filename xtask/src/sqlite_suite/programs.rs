//! SQLite's other test programs with the VFS as the default one: several processes on one database (`mptester`), the
//! workload that SQLite's speed is measured with (`speedtest1`), words counted in a real text (`wordcount`), blobs
//! (`kvtest`). Each verifies what it did, or the database that it leaves is checked.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Result;

use super::build::Built;
use super::files::Runner;

const TIMEOUT_S: u32 = 240;
/// A text of every Debian and Ubuntu.
const TEXT: &str = "/usr/share/common-licenses/GPL-3";

/// What a program is started with, by the shell, in an empty directory. `$P` is the folder of the programs, `$S` that of
/// the source.
struct Script {
    name: &'static str,
    script: &'static str,
    /// What it says when all is well.
    expected: &'static str,
}

const SCRIPTS: [Script; 8] = [
    Script {
        name: "mptester crash01",
        script: "$P/mptester mp.db $S/mptest/crash01.test --repeat 3",
        expected: "Summary: 0 errors",
    },
    Script {
        name: "mptester multiwrite01",
        script: "$P/mptester mp.db $S/mptest/multiwrite01.test --repeat 3",
        expected: "Summary: 0 errors",
    },
    Script {
        name: "speedtest1",
        script: "$P/speedtest1 --size 10 --verify speed.db && $P/speedtest1 --size 10 --verify :memory: > memory.txt && echo done",
        expected: "done",
    },
    Script {
        name: "wordcount, upserts",
        script: "$P/wordcount --upsert --summary words.db $TEXT && $P/wordcount --upsert --summary :memory: $TEXT",
        expected: "",
    },
    Script {
        name: "wordcount, a transaction for each word",
        script: "head -c 4000 $TEXT > text && $P/wordcount --insert --commit 1 --summary words.db text",
        expected: "",
    },
    Script {
        name: "wordcount, deletes in transactions of ten",
        script: "head -c 8000 $TEXT > text && $P/wordcount --replace --commit 10 words.db text && \
                 $P/wordcount --delete --commit 10 --summary words.db text",
        expected: "",
    },
    Script {
        name: "kvtest",
        script: "$P/kvtest init kv.db --count 200 --size 20000 --variance 5000 && \
                 $P/kvtest run kv.db --count 400 --random --update --stats && $P/kvtest stat kv.db",
        expected: "",
    },
    Script {
        name: "a database that another process made",
        script: "$P/kvtest init kv.db --count 50 --size 1000 && $P/kvtest run kv.db --count 100 --blob-api",
        expected: "",
    },
];

/// What a program came to: its name, and why it failed.
pub(crate) type Ended = (String, Option<String>);

/// Runs all of them, one after the other: `mptester` has processes of its own.
pub(crate) fn run(runner: &Runner<'_>, built: &Built) -> Result<Vec<Ended>> {
    SCRIPTS.iter().map(|script| one(runner, built, script)).collect()
}

fn one(runner: &Runner<'_>, built: &Built, script: &Script) -> Result<Ended> {
    let name = script.name.replace([' ', ','], "-");
    let log: PathBuf = runner.logs.join(format!("program-{name}.log"));
    let mut shell = Command::new("sh");
    shell.args(["-e", "-c", script.script]);
    shell.env("P", &built.programs).env("S", &built.source).env("TEXT", TEXT);
    let status = runner.scratch(&name, &log, shell, TIMEOUT_S)?;
    let said =
        std::fs::read(&log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let failed = match status {
        None => Some("took too long, or was killed".to_owned()),
        Some(0) if said.contains(script.expected) => None,
        Some(0) => Some(format!("did not say `{}`; {}", script.expected, Path::new(&log).display())),
        Some(code) => Some(format!("ended with {code}; {}", log.display())),
    };
    Ok((script.name.to_owned(), failed))
}
