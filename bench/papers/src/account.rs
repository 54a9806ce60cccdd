//! Who used the processors: this process with everything that it started, the kernel's own threads,
//! or other programs.
//!
//! What descends from this process is counted in two ways, of which the larger counts. A control
//! group has the time of all that were started in it, but only root can make one everywhere. The
//! time of children that were waited for, and of descendants that still run, is always there, but
//! lacks processes whose parent does not wait for them: those of a PID namespace that ends, such as
//! Chromium's, and the children of a daemon that ignores SIGCHLD.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use procfs::process::{Process, Stat, StatFlags};
use rustix::process::{WaitOptions, getpid, set_child_subreaper, wait};

/// Begins the names of control groups that a [`Meter`] makes.
const GROUP: &str = "holdfast-bench-";
const PAUSE: Duration = Duration::from_millis(10);

/// Counts processor time from its start on.
#[derive(Debug)]
pub struct Meter {
    group: Option<Group>,
}

impl Meter {
    /// Makes this process the parent of what its children leave behind, and moves it into a control
    /// group of its own, as far as the kernel lets it; the group ends with the meter.
    #[must_use]
    pub fn start() -> Meter {
        let _ = set_child_subreaper(Some(getpid()));
        Meter { group: Group::join() }
    }

    /// Whether processes count whose parent does not wait for them.
    #[must_use]
    pub fn has_group(&self) -> bool {
        self.group.is_some()
    }

    /// The account as it stands.
    #[must_use]
    pub fn now(&self) -> Option<Account> {
        use procfs::CurrentSI;
        let total = procfs::KernelStats::current().ok()?.total;
        let idle = total.idle + total.iowait.unwrap_or(0);
        // A guest's time is in `user` already.
        let used = total.user
            + total.nice
            + total.system
            + total.irq.unwrap_or(0)
            + total.softirq.unwrap_or(0)
            + total.steal.unwrap_or(0);
        let own = Process::myself().ok()?.stat().ok()?;
        let all = all_processes();
        Some(Account {
            used,
            whole: used + idle,
            waited_for: waited_for_ticks(&own) + running_ticks(&all, own.pid),
            group: self.group.as_ref().and_then(Group::ticks),
            kernel: all.iter().filter(|stat| is_of_kernel(stat)).map(ticks).sum(),
        })
    }
}

/// Processor time of the machine, in ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Account {
    /// All that ran or was taken away by the machine below.
    used: u64,
    /// All there was.
    whole: u64,
    /// Of `used`, what children took that were waited for, and descendants that run.
    waited_for: u64,
    /// Of `used`, what the control group took, if there is one.
    group: Option<u64>,
    /// Of `used`, what threads of the kernel took.
    kernel: u64,
}

impl Account {
    /// What this process's descendants used since, in ticks.
    #[must_use]
    pub fn own_ticks_since(self, before: Account) -> u64 {
        let group = self.group.zip(before.group).map(|(now, before)| now.saturating_sub(before));
        self.waited_for.saturating_sub(before.waited_for).max(group.unwrap_or(0))
    }

    /// Which part of the machine others used since, from 0 to 1: programs that do not descend from
    /// this process. Threads of the kernel are not others, since most of what they do is a program's
    /// I/O: a loop device's writer and writeback work for the bench that stores to that device.
    #[must_use]
    pub fn others_since(self, before: Account) -> f64 {
        let whole = self.whole.saturating_sub(before.whole);
        let used = self.used.saturating_sub(before.used);
        let kernel = self.kernel.saturating_sub(before.kernel);
        match whole {
            0 => 0.0,
            _ => {
                let own = self.own_ticks_since(before) + kernel;
                used.saturating_sub(own) as f64 / whole as f64
            }
        }
    }
}

/// Waits until everything adopted has ended, but no longer than `patience`. No other thread may
/// have a child, because its status would be lost here. What goes on is counted as it runs.
pub fn collect_orphans(patience: Duration) {
    let end = Instant::now() + patience;
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) => {}
            Ok(None) if Instant::now() < end => std::thread::sleep(PAUSE),
            Ok(None) | Err(_) => return,
        }
    }
}

fn all_processes() -> Vec<Stat> {
    let all = procfs::process::all_processes().into_iter().flatten();
    all.filter_map(|process| process.ok()?.stat().ok()).collect()
}

fn is_of_kernel(stat: &Stat) -> bool {
    StatFlags::from_bits_truncate(stat.flags).contains(StatFlags::PF_KTHREAD)
}

fn ticks(stat: &Stat) -> u64 {
    stat.utime + stat.stime
}

fn waited_for_ticks(stat: &Stat) -> u64 {
    u64::try_from(stat.cutime + stat.cstime).unwrap_or(0)
}

/// What the descendants of a process took, with what they waited for.
fn running_ticks(all: &[Stat], ancestor: i32) -> u64 {
    let mut open = vec![ancestor];
    let mut sum = 0;
    while let Some(parent) = open.pop() {
        for child in all.iter().filter(|stat| stat.ppid == parent) {
            sum += ticks(child) + waited_for_ticks(child);
            open.push(child.pid);
        }
    }
    sum
}

