//! Databases in a pool that is full: a tmpfs of 48 MiB with heaps whose programs are dead. An image
//! that is made or grows evicts them; a database whose process is dead is evicted for a heap.
//!
//! Needs root, for the mount; without, the test says so.

use std::path::Path;
use std::process::Command;

use holdfast_region::evict_databases_for_room;
use holdfast_region::{NameSpace, OwnerKey, Places, RegionName, RegionState};

use crate::engine;
use crate::sides::{Ground, say};

const MIB: u64 = 1 << 20;
const ROW_BYTES: i64 = 4000;
const ROWS: i64 = 5000;

#[test]
fn databases_and_heaps_make_room_for_each_other() {
    if holdfast_sys::file::effective_user() != 0 {
        println!("not run: a tmpfs of a size of its own needs root");
        return;
    }
    let ground = Ground::new();
    let folder = ground.folder.path().to_str().unwrap();
    // The mounts of a name space of its own end with it.
    ground.drive(&["unshare", "-m", "--"], &["room", folder]);
}

/// The role: writes, and dies without closing anything.
pub(crate) fn leave(path: &Path) {
    engine::load();
    let connection = engine::open(path, "vfs=holdfast&threshold=infinity").unwrap();
    let rows = format!(
        "CREATE TABLE rows(content BLOB);
         WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS})
         INSERT INTO rows SELECT zeroblob({ROW_BYTES}) FROM n;"
    );
    connection.execute_batch(&rows).unwrap();
    say("left");
    std::process::abort();
}

/// The role: all of it, on a mount of its own.
pub(crate) fn fill(folder: &Path) {
    let pool = folder.join("small");
    std::fs::create_dir(&pool).unwrap();
    let mount = ["-t", "tmpfs", "-o", "size=48m,mode=0700", "tmpfs"];
    assert!(Command::new("mount").args(mount).arg(&pool).status().unwrap().success());
    let places = Places::at(folder.join("home"), &pool).unwrap();
    let (names, key) = (NameSpace::new(places.clone()), OwnerKey::from_bytes([1; 32]));
    let named = |number: u64| RegionName::parse(&format!("heap-{number}")).unwrap();
    evict_databases_for_room(holdfast_sqlite::evict_for_room);
    for number in 0..4 {
        let mut region = names.create(&named(number), &key, 10 * MIB).unwrap();
        region.grow(10 * MIB).unwrap();
    }
    let cold =
        || names.list().unwrap().iter().filter(|heap| heap.state == RegionState::Cold).count();
    assert_eq!(cold(), 0);
    let path = folder.join("main.db");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["a_side_plays_its_role", "--exact", "--nocapture", "--test-threads=1"]);
    command.env("HOLDFAST_TEST_ROLE", format!("left\n{}", path.display()));
    command.env("HOLDFAST_HOME", places.home()).env("HOLDFAST_POOL", &pool);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("left"), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let evicted = cold();
    assert!(evicted >= 2, "20 MB of the database are in the pool, or nobody made room: {evicted}");
    let images = || {
        let entries = std::fs::read_dir(&pool).unwrap().flatten();
        entries.filter(|entry| entry.path().extension().is_some_and(|end| end == "sqlite")).count()
    };
    assert_eq!(images(), 1);
    // All heaps are open, so that only the database can go.
    let held: Vec<_> = (0..4).map(|number| names.open(&named(number), &key).unwrap()).collect();
    assert_eq!(images(), 0, "the database of a dead process stayed");
    drop(held);
    let connection = rusqlite::Connection::open(&path).unwrap();
    let rows: i64 =
        connection.query_row("SELECT count(*) FROM rows", [], |row| row.get(0)).unwrap();
    assert_eq!((rows, engine::integrity(&connection).unwrap().as_str()), (ROWS, "ok"));
}
