//! The report as data: what the JSON is, and what all other forms are made from.
//!
//! Invariants: it is a format of its own (`docs/trace-report.schema.json`), apart from the events
//! and from the recording. In one [`FORMAT`], fields are only ever added. All times are
//! nanoseconds.

use serde::{Deserialize, Serialize};

use crate::Split;
use crate::classes::{Class, Scheme, Subclass};
use crate::crossings::Crossings;

/// The version of the JSON.
pub const FORMAT: u32 = 1;

/// How sleep is distinguished from work.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Sleep {
    /// As measured: the time asleep, and that of waiting for a child of vfork.
    #[default]
    Measured,
    /// As the study did, who could not measure it: calls that wait for others and took longer than
    /// the body of their histogram count as sleep in whole, and `restart_syscall` always.
    Paper,
}

/// Where time went. The parts add up to `wall_ns` less `untold_ns`.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Time {
    /// From the entry into the kernel to the return.
    pub wall_ns: u64,
    /// On a CPU.
    pub cpu_ns: u64,
    /// Asleep until something happened.
    pub sleep_ns: u64,
    /// Waiting for something that is no device, and cannot be interrupted.
    pub wait_ns: u64,
    /// Waiting for a device.
    pub io_wait_ns: u64,
    /// Ready to run, while others had the CPUs.
    pub queue_ns: u64,
    /// What the source does not tell apart: all, in a log of strace.
    pub untold_ns: u64,
}

impl Time {
    /// All off the CPU that was asked for.
    #[must_use]
    pub fn blocked_ns(&self) -> u64 {
        self.sleep_ns.saturating_add(self.wait_ns)
    }
}

impl From<Split> for Time {
    fn from(split: Split) -> Time {
        let told = [split.cpu_ns, split.sleep_ns, split.wait_ns, split.io_wait_ns, split.queue_ns];
        let told = told.into_iter().fold(0, u64::saturating_add);
        Time {
            wall_ns: split.wall_ns,
            cpu_ns: split.cpu_ns,
            sleep_ns: split.sleep_ns,
            wait_ns: split.wait_ns,
            io_wait_ns: split.io_wait_ns,
            queue_ns: split.queue_ns,
            untold_ns: split.wall_ns.saturating_sub(told),
        }
    }
}

/// Sums over calls.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Sums {
    /// How many different calls: `kinds` in tables.
    pub distinct: u64,
    /// How often they were called in all.
    pub calls: u64,
    /// Of all calls, in percent.
    pub calls_percent: f64,
    /// How many failed.
    pub errors: u64,
    /// How many were interrupted, and began again or went on in another call.
    pub interrupted: u64,
    /// How many had not returned when their thread or the trace ended.
    pub unfinished: u64,
    /// Bytes that came in by them.
    pub bytes_in: u64,
    /// Bytes that went out by them.
    pub bytes_out: u64,
    /// Where their time went.
    pub time: Time,
    /// Of the time of all calls, in percent.
    pub time_percent: f64,
    /// Their time without sleep.
    pub awake_ns: u64,
    /// Of the time without sleep of all calls, in percent.
    pub awake_percent: f64,
}

/// How long calls took.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Distribution {
    /// Half took this at most; within 1 %, as those that follow.
    pub p50_ns: u64,
    /// Nine in ten took this at most.
    pub p90_ns: u64,
    /// Ninety-nine in a hundred took this at most.
    pub p99_ns: u64,
    /// The longest, exactly.
    pub max_ns: u64,
    /// Within which the true median is, with a probability of 95 %; null with fewer than 6 calls.
    pub median_interval_ns: Option<(u64, u64)>,
    /// Bars of a histogram, without gaps.
    pub bars: Vec<Bar>,
}

/// A bar: calls that took at least half of `below_ns`, and less than it.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Bar {
    /// Where it ends.
    pub below_ns: u64,
    /// How many calls.
    pub calls: u64,
    /// Where their time went.
    pub time: Time,
}

/// A class of calls.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ClassRow {
    /// The class of system calls.
    pub class: Class,
    /// Its calls.
    #[serde(flatten)]
    pub sums: Sums,
}

/// A part of a class.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SubclassRow {
    /// Of which.
    pub class: Class,
    /// The subclass of system calls.
    pub subclass: Subclass,
    /// Its calls.
    #[serde(flatten)]
    pub sums: Sums,
}

