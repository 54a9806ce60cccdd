//! The suite `heap`: what allocations, transactions, opens, checkpoints and look-ups cost, and how
//! that compares with volatile allocators, with PMDK, and with embedded databases.
//! `bench/README.md` says what each key means.
//!
//! Invariants: the heap under test lies in a mapped region; peers run in the same process and round
//! as our side; a peer that is missing is named, and its keys are not there.

#[allow(unsafe_code, reason = "reads and writes the objects that it allocates")]
mod alloc;
mod atomic;
mod checkpoint;
#[allow(unsafe_code, reason = "reads and writes the objects that it allocates")]
mod content;
pub(crate) mod ground;
pub(crate) mod growth;
#[allow(unsafe_code, reason = "lays a heap over a mapped region, and fills its root")]
mod homes;
pub(crate) mod kv;
#[allow(unsafe_code, reason = "calls the C library, and reads and writes the objects of that")]
pub(crate) mod larson;
#[allow(unsafe_code, reason = "lays a heap over a mapped region, as a host does")]
pub(crate) mod live;
#[allow(unsafe_code, reason = "a data structure of plain pointers is what is measured")]
pub(crate) mod map;
#[allow(unsafe_code, reason = "maps of plain pointers are what is measured")]
pub(crate) mod maps;
#[allow(unsafe_code, reason = "calls the C library")]
mod native;
#[allow(unsafe_code, reason = "fills the objects that it allocates")]
pub(crate) mod opening;
#[cfg(feature = "peers")]
#[allow(unsafe_code, reason = "the peers are libraries in C, or map files")]
pub(crate) mod peers;
mod preload;
#[allow(unsafe_code, reason = "stores to a mapped region")]
pub(crate) mod raw;
#[allow(unsafe_code, reason = "structures of pointers and of references are what is measured")]
mod reference;
#[allow(unsafe_code, reason = "lays a heap over a mapped region, and reads and writes its objects")]
mod threads;
#[allow(unsafe_code, reason = "fills the objects that it allocates")]
mod transfer;
#[allow(unsafe_code, reason = "reads and writes the objects that it allocates")]
pub(crate) mod update;

use std::io;

use crate::race::{Side, Times, race};
use crate::report::{Goal, Outcome};
use crate::section;
use crate::stats::Series;

use alloc::{Glibc, Ring};
use checkpoint::{CHECKPOINT, KILLED_SESSION, SEQUENTIAL, SHORT_SESSION};
use ground::{Ground, Store};
use kv::{Engine, HOLDFAST};
use live::LiveHeap;
use opening::{COLD, CP};
use update::Updates;

const GLIBC: &str = "glibc";
const MIMALLOC: &str = "mimalloc";
const PMDK: &str = "PMDK";
const METALL: &str = "Metall";
const RALLOC: &str = "Ralloc";
const LMDB: &str = "LMDB";
const REDB: &str = "redb";

/// A heap of this size is enough for a few thousand small objects.
const SMALL_LIMIT_BYTES: u64 = 64 << 20;
/// A warm open is short: so many for each other run.
const OPENS_PER_RUN: usize = 20;
/// Batches, and how many of them are committed with sync.
const BATCHES: [(usize, usize); 3] = [(1, 30), (100, 30), (10_000, 5)];
/// The batch whose result stands for all.
const BATCH_MAIN: usize = 100;

