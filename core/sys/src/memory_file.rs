//! Files in memory that one process fills and another one reads.
//!
//! Invariant: a sealed file never changes again. The kernel refuses the seal while a writable
//! mapping exists, so success also proves that no process can still store to it.
#![forbid(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;

/// Makes an empty file in memory, closed on exec; `label` is shown in `/proc`.
///
/// # Errors
/// What the kernel reports: no descriptors, no memory.
pub fn create(label: &str) -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Kernels before 6.3 do not know how to say that the file is no program.
    match rustix::fs::memfd_create(label, flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => Ok(rustix::fs::memfd_create(label, flags)?.into()),
        made => Ok(made?.into()),
    }
}

/// The same for a program that is going to be executed.
///
/// # Errors
/// As [`create`]; `EACCES` where the machine runs no files in memory (`vm.memfd_noexec`).
pub fn create_program(label: &str) -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Kernels before 6.3 run all of them.
    match rustix::fs::memfd_create(label, flags | MemfdFlags::EXEC) {
        Err(Errno::INVAL) => Ok(rustix::fs::memfd_create(label, flags)?.into()),
        made => Ok(made?.into()),
    }
}

/// The same file through a descriptor for reading alone.
///
/// # Errors
/// What `open` reports, as where `/proc` is missing.
pub fn for_reading(file: File) -> io::Result<File> {
    File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// How large a file may become that this process writes, files in memory included: a write past it
/// ends the process (`RLIMIT_FSIZE`, `ulimit -f`). `None` is no limit.
#[must_use]
pub fn size_limit_bytes() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Fsize).current
}

/// Makes size and content final.
///
/// # Errors
/// `EBUSY` while the file is mapped for writing; `EPERM` when it is no file of [`create`], or was
/// sealed before.
pub fn seal(file: &File) -> io::Result<()> {
    let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
    Ok(rustix::fs::fcntl_add_seals(file, seals)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::FileExt;

    #[test]
    fn a_sealed_file_cannot_change() {
        let mut file = create("test").unwrap();
        file.write_all(b"before").unwrap();
        seal(&file).unwrap();
        assert!(
            file.write_all(b"after").is_err() && file.set_len(1).is_err() && seal(&file).is_err()
        );
        let mut bytes = [0; 6];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"before");
        assert!(seal(&tempfile::tempfile().unwrap()).is_err());
    }
}
