//! Writes a recording.
//!
//! The opening account is written twice: as the first frame, and into the room for the closing
//! account. The closing one goes into that room, which has its blocks on the disk already, so that
//! it can be written when the disk is full.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use zerocopy::IntoBytes;

use super::RecordingError;
use super::format::{
    CLOSING_SLACK_BYTES, FLAG_CROSSINGS, FRAME_BYTES, FRAME_BYTES_MAX, FrameHead, FrameKind, Head,
    HeadRest, MAGIC, Tally, VERSION,
};
use super::medium::{FileMedium, Medium};
use crate::{Event, TraceDescription};

/// Events are written this long after the first of them at the latest, as soon as another one
/// comes.
const WRITTEN_AFTER_NS: u64 = 1_000_000_000;
/// What stands in a closing account whose notes found no room.
const NOTES_DROPPED: &str = "What else was said of this trace found no room in the recording.";

/// A recording in the making.
#[derive(Debug)]
pub struct Recorder {
    path: PathBuf,
    medium: Box<dyn Medium>,
    /// How long the file is, up to its last complete frame.
    length: u64,
    /// Where the room for the closing account is, and its bytes. None where nothing can be written
    /// over.
    closing: Option<(u64, usize)>,
    /// The trace, as known at its beginning.
    about: TraceDescription,
    /// Encoded events that are not written yet.
    gathered: Vec<u8>,
    gathered_events: u32,
    /// When the first of them happened.
    gathered_since_ns: Option<u64>,
    kept: u64,
    dropped: u64,
    crossings_bytes: u64,
    has_all_crossings: bool,
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
    pub fn create(path: &Path, about: &TraceDescription) -> Result<Recorder, RecordingError> {
        Recorder::create_file(path, about, 0)
    }

    /// The same of a trace that will have [`Recorder::crossings`].
    ///
    /// # Errors
    /// The file cannot be made or written.
    pub fn create_with_crossings(
        path: &Path,
        about: &TraceDescription,
    ) -> Result<Recorder, RecordingError> {
        Recorder::create_file(path, about, FLAG_CROSSINGS)
    }

    fn create_file(
        path: &Path,
        about: &TraceDescription,
        flags: u32,
    ) -> Result<Recorder, RecordingError> {
        let failed =
            |step| move |source| RecordingError::Io { step, path: path.to_owned(), source };
        let mut options = File::options();
        // What programs opened and ran is their user's business.
        let options = options.write(true).create(true).truncate(true).mode(0o600);
        let medium = options.open(path).and_then(FileMedium::new).map_err(failed("make"))?;
        Recorder::begin(path, Box::new(medium), about, flags).map_err(failed("write"))
    }

    /// Writes the head, the room for the closing account and the opening account.
    pub(super) fn begin(
        path: &Path,
        medium: Box<dyn Medium>,
        about: &TraceDescription,
        flags: u32,
    ) -> io::Result<Recorder> {
        let opening = frame(FrameKind::Beginning, 1, 0, &encoded(about)?)?;
        let closing_bytes =
            if medium.can_overwrite() { opening.len() + CLOSING_SLACK_BYTES } else { 0 };
        let head = Head { magic: MAGIC, version: VERSION.into(), flags: flags.into() };
        let mut rest = HeadRest {
            closing_bytes: (closing_bytes as u32).into(),
            reserved: 0.into(),
            sum: 0.into(),
        };
        rest.sum = rest.sum_with(&head).into();
        let mut start = [head.as_bytes(), rest.as_bytes()].concat();
        let closing = (closing_bytes > 0).then_some((start.len() as u64, closing_bytes));
        if closing.is_some() {
            let end = start.len() + closing_bytes;
            start.extend(&opening);
            start.resize(end, 0);
        }
        start.extend(&opening);
        let mut recorder = Recorder {
            path: path.to_owned(),
            medium,
            length: 0,
            closing,
            about: about.clone(),
            gathered: Vec::with_capacity(FRAME_BYTES + 4096),
            gathered_events: 0,
            gathered_since_ns: None,
            kept: 0,
            dropped: 0,
            crossings_bytes: 0,
            has_all_crossings: flags & FLAG_CROSSINGS == 0,
            failure: None,
        };
        recorder.append(&start)?;
        Ok(recorder)
    }

