//! Reads a recording: all of it that is sound, and what is known of the rest.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use zerocopy::FromBytes;

use super::RecordingError;
use super::ending::{Damage, Ending};
use super::format::{
    CLOSING_BYTES_MAX, FLAG_CROSSINGS, FRAME_MARK, FrameKind, Head, HeadRest, Layout, MAGIC, Tally,
    VERSION, VERSION_PLAIN, VERSION_UNMARKED,
};
use super::source::Source;
use crate::{Event, TraceDescription};

/// What is read of hosts' records, to within a frame. A caller that joins them finds that the rest
/// is missing.
const CROSSINGS_BYTES_MAX: usize = 1 << 30;
/// Bytes whose sum is compared in vain at most, over the whole file. A file can be made in which
/// every byte looks like the beginning of a long frame.
const UNSOUND_BYTES_MAX: u64 = 1 << 30;

/// A recording that is being read: an iterator over its events.
#[derive(Debug)]
pub struct Recording {
    about: TraceDescription,
    reading: Reading,
}

/// What is read of a recording, and how far.
#[derive(Debug)]
struct Reading {
    source: Source,
    layout: Layout,
    frame: Frame,
    /// How far the frame is read.
    consumed: usize,
    /// Events that are left in it.
    left: u32,
    /// Events that were read or are known to be missing so far: the place of the next one.
    place: u64,
    /// What the account at the end says, if there is one.
    tally: Option<Tally>,
    /// What is known of the end so far.
    found: Ending,
    is_at_end: bool,
    /// Bytes whose sum was wrong.
    unsound_bytes: u64,
    /// What the hosts recorded, if that was asked of them.
    crossings: Option<Vec<u8>>,
    /// Whether that is not known, as the head is damaged.
    may_have_crossings: bool,
    /// Bytes of it that were read or are known to be missing.
    crossings_place: u64,
    /// From so many bytes of them on the rest is passed over.
    crossings_bytes_max: usize,
}

#[derive(Debug, Default)]
struct Frame {
    /// Where it begins in the file, and how long it is there.
    at_byte: u64,
    file_bytes: u64,
    /// Unpacked.
    bytes: Vec<u8>,
    kind: Option<FrameKind>,
    items: u32,
    before: Option<u64>,
}

/// What is at a place of the file.
enum NextFrame {
    Sound(Frame),
    /// The file ends here.
    End,
    /// No frame, or a part of one.
    Unsound,
}

impl Recording {
    /// Opens a recording and reads what it is about.
    ///
    /// # Errors
    /// The file cannot be read, is no recording, or one of a later version.
    pub fn open(path: &Path) -> Result<Recording, RecordingError> {
        let failed =
            |step| move |source| RecordingError::Io { step, path: path.to_owned(), source };
        let file = File::open(path).map_err(failed("open"))?;
        Recording::read(path, Box::new(file))
    }

    pub(super) fn read(
        path: &Path,
        file: Box<dyn Read + Send>,
    ) -> Result<Recording, RecordingError> {
        let failed = |source| RecordingError::Io { step: "read", path: path.to_owned(), source };
        let mut source = Source::new(file);
        let head = source.peek(size_of::<Head>()).map_err(failed)?;
        let head = match Head::read_from_bytes(head) {
            Ok(head) if head.magic == MAGIC => head,
            _ => return Err(RecordingError::Foreign { path: path.to_owned() }),
        };
        let version = head.version.get();
        if version > VERSION {
            return Err(RecordingError::Newer { path: path.to_owned(), version, known: VERSION });
        }
        source.skip(size_of::<Head>());
        let is_marked = version > VERSION_UNMARKED;
        let mut reading = Reading {
            source,
            layout: if is_marked { Layout::Marked } else { Layout::Unmarked },
            frame: Frame::default(),
            consumed: 0,
            left: 0,
            place: 0,
            tally: None,
            found: Ending::default(),
            is_at_end: false,
            unsound_bytes: 0,
            crossings: (!is_marked && version > VERSION_PLAIN).then(Vec::new),
            may_have_crossings: false,
            crossings_place: 0,
            crossings_bytes_max: CROSSINGS_BYTES_MAX,
        };
        let closing_bytes =
            if is_marked { reading.read_head_rest(&head).map_err(failed)? } else { 0 };
        match reading.read_about(closing_bytes).map_err(failed)? {
            Some(about) => Ok(Recording { about, reading }),
            None => Err(RecordingError::Damaged { path: path.to_owned() }),
        }
    }

