//! The stages of a program before the compiler gets it, and why it can be refused.
//!
//! Invariant: what a refusal says of the program may be as long as the program and hold any
//! character; it is cut and made safe where it becomes a message.
#![forbid(unsafe_code)]

use std::borrow::Cow;

use wasmtime::OutOfMemory;

use crate::complexity::{self, Excess};
use crate::names::Bounded;

/// The longest text of an error, in bytes. An error in the text format can quote a whole line.
const ERROR_BYTES_MAX: usize = 8 << 10;

/// Why a program was not compiled.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It is not valid, for this reason.
    Invalid(String),
    /// The gate refused it.
    TooComplex(Excess),
    /// The compiler ran out of the memory that it may have.
    NoMemory,
    /// The compiler's process could not confine itself, for this reason; it has read nothing.
    NotConfined(String),
}

/// The program as a binary module that the gate has passed.
pub(crate) fn prepare(bytes: &[u8]) -> Result<Cow<'_, [u8]>, Refusal> {
    let binary = wat::parse_bytes(bytes).map_err(|error| Refusal::Invalid(text(&error)))?;
    complexity::check(&binary).map_err(Refusal::TooComplex)?;
    Ok(binary)
}

/// What an error of the compiler means.
pub(crate) fn failure(error: &wasmtime::Error) -> Refusal {
    let no_memory = |cause: &std::io::Error| cause.kind() == std::io::ErrorKind::OutOfMemory;
    if error.is::<OutOfMemory>()
        || error.chain().any(|cause| cause.downcast_ref().is_some_and(no_memory))
    {
        return Refusal::NoMemory;
    }
    Refusal::Invalid(text(error))
}

fn text(error: &impl std::fmt::Display) -> String {
    Bounded::show(error, ERROR_BYTES_MAX).unwrap_or_else(|beginning| beginning + "…")
}
