//! The status of a keeper and its heaps.

use holdfast_keeper_client::{Counters, DatabaseStatus, HeapStatus, Status};
use holdfast_region::{NameSpace, RegionState};
use holdfast_sqlite::{Database, Databases};

use crate::error::Result;
use crate::keeper::eviction::pool_bytes;
use crate::keeper::{Keeper, seconds_since, unsaved_s};
use crate::plan::bytes_in;
use crate::served::Serving;

fn database_status(database: &Database) -> DatabaseStatus {
    let state = match database {
        Database { damaged: Some(_), .. } => "damaged",
        Database { is_open: true, .. } => "open",
        _ => "left",
    };
    DatabaseStatus {
        path: database.name(),
        state: state.to_owned(),
        image_bytes: database.image_bytes,
        unsaved_bytes: database.unsaved_bytes,
        unsaved_s: seconds_since(database.saved_unix_s),
        holders: database.holders.clone(),
        saved: database.has_copy,
    }
}

impl Keeper {
    /// What there is to say now.
    ///
    /// # Errors
    /// When the heaps cannot be listed.
    pub fn status(&self) -> Result<Status> {
        let bytes_per_s = self.bandwidth.bytes_per_s();
        Ok(Status {
            keeper: Some(std::process::id()),
            up_s: self.started.elapsed().as_secs(),
            pool_limit_bytes: self.config.pool_limit.bytes(),
            pool_limit_reason: self.config.pool_limit.reason(),
            bandwidth_bytes_per_s: Some(bytes_per_s),
            emergency_bytes: Some(bytes_in(bytes_per_s, self.config.emergency)),
            counters: self.counters.clone(),
            served: self.serving.as_ref().map(Serving::status).transpose()?,
            ..status_of_files(&self.names)?
        })
    }
}

/// What files tell without a keeper.
///
/// # Errors
/// When the heaps cannot be listed.
pub fn status_of_files(names: &NameSpace) -> Result<Status> {
    let heaps = names.list()?;
    let databases = Databases::of(names.places()).list()?;
    let state = |state| match state {
        RegionState::Held => "held",
        RegionState::Clean => "clean",
        RegionState::Crashed => "crashed",
        RegionState::Cold => "cold",
        _ => "damaged",
    };
    Ok(Status {
        keeper: None,
        up_s: 0,
        pool_bytes: pool_bytes(&heaps, &databases),
        pool_limit_bytes: None,
        pool_limit_reason: None,
        bandwidth_bytes_per_s: None,
        emergency_bytes: None,
        heaps: heaps
            .iter()
            .map(|heap| HeapStatus {
                name: heap.name.to_string(),
                state: state(heap.state).to_owned(),
                image_bytes: crate::keeper::background::image_bytes(heap),
                unsaved_s: unsaved_s(heap),
                holder: heap.holder,
                rescued: heap.rescue.is_some(),
            })
            .collect(),
        databases: databases.iter().map(database_status).collect(),
        counters: Counters::default(),
        served: None,
    })
}
