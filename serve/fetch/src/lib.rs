//! Applets from elsewhere: fetched from a server by an address that pins their SHA-256, or handed
//! in by a page, and kept by their content in the home.
//!
//! Invariants:
//! - Bytes that do not have the hash that was asked for never get a name in the cache, and a file
//!   of the cache is hashed again each time before its path is handed out.
//! - Sizes, times and redirects are bounded; only `https:` is followed, and `http:` on this machine.
//!
//! It must not know what an applet does, or run one.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test ends where it fails"))]

mod cache;
mod download;
mod hash;
mod pinned;

pub use cache::{AppletCache, CACHE_BYTES_MAX, CacheError, Incoming};
pub use download::{APPLET_BYTES_MAX, DownloadError, fetch};
pub use hash::AppletHash;
pub use pinned::{AddressError, PinnedAddress, is_address};
