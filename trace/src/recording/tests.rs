//! Every way in which a recording can be incomplete, one after the other: each write fails, the
//! tracer dies within each write, each byte is the last one, each byte is damaged, each frame is
//! gone.
//!
//! What holds in all of them: the events that are read were recorded, in their order; and what is
//! missing is a number that adds up, or is said to be unknown.

use std::io::{self, Cursor, ErrorKind, Read};
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex};

use holdfast_crossings::{Record, frame};
use zerocopy::FromBytes;

use super::ending::Ending;
use super::format::{FLAG_CROSSINGS, FRAME_BYTES, FrameHead};
use super::medium::Medium;
use super::{Recorder, Recording, RecordingError};
use crate::classes::Scheme;
use crate::crossings::CallsInMemory;
use crate::{BackendKind, Event, Settings, Target, TraceDescription};

/// Events of all recordings here: some frames.
const EVENTS: u64 = 2_000;

/// One write, in the order in which they came.
#[derive(Debug, Clone)]
struct Write {
    at_byte: u64,
    bytes: Vec<u8>,
}

/// A file in memory whose writes can fail.
#[derive(Debug, Default)]
struct Disk {
    bytes: Vec<u8>,
    writes: Vec<Write>,
    /// From this append on all of them fail, after so many bytes of the first.
    fails_at: Option<(usize, usize)>,
    appends: usize,
    /// What failed cannot be cut off.
    keeps_rest: bool,
    /// Nothing can be written over.
    is_stream: bool,
    /// Writing over fails, too.
    overwrites_fail: bool,
    syncs_fail: bool,
    error: Option<ErrorKind>,
}

#[derive(Debug, Clone, Default)]
struct SharedDisk(Arc<Mutex<Disk>>);

impl SharedDisk {
    fn with<T>(&self, act: impl FnOnce(&mut Disk) -> T) -> T {
        act(&mut self.0.lock().unwrap())
    }
}

impl Disk {
    fn put(&mut self, at_byte: u64, bytes: &[u8]) {
        let (start, end) = (at_byte as usize, at_byte as usize + bytes.len());
        self.bytes.resize(self.bytes.len().max(end), 0);
        self.bytes[start..end].copy_from_slice(bytes);
        self.writes.push(Write { at_byte, bytes: bytes.to_vec() });
    }

    fn failure(&self) -> io::Error {
        self.error.unwrap_or(ErrorKind::StorageFull).into()
    }
}

impl Medium for SharedDisk {
    fn can_overwrite(&self) -> bool {
        self.with(|disk| !disk.is_stream)
    }

    fn append(&mut self, at_byte: u64, bytes: &[u8]) -> io::Result<()> {
        self.with(|disk| {
            disk.appends += 1;
            match disk.fails_at {
                Some((first, partly)) if disk.appends > first => {
                    if disk.appends == first + 1 {
                        disk.put(at_byte, &bytes[..partly.min(bytes.len())]);
                    }
                    Err(disk.failure())
                }
                _ => {
                    disk.put(at_byte, bytes);
                    Ok(())
                }
            }
        })
    }

    fn overwrite(&mut self, at_byte: u64, bytes: &[u8]) -> io::Result<()> {
        self.with(|disk| {
            if disk.overwrites_fail {
                return Err(disk.failure());
            }
            disk.put(at_byte, bytes);
            Ok(())
        })
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.with(|disk| {
            if disk.keeps_rest {
                return Err(disk.failure());
            }
            disk.bytes.truncate(length as usize);
            Ok(())
        })
    }

    fn sync(&mut self) -> io::Result<()> {
        self.with(|disk| if disk.syncs_fail { Err(disk.failure()) } else { Ok(()) })
    }
}

/// The same each time: what the machine has mounted may change between two calls.
fn about() -> TraceDescription {
    static ABOUT: LazyLock<TraceDescription> = LazyLock::new(|| {
        TraceDescription::before(&Settings::new(Target::Attach(vec![1])), BackendKind::Ptrace)
    });
    ABOUT.clone()
}

