//! Every heap is at its own address in every process, whatever the process's layout is, or the
//! error names what sits there.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use std::io::{self, Read};
use std::process::Command;

use common::child::{Player, places, role, say};
use common::{Home, MIB, key, named};
use holdfast_region::{AddressWindow, NameSpace, Places, Region, RegionError, address_window};
use holdfast_sys::mapping::{Prot, Reservation, map_anon_fixed, map_shared_fixed};

/// A limit on address space that has no room for the window, but for the test program and a heap.
const SMALL_KIB: u64 = 4 << 20;

#[test]
fn a_child_plays_its_role() {
    let Some(role) = role() else { return };
    let names = NameSpace::new(places());
    let open = |name: &str| names.open(&named(name), &key()).unwrap();
    match role.split(' ').collect::<Vec<_>>()[..] {
        ["follow", name] => {
            let mut region = open(name);
            say(&follow(&mut region));
            assert_eq!(address_window(), AddressWindow::Whole);
            region.close().unwrap();
            say(&format!("{:#x}", &raw const role as usize));
        }
        ["follow-limited", name] => {
            let mut region = open(name);
            say(&follow(&mut region));
            assert_eq!(address_window(), AddressWindow::OneByOne);
            assert!(format!("{region:?}").contains("OneByOne"), "{region:?}");
            let address = region.address();
            // A larger limit reserves what it needs, a smaller one gives it back.
            let behind = address as usize + (512 << 20);
            region.set_limit(1 << 30).unwrap();
            assert!(Reservation::at(behind, 4096).is_err(), "the range was not extended");
            region.set_limit(256 << 20).unwrap();
            assert!(Reservation::at(behind, 4096).is_ok(), "the rest was not given back");
            region.close().unwrap();
            assert!(
                Reservation::at(address as usize, 4096).is_ok(),
                "the range was not given back"
            );
            let mut large = names.create(&named("large"), &key(), 64 << 30).unwrap();
            let error = large.map_native().unwrap_err();
            assert!(
                matches!(error, RegionError::AddressSpace { limit_bytes: Some(_), .. }),
                "{error}"
            );
            assert!(error.to_string().contains("ulimit -v"), "{error}");
        }
        // Squats in the middle of the first heap's range before any heap is mapped.
        ["squat", name, other] => {
            let mut region = open(name);
            let squatter = Reservation::at(region.address() as usize + (4 << 20), 8192).unwrap();
            // SAFETY: both pages are this test's own reservation.
            unsafe { map_anon_fixed(squatter.base(), 8192, Prot::ReadWrite).unwrap() };
            let text = refusal(&mut region);
            assert!(text.contains("memory without a name"), "{text}");
            let (start, end) = (squatter.base() as usize, squatter.base() as usize + 8192);
            assert!(text.contains(&format!("{start:#x}..{end:#x}")), "{text}");
            let reserved_bytes = (64 << 40) - 8192;
            assert_eq!(address_window(), AddressWindow::Partial { reserved_bytes });
            say(&follow(&mut open(other)));
            // A new heap gets an address that is free in this process.
            let mut new = names.create(&named("new"), &key(), MIB).unwrap();
            say(&follow_new(&mut new));
            let file = tempfile::NamedTempFile::new().unwrap();
            file.as_file().set_len(4096).unwrap();
            // SAFETY: the page is this test's own reservation.
            unsafe {
                map_shared_fixed(squatter.base(), 4096, file.as_file(), 0, Prot::Read).unwrap()
            };
            let text = refusal(&mut region);
            assert!(text.contains(file.path().to_str().unwrap()), "{text}");
            drop(squatter);
            say(&follow(&mut region));
        }
        _ => panic!("unknown role {role:?}"),
    }
}

fn refusal(region: &mut Region) -> String {
    let error = region.map_native().unwrap_err();
    assert!(matches!(error, RegionError::AddressTaken { .. }), "{error}");
    error.to_string()
}

/// A heap whose first word points to its second, which is 42.
fn with_pointer(home: &Home, name: &str) {
    let mut region = home.names().create(&named(name), &key(), 8 * MIB).unwrap();
    let word = region.map_native().unwrap().cast::<u64>();
    // SAFETY: the first words of the mapping, and nothing else refers to them.
    unsafe {
        word.write(word.as_ptr() as u64 + 8);
        word.add(1).write(42);
    }
    region.close().unwrap();
}

/// Maps the region, follows its pointer, and says where it is.
fn follow(region: &mut Region) -> String {
    let word = region.map_native().unwrap().cast::<*const u64>();
    // SAFETY: `with_pointer` stored a pointer there; if it does not lead into the mapping, the
    // child dies.
    assert_eq!(unsafe { *word.read() }, 42);
    format!("{word:p}")
}

