//! A keeper and the databases of its home: what it saves when the machine is about to go, what it
//! copies in between, and what it takes out of a pool that is too full.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
#![allow(unsafe_code, reason = "stores to a heap")]

mod common;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use common::copies::{LAZY, NUMBER, create};
use common::{Player, assert_sound, begin, number, open, open_plain, role, scratch, statistic};
use holdfast_keeper::{Cause, Config, FlushReport, Keeper, PoolLimit, SavedKind, UnsavedReason};
use holdfast_region::{NameSpace, Opened, OwnerKey, Places, RegionName};
use holdfast_sqlite::{Databases, Recovered};

const MIB: u64 = 1 << 20;
const COUNT: &str = "BEGIN; UPDATE counter SET n = n + 1; INSERT INTO t (b) SELECT randomblob(2000) FROM counter; COMMIT";

fn places() -> Places {
    Places::from_env().unwrap()
}

/// Without measurements, and without limits that a test does not want.
fn config() -> Config {
    let mut config = Config::default();
    config.bandwidth_bytes_per_s = Some(1 << 30);
    config.pool_limit = PoolLimit::None;
    config
}

/// One home has one keeper, and the tests of this program have one home. What earlier ones left
/// there is taken away.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    let alone = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    for image in images() {
        std::fs::remove_file(image).unwrap();
    }
    alone
}

/// In the pool.
fn images() -> Vec<PathBuf> {
    let files =
        std::fs::read_dir(common::pool()).into_iter().flatten().flatten().map(|entry| entry.path());
    files.filter(|path| path.extension().is_some_and(|extension| extension == "sqlite")).collect()
}

/// A machine that was started anew has an empty pool.
fn lose_the_pool() {
    std::fs::remove_dir_all(common::pool()).unwrap();
}

fn image_of(path: &Path) -> PathBuf {
    holdfast_sqlite::status(path).unwrap().image.unwrap()
}

/// A process that commits so often and then waits, for ever or for another turn; or commits without
/// a pause.
fn play(role: &str, folder: &Path) {
    let (name, times) = role.split_once(' ').unwrap();
    let connection = open(&folder.join(name), LAZY);
    let count = |times: u32| (0..times).for_each(|_| connection.execute_batch(COUNT).unwrap());
    if times == "busy" {
        for round in 0.. {
            count(1);
            if round == 0 {
                println!("\ntold: 1");
            }
        }
    }
    count(times.parse().unwrap());
    println!("\ntold: {}", number(&connection, NUMBER));
    while !folder.join("go on").exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
    count(1);
    println!("\ntold: {}", number(&connection, NUMBER));
    std::thread::sleep(Duration::from_secs(600));
}

/// Database by database: what is there, by its name in the folder.
fn saved_in(report: &FlushReport, folder: &Path) -> Vec<String> {
    let own = report.saved.iter().filter(|saved| saved.kind == SavedKind::Database);
    let own = own.filter_map(|saved| Path::new(&saved.name).strip_prefix(folder).ok());
    let mut own: Vec<String> = own.map(|name| name.display().to_string()).collect();
    own.sort_unstable();
    own
}

