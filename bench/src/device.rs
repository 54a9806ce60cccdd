//! A block device of our own whose bytes are counted and whose speed can be limited: a file on the
//! disk behind a loop device, with ext4.
//!
//! Invariants:
//! - No other process writes to it, so what its counter says between two syncs is due to what was
//!   done in between.
//! - The mount is in a name space of this thread and the loop device goes with its mount, so both
//!   are gone with the process, however that ends; in order, they go when the value is dropped.
//!
//! What it must not do: mount anything that others can see.

#![allow(unsafe_code, reason = "a thread leaves the mounts that it shares with others")]

use std::fs::{self, DirBuilder, File};
use std::io::{self, Error};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{major, minor, syncfs};
use rustix::thread::{UnshareFlags, unshare_unsafe};

mod rate;

pub(crate) use rate::{RateLimit, Rates};

/// Room for all sides at once, and for an ext4 journal of the usual size.
const DEVICE_BYTES: u64 = 1 << 30;
/// The unit of the kernel's counters, whatever the device's own is.
const SECTOR_BYTES: u64 = 512;
/// Sectors read and written: the third and the seventh number of `/sys/block/*/stat`.
const READ_FIELD: usize = 2;
const WRITTEN_FIELD: usize = 6;

/// A mounted file system of its own.
#[derive(Debug)]
pub(crate) struct Device {
    mount: PathBuf,
    image: PathBuf,
    /// `major:minor`, as the kernel names it.
    number: String,
    counters: PathBuf,
    /// What `syncfs` is asked with; closed before the mount goes.
    root: Option<File>,
}

impl Device {
    /// Makes it below a directory; the text says why there is none where the machine does not allow
    /// it.
    pub(crate) fn new(directory: &Path) -> io::Result<Result<Device, String>> {
        Device::with_bytes(directory, DEVICE_BYTES)
    }

    /// The same with another size.
    pub(crate) fn with_bytes(directory: &Path, bytes: u64) -> io::Result<Result<Device, String>> {
        if !rustix::process::geteuid().is_root() {
            return Ok(Err("loop devices and mounts need root".to_owned()));
        }
        // SAFETY: no table of descriptors is given up, only the view of mounts.
        if let Err(error) = unsafe { unshare_unsafe(UnshareFlags::NEWNS) } {
            return Ok(Err(format!("no mount name space can be made ({error})")));
        }
        let (image, mount) = (directory.join("device"), directory.join("mount"));
        File::create(&image)?.set_len(bytes)?;
        DirBuilder::new().mode(0o700).create(&mount)?;
        // Tables are written now rather than behind the back of the measurement.
        let options = "lazy_itable_init=0,lazy_journal_init=0,nodiscard";
        let made = run("mount", &["--make-rprivate", "/"])
            .and_then(|()| {
                run("mkfs.ext4", &["-q", "-F", "-b", "4096", "-E", options, path(&image)?])
            })
            .and_then(|()| attach(&image, &mount));
        if let Err(complaint) = made {
            fs::remove_file(&image)?;
            return Ok(Err(complaint));
        }
        let mut device =
            Device { counters: PathBuf::new(), number: String::new(), root: None, mount, image };
        device.look()?;
        Ok(Ok(device))
    }

    /// Finds out which device the mount is of.
    fn look(&mut self) -> io::Result<()> {
        let number = fs::metadata(&self.mount)?.dev();
        self.number = format!("{}:{}", major(number), minor(number));
        self.counters = format!("/sys/dev/block/{}/stat", self.number).into();
        self.root = Some(File::open(&self.mount)?);
        self.written_bytes().map(drop)
    }

    /// As after a restart of the machine: nothing of its file system is in memory. What it counted
    /// begins again, and no limit is in force.
    pub(crate) fn forget(&mut self) -> io::Result<()> {
        self.settle()?;
        self.root = None;
        let mount = path(&self.mount).map_err(Error::other)?;
        run("umount", &[mount])
            .and_then(|()| attach(&self.image, &self.mount))
            .map_err(Error::other)?;
        self.look()
    }

    /// Has it work no faster than this; the text says why the kernel refuses.
    pub(crate) fn slow_down(&self, rates: &Rates) -> Result<RateLimit, String> {
        RateLimit::new(&self.number, rates)
    }

    /// `major:minor`, as the kernel names it.
    pub(crate) fn number(&self) -> &str {
        &self.number
    }

    /// The file behind it.
    pub(crate) fn image(&self) -> &Path {
        &self.image
    }