fn follow_new(region: &mut Region) -> String {
    format!("{:p}", region.map_native().unwrap())
}

fn program() -> Command {
    Command::new(std::env::current_exe().unwrap())
}

/// A command that runs the words and this program behind them.
fn through(words: &[&str]) -> Command {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).arg(std::env::current_exe().unwrap());
    command
}

/// A heap has its address in every process wherever the rest lies.
///
/// Guarantee: heap/fixed-address
#[test]
fn heap_has_one_address_in_every_process() {
    let home = Home::new();
    with_pointer(&home, "heap");
    let address = format!("{:#x}", home.names().summary(&named("heap")).unwrap().address);
    let mut stacks = Vec::new();
    for _ in 0..20 {
        let mut child = Player::start_with(program(), &home, "follow heap");
        assert_eq!(child.hear(), address);
        stacks.push(child.hear());
        child.finish();
    }
    stacks.sort();
    stacks.dedup();
    let randomised = std::fs::read_to_string("/proc/sys/kernel/randomize_va_space").unwrap();
    assert!(stacks.len() > 1 || randomised.trim() == "0", "the layout was the same in all runs");
}

/// A heap has its address under the layout of a debugger.
///
/// Guarantee: heap/fixed-address
#[test]
fn heap_keeps_its_address_under_a_debugger() {
    let home = Home::new();
    with_pointer(&home, "heap");
    let address = format!("{:#x}", home.names().summary(&named("heap")).unwrap().address);
    // What gdb does to the programs that it starts.
    let fixed = ["setarch", "--addr-no-randomize"];
    if !Command::new(fixed[0])
        .args([fixed[1], "true"])
        .status()
        .is_ok_and(|status| status.success())
    {
        eprintln!("not tried: personality(2) is forbidden here, or there is no setarch");
        return;
    }
    let stacks: Vec<_> = (0..3)
        .map(|_| {
            let mut child = Player::start_with(through(&fixed), &home, "follow heap");
            assert_eq!(child.hear(), address);
            let stack = child.hear();
            child.finish();
            stack
        })
        .collect();
    assert!(stacks.iter().all(|stack| *stack == stacks[0]), "{stacks:?}");
}

/// What squats on a range is named and costs that heap only.
///
/// Guarantee: heap/fixed-address
#[test]
fn squatter_is_named_and_costs_that_heap_only() {
    let home = Home::new();
    with_pointer(&home, "heap");
    with_pointer(&home, "other");
    let address =
        |name: &str| format!("{:#x}", home.names().summary(&named(name)).unwrap().address);
    let mut child = Player::start_with(program(), &home, "squat heap other");
    assert_eq!(child.hear(), address("other"));
    assert_eq!(child.hear(), address("new"));
    assert_eq!(child.hear(), address("heap"));
    child.finish();
}

/// Under a small limit on address space only the heap's own range is reserved.
///
/// Guarantee: heap/fixed-address
#[test]
fn low_address_limit_reserves_only_the_heaps_range() {
    let home = Home::new();
    with_pointer(&home, "heap");
    let address = format!("{:#x}", home.names().summary(&named("heap")).unwrap().address);
    let limit = format!("ulimit -v {SMALL_KIB}; exec \"$0\" \"$@\"");
    let mut child =
        Player::start_with(through(&["sh", "-c", &limit]), &home, "follow-limited heap");
    assert_eq!(child.hear(), address);
    child.finish();
}

/// Two homes in one process have their first heaps side by side.
#[test]
fn two_homes_place_first_heaps_side_by_side() {
    for _ in 0..20 {
        let (one, other) = (Home::new(), Home::new());
        let mut first = one.names().create(&named("heap"), &key(), 64 << 30).unwrap();
        first.map_native().unwrap();
        let mut second = other.names().create(&named("heap"), &key(), 64 << 30).unwrap();
        second.map_native().unwrap();
    }
}

/// A home that meets an open heap of another one makes way.
///
/// Guarantee: heap/fixed-address
#[test]
fn home_yields_to_another_homes_open_heap() {
    // The same path makes the same choice, so the second home would collide if it did not look.
    let home = Home::new();
    let mut first = home.names().create(&named("heap"), &key(), MIB).unwrap();
    first.map_native().unwrap();
    let pool = home.pool().with_file_name("second");
    let aside = home.path().with_extension("aside");
    std::fs::rename(home.path(), &aside).unwrap();
    let names = NameSpace::new(Places::at(home.path(), &pool).unwrap());
    let mut second = names.create(&named("heap"), &key(), MIB).unwrap();
    second.map_native().unwrap();
    assert_ne!(first.address(), second.address());
    drop((first, second));
    std::fs::remove_dir_all(home.path()).unwrap();
    std::fs::rename(&aside, home.path()).unwrap();
}

