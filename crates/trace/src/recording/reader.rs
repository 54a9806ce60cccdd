//! Reads a recording.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use zerocopy::{FromZeros, IntoBytes};

use super::RecordingError;
use super::format::{FrameHead, Head, Kind, MAGIC, VERSION, VERSION_PLAIN};
use crate::{About, Event};

/// What is read of hosts' records, to within a frame. Who joins them finds that the rest is missing.
const CROSSINGS_BYTES_MAX: usize = 1 << 30;

/// How a recording ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// As it should: this is the full account.
    Complete(Box<About>),
    /// After a complete frame that is not the last one: its tracer was killed, or the disk was full, or it is still at work.
    Unfinished,
    /// In the middle of a frame, or in bytes that are no frame: everything before is good, and this many bytes from here on are not read.
    Torn {
        /// Where the good part ends, in bytes.
        at_byte: u64,
    },
}

/// A recording that is being read: an iterator over its events. An error is one of the disk and ends it.
#[derive(Debug)]
pub struct Recording {
    path: PathBuf,
    file: BufReader<File>,
    about: About,
    /// Where the next frame begins.
    at_byte: u64,
    frame: Vec<u8>,
    /// How far the frame is read.
    consumed: usize,
    /// Events that are left in it.
    left: u32,
    ending: Option<Ending>,
    /// What the hosts recorded, if that was asked of them.
    crossings: Option<Vec<u8>>,
    /// From so many bytes of them on the rest is passed over.
    crossings_bytes_max: usize,
}

impl Recording {
    /// Opens a recording and reads what it is about.
    ///
    /// # Errors
    /// The file cannot be read, is no recording, or one of a later version.
    pub fn open(path: &Path) -> Result<Recording, RecordingError> {
        let failed = |step| move |source| RecordingError::Io { step, path: path.to_owned(), source };
        let mut file = BufReader::new(File::open(path).map_err(failed("open"))?);
        let mut head = Head::new_zeroed();
        if !fill(&mut file, head.as_mut_bytes()).map_err(failed("read"))? || head.magic != MAGIC {
            return Err(RecordingError::Foreign { path: path.to_owned() });
        }
        let version = head.version.get();
        if version > VERSION {
            return Err(RecordingError::Newer { path: path.to_owned(), version, known: VERSION });
        }
        let damaged = || RecordingError::Damaged { path: path.to_owned() };
        let mut at_byte = size_of::<Head>() as u64;
        let about = match next_frame(&mut file, &mut at_byte).map_err(failed("read"))? {
            Frame::Good { kind: Kind::Beginning, bytes, .. } => account(&bytes).ok_or_else(damaged)?,
            _ => return Err(damaged()),
        };
        let crossings = (version > VERSION_PLAIN).then(Vec::new);
        let path = path.to_owned();
        Ok(Recording {
            path,
            file,
            about,
            at_byte,
            frame: Vec::new(),
            consumed: 0,
            left: 0,
            ending: None,
            crossings,
            crossings_bytes_max: CROSSINGS_BYTES_MAX,
        })
    }

    /// The trace, as far as known at its end if the recording was read to a complete end, else as known at its beginning.
    pub fn about(&self) -> &About {
        match &self.ending {
            Some(Ending::Complete(about)) => about,
            _ => &self.about,
        }
    }

    /// The hosts' record of what crossed sandboxes, if one was asked for: once there are no more events all of it, or as much as is read of one.
    pub fn crossings(&self) -> Option<&[u8]> {
        self.crossings.as_deref()
    }

    /// How it ends: known once there are no more events.
    pub fn ending(&self) -> Option<&Ending> {
        self.ending.as_ref()
    }

    /// The next event of the frame.
    fn unpack_next(&mut self) -> Option<Event> {
        match postcard::take_from_bytes::<Event>(&self.frame[self.consumed..]) {
            Ok((event, rest)) => {
                self.consumed = self.frame.len() - rest.len();
                self.left -= 1;
                Some(event)
            }
            // The sum was right, so this was written by something else.
            Err(_) => {
                self.ending = Some(Ending::Torn { at_byte: self.at_byte });
                None
            }
        }
    }

    fn load(&mut self) -> io::Result<()> {
        let began_at = self.at_byte;
        let torn = Ending::Torn { at_byte: began_at };
        match next_frame(&mut self.file, &mut self.at_byte)? {
            Frame::Good { kind: Kind::Events, bytes, items } => {
                (self.frame, self.consumed, self.left) = (bytes, 0, items);
            }
            Frame::Good { kind: Kind::Crossings, bytes, .. } => match &mut self.crossings {
                Some(crossings) if crossings.len() < self.crossings_bytes_max => crossings.extend(bytes),
                // The trace itself is good, and how it ended is still to come.
                Some(_) => {}
                None => self.ending = Some(torn),
            },
            Frame::Good { kind: Kind::End, bytes, .. } => {
                self.ending = Some(account(&bytes).map_or(torn, |about| Ending::Complete(Box::new(about))));
            }
            Frame::Good { kind: Kind::Beginning, .. } | Frame::Torn => self.ending = Some(torn),
            Frame::None => self.ending = Some(Ending::Unfinished),
        }
        Ok(())
    }
}

