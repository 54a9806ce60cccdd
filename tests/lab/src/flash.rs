//! The disk of the machine: an ext4, made without root, with a volatile write cache that loses what
//! a disk may lose.
//!
//! QEMU logs every write and every flush beside the image (its driver `blklogwrites`, the format of
//! Linux' dm-log-writes). After a power cut the image is made anew from what it was when the
//! machine began: every write up to the last flush, and of those after it each by chance, whole or
//! up to a sector within.
//!
//! Invariant: a write that was flushed is never taken away.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rand::RngExt;
use rand::rngs::StdRng;

use crate::missing::{LabError, Result, host};

/// Where a program that only root needs day by day may be, beside PATH.
const SYSTEM_DIRECTORIES: [&str; 2] = ["/usr/sbin", "/sbin"];
/// Of the log: its sectors, and the disk's.
const SECTOR_BYTES: u64 = 512;
const MAGIC: u64 = 0x006a_7366_7773_6872;
const VERSION: u64 = 1;
const FLAG_FLUSH: u64 = 1;
const FLAG_FUA: u64 = 2;
const FLAG_DISCARD: u64 = 4;

/// The disk as a power cut leaves it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cut {
    /// Writes that are there, since the machine began.
    pub kept: u64,
    /// Writes after the last flush that are gone.
    pub gone: u64,
    /// Writes after the last flush of which a part is there.
    pub torn: u64,
}

/// The files of the disk.
#[derive(Debug, Clone)]
pub struct Flash {
    live: PathBuf,
    before: PathBuf,
    log: PathBuf,
}

impl Flash {
    /// A disk with an empty file system, its files in `directory`.
    ///
    /// # Errors
    /// What [`make_ext4`] says, or the file system.
    pub fn make(directory: &Path, bytes: u64) -> Result<Flash> {
        let at = |name: &str| directory.join(name);
        let flash = Flash { live: at("flash"), before: at("flash-before"), log: at("flash-log") };
        make_ext4(&flash.before, bytes)?;
        flash.begin()?;
        Ok(flash)
    }

    /// Arguments of QEMU for it. Nothing is synced on the host: that does not fail here.
    #[must_use]
    pub fn arguments(&self) -> Vec<String> {
        let file = |name: &str, path: &Path| {
            format!("driver=file,node-name={name},cache.no-flush=on,filename={}", path.display())
        };
        let logged = "driver=blklogwrites,node-name=flash,file=live,log=log";
        let nodes = [file("live", &self.live), file("log", &self.log), logged.to_owned()];
        let blocks = nodes.into_iter().flat_map(|node| ["-blockdev".to_owned(), node]);
        blocks.chain(["-device".to_owned(), "virtio-blk-pci,drive=flash".to_owned()]).collect()
    }

    /// Takes away what the disk was not told to keep. The machine must be gone.
    ///
    /// # Errors
    /// When the log is not QEMU's, or a file fails.
    pub fn cut_power(&self, random: &mut StdRng) -> Result<Cut> {
        let log = std::fs::read(&self.log).map_err(host("read", &self.log))?;
        let entries = entries(&log).ok_or_else(|| LabError::Program {
            program: "qemu",
            said: format!("{} is no log of writes", self.log.display()),
        })?;
        let image =
            File::options().write(true).open(&self.before).map_err(host("open", &self.before))?;
        let cut =
            replay(&entries, random, &mut |at_bytes, bytes| image.write_all_at(bytes, at_bytes));
        let cut = cut.map_err(host("write", &self.before))?;
        self.begin()?;
        Ok(cut)
    }

    /// The image as it is now is the one that the next machine begins with.
    fn begin(&self) -> Result<()> {
        std::fs::copy(&self.before, &self.live).map_err(host("copy", &self.before))?;
        File::create(&self.log).map(drop).map_err(host("create", &self.log))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry<'a> {
    at_bytes: u64,
    data: &'a [u8],
    flags: u64,
}

/// The entries of a log, up to the first that is not whole: the machine's end may have cut that
/// off.
fn entries(log: &[u8]) -> Option<Vec<Entry<'_>>> {
    if word(log, 0)? != MAGIC
        || word(log, 8)? != VERSION
        || word(log, 24)? as u32 != SECTOR_BYTES as u32
    {
        return None;
    }
    let (mut entries, mut at) = (Vec::new(), SECTOR_BYTES as usize);
    while let (Some(sector), Some(sectors), Some(flags)) =
        (word(log, at), word(log, at + 8), word(log, at + 16))
    {
        at += SECTOR_BYTES as usize;
        // What follows a discard is nothing; the disk may keep what was there.
        let bytes = if flags & FLAG_DISCARD != 0 { 0 } else { (sectors * SECTOR_BYTES) as usize };
        let Some(data) = log.get(at..at + bytes) else { break };
        if bytes == 0 && flags == 0 {
            break;
        }
        entries.push(Entry { at_bytes: sector * SECTOR_BYTES, data, flags });
        at += bytes;
    }
    Some(entries)
}