/// Events that LZ4 makes a half of at best, and that name their place.
fn event(number: u64) -> Event {
    let cpu_ns = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24;
    Event::ThreadTime { at_ns: number, process: 1, thread: 1, cpu_ns, queue_ns: 0 }
}

fn place(event: &Event) -> u64 {
    match event {
        Event::ThreadTime { at_ns, .. } => *at_ns,
        other => panic!("{other:?}"),
    }
}

/// Records to a disk; with the hosts' record of crossings if there is one.
fn record(disk: &SharedDisk, crossings: Option<&[u8]>) -> Result<(), RecordingError> {
    let flags = if crossings.is_some() { FLAG_CROSSINGS } else { 0 };
    let failed = |source| RecordingError::Io { step: "write", path: "disk".into(), source };
    let medium = Box::new(disk.clone());
    let mut recorder =
        Recorder::begin(Path::new("disk"), medium, &about(), flags).map_err(failed)?;
    (0..EVENTS).for_each(|number| recorder.record(&event(number)));
    crossings.into_iter().for_each(|mut record| recorder.crossings(&mut record));
    recorder.finish(&TraceDescription { lasted_ns: 77, ..about() }).map(drop)
}

fn recorded() -> Vec<u8> {
    let disk = SharedDisk::default();
    record(&disk, None).unwrap();
    disk.with(|disk| disk.bytes.clone())
}

fn open(bytes: &[u8]) -> Result<Recording, RecordingError> {
    Recording::read(Path::new("disk"), Box::new(Cursor::new(bytes.to_vec())))
}

/// The places of the events that are read, and what is said of the others. None if nothing can be
/// read.
fn read(bytes: &[u8]) -> Option<(Vec<u64>, Ending)> {
    let mut recording = match open(bytes) {
        Ok(recording) => recording,
        Err(RecordingError::Damaged { .. } | RecordingError::Foreign { .. }) => return None,
        Err(other) => panic!("{other}"),
    };
    let places: Vec<_> = recording.by_ref().map(|event| place(&event)).collect();
    let ending = recording.ending().unwrap().clone();
    // Nothing is made up, nothing comes twice, and nothing is said to be complete that is not.
    assert!(
        places.is_sorted_by(|one, other| one < other)
            && places.last().is_none_or(|last| *last < EVENTS)
    );
    assert_eq!(ending.events, places.len() as u64);
    let missing = EVENTS - ending.events;
    assert!(ending.missing <= missing, "{ending:?}");
    assert!(ending.missing == missing || ending.may_miss_more, "{missing}: {ending:?}");
    assert!(missing == 0 || !ending.is_complete(), "{ending:?}");
    assert_eq!(ending.is_complete(), ending.notes().is_empty());
    Some((places, ending))
}

fn is_prefix(places: &[u64]) -> bool {
    places.iter().copied().eq(0..places.len() as u64)
}

/// The most events that a frame of a recording has, when it is cut at these lengths.
fn frame_events(whole: &[u8], cuts: impl Iterator<Item = usize>) -> u64 {
    let mut lengths: Vec<u64> = Vec::new();
    for length in cuts {
        let found = read(&whole[..length]).map_or(0, |(places, _)| places.len() as u64);
        if lengths.last() != Some(&found) {
            lengths.push(found);
        }
    }
    assert!(lengths.is_sorted(), "a longer cut never has fewer events: {lengths:?}");
    lengths.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap()
}

