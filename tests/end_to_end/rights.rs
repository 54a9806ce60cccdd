//! Modes of what commands leave, under a umask that takes nothing away: all of a home and a pool is
//! its user's alone, and what the user named himself is never writable to others.

use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use holdfast_testkit::Scratch;

use crate::{scratch, tell};

/// The command under umask 000.
fn holdfast(scratch: &Scratch) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "umask 000; exec \"$@\"", "sh"]).arg(scratch.programs().holdfast());
    command.env("HOLDFAST_HOME", scratch.home()).env("HOLDFAST_POOL", scratch.pool());
    command.stdin(Stdio::null());
    command
}

/// All that is below a directory, itself included.
fn walk(directory: &Path, found: &mut Vec<PathBuf>) {
    found.push(directory.to_owned());
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.symlink_metadata() {
            Ok(metadata) if metadata.is_dir() => walk(&path, found),
            // A link has no mode of its own: the one that names a pool's owner lies in a directory
            // that is walked here.
            Ok(metadata) if metadata.is_symlink() => {}
            Ok(_) => found.push(path),
            // What a keeper makes for a moment.
            Err(_) => {}
        }
    }
}

/// Nothing below these can be used by others; how much there is.
fn assert_private(places: &[PathBuf]) -> usize {
    let mut found = Vec::new();
    places.iter().for_each(|place| walk(place, &mut found));
    for path in &found {
        let Ok(metadata) = path.symlink_metadata() else { continue };
        let mode = metadata.permissions().mode() & 0o7777;
        assert_eq!(mode & 0o7077, 0, "{}: {mode:04o}", path.display());
    }
    found.len()
}

/// Ended with this value.
struct Keeper(Child);

impl Drop for Keeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Guarantee: sandbox/home-is-private
#[test]
fn a_home_is_private_under_any_umask() {
    let scratch = scratch();
    let guestbook = scratch.programs().native_applet("guestbook").unwrap();
    let wasm = holdfast_testkit::applet_file("guestbook.wasm").unwrap();
    let run = |words: &[&str]| {
        let told = tell(holdfast(&scratch).args(words));
        assert_eq!(told.status, 0, "{words:?}: {}{}", told.out, told.err);
    };
    let (guestbook, wasm) = (guestbook.to_str().unwrap(), wasm.to_str().unwrap());
    run(&["run", guestbook, "--heap", "book", "--", "add", "native"]);
    // Its compiled form is kept in the cache.
    run(&["run", wasm, "--heap", "other", "--", "add", "wasm"]);
    run(&["run", guestbook, "--heap", "shared", "--compartment", "w", "--", "add", "part"]);
    run(&["run", guestbook, "--heap", "disk", "--backing", "file", "--", "add", "disk"]);
    run(&["run", guestbook, "--heap", "atomic", "--atomic", "--", "add", "together"]);
    run(&["heap", "snapshot", "book", "first"]);
    run(&["heap", "checkpoint", "book"]);
    run(&["heap", "grant", "book", "--to", "friend"]);
    run(&["heap", "cp", "book", "copy"]);
    run(&["heap", "restore", "book", "first"]);
    run(&["heap", "ls"]);
    run(&["doctor"]);
    let mut keeper =
        Keeper(holdfast(&scratch).args(["keeper", "run"]).stderr(Stdio::null()).spawn().unwrap());
    let socket = scratch.pool().join("keeper.sock");
    let bandwidth = scratch.home().join("keeper-bandwidth");
    let started = Instant::now();
    while !(socket.exists() && bandwidth.exists()) {
        assert!(keeper.0.try_wait().unwrap().is_none(), "the keeper ended");
        assert!(started.elapsed() < Duration::from_secs(60), "no keeper");
        std::thread::sleep(Duration::from_millis(10));
    }
    run(&["run", guestbook, "--heap", "book", "--", "add", "kept"]);
    run(&["keeper", "flush"]);
    let found = assert_private(&[scratch.home(), scratch.pool()]);
    assert!(found > 20, "{found}");
    assert!(socket.symlink_metadata().unwrap().file_type().is_socket());
}

