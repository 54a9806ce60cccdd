//! The table of calls for the programs in the kernel: by number, for each door.

use super::layout::{FACT_MAPPING, FACT_MORE_ARGUMENTS, FACTS, MAJORS};
use crate::devices::is_terminal;
use crate::{Abi, call_name, descriptor_argument};

/// Calls with three arguments at most, among those that are made most often: their records are
/// smaller.
const FEW_ARGUMENTS: [&str; 50] = [
    "access",
    "alarm",
    "arch_prctl",
    "brk",
    "chdir",
    "chmod",
    "clock_gettime",
    "close",
    "connect",
    "dup",
    "dup2",
    "dup3",
    "fchmod",
    "fcntl",
    "fcntl64",
    "fdatasync",
    "flock",
    "fstat",
    "fstat64",
    "fsync",
    "ftruncate",
    "getdents",
    "getdents64",
    "getegid",
    "geteuid",
    "getgid",
    "getpid",
    "getppid",
    "gettid",
    "gettimeofday",
    "getuid",
    "ioctl",
    "kill",
    "lseek",
    "lstat",
    "lstat64",
    "madvise",
    "mprotect",
    "munmap",
    "nanosleep",
    "open",
    "poll",
    "read",
    "readlink",
    "readv",
    "sched_yield",
    "stat",
    "stat64",
    "write",
    "writev",
];

/// Of 64-bit calls, with those that only x32 has behind them.
pub(super) fn facts_64() -> [u8; FACTS] {
    let own_numbers_of_x32 = 512;
    std::array::from_fn(|number| {
        facts_of(if number < own_numbers_of_x32 { Abi::X86_64 } else { Abi::X32 }, number as u32)
    })
}

/// Of 32-bit calls.
pub(super) fn facts_32() -> [u8; FACTS] {
    std::array::from_fn(|number| facts_of(Abi::I386, number as u32))
}

/// Major numbers of terminals, as bits.
pub(super) fn terminals() -> [u64; MAJORS / 64] {
    std::array::from_fn(|word| {
        let is_set = |bit: &u32| is_terminal(word as u32 * 64 + bit);
        (0..64).filter(is_set).fold(0, |bits, bit| bits | 1 << bit)
    })
}

fn facts_of(abi: Abi, number: u32) -> u8 {
    let name = call_name(abi, number);
    let descriptor = descriptor_argument(abi, number).map_or(0, |argument| argument as u8 + 1);
    let mapping =
        if descriptor != 0 && matches!(&*name, "mmap" | "mmap2") { FACT_MAPPING } else { 0 };
    let arguments = if FEW_ARGUMENTS.contains(&&*name) { 0 } else { FACT_MORE_ARGUMENTS };
    descriptor | mapping | arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The descriptor is taken from the same argument as in the BPF programs.
    #[test]
    fn descriptor_argument_matches_bpf_programs() {
        let (facts_64, facts_32) = (facts_64(), facts_32());
        for facts in facts_64.iter().chain(&facts_32) {
            assert!(matches!(facts & 7, 0 | 1 | 2 | 5));
        }
        assert_eq!(facts_64[0], 1);
        assert_eq!(facts_64[9], 5 | FACT_MAPPING | FACT_MORE_ARGUMENTS);
        assert_eq!(facts_32[90], FACT_MORE_ARGUMENTS);
        assert_eq!(facts_32[192], 5 | FACT_MAPPING | FACT_MORE_ARGUMENTS);
    }

    /// Guarantee: trace/descriptors
    #[test]
    fn the_programs_in_the_kernel_know_the_same_terminals() {
        let terminals = terminals();
        for major in 0..MAJORS as u32 {
            let bit = terminals[major as usize / 64] >> (major % 64) & 1;
            assert_eq!(bit == 1, is_terminal(major), "{major}");
        }
        assert!((256..1 << 12).all(|major| !is_terminal(major)));
    }
}
