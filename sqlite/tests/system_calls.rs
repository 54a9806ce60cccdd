//! Row S18: a system call on the database or its log fails, or the process dies in it, or the power
//! goes: in each call in turn, whether SQLite makes it or the extension. The rows S1 and S2 have
//! faults in SQLite's calls only; those to the log, for flushes and for looks at names are the
//! extension's own. `strace` makes the faults.
//!
//! The sequence is that of `script`, over WAL and releases and back (`errors`).

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use holdfast_testkit::Trials;
use holdfast_testkit::file_system::{FileSystem, KINDS, lacking};

use crate::errors;
use crate::sides::Ground;

/// Without those that `strace` does not know on this processor.
pub(crate) const CHANGES: &str = "?pwrite64,?pwritev,?pwritev2,?write,?writev,?fdatasync,?fsync,?ftruncate,?fallocate,\
     ?sync_file_range,?rename,?renameat,?renameat2,?unlink,?unlinkat";
/// Besides, those that only look: what they miss must do no harm either.
const LOOKS: &str = "?open,?openat,?pread64,?preadv,?preadv2,?read,?statx,?newfstatat,?fstat,?mmap,\
                     ?access,?faccessat,?faccessat2,?flock";
/// Calls that are tried in a short run, of each kind: all of them.
const CASES: u64 = 1000;
/// In so many the power goes, on each of two file systems.
const CUTS: u64 = 24;
/// The sequence has fewer.
const CALLS_MAX: usize = 20_000;

/// With flushes, and with none before the close.
const PARAMETERS: [&str; 2] = [errors::MOVING, "vfs=holdfast&flush_interval=off"];
/// The same with every commit on the disk.
const AT_POWER: &str =
    "vfs=holdfast&threshold=4&flush=inline&flush_interval=off&wal=pass&level=power";

/// What `strace` does in the call.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fault {
    /// Before it is done.
    Death,
    /// It is not done.
    Error(&'static str),
}

/// A system call of a program, by its name and by how many of that name its thread made until then:
/// `strace` counts them so.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    name: String,
    number: usize,
}

/// `strace` in front of a program.
pub(crate) struct Strace {
    words: Vec<String>,
    listed: PathBuf,
}

impl Strace {
    pub(crate) fn new(
        ground: &Ground,
        database: &Path,
        calls: &str,
        strike: Option<(Fault, &Call)>,
    ) -> Strace {
        let listed = ground.folder.path().join("calls");
        let (database, out) = (database.to_str().unwrap(), listed.to_str().unwrap());
        let log = format!("{database}-holdfast");
        let mut words: Vec<String> = ["strace", "-f", "-qq", "-o", out, "-P", database, "-P", &log]
            .map(str::to_owned)
            .to_vec();
        words.extend(["-e".to_owned(), format!("trace={calls}")]);
        if let Some((fault, Call { name, number })) = strike {
            let fault = match fault {
                Fault::Death => "signal=KILL".to_owned(),
                Fault::Error(error) => format!("error={error}"),
            };
            words.extend(["-e".to_owned(), format!("inject={name}:{fault}:when={number}")]);
        }
        Strace { words, listed }
    }

    pub(crate) fn words(&self) -> Vec<&str> {
        self.words.iter().map(String::as_str).collect()
    }

    /// Whether it made the fault.
    fn has_struck(&self) -> bool {
        let text = std::fs::read_to_string(&self.listed).unwrap();
        text.contains("(INJECTED)") || text.contains("killed by SIGKILL")
    }

    /// The calls that it saw.
    pub(crate) fn calls(&self) -> Vec<Call> {
        let text = std::fs::read_to_string(&self.listed).unwrap();
        let mut numbers: HashMap<(&str, &str), usize> = HashMap::new();
        // One that was interrupted is listed twice.
        let lines = text.lines().filter(|line| !line.contains("resumed>"));
        let call = |line| {
            let (thread, rest) = str::split_once(line, ' ')?;
            let (name, _) = rest.trim_start().split_once('(')?;
            let number = numbers.entry((thread, name)).or_default();
            *number += 1;
            Some(Call { name: name.to_owned(), number: *number })
        };
        lines.filter_map(call).collect()
    }
}

/// The sequence on a database in this folder.
struct Sequence<'a> {
    ground: &'a Ground,
    path: PathBuf,
    parameters: &'static str,
}

impl Sequence<'_> {
    fn acknowledged(&self) -> PathBuf {
        self.ground.folder.path().join("acknowledged")
    }

    /// Plays it under `strace`, which makes the fault in that call; the calls until then, and whether
    /// the fault was made.
    fn play(&self, calls: &str, strike: Option<(Fault, &Call)>) -> (Vec<Call>, bool) {
        let before = Strace::new(self.ground, &self.path, calls, strike);
        let (path, acknowledged) = (self.path.to_str().unwrap(), self.acknowledged());
        let words =
            ["work", path, self.parameters, "error", "100000000", acknowledged.to_str().unwrap()];
        let ended = self.ground.run_through(&before.words(), &words);
        let is_to_end = !matches!(strike, Some((Fault::Death, _)));
        assert!(
            !is_to_end || ended.said().contains("calls"),
            "{strike:?}: the process ended\n{}",
            ended.out
        );
        (before.calls(), before.has_struck())
    }

    /// Checks what is left.
    fn check(&self, what: &str) {
        let told = std::fs::metadata(self.acknowledged()).map_or(0, |found| found.len() as i64);
        let said = self.ground.run(&["check", self.path.to_str().unwrap()]).well();
        let state: i64 = said.strip_prefix("state ").unwrap().parse().unwrap();
        // The first acknowledgement is that of step 0.
        assert!(
            (told - 1..=told).contains(&state),
            "{what}: {told} steps were acknowledged, and the database is at {state}"
        );
    }
}

