//! Programs of the system under `holdfast run`: what they say, and what a person is told when they
//! lack something.

use std::fs::OpenOptions;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::{Finished, scratch, succeed, tell, victim};

/// Runs a program of the system with these options and arguments.
fn run(program: &str, options: &[&str], arguments: &[&str]) -> Finished {
    tell(scratch().holdfast().args(["run", program]).args(options).arg("--").args(arguments))
}

/// A program that does not find a file gets a hint about the option that grants a directory.
///
/// Guarantee: sandbox/ordinary-programs
#[test]
fn program_without_files_learns_of_the_dir_option() {
    let scratch = scratch();
    let file = scratch.write("there", "in it\n").unwrap();
    let (path, directory) = (file.to_str().unwrap(), file.parent().unwrap().to_str().unwrap());
    let told = run("/bin/cat", &[], &[path]);
    assert_eq!((told.status, told.out.as_str()), (1, ""));
    assert!(told.err.contains("--dir"), "{}", told.err);
    let told = run("/bin/cat", &["--dir", directory], &[path]);
    assert_eq!((told.status, told.out.as_str(), told.err.as_str()), (0, "in it\n", ""));
    // With a directory it was told, and one that ends in order lacks nothing.
    let told = run("/bin/cat", &["--dir", directory], &["/etc/hostname"]);
    assert!(told.status == 1 && !told.err.contains("--dir"), "{}", told.err);
    assert_eq!(run("/bin/true", &[], &[]).err, "");
}

/// A directory granted under a relative path is found from the root of the program.
///
/// Guarantee: sandbox/ordinary-programs
#[test]
fn relative_directory_is_below_the_program_root() {
    let scratch = scratch();
    let file = scratch.write("there", "in it\n").unwrap();
    let mut command = scratch.holdfast();
    command.current_dir(file.parent().unwrap().parent().unwrap());
    let directory = file.parent().unwrap().file_name().unwrap().to_str().unwrap();
    let path = format!("{directory}/there");
    let told = tell(command.args(["run", "/bin/cat", "--dir", directory, "--", &path]));
    assert_eq!((told.status, told.out.as_str()), (0, "in it\n"), "{}", told.err);
    let told = run("/bin/true", &["--dir", "."], &[]);
    assert!(told.status == 2 && told.err.contains(".::/data"), "{}", told.err);
}

/// A grant that would hide the program's libraries is refused.
///
/// Guarantee: sandbox/ordinary-programs
#[test]
fn directory_over_program_libraries_is_refused() {
    for grant in ["/etc::/lib64", "/etc::/usr", "/usr"] {
        let told = run("/bin/true", &["--dir", grant], &[]);
        assert!(
            told.status == 126 && told.err.contains(":ro"),
            "{grant}: {} {}",
            told.status,
            told.err
        );
    }
    assert_eq!(run("/bin/true", &["--dir", "/usr:ro"], &[]).status, 0);
}

#[test]
fn a_violation_is_not_said_to_be_one_of_the_loading() {
    let told = run("/bin/sh", &[], &["-c", "true & wait"]);
    assert_eq!(told.status, 159, "{}", told.err);
    assert!(
        told.err.contains("no process is started") && !told.err.contains("loading"),
        "{}",
        told.err
    );
}

/// Guarantee: sandbox/ordinary-programs
#[test]
fn a_run_whose_output_cannot_be_written_fails() {
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = scratch().holdfast();
    let done = command.args(["run", "/bin/echo", "--", "hello"]).stdout(full).output().unwrap();
    let told = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(125), "{told}");
    assert!(told.contains("cannot be written"), "{told}");

    // One that would write for ever ends when its reader is gone.
    let mut command = scratch().holdfast();
    let endless = ["run", "/bin/sh", "--", "-c", "while :; do echo hello; done"];
    let mut child =
        command.args(endless).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(ends_in(&mut child, Duration::from_secs(30)).code(), Some(125));
}

