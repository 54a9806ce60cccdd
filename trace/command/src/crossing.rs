//! The sandbox view of a trace that is being made: a file for what hosts record of crossings, and
//! the calls to join it with.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::fd::AsRawFd;

use holdfast_trace::report::document::Sleep;
use holdfast_trace::{CallsInMemory, Crossings, Event, Recorder, Settings};

use crate::collect;
use crate::show_args::ShowArgs;
use holdfast_command::exit::{Failure, HOST_FAILED};

/// The sandbox view of a running trace.
pub(crate) struct Crossing {
    /// Without a name, so that no applet that was granted its directory can come by it.
    record: File,
    kept: CallsInMemory,
}

impl Crossing {
    /// Has the program that is to be started, and all that it starts, record what crosses their
    /// sandboxes.
    pub(crate) fn begin(settings: &mut Settings, show: &ShowArgs) -> Result<Crossing, Failure> {
        let record = tempfile::tempfile().map_err(|error| {
            Failure::new(
                HOST_FAILED,
                format!(
                    "cannot make a file for what crosses: {error}; make room in {}, or set TMPDIR",
                    std::env::temp_dir().display()
                ),
            )
        })?;
        let path = format!("/proc/{}/fd/{}", std::process::id(), record.as_raw_fd());
        settings.environment.push((holdfast_crossings::VARIABLE.into(), path.into()));
        let options = collect::options(&show.sum, Sleep::Measured);
        Ok(Crossing { record, kept: CallsInMemory::new(options.scheme) })
    }

    pub(crate) fn add(&mut self, event: &Event) {
        self.kept.add(event);
    }

    /// The view; the record goes into the recording as well.
    pub(crate) fn finish(self, recorder: Option<&mut Recorder>) -> Crossings {
        // A file of ours is always read from its start; what cannot be read is reported by the code
        // that reads it.
        let rewind = |mut record: &File| drop(record.seek(SeekFrom::Start(0)));
        if let Some(recorder) = recorder {
            rewind(&self.record);
            recorder.crossings(&mut &self.record);
        }
        rewind(&self.record);
        self.kept.join(&mut &self.record)
    }
}
