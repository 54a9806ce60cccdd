//! The databases that this process has open, and the names by which SQLite will ask for their
//! journals.
//!
//! SQLite asks for `-journal` and `-wal` files by pointers that stay the same as long as a database
//! is open; a table of those answers without a system call. Every name is known, also where the
//! table is full: the base VFS would give a database that is in the pool a journal that no process
//! rolls back.

#![allow(unsafe_code, reason = "values that a forked child inherited must not be dropped")]

use std::collections::{BTreeMap, HashMap};
use std::ffi::c_int;
use std::path::Path;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::atomic::{AtomicPtr, AtomicUsize};
use std::sync::{Arc, Mutex, PoisonError};

use crate::base::Base;
use crate::connection::Connection;
use crate::databases::attach;
use crate::error::{Result, SqliteError};
use crate::ffi;
use crate::host;
use crate::identity::Identity;
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
    let Some(identity) =
        pools.iter().find(|(_, (known, _))| Arc::ptr_eq(known, &pool)).map(|(key, _)| *key)
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
        match pool.detach() {
            Ok(removed) => removed.free_later(),
            Err(error) => {
                let text = format!("{database} stays in the pool, nothing is lost: {error}");
                host::log(ffi::IOERR, &text);
            }
        }
    }
}

/// Whether a lock of the pool at this address is to be had; false, too, where that is not known
/// now. No process leaves the pool meanwhile, and no process is held up.
pub(crate) fn is_free(pool: usize, wanted: c_int) -> bool {
    let Ok(guard) = POOLS.try_lock() else { return false };
    let known =
        guard.iter().flat_map(HashMap::values).find(|(known, _)| Arc::as_ptr(known).addr() == pool);
    known.is_some_and(|(pool, _)| pool.is_ours() && pool.is_free(wanted))
}

const NAMES: usize = 4096;
/// How far from its place a name may be.
const PROBES: usize = 16;

struct Name {
    name: AtomicPtr<i8>,
    connection: AtomicPtr<Connection>,
}

static TABLE: [Name; NAMES] = [const {
    Name {
        name: AtomicPtr::new(std::ptr::null_mut()),
        connection: AtomicPtr::new(std::ptr::null_mut()),
    }
}; NAMES];
/// Names for which there is no place in the table. A process that changes the table holds it.
static OVERFLOW: Mutex<BTreeMap<usize, AtomicPtr<Connection>>> = Mutex::new(BTreeMap::new());
/// How many names are in it.
static OVERFLOWN: AtomicUsize = AtomicUsize::new(0);

fn places(name: *const i8) -> impl Iterator<Item = &'static Name> {
    let first = (name as usize).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    (0..PROBES).map(move |step| &TABLE[(first + step) % NAMES])
}

/// Remembers a name of a journal, or of a log in WAL mode.
pub(crate) fn remember(name: *const i8, connection: *mut Connection) {
    let mut overflow = OVERFLOW.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(place) = places(name).find(|place| place.name.load(Acquire).is_null()) {
        place.connection.store(connection, Release);
        place.name.store(name.cast_mut(), Release);
    } else {
        overflow.insert(name as usize, AtomicPtr::new(connection));
        OVERFLOWN.store(overflow.len(), Release);
    }
}

/// Forgets the names of a connection that closes.
pub(crate) fn forget_connection(connection: *mut Connection) {
    let mut overflow = OVERFLOW.lock().unwrap_or_else(PoisonError::into_inner);
    overflow.retain(|_, known| !std::ptr::eq(known.load(Acquire), connection));
    OVERFLOWN.store(overflow.len(), Release);
    for place in
        TABLE.iter().filter(|place| std::ptr::eq(place.connection.load(Acquire), connection))
    {
        place.name.store(std::ptr::null_mut(), Release);
        place.connection.store(std::ptr::null_mut(), Release);
    }
}

/// The connection that uses a name; null for any other.
#[inline]
pub(crate) fn find(name: *const i8) -> *mut Connection {
    let found = places(name).find(|place| std::ptr::eq(place.name.load(Acquire), name));
    match found {
        Some(place) => place.connection.load(Acquire),
        None if OVERFLOWN.load(Acquire) == 0 => std::ptr::null_mut(),
        None => {
            let overflow = OVERFLOW.lock().unwrap_or_else(PoisonError::into_inner);
            overflow.get(&(name as usize)).map_or(std::ptr::null_mut(), |known| known.load(Acquire))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every name is known however many connections there are.
    ///
    /// Guarantee: sqlite/outgrown-pool
    #[test]
    fn every_name_is_known_at_any_connection_count() {
        // Addresses that nothing is read from.
        let names = vec![0_i8; 3 * NAMES];
        let connection =
            |number: usize| std::ptr::without_provenance_mut::<Connection>(number * 64 + 64);
        for (number, name) in names.iter().enumerate() {
            remember(name, connection(number));
        }
        assert!(OVERFLOWN.load(Acquire) > 0);
        for (number, name) in names.iter().enumerate() {
            assert!(std::ptr::eq(find(name), connection(number)), "{number}");
            forget_connection(connection(number));
            assert!(find(name).is_null(), "{number}");
        }
        assert_eq!(OVERFLOWN.load(Acquire), 0);
    }
}
