//! Row S18: faults in the k-th system call that names the database or its log, whoever makes it.
//! The rows S1 and S2 have them in the calls to the VFS below, which is but a part: the log, the
//! flushes and the looks at names are the extension's own. `strace` is what strikes.
//!
//! The sequence is that of `script`, over WAL and releases and back (`errors`).

use std::path::{Path, PathBuf};
use std::process::Command;

use holdfast_testkit::Trials;
use holdfast_testkit::file_system::{FileSystem, KINDS, lacking};

use crate::errors;
use crate::sides::Ground;

/// Without those that `strace` does not know on this processor.
pub(crate) const CHANGES: &str = "?pwrite64,?pwritev,?pwritev2,?write,?writev,?fdatasync,?fsync,?ftruncate,\
                       ?fallocate,?sync_file_range,?rename,?renameat,?renameat2,?unlink,?unlinkat";
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
        strike: Option<(Fault, usize)>,
    ) -> Strace {
        let listed = ground.folder.path().join("calls");
        let (database, out) = (database.to_str().unwrap(), listed.to_str().unwrap());
        let log = format!("{database}-holdfast");
        let mut words: Vec<String> = ["strace", "-f", "-qq", "-o", out, "-P", database, "-P", &log]
            .map(str::to_owned)
            .to_vec();
        words.extend(["-e".to_owned(), format!("trace={calls}")]);
        if let Some((fault, at)) = strike {
            let fault = match fault {
                Fault::Death => "signal=KILL".to_owned(),
                Fault::Error(error) => format!("error={error}"),
            };
            words.extend(["-e".to_owned(), format!("inject={calls}:{fault}:when={at}")]);
        }
        Strace { words, listed }
    }

    pub(crate) fn words(&self) -> Vec<&str> {
        self.words.iter().map(String::as_str).collect()
    }

    /// How many calls it saw.
    pub(crate) fn count(&self) -> usize {
        // One that was interrupted is listed twice.
        let text = std::fs::read_to_string(&self.listed).unwrap();
        text.lines().filter(|line| line.contains('(') && !line.contains("resumed>")).count()
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

    /// Plays it under `strace`, which strikes in the call with that number; how many calls there
    /// were until then.
    fn play(&self, calls: &str, strike: Option<(Fault, usize)>) -> usize {
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
        before.count()
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
    let found = Command::new("strace").arg("-V").output().is_ok_and(|out| out.status.success());
    (!found).then(|| "strace is not installed (./test does that)".to_owned())
}

/// A fault in calls that are spread evenly over the sequence; in each, where there are as many
/// trials.
fn each(what: &'static str, calls: &str, fault: Fault) {
    if let Some(lacking) = without_strace() {
        println!("not run: {lacking}");
        return;
    }
    let play = |parameters, strike| {
        let ground = Ground::new();
        let sequence = Sequence { ground: &ground, path: ground.database(), parameters };
        let count = sequence.play(calls, strike);
        sequence.check(&format!("{parameters}: {strike:?}"));
        count
    };
    let cases: Vec<(&str, usize)> = PARAMETERS
        .into_iter()
        .flat_map(|parameters| {
            let count = play(parameters, None);
            assert!((10..CALLS_MAX).contains(&count), "{count} calls");
            (1..=count).map(move |at| (parameters, at))
        })
        .collect();
    let mut trials = Trials::of("S18", what, CASES);
    let stride = cases.len() / usize::try_from(trials.count()).unwrap().min(cases.len());
    for (parameters, at) in cases.into_iter().step_by(stride) {
        if trials.next().is_none() {
            break;
        }
        play(parameters, Some((fault, at)));
    }
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
    for kind in &KINDS {
        let disks = Ground::new();
        let mut system = FileSystem::new(kind, disks.folder.path()).unwrap();
        let place = system.place().to_owned();
        let mut once = |fault: Option<usize>| {
            let ground = Ground::new();
            system.mount().unwrap();
            let path = place.join("main.db");
            let sequence = Sequence { ground: &ground, path, parameters: AT_POWER };
            let count = sequence.play(CHANGES, fault.map(|at| (Fault::Death, at)));
            if let Some(at) = fault {
                system.cut_power().unwrap();
                system.unmount();
                ground.lose_pool();
                system.mount().unwrap();
                sequence.check(&format!("{}: power cut in call {at}", kind.name()));
            }
            empty(&place);
            system.unmount();
            count
        };
        let count = once(None);
        assert!((50..CALLS_MAX).contains(&count), "{count} calls");
        let mut trials = Trials::of("S18", kind.name(), CUTS);
        let stride = count as u64 / trials.count().min(count as u64);
        while let Some(trial) = trials.next() {
            let at = (1 + trial.number * stride) as usize;
            if at > count {
                break;
            }
            once(Some(at));
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
/// commit at level `power`.
///
/// Guarantee: sqlite/level-power
#[test]
fn power_cut_in_any_system_call_loses_no_commit() {
    match lacking().or_else(without_strace) {
        Some(lacking) => println!("not run: {lacking}"),
        None => Ground::new().drive(&["unshare", "-m", "--"], &["calls: cuts"]),
    }
}