impl Iterator for Recording {
    type Item = Result<Event, RecordingError>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.ending.is_none() {
            if self.left > 0 {
                if let Some(event) = self.unpack_next() {
                    return Some(Ok(event));
                }
            } else if let Err(source) = self.load() {
                self.ending = Some(Ending::Torn { at_byte: self.at_byte });
                return Some(Err(RecordingError::Io { step: "read", path: self.path.clone(), source }));
            }
        }
        None
    }
}

enum Frame {
    Good {
        kind: Kind,
        bytes: Vec<u8>,
        items: u32,
    },
    /// The file ends before it.
    None,
    /// The file ends within it, or these are no bytes of one.
    Torn,
}

/// Reads a frame, and moves `at_byte` behind it if it is good.
fn next_frame(file: &mut impl Read, at_byte: &mut u64) -> io::Result<Frame> {
    let mut head = FrameHead::new_zeroed();
    match fill_some(file, head.as_mut_bytes())? {
        0 => return Ok(Frame::None),
        bytes if bytes < size_of::<FrameHead>() => return Ok(Frame::Torn),
        _ => {}
    }
    let Some(kind) = Kind::of(head.kind.get()).filter(|_| head.is_bounded()) else { return Ok(Frame::Torn) };
    let mut stored = vec![0; head.stored_bytes.get() as usize];
    if !fill(file, &mut stored)? || head.sum_with(&stored) != head.sum.get() {
        return Ok(Frame::Torn);
    }
    let Ok(bytes) = lz4_flex::block::decompress(&stored, head.raw_bytes.get() as usize) else {
        return Ok(Frame::Torn);
    };
    *at_byte += (size_of::<FrameHead>() + stored.len()) as u64;
    Ok(Frame::Good { kind, bytes, items: head.items.get() })
}

fn account<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    postcard::from_bytes(bytes).ok()
}

/// Whether the file had that many bytes.
fn fill(file: &mut impl Read, bytes: &mut [u8]) -> io::Result<bool> {
    Ok(fill_some(file, bytes)? == bytes.len())
}

/// How many bytes the file had, up to that many.
fn fill_some(file: &mut impl Read, mut bytes: &mut [u8]) -> io::Result<usize> {
    Ok(io::copy(&mut file.take(bytes.len() as u64), &mut bytes)? as usize)
}

#[cfg(test)]
mod tests {
    use holdfast_crossings::{Record, frame};

    use super::*;
    use crate::classes::Scheme;
    use crate::crossings::Kept;
    use crate::{BackendKind, Recorder, Settings, Target};

    #[test]
    fn a_recording_with_more_crossings_than_are_read_keeps_its_events_and_its_final_account() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let about = About::before(&Settings::new(Target::Attach(vec![1])), BackendKind::Ptrace);
        let mut recorder = Recorder::create_with_crossings(file.path(), &about).unwrap();
        recorder.record(&Event::Lost { events: 3 });
        // Pieces of 256 KiB, the first of which ends within the host's one frame.
        let own = Record::Own { thread: 1, start_ns: u64::MAX, end_ns: u64::MAX };
        let record = frame(100, 0, true, &vec![own; 40_000]);
        assert!(record.len() > 3 << 18, "{}", record.len());
        recorder.crossings(&mut record.as_slice());
        recorder.finish(&About { lost: 3, ..about }).unwrap();
        let read = |bytes_max| {
            let mut recording = Recording::open(file.path()).unwrap();
            recording.crossings_bytes_max = bytes_max;
            assert_eq!(recording.by_ref().map(Result::unwrap).count(), 1);
            let is_complete = matches!(recording.ending(), Some(Ending::Complete(_)));
            assert!(is_complete && recording.about().lost == 3, "{:?}", recording.ending());
            let mut kept = recording.crossings().unwrap();
            (kept.len(), Kept::new(Scheme::Paper).join(&mut kept).notes)
        };
        let (kept, notes) = read(1);
        assert!(kept == 1 << 18 && notes.iter().any(|note| note.contains("is damaged")), "{kept}, {notes:?}");
        let (kept, notes) = read(CROSSINGS_BYTES_MAX);
        assert!(kept == record.len() && !notes.iter().any(|note| note.contains("is damaged")), "{notes:?}");
    }
}
