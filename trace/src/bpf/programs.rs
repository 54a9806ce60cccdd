//! The programs in the kernel: loaded, attached, given orders.

use std::io::{self, Read};
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use libbpf_rs::{Iter, Link, Map, MapCore, MapFlags, Object, ObjectBuilder, PrintLevel, set_print};
use rustix::thread::{MembarrierCommand, membarrier};
use zerocopy::{FromBytes, IntoBytes};

use super::facts::{facts_32, facts_64, terminals};
use super::layout::{Counters, KernelSettings, WANTED_PROCESS, WantedKey};
use crate::{Result, TraceError};

/// Object files are read in place.
#[repr(align(8))]
struct Aligned<Bytes: ?Sized>(Bytes);

static CODE: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/trace.bpf.o")));

/// The kernel of 2022 that tells in which state a thread was that leaves its CPU.
const KERNEL_LEAST: (u32, u32) = (5, 18);
/// Programs for what a kernel may be built without.
const OPTIONAL: [&str; 2] = ["on_operation", "on_moved"];
/// What a program of ours is done in; they take less than a microsecond.
const PROGRAM_TIME_MAX: Duration = Duration::from_millis(5);
/// `linux/capability.h`.
const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// What the library said last: it knows more than its error codes.
static SAID: Mutex<String> = Mutex::new(String::new());

fn hear(_level: PrintLevel, text: String) {
    if let Ok(mut said) = SAID.lock() {
        // Logs of the verifier go on for pages.
        *said = text.trim().chars().take(300).collect();
    }
}

/// How they are loaded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Options {
    pub(super) buffer_bytes: u32,
    /// They read the kernel's memory as they have to before 6.2.
    pub(super) only_copies: bool,
}

/// Loaded programs.
#[derive(Debug)]
pub(super) struct Programs {
    object: Object,
    /// Those that this kernel has nothing for.
    pub(super) missing: Vec<&'static str>,
}

impl Programs {
    /// Loads them.
    pub(super) fn load(options: Options) -> Result<Programs> {
        check_kernel()?;
        let former = set_print(Some((PrintLevel::Warn, hear)));
        let mut missing = Vec::new();
        let mut loaded = load(options, &missing);
        if loaded.is_err() && may_load() {
            missing = OPTIONAL.to_vec();
            loaded = load(options, &missing);
        }
        set_print(former);
        match loaded {
            Ok(object) => Ok(Programs { object, missing }),
            Err(error) => Err(refusal(&error)),
        }
    }

    /// They watch for as long as the result lives. Moves between control groups are watched only
    /// when that is asked for.
    pub(super) fn attach(&self, moves: bool) -> Result<Watch> {
        let mut watch = Watch { events: Vec::new(), mark: None, freeze: None, let_go: None };
        for program in self.object.progs_mut() {
            let name = program.name().to_str().unwrap_or_default();
            if self.missing.contains(&name) || (name == "on_moved" && !moves) {
                continue;
            }
            let link =
                program.attach().map_err(|error| kernel("attach the BPF programs", &error))?;
            match name {
                "mark" => watch.mark = Some(link),
                "freeze" => watch.freeze = Some(link),
                "let_go" => watch.let_go = Some(link),
                _ => watch.events.push(link),
            }
        }
        Ok(watch)
    }

    /// The buffer of records.
    pub(super) fn records(&self) -> Result<Map<'_>> {
        self.map("records")
    }

    /// What the programs count.
    pub(super) fn counters(&self) -> Result<Counters> {
        let step = "read the counters of the BPF programs";
        let value = self.map(".bss")?.lookup(0_u32.as_bytes(), MapFlags::ANY);
        let value = value.map_err(|error| kernel(step, &error))?.unwrap_or_default();
        Counters::read_from_prefix(&value)
            .map(|(counters, _)| counters)
            .map_err(|_| TraceError::Kernel { step, source: io::ErrorKind::InvalidData.into() })
    }

    /// Tells `mark` of a process.
    pub(super) fn want(&self, process: u32, from: u8) -> Result<()> {
        self.put("wanted", WantedKey { what: WANTED_PROCESS, number: process }.as_bytes(), from)
    }

    /// Takes that back: its number may come to mean another process.
    pub(super) fn want_no_more(&self, process: u32) -> Result<()> {
        self.take_back("wanted", WantedKey { what: WANTED_PROCESS, number: process }.as_bytes())
    }

    /// Tells of a control group whose new processes are traced.
    pub(super) fn want_group(&self, id: u64) -> Result<()> {
        self.put("groups", id.as_bytes(), 0)
    }

    /// Takes that back: the group is gone, and there is room for so many only.
    pub(super) fn want_group_no_more(&self, id: u64) -> Result<()> {
        self.take_back("groups", id.as_bytes())
    }

    fn take_back(&self, map: &str, key: &[u8]) -> Result<()> {
        match self.map(map)?.delete(key) {
            Err(error) if error.kind() != libbpf_rs::ErrorKind::NotFound => {
                Err(kernel("tell the BPF programs what to trace", &error))
            }
            _ => Ok(()),
        }
    }

    fn put(&self, map: &str, key: &[u8], value: u8) -> Result<()> {
        let done = self.map(map)?.update(key, &[value], MapFlags::ANY);
        done.map_err(|error| kernel("tell the BPF programs what to trace", &error))
    }

    fn map(&self, end_of_name: &str) -> Result<Map<'_>> {
        let found = self
            .object
            .maps()
            .find(|map| map.name().as_encoded_bytes().ends_with(end_of_name.as_bytes()));
        found.ok_or_else(|| TraceError::Kernel {
            step: "find what the BPF programs share",
            source: io::Error::new(io::ErrorKind::NotFound, end_of_name.to_owned()),
        })
    }
}

