//! Makes room in a full pool: by the keeper, if one runs; else this process evicts heaps itself,
//! and the program `holdfast-sqlite` evicts databases, which this process knows nothing of.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};

use holdfast_region::{Places, RoomReport, ask_keeper_for_room, evict_databases_for_room};
use holdfast_sys::program;
use serde::{Deserialize, Serialize};

use crate::client::Client;
use crate::report::EvictReport;

/// How images of databases are named in a pool.
const DATABASE_IMAGE: &str = "sqlite";

/// What `holdfast-sqlite make-room` prints.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct DatabaseRoom {
    /// Databases whose images left the pool, by their paths.
    pub evicted: Vec<String>,
    /// Bytes that this freed.
    pub freed_bytes: u64,
    /// Images that stay because a process has them.
    pub held: usize,
    /// Images that stay because they could not be written back, each with the reason.
    pub failed: Vec<String>,
}

impl From<RoomReport> for DatabaseRoom {
    fn from(report: RoomReport) -> DatabaseRoom {
        let RoomReport { evicted, freed_bytes, held, failed, .. } = report;
        DatabaseRoom { evicted, freed_bytes, held, failed }
    }
}

/// From now on an allocation of this process that finds its pool full asks the keeper of that pool,
/// and has databases evicted as well as heaps where none answers. Not for a keeper: it would wait
/// for itself.
pub fn use_for_room() {
    ask_keeper_for_room(ask);
    evict_databases_for_room(evict_databases);
}

fn ask(places: &Places, bytes: u64) -> Option<RoomReport> {
    let pool: &Path = places.pool();
    let evicted: EvictReport = Client::of(pool).make_room(pool, bytes).ok()?;
    let mut report = RoomReport::default();
    report.freed_bytes = evicted.before_bytes.saturating_sub(evicted.after_bytes);
    report.evicted = evicted.evicted;
    report.failed = evicted.failed;
    Some(report)
}

/// Starts a program only where there is a database to evict. Nothing where it is not installed.
fn evict_databases(places: &Places, bytes: u64) -> Option<RoomReport> {
    let mut images = places.pool().read_dir().ok()?.filter_map(Result::ok);
    images.find(|entry| entry.path().extension() == Some(OsStr::new(DATABASE_IMAGE)))?;
    let mut command = Command::new(program::find(OsStr::new("holdfast-sqlite"))?);
    command.args(["make-room", &bytes.to_string(), "--json"]);
    command.env("HOLDFAST_HOME", places.home()).env("HOLDFAST_POOL", places.pool());
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let room: DatabaseRoom = serde_json::from_slice(&output.stdout).ok()?;
    let mut report = RoomReport::default();
    report.evicted = room.evicted;
    report.freed_bytes = room.freed_bytes;
    report.held = room.held;
    report.failed = room.failed;
    Some(report)
}
