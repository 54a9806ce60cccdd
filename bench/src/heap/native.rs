//! A heap of this process by the C library, as a native program has it.
//!
//! Invariant: one is open at a time, and closed before its directories are used for another one.

use std::ffi::{c_char, c_int, c_void};
use std::io::{self, Error};
use std::path::PathBuf;
use std::ptr::null;

use libloading::Library;

use super::ground::Ground;
use super::maps::Transactional;

const C_LIBRARY: &str = "HOLDFAST_C_LIBRARY";

type Open = unsafe extern "C" fn(*const c_char, u64) -> c_int;
type Act = unsafe extern "C" fn() -> c_int;
type Reserve = unsafe extern "C" fn(u64) -> c_int;
type Add = unsafe extern "C" fn(*const c_void, usize) -> c_int;
type Alloc = unsafe extern "C" fn(*const c_char, usize) -> *mut c_void;
type AllocUninit = unsafe extern "C" fn(usize) -> *mut c_void;
type Free = unsafe extern "C" fn(*mut c_void) -> c_int;

/// A library that is installed where the environment says; `None` when it says nothing.
pub(crate) fn installed(library: &str) -> Option<PathBuf> {
    Some(PathBuf::from(std::env::var_os(C_LIBRARY)?).join("lib").join(library))
}

/// The open heap. Closed when it is dropped.
pub(crate) struct Native {
    begin: Act,
    add: Add,
    alloc: Alloc,
    alloc_uninit: AllocUninit,
    free: Free,
    commit: Act,
    close: Act,
    /// Last, so that it is unloaded last.
    library: Library,
}

impl Native {
    /// A new heap; `None` when nothing says where the library is installed.
    pub(crate) fn open(ground: &Ground, limit_bytes: u64) -> io::Result<Option<Native>> {
        let Some(path) = installed("libholdfast.so") else { return Ok(None) };
        let (home, pool) = (ground.in_memory("c-home")?, ground.in_memory("c-pool")?);
        // SAFETY: the suite has one thread while it sets up its sides.
        unsafe {
            std::env::set_var("HOLDFAST_HOME", home);
            std::env::set_var("HOLDFAST_POOL", pool);
        }
        // SAFETY: ours; loading it runs nothing.
        let library = unsafe { Library::new(path) };
        let library = library.map_err(Error::other)?;
        // SAFETY: the types are those of `holdfast.h`.
        let native = unsafe {
            Native {
                begin: function(&library, "nv_tx_begin")?,
                add: function(&library, "nv_tx_add")?,
                alloc: function(&library, "nvmalloc")?,
                alloc_uninit: function(&library, "nvmalloc_uninit")?,
                free: function(&library, "nvfree")?,
                commit: function(&library, "nv_tx_commit")?,
                close: function(&library, "nv_close")?,
                library,
            }
        };
        // SAFETY: as above; a string that ends.
        match unsafe { native.symbol::<Open>("nv_open")?(c"bench".as_ptr(), limit_bytes) } {
            0 => Ok(Some(native)),
            code => Err(Error::other(format!("nv_open failed with {code}"))),
        }
    }

    /// Makes room for so many bytes.
    pub(crate) fn reserve(&self, bytes: u64) -> io::Result<()> {
        // SAFETY: the type is that of `holdfast.h`.
        match unsafe { self.symbol::<Reserve>("nv_reserve")?(bytes) } {
            0 => Ok(()),
            code => Err(Error::other(format!("nv_reserve failed with {code}"))),
        }
    }

    /// # Safety
    /// `T` is the type of the function.
    pub(crate) unsafe fn symbol<T: Copy>(&self, name: &str) -> io::Result<T> {
        // SAFETY: the same contract.
        unsafe { function(&self.library, name) }
    }
}

/// # Safety
/// `T` is the type of the function.
unsafe fn function<T: Copy>(library: &Library, name: &str) -> io::Result<T> {
    // SAFETY: the same contract.
    Ok(*unsafe { library.get::<T>(name) }.map_err(Error::other)?)
}

impl Drop for Native {
    fn drop(&mut self) {
        // SAFETY: no thread uses the heap any more.
        unsafe { (self.close)() };
    }
}

// SAFETY of all of these: the heap is open, and ranges and objects are the caller's own.
impl Transactional for Native {
    #[inline]
    fn begin(&self) -> bool {
        // SAFETY: see above.
        unsafe { (self.begin)() == 0 }
    }

    #[inline]
    fn add(&self, start: *const u8, bytes: usize) -> bool {
        // SAFETY: see above.
        unsafe { (self.add)(start.cast(), bytes) == 0 }
    }

    #[inline]
    fn alloc(&self, bytes: usize) -> *mut u8 {
        // SAFETY: see above.
        unsafe { (self.alloc)(null(), bytes) }.cast()
    }

    #[inline]
    fn alloc_uninit(&self, bytes: usize) -> *mut u8 {
        // SAFETY: see above.
        unsafe { (self.alloc_uninit)(bytes) }.cast()
    }

    #[inline]
    fn free(&self, object: *mut u8) -> bool {
        // SAFETY: see above.
        unsafe { (self.free)(object.cast()) == 0 }
    }

    #[inline]
    fn commit(&self) -> bool {
        // SAFETY: see above.
        unsafe { (self.commit)() == 0 }
    }
}
