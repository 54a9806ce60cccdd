//! The functions that C sees. Every `unsafe` here leans on the contract in `holdfast.h`: pointers
//! are NULL where the header allows it and valid otherwise.
//!
//! The macro [`export_calls`](crate::export_calls) makes each of them a function of the library
//! that is linked, which takes that library's lock ([`Library::with`]) and calls [`Calls`].
//!
//! Invariants: a function does its work inside [`Library::with`], which keeps the heap to one
//! caller at a time and notes what fails; results are written only after success. `nvmalloc` and
//! `nvfree` may do without, by what a thread has of the heap for itself; they never fail there.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::{NonNull, null_mut};

use crate::call_error::HeapCallError;
use crate::calls::{Calls, Content};
#[allow(unused_imports, reason = "for the documentation")]
use crate::codes::Code;
use holdfast_heap::{Backing, Heap, HeapError, Root};
use holdfast_types::Durability;

/// `nv_heap *`: the number of a heap, from 1 on, in the form of a pointer that leads nowhere. Any
/// value is safe to pass; a library knows its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct HeapHandle(*mut c_void);

impl HeapHandle {
    /// No heap: what the opening of one returns that fails.
    pub const NONE: HeapHandle = HeapHandle(null_mut());

    /// The handle of the heap with this index.
    #[must_use]
    pub fn of(index: usize) -> HeapHandle {
        HeapHandle(core::ptr::without_provenance_mut(index + 1))
    }

    /// The index in it; it may be that of no heap.
    #[must_use]
    pub fn index(self) -> Option<usize> {
        self.0.addr().checked_sub(1)
    }
}

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

    /// The same for calls that need no name of a heap: where none was opened or named, the one of
    /// the application.
    ///
    /// # Errors
    /// As for [`Library::with`].
    fn with_application<R>(
        work: impl FnOnce(&mut Calls<Self::Backing>) -> Result<R, Self::Error>,
    ) -> Result<R, c_int> {
        Self::with(work)
    }

    /// The same with the heap of a handle.
    ///
    /// # Errors
    /// As there; [`Code::NotGranted`] for what is no handle of an open heap.
    fn with_in<R>(
        heap: HeapHandle,
        work: impl FnOnce(&mut Calls<Self::Backing>) -> Result<R, Self::Error>,
    ) -> Result<R, c_int>;

    /// Runs `work`, which cannot fail, with the heap of [`Library::with`], if that is open and the
    /// calling thread need not wait for it; `None`, and nothing done, otherwise, and what `work`
    /// returned.
    #[inline]
    fn at_once<R>(work: impl FnOnce(&mut Calls<Self::Backing>) -> Option<R>) -> Option<R> {
        let _ = work;
        None
    }

    /// An anonymous object in the heap of [`Library::with`], if the calling thread gets one without
    /// having to wait for anything.
    #[inline]
    fn allocate_quickly(bytes: u64, content: Content) -> Option<NonNull<u8>> {
        let _ = (bytes, content);
        None
    }

    /// As [`Library::allocate_quickly`], with the heap: what makes the next ones quick.
    ///
    /// # Errors
    /// Those of [`Calls::allocate_anonymous`].
    fn allocate_anonymous(
        calls: &mut Calls<Self::Backing>,
        bytes: u64,
        content: Content,
    ) -> Result<NonNull<u8>, HeapCallError> {
        calls.allocate_anonymous(bytes, content)
    }

    /// Frees an anonymous object of the heap of [`Library::with`], if the calling thread can
    /// without having the heap for that; `false`, and nothing done, otherwise. Any pointer may be
    /// asked for.
    #[inline]
    fn free_quickly(object: NonNull<u8>) -> bool {
        let _ = object;
        false
    }

    /// As [`Library::free_quickly`], with the heap.
    ///
    /// # Errors
    /// Those of [`Calls::free`].
    fn free_anonymous(
        calls: &mut Calls<Self::Backing>,
        object: NonNull<u8>,
    ) -> Result<(), HeapCallError> {
        calls.free(object)
    }

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

