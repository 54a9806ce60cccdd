//! The methods of a VFS besides files, passed on to the base VFS as they are.

#![allow(unsafe_code, reason = "called by C, with its pointers")]

use std::ffi::{c_char, c_int, c_void};

use crate::ffi::{self, Symbol, Vfs};

/// The VFS below ours.
pub(crate) fn base_of(ours: *mut Vfs) -> *mut Vfs {
    // SAFETY: SQLite hands us the VFS that `describe` made.
    unsafe { (*ours).app_data.cast() }
}

/// One function that calls the base VFS's of the same name.
macro_rules! pass {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $result:ty = $otherwise:expr;)*) => {$(
        pub(crate) unsafe extern "C" fn $name(vfs: *mut Vfs, $($argument: $kind),*) -> $result {
            let base = base_of(vfs);
            // SAFETY: SQLite's own arguments, for a VFS that stays.
            unsafe { (*base).$name.map_or($otherwise, |function| function(base, $($argument),*)) }
        }
    )*};
}

pass! {
    full_pathname(name: *const c_char, bytes: c_int, out: *mut c_char) -> c_int = ffi::CANTOPEN;
    dl_open(name: *const c_char) -> *mut c_void = std::ptr::null_mut();
    dl_error(bytes: c_int, out: *mut c_char) -> () = ();
    dl_sym(library: *mut c_void, symbol: *const c_char) -> Symbol = None;
    dl_close(library: *mut c_void) -> () = ();
    randomness(bytes: c_int, out: *mut c_char) -> c_int = 0;
    sleep(microseconds: c_int) -> c_int = 0;
    current_time(out: *mut f64) -> c_int = ffi::ERROR;
    get_last_error(bytes: c_int, out: *mut c_char) -> c_int = 0;
    current_time_int64(out: *mut i64) -> c_int = ffi::ERROR;
    set_system_call(name: *const c_char, function: *const c_void) -> c_int = ffi::NOTFOUND;
    get_system_call(name: *const c_char) -> *const c_void = std::ptr::null();
    next_system_call(name: *const c_char) -> *const c_char = std::ptr::null();
}
