//! Programs that cannot be loaded, and the cache of compiled ones.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::os::unix::fs::PermissionsExt;

use common::{error_text, options, program, status};
use holdfast_wasm::{Finished, Program, WasmError};

fn run_text(text: &str) -> Finished {
    holdfast_wasm::run(&Program::from_bytes("x.wat", text).unwrap(), &options(), None)
}

#[test]
fn something_else_is_not_wasm() {
    for bytes in [&b"\x7fELF\x02\x01"[..], b"#!/bin/sh\n", b"", b"\xff\xfe("] {
        let error = Program::from_bytes("x", bytes).unwrap_err();
        assert!(matches!(error, WasmError::NotWasm { .. }), "{error:?}");
        assert!(error.to_string().contains(".wasm"), "{error}");
    }
}

/// Damaged and unsupported modules give other errors than files that are no modules.
#[test]
fn damaged_modules_differ_from_other_files() {
    for bytes in [&b"\0asm"[..], b"\0asm\x0d\0\x01\0", b"\0asm\x01\0\0\0\xff\xff\xff"] {
        let error = match Program::from_bytes("x.wasm", bytes) {
            Ok(program) => holdfast_wasm::run(&program, &options(), None).end.unwrap_err(),
            Err(error) => error,
        };
        assert!(matches!(error, WasmError::Invalid { .. }), "{error:?}");
        assert!(error.to_string().contains("wasm32-wasip1"), "{error}");
    }
    assert!(matches!(run_text("(module (nonsense))").end, Err(WasmError::Invalid { .. })));
}

#[test]
fn a_missing_file_is_reported_with_its_path() {
    let error = Program::open("/nowhere/applet.wasm".as_ref()).unwrap_err();
    assert!(matches!(error, WasmError::CannotRead { .. }));
    assert!(error.to_string().contains("/nowhere/applet.wasm"));
}

#[test]
fn an_endless_file_is_refused() {
    let error = Program::open("/dev/zero".as_ref()).unwrap_err();
    assert!(matches!(error, WasmError::NotWasm { .. }), "{error}");
    let directory = tempfile::tempdir().unwrap();
    let long = directory.path().join("long.wasm");
    std::fs::write(&long, exits_with(1)).unwrap();
    std::fs::File::options().write(true).open(&long).unwrap().set_len(1 << 40).unwrap();
    let error = Program::open(&long).unwrap_err();
    assert!(
        matches!(error, WasmError::Invalid { .. }) && error.to_string().contains("larger than"),
        "{error}"
    );
}

/// Guarantee: sandbox/own-status
#[test]
fn an_unknown_import_is_named_with_what_exists() {
    let cases = [
        ("holdfast", "atach", "attach(out: i32) -> i32"),
        ("wasi_snapshot_preview1", "fd_teleport", "no function of WASI preview 1"),
        ("wasi_unstable", "fd_read", "wasm32-wasip1"),
        ("env", "strlen", "link the library"),
        ("other", "f", "`holdfast` only"),
    ];
    for (module, name, hint) in cases {
        let finished = run_text(&format!(
            "(module (import \"{module}\" \"{name}\" (func)) (memory (export \"memory\") 1) (func (export \"_start\")))"
        ));
        assert!(
            matches!(&finished.end, Err(WasmError::UnknownImport { .. })),
            "{:?}",
            finished.end
        );
        let text = error_text(&finished);
        assert!(text.contains(&format!("{module}.{name}")) && text.contains(hint), "{text}");
    }
}

/// The error for a module that imports its memory or table says how to link it, and names no missing
/// library.
///
/// Guarantee: sandbox/own-status
#[test]
fn an_imported_memory_is_told_how_to_link() {
    for import in ["(memory 1)", "(table 1 funcref)"] {
        let finished = run_text(&format!(
            "(module (import \"env\" \"outer\" {import}) (func (export \"_start\")))"
        ));
        assert!(
            matches!(&finished.end, Err(WasmError::UnknownImport { .. })),
            "{:?}",
            finished.end
        );
        let text = error_text(&finished);
        assert!(text.contains("env.outer") && text.contains("without `--import-memory`"), "{text}");
    }
}

