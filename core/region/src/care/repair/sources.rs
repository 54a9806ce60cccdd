//! The sources of a damaged region's newest data: an image without headers, the store, a rescue
//! copy.
//!
//! Nothing here changes a file.

#![forbid(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use holdfast_sys::file::private_options;

use super::{FileFinding, Source, TORN, first_clause, is_damage};
use crate::error::{RegionError, Result};
use crate::media::files::journal_path;
use crate::media::format::{DATA_OFFSET, FileState, Header, LIMIT_BYTES_MAX, WINDOW_END};
use crate::media::image::{FileFault, Image};
use crate::media::journal::{
    Continuation, ReadFault, Sizes, open_journal, remedy_for_journal, whole_records,
};
use crate::media::redo;
use crate::media::sparse::buffer;
use crate::name::RegionName;
use crate::names::key::{OwnerKey, check_key};
use crate::names::namespace::NameSpace;
use crate::names::places::{current_image_path, redo_paths};
use crate::store::base::{open_base, verify_base};
use crate::store::rescue::refuse_newer_rescue;
use crate::store::stored::{Stored, remedy_for_image, source_error};

impl NameSpace {
    /// The newest data of a region without an image that counts: what the next open would find.
    pub(super) fn examine_without(
        &self,
        name: &RegionName,
        key: &OwnerKey,
        (void, base): (Option<Image>, Option<Image>),
        findings: &mut Vec<FileFinding>,
    ) -> Result<(Source, Vec<u8>)> {
        refuse_newer_rescue(self.places().store(), name)?;
        // Without knowing all of the store it cannot be said whether the copy is newer.
        if let Ok(stored) = Stored::open(self.places().store(), name)
            && let Some(rescue) = self.rescue_that_counts(name, stored.as_ref())?
        {
            check_key(name, rescue.header.owner_fingerprint, key)?;
            verify_base(&rescue, None).map_err(|error| source_error(error, &rescue.path))?;
            let data_bytes = rescue.header.backed_bytes;
            let bytes = read_data(&rescue.file, data_bytes);
            return Ok((
                Source::Rescue,
                bytes.map_err(RegionError::read_whole(&rescue.path, data_bytes))?,
            ));
        }
        match (base, void) {
            (Some(base), _) => self.examine_store(base, findings),
            (None, Some(void)) if self.has_no_base(name) => {
                Err(RegionError::Torn { path: void.path, name: name.to_string() })
            }
            (None, _) => Err(self.bad_base(name)),
        }
    }

    fn has_no_base(&self, name: &RegionName) -> bool {
        matches!(open_base(self.places().store(), name), Err(FileFault::Missing))
    }

    /// The newest data of a store whose image is no use, and findings about the journal.
    pub(super) fn examine_store(
        &self,
        mut base: Image,
        findings: &mut Vec<FileFinding>,
    ) -> Result<(Source, Vec<u8>)> {
        verify_base(&base, None).map_err(|error| self.build_error(error, &base.path, 0))?;
        let (store, name) = (self.places().store(), base.header.name.clone());
        let path = journal_path(store, &name);
        let mut finding =
            |what, how, lost| findings.push(FileFinding { path: path.clone(), what, how, lost });
        let sizes =
            Sizes { backed_bytes: base.header.backed_bytes, limit_bytes: base.header.limit_bytes };
        let remedy = remedy_for_journal(store, &name);
        let journal = match open_journal(&path, &base.header, false, &remedy) {
            Ok(None) => None,
            Ok(Some((file, header))) => {
                let failed = |fault: ReadFault| fault.into_error(&path, remedy.clone());
                let (mut extent, mut fault) =
                    whole_records(&file, &header, sizes).map_err(failed)?;
                if let Some(ReadFault::Misfit { sequence, backed_bytes, limit_bytes }) = fault {
                    // The base's newest header is lost, the journal has seen it.
                    let limit_bytes_max = LIMIT_BYTES_MAX.min(WINDOW_END - base.header.address);
                    let sizes = Sizes { limit_bytes: limit_bytes_max, ..sizes };
                    (extent, fault) = whole_records(&file, &header, sizes).map_err(failed)?;
                    base.header = self.header_for_journal(&base.header, extent.backed_bytes)?;
                    finding(
                        format!(
                            "record {sequence} makes the heap {backed_bytes} bytes large, where the base file \
                             says a limit of {limit_bytes}"
                        ),
                        "folded into a new checkpoint with all its commits, and the limit raised that far",
                        None,
                    );
                }
                match fault {
                    Some(fault @ ReadFault::Misfit { .. }) => return Err(failed(fault)),
                    Some(ReadFault::Damaged { sequence, offset }) => finding(
                        format!("record {sequence} at byte {offset} is damaged"),
                        "the commits before it are folded into a new checkpoint",
                        Some(format!("the commits from number {sequence} on")),
                    ),
                    _ if extent.torn => {
                        finding(
                            TORN.to_owned(),
                            "cut off: that commit was never acknowledged",
                            None,
                        );
                    }
                    _ => {}
                }
                Some(Continuation { file, path: path.clone(), header, extent })
            }
            Err(error) if is_damage(&error) => {
                let how = "removed: the region goes on from its last checkpoint";
                finding(
                    first_clause(&error),
                    how,
                    Some("the commits since the last checkpoint".to_owned()),
                );
                None
            }
            Err(error) => return Err(error),
        };
        let stored = Stored { base, journal };
        let copy = stored.copied()?;
        let backed_bytes = copy.header.backed_bytes;
        let bytes = read_data(&copy.file, backed_bytes);
        Ok((
            Source::Store(stored),
            bytes.map_err(RegionError::read_whole(&copy.path, backed_bytes))?,
        ))
    }

