//! A limit to the bytes that a block device takes in a second, set by the kernel's control groups.
//!
//! Invariant: the limit ends with its value; after a kill it ends with the device, which is the only
//! one that it names.

use std::fs;
use std::path::{Path, PathBuf};

/// Of the first version: the group of all processes may be limited, and what the kernel writes back
/// counts there.
const FIRST_VERSION: &str = "/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device";
/// Of the second version only other groups may be.
const SECOND_VERSION: &str = "/sys/fs/cgroup";

/// In force until it is dropped.
#[derive(Debug)]
pub(crate) enum RateLimit {
    /// The device, as the kernel names it.
    OfAll(String),
    /// A group of this process; it was in the other one before.
    OfGroup { group: PathBuf, before: PathBuf },
}

impl RateLimit {
    /// Lets the device with that number (`major:minor`) take so many bytes in a second; the text
    /// says why the kernel does not.
    pub(crate) fn new(device: &str, bytes: u64) -> Result<RateLimit, String> {
        if Path::new(FIRST_VERSION).exists() {
            return write(FIRST_VERSION, &format!("{device} {bytes}"))
                .map(|()| RateLimit::OfAll(device.to_owned()));
        }
        let root = Path::new(SECOND_VERSION);
        let before = fs::read_to_string("/proc/self/cgroup").map_err(|error| error.to_string())?;
        let before = before.lines().find_map(|line| line.strip_prefix("0::/"));
        let before = root.join(before.ok_or("no control groups of the second version")?);
        // Fails where it is on already in a group with processes; the next step tells.
        let _ = fs::write(root.join("cgroup.subtree_control"), "+io");
        let group = root.join(format!("holdfast-bench-{}", std::process::id()));
        fs::create_dir(&group).map_err(|error| format!("{}: {error}", group.display()))?;
        let limit = RateLimit::OfGroup { group: group.clone(), before };
        write(group.join("io.max"), &format!("{device} wbps={bytes}"))?;
        write(group.join("cgroup.procs"), &std::process::id().to_string())?;
        Ok(limit)
    }
}

impl Drop for RateLimit {
    fn drop(&mut self) {
        // What fails here ends with the device, or leaves an empty group.
        match self {
            RateLimit::OfAll(device) => {
                let _ = fs::write(FIRST_VERSION, format!("{device} 0"));
            }
            RateLimit::OfGroup { group, before } => {
                let own = std::process::id().to_string();
                let _ = fs::write(before.join("cgroup.procs"), own);
                let _ = fs::remove_dir(group);
            }
        }
    }
}

fn write(file: impl AsRef<Path>, text: &str) -> Result<(), String> {
    let file = file.as_ref();
    fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))
}
