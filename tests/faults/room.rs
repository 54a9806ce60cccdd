//! Row H14: a pool that is full, on a tmpfs of its own. Programs allocate one after the other and
//! at the same time; each allocation evicts what no process has; allocators are killed in it. Every
//! heap is there as it was, with a keeper and without one.
//!
//! Needs root, for the mount; without, the tests say so.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use holdfast_keeper::{Config, Keeper, PoolLimit, Sources};
use holdfast_keeper_client::{Client, use_for_room};
use holdfast_native_heap::open_heap;
use holdfast_region::{Durability, NameSpace, Places, RegionName, RegionState};
use holdfast_testkit::Trials;
use rand::RngExt;

use crate::driver::{Child, Ended, run_with, wait_until};
use crate::home::{MIB, key};

const POOL_BYTES: u64 = 48 * MIB;
const HEAP_BYTES: u64 = 10 * MIB;
/// Of a heap, in objects.
const PARTS: u64 = 9;
const PART_WORDS: u64 = (MIB - (64 << 10)) / 8;
const HEAPS: u64 = 20;
/// Heaps of the driver of kills.
const KILLED_HEAPS: u64 = 8;
const KILLS: u64 = 60;
/// How long a visit is let be at first; from then on by how long visits take.
const FIRST_DELAY_US_MAX: u64 = 60_000;

fn in_own_mounts(role: &str) {
    if holdfast_sys::file::effective_user() != 0 {
        println!("not run: a tmpfs of a size of its own needs root");
        return;
    }
    // The mounts of a name space of its own end with it, also when the driver is killed.
    let mut command = Command::new("unshare");
    command.args(["-m", "--"]).arg(std::env::current_exe().unwrap());
    run_with(command, role);
}

/// Guarantee: heap/room
#[test]
fn twenty_heaps_fit_into_a_pool_for_four() {
    in_own_mounts("twenty heaps");
}

/// A process killed while it allocates and evicts loses nothing.
///
/// Guarantee: heap/room
/// Guarantee: keeper/eviction
#[test]
fn kill_during_eviction_loses_nothing() {
    in_own_mounts("room");
}

struct Ground {
    directory: tempfile::TempDir,
    pool: PathBuf,
}

impl Ground {
    fn new() -> Ground {
        let directory = tempfile::tempdir().unwrap();
        let pool = directory.path().join("pool");
        std::fs::create_dir(&pool).unwrap();
        let size = format!("size={POOL_BYTES},mode=0700");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "tmpfs"])
            .arg(&pool)
            .status()
            .unwrap();
        assert!(mounted.success());
        Ground { directory, pool }
    }

    fn home(&self) -> PathBuf {
        self.directory.path().join("home")
    }

    fn names(&self) -> NameSpace {
        NameSpace::new(Places::at(self.home(), &self.pool).unwrap())
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.pool).status();
    }
}

fn named(number: u64) -> RegionName {
    RegionName::parse(&format!("heap-{number}")).unwrap()
}

/// What each word of a heap's object is.
fn word(number: u64, index: u64) -> u64 {
    (number << 32 | index).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    Close,
    Commit,
    Die,
}

/// Makes a heap whose objects are most of it and fills them, or opens it and looks at every word;
/// whether it was there. A heap counts as filled once it has its last root.
fn visit(names: &NameSpace, number: u64, how: How) -> bool {
    let region = names.open_or_create(&named(number), &key(), HEAP_BYTES);
    let (mut heap, region) = open_heap(region.unwrap_or_else(|error| panic!("{error}"))).unwrap();
    let was_filled = heap.root("filled").is_some();
    for part in 0..PARTS {
        let name = format!("part-{part}");
        let object = match heap.root(&name) {
            Some(root) => root.pointer,
            None => heap
                .create_root(&name, PART_WORDS * 8)
                .unwrap_or_else(|e| panic!("heap {number}: {e}")),
        };
        for index in 0..PART_WORDS {
            // SAFETY: the object has so many words, and nothing else refers to it.
            let place = unsafe { object.cast::<u64>().as_ptr().add(index as usize) };
            let expected = word(number, part << 24 | index);
            if was_filled {
                // SAFETY: as above.
                let found = unsafe { place.read() };
                assert_eq!(found, expected, "heap {number}, part {part}, word {index}");
            } else {
                // SAFETY: as above.
                unsafe { place.write(expected) };
            }
        }
    }
    if !was_filled {
        heap.create_root("filled", 8).unwrap();
    }
    match how {
        How::Close => {
            drop(heap);
            region.close().unwrap();
        }
        How::Commit => drop(region.with(|region| region.commit(Durability::Power)).unwrap()),
        How::Die => std::process::abort(),
    }
    was_filled
}