/// What is rewritten for another address counts only when the relocation is finished.
///
/// Guarantee: heap/relocation
#[test]
fn rewritten_pointers_count_only_after_relocation() {
    let home = Home::with_text("heap", b"older");
    let text = |region: &Region| common::read(region, 0, 5);
    let rewrite = |region: &mut Region| {
        let (base, address) = region.begin_relocation().unwrap();
        assert_eq!(base.as_ptr() as u64, address);
        // SAFETY: the region is mapped there, writable, and nothing refers to it.
        unsafe { base.as_ptr().copy_from_nonoverlapping(b"newer".as_ptr(), 5) };
        address
    };
    let mut region = home.names().open(&named("heap"), &key()).unwrap();
    let first = region.address();
    let second = rewrite(&mut region);
    assert!(second.abs_diff(first) >= region.limit_bytes(), "the ranges touch");
    region.abandon_relocation().unwrap();
    assert_eq!((text(&region), region.address()), (b"older".to_vec(), first));
    assert_eq!(region.map_native().unwrap().as_ptr() as u64, first);
    region.unmap().unwrap();
    // As a kill does it: nothing is finished, and nothing given up.
    rewrite(&mut region);
    drop(region);
    let mut region = home.names().open(&named("heap"), &key()).unwrap();
    assert_eq!((text(&region), region.address()), (b"older".to_vec(), first));
    let address = rewrite(&mut region);
    region.finish_relocation().unwrap();
    assert_eq!((text(&region), region.address()), (b"newer".to_vec(), address));
    region.close().unwrap();
    std::fs::remove_file(home.image("heap")).unwrap();
    let region = home.names().open(&named("heap"), &key()).unwrap();
    assert_eq!((text(&region), region.address()), (b"newer".to_vec(), address));
}

/// A range of addresses that a region has.
fn range(region: &Region) -> std::ops::Range<u64> {
    region.address()..region.address() + region.limit_bytes()
}

fn assert_apart(ranges: &[std::ops::Range<u64>]) {
    for (index, one) in ranges.iter().enumerate() {
        for other in &ranges[index + 1..] {
            assert!(one.end <= other.start || other.end <= one.start, "{one:x?} and {other:x?}");
        }
    }
}

/// The stream of a heap at an address, with a limit.
fn stream_at(address: u64, limit_bytes: u64) -> Vec<u8> {
    let home = Home::in_memory();
    home.names().create(&named("far"), &key(), limit_bytes).unwrap().close().unwrap();
    let mut stream = Vec::new();
    home.names().open_read(&named("far")).unwrap().export(&mut stream).unwrap();
    stream[32..40].copy_from_slice(&address.to_le_bytes());
    let checksum = xxhash_rust::xxh3::xxh3_64(&stream[..248]);
    stream[248..256].copy_from_slice(&checksum.to_le_bytes());
    stream
}

/// A stream that lets another process act before its last byte is read.
struct Paused<'a, F> {
    stream: &'a [u8],
    act: Option<F>,
}

impl<F: FnOnce()> Read for Paused<'_, F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = buffer.len().min(self.stream.len().max(2) - 1);
        if self.stream.len() == 1
            && let Some(act) = self.act.take()
        {
            act();
        }
        self.stream.read(&mut buffer[..bytes])
    }
}

/// New heaps get addresses of their own, whatever has become of the note of free ones.
///
/// Guarantee: heap/fixed-address
#[test]
fn note_of_free_addresses_may_be_lost_or_damaged() {
    let home = Home::in_memory();
    let note = home.pool().join(".addresses");
    let mut ranges = Vec::new();
    for number in 0..12 {
        let limit_bytes = if number % 2 == 0 { MIB } else { 3 << 30 };
        let region =
            home.names().create(&named(&format!("r{number}")), &key(), limit_bytes).unwrap();
        ranges.push(range(&region));
        region.close().unwrap();
        assert_apart(&ranges);
        match number {
            2 => std::fs::remove_file(&note).unwrap(),
            5 => std::fs::write(&note, b"half a note").unwrap(),
            7 => {
                // What it was some heaps ago, with one byte changed.
                let mut bytes = std::fs::read(&note).unwrap();
                bytes[3] ^= 1;
                std::fs::write(&note, bytes).unwrap();
            }
            // A pool that is gone, as after a boot.
            9 => std::fs::remove_dir_all(home.pool()).unwrap(),
            _ => {}
        }
    }
}

