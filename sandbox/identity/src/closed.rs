//! Which heaps of [`crate::LEGACY_KEY`] are no longer every applet's: `UUID.closed` beside the
//! keys.
//!
//! Invariants:
//! - A mark is bound to its heap by the heap's UUID, so it outlives the access table, and the heap
//!   itself: a heap that comes back from a snapshot is the one that it was.
//! - That there is an entry of this name decides, not what is in it: a mark that a crash cut off,
//!   or that cannot be looked at, closes the heap as well.
//! - It is durable before whatever relies on it is done.

use std::io::{self, Write};
use std::path::PathBuf;

use holdfast_region::text_file::StepError;
use holdfast_region::{Places, RegionName};
use holdfast_sys::file::{private_options, sync_directory};

const TITLE: &str = "holdfast closed heap 1";
const EXTENSION: &str = "closed";

fn path_of(places: &Places, uuid: &str) -> PathBuf {
    places.keys().join(format!("{uuid}.{EXTENSION}"))
}

/// Whether the heap with this UUID has a mark.
pub(crate) fn has_mark(places: &Places, uuid: &str) -> Result<bool, StepError> {
    let path = path_of(places, uuid);
    match path.symlink_metadata() {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(("examine", path, error)),
    }
}

/// Marks a heap, durably; its name is for people.
pub(crate) fn mark(places: &Places, uuid: &str, heap: &RegionName) -> Result<(), StepError> {
    let path = path_of(places, uuid);
    match private_options().write(true).create_new(true).open(&path) {
        Ok(mut file) => {
            let text = format!("{TITLE}\nheap {heap}\n");
            let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
            written.map_err(|error| ("write", path, error))?;
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(("create", path, error)),
    }
    sync_keys(places)
}

/// Removes the mark of a heap.
pub(crate) fn unmark(places: &Places, uuid: &str) -> Result<(), StepError> {
    let path = path_of(places, uuid);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(("remove", path, error)),
        _ => sync_keys(places),
    }
}

fn sync_keys(places: &Places) -> Result<(), StepError> {
    sync_directory(places.keys()).map_err(|error| ("make durable", places.keys().to_owned(), error))
}
