//! The description of the machine that a trace was made on.

use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::{BackendKind, Cache, FileSystem, Settings, Target, TraceDescription};

/// `CLOCK_MONOTONIC`, nanoseconds.
pub(crate) fn now_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

/// Calls of a round, and rounds, in which a call that does nothing is timed.
const NULL_CALLS: u64 = 500;
const NULL_ROUNDS: usize = 9;

/// What a call that does nothing takes this thread, with its way into the kernel and back:
/// nanoseconds, the median of rounds, as others may want the processor meanwhile.
pub(crate) fn null_call_ns() -> u64 {
    let mut rounds = [0; NULL_ROUNDS];
    for round in &mut rounds {
        let began_ns = now_ns();
        for _ in 0..NULL_CALLS {
            std::hint::black_box(rustix::process::getppid());
        }
        *round = now_ns().saturating_sub(began_ns) / NULL_CALLS;
    }
    rounds.sort_unstable();
    rounds[NULL_ROUNDS / 2]
}

fn nanoseconds(time: Timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

impl TraceDescription {
    /// What is known before a trace with these settings: the machine, the target, the instant.
    pub fn before(settings: &Settings, backend: BackendKind) -> TraceDescription {
        let mut about = TraceDescription {
            backend,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            command: Vec::new(),
            attached: Vec::new(),
            cgroup: None,
            began_unix_ns: nanoseconds(clock_gettime(ClockId::Realtime)),
            began_ns: now_ns(),
            lasted_ns: 0,
            cost: None,
            lost: 0,
            clock: clock_source(),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            cpus: std::thread::available_parallelism().map_or(1, |count| count.get() as u32),
            pinned: settings.pin,
            file_systems: file_systems(),
            cache: Cache::AsFound,
            notes: Vec::new(),
        };
        match &settings.target {
            Target::Start(program) => {
                about.command = program
                    .command
                    .iter()
                    .map(|word| word.to_string_lossy().into_owned())
                    .collect();
            }
            Target::Attach(processes) => about.attached.clone_from(processes),
            Target::Cgroup(path) => about.cgroup = Some(path.clone()),
        }
        about
    }

    /// The trace begins now: getting ready for it is no part of it.
    pub(crate) fn begin(&mut self) {
        self.began_unix_ns = nanoseconds(clock_gettime(ClockId::Realtime));
        self.began_ns = now_ns();
    }
}

fn clock_source() -> String {
    std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource")
        .map_or_else(|_| "unknown".to_owned(), |name| name.trim().to_owned())
}

/// Those of the working directory and of temporary files, and what is mounted for memory that
/// outlives programs.
fn file_systems() -> Vec<FileSystem> {
    let mounts = mounts();
    let mut found: Vec<FileSystem> = Vec::new();
    for path in [std::env::current_dir().unwrap_or_else(|_| "/".into()), std::env::temp_dir()] {
        if let Some(file_system) = file_system_of(&path, &mounts)
            && !found.iter().any(|known| known.path == file_system.path)
        {
            found.push(file_system);
        }
    }
    found
}

/// The kind of the file system that a path is on; empty if it is not known.
pub(crate) fn kind_of(path: &Path) -> String {
    file_system_of(path, &mounts()).map(|on| on.kind).unwrap_or_default()
}

/// Those that this thread sees: a thread may have mounts of its own.
fn mounts() -> Vec<u8> {
    std::fs::read("/proc/thread-self/mountinfo").unwrap_or_default()
}

/// The file system that a path is on, by the text of `proc_pid_mountinfo(5)`.
fn file_system_of(path: &Path, mounts: &[u8]) -> Option<FileSystem> {
    let path_resolved = path.canonicalize().ok()?;
    // Of mounts over the same point the last one is seen.
    let mounts = mounts.split(|&byte| byte == b'\n').filter_map(parse_mount);
    let (_, kind, source) = mounts
        .filter(|(point, ..)| path_resolved.starts_with(point))
        .max_by_key(|(point, ..)| point.as_os_str().as_bytes().len())?;
    Some(FileSystem { path: path.to_owned(), kind, source })
}

/// Mount point, type and source of a line.
fn parse_mount(line: &[u8]) -> Option<(PathBuf, String, String)> {
    let mut fields = line.split(|&byte| byte == b' ');
    let point = unescape(fields.nth(4)?);
    // Optional fields, of any number, end with a dash.
    fields.find(|field| *field == b"-")?;
    let text = |field: &[u8]| String::from_utf8_lossy(&unescape(field)).into_owned();
    let (kind, source) = (text(fields.next()?), text(fields.next()?));
    Some((PathBuf::from(std::ffi::OsString::from_vec(point)), kind, source))
}

/// `\040` and its like, for spaces in names.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut at = 0;
    while at < field.len() {
        let digits = field
            .get(at + 1..at + 4)
            .filter(|digits| digits.iter().all(|digit| (b'0'..b'8').contains(digit)));
        if let (b'\\', Some(digits)) = (field[at], digits) {
            plain.push(
                digits.iter().fold(0_u8, |value, digit| value.wrapping_mul(8) + (digit - b'0')),
            );
            at += 4;
        } else {
            plain.push(field[at]);
            at += 1;
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A path belongs to the innermost file system, and of several at one mount point to the last
    /// mounted.
    #[test]
    fn path_is_on_innermost_last_mounted_file_system() {
        let mounts = b"22 1 0:20 / / rw - ext4 /dev/root rw\n\
            23 22 0:21 / /tmp rw shared:1 master:2 - tmpfs tmpfs rw\n\
            24 22 0:22 / /tmp rw - xfs /dev/with\\040space rw\n\
            25 22 0:22 / /tm rw - vfat /dev/x rw\nhalf a line";
        let found = file_system_of(Path::new("/tmp"), mounts).unwrap();
        assert_eq!((found.kind.as_str(), found.source.as_str()), ("xfs", "/dev/with space"));
        assert_eq!(file_system_of(Path::new("/"), mounts).unwrap().kind, "ext4");
        assert!(file_system_of(Path::new("/"), b"").is_none());
        assert_eq!(kind_of(Path::new("/proc/self")), "proc");
        assert_eq!(kind_of(Path::new("/no/such/directory")), "");
    }

    #[test]
    fn an_account_knows_the_machine() {
        let about =
            TraceDescription::before(&Settings::new(Target::Attach(vec![7])), BackendKind::Ptrace);
        assert!(!about.kernel.is_empty() && about.cpus > 0 && about.began_ns > 0);
        assert_eq!(about.attached, [7]);
        assert!(!about.file_systems.is_empty());
    }
}
