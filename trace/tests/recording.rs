//! Recordings: what was written is read, as far as it was written.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use holdfast_trace::{
    Abi, BackendKind, Call, End, Event, FileSystem, Object, Program, Recorder, Recording,
    RecordingError, Settings, Split, Target, TraceDescription,
};

fn about() -> TraceDescription {
    let command = vec!["make".into(), "-j2".into()];
    TraceDescription::before(
        &Settings::new(Target::Start(Program { command })),
        BackendKind::Ptrace,
    )
}

fn call(number: u32) -> Event {
    Event::Call(Call {
        process: 7,
        thread: 8,
        abi: [Abi::X86_64, Abi::I386, Abi::X32][number as usize % 3],
        number,
        arguments: [u64::MAX, 1, 2, 3, 4, u64::from(number)],
        result: (!number.is_multiple_of(5)).then_some(-i64::from(number)),
        start_ns: 1_000 + u64::from(number),
        time: Split::of(1, 2, 3, 4, u64::from(number)),
        object: Object::Socket,
        restarted: number.is_multiple_of(2),
    })
}

/// One of each kind, and some calls around them.
fn events() -> Vec<Event> {
    let (at_ns, process, thread) = (u64::MAX / 2, 7, 8);
    let mut events: Vec<_> = (0..20).map(call).collect();
    events.extend([
        Event::Began { at_ns, process, thread, parent: 0, command: "naïve \u{fffd}".to_owned() },
        Event::Exec { at_ns, process, former_thread: thread, command: String::new() },
        Event::Signal { at_ns, process, thread, signal: 64 },
        Event::IoUring { at_ns, process, thread, opcode: 22, count: u64::MAX },
        Event::ThreadTime { at_ns, process, thread, cpu_ns: 5, queue_ns: 6 },
        Event::Ended { at_ns, process, thread, end: Some(End::Killed(9)) },
        Event::Ended { at_ns, process, thread, end: None },
        Event::Lost { events: 3 },
    ]);
    events.extend((20..40).map(call));
    events
}

fn write(path: &Path, events: &[Event]) {
    let mut recorder = Recorder::create(path, &about()).unwrap();
    events.iter().for_each(|event| recorder.record(event));
    let written = recorder.finish(&TraceDescription { lost: 3, ..about() }).unwrap();
    assert_eq!(written.events, events.len() as u64);
    assert_eq!(written.bytes, std::fs::metadata(path).unwrap().len());
}

fn read(path: &Path) -> (Vec<Event>, Recording) {
    let mut recording = Recording::open(path).unwrap();
    let events = recording.by_ref().collect();
    (events, recording)
}

fn place() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace");
    (directory, path)
}

#[test]
fn what_was_recorded_is_read_with_both_accounts() {
    let (_directory, path) = place();
    write(&path, &events());
    let recording = Recording::open(&path).unwrap();
    assert_eq!((recording.about().lost, recording.about().command.len()), (0, 2));
    let (found, recording) = read(&path);
    assert_eq!(found, events());
    assert_eq!(recording.about().lost, 3);
    assert!(recording.ending().unwrap().is_complete());
}

/// A directory whose name is no text does not keep a trace from being recorded.
#[test]
fn paths_that_are_no_text_are_recorded() {
    let (_directory, path) = place();
    let name = PathBuf::from(OsStr::from_bytes(b"/caf\xe9"));
    let (kind, source) = ("ext4".to_owned(), "/dev/sda1".to_owned());
    let file_systems = vec![FileSystem { path: name.clone(), kind, source }];
    let about = TraceDescription { cgroup: Some(name), file_systems, ..about() };
    Recorder::create(&path, &about).unwrap().finish(&about).unwrap();
    let (_, recording) = read(&path);
    assert!(recording.ending().unwrap().is_complete());
    let shown = PathBuf::from("/caf\u{fffd}");
    assert_eq!(recording.about().file_systems[0].path, shown);
    assert_eq!(recording.about().cgroup, Some(shown));
}

#[test]
fn a_call_takes_a_few_bytes() {
    let (_directory, path) = place();
    let mut recorder = Recorder::create(&path, &about()).unwrap();
    for number in 0..100_000_u32 {
        recorder.record(&call(number % 50));
    }
    let written = recorder.finish(&about()).unwrap();
    assert!(written.bytes < 100_000 * 24, "{written:?}");
    assert_eq!(read(&path).0.len(), 100_000);
}

/// A recording cut at any byte is read up to the cut.
///
/// Guarantee: trace/cut
#[test]
fn cut_recording_is_read_up_to_the_cut() {
    let (_directory, path) = place();
    let whole = events();
    // Several frames: an event that comes a second later has the ones before it written.
    let mut recorder = Recorder::create(&path, &about()).unwrap();
    for (second, event) in whole.iter().enumerate() {
        let mut event = event.clone();
        if let Event::Call(call) = &mut event {
            call.start_ns = second as u64 * 2_000_000_000;
        }
        recorder.record(&event);
    }
    recorder.finish(&about()).unwrap();
    let (all, _) = read(&path);
    let bytes = std::fs::read(&path).unwrap();
    let (mut lengths, mut most) = (std::collections::BTreeSet::new(), 0);
    for length in 0..bytes.len() {
        let cut = path.with_extension("cut");
        std::fs::write(&cut, &bytes[..length]).unwrap();
        match Recording::open(&cut) {
            Ok(mut recording) => {
                let found: Vec<_> = recording.by_ref().collect();
                assert_eq!(found, all[..found.len()]);
                let ending = recording.ending().unwrap();
                assert!(
                    !ending.is_complete() && ending.missing == (all.len() - found.len()) as u64
                );
                assert!(found.len() >= most, "more bytes have no fewer events");
                most = found.len();
                lengths.insert(most);
            }
            Err(error) => assert!(
                matches!(error, RecordingError::Foreign { .. } | RecordingError::Damaged { .. })
                    && lengths.is_empty(),
                "{length}: {error}"
            ),
        }
    }
    assert!(lengths.len() > 5, "{lengths:?}");
}

