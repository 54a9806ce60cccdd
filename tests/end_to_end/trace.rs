//! `holdfast trace` at the command line: to its caller, it is the program that it runs.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use holdfast_testkit::Scratch;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::{scratch, succeed, tell};

pub(crate) fn trace(scratch: &Scratch, arguments: &[&str]) -> Command {
    let mut command = scratch.holdfast();
    command.arg("trace").args(arguments);
    command
}

fn run(scratch: &Scratch, backend: &str, arguments: &[&str]) -> Command {
    let mut command = trace(scratch, &["run", "--backend", backend]);
    command.args(arguments);
    command
}

/// Both, as far as they work here.
pub(crate) fn backends(scratch: &Scratch) -> Vec<&'static str> {
    let works = |backend: &&str| {
        let told = tell(&mut run(scratch, backend, &["--", "true"]));
        if told.status != 0 {
            println!("not run: over the backend {backend}: {}", told.err);
        }
        told.status == 0
    };
    let found: Vec<_> = ["ptrace", "bpf"].into_iter().filter(works).collect();
    assert!(found.contains(&"ptrace"));
    found
}

/// The traced program has the standard streams, and its exit code is that of the command.
///
/// Guarantee: trace/unharmed
#[test]
fn traced_program_has_its_streams_and_exit_code() {
    let scratch = scratch();
    for backend in backends(&scratch) {
        let mut command =
            run(&scratch, backend, &["--", "sh", "-c", "read line; echo \"got $line\"; exit 7"]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(b"a line\n").unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(7));
        assert_eq!(output.stdout, b"got a line\n");
        let report = String::from_utf8(output.stderr).unwrap();
        assert!(
            report.contains("read") && report.contains(&format!("measured with {backend}")),
            "{report}"
        );
        assert_eq!(
            tell(&mut run(&scratch, backend, &["--", "sh", "-c", "kill -KILL $$"])).status,
            128 + 9
        );
        let missing = tell(&mut run(&scratch, backend, &["--", "no-such-program"]));
        assert!(missing.status == 127 && missing.err.contains("in PATH"), "{}", missing.err);
        let folder = tell(&mut run(&scratch, backend, &["--", "/"]));
        assert!(folder.status == 126 && folder.err.contains("chmod +x"), "{}", folder.err);
    }
}

/// Waits for something that must come.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < end, "{what} has not come in a minute");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// An interrupt from the terminal ends the program, and the report is still printed.
///
/// Guarantee: trace/unharmed
#[test]
fn interrupt_ends_the_program_and_still_reports() {
    use std::os::unix::process::CommandExt;
    let scratch = scratch();
    for backend in backends(&scratch) {
        let directory = tempfile::tempdir().unwrap();
        let begun = directory.path().join("begun");
        // One that waits for a child might miss it: a shell that is about to fork takes note of a
        // signal, and no more.
        let script = "ulimit -f 100000; while :; do echo line; done > \"$0\"";
        let mut command = run(&scratch, backend, &["--", "sh", "-c", script]);
        // A group of its own, as a shell gives each job: the terminal sends an interrupt to all of
        // it.
        let command =
            command.arg(&begun).process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        until("the program", || std::fs::metadata(&begun).is_ok_and(|file| file.len() > 0));
        kill_process_group(Pid::from_raw(child.id() as i32).unwrap(), Signal::INT).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(128 + 2));
        let report = String::from_utf8(output.stderr).unwrap();
        assert!(report.lines().any(|line| line.trim_start().starts_with("write ")), "{report}");
    }
}

/// Guarantee: trace/attach
#[test]
fn who_ends_the_tracer_lets_the_program_go_on() {
    let scratch = scratch();
    for backend in backends(&scratch) {
        let directory = tempfile::tempdir().unwrap();
        let (begun, ended) = (directory.path().join("begun"), directory.path().join("ended"));
        let script = "echo > \"$0\"; while [ ! -e \"$0.go\" ]; do sleep 0.01; done; echo > \"$1\"";
        let mut command = run(&scratch, backend, &["--", "sh", "-c", script]);
        let child = command
            .arg(&begun)
            .arg(&ended)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        until("the program", || begun.exists());
        kill_process(Pid::from_raw(child.id() as i32).unwrap(), Signal::TERM).unwrap();
        let mut child = child;
        assert_eq!(child.wait().unwrap().code(), Some(0));
        assert!(!ended.exists());
        std::fs::write(directory.path().join("begun.go"), "").unwrap();
        until("the end of the program", || ended.exists());
    }
}