/// A part of the suite, which measures keys that begin with its name.
type Section = (&'static str, fn(&Ground, usize, &mut Outcome) -> io::Result<()>);

const SECTIONS: [Section; 16] = [
    ("alloc", allocations),
    ("tx", transactions),
    ("root", roots),
    ("space", space),
    ("warm", warm_opens),
    ("cold", cold_opens),
    ("checkpoint", checkpoints),
    ("atomic", atomic_commits),
    ("kv", key_values),
    ("capi", c_library),
    ("map", example_maps),
    ("growth", growths),
    ("homes", many_heaps),
    ("transfer", transfers),
    ("preload", preloaded),
    ("ref", references),
];

/// Runs the suite, or the section with the name `only`; `progress` gets the name of each step.
///
/// # Errors
/// When there is no such section, no room, an engine refuses, or two sides come to different
/// results.
pub fn run(runs: usize, only: Option<&str>, progress: &mut dyn FnMut(&str)) -> io::Result<Outcome> {
    let chosen = section::chosen(&SECTIONS, only)?;
    let ground = Ground::new()?;
    section::run(chosen, progress, |section, outcome| section(&ground, runs, outcome))
}

/// What takes seconds is repeated less often than what takes milliseconds.
fn fewer(runs: usize) -> usize {
    runs.div_ceil(3)
}

fn allocations(ground: &Ground, runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    let home = ground.home(Store::Memory)?;
    let mut live = LiveHeap::create(&home, SMALL_LIMIT_BYTES)?;
    let (mut heap, mut glibc) = (Ring::new(&mut live.heap)?, Ring::new(Glibc)?);
    let mut sides = vec![Side::new(HOLDFAST, || heap.churn()), Side::new(GLIBC, || glibc.churn())];
    sides.extend(allocators(ground, &mut outcome.missing)?);
    let times = race(runs, sides)?;
    let vs_mimalloc = times.ratio(HOLDFAST, MIMALLOC);
    outcome.add("alloc_free_64_vs_mimalloc", vs_mimalloc, "x", Some(Goal::AtMost(1.5)));
    outcome.add(
        "alloc_free_64_vs_pmdk",
        times.ratio(PMDK, HOLDFAST),
        "x",
        Some(Goal::AtLeast(10.0)),
    );
    outcome.add("alloc_free_64_vs_metall", times.ratio(METALL, HOLDFAST), "x", None);
    outcome.add("alloc_free_64_vs_glibc", times.ratio(HOLDFAST, GLIBC), "x", None);
    outcome.add("alloc_free_64_ns", times.of(HOLDFAST).cloned(), "ns", None);
    live.close()?;
    let times = threads::run(&ground.home(Store::Memory)?, runs, SMALL_LIMIT_BYTES)?;
    outcome.add("alloc_free_64_threads_2_vs_1", times.ratio(threads::ONE, threads::TWO), "x", None);
    outcome.add("alloc_free_64_threads_1_ns", times.of(threads::ONE).cloned(), "ns", None);
    Ok(())
}

/// Nodes of lists: one that is larger than the caches, and one that fits into the nearest.
const LISTS: [(&str, usize, Option<Goal>); 2] = [
    ("ref_vs_pointer_list", 1_000_000, Some(Goal::AtMost(1.10))),
    ("ref_vs_pointer_list_near", 1_000, None),
];

fn references(ground: &Ground, runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    let home = ground.home(Store::Memory)?;
    let ratio = |times: &Times| times.ratio(reference::REFERENCE, reference::POINTER);
    let mut live = LiveHeap::create(&home, 2 * SMALL_LIMIT_BYTES)?;
    let times = reference::tables(&mut live.heap, runs)?;
    outcome.add("ref_vs_pointer_hash", ratio(&times), "x", Some(Goal::AtMost(1.05)));
    for (key, nodes, goal) in LISTS {
        let times = reference::lists(&mut live.heap, runs, nodes)?;
        outcome.add(key, ratio(&times), "x", goal);
    }
    live.close().map(drop)
}

fn c_library(ground: &Ground, runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    let ralloc = ralloc(ground, &mut outcome.missing)?;
    let Some([one, two]) = larson::run(ground, runs, &ralloc)? else {
        outcome.missing.push(NO_C_LIBRARY.to_owned());
        return Ok(());
    };
    let throughput = |times: &Times, ours, theirs| times.ratio(theirs, ours);
    let goal = || Some(Goal::AtLeast(0.8));
    for (times, keys) in [(&one, LARSON_KEYS[0]), (&two, LARSON_KEYS[1])] {
        let [vs_ralloc, zeroed_vs_ralloc, zeroed_vs_calloc, vs_glibc, ns] = keys;
        let ralloc = larson::RALLOC;
        outcome.add(vs_ralloc, throughput(times, larson::UNINIT, ralloc), "x", goal());
        outcome.add(zeroed_vs_ralloc, throughput(times, larson::ZEROED, ralloc), "x", goal());
        let calloc = throughput(times, larson::ZEROED, larson::RALLOC_ZEROED);
        outcome.add(zeroed_vs_calloc, calloc, "x", None);
        outcome.add(vs_glibc, throughput(times, larson::UNINIT, larson::GLIBC), "x", None);
        outcome.add(ns, times.of(larson::UNINIT).cloned(), "ns", None);
    }
    Ok(())
}

const NO_C_LIBRARY: &str =
    "the C library: HOLDFAST_C_LIBRARY=DIRECTORY names where it is installed";

fn preloaded(ground: &Ground, runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    let Some(library) = native::installed("libholdfast-malloc.so") else {
        outcome.missing.push(NO_C_LIBRARY.to_owned());
        return Ok(());
    };
    preload::run(ground, fewer(runs), &library, outcome)
}

/// Inserts into the example maps: how many, and the keys against PMDK (B-tree, crit-bit tree, hash
/// map, the least of these) and against LMDB, and nanoseconds.
const MAPS: [(u64, [[&str; 4]; 3]); 2] = [
    (
        100_000,
        [
            [
                "btree_insert_100k_vs_pmdk",
                "ctree_insert_100k_vs_pmdk",
                "hashmap_insert_100k_vs_pmdk",
                "map_insert_100k_vs_pmdk_min",
            ],
            [
                "btree_insert_100k_vs_lmdb",
                "ctree_insert_100k_vs_lmdb",
                "hashmap_insert_100k_vs_lmdb",
                "map_insert_100k_vs_lmdb_min",
            ],
            ["btree_insert_100k_ns", "ctree_insert_100k_ns", "hashmap_insert_100k_ns", ""],
        ],
    ),
    (
        1_000_000,
        [
            [
                "btree_insert_1m_vs_pmdk",
                "ctree_insert_1m_vs_pmdk",
                "hashmap_insert_1m_vs_pmdk",
                "map_insert_1m_vs_pmdk_min",
            ],
            [
                "btree_insert_1m_vs_lmdb",
                "ctree_insert_1m_vs_lmdb",
                "hashmap_insert_1m_vs_lmdb",
                "map_insert_1m_vs_lmdb_min",
            ],
            ["btree_insert_1m_ns", "ctree_insert_1m_ns", "hashmap_insert_1m_ns", ""],
        ],
    ),
];
/// Room for a million pairs in any of the maps.
const MAPS_BYTES: u64 = 512 << 20;

fn example_maps(ground: &Ground, runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    let Some(first) = native::Native::open(ground, MAPS_BYTES)? else {
        outcome.missing.push(NO_C_LIBRARY.to_owned());
        return Ok(());
    };
    drop(first);
    let ours = |kind, count| {
        let native = native::Native::open(ground, MAPS_BYTES)?;
        let native = native.ok_or_else(|| io::Error::other("the C library is gone"))?;
        native.reserve(MAPS_BYTES / 4 * 3)?;
        maps::insert_all(&native, kind, count)
    };
    let mut sides: Vec<(&'static str, maps::Insert<'_>)> = vec![(maps::HOLDFAST, Box::new(ours))];
    sides.extend(map_peers(ground, &mut outcome.missing)?);
    let mut least_vs_lmdb: Option<Series> = None;
    for (count, [vs_pmdk, vs_lmdb, ns]) in MAPS {
        let mut least: [Option<Series>; 2] = [None, None];
        let runs = if count > 100_000 { fewer(runs) } else { runs };
        for (index, kind) in maps::KINDS.into_iter().enumerate() {
            let times = maps::run(runs, kind, count, &sides)?;
            let ratios = [maps::PMDK, maps::LMDB].map(|peer| times.ratio(peer, maps::HOLDFAST));
            for (least, ratio) in least.iter_mut().zip(&ratios) {
                let is_less = |ratio: &&Series| {
                    least.as_ref().is_none_or(|least| ratio.median() < least.median())
                };
                if let Some(less) = ratio.as_ref().filter(is_less) {
                    *least = Some(less.clone());
                }
            }
            let [pmdk, lmdb] = ratios;
            outcome.add(vs_pmdk[index], pmdk, "x", None);
            outcome.add(vs_lmdb[index], lmdb, "x", None);
            outcome.add(ns[index], times.of(maps::HOLDFAST).cloned(), "ns", None);
        }
        let [pmdk, lmdb] = least;
        let goal = if count > 100_000 { 5.0 } else { 8.0 };
        outcome.add(vs_pmdk[3], pmdk, "x", Some(Goal::AtLeast(goal)));
        outcome.add(vs_lmdb[3], lmdb.clone(), "x", Some(Goal::AtLeast(2.0)));
        if let Some(lmdb) = lmdb {
            let is_less = least_vs_lmdb.as_ref().is_none_or(|least| lmdb.median() < least.median());
            least_vs_lmdb = if is_less { Some(lmdb) } else { least_vs_lmdb };
        }
    }
    outcome.add("map_insert_vs_lmdb_min", least_vs_lmdb, "x", Some(Goal::AtLeast(2.0)));
    Ok(())
}

#[cfg(feature = "peers")]
fn map_peers<'a>(
    ground: &'a Ground,
    missing: &mut Vec<String>,
) -> io::Result<Vec<(&'static str, maps::Insert<'a>)>> {
    let lmdb = |_, count| {
        peers::lmdb::Lmdb::new(&ground.in_memory("maps-lmdb")?, kv::Sync::No)?.insert_pairs(count)
    };
    let mut sides: Vec<(&'static str, maps::Insert<'a>)> = vec![(maps::LMDB, Box::new(lmdb))];
    let pool =
        || peers::pmdk::Pmdk::with_bytes(&ground.in_memory("maps-pmdk")?, MAPS_BYTES as usize);
    if pool()?.is_some() {
        let pmdk = move |kind, count| {
            let pmdk = pool()?.ok_or_else(|| io::Error::other("libpmemobj is gone"))?;
            maps::insert_all(&pmdk, kind, count)
        };
        sides.push((maps::PMDK, Box::new(pmdk)));
    } else {
        missing.push(format!("{PMDK}: `apt-get install {}` brings it", peers::pmdk::PACKAGE));
    }
    Ok(sides)
}

