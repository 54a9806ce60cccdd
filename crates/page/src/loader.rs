//! Reads what a page asks for: style sheets, images and fonts beside it, and those within it (`data:`).
//!
//! Invariants: everything that was asked for is in the list that [`Loader::finish`] gives, with what was found, so that a later
//! opening can tell whether it would find the same; nothing is read but regular files, within the limits; the engine always gets an
//! answer, since it waits for style sheets.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use blitz_traits::net::{Bytes, NetHandler, NetProvider, Request, Url};
use data_url::DataUrl;
use xxhash_rust::xxh3::xxh3_128;

use crate::limits::PageLimits;

/// A file that a page asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Resource {
    /// Where it is.
    pub(crate) path: PathBuf,
    /// What was found.
    pub(crate) found: Found,
}

/// What was found of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// These bytes.
    Bytes {
        /// Their sum.
        hash: u128,
        /// How many.
        bytes: u64,
    },
    /// Nothing that can be read.
    Nothing,
}

impl Found {
    /// What is there now, of a file of which no more than `bytes_max` count.
    #[must_use]
    pub(crate) fn at(path: &Path, bytes_max: u64) -> Found {
        read_file(path, bytes_max).map_or(Found::Nothing, |bytes| Found::of(&bytes))
    }

    pub(crate) fn of(bytes: &[u8]) -> Found {
        Found::Bytes { hash: xxh3_128(bytes), bytes: bytes.len() as u64 }
    }
}

/// Reads a regular file of no more than `bytes_max` bytes.
pub(crate) fn read_file(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    // Asked first: opening a pipe waits for its other end.
    let about = std::fs::metadata(path)?;
    if !about.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    let mut bytes = Vec::with_capacity(about.len().min(bytes_max) as usize + 1);
    File::open(path)?.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        let message = format!("it has more than {bytes_max} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(bytes)
}

/// See the module.
pub(crate) struct Loader {
    limits: PageLimits,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    requests: u32,
    bytes: u64,
    pixels: u64,
    files: HashMap<PathBuf, Found>,
    order: Vec<PathBuf>,
    left_out: Vec<String>,
}

/// What came of reading.
pub(crate) struct Loaded {
    pub(crate) resources: Vec<Resource>,
    /// What was not read though it is asked for, and why, for people.
    pub(crate) left_out: Vec<String>,
}

/// Sentences about what was left out that are kept.
const LEFT_OUT_MAX: usize = 20;

impl Loader {
    pub(crate) fn new(limits: PageLimits) -> Loader {
        Loader { limits, state: Mutex::new(State::default()) }
    }

    /// How often it was asked.
    pub(crate) fn requests(&self) -> u32 {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).requests
    }

    pub(crate) fn finish(&self) -> Loaded {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let order = std::mem::take(&mut state.order);
        let resources = order
            .into_iter()
            .map(|path| Resource { found: state.files.remove(&path).unwrap_or(Found::Nothing), path })
            .collect();
        Loaded { resources, left_out: std::mem::take(&mut state.left_out) }
    }

    /// The bytes of an address; none, if there are none to be had.
    fn get(&self, url: &Url) -> Option<Vec<u8>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.requests += 1;
        let leave_out = |state: &mut State, why: &str| {
            if state.left_out.len() < LEFT_OUT_MAX {
                let shown: String = url.as_str().chars().take(200).collect();
                state.left_out.push(format!("{shown}: {why}"));
            }
        };
        if state.requests > self.limits.resources {
            if state.requests == self.limits.resources + 1 {
                leave_out(
                    &mut state,
                    "the page asks for more than is read; this and what follows is left out",
                );
            }
            return None;
        }
        let left = self.limits.resources_bytes.saturating_sub(state.bytes).min(self.limits.resource_bytes);
        let bytes = match url.scheme() {
            "data" => {
                let decoded = DataUrl::process(url.as_str()).ok().and_then(|data| data.decode_to_vec().ok());
                decoded.map(|(bytes, _)| bytes).filter(|bytes| bytes.len() as u64 <= left)
            }
            "file" => {
                let path = url.to_file_path().ok()?;
                let read = read_file(&path, left);
                // Of a file that changes while the page is made, the first look counts: the next opening sees another.
                if !state.files.contains_key(&path) {
                    // One that only finds no room beside the others is there for a later opening, which looks at each by itself.
                    let found = read
                        .as_deref()
                        .map_or_else(|_| Found::at(&path, self.limits.resource_bytes), Found::of);
                    state.files.insert(path.clone(), found);
                    state.order.push(path);
                }
                read.map_err(|error| leave_out(&mut state, &error.to_string())).ok()
            }
            _ => {
                leave_out(&mut state, "only files are read");
                None
            }
        }?;
        state.bytes += bytes.len() as u64;
        match pixels(&bytes) {
            Some(pixels) if state.pixels.saturating_add(pixels) > self.limits.image_pixels => {
                leave_out(&mut state, "the page's images have more pixels than are taken");
                None
            }
            pixels => {
                state.pixels += pixels.unwrap_or(0);
                Some(bytes)
            }
        }
    }
}

impl NetProvider for Loader {
    fn fetch(&self, _document: usize, request: Request, handler: Box<dyn NetHandler>) {
        let bytes = self.get(&request.url).unwrap_or_default();
        handler.bytes(request.url.to_string(), Bytes::from(bytes));
    }
}

/// The pixels of an image; none, if it is no image that can be decoded.
fn pixels(bytes: &[u8]) -> Option<u64> {
    let format = image::guess_format(bytes).ok()?;
    let (width, height) =
        image::ImageReader::with_format(Cursor::new(bytes), format).into_dimensions().ok()?;
    Some(u64::from(width) * u64::from(height))
}