    /// The trace, as far as known at its end if the recording was read to its end and has an
    /// account of it, else as known at its beginning.
    pub fn about(&self) -> &TraceDescription {
        self.ending().and_then(|ending| ending.account.as_deref()).unwrap_or(&self.about)
    }

    /// The hosts' record of what crossed sandboxes, if one was asked for: once there are no more
    /// events all of it, or as much as is read of one.
    pub fn crossings(&self) -> Option<&[u8]> {
        self.reading.crossings.as_deref()
    }

    /// How it ends: known once there are no more events.
    pub fn ending(&self) -> Option<&Ending> {
        self.reading.is_at_end.then_some(&self.reading.found)
    }

    #[cfg(test)]
    pub(super) fn limit_crossings(&mut self, bytes_max: usize) {
        self.reading.crossings_bytes_max = bytes_max;
    }
}

impl Iterator for Recording {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        self.reading.next_event()
    }
}

impl Reading {
    /// The second half of the head; says how long the room for the closing account is. Of a damaged
    /// one nothing is believed: the frames behind it are found by their marks.
    fn read_head_rest(&mut self, head: &Head) -> io::Result<usize> {
        let bytes = self.source.peek(size_of::<HeadRest>())?;
        let rest = HeadRest::read_from_bytes(bytes).ok();
        let sound = rest.filter(|rest| {
            rest.sum.get() == rest.sum_with(head)
                && rest.closing_bytes.get() as usize <= CLOSING_BYTES_MAX
        });
        let Some(rest) = sound else {
            self.may_have_crossings = true;
            self.pass_over(size_of::<HeadRest>());
            return Ok(0);
        };
        self.source.skip(size_of::<HeadRest>());
        self.crossings = (head.flags.get() & FLAG_CROSSINGS != 0).then(Vec::new);
        Ok(rest.closing_bytes.get() as usize)
    }

    /// The account of the beginning; where it cannot be read, that of the end.
    fn read_about(&mut self, closing_bytes: usize) -> io::Result<Option<TraceDescription>> {
        let mut opening = None;
        if closing_bytes > 0 {
            let there = self.source.peek(closing_bytes)?.len();
            let at_byte = self.source.at_byte();
            match self.frame_here(closing_bytes)? {
                NextFrame::Sound(frame) if frame.kind == Some(FrameKind::Beginning) => {
                    opening = account(&frame.bytes)
                }
                NextFrame::Sound(frame) if frame.kind == Some(FrameKind::End) => self.close(&frame),
                NextFrame::Sound(_) | NextFrame::Unsound | NextFrame::End => self.pass_over(there),
            }
            let read = (self.source.at_byte() - at_byte) as usize;
            self.source.skip(closing_bytes.min(there).saturating_sub(read));
        }
        // A frame that is unsound here is passed over later, with what else is.
        match self.frame_here(usize::MAX)? {
            NextFrame::Sound(frame) if frame.kind == Some(FrameKind::Beginning) => {
                opening = account(&frame.bytes).or(opening);
            }
            NextFrame::Sound(frame) => self.take(frame),
            NextFrame::Unsound | NextFrame::End => {}
        }
        Ok(opening.or_else(|| self.found.account.as_deref().cloned()))
    }

