//! The store's copy of a region: written whole from the image, verified whole before it is used.
//!
//! A checkpoint is atomic: the new base file gets its name only after its bytes are durable, so at
//! any moment the name leads to one complete checkpoint, the old or the new one. The image is read
//! with `pread`, never through a mapping.

#![forbid(unsafe_code)]

use std::fs::File;
use std::io;
use std::path::Path;

use crate::error::{FileRemedy, RegionError, Result};
use crate::media::files::{base_path, temporary_path};
use crate::media::format::{FileState, Header};
use crate::media::image::{Backing, BuildError, FileFault, Image};
use crate::media::sparse::{CopyError, DataSum, PAGE_BYTES, sum_and_copy};
use crate::media::storage::{Storage, is_full};
use crate::name::RegionName;

/// Writes a checkpoint of an image, with the number that the header has, and returns it. On failure
/// the earlier base is in place, or, when only the directory could not be made durable, the new
/// one. The caller has removed what earlier writers left.
pub(crate) fn write_base(
    storage: &dyn Storage,
    image: &File,
    header: Header,
    store: &Path,
) -> Result<(DataSum, Image)> {
    let temporary = temporary_path(store, &header.name);
    let header = Header { state: FileState::Clean, continued: true, journal_sequence: 0, ..header }
        .for_store();
    let data_bytes = header.backed_bytes;
    let mut written = DataSum { checksum: 0, pages: 0 };
    let filled = |file: &File, header: &mut Header| {
        written =
            sum_and_copy(image, data_bytes, Some((storage, file))).map_err(
                |error| match error {
                    CopyError::Read(source) => BuildError::Source(RegionError::Io {
                        step: "read the image for",
                        path: store.to_owned(),
                        source,
                    }),
                    CopyError::Write(source) => BuildError::Target { step: "write", source },
                },
            )?;
        header.data_checksum = written.checksum;
        Ok(())
    };
    let mut base =
        Image::build(storage, temporary.clone(), header.clone(), Backing::Packed, filled)
            .map_err(|error| target_error(storage, error, &temporary, store, data_bytes))?;
    let named = storage
        .sync(&base.file)
        .map_err(|source| BuildError::Target { step: "make durable", source })
        .and_then(|()| {
            base.rename(storage, base_path(store, &header.name))
                .map_err(|source| BuildError::Target { step: "rename", source })
        });
    if let Err(error) = named {
        let _ = storage.remove(&temporary);
        return Err(target_error(storage, error, &temporary, store, data_bytes));
    }
    storage.sync_directory(store).map_err(RegionError::io("make durable", store))?;
    Ok((written, base))
}

/// The error of a file of the store that could not be built.
pub(crate) fn target_error(
    storage: &dyn Storage,
    error: BuildError,
    path: &Path,
    store: &Path,
    needed_bytes: u64,
) -> RegionError {
    match error {
        BuildError::Source(error) => error,
        BuildError::Target { source, .. } if is_full(&source) => RegionError::StoreFull {
            needed_bytes: needed_bytes + 2 * PAGE_BYTES,
            available_bytes: storage.available_bytes(store).unwrap_or(0),
            store: store.to_owned(),
        },
        BuildError::Target { step, source } => {
            RegionError::Io { step, path: path.to_owned(), source }
        }
    }
}

/// Opens a base file; its header is checked, its data not yet.
pub(crate) fn open_base(store: &Path, name: &RegionName) -> std::result::Result<Image, FileFault> {
    Image::open(base_path(store, name), name, false)
}

/// Checks the data of a base file against its checksum, copying it to a target on the way.
pub(crate) fn verify_base(
    base: &Image,
    target: Option<(&dyn Storage, &File)>,
) -> std::result::Result<(), BuildError> {
    verified_data(base, target).map(drop)
}

/// As [`verify_base`]; returns a file that has the verified data in a data area, the base itself or,
/// where it is packed, one in memory.
pub(crate) fn verified_data(
    base: &Image,
    target: Option<(&dyn Storage, &File)>,
) -> std::result::Result<File, BuildError> {
    let remedy = || FileRemedy::RestoreFile { path: base.path.clone() };
    let expected = base.header.data_checksum;
    let damaged = |found| {
        let (path, remedy) = (base.path.clone(), remedy());
        BuildError::Source(RegionError::DataDamaged { path, expected, found, remedy })
    };
    let unread = |error| match error {
        CopyError::Read(source) if source.kind() == io::ErrorKind::UnexpectedEof => {
            BuildError::Source(RegionError::Truncated {
                path: base.path.clone(),
                needed_bytes: base.header.file_bytes(),
                found_bytes: base.file.metadata().map_or(0, |found| found.len()),
                remedy: remedy(),
            })
        }
        // What the table leads to is not known, so it has no sum.
        CopyError::Read(source) if source.kind() == io::ErrorKind::InvalidData => damaged(0),
        CopyError::Read(source) => {
            BuildError::Source(RegionError::Io { step: "read", path: base.path.clone(), source })
        }
        CopyError::Write(source) => BuildError::Target { step: "write", source },
    };
    let file = base.data_file().map_err(|source| unread(CopyError::Read(source)))?;
    let found = sum_and_copy(&file, base.header.backed_bytes, target).map_err(unread)?;
    if found.checksum == expected { Ok(file) } else { Err(damaged(found.checksum)) }
}
