//! The functions of `holdfast_applet.h`. Every `unsafe` here leans on the contract in the header: a
//! call is one that is under way, and not used by two at once; pointers are valid where it does not
//! allow NULL.

#![allow(unreachable_pub, reason = "exported by symbol name")]

use core::ffi::{CStr, c_char, c_int, c_void};
use core::fmt;

use holdfast_c_core::Code;
use holdfast_guest::{
    Call, ExportError, Failure, HostCallError, HostFunction, HostResult, ReplyError, ServeError,
    export, seal, serve_keeping,
};

use crate::heap::{ServedHeap, code_of};
use crate::last_error::note;

/// `holdfast_function`.
type Function = unsafe extern "C" fn(call: *mut Call<'_>, context: *mut c_void) -> c_int;

#[derive(Clone, Copy)]
struct Exported {
    function: Function,
    context: *mut c_void,
}

// SAFETY: the function is called by the thread that serves, with a context that the program has
// made for it.
unsafe impl Send for Exported {}
// SAFETY: as above.
unsafe impl Sync for Exported {}

impl Exported {
    fn run(&self, call: &mut Call<'_>) -> Result<(), Failure> {
        // SAFETY: per the header, it is a function that takes both, and comes back.
        match unsafe { (self.function)(call, self.context) } {
            0 => Ok(()),
            code => Err(Failure::from_code(code)),
        }
    }
}

fn status<E>(result: Result<(), E>, code: impl FnOnce(E) -> Code) -> c_int {
    result.map_or_else(|error| note(code(error).number()), |()| 0)
}

fn call_code(error: ReplyError) -> Code {
    match error {
        ReplyError::Replied => Code::Replied,
        ReplyError::NoMemory => Code::NoMemory,
        ReplyError::TooLarge { .. } => Code::TooLarge,
        ReplyError::Cancelled => Code::Cancelled,
        _ => Code::Failed,
    }
}

fn serve_code(error: ServeError) -> Code {
    match error {
        ServeError::NoHost => Code::NoHost,
        ServeError::Heap(error) => code_of(error),
        _ => Code::Failed,
    }
}

/// # Safety
/// `size` bytes from `bytes` must be readable for as long as the result is used; NULL is allowed
/// for none.
unsafe fn slice<'a>(bytes: *const c_void, size: usize) -> &'a [u8] {
    if size == 0 {
        return &[];
    }
    // SAFETY: per the contract.
    unsafe { core::slice::from_raw_parts(bytes.cast(), size) }
}

/// See `holdfast_applet.h`.
///
/// # Safety
/// `name` must be NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_export(
    name: *const c_char,
    function: Option<Function>,
    context: *mut c_void,
) -> c_int {
    let (Some(function), false) = (function, name.is_null()) else {
        return note(Code::BadExport.number());
    };
    // SAFETY: not NULL, so a C string by the contract.
    let Ok(name) = unsafe { CStr::from_ptr(name) }.to_str() else {
        return note(Code::BadExport.number());
    };
    let exported = Exported { function, context };
    status(export(name, move |call: &mut Call<'_>| exported.run(call)), |error| match error {
        ExportError::NoMemory => Code::NoMemory,
        _ => Code::BadExport,
    })
}

/// See `holdfast_applet.h`.
#[unsafe(no_mangle)]
pub extern "C" fn holdfast_serve() -> c_int {
    status(serve_keeping(&mut ServedHeap), serve_code)
}

/// See `holdfast_applet.h`.
#[unsafe(no_mangle)]
pub extern "C" fn holdfast_seal() -> c_int {
    status(seal(), serve_code)
}

/// See `holdfast_applet.h`.
///
/// # Safety
/// As the header says; `size` NULL or a pointer to a `size_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_input(call: *const Call<'_>, size: *mut usize) -> *const c_void {
    // SAFETY: per the contract.
    let input = unsafe { &*call }.input();
    // SAFETY: per the contract.
    if let Some(size) = unsafe { size.as_mut() } {
        *size = input.len();
    }
    input.as_ptr().cast()
}

/// See `holdfast_applet.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_reply(
    call: *mut Call<'_>,
    bytes: *const c_void,
    size: usize,
) -> c_int {
    // SAFETY: per the contract.
    status(unsafe { (*call).reply(slice(bytes, size)) }, call_code)
}