/// A control group that this process is in, and leaves when this is dropped.
#[derive(Debug)]
struct Group {
    folder: PathBuf,
    parent: PathBuf,
}

impl Group {
    /// Makes a group inside of the one that this process is in, and joins it.
    fn join() -> Option<Group> {
        let parent = current_groups().into_iter().find(|folder| folder.is_dir())?;
        remove_stale(&parent);
        let folder = parent.join(format!("{GROUP}{}", std::process::id()));
        fs::create_dir(&folder).ok()?;
        let group = Group { folder, parent };
        (enter(&group.folder) && group.ticks().is_some()).then_some(group)
    }

    fn ticks(&self) -> Option<u64> {
        let read = |name| fs::read_to_string(self.folder.join(name)).ok();
        let nanoseconds = match read("cpuacct.usage") {
            Some(text) => text.trim().parse().ok()?,
            None => usage_ns(&read("cpu.stat")?)?,
        };
        let ticks = u128::from(nanoseconds) * u128::from(procfs::ticks_per_second());
        u64::try_from(ticks / 1_000_000_000).ok()
    }
}

impl Drop for Group {
    /// A group in which something still runs stays, and a later meter removes it.
    fn drop(&mut self) {
        enter(&self.parent);
        let _ = fs::remove_dir(&self.folder);
    }
}

fn enter(group: &Path) -> bool {
    fs::write(group.join("cgroup.procs"), "0").is_ok()
}

/// Removes groups whose processes have ended.
fn remove_stale(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(GROUP) {
            // The kernel refuses this while something is in it.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// `usage_usec` of a `cpu.stat`, in nanoseconds.
fn usage_ns(stat: &str) -> Option<u64> {
    let usage = stat.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
    usage.trim().parse::<u64>().ok()?.checked_mul(1000)
}

/// Folders of the control groups of this process that know its processor time: that of version 1,
/// and that of version 2.
fn current_groups() -> Vec<PathBuf> {
    let Ok(process) = Process::myself() else { return Vec::new() };
    let (Ok(groups), Ok(mounts)) = (process.cgroups(), process.mountinfo()) else {
        return Vec::new();
    };
    let folder = |kind: &str, controller: Option<&str>| {
        let controllers = |names: &[String]| match controller {
            Some(name) => names.iter().any(|other| other == name),
            None => names.iter().all(String::is_empty),
        };
        let group = groups.0.iter().find(|group| controllers(&group.controllers))?;
        let mount = mounts.0.iter().find(|mount| {
            let has = |name: &str| mount.super_options.contains_key(name);
            mount.fs_type == kind && controller.is_none_or(has)
        })?;
        let inside = group.pathname.strip_prefix(mount.root.trim_end_matches('/'))?;
        Some(mount.mount_point.join(inside.trim_start_matches('/')))
    };
    [folder("cgroup", Some("cpuacct")), folder("cgroup2", None)].into_iter().flatten().collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use super::*;

    /// Held by a test that has children or waits for those of the process.
    pub(crate) fn alone() -> MutexGuard<'static, ()> {
        static ONE: Mutex<()> = Mutex::new(());
        ONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[test]
    fn others_are_what_is_neither_idle_nor_own_nor_the_kernels() {
        let before = Account { used: 100, whole: 1000, waited_for: 50, group: None, kernel: 0 };
        let after = Account { used: 300, whole: 2000, waited_for: 150, group: None, kernel: 0 };
        assert!((after.others_since(before) - 0.1).abs() < 1e-9);
        assert_eq!(before.others_since(before), 0.0);
        // Children whose time is counted before the machine's.
        let ahead = Account { waited_for: 500, ..after };
        assert_eq!(ahead.others_since(before), 0.0);
        let writing = Account { kernel: 60, ..after };
        assert!((writing.others_since(before) - 0.04).abs() < 1e-9);
    }

    /// The larger count is the right one: each lacks something.
    #[test]
    fn own_time_is_the_larger_count() {
        let before = Account { used: 0, whole: 0, waited_for: 50, group: Some(10), kernel: 0 };
        let after = |waited_for, group| Account { waited_for, group, ..before };
        assert_eq!(after(90, Some(20)).own_ticks_since(before), 40);
        assert_eq!(after(60, Some(110)).own_ticks_since(before), 100);
        assert_eq!(after(60, None).own_ticks_since(before), 10);
    }

    /// `kthreadd` is a thread of the kernel, and this process is none.
    #[test]
    fn threads_of_the_kernel_are_known() {
        let all = all_processes();
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(all.iter().any(|stat| stat.pid == own && !is_of_kernel(stat)));
        // A container does not see it.
        let of_kernel = all.iter().find(|stat| stat.comm == "kthreadd");
        assert!(of_kernel.is_none_or(is_of_kernel));
    }

    #[test]
    fn group_of_version_2_says_its_time() {
        assert_eq!(usage_ns("usage_usec 12\nuser_usec 10\n"), Some(12_000));
        assert_eq!(usage_ns("user_usec 10\n"), None);
    }
}
