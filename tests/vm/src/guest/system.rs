//! What the first process does before anything else: mounts, modules, the disk, and the file system in reserved memory.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, mount};
use rustix::system::finit_module;

use super::{FLASH, PMEM};
use crate::initramfs::MODULES;

const DISK: &str = "/dev/vda";
/// An empty ext4 of the size of the reserved memory.
const TEMPLATE: &str = "/dev/vdb";
const PMEM_DEVICE: &str = "/dev/pmem0";
/// Devices appear some time after their modules are loaded.
const DEVICE_PATIENCE: Duration = Duration::from_secs(30);
/// Where the first superblock of ext4 has its magic number.
const EXT4_MAGIC_AT: u64 = 1024 + 56;
const EXT4_MAGIC: [u8; 2] = [0x53, 0xef];
const COPY_BYTES: usize = 1 << 20;

/// Sets the machine up; says whether the reserved memory still had its file system.
///
/// # Errors
/// In words, what failed.
pub fn set_up() -> Result<bool, String> {
    for (source, target, kind) in [
        ("dev", "/dev", "devtmpfs"),
        ("proc", "/proc", "proc"),
        ("sys", "/sys", "sysfs"),
        ("run", "/run", "tmpfs"),
    ] {
        attach(source, target, kind, "")?;
    }
    load_modules().map_err(|error| format!("the kernel's modules cannot be loaded: {error}"))?;
    for device in [DISK, TEMPLATE, PMEM_DEVICE] {
        wait_for(device)?;
    }
    attach(DISK, FLASH, "ext4", "")?;
    let kept = keep_or_make_pmem().map_err(|error| format!("{PMEM_DEVICE} cannot be filled: {error}"))?;
    attach(PMEM_DEVICE, PMEM, "ext4", "dax=always")?;
    Ok(kept)
}

/// How long the kernel has been there.
///
/// # Errors
/// When `/proc` is not as it should be.
pub fn uptime() -> io::Result<Duration> {
    let text = std::fs::read_to_string("/proc/uptime")?;
    let seconds = text.split(' ').next().and_then(|word| word.parse().ok());
    seconds.map(Duration::from_secs_f64).ok_or_else(|| io::Error::other("/proc/uptime is no number"))
}

fn attach(source: &str, target: &str, kind: &str, options: &str) -> Result<(), String> {
    let options = CString::new(options).map_err(|error| error.to_string())?;
    mount(source, target, kind, MountFlags::empty(), options.as_c_str())
        .map_err(|error| format!("{source} cannot be mounted at {target}: {error}"))
}

fn load_modules() -> io::Result<()> {
    let mut modules =
        std::fs::read_dir(MODULES)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    modules.sort();
    for module in modules {
        let name = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", module.display()));
        let file = File::open(&module).map_err(name)?;
        finit_module(&file, c"", 0).map_err(|error| name(error.into()))?;
    }
    Ok(())
}

fn wait_for(device: &str) -> Result<(), String> {
    let until = Instant::now() + DEVICE_PATIENCE;
    while !Path::new(device).exists() {
        if Instant::now() > until {
            return Err(format!("there is no {device}"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn keep_or_make_pmem() -> io::Result<bool> {
    let device = OpenOptions::new().read(true).write(true).open(PMEM_DEVICE)?;
    let mut magic = [0; EXT4_MAGIC.len()];
    device.read_exact_at(&mut magic, EXT4_MAGIC_AT)?;
    if magic == EXT4_MAGIC {
        return Ok(true);
    }
    let (mut from, mut to) = (File::open(TEMPLATE)?, &device);
    let mut piece = vec![0; COPY_BYTES];
    loop {
        let bytes = from.read(&mut piece)?;
        if bytes == 0 {
            break;
        }
        to.write_all(&piece[..bytes])?;
    }
    device.sync_all()?;
    Ok(false)
}
