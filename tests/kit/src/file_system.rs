//! A real file system on a loop device, whose power can be cut: `FS_IOC_SHUTDOWN` stops ext4 and
//! xfs at once, with nothing written back that was not synced.
//!
//! A process that uses it is in a mount name space of its own (`unshare -m`), so that mounts end
//! with it.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// `_IOR('X', 125, __u32)`.
const FS_IOC_SHUTDOWN: libc::c_ulong = 0x8004_587d;
/// Nothing is written back, not even the file system's own journal.
static NO_LOG_FLUSH: u32 = 2;

/// A kind of file system.
#[derive(Debug)]
pub struct FileSystemKind {
    name: &'static str,
    program: &'static str,
    arguments: &'static [&'static str],
    bytes: u64,
}

impl FileSystemKind {
    /// As `mount` has it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }
}

/// All of them.
pub const KINDS: [FileSystemKind; 2] = [
    FileSystemKind {
        name: "ext4",
        program: "mkfs.ext4",
        arguments: &["-q", "-F"],
        bytes: 96 << 20,
    },
    FileSystemKind { name: "xfs", program: "mkfs.xfs", arguments: &["-q", "-f"], bytes: 320 << 20 },
];

/// What cutting the power needs and this machine has not.
pub fn lacking() -> Option<String> {
    if holdfast_sys::file::effective_user() != 0 {
        return Some("cutting the power of a file system needs root".to_owned());
    }
    for kind in &KINDS {
        let found = Command::new(kind.program)
            .arg("-V")
            .output()
            .is_ok_and(|output| output.status.success());
        if !found {
            return Some(format!("{} is not installed (./test does that)", kind.program));
        }
    }
    let tried = tempfile::tempdir().map_err(|error| error.to_string()).and_then(|directory| {
        KINDS.iter().try_for_each(|kind| FileSystem::new(kind, directory.path())?.mount())
    });
    tried.err().map(|error| format!("this system mounts no loop device: {error}"))
}

/// One that is mounted, until it is dropped.
#[derive(Debug)]
pub struct FileSystem {
    kind: &'static FileSystemKind,
    image: PathBuf,
    place: PathBuf,
    mounted: bool,
}

fn ran(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| error.to_string())?;
    if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

impl FileSystem {
    /// What it is.
    #[must_use]
    pub fn kind(&self) -> &'static FileSystemKind {
        self.kind
    }

    /// Where it is mounted.
    #[must_use]
    pub fn place(&self) -> &Path {
        &self.place
    }

    /// Makes one, in a file of the directory.
    ///
    /// # Errors
    ///
    /// What the program that makes it says.
    pub fn new(kind: &'static FileSystemKind, directory: &Path) -> Result<FileSystem, String> {
        let (image, place) =
            (directory.join(format!("{}.disk", kind.name)), directory.join(kind.name));
        let file = File::create(&image).map_err(|error| error.to_string())?;
        file.set_len(kind.bytes).map_err(|error| error.to_string())?;
        ran(Command::new(kind.program).args(kind.arguments).arg(&image))?;
        std::fs::create_dir_all(&place).map_err(|error| error.to_string())?;
        Ok(FileSystem { kind, image, place, mounted: false })
    }

    /// Mounts it.
    ///
    /// # Errors
    ///
    /// What `mount` says.
    pub fn mount(&mut self) -> Result<(), String> {
        ran(Command::new("mount")
            .args(["-o", "loop", "-t", self.kind.name])
            .args([&self.image, &self.place]))?;
        self.mounted = true;
        Ok(())
    }

    /// Unmounts it.
    ///
    /// # Panics
    ///
    /// It stays busy.
    pub fn unmount(&mut self) {
        self.mounted = false;
        // A file that was closed just now may keep it busy for a moment.
        for _ in 0..50 {
            if ran(Command::new("umount").arg(&self.place)).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("{} stays busy", self.place.display());
    }

    /// Stops it with nothing written back that was not synced.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn cut_power(&self) -> io::Result<()> {
        let directory = File::open(&self.place)?;
        // SAFETY: the descriptor is open; the call reads one word of ours.
        let done =
            unsafe { libc::ioctl(directory.as_raw_fd(), FS_IOC_SHUTDOWN, &raw const NO_LOG_FLUSH) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

impl Drop for FileSystem {
    fn drop(&mut self) {
        if self.mounted {
            let _ = ran(Command::new("umount").arg("-l").arg(&self.place));
        }
    }
}
