//! The functions that C sees. Every `unsafe` here leans on the contract in `holdfast.h`: pointers
//! are NULL where the header allows it and valid otherwise.
//!
//! Invariants: a function does its work inside [`Library::with`], which keeps the heap to one
//! caller at a time and notes what fails; results are written only after success.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::{NonNull, null_mut};

use crate::call_error::CallError;
use crate::calls::Calls;
use crate::codes::text_of;
use holdfast_heap::{Backing, Heap, HeapError, Root};
use holdfast_types::Durability;

/// What a C library adds: where the heap comes from, and where the last error is kept.
pub trait Library {
    /// What its heap stands on.
    type Backing: Backing;
    /// How its calls fail.
    type Error: From<CallError>;

    /// Runs `work` with the open heap, alone. Notes an error for `nv_errno` and returns its code.
    ///
    /// # Errors
    /// The code of why there is no heap, or of what `work` returned; never 0.
    fn with<R>(
        work: impl FnOnce(&mut Calls<Self::Backing>) -> Result<R, Self::Error>,
    ) -> Result<R, c_int>;

    /// Whether objects may be known by this user's number.
    ///
    /// # Errors
    /// When they are another user's, and this library tells users apart.
    fn check_user(uid: u64) -> Result<(), Self::Error> {
        let _ = uid;
        Ok(())
    }

    /// Makes everything stored so far survive the failure that a level is named after.
    ///
    /// # Errors
    /// When the level is not offered or was not reached.
    fn make_durable(heap: &mut Heap<Self::Backing>, level: Durability) -> Result<(), Self::Error>;
}

fn run<L: Library, R>(
    work: impl FnOnce(&mut Calls<L::Backing>) -> Result<R, CallError>,
) -> Result<R, c_int> {
    L::with(|calls| work(calls).map_err(L::Error::from))
}

/// As [`run`], for an object of a user.
fn run_as<L: Library, R>(
    uid: u64,
    work: impl FnOnce(&mut Calls<L::Backing>) -> Result<R, CallError>,
) -> Result<R, c_int> {
    L::with(|calls| {
        L::check_user(uid)?;
        work(calls).map_err(L::Error::from)
    })
}

fn status(result: Result<(), c_int>) -> c_int {
    result.err().unwrap_or(0)
}

fn pointer(result: Result<NonNull<u8>, c_int>) -> *mut c_void {
    result.map_or(null_mut(), |pointer| pointer.as_ptr().cast())
}

/// # Safety
/// `name` must be NULL or a C string.
unsafe fn text<'a>(name: *const c_char) -> Result<&'a str, CallError> {
    if name.is_null() {
        return Err(HeapError::BadName.into());
    }
    // SAFETY: per the contract.
    unsafe { CStr::from_ptr(name) }.to_str().map_err(|_| HeapError::BadName.into())
}

/// # Safety
/// `size` must be NULL or a pointer to a `size_t`.
unsafe fn found(root: Result<Root, c_int>, size: *mut usize) -> *mut c_void {
    if let (Ok(root), false) = (&root, size.is_null()) {
        // SAFETY: not NULL, so valid by the contract.
        unsafe { *size = root.bytes as usize };
    }
    pointer(root.map(|root| root.pointer))
}

/// See `holdfast.h`.
///
/// # Safety
/// `name` must be NULL or a C string.
pub unsafe fn nvmalloc<L: Library>(name: *const c_char, size: usize) -> *mut c_void {
    pointer(run::<L, _>(|calls| {
        // SAFETY: per the contract.
        let name = if name.is_null() { None } else { Some(unsafe { text(name) }?) };
        calls.allocate(name, size as u64)
    }))
}

/// See `holdfast.h`.
///
/// # Safety
/// `name` must be a C string, `size` NULL or a pointer to a `size_t`.
pub unsafe fn nvread<L: Library>(name: *const c_char, size: *mut usize) -> *mut c_void {
    // SAFETY: per the contract.
    unsafe { found(run::<L, _>(|calls| calls.read(text(name)?)), size) }
}