/// A flush saves databases with heaps their programs go on and all is there after the machine went.
///
/// Guarantee: keeper/what-fits
/// Guarantee: sqlite/emergency
#[test]
fn keeper_flush_saves_databases_with_heaps() {
    const TEST: &str = "keeper_flush_saves_databases_with_heaps";
    let Some((_alone, folder)) = begin(play, alone) else { return };
    let names = ["one", "two", "dead", "flushed"];
    names.iter().for_each(|name| create(&folder.path().join(name)));
    let mut one = Player::start(TEST, "one 20", folder.path());
    let mut two = Player::start(TEST, "two 30", folder.path());
    let mut dead = Player::start(TEST, "dead 7", folder.path());
    assert_eq!((one.first("told: "), two.first("told: "), dead.first("told: ")), (20, 30, 7));
    dead.kill("told: ");
    let flushed = open(&folder.path().join("flushed"), "level=power");
    flushed.execute_batch(COUNT).unwrap();
    let (heaps, heap) = (NameSpace::new(places()), RegionName::parse("words").unwrap());
    let key = OwnerKey::from_bytes([1; 32]);
    let mut region = heaps.create(&heap, &key, MIB).unwrap();
    let base: *mut u8 = region.map_native().unwrap().as_ptr().cast();
    // SAFETY: a heap has 1 MiB at least.
    unsafe { base.write_volatile(7) };
    drop(region);

    let mut keeper = Keeper::new(places(), config()).unwrap();
    let report = keeper.flush(Cause::PowerButton);
    assert_eq!(saved_in(&report, folder.path()), ["dead", "one", "two"], "{report:?}");
    assert!(report.left.is_empty() && report.saved_of(SavedKind::Heap) == 1, "{report:?}");
    assert_eq!(report.stopped.len(), 2, "{report:?}");
    assert_eq!(
        saved_in(&keeper.flush(Cause::Asked), folder.path()),
        Vec::<String>::new(),
        "they are saved"
    );
    let counters = keeper.status().unwrap().counters;
    assert_eq!((counters.flushed_databases, counters.left_databases), (3, 0));
    std::fs::write(folder.path().join("go on"), "").unwrap();
    assert_eq!((one.first("told: "), two.first("told: ")), (21, 31), "they were not let go on");
    one.kill("told: ");
    two.kill("told: ");
    drop((flushed, keeper));
    lose_the_pool();
    let there = |name: &str| {
        let path = folder.path().join(name);
        let connection = open(&path, "");
        assert_sound(&connection);
        number(&connection, NUMBER)
    };
    assert_eq!(names.map(there), [20, 30, 7, 1]);
    assert_eq!(heaps.open(&heap, &key).unwrap().opened(), Opened::Rescued);
    heaps.remove(&heap, &key).unwrap();
}

/// A program that commits without a pause is saved in a flush and in the background.
///
/// Guarantee: keeper/background
/// Guarantee: sqlite/flush-interval
#[test]
fn endless_committer_is_saved_by_flush_and_background() {
    const TEST: &str = "endless_committer_is_saved_by_flush_and_background";
    let Some((_alone, folder)) = begin(play, alone) else { return };
    let path = folder.path().join("db");
    create(&path);
    let mut busy = Player::start(TEST, "db busy", folder.path());
    busy.first("told: ");
    let mut config = config();
    config.loss_window = Duration::from_millis(50);
    config.write_burst_bytes = 1 << 40;
    let mut keeper = Keeper::new(places(), config).unwrap();
    let report = keeper.flush(Cause::Terminated);
    assert_eq!(saved_in(&report, folder.path()), ["db"], "{report:?}");
    // Between commits, or, after two loss windows, with the program stopped.
    let name = path.canonicalize().unwrap().display().to_string();
    let (started, mut copies) = (Instant::now(), 0);
    while copies < 3 {
        let report = keeper.tend();
        assert!(report.failed.is_empty(), "{report:?}");
        copies += u32::from(report.copied.contains(&name));
        assert!(started.elapsed() < Duration::from_secs(30), "{copies} copies");
        std::thread::sleep(Duration::from_millis(10));
    }
    busy.kill("told: ");
    lose_the_pool();
    assert_eq!(holdfast_sqlite::recover(&path, false).unwrap(), Recovered::Saved);
    let plain = open_plain(&path);
    assert_sound(&plain);
    assert_eq!(
        number(&plain, "SELECT count(*) FROM t"),
        number(&plain, NUMBER),
        "a part of a transaction"
    );
}

