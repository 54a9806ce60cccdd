//! Serves a web page whose compute part is an applet on this machine: the library of the program
//! `holdfast-serve` (`holdfast serve`).
//!
//! A page connects to a WebSocket on the loopback address, names an applet by its SHA-256, uploads
//! it where it is not known yet, and calls its functions; docs/serve-protocol.md has the messages.
//!
//! Invariants:
//! - The server answers programs of this user alone, under its own host name, for a page whose origin
//!   is the server's or was allowed; it runs applets for a token that it gave to that origin.
//! - The origin of a page decides which heaps its applets have, never what the page says.
//! - What a page can use up is bounded: [`ServeLimits`].
//! - A page learns no path of this machine and no number of a process.
//! - The applets of a connection end with it.
//!
//! It must not know what an applet does, or run one outside of its sandbox.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test ends where it fails"))]

mod applets;
mod closing;
mod connection;
mod consent;
mod counted;
mod discretion;
mod files;
mod gate;
mod handle;
mod limits;
mod listener;
mod message;
mod open;
mod origin;
mod peer;
mod prompt;
mod rate;
mod record;
mod server;
mod token;
mod worker;
mod writer;

pub use limits::ServeLimits;
pub use origin::{Origin, OriginError};
pub use record::{OriginRecord, RecordError};
pub use server::{ServeConfig, ServeError, Server, Stopper};
