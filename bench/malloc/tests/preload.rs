//! Unmodified programs with their `malloc` heap in a region: they do what they do without it, and
//! leave nothing.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../../../bindings/c-native/tests/common/mod.rs"]
mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::{Bench, has, prefix, succeeded, text};
use holdfast_region::RegionName;

/// The same program, alone and with the shim.
fn both(bench: &Bench, program: &str, arguments: &[&str]) -> [Output; 2] {
    let plain = bench.command(Path::new(program)).args(arguments).output().unwrap();
    let mut preloaded = bench.command(Path::new(program));
    let preloaded = with_shim(preloaded.args(arguments)).output().unwrap();
    assert_eq!(text(&preloaded.stderr), text(&plain.stderr), "{program} {arguments:?}");
    assert_eq!(preloaded.status, plain.status, "{program} {arguments:?}");
    [plain, preloaded]
}

/// The bound around the program has the shim, too, and starts the program as every shell does.
fn with_shim(command: &mut Command) -> &mut Command {
    command.env("LD_PRELOAD", prefix().join("lib/libholdfast-malloc.so"))
}

fn same_output(program: &str, arguments: &[&str]) {
    let bench = Bench::new();
    let [plain, preloaded] = both(&bench, program, arguments);
    assert!(plain.status.success(), "{program}: {}", text(&plain.stderr));
    assert!(plain.stdout == preloaded.stdout, "{program} {arguments:?} printed something else");
    nothing_is_left(&bench);
}

fn nothing_is_left(bench: &Bench) {
    let left: Vec<PathBuf> =
        std::fs::read_dir(bench.path("pool")).unwrap().map(|entry| entry.unwrap().path()).collect();
    let is_heap = |path: &PathBuf| {
        path.extension().is_some_and(|ending| ending == "image" || ending == "lock")
    };
    let mut heaps: Vec<&PathBuf> = left.iter().filter(|path| is_heap(path)).collect();
    heaps.retain(|path| !path.ends_with(".names.lock"));
    assert!(heaps.is_empty(), "scratch heaps are left: {heaps:?}");
}

fn compile(bench: &Bench, name: &str) -> PathBuf {
    let program = bench.path(name);
    let mut compiler = bench.command(Path::new("cc"));
    compiler.args(["-O1", "-fno-builtin", "-Wall", "-Wextra", "-o"]).arg(&program);
    compiler.arg(format!("tests/programs/{name}.c")).arg("-lpthread");
    assert_eq!(succeeded(&compiler.output().unwrap()), "");
    program
}

#[test]
fn ls_lists_the_same_with_its_heap_in_a_region() {
    same_output("ls", &["-lR", "/usr/share/doc"]);
}

#[test]
fn sort_sorts_the_same_with_its_heap_in_a_region() {
    let bench = Bench::new();
    let lines: Vec<String> =
        (0..100_000_u64).map(|i| (i * 48_271 % 2_147_483_647).to_string()).collect();
    let file = bench.path("lines");
    std::fs::write(&file, lines.join("\n")).unwrap();
    let [plain, preloaded] = both(&bench, "sort", &[file.to_str().unwrap()]);
    assert_eq!(plain.stdout.iter().filter(|byte| **byte == b'\n').count(), lines.len());
    assert!(plain.stdout == preloaded.stdout);
    nothing_is_left(&bench);
}

/// Python computes the same results and forks with its malloc heap in a region.
///
/// Guarantee: programs/malloc
#[test]
fn python_runs_and_forks_with_its_heap_in_a_region() {
    if !has("python3") {
        return;
    }
    same_output(
        "python3",
        &[
            "-c",
            "d = {str(i): [i, i * 2] for i in range(300000)}\n\
             print(len(d), sum(v[1] for v in d.values()))\n\
             import os, sys; sys.stdout.flush()\n\
             child = os.fork()\n\
             d.clear() if child == 0 else None\n\
             os._exit(7) if child == 0 else None\n\
             print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), len(d), d['299999'])",
        ],
    );
}

/// A compiler writes the same object file with its malloc heap in a region.
#[test]
fn compiler_output_is_the_same_over_a_region() {
    if !has("cc") {
        return;
    }
    let bench = Bench::new();
    let (source, object) = (bench.path("small.c"), bench.path("small.o"));
    std::fs::write(&source, "#include <stdio.h>\nint main(void) { return puts(\"hello\") < 0; }\n")
        .unwrap();
    let arguments = ["-O2", "-c", source.to_str().unwrap(), "-o", object.to_str().unwrap()];
    let mut compiler = bench.command(Path::new("cc"));
    assert_eq!(succeeded(&compiler.args(arguments).output().unwrap()), "");
    let plain = std::fs::read(&object).unwrap();
    std::fs::remove_file(&object).unwrap();
    assert_eq!(succeeded(&with_shim(&mut compiler).output().unwrap()), "");
    assert!(std::fs::read(&object).unwrap() == plain);
    nothing_is_left(&bench);
}