/// `threshold=infinity` flushes nothing before the close: what the keeper copied is all that is
/// left.
///
/// Guarantee: keeper/background
/// Guarantee: sqlite/flush-interval
#[test]
fn unflushed_data_is_at_most_a_window_behind() {
    const TEST: &str = "unflushed_data_is_at_most_a_window_behind";
    let Some((_alone, folder)) = begin(play, alone) else { return };
    let path = folder.path().join("db");
    create(&path);
    let name = path.canonicalize().unwrap().display().to_string();
    let mut player = Player::start(TEST, "db 30", folder.path());
    assert_eq!(player.first("told: "), 30);
    let mut config = config();
    config.write_bytes_per_s = 0;
    config.write_burst_bytes = 64 << 10;
    let mut keeper = Keeper::new(places(), config).unwrap();
    let first = keeper.tend();
    assert_eq!(first.copied, std::slice::from_ref(&name), "{first:?}");
    assert!(first.bytes > 64 << 10, "{first:?}");
    let second = keeper.tend();
    assert!(
        second.copied.is_empty() && second.put_off.is_empty(),
        "nothing has changed: {second:?}"
    );
    std::fs::write(folder.path().join("go on"), "").unwrap();
    assert_eq!(player.first("told: "), 31);
    let third = keeper.tend();
    assert_eq!((third.copied.len(), third.put_off), (0, vec![name]), "the rate was not kept");
    let counters = keeper.status().unwrap().counters;
    assert_eq!((counters.copied_databases, counters.copied_heaps), (1, 0));
    player.kill("told: ");
    drop(keeper);
    lose_the_pool();
    assert_eq!(number(&open(&path, ""), NUMBER), 30);
}

/// What does not fit or is damaged is told by its path and costs no other database its copy.
///
/// Guarantee: keeper/what-fits
/// Guarantee: sqlite/emergency
#[test]
fn unsavable_database_is_told_and_costs_no_other() {
    const TEST: &str = "unsavable_database_is_told_and_costs_no_other";
    let Some((_alone, folder)) = begin(play, alone) else { return };
    let path = |name: &str| folder.path().join(name).canonicalize().unwrap();
    for (name, role) in
        [("large", "large 1500"), ("small", "small 5"), ("bad", "bad 5"), ("gone", "gone 5")]
    {
        create(&folder.path().join(name));
        let mut player = Player::start(TEST, role, folder.path());
        player.first("told: ");
        player.kill("told: ");
    }
    let bad = image_of(&path("bad"));
    std::fs::write(&bad, vec![7; 10_000]).unwrap();
    // One whose file is not there any more is saved all the same, by the path of its image.
    let gone = image_of(&path("gone"));
    std::fs::rename(folder.path().join("gone"), folder.path().join("gone away")).unwrap();
    let mut slow = config();
    // For 2.7 MiB: the large one has 3 MiB.
    slow.bandwidth_bytes_per_s = Some(MIB);
    slow.emergency = Duration::from_secs(3);
    let report = Keeper::new(places(), slow).unwrap().flush(Cause::LowBattery);
    let saved: Vec<&str> = report.saved.iter().map(|saved| saved.name.as_str()).collect();
    assert_eq!(saved.len(), 2, "{report:?}");
    assert!(
        saved.contains(&path("small").to_str().unwrap()) && saved.contains(&gone.to_str().unwrap())
    );
    let why = |name: &Path| {
        &report.left.iter().find(|left| left.name == name.display().to_string()).unwrap().why
    };
    assert_eq!(why(&path("large")), &UnsavedReason::NoTime);
    assert!(matches!(why(&bad), UnsavedReason::Failed(_)), "{report:?}");
    assert_eq!(report.left.len(), 2);
    // A store in which no copy can be made.
    let copies = places().store().join("databases");
    std::fs::remove_dir_all(&copies).unwrap();
    std::fs::write(&copies, "").unwrap();
    let report = Keeper::new(places(), config()).unwrap().flush(Cause::LowBattery);
    std::fs::remove_file(copies).unwrap();
    assert_eq!((report.saved.len(), report.left.len()), (0, 4), "{report:?}");
    let report = Keeper::new(places(), config()).unwrap().flush(Cause::LowBattery);
    assert_eq!((report.saved.len(), report.left.len()), (3, 1), "{report:?}");
    lose_the_pool();
    assert_eq!(number(&open(&path("large"), ""), NUMBER), 1500);
    // It goes with its log.
    let log = |name: &str| folder.path().join(format!("{name}-holdfast"));
    std::fs::rename(log("gone"), log("gone away")).unwrap();
    assert_eq!(number(&open(&path("gone away"), ""), NUMBER), 5);
}

