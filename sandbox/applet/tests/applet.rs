//! A run through the public API: from a file to an outcome, with the heap in order in every case.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use holdfast_applet::{
    AppletError, Command, Failure, FailureKind, Grants, JailError, Limits, Outcome, Recovery,
    Stdio, recover,
};
use holdfast_heap::{Fixed, Heap, OpenOptions, Opened};
use holdfast_identity::AppletFile;
use holdfast_region::{NameSpace, OwnerKey, Places, Region, RegionName};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

struct Scratch(TempDir);

impl Scratch {
    fn new() -> Self {
        let mut builder = tempfile::Builder::new();
        Scratch(builder.permissions(PermissionsExt::from_mode(0o700)).tempdir().unwrap())
    }

    fn region(&self) -> Region {
        let places = Places::at(self.0.path().join("home"), self.0.path().join("pool")).unwrap();
        let key = OwnerKey::from_bytes([3; 32]);
        NameSpace::new(places)
            .open_or_create(&RegionName::parse("heap").unwrap(), &key, 16 * MIB)
            .unwrap()
    }

    fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    fn applet(&self, body: &str, region: Region) -> Command {
        let text = format!(
            r#"(module
              (import "holdfast" "attach" (func $attach (param i32) (result i32)))
              (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
              (memory (export "memory") 1)
              (func $main (export "_start")
                (if (call $attach (i32.const 64)) (then (call $exit (i32.const 99))))
                {body}))"#
        );
        Command::new(self.file("applet.wat", text.as_bytes()), Grants::none().heap(region))
    }
}

fn error(result: Result<Outcome, Box<AppletError>>) -> Box<AppletError> {
    match result {
        Ok(outcome) => panic!("ended with {}", outcome.exit_status),
        Err(error) => error,
    }
}

/// Neither sandbox starts another file than the one that was examined.
///
/// Guarantee: applets/identities
#[test]
fn replaced_program_does_not_start() {
    let scratch = Scratch::new();
    let module = |status: u32| {
        let text = format!(
            r#"(module (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
                 (memory (export "memory") 1)
                 (func (export "_start") (call $exit (i32.const {status}))))"#
        );
        scratch.file(&format!("{status}.wat"), text.as_bytes())
    };
    let program = |from: &str| {
        let path = scratch.0.path().join(Path::new(from).file_name().unwrap());
        std::fs::copy(from, &path).unwrap();
        path
    };
    for [path, other] in [[module(0), module(1)], [program("/bin/true"), program("/bin/false")]] {
        let examined = AppletFile::of_file(&File::open(&path).unwrap()).unwrap();
        let command = || Command::new(&path, Grants::none()).examined(examined.clone());
        assert_eq!(command().run().unwrap().exit_status, 0);
        std::fs::rename(other, &path).unwrap();
        let error = error(command().run());
        assert_eq!(error.kind(), FailureKind::CannotLoad);
        assert!(error.to_string().contains("was replaced or changed"), "{error}");
        assert!(command().spawn().is_err());
        assert_eq!(Command::new(&path, Grants::none()).run().unwrap().exit_status, 1);
    }
}

#[test]
fn an_outcome_hands_the_heap_back_open() {
    let scratch = Scratch::new();
    let body = "(i32.store (i32.const 0x80000000) (i32.const 5)) (call $exit (i32.const 7))";
    let outcome = scratch.applet(body, scratch.region()).stdio(Stdio::capture(1000)).run().unwrap();
    assert_eq!(outcome.exit_status, 7);
    assert!(outcome.metrics.heap_dirty && outcome.notes.is_empty() && outcome.heap_error.is_none());
    let report = outcome.heaps.into_first().unwrap().close().unwrap();
    assert!(!report.checkpoint.skipped);
    assert_eq!(scratch.region().backed_bytes(), 4 * MIB);
}

#[test]
fn after_a_trap_the_heap_is_closed_with_a_checkpoint() {
    let scratch = Scratch::new();
    let body = "(i32.store (i32.const 0x80000000) (i32.const 5)) unreachable";
    let error = error(scratch.applet(body, scratch.region()).run());
    assert_eq!(error.kind(), FailureKind::Trap);
    assert!(error.to_string().contains("`main`"), "{error}");
    let heap = error.heaps.into_iter().next().unwrap();
    // Bytes that are no heap are left as they are.
    assert!(matches!(heap.recovery, Some(Ok(Recovery::NoHeap))), "{:?}", heap.recovery);
    assert!(!heap.close.unwrap().unwrap().checkpoint.skipped);
    let mut value = [0; 4];
    scratch.region().read_at(0, &mut value).unwrap();
    assert_eq!(u32::from_le_bytes(value), 5);
}

