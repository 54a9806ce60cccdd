//! Writes a recording.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use zerocopy::IntoBytes;

use super::RecordingError;
use super::format::{FRAME_BYTES, FRAME_BYTES_MAX, FrameHead, Head, Kind, MAGIC, VERSION, VERSION_PLAIN};
use crate::{About, Event};

/// Events are written this long after the first of them at the latest, as soon as another one comes.
const WRITTEN_AFTER_NS: u64 = 1_000_000_000;

/// A recording in the making.
#[derive(Debug)]
pub struct Recorder {
    path: PathBuf,
    file: File,
    /// How long the file is, up to its last complete frame.
    length: u64,
    /// Encoded events that are not written yet.
    gathered: Vec<u8>,
    gathered_events: u32,
    /// When the first of them happened.
    gathered_since_ns: Option<u64>,
    kept: u64,
    dropped: u64,
    failure: Option<io::Error>,
}

/// What a finished recording has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// Events.
    pub events: u64,
    /// Bytes of the file.
    pub bytes: u64,
}

impl Recorder {
    /// Makes the file, or empties it if it is there, and writes what is known of the trace.
    ///
    /// # Errors
    /// The file cannot be made or written.
    pub fn create(path: &Path, about: &About) -> Result<Recorder, RecordingError> {
        Recorder::begin(path, about, VERSION_PLAIN)
    }

    /// The same of a trace that will have [`Recorder::crossings`].
    ///
    /// # Errors
    /// The file cannot be made or written.
    pub fn create_with_crossings(path: &Path, about: &About) -> Result<Recorder, RecordingError> {
        Recorder::begin(path, about, VERSION)
    }

    fn begin(path: &Path, about: &About, version: u32) -> Result<Recorder, RecordingError> {
        let failed = |step| move |source| RecordingError::Io { step, path: path.to_owned(), source };
        let mut options = File::options();
        // What programs opened and ran is their user's business.
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(path);
        let file = file.map_err(failed("make"))?;
        let mut recorder = Recorder {
            path: path.to_owned(),
            file,
            length: 0,
            gathered: Vec::with_capacity(FRAME_BYTES + 4096),
            gathered_events: 0,
            gathered_since_ns: None,
            kept: 0,
            dropped: 0,
            failure: None,
        };
        let head = Head { magic: MAGIC, version: version.into(), reserved: 0.into() };
        recorder.append(head.as_bytes()).map_err(failed("write"))?;
        recorder.write_account(Kind::Beginning, about).map_err(failed("write"))?;
        Ok(recorder)
    }

    /// Keeps an event. A failure is told by [`Recorder::finish`]; from the first one on nothing is kept.
    pub fn record(&mut self, event: &Event) {
        if self.failure.is_some() {
            self.dropped += 1;
            return;
        }
        let before = self.gathered.len();
        if let Err(error) = encode(event, &mut self.gathered) {
            self.gathered.truncate(before);
            self.dropped += 1;
            self.failure = Some(error);
            return;
        }
        self.gathered_events += 1;
        let since_ns = self.gathered_since_ns.or(event.at_ns());
        self.gathered_since_ns = since_ns;
        let is_old = since_ns
            .zip(event.at_ns())
            .is_some_and(|(since, at)| at.saturating_sub(since) > WRITTEN_AFTER_NS);
        if is_old || self.gathered.len() >= FRAME_BYTES {
            self.write_events();
        }
    }

    /// Keeps the hosts' record of what crossed sandboxes, all of it. To be called once, after the last event.
    pub fn crossings(&mut self, record: &mut impl Read) {
        self.write_events();
        let mut piece = Vec::new();
        while self.failure.is_none() {
            piece.clear();
            match record.take(FRAME_BYTES as u64).read_to_end(&mut piece) {
                Ok(0) => return,
                Ok(_) => self.failure = self.write_frame(Kind::Crossings, 1, &piece).err(),
                Err(error) => self.failure = Some(error),
            }
        }
    }

    /// Writes the rest and the final account.
    ///
    /// # Errors
    /// [`RecordingError::Incomplete`]: the file took only a part. That part can be read.
    pub fn finish(mut self, about: &About) -> Result<Written, RecordingError> {
        self.write_events();
        if self.failure.is_none() {
            self.failure = self.write_account(Kind::End, about).err();
        }
        match self.failure {
            None => Ok(Written { events: self.kept, bytes: self.length }),
            Some(source) => Err(RecordingError::Incomplete {
                path: self.path,
                source,
                kept: self.kept,
                dropped: self.dropped,
            }),
        }
    }

    fn write_events(&mut self) {
        let events = u64::from(self.gathered_events);
        if events == 0 || self.failure.is_some() {
            self.dropped += events;
            self.gathered_events = 0;
            return;
        }
        let gathered = std::mem::take(&mut self.gathered);
        match self.write_frame(Kind::Events, self.gathered_events, &gathered) {
            Ok(()) => self.kept += events,
            Err(error) => {
                self.dropped += events;
                self.failure = Some(error);
            }
        }
        self.gathered = gathered;
        self.gathered.clear();
        self.gathered_events = 0;
        self.gathered_since_ns = None;
    }

    fn write_account(&mut self, kind: Kind, about: &About) -> io::Result<()> {
        let mut bytes = Vec::new();
        encode(about, &mut bytes)?;
        self.write_frame(kind, 1, &bytes)
    }

    fn write_frame(&mut self, kind: Kind, items: u32, raw: &[u8]) -> io::Result<()> {
        if raw.len() > FRAME_BYTES_MAX {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the command line is too long to be kept",
            ));
        }
        let stored = lz4_flex::block::compress(raw);
        let mut head = FrameHead {
            kind: kind.code().into(),
            stored_bytes: (stored.len() as u32).into(),
            raw_bytes: (raw.len() as u32).into(),
            items: items.into(),
            sum: 0.into(),
        };
        head.sum = head.sum_with(&stored).into();
        self.append(&[head.as_bytes(), &stored].concat())
    }

    /// All of it, or nothing.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let written = self.file.write_all(bytes);
        match written {
            Ok(()) => self.length += bytes.len() as u64,
            // A part of a frame is told from a complete one by the reader as well, so nothing is lost if this fails, too.
            Err(_) => drop(self.file.set_len(self.length)),
        }
        written
    }
}

fn encode(value: &impl Serialize, bytes: &mut Vec<u8>) -> io::Result<()> {
    let taken = std::mem::take(bytes);
    *bytes = postcard::to_extend(value, taken).map_err(io::Error::other)?;
    Ok(())
}
