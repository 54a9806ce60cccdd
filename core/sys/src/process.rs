//! Processes: who we are, whether another one still lives, what sits at an address of ours, CPU
//! time.
//!
//! A process is named by its PID *and* its start time, because PIDs come round again.

#![forbid(unsafe_code)]

use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A process, told apart from later ones with the same PID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessId {
    /// The PID.
    pub pid: u32,
    /// Clock ticks between boot and the start of the process.
    pub start_ticks: u64,
}

impl ProcessId {
    /// This process.
    ///
    /// # Errors
    /// When `/proc` is not readable.
    pub fn current() -> io::Result<ProcessId> {
        // A fork changes both values, so the cache is keyed by the PID: high half PID, low half
        // hash-free start time in ticks (32 bits of ticks are 16 months of uptime; later starts are
        // not cached).
        static CACHE: AtomicU64 = AtomicU64::new(0);
        let pid = std::process::id();
        let cached = CACHE.load(Ordering::Relaxed);
        if cached >> 32 == u64::from(pid) {
            return Ok(ProcessId { pid, start_ticks: cached & 0xffff_ffff });
        }
        let start_ticks = start_ticks(pid)?.ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, "/proc does not list this process")
        })?;
        if start_ticks <= 0xffff_ffff {
            CACHE.store(u64::from(pid) << 32 | start_ticks, Ordering::Relaxed);
        }
        Ok(ProcessId { pid, start_ticks })
    }

    /// The process that has this PID now; `None` when there is none or it is a zombie. A process
    /// whose first thread has ended lives as long as another one runs.
    ///
    /// # Errors
    /// When `/proc` is not readable, or hides the process.
    pub fn of(pid: u32) -> io::Result<Option<ProcessId>> {
        Ok(start_ticks(pid)?.map(|start_ticks| ProcessId { pid, start_ticks }))
    }

    /// Whether the process still runs (a zombie does not). Only a proof of its end counts: one that
    /// cannot be looked at, as this process has no free descriptor or may not see it, is alive.
    #[must_use]
    pub fn is_alive(self) -> bool {
        match start_ticks(self.pid) {
            Ok(found) => found == Some(self.start_ticks),
            Err(_) => true,
        }
    }
}

/// The kernel's random name for the time since this boot.
///
/// # Errors
/// When `/proc` is not readable.
pub fn boot_id() -> io::Result<Vec<u8>> {
    std::fs::read("/proc/sys/kernel/random/boot_id")
}

/// When a living process started, in clock ticks since boot; `None` when there is none or it is a
/// zombie.
fn start_ticks(pid: u32) -> io::Result<Option<u64>> {
    let text = match std::fs::read(format!("/proc/{pid}/stat")) {
        Ok(text) => text,
        // Mounted with `hidepid=2`, `/proc` does not show processes that may not be traced.
        Err(error) if error.kind() == io::ErrorKind::NotFound && is_unknown(pid) => {
            return Ok(None);
        }
        // The process ended between open and read.
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(parse_start_ticks(&text))
}

/// Whether the kernel has no process of this PID.
fn is_unknown(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    pid.is_none_or(|pid| rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH))
}

/// Field 22 of `proc_pid_stat(5)`. The second field is the program's name in parentheses and may
/// hold any byte, so fields are counted from the last closing parenthesis.
///
/// The state is that of the first thread. One that ended while others go on is a zombie, too; the
/// number of threads (field 20) tells such a process from one that only waits to be waited for.
fn parse_start_ticks(stat: &[u8]) -> Option<u64> {
    let after_name = stat.iter().rposition(|&byte| byte == b')')? + 1;
    let fields = std::str::from_utf8(stat.get(after_name..)?).ok()?;
    let mut fields = fields.split_ascii_whitespace();
    let state = fields.next()?;
    let threads: u64 = fields.nth(16)?.parse().ok()?;
    if matches!(state, "X" | "x") || state == "Z" && threads <= 1 {
        return None;
    }
    fields.nth(1)?.parse().ok()
}

