//! One lane: build, kill, check, again, in a heap of its own.
//!
//! Invariants: a kill counts only if it ended the writer (a writer that was done before it is no
//! evidence); all that the writer wrote before its end counts as acknowledged, whether we had read
//! it or not.

use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::ops::Add;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdout, Output, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use holdfast_region::NameSpace;
use holdfast_testkit::{Scratch, Soundness, Spellcheck, heap_soundness};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::acks::Acks;

/// Words to a batch: small, so that there are many commits to hit.
const BATCH: &str = "64";
/// The latest moment of a kill, counted from the first acknowledgement.
const DELAY_US_MAX: u64 = 80_000;
/// One kill in this many comes early, to hit the making of the heap and of the first table: it is
/// not held back until the first acknowledgement, and this is its latest moment, counted from the
/// start.
const EARLY_ONE_IN: u32 = 4;
const EARLY_DELAY_US_MAX: u64 = 25_000;
/// Looking for every acknowledged word takes a run of its own; counts only grow, so none is lost in
/// between.
const VERIFY_ONE_IN: u32 = 4;
/// Every so many kills the check goes through the command.
const COMMAND_CHECK_EVERY: u64 = 50;
/// A writer that says nothing for so long hangs.
const PATIENCE: Duration = Duration::from_secs(60);
const SIGKILL: i32 = 9;

/// What a lane has seen.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    /// Writers that a kill ended.
    pub(crate) kills: u64,
    /// Of these, those that had acknowledged words in the same run.
    pub(crate) in_build: u64,
    /// Of all, those that left a transaction open.
    pub(crate) open_transactions: u64,
    /// Builds that came to their end.
    pub(crate) completed: u64,
    /// Runs that looked for every acknowledged word.
    pub(crate) verified: u64,
    /// Checks through the command.
    pub(crate) command_checks: u64,
}

impl Add for Counts {
    type Output = Counts;

    fn add(self, other: Counts) -> Counts {
        Counts {
            kills: self.kills + other.kills,
            in_build: self.in_build + other.in_build,
            open_transactions: self.open_transactions + other.open_transactions,
            completed: self.completed + other.completed,
            verified: self.verified + other.verified,
            command_checks: self.command_checks + other.command_checks,
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { kills, in_build, open_transactions, completed, verified, command_checks } =
            self;
        write!(
            formatter,
            "{kills} kills, {in_build} in the build, {open_transactions} inside a transaction; a check after \
             each ({command_checks} through the command), all acknowledged words looked up {verified} times; \
             {completed} builds completed"
        )
    }
}

pub(crate) struct Lane<'a> {
    scratch: &'a Scratch,
    job: &'a Spellcheck<'a>,
    names: NameSpace,
    heap: String,
    random: StdRng,
    acks: Acks,
    counts: Counts,
}

/// A line of the writer that matters to the test that waits for it.
struct Acknowledged;

