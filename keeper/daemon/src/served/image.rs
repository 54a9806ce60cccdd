//! The memory that a borrower gets: a file without a name, as large as the region may become, and
//! sealed so.
//!
//! Invariants:
//! - No process can make it shorter or longer, the borrower included: reading it here never meets
//!   its end, and what a borrower can take of the machine's memory is the region's limit, which its
//!   quota was charged with.
//! - It holds data only. What the keeper must know of the region (sizes, owner, state) is in files
//!   that no borrower has.
//! - It is never mapped here: whatever a borrower does to it, this process gets an error value.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, memfd_create};

const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// A new one; nothing of it is allocated.
pub(crate) fn sealed(limit_bytes: u64) -> io::Result<File> {
    let file = File::from(memfd_create(
        "holdfast-served",
        MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
    )?);
    file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
    file.set_len(limit_bytes)?;
    fcntl_add_seals(&file, SEALS)?;
    Ok(file)
}

/// Whether a descriptor that a borrower sends is memory whose size is for good. The kernel answers
/// by itself.
pub(crate) fn has_seals(file: impl AsFd) -> bool {
    fcntl_get_seals(file).is_ok_and(|seals| seals == SEALS)
}

/// Whether such memory is as large as it should be.
pub(crate) fn is_of_size(file: &File, limit_bytes: u64) -> bool {
    file.metadata().is_ok_and(|found| found.len() == limit_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantee: keeper/no-resize
    #[test]
    fn what_is_lent_keeps_its_size() {
        let file = sealed(1 << 20).unwrap();
        for bytes in [0, (1 << 20) - 1, (1 << 20) + 1, 1 << 30] {
            assert!(file.set_len(bytes).is_err(), "{bytes}");
        }
        assert!(holdfast_sys::file::allocate(&file, 0..(1 << 20) + 4096).is_err());
        holdfast_sys::file::allocate(&file, 0..1 << 20).unwrap();
        assert!(has_seals(&file) && is_of_size(&file, 1 << 20) && !is_of_size(&file, 1 << 21));
    }

    /// Guarantee: keeper/no-resize
    #[test]
    fn what_a_borrower_could_cut_off_is_not_taken() {
        let open = holdfast_sys::file::anonymous("open", 1 << 20).unwrap();
        assert!(!has_seals(&open));
        assert!(!has_seals(tempfile::tempfile().unwrap()));
    }
}
