//! Reads what a page asks for: style sheets, images and fonts beside it, and those within it (`data:`).
//!
//! Invariants: everything that was asked for is in the list that [`Loader::finish`] gives, with what was found, so that a later
//! opening can tell whether it would find the same; nothing is read but regular files, within the limits; the engine always gets an
//! answer, since it waits for style sheets. A page from the network gets nothing of this machine; a page of this machine gets nothing
//! from the network, unless that is wanted.

use std::collections::HashMap;
use std::io::Cursor;
use std::sync::{Arc, Mutex, PoisonError};

use blitz_traits::net::{Bytes, NetHandler, NetProvider, Request, Url};
use data_url::DataUrl;
use xxhash_rust::xxh3::xxh3_128;

use crate::fetch::{Answer, Fetch, FetchError, Purpose, Wanted};
use crate::limits::PageLimits;

/// What a page asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Resource {
    /// Its address, without a place in it.
    pub(crate) url: String,
    /// What was found.
    pub(crate) found: Found,
}

/// What was found at an address.
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
    /// What is there now, of which no more than `bytes_max` count.
    #[must_use]
    pub(crate) fn at(url: &str, bytes_max: u64, from: &dyn Fetch) -> Found {
        let bytes = Url::parse(url).ok().and_then(|url| bytes_of(&url, bytes_max, from).ok());
        bytes.map_or(Found::Nothing, |bytes| Found::of(&bytes))
    }

    pub(crate) fn of(bytes: &[u8]) -> Found {
        Found::Bytes { hash: xxh3_128(bytes), bytes: bytes.len() as u64 }
    }
}

fn bytes_of(url: &Url, bytes_max: u64, from: &dyn Fetch) -> Result<Vec<u8>, FetchError> {
    match from.fetch(&Wanted { url, bytes_max, purpose: Purpose::Part, known: None, anew: false })? {
        Answer::Bytes(fetched) => Ok(fetched.bytes),
        Answer::Unchanged(_) => Err(FetchError::NotFound),
    }
}

/// See the module.
pub(crate) struct Loader {
    limits: PageLimits,
    page: Reach,
    from: Arc<dyn Fetch>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    requests: u32,
    bytes: u64,
    pixels: u64,
    found: HashMap<String, Found>,
    order: Vec<String>,
    left_out: Vec<String>,
}

/// What came of reading.
pub(crate) struct Loaded {
    pub(crate) resources: Vec<Resource>,
    /// What was not read though it is asked for, and why, for people.
    pub(crate) left_out: Vec<String>,
}

/// What a page may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// A page of this machine: files.
    Files,
    /// A page of this machine: files, and servers.
    FilesAndNetwork,
    /// A page from the network: servers alone. Whoever wrote it learns nothing of this machine's files.
    Network,
}

impl Reach {
    fn allows(self, scheme: &str) -> Result<(), &'static str> {
        match (scheme, self) {
            ("file", Reach::Network) => Err("a page from the network gets no files"),
            ("http" | "https", Reach::Files) => Err("the network is not asked; allow it by --network"),
            ("file" | "http" | "https", _) => Ok(()),
            _ => Err("only files and addresses of http: and https: are read"),
        }
    }
}

/// Sentences about what was left out that are kept.
const LEFT_OUT_MAX: usize = 20;

impl Loader {
    pub(crate) fn new(limits: PageLimits, page: Reach, from: Arc<dyn Fetch>) -> Loader {
        Loader { limits, page, from, state: Mutex::new(State::default()) }
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
            .map(|url| Resource { found: state.found.remove(&url).unwrap_or(Found::Nothing), url })
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
            scheme => {
                if let Err(why) = self.page.allows(scheme) {
                    leave_out(&mut state, why);
                    return None;
                }
                let mut url = url.clone();
                url.set_fragment(None);
                let read = bytes_of(&url, left, &*self.from);
                // Of what changes while the page is made, the first look counts: the next opening sees another.
                if !state.found.contains_key(url.as_str()) {
                    // What only finds no room beside the others is there for a later opening, which looks at each by itself.
                    let found = read.as_deref().map_or_else(
                        |_| Found::at(url.as_str(), self.limits.resource_bytes, &*self.from),
                        Found::of,
                    );
                    state.found.insert(url.as_str().to_owned(), found);
                    state.order.push(url.into());
                }
                read.map_err(|error| leave_out(&mut state, &error.to_string())).ok()
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
