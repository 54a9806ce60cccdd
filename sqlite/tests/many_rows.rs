//! Rows S11 to S13, S16, S17 and S19: what S1 to S3, S6, S7 and S18 do, with a database of 100,000
//! rows of 1 KiB and a pool that is much smaller: flushes and checkpoints go on in the background,
//! commits wait for room, transactions outgrow the pool. The faults strike by chance; the small
//! sequence of `script` has them at each call.
//!
//! Every state of the database is known, as there: step N changes some rows that follow from N.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use holdfast_testkit::Trials;
use holdfast_testkit::file_system::lacking;
use rand::RngExt;
use rusqlite::{Connection, params};
use tempfile::TempDir;

use crate::engine;
use crate::faulty::{self, Fault};
use crate::memory;
use crate::power;
use crate::sides::{Ended, Ground, say};
use crate::system_calls::{self, CHANGES, Call, Strace, without_strace};

const ROWS: i64 = 100_000;
/// On a file system of its own, which has room for so many.
const ROWS_ON_DISK: i64 = 20_000;
const CHARACTERS: usize = 1000;
/// Rows that a step changes; it adds one besides.
const CHANGED: i64 = 8;
/// So many steps change more pages than the pool holds, several times.
const STEPS: i64 = 400;
/// With the default threshold, a quarter of the pool, and the thread that flushes.
const PARAMETERS: &str = "vfs=holdfast&pool_limit=4194304";
/// Trials of a short run.
const CASES: u64 = 4;
/// The call of a fault that does not strike.
const NEVER: &str = "4611686018427387903";

/// What a row holds after the step that changed it last; 0: none did.
fn content(number: i64, step: i64) -> String {
    let mut text = format!("{number} {step} ");
    let mut word = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ step as u64;
    while text.len() < CHARACTERS {
        word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        text += &format!("{:x}", word >> 32);
    }
    text.truncate(CHARACTERS);
    text
}

/// The rows that a step changes.
fn changed(step: i64, rows: i64) -> impl Iterator<Item = i64> {
    (0..CHANGED).map(move |index| (step * 7919 + index * 104_729) % rows)
}

/// Makes the database at step 0, as SQLite does it.
fn fill(path: &Path, rows: i64) {
    let connection = engine::open(path, "vfs=unix").unwrap();
    connection
        .execute_batch(
            "PRAGMA synchronous = OFF; BEGIN; CREATE TABLE step (done INTEGER, rows INTEGER);
             CREATE TABLE rows (number INTEGER PRIMARY KEY, content TEXT)",
        )
        .unwrap();
    connection.execute("INSERT INTO step VALUES (0, ?1)", [rows]).unwrap();
    let mut insert = connection.prepare("INSERT INTO rows VALUES (?1, ?2)").unwrap();
    for number in 0..rows {
        insert.execute(params![number, content(number, 0)]).unwrap();
    }
    drop(insert);
    connection.execute_batch("COMMIT").unwrap();
}

/// The large database, of which each trial takes a copy; made once for all tests that run at a
/// time, and gone with the last one.
struct Filled {
    _folder: TempDir,
    path: PathBuf,
}

impl Filled {
    fn get() -> Arc<Filled> {
        static SHARED: Mutex<Weak<Filled>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        shared.upgrade().unwrap_or_else(|| {
            let folder = Ground::in_memory();
            let path = folder.path().join("filled.db");
            fill(&path, ROWS);
            let filled = Arc::new(Filled { _folder: folder, path });
            *shared = Arc::downgrade(&filled);
            filled
        })
    }
}

fn step_of(connection: &Connection) -> rusqlite::Result<(i64, i64)> {
    connection.query_row("SELECT done, rows FROM step", [], |row| Ok((row.get(0)?, row.get(1)?)))
}

