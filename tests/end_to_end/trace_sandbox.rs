//! `holdfast trace run --sandbox`: what crosses sandboxes, held to applets whose crossings are
//! known because they are written here.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use holdfast_applet::{Applet, Grants, Limits, OwnerKey, RegionName};
use holdfast_testkit::Scratch;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::trace::backends;
use crate::{scratch, succeed, tell, victim};

/// Keeps 100 values, each in a file: opens it, writes, closes it.
const IN_FILES: &str = r#"(module
  (import "wasi_snapshot_preview1" "path_open"
    (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_close" (func $close (param i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 64) "value")
  (func (export "_start") (local $at i32)
    (i32.store (i32.const 0) (i32.const 128)) (i32.store (i32.const 4) (i32.const 8))
    (loop $next
      ;; The right to write, created if it is not there.
      (if (call $open (i32.const 3) (i32.const 0) (i32.const 64) (i32.const 5) (i32.const 1) (i64.const 64) (i64.const 0)
            (i32.const 0) (i32.const 16)) (then unreachable))
      (i32.store (i32.const 128) (local.get $at))
      (if (call $write (i32.load (i32.const 16)) (i32.const 0) (i32.const 1) (i32.const 24)) (then unreachable))
      (if (call $close (i32.load (i32.const 16))) (then unreachable))
      (local.set $at (i32.add (local.get $at) (i32.const 1)))
      (br_if $next (i32.lt_u (local.get $at) (i32.const 100))))))"#;

/// Keeps 100 values in its heap.
const IN_HEAP: &str = r#"(module
  (import "holdfast" "attach" (func $attach (param i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "_start") (local $at i32)
    (if (call $attach (i32.const 0)) (then unreachable))
    (loop $next
      (i32.store (i32.const 0x80001000) (local.get $at))
      (local.set $at (i32.add (local.get $at) (i32.const 1)))
      (br_if $next (i32.lt_u (local.get $at) (i32.const 100))))))"#;

/// Crosses without end: 20,000 times into the host alone, then with a line to standard output.
const WITHOUT_END: &str = r#"(module
  (import "wasi_snapshot_preview1" "args_sizes_get" (func $sizes (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 64) "crossed\n")
  (func (export "_start") (local $at i32)
    (i32.store (i32.const 0) (i32.const 64)) (i32.store (i32.const 4) (i32.const 8))
    (loop $again
      (local.set $at (i32.const 20000))
      (loop $next
        (drop (call $sizes (i32.const 16) (i32.const 20)))
        (br_if $next (local.tee $at (i32.sub (local.get $at) (i32.const 1)))))
      (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 24)))
      (br $again))))"#;

/// `trace run --sandbox` of this command, by one backend, with these options.
fn traced(scratch: &Scratch, backend: &str, options: &[&str], command: &[&str]) -> Command {
    let mut traced = scratch.holdfast();
    traced
        .args(["trace", "run", "--sandbox", "--backend", backend])
        .args(options)
        .arg("--")
        .args(command);
    traced
}

/// The built command's path, to be traced.
fn program(scratch: &Scratch) -> String {
    scratch.programs().holdfast().to_str().unwrap().to_owned()
}

/// The JSON of a run of `holdfast run` with these arguments.
fn view_of_run(scratch: &Scratch, backend: &str, arguments: &[&str]) -> Value {
    let json = scratch.files().join("report.json");
    let program = program(scratch);
    let command = [&[program.as_str(), "run"], arguments].concat();
    succeed(&mut traced(scratch, backend, &["--json", json.to_str().unwrap()], &command));
    read_json(&json)
}

fn read_json(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn written(scratch: &Scratch, name: &str, text: &str) -> PathBuf {
    scratch.write(name, text).unwrap()
}

fn function<'a>(report: &'a Value, name: &str) -> &'a Value {
    let applets = report["crossings"]["applets"].as_array().unwrap();
    let functions = || applets.iter().flat_map(|applet| applet["functions"].as_array().unwrap());
    functions()
        .find(|function| function["name"] == name)
        .unwrap_or_else(|| panic!("no {name}: {report:#}"))
}

/// Crossings of one kind, by who let them through: 0 if there are none.
fn crossed(function: &Value, name: &str, by: &str) -> u64 {
    row(function, name, by).map_or(0, |row| row["crossings"].as_u64().unwrap())
}

fn row<'a>(function: &'a Value, name: &str, by: &str) -> Option<&'a Value> {
    function["crossed"]
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["name"] == name && row["by"] == by)
}