/// Guarantee: trace/cut
#[test]
fn every_cut_costs_one_frame_at_most() {
    let whole = recorded();
    let (places, ending) = read(&whole).unwrap();
    assert!(ending.is_complete() && places.len() as u64 == EVENTS, "{ending:?}");
    let at_most = frame_events(&whole, 0..=whole.len());
    // The smallest event has two bytes; these have eight or more.
    assert!(at_most <= FRAME_BYTES as u64 / 8 && at_most > 10, "{at_most}");
    // A part of the file has that part of the events, to within a frame and what comes before the
    // first one.
    let first = (0..whole.len())
        .find(|length| read(&whole[..*length]).is_some_and(|(found, _)| !found.is_empty()));
    for length in (first.unwrap()..whole.len()).step_by(101) {
        let (places, ending) = read(&whole[..length]).unwrap();
        assert!(is_prefix(&places));
        let share = EVENTS as f64 * (length - 3_000) as f64 / (whole.len() - 3_000) as f64;
        assert!(
            places.len() as f64 > share - 2.0 * at_most as f64,
            "{length}: {} of {share}",
            places.len()
        );
        // How many are missing is known, as the account comes first.
        assert_eq!((ending.missing, ending.may_miss_more), (EVENTS - ending.events, false));
        assert_eq!(ending.account.as_ref().unwrap().lasted_ns, 77);
    }
}

/// Each write in turn fails, whole or in its middle, with and without the possibility to cut off or
/// to write over.
///
/// Guarantee: trace/full-disk
#[test]
fn every_write_that_fails_is_told() {
    let whole = SharedDisk::default();
    record(&whole, Some(b"some bytes of a host")).unwrap();
    let appends = whole.with(|disk| disk.appends);
    assert!(appends > 4, "{appends}");
    for failing in 0..appends {
        for (partly, keeps_rest, overwrites_fail) in [
            (0, false, false),
            (100, false, false),
            (100, true, false),
            (100, true, true),
            (usize::MAX, true, false),
        ] {
            for error in [
                ErrorKind::StorageFull,
                ErrorKind::QuotaExceeded,
                ErrorKind::FileTooLarge,
                ErrorKind::Other,
            ] {
                let disk = SharedDisk::default();
                disk.with(|disk| {
                    disk.fails_at = Some((failing, partly));
                    (disk.keeps_rest, disk.overwrites_fail, disk.error) =
                        (keeps_rest, overwrites_fail, Some(error));
                });
                let told = record(&disk, Some(b"some bytes of a host")).unwrap_err();
                let bytes = disk.with(|disk| disk.bytes.clone());
                let Some((places, ending)) = read(&bytes) else {
                    assert!(
                        failing == 0 && matches!(told, RecordingError::Io { .. }),
                        "{failing}: {told}"
                    );
                    continue;
                };
                if failing == 0 {
                    continue;
                }
                assert!(is_prefix(&places) && !ending.is_complete(), "{ending:?}");
                let RecordingError::Incomplete { kept, dropped, .. } = told else {
                    panic!("{told}")
                };
                assert_eq!(kept + dropped, EVENTS);
                // A frame that was there in whole before its write failed is read as well.
                assert!(places.len() as u64 == kept || partly == usize::MAX);
                if !overwrites_fail {
                    assert_eq!(
                        (ending.missing, ending.may_miss_more),
                        (EVENTS - ending.events, false)
                    );
                    assert!(ending.failure.is_some() && ending.account.is_some(), "{ending:?}");
                    assert!(ending.lacks_crossings);
                }
            }
        }
    }
}

/// The disk takes all writes and fails when they are to be on it; or the last account cannot be
/// written.
///
/// Guarantee: trace/full-disk
#[test]
fn a_failure_at_the_end_is_told() {
    for (syncs_fail, overwrites_fail) in [(true, false), (false, true), (true, true)] {
        let disk = SharedDisk::default();
        disk.with(|disk| {
            (disk.syncs_fail, disk.overwrites_fail, disk.error) =
                (syncs_fail, overwrites_fail, Some(ErrorKind::Other));
        });
        let told = record(&disk, None);
        let (places, ending) = read(&disk.with(|disk| disk.bytes.clone())).unwrap();
        assert_eq!(places.len() as u64, EVENTS);
        if syncs_fail {
            let told = told.unwrap_err();
            assert!(matches!(told, RecordingError::Unconfirmed { kept: EVENTS, .. }), "{told}");
            assert!(!ending.is_complete() && ending.failure.is_some(), "{ending:?}");
        } else {
            // It is behind the last frame then.
            told.unwrap();
            assert!(ending.is_complete(), "{ending:?}");
        }
    }
}

