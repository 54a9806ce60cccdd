//! The sides that are plain files.
//!
//! - `InPlace` overwrites the records where they are and syncs: what an update costs that need not
//!   be atomic. A power cut can leave half a record, so it is no peer but the measure for what the
//!   others write for atomicity alone.
//! - `DoubleWrite` is what programs do to a file that matters, and Android does to shared
//!   preferences: all of it to a temporary file, which is synced and takes the file's name; then
//!   the directory is synced.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use super::records::{Change, RECORD_BYTES, Record, RecordSet, initial};

/// Records that are overwritten where they are.
pub(crate) struct InPlace {
    file: File,
}

impl InPlace {
    pub(crate) fn new(directory: PathBuf) -> io::Result<InPlace> {
        let file = File::options()
            .create_new(true)
            .read(true)
            .write(true)
            .open(directory.join("records"))?;
        file.write_all_at(initial().as_flattened(), 0)?;
        file.sync_all()?;
        Ok(InPlace { file })
    }
}

impl RecordSet for InPlace {
    fn commit(&mut self, changes: &[Change]) -> io::Result<()> {
        for (number, content) in changes {
            self.file.write_all_at(content, (number * RECORD_BYTES) as u64)?;
        }
        self.file.sync_data()
    }

    fn get(&mut self, number: usize) -> io::Result<Record> {
        let mut record = [0; RECORD_BYTES];
        self.file.read_exact_at(&mut record, (number * RECORD_BYTES) as u64)?;
        Ok(record)
    }
}

/// A file that is written anew for each commit.
pub(crate) struct DoubleWrite {
    records: Vec<Record>,
    directory: PathBuf,
    opened_directory: File,
}

impl DoubleWrite {
    pub(crate) fn new(directory: PathBuf) -> io::Result<DoubleWrite> {
        let opened_directory = File::open(&directory)?;
        let mut side = DoubleWrite { records: initial(), directory, opened_directory };
        side.commit(&[])?;
        Ok(side)
    }
}

impl RecordSet for DoubleWrite {
    fn commit(&mut self, changes: &[Change]) -> io::Result<()> {
        for (number, content) in changes {
            self.records[*number] = *content;
        }
        let temporary = self.directory.join("records.tmp");
        let file = File::create(&temporary)?;
        file.write_all_at(self.records.as_flattened(), 0)?;
        file.sync_all()?;
        fs::rename(&temporary, self.directory.join("records"))?;
        self.opened_directory.sync_all()
    }

    fn get(&mut self, number: usize) -> io::Result<Record> {
        let mut record = [0; RECORD_BYTES];
        let file = File::open(self.directory.join("records"))?;
        file.read_exact_at(&mut record, (number * RECORD_BYTES) as u64)?;
        Ok(record)
    }
}