/// The report of a recording equals that of the run; a damaged recording is reported as far as it
/// is valid.
///
/// Guarantee: trace/unharmed
#[test]
fn recording_report_equals_the_live_report() {
    let scratch = scratch();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("run.trace");
    let path = file.to_str().unwrap();
    let told = tell(&mut run(&scratch, "ptrace", &["-o", path, "--", "ls", "/"]));
    assert_eq!(told.status, 0, "{}", told.err);
    let report = succeed(&mut trace(&scratch, &["report", path]));
    // The last words are the recording's account.
    assert!(told.err.ends_with(&report), "{}\n{report}", told.err);
    let json = succeed(&mut trace(&scratch, &["report", path, "--by", "process", "--json", "-"]));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (json["format"].as_u64(), json["processes"].as_array().unwrap().len()),
        (Some(1), 1)
    );
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, [&bytes[..], b"rubbish"].concat()).unwrap();
    let torn = tell(&mut trace(&scratch, &["report", path, "--by", "call"]));
    assert!(torn.status == 5 && torn.err.contains("is damaged from byte"), "{}", torn.err);
    assert!(torn.out.contains("getdents64") && torn.out.contains("DAMAGED"), "{}", torn.out);
    std::fs::write(&file, "rubbish").unwrap();
    assert_eq!(tell(&mut trace(&scratch, &["report", path])).status, 5);
    assert_eq!(tell(&mut trace(&scratch, &["report", "/no/such/file"])).status, 3);
}

/// A program that makes some 40,000 calls, each of two kinds.
const MANY_CALLS: [&str; 5] = ["dd", "if=/dev/zero", "of=/dev/null", "bs=1", "count=20000"];

/// What `trace report` says of a recording that lacks something: what it says, calls, and events
/// that are missing.
fn report_of_part(scratch: &Scratch, path: &str) -> (String, u64, u64) {
    let told = tell(&mut trace(scratch, &["report", path]));
    assert_eq!(told.status, 5, "{}{}", told.out, told.err);
    assert!(
        told.out.contains("INCOMPLETE") && !told.out.contains("No event was lost"),
        "{}",
        told.out
    );
    assert!(told.err.contains("INCOMPLETE"), "{}", told.err);
    let json = tell(&mut trace(scratch, &["report", path, "--json", "-"]));
    assert_eq!(json.status, 5);
    let json: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    let number = |value: &serde_json::Value| value.as_u64().unwrap();
    (told.out, number(&json["total"]["calls"]), number(&json["source"]["events_missing"]))
}

/// The tracer says how many events it could not write, the recording says the same, and the program
/// has its disk's worth.
fn assert_is_told(scratch: &Scratch, told: &crate::Finished, path: &str, why: &str) {
    assert!(
        told.status == 125 && told.err.contains("cannot write all of"),
        "{}: {}",
        told.status,
        told.err
    );
    // dd itself has ended well.
    assert!(told.err.contains("20000+0 records out"), "{}", told.err);
    let (said, calls, missing) = report_of_part(scratch, path);
    assert!(calls > 500 && missing > 10_000, "{calls} and {missing}\n{said}");
    assert!(
        told.err.contains(&format!("{missing} later ones are not there")),
        "{missing}: {}",
        told.err
    );
    assert!(said.contains(why) && !said.contains("killed"), "{said}");
}

/// Guarantee: trace/full-disk
#[test]
fn a_recording_on_a_full_disk_says_what_is_missing() {
    let scratch = scratch();
    let (place, copies) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let kept = copies.path().join("kept.trace");
    // A small tmpfs that only the shell's own mount name space has.
    let script = "mount -t tmpfs -o size=32k none \"$1\" || exit 77
        cd \"$1\"; kept=$2; shift 2; \"$@\"; status=$?; cp full.trace \"$kept\"; exit $status";
    for backend in backends(&scratch) {
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", script, "sh"]).arg(place.path()).arg(&kept);
        let tracer = run(&scratch, backend, &["-o", "full.trace", "--"]);
        command.arg(tracer.get_program()).args(tracer.get_args()).args(MANY_CALLS);
        for (name, value) in tracer.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let told = tell(&mut command);
        if told.status == 77 || told.err.contains("unshare failed") {
            println!("not run: a full disk, as only root can make one: {}", told.err);
            return;
        }
        assert_is_told(&scratch, &told, kept.to_str().unwrap(), "No space left on device");
    }
}

/// A recording that reaches `ulimit -f` says what is missing.
///
/// Guarantee: trace/full-disk
#[test]
fn recording_cut_by_ulimit_says_what_is_missing() {
    let scratch = scratch();
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("limited.trace");
    for backend in backends(&scratch) {
        let tracer = run(&scratch, backend, &["-o", file.to_str().unwrap(), "--"]);
        let mut command = Command::new("sh");
        // Blocks of 512 bytes in some shells, of 1,024 in others.
        command.args(["-c", "ulimit -f 40; exec \"$@\"", "sh"]);
        command.arg(tracer.get_program()).args(tracer.get_args()).args(MANY_CALLS);
        for (name, value) in tracer.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        assert_is_told(&scratch, &tell(&mut command), file.to_str().unwrap(), "too large");
    }
}

