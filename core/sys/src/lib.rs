//! The only crate with raw system calls: mappings, files, locks, faults, processes, kernel probes.
//!
//! One noun per module. Nothing here knows what a region or an applet is; everything returns
//! `io::Error` with the kernel's code and leaves the wording to its callers. This is the crate to
//! edit for a port.

pub mod biased_lock;
pub mod child;
pub mod counted;
pub mod directory;
pub mod dirty;
pub mod fault;
pub mod file;
pub mod file_size_signal;
pub mod futex;
pub mod lease;
pub mod lock;
pub mod machine;
pub mod mapping;
pub mod memory_file;
pub mod mounts;
pub mod outlet;
pub mod own_pid;
mod page_set;
pub mod private;
pub mod private_group;
pub mod probe;
pub mod process;
pub mod program;
#[cfg(target_arch = "x86_64")]
pub mod ptrace;
pub mod quiet_thread;
pub mod remote_memory;
pub mod scheduling;
pub mod seccomp;
pub mod shared_memory;
pub mod shortage;
#[cfg(target_arch = "x86_64")]
pub mod spawn;
pub mod special_bits;
pub mod terminal;
pub mod thread_barrier;
pub mod thread_mark;
pub mod thread_stack;
pub mod window;
pub mod worker;
pub mod write_out;
pub mod zeroed;