/// Attached programs.
#[derive(Debug)]
pub(super) struct Watch {
    events: Vec<Link>,
    mark: Option<Link>,
    freeze: Option<Link>,
    let_go: Option<Link>,
}

impl Watch {
    /// Threads of wanted processes are traced from now on.
    pub(super) fn mark(&self) -> Result<()> {
        pass(self.mark.as_ref(), "mark the threads to trace")
    }

    /// The trace ends: nothing more is recorded of the traced threads but what
    /// [`Watch::let_go`] reports, or their ends.
    pub(super) fn freeze(&self) -> Result<()> {
        // The second pass is for threads that were made while the first one went by.
        for _ in 0..2 {
            pass(self.freeze.as_ref(), "end the trace")?;
            // A program that began before may still be at work on another CPU. The kernel returns
            // from this once all of them are done; where it cannot be asked, they are done by then.
            if membarrier(MembarrierCommand::Global).is_err() {
                std::thread::sleep(PROGRAM_TIME_MAX);
            }
        }
        Ok(())
    }

    /// What is known of every traced thread is reported, and they are detached. Nothing is watched
    /// any more.
    pub(super) fn let_go(mut self) -> Result<()> {
        let told = pass(self.let_go.as_ref(), "let the traced threads go");
        self.events.clear();
        told
    }
}

/// The program of an iterator runs once for each thread, while the iterator is read. It writes
/// nothing.
fn pass(link: Option<&Link>, step: &'static str) -> Result<()> {
    let Some(link) = link else { return Ok(()) };
    let mut iterator = Iter::new(link).map_err(|error| kernel(step, &error))?;
    let mut nothing = [0; 64];
    loop {
        match iterator.read(&mut nothing) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            // The kernel pauses a long pass like this.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) => {}
            Err(source) => return Err(TraceError::Kernel { step, source }),
        }
    }
}

fn load(options: Options, without: &[&str]) -> libbpf_rs::Result<Object> {
    let mut object = ObjectBuilder::default().name("holdfast")?.open_memory(&CODE.0)?;
    let settings = KernelSettings {
        facts_64: facts_64(),
        facts_32: facts_32(),
        terminals: terminals(),
        tracer: std::process::id(),
        only_copies: options.only_copies.into(),
    };
    for mut map in object.maps_mut() {
        let name = map.name().as_encoded_bytes();
        if name == b"records" {
            map.set_max_entries(options.buffer_bytes)?;
        } else if name.ends_with(b".rodata") {
            map.set_initial_value(settings.as_bytes())?;
        }
    }
    for mut program in object.progs_mut() {
        if without.iter().any(|name| program.name() == *name) {
            program.set_autoload(false);
        }
    }
    object.load()
}

fn check_kernel() -> Result<()> {
    let unavailable = |why: String| Err(TraceError::Unavailable { backend: "bpf", why });
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        return unavailable(
            "this kernel does not describe its types (no /sys/kernel/btf/vmlinux); run one that was built with CONFIG_DEBUG_INFO_BTF, or \
             use --backend ptrace"
                .to_owned(),
        );
    }
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    if version(&release).is_some_and(|version| version < KERNEL_LEAST) {
        let (major, minor) = KERNEL_LEAST;
        return unavailable(format!(
            "the kernel is {release}, and {major}.{minor} is the oldest that it works with; use --backend ptrace"
        ));
    }
    Ok(())
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release
        .split(|character: char| !character.is_ascii_digit())
        .map_while(|text| text.parse().ok());
    numbers.next().zip(numbers.next())
}

/// Whether this process has the capabilities, if only those of its user name space.
fn may_load() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective =
        effective.and_then(|text| u64::from_str_radix(text.trim(), 16).ok()).unwrap_or(0);
    let has = |capability: u32| effective & (1 << capability) != 0;
    has(CAP_SYS_ADMIN) || (has(CAP_BPF) && has(CAP_PERFMON))
}

fn refusal(error: &libbpf_rs::Error) -> TraceError {
    let why = if error.kind() == libbpf_rs::ErrorKind::PermissionDenied && !may_load() {
        "that takes the capabilities CAP_BPF and CAP_PERFMON; run it as root, or use --backend ptrace"
            .to_owned()
    } else {
        let said = SAID.lock().map(|said| said.clone()).unwrap_or_default();
        format!("the kernel refuses its programs ({error}; {said}); use --backend ptrace")
    };
    TraceError::Unavailable { backend: "bpf", why }
}

pub(super) fn kernel(step: &'static str, error: &libbpf_rs::Error) -> TraceError {
    TraceError::Kernel { step, source: io::Error::other(error.to_string()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernels_version_is_read_from_its_release() {
        assert_eq!(version("6.18.44-cloud-amd64"), Some((6, 18)));
        assert_eq!(version("5.4"), Some((5, 4)));
        assert_eq!(version("unknown"), None);
        assert!(version("5.15.0-91-generic") < Some(KERNEL_LEAST));
    }
}
