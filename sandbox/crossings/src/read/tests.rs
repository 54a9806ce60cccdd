//! A record reads back as it was written, and nothing else is believed.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read as _, Seek, SeekFrom};

use super::*;
use crate::log::Log;
use crate::record::{Answer, AppletKind};

/// A file that several may append to, and what was written to it.
fn file() -> File {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::OpenOptions::new().append(true).read(true).open(file.path()).unwrap()
}

fn bytes_of(file: &mut File) -> Vec<u8> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_to_end(&mut bytes).unwrap();
    bytes
}

fn written(crossings: u32) -> Vec<u8> {
    let mut file = file();
    let log = Log::new(file.try_clone().unwrap(), u64::MAX);
    let applet = log.begin(AppletKind::Wasm, "an applet");
    let name = log.name("fd_write");
    for at in 0..u64::from(crossings) {
        let record = Record::Crossing { applet, name, thread: 1, start_ns: at, end_ns: at + 1 };
        log.add(&record, at + 1);
    }
    log.end(applet);
    bytes_of(&mut file)
}

fn crossings(read: &Read) -> usize {
    let is_one = |record: &&Record| matches!(record, Record::Crossing { .. });
    read.hosts.iter().flat_map(|host| &host.records).filter(is_one).count()
}

/// Crossings and their names are read back over any number of frames.
///
/// Guarantee: trace/crossings-damage
#[test]
fn marks_and_names_survive_many_frames() {
    let bytes = written(100_000);
    let read = read(&mut bytes.as_slice()).unwrap();
    assert_eq!((read.hosts.len(), crossings(&read), read.ending), (1, 100_000, Ending::Whole));
    let host = &read.hosts[0];
    assert!(host.is_finished && !host.has_gaps && host.dropped == 0 && host.writes.len() > 3);
    assert_eq!(host.process, std::process::id());
    let Some(Record::Applet { name, kind: AppletKind::Wasm, .. }) =
        host.records.iter().find(|record| matches!(record, Record::Applet { .. }))
    else {
        panic!("no applet")
    };
    assert_eq!(host.name(*name), "an applet");
}

/// A record that is cut or changed at any byte keeps the part before the damage and reports it.
///
/// Guarantee: trace/crossings-damage
#[test]
fn damaged_record_keeps_what_is_before() {
    let bytes = written(60_000);
    let first =
        size_of::<FrameHead>() + u32::from_le_bytes(bytes[16..20].try_into().unwrap()) as usize;
    for cut in [1, 39, first - 1, first + 1, first + 200, bytes.len() - 1] {
        let read = read(&mut &bytes[..cut]).unwrap();
        assert!(matches!(read.ending, Ending::Torn { .. }), "{cut}");
        assert!(read.hosts.iter().all(|host| !host.is_finished), "{cut}");
    }
    for at in (0..bytes.len()).step_by(997) {
        let mut changed = bytes.clone();
        changed[at] ^= 0x40;
        let read = read(&mut changed.as_slice()).unwrap();
        let Ending::Torn { at_byte } = read.ending else { panic!("byte {at} is believed") };
        assert!(at_byte <= at as u64 && crossings(&read) < 60_000);
    }
    // A frame that is taken out is missed.
    let without = read(&mut &bytes[first..]).unwrap();
    assert!(without.hosts[0].has_gaps && without.ending == Ending::Whole);
}

/// Guarantee: trace/crossings-damage
#[test]
fn lengths_and_numbers_that_lie_take_no_memory() {
    let mut head = FrameHead::new_zeroed();
    head.magic = MAGIC;
    for (bytes, records) in [(u32::MAX, 1), (0, u32::MAX), (FRAME_BYTES_MAX as u32, u32::MAX)] {
        (head.bytes, head.records) = (bytes.into(), records.into());
        head.sum = head.sum_with(&[]).into();
        let read = read(&mut head.as_bytes()).unwrap();
        assert!(matches!(read.ending, Ending::Torn { .. }), "{bytes} bytes, {records} records");
    }
}

/// The length and number of names in a record are limited, and so is the size of a frame.
///
/// Guarantee: trace/crossings-damage
#[test]
fn names_and_frames_are_bounded() {
    let mut file = file();
    let log = Log::new(file.try_clone().unwrap(), u64::MAX);
    let applet = log.begin(AppletKind::Native, &"\u{e9}".repeat(5000));
    for number in 0..10_000 {
        let name = log.name(&format!("function {number}"));
        log.add(&Record::Call { applet, name, thread: 1, start_ns: 1, end_ns: 2 }, 2);
    }
    let question = Record::Question {
        applet,
        thread: u32::MAX,
        asked_by: u32::MAX,
        number: u32::MAX,
        answer: Answer::Ended,
        start_ns: u64::MAX,
        end_ns: u64::MAX,
    };
    log.add(&question, 3);
    log.end(applet);
    let read = read(&mut bytes_of(&mut file).as_slice()).unwrap();
    let host = &read.hosts[0];
    assert!(read.ending == Ending::Whole && host.dropped == 0 && host.names.len() <= 4097);
    assert!(host.names.values().all(|name| name.len() <= crate::NAME_BYTES_MAX));
    assert_eq!(host.records.last(), Some(&question));
}

