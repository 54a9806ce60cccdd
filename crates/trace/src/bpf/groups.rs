//! Control groups: which there are below one, and which processes are in them.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A control group and all below it.
#[derive(Debug, Default)]
pub(super) struct Groups {
    /// Their numbers, as the kernel has them.
    pub(super) ids: Vec<u64>,
    /// The processes in them.
    pub(super) processes: Vec<u32>,
}

impl Groups {
    /// What is there now. Groups that vanish meanwhile are passed over.
    pub(super) fn below(path: &Path) -> io::Result<Groups> {
        let mut groups = Groups::default();
        // Without that file it is any other directory.
        std::fs::metadata(path.join("cgroup.procs"))?;
        let mut rest: Vec<PathBuf> = vec![path.to_owned()];
        while let Some(folder) = rest.pop() {
            let Ok(metadata) = std::fs::metadata(&folder) else { continue };
            groups.ids.push(metadata.ino());
            groups.processes.extend(processes_in(&folder));
            let Ok(entries) = std::fs::read_dir(&folder) else { continue };
            rest.extend(
                entries
                    .flatten()
                    .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
                    .map(|entry| entry.path()),
            );
        }
        groups.processes.sort_unstable();
        groups.processes.dedup();
        Ok(groups)
    }
}

/// Those of other name spaces are listed as 0.
fn processes_in(group: &Path) -> Vec<u32> {
    // A group of threads has no list of processes.
    let text = std::fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).filter(|process| *process != 0).collect()
}