    /// Keeps an event. A failure is reported by [`Recorder::finish`]; from the first one on nothing
    /// is kept.
    pub fn record(&mut self, event: &Event) {
        if self.failure.is_some() {
            self.dropped += 1;
            return;
        }
        let before = self.gathered.len();
        if let Err(error) = encode(event, &mut self.gathered) {
            self.gathered.truncate(before);
            self.dropped += 1;
            self.fail(error);
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

    /// Keeps the hosts' record of what crossed sandboxes, all of it. To be called once, after the
    /// last event.
    pub fn crossings(&mut self, record: &mut impl Read) {
        self.write_events();
        let mut piece = Vec::new();
        while self.failure.is_none() {
            piece.clear();
            let read = record.take(FRAME_BYTES as u64).read_to_end(&mut piece);
            let written = read.and_then(|bytes| match bytes {
                0 => Ok(true),
                _ => self
                    .write_frame(FrameKind::Crossings, 1, self.crossings_bytes, &piece)
                    .map(|()| false),
            });
            match written {
                Ok(true) => {
                    self.has_all_crossings = true;
                    return;
                }
                Ok(false) => self.crossings_bytes += piece.len() as u64,
                Err(error) => self.fail(error),
            }
        }
    }

    /// Writes the rest and the final account.
    ///
    /// # Errors
    /// [`RecordingError::Incomplete`]: the file took only a part. That part can be read, and says so.
    /// [`RecordingError::Unconfirmed`]: all was written, but the closing account was not, or not all is on the disk.
    pub fn finish(mut self, about: &TraceDescription) -> Result<Written, RecordingError> {
        self.write_events();
        let mut closed = self.write_closing(about, true);
        // A disk that fails may say so only now.
        if let Err(error) = self.medium.sync() {
            if self.failure.is_none() {
                self.failure = Some(io::Error::new(error.kind(), error.to_string()));
                drop(self.write_closing(about, true));
                self.failure = None;
            }
            closed = Err(error);
        }
        let (path, kept, dropped) = (self.path, self.kept, self.dropped);
        match (self.failure, closed) {
            (None, Ok(())) => Ok(Written { events: kept, bytes: self.length }),
            (Some(source), _) => Err(RecordingError::Incomplete { path, source, kept, dropped }),
            (None, Err(source)) => Err(RecordingError::Unconfirmed { path, source, kept }),
        }
    }

    /// Keeps nothing from now on, and writes why at once: the tracer may be killed before the end.
    fn fail(&mut self, error: io::Error) {
        self.failure = Some(error);
        let about = self.about.clone();
        // What cannot be written now is tried again at the end.
        drop(self.write_closing(&about, false));
    }

    /// Into its room; behind the last frame where it does not fit, or there is none; else without
    /// its notes.
    fn write_closing(&mut self, about: &TraceDescription, is_final: bool) -> io::Result<()> {
        let tally = Tally {
            is_final,
            recorded: self.kept + self.dropped,
            kept: self.kept,
            crossings_bytes: self.crossings_bytes,
            has_all_crossings: self.has_all_crossings,
            failure: self.failure.as_ref().map(ToString::to_string),
        };
        let whole =
            encoded(&(about, &tally)).and_then(|bytes| frame(FrameKind::End, 1, self.kept, &bytes));
        let whole = match whole {
            Ok(whole) => whole,
            Err(_) => return self.write_short_closing(about, &tally),
        };
        if self.overwrite_closing(&whole).is_ok() {
            return Ok(());
        }
        if !is_final {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.append(&whole).or_else(|_| self.write_short_closing(about, &tally))
    }

    fn write_short_closing(&mut self, about: &TraceDescription, tally: &Tally) -> io::Result<()> {
        let about = TraceDescription {
            lasted_ns: about.lasted_ns,
            cost: about.cost,
            lost: about.lost,
            notes: vec![NOTES_DROPPED.to_owned()],
            ..self.about.clone()
        };
        let bytes = encoded(&(&about, tally))?;
        self.overwrite_closing(&frame(FrameKind::End, 1, self.kept, &bytes)?)
    }

    fn overwrite_closing(&mut self, frame: &[u8]) -> io::Result<()> {
        match self.closing {
            Some((at_byte, bytes)) if frame.len() <= bytes => {
                let mut room = frame.to_vec();
                room.resize(bytes, 0);
                self.medium.overwrite(at_byte, &room)
            }
            _ => Err(io::ErrorKind::StorageFull.into()),
        }
    }

    fn write_events(&mut self) {
        let events = u64::from(self.gathered_events);
        self.gathered_events = 0;
        if events == 0 || self.failure.is_some() {
            self.dropped += events;
            return;
        }
        let gathered = std::mem::take(&mut self.gathered);
        match self.write_frame(FrameKind::Events, events as u32, self.kept, &gathered) {
            Ok(()) => self.kept += events,
            Err(error) => {
                self.dropped += events;
                self.fail(error);
            }
        }
        self.gathered = gathered;
        self.gathered.clear();
        self.gathered_since_ns = None;
    }

    fn write_frame(
        &mut self,
        kind: FrameKind,
        items: u32,
        before: u64,
        raw: &[u8],
    ) -> io::Result<()> {
        self.append(&frame(kind, items, before, raw)?)
    }

    /// All of it, or nothing.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let written = self.medium.append(self.length, bytes);
        match written {
            Ok(()) => self.length += bytes.len() as u64,
            // A part of a frame is distinguished from a complete one by the reader as well, so
            // nothing is lost if this fails, too.
            Err(_) => drop(self.medium.cut(self.length)),
        }
        written
    }
}

/// A frame, packed.
fn frame(kind: FrameKind, items: u32, before: u64, raw: &[u8]) -> io::Result<Vec<u8>> {
    if raw.len() > FRAME_BYTES_MAX {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the command line is too long to be kept",
        ));
    }
    let stored = lz4_flex::block::compress(raw);
    let head = FrameHead::of(kind, items, before, raw.len(), &stored);
    Ok([head.as_bytes(), &stored].concat())
}

fn encoded(value: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    encode(value, &mut bytes)?;
    Ok(bytes)
}

fn encode(value: &impl Serialize, bytes: &mut Vec<u8>) -> io::Result<()> {
    let taken = std::mem::take(bytes);
    *bytes = postcard::to_extend(value, taken).map_err(io::Error::other)?;
    Ok(())
}