/// Row D1, for databases.
///
/// Guarantee: keeper/killed-keeper
/// Guarantee: sqlite/taking-over
#[test]
fn killed_keeper_leaves_the_old_copy_or_the_new() {
    const TEST: &str = "killed_keeper_leaves_the_old_copy_or_the_new";
    if let Some((role, folder)) = role() {
        if role != "keeper" {
            return play(&role, &folder);
        }
        let databases = Databases::of(&places());
        println!("\ntold: 1");
        loop {
            for database in databases.list().unwrap() {
                databases.save(&database).unwrap();
            }
        }
    }
    let _alone = alone();
    for round in 0..10_u64 {
        let folder = scratch();
        let path = folder.path().join("db");
        create(&path);
        let mut program = Player::start(TEST, "db 300", folder.path());
        assert_eq!(program.first("told: "), 300);
        let mut keeper = Keeper::new(places(), config()).unwrap();
        assert_eq!(saved_in(&keeper.flush(Cause::Asked), folder.path()), ["db"]);
        std::fs::write(folder.path().join("go on"), "").unwrap();
        assert_eq!(program.first("told: "), 301);
        let mut killed = Player::start(TEST, "keeper", folder.path());
        killed.first("told: ");
        std::thread::sleep(Duration::from_micros(round * 150));
        killed.kill("told: ");
        program.kill("told: ");
        std::fs::remove_file(image_of(&path)).unwrap();
        assert_eq!(holdfast_sqlite::recover(&path, false).unwrap(), Recovered::Saved);
        let plain = open_plain(&path);
        assert_sound(&plain);
        assert!([300, 301].contains(&number(&plain, NUMBER)));
    }
}

/// Databases that no process has are evicted into their files, the longest unused first, and opened
/// unseen.
///
/// Guarantee: keeper/eviction
/// Guarantee: sqlite/eviction
#[test]
fn unused_databases_are_evicted_oldest_first() {
    const TEST: &str = "unused_databases_are_evicted_oldest_first";
    let Some((_alone, folder)) = begin(play, alone) else { return };
    let path = |name: &str| folder.path().join(name).canonicalize().unwrap();
    let names = ["old", "new", "open"];
    names.iter().for_each(|name| create(&folder.path().join(name)));
    let mut open_one = None;
    for name in names {
        let mut player = Player::start(TEST, &format!("{name} 9"), folder.path());
        assert_eq!(player.first("told: "), 9);
        if name == "open" {
            open_one = Some(player);
        } else {
            player.kill("told: ");
        }
    }
    // Seconds are what it goes by.
    let day = std::time::SystemTime::now() - Duration::from_secs(86_400);
    let file = std::fs::File::options().write(true).open(image_of(&path("old"))).unwrap();
    file.set_modified(day).unwrap();
    drop(file);
    let mut keeper = Keeper::new(places(), config()).unwrap();
    let before = keeper.evict_to(u64::MAX);
    assert!(before.evicted.is_empty());
    let report = keeper.evict_to(before.before_bytes - 1);
    assert_eq!(report.evicted, [path("old").display().to_string()], "{report:?}");
    // An ordinary file, for everybody.
    let plain = open_plain(&path("old"));
    assert_eq!(number(&plain, NUMBER), 9);
    assert_sound(&plain);
    drop(plain);
    let connection = open(&path("old"), LAZY);
    connection.execute_batch(COUNT).unwrap();
    assert_eq!((number(&connection, NUMBER), statistic(&connection, "hot")), (10, 1));
    let report = keeper.evict_to(0);
    assert_eq!(
        report.evicted,
        [path("new").display().to_string()],
        "those that are open stay: {report:?}"
    );
    assert!(report.failed.is_empty() && report.after_bytes > 0, "{report:?}");
    let counters = keeper.status().unwrap().counters;
    assert_eq!((counters.evicted_databases, counters.evicted_heaps), (2, 0));
    open_one.unwrap().kill("told: ");
    assert_eq!(number(&open(&path("open"), ""), NUMBER), 9);
}

