//! `holdfast trace report`, `diff`, `matrix` and `import` at the command line: what is in the files
//! that they write, and what they say of files that are none of theirs.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use holdfast_testkit::Scratch;
use serde_json::Value;

use crate::trace::trace;
use crate::{scratch, succeed, tell};

/// A recording of a shell that reads files; by ptrace, which works everywhere.
fn recorded(scratch: &Scratch, place: &Path, name: &str, work: &str) -> PathBuf {
    let file = place.join(name);
    let path = file.to_str().unwrap();
    succeed(&mut trace(
        scratch,
        &["run", "--backend", "ptrace", "-o", path, "--", "sh", "-c", work],
    ));
    file
}

const WORK: &str = "cat /etc/passwd >/dev/null; sleep 0.05; ls / >/dev/null";

/// A recording is written in every form, and all forms show the same data.
///
/// Guarantee: trace/forms
#[test]
fn all_report_forms_show_the_same_data() {
    let (scratch, place) = (scratch(), tempfile::tempdir().unwrap());
    let file = recorded(&scratch, place.path(), "run.trace", WORK);
    let at = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    let mut command = trace(&scratch, &["report", file.to_str().unwrap()]);
    for form in ["html", "json", "tsv", "folded", "perfetto"] {
        command.args([format!("--{form}"), at(form)]);
    }
    let tables = succeed(&mut command);
    assert!(tables.contains("Synchronization") && tables.contains("clock_nanosleep"), "{tables}");
    assert!(tables.lines().all(|line| line.chars().count() <= 80), "{tables}");
    let read = |name: &str| std::fs::read_to_string(at(name)).unwrap();
    let json: Value = serde_json::from_str(&read("json")).unwrap();
    let calls = json["total"]["calls"].as_u64().unwrap();
    assert!(
        calls > 50 && json["total"]["time"]["sleep_ns"].as_u64().unwrap() > 40_000_000,
        "{json}"
    );
    let lanes: Value = serde_json::from_str(&read("perfetto")).unwrap();
    let drawn =
        lanes["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == "X").count();
    assert_eq!(drawn as u64, calls);
    let total = read("tsv").lines().nth(1).unwrap().split('\t').nth(5).unwrap().parse::<u64>();
    assert_eq!(total, Ok(calls));
    assert!(
        read("folded")
            .lines()
            .any(|line| line.starts_with("sleep;os;sync;clock_nanosleep;asleep "))
    );
    assert!(read("html").contains("clock_nanosleep"));
    // The JSON stands for the recording.
    assert_eq!(succeed(&mut trace(&scratch, &["report", &at("json")])), tables);
}

/// A report that does not fit leaves the old file, and files of other programs are refused.
///
/// Guarantee: trace/whole-files
#[test]
fn failed_report_keeps_the_old_file() {
    let (scratch, place) = (scratch(), tempfile::tempdir().unwrap());
    let file = recorded(&scratch, place.path(), "run.trace", "true");
    let path = file.to_str().unwrap();
    let full = tell(&mut trace(&scratch, &["report", path, "--html", "/dev/full"]));
    assert!(full.status == 6 && full.err.contains("make room"), "{}", full.err);
    let old = place.path().join("old.html");
    std::fs::write(&old, "as it was").unwrap();
    let names = || std::fs::read_dir(place.path()).unwrap().count();
    let names_before = names();
    // A limit on the size of files that no page fits in: a write beyond it fails, as the signal for
    // it is not taken.
    let mut limited = Command::new("sh");
    limited.args(["-c", "trap '' 25; ulimit -f 4; exec \"$0\" \"$@\""]);
    let whole = trace(&scratch, &["report", path, "--html", old.to_str().unwrap()]);
    limited.arg(whole.get_program()).args(whole.get_args());
    limited.envs(whole.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let told = tell(&mut limited);
    assert!(told.status == 6 && told.err.contains("is as it was"), "{}", told.err);
    assert_eq!(
        (std::fs::read_to_string(&old).unwrap().as_str(), names()),
        ("as it was", names_before)
    );
    let nowhere = place.path().join("none/report.html");
    let told = tell(&mut trace(&scratch, &["report", path, "--html", nowhere.to_str().unwrap()]));
    assert!(told.status == 7 && told.err.contains("choose another place"), "{}", told.err);
    for (text, status, hint) in [
        ("{\"format\": 9}", 5, "newer holdfast"),
        ("{}", 5, "no report"),
        ("text", 5, "no recording"),
    ] {
        let other = place.path().join("other");
        std::fs::write(&other, text).unwrap();
        let told = tell(&mut trace(&scratch, &["report", other.to_str().unwrap()]));
        assert!(told.status == status && told.err.contains(hint), "{text}: {}", told.err);
    }
}

/// A report to standard output is appended and replaces nothing.
///
/// Guarantee: trace/whole-files
#[test]
fn report_to_standard_output_appends() {
    let (scratch, place) = (scratch(), tempfile::tempdir().unwrap());
    let file = recorded(&scratch, place.path(), "run.trace", "true");
    let log = place.path().join("log");
    let names = std::fs::read_dir(place.path()).unwrap().count() + 1;
    // What a shell does for `>>log` and `>log`, and what each way to name standard output writes
    // there.
    for appends in [true, false] {
        for (form, to) in [
            ("--perfetto", "-"),
            ("--perfetto", "/dev/stdout"),
            ("--json", "/proc/self/fd/1"),
            ("--json", "-"),
        ] {
            std::fs::write(&log, "").unwrap();
            let mut output = OpenOptions::new().write(true).append(appends).open(&log).unwrap();
            output.write_all(b"before\n").unwrap();
            let mut command = trace(&scratch, &["report", file.to_str().unwrap(), form, to]);
            let status = command.stdout(output.try_clone().unwrap()).status().unwrap();
            assert!(status.success(), "{form} {to}");
            output.write_all(b"after\n").unwrap();
            let text = std::fs::read_to_string(&log).unwrap();
            let form_there =
                text.strip_prefix("before\n").and_then(|text| text.strip_suffix("after\n"));
            let mut values =
                serde_json::Deserializer::from_str(form_there.unwrap()).into_iter::<Value>();
            assert!(values.next().unwrap().is_ok(), "{form} {to}: {text}");
            assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), names, "{form} {to}");
        }
    }
}