/// See `holdfast_applet.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_send(
    call: *mut Call<'_>,
    bytes: *const c_void,
    size: usize,
) -> c_int {
    // SAFETY: per the contract.
    status(unsafe { (*call).send(slice(bytes, size)) }, call_code)
}

/// A text of C, in which what is no UTF-8 is shown as such.
struct Text<'a>(&'a [u8]);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            f.write_str(chunk.valid())?;
            if !chunk.invalid().is_empty() {
                f.write_str("\u{fffd}")?;
            }
        }
        Ok(())
    }
}

/// See `holdfast_applet.h`.
///
/// # Safety
/// As the header says; `message` NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_fail(call: *mut Call<'_>, message: *const c_char) -> c_int {
    // SAFETY: per the contract.
    let message = if message.is_null() { c"" } else { unsafe { CStr::from_ptr(message) } };
    // SAFETY: per the contract.
    unsafe { (*call).fail(1, Text(message.to_bytes())) }.code()
}

/// See `holdfast_applet.h`.
///
/// # Safety
/// As the header says; `size` NULL or a pointer to a `size_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_buffer(call: *const Call<'_>, size: *mut usize) -> *mut c_void {
    // SAFETY: per the contract.
    let buffer = unsafe { &*call }.buffer();
    // SAFETY: per the contract.
    if let Some(size) = unsafe { size.as_mut() } {
        *size = buffer.map_or(0, |buffer| buffer.len());
    }
    buffer.map_or(core::ptr::null_mut(), |buffer| buffer.as_ptr().cast())
}

/// See `holdfast_applet.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_cancelled(call: *mut Call<'_>) -> c_int {
    // SAFETY: per the contract.
    c_int::from(unsafe { &*call }.is_cancelled())
}

/// `holdfast_result`.
#[repr(C)]
pub struct RawResult {
    bytes: *mut u8,
    size: usize,
    reserved: usize,
    code: c_int,
}

impl RawResult {
    /// Takes the result out; what stays is empty.
    fn take(&mut self) -> HostResult {
        let parts = (self.bytes, self.size, self.reserved);
        (self.bytes, self.size, self.reserved, self.code) = (core::ptr::null_mut(), 0, 0, 0);
        // SAFETY: per the header it is zero, or what `put` has stored; and it is zero from now on.
        unsafe { HostResult::from_parts(parts) }
    }

    fn put(&mut self, result: HostResult, code: c_int) {
        (self.bytes, self.size, self.reserved) = result.into_parts();
        self.code = code;
    }
}

fn host_code(error: HostCallError) -> Code {
    match error {
        HostCallError::NoHost => Code::NoHost,
        HostCallError::NotGranted => Code::NoFunction,
        HostCallError::TooLarge { .. } => Code::TooLarge,
        HostCallError::NoMemory => Code::NoMemory,
        HostCallError::Failed { .. } | HostCallError::NotRun { .. } => Code::HostFunction,
        _ => Code::Failed,
    }
}

/// See `holdfast_applet.h`.
///
/// # Safety
/// `name` must be NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_import(name: *const c_char) -> c_int {
    // SAFETY: not NULL where it is looked at, so a C string by the contract.
    let name = if name.is_null() { None } else { unsafe { CStr::from_ptr(name) }.to_str().ok() };
    let found = name.ok_or(Code::BadName).and_then(|name| {
        let function = HostFunction::import(name).map_err(host_code)?;
        c_int::try_from(function.number()).map_err(|_| Code::NoFunction)
    });
    found.unwrap_or_else(|code| -note(code.number()))
}

/// See `holdfast_applet.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_call_host(
    function: c_int,
    bytes: *const c_void,
    size: usize,
    result: *mut RawResult,
) -> c_int {
    // SAFETY: per the contract.
    let (input, raw) = unsafe { (slice(bytes, size), &mut *result) };
    let mut result = raw.take();
    let called = match u32::try_from(function) {
        Ok(number) => HostFunction::from_number(number).call_into(input, &mut result),
        Err(_) => Err(HostCallError::NotGranted),
    };
    let code = if let Err(HostCallError::Failed { code, .. }) = called { code } else { 0 };
    raw.put(result, code);
    status(called, host_code)
}

/// See `holdfast_applet.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_result_free(result: *mut RawResult) {
    // SAFETY: per the contract.
    drop(unsafe { &mut *result }.take());
}
