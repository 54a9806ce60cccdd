//! Measurements of the built programs, each against a named peer in the same run: runs are interleaved, and
//! what counts is the median of the ratios of neighbours, so that a machine that is busy for a while slows
//! both sides.
//!
//! `holdfast-bench SUITE` (`cargo xtask bench SUITE`) prints a table and, on request, JSON; `holdfast-demo`
//! (`./demo`) shows the main job to a person. Both work in a scratch home that they remove.
//!
//! What it must not do: judge. A missed goal is shown, and is no failure of the program.

#![deny(unsafe_code)]

pub mod applet;
pub mod heap;
#[cfg(feature = "pages")]
pub mod pages;
pub mod persistency;
pub mod pool;
mod race;
pub mod report;
mod section;
pub mod slice;
#[cfg(feature = "slow-memory")]
pub mod slow;
#[cfg(feature = "sqlite")]
pub mod sqlite;
pub mod stats;
pub mod timing;
pub mod trace;
#[allow(unsafe_code, reason = "lays a heap over a mapped region, as a host does")]
mod warm_open;

use std::path::Path;

/// The text of the main job: real, and on every Debian and Ubuntu.
pub const TEXT: &str = "/usr/share/common-licenses/GPL-3";

/// Whether the text is there.
///
/// # Errors
/// When it is not.
pub fn require_text() -> std::io::Result<&'static Path> {
    let text = Path::new(TEXT);
    if text.is_file() {
        return Ok(text);
    }
    Err(std::io::Error::other(format!(
        "{TEXT} is missing; it belongs to the package base-files of Debian and Ubuntu"
    )))
}