/// How many bytes the frame has that these begin with.
fn frame_bytes(bytes: &[u8]) -> usize {
    let (head, _) = FrameHead::read_from_prefix(bytes).unwrap();
    size_of::<FrameHead>() + head.stored_bytes.get() as usize
}

/// The tracer dies within each write, after each so many bytes of it.
///
/// Guarantee: trace/cut
/// Guarantee: trace/killed-tracer
#[test]
fn a_killed_tracer_leaves_what_it_wrote() {
    let disk = SharedDisk::default();
    record(&disk, None).unwrap();
    let writes = disk.with(|disk| std::mem::take(&mut disk.writes));
    let (mut bytes, mut most) = (Vec::new(), 0);
    for (index, write) in writes.iter().enumerate() {
        let is_closing = index + 1 == writes.len();
        for partly in (0..write.bytes.len()).step_by(if is_closing { 1 } else { 97 }) {
            let mut torn = bytes.clone();
            let start = write.at_byte as usize;
            torn.resize(torn.len().max(start + partly), 0_u8);
            torn[start..start + partly].copy_from_slice(&write.bytes[..partly]);
            // The room behind the closing frame may keep bytes of the opening account; and what was
            // there before may end as this does.
            if is_closing && torn[start..].starts_with(&write.bytes[..frame_bytes(&write.bytes)]) {
                continue;
            }
            let Some((places, ending)) = read(&torn) else {
                assert_eq!(index, 0, "after the first write there is something");
                continue;
            };
            assert!(is_prefix(&places) && places.len() >= most, "{} of {most}", places.len());
            most = places.len();
            assert!(ending.may_miss_more && ending.account.is_none(), "{ending:?}");
            assert!(
                ending.notes().iter().any(|note| note.contains("killed")),
                "{:?}",
                ending.notes()
            );
        }
        let end = write.at_byte as usize + write.bytes.len();
        bytes.resize(bytes.len().max(end), 0);
        bytes[write.at_byte as usize..end].copy_from_slice(&write.bytes);
    }
    assert!(most as u64 == EVENTS && read(&bytes).unwrap().1.is_complete());
}

/// The disk is full, and the tracer is killed before it can say how much was lost in all.
///
/// Guarantee: trace/cut
/// Guarantee: trace/killed-tracer
#[test]
fn a_killed_tracer_of_a_full_disk_says_both() {
    let disk = SharedDisk::default();
    disk.with(|disk| disk.fails_at = Some((2, 10)));
    let medium = Box::new(disk.clone());
    let mut recorder = Recorder::begin(Path::new("disk"), medium, &about(), 0).unwrap();
    (0..EVENTS).for_each(|number| recorder.record(&event(number)));
    drop(recorder);
    let (places, ending) = read(&disk.with(|disk| disk.bytes.clone())).unwrap();
    assert!(is_prefix(&places) && !places.is_empty() && ending.missing > 0);
    assert!(
        ending.may_miss_more && ending.failure.is_some() && ending.account.is_none(),
        "{ending:?}"
    );
    assert!(ending.notes().iter().any(|note| note.contains("killed")), "{:?}", ending.notes());
}

