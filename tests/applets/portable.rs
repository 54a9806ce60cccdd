//! One portable heap under every kind of program in turn: native applets, applets in WebAssembly,
//! native programs in C, and this process, in Rust. The applet is `applets/portable`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio as Streams};
use std::time::Duration;

use holdfast_applet::{Applet, CallError, Command, Grants, Limits, Stdio};
use holdfast_heap::{Heap, HeapError, Ref, check, portable};
use holdfast_native_heap::{HeapOptions, HeapRegion, RegionBacking, open_heap, open_heap_with};
use holdfast_region::{NameSpace, OwnerKey, Region, RegionName};
use holdfast_testkit::Programs;

use crate::{Home, MIB, death};

portable! {
    struct Entry: 1 { older: Ref<Entry>, below: Ref<Entry>, number: u64, by: [u8; 8] }
}
portable! {
    struct Ledger: 1 { newest: Ref<Entry>, count: u32, sum: u64, shelves: [Ref<Entry>; 8] }
}
portable! {
    struct SignedLedger: 1 { newest: Ref<Entry>, count: i32, sum: u64, shelves: [Ref<Entry>; 8] }
}

/// `NV_LAYOUT` and so on.
const LAYOUT: u64 = 23;
const PORTABLE_HEAP: u64 = 44;
const NOT_PORTABLE: u64 = 45;

/// A kind of program that keeps the ledger.
enum Kind {
    Applet(PathBuf),
    Program(PathBuf),
    Here,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Applet(path) | Kind::Program(path) => path.display().fmt(f),
            Kind::Here => f.write_str("this process"),
        }
    }
}

/// All kinds; the one in C if there is a compiler and the library for it, which is said otherwise.
fn kinds(home: &Home) -> Vec<Kind> {
    let programs = Programs::find().unwrap();
    let mut kinds = vec![
        Kind::Applet(programs.native_applet("portable").unwrap()),
        Kind::Applet(programs.static_applet("portable").unwrap()),
        Kind::Applet(programs.applet("portable").unwrap()),
        Kind::Here,
    ];
    kinds.extend(compiled(home).map(Kind::Program));
    kinds
}

/// The native program, compiled against the installed library.
fn compiled(home: &Home) -> Option<PathBuf> {
    let this = std::env::current_exe().unwrap();
    let target = this.ancestors().nth(3).unwrap();
    let prefix = std::env::var_os("HOLDFAST_C_LIBRARY")
        .map_or_else(|| target.join("c-library"), PathBuf::from);
    if !prefix.join("lib/libholdfast.so").exists() {
        println!("not run: the C program, since {} is not built", prefix.display());
        return None;
    }
    let program = home.0.path().join("program");
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../bindings/c-native/tests/programs/portable.c");
    let library = prefix.join("lib");
    let mut compiler = Process::new("cc");
    compiler.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror"]).arg(source);
    compiler.arg("-I").arg(prefix.join("include")).arg("-L").arg(&library).arg("-lholdfast");
    compiler.arg(format!("-Wl,-rpath,{}", library.display())).arg("-o").arg(&program);
    match compiler.status() {
        Ok(status) => assert!(status.success()),
        Err(error) => {
            println!("not run: the C program ({error}); ./test installs a compiler");
            return None;
        }
    }
    Some(program)
}

fn name(text: &str) -> RegionName {
    RegionName::parse(text).unwrap()
}

/// That of the C program.
fn key(names: &NameSpace) -> OwnerKey {
    OwnerKey::load_or_create(names.places(), "default").unwrap()
}

fn region(home: &Home, heap: &str) -> Region {
    let names = home.names();
    let key = key(&names);
    names.open_or_create(&name(heap), &key, 8 * MIB).unwrap()
}

fn applet(home: &Home, path: &Path, heaps: &[&str]) -> Applet {
    // Compiling takes longer than a call.
    let grants = Grants::none().cache_dir(home.0.path().join("cache"));
    let grants = heaps.iter().fold(grants, |grants, heap| grants.heap(region(home, heap)));
    Command::new(path, grants).stdio(Stdio::capture(64 << 10)).spawn().unwrap()
}

fn ask(applet: &Applet, function: &str, input: &str) -> Result<u64, CallError> {
    let result = applet.call(function, input.as_bytes())?;
    Ok(u64::from_le_bytes(result.try_into().unwrap()))
}

/// Runs the C program; its status and output.
fn program(home: &Home, path: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let output = process(home, path).args(arguments).output().unwrap();
    (output.status.code(), String::from_utf8(output.stdout).unwrap().trim().to_owned())
}