/// See `holdfast.h`.
///
/// # Safety
/// `name` must be a C string.
pub unsafe fn nvmalloc_typed<L: Library>(
    name: *const c_char,
    size: usize,
    layout: u64,
) -> *mut c_void {
    // SAFETY: per the contract.
    pointer(run::<L, _>(|calls| calls.allocate_typed(unsafe { text(name) }?, size as u64, layout)))
}

/// See `holdfast.h`.
///
/// # Safety
/// `name` must be a C string, `size` NULL or a pointer to a `size_t`.
pub unsafe fn nvread_typed<L: Library>(
    name: *const c_char,
    layout: u64,
    size: *mut usize,
) -> *mut c_void {
    // SAFETY: per the contract.
    unsafe { found(run::<L, _>(|calls| calls.read_typed(text(name)?, layout)), size) }
}

/// See `holdfast.h`.
pub fn nvaligned_alloc<L: Library>(alignment: usize, size: usize) -> *mut c_void {
    pointer(run::<L, _>(|calls| calls.allocate_aligned(alignment as u64, size as u64)))
}

/// See `holdfast.h`.
pub fn nvrealloc<L: Library>(object: *mut c_void, size: usize) -> *mut c_void {
    pointer(run::<L, _>(|calls| calls.reallocate(NonNull::new(object.cast()), size as u64)))
}

/// See `holdfast.h`.
///
/// # Safety
/// `name` must be a C string.
pub unsafe fn nvname<L: Library>(
    name: *const c_char,
    object: *mut c_void,
    size: usize,
    layout: u64,
) -> c_int {
    let object = NonNull::new(object.cast());
    // SAFETY: per the contract.
    status(run::<L, _>(|calls| calls.name(unsafe { text(name) }?, object, size as u64, layout)))
}

/// See `holdfast.h`.
pub fn nvfree<L: Library>(object: *mut c_void) -> c_int {
    // As free(3) has it; it needs no heap.
    let Some(object) = NonNull::new(object.cast()) else { return 0 };
    status(run::<L, _>(|calls| calls.free(object)))
}

/// See `holdfast.h`.
///
/// # Safety
/// `name` must be a C string.
pub unsafe fn nvremove<L: Library>(name: *const c_char) -> c_int {
    // SAFETY: per the contract.
    status(run::<L, _>(|calls| calls.remove(unsafe { text(name) }?)))
}

/// See `holdfast.h`.
///
/// # Safety
/// `name` must be a C string.
pub unsafe fn nvmmap<L: Library>(name: *const c_char, size: usize) -> *mut c_void {
    // SAFETY: per the contract.
    pointer(run::<L, _>(|calls| calls.map(unsafe { text(name) }?, size as u64)))
}

/// See `holdfast.h`.
pub fn nvunmmap<L: Library>(start: *mut c_void) -> c_int {
    status(run::<L, _>(|calls| calls.unmap(NonNull::new(start.cast()))))
}

/// See `holdfast.h`.
pub fn qnvmalloc<L: Library>(uid: u64, magic: u64, size: usize) -> *mut c_void {
    pointer(run_as::<L, _>(uid, |calls| calls.allocate_numbered(uid, magic, size as u64)))
}

/// See `holdfast.h`.
///
/// # Safety
/// `size` must be NULL or a pointer to a `size_t`.
pub unsafe fn qnvretrieve<L: Library>(uid: u64, magic: u64, size: *mut usize) -> *mut c_void {
    // SAFETY: per the contract.
    unsafe { found(run_as::<L, _>(uid, |calls| calls.read_numbered(uid, magic)), size) }
}

/// See `holdfast.h`.
pub fn qnvfree<L: Library>(uid: u64, magic: u64) -> c_int {
    status(run_as::<L, _>(uid, |calls| calls.remove_numbered(uid, magic)))
}

/// See `holdfast.h`.
pub fn nv_tx_begin<L: Library>() -> c_int {
    status(run::<L, _>(Calls::begin))
}

