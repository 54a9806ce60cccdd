//! What a program with a root of its own may change of granted files besides their bytes, by what
//! is granted.
//!
//! Through a process file system a path leads to whatever the program has open, standard input, its
//! own file and its heaps among them, on the host's writable mounts. So where one is granted,
//! nothing but bytes is changed anywhere. A directory whose mode has a special bit would lose it to
//! any change of its mode: the sticky bit of `/tmp` keeps users apart.

#![forbid(unsafe_code)]

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use holdfast_types::PathAccess;

use crate::jail::PathGrant;
use crate::policy::modes::SPECIAL_BITS;
use crate::policy::{Group, Policy};

/// The policy with the groups that these grants allow.
pub(crate) fn allow(policy: Policy, grants: &[PathGrant]) -> Policy {
    if grants.is_empty() || grants.iter().any(|grant| holds_processes(&grant.host)) {
        return policy;
    }
    let has_special_bits = |grant: &PathGrant| {
        // What cannot be looked at may have them.
        let mode = fs::metadata(&grant.host).map_or(u64::MAX, |found| found.mode().into());
        grant.access != PathAccess::ReadOnly && mode & SPECIAL_BITS != 0
    };
    let policy = policy.with(Group::Attributes);
    if grants.iter().any(has_special_bits) { policy } else { policy.with(Group::Modes) }
}

/// Whether a process file system is at a path, below it or around it, as far as this process's mounts
/// say.
fn holds_processes(path: &Path) -> bool {
    let Ok(mounts) = fs::read_to_string("/proc/self/mountinfo") else { return true };
    let Ok(path) = path.canonicalize() else { return true };
    let is_there = |line: &str| {
        let Some((place, kind)) = line.split_once(" - ") else { return true };
        let Some(place) = place.split(' ').nth(4) else { return true };
        // Spaces and the like are written as numbers.
        let place = Path::new(place.split('\\').next().unwrap_or_default());
        kind.starts_with("proc ") && (place.starts_with(&path) || path.starts_with(place))
    };
    mounts.lines().any(is_there)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_file_systems_are_found_from_all_sides() {
        for path in ["/proc", "/proc/self", "/"] {
            assert!(holds_processes(Path::new(path)), "{path}");
        }
        assert!(!holds_processes(Path::new("/usr")));
        assert!(holds_processes(Path::new("/not there")));
    }
}
