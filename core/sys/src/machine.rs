//! The memory that this process may count on: that of the machine, or of its control group, which
//! may have less.

#![forbid(unsafe_code)]

use std::fs::read_to_string;
use std::path::Path;

/// The memory of the machine, and the limit of the control group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// `MemTotal` of the machine.
    pub total_bytes: u64,
    /// The lowest limit of the control group and of those above it, if there is one.
    pub group_bytes: Option<u64>,
}

impl Memory {
    /// `None` where the kernel tells nothing.
    #[must_use]
    pub fn of_this_process() -> Option<Memory> {
        Memory::below(Path::new("/"))
    }

    fn below(root: &Path) -> Option<Memory> {
        let text = read_to_string(root.join("proc/meminfo")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
        let groups = read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
        let limits = groups.lines().filter_map(|line| {
            let (_, line) = line.split_once(':')?;
            let (controllers, path) = line.split_once(':')?;
            let (mount, file) = match controllers {
                "" => ("sys/fs/cgroup", "memory.max"),
                _ if controllers.split(',').any(|name| name == "memory") => {
                    ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
                }
                _ => return None,
            };
            let mount = root.join(mount);
            // In a container the path may be that of the host, of which only the end is mounted:
            // then the root counts.
            let group = mount.join(path.trim_start_matches('/'));
            let above = group.ancestors().take_while(|above| above.starts_with(&mount));
            above
                .filter_map(|above| {
                    read_to_string(above.join(file)).ok()?.trim().parse::<u64>().ok()
                })
                .min()
        });
        Some(Memory { total_bytes: kib << 10, group_bytes: limits.min() })
    }

    /// What there is.
    #[must_use]
    pub fn bytes(self) -> u64 {
        self.group_bytes.map_or(self.total_bytes, |group| group.min(self.total_bytes))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir_all, write};

    use super::*;

    const TOTAL: u64 = 8 << 30;

    fn memory(groups: &str, files: &[(&str, &str)]) -> Memory {
        let root = tempfile::tempdir().unwrap();
        create_dir_all(root.path().join("proc/self")).unwrap();
        write(root.path().join("proc/meminfo"), "MemFree: 1 kB\nMemTotal:        8388608 kB\n")
            .unwrap();
        write(root.path().join("proc/self/cgroup"), groups).unwrap();
        for (path, text) in files {
            let path = root.path().join("sys/fs/cgroup").join(path);
            create_dir_all(path.parent().unwrap()).unwrap();
            write(path, text).unwrap();
        }
        Memory::below(root.path()).unwrap()
    }

    /// Guarantee: keeper/pool-limit
    #[test]
    fn the_lowest_limit_of_control_groups_counts() {
        assert_eq!(memory("", &[]).bytes(), TOTAL);
        let second = "0::/user.slice/app\n";
        assert_eq!(memory(second, &[("user.slice/app/memory.max", "max\n")]).bytes(), TOTAL);
        let files = [
            ("user.slice/app/memory.max", "2000000000\n"),
            ("user.slice/memory.max", "1000000000\n"),
        ];
        assert_eq!(memory(second, &files).bytes(), 1_000_000_000);
        let first = "5:cpu,memory:/docker/x\n2:pids:/y\n";
        assert_eq!(
            memory(first, &[("memory/memory.limit_in_bytes", "3000000000\n")]).bytes(),
            3_000_000_000
        );
        // What a group without a limit says.
        let none = [("memory/docker/x/memory.limit_in_bytes", "9223372036854771712\n")];
        assert_eq!(memory(first, &none).bytes(), TOTAL);
    }
}