fn process(home: &Home, path: &Path) -> Process {
    let mut process = Process::new(path);
    process.env("HOLDFAST_HOME", home.0.path().join("home"));
    process.env("HOLDFAST_POOL", home.0.path().join("pool")).stdin(Streams::null());
    process
}

fn opened(region: Region) -> (Heap<RegionBacking>, HeapRegion) {
    let options = HeapOptions { portable: true, ..HeapOptions::default() };
    open_heap_with(region, options).unwrap()
}

fn closed(heap: Heap<RegionBacking>, region: HeapRegion) {
    drop(heap.close());
    region.close().unwrap();
}

/// What `ledger.c` does, in Rust. `is_open`: without the commit.
fn add_here(heap: &mut Heap<RegionBacking>, is_open: bool) {
    let base = heap.base().unwrap();
    let root = match heap.root_typed::<Ledger>("ledger").unwrap() {
        Some(root) => root,
        None => heap.create_root_typed::<Ledger>("ledger").unwrap(),
    };
    heap.begin().unwrap();
    heap.add_range(root.as_ptr().cast(), size_of::<Ledger>() as u64).unwrap();
    let entry = heap.alloc_ref::<Entry>().unwrap();
    // SAFETY: the root and the entry are what they are by their types, and all that references in
    // them lead to is: `count_here` looks at each after every change.
    #[allow(unsafe_code)]
    unsafe {
        let ledger = &mut *root.as_ptr();
        ledger.count += 1;
        ledger.sum += u64::from(ledger.count);
        let number = u64::from(ledger.count);
        let shelf = &mut ledger.shelves[number as usize % 8];
        let below = std::mem::replace(shelf, entry);
        let older = std::mem::replace(&mut ledger.newest, entry);
        let by = *b"this one";
        entry.target(base).unwrap().write(Entry { older, below, number, by });
    }
    if !is_open {
        heap.commit().unwrap();
    }
}

/// The entries of the ledger, each of which is looked at; 0 without one.
fn count_here(heap: &Heap<RegionBacking>) -> u64 {
    let Some(root) = heap.root_typed::<Ledger>("ledger").unwrap() else { return 0 };
    // SAFETY: the root is a `Ledger`, and what its references lead to is looked up first.
    #[allow(unsafe_code)]
    unsafe {
        let ledger = root.read();
        let (mut entry, mut number) = (ledger.newest, u64::from(ledger.count));
        while !entry.is_null() {
            let found = heap.target(entry).unwrap().read();
            assert_eq!(found.number, number);
            (entry, number) = (found.older, number - 1);
        }
        let shelved: u64 = ledger.shelves.iter().map(|shelf| depth(heap, *shelf)).sum();
        assert_eq!(shelved, u64::from(ledger.count) - number);
        u64::from(ledger.count)
    }
}

#[allow(unsafe_code)]
fn depth(heap: &Heap<RegionBacking>, mut entry: Ref<Entry>) -> u64 {
    let mut depth = 0;
    while !entry.is_null() {
        // SAFETY: it was looked up, and any bytes are an `Entry`.
        entry = unsafe { heap.target(entry).unwrap().read() }.below;
        depth += 1;
    }
    depth
}

/// Adds an entry, and sees those of the others; then dies within another one.
fn add_and_die(home: &Home, kind: &Kind, heap: &str) -> u64 {
    match kind {
        Kind::Applet(path) => {
            let applet = applet(home, path, &[heap]);
            applet.call("add", heap.as_bytes()).unwrap();
            let count = ask(&applet, "look", heap).unwrap();
            death(applet.call("add_and_crash", heap.as_bytes()));
            count
        }
        Kind::Program(path) => {
            let (status, count) = program(home, path, &[heap, "add"]);
            assert_eq!(status, Some(0), "{count}");
            let (status, told) = program(home, path, &[heap, "crash"]);
            assert_eq!(status, None, "{told}");
            count.parse().unwrap()
        }
        Kind::Here => {
            let (mut opened, region) = opened(region(home, heap));
            add_here(&mut opened, false);
            let count = count_here(&opened);
            add_here(&mut opened, true);
            // As a process that is killed leaves it: nothing is rolled back.
            drop((opened, region));
            count
        }
    }
}

