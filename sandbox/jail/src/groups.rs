//! Control groups, version 1 or 2: how many threads a program has, and how much memory it uses.
//!
//! A group is made below the host's own for each program, and removed when the program is gone.
//! What a killed host has left is removed by the next one; nothing else is touched.

#![forbid(unsafe_code)]

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::limits::JailLimits;

const MOUNT: &str = "/sys/fs/cgroup";
/// A group whose last process is gone cannot always be removed at once.
const REMOVALS: u32 = 50;
const REMOVAL_PAUSE: Duration = Duration::from_millis(2);

/// Where groups can be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Hierarchies {
    /// Version 1: one for each controller.
    Separate { memory: PathBuf, pids: PathBuf },
    /// Version 2.
    Unified(PathBuf),
}

/// The groups of one program.
#[derive(Debug)]
pub(crate) struct Groups {
    memory: PathBuf,
    /// The same as `memory` in version 2.
    pids: PathBuf,
    is_unified: bool,
}

/// Looks for groups of this process in which it can make others.
pub(crate) fn find() -> Result<Hierarchies, (String, i32)> {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let refused = |error: io::Error| {
        ("make a control group".to_owned(), error.raw_os_error().unwrap_or(libc::EACCES))
    };
    let unified = of_controller(&own, "").map(|path| Path::new(MOUNT).join(path));
    if let Some(path) = unified
        && fs::read_to_string(path.join("cgroup.subtree_control")).is_ok_and(|text| {
            ["memory", "pids"].iter().all(|name| text.split_whitespace().any(|word| word == *name))
        })
    {
        return try_out(&path).map(|()| Hierarchies::Unified(path)).map_err(refused);
    }
    let separate =
        |name| of_controller(&own, name).map(|path| Path::new(MOUNT).join(name).join(path));
    let (Some(memory), Some(pids)) = (separate("memory"), separate("pids")) else {
        return Err(("find the controllers pids and memory".to_owned(), libc::ENOENT));
    };
    try_out(&memory).and_then(|()| try_out(&pids)).map_err(refused)?;
    Ok(Hierarchies::Separate { memory, pids })
}

/// The group of a controller in `/proc/PID/cgroup`, without its leading slash; of version 2 when
/// the name is empty.
fn of_controller<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (names, path) = (fields.next()?, fields.next()?);
        names.split(',').any(|found| found == name).then_some(path.trim_start_matches('/'))
    })
}

fn new_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("holdfast-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The host that made a group of this name.
fn owner(name: &str) -> Option<u32> {
    name.strip_prefix("holdfast-")?.split_once('-')?.0.parse().ok()
}

fn try_out(parent: &Path) -> io::Result<()> {
    for entry in fs::read_dir(parent)?.flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(owner);
        if owner.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
            // A group with processes in it cannot be removed.
            let _ = fs::remove_dir(entry.path());
        }
    }
    let path = parent.join(new_name());
    fs::create_dir(&path)?;
    fs::remove_dir(&path)
}

impl Groups {
    /// Makes groups with these limits, still empty.
    pub(crate) fn make(hierarchies: &Hierarchies, limits: &JailLimits) -> io::Result<Groups> {
        let name = new_name();
        let groups = match hierarchies {
            Hierarchies::Separate { memory, pids } => {
                Groups { memory: memory.join(&name), pids: pids.join(&name), is_unified: false }
            }
            Hierarchies::Unified(path) => {
                Groups { memory: path.join(&name), pids: path.join(&name), is_unified: true }
            }
        };
        fs::create_dir(&groups.memory)?;
        if !groups.is_unified {
            fs::create_dir(&groups.pids)?;
        }
        fs::write(groups.pids.join("pids.max"), limits.threads.to_string())?;
        if let Some(bytes) = limits.memory_bytes {
            let file = if groups.is_unified { "memory.max" } else { "memory.limit_in_bytes" };
            fs::write(groups.memory.join(file), bytes.to_string())?;
            // Memory that is swapped out is memory in use; a machine without swap accounting has no
            // such file.
            let swap = groups.memory.join("memory.swap.max");
            if groups.is_unified && swap.exists() {
                fs::write(swap, "0")?;
            }
        }
        Ok(groups)
    }

    /// Puts a process into them.
    pub(crate) fn add(&self, pid: u32) -> io::Result<()> {
        fs::write(self.memory.join("cgroup.procs"), pid.to_string())?;
        if !self.is_unified {
            fs::write(self.pids.join("cgroup.procs"), pid.to_string())?;
        }
        Ok(())
    }

    /// Whether the kernel ended a process of theirs for want of memory.
    pub(crate) fn ran_out_of_memory(&self) -> bool {
        let file = if self.is_unified { "memory.events" } else { "memory.oom_control" };
        let text = fs::read_to_string(self.memory.join(file)).unwrap_or_default();
        text.lines()
            .filter_map(|line| line.strip_prefix("oom_kill "))
            .any(|count| count.trim() != "0")
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for path in [&self.memory, &self.pids] {
            for _ in 0..REMOVALS {
                match fs::remove_dir(path) {
                    Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                        std::thread::sleep(REMOVAL_PAUSE)
                    }
                    // Gone, or not ours to remove any more.
                    _ => break,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_names_its_host() {
        assert_eq!(owner(&new_name()), Some(std::process::id()));
        assert_eq!(owner("holdfast-x-1"), None);
        assert_eq!(owner("session-1.scope"), None);
    }

    #[test]
    fn controller_group_is_found_in_cgroup_v1_and_v2() {
        let text = "9:name=systemd:/\n4:memory:/a/b\n3:cpu,cpuacct:/c\n0::/d\n";
        assert_eq!(of_controller(text, "memory"), Some("a/b"));
        assert_eq!(of_controller(text, "cpuacct"), Some("c"));
        assert_eq!(of_controller(text, ""), Some("d"));
        assert_eq!(of_controller(text, "pids"), None);
    }
}
