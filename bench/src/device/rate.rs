//! A limit to what a block device does in a second, set by the kernel's control groups.
//!
//! Invariant: the limit ends with its value; after a kill it ends with the device, which is the only
//! one that it names.

use std::fs;
use std::path::{Path, PathBuf};

/// Of the first version: the group of all processes may be limited, and what the kernel writes back
/// counts there.
const FIRST_VERSION: &str = "/sys/fs/cgroup/blkio";
/// Of the second version only other groups may be.
const SECOND_VERSION: &str = "/sys/fs/cgroup";

/// What a device does in a second; nothing is said of what there is none of.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rates {
    pub(crate) read_bytes: Option<u64>,
    pub(crate) reads: Option<u64>,
    pub(crate) written_bytes: Option<u64>,
    pub(crate) writes: Option<u64>,
}

impl Rates {
    /// With their names in both versions.
    fn named(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        [
            ("read_bps", "rbps", self.read_bytes),
            ("read_iops", "riops", self.reads),
            ("write_bps", "wbps", self.written_bytes),
            ("write_iops", "wiops", self.writes),
        ]
        .into_iter()
        .filter_map(|(first, second, rate)| Some((first, second, rate?)))
    }
}

/// In force until it is dropped.
#[derive(Debug)]
pub(crate) enum RateLimit {
    /// Lines that end it, each with its file.
    OfAll(Vec<(PathBuf, String)>),
    /// A group of this process; it was in the other one before.
    OfGroup { group: PathBuf, before: PathBuf },
}

impl RateLimit {
    /// Has the device with that number (`major:minor`) work no faster than this; the text says why
    /// the kernel does not.
    pub(crate) fn new(device: &str, rates: &Rates) -> Result<RateLimit, String> {
        let first =
            |name: &str| PathBuf::from(format!("{FIRST_VERSION}/blkio.throttle.{name}_device"));
        if first("read_bps").exists() {
            let mut set = Vec::new();
            for (name, _, rate) in rates.named() {
                set.push((first(name), format!("{device} 0")));
                if let Err(reason) = write(first(name), &format!("{device} {rate}")) {
                    drop(RateLimit::OfAll(set));
                    return Err(reason);
                }
            }
            return Ok(RateLimit::OfAll(set));
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
        let rates: Vec<String> =
            rates.named().map(|(_, name, rate)| format!("{name}={rate}")).collect();
        write(group.join("io.max"), &format!("{device} {}", rates.join(" ")))?;
        write(group.join("cgroup.procs"), &std::process::id().to_string())?;
        Ok(limit)
    }
}

impl Drop for RateLimit {
    fn drop(&mut self) {
        // What fails here ends with the device, or leaves an empty group.
        match self {
            RateLimit::OfAll(set) => {
                for (file, line) in set {
                    let _ = fs::write(file, line);
                }
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
