//! The instructions and system calls of x86-64 Linux.
//!
//! Invariant: RDPKRU and WRPKRU are executed only where the kernel has switched them on; they are
//! undefined instructions elsewhere.

use core::arch::asm;
use core::arch::x86_64::{__cpuid_count, __get_cpuid_max};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, Ordering};

use crate::KeyError;

const SYS_PKEY_MPROTECT: usize = 329;
const SYS_PKEY_ALLOC: usize = 330;
const DISABLE_ACCESS: usize = 1;
const PROT_READ: usize = 1;
const PROT_WRITE: usize = 2;
const EINVAL: i32 = 22;
const ENOSPC: i32 = 28;
const ENOSYS: i32 = 38;
/// CPUID leaf 7, ECX: the kernel has switched keys on.
const OSPKE: u32 = 1 << 4;

/// Whether processor and kernel offer keys.
#[must_use]
pub fn is_offered() -> bool {
    const UNKNOWN: u8 = 0;
    const NO: u8 = 1;
    const YES: u8 = 2;
    /// CPUID is slow in a virtual machine.
    static OFFERED: AtomicU8 = AtomicU8::new(UNKNOWN);
    match OFFERED.load(Ordering::Relaxed) {
        UNKNOWN => {
            let is_offered = __get_cpuid_max(0).0 >= 7 && __cpuid_count(7, 0).ecx & OSPKE != 0;
            OFFERED.store(if is_offered { YES } else { NO }, Ordering::Relaxed);
            is_offered
        }
        known => known == YES,
    }
}

/// What the calling thread may use: two bits for each key, no access and no stores; 0 where no keys
/// are offered.
#[must_use]
pub fn read_rights() -> u32 {
    if !is_offered() {
        return 0;
    }
    let rights: u32;
    // SAFETY: the kernel has switched the instruction on; ECX must be 0, EDX becomes 0.
    unsafe {
        asm!("rdpkru", out("eax") rights, in("ecx") 0, out("edx") _, options(nomem, nostack));
    }
    rights
}

/// Says what the calling thread may use; nothing where no keys are offered. Loads and stores stay
/// on their side of it.
pub fn write_rights(rights: u32) {
    if is_offered() {
        // SAFETY: the kernel has switched the instruction on; ECX and EDX must be 0. That memory
        // is closed by it which code relies on is what the makers of keys see to
        // ([`crate::Key::protect`]).
        unsafe { asm!("wrpkru", in("eax") rights, in("ecx") 0, in("edx") 0, options(nostack)) };
    }
}

pub(crate) fn allocate() -> Result<u8, KeyError> {
    if !is_offered() {
        return Err(KeyError::NotOffered);
    }
    // SAFETY: it touches no memory.
    match unsafe { system_call(SYS_PKEY_ALLOC, [0, DISABLE_ACCESS, 0, 0]) } {
        Ok(key) => u8::try_from(key).map_err(|_| KeyError::System(EINVAL)),
        Err(ENOSPC) => Err(KeyError::NoneLeft),
        Err(ENOSYS | EINVAL) => Err(KeyError::NotOffered),
        Err(code) => Err(KeyError::System(code)),
    }
}

/// # Safety
/// As for [`crate::Key::protect`].
pub(crate) unsafe fn protect(
    start: NonNull<u8>,
    bytes: usize,
    is_writable: bool,
    key: u8,
) -> Result<(), KeyError> {
    let protection = if is_writable { PROT_READ | PROT_WRITE } else { PROT_READ };
    let arguments = [start.as_ptr().expose_provenance(), bytes, protection, usize::from(key)];
    // SAFETY: per the contract.
    unsafe { system_call(SYS_PKEY_MPROTECT, arguments) }.map(drop).map_err(KeyError::System)
}

/// A system call by its number, for code that is compiled into applets: what the kernel returns, or
/// the error's code. It leaves `errno` alone and is async-signal-safe.
///
/// # Errors
/// The kernel's.
///
/// # Safety
/// The call must be harmless with these arguments.
pub unsafe fn system_call(number: usize, arguments: [usize; 4]) -> Result<usize, i32> {
    let [first, second, third, fourth] = arguments;
    let answer: isize;
    // SAFETY: the kernel's convention on x86-64; the caller vouches for what it does.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => answer,
            in("rdi") first,
            in("rsi") second,
            in("rdx") third,
            in("r10") fourth,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    usize::try_from(answer).map_err(|_| answer.unsigned_abs() as i32)
}
