//! Control groups for tests, in whichever hierarchy lets one be made.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A new control group, removed at the end.
pub(crate) struct Group(PathBuf);

impl Group {
    /// None where none can be made.
    pub(crate) fn new() -> Option<Group> {
        points().into_iter().find_map(|point| Group::below(&point).ok())
    }

    /// One that has this file, of a controller, as far as there is one.
    pub(crate) fn with_file(name: &str) -> Option<Group> {
        let groups = points().into_iter().filter_map(|point| Group::below(&point).ok());
        groups.into_iter().find(|group| group.0.join(name).exists())
    }

    fn below(point: &Path) -> io::Result<Group> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "holdfast-test-{}-{}",
            std::process::id(),
            MADE.fetch_add(1, Ordering::Relaxed)
        );
        let path = point.join(name);
        std::fs::create_dir(&path)?;
        Ok(Group(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn take(&self, process: u32) {
        std::fs::write(self.0.join("cgroup.procs"), process.to_string()).unwrap();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Processes leave it as they end.
        for _ in 0..200 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// The roots of all hierarchies, but for that of cpusets: a new group there has no CPUs at first,
/// and takes no process.
fn points() -> Vec<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let points = mounts.lines().filter_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        after.starts_with("cgroup").then(|| before.split(' ').nth(4)).flatten()
    });
    points.filter(|point| !point.contains("cpuset")).map(PathBuf::from).collect()
}
