//! SQLite's other test programs with the VFS as the default one: several processes on one database
//! (`mptester`), the workload that SQLite's speed is measured with (`speedtest1`), words counted in
//! a real text (`wordcount`), blobs (`kvtest`), many threads (`threadtest3`). Each verifies what it
//! did, or does it once more in `:memory:` and compares.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Result;

use super::build::Built;
use super::files::Runner;

const TIMEOUT_S: u32 = 240;
/// A text of every Debian and Ubuntu.
const TEXT: &str = "/usr/share/common-licenses/GPL-3";

/// What a program is started with, by the shell, in an empty directory. `$P` is the folder of the
/// programs, `$S` that of the source.
struct Script {
    name: &'static str,
    script: &'static str,
    /// What it says when all is well.
    expected: &'static str,
}

const SCRIPTS: [Script; 7] = [
    Script {
        name: "mptester crash01",
        script: "$P/mptester mp.db $S/mptest/crash01.test",
        expected: "Summary: 0 errors",
    },
    Script {
        name: "mptester multiwrite01",
        script: "$P/mptester mp.db $S/mptest/multiwrite01.test",
        expected: "Summary: 0 errors",
    },
    Script {
        name: "speedtest1",
        script: "for where in speed.db :memory:; do
                   $P/speedtest1 --size 10 --verify $where | grep 'Verification Hash' > $where.hash
                 done
                 cmp speed.db.hash :memory:.hash && echo same",
        expected: "same",
    },
    Script {
        name: "wordcount, a transaction for all words",
        script: "for where in words.db :memory:; do $P/wordcount --upsert --summary $where $TEXT > $where.words; done
                 cmp words.db.words :memory:.words && grep ok words.db.words",
        expected: "ok",
    },
    Script {
        name: "wordcount, a transaction for each word",
        script: "head -c 4000 $TEXT > text
                 for where in words.db :memory:; do
                   $P/wordcount --replace --commit 1 --summary $where text > $where.words
                 done
                 $P/wordcount --delete --commit 10 --summary words.db text
                 cmp words.db.words :memory:.words && grep ok words.db.words",
        expected: "ok",
    },
    Script {
        name: "kvtest",
        script: "$P/kvtest init kv.db --count 200 --size 20000 --variance 5000
                 $P/kvtest run kv.db --count 400 --random --update
                 $P/kvtest run kv.db --count 400 --blob-api
                 $P/kvtest stat kv.db --vacuum",
        expected: "ok",
    },
    // Without those that look for the files of a journal, and without those that take minutes.
    Script {
        name: "threadtest3",
        script: "$P/threadtest3 cgt_pager_1 walthread5 vacuum1 stress1 shared1",
        expected: "0 errors out of 5 tests",
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
    let said = std::fs::read(&log)
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .unwrap_or_default();
    let failed = match status {
        None => Some("took too long, or was killed".to_owned()),
        Some(0) if said.contains(script.expected) => None,
        Some(0) => {
            Some(format!("did not say `{}`; {}", script.expected, Path::new(&log).display()))
        }
        Some(code) => Some(format!("ended with {code}; {}", log.display())),
    };
    Ok((script.name.to_owned(), failed))
}