/// Visits a heap in a process of its own.
fn visited(ground: &Ground, number: u64, how: How) -> Child {
    Child::fork(|| {
        use_for_room();
        i32::from(visit(&ground.names(), number, how))
    })
}

fn keeper(ground: &Ground) -> Child {
    let keeper = Child::fork(|| {
        let mut config = Config::default();
        config.bandwidth_bytes_per_s = Some(1 << 30);
        // What it evicts it evicts for allocations.
        config.pool_limit = PoolLimit::None;
        let mut sources = Sources::default();
        let at = |name: &str| ground.directory.path().join(name);
        sources.buttons = Some(Vec::new());
        (sources.power_supply, sources.pressure) = (at("supplies"), at("pressure"));
        let places = Places::at(ground.home(), &ground.pool).unwrap();
        Keeper::new(places, config).unwrap().run(&sources).unwrap();
        0
    });
    assert!(wait_until(|| Client::of(&ground.pool).status().is_ok()), "the keeper does not answer");
    keeper
}

fn expect_ended(child: Child, how: How, status: i32, context: &str) {
    let expected = if how == How::Die { Ended::By(libc::SIGABRT) } else { Ended::With(status) };
    assert_eq!(child.wait(), expected, "{context}");
}

pub(crate) fn drive_twenty() {
    // SAFETY: no other thread of the driver reads the environment.
    unsafe { std::env::remove_var("XDG_RUNTIME_DIR") };
    for has_keeper in [false, true] {
        let ground = Ground::new();
        let keeper = has_keeper.then(|| keeper(&ground));
        for round in 0..2 {
            for number in 0..HEAPS {
                let how = [How::Close, How::Commit, How::Die][((number + round) % 3) as usize];
                let context = format!("heap {number}, round {round}, keeper: {has_keeper}");
                expect_ended(visited(&ground, number, how), how, round as i32, &context);
            }
        }
        let heaps = ground.names().list().unwrap();
        assert_eq!(heaps.len() as u64, HEAPS);
        let cold = heaps.iter().filter(|heap| heap.state == RegionState::Cold).count();
        assert!(cold >= 16, "the pool has room for four: {cold}");
        if has_keeper {
            let counters = Client::of(&ground.pool).status().unwrap().counters;
            assert!(counters.evicted_heaps >= 16, "the keeper was not asked: {counters:?}");
            assert_eq!(counters.failures, 0);
        }
        drop(keeper);
    }
}

pub(crate) fn drive_kills() {
    // SAFETY: as above.
    unsafe { std::env::remove_var("XDG_RUNTIME_DIR") };
    let mut trials = Trials::of("H14", "allocators killed while they evict", KILLS);
    let ground = Ground::new();
    for number in 0..KILLED_HEAPS {
        expect_ended(visited(&ground, number, How::Commit), How::Commit, 0, "at first");
    }
    let (mut keeper_of, mut killed) = (None, 0);
    let mut delay_us_max = FIRST_DELAY_US_MAX;
    while let Some(mut trial) = trials.next() {
        let context = format!("kill {}, seed {:#x}", trial.number, trial.seed);
        let random = &mut trial.random;
        keeper_of = match keeper_of.take() {
            Some(keeper) if random.random_ratio(2, 3) => Some(keeper),
            None if random.random_ratio(1, 3) => Some(keeper(&ground)),
            _ => None,
        };
        // Two at the same time, each with a heap of its own that is cold, most likely.
        let first = random.random_range(0..KILLED_HEAPS);
        let second = (first + 1 + random.random_range(0..KILLED_HEAPS - 1)) % KILLED_HEAPS;
        let how = [How::Close, How::Commit, How::Die][random.random_range(0..3)];
        let victim = visited(&ground, first, How::Close);
        let other = visited(&ground, second, how);
        std::thread::sleep(Duration::from_micros(random.random_range(0..delay_us_max)));
        victim.kill();
        if keeper_of.is_some() && random.random_ratio(1, 8) {
            // Killed, too.
            keeper_of = None;
        }
        let in_time = victim.wait() == Ended::By(libc::SIGKILL);
        killed += u64::from(in_time);
        // Machines differ: about half of the visits are to be over.
        delay_us_max = if in_time { delay_us_max * 5 / 4 } else { (delay_us_max * 4 / 5).max(100) };
        expect_ended(other, how, 1, &context);
    }
    drop(keeper_of);
    for number in 0..KILLED_HEAPS {
        expect_ended(visited(&ground, number, How::Close), How::Close, 1, "afterwards");
    }
    assert!(trials.count() < 20 || killed > trials.count() / 4, "{killed} killed in time");
}