/// Whether an object is not one of the latest roots that the program knows by name.
#[doc(hidden)]
#[inline]
#[must_use]
pub fn is_no_known_root(object: NonNull<u8>) -> bool {
    !crate::known_roots::may_be(object)
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
/// what form C gets what came of it. `at once` comes the short way, which may not be open.
#[macro_export]
macro_rules! export_calls {
    ($library:ty) => {
        $crate::export_calls! { @each $library;
            fn nvread | nv_read_in by with(name: *const c_char, size: *mut usize) -> *mut c_void =
                found(size), |calls| calls.read($crate::text(name)?);
            fn nvmalloc_typed | nv_malloc_typed_in by with(
                name: *const c_char,
                size: usize,
                layout: u64
            ) -> *mut c_void =
                pointer(), |calls| calls.allocate_typed($crate::text(name)?, size as u64, layout);
            fn nvread_typed | nv_read_typed_in by with(
                name: *const c_char,
                layout: u64,
                size: *mut usize
            ) -> *mut c_void =
                found(size), |calls| calls.read_typed($crate::text(name)?, layout);
            fn nvaligned_alloc | nv_aligned_alloc_in by with(
                alignment: usize,
                size: usize
            ) -> *mut c_void =
                pointer(), |calls| calls.allocate_aligned(alignment as u64, size as u64);
            fn nvrealloc | nv_realloc_in by with(object: *mut c_void, size: usize) -> *mut c_void =
                pointer(), |calls| {
                    let object = core::ptr::NonNull::new(object.cast());
                    calls.reallocate(object, size as u64)
                };
            fn nvname | nv_name_in by with(
                name: *const c_char,
                object: *mut c_void,
                size: usize,
                layout: u64
            ) -> c_int =
                status(), |calls| {
                    let object = core::ptr::NonNull::new(object.cast());
                    calls.name($crate::text(name)?, object, size as u64, layout)
                };
            fn nvremove | nv_remove_in by with(name: *const c_char) -> c_int =
                status(), |calls| calls.remove($crate::text(name)?);
            fn nvmmap | nv_mmap_in by with(name: *const c_char, size: usize) -> *mut c_void =
                pointer(), |calls| calls.map($crate::text(name)?, size as u64);
            fn nvunmmap | nv_unmmap_in by with(start: *mut c_void) -> c_int =
                status(), |calls| calls.unmap(core::ptr::NonNull::new(start.cast()));
            fn qnvmalloc | qnv_malloc_in by with_application(
                uid: u64,
                magic: u64,
                size: usize
            ) -> *mut c_void = pointer(), |calls| {
                <$library as $crate::Library>::check_user(uid)?;
                calls.allocate_numbered(uid, magic, size as u64)
            };
            fn qnvretrieve | qnv_retrieve_in by with_application(
                uid: u64,
                magic: u64,
                size: *mut usize
            ) -> *mut c_void =
                found(size), |calls| {
                    <$library as $crate::Library>::check_user(uid)?;
                    calls.read_numbered(uid, magic)
                };
            fn qnvfree | qnv_free_in by with_application(
                uid: u64,
                magic: u64
            ) -> c_int = status(), |calls| {
                <$library as $crate::Library>::check_user(uid)?;
                calls.remove_numbered(uid, magic)
            };
            fn nv_base | nv_base_in by with() -> *mut c_void =
                pointer(), |calls| calls.base();
            fn nv_reserve | nv_reserve_in by with(size: u64) -> c_int =
                status(), |calls| calls.reserve(size);
            fn nv_tx_begin | nv_tx_begin_in by with() -> c_int =
                status(), |calls| calls.begin(), at once calls.heap().begin_at_once();
            fn nv_tx_add | nv_tx_add_in by with(start: *const c_void, size: usize) -> c_int =
                status(), |calls| calls.add(start.cast(), size as u64),
                at once calls.heap().add_range_at_once(start.cast(), size as u64);
            fn nv_persist | nv_persist_in by with(start: *const c_void, size: usize) -> c_int =
                status(), |calls| calls.persist(start.cast(), size as u64);
            fn nv_tx_commit | nv_tx_commit_in by with() -> c_int =
                status(), |calls| calls.commit(), at once calls.heap().commit_at_once();
            fn nv_tx_abort | nv_tx_abort_in by with() -> c_int = status(), |calls| calls.abort();
            fn nv_commit | nv_commit_in by with(level: c_int) -> c_int = status(), |calls| {
                let level = calls.level(level)?;
                <$library as $crate::Library>::make_durable(calls.heap(), level)
            };
        }

        /// See `holdfast.h`.
        ///
        /// # Safety
        /// The name is as the header demands.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn nvmalloc(name: *const c_char, size: usize) -> *mut c_void {
            if name.is_null()
                && let Some(object) = <$library as $crate::Library>::allocate_quickly(
                    size as u64,
                    $crate::Content::Zeroes,
                )
            {
                return object.as_ptr().cast();
            }
            $crate::pointer(<$library as $crate::Library>::with(|calls| {
                // SAFETY: NULL or a C string by the contract.
                Ok(match unsafe { $crate::optional_text(name) }? {
                    None => <$library as $crate::Library>::allocate_anonymous(
                        calls,
                        size as u64,
                        $crate::Content::Zeroes,
                    )?,
                    name => calls.allocate(name, size as u64)?,
                })
            }))
        }

        /// See `holdfast.h`.
        #[unsafe(no_mangle)]
        pub extern "C" fn nvmalloc_uninit(size: usize) -> *mut c_void {
            let content = $crate::Content::Any;
            if let Some(object) =
                <$library as $crate::Library>::allocate_quickly(size as u64, content)
            {
                return object.as_ptr().cast();
            }
            $crate::pointer(<$library as $crate::Library>::with(|calls| {
                Ok(<$library as $crate::Library>::allocate_anonymous(calls, size as u64, content)?)
            }))
        }

        /// See `holdfast.h`.
        #[unsafe(no_mangle)]
        pub extern "C" fn nv_malloc_uninit_in(
            heap: $crate::HeapHandle,
            size: usize
        ) -> *mut c_void {
            $crate::pointer(<$library as $crate::Library>::with_in(heap, |calls| {
                Ok(calls.allocate_anonymous(size as u64, $crate::Content::Any)?)
            }))
        }

        /// See `holdfast.h`.
        ///
        /// # Safety
        /// The name is as the header demands; the heap is any value.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn nv_malloc_in(
            heap: $crate::HeapHandle,
            name: *const c_char,
            size: usize
        ) -> *mut c_void {
            $crate::pointer(<$library as $crate::Library>::with_in(heap, |calls| {
                // SAFETY: NULL or a C string by the contract.
                Ok(calls.allocate(unsafe { $crate::optional_text(name) }?, size as u64)?)
            }))
        }

        /// See `holdfast.h`. As free(3) has it, NULL needs no heap.
        #[unsafe(no_mangle)]
        pub extern "C" fn nvfree(object: *mut c_void) -> c_int {
            let Some(object) = core::ptr::NonNull::new(object.cast()) else { return 0 };
            if $crate::is_no_known_root(object)
                && <$library as $crate::Library>::free_quickly(object)
            {
                return 0;
            }
            $crate::status(<$library as $crate::Library>::with(|calls| {
                Ok(<$library as $crate::Library>::free_anonymous(calls, object)?)
            }))
        }

        /// See `holdfast.h`. As free(3) has it, NULL needs no heap.
        #[unsafe(no_mangle)]
        pub extern "C" fn nv_free_in(heap: $crate::HeapHandle, object: *mut c_void) -> c_int {
            let Some(object) = core::ptr::NonNull::new(object.cast()) else { return 0 };
            let freed =
                <$library as $crate::Library>::with_in(heap, |calls| Ok(calls.free(object)?));
            $crate::status(freed)
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
        fn $name:ident | $name_in:ident by $with:ident(
            $($argument:ident: $kind:ty),*
        ) -> $result:ty =
            $answer:ident($($size:ident)?), |$calls:ident| $work:expr
            $(, at once $short:expr)?;
    )*) => {
        $(
            /// See `holdfast.h`.
            ///
            /// # Safety
            /// Pointers are as the header demands; the heap is any value.
            #[allow(unused_unsafe, reason = "one form for functions with and without a contract")]
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name_in(
                heap: $crate::HeapHandle $(, $argument: $kind)*
            ) -> $result {
                // SAFETY: the header's contract says what names and places of sizes are.
                unsafe {
                    $crate::$answer(
                        <$library as $crate::Library>::with_in(heap, |$calls| Ok($work?))
                        $(, $size)?
                    )
                }
            }

            /// See `holdfast.h`.
            ///
            /// # Safety
            /// Pointers are as the header demands.
            #[allow(unused_unsafe, reason = "one form for functions with and without a contract")]
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $kind),*) -> $result {
                $(
                    let done =
                        <$library as $crate::Library>::at_once(|$calls| $short.then_some(()));
                    if done.is_some() {
                        return 0;
                    }
                )?
                // SAFETY: the header's contract says what names and places of sizes are.
                unsafe {
                    $crate::$answer(
                        <$library as $crate::Library>::$with(|$calls| Ok($work?)) $(, $size)?
                    )
                }
            }
        )*
    };
}
