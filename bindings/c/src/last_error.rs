//! The code of each thread's last failure.

use core::ffi::c_int;

use crate::thread;

/// Remembers a code, and returns it.
pub(crate) fn note(code: c_int) -> c_int {
    thread::change(|own| own.last_error = code);
    code
}

pub(crate) fn last() -> c_int {
    thread::own().last_error
}
