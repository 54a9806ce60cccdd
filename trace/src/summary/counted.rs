//! The sums over the calls of one kind.
//!
//! Invariant: sums saturate; nothing here grows with the number of calls.

use std::collections::BTreeMap;

use crate::classes::{Entry, Scheme, Treatment};
use crate::histogram::Latency;
use crate::model::begins_again;
use crate::report::document::{Sleep, Sums};
use crate::report::text::percent_of;
use crate::{Abi, Call, Split};

/// From here on the study took a call that waits for sleep: its histogram of poll() has 60 us and
/// more as such.
pub(super) const PAPER_SLEEP_FROM_NS: u64 = 60_000;

/// What is known of a call by its number alone, found once.
#[derive(Clone, Debug)]
pub(super) struct KnownCall {
    /// As its ABI calls it.
    pub(super) name: String,
    /// The call of x86-64 that does the same.
    pub(super) entry: Option<&'static Entry>,
    bytes: Bytes,
    waits_for_child: Child,
    /// Waits for others by the study's classes: what its rule for sleep is about.
    waits_by_name: bool,
    always_sleep: bool,
    /// `exit` and its like: that they do not return is no news.
    pub(super) never_returns: bool,
}

#[derive(Clone, Copy, Debug)]
enum Bytes {
    None,
    In,
    Out,
}

#[derive(Clone, Copy, Debug)]
enum Child {
    Never,
    Always,
    /// With CLONE_VFORK among its flags.
    ByFlag,
}

impl KnownCall {
    pub(super) fn of(abi: Abi, number: u32) -> KnownCall {
        KnownCall::named(&crate::call_name(abi, number))
    }

    pub(super) fn named(name: &str) -> KnownCall {
        let entry = crate::classes::known_as(name);
        let same = entry.map_or(name, |entry| entry.name);
        let place = crate::classes::place(Scheme::Paper, entry, &[0; 6], crate::Object::None);
        KnownCall {
            name: name.to_owned(),
            entry,
            bytes: bytes(same),
            waits_for_child: match same {
                "vfork" => Child::Always,
                "clone" => Child::ByFlag,
                // Its flags are in memory. What it waits for and is no device is a child.
                "clone3" => Child::Always,
                _ => Child::Never,
            },
            waits_by_name: place.subclass == crate::classes::Subclass::Sync && place.waits.event,
            always_sleep: same == "restart_syscall",
            never_returns: matches!(same, "exit" | "exit_group"),
        }
    }

    /// How much of a call's time is sleep.
    pub(super) fn sleep_ns(&self, rule: Sleep, time: &Split, arguments: &[u64; 6]) -> u64 {
        const CLONE_VFORK: u64 = 0x4000;
        match rule {
            Sleep::Measured => {
                let known_waiter = match self.waits_for_child {
                    Child::Always => true,
                    Child::ByFlag => arguments[0] & CLONE_VFORK != 0,
                    Child::Never => false,
                };
                time.sleep_ns.saturating_add(if known_waiter { time.wait_ns } else { 0 })
            }
            Sleep::Paper => {
                let long = self.waits_by_name && time.wall_ns >= PAPER_SLEEP_FROM_NS;
                if self.always_sleep || long { time.wall_ns } else { 0 }
            }
        }
    }
}

/// Which way the bytes went that a call returned the number of.
fn bytes(name: &str) -> Bytes {
    match name {
        "read" | "pread64" | "readv" | "preadv" | "preadv2" | "recvfrom" | "recvmsg"
        | "getdents" | "getdents64" | "getrandom" | "mq_timedreceive" | "msgrcv"
        | "process_vm_readv" => Bytes::In,
        "write" | "pwrite64" | "writev" | "pwritev" | "pwritev2" | "sendto" | "sendmsg"
        | "sendfile" | "splice" | "tee" | "vmsplice" | "copy_file_range" | "process_vm_writev" => {
            Bytes::Out
        }
        _ => Bytes::None,
    }
}

/// The calls of one kind in one place.
#[derive(Clone, Debug)]
pub(super) struct Counted {
    pub(super) place: Treatment,
    pub(super) calls: u64,
    pub(super) errors: u64,
    pub(super) interrupted: u64,
    pub(super) unfinished: u64,
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
    pub(super) time: Split,
    pub(super) asleep_ns: u64,
    pub(super) by_code: BTreeMap<i32, u64>,
    /// None for sums of another tool, which has no single calls.
    pub(super) latency: Option<Box<Latency>>,
}

impl Counted {
    pub(super) fn new(place: Treatment, single_calls: bool) -> Counted {
        Counted {
            place,
            calls: 0,
            errors: 0,
            interrupted: 0,
            unfinished: 0,
            bytes_in: 0,
            bytes_out: 0,
            time: Split::default(),
            asleep_ns: 0,
            by_code: BTreeMap::new(),
            latency: single_calls.then(Box::default),
        }
    }

    pub(super) fn add(&mut self, kind: &KnownCall, call: &Call, asleep_ns: u64) {
        self.calls = self.calls.saturating_add(1);
        self.time += call.time;
        self.asleep_ns = self.asleep_ns.saturating_add(asleep_ns);
        if let Some(latency) = &mut self.latency {
            latency.add(&call.time);
        }
        match (call.result, call.error()) {
            (None, _) => self.unfinished += u64::from(!kind.never_returns),
            (_, Some(code)) if begins_again(code) => self.interrupted += 1,
            (_, Some(code)) => {
                self.errors += 1;
                // At most 4,095 of them.
                *self.by_code.entry(code).or_default() += 1;
            }
            (Some(bytes), None) => {
                let bytes = u64::try_from(bytes).unwrap_or(0);
                match kind.bytes {
                    Bytes::In => self.bytes_in = self.bytes_in.saturating_add(bytes),
                    Bytes::Out => self.bytes_out = self.bytes_out.saturating_add(bytes),
                    Bytes::None => {}
                }
            }
        }
    }

    pub(super) fn merge(&mut self, other: &Counted) {
        self.calls = self.calls.saturating_add(other.calls);
        self.errors = self.errors.saturating_add(other.errors);
        self.interrupted = self.interrupted.saturating_add(other.interrupted);
        self.unfinished = self.unfinished.saturating_add(other.unfinished);
        self.bytes_in = self.bytes_in.saturating_add(other.bytes_in);
        self.bytes_out = self.bytes_out.saturating_add(other.bytes_out);
        self.time += other.time;
        self.asleep_ns = self.asleep_ns.saturating_add(other.asleep_ns);
    }

    /// Without what depends on all other calls.
    pub(super) fn sums(&self, distinct: u64, all: &Counted) -> Sums {
        let percent = |part: u64, whole: u64| percent_of(part as f64, whole as f64);
        Sums {
            distinct,
            calls: self.calls,
            calls_percent: percent(self.calls, all.calls),
            errors: self.errors,
            interrupted: self.interrupted,
            unfinished: self.unfinished,
            bytes_in: self.bytes_in,
            bytes_out: self.bytes_out,
            time: self.time.into(),
            time_percent: percent(self.time.wall_ns, all.time.wall_ns),
            awake_ns: self.awake_ns(),
            awake_percent: percent(self.awake_ns(), all.awake_ns()),
        }
    }

    pub(super) fn awake_ns(&self) -> u64 {
        self.time.wall_ns.saturating_sub(self.asleep_ns)
    }
}