/// Each kind of program opens, reads and changes the heap that every other one has left, with all
/// that was committed and nothing of what it died in.
///
/// Guarantee: applets/portable
#[test]
fn every_kind_goes_on_with_the_heap_of_every_other() {
    let home = Home::new();
    let kinds = kinds(&home);
    for first in &kinds {
        let mut count = 0;
        let heap = format!("book-{}", std::ptr::from_ref(first).addr() % 9973);
        // Each after each: from the first one on through all pairs of which it is one.
        let others = kinds.iter().filter(|other| !std::ptr::eq(*other, first));
        for kind in std::iter::once(first).chain(others.flat_map(|other| [other, first])) {
            count += 1;
            assert_eq!(add_and_die(&home, kind, &heap), count, "{kind} after {first}");
        }
        let (opened, region) = opened(region(&home, &heap));
        assert_eq!(count_here(&opened), count);
        closed(opened, region);
    }
}

/// Kills at random under one kind of program after the other: the ledger has each entry that was
/// said to count, at most one more, and no half one.
///
/// Guarantee: applets/portable
#[test]
fn kills_leave_the_shared_ledger_whole() {
    let home = Home::new();
    let kinds = kinds(&home);
    let (mut known, mut random) = (0_u64, 0x9E37_79B9_u64);
    let mut rounds_with_entries = 0;
    for round in 0..40 {
        if round >= 2 * kinds.len() && rounds_with_entries >= kinds.len() {
            break;
        }
        random = random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(11);
        let life = Duration::from_micros(100_000 + (random >> 44) % 150_000);
        let told = match &kinds[round % kinds.len()] {
            Kind::Applet(path) => run_applet(&home, path, life),
            Kind::Program(path) => run_program(&home, path, life),
            Kind::Here => {
                let (mut opened, region) = opened(region(&home, "book"));
                (0..20).for_each(|_| add_here(&mut opened, false));
                let count = count_here(&opened);
                closed(opened, region);
                Some(count)
            }
        };
        rounds_with_entries += usize::from(told.is_some());
        known = told.unwrap_or(known);
        let reader = region(&home, "book");
        let (opened, reader) = opened(reader);
        let found = count_here(&opened);
        assert!((known..=known + 1).contains(&found), "{found} entries, {known} were told");
        known = found;
        closed(opened, reader);
        let names = home.names();
        let bytes = names.open_read(&name("book")).unwrap();
        let report = check(bytes.bytes(), &mut |finding| panic!("{finding:?}"));
        assert!(report.is_sound());
    }
    assert!(known > 100, "{known}");
}

fn last_line(output: &[u8]) -> Option<u64> {
    // The last line may be cut off.
    let text = String::from_utf8_lossy(output);
    let (whole, _) = text.rsplit_once('\n')?;
    whole.lines().last()?.parse().ok()
}

fn run_applet(home: &Home, path: &Path, life: Duration) -> Option<u64> {
    let mut limits = Limits::default();
    limits.timeout = Some(life);
    let grants = Grants::none().cache_dir(home.0.path().join("cache")).heap(region(home, "book"));
    let command = Command::new(path, grants.arg("book")).limits(limits);
    let Err(error) = command.stdio(Stdio::capture(16 << 20)).run() else {
        panic!("it ended by itself")
    };
    last_line(&error.stdout)
}

fn run_program(home: &Home, path: &Path, life: Duration) -> Option<u64> {
    let output = home.0.path().join("output");
    let file = std::fs::File::create(&output).unwrap();
    let mut child = process(home, path).args(["book", "run"]).stdout(file).spawn().unwrap();
    std::thread::sleep(life);
    child.kill().unwrap();
    child.wait().unwrap();
    last_line(&std::fs::read(output).unwrap())
}