/// One byte is changed; a stretch is zero, or gone, or there twice.
///
/// Guarantee: trace/damage
#[test]
fn damage_costs_the_frames_that_it_hits() {
    let disk = SharedDisk::default();
    record(&disk, None).unwrap();
    let whole = disk.with(|disk| disk.bytes.clone());
    let ends = disk.with(|disk| {
        disk.writes
            .iter()
            .map(|write| write.at_byte as usize + write.bytes.len())
            .collect::<Vec<_>>()
    });
    let at_most = frame_events(&whole, ends[..ends.len() - 1].iter().copied());
    let mut damaged = whole.clone();
    for at in (0..whole.len()).filter(|at| *at < 400 || at % 11 == 0) {
        damaged[at] ^= 0x55;
        // The first bytes say what it is, the next ones of which version.
        match open(&damaged) {
            Err(RecordingError::Newer { .. } | RecordingError::Foreign { .. }) => {
                assert!(at < 12, "byte {at}")
            }
            Err(error) => assert!(at < 12, "byte {at}: {error}"),
            Ok(_) => {
                let (places, ending) = read(&damaged).unwrap();
                assert!(EVENTS - places.len() as u64 <= at_most, "byte {at}");
                // Room of the closing account that it did not need is of no use to anybody.
                assert!(!ending.is_complete() || (32..3_000).contains(&at), "byte {at}");
            }
        }
        damaged[at] ^= 0x55;
    }
    let middle = whole.len() / 2;
    for length in [1, 512, 4096] {
        let mut hole = whole.clone();
        hole[middle..middle + length].fill(0);
        let gone = [&whole[..middle], &whole[middle + length..]].concat();
        let twice = [&whole[..middle + length], &whole[middle..]].concat();
        for (bytes, frames) in [(hole, length / 2_000 + 2), (gone, length / 2_000 + 2), (twice, 1)]
        {
            let (places, ending) = read(&bytes).unwrap();
            let missing = EVENTS - places.len() as u64;
            assert!(missing <= frames as u64 * at_most, "{length}: {missing}");
            assert!(places.last() == Some(&(EVENTS - 1)), "what is behind the damage is read");
            assert_eq!((ending.missing, ending.may_miss_more), (missing, false));
            assert!(ending.damage.is_some_and(|damage| !damage.reaches_end), "{ending:?}");
        }
    }
}

/// The first frame and the room before it tell the same, so that either may be damaged.
///
/// Guarantee: trace/damage
#[test]
fn an_unfinished_recording_has_its_opening_twice() {
    let disk = SharedDisk::default();
    record(&disk, None).unwrap();
    let writes = disk.with(|disk| std::mem::take(&mut disk.writes));
    let unfinished: Vec<_> =
        writes[..writes.len() - 1].iter().flat_map(|write| write.bytes.clone()).collect();
    let start = writes[0].bytes.len();
    for range in [32..1_000, start - 100..start] {
        let mut damaged = unfinished.clone();
        damaged[range].fill(0xaa);
        let (places, ending) = read(&damaged).unwrap();
        assert!(
            places.len() as u64 == EVENTS && ending.may_miss_more && ending.damage.is_some(),
            "{ending:?}"
        );
    }
}

/// What cannot be written over has its account at its end, and a cut of it is not known to be one.
///
/// Guarantee: trace/cut
/// Guarantee: trace/killed-tracer
#[test]
fn a_stream_has_its_account_at_its_end() {
    let disk = SharedDisk::default();
    disk.with(|disk| disk.is_stream = true);
    record(&disk, None).unwrap();
    let whole = disk.with(|disk| disk.bytes.clone());
    assert!(read(&whole).unwrap().1.is_complete());
    for length in (0..whole.len()).step_by(37) {
        if let Some((places, ending)) = read(&whole[..length]) {
            assert!(is_prefix(&places) && ending.may_miss_more, "{length}: {ending:?}");
        }
    }
}

/// Notes of any length are dropped before the number of events is.
///
/// Guarantee: trace/full-disk
#[test]
fn long_notes_do_not_cost_the_account_of_a_full_disk() {
    let disk = SharedDisk::default();
    let medium = Box::new(disk.clone());
    let mut recorder = Recorder::begin(Path::new("disk"), medium, &about(), 0).unwrap();
    (0..EVENTS).for_each(|number| recorder.record(&event(number)));
    disk.with(|disk| disk.fails_at = Some((disk.appends, 0)));
    let noise: String =
        (0..EVENTS).map(|number| format!("{:x}", place(&event(number)) * 0x9e37_79b9)).collect();
    recorder.finish(&TraceDescription { notes: vec![noise], lost: 5, ..about() }).unwrap_err();
    let (_, ending) = read(&disk.with(|disk| disk.bytes.clone())).unwrap();
    let account = ending.account.unwrap();
    assert!(account.lost == 5 && account.notes[0].contains("no room"), "{:?}", account.notes);
    assert!(ending.missing > 0 && !ending.may_miss_more);
}