#[test]
fn an_import_of_the_wrong_type_is_refused() {
    let finished = run_text(
        r#"(module (import "holdfast" "attach" (func (param i64))) (func (export "_start")))"#,
    );
    assert!(matches!(finished.end, Err(WasmError::Invalid { .. })), "{:?}", finished.end);
}

#[test]
fn a_module_without_start_is_no_program() {
    for (text, hint) in [
        ("(module (func (export \"main\")))", "with a `main`"),
        ("(module (func (export \"_initialize\")))", "reactor"),
        ("(module (func (export \"_start\") (param i32)))", "takes parameters"),
        ("(module (global (export \"_start\") i32 (i32.const 1)))", "takes parameters"),
    ] {
        let finished = run_text(text);
        assert!(
            matches!(&finished.end, Err(WasmError::NoStart { .. })),
            "{text}: {:?}",
            finished.end
        );
        assert!(error_text(&finished).contains(hint), "{}", error_text(&finished));
    }
}

#[test]
fn features_outside_of_the_sandbox_are_refused() {
    for text in [
        "(module (memory i64 1) (func (export \"_start\")))",
        "(module (memory 1) (memory 1) (func (export \"_start\")))",
        "(module (memory 1 2 shared) (func (export \"_start\")))",
    ] {
        let finished = run_text(text);
        assert!(
            matches!(&finished.end, Err(WasmError::Invalid { .. })),
            "{text}: {:?}",
            finished.end
        );
    }
}

#[test]
fn a_program_without_memory_runs_and_has_no_heap() {
    let finished = run_text(
        r#"(module (import "holdfast" "attach" (func $attach (param i32) (result i32)))
            (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
            (func (export "_start") (call $exit (call $attach (i32.const 0)))))"#,
    );
    assert_eq!(status(&finished), 1);
    let scratch = common::Scratch::new();
    let text = r#"(module (import "holdfast" "attach" (func $attach (param i32) (result i32)))
            (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
            (func (export "_start") (call $exit (call $attach (i32.const 0)))))"#;
    let program = Program::from_bytes("x.wat", text).unwrap();
    let finished =
        holdfast_wasm::run(&program, &options(), Some(scratch.region("none", common::MIB)));
    assert_eq!(status(&finished), 7);
}

#[test]
fn a_compiled_applet_is_found_in_the_cache_again() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = options();
    options.cache_dir = Some(directory.path().join("cache"));
    let program = program("(call $exit (i32.const 4))");
    let first = holdfast_wasm::run(&program, &options, None);
    assert_eq!(
        (status(&first), first.metrics.compiled, first.cache_note.as_deref()),
        (4, true, None)
    );
    let second = holdfast_wasm::run(&program, &options, None);
    assert_eq!((status(&second), second.metrics.compiled), (4, false));
    let mode = directory.path().join("cache").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    // Code that counts fuel is other code.
    options.limits.fuel = Some(1000);
    assert!(holdfast_wasm::run(&program, &options, None).metrics.compiled);
}

