//! Control groups: which there are below one, and which processes are in them.

use std::collections::HashSet;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A control group and all below it.
#[derive(Debug, Default)]
pub(super) struct Groups {
    /// Their numbers, as the kernel has them.
    pub(super) ids: HashSet<u64>,
    /// The processes in them.
    pub(super) processes: HashSet<u32>,
}

/// What another look at the same group found different.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Changes {
    pub(super) new_ids: Vec<u64>,
    pub(super) gone_ids: Vec<u64>,
    pub(super) new_processes: Vec<u32>,
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
            groups.ids.insert(metadata.ino());
            groups.processes.extend(processes_in(&folder));
            let Ok(entries) = std::fs::read_dir(&folder) else { continue };
            rest.extend(
                entries
                    .flatten()
                    .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
                    .map(|entry| entry.path()),
            );
        }
        Ok(groups)
    }

    /// What is there now is this, from now on.
    pub(super) fn become_and_compare(&mut self, now: Groups) -> Changes {
        let changes = Changes {
            new_ids: now.ids.difference(&self.ids).copied().collect(),
            gone_ids: self.ids.difference(&now.ids).copied().collect(),
            new_processes: now.processes.difference(&self.processes).copied().collect(),
        };
        *self = now;
        changes
    }
}

/// Those of other name spaces are listed as 0.
fn processes_in(group: &Path) -> Vec<u32> {
    // A group of threads has no list of processes.
    let text = std::fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).filter(|process| *process != 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The watcher of a control group reports removed groups and processes that leave and return.
    ///
    /// Guarantee: trace/control-groups
    #[test]
    fn removed_groups_and_returning_processes_are_seen() {
        let groups = |ids: &[u64], processes: &[u32]| Groups {
            ids: ids.iter().copied().collect(),
            processes: processes.iter().copied().collect(),
        };
        let changes = |new_ids: &[u64], gone_ids: &[u64], new_processes: &[u32]| Changes {
            new_ids: new_ids.to_vec(),
            gone_ids: gone_ids.to_vec(),
            new_processes: new_processes.to_vec(),
        };
        let mut known = Groups::default();
        assert_eq!(known.become_and_compare(groups(&[1], &[7])), changes(&[1], &[], &[7]));
        assert_eq!(known.become_and_compare(groups(&[1], &[7])), changes(&[], &[], &[]));
        assert_eq!(known.become_and_compare(groups(&[2], &[])), changes(&[2], &[1], &[]));
        assert_eq!(known.become_and_compare(groups(&[2], &[7])), changes(&[], &[], &[7]));
        assert_eq!(known.become_and_compare(Groups::default()), changes(&[], &[2], &[]));
    }
}
