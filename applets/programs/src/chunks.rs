//! The paper's Figure 2: a file is opened, written in chunks of 512 bytes, and closed.

use crate::error::ProgramError;
use crate::storage::{Storage, Writer};

/// Of each chunk but the last.
pub const CHUNK_BYTES: usize = 512;

/// Writes an object of `bytes` bytes: chunks that begin with their number, in 8 bytes.
///
/// # Errors
/// Of the storage.
pub fn write<S: Storage>(storage: &mut S, name: &str, bytes: u64) -> Result<u64, ProgramError> {
    let mut writer = storage.create(name, bytes)?;
    let mut chunk = [b'.'; CHUNK_BYTES];
    let mut left = bytes;
    for number in 0_u64.. {
        if left == 0 {
            break;
        }
        chunk[..8].copy_from_slice(&number.to_le_bytes());
        let length = left.min(CHUNK_BYTES as u64);
        writer.write(&chunk[..length as usize])?;
        left -= length;
    }
    storage.finish(writer)
}
