//! Messages between a host and a native applet over shared memory: the layout of that memory, one
//! ring of bytes for each direction, the header of a message, and the protocol. `no_std`, no
//! allocation, the same code on both sides; feature `std` adds the host's half.
//!
//! A tour, bottom up:
//! - `shared`: loads, stores and copies in memory that another process may write at any time; the
//!   only place that touches it. [`Shared`] is a range of it.
//! - [`boot`]: where everything is: the record in the first page, which the applet reads once.
//!   [`Layout`]: the same as offsets that were checked.
//! - [`heaps`]: the table behind it of the heaps that were granted.
//! - [`note`]: what a program promises in its file, before it runs.
//! - [`header`]: what is said besides a payload. [`protocol`]: kinds, statuses and typed messages;
//!   [`hello`]: the names of exports.
//! - [`line`]: header and first bytes of a payload in one line of the processor's caches.
//! - [`ring`]: one direction: [`Producer`] and [`Consumer`]. [`wait`]: spinning, then sleeping, as
//!   a trait that both sides implement for their platform.
//! - [`Endpoint`]: send and receive whole messages, with deadlines. What it receives goes to a
//!   [`Sink`].
//! - `ChannelMemory`, `ArenaBuffer`, `HostWait`, `Bell` (feature `std`): the sealed file, buffers
//!   in its arena, and waiting that a supervisor can end.
//!
//! The invariant that all of it serves: **the host believes nothing that it can read twice.** A
//! header is copied once to private memory, checked there, and never read again; each position of
//! the peer is one load that is checked; a payload is copied before it is read. A peer
//! that breaks the rules is [`PeerBroke`](ChannelError::PeerBroke), whatever it does and whenever.
//!
//! What it must not do: know of jails, regions or WebAssembly; hand out a reference to shared
//! bytes; wait without an end that the caller has set.

#![no_std]
#![deny(unsafe_code)]

#[cfg(any(test, feature = "std"))]
extern crate std;

#[cfg(feature = "std")]
mod arena;
pub mod boot;
#[allow(unsafe_code, reason = "takes over the memory that its maker promises")]
mod endpoint;
mod error;
pub mod header;
pub mod heaps;
pub mod hello;
#[cfg(feature = "std")]
mod host;
pub mod layout;
pub mod line;
#[cfg(feature = "std")]
#[allow(unsafe_code, reason = "owns the mapping that ranges of shared memory lead to")]
mod memory;
pub mod note;
pub mod protocol;
pub mod ring;
#[allow(unsafe_code, reason = "the only place that touches shared memory")]
mod shared;
mod sink;
pub mod wait;

#[cfg(feature = "std")]
pub use arena::{ArenaBuffer, BufferError};
pub use boot::{Boot, CHANNEL_FD, REGION_FD};
pub use endpoint::Endpoint;
pub use error::{BootError, ChannelError};
pub use header::Header;
#[cfg(feature = "std")]
pub use host::{Bell, HostWait};
pub use layout::{Handle, Layout, LayoutError};
#[cfg(feature = "std")]
pub use memory::{ChannelMemory, MemoryError};
pub use protocol::MESSAGE_BYTES_MAX;
pub use ring::{Consumer, Producer};
pub use shared::Shared;
pub use sink::{Refused, Sink, SliceSink};
pub use wait::{Deadline, Wait};

/// Which end of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The trusted process.
    Host,
    /// The untrusted program.
    Applet,
}

impl Side {
    /// The other end.
    #[must_use]
    pub const fn other(self) -> Side {
        match self {
            Side::Host => Side::Applet,
            Side::Applet => Side::Host,
        }
    }
}