/// One step, in a transaction. One that failed may be done again.
fn step(connection: &Connection, number: i64, rows: i64) -> rusqlite::Result<()> {
    let work = || -> rusqlite::Result<()> {
        connection.execute_batch("BEGIN IMMEDIATE")?;
        let mut replace =
            connection.prepare_cached("INSERT OR REPLACE INTO rows VALUES (?1, ?2)")?;
        for row in changed(number, rows).chain([rows + number]) {
            replace.execute(params![row, content(row, number)])?;
        }
        connection.execute("UPDATE step SET done = ?1", [number])?;
        connection.execute_batch("COMMIT")
    };
    work().inspect_err(|_| {
        let _ = connection.execute_batch("ROLLBACK");
    })
}

/// Which step a database is at.
///
/// # Panics
/// When it is at none.
fn state(connection: &Connection) -> i64 {
    assert_eq!(engine::integrity(connection).unwrap(), "ok");
    let (done, rows) = step_of(connection).unwrap();
    let mut last: HashMap<i64, i64> = HashMap::new();
    for number in 1..=done {
        last.extend(changed(number, rows).map(|row| (row, number)));
    }
    last.extend((1..=done).map(|number| (rows + number, number)));
    // Row 0 is a row; rows that steps added begin behind one that is not there.
    let numbers = (0..rows).chain(rows + 1..=rows + done);
    let mut select =
        connection.prepare("SELECT number, content FROM rows ORDER BY number").unwrap();
    let mut found = select.query([]).unwrap();
    for number in numbers {
        let row = found.next().unwrap().unwrap_or_else(|| panic!("at {done}: no row {number}"));
        assert_eq!(row.get::<_, i64>(0).unwrap(), number, "at step {done}");
        let step = last.get(&number).copied().unwrap_or(0);
        assert!(
            row.get_ref(1).unwrap().as_str().unwrap() == content(number, step),
            "at step {done}: row {number} is not as of step {step}"
        );
    }
    assert!(found.next().unwrap().is_none(), "a row too many at step {done}");
    done
}

/// The role: says which step a database is at, over the VFS and, closed, without it.
pub(crate) fn check(path: &Path) {
    engine::load();
    let connection = engine::open(path, "vfs=holdfast").unwrap();
    let done = state(&connection);
    say(&format!("state {done}"));
    connection.close().unwrap();
    assert_eq!(state(&engine::open(path, "vfs=unix").unwrap()), done);
}

/// The role: goes through the steps with a fault, at a call of the VFS below or, `memory`, at an
/// allocation. `acknowledged` gets a byte for each step.
pub(crate) fn work(path: &Path, fault: &str, at: i64, acknowledged: &Path) {
    match fault {
        "memory" => memory::count_allocations(),
        _ => faulty::register(),
    }
    engine::load();
    let mut told = File::create(acknowledged).unwrap();
    match fault {
        "memory" => memory::fail_at(at),
        _ => faulty::arm(Fault::named(fault), at),
    }
    let mut failures = 0;
    if let Ok(connection) = engine::open(path, PARAMETERS)
        && let Ok((mut done, rows)) = step_of(&connection)
    {
        while done < STEPS && failures <= 3 {
            match step(&connection, done + 1, rows) {
                Ok(()) => {
                    done += 1;
                    told.write_all(b".").unwrap();
                }
                Err(_) => failures += 1,
            }
        }
    }
    let count = match fault {
        "memory" => memory::allocations(at),
        _ => faulty::calls(),
    };
    faulty::disarm();
    memory::fail_at(i64::MAX);
    say(&format!("calls {count}"));
}

/// Plays the steps in a copy of the large database with a fault, and checks what is left. Returns
/// how many calls there were.
fn tried(filled: &Filled, fault: &str, at: i64) -> Option<i64> {
    let ground = Ground::new();
    let path = ground.database();
    std::fs::copy(&filled.path, &path).unwrap();
    let acknowledged = ground.folder.path().join("acknowledged");
    let (path, acks) = (path.to_str().unwrap(), acknowledged.to_str().unwrap());
    let ended = ground.run(&["many: work", path, fault, &at.to_string(), acks]);
    judge(&ground, &ended, (fault, at))
}