/// What sits in a part of this process's address space, as `/proc/self/maps` tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Occupant {
    /// Its addresses, or those among them that were asked about.
    pub range: Range<u64>,
    /// The path of the file that is mapped there, `[heap]`, `[stack]` and the like, or what else it
    /// is.
    pub what: String,
}

impl fmt::Display for Occupant {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} at {:#x}..{:#x}", self.what, self.range.start, self.range.end)
    }
}

/// What sits in a range of addresses, in order; clipped to the range.
///
/// # Errors
/// When `/proc` is not readable.
pub fn occupants(range: Range<u64>) -> io::Result<Vec<Occupant>> {
    let maps = std::fs::read("/proc/self/maps")?;
    let lines = maps.split(|&byte| byte == b'\n').map(String::from_utf8_lossy);
    Ok(lines
        .filter_map(|line| parse_mapping(&line))
        .filter_map(|found| clip(found, &range))
        .collect())
}

fn clip(found: Occupant, range: &Range<u64>) -> Option<Occupant> {
    let clipped = found.range.start.max(range.start)..found.range.end.min(range.end);
    (clipped.start < clipped.end).then_some(Occupant { range: clipped, ..found })
}

/// A line of `/proc/self/maps`: range, permissions, offset, device, inode, and the rest of the line
/// is the name.
fn parse_mapping(line: &str) -> Option<Occupant> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let range = u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?;
    let permissions = fields.next()?;
    let what = match fields.nth(3).unwrap_or("").trim_start() {
        "" if permissions.starts_with("---") => "a reservation without a name".to_owned(),
        "" => "memory without a name (an allocator's, or a thread's stack)".to_owned(),
        name => name.to_owned(),
    };
    Some(Occupant { range, what })
}

/// CPU time that the calling thread has used.
#[must_use]
pub fn thread_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Of every this many descriptors that the process may have, one is kept by [`may_open_more`], but
/// not more than [`DESCRIPTORS_KEPT_MAX`].
const DESCRIPTORS_KEPT_SHARE: u64 = 8;
/// More than a checkpoint ever has open at once.
const DESCRIPTORS_KEPT_MAX: u64 = 64;

