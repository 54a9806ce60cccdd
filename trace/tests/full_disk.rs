//! A limit on the size of files that is reached while a trace is recorded. In a process of its own,
//! as it is one of the process, and one whose output goes to this test: a file that this test's own
//! output goes to may be larger than the limit already.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::process::{Command, Stdio};

use holdfast_trace::{
    BackendKind, Event, Recorder, Recording, RecordingError, Settings, Target, TraceDescription,
};
use rustix::process::{Resource, Rlimit, setrlimit};

/// Set in the process that has the limit.
const LIMITED: &str = "HOLDFAST_TEST_LIMITED";

/// A recording on a full disk keeps what was written and reports what is missing.
///
/// Guarantee: trace/full-disk
#[test]
fn full_disk_keeps_written_part_and_reports_rest() {
    if std::env::var_os(LIMITED).is_some() {
        return record_beyond_the_limit();
    }
    let mut limited = Command::new(std::env::current_exe().unwrap());
    limited.args(["--exact", "full_disk_keeps_written_part_and_reports_rest", "--nocapture"]);
    let output = limited.env(LIMITED, "1").stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{output:?}");
}

fn record_beyond_the_limit() {
    const LIMIT_BYTES: u64 = 64 << 10;
    const EVENTS: u64 = 400_000;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace");
    // SIGXFSZ is as the kernel has it: a write beyond the limit would end this process.
    setrlimit(Resource::Fsize, Rlimit { current: Some(LIMIT_BYTES), maximum: None }).unwrap();

    let about =
        TraceDescription::before(&Settings::new(Target::Attach(vec![1])), BackendKind::Ptrace);
    let mut recorder = Recorder::create(&path, &about).unwrap();
    for number in 0..EVENTS {
        // Numbers that cannot be made much smaller.
        let at_ns = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 1;
        recorder.record(&Event::ThreadTime {
            at_ns,
            process: 1,
            thread: 1,
            cpu_ns: at_ns,
            queue_ns: number,
        });
    }
    let RecordingError::Incomplete { kept, dropped, .. } = recorder.finish(&about).unwrap_err()
    else {
        panic!("the file took it all");
    };
    assert_eq!(kept + dropped, EVENTS);
    assert!(std::fs::metadata(&path).unwrap().len() <= LIMIT_BYTES);
    let mut recording = Recording::open(&path).unwrap();
    let found = recording.by_ref().count() as u64;
    assert!(found == kept && kept > 0, "{found} of {kept}");
    let ending = recording.ending().unwrap();
    assert_eq!((ending.missing, ending.unwritten, ending.may_miss_more), (dropped, dropped, false));
    assert!(ending.account.is_some() && ending.failure.is_some(), "{ending:?}");
}
