//! How a program that finds no room in a pool has it made: by the keeper, if one runs, and for databases without one, too.

use std::path::Path;

use holdfast_region::{Places, RoomReport, ask_keeper_for_room, evict_databases_for_room};

use crate::client::Client;
use crate::eviction::EvictReport;

/// From now on an allocation of this process that finds its pool full asks the keeper of that pool, and evicts databases as
/// well as heaps itself where none answers. Not for a keeper: it would wait for itself.
pub fn use_for_room() {
    ask_keeper_for_room(ask);
    evict_databases_for_room(holdfast_sqlite::evict_for_room);
}

fn ask(places: &Places, bytes: u64) -> Option<RoomReport> {
    let pool: &Path = places.pool();
    Client::of(pool).make_room(pool, bytes).ok().map(report)
}

fn report(evicted: EvictReport) -> RoomReport {
    let mut report = RoomReport::default();
    report.freed_bytes = evicted.before_bytes.saturating_sub(evicted.after_bytes);
    report.evicted = evicted.evicted;
    report.failed = evicted.failed;
    report
}
