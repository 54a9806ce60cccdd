//! Row S7: a process that holds a lock, in whatever state, is killed; others go on.

use std::path::Path;
use std::time::{Duration, Instant};

use holdfast_testkit::Trials;

use crate::engine;
use crate::script;
use crate::sides::{Ground, say};

/// Of each kind of holder.
const KILLS: u64 = 8;
/// A takeover is a look at a lock, not a time limit that runs out.
const PATIENCE: Duration = Duration::from_secs(20);

/// The role: holds the database in that way until it is killed.
pub(crate) fn hold(path: &Path, how: &str) {
    engine::load();
    let connection = engine::open(path, "vfs=holdfast").unwrap();
    match how {
        "reader" => connection.execute_batch("BEGIN; SELECT * FROM step;").unwrap(),
        "writer" => {
            connection.execute_batch("BEGIN IMMEDIATE; UPDATE step SET done = 100;").unwrap()
        }
        "spilled" => connection
            .execute_batch(
                "PRAGMA cache_size = 2; BEGIN IMMEDIATE; UPDATE rows SET content = zeroblob(4000);",
            )
            .unwrap(),
        "exclusive" => connection
            .execute_batch(
                "PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE; UPDATE step SET done = 100;",
            )
            .unwrap(),
        other => panic!("there is no holder {other}"),
    }
    say("held");
    loop {
        std::thread::park();
    }
}

/// A killed holder of any lock keeps no other process out and leaves no partial change.
///
/// Guarantee: sqlite/killed-holder
#[test]
fn killed_lock_holder_blocks_no_other() {
    let mut trials = Trials::of("S7", "holders are killed", KILLS);
    while let Some(trial) = trials.next() {
        for how in ["reader", "writer", "spilled", "exclusive"] {
            let ground = Ground::new();
            let path = ground.database();
            let path = path.to_str().unwrap();
            let acknowledged = ground.folder.path().join("acknowledged");
            let parameters = if trial.number % 2 == 0 {
                "vfs=holdfast"
            } else {
                "vfs=holdfast&threshold=infinity"
            };
            ground
                .run(&[
                    "work",
                    path,
                    parameters,
                    "error",
                    "1000000",
                    acknowledged.to_str().unwrap(),
                ])
                .well();
            let mut holder = ground.start(&["hold", path, how]);
            holder.hear("held");
            holder.kill();
            let started = Instant::now();
            let said = ground.run(&["check", path]).well();
            assert_eq!(said, format!("state {}", script::STEPS), "{how}");
            assert!(started.elapsed() < PATIENCE, "{how}: {:?}", started.elapsed());
        }
    }
}