/// See `holdfast.h`.
pub fn nv_tx_add<L: Library>(start: *const c_void, size: usize) -> c_int {
    status(run::<L, _>(|calls| calls.add(start.cast(), size as u64)))
}

/// See `holdfast.h`.
pub fn nv_persist<L: Library>(start: *const c_void, size: usize) -> c_int {
    status(run::<L, _>(|calls| calls.persist(start.cast(), size as u64)))
}

/// See `holdfast.h`.
pub fn nv_tx_commit<L: Library>() -> c_int {
    status(run::<L, _>(Calls::commit))
}

/// See `holdfast.h`.
pub fn nv_tx_abort<L: Library>() -> c_int {
    status(run::<L, _>(Calls::abort))
}

/// See `holdfast.h`.
pub fn nv_commit<L: Library>(level: c_int) -> c_int {
    status(L::with(|calls| {
        let level = calls.level(level)?;
        L::make_durable(calls.heap(), level)
    }))
}

/// See `holdfast.h`.
#[must_use]
pub fn nv_strerror(error: c_int) -> *const c_char {
    // Never null: whoever asks prints the answer.
    text_of(error)
        .unwrap_or(c"no error of Holdfast has this number; ask for that of nv_errno")
        .as_ptr()
}

/// Exports the functions of `holdfast.h` that both libraries have, over a [`Library`] in scope.
#[macro_export]
macro_rules! export_calls {
    ($library:ty) => {
        $crate::export_calls!(@each $library;
            unsafe fn nvmalloc(name: *const c_char, size: usize) -> *mut c_void;
            unsafe fn nvread(name: *const c_char, size: *mut usize) -> *mut c_void;
            unsafe fn nvmalloc_typed(name: *const c_char, size: usize, layout: u64) -> *mut c_void;
            unsafe fn nvread_typed(name: *const c_char, layout: u64, size: *mut usize) -> *mut c_void;
            unsafe fn nvaligned_alloc(alignment: usize, size: usize) -> *mut c_void;
            unsafe fn nvrealloc(object: *mut c_void, size: usize) -> *mut c_void;
            unsafe fn nvname(
                name: *const c_char, object: *mut c_void, size: usize, layout: u64
            ) -> c_int;
            unsafe fn nvfree(object: *mut c_void) -> c_int;
            unsafe fn nvremove(name: *const c_char) -> c_int;
            unsafe fn nvmmap(name: *const c_char, size: usize) -> *mut c_void;
            unsafe fn nvunmmap(start: *mut c_void) -> c_int;
            unsafe fn qnvmalloc(uid: u64, magic: u64, size: usize) -> *mut c_void;
            unsafe fn qnvretrieve(uid: u64, magic: u64, size: *mut usize) -> *mut c_void;
            unsafe fn qnvfree(uid: u64, magic: u64) -> c_int;
            unsafe fn nv_tx_begin() -> c_int;
            unsafe fn nv_tx_add(start: *const c_void, size: usize) -> c_int;
            unsafe fn nv_persist(start: *const c_void, size: usize) -> c_int;
            unsafe fn nv_tx_commit() -> c_int;
            unsafe fn nv_tx_abort() -> c_int;
            unsafe fn nv_commit(level: c_int) -> c_int;
        );

        /// See `holdfast.h`.
        #[unsafe(no_mangle)]
        pub extern "C" fn nv_strerror(error: c_int) -> *const c_char {
            $crate::nv_strerror(error)
        }
    };
    (@each $library:ty; $(unsafe fn $name:ident($($argument:ident: $kind:ty),*) -> $result:ty;)*) => {
        $(
            /// See `holdfast.h`.
            ///
            /// # Safety
            /// Pointers are as the header demands.
            #[allow(unused_unsafe, reason = "one form for functions with and without a contract")]
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $kind),*) -> $result {
                // SAFETY: the header's contract is that of the function of the same name.
                unsafe { $crate::$name::<$library>($($argument),*) }
            }
        )*
    };
}
