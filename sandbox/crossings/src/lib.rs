//! The host's record of what crosses a sandbox, which `holdfast trace run --sandbox` asks for and
//! joins with the kernel's.
//!
//! A host marks when it calls an applet ([`Mark::call`]), when the applet runs on one of its
//! threads ([`Mark::turn`]), when the applet calls it ([`Mark::cross`]), and when it decides on a
//! system call of a native applet ([`Mark::question`]). Marks of a process that is not traced do
//! nothing: they are a comparison with `None`.
//!
//! Invariants:
//! - Only the host writes the record, from its own clock and its own counters: no byte of it comes
//!   from an applet's memory. Names of functions are those that the host called or offers; a name
//!   that an applet made up (of a function that it serves) is a label and nothing else, and is
//!   bounded.
//! - A host works on whatever becomes of its record: what cannot be kept is counted, and told in
//!   the next frame that can be written.
//! - System calls that the record itself costs are in it ([`Record::Own`]), so that they are never
//!   taken for the host's.
//! - The reader believes nothing of the file but what its checksums cover, and takes memory in
//!   proportion to what is there.

#![forbid(unsafe_code)]

mod log;
mod mark;
mod read;
mod record;

pub use mark::{Applet, Interval, Mark};
pub use read::{Ending, Host, RECORDS_MAX, Read, read};
#[doc(hidden)]
pub use record::frame;
pub use record::{Answer, AppletKind, NAME_BYTES_MAX, Record};

/// Whether what crosses is marked in this process: for functions that are worth their cost only
/// then.
#[must_use]
pub fn is_wanted() -> bool {
    log::log().is_some()
}

/// The environment variable in which a tracer names the file for the record. It must be a regular
/// file without a name in any directory, as `/proc/PID/fd/N` of the tracer: no program that is
/// traced can come by it, and no other file is written to.
pub const VARIABLE: &str = "HOLDFAST_CROSSINGS";