    /// The frame at the place, and moves behind it if it is sound. It has to be within `within`
    /// bytes.
    fn frame_here(&mut self, within: usize) -> io::Result<NextFrame> {
        let at_byte = self.source.at_byte();
        let head = self.source.peek(self.layout.head_bytes().min(within))?;
        if head.is_empty() {
            return Ok(NextFrame::End);
        }
        let Some(candidate) = self.layout.candidate(head) else { return Ok(NextFrame::Unsound) };
        let file_bytes = candidate.head_bytes + candidate.stored_bytes;
        if file_bytes > within {
            return Ok(NextFrame::Unsound);
        }
        let frame = self.source.peek(file_bytes)?;
        if frame.len() < file_bytes {
            return Ok(NextFrame::Unsound);
        }
        let unpacked = if self.layout.is_sound(frame) {
            lz4_flex::block::decompress(&frame[candidate.head_bytes..], candidate.raw_bytes).ok()
        } else {
            None
        };
        let Some(bytes) = unpacked else {
            self.unsound_bytes = self.unsound_bytes.saturating_add(file_bytes as u64);
            return Ok(NextFrame::Unsound);
        };
        self.source.skip(file_bytes);
        Ok(NextFrame::Sound(Frame {
            at_byte,
            file_bytes: file_bytes as u64,
            bytes,
            kind: Some(candidate.kind),
            items: candidate.items,
            before: candidate.before,
        }))
    }

    /// The next sound frame; None at the end of the file.
    fn next_frame(&mut self) -> io::Result<Option<Frame>> {
        loop {
            match self.frame_here(usize::MAX)? {
                NextFrame::Sound(frame) => return Ok(Some(frame)),
                NextFrame::End => return Ok(None),
                NextFrame::Unsound if self.unsound_bytes > UNSOUND_BYTES_MAX => {
                    return Err(io::Error::other("too much of it is damaged"));
                }
                NextFrame::Unsound => self.pass_to_next()?,
            }
        }
    }

    /// Passes over one byte, and further to where a frame may begin.
    fn pass_to_next(&mut self) -> io::Result<()> {
        self.pass_over(1);
        if self.layout == Layout::Unmarked {
            return Ok(());
        }
        while self.source.peek(FRAME_MARK.len())?.len() == FRAME_MARK.len() {
            let at_hand = self.source.at_hand();
            let found = at_hand.windows(FRAME_MARK.len()).position(|bytes| bytes == FRAME_MARK);
            let passed = found.unwrap_or(at_hand.len() + 1 - FRAME_MARK.len());
            self.pass_over(passed);
            if found.is_some() {
                return Ok(());
            }
        }
        let rest = self.source.at_hand().len();
        self.pass_over(rest);
        Ok(())
    }

    /// Bytes at the place that are not read.
    fn pass_over(&mut self, bytes: usize) {
        let bytes = bytes.min(self.source.at_hand().len());
        self.note_damage(self.source.at_byte(), bytes as u64);
        if let Some(damage) = &mut self.found.damage {
            damage.reaches_end = true;
        }
        self.source.skip(bytes);
    }

    fn note_damage(&mut self, at_byte: u64, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let damage =
            self.found.damage.get_or_insert(Damage { at_byte, bytes: 0, reaches_end: false });
        damage.at_byte = damage.at_byte.min(at_byte);
        damage.bytes += bytes;
    }

    /// Takes a sound frame for what it is.
    fn take(&mut self, frame: Frame) {
        if let Some(damage) = &mut self.found.damage {
            damage.reaches_end = false;
        }
        match frame.kind {
            Some(FrameKind::Events) => self.take_events(frame),
            Some(FrameKind::Crossings) => self.take_crossings(&frame),
            Some(FrameKind::End) => self.close(&frame),
            // One of a damaged head, or a copy.
            Some(FrameKind::Beginning) | None if self.layout == Layout::Marked => {}
            Some(FrameKind::Beginning) | None => self.note_damage(frame.at_byte, frame.file_bytes),
        }
    }

    fn take_events(&mut self, frame: Frame) {
        let before = frame.before.unwrap_or(self.place);
        if before < self.place {
            // These were read.
            self.note_damage(frame.at_byte, frame.file_bytes);
            return;
        }
        self.found.missing = self.found.missing.saturating_add(before - self.place);
        self.place = before.saturating_add(u64::from(frame.items));
        (self.consumed, self.left) = (0, frame.items);
        self.frame = frame;
    }