/// A heap with pointers is refused where a portable one is asked for, and the other way round, with
/// what to do; and a type that differs in one field is refused.
///
/// Guarantee: applets/portable
/// Guarantee: applets/kinds-apart
#[test]
fn other_heaps_and_other_types_are_refused() {
    let home = Home::new();
    for kind in kinds(&home) {
        add_and_die(&home, &kind, "book");
        match &kind {
            Kind::Applet(path) => {
                let other = applet(&home, path, &["book"]);
                let layouts = ask(&other, "errors_as_other", "book").unwrap();
                assert_eq!(layouts, LAYOUT * 1001, "{kind}");
                other.close().unwrap();
                let plain = applet(&home, path, &["book"]);
                let told = ask(&plain, "error_as_plain", "book").unwrap();
                assert_eq!(told, PORTABLE_HEAP, "{kind}");
                plain.close().unwrap();
                let heap = format!("plain-{}", path.file_name().unwrap().display());
                let maker = applet(&home, path, &[&heap]);
                maker.call("make_plain", heap.as_bytes()).unwrap();
                maker.close().unwrap();
                let asker = applet(&home, path, &[&heap]);
                assert_eq!(ask(&asker, "error_as_portable", &heap).unwrap(), NOT_PORTABLE);
                let told = asker.call("add", heap.as_bytes()).unwrap_err().to_string();
                assert!(told.contains("holds pointers") && told.contains("another heap"), "{told}");
            }
            Kind::Program(path) => {
                let told = program(&home, path, &["book", "other"]);
                assert_eq!(told, (Some(0), (LAYOUT * 1001).to_string()));
                let (status, told) = program(&home, path, &["book", "plain"]);
                assert_eq!(status, Some(PORTABLE_HEAP as i32), "{told}");
                assert!(told.contains("open it as a portable one"), "{told}");
                assert_eq!(program(&home, path, &["plain", "plain"]).0, Some(0));
                let (status, told) = program(&home, path, &["plain", "add"]);
                assert_eq!(status, Some(NOT_PORTABLE as i32), "{told}");
                assert!(told.contains("another heap"), "{told}");
            }
            Kind::Here => {
                let (heap, reopened) = opened(region(&home, "book"));
                let refused = heap.root_typed::<SignedLedger>("ledger");
                assert!(matches!(refused, Err(HeapError::LayoutMismatch { .. })), "{refused:?}");
                closed(heap, reopened);
                let refused = open_heap(region(&home, "book")).err().unwrap().to_string();
                assert!(refused.contains("portable"), "{refused}");
            }
        }
    }
}

/// Heaps whose pointers refer to the same place cannot be granted together; portable ones have no
/// such place, and lie side by side. So do two of them in one native process, whatever their
/// addresses.
///
/// Guarantee: applets/portable-anywhere
#[test]
fn portable_heaps_lie_where_there_is_room() {
    let home = Home::new();
    let wasm = Programs::find().unwrap().applet("portable").unwrap();
    let names = home.names();
    let key = key(&names);
    let maker = applet(&home, &wasm, &["plain"]);
    maker.call("make_plain", b"plain").unwrap();
    maker.close().unwrap();
    add_and_die(&home, &Kind::Applet(wasm.clone()), "book");
    for heap in ["plain", "book"] {
        names.copy(&name(heap), &name(&format!("{heap}-2")), &key).unwrap();
    }
    let both = Grants::none().heap(region(&home, "plain")).heap(region(&home, "plain-2"));
    let Err(refused) = Command::new(&wasm, both).spawn() else { panic!("it started") };
    assert!(refused.to_string().contains("give it the portable layout"), "{refused}");

    let heaps = ["book", "book-2", "plain"];
    let together = applet(&home, &wasm, &heaps);
    together.call("add", b"book book-2").unwrap();
    together.call("add", b"book-2").unwrap();
    assert_eq!(ask(&together, "look", "book").unwrap(), 2);
    assert_eq!(ask(&together, "look", "book-2").unwrap(), 3);
    let places = ["book", "book-2"].map(|heap| ask(&together, "where", heap).unwrap());
    assert_ne!(places[0], places[1]);
    together.close().unwrap();

    let (one, other) = (region(&home, "book"), region(&home, "book-2"));
    assert_eq!(one.address(), other.address());
    let (mut one, one_region) = opened(one);
    let (mut other, other_region) = opened(other);
    add_here(&mut one, false);
    add_here(&mut other, false);
    assert_eq!((count_here(&one), count_here(&other)), (3, 4));
    closed(one, one_region);
    closed(other, other_region);
}

/// A heap that is too large for WebAssembly serves native programs, and is refused there with what
/// to do.
///
/// Guarantee: applets/portable-anywhere
#[test]
fn large_portable_heap_is_refused_in_webassembly() {
    let home = Home::new();
    let names = home.names();
    let key = key(&names);
    let large = || names.open_or_create(&name("large"), &key, 8 << 30).unwrap();
    let programs = Programs::find().unwrap();
    let native = programs.native_applet("portable").unwrap();
    let applet = Command::new(native, Grants::none().heap(large())).spawn().unwrap();
    applet.call("add", b"large").unwrap();
    assert_eq!(ask(&applet, "look", "large").unwrap(), 1);
    applet.close().unwrap();
    let grants = Grants::none().heap(large());
    let Err(refused) = Command::new(programs.applet("portable").unwrap(), grants).spawn() else {
        panic!("it started")
    };
    let told = refused.to_string();
    assert!(told.contains("8589934592") && told.contains("1792 MiB"), "{told}");
    let (opened, region) = opened(large());
    assert_eq!(count_here(&opened), 1);
    closed(opened, region);
}