#[cfg(not(feature = "peers"))]
fn map_peers<'a>(
    _ground: &'a Ground,
    missing: &mut Vec<String>,
) -> io::Result<Vec<(&'static str, maps::Insert<'a>)>> {
    missing.extend([PMDK, LMDB].map(not_built));
    Ok(Vec::new())
}

/// With one thread, and with two.
const LARSON_KEYS: [[&str; 5]; 2] = [
    [
        "capi_larson_vs_ralloc",
        "capi_larson_zeroed_vs_ralloc",
        "capi_larson_zeroed_vs_ralloc_calloc",
        "capi_larson_vs_glibc",
        "capi_larson_ns",
    ],
    [
        "capi_larson_2_threads_vs_ralloc",
        "capi_larson_2_threads_zeroed_vs_ralloc",
        "capi_larson_2_threads_zeroed_vs_ralloc_calloc",
        "capi_larson_2_threads_vs_glibc",
        "capi_larson_2_threads_ns",
    ],
];

#[cfg(feature = "peers")]
fn ralloc(
    ground: &Ground,
    missing: &mut Vec<String>,
) -> io::Result<Vec<(&'static str, larson::Functions)>> {
    match peers::ralloc::functions(&ground.in_memory("ralloc")?)? {
        Some([malloc, calloc]) => {
            Ok(vec![(larson::RALLOC, malloc), (larson::RALLOC_ZEROED, calloc)])
        }
        None => {
            missing.push(format!("{RALLOC}: {}", peers::ralloc::REMEDY));
            Ok(Vec::new())
        }
    }
}