/// Applets compiled at the same time keep their own code.
#[test]
fn concurrent_compiles_keep_their_own_code() {
    let directory = tempfile::tempdir().unwrap();
    let cache = directory.path().join("cache");
    let statuses = |expect_compiled: Option<bool>| {
        std::thread::scope(|scope| {
            let runs: Vec<_> = (0..8)
                .map(|number| {
                    let mut options = options();
                    options.cache_dir = Some(cache.clone());
                    let program = program(&format!("(call $exit (i32.const {number}))"));
                    scope.spawn(move || {
                        let finished = holdfast_wasm::run(&program, &options, None);
                        assert!(
                            expect_compiled
                                .is_none_or(|expected| finished.metrics.compiled == expected)
                        );
                        status(&finished)
                    })
                })
                .collect();
            runs.into_iter().map(|run| run.join().unwrap()).collect::<Vec<_>>()
        })
    };
    assert_eq!(statuses(None), [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(statuses(Some(false)), [0, 1, 2, 3, 4, 5, 6, 7]);
}

/// Cached code under the name of another applet is compiled again and replaced.
///
/// Guarantee: sandbox/compile-cache
#[test]
fn cached_code_of_another_applet_is_recompiled() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = options();
    options.cache_dir = Some(directory.path().join("cache"));
    let (one, other) =
        (program("(call $exit (i32.const 1))"), program("(call $exit (i32.const 2))"));
    let files = |cache: &std::path::Path| -> Vec<std::path::PathBuf> {
        std::fs::read_dir(cache).unwrap().map(|entry| entry.unwrap().path()).collect()
    };
    status(&holdfast_wasm::run(&one, &options, None));
    let cache = options.cache_dir.clone().unwrap();
    let first = files(&cache).pop().unwrap();
    status(&holdfast_wasm::run(&other, &options, None));
    let second = files(&cache).into_iter().find(|path| *path != first).unwrap();
    std::fs::copy(&second, &first).unwrap();
    let finished = holdfast_wasm::run(&one, &options, None);
    assert_eq!((status(&finished), finished.metrics.compiled), (1, true));
}

/// Longer than what was written just now counts as such.
const AT_REST: std::time::Duration = std::time::Duration::from_millis(2200);

/// Runs the applet in a file; its exit status, and whether it was compiled.
fn run_file(path: &std::path::Path, cache: &std::path::Path) -> (i32, bool) {
    let mut options = options();
    options.cache_dir = Some(cache.to_owned());
    let finished = holdfast_wasm::run(&Program::open(path).unwrap(), &options, None);
    (status(&finished), finished.metrics.compiled)
}

fn exits_with(status: i32) -> Vec<u8> {
    let text = format!(
        r#"(module (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
            (func (export "_start") (call $exit (i32.const {status}))))"#
    );
    wat::parse_str(text).unwrap()
}

fn files_with(extension: &str, folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let all = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    all.filter(|path| path.extension().is_some_and(|it| it == extension)).collect()
}

/// An applet file changed in place never runs with its old cached code.
///
/// Guarantee: sandbox/compile-cache
#[test]
fn changed_applet_never_runs_old_code() {
    let directory = tempfile::tempdir().unwrap();
    let (applet, cache) = (directory.path().join("x.wasm"), directory.path().join("cache"));
    std::fs::write(&applet, exits_with(1)).unwrap();
    assert_eq!(run_file(&applet, &cache), (1, true));
    let mtime = applet.metadata().unwrap().modified().unwrap();
    std::thread::sleep(AT_REST);
    for _ in 0..2 {
        assert_eq!(run_file(&applet, &cache), (1, false));
    }
    // Same inode, same size, same modification time.
    std::fs::write(&applet, exits_with(2)).unwrap();
    std::fs::File::options().write(true).open(&applet).unwrap().set_modified(mtime).unwrap();
    assert_eq!(run_file(&applet, &cache), (2, true));
    std::thread::sleep(AT_REST);
    assert_eq!(run_file(&applet, &cache), (2, false));
}

/// Cached code that was changed after its checksum was computed is compiled again.
///
/// Guarantee: sandbox/compile-cache
#[test]
fn code_changed_after_its_checksum_is_recompiled() {
    let directory = tempfile::tempdir().unwrap();
    let (applet, cache) = (directory.path().join("x.wasm"), directory.path().join("cache"));
    std::fs::write(&applet, exits_with(1)).unwrap();
    run_file(&applet, &cache);
    std::thread::sleep(AT_REST);
    assert_eq!(run_file(&applet, &cache), (1, false));
    let code = files_with("cwasm", &cache).pop().unwrap();
    let mut bytes = std::fs::read(&code).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&code, bytes).unwrap();
    std::thread::sleep(AT_REST);
    assert_eq!(run_file(&applet, &cache), (1, true));
}

#[test]
fn a_damaged_cache_is_compiled_over() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = options();
    options.cache_dir = Some(directory.path().to_owned());
    std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o700)).unwrap();
    let program = program("(call $exit (i32.const 4))");
    status(&holdfast_wasm::run(&program, &options, None));
    let mut damaged = 0;
    let mut folders = vec![directory.path().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let bytes = std::fs::read(&path).unwrap();
                std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
                damaged += 1;
            }
        }
    }
    assert!(damaged > 0);
    let finished = holdfast_wasm::run(&program, &options, None);
    assert_eq!((status(&finished), finished.metrics.compiled), (4, true));
}

