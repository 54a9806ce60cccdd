//! `PRAGMA holdfast_…`, and the one of SQLite's that must not do what it says here.

#![allow(unsafe_code, reason = "texts of a C program")]

use std::ffi::{CStr, c_char, c_int};
use std::sync::Arc;

use crate::connection::Connection;
use crate::ffi;
use crate::host::{self, text_for_sqlite};
use crate::image::BLOCK_BYTES;
use crate::parameters::{PREFIX, proposal};
use crate::settings::{NAMES, limit_slots};

/// What may be behind it.
const PRAGMAS: [&str; 10] = [
    "level",
    "threshold",
    "flush",
    "flush_interval",
    "wal",
    "side_file",
    "pool_limit",
    "checkpoint",
    "release",
    "stats",
];

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
        && value.as_ref().is_some_and(|value| value.eq_ignore_ascii_case("wal"))
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
        if name == "max_page_count" && value.is_some() {
            connection.pool.settings.note_page_limit();
        }
        return ffi::NOTFOUND;
    };
    // SAFETY: the first is SQLite's to fill with a text that it frees.
    unsafe { *texts = text_for_sqlite(&reply) };
    code
}

fn ours_of(
    connection: &mut Connection,
    name: &str,
    value: Option<&str>,
) -> Option<Result<String, String>> {
    let pool = Arc::clone(&connection.pool);
    let text = |name| pool.settings.text(name, pool.image.limit());
    Some(match (name, value) {
        (name, Some(value)) if NAMES.contains(&name) => {
            let set = pool.settings.set(name, value);
            // It may be about the interval, and something be waiting for it.
            pool.flusher.look_again();
            let armed = pool.flush_in_time().map_err(|error| error.to_string());
            set.and(armed).map(|()| text(name).unwrap_or_default())
        }
        (name, None) if NAMES.contains(&name) => Ok(text(name)?),
        ("pool_limit", value) => {
            let set = value.map(limit_slots).transpose();
            set.map(|slots| {
                if let Some(slots) = slots {
                    pool.image.set_limit(slots);
                }
                (u64::from(pool.image.limit()) * BLOCK_BYTES as u64).to_string()
            })
        }
        ("checkpoint" | "release" | "stats", Some(value)) => {
            Err(format!("{PREFIX}{name} takes no value, and got {value}"))
        }
        ("checkpoint", _) => {
            pool.checkpoint().map(|()| "ok".to_owned()).map_err(|error| error.to_string())
        }
        ("release", _) => {
            connection.release().map(|()| "ok".to_owned()).map_err(|error| error.to_string())
        }
        ("stats", _) => {
            let (commits, position) = (pool.image.commits(), pool.image.log_position());
            let counts = position.counts();
            let count = |name: &str, value: u64| format!("{name}={value}");
            let lines = [
                count("hot", u64::from(pool.is_hot())),
                count("commits", commits.newest().saturating_sub(1)),
                count("flushed", commits.flushed().saturating_sub(1)),
                count("applied", commits.applied().saturating_sub(1)),
                count("dirty_pages", u64::from(commits.dirty())),
                count("pages", u64::from(pool.image.used())),
                count("flushes", counts.flushes),
                count("flushed_pages", counts.flushed_blocks),
                count("checkpoints", counts.checkpoints),
                count("log_bytes", position.tail()),
                count("address_space", pool.image.bytes() as u64),
            ];
            Ok(lines.join(" "))
        }
        _ => return None,
    })
}