/// The recording of a killed tracer says that it cannot know what is missing.
///
/// Guarantee: trace/cut
/// Guarantee: trace/killed-tracer
#[test]
fn recording_of_a_killed_tracer_admits_gaps() {
    let scratch = scratch();
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("killed.trace");
    let path = file.to_str().unwrap();
    for backend in backends(&scratch) {
        drop(std::fs::remove_file(&file));
        let script = "i=0; while [ $i -lt 3000000 ]; do i=$((i+1)); [ -e /nowhere ]; done";
        let mut command = run(&scratch, backend, &["-o", path, "--", "sh", "-c", script]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        until("a part of the recording", || {
            std::fs::metadata(&file).is_ok_and(|file| file.len() > 30_000)
        });
        child.kill().unwrap();
        child.wait().unwrap();
        let (said, calls, missing) = report_of_part(&scratch, path);
        assert!(calls > 500 && missing == 0, "{calls} and {missing}");
        assert!(said.contains("how many events are missing is not known"), "{said}");
        assert!(said.contains("the tracer was killed"), "{said}");
    }
}

/// The size that was found to give nothing: a fraction of the file has that fraction of the calls.
///
/// Guarantee: trace/cut
#[test]
fn a_part_of_a_recording_has_that_part_of_the_calls() {
    let scratch = scratch();
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("part.trace");
    let path = file.to_str().unwrap();
    let told = tell(&mut run(
        &scratch,
        "ptrace",
        &["-o", path, "--", "dd", "if=/dev/zero", "of=/dev/null", "bs=1", "count=2000"],
    ));
    assert_eq!(told.status, 0, "{}", told.err);
    let whole = std::fs::read(&file).unwrap();
    let mut most = 0;
    for part in 4..10 {
        std::fs::write(&file, &whole[..whole.len() * part / 10]).unwrap();
        let (said, calls, missing) = report_of_part(&scratch, path);
        assert!(calls >= most && calls + missing > 4_000, "{part}: {calls} and {missing}\n{said}");
        most = calls;
    }
    assert!(most > 2_500, "{most}");
}

/// If the recording cannot start, the program does not run; a report that does not fit is reported
/// after it.
///
/// Guarantee: trace/unharmed
#[test]
fn unwritable_recording_stops_the_program() {
    let scratch = scratch();
    let told = tell(&mut run(&scratch, "ptrace", &["-o", "/dev/full", "--", "echo", "hello"]));
    assert!(
        told.status == 125 && told.out.is_empty() && told.err.contains("No space"),
        "{}",
        told.err
    );
    let told = tell(&mut run(
        &scratch,
        "ptrace",
        &["--json", "/dev/full", "--", "sh", "-c", "echo hello; exit 4"],
    ));
    assert_eq!((told.status, told.out.as_str()), (4, "hello\n"));
    assert!(told.err.contains("cannot write /dev/full"), "{}", told.err);
}

/// A user without BPF rights traces by ptrace with a note, unless BPF was requested.
///
/// Guarantee: trace/no-privilege
#[test]
fn unprivileged_trace_falls_back_to_ptrace() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    let (scratch, place) = (scratch(), tempfile::tempdir().unwrap());
    // Where another user finds it.
    std::fs::set_permissions(place.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let holdfast = place.path().join("holdfast");
    for program in ["holdfast", "holdfast-trace"] {
        let built = scratch.programs().holdfast().with_file_name(program);
        std::fs::copy(built, place.path().join(program)).unwrap();
    }
    let traced = |options: &[&str]| {
        let mut command = Command::new(&holdfast);
        command.args(["trace", "run"]).args(options).args(["--", "true"]).stdin(Stdio::null());
        if rustix::process::geteuid().is_root() {
            command.uid(65534).gid(65534);
        }
        tell(command.current_dir("/"))
    };
    let by_ptrace = traced(&["--backend", "ptrace"]);
    if by_ptrace.status != 0 {
        println!("not run: other users may not trace here: {}", by_ptrace.err);
        return;
    }
    assert!(!by_ptrace.err.contains("ptrace is used"), "{}", by_ptrace.err);
    let by_itself = traced(&[]);
    assert_eq!(by_itself.status, 0, "{}", by_itself.err);
    for said in ["ptrace is used", "BPF cannot be", "measured with ptrace"] {
        assert!(by_itself.err.contains(said), "no {said} in {}", by_itself.err);
    }
    let by_bpf = traced(&["--backend", "bpf"]);
    assert!(by_bpf.status == 125 && by_bpf.err.contains("--backend ptrace"), "{}", by_bpf.err);
}

/// Each reason why a process cannot be attached to has its own exit code.
#[test]
fn failed_attach_has_its_own_exit_code() {
    let scratch = scratch();
    let attach = |process: &str| {
        tell(&mut trace(&scratch, &["attach", "--backend", "ptrace", "-p", process]))
    };
    let missing = attach("2147483647");
    assert!(missing.status == 3 && missing.err.contains("there is no process"), "{}", missing.err);
    let group = tell(&mut trace(
        &scratch,
        &["attach", "--backend", "ptrace", "--cgroup", "/sys/fs/cgroup"],
    ));
    assert!(group.status == 7 && group.err.contains("--backend bpf"), "{}", group.err);
}