#[cfg(not(feature = "peers"))]
fn ralloc(
    _ground: &Ground,
    missing: &mut Vec<String>,
) -> io::Result<Vec<(&'static str, larson::Functions)>> {
    missing.push(not_built(RALLOC));
    Ok(Vec::new())
}

fn growths(_: &Ground, _: usize, outcome: &mut Outcome) -> io::Result<()> {
    let growth::Calls { first, later } = growth::host_calls()?;
    let counted = |calls: usize| Some(Series::from_iter([calls as f64]));
    outcome.add("growth_host_calls", counted(later), "calls", Some(Goal::AtMost(5.0)));
    outcome.add("growth_first_host_calls", counted(first), "calls", None);
    Ok(())
}

/// How many heaps a home has when one more is made, and the key.
const CREATIONS: [(u64, &str, Option<f64>); 4] = [
    (1, "create_heap_1st_ms", None),
    (100, "create_heap_100th_ms", None),
    (1_000, "create_heap_1000th_ms", None),
    (10_000, "create_heap_10000th_ms", Some(2.0)),
];

/// Objects of an idle heap beside its root, and the key.
const IDLE_OBJECTS: [(u64, &str); 4] = [
    (10, "idle_heap_10_objects_store_kib"),
    (100, "idle_heap_100_objects_store_kib"),
    (1_000, "idle_heap_1000_objects_store_kib"),
    (10_000, "idle_heap_10000_objects_store_kib"),
];

