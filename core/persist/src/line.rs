//! The instructions of this processor that write lines of its caches back to memory, and wait for
//! it. For another kind of processor this is the module to add to; where there is no instruction,
//! nothing can be persisted and [`instruction`] says so.

#![allow(
    unsafe_code,
    reason = "write-back is done by instructions that the language does not have"
)]

#[cfg(target_arch = "x86_64")]
use core::arch::asm;
#[cfg(target_arch = "x86_64")]
use core::sync::atomic::{AtomicU8, Ordering};

#[cfg(target_arch = "x86_64")]
use crate::LINE_BYTES;

/// What writes a line back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Instruction {
    /// Writes back and keeps the line in the cache.
    Clwb,
    /// Writes back and drops the line: the next load fetches it from memory.
    ClflushOpt,
    /// As `ClflushOpt`, one line after the other; every x86-64 has it.
    Clflush,
}

/// The best one that this processor has; `None` where there is none, and nothing reaches memory on
/// demand.
#[must_use]
#[inline]
pub fn instruction() -> Option<Instruction> {
    #[cfg(target_arch = "x86_64")]
    return Some(match best() {
        CLWB => Instruction::Clwb,
        CLFLUSHOPT => Instruction::ClflushOpt,
        _ => Instruction::Clflush,
    });
    #[cfg(not(target_arch = "x86_64"))]
    None
}

#[cfg(target_arch = "x86_64")]
const CLFLUSH: u8 = 1;
#[cfg(target_arch = "x86_64")]
const CLFLUSHOPT: u8 = 2;
#[cfg(target_arch = "x86_64")]
const CLWB: u8 = 3;

/// Asked once: in a virtual machine `cpuid` is an exit to the hypervisor.
#[cfg(target_arch = "x86_64")]
#[inline]
fn best() -> u8 {
    static BEST: AtomicU8 = AtomicU8::new(0);
    match BEST.load(Ordering::Relaxed) {
        0 => {
            let found = ask();
            BEST.store(found, Ordering::Relaxed);
            found
        }
        known => known,
    }
}

#[cfg(target_arch = "x86_64")]
#[cold]
fn ask() -> u8 {
    use core::arch::x86_64::{__cpuid, __cpuid_count};
    if __cpuid(0).eax < 7 {
        return CLFLUSH;
    }
    // Intel SDM volume 2, CPUID leaf 7, sub-leaf 0.
    let features = __cpuid_count(7, 0).ebx;
    match features {
        _ if features & 1 << 24 != 0 => CLWB,
        _ if features & 1 << 23 != 0 => CLFLUSHOPT,
        _ => CLFLUSH,
    }
}

/// Starts to write back every line that has a byte of `[start, start + bytes)`. [`drain`] waits for
/// it.
///
/// # Safety
/// The range must be mapped for reading.
#[inline]
pub unsafe fn write_back(start: *const u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        if bytes == 0 {
            return;
        }
        let (first, end) = (start as usize / LINE_BYTES * LINE_BYTES, start as usize + bytes);
        let best = best();
        for line in (first..end).step_by(LINE_BYTES) {
            // SAFETY: the line has a byte of the range, which is mapped (by the contract), and so
            // is the whole line: pages are multiples of lines. No register but the one named is
            // used, and no byte changes. The compiler keeps stores in front of it, as it may read
            // memory.
            unsafe {
                match best {
                    CLWB => asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags)),
                    CLFLUSHOPT => {
                        asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags))
                    }
                    _ => asm!("clflush [{}]", in(reg) line, options(nostack, preserves_flags)),
                }
            }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (start, bytes);
}

/// Waits until everything that [`write_back`] of this thread started has arrived, and orders later
/// stores behind it.
#[inline]
pub fn drain() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction has no operand and changes nothing; the compiler moves no access
    // across it.
    unsafe {
        asm!("sfence", options(nostack, preserves_flags));
    }
}

/// [`write_back`], then [`drain`].
///
/// # Safety
/// As [`write_back`].
#[inline]
pub unsafe fn persist(start: *const u8, bytes: usize) {
    // SAFETY: per the contract.
    unsafe { write_back(start, bytes) };
    drain();
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    /// Write back changes no byte wherever a range begins and ends.
    #[test]
    fn write_back_of_any_range_changes_no_byte() {
        let bytes: [u8; 4 * LINE_BYTES] = core::array::from_fn(|at| at as u8);
        for start in [0, 1, 63, 64, 65] {
            for len in [0, 1, 63, 64, 65, 128] {
                // SAFETY: inside the array: the last one ends at 65 + 128.
                unsafe { persist(bytes.as_ptr().add(start), len) };
            }
        }
        assert!(bytes.iter().enumerate().all(|(at, byte)| *byte == at as u8));
    }

    /// There is always an instruction and it stays the same.
    #[test]
    fn an_instruction_exists_and_never_changes() {
        assert!(instruction().is_some());
        assert_eq!(instruction(), instruction());
    }
}
