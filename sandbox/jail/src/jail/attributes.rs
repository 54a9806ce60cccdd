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
use crate::program::LIBRARY_DIRECTORIES;

const MOUNTS: &str = "/proc/self/mountinfo";

/// The policy with the groups that these grants allow.
pub(crate) fn allow(policy: Policy, grants: &[PathGrant]) -> Policy {
    let libraries = LIBRARY_DIRECTORIES.into_iter().map(Path::new);
    let mut places = libraries.chain(grants.iter().map(|grant| &*grant.host));
    if grants.is_empty() || holds_processes(&mut places) {
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

/// Whether a process file system is at one of these paths, below it or around it, as far as this
/// process's mounts say. Paths that are not there, as some of the system's libraries, hold none.
fn holds_processes(paths: &mut dyn Iterator<Item = &Path>) -> bool {
    let Ok(mounts) = fs::read_to_string(MOUNTS) else { return true };
    paths.filter(|path| path.symlink_metadata().is_ok()).any(|path| {
        let Ok(path) = path.canonicalize() else { return true };
        mounts.lines().any(|line| mounts_processes(line, &path))
    })
}

/// Whether a line of the mounts is of a process file system that a path holds, or lies in.
fn mounts_processes(line: &str, path: &Path) -> bool {
    let Some((place, kind)) = line.split_once(" - ") else { return true };
    let Some(place) = place.split(' ').nth(4) else { return true };
    // Spaces and the like are written as numbers behind a backslash, which is not worth reading.
    let is_near = place.contains('\\') || {
        let place = Path::new(place);
        place.starts_with(path) || path.starts_with(place)
    };
    kind.starts_with("proc ") && is_near
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_file_systems_are_found_from_all_sides() {
        let holds = |path: &str| holds_processes(&mut [Path::new(path)].into_iter());
        for path in ["/proc", "/proc/self", "/"] {
            assert!(holds(path), "{path}");
        }
        assert!(!holds("/usr") && !holds("/not there"));
        let line = |place| format!("36 35 0:31 / {place} rw,relatime shared:1 - proc proc rw");
        let near = |place, path| mounts_processes(&line(place), Path::new(path));
        assert!(near("/a/b/proc", "/a/b") && near("/a/b", "/a/b/c"));
        assert!(near("/a/my\\040root/proc", "/a/my root"));
        assert!(!near("/a/bc/proc", "/a/b"));
        assert!(!mounts_processes("36 35 0:31 / /a/b rw - tmpfs proc rw", Path::new("/a")));
    }
}