/// A name that is too long or beyond the maximum number costs the record only one entry.
///
/// Guarantee: trace/crossings-damage
#[test]
fn excess_name_costs_the_record_once() {
    let mut file = file();
    let log = Log::new(file.try_clone().unwrap(), u64::MAX);
    let applet = log.begin(AppletKind::Wasm, "first");
    for number in 0..5_000 {
        log.name(&format!("function {number}"));
    }
    let long = "long ".repeat(100);
    let numbers: BTreeSet<_> =
        (0..1_000).flat_map(|_| [log.name(&long), log.name("one more")]).collect();
    assert_eq!(numbers.len(), 1, "both are among all others");
    // One that was known before there were too many is itself.
    assert_eq!(log.begin(AppletKind::Wasm, "first"), 2);
    log.end(applet);
    log.end(2);
    let read = read(&mut bytes_of(&mut file).as_slice()).unwrap();
    let host = &read.hosts[0];
    let own = host.records.iter().filter(|record| matches!(record, Record::Own { .. })).count();
    assert!(own <= host.names.len() + 10, "{own} for {} names", host.names.len());
    let applets = host.records.iter().filter_map(|record| match record {
        Record::Applet { name, .. } => Some(host.name(*name)),
        _ => None,
    });
    assert_eq!(applets.collect::<Vec<_>>(), ["first", "first"]);

    let log = Log::new(file.try_clone().unwrap(), u64::MAX);
    let applet = log.begin(AppletKind::Wasm, "an applet");
    for _ in 0..1_000 {
        log.name(&long);
    }
    log.end(applet);
    let read = super::read(&mut bytes_of(&mut file).as_slice()).unwrap();
    let again =
        read.hosts[0].records.iter().filter(|record| matches!(record, Record::Own { .. })).count();
    assert!(again - own < 10, "{again} after {own}");
}

/// A host whose record reached its size limit writes nothing more until the record ends.
///
/// Guarantee: trace/crossings-forgery
#[test]
fn full_record_stops_until_its_end() {
    const SECOND_NS: u64 = 1_000_000_000;
    let mut file = file();
    let log = Log::new(file.try_clone().unwrap(), 1);
    let applet = log.begin(AppletKind::Wasm, "an applet");
    let add = |at| log.add(&Record::Turn { applet, thread: 1, start_ns: at, end_ns: at }, at);
    // The first is written as soon as it is old; from then on the record is full.
    let begin_ns = crate::log::now_ns();
    (0..1_000).for_each(|seconds| add(begin_ns + seconds * 2 * SECOND_NS));
    let full_bytes = bytes_of(&mut file).len();
    assert!(full_bytes > 0 && log.dropped() > 900, "{full_bytes} bytes, {} dropped", log.dropped());
    log.end(applet);
    let read = read(&mut bytes_of(&mut file).as_slice()).unwrap();
    let host = &read.hosts[0];
    assert_eq!((host.writes.len(), host.is_finished, host.dropped), (2, true, log.dropped()));
}

/// Guarantee: trace/crossings-forgery
#[test]
fn a_frame_is_old_by_its_first_record_with_a_time() {
    const SECOND_NS: u64 = 1_000_000_000;
    let mut file = file();
    let log = Log::new(file.try_clone().unwrap(), u64::MAX);
    let applet = log.begin(AppletKind::Wasm, "an applet");
    let begin_ns = crate::log::now_ns();
    let add = |at| log.add(&Record::Turn { applet, thread: 1, start_ns: at, end_ns: at }, at);
    add(begin_ns + 2 * SECOND_NS);
    let first_bytes = bytes_of(&mut file).len();
    // The next frame begins with a name, which has no time.
    log.name("a function");
    (3..9).for_each(|seconds| add(begin_ns + seconds * 2 * SECOND_NS));
    assert!(first_bytes > 0 && bytes_of(&mut file).len() > first_bytes, "{first_bytes}");
}

/// A host that finds no room for its record continues and counts what is missing.
///
/// Guarantee: trace/crossings-forgery
#[test]
fn host_goes_on_when_record_has_no_room() {
    let full = std::fs::OpenOptions::new().append(true).open("/dev/full").unwrap();
    let log = Log::new(full, u64::MAX);
    let applet = log.begin(AppletKind::Wasm, "an applet");
    for at in 0..100_000 {
        log.add(&Record::Turn { applet, thread: 1, start_ns: at, end_ns: at }, at);
    }
    log.end(applet);
    assert!(log.dropped() > 100_000);
}
