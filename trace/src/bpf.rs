//! The BPF backend: programs in the kernel that record each call with the exact split of its time,
//! at some 0.15 us of CPU a call.
//!
//! What a record says is decided in the kernel (`bpf/trace.bpf.c`); here the programs are loaded,
//! the first threads are named to them, and their records become events.
//!
//! Invariants:
//! - The traced program never waits for the tracer. What finds no room in the buffer between them
//!   is counted, and told as [`crate::Event::Lost`].
//! - The programs live as long as the tracer: if it is killed, the kernel removes them, and what
//!   was traced goes on.

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

#[cfg(not(bpf_programs))]
mod absent;
#[cfg(all(test, bpf_programs))]
#[allow(
    unreachable_pub,
    reason = "nobody uses it here, but what it says where it is used is tested here, too"
)]
mod absent;

#[cfg(not(bpf_programs))]
pub use absent::BpfBackend;
#[cfg(bpf_programs)]
pub use session::BpfBackend;

/// Bytes of the buffer between the kernel and the tracer: some 230,000 calls.
pub const BUFFER_BYTES: u32 = 16 << 20;