/// Every function of the malloc family keeps its contract, also in threads and after a fork.
///
/// Guarantee: programs/malloc
#[test]
fn malloc_family_holds_in_threads_and_after_forks() {
    if !has("cc") {
        return;
    }
    let bench = Bench::new();
    let program = compile(&bench, "family");
    let [plain, preloaded] = both(&bench, program.to_str().unwrap(), &[]);
    assert_eq!(text(&plain.stdout), "as it must be\n");
    assert_eq!(text(&preloaded.stdout), "as it must be\n");
    let mut foreign = bench.command(&program);
    assert_eq!(
        succeeded(&with_shim(&mut foreign).arg("foreign").output().unwrap()),
        "as it must be\n"
    );
    nothing_is_left(&bench);
}

/// A fork leaves the locks and memory of its parent unchanged.
///
/// Guarantee: programs/forks
/// Guarantee: programs/malloc
#[test]
fn fork_leaves_locks_and_memory_of_the_parent() {
    if !has("cc") {
        return;
    }
    let bench = Bench::new();
    let program = compile(&bench, "forks");
    let [_, preloaded] = both(&bench, program.to_str().unwrap(), &[]);
    assert_eq!(text(&preloaded.stdout), "as it must be\n");
    nothing_is_left(&bench);
}

/// Threads have slabs of their own: others free in them, they end, the process forks, and a signal
/// handler that allocates interrupts them.
///
/// Guarantee: programs/malloc
#[test]
fn slabs_of_threads_stand_ends_forks_and_signals() {
    if !has("cc") {
        return;
    }
    let bench = Bench::new();
    let program = compile(&bench, "threads");
    both(&bench, program.to_str().unwrap(), &[]);
    let mut interrupted = bench.command(&program);
    let interrupted = with_shim(interrupted.arg("interrupted")).output().unwrap();
    assert_eq!(succeeded(&interrupted), "");
    let mut named = bench.unbounded(&program);
    named.env("HOLDFAST_MALLOC_HEAP", "named");
    assert_eq!(succeeded(&with_shim(&mut named).output().unwrap()), "");
    let soundness = holdfast_testkit::heap_soundness(&bench.names(), "named").unwrap();
    assert!(matches!(soundness, holdfast_testkit::Soundness::Sound { .. }), "{soundness:?}");
}

/// A named heap stays and is sound; a heap in use is left alone.
#[test]
fn named_heap_stays_sound_and_is_not_used_twice() {
    if !has("cc") {
        return;
    }
    let bench = Bench::new();
    let program = compile(&bench, "family");
    for _ in 0..2 {
        // `timeout` gets the named heap; the program itself, its child, finds it in use.
        let mut both = bench.command(&program);
        both.env("HOLDFAST_MALLOC_HEAP", "named");
        assert_eq!(succeeded(&with_shim(&mut both).output().unwrap()), "as it must be\n");
        let mut alone = bench.unbounded(&program);
        alone.env("HOLDFAST_MALLOC_HEAP", "named");
        assert_eq!(succeeded(&with_shim(&mut alone).output().unwrap()), "as it must be\n");
        let soundness = holdfast_testkit::heap_soundness(&bench.names(), "named").unwrap();
        assert!(matches!(soundness, holdfast_testkit::Soundness::Sound { .. }), "{soundness:?}");
    }
    assert_eq!(bench.names().list().unwrap().len(), 1);
    assert!(bench.names().summary(&RegionName::parse("named").unwrap()).is_ok());
}

/// A program that gets no heap ends with the reason and is not measured.
#[test]
fn program_without_a_heap_ends_with_the_reason() {
    let bench = Bench::new();
    let mut refused = bench.unbounded(Path::new("true"));
    refused.env("HOLDFAST_MALLOC_SIZE", "much");
    let output = with_shim(&mut refused).output().unwrap();
    assert_eq!(output.status.code(), Some(71));
    let said = text(&output.stderr);
    assert!(said.contains("HOLDFAST_MALLOC_SIZE") && said.contains("64MiB"), "{said}");
}