/// A new heap makes way for one that was imported, for a limit that was raised, and for a heap that
/// moved.
///
/// Guarantee: heap/fixed-address
#[test]
fn new_heap_makes_way_for_ranges_that_were_not_chosen() {
    let home = Home::in_memory();
    let names = home.names();
    let first = names.create(&named("first"), &key(), MIB).unwrap();
    let next = first.address() + (1 << 30);
    let mut ranges = vec![range(&first)];
    first.close().unwrap();
    // A stream of a heap that lies where the next new one would.
    let stream = stream_at(next, 5 << 30);
    names.import(&named("far"), &key(), &mut &stream[..]).unwrap();
    ranges.push(next..next + (5 << 30));
    let second = names.create(&named("second"), &key(), MIB).unwrap();
    ranges.push(range(&second));
    assert_apart(&ranges);
    second.close().unwrap();
    names.set_limit(&named("second"), &key(), 7 << 30).unwrap();
    ranges.last_mut().unwrap().end = ranges.last().unwrap().start + (7 << 30);
    let mut third = names.create(&named("third"), &key(), MIB).unwrap();
    ranges.push(range(&third));
    assert_apart(&ranges);
    third.set_limit(2 << 30).unwrap();
    ranges.last_mut().unwrap().end = range(&third).end;
    drop(third);
    ranges.push(range(&names.create(&named("fourth"), &key(), MIB).unwrap()));
    assert_apart(&ranges);
}

/// A home that takes over a pool does not believe what is free there.
///
/// Guarantee: heap/fixed-address
#[test]
fn note_of_another_home_is_forgotten() {
    let (home, other) = (Home::in_memory(), Home::in_memory());
    let first = other.names().create(&named("first"), &key(), MIB).unwrap();
    let taken = range(&first);
    first.close().unwrap();
    // The other home's heap comes here, and then its own home, which has made none since, is gone.
    let names = home.names();
    names.create(&named("own"), &key(), MIB).unwrap().close().unwrap();
    std::fs::rename(other.base("first"), home.base("first")).unwrap();
    std::fs::remove_file(other.image("first")).unwrap();
    std::fs::remove_dir_all(other.path()).unwrap();
    let note = other.pool().join(".addresses");
    // All of the window is free, it says.
    let mut bytes = [taken.start.to_le_bytes(), (taken.start + (1 << 40)).to_le_bytes()].concat();
    bytes.extend(xxhash_rust::xxh3::xxh3_64(&bytes).to_le_bytes());
    std::fs::write(&note, bytes).unwrap();
    std::fs::remove_dir_all(home.pool()).unwrap();
    let places = Places::at(home.path(), other.pool()).unwrap();
    assert!(!note.exists(), "the note was believed");
    let region = NameSpace::new(places).create(&named("second"), &key(), MIB).unwrap();
    assert_apart(&[taken, range(&region)]);
}

/// A home that comes back to a pool does not believe what was free there: it has made heaps
/// elsewhere since.
///
/// Guarantee: heap/fixed-address
#[test]
fn note_of_an_earlier_stay_is_forgotten() {
    let home = Home::in_memory();
    let pools = ["first", "second"].map(|name| home.pool().with_file_name(name));
    let mut ranges = Vec::new();
    for (number, pool) in [&pools[0], &pools[1], &pools[0]].into_iter().enumerate() {
        let names = NameSpace::new(Places::at(home.path(), pool).unwrap());
        let name = named(&format!("r{number}"));
        let region = names.create(&name, &key(), 3 << 30).unwrap();
        ranges.push(range(&region));
        region.close().unwrap();
        names.evict(&name).unwrap();
        assert_apart(&ranges);
    }
    // The note of the pool that is in use is kept.
    assert!(pools[0].join(".addresses").exists());
    drop(Places::at(home.path(), &pools[0]).unwrap());
    assert!(pools[0].join(".addresses").exists(), "each process looks at all heaps");
}

/// A process that looks at all heaps while another one imports a heap does not see it, and all the
/// same gives its range to no other.
///
/// Guarantee: heap/fixed-address
#[test]
fn new_heap_makes_way_for_a_slow_import() {
    let home = Home::in_memory();
    let names = home.names();
    let first = names.create(&named("first"), &key(), MIB).unwrap();
    let far = first.address() + (3 << 30);
    let mut ranges = vec![range(&first), far..far + (1 << 30)];
    first.close().unwrap();
    let stream = stream_at(far, 1 << 30);
    let act = || {
        std::fs::remove_file(home.pool().join(".addresses")).unwrap();
        let second = home.names().create(&named("second"), &key(), MIB).unwrap();
        ranges.push(range(&second));
    };
    let mut paused = Paused { stream: &stream, act: Some(act) };
    names.import(&named("far"), &key(), &mut paused).unwrap();
    assert!(paused.act.is_none());
    let third = names.create(&named("third"), &key(), 8 << 30).unwrap();
    ranges.push(range(&third));
    assert_apart(&ranges);
}