#[test]
fn an_unusable_cache_is_noted_and_the_applet_runs() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    let open = directory.path().join("open");
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, PermissionsExt::from_mode(0o777)).unwrap();
    for path in [file, open] {
        let mut options = options();
        options.cache_dir = Some(path.clone());
        let finished = holdfast_wasm::run(&program("(call $exit (i32.const 5))"), &options, None);
        assert_eq!(status(&finished), 5);
        let note = finished.cache_note.unwrap();
        assert!(note.contains(&path.display().to_string()), "{note}");
        assert_eq!(note.contains("rm -r"), path.is_dir(), "{note}");
    }
}

/// A small file that would take minutes to compile is refused at once, with its function named.
///
/// Guarantee: sandbox/compile-bounds
/// Guarantee: sandbox/compile-time
#[test]
fn slow_to_compile_module_is_refused_at_once() {
    let (opened, closed) = ("loop ".repeat(30_000), "end ".repeat(30_000));
    // Eight thousand conditions, each of which merges a thousand locals.
    let mut merging = "(local ".to_owned() + &"i32 ".repeat(1000) + ")";
    for step in 0..8000 {
        let [a, b, c] = [7, 11, 13].map(|factor| step * factor % 1000);
        merging.push_str(&format!(
            "(if (local.get {a}) (then (local.set {b} (local.get {c}))) (else (local.set {c} (local.get {a}))))"
        ));
    }
    for (body, what) in [(opened + &closed, "30000 loops"), (merging, "8000000 merges")] {
        let started = std::time::Instant::now();
        let text = format!(
            r#"(module (memory (export "memory") 1) (func $slow (export "_start") {body}))"#
        );
        let finished = holdfast_wasm::run(
            &Program::from_bytes("slow.wasm", wat::parse_str(text).unwrap()).unwrap(),
            &options(),
            None,
        );
        assert!(matches!(finished.end, Err(WasmError::TooComplex { .. })), "{:?}", finished.end);
        let text = error_text(&finished);
        assert!(text.contains("`slow`") && text.contains(what), "{text}");
        assert!(started.elapsed() < std::time::Duration::from_secs(30));
    }
}

/// Guarantee: sandbox/compile-bounds
/// Guarantee: sandbox/compile-time
#[test]
fn compiling_has_a_time_limit() {
    let mut options = options();
    options.limits.compile_timeout = Some(std::time::Duration::from_nanos(1));
    let slow = program(
        &"(if (i32.load (i32.const 0)) (then (i32.store (i32.const 4) (i32.const 1))))"
            .repeat(5000),
    );
    let finished = holdfast_wasm::run(&slow, &options, None);
    assert!(matches!(finished.end, Err(WasmError::CompileTimeLimit { .. })), "{:?}", finished.end);
    options.limits.compile_timeout = Some(std::time::Duration::from_secs(600));
    assert_eq!(status(&holdfast_wasm::run(&slow, &options, None)), 0);
}

/// Cached code that another user could have written is compiled again.
///
/// Guarantee: sandbox/compile-cache
#[test]
fn code_others_could_write_is_recompiled() {
    let directory = tempfile::tempdir().unwrap();
    let cache = directory.path().join("cache");
    let mut options = options();
    options.cache_dir = Some(cache.clone());
    let program = program("(call $exit (i32.const 4))");
    let run = || {
        let finished = holdfast_wasm::run(&program, &options, None);
        (status(&finished), finished.metrics.compiled)
    };
    assert_eq!((run(), run()), ((4, true), (4, false)));
    let code = files_with("cwasm", &cache).pop().unwrap();
    let other = directory.path().join("other");

    // The group may have written it while the directory was open to them.
    std::fs::set_permissions(&code, PermissionsExt::from_mode(0o660)).unwrap();
    assert_eq!((run(), run()), ((4, true), (4, false)));
    // It has another name, under which it was made.
    std::fs::hard_link(&code, &other).unwrap();
    assert_eq!((run(), run()), ((4, true), (4, false)));
    // It is a link to a file elsewhere.
    std::fs::rename(&code, &other).unwrap();
    std::os::unix::fs::symlink(&other, &code).unwrap();
    assert_eq!((run(), run()), ((4, true), (4, false)));
}

#[test]
fn a_run_inside_of_an_asynchronous_runtime_works() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let finished = runtime.block_on(async {
        holdfast_wasm::run(&program("(call $exit (i32.const 6))"), &options(), None)
    });
    assert_eq!(status(&finished), 6);
}