/// System calls of the host of one kind under a row.
fn kernel(row: &Value, name: &str) -> u64 {
    let calls = row["kernel"].as_array().unwrap().iter().filter(|row| row["name"] == name);
    calls.map(|row| row["calls"].as_u64().unwrap()).sum()
}

/// A value in a file crosses the sandbox boundary three times, and a value in a heap never.
///
/// Guarantee: trace/crossings
#[test]
fn heap_values_cross_never_file_values_thrice() {
    let scratch = scratch();
    let (files, heap) =
        (written(&scratch, "files.wat", IN_FILES), written(&scratch, "heap.wat", IN_HEAP));
    let (files, heap) = (files.to_str().unwrap(), heap.to_str().unwrap());
    let granted = format!("{}::/data", scratch.files().display());
    for backend in backends(&scratch) {
        let with_files = view_of_run(&scratch, backend, &[files, "--dir", &granted]);
        let start = function(&with_files, "_start");
        assert_eq!(
            (start["calls"].as_u64(), start["crossings"].as_u64()),
            (Some(1), Some(300)),
            "{start:#}"
        );
        for (name, call) in [("path_open", "openat"), ("fd_write", "write"), ("fd_close", "close")]
        {
            let row = row(start, name, "import").unwrap();
            assert_eq!(row["crossings"], 100, "{backend}: {row:#}");
            let made = kernel(row, call)
                + kernel(row, &format!("{call}2"))
                + kernel(row, &format!("p{call}64"));
            assert_eq!(made, 100, "{backend}: {row:#}");
            assert!(row["wall_ns"].as_u64() > Some(0));
        }
        assert_eq!(with_files["crossings"]["notes"].as_array().unwrap().len(), 0, "{with_files:#}");
        let with_heap = view_of_run(&scratch, backend, &[heap, "--heap", "values"]);
        let start = function(&with_heap, "_start");
        assert_eq!(
            (start["crossings"].as_u64(), crossed(start, "attach", "import")),
            (Some(1), 1),
            "{start:#}"
        );
        let outside = with_heap["crossings"]["outside"].as_array().unwrap();
        let calls = |when: &str| {
            outside
                .iter()
                .find(|row| row["when"] == when)
                .map_or(0, |row| row["kernel_calls"].as_u64().unwrap())
        };
        assert!(calls("start-up") > 20 && calls("tear-down") > 5, "{outside:?}");
    }
}

/// A recording keeps the crossings, and two recordings can be compared.
///
/// Guarantee: trace/crossings
#[test]
fn recorded_crossings_can_be_compared() {
    let scratch = scratch();
    let (files, heap) =
        (written(&scratch, "files.wat", IN_FILES), written(&scratch, "heap.wat", IN_HEAP));
    let granted = format!("{}::/data", scratch.files().display());
    let program = program(&scratch);
    let at = |name: &str| scratch.files().join(name).to_str().unwrap().to_owned();
    let record = |name: &str, command: &[&str]| {
        let told = tell(&mut traced(
            &scratch,
            "ptrace",
            &["-o", &at(name)],
            &[&[program.as_str(), "run"], command].concat(),
        ));
        assert_eq!(told.status, 0, "{}", told.err);
        told.err
    };
    let said = record("files.trace", &[files.to_str().unwrap(), "--dir", &granted]);
    record("heap.trace", &[heap.to_str().unwrap(), "--heap", "values"]);
    let again = succeed(scratch.holdfast().args(["trace", "report", &at("files.trace")]));
    assert!(again.contains("Crossings of") && said.ends_with(&again), "{said}\n{again}");
    let diff =
        ["trace", "diff", &at("files.trace"), &at("heap.trace"), "--json", "-"].map(str::to_owned);
    let changes: Value = serde_json::from_str(&succeed(scratch.holdfast().args(diff))).unwrap();
    let row = &changes["crossings"]["rows"][0];
    assert_eq!(row["function"], "_start");
    assert_eq!(
        (row["a"]["crossings"]["value"].as_f64(), row["b"]["crossings"]["value"].as_f64()),
        (Some(300.0), Some(1.0))
    );
    let page = at("diff.html");
    let text =
        succeed(scratch.holdfast().args(["trace", "diff", &at("files.trace"), &at("heap.trace")]));
    assert!(text.lines().any(|line| line.starts_with("_start") && line.contains("300")), "{text}");
    succeed(scratch.holdfast().args([
        "trace",
        "diff",
        &at("files.trace"),
        &at("heap.trace"),
        "--html",
        &page,
    ]));
    assert!(std::fs::read_to_string(page).unwrap().contains("path_open"));
    // A torn recording has what is before; the record is at its end.
    let bytes = std::fs::read(at("files.trace")).unwrap();
    std::fs::write(at("torn.trace"), &bytes[..bytes.len() / 2]).unwrap();
    let torn =
        tell(scratch.holdfast().args(["trace", "report", &at("torn.trace"), "--by", "crossing"]));
    assert!(
        torn.status == 5 && torn.out.contains("No process recorded what crossed"),
        "{}{}",
        torn.out,
        torn.err
    );
}