fn many_heaps(ground: &Ground, _: usize, outcome: &mut Outcome) -> io::Result<()> {
    let points = CREATIONS.map(|(point, ..)| point);
    let curve = homes::create_ms(ground, &points)?;
    for ((_, key, goal_ms), times) in CREATIONS.into_iter().zip(curve) {
        outcome.add(key, Some(times), "ms", goal_ms.map(Goal::AtMost));
    }
    let [pool_kib, store_kib] = homes::idle_kib(ground, 0)?.map(|kib| Series::from_iter([kib]));
    outcome.add("idle_heap_pool_kib", Some(pool_kib), "KiB", Some(Goal::AtMost(64.0)));
    outcome.add("idle_heap_store_kib", Some(store_kib), "KiB", Some(Goal::AtMost(16.0)));
    for (objects, key) in IDLE_OBJECTS {
        let [_, store_kib] = homes::idle_kib(ground, objects)?;
        outcome.add(key, Some(Series::from_iter([store_kib])), "KiB", None);
    }
    Ok(())
}

/// Sizes of heaps that are imported, in bytes; the last one's result stands for all.
const IMPORTS: [(u64, &str, Option<f64>); 3] = [
    (4 << 20, "import_4mib_vs_cp", None),
    (32 << 20, "import_32mib_vs_cp", None),
    (256 << 20, "import_vs_cp", Some(0.5)),
];
/// Sizes of heaps that are exported and checked, in bytes.
const READINGS: [(u64, [&str; 2], Option<f64>); 2] = [
    (64 << 20, ["export_64mib_vs_read", "check_64mib_vs_read"], None),
    (2 << 30, ["export_vs_read", "check_vs_read"], Some(1.2)),
];

fn transfers(ground: &Ground, runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    for (bytes, key, goal) in IMPORTS {
        let times = transfer::imports(ground, fewer(runs), bytes)?;
        let throughput = times.ratio(transfer::CP, transfer::IMPORT);
        outcome.add(key, throughput, "x", goal.map(Goal::AtLeast));
    }
    for (bytes, [export, check], goal) in READINGS {
        let times = transfer::readings(ground, fewer(runs), bytes)?;
        for (key, side) in [(export, transfer::EXPORT), (check, transfer::CHECK)] {
            let ratio = times.ratio(side, transfer::READ);
            outcome.add(key, ratio, "x", goal.map(Goal::AtMost));
        }
    }
    Ok(())
}

fn transactions(ground: &Ground, runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    let home = ground.home(Store::Memory)?;
    let mut live = LiveHeap::create(&home, SMALL_LIMIT_BYTES)?;
    let mut heap = Updates::new(&mut live.heap)?;
    let mut sides = vec![Side::new(HOLDFAST, || heap.run())];
    sides.extend(transactional(ground, &mut outcome.missing)?);
    let times = race(runs, sides)?;
    outcome.add("tx_64_ns", times.of(HOLDFAST).cloned(), "ns", Some(Goal::AtMost(100.0)));
    outcome.add("tx_64_vs_pmdk", times.ratio(PMDK, HOLDFAST), "x", Some(Goal::AtLeast(10.0)));
    live.close().map(drop)
}

fn roots(ground: &Ground, runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    let lookup_ns = content::root_lookup_ns(ground, runs)?;
    outcome.add("root_lookup_ns", Some(lookup_ns), "ns", Some(Goal::AtMost(100.0)));
    Ok(())
}

fn space(ground: &Ground, runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    let content::Overhead { fresh_pct, churned_pct } =
        content::space_overhead(ground, fewer(runs))?;
    outcome.add("space_overhead_pct", Some(fresh_pct), "%", Some(Goal::AtMost(15.0)));
    outcome.add("space_overhead_churned_pct", Some(churned_pct), "%", None);
    for (min, max, objects, [fresh, churned], goal) in SPACE_CURVE {
        let content::Overhead { fresh_pct, churned_pct } =
            content::space_overhead_between(ground, fewer(runs), min..=max, objects)?;
        outcome.add(fresh, Some(fresh_pct), "%", goal);
        outcome.add(churned, Some(churned_pct), "%", None);
    }
    Ok(())
}