    /// What the lost headers of an image must have said, and its file.
    ///
    /// # Errors
    /// `Truncated` when bytes are missing that the store has: what else is missing is not known.
    /// `HeaderDamaged` of an image that outlives the boot: only its headers would tell whether a
    /// reset tore it.
    pub(super) fn lost_header(&self, path: &Path, base: &Image) -> Result<(File, Header)> {
        let (store, base) = (self.places().store(), &base.header);
        let remedy = || remedy_for_image(store, &base.name, path);
        if self.places().images_outlive_boot(base.medium) {
            return Err(RegionError::HeaderDamaged { path: path.to_owned(), remedy: remedy() });
        }
        let file =
            private_options().read(true).open(path).map_err(RegionError::io("open", path))?;
        let found_bytes = file.metadata().map_err(RegionError::io("examine", path))?.len();
        let stored_bytes =
            Stored::open(store, &base.name).ok().flatten().map(|stored| stored.backed_bytes());
        let needed_bytes = DATA_OFFSET + stored_bytes.unwrap_or(0).max(base.backed_bytes);
        if found_bytes < needed_bytes {
            let (path, remedy) = (path.to_owned(), remedy());
            return Err(RegionError::Truncated { path, needed_bytes, found_bytes, remedy });
        }
        let logs = redo_paths(self.places(), &base.name);
        let generation = logs.iter().filter_map(|path| redo::generation(path)).max();
        let header = Header {
            state: FileState::Open,
            image_generation: generation.unwrap_or(base.image_generation + 1),
            data_checksum: 0,
            continued: false,
            journal_sequence: 0,
            boot: self.places().boot(),
            packed_bytes: 0,
            ..base.clone()
        };
        let image = Image::unnamed(file, path.to_owned(), header);
        let backed_bytes =
            image.backed_bytes_by_length().map_err(RegionError::io("examine", path))?;
        Ok((image.file, Header { backed_bytes, ..image.header }))
    }

    /// The data of an image, with what its redo log adds.
    pub(super) fn image_bytes(
        &self,
        file: &File,
        header: &Header,
        by_length: bool,
    ) -> Result<Vec<u8>> {
        let path = current_image_path(self.places(), &header.name);
        let failed = || RegionError::io("read", &path);
        let mut data_bytes = header.backed_bytes;
        if by_length {
            let copy = file.try_clone().map_err(failed())?;
            let image = Image::unnamed(copy, path.clone(), header.clone());
            data_bytes = image.backed_bytes_by_length().map_err(failed())?;
        }
        let mut bytes =
            read_data(file, data_bytes).map_err(RegionError::read_whole(&path, data_bytes))?;
        for path in redo_paths(self.places(), &header.name) {
            let log = match private_options().read(true).open(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                opened => opened.map_err(RegionError::io("open", &path))?,
            };
            let put = &mut |page: &[u8], offset: u64| {
                let target =
                    bytes.get_mut(offset as usize..).and_then(|rest| rest.get_mut(..page.len()));
                target.ok_or(io::ErrorKind::UnexpectedEof)?.copy_from_slice(page);
                Ok(())
            };
            let replayed = redo::replay(&log, header, put);
            replayed.map_err(|source| redo::log_error("read", &path, source))?;
        }
        Ok(bytes)
    }

    fn bad_base(&self, name: &RegionName) -> RegionError {
        match open_base(self.places().store(), name) {
            Err(fault) => self.base_error(name, fault),
            Ok(_) => self.not_found(name),
        }
    }
}

fn read_data(file: &File, data_bytes: u64) -> io::Result<Vec<u8>> {
    let mut bytes = buffer(data_bytes)?;
    file.read_exact_at(&mut bytes, DATA_OFFSET)?;
    Ok(bytes)
}