/// One kind of call. In the refined scheme a call can have a row in several classes.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CallRow {
    /// As the kernel calls it; `syscall_N` where it has no name.
    pub name: String,
    /// `x86_64`, `i386` or `x32`.
    pub abi: String,
    /// The number in that ABI.
    pub number: u32,
    /// Where it belongs.
    pub class: Class,
    /// Where it belongs.
    pub subclass: Subclass,
    /// How often and how long.
    #[serde(flatten)]
    pub sums: Sums,
    /// How often it failed with which error.
    pub errors_by_code: Vec<ErrorCount>,
    /// How long single calls took; null where the source has no single calls.
    pub distribution: Option<Distribution>,
}

/// How often a call failed in one way.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ErrorCount {
    /// ENOENT and the like.
    pub name: String,
    /// How often.
    pub calls: u64,
}

/// A thread, or the sum of many that have no row of their own.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ThreadRow {
    /// The number of its process; 0 for a sum.
    pub process: u32,
    /// Its number; 0 for a sum.
    pub thread: u32,
    /// The name that it had last.
    pub command: String,
    /// How many threads this row is about.
    pub threads: u64,
    /// Its calls.
    pub calls: u64,
    /// How many failed.
    pub errors: u64,
    /// Where their time went.
    pub time: Time,
    /// Their time without sleep.
    pub awake_ns: u64,
    /// On the CPU in all, its own code included; null if it was not measured.
    pub thread_cpu_ns: Option<u64>,
    /// Since when, from the begin of the trace; null if it was not seen.
    pub began_ns: Option<u64>,
    /// Until when; null if it was not seen.
    pub ended_ns: Option<u64>,
    /// `exit 0`, `signal 9`; null if it was not seen.
    pub end: Option<String>,
    /// What its calls did when, in bins of [`Report::lane_bin_ns`]; empty for rows that are not
    /// drawn.
    pub lane: Vec<LaneBin>,
}

/// What a thread's calls did in a bin. Bins in which nothing happened are left out.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LaneBin {
    /// Which, from 0.
    pub bin: u32,
    /// On a CPU.
    pub cpu_ns: u64,
    /// Asleep, or waiting for no device.
    pub asleep_ns: u64,
    /// Waiting for a device.
    pub device_ns: u64,
    /// Ready to run.
    pub queue_ns: u64,
}

/// A process: the sum of its threads.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ProcessRow {
    /// Its number; 0 for the sum of those without a row.
    pub process: u32,
    /// The name that it had last.
    pub command: String,
    /// How many processes this row is about.
    #[serde(default = "one")]
    pub processes: u64,
    /// How many threads it had.
    pub threads: u64,
    /// Its calls.
    pub calls: u64,
    /// How many failed.
    pub errors: u64,
    /// Where their time went.
    pub time: Time,
    /// Their time without sleep.
    pub awake_ns: u64,
    /// On the CPU in all, its own code included; null if it was not measured.
    pub thread_cpu_ns: Option<u64>,
}

/// Reports of earlier versions do not say of how many processes a row is.
fn one() -> u64 {
    1
}

/// A call that had not returned.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Unfinished {
    /// Its process.
    pub process: u32,
    /// Its thread.
    pub thread: u32,
    /// The thread's name.
    pub command: String,
    /// The call.
    pub name: String,
    /// How long it had lasted by then.
    pub time: Time,
}

/// The time of one call in processes of one name, for flame graphs.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Stack {
    /// The name of the process.
    pub command: String,
    /// Where the call belongs.
    pub class: Class,
    /// Where the call belongs.
    pub subclass: Subclass,
    /// The call.
    pub name: String,
    /// Where its time went.
    pub time: Time,
}

/// How often something happened.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Count {
    /// The name of what is counted.
    pub name: String,
    /// How often.
    pub count: u64,
}