type SpaceKeys = [&'static str; 2];

/// Sizes from and to, how many objects at most, and the keys when they are new and when as many
/// were replaced.
const SPACE_CURVE: [(u64, u64, usize, SpaceKeys, Option<Goal>); 9] = [
    (
        200,
        65_000,
        1_000_000,
        ["space_overhead_to_64k_pct", "space_overhead_to_64k_churned_pct"],
        Some(Goal::AtMost(15.0)),
    ),
    (
        200,
        65_000,
        1000,
        ["space_overhead_to_64k_1k_objects_pct", "space_overhead_to_64k_1k_objects_churned_pct"],
        None,
    ),
    (
        200,
        1000,
        1_000_000,
        ["space_overhead_200_to_1k_pct", "space_overhead_200_to_1k_churned_pct"],
        None,
    ),
    (
        1000,
        4000,
        1_000_000,
        ["space_overhead_1k_to_4k_pct", "space_overhead_1k_to_4k_churned_pct"],
        None,
    ),
    (
        4000,
        8000,
        1_000_000,
        ["space_overhead_4k_to_8k_pct", "space_overhead_4k_to_8k_churned_pct"],
        None,
    ),
    (
        8000,
        16_000,
        1_000_000,
        ["space_overhead_8k_to_16k_pct", "space_overhead_8k_to_16k_churned_pct"],
        None,
    ),
    (
        16_000,
        32_000,
        1_000_000,
        ["space_overhead_16k_to_32k_pct", "space_overhead_16k_to_32k_churned_pct"],
        None,
    ),
    (
        32_000,
        65_000,
        1_000_000,
        ["space_overhead_32k_to_64k_pct", "space_overhead_32k_to_64k_churned_pct"],
        None,
    ),
    (
        65_000,
        260_000,
        1_000_000,
        ["space_overhead_64k_to_256k_pct", "space_overhead_64k_to_256k_churned_pct"],
        None,
    ),
];

fn warm_opens(ground: &Ground, runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    let warm_ms = opening::warm(ground, runs * OPENS_PER_RUN)?;
    outcome.add("warm_open_1gib_ms", Some(warm_ms), "ms", Some(Goal::AtMost(1.0)));
    Ok(())
}

fn cold_opens(ground: &Ground, runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    let times = opening::cold(ground, runs)?;
    outcome.add("cold_open_vs_cp", times.ratio(CP, COLD), "x", Some(Goal::AtLeast(0.8)));
    outcome.add("cold_open_256mib_ms", times.of(COLD).cloned(), "ms", None);
    Ok(())
}

fn checkpoints(ground: &Ground, runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    let checkpoint::Checkpoints { partial, whole, amplification, unnoticed } =
        checkpoint::run(ground, fewer(runs))?;
    let throughput = |times: &Times| times.ratio(SEQUENTIAL, CHECKPOINT);
    outcome.add("checkpoint_vs_seq_write", throughput(&partial), "x", Some(Goal::AtLeast(0.7)));
    outcome.add("checkpoint_whole_vs_seq_write", throughput(&whole), "x", None);
    outcome.add(
        "checkpoint_write_amplification",
        Some(amplification),
        "x",
        Some(Goal::AtMost(1.1)),
    );
    outcome.add("checkpoint_64mib_ms", partial.of(CHECKPOINT).cloned(), "ms", None);
    for (key, side) in [
        ("checkpoint_short_session_ms", SHORT_SESSION),
        ("checkpoint_after_kill_ms", KILLED_SESSION),
    ] {
        outcome.add(key, unnoticed.of(side).cloned(), "ms", None);
    }
    outcome.add(
        "checkpoint_short_session_vs_whole_write",
        unnoticed.ratio(SEQUENTIAL, SHORT_SESSION),
        "x",
        None,
    );
    outcome.add(
        "checkpoint_after_kill_vs_whole_write",
        unnoticed.ratio(SEQUENTIAL, KILLED_SESSION),
        "x",
        None,
    );
    Ok(())
}

fn atomic_commits(ground: &Ground, runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    let times = atomic::run(ground, runs)?;
    let goal = || Some(Goal::AtMost(3.0));
    outcome.add("atomic_commit_us_per_page", times.of(atomic::SMALL).cloned(), "us", goal());
    outcome.add(
        "atomic_commit_us_per_page_1gib",
        times.of(atomic::LARGE_SET).cloned(),
        "us",
        goal(),
    );
    outcome.add(
        "atomic_commit_us_per_page_1gib_scattered",
        times.of(atomic::LARGE).cloned(),
        "us",
        goal(),
    );
    outcome.add(
        "atomic_commit_empty_us",
        times.of(atomic::EMPTY).cloned(),
        "us",
        Some(Goal::AtMost(1.0)),
    );
    Ok(())
}

fn key_values(ground: &Ground, runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    #[cfg(not(feature = "peers"))]
    outcome.missing.extend([LMDB, REDB].map(not_built));
    for (batch, commits) in BATCHES {
        let [lmdb, redb, us, sync_lmdb, sync_redb, sync_ms] = keys(batch);
        let home = ground.home(Store::Memory)?;
        let times = kv::inserts_us(fewer(runs), batch, &engines(ground, &home))?;
        let goal = (batch == BATCH_MAIN).then_some(Goal::AtLeast(1.0));
        outcome.add(lmdb, times.ratio(LMDB, HOLDFAST), "x", goal);
        outcome.add(redb, times.ratio(REDB, HOLDFAST), "x", goal);
        outcome.add(us, times.of(HOLDFAST).cloned(), "us", None);
        let home = ground.home(Store::Disk)?;
        let times = kv::synced_commits_ms(fewer(runs), batch, commits, &engines(ground, &home))?;
        outcome.add(sync_lmdb, times.ratio(LMDB, HOLDFAST), "x", None);
        outcome.add(sync_redb, times.ratio(REDB, HOLDFAST), "x", None);
        outcome.add(sync_ms, times.of(HOLDFAST).cloned(), "ms", None);
    }
    Ok(())
}

/// Against LMDB, against redb, microseconds for an insert; and the same with sync, milliseconds for
/// a commit.
fn keys(batch: usize) -> [&'static str; 6] {
    match batch {
        1 => [
            "kv_insert_vs_lmdb_batch_1",
            "kv_insert_vs_redb_batch_1",
            "kv_insert_us_batch_1",
            "kv_insert_sync_vs_lmdb_batch_1",
            "kv_insert_sync_vs_redb_batch_1",
            "kv_insert_sync_ms_batch_1",
        ],
        BATCH_MAIN => [
            "kv_insert_vs_lmdb",
            "kv_insert_vs_redb",
            "kv_insert_us",
            "kv_insert_sync_vs_lmdb_batch_100",
            "kv_insert_sync_vs_redb_batch_100",
            "kv_insert_sync_ms_batch_100",
        ],
        _ => [
            "kv_insert_vs_lmdb_batch_10000",
            "kv_insert_vs_redb_batch_10000",
            "kv_insert_us_batch_10000",
            "kv_insert_sync_vs_lmdb_batch_10000",
            "kv_insert_sync_vs_redb_batch_10000",
            "kv_insert_sync_ms_batch_10000",
        ],
    }
}

#[cfg(not(feature = "peers"))]
fn not_built(peer: &str) -> String {
    format!("{peer}: this program was built without it; run `cargo xtask bench heap`")
}

/// PMDK's side of a race, if it is there.
#[cfg(feature = "peers")]
fn pmdk<'a>(
    ground: &Ground,
    missing: &mut Vec<String>,
    side: impl FnOnce(peers::pmdk::Pmdk) -> io::Result<Side<'a>>,
) -> io::Result<Option<Side<'a>>> {
    match peers::pmdk::Pmdk::new(&ground.in_memory("pmdk")?)? {
        Some(pmdk) => side(pmdk).map(Some),
        None => {
            let package = peers::pmdk::PACKAGE;
            missing.push(format!(
                "{PMDK}: its library is not installed; `apt-get install {package}` brings it"
            ));
            Ok(None)
        }
    }
}

