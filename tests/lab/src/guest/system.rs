//! The start of the first process: mounts, modules, the disk, and the file system in reserved
//! memory.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use holdfast_persist::Instruction;
use procfs::Current;
use procfs::process::{MMapPath, Process, VmFlags, all_processes};
use rustix::mount::{MountFlags, mount, mount_bind, mount_move};
use rustix::process::{chdir, chroot};
use rustix::system::finit_module;

use super::{FLASH, PMEM};
use crate::initramfs::MODULES;

const DISK: &str = "/dev/vda";
/// An empty ext4 of the size of the reserved memory.
const TEMPLATE: &str = "/dev/vdb";
const PMEM_DEVICE: &str = "/dev/pmem0";
/// Where the root is mounted for a moment.
const ROOT: &str = "/root";
/// Devices appear some time after their modules are loaded.
const DEVICE_PATIENCE: Duration = Duration::from_secs(90);
/// Where the first superblock of ext4 has its magic number.
const EXT4_MAGIC_AT: u64 = 1024 + 56;
const EXT4_MAGIC: [u8; 2] = [0x53, 0xef];
const COPY_BYTES: usize = 1 << 20;

/// Sets the machine up; says whether the reserved memory still had its file system.
///
/// # Errors
/// In words, what failed.
pub fn set_up() -> Result<bool, String> {
    leave_first_root().map_err(|error| format!("the root cannot be mounted: {error}"))?;
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
    let kept =
        keep_or_make_pmem().map_err(|error| format!("{PMEM_DEVICE} cannot be filled: {error}"))?;
    attach(PMEM_DEVICE, PMEM, "ext4", "dax=always")?;
    Ok(kept)
}

/// How long the kernel has been there.
///
/// # Errors
/// When `/proc` is not as it should be.
pub fn uptime() -> io::Result<Duration> {
    procfs::Uptime::current().map(|up| up.uptime_duration()).map_err(io::Error::other)
}

/// The processes that a process has started, and those that they have, and so on.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn descendants(of: u32) -> io::Result<Vec<u32>> {
    let processes = all_processes().map_err(io::Error::other)?;
    // One that has ended meanwhile has no parent.
    let stats = processes.filter_map(|process| process.and_then(|process| process.stat()).ok());
    let mut parents: Vec<_> = stats.map(|stat| (stat.pid as u32, stat.ppid as u32)).collect();
    let mut found = vec![of];
    while let Some(at) = parents.iter().position(|(_, parent)| found.contains(parent)) {
        found.push(parents.swap_remove(at).0);
    }
    found.remove(0);
    Ok(found)
}

/// Sees to it that these processes have files of a directory mapped, and none in any other way than
/// that each page's place in the file system is durable before it can be stored to (`MAP_SYNC`);
/// and that lines are written back by `clwb`.
///
/// # Errors
/// In words, what is not so.
pub fn check_mappings(processes: &[u32], directory: &Path) -> Result<(), String> {
    if holdfast_persist::instruction() != Some(Instruction::Clwb) {
        return Err("this processor has no clwb, and was to have one".to_owned());
    }
    let mut seen = 0;
    for process in processes {
        let mappings = Process::new(*process as i32).and_then(|process| process.smaps());
        for mapping in mappings.map_err(|error| format!("process {process}: {error}"))? {
            let MMapPath::Path(file) = mapping.pathname else { continue };
            if !file.starts_with(directory) {
                continue;
            }
            if !mapping.extension.vm_flags.contains(VmFlags::SF) {
                return Err(format!(
                    "process {process} has {} mapped without MAP_SYNC",
                    file.display()
                ));
            }
            seen += 1;
        }
    }
    match seen {
        0 => Err(format!("processes {processes:?} have nothing of {} mapped", directory.display())),
        _ => Ok(()),
    }
}

fn attach(source: &str, target: &str, kind: &str, options: &str) -> Result<(), String> {
    let options = CString::new(options).map_err(|error| error.to_string())?;
    mount(source, target, kind, MountFlags::empty(), options.as_c_str())
        .map_err(|error| format!("{source} cannot be mounted at {target}: {error}"))
}

/// What the kernel unpacks is a root that cannot be left, a jail neither. Mounted over itself it
/// is one as any other.
fn leave_first_root() -> io::Result<()> {
    mount_bind("/", ROOT)?;
    chdir(ROOT)?;
    mount_move(".", "/")?;
    Ok(chroot(".")?)
}

fn load_modules() -> io::Result<()> {
    let mut modules = std::fs::read_dir(MODULES)?
        .map(|entry| Ok(entry?.path()))
        .collect::<io::Result<Vec<_>>>()?;
    modules.sort();
    for module in modules {
        let name = |error: io::Error| {
            io::Error::new(error.kind(), format!("{}: {error}", module.display()))
        };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_process_descends_from_itself() {
        let own = std::process::id();
        assert!(descendants(own).is_ok_and(|found| !found.contains(&own)));
    }
}
