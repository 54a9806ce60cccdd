//! The system calls that the compiler's process may make: a list, and everything else does not
//! exist (`ENOSYS`).
//!
//! The list has what an allocator, threads and the three open files need. With it the process can
//! compute, read the program and write its result. It cannot open a file or a socket, start a
//! process, signal or trace another one, map executable or shared memory, or change its own limits.
//!
//! `ENOSYS`, and not the end of the process: the C library asks for newer calls (`clone3`) and
//! falls back.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

/// Calls without conditions.
const ALLOWED: &[libc::c_long] = &[
    // Memory.
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    // Threads.
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_exit,
    libc::SYS_exit_group,
    // The open files.
    libc::SYS_read,
    libc::SYS_pread64,
    libc::SYS_write,
    libc::SYS_pwrite64,
    libc::SYS_writev,
    libc::SYS_close,
    // Signals of its own: a fault, an abort.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    // Clocks, seeds of hash tables.
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_getrandom,
];

/// Confines this process, and all of its threads, for good.
pub(crate) fn apply() -> Result<(), String> {
    let filter = filter(std::process::id()).map_err(|error| error.to_string())?;
    seccompiler::apply_filter_all_threads(&filter).map_err(|error| error.to_string())
}

fn filter(pid: u32) -> Result<BpfProgram, seccompiler::BackendError> {
    let has = |argument: u8, mask: libc::c_int, bits: libc::c_int| {
        let comparison = SeccompCmpOp::MaskedEq(u64::from(mask.unsigned_abs()));
        SeccompCondition::new(
            argument,
            SeccompCmpArgLen::Dword,
            comparison,
            u64::from(bits.unsigned_abs()),
        )
    };
    let is = |argument: u8, value: u32| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, u64::from(value))
    };
    let thread = libc::CLONE_VM | libc::CLONE_THREAD;
    let conditional = [
        // Private and not executable. `MAP_SHARED_VALIDATE` has the bit of `MAP_SHARED`.
        (libc::SYS_mmap, vec![has(2, libc::PROT_EXEC, 0)?, has(3, libc::MAP_SHARED, 0)?]),
        (libc::SYS_mprotect, vec![has(2, libc::PROT_EXEC, 0)?]),
        (libc::SYS_clone, vec![has(0, thread, thread)?]),
        (libc::SYS_tgkill, vec![is(0, pid)?]),
        (libc::SYS_prctl, vec![is(0, libc::PR_SET_NAME.unsigned_abs())?]),
    ];
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        ALLOWED.iter().map(|number| (*number, Vec::new())).collect();
    for (number, conditions) in conditional {
        rules.insert(number, vec![SeccompRule::new(conditions)?]);
    }
    let no_such_call = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    SeccompFilter::new(
        rules,
        no_such_call,
        SeccompAction::Allow,
        std::env::consts::ARCH.try_into()?,
    )?
    .try_into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io;
    use std::net::UdpSocket;
    use std::os::unix::net::UnixStream;
    use std::process::Command;

    /// Guarantee: sandbox/compile-confined
    #[test]
    fn files_sockets_and_processes_do_not_exist() {
        let filter = filter(std::process::id()).unwrap();
        let refused =
            |error: io::Error| assert_eq!(error.raw_os_error(), Some(libc::ENOSYS), "{error}");
        let confined = move || {
            // This thread only.
            seccompiler::apply_filter(&filter).unwrap();
            refused(File::open("/dev/null").unwrap_err());
            refused(std::fs::read_dir("/").unwrap_err());
            refused(std::fs::metadata("/").unwrap_err());
            refused(std::fs::remove_file("/nowhere").unwrap_err());
            refused(UdpSocket::bind("127.0.0.1:0").unwrap_err());
            refused(UnixStream::pair().unwrap_err());
            refused(Command::new("/bin/true").status().unwrap_err());
            // What compiling needs is there.
            let memory = std::thread::spawn(|| vec![1_u8; 8 << 20].len());
            assert_eq!(memory.join().unwrap(), 8 << 20);
        };
        std::thread::spawn(confined).join().unwrap();
    }
}