/// A reader that closes the pipe is no failure of any report form or of the traced program.
///
/// Guarantee: trace/whole-files
#[test]
fn closed_reader_is_no_failure_of_a_report() {
    let (scratch, place) = (scratch(), tempfile::tempdir().unwrap());
    // So much that no form is written at once.
    let file = recorded(
        &scratch,
        place.path(),
        "run.trace",
        "for i in 1 2 3 4 5 6 7 8 9; do ls -l /usr/bin; done >/dev/null",
    );
    let nobody = || std::io::pipe().unwrap().1;
    for form in ["html", "json", "tsv", "folded", "perfetto"] {
        let form = format!("--{form}");
        for to in ["-", "/dev/stdout"] {
            let told = tell(
                trace(&scratch, &["report", file.to_str().unwrap(), &form, to]).stdout(nobody()),
            );
            assert_eq!((told.status, told.err.as_str()), (0, ""), "{form} {to}");
        }
        let traced = ["run", "--backend", "ptrace", &form, "-", "--", "sh", "-c", "ls /; exit 3"];
        let told = tell(trace(&scratch, &traced).stdout(nobody()));
        assert!(told.status == 3 && !told.err.contains("roken pipe"), "{form}: {}", told.err);
    }
    // Nor who does not want the tables.
    for (traced, status) in [
        (&["run", "--backend", "ptrace", "--", "sh", "-c", "exit 3"][..], 3),
        (&["report", "/none"], 3),
    ] {
        assert_eq!(tell(trace(&scratch, traced).stderr(nobody())).status, status, "{traced:?}");
    }
}

/// A diff finds calls that only one of two runs makes.
#[test]
fn diff_finds_calls_of_one_run_only() {
    let (scratch, place) = (scratch(), tempfile::tempdir().unwrap());
    let one = recorded(&scratch, place.path(), "one.trace", "true");
    let two = recorded(&scratch, place.path(), "two.trace", "ls / >/dev/null");
    let html = place.path().join("diff.html");
    let paths = [one.to_str().unwrap(), two.to_str().unwrap(), "--html", html.to_str().unwrap()];
    let text = succeed(trace(&scratch, &["diff", "--top", "100"]).args(paths));
    assert!(text.contains("Calls that differ in number") && text.contains("getdents64"), "{text}");
    assert!(std::fs::read_to_string(&html).unwrap().contains("data-kind=\"diff\""));
    let json: Value =
        serde_json::from_str(&succeed(trace(&scratch, &["diff", "--json", "-"]).args(&paths[..2])))
            .unwrap();
    let calls = json["calls"].as_array().unwrap();
    assert!(
        calls
            .iter()
            .any(|change| change["name"] == "getdents64" && change["a"]["calls"]["value"] == 0.0)
    );
    let empty = tempfile::tempdir().unwrap();
    let told = tell(trace(&scratch, &["diff", paths[0]]).arg(empty.path()));
    assert!(told.status == 3 && told.err.contains("no recording"), "{}", told.err);
}