    fn take_crossings(&mut self, frame: &Frame) {
        if self.may_have_crossings {
            self.crossings.get_or_insert_default();
        }
        let Some(crossings) = &mut self.crossings else {
            self.note_damage(frame.at_byte, frame.file_bytes);
            return;
        };
        self.found.lacks_crossings |=
            frame.before.is_some_and(|before| before != self.crossings_place);
        self.crossings_place = self.crossings_place.saturating_add(frame.bytes.len() as u64);
        // What is too much is passed over: the trace itself is good, and how it ended is still to
        // come.
        if crossings.len() < self.crossings_bytes_max {
            crossings.extend(&frame.bytes);
        }
    }

    /// An account of the end: of the trace, or of the recording when a write failed.
    fn close(&mut self, frame: &Frame) {
        let (about, tally) = match self.layout {
            Layout::Unmarked => (account::<TraceDescription>(&frame.bytes), None),
            Layout::Marked => match account::<(TraceDescription, Tally)>(&frame.bytes) {
                Some((about, tally)) => (Some(about).filter(|_| tally.is_final), Some(tally)),
                None => (None, None),
            },
        };
        if about.is_none() && tally.is_none() {
            self.note_damage(frame.at_byte, frame.file_bytes);
            return;
        }
        if about.is_some() {
            self.found.account = about.map(Box::new);
        }
        if tally.as_ref().is_some_and(|tally| tally.is_final) || self.tally.is_none() {
            self.tally = tally;
        }
        // Up to version 2 this is the last frame.
        self.is_at_end |= self.layout == Layout::Unmarked;
    }

    /// The next event of the frame.
    fn unpack_next(&mut self) -> Option<Event> {
        match postcard::take_from_bytes::<Event>(&self.frame.bytes[self.consumed..]) {
            Ok((event, rest)) => {
                self.consumed = self.frame.bytes.len() - rest.len();
                self.left -= 1;
                self.found.events += 1;
                Some(event)
            }
            // The sum was right, so this was written by something else.
            Err(_) => {
                self.found.missing = self.found.missing.saturating_add(u64::from(self.left));
                self.left = 0;
                self.note_damage(self.frame.at_byte, self.frame.file_bytes);
                None
            }
        }
    }

    /// Sums up what is missing.
    fn end(&mut self) {
        self.is_at_end = true;
        let ending = &mut self.found;
        match &self.tally {
            Some(tally) => {
                ending.missing = ending.missing.max(tally.recorded.saturating_sub(ending.events));
                ending.may_miss_more = !tally.is_final;
                ending.unwritten = tally.recorded.saturating_sub(tally.kept).min(ending.missing);
                ending.failure.clone_from(&tally.failure);
                ending.lacks_crossings |= self.crossings.is_some()
                    && (!tally.has_all_crossings || tally.crossings_bytes > self.crossings_place);
            }
            // Up to version 2 events are not counted.
            None => {
                let is_unknown = ending.damage.is_some() || ending.unreadable.is_some();
                ending.may_miss_more = ending.account.is_none() || is_unknown;
                ending.lacks_crossings |= self.crossings.is_some() && ending.account.is_none();
            }
        }
    }

    /// The next event of all.
    fn next_event(&mut self) -> Option<Event> {
        loop {
            if self.left > 0 {
                if let Some(event) = self.unpack_next() {
                    return Some(event);
                }
                continue;
            }
            if self.is_at_end {
                return None;
            }
            match self.next_frame() {
                Ok(Some(frame)) => self.take(frame),
                Ok(None) => self.is_at_end = true,
                Err(error) => {
                    self.found.unreadable = Some(error.to_string());
                    self.is_at_end = true;
                }
            }
            if self.is_at_end {
                self.end();
            }
        }
    }
}

fn account<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    postcard::from_bytes(bytes).ok()
}