/// System calls of a native program are listed by the layer that allowed them.
///
/// Guarantee: trace/crossings
#[test]
fn native_calls_show_which_layer_allowed_them() {
    let scratch = scratch();
    let file = written(&scratch, "a file", "its text\n");
    let (directory, file) = (scratch.files(), file.to_str().unwrap().to_owned());
    for backend in backends(&scratch) {
        let run = |files: usize| {
            let mut arguments = vec!["/bin/cat", "--dir", directory.to_str().unwrap(), "--"];
            arguments.extend(std::iter::repeat_n(file.as_str(), files));
            view_of_run(&scratch, backend, &arguments)
        };
        let (few, many) = (run(5), run(25));
        let (few, many) = (function(&few, "main"), function(&many, "main"));
        let sum =
            |of: &Value, name: &str| crossed(of, name, "filter") + crossed(of, name, "supervisor");
        for name in ["openat", "write", "close"] {
            assert_eq!(sum(many, name) - sum(few, name), 20, "{backend}, {name}: {many:#}");
        }
        assert_eq!(crossed(many, "write", "supervisor"), 0, "{many:#}");
        // The supervisor takes up and answers each question: two calls of the host's.
        let asked =
            many["crossed"].as_array().unwrap().iter().filter(|row| row["by"] == "supervisor");
        let asked: Vec<_> = asked.collect();
        assert!(!asked.is_empty(), "{many:#}");
        for row in asked {
            assert_eq!(
                kernel(row, "ioctl"),
                2 * row["crossings"].as_u64().unwrap(),
                "{backend}: {row:#}"
            );
        }
    }
}

/// This test program again, as a host that calls an applet 200 times.
const ROLE: &str = "HOLDFAST_TEST_CALLS";

#[test]
fn a_host_makes_calls() {
    let Ok(applet) = std::env::var(ROLE) else { return };
    let scratch = scratch();
    let key = OwnerKey::from_bytes([7; 32]);
    let region = scratch
        .names()
        .unwrap()
        .open_or_create(&RegionName::parse("calls").unwrap(), &key, 32 << 20)
        .unwrap();
    let applet = Applet::spawn(applet, Limits::default(), Grants::none().heap(region)).unwrap();
    for _ in 0..200 {
        applet.call("count", b"").unwrap();
        applet.call("echo", b"some bytes").unwrap();
    }
    applet.close().unwrap();
}

/// Requests that an applet serves are counted one by one.
///
/// Guarantee: trace/crossings
#[test]
fn served_requests_are_counted_one_by_one() {
    let scratch = scratch();
    let this = std::env::current_exe().unwrap();
    let host = [
        this.to_str().unwrap(),
        "trace_sandbox::a_host_makes_calls",
        "--exact",
        "--test-threads=1",
    ];
    let forms = [
        ("wasm", scratch.programs().applet("echo")),
        ("native", scratch.programs().native_applet("echo")),
    ];
    for backend in backends(&scratch) {
        for (kind, applet) in &forms {
            let json = scratch.files().join("report.json");
            let options = ["--json", json.to_str().unwrap()];
            succeed(traced(&scratch, backend, &options, &host).env(ROLE, applet.as_ref().unwrap()));
            let report = read_json(&json);
            for name in ["count", "echo"] {
                let function = function(&report, name);
                assert_eq!(function["calls"], 200, "{backend}, {kind}: {function:#}");
                let kinds = function["crossed"].as_array().unwrap();
                if *kind == "wasm" {
                    // It takes the message and sends the result, whether it works on its heap or
                    // not.
                    assert_eq!(
                        (
                            crossed(function, "receive", "import"),
                            crossed(function, "send", "import")
                        ),
                        (200, 200)
                    );
                    // The first call that needs the heap attaches it.
                    let attached = u64::from(name == "count");
                    assert_eq!(crossed(function, "heap_open", "import"), attached);
                    let counted = ["crossings", "crossings_min", "crossings_max"]
                        .map(|key| function[key].as_u64().unwrap());
                    assert_eq!(
                        counted,
                        [400 + attached, 2, 2 + attached],
                        "{backend}: {function:#}"
                    );
                } else {
                    // It may wait for messages and wake its host, and its first call may map
                    // memory; no store or load is one.
                    let others = kinds.iter().filter(|row| row["name"] != "futex");
                    let others: u64 = others.map(|row| row["crossings"].as_u64().unwrap()).sum();
                    assert!(others <= 3, "{backend}: {function:#}");
                }
            }
            assert_eq!(report["crossings"]["applets"][0]["kind"], *kind);
            assert_eq!(
                report["crossings"]["notes"].as_array().unwrap().len(),
                0,
                "{}",
                report["crossings"]["notes"]
            );
        }
    }
}