fn word(log: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(log.get(at..at + 8)?.try_into().ok()?))
}

/// Writes what a disk keeps: up to the last flush all, then each by chance.
fn replay(
    entries: &[Entry<'_>],
    random: &mut StdRng,
    write: &mut dyn FnMut(u64, &[u8]) -> std::io::Result<()>,
) -> std::io::Result<Cut> {
    let flushed =
        entries.iter().rposition(|entry| entry.flags & FLAG_FLUSH != 0).map_or(0, |at| at + 1);
    let mut cut = Cut::default();
    for (number, entry) in entries.iter().enumerate().filter(|(_, entry)| !entry.data.is_empty()) {
        let safe = number < flushed || entry.flags & FLAG_FUA != 0;
        let sectors = entry.data.len() as u64 / SECTOR_BYTES;
        let kept = match random.random_range(0..3) {
            _ if safe => sectors,
            0 => 0,
            1 => sectors,
            _ => random.random_range(0..=sectors),
        };
        match kept {
            0 => cut.gone += 1,
            kept if kept < sectors => cut.torn += 1,
            _ => cut.kept += 1,
        }
        write(entry.at_bytes, &entry.data[..(kept * SECTOR_BYTES) as usize])?;
    }
    Ok(cut)
}

/// Makes an image of `bytes` with an empty ext4 whose blocks are of 4 KiB, as DAX needs them.
///
/// # Errors
/// `Missing` without `mkfs.ext4`; what it says.
pub fn make_ext4(path: &Path, bytes: u64) -> Result<()> {
    let file = File::create(path).map_err(host("create", path))?;
    file.set_len(bytes).map_err(host("make room in", path))?;
    let program = find("mkfs.ext4")?;
    let output =
        Command::new(program).args(["-q", "-F", "-b", "4096", "-I", "256"]).arg(path).output();
    let output = output.map_err(host("run mkfs.ext4 on", path))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(LabError::Program { program: "mkfs.ext4", said })
}

/// A program in PATH or where system programs are.
///
/// # Errors
/// `Missing` when it is in neither.
pub fn find(program: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&path).chain(SYSTEM_DIRECTORIES.map(PathBuf::from));
    let found = directories
        .map(|directory| directory.join(OsStr::new(program)))
        .find(|path| path.is_file());
    found.ok_or_else(|| LabError::Missing { what: format!("{program} is not installed") })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    fn log(entries: &[(u64, &[u8], u64)]) -> Vec<u8> {
        let mut log = [MAGIC, VERSION, 0, SECTOR_BYTES].map(u64::to_le_bytes).concat();
        log.resize(SECTOR_BYTES as usize, 0);
        for (sector, data, flags) in entries {
            let end = log.len() + SECTOR_BYTES as usize;
            let sectors = data.len() as u64 / SECTOR_BYTES;
            log.extend([*sector, sectors, *flags, 0].map(u64::to_le_bytes).concat());
            log.resize(end, 0);
            log.extend_from_slice(data);
        }
        log
    }

    /// A power cut takes only writes after the last flush, some of them partly.
    #[test]
    fn power_cut_takes_only_unflushed_writes() {
        let (early, late) = ([1; 1024], [2; 1024]);
        let bytes =
            log(&[(0, &early, 0), (0, &[], FLAG_FLUSH), (8, &late, 0), (16, &late, FLAG_FUA)]);
        let entries = entries(&bytes).unwrap();
        assert_eq!(entries.len(), 4);
        let mut seen = Cut::default();
        for seed in 0..100 {
            let mut disk = vec![0; 32 * 512];
            let mut random = StdRng::seed_from_u64(seed);
            let cut = replay(&entries, &mut random, &mut |at, bytes| {
                disk[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
                Ok(())
            });
            let cut = cut.unwrap();
            assert_eq!((&disk[..1024], &disk[16 * 512..18 * 512]), (&early[..], &late[..]));
            assert_eq!(cut.kept + cut.gone + cut.torn, 3);
            seen.gone += cut.gone;
            seen.torn += cut.torn;
        }
        assert!(seen.gone > 20 && seen.torn > 5, "{seen:?}");
    }

    /// A truncated log ends with its last whole entry, and another file is no log.
    #[test]
    fn truncated_write_log_ends_at_a_whole_entry() {
        let bytes = log(&[(0, &[1; 512], 0), (1, &[2; 512], 0)]);
        assert_eq!(entries(&bytes[..bytes.len() - 1]).unwrap().len(), 1);
        assert_eq!(entries(&bytes[..600]).unwrap().len(), 0);
        assert_eq!(entries(&[0; 4096]), None);
    }
}