/// What this machine has not.
pub(crate) fn without_strace() -> Option<String> {
    // Containers may forbid what it works with.
    match Command::new("strace").args(["-qq", "-o", "/dev/null", "true"]).output() {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(format!(
            "strace traces nothing here: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )),
        Err(_) => Some("strace is not installed (./test does that)".to_owned()),
    }
}

/// A fault in calls that are spread evenly over the sequences; in each, where there are as many
/// trials. In the sequence of sessions, only in calls that change something.
fn each(what: &'static str, calls: &str, fault: Fault) {
    if let Some(lacking) = without_strace() {
        println!("not run: {lacking}");
        return;
    }
    let play = |(parameters, calls): (&'static str, &str), strike: Option<(Fault, &Call)>| {
        let ground = Ground::new();
        let sequence = Sequence { ground: &ground, path: ground.database(), parameters };
        let played = sequence.play(calls, strike);
        sequence.check(&format!("{parameters}: {strike:?}"));
        played
    };
    let cases: Vec<((&str, &str), Call)> = PARAMETERS
        .map(|parameters| (parameters, calls))
        .into_iter()
        .chain([(errors::SESSIONS, CHANGES)])
        .flat_map(|sequence| {
            let (found, _) = play(sequence, None);
            assert!((10..CALLS_MAX).contains(&found.len()), "{} calls", found.len());
            found.into_iter().map(move |call| (sequence, call))
        })
        .collect();
    let mut trials = Trials::of("S18", what, CASES);
    let stride = cases.len() / usize::try_from(trials.count()).unwrap().min(cases.len());
    let (mut made, mut struck) = (0, 0);
    for (sequence, call) in cases.iter().step_by(stride) {
        if trials.next().is_none() {
            break;
        }
        made += 1;
        struck += usize::from(play(*sequence, Some((fault, call))).1);
    }
    // The last calls of a sequence may be fewer when it is played again.
    assert!(struck * 10 >= made * 9, "{struck} faults were made in {made} trials");
}

/// A process that dies in any of its calls leaves the state before or after.
///
/// Guarantee: sqlite/killed-writer
#[test]
fn death_in_any_system_call_leaves_before_or_after() {
    each("death in each system call", CHANGES, Fault::Death);
}

/// Guarantee: sqlite/disk-errors
#[test]
fn error_in_any_system_call_loses_nothing() {
    each("EIO in each system call", &format!("{CHANGES},{LOOKS}"), Fault::Error("EIO"));
}

/// Guarantee: sqlite/disk-errors
#[test]
fn no_room_in_any_system_call_loses_nothing() {
    each("ENOSPC in each system call", CHANGES, Fault::Error("ENOSPC"));
}

/// The role of the test below, in a mount name space of its own: the power goes in the call.
pub(crate) fn drive() {
    for parameters in [AT_POWER, errors::SESSIONS] {
        cut_power_in_calls(parameters);
    }
}

fn cut_power_in_calls(parameters: &'static str) {
    for kind in &KINDS {
        let disks = Ground::new();
        let mut system = FileSystem::new(kind, disks.folder.path()).unwrap();
        let place = system.place().to_owned();
        let mut once = |fault: Option<&Call>| {
            let ground = Ground::new();
            system.mount().unwrap();
            let path = place.join("main.db");
            let sequence = Sequence { ground: &ground, path, parameters };
            let (found, _) = sequence.play(CHANGES, fault.map(|call| (Fault::Death, call)));
            if let Some(call) = fault {
                system.cut_power().unwrap();
                system.unmount();
                ground.lose_pool();
                system.mount().unwrap();
                let file_system = kind.name();
                sequence.check(&format!("{parameters}, {file_system}: power cut in {call:?}"));
            }
            empty(&place);
            system.unmount();
            found
        };
        let found = once(None);
        let count = found.len();
        assert!((50..CALLS_MAX).contains(&count), "{count} calls");
        let mut trials = Trials::of("S18", kind.name(), CUTS);
        let stride = count / usize::try_from(trials.count()).unwrap().min(count);
        for call in found.iter().step_by(stride) {
            if trials.next().is_none() {
                break;
            }
            once(Some(call));
        }
    }
}

/// Removes the files of a trial.
fn empty(place: &Path) {
    for entry in std::fs::read_dir(place).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_file() {
            std::fs::remove_file(entry.path()).unwrap();
        }
    }
}

/// A power cut in any call that changes the database or its log, with the pool lost, loses no
/// commit at level `power`, and none of a session that has ended.
///
/// Guarantee: sqlite/level-power
/// Guarantee: sqlite/side-file
#[test]
fn power_cut_in_any_system_call_loses_no_commit() {
    match lacking().or_else(without_strace) {
        Some(lacking) => println!("not run: {lacking}"),
        None => Ground::new().drive(&["unshare", "-m", "--"], &["calls: cuts"]),
    }
}