/// Guarantee: sandbox/home-is-private
#[test]
fn files_that_users_name_are_not_writable_to_others() {
    let scratch = scratch();
    let guestbook = scratch.programs().native_applet("guestbook").unwrap();
    let guestbook = guestbook.to_str().unwrap();
    let at = |name: &str| scratch.files().join(name).to_str().unwrap().to_owned();
    let run = |words: &[&str]| {
        let told = tell(holdfast(&scratch).args(words));
        assert_eq!(told.status, 0, "{words:?}: {}{}", told.out, told.err);
    };
    run(&["run", guestbook, "--heap", "book", "--report", &at("end.json"), "--", "add", "entry"]);
    run(&["heap", "export", "book", &at("export")]);
    run(&["heap", "map", "book", "--svg", &at("map.svg")]);
    // What is in a heap is private; a picture or a report may be shown.
    for (name, widest) in [("end.json", 0o644), ("export", 0o600), ("map.svg", 0o644)] {
        let mode = std::fs::metadata(at(name)).unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode & !widest, 0, "{name}: {mode:04o}");
    }
}

/// A home that an earlier version made under such a umask.
///
/// Guarantee: sandbox/home-is-private
#[test]
fn a_note_that_was_open_to_others_is_closed() {
    let scratch = scratch();
    assert_eq!(tell(holdfast(&scratch).args(["heap", "ls"])).status, 0);
    let note = scratch.pool().join("home");
    std::fs::set_permissions(&note, PermissionsExt::from_mode(0o666)).unwrap();
    assert_eq!(tell(holdfast(&scratch).args(["heap", "ls"])).status, 0);
    assert_private(&[scratch.home(), scratch.pool()]);
}

/// A program in WebAssembly whose descriptor 3 is a directory: it opens `name` there, makes it if
/// it is not, writes a byte to it, and makes the directory `inner`. WASI has no modes; all bits of
/// flags and rights that it knows are set one after the other.
fn writer(name: &str, flags: u32) -> String {
    format!(
        r#"(module
  (import "wasi_snapshot_preview1" "path_open"
    (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_create_directory" (func $make (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "{name}inner")
  (data (i32.const 64) "\20\00\00\00\01\00\00\00")
  (func (export "_start")
    (local $failed i32)
    (local.set $failed (call $open (i32.const 3) (i32.const 0) (i32.const 0) (i32.const {length}) (i32.const {flags})
      (i64.const 0x1fffffff) (i64.const 0x1fffffff) (i32.const 0) (i32.const 80)))
    (if (local.get $failed) (then (call $exit (local.get $failed))))
    (local.set $failed (call $write (i32.load (i32.const 80)) (i32.const 64) (i32.const 1) (i32.const 84)))
    (if (local.get $failed) (then (call $exit (local.get $failed))))
    (drop (call $make (i32.const 3) (i32.const {length}) (i32.const 5)))))"#,
        length = name.len(),
    )
}

/// Guarantee: sandbox/special-files
#[test]
fn programs_in_webassembly_leave_ordinary_modes() {
    let scratch = scratch();
    let directory = scratch.files().join("granted");
    std::fs::create_dir(&directory).unwrap();
    let mode_of =
        |name: &str| std::fs::metadata(directory.join(name)).unwrap().permissions().mode() & 0o7777;
    let write = |name: &str, flags: u32| {
        let program = scratch.write("writer.wat", writer(name, flags)).unwrap();
        let grant = format!("{}::/d", directory.display());
        let told = tell(holdfast(&scratch).arg("run").arg(program).args(["--dir", &grant]));
        assert_eq!(told.status, 0, "{name}: {}", told.err);
    };
    const CREATE: u32 = 1;
    const TRUNCATE: u32 = 8;
    write("new", CREATE);
    assert_eq!(
        (mode_of("new"), mode_of("inner")),
        (0o666, 0o777),
        "all that the umask lets through"
    );
    // What is written to a file that runs with its owner's rights must not run so. Root could let
    // it.
    for flags in [0, TRUNCATE] {
        let old = directory.join("old");
        std::fs::write(&old, "old").unwrap();
        std::fs::set_permissions(&old, PermissionsExt::from_mode(0o6755)).unwrap();
        write("old", flags);
        assert_eq!(mode_of("old"), 0o755, "{flags}");
    }
}