/// How the numbers came about.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Source {
    /// `bpf`, `ptrace` or `imported`.
    pub backend: String,
    /// The version of Holdfast that measured.
    pub version: String,
    /// What was run.
    pub command: Vec<String>,
    /// What was attached to.
    pub attached: Vec<u32>,
    /// When, in nanoseconds since 1970; 0 if not known.
    pub began_unix_ns: u64,
    /// How long the trace went on; 0 if not known.
    pub lasted_ns: u64,
    /// What measuring cost each call; null if that was not measured.
    pub cost_per_call_ns: Option<u64>,
    /// Events that were lost.
    pub events_lost: u64,
    /// Events that the recording lacks, as far as that is known; more may be missing, as
    /// `incomplete` says.
    #[serde(default)]
    pub events_missing: u64,
    /// What the recording lacks and why: sentences, none of a complete one.
    #[serde(default)]
    pub incomplete: Vec<String>,
    /// The kernel's clock source.
    pub clock: String,
    /// The kernel's release.
    pub kernel: String,
    /// CPUs that the program could use.
    pub cpus: u32,
    /// The only CPU that it was allowed.
    pub pinned: Option<u32>,
    /// What it may have worked on: `/home ext4 /dev/sda1`.
    pub file_systems: Vec<String>,
    /// `as found`, `dropped` or `warm`.
    pub cache: String,
    /// What could not be measured, and why.
    pub notes: Vec<String>,
}

/// Everything.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Report {
    /// [`FORMAT`].
    pub format: u32,
    /// By what calls were put into classes.
    pub scheme: Scheme,
    /// How sleep was distinguished from work.
    pub sleep: Sleep,
    /// How the numbers came about.
    pub source: Source,
    /// All calls.
    pub total: Sums,
    /// The three classes.
    pub classes: Vec<ClassRow>,
    /// Their parts, as far as there were calls, and those that the study's tables have.
    pub subclasses: Vec<SubclassRow>,
    /// Kinds of calls, by their time, longest first.
    pub calls: Vec<CallRow>,
    /// Processes, by the time of their calls.
    pub processes: Vec<ProcessRow>,
    /// Threads, by the time of their calls. Where there were very many, the last row is the sum of
    /// the rest.
    pub threads: Vec<ThreadRow>,
    /// How wide a bin of [`ThreadRow::lane`] is.
    pub lane_bin_ns: u64,
    /// Calls that had not returned, the longest first; 256 at most. Those that never return are not
    /// among them.
    pub unfinished: Vec<Unfinished>,
    /// The time of calls by the names of processes.
    pub stacks: Vec<Stack>,
    /// Signals that were delivered.
    pub signals: Vec<Count>,
    /// Operations of io_uring, which are no calls.
    pub io_uring: Vec<Count>,
    /// Lines that could not be read; 0 unless this is of a log.
    pub lines_skipped: u64,
    /// What crossed sandboxes; not there unless it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crossings: Option<Crossings>,
}

impl Report {
    /// The row of a class.
    #[must_use]
    pub fn class(&self, class: Class) -> Option<&ClassRow> {
        self.classes.iter().find(|row| row.class == class)
    }

    /// The row of this name that has the most time. Calls through another door, and in the refined
    /// scheme those in another class, have rows of their own.
    #[must_use]
    pub fn call(&self, name: &str) -> Option<&CallRow> {
        self.calls.iter().find(|row| row.name == name)
    }

    /// Whether the source told the parts of time apart.
    #[must_use]
    pub fn has_split(&self) -> bool {
        self.total.time.untold_ns < self.total.time.wall_ns.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where the schema lies, for those who read the JSON.
    const SCHEMA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/trace-report.schema.json");

    /// The JSON schema in the documentation is the one that the code writes.
    ///
    /// Guarantee: trace/json
    #[test]
    fn documented_json_schema_is_that_of_the_code() {
        let schema = schemars::schema_for!(Report);
        let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
        // Where lines of a comment end is a matter of the source; an empty one parts paragraphs.
        let paragraphs: Vec<_> =
            text.split(r"\n\n").map(|paragraph| paragraph.replace(r"\n", " ")).collect();
        let text = paragraphs.join(r"\n\n");
        if std::env::var_os("HOLDFAST_WRITE_SCHEMA").is_some() {
            std::fs::write(SCHEMA, &text).unwrap();
        }
        let found = std::fs::read_to_string(SCHEMA).unwrap_or_default();
        assert!(
            found == text,
            "run this test with HOLDFAST_WRITE_SCHEMA=1; a change of a field is a new format"
        );
    }
}
