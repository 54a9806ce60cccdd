//! `holdfast trace` at the command line: to whoever calls it, it is the program that it runs.

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

#[test]
fn the_traced_program_has_the_streams_and_its_exit_code_is_that_of_the_command() {
    let scratch = scratch();
    for backend in backends(&scratch) {
        let mut command =
            run(&scratch, backend, &["--", "sh", "-c", "read line; echo \"got $line\"; exit 7"]);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"a line\n").unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(7));
        assert_eq!(output.stdout, b"got a line\n");
        let report = String::from_utf8(output.stderr).unwrap();
        assert!(report.contains("read") && report.contains(&format!("measured with {backend}")), "{report}");
        assert_eq!(tell(&mut run(&scratch, backend, &["--", "sh", "-c", "kill -KILL $$"])).status, 128 + 9);
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

#[test]
fn an_interrupt_of_the_terminal_ends_the_program_and_the_report_still_comes() {
    use std::os::unix::process::CommandExt;
    let scratch = scratch();
    for backend in backends(&scratch) {
        let directory = tempfile::tempdir().unwrap();
        let begun = directory.path().join("begun");
        // One that waits for a child might miss it: a shell that is about to fork takes note of a signal, and no more.
        let script = "ulimit -f 100000; while :; do echo line; done > \"$0\"";
        let mut command = run(&scratch, backend, &["--", "sh", "-c", script]);
        // A group of its own, as a shell gives each job: the terminal sends an interrupt to all of it.
        let command = command.arg(&begun).process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        until("the program", || std::fs::metadata(&begun).is_ok_and(|file| file.len() > 0));
        kill_process_group(Pid::from_raw(child.id() as i32).unwrap(), Signal::INT).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(128 + 2));
        let report = String::from_utf8(output.stderr).unwrap();
        assert!(report.lines().any(|line| line.trim_start().starts_with("write ")), "{report}");
    }
}

#[test]
fn who_ends_the_tracer_lets_the_program_go_on() {
    let scratch = scratch();
    for backend in backends(&scratch) {
        let directory = tempfile::tempdir().unwrap();
        let (begun, ended) = (directory.path().join("begun"), directory.path().join("ended"));
        let script = "echo > \"$0\"; while [ ! -e \"$0.go\" ]; do sleep 0.01; done; echo > \"$1\"";
        let mut command = run(&scratch, backend, &["--", "sh", "-c", script]);
        let child =
            command.arg(&begun).arg(&ended).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        until("the program", || begun.exists());
        kill_process(Pid::from_raw(child.id() as i32).unwrap(), Signal::TERM).unwrap();
        let mut child = child;
        assert_eq!(child.wait().unwrap().code(), Some(0));
        assert!(!ended.exists());
        std::fs::write(directory.path().join("begun.go"), "").unwrap();
        until("the end of the program", || ended.exists());
    }
}

#[test]
fn a_recording_is_reported_as_the_run_was_and_a_damaged_one_as_far_as_it_is_good() {
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
    assert_eq!((json["format"].as_u64(), json["processes"].as_array().unwrap().len()), (Some(1), 1));
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() - 3]).unwrap();
    let torn = tell(&mut trace(&scratch, &["report", path, "--by", "call"]));
    assert!(torn.status == 0 && torn.err.contains("is damaged from byte"), "{}", torn.err);
    assert!(torn.out.contains("getdents64"), "{}", torn.out);
    std::fs::write(&file, "rubbish").unwrap();
    assert_eq!(tell(&mut trace(&scratch, &["report", path])).status, 5);
    assert_eq!(tell(&mut trace(&scratch, &["report", "/no/such/file"])).status, 3);
}

#[test]
fn a_recording_that_cannot_be_begun_stops_the_program_and_a_report_that_does_not_fit_is_told_after_it() {
    let scratch = scratch();
    let told = tell(&mut run(&scratch, "ptrace", &["-o", "/dev/full", "--", "echo", "hello"]));
    assert!(told.status == 125 && told.out.is_empty() && told.err.contains("No space"), "{}", told.err);
    let told =
        tell(&mut run(&scratch, "ptrace", &["--json", "/dev/full", "--", "sh", "-c", "echo hello; exit 4"]));
    assert_eq!((told.status, told.out.as_str()), (4, "hello\n"));
    assert!(told.err.contains("cannot write /dev/full"), "{}", told.err);
}

#[test]
fn who_may_not_use_bpf_traces_by_ptrace_and_is_told_so_unless_it_was_asked_for() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    let (scratch, place) = (scratch(), tempfile::tempdir().unwrap());
    // Where another user finds it.
    std::fs::set_permissions(place.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let holdfast = place.path().join("holdfast");
    std::fs::copy(scratch.programs().holdfast(), &holdfast).unwrap();
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

#[test]
fn processes_that_cannot_be_attached_to_are_told_by_exit_code() {
    let scratch = scratch();
    let attach =
        |process: &str| tell(&mut trace(&scratch, &["attach", "--backend", "ptrace", "-p", process]));
    let missing = attach("2147483647");
    assert!(missing.status == 3 && missing.err.contains("there is no process"), "{}", missing.err);
    let group = tell(&mut trace(&scratch, &["attach", "--backend", "ptrace", "--cgroup", "/sys/fs/cgroup"]));
    assert!(group.status == 7 && group.err.contains("--backend bpf"), "{}", group.err);
}
