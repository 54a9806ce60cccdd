//! Protection keys of the processor (PKU): memory that a thread opens and closes for itself, in a
//! few nanoseconds and without a system call.
//!
//! A range of memory gets one of 15 keys by a system call ([`Key::protect`]). Each thread has a
//! register that says which keys it may use ([`Key::open`], [`Key::close`]); a new thread has its
//! maker's, a signal handler none. An access that the register forbids is a SIGSEGV with the code
//! `SEGV_PKUERR` ([`FORBIDDEN`]); so is one that the kernel makes on the thread's behalf an EFAULT.
//! pkeys(7) describes the system calls, the Intel 64 and IA-32 Architectures Software Developer's
//! Manual, volume 3, the register.
//!
//! What keys are worth: they stop a thread that strays, not one that wants in. The instruction that
//! writes the register is open to all code, as is the system call that takes a key from a range.
//!
//! Invariants: system calls and instructions only; no allocation, no `errno`, no standard library:
//! it is compiled into applets, too. Elsewhere than on x86-64 Linux nothing is offered.

#![no_std]
#![deny(unsafe_code)]

#[cfg(test)]
extern crate std;

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[allow(unsafe_code, reason = "instructions and system calls")]
mod x86;

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub use x86::{is_offered, read_rights, system_call, write_rights};

use core::fmt;
use core::ptr::NonNull;

/// The code of a SIGSEGV for an access that the thread's register forbids: `SEGV_PKUERR`.
pub const FORBIDDEN: i32 = 4;

/// One of the keys of this process. It is not given back: while memory has it, another range must
/// not get it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(u8);

/// Why there is no key, or why memory did not get it; the system's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyError {
    /// Neither the processor nor the kernel, or not this program's sandbox.
    NotOffered,
    /// All 15 are in use.
    NoneLeft,
    /// The system said no.
    System(i32),
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotOffered => f.write_str("there are no protection keys here"),
            Self::NoneLeft => f.write_str("all protection keys of this process are in use"),
            Self::System(code) => write!(f, "the system refused a protection key (code {code})"),
        }
    }
}

impl core::error::Error for KeyError {}

impl Key {
    /// A key that nothing has yet, closed for the calling thread. Threads that are there already
    /// have never opened it.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn allocate() -> Result<Key, KeyError> {
        #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
        return x86::allocate().map(Key);
        #[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
        Err(KeyError::NotOffered)
    }

    /// The key with a number that the kernel tells: of a fault, say.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Key> {
        u8::try_from(number).ok().filter(|number| (1..16).contains(number)).map(Key)
    }

    /// Puts a range under the key, in place of the one that it had. Threads that have not opened
    /// the key can neither read nor write there from now on.
    ///
    /// # Errors
    /// [`KeyError`]; the range is as it was.
    ///
    /// # Safety
    /// The range, of whole pages, must be the caller's, readable and, with `is_writable`, such that
    /// it may be writable; no thread that has not opened the key may rely on reaching it.
    #[allow(unsafe_code, reason = "the caller vouches for the range")]
    pub unsafe fn protect(
        self,
        start: NonNull<u8>,
        bytes: usize,
        is_writable: bool,
    ) -> Result<(), KeyError> {
        #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
        // SAFETY: the same contract.
        return unsafe { x86::protect(start, bytes, is_writable, self.0) };
        #[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
        {
            let _ = (start, bytes, is_writable);
            Err(KeyError::NotOffered)
        }
    }

    /// Lets the calling thread use the key.
    pub fn open(self) {
        #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
        write_rights(read_rights() & !self.bits());
    }

    /// The calling thread can use it no more.
    pub fn close(self) {
        #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
        write_rights(read_rights() | self.bits());
    }

    /// Whether the calling thread may use it.
    #[must_use]
    pub fn is_open(self) -> bool {
        #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
        return read_rights() & self.bits() == 0;
        #[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
        false
    }

    /// Its two bits of the register: no access, and no stores.
    #[must_use]
    pub fn bits(self) -> u32 {
        0b11 << (2 * u32::from(self.0))
    }
}

/// Whether processor and kernel offer keys.
#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
#[must_use]
pub fn is_offered() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_two_bits_of_its_own() {
        let keys: std::vec::Vec<_> = (0..20).filter_map(Key::from_number).collect();
        assert_eq!(keys.len(), 15, "key 0 is that of all other memory");
        let all = keys.iter().fold(0_u32, |all, key| {
            assert_eq!((all & key.bits(), key.bits().count_ones()), (0, 2));
            all | key.bits()
        });
        assert_eq!(all, 0xffff_fffc);
    }

    /// Where the processor has keys, memory under one is closed to the thread that has not opened
    /// it; the kernel says so without a fault.
    ///
    /// Guarantee: applets/protection-keys
    #[test]
    #[allow(unsafe_code, reason = "maps a page and asks the kernel to write to it")]
    fn a_key_closes_memory_for_a_thread() {
        let key = match Key::allocate() {
            Ok(key) => key,
            Err(error) => {
                assert!(!is_offered(), "{error}, and the processor has keys");
                std::eprintln!("not run: the processor has no protection keys");
                return;
            }
        };
        let page = std::boxed::Box::leak(std::boxed::Box::new(Page([7; 4096])));
        let start = NonNull::from(&mut page.0[0]);
        // SAFETY: the page is this test's, which opens the key before it looks.
        unsafe { key.protect(start, 4096, true) }.unwrap();
        assert!(!key.is_open());
        // The kernel refuses to read for the thread what that may not read itself.
        let read = || {
            let (_reader, mut writer) = std::io::pipe().unwrap();
            // SAFETY: the page is live; the kernel looks whether it can be read.
            let bytes = unsafe { core::slice::from_raw_parts(start.as_ptr(), 16) };
            std::io::Write::write(&mut writer, bytes)
        };
        assert!(read().is_err(), "the page is closed");
        key.open();
        assert!(key.is_open());
        // SAFETY: the page is live, and open to this thread.
        assert_eq!(unsafe { start.as_ptr().read_volatile() }, 7);
        let inherited = std::thread::spawn(move || key.is_open()).join().unwrap();
        assert!(inherited, "a new thread has its maker's rights");
        key.close();
        assert!(!std::thread::spawn(move || key.is_open()).join().unwrap());
    }

    #[repr(align(4096))]
    struct Page([u8; 4096]);
}