/// Whether a caller that may not use up all descriptors of this process may have another one. Some
/// are kept back, for the process to do what must not fail: end, write a checkpoint, report.
#[must_use]
pub fn may_open_more() -> bool {
    let Some(limit) = rustix::process::getrlimit(rustix::process::Resource::Nofile).current else {
        return true;
    };
    let kept = (limit / DESCRIPTORS_KEPT_SHARE).min(DESCRIPTORS_KEPT_MAX);
    // The lowest free number is how many there are, or less.
    let Ok(probe) = rustix::io::fcntl_dupfd_cloexec(io::stderr(), 0) else { return false };
    (probe.as_raw_fd() as u64) < limit.saturating_sub(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_shows_in_the_threads_cpu_time() {
        let before = thread_cpu_time();
        let mut state = 1_u64;
        while thread_cpu_time() == before && state != 0 {
            state = std::hint::black_box(state.wrapping_mul(3));
        }
        assert!(thread_cpu_time() > before);
    }

    #[test]
    fn the_start_time_is_read_past_a_hostile_program_name() {
        let mut text = b"42 (a) b) 1 2 3) S ".to_vec();
        text.extend((4..22).flat_map(|field| format!("{field} ").into_bytes()));
        text.extend_from_slice(b"987654 23 24\n");
        assert_eq!(parse_start_ticks(&text), Some(987_654));
        assert_eq!(parse_start_ticks(b"42 (x) Z 1 2 3"), None);
        assert_eq!(parse_start_ticks(b""), None);
        assert_eq!(parse_start_ticks(b"42 (x) S 1 2"), None);
    }

    /// This process is alive and one with another start time is not.
    #[test]
    fn start_time_tells_a_process_from_its_successor() {
        let me = ProcessId::current().unwrap();
        assert!(me.is_alive());
        assert_eq!(me, ProcessId::current().unwrap());
        assert!(!ProcessId { start_ticks: me.start_ticks + 1, ..me }.is_alive());
        assert!(!ProcessId { pid: u32::MAX >> 1, ..me }.is_alive());
    }

    /// An ended child is not alive even before it is waited for.
    #[test]
    fn ended_child_is_dead_before_it_is_reaped() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        let alive = || start_ticks(pid).unwrap().is_some();
        let ended = (0..10_000).any(|_| {
            std::thread::sleep(Duration::from_millis(1));
            !alive()
        });
        assert!(ended, "a zombie counts as alive");
        child.wait().unwrap();
        assert!(!alive());
    }

    /// A process that cannot be looked at is alive: its locks are not taken over.
    ///
    /// Guarantee: sqlite/processes-share
    #[test]
    fn process_that_cannot_be_looked_at_is_alive() {
        const TEST: &str = "process::tests::process_that_cannot_be_looked_at_is_alive";
        const ROLE: &str = "HOLDFAST_TEST_WITHOUT_DESCRIPTORS";
        if std::env::var_os(ROLE).is_some() {
            let me = ProcessId::current().unwrap();
            let nofile = rustix::process::Resource::Nofile;
            let limit = rustix::process::getrlimit(nofile);
            let none = rustix::process::Rlimit { current: Some(0), ..limit };
            rustix::process::setrlimit(nofile, none).unwrap();
            let (found, is_alive) = (start_ticks(me.pid), me.is_alive());
            rustix::process::setrlimit(nofile, limit).unwrap();
            assert_eq!(found.unwrap_err().raw_os_error(), Some(libc::EMFILE));
            assert!(is_alive, "it is dead as there is no descriptor");
            return;
        }
        // The limit is that of a whole process.
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args([TEST, "--exact", "--nocapture"]).env(ROLE, "1");
        let done = command.output().unwrap();
        let told = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success() && told.contains("1 passed"), "{told}");
        // What `/proc` does not show may be hidden.
        assert!(!is_unknown(std::process::id()) && !is_unknown(1));
        assert!(is_unknown(0) && is_unknown(u32::MAX >> 1) && is_unknown(u32::MAX));
    }

    /// A process whose first thread has ended is alive while another one runs.
    ///
    /// Guarantee: keeper/stopped-programs
    #[test]
    fn process_lives_while_any_thread_runs() {
        let stat = |threads: u32| {
            let between = "0 ".repeat(15);
            format!("42 (x) Z 1 {between}{threads} 0 77 0").into_bytes()
        };
        assert_eq!(parse_start_ticks(&stat(2)), Some(77));
        assert_eq!(parse_start_ticks(&stat(1)), None);
    }

    #[test]
    fn the_mapping_at_an_address_of_ours_is_found() {
        let here = &raw const HERE as u64;
        static HERE: u8 = 1;
        let found = occupants(here..here + 1).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].range, here..here + 1);
        assert!(
            found[0].what.contains(std::env::current_exe().unwrap().to_str().unwrap()),
            "{}",
            found[0]
        );
        assert_eq!(occupants(0..4096).unwrap(), []);
    }

    /// A mapping is named by its path its kind or by what it cannot be used for.
    #[test]
    fn mapping_is_named_by_path_kind_or_protection() {
        let what = |line: &str| parse_mapping(line).map(|found| found.what);
        let start = "10000000-20000000";
        assert_eq!(
            what(&format!("{start} r--p 00000000 fd:01 12     /tmp/a b (deleted)")).unwrap(),
            "/tmp/a b (deleted)"
        );
        assert_eq!(
            what(&format!("{start} rw-p 00000000 00:00 0      [stack]")).unwrap(),
            "[stack]"
        );
        assert!(what(&format!("{start} rw-p 00000000 00:00 0 ")).unwrap().contains("allocator"));
        assert!(what(&format!("{start} ---p 00000000 00:00 0 ")).unwrap().contains("reservation"));
        assert_eq!(what("nonsense"), None);
    }
}
