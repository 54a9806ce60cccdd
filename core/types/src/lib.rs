//! The words that all of Holdfast shares, each defined once: [`Durability`], which failure a commit
//! survives, [`PathAccess`], what a granted path may be used for, [`RequestStatus`], what a request
//! came to, [`Remedy`], what to do about an error, and sizes as people write them (`size`).
//!
//! Invariant: numbers and names here are part of interfaces and formats (the calls of `holdfast.h`,
//! the protocol of applets, the wire of the keeper, options); none ever changes its meaning.
//!
//! It must not know what uses a word.

#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

#[cfg(feature = "size")]
extern crate alloc;

mod access;
mod durability;
mod remedy;
#[cfg(feature = "size")]
pub mod size;
mod status;

pub use access::PathAccess;
pub use durability::Durability;
pub use remedy::{AppletLimit, HowTo, Remedy, set_how_to};
pub use status::RequestStatus;
