//! Native C and C++ programs with portable heaps, and with described types in heaps with pointers.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use std::process::Command;

use common::{Bench, Linking, has, prefix, succeeded};
use holdfast_region::{OwnerKey, RegionName};
use holdfast_testkit::{Soundness, heap_soundness};

const MEMORY_SHAPE: i32 = 7;
const NOT_A_HEAP: i32 = 8;
const LAYOUT: i32 = 23;
const PORTABLE_HEAP: i32 = 44;
const NOT_PORTABLE: i32 = 45;

fn bench() -> Option<Bench> {
    (has("pkg-config") && has("cc") && has("g++")).then(Bench::new)
}

fn copy(bench: &Bench, from: &str, to: &str) {
    let names = bench.names();
    let key = OwnerKey::load_or_create(names.places(), "default").unwrap();
    let name = |text: &str| RegionName::parse(text).unwrap();
    let _ = names.remove(&name(to), &key);
    names.copy(&name(from), &name(to), &key).unwrap();
}

/// A C program keeps a portable heap, refuses a heap of the other kind with what to do, and a type
/// that differs in one field; and what it dies in is rolled back.
///
/// Guarantee: programs/portable
/// Guarantee: programs/portable-types
#[test]
fn c_program_keeps_a_portable_heap() {
    let Some(bench) = bench() else { return };
    let program = bench.compile("portable.c", Linking::Static);
    let run = |arguments: &[&str]| {
        let output = bench.command(&program).args(arguments).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    for expected in 1..=150 {
        assert_eq!(run(&["book", "add"]), (Some(0), format!("{expected}\n")));
        if expected % 50 == 0 {
            assert_ne!(run(&["book", "crash"]).0, Some(0));
        }
    }
    assert_eq!(run(&["book", "look"]), (Some(0), "150\n".to_owned()));
    assert_eq!(run(&["book", "other"]), (Some(0), format!("{}\n", LAYOUT * 1001)));
    let (status, told) = run(&["book", "plain"]);
    assert_eq!(status, Some(PORTABLE_HEAP), "{told}");
    assert!(told.contains("open it as a portable one"), "{told}");
    assert_eq!(run(&["pointers", "plain"]).0, Some(0));
    let (status, told) = run(&["pointers", "add"]);
    assert_eq!(status, Some(NOT_PORTABLE), "{told}");
    let soundness = heap_soundness(&bench.names(), "book").unwrap();
    assert!(matches!(soundness, Soundness::Sound { .. }), "{soundness:?}");
}

/// C++ computes the layouts that Rust and C do, and reads what they wrote.
///
/// Guarantee: programs/portable-types
#[test]
fn cpp_program_reads_the_heap_of_a_c_program() {
    let Some(bench) = bench() else { return };
    let program = bench.compile("portable.c", Linking::Static);
    for _ in 0..3 {
        succeeded(&bench.command(&program).args(["book", "add"]).output().unwrap());
    }
    let other = bench.compile("portable.cpp", Linking::Static);
    assert_eq!(succeeded(&bench.command(&other).output().unwrap()), "3 6\n");
    let output = bench.command(&program).args(["book", "look"]).output().unwrap();
    assert_eq!(succeeded(&output), "4\n");
}

/// What differs between targets, has no name, or is missing in the description of a portable type
/// does not compile.
///
/// Guarantee: programs/portable-types
#[test]
fn unportable_types_do_not_compile() {
    let Some(bench) = bench() else { return };
    let cases = [
        ("struct n { uint32_t a, b; }; NV_PORTABLE(n, 1, (value, a), (value, b));", true),
        ("struct n { uint8_t a; uint64_t b; }; NV_PORTABLE(n, 1, (value, a), (value, b));", false),
        ("struct n { uint32_t a, b; }; NV_PORTABLE(n, 1, (value, a));", false),
        ("struct n { uint32_t a, b; }; NV_PORTABLE(n, 1, (value, b), (value, a));", false),
        ("struct n { void *a; }; NV_PORTABLE(n, 1, (value, a));", false),
        ("struct n { uint32_t *a; }; NV_PORTABLE(n, 1, (values, a));", false),
        ("struct n { long long a; }; NV_PORTABLE(n, 1, (value, a));", false),
        ("struct m; struct n { NV_REF(struct m) a; }; NV_PORTABLE(n, 1, (ref, a, n));", false),
        (&inner("struct b x; ", "(object, x, b)"), true),
        (&inner("struct a x; ", "(object, x, b)"), false),
        (&inner("struct b *x; ", "(object, x, b)"), false),
        (&inner("struct b x[2]; ", "(object, x, b)"), false),
        (&inner("struct b x[2]; ", "(objects, x, b)"), true),
        (&inner("struct a x[2]; ", "(objects, x, b)"), false),
        (&inner("struct b *x; ", "(objects, x, b)"), false),
        (&refer("struct n *to"), true),
        (&refer("const struct n *to"), true),
        (&refer("void *to"), true),
        (&refer("struct m *to"), false),
        (&refer("long to"), false),
    ];
    for (number, (text, compiles)) in cases.into_iter().enumerate() {
        compiles_or_not(&bench, "cc", number, "holdfast_portable.h", text, compiles);
    }
    let described = [
        ("struct n { char *a; }; NV_TYPE(n, (bytes, a));", true),
        ("struct n { char a[8]; }; NV_TYPE(n, (bytes, a));", false),
        ("struct n { uint64_t a; }; NV_TYPE(n, (bytes, a));", false),
        ("struct n { struct n *a; }; NV_TYPE(n, (link, a, n));", true),
        ("struct m; struct n { struct m *a; }; NV_TYPE(n, (link, a, n));", false),
    ];
    for (number, (text, compiles)) in described.into_iter().enumerate() {
        compiles_or_not(&bench, "cc", 100 + number, "holdfast_types.h", text, compiles);
    }
    let in_cpp = [
        ("struct n { std::uint32_t a, b; }; HOLDFAST_PORTABLE(n, 1, a, b)", true),
        ("struct m; struct n { holdfast::ref<m> a; }; HOLDFAST_PORTABLE(n, 1, a)", true),
        ("struct n { float a[4]; }; HOLDFAST_PORTABLE(n, 1, a)", true),
        ("struct n { void *a; }; HOLDFAST_PORTABLE(n, 1, a)", false),
        ("struct n { bool a; }; HOLDFAST_PORTABLE(n, 1, a)", false),
        ("struct m { int a; }; struct n { m a; }; HOLDFAST_PORTABLE(n, 1, a)", false),
        ("struct n { std::uint32_t a, b; }; HOLDFAST_PORTABLE(n, 1, a)", false),
    ];
    for (number, (text, compiles)) in in_cpp.into_iter().enumerate() {
        compiles_or_not(&bench, "g++", 200 + number, "holdfast.hpp", text, compiles);
    }
}

/// A reference names its type by an array without elements: compilers that were told to be strict
/// complained in each program that declared one.
///
/// Guarantee: programs/portable-types
#[test]
fn strict_compilers_take_portable_types() {
    let Some(bench) = bench() else { return };
    let source = bench.path("strict.c");
    let text = "#include <holdfast_portable.h>
struct node;
typedef NV_REF(struct node) node_ref;
struct node { node_ref next; uint32_t flags; uint64_t key; };
NV_PORTABLE(node, 1, (ref, next, node), (value, flags), (value, key));
uint64_t number(void) { return nv_layout(node); }
struct node *next(void *base, struct node *of) { return nv_at(base, of->next); }
void link_to(void *base, struct node *from, struct node *to) { nv_refer(base, from->next, to); }
";
    std::fs::write(&source, text).unwrap();
    let mut command = Command::new("cc");
    command.args(["-std=c11", "-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only", "-I"]);
    let output = command.arg(prefix().join("include")).arg(&source).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A struct with a part that may be of the wrong type.
fn inner(field: &str, description: &str) -> String {
    format!(
        "struct a {{ uint32_t v; }}; struct b {{ uint32_t v; }}; NV_PORTABLE(a, 1, (value, v)); \
         NV_PORTABLE(b, 1, (value, v)); struct n {{ {field}}}; NV_PORTABLE(n, 1, {description});"
    )
}

/// A function that stores a reference to what it gets.
fn refer(to: &str) -> String {
    format!(
        "struct m; struct n; typedef NV_REF(struct n) n_ref; \
         void f(void *base, n_ref *ref, {to}) {{ nv_refer(base, *ref, to); }}"
    )
}

fn compiles_or_not(
    bench: &Bench,
    compiler: &str,
    number: usize,
    header: &str,
    text: &str,
    compiles: bool,
) {
    let (ending, standard) =
        if compiler == "cc" { ("c", "-std=gnu11") } else { ("cpp", "-std=c++17") };
    let source = bench.path(&format!("case-{number}.{ending}"));
    std::fs::write(&source, format!("#include <{header}>\n{text}\n")).unwrap();
    let mut command = Command::new(compiler);
    command.args([standard, "-fsyntax-only", "-I"]).arg(prefix().join("include"));
    let output = command.arg(&source).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.success(), compiles, "{text}: {told}");
}

/// A heap whose C types are described moves, with every pointer, when its address is taken; without
/// a description it is refused and stays as it was.
///
/// Guarantee: heap/relocation
#[test]
fn heap_of_described_c_types_moves() {
    let Some(bench) = bench() else { return };
    let program = bench.compile("types.c", Linking::Static);
    let run = |command: &str| {
        let output = bench.command(&program).arg(command).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    assert_eq!(run("build"), (Some(0), String::new()));
    copy(&bench, "first", "second");
    let (status, told) = run("unregistered");
    assert_eq!(status, Some(MEMORY_SHAPE), "{told}");
    assert_eq!(run("verify"), (Some(0), String::new()));
    // From now on it has an address of its own.
    assert_eq!(run("verify"), (Some(0), String::new()));
    assert_eq!(run("untyped"), (Some(0), String::new()));
    copy(&bench, "first", "second");
    let (status, told) = run("verify");
    assert_eq!(status, Some(NOT_A_HEAP), "{told}");
    assert!(told.contains("\"untyped\" has no type"), "{told}");
    for heap in ["first", "second"] {
        let soundness = heap_soundness(&bench.names(), heap).unwrap();
        assert!(matches!(soundness, Soundness::Sound { .. }), "{heap}: {soundness:?}");
    }
}
