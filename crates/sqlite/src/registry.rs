//! The databases that this process has open, and the names by which SQLite will ask for their journals.
//!
//! SQLite asks for `-journal` and `-wal` files by pointers that stay the same as long as a database is open; a table of those
//! answers without a system call. Who is not in it is answered by the base VFS, which is right too, only slower.

#![allow(unsafe_code, reason = "values that a forked child inherited must not be dropped")]

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Mutex, PoisonError};

use crate::attach::{Identity, attach};
use crate::base::Base;
use crate::connection::Connection;
use crate::error::{Result, SqliteError};
use crate::ffi;
use crate::host;
use crate::pool::Pool;

/// Pools, and how many connections use each.
type Pools = HashMap<Identity, (Arc<Pool>, usize)>;

static POOLS: Mutex<Option<Pools>> = Mutex::new(None);

/// Finds or attaches the pool of a database, for one more connection.
pub(crate) fn enter(
    database: &Path,
    limit_slots: Option<u32>,
    base: impl FnOnce() -> Result<Box<dyn Base>>,
) -> Result<Arc<Pool>> {
    let identity = Identity::of(database).map_err(SqliteError::io("examine", database))?;
    let mut guard = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
    let pools = guard.get_or_insert_with(HashMap::new);
    if let Some((pool, connections)) = pools.get_mut(&identity) {
        if pool.is_ours() {
            *connections += 1;
            return Ok(Arc::clone(pool));
        }
        // The parent's: nothing of it may be closed here.
        if let Some(inherited) = pools.remove(&identity) {
            std::mem::forget(inherited);
        }
    }
    let pool = Arc::new(attach(database, base()?, limit_slots)?);
    pools.insert(identity, (Arc::clone(&pool), 1));
    Ok(pool)
}

/// One connection less; the last one leaves the pool.
pub(crate) fn leave(pool: Arc<Pool>) {
    if !pool.is_ours() {
        std::mem::forget(pool);
        return;
    }
    let mut guard = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(pools) = guard.as_mut() else { return };
    let Some(identity) = pools.iter().find(|(_, (known, _))| Arc::ptr_eq(known, &pool)).map(|(key, _)| *key)
    else {
        return;
    };
    if let Some((_, connections)) = pools.get_mut(&identity) {
        *connections -= 1;
        if *connections > 0 {
            return;
        }
    }
    pools.remove(&identity);
    pool.flusher.stop();
    if let Ok(pool) = Arc::try_unwrap(pool) {
        let database = pool.database.display().to_string();
        if let Err(error) = pool.detach() {
            let text = format!("{database} stays in the pool, nothing is lost: {error}");
            host::log(ffi::IOERR, &text);
        }
    }
}

const NAMES: usize = 4096;
/// How far from its place a name may be.
const PROBES: usize = 16;

struct Name {
    name: AtomicPtr<i8>,
    connection: AtomicPtr<Connection>,
}

static TABLE: [Name; NAMES] = [const {
    Name { name: AtomicPtr::new(std::ptr::null_mut()), connection: AtomicPtr::new(std::ptr::null_mut()) }
}; NAMES];
static CHANGES: Mutex<()> = Mutex::new(());

fn places(name: *const i8) -> impl Iterator<Item = &'static Name> {
    let first = (name as usize).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    (0..PROBES).map(move |step| &TABLE[(first + step) % NAMES])
}

/// Remembers a name of a journal, or of a log in WAL mode.
pub(crate) fn remember(name: *const i8, connection: *mut Connection) {
    let _changes = CHANGES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(place) = places(name).find(|place| place.name.load(Acquire).is_null()) {
        place.connection.store(connection, Release);
        place.name.store(name.cast_mut(), Release);
    }
}

/// Forgets the names of a connection that closes.
pub(crate) fn forget_connection(connection: *mut Connection) {
    let _changes = CHANGES.lock().unwrap_or_else(PoisonError::into_inner);
    for place in TABLE.iter().filter(|place| std::ptr::eq(place.connection.load(Acquire), connection)) {
        place.name.store(std::ptr::null_mut(), Release);
        place.connection.store(std::ptr::null_mut(), Release);
    }
}

/// The connection that uses a name; null for any other.
#[inline]
pub(crate) fn find(name: *const i8) -> *mut Connection {
    let found = places(name).find(|place| std::ptr::eq(place.name.load(Acquire), name));
    found.map_or(std::ptr::null_mut(), |place| place.connection.load(Acquire))
}
