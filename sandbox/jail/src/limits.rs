//! The limits of a jailed program. Nothing here says how a limit is enforced.

#![forbid(unsafe_code)]

use std::time::Duration;

/// What a jailed program may use up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JailLimits {
    /// Address space, reservations included: bytes. The channel's and the region's mappings count.
    pub address_space_bytes: u64,
    /// Of that, what is for the program alone (its data, its threads' stacks, private mappings that
    /// it may store to): bytes. It bounds programs that allocate as programs do. One that gives back
    /// what it shares with the host, and makes memory of its own read-only for a moment, gets as much
    /// as the address space has: only a control group counts what is in use.
    pub private_bytes: u64,
    /// Memory in use, if there is a limit: bytes. Only a control group can count it
    /// ([`Layer::ControlGroup`]).
    ///
    /// [`Layer::ControlGroup`]: crate::Layer::ControlGroup
    pub memory_bytes: Option<u64>,
    /// CPU time of all its threads together.
    pub cpu_time: Option<Duration>,
    /// Time from the start to the end.
    pub wall_time: Option<Duration>,
    /// Files that it may have open at once besides the descriptors that it is given.
    pub open_files: u32,
    /// Threads that it may have at once, the first one included. Without a user name space the
    /// supervisor alone counts: threads that others of the program's start at the same moment are
    /// not there yet when it does, so that there may be more, but fewer than twice as many.
    pub threads: u32,
    /// The size that it may make a file: bytes. 0 without granted directories, whatever is said
    /// here.
    pub file_size_bytes: u64,
    /// Bytes of one stack.
    pub stack_bytes: u64,
    /// Politeness of its threads towards others, 0 to 19.
    pub nice: i32,
    /// What it may write to standard output and standard error together: bytes. One more ends it.
    pub output_bytes: u64,
    /// System calls that it may make the supervisor decide on.
    pub questions: u64,
}

impl Default for JailLimits {
    /// 64 GiB of address space, 256 files, 64 threads, 256 MiB of output, a million questions; no
    /// limit of time.
    fn default() -> JailLimits {
        JailLimits {
            address_space_bytes: 64 << 30,
            private_bytes: u64::MAX,
            memory_bytes: None,
            cpu_time: None,
            wall_time: None,
            open_files: 256,
            threads: 64,
            file_size_bytes: 1 << 30,
            stack_bytes: 8 << 20,
            nice: 0,
            output_bytes: 256 << 20,
            questions: 1_000_000,
        }
    }
}