/// A killed host leaves what it had recorded, and the rest is reported as missing.
///
/// Guarantee: trace/crossings-damage
#[test]
fn killed_host_leaves_its_partial_record() {
    let scratch = scratch();
    let applet = written(&scratch, "without_end.wat", WITHOUT_END);
    let (number, json) = (scratch.files().join("number"), scratch.files().join("report.json"));
    let script = "echo $$ >\"$0\"; exec \"$1\" run \"$2\"";
    let program = program(&scratch);
    let options = ["--json", json.to_str().unwrap()];
    let command =
        ["sh", "-c", script, number.to_str().unwrap(), &program, applet.to_str().unwrap()];
    let mut traced = traced(&scratch, "ptrace", &options, &command);
    let mut child = traced.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    // So many crossings are more than what a host gathers before it writes.
    let mut lines = [0; 8 * 5];
    child.stdout.as_mut().unwrap().read_exact(&mut lines).unwrap();
    let host: i32 = std::fs::read_to_string(number).unwrap().trim().parse().unwrap();
    kill_process(Pid::from_raw(host).unwrap(), Signal::KILL).unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(128 + 9));
    let report = read_json(&json);
    let notes = report["crossings"]["notes"].to_string();
    assert!(notes.contains("ended before its record did"), "{notes}");
    // Its call had no end, so what crossed is outside of any.
    let crossings = crossed(function(&report, "(outside)"), "args_sizes_get", "import");
    assert!(crossings > 5_000, "{crossings}");
}

/// A host with a file-size limit keeps no record and continues, and the view says why.
///
/// Guarantee: trace/crossings-forgery
#[test]
fn host_with_a_file_limit_keeps_no_record() {
    let scratch = scratch();
    let applet = written(
        &scratch,
        "ends.wat",
        r#"(module (memory (export "memory") 1) (func (export "_start")))"#,
    );
    let program = program(&scratch);
    let traced = |limit: &str| {
        let script = format!("ulimit -f {limit}; exec \"$0\" run \"$1\"");
        let command = ["sh", "-c", &script, &program, applet.to_str().unwrap()];
        let told = tell(&mut traced(&scratch, "ptrace", &["--by", "crossing"], &command));
        assert_eq!(told.status, 0, "{limit}: {}", told.err);
        told.err.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let unlimited = traced("unlimited");
    assert!(
        unlimited.contains("Crossings of") && !unlimited.contains("files is limited"),
        "{unlimited}"
    );
    // The places of heaps are there now, so any byte of the record would be the first one too many.
    let limited = traced("0");
    assert!(limited.contains("the size of its files is limited (`ulimit -f`)"), "{limited}");
}

/// An applet learns nothing of the record, and a named file is never used as the record.
///
/// Guarantee: trace/crossings-forgery
#[test]
fn applet_never_sees_the_record_of_crossings() {
    let scratch = scratch();
    let program = program(&scratch);
    let told = succeed(&mut traced(&scratch, "ptrace", &[], &[&program, "run", "/usr/bin/env"]));
    assert!(!told.contains("HOLDFAST_"), "{told}");
    let file = written(&scratch, "file", "as it was");
    let mut run = scratch.holdfast();
    run.arg("run").arg(victim("stores_to_its_heap")).args(["--heap", "values"]);
    succeed(run.env("HOLDFAST_CROSSINGS", &file));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "as it was");
    let nobody = tell(&mut traced(&scratch, "ptrace", &[], &["true"]));
    assert!(
        nobody.status == 0 && nobody.err.contains("No process recorded what crossed"),
        "{}",
        nobody.err
    );
}