/// A recording with any changed byte never yields an event that was not recorded.
///
/// Guarantee: trace/damage
#[test]
fn changed_byte_never_invents_events() {
    let (_directory, path) = place();
    write(&path, &events());
    let bytes = std::fs::read(&path).unwrap();
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x55;
        let file = path.with_extension("damaged");
        std::fs::write(&file, damaged).unwrap();
        if let Ok(mut recording) = Recording::open(&file) {
            let found: Vec<_> = recording.by_ref().collect();
            // There are two frames.
            assert!(events().starts_with(&found) || events().ends_with(&found), "byte {at}");
            let ending = recording.ending().unwrap();
            assert!(
                ending.missing == (events().len() - found.len()) as u64 || ending.may_miss_more
            );
            // The rest of the room for the closing account is of no use.
            assert!(!ending.is_complete() || bytes[at] == 0, "byte {at}");
        }
    }
}

/// A file that is no recording, or that a newer version wrote, is refused by name.
///
/// Guarantee: trace/versions
#[test]
fn foreign_or_newer_file_is_refused() {
    let (_directory, path) = place();
    let refused = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        Recording::open(&path).unwrap_err()
    };
    assert!(matches!(refused(b""), RecordingError::Foreign { .. }));
    assert!(matches!(
        refused(b"1234 execve(\"/bin/true\", [\"true\"], 0x7ff) = 0"),
        RecordingError::Foreign { .. }
    ));
    let later = refused(b"HFTRACE\n\x04\0\0\0\0\0\0\0");
    assert!(matches!(later, RecordingError::Newer { version: 4, known: 3, .. }));
    assert!(matches!(refused(b"HFTRACE\n\x03\0\0\0\0\0\0\0"), RecordingError::Damaged { .. }));
    assert!(later.to_string().contains("newer holdfast"), "{later}");
    let missing = Recording::open(&path.with_extension("missing")).unwrap_err();
    assert!(matches!(missing, RecordingError::Io { .. }));
}

/// Guarantee: trace/full-disk
#[test]
fn a_recording_that_cannot_be_begun_says_so() {
    let error = Recorder::create(Path::new("/dev/full"), &about()).unwrap_err();
    assert!(error.to_string().contains("No space"), "{error}");
    let (_directory, path) = place();
    let error = Recorder::create(&path.join("no/directory"), &about()).unwrap_err();
    assert!(matches!(error, RecordingError::Io { step: "make", .. }));
}

/// A recording of an earlier version, as that version wrote it: `events()` with a second between
/// each two.
fn golden(version: u32) -> Vec<u8> {
    let path = format!("{}/tests/golden/recording-{version}.txt", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let digits: String = text.lines().filter(|line| !line.starts_with('#')).collect();
    let (bytes, _) = digits.as_bytes().as_chunks::<2>();
    bytes
        .iter()
        .map(|byte| u8::from_str_radix(std::str::from_utf8(byte).unwrap(), 16).unwrap())
        .collect()
}

/// Earlier versions are read in whole, up to a cut, and behind damage; they do not say how many
/// events there were.
///
/// Guarantee: trace/versions
#[test]
fn recordings_of_earlier_versions_are_read() {
    let (_directory, path) = place();
    for version in [1, 2] {
        let bytes = golden(version);
        std::fs::write(&path, &bytes).unwrap();
        let (all, recording) = read(&path);
        assert!(all.len() == events().len() && recording.ending().unwrap().is_complete());
        assert!(
            all.iter().zip(events()).all(|(one, other)| {
                std::mem::discriminant(one) == std::mem::discriminant(&other)
            })
        );
        assert_eq!(recording.about().lost, 3);
        assert_eq!(recording.crossings(), (version == 2).then_some(&b"of a host"[..]));
        let mut most = 0;
        for length in 0..bytes.len() {
            std::fs::write(&path, &bytes[..length]).unwrap();
            let Ok(mut recording) = Recording::open(&path) else { continue };
            let found: Vec<_> = recording.by_ref().collect();
            assert!(found == all[..found.len()] && found.len() >= most);
            most = found.len();
            let ending = recording.ending().unwrap();
            assert!(ending.may_miss_more && !ending.is_complete(), "{length}: {ending:?}");
        }
        assert_eq!(most, all.len());
        let mut behind = 0;
        for at in 400..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x55;
            std::fs::write(&path, &damaged).unwrap();
            let (found, recording) = read(&path);
            let ending = recording.ending().unwrap();
            assert!(!ending.is_complete() && ending.may_miss_more, "byte {at}: {ending:?}");
            // The last frame has those without an instant of their own, and all behind them.
            assert!(found.len() + 28 >= all.len(), "byte {at}: {}", found.len());
            behind += usize::from(found.len() < all.len() && found.last() == all.last());
        }
        assert!(behind > 200, "{behind}");
    }
}