#[cfg(feature = "peers")]
fn allocators(ground: &Ground, missing: &mut Vec<String>) -> io::Result<Vec<Side<'static>>> {
    let mut mimalloc = Ring::new(peers::mimalloc::Mimalloc)?;
    let mut sides = vec![Side::new(MIMALLOC, move || mimalloc.churn())];
    sides.extend(pmdk(ground, missing, |pmdk| {
        let mut pmdk = Ring::new(pmdk)?;
        Ok(Side::new(PMDK, move || pmdk.churn()))
    })?);
    match peers::metall::Metall::new(&ground.in_memory("metall")?)? {
        Some(metall) => {
            let mut metall = Ring::new(metall)?;
            sides.push(Side::new(METALL, move || metall.churn()));
        }
        None => missing.push(format!("{METALL}: {}", peers::metall::REMEDY)),
    }
    Ok(sides)
}

#[cfg(not(feature = "peers"))]
fn allocators(_ground: &Ground, missing: &mut Vec<String>) -> io::Result<Vec<Side<'static>>> {
    missing.extend([MIMALLOC, PMDK, METALL].map(not_built));
    Ok(Vec::new())
}

#[cfg(feature = "peers")]
fn transactional(ground: &Ground, missing: &mut Vec<String>) -> io::Result<Option<Side<'static>>> {
    pmdk(ground, missing, |pmdk| {
        let mut pmdk = Updates::new(pmdk)?;
        Ok(Side::new(PMDK, move || pmdk.run()))
    })
}

