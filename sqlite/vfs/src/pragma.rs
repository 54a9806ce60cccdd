//! `PRAGMA holdfast_…`, and the one of SQLite's that must not do what it says here.

#![allow(unsafe_code, reason = "texts of a C program")]

use std::ffi::{CStr, c_char, c_int};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use crate::connection::Connection;
use crate::ffi;
use crate::host;
use crate::layout::BLOCK_BYTES;
use crate::parameters::proposal;
use crate::settings::{NAMES, limit_slots};
use crate::vfs::text_for_sqlite;

/// In front of the name of each setting.
pub(crate) const PREFIX: &str = "holdfast_";
/// What may be behind it.
const PRAGMAS: [&str; 9] =
    ["level", "threshold", "flush", "flush_interval", "wal", "pool_limit", "checkpoint", "release", "stats"];

/// Answers a pragma: what is not ours is SQLite's.
///
/// # Safety
/// `texts` must be what SQLite passes with `SQLITE_FCNTL_PRAGMA`.
pub(crate) unsafe fn answer(connection: &mut Connection, texts: *mut *mut c_char) -> c_int {
    let text = |at: usize| {
        // SAFETY: per the contract: the second is a text, the third a text or null.
        unsafe {
            let text = *texts.add(at);
            (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
        }
    };
    let (name, value) = (text(1).unwrap_or_default().to_ascii_lowercase(), text(2));
    let (code, reply) = if let Some(ours) = name.strip_prefix(PREFIX) {
        match ours_of(connection, ours, value.as_deref()) {
            Some(Ok(reply)) => (ffi::OK, reply),
            Some(Err(wrong)) => (ffi::ERROR, wrong),
            None => {
                let proposal = proposal(ours, PRAGMAS.into_iter());
                let known = PRAGMAS.map(|known| format!("{PREFIX}{known}")).join(", ");
                (ffi::ERROR, format!("there is no pragma {name}{proposal}; there are {known}"))
            }
        }
    } else if name == "journal_mode"
        && value.is_some_and(|value| value.eq_ignore_ascii_case("wal"))
        && !connection.is_wal
        && !connection.pool.settings.lets_wal_pass()
    {
        host::log(
            ffi::NOTICE,
            "the journal mode stays `delete`: a commit needs no journal here, and WAL would only be slower; \
             `PRAGMA holdfast_wal = pass` lets the database go over to it",
        );
        (ffi::OK, "delete".to_owned())
    } else {
        return ffi::NOTFOUND;
    };
    // SAFETY: the first is SQLite's to fill with a text that it frees.
    unsafe { *texts = text_for_sqlite(&reply) };
    code
}

fn ours_of(connection: &mut Connection, name: &str, value: Option<&str>) -> Option<Result<String, String>> {
    let pool = Arc::clone(&connection.pool);
    let header = pool.image.header();
    Some(match (name, value) {
        (name, Some(value)) if NAMES.contains(&name) => {
            let set = pool.settings.set(name, value);
            // It may be about the interval, and something be waiting for it.
            pool.flusher.look_again();
            let armed = pool.flush_in_time().map_err(|error| error.to_string());
            set.and(armed).map(|()| pool.settings.text(name).unwrap_or_default())
        }
        (name, None) if NAMES.contains(&name) => Ok(pool.settings.text(name)?),
        ("pool_limit", value) => {
            let capacity = pool.image.plan().capacity;
            let set = value.map(limit_slots).transpose();
            set.map(|slots| {
                if let Some(slots) = slots {
                    header.limit.store(slots.min(capacity), Relaxed);
                }
                (u64::from(header.limit.load(Relaxed)) * BLOCK_BYTES as u64).to_string()
            })
        }
        ("checkpoint" | "release" | "stats", Some(value)) => {
            Err(format!("{PREFIX}{name} takes no value, and got {value}"))
        }
        ("checkpoint", _) => pool.checkpoint().map(|()| "ok".to_owned()).map_err(|error| error.to_string()),
        ("release", _) => connection.release().map(|()| "ok".to_owned()).map_err(|error| error.to_string()),
        ("stats", _) => {
            let count = |name: &str, value: u64| format!("{name}={value}");
            let lines = [
                count("hot", u64::from(header.hot.load(Acquire))),
                count("commits", header.committed.load(Acquire).saturating_sub(1)),
                count("flushed", header.flushed.load(Acquire).saturating_sub(1)),
                count("applied", header.applied.load(Acquire).saturating_sub(1)),
                count("dirty_pages", u64::from(header.dirty.load(Relaxed))),
                count("pages", u64::from(header.used.load(Relaxed))),
                count("flushes", header.flushes.load(Relaxed)),
                count("flushed_pages", header.flushed_blocks.load(Relaxed)),
                count("checkpoints", header.checkpoints.load(Relaxed)),
                count("log_bytes", header.log_tail.load(Relaxed)),
                count("address_space", pool.image.bytes() as u64),
            ];
            Ok(lines.join(" "))
        }
        _ => return None,
    })
}
