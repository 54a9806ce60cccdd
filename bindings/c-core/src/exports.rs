//! The functions that C sees. Every `unsafe` here leans on the contract in `holdfast.h`: pointers
//! are NULL where the header allows it and valid otherwise.
//!
//! The macro [`export_calls`](crate::export_calls) makes each of them a function of the library
//! that is linked, which takes that library's lock ([`Library::with`]) and calls [`Calls`].
//!
//! Invariants: a function does its work inside [`Library::with`], which keeps the heap to one
//! caller at a time and notes what fails; results are written only after success.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::{NonNull, null_mut};

use crate::call_error::HeapCallError;
use crate::calls::Calls;
use holdfast_heap::{Backing, Heap, HeapError, Root};
use holdfast_types::Durability;

/// What a C library adds: where the heap comes from, and where the last error is kept.
pub trait Library {
    /// What its heap stands on.
    type Backing: Backing;
    /// How its calls fail.
    type Error: From<HeapCallError>;

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

/// 0, or the code of the failure.
#[doc(hidden)]
#[must_use]
pub fn status(result: Result<(), c_int>) -> c_int {
    result.err().unwrap_or(0)
}

/// The object; NULL after a failure.
#[doc(hidden)]
#[must_use]
pub fn pointer(result: Result<NonNull<u8>, c_int>) -> *mut c_void {
    result.map_or(null_mut(), |pointer| pointer.as_ptr().cast())
}

/// The object of a root, whose size goes to `size`; NULL after a failure.
///
/// # Safety
/// `size` must be NULL or a pointer to a `size_t`.
#[doc(hidden)]
pub unsafe fn found(root: Result<Root, c_int>, size: *mut usize) -> *mut c_void {
    if let (Ok(root), false) = (&root, size.is_null()) {
        // SAFETY: not NULL, so valid by the contract.
        unsafe { *size = root.bytes as usize };
    }
    pointer(root.map(|root| root.pointer))
}

/// A name.
///
/// # Errors
/// [`HeapError::BadName`], for NULL and what is no UTF-8.
///
/// # Safety
/// `name` must be NULL or a C string.
#[doc(hidden)]
pub unsafe fn text<'a>(name: *const c_char) -> Result<&'a str, HeapCallError> {
    if name.is_null() {
        return Err(HeapError::BadName.into());
    }
    // SAFETY: per the contract.
    unsafe { CStr::from_ptr(name) }.to_str().map_err(|_| HeapError::BadName.into())
}

/// A name, or none for NULL.
///
/// # Errors
/// [`HeapError::BadName`].
///
/// # Safety
/// As for [`text`].
#[doc(hidden)]
pub unsafe fn optional_text<'a>(name: *const c_char) -> Result<Option<&'a str>, HeapCallError> {
    if name.is_null() {
        return Ok(None);
    }
    // SAFETY: the same contract.
    unsafe { text(name) }.map(Some)
}

/// Exports the functions of `holdfast.h` that both libraries have, over a [`Library`] in scope.
/// `answer, |calls| what is done` is the whole of a function: what it does with the heap, and in
/// what form C gets what came of it.
#[macro_export]
macro_rules! export_calls {
    ($library:ty) => {
        $crate::export_calls! { @each $library;
            fn nvmalloc(name: *const c_char, size: usize) -> *mut c_void =
                pointer(), |calls| calls.allocate($crate::optional_text(name)?, size as u64);
            fn nvread(name: *const c_char, size: *mut usize) -> *mut c_void =
                found(size), |calls| calls.read($crate::text(name)?);
            fn nvmalloc_typed(name: *const c_char, size: usize, layout: u64) -> *mut c_void =
                pointer(), |calls| calls.allocate_typed($crate::text(name)?, size as u64, layout);
            fn nvread_typed(name: *const c_char, layout: u64, size: *mut usize) -> *mut c_void =
                found(size), |calls| calls.read_typed($crate::text(name)?, layout);
            fn nvaligned_alloc(alignment: usize, size: usize) -> *mut c_void =
                pointer(), |calls| calls.allocate_aligned(alignment as u64, size as u64);
            fn nvrealloc(object: *mut c_void, size: usize) -> *mut c_void =
                pointer(), |calls| {
                    let object = core::ptr::NonNull::new(object.cast());
                    calls.reallocate(object, size as u64)
                };
            fn nvname(name: *const c_char, object: *mut c_void, size: usize, layout: u64) -> c_int =
                status(), |calls| {
                    let object = core::ptr::NonNull::new(object.cast());
                    calls.name($crate::text(name)?, object, size as u64, layout)
                };
            fn nvremove(name: *const c_char) -> c_int =
                status(), |calls| calls.remove($crate::text(name)?);
            fn nvmmap(name: *const c_char, size: usize) -> *mut c_void =
                pointer(), |calls| calls.map($crate::text(name)?, size as u64);
            fn nvunmmap(start: *mut c_void) -> c_int =
                status(), |calls| calls.unmap(core::ptr::NonNull::new(start.cast()));
            fn qnvmalloc(uid: u64, magic: u64, size: usize) -> *mut c_void = pointer(), |calls| {
                <$library as $crate::Library>::check_user(uid)?;
                calls.allocate_numbered(uid, magic, size as u64)
            };
            fn qnvretrieve(uid: u64, magic: u64, size: *mut usize) -> *mut c_void =
                found(size), |calls| {
                    <$library as $crate::Library>::check_user(uid)?;
                    calls.read_numbered(uid, magic)
                };
            fn qnvfree(uid: u64, magic: u64) -> c_int = status(), |calls| {
                <$library as $crate::Library>::check_user(uid)?;
                calls.remove_numbered(uid, magic)
            };
            fn nv_tx_begin() -> c_int = status(), |calls| calls.begin();
            fn nv_tx_add(start: *const c_void, size: usize) -> c_int =
                status(), |calls| calls.add(start.cast(), size as u64);
            fn nv_persist(start: *const c_void, size: usize) -> c_int =
                status(), |calls| calls.persist(start.cast(), size as u64);
            fn nv_tx_commit() -> c_int = status(), |calls| calls.commit();
            fn nv_tx_abort() -> c_int = status(), |calls| calls.abort();
            fn nv_commit(level: c_int) -> c_int = status(), |calls| {
                let level = calls.level(level)?;
                <$library as $crate::Library>::make_durable(calls.heap(), level)
            };
        }

        /// See `holdfast.h`. As free(3) has it, NULL needs no heap.
        #[unsafe(no_mangle)]
        pub extern "C" fn nvfree(object: *mut c_void) -> c_int {
            let Some(object) = core::ptr::NonNull::new(object.cast()) else { return 0 };
            $crate::status(<$library as $crate::Library>::with(|calls| Ok(calls.free(object)?)))
        }

        /// See `holdfast.h`. Never null: the caller prints the answer.
        #[unsafe(no_mangle)]
        pub extern "C" fn nv_strerror(error: c_int) -> *const c_char {
            $crate::text_of(error)
                .unwrap_or(c"no error of Holdfast has this number; ask for that of nv_errno")
                .as_ptr()
        }
    };
    (@each $library:ty; $(
        fn $name:ident($($argument:ident: $kind:ty),*) -> $result:ty =
            $answer:ident($($size:ident)?), |$calls:ident| $work:expr;
    )*) => {
        $(
            /// See `holdfast.h`.
            ///
            /// # Safety
            /// Pointers are as the header demands.
            #[allow(unused_unsafe, reason = "one form for functions with and without a contract")]
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $kind),*) -> $result {
                // SAFETY: the header's contract says what names and places of sizes are.
                unsafe {
                    $crate::$answer(
                        <$library as $crate::Library>::with(|$calls| Ok($work?)) $(, $size)?
                    )
                }
            }
        )*
    };
}