/// Fails to be read in its middle.
struct BadSector(Cursor<Vec<u8>>, u64);

impl Read for BadSector {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let left = self.1.saturating_sub(self.0.position());
        match left.min(bytes.len() as u64) as usize {
            0 => Err(io::Error::other("a bad sector")),
            most => self.0.read(&mut bytes[..most]),
        }
    }
}

/// If the end of a file cannot be read, the recording is read up to there.
///
/// Guarantee: trace/damage
#[test]
fn unreadable_tail_keeps_the_start() {
    let whole = recorded();
    let half = whole.len() as u64 / 2;
    let file = Box::new(BadSector(Cursor::new(whole), half));
    let mut recording = Recording::read(Path::new("disk"), file).unwrap();
    let events = recording.by_ref().count() as u64;
    let ending = recording.ending().unwrap();
    assert!(events > 300 && ending.missing == EVENTS - events, "{ending:?}");
    assert!(
        ending.notes().iter().any(|note| note.contains("a bad sector")),
        "{:?}",
        ending.notes()
    );
}

/// A file in which all bytes could begin a long frame is given up, instead of being summed up for
/// ever.
///
/// Guarantee: trace/damage
#[test]
fn a_file_of_false_frames_is_given_up() {
    let mut bytes = recorded();
    let mut head = FrameHead::of(super::format::FrameKind::Events, 1, 0, 8, &[0; 8]);
    head.stored_bytes = (4 << 20).into();
    let head = zerocopy::IntoBytes::as_bytes(&head).to_vec();
    (0..200_000).for_each(|_| bytes.extend(&head));
    let mut recording = open(&bytes).unwrap();
    assert_eq!(recording.by_ref().count() as u64, EVENTS);
    let ending = recording.ending().unwrap();
    assert!(
        ending.missing == 0 && ending.unreadable.is_some() && !ending.is_complete(),
        "{ending:?}"
    );
}

/// A recording with more crossings than the reader accepts keeps its events and its final totals.
///
/// Guarantee: trace/crossings-damage
#[test]
fn excess_crossings_do_not_cost_events() {
    // Pieces, the first of which ends within the host's one frame.
    let own = Record::Own { thread: 1, start_ns: u64::MAX, end_ns: u64::MAX };
    let record_of_host = frame(100, 0, true, &vec![own; 40_000]);
    assert!(record_of_host.len() > 3 << 18, "{}", record_of_host.len());
    let disk = SharedDisk::default();
    record(&disk, Some(&record_of_host)).unwrap();
    let bytes = disk.with(|disk| disk.bytes.clone());
    let read = |bytes_max| {
        let mut recording = open(&bytes).unwrap();
        recording.limit_crossings(bytes_max);
        assert_eq!(recording.by_ref().count() as u64, EVENTS);
        let ending = recording.ending().unwrap();
        assert!(ending.is_complete() && recording.about().lasted_ns == 77, "{ending:?}");
        let mut kept = recording.crossings().unwrap();
        (kept.len(), CallsInMemory::new(Scheme::Paper).join(&mut kept).notes)
    };
    let (kept, notes) = read(1);
    assert!(
        kept == FRAME_BYTES && notes.iter().any(|note| note.contains("is damaged")),
        "{kept}, {notes:?}"
    );
    let (kept, notes) = read(usize::MAX);
    assert!(
        kept == record_of_host.len() && !notes.iter().any(|note| note.contains("is damaged")),
        "{notes:?}"
    );
}
