//! The description of a trace: how it was measured, what that cost, what it could not see.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize, Serializer};

/// The ways to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum BackendKind {
    /// BPF programs in the kernel: exact and cheap, for the privileged.
    Bpf,
    /// ptrace: for everybody; every call stops twice.
    Ptrace,
    /// A log of another program, which says less than was measured here.
    Imported,
}

impl BackendKind {
    /// As options and reports have it.
    pub fn name(self) -> &'static str {
        match self {
            BackendKind::Bpf => "bpf",
            BackendKind::Ptrace => "ptrace",
            BackendKind::Imported => "imported",
        }
    }
}

/// What measuring one call costs, measured with a call that does nothing, in the same way as the
/// program's calls.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// By how much the call takes longer than untraced, medians: the program is slowed by this.
    pub slowdown_ns: u64,
    /// What of it shows as time on the CPU in the raw times, and was taken off each call.
    pub cpu_bias_ns: u64,
    /// What of it shows as time on the run queue, and was taken off each call.
    pub queue_bias_ns: u64,
    /// What of it shows as time asleep, and was taken off each call.
    pub blocked_bias_ns: u64,
    /// The calls that were measured for this.
    pub calls: u32,
}

/// Whether files were in memory when the program began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cache {
    /// Nothing was done about it: some may have been.
    AsFound,
    /// The kernel was told to drop what it had of clean files, just before.
    Dropped,
    /// A run before had read what this one reads.
    Warm,
}

/// A file system that the program may have worked on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSystem {
    /// A path on it: the directory that the program began in, where its temporary files go, what
    /// the user named.
    #[serde(serialize_with = "as_text")]
    pub path: PathBuf,
    /// Its type as `/proc/self/mountinfo` has it: ext4, xfs, tmpfs.
    pub kind: String,
    /// The device or whatever else it is of, from the same place.
    pub source: String,
}

/// How a trace came about. Written at the start of a recording with what is known then, and at its
/// end in full.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceDescription {
    /// How it was measured.
    pub backend: BackendKind,
    /// The version of Holdfast.
    pub version: String,
    /// What was run, program first; empty for a trace of running processes.
    pub command: Vec<String>,
    /// Processes that were attached to.
    pub attached: Vec<u32>,
    /// The control group that was traced.
    #[serde(serialize_with = "any_as_text")]
    pub cgroup: Option<PathBuf>,
    /// When the trace began, of the real-time clock: nanoseconds since 1970.
    pub began_unix_ns: u64,
    /// The same instant of `CLOCK_MONOTONIC`, which all events are in.
    pub began_ns: u64,
    /// How long the trace went on; 0 in a recording that was not finished.
    pub lasted_ns: u64,
    /// The measured cost; None if it was not measured.
    pub cost: Option<Cost>,
    /// Events that were lost, in all.
    pub lost: u64,
    /// The kernel's clock source: tsc, kvm-clock.
    pub clock: String,
    /// The kernel's release.
    pub kernel: String,
    /// CPUs that the program could use.
    pub cpus: u32,
    /// The only CPU it was allowed, if it was pinned.
    pub pinned: Option<u32>,
    /// What it may have worked on.
    pub file_systems: Vec<FileSystem>,
    /// What was done about cached files.
    pub cache: Cache,
    /// What could not be measured, or only estimated, and why: one sentence each, for the person.
    pub notes: Vec<String>,
}

/// A path whose name is no text is kept as it is shown: serde would refuse it, and a trace must not
/// fail for the name of the directory that it begins in.
fn as_text<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}

fn any_as_text<S: Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
    path.as_deref().map(Path::to_string_lossy).serialize(serializer)
}