/// How a command ends that must end in time.
fn ends_in(child: &mut Child, time: Duration) -> ExitStatus {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if started.elapsed() > time {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("it runs on after {time:?}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A run whose output is not read ends at its time limit, and not in success: the program waits for
/// the reader, or has written all of it and exited.
///
/// Guarantee: sandbox/time-limits
#[test]
fn unread_output_ends_a_run_at_its_time_limit() {
    // 6.9 MB, and 109 kB: more than a pipe holds, and less than two.
    for last in ["1000000", "20000"] {
        let mut command = scratch().holdfast();
        command.args(["run", "/usr/bin/seq", "--timeout", "1s", "--", last]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        assert_eq!(ends_in(&mut child, Duration::from_secs(10)).code(), Some(124), "{last}");
    }
}

/// A reader that takes its time gets all that a run has written.
///
/// Guarantee: sandbox/time-limits
#[test]
fn slow_reader_gets_all_of_the_output() {
    let mut command = scratch().holdfast();
    command.args(["run", "/usr/bin/seq", "--timeout", "60s", "--", "20000"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(1));
    let done = child.wait_with_output().unwrap();
    assert_eq!(done.status.code(), Some(0), "{}", String::from_utf8_lossy(&done.stderr));
    assert!(done.stdout.ends_with(b"\n19999\n20000\n"), "{} bytes", done.stdout.len());
}

/// Errors about limits name the command-line option that sets the limit.
#[test]
fn limit_errors_name_their_options() {
    let told = run("/bin/sleep", &["--timeout", "100ms"], &["5"]);
    assert!(told.status == 124 && told.err.contains("(--timeout)"), "{}", told.err);
    let told = run("/bin/sh", &["--cpu-time", "200ms"], &["-c", "while :; do :; done"]);
    assert!(
        told.status == 124 && told.err.contains("200ms") && told.err.contains("(--cpu-time)"),
        "{}",
        told.err
    );
}

/// Guarantee: sandbox/ordinary-programs
#[test]
fn a_pipe_is_no_program_and_keeps_nobody_waiting() {
    let scratch = scratch();
    let path = scratch.write("unused", "").unwrap().with_file_name("pipe");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    let told = tell(
        Command::new("timeout").arg("20").arg(scratch.programs().holdfast()).arg("run").arg(&path),
    );
    assert!(told.status == 126 && told.err.contains("not a file"), "{} {}", told.status, told.err);
}

/// Guarantee: sandbox/ordinary-programs
#[test]
fn a_program_without_a_heap_needs_no_home() {
    let mut command = scratch().holdfast();
    command.env("HOLDFAST_HOME", "/proc/nowhere").env("HOLDFAST_POOL", "/proc/nowhere");
    let told = tell(command.args(["run", "/bin/echo", "--", "hello"]));
    assert_eq!((told.status, told.out.as_str()), (0, "hello\n"), "{}", told.err);
    let mut command = scratch().holdfast();
    command.env("HOLDFAST_HOME", "/proc/nowhere").env("HOLDFAST_POOL", "/proc/nowhere");
    assert_eq!(tell(command.args(["run", "/bin/echo", "--heap", "new"])).status, 125);
}

/// The new heap of a program that ran without serving stays.
///
/// Guarantee: sandbox/ordinary-programs
#[test]
fn new_heap_of_a_non_serving_program_stays() {
    let scratch = scratch();
    let applet = scratch.programs().native_applet("guestbook").unwrap();
    let told = tell(scratch.holdfast().arg("call").arg(applet).args(["--heap", "new"]));
    assert_eq!(told.status, 126, "{}", told.err);
    let listed = tell(scratch.holdfast().args(["heap", "ls", "--json"]));
    assert!(listed.out.contains("\"new\""), "{}", listed.out);
}

/// A run of an applet that serves did nothing, and ended with status 0.
///
/// Guarantee: applets/run-or-call
/// Guarantee: programs/python-run
#[test]
fn a_run_of_an_applet_that_serves_points_to_call() {
    let scratch = scratch();
    for applet in [scratch.programs().applet("notes"), scratch.programs().native_applet("notes")] {
        let applet = applet.unwrap();
        let told = tell(scratch.holdfast().arg("run").arg(&applet).args(["--heap", "notes"]));
        assert_eq!(told.status, 126, "{}", told.err);
        let call = format!("holdfast call {} add --heap notes", applet.display());
        for words in ["serves calls", "(add, get, list, clear)", &call] {
            assert!(told.err.contains(words), "no {words:?} in: {}", told.err);
        }
        let called = tell(
            scratch.holdfast().arg("call").arg(&applet).args(["add", "hello", "--heap", "notes"]),
        );
        assert_eq!((called.status, called.out.as_str()), (0, "1"), "{}", called.err);
        succeed(scratch.holdfast().args(["heap", "rm", "notes"]));
    }
}

/// A program that fails gets a hint about what was not granted to it.
#[test]
fn failed_program_learns_what_was_not_granted() {
    let told = run("/bin/false", &[], &[]);
    assert!(
        told.status == 1 && told.err.contains("no heap (--heap NAME) and no files"),
        "{}",
        told.err
    );
    let told = run("/bin/false", &["--heap", "kept"], &[]);
    assert!(!told.err.contains("--heap NAME") && told.err.contains("--dir"), "{}", told.err);
}

/// A heap size outside 1 MiB to 1 TiB is refused instead of rounded.
#[test]
fn heap_size_out_of_range_is_refused() {
    let scratch = scratch();
    for options in [["--heap-size", "10"], ["--heap-size", "2TiB"]] {
        let told =
            tell(scratch.holdfast().args(["run", "/bin/true", "--heap", "new"]).args(options));
        assert!(told.status == 2 && told.err.contains("1MiB to 1TiB"), "{}", told.err);
    }
    assert_eq!(tell(scratch.holdfast().args(["heap", "ls"])).out.lines().count(), 1);
}

/// A heap that a native program did not change is reported as unchanged.
///
/// Guarantee: sandbox/changed-pages
#[test]
fn untouched_native_heap_is_reported_unchanged() {
    let scratch = scratch();
    let applet = scratch.programs().native_applet("guestbook").unwrap();
    let cost = |words: &[&str]| {
        let options = ["--heap", "kept", "--metrics", "--"];
        let told = tell(scratch.holdfast().arg("run").arg(&applet).args(options).args(words));
        told.err.lines().find(|line| line.contains("volatile memory")).expect(&told.err).to_owned()
    };
    let changed = cost(&["add", "hello"]);
    assert!(changed.contains(", changed"), "{changed}");
    // What a program stored to memory that it shares with the store is known when the heap is
    // closed, not before.
    let unchanged = cost(&["list"]);
    assert!(unchanged.contains(", unchanged"), "{unchanged}");
}

/// Guarantee: sandbox/ordinary-programs
#[test]
fn shells_and_git_find_dev_null() {
    let words = "echo lost > /dev/null && cat < /dev/null && echo done";
    let told = run("/bin/sh", &[], &["-c", words]);
    // A shell has no second process for `cat`.
    let told = if told.status == 0 {
        told
    } else {
        run("/bin/sh", &[], &["-c", "echo lost > /dev/null && echo done"])
    };
    assert_eq!((told.status, told.out.as_str()), (0, "done\n"), "{}", told.err);
    // It opens the device before anything else, and ends where it cannot.
    if Path::new("/usr/bin/git").exists() {
        let told = run("/usr/bin/git", &[], &["version"]);
        assert!(
            told.status == 0 && told.out.starts_with("git version"),
            "{}{}",
            told.out,
            told.err
        );
    } else {
        println!("not run: there is no git");
    }
}

/// A refusal that looks as if it passed is tried again for ever.
///
/// Guarantee: sandbox/no-network
#[test]
fn one_that_asks_for_the_network_is_told_so() {
    let python = "import socket\ntry: socket.create_connection(('127.0.0.1', 9))\n\
                  except OSError as error: print(error.errno)\nraise SystemExit(3)";
    if !Path::new("/usr/bin/python3").exists() {
        println!("not run: there is no python3");
        return;
    }
    for options in [&[][..], &["--dir", "/usr/lib:ro"]] {
        let told = run("/usr/bin/python3", options, &["-c", python]);
        assert_eq!((told.status, told.out.as_str()), (3, "13\n"), "{}", told.err);
        assert!(
            told.err.contains("the network") && told.err.contains("not about files"),
            "{}",
            told.err
        );
        assert!(!told.err.contains("if it looked for"), "{}", told.err);
    }
    // A socket of this machine is none of the network.
    let local = "import socket\ntry: socket.socket(socket.AF_UNIX)\nexcept OSError as error: print(error.errno)";
    let told = run("/usr/bin/python3", &[], &["-c", local]);
    assert_eq!((told.status, told.out.as_str(), told.err.as_str()), (0, "13\n", ""));
}

/// Guarantee: sandbox/own-status
#[test]
fn an_applets_own_status_is_told_from_holdfasts() {
    let scratch = scratch();
    let report = scratch.files().join("end.json");
    let path = report.to_str().unwrap();
    let end = |program: &str, options: &[&str], arguments: &[&str]| {
        let told = run(program, &[&["--report", path], options].concat(), arguments);
        let text = std::fs::read_to_string(&report).unwrap();
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read["exit_code"], told.status, "{text}");
        (told, read)
    };
    for status in [0, 1, 2, 124, 125, 126, 127, 134, 159] {
        // It says what Holdfast would say.
        let words = format!("echo 'holdfast: it ran longer than its 1s' >&2; exit {status}");
        let (told, read) = end("/bin/sh", &[], &["-c", &words]);
        assert_eq!(told.status, status);
        assert_eq!((&read["end"], &read["status"]), (&"exited".into(), &status.into()), "{read}");
        let is_said =
            told.err.contains(&format!("ended by itself with status {status}: it is its own"));
        assert_eq!(is_said, status >= 124, "{}", told.err);
    }
    let trapping = victim("stores_half_and_traps");
    let trapping = trapping.to_str().unwrap();
    type Case<'a> = (&'a str, &'a [&'a str], &'a [&'a str], i32, &'a str);
    let others: [Case<'_>; 5] = [
        ("/bin/sleep", &["--timeout", "100ms"], &["5"], 124, "time-limit"),
        ("/bin/sh", &["--cpu-time", "100ms"], &["-c", "while :; do :; done"], 124, "time-limit"),
        (trapping, &[], &[], 134, "crashed"),
        ("/bin/sh", &[], &["-c", "true & wait"], 159, "violation"),
        ("/bin/true", &["--heap", "x", "--key", "none/such"], &[], 125, "not-started"),
    ];
    for (program, options, arguments, status, named) in others {
        let (told, read) = end(program, options, arguments);
        assert_eq!(
            (&read["end"], &read["status"]),
            (&named.into(), &serde_json::Value::Null),
            "{read} {}",
            told.err
        );
        assert!(
            told.status == status || named == "not-started",
            "{named}: {} {}",
            told.status,
            told.err
        );
        let message = read["message"].as_str().unwrap();
        assert!(
            told.err.contains(message) && !told.err.contains("by itself"),
            "{read} {}",
            told.err
        );
    }
    let (told, read) = end("/bin/no-such-program", &[], &[]);
    assert_eq!((told.status, &read["end"]), (127, &"not-started".into()));
    // One that the program could replace is none.
    let granted = format!("{}::/d", scratch.files().display());
    let old = std::fs::read_to_string(&report).unwrap();
    let told = run("/bin/echo", &["--report", path, "--dir", &granted], &["ran"]);
    assert_eq!((told.status, told.out.as_str()), (2, ""), "{}", told.err);
    assert_eq!(std::fs::read_to_string(&report).unwrap(), old);
    let (told, read) = end("/bin/echo", &["--dir", &format!("{granted}:ro")], &["ran"]);
    assert_eq!((told.status, &read["end"]), (0, &"exited".into()), "{}", told.err);
    // A report that cannot be written is known before the program runs.
    let told = run("/bin/echo", &["--report", "/proc/nowhere/end.json"], &["ran"]);
    assert_eq!((told.status, told.out.as_str()), (125, ""), "{}", told.err);
    assert!(told.err.contains("--report"), "{}", told.err);
}