/// The same with a fault in a system call for the database or its log.
fn tried_in_system_call(
    filled: &Filled,
    strike: Option<(system_calls::Fault, &Call)>,
) -> Vec<Call> {
    let ground = Ground::new();
    let path = ground.database();
    std::fs::copy(&filled.path, &path).unwrap();
    let acknowledged = ground.folder.path().join("acknowledged");
    let strace = Strace::new(&ground, &path, CHANGES, strike);
    let words =
        ["many: work", path.to_str().unwrap(), "error", NEVER, acknowledged.to_str().unwrap()];
    let ended = ground.run_through(&strace.words(), &words);
    let dies = matches!(strike, Some((system_calls::Fault::Death, _)));
    if let Some((fault, call)) = strike {
        println!("{fault:?} in {call:?}");
    }
    judge(&ground, &ended, (if dies { "death" } else { "error" }, 0));
    strace.calls()
}

/// Checks what is left.
fn judge(ground: &Ground, ended: &Ended, (fault, at): (&str, i64)) -> Option<i64> {
    let path = ground.database();
    let (path, acknowledged) = (path.to_str().unwrap(), ground.folder.path().join("acknowledged"));
    let calls = ended.said().split(' ').nth(1).and_then(|word| word.parse::<i64>().ok());
    assert!(calls.is_some() || fault == "death", "{fault} at {at}: it ended\n{}", ended.out);
    let told = std::fs::metadata(&acknowledged).map_or(0, |found| found.len() as i64);
    let said = ground.run(&["many: check", path]).well();
    let state: i64 = said.strip_prefix("state ").unwrap().parse().unwrap();
    assert!(
        (told..=told + 1).contains(&state),
        "{fault} at {at}: {told} steps were acknowledged, and the database is at {state}"
    );
    calls
}

/// Faults of these kinds in turn, at calls by chance.
fn by_chance(row: &'static str, what: &'static str, faults: &[&str]) {
    let mut trials = Trials::of(row, what, CASES.next_multiple_of(faults.len() as u64));
    // Where no fault strikes: so many calls there are, about, and the last step is reached.
    let kind = if faults == ["memory"] { "memory" } else { "error" };
    let filled = Filled::get();
    let calls = tried(&filled, kind, NEVER.parse().unwrap()).unwrap();
    assert!(calls > STEPS, "{calls} calls: the faults would strike nothing");
    while let Some(mut trial) = trials.next() {
        let fault = faults[trial.number as usize % faults.len()];
        tried(&filled, fault, trial.random.random_range(1..=calls));
    }
}

/// Guarantee: sqlite/killed-writer
#[test]
fn death_in_a_call_amid_many_rows() {
    by_chance("S11", "death in a call, 100,000 rows", &["death"]);
}

/// Guarantee: sqlite/disk-errors
#[test]
fn errors_in_calls_amid_many_rows() {
    by_chance(
        "S12",
        "errors, a full and a broken disk, 100,000 rows",
        &["error", "full", "broken"],
    );
}

/// Guarantee: sqlite/killed-writer
/// Guarantee: sqlite/disk-errors
#[test]
fn faults_in_system_calls_amid_many_rows() {
    use system_calls::Fault;

    if let Some(lacking) = without_strace() {
        println!("not run: {lacking}");
        return;
    }
    let faults = [Fault::Error("EIO"), Fault::Error("ENOSPC"), Fault::Death];
    let filled = Filled::get();
    let calls = tried_in_system_call(&filled, None);
    assert!(calls.len() > 100, "{} calls: the faults would strike nothing", calls.len());
    let mut trials = Trials::of("S19", "faults in system calls, 100,000 rows", 6);
    while let Some(mut trial) = trials.next() {
        let fault = faults[trial.number as usize % faults.len()];
        let call = &calls[trial.random.random_range(0..calls.len())];
        tried_in_system_call(&filled, Some((fault, call)));
    }
}

/// Guarantee: sqlite/memory-errors
#[test]
fn exhausted_memory_amid_many_rows() {
    by_chance("S13", "memory runs out, 100,000 rows", &["memory"]);
}