#[test]
fn a_time_limit_ends_the_run_and_frees_the_heap() {
    let scratch = Scratch::new();
    let applet = scratch.applet("(loop $forever (br $forever))", scratch.region());
    let error = error(applet.timeout(Duration::from_millis(100)).run());
    assert_eq!(error.kind(), FailureKind::TimeLimit);
    assert!(error.heaps[0].close.as_ref().unwrap().is_ok());
    drop(scratch.region());
}

/// Formats a heap in the region and leaves a transaction open, as a killed applet would.
fn leave_a_transaction_open(region: &mut Region) {
    let base = region.map_native().unwrap();
    let options = OpenOptions { pointers: None, format_if_empty: true };
    // SAFETY: the mapping lives until `unmap` below, and nothing else uses it.
    let backing = unsafe { Fixed::new(base.as_ptr(), region.backed_bytes()) };
    let mut heap = Heap::open(backing, options).unwrap();
    let root = heap.create_root("value", 64).unwrap();
    // SAFETY: the root has 64 bytes of its own.
    unsafe { root.cast::<u64>().as_ptr().write(1) };
    heap.begin().unwrap();
    heap.add_range(root.as_ptr(), 8).unwrap();
    // SAFETY: as above.
    unsafe { root.cast::<u64>().as_ptr().write(2) };
    region.unmap().unwrap();
}

fn read_value(region: &mut Region) -> (u64, Opened) {
    let base = region.map_native().unwrap();
    // SAFETY: as above.
    let backing = unsafe { Fixed::new(base.as_ptr(), region.backed_bytes()) };
    let heap = Heap::open(backing, OpenOptions::default()).unwrap();
    let root = heap.root("value").unwrap();
    // SAFETY: the root has 64 bytes.
    let value = unsafe { root.pointer.cast::<u64>().as_ptr().read() };
    let opened = heap.opened();
    region.unmap().unwrap();
    (value, opened)
}

/// After a trap of the applet, the host rolls the open transaction back.
///
/// Guarantee: heap/rollback-after-trap
#[test]
fn trap_rolls_back_the_open_transaction() {
    let scratch = Scratch::new();
    let mut region = scratch.region();
    leave_a_transaction_open(&mut region);
    let error = error(scratch.applet("unreachable", region).run());
    let heap = error.heaps.into_iter().next().unwrap();
    assert!(matches!(heap.recovery, Some(Ok(Recovery::RolledBack))), "{:?}", heap.recovery);
    heap.close.unwrap().unwrap();
    let mut region = scratch.region();
    assert_eq!(read_value(&mut region), (1, Opened::Clean));
    assert_eq!(recover(&mut region).unwrap(), Recovery::InOrder);
    assert!(!region.is_dirty());
}

#[test]
fn files_that_cannot_be_run_are_told_apart() {
    let scratch = Scratch::new();
    let cases: [(&Path, FailureKind, &str); 4] = [
        (Path::new("/nowhere/x.wasm"), FailureKind::NotFound, "/nowhere/x.wasm"),
        (&scratch.file("text", b"hello"), FailureKind::CannotLoad, "neither WebAssembly"),
        (&scratch.file("elf", b"\x7fELF\x02\x01\x01"), FailureKind::CannotLoad, "x86-64"),
        (&scratch.file("empty.wat", b"(module)"), FailureKind::CannotLoad, "_start"),
    ];
    for (path, kind, text) in cases {
        let error = error(Command::new(path, Grants::none().heap(scratch.region())).run());
        assert_eq!(error.kind(), kind);
        assert!(error.to_string().contains(text), "{error}");
        // Nothing was stored: closing had nothing to do beyond the fresh region's first checkpoint.
        assert!(error.heaps[0].close.as_ref().unwrap().is_ok());
    }
    let error = error(Command::new(scratch.file("elf", b"\x7fELF\x02"), Grants::none()).run());
    assert!(
        matches!(error.failure, Failure::Jail(JailError::NotNative { .. }))
            && error.heaps.is_empty()
    );
}

/// What is refused before it starts leaves its heap as closing leaves it.
#[test]
fn start_that_is_refused_closes_its_heap() {
    let scratch = Scratch::new();
    let missing = || Command::new("/nowhere/x.wasm", Grants::none().heap(scratch.region()));
    let unwanted = || scratch.applet("", scratch.region()).start_while(|| false);
    let limited = || {
        let mut limits = Limits::default();
        limits.cpu_time = Some(Duration::from_secs(1));
        scratch.applet("", scratch.region()).limits(limits)
    };
    let cases: [(&dyn Fn() -> Command, FailureKind); 3] = [
        (&missing, FailureKind::NotFound),
        (&unwanted, FailureKind::Cancelled),
        (&limited, FailureKind::CannotLoad),
    ];
    for (command, kind) in cases {
        let Err(error) = command().spawn() else { panic!("it serves") };
        assert_eq!(error.kind(), kind);
        assert!(error.heaps[0].close.as_ref().unwrap().is_ok());
        assert_eq!(scratch.region().opened(), holdfast_region::Opened::Warm);
    }
}