impl<'a> Lane<'a> {
    pub(crate) fn new(
        scratch: &'a Scratch,
        job: &'a Spellcheck<'a>,
        number: u64,
        seed: u64,
    ) -> Lane<'a> {
        Lane {
            scratch,
            job,
            names: scratch.names().unwrap(),
            heap: format!("lane-{number}"),
            random: StdRng::seed_from_u64(seed.wrapping_add(number)),
            acks: Acks::default(),
            counts: Counts::default(),
        }
    }

    pub(crate) fn run(mut self, kills: u64) -> Counts {
        while self.counts.kills < kills {
            let killed = self.build_and_kill();
            if killed {
                self.counts.kills += 1;
                self.check();
                if self.random.random_ratio(1, VERIFY_ONE_IN) {
                    self.verify();
                }
            } else {
                self.counts.completed += 1;
                self.check();
                self.verify();
                self.start_over();
            }
        }
        self.verify();
        self.counts
    }

    /// Starts the build and kills it at a random moment; `false` if it was done before.
    fn build_and_kill(&mut self) -> bool {
        let mut command = self.job.building(&self.heap, &["--ack", "--batch", BATCH]);
        let mut writer = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let early = self.random.random_ratio(1, EARLY_ONE_IN);
        let delay_us_max = if early { EARLY_DELAY_US_MAX } else { DELAY_US_MAX };
        let delay = Duration::from_micros(self.random.random_range(0..=delay_us_max));
        let output = writer.stdout.take().unwrap();
        let (said, heard) = channel();
        let acks = &mut self.acks;
        let in_build = std::thread::scope(|scope| {
            let reader = scope.spawn(move || read_acks(output, acks, &said));
            if !early {
                wait_for_first(&heard, &mut writer);
            }
            std::thread::sleep(delay);
            // Fails only when the writer is gone, which its status tells.
            let _ = writer.kill();
            join(reader)
        });
        let mut complaint = String::new();
        writer.stderr.take().unwrap().read_to_string(&mut complaint).unwrap();
        let status = writer.wait().unwrap();
        if status.signal() == Some(SIGKILL) {
            self.counts.in_build += u64::from(in_build);
            return true;
        }
        // 1: the text has words that are in no dictionary.
        assert_eq!(status.code(), Some(1), "the build ended with {status}: {complaint}");
        false
    }

    /// The heap is sound, whatever the moment of the kill.
    fn check(&mut self) {
        match heap_soundness(&self.names, &self.heap) {
            Ok(Soundness::Missing | Soundness::Empty) => {
                assert!(
                    self.acks.is_empty(),
                    "{}: the heap is gone with {:?}",
                    self.heap,
                    self.acks
                );
                return;
            }
            Ok(Soundness::Sound { open_transaction, .. }) => {
                self.counts.open_transactions += u64::from(open_transaction);
            }
            Err(error) => panic!("after kill {}: {error}", self.counts.kills),
        }
        if self.counts.kills.is_multiple_of(COMMAND_CHECK_EVERY) {
            let checked =
                self.scratch.holdfast().args(["heap", "check", &self.heap]).output().unwrap();
            assert!(checked.status.success(), "{}", told(&checked));
            self.counts.command_checks += 1;
        }
    }

    /// Every acknowledged word is found.
    fn verify(&mut self) {
        if self.acks.is_empty() {
            return;
        }
        let name = format!("{}.acks", self.heap);
        let file = self.scratch.write(&name, self.acks.to_text()).unwrap();
        let options = ["--verify", file.to_str().unwrap()];
        let verified = self.job.building(&self.heap, &options).output().unwrap();
        let text = told(&verified);
        assert!(
            verified.status.success() && text.contains("verified "),
            "after kill {} not all of {:?} is there: {text}",
            self.counts.kills,
            self.acks
        );
        self.counts.verified += 1;
    }

    /// The build is complete: away with the heap.
    fn start_over(&mut self) {
        let removed = self.scratch.holdfast().args(["heap", "rm", &self.heap]).output().unwrap();
        assert!(removed.status.success(), "{}", told(&removed));
        self.acks = Acks::default();
    }
}

/// Takes acknowledgements until the writer's end; says whether there was one.
fn read_acks(output: ChildStdout, acks: &mut Acks, said: &Sender<Acknowledged>) -> bool {
    let mut any = false;
    let mut lines = BufReader::new(output);
    let mut line = String::new();
    // A last line without its end was cut off by the kill: it was never seen.
    while lines.read_line(&mut line).unwrap() > 0 && line.ends_with('\n') {
        if acks.take(line.trim_end()) {
            any = true;
            // Only the first is waited for.
            let _ = said.send(Acknowledged);
        }
        line.clear();
    }
    any
}

/// Returns when the first batch is acknowledged, or the writer ended without one.
fn wait_for_first(heard: &Receiver<Acknowledged>, writer: &mut Child) {
    use std::sync::mpsc::RecvTimeoutError::Timeout;
    if let Err(Timeout) = heard.recv_timeout(PATIENCE) {
        let _ = writer.kill();
        panic!("the writer acknowledged nothing for {PATIENCE:?}");
    }
}

fn join<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn told(output: &Output) -> String {
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    format!("{}: {out}{err}", output.status)
}
