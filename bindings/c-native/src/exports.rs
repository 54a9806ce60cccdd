//! The functions that C sees and that only native programs have in this form; the others are those
//! of `holdfast-c-core`. Every `unsafe` here leans on the contract in `holdfast.h`.

#![allow(unreachable_pub, reason = "exported by symbol name")]

use std::ffi::{CStr, c_char, c_int, c_void};

use holdfast_c_core::{HeapHandle, export_calls, optional_text};
use holdfast_heap::HeapError;
use holdfast_region::Consistency;

use crate::failure::{Failure, last_code, last_text, note};
use crate::session::{self, Native};
use crate::types::{self, TypeInC};

export_calls!(Native);

/// See `holdfast_types.h`.
///
/// # Safety
/// `described` must be NULL or what `NV_TYPE` has made, which stays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nv_register_type(described: *const TypeInC) -> c_int {
    // SAFETY: the same contract.
    match unsafe { types::register(described) } {
        Ok(()) => 0,
        Err(failure) => note(&failure),
    }
}

/// See `holdfast.h`.
#[unsafe(no_mangle)]
pub extern "C" fn nv_portable(is_portable: c_int) {
    session::set_portable(is_portable != 0);
}

/// See `holdfast.h`.
///
/// # Safety
/// `name` must be NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nv_open(name: *const c_char, limit_bytes: u64) -> c_int {
    // SAFETY: the same contract.
    unsafe { open(name, limit_bytes, Consistency::Direct) }
}

/// See `holdfast.h`.
///
/// # Safety
/// As for [`nv_open`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nv_open_atomic(name: *const c_char, limit_bytes: u64) -> c_int {
    // SAFETY: the same contract.
    unsafe { open(name, limit_bytes, Consistency::Atomic) }
}

/// # Safety
/// As for [`nv_open`].
unsafe fn open(name: *const c_char, limit_bytes: u64, mode: Consistency) -> c_int {
    let name = match name.is_null() {
        true => None,
        // SAFETY: not NULL, so a C string by the contract.
        false => match unsafe { CStr::from_ptr(name) }.to_str() {
            Ok(name) => Some(name),
            Err(_) => return note(&Failure::Call(HeapError::BadName.into())),
        },
    };
    session::open(name, limit_bytes, mode).err().unwrap_or(0)
}

/// See `holdfast.h`.
///
/// # Safety
/// As for [`nv_open`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nv_heap_open(name: *const c_char) -> HeapHandle {
    // SAFETY: the same contract.
    match unsafe { optional_text(name) } {
        Ok(name) => session::open_other(name).unwrap_or(HeapHandle::NONE),
        Err(error) => {
            note(&Failure::Call(error));
            HeapHandle::NONE
        }
    }
}

/// See `holdfast.h`.
#[unsafe(no_mangle)]
pub extern "C" fn nv_heap_close(heap: HeapHandle) -> c_int {
    session::close_other(heap).err().unwrap_or(0)
}

/// See `holdfast.h`.
///
/// # Safety
/// As for [`nv_open`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nv_compartment_enter(name: *const c_char) -> c_int {
    // SAFETY: the same contract.
    match unsafe { optional_text(name) } {
        Ok(name) => session::enter_compartment(name).err().unwrap_or(0),
        Err(error) => note(&Failure::Call(error)),
    }
}

/// See `holdfast.h`.
#[unsafe(no_mangle)]
pub extern "C" fn nv_compartment_leave() -> c_int {
    session::leave_compartment().err().unwrap_or(0)
}

/// See `holdfast.h`.
#[unsafe(no_mangle)]
pub extern "C" fn nv_close() -> c_int {
    session::close().err().unwrap_or(0)
}

/// See `holdfast.h`.
#[unsafe(no_mangle)]
pub extern "C" fn nv_set_limit(limit_bytes: u64) -> c_int {
    session::set_limit(limit_bytes).err().unwrap_or(0)
}

/// See `holdfast.h`.
#[unsafe(no_mangle)]
pub extern "C" fn nv_session() -> u64 {
    session::current()
}

/// See `holdfast.h`.
#[unsafe(no_mangle)]
pub extern "C" fn nv_rollback() -> c_int {
    session::roll_back_to_commit().err().unwrap_or(0)
}

/// See `holdfast.h`.
#[unsafe(no_mangle)]
pub extern "C" fn nv_errno() -> c_int {
    last_code()
}

/// See `holdfast.h`.
#[unsafe(no_mangle)]
pub extern "C" fn nv_message() -> *const c_char {
    last_text()
}