    /// An empty private directory on it; what was there is gone.
    pub(crate) fn directory(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.mount.join(name);
        if path.exists() {
            fs::remove_dir_all(&path)?;
        }
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(path)
    }

    /// Waits until nothing is left to write.
    pub(crate) fn settle(&self) -> io::Result<()> {
        match &self.root {
            Some(root) => syncfs(root).map_err(Error::from),
            None => Ok(()),
        }
    }

    /// Bytes that the device was asked to write since it is there.
    pub(crate) fn written_bytes(&self) -> io::Result<u64> {
        self.counted(WRITTEN_FIELD)
    }

    /// Bytes that it was asked to read since it is there.
    pub(crate) fn read_bytes(&self) -> io::Result<u64> {
        self.counted(READ_FIELD)
    }

    fn counted(&self, field: usize) -> io::Result<u64> {
        let text = fs::read_to_string(&self.counters)?;
        parse_sectors(&text, field).ok_or_else(|| {
            Error::other(format!("{} does not count sectors", self.counters.display()))
        })
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.root = None;
        // What stays goes with the name space.
        let _ = Command::new("umount").arg(&self.mount).output();
        let _ = fs::remove_file(&self.image);
    }
}

/// Mounts the file system in an image.
fn attach(image: &Path, mount: &Path) -> Result<(), String> {
    run("mount", &["-o", "loop,noatime", path(image)?, path(mount)?])
}

fn parse_sectors(stat: &str, field: usize) -> Option<u64> {
    let sectors: u64 = stat.split_whitespace().nth(field)?.parse().ok()?;
    Some(sectors * SECTOR_BYTES)
}

fn path(path: &Path) -> Result<&str, String> {
    path.to_str()
        .ok_or_else(|| format!("{} is no text; build to another directory", path.display()))
}

fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(arguments).output();
    let output =
        output.map_err(|error| format!("{program} cannot be started ({error}); install it"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{program} said: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::ground::Ground;
    use std::os::unix::fs::FileExt;

    /// Read sectors are the third number of the kernel's line, written ones the seventh.
    #[test]
    fn sectors_are_found_in_the_kernels_line() {
        let stat = "  11 2 33 4 55 6 7 8 0 9 10 0 0 0 0 12 13\n";
        assert_eq!(parse_sectors(stat, READ_FIELD), Some(33 * 512));
        assert_eq!(parse_sectors(stat, WRITTEN_FIELD), Some(7 * 512));
        assert_eq!(parse_sectors("1 2 3", WRITTEN_FIELD), None);
    }

    /// What is on the device is still there, and comes from the device again.
    #[test]
    fn forgotten_device_is_read_again() {
        let Ok(ground) = Ground::new() else { return println!("not run: no tmpfs") };
        let mut device = match Device::new(&ground.on_disk("device").unwrap()).unwrap() {
            Ok(device) => device,
            Err(reason) => return println!("not run: {reason}"),
        };
        let path = device.directory("side").unwrap().join("file");
        let content = vec![7; 1 << 20];
        fs::write(&path, &content).unwrap();
        device.forget().unwrap();
        let read = |path: &Path| {
            let before = device.read_bytes().unwrap();
            assert!(fs::read(path).unwrap() == content);
            device.read_bytes().unwrap() - before
        };
        assert!(read(&path) >= 1 << 20);
        assert_eq!(read(&path), 0);
    }

    /// A synced page is counted as written, and nothing is counted without a write.
    #[test]
    fn device_counts_synced_pages_only() {
        let Ok(ground) = Ground::new() else { return println!("not run: no tmpfs") };
        let directory = ground.on_disk("device").unwrap();
        let device = match Device::new(&directory).unwrap() {
            Ok(device) => device,
            Err(reason) => return println!("not run: {reason}"),
        };
        let file = File::create(device.directory("side").unwrap().join("file")).unwrap();
        file.write_all_at(&[1; 8192], 0).unwrap();
        device.settle().unwrap();
        let before = device.written_bytes().unwrap();
        device.settle().unwrap();
        assert_eq!(device.written_bytes().unwrap(), before);
        file.write_all_at(&[2; 4096], 0).unwrap();
        file.sync_data().unwrap();
        assert_eq!(device.written_bytes().unwrap() - before, 4096);
        drop(file);
        drop(device);
        assert!(fs::read_dir(directory.join("mount")).unwrap().next().is_none());
    }
}