/// The role: steps at level `power` until nothing works.
pub(crate) fn commit(path: &Path, acknowledged: &Path) {
    engine::load();
    let connection = engine::open(path, &format!("{PARAMETERS}&level=power")).unwrap();
    let mut told = File::create(acknowledged).unwrap();
    let mut done = state(&connection);
    let (_, rows) = step_of(&connection).unwrap();
    say(&format!("found {done}"));
    while step(&connection, done + 1, rows).is_ok() {
        done += 1;
        told.write_all(b".").unwrap();
    }
    say("dark");
    loop {
        std::thread::park();
    }
}

/// The role of the test itself, in a mount name space of its own.
pub(crate) fn drive() {
    let fill = |path: &Path| fill(path, ROWS_ON_DISK);
    power::cut("S16", CASES, Duration::from_secs(1), fill, |path, acknowledged| {
        ["many: commit", path, acknowledged].map(str::to_owned).to_vec()
    });
}

/// Guarantee: sqlite/level-power
#[test]
fn power_cuts_amid_many_rows() {
    match lacking() {
        Some(lacking) => println!("not run: {lacking}"),
        None => Ground::new().drive(&["unshare", "-m", "--"], &["many: cuts"]),
    }
}

/// The role: holds the database in that way until it is killed.
pub(crate) fn hold(path: &Path, how: &str) {
    engine::load();
    let connection = engine::open(path, PARAMETERS).unwrap();
    let change =
        "UPDATE step SET done = 100; UPDATE rows SET content = 'held' WHERE number % 50 = 7;";
    let all = "UPDATE rows SET content = 'held' || content;";
    let sql = match how {
        "reader" => "BEGIN; SELECT * FROM step;".to_owned(),
        "writer" => format!("BEGIN IMMEDIATE; {change}"),
        // Larger than the pool: it goes on in the file, with a journal.
        "outgrown" => format!("PRAGMA cache_size = 10; BEGIN IMMEDIATE; {change} {all}"),
        "exclusive" => format!("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE; {change}"),
        other => panic!("there is no holder {other}"),
    };
    connection.execute_batch(&sql).unwrap();
    say("held");
    loop {
        std::thread::park();
    }
}

/// Guarantee: sqlite/killed-holder
/// Guarantee: sqlite/outgrown-pool
#[test]
fn killed_holders_of_many_rows_block_no_other() {
    let filled = Filled::get();
    let hows = ["reader", "writer", "outgrown", "exclusive"];
    let mut trials = Trials::of("S17", "holders of 100,000 rows are killed", hows.len() as u64);
    while let Some(trial) = trials.next() {
        let how = hows[trial.number as usize % hows.len()];
        let ground = Ground::new();
        let path = ground.database();
        std::fs::copy(&filled.path, &path).unwrap();
        let path = path.to_str().unwrap();
        let mut holder = ground.start(&["many: hold", path, how]);
        holder.hear("held");
        holder.kill();
        assert_eq!(ground.run(&["many: check", path]).well(), "state 0", "{how}");
    }
}

/// The check would see a row of another step.
#[test]
fn a_row_of_another_step_is_no_state() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("small.db");
    fill(&path, 1000);
    let connection = engine::open(&path, "vfs=unix").unwrap();
    for number in 1..=20 {
        step(&connection, number, 1000).unwrap();
    }
    assert_eq!(state(&connection), 20);
    let is_none = |sql: &str| {
        connection.execute_batch(&format!("SAVEPOINT s; {sql}")).unwrap();
        let torn = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| state(&connection)));
        connection.execute_batch("ROLLBACK TO s; RELEASE s").unwrap();
        assert!(torn.is_err(), "after {sql} it was taken for a state");
    };
    is_none("UPDATE rows SET content = content || 'x' WHERE number = 3");
    is_none("DELETE FROM rows WHERE number = 1020");
    is_none("INSERT INTO rows VALUES (5000, '')");
    is_none("UPDATE step SET done = 19");
    assert_eq!(state(&connection), 20);
}
