//! Passes the texts of errors to the user: SQLite passes on a code of a VFS, and no text.
//!
//! Each text goes to SQLite's error log; to standard error, with `HOLDFAST_SQLITE_LOG=stderr`; the
//! newest error is what `SELECT holdfast_error()` and `xGetLastError` answer. What keeps a database
//! from being opened is in `sqlite3_errmsg`, besides: see `refused.rs`.
//!
//! Invariant: a text on standard error is one line without control characters, whatever a path has
//! in it.

#![forbid(unsafe_code)]

use std::ffi::c_int;
use std::io::Write;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};

use crate::ffi;

/// Says where texts go.
pub(crate) const VARIABLE: &str = "HOLDFAST_SQLITE_LOG";

static TO_STDERR: AtomicBool = AtomicBool::new(false);
/// The newest error of this process.
static NEWEST: Mutex<Option<String>> = Mutex::new(None);

/// Looks where texts are to go; says what is wrong with that. Called where the program may not
/// change its environment at the same time: when the VFS is registered, and when a database is
/// opened.
pub(crate) fn configure() -> Result<(), String> {
    let value = std::env::var_os(VARIABLE).unwrap_or_default();
    let is_wanted = match value.to_str() {
        Some("stderr") => true,
        Some("" | "off") => false,
        _ => return Err(format!("{VARIABLE} is {}; `stderr` or `off`", value.display())),
    };
    TO_STDERR.store(is_wanted, Relaxed);
    Ok(())
}

/// Keeps a text, and shows it.
pub(crate) fn note(code: c_int, text: &str) {
    if TO_STDERR.load(Relaxed) {
        let line: String =
            text.chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect();
        // One write, so that lines of several processes do not mix; where no process reads, nothing
        // is lost by it.
        let _ = std::io::stderr().write_all(format!("holdfast: {line}\n").as_bytes());
    }
    if code != ffi::NOTICE {
        *NEWEST.lock().unwrap_or_else(PoisonError::into_inner) = Some(text.to_owned());
    }
}

/// The newest error of this process.
pub(crate) fn newest() -> Option<String> {
    NEWEST.lock().unwrap_or_else(PoisonError::into_inner).clone()
}
