//! Probes for memory that keeps its bytes when the machine starts again, and for file systems that
//! let it be mapped.

#![allow(unsafe_code, reason = "whether a file can be mapped synchronously is found by mapping it")]

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

/// What the memory under a file system survives, as its driver says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Persistence {
    /// A reset: it is ordinary RAM that the firmware does not clear, or nothing says more.
    Reset,
    /// The plug, too: the platform brings what reached memory to safety.
    PowerCut,
}

/// Whether new files of a directory can be mapped with MAP_SYNC: their pages are the memory of the
/// device itself (DAX), and what is written back from the processor's caches is then durable
/// without a system call.
///
/// # Errors
/// What `open` reports for a trial file, which has no name (or, where that is not possible, is
/// removed at once).
pub fn maps_synchronously(directory: &Path) -> io::Result<bool> {
    let file = trial_file(directory)?;
    let len = rustix::param::page_size();
    file.set_len(len as u64)?;
    let (prot, flags) =
        (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED_VALIDATE | MapFlags::SYNC);
    // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists; it is
    // never accessed.
    match unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, prot, flags, &file, 0) } {
        Ok(mapped) => {
            // SAFETY: the mapping made above, which no caller has seen.
            unsafe { rustix::mm::munmap(mapped, len)? };
            Ok(true)
        }
        // Not DAX; a kernel before 4.15; a file system that maps no files at all.
        Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::NODEV) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn trial_file(directory: &Path) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => return Ok(file.into()),
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {}
        Err(error) => return Err(error.into()),
    }
    let path = directory.join(format!(".sync.tmp-{}", std::process::id()));
    let file =
        crate::file::private_options().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

/// What the device under a directory survives. What is not known counts as [`Persistence::Reset`].
///
/// # Errors
/// What `stat` reports for the directory.
pub fn persistence(directory: &Path) -> io::Result<Persistence> {
    let device = directory.metadata()?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    Ok(device_persistence(Path::new("/sys"), major, minor))
}

/// A device of libnvdimm has a bus (`ndbusN`, with a `provider`) and a region (`regionN`, with a
/// `persistence_domain` where there is one) above it: Documentation/ABI/testing/sysfs-bus-nvdimm of
/// the kernel.
fn device_persistence(sys: &Path, major: u32, minor: u32) -> Persistence {
    let Ok(device) = sys.join(format!("dev/block/{major}:{minor}")).canonicalize() else {
        return Persistence::Reset;
    };
    let above = |name: &str| -> Option<String> {
        let found: PathBuf =
            device.ancestors().map(|ancestor| ancestor.join(name)).find(|path| path.is_file())?;
        Some(std::fs::read_to_string(found).ok()?.trim().to_owned())
    };
    // Reserved by `memmap=` on the kernel's command line: RAM like any other.
    if above("provider").is_none_or(|provider| provider == "e820") {
        return Persistence::Reset;
    }
    match above("persistence_domain").as_deref() {
        Some("cpu_cache" | "memory_controller") => Persistence::PowerCut,
        _ => Persistence::Reset,
    }
}

/// Whether a directory lies on a block device of persistent memory, mapped or not.
#[must_use]
pub fn is_on_persistent_memory(directory: &Path) -> bool {
    let Ok(found) = directory.metadata() else { return false };
    let device = format!(
        "/sys/dev/block/{}:{}",
        rustix::fs::major(found.dev()),
        rustix::fs::minor(found.dev())
    );
    let is_bus = |name: &std::ffi::OsStr| name.to_string_lossy().starts_with("ndbus");
    Path::new(&device).canonicalize().is_ok_and(|path| path.iter().any(is_bus))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Neither a tmpfs nor a disk maps synchronously and no trial file stays.
    ///
    /// Guarantee: heap/level-never-weaker
    #[test]
    fn tmpfs_and_disk_map_nothing_synchronously() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!maps_synchronously(folder.path()).unwrap());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        if Path::new("/dev/shm").is_dir() {
            assert!(!maps_synchronously(Path::new("/dev/shm")).unwrap());
        }
        assert!(maps_synchronously(&folder.path().join("none")).is_err());
    }

    /// What a device survives is what its bus and region say.
    ///
    /// Guarantee: heap/reset-ordered
    #[test]
    fn device_survival_follows_bus_and_region() {
        let sys = tempfile::tempdir().unwrap();
        let device = |bus: &str, provider: &str, domain: Option<&str>, number: u32| {
            let bus = sys.path().join("devices").join(bus);
            let block = bus.join("region0/namespace0.0/block/pmem0/pmem0p1");
            std::fs::create_dir_all(&block).unwrap();
            std::fs::write(bus.join("provider"), format!("{provider}\n")).unwrap();
            if let Some(domain) = domain {
                std::fs::write(bus.join("region0/persistence_domain"), format!("{domain}\n"))
                    .unwrap();
            }
            std::fs::create_dir_all(sys.path().join("dev/block")).unwrap();
            std::os::unix::fs::symlink(block, sys.path().join(format!("dev/block/259:{number}")))
                .unwrap();
            device_persistence(sys.path(), 259, number)
        };
        assert_eq!(device("ndbus0", "e820", Some("memory_controller"), 0), Persistence::Reset);
        assert_eq!(
            device("ndbus1", "ACPI.NFIT", Some("memory_controller"), 1),
            Persistence::PowerCut
        );
        assert_eq!(device("ndbus2", "ACPI.NFIT", Some("cpu_cache"), 2), Persistence::PowerCut);
        assert_eq!(device("ndbus3", "ACPI.NFIT", None, 3), Persistence::Reset);
        assert_eq!(device("ndbus4", "something", Some(""), 4), Persistence::Reset);
        assert_eq!(device_persistence(sys.path(), 8, 1), Persistence::Reset, "no such device");
    }

    #[test]
    fn ordinary_directories_are_on_no_persistent_memory() {
        assert!(!is_on_persistent_memory(Path::new("/proc")));
        assert!(!is_on_persistent_memory(Path::new("/none")));
    }
}