#[cfg(not(feature = "peers"))]
fn transactional(_ground: &Ground, missing: &mut Vec<String>) -> io::Result<Option<Side<'static>>> {
    missing.push(not_built(PMDK));
    Ok(None)
}

#[cfg(feature = "peers")]
fn engines<'a>(ground: &'a Ground, home: &'a ground::Home) -> Vec<Engine<'a>> {
    use kv::{KeyValue, Sync};
    let directory = |name: &str, sync| match sync {
        Sync::No => ground.in_memory(name),
        Sync::Yes => ground.on_disk(name),
    };
    let lmdb = move |sync| {
        peers::lmdb::Lmdb::new(&directory("lmdb", sync)?, sync)
            .map(|lmdb| Box::new(lmdb) as Box<dyn KeyValue>)
    };
    let redb = move |sync| {
        peers::redb::Redb::new(&directory("redb", sync)?, sync)
            .map(|redb| Box::new(redb) as Box<dyn KeyValue>)
    };
    vec![
        kv::holdfast(home),
        Engine { name: LMDB, make: Box::new(lmdb) },
        Engine { name: REDB, make: Box::new(redb) },
    ]
}

#[cfg(not(feature = "peers"))]
fn engines<'a>(_ground: &Ground, home: &'a ground::Home) -> Vec<Engine<'a>> {
    vec![kv::holdfast(home)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// The error for a missing section lists the sections that exist.
    #[test]
    fn missing_section_error_lists_the_sections() {
        let complaint = run(1, Some("opens"), &mut |_| {}).unwrap_err().to_string();
        assert!(complaint.contains("alloc, tx, root"), "{complaint}");
    }

    /// A section measures only keys that begin with its name, and reports missing peers.
    #[test]
    fn section_measures_only_its_own_keys() {
        if Ground::new().is_err() {
            return println!("not run: no tmpfs");
        }
        for section in ["alloc", "tx"] {
            let Outcome { measurements, missing, .. } = run(1, Some(section), &mut |_| {}).unwrap();
            assert!(measurements.iter().all(|found| found.key.starts_with(section)));
            let against_pmdk = measurements.iter().any(|found| found.key.ends_with("_vs_pmdk"));
            assert_ne!(against_pmdk, missing.iter().any(|peer| peer.starts_with(PMDK)));
        }
    }

    /// Every measurement key of the key-value stores stands for one batch size.
    #[test]
    fn each_key_value_key_belongs_to_one_batch() {
        let all: Vec<&str> = BATCHES.iter().flat_map(|(batch, _)| keys(*batch)).collect();
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
        for (batch, _) in BATCHES.iter().filter(|(batch, _)| *batch != BATCH_MAIN) {
            assert!(keys(*batch).iter().all(|key| key.ends_with(&format!("batch_{batch}"))));
        }
        assert_eq!(keys(BATCH_MAIN)[..2], ["kv_insert_vs_lmdb", "kv_insert_vs_redb"]);
    }
}
