//! The BPF backend: programs in the kernel that record each call with the exact split of its time, at some 0.2 us a call.
//!
//! What a record says is decided in the kernel (`bpf/trace.bpf.c`); here the programs are loaded, the first threads are named to
//! them, and their records become events.
//!
//! Invariants:
//! - The traced program never waits for the tracer. What finds no room in the buffer between them is counted, and told as
//!   [`crate::Event::Lost`].
//! - The programs live as long as the tracer: if it is killed, the kernel removes them, and what was traced goes on.

#[cfg(bpf_programs)]
mod cost;
#[cfg(bpf_programs)]
mod facts;
#[cfg(bpf_programs)]
mod groups;
#[cfg(bpf_programs)]
mod layout;
#[cfg(bpf_programs)]
mod programs;
#[cfg(bpf_programs)]
mod record;
#[cfg(bpf_programs)]
mod session;

use crate::{Backend, Result, Settings};

/// Bytes of the buffer between the kernel and the tracer: some 150,000 calls.
pub const BUFFER_BYTES: u32 = 16 << 20;

/// The backend, loaded and ready. The buffer's size is a power of two and a multiple of the size of a page.
///
/// # Errors
/// [`crate::TraceError::Unavailable`]: this user may not, the kernel cannot, or it was built without.
#[cfg(bpf_programs)]
pub fn bpf(settings: Settings, buffer_bytes: u32) -> Result<Box<dyn Backend>> {
    let options = programs::Options { buffer_bytes, only_copies: false };
    Ok(Box::new(session::Session::new(settings, options)?))
}

/// This was built without it.
///
/// # Errors
/// Always [`crate::TraceError::Unavailable`].
#[cfg(not(bpf_programs))]
pub fn bpf(_settings: Settings, _buffer_bytes: u32) -> Result<Box<dyn Backend>> {
    let why = if cfg!(target_arch = "x86_64") {
        "this holdfast was built without the BPF backend: install clang and build again"
    } else {
        "the BPF backend is for x86-64 only"
    };
    Err(crate::TraceError::Unavailable { backend: "bpf", why: why.to_owned() })
}