/// Reports summed up with other options are neither shown under the requested options nor compared.
///
/// Guarantee: trace/same-rules
#[test]
fn differently_summed_reports_are_not_compared() {
    let (scratch, place) = (scratch(), tempfile::tempdir().unwrap());
    let recording = recorded(&scratch, place.path(), "run.trace", "true");
    let at = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    let (recording, refined, paper) = (recording.to_str().unwrap(), at("refined"), at("paper"));
    succeed(&mut trace(
        &scratch,
        &["report", recording, "--scheme", "refined", "--json", &refined],
    ));
    succeed(&mut trace(&scratch, &["report", recording, "--sleep", "paper", "--json", &paper]));
    for right in [
        &["report", &refined][..],
        &["report", &refined, "--scheme", "refined", "--sleep", "measured"],
        &["diff", &refined, recording, "--scheme", "refined"],
        &["diff", &paper, &paper],
    ] {
        succeed(&mut trace(&scratch, right));
    }
    for (wrong, remedy) in [
        (&["report", &refined, "--scheme", "paper"][..], "the recording that it was made from"),
        (&["report", &paper, "--sleep", "measured"], "the recording that it was made from"),
        (&["diff", &refined, recording], "--scheme refined --sleep measured"),
        (&["diff", &refined, &paper], "in place of reports in JSON"),
    ] {
        let told = tell(&mut trace(&scratch, wrong));
        assert!(told.status == 2 && told.out.is_empty(), "{wrong:?}: {}", told.err);
        assert!(told.err.contains(remedy), "{wrong:?}: {}", told.err);
    }
}

/// A matrix runs a program on each platform in turns and leaves no files.
///
/// Guarantee: trace/matrix
#[test]
fn matrix_runs_in_turns_and_leaves_nothing() {
    let (scratch, one, two) =
        (scratch(), tempfile::tempdir().unwrap(), tempfile::tempdir_in("/dev/shm").unwrap());
    let on = format!("disk={},memory={}", one.path().display(), two.path().display());
    let html = one.path().join("matrix.html");
    let arguments = [
        "matrix",
        "--on",
        &on,
        "-n",
        "2",
        "--warm-ups",
        "0",
        "--keep-caches",
        "--backend",
        "ptrace",
        "--set-up",
        "seq 9 >input",
    ];
    let mut command = trace(&scratch, &arguments);
    command.arg("--html").arg(&html).args([
        "--study",
        "diff",
        "--",
        "sh",
        "-c",
        "cp input output; echo fini''shed",
    ]);
    let told = tell(&mut command);
    assert_eq!(told.status, 0, "{}", told.err);
    let order: Vec<_> =
        told.err.lines().filter_map(|line| line.strip_prefix("holdfast: ")).collect();
    let runs = ["disk: run 1 of 2", "memory: run 1 of 2", "memory: run 2 of 2", "disk: run 2 of 2"];
    assert!(order.iter().filter(|line| line.contains(": run ")).eq(runs.iter()), "{}", told.err);
    assert!(
        told.out.contains("memory against disk") && told.out.contains("Dubeyko et al., 2017"),
        "{}",
        told.out
    );
    assert!(!told.out.contains("finished"), "the program's output is not the matrix");
    assert_eq!(std::fs::read_dir(one.path()).unwrap().count(), 1, "only the page");
    assert_eq!(std::fs::read_dir(two.path()).unwrap().count(), 0);
    let wrong = tell(&mut trace(&scratch, &["matrix", "--on", "zfs=loop", "--", "true"]));
    assert!(wrong.status == 2 && wrong.err.contains("ext4=loop"), "{}", wrong.err);
}

/// Logs of the real strace are read line by line and compared with a measurement.
///
/// Guarantee: trace/strace-logs
#[test]
fn real_strace_log_is_imported_line_by_line() {
    let (scratch, place) = (scratch(), tempfile::tempdir().unwrap());
    let measured = recorded(&scratch, place.path(), "run.trace", WORK);
    let log = place.path().join("log");
    for (options, single) in [
        (&["-f", "-T", "-ttt"][..], true),
        (&["-f", "-T", "-r", "-yy"], true),
        (&["-f", "-c"], false),
    ] {
        let mut strace = Command::new("strace");
        strace.args(options).arg("-o").arg(&log).args(["sh", "-c", WORK]);
        let done = strace.stdout(Stdio::null()).stderr(Stdio::piped()).output();
        let done = done.expect("strace is installed by ./test");
        if !done.status.success() {
            println!(
                "not run: strace may not trace here: {}",
                String::from_utf8_lossy(&done.stderr)
            );
            return;
        }
        let (log, measured) = (log.to_str().unwrap(), measured.to_str().unwrap());
        let told = tell(&mut trace(&scratch, &["import", log, "--beside", measured]));
        assert_eq!((told.status, told.err.as_str()), (0, ""), "{options:?}");
        assert!(told.out.contains("beside what was measured"), "{}", told.out);
        let json =
            succeed(&mut trace(&scratch, &["import", log, "--json", "-", "--beside", measured]));
        let json: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["lines_skipped"], 0, "{options:?}");
        assert_eq!(json["calls"][0]["distribution"].is_null(), !single, "{options:?}");
        let name = |call: &Value| call["name"] == "other numbers";
        assert!(
            !json["calls"].as_array().unwrap().iter().any(name),
            "a call has a name that nobody knows"
        );
    }
    let told = tell(&mut trace(&scratch, &["import", "/etc/passwd"]));
    assert!(told.status == 5 && told.err.contains("strace -f -T"), "{}", told.err);
}
