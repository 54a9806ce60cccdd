//! The kit of every measurement: series of values, timed runs, and the text of the main job.

pub mod stats;
pub mod timing;

use std::io;
use std::path::Path;

/// The text of the main job: real, and on every Debian and Ubuntu.
pub const TEXT: &str = "/usr/share/common-licenses/GPL-3";

/// Whether the text is there.
///
/// # Errors
/// When it is not.
pub fn require_text() -> io::Result<&'static Path> {
    let text = Path::new(TEXT);
    if text.is_file() {
        return Ok(text);
    }
    Err(io::Error::other(format!(
        "{TEXT} is missing; it belongs to the package base-files of Debian and Ubuntu"
    )))
}