/// A database that cannot be evicted is reported or left alone, and no process is waited for.
///
/// Guarantee: keeper/eviction
/// Guarantee: sqlite/eviction
#[test]
fn unevictable_databases_delay_nobody() {
    const TEST: &str = "unevictable_databases_delay_nobody";
    let Some((_alone, folder)) = begin(play, alone) else { return };
    let path = |name: &str| folder.path().join(name).canonicalize().unwrap();
    for name in ["moved", "held", "good"] {
        create(&folder.path().join(name));
        let mut player = Player::start(TEST, &format!("{name} 9"), folder.path());
        player.first("told: ");
        player.kill("told: ");
    }
    let moved = image_of(&path("moved"));
    std::fs::rename(path("moved"), folder.path().join("elsewhere")).unwrap();
    // A process that opens it stands at the gate.
    let gate =
        std::fs::File::options().read(true).write(true).open(image_of(&path("held"))).unwrap();
    gate.lock().unwrap();
    let started = Instant::now();
    let report = Keeper::new(places(), config()).unwrap().evict_to(0);
    assert!(started.elapsed() < Duration::from_secs(15), "it waited");
    assert_eq!(report.evicted, [path("good").display().to_string()], "{report:?}");
    assert_eq!(report.failed.len(), 1, "{report:?}");
    assert!(report.failed[0].starts_with(moved.to_str().unwrap()), "{report:?}");
    drop(gate);
    for (name, expected) in [("elsewhere", 9), ("held", 9), ("good", 9)] {
        assert_eq!(number(&open(&path(name), ""), NUMBER), expected);
    }
}

/// The status names databases with what only the pool has of them.
///
/// Guarantee: sqlite/status
#[test]
fn status_names_databases_with_pool_only_data() {
    const TEST: &str = "status_names_databases_with_pool_only_data";
    let Some((_alone, folder)) = begin(play, alone) else { return };
    let path = folder.path().join("db");
    create(&path);
    let mut player = Player::start(TEST, "db 9", folder.path());
    player.first("told: ");
    let look = || {
        let status = holdfast_keeper::status_of_files(&NameSpace::new(places())).unwrap();
        assert_eq!(status.databases.len(), 1, "{status:?}");
        (status.databases[0].clone(), status)
    };
    let (found, status) = look();
    let name = path.canonicalize().unwrap().display().to_string();
    assert_eq!(
        (found.path.as_str(), found.state.as_str(), found.saved),
        (name.as_str(), "open", false)
    );
    assert!(found.unsaved_bytes > 9 * 2000 && found.holders.len() == 1, "{found:?}");
    assert!(status.pool_bytes >= found.image_bytes && found.image_bytes > 9 * 2000);
    let line =
        format!("holdfast_database_unsaved_bytes{{database=\"{name}\"}} {}", found.unsaved_bytes);
    assert!(status.metrics().lines().any(|found| found == line));
    player.kill("told: ");
    Keeper::new(places(), config()).unwrap().flush(Cause::Asked);
    let (found, _) = look();
    assert_eq!((found.state.as_str(), found.unsaved_bytes, found.saved), ("left", 0, true));
    open(&path, "");
    assert!(
        holdfast_keeper::status_of_files(&NameSpace::new(places())).unwrap().databases.is_empty()
    );
}
