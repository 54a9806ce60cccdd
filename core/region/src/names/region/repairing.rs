//! Repairing an open region: bytes that a salvage found are put back.

#![forbid(unsafe_code)]

use crate::error::{RegionError, Result};
use crate::media::format::DATA_OFFSET;
use crate::media::redo::Redo;
use crate::names::region::{Region, Session};

impl Region {
    /// Replaces pieces of the data of a region that is not mapped, all or nothing, also under
    /// SIGKILL.
    pub(crate) fn rewrite(&mut self, pieces: &[(u64, &[u8])]) -> Result<()> {
        if pieces.is_empty() {
            return Ok(());
        }
        let path = self.redo_path();
        let failed = || RegionError::io("write", &path);
        let ranges: Vec<_> =
            pieces.iter().map(|(offset, bytes)| *offset..*offset + bytes.len() as u64).collect();
        self.claim_order()?;
        let outlives_boot = self.image.outlives_boot;
        let mut log =
            Redo::open(self.names.storage(), path.clone(), outlives_boot).map_err(failed())?;
        let bytes_of = |range: &std::ops::Range<u64>| {
            let found = pieces.binary_search_by_key(&range.start, |(offset, _)| *offset);
            found.map_or(&[] as &[u8], |index| pieces[index].1)
        };
        log.write(self.names.storage(), &self.image.header, &ranges, bytes_of).map_err(failed())?;
        // It counts from here on; the next open would finish it.
        self.session = Session::Poisoned;
        for (offset, bytes) in pieces {
            let written =
                self.names.storage().write_at(&self.image.file, bytes, DATA_OFFSET + offset);
            written.map_err(RegionError::io("write", &self.image.path))?;
        }
        if outlives_boot {
            let synced = self.names.storage().sync_data(&self.image.file);
            synced.map_err(RegionError::io("make durable", &self.image.path))?;
        }
        log.clear(self.names.storage()).map_err(failed())?;
        self.session = Session::Writer;
        self.redo = Some(log);
        self.note_pending(&ranges);
        Ok(())
    }
}
