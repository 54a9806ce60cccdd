//! The computations of the applets as libraries in this process: `libmd5.so`, and `libtable.so` on
//! `libholdfast`.
//!
//! Invariants: functions are called with the types of their headers (`applets/*/*.h`,
//! `holdfast.h`), and not after their library is unloaded.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::io::{self, Error};
use std::path::Path;

use holdfast_testkit::applet_file;
use libloading::Library;
use libloading::os::unix;

type Md5Of = unsafe extern "C" fn(*const c_void, usize, *mut u8);
type Open = unsafe extern "C" fn(*const c_char, u64) -> c_int;
type Work = unsafe extern "C" fn(u64, *mut u64) -> c_int;

/// A digest.
pub(crate) type Digest = [u8; 16];

/// The code of the applet `md5`.
pub(crate) struct Md5 {
    md5_of: Md5Of,
    _library: Library,
}

impl Md5 {
    pub(crate) fn load() -> io::Result<Md5> {
        // SAFETY: the library has no initialisation; the type is that of md5.h, and the library
        // stays as long as the value.
        unsafe {
            let library = Library::new(applet_file("libmd5.so")?).map_err(Error::other)?;
            let md5_of = *library.get::<Md5Of>("md5_of").map_err(Error::other)?;
            Ok(Md5 { md5_of, _library: library })
        }
    }

    pub(crate) fn digest(&self, message: &[u8]) -> Digest {
        let mut digest = Digest::default();
        // SAFETY: the message is as long as is said, and a digest has room for one.
        unsafe { (self.md5_of)(message.as_ptr().cast(), message.len(), digest.as_mut_ptr()) };
        digest
    }
}

/// The code of the applet `table` on a heap of a native program.
pub(crate) struct Table {
    work: Work,
    _library: unix::Library,
    _heap: unix::Library,
}

impl Table {
    /// Opens a heap of this name and size with the library `holdfast`.
    pub(crate) fn load(holdfast: &Path, heap: &CStr, limit_bytes: u64) -> io::Result<Table> {
        // SAFETY: both libraries may be loaded at any time; the types are those of holdfast.h and
        // table.h, and the libraries stay as long as the value. `table` finds its functions in
        // `holdfast`, which is therefore loaded for everybody.
        let (opened, table) = unsafe {
            let global = unix::RTLD_NOW | unix::RTLD_GLOBAL;
            let heap_library = unix::Library::open(Some(holdfast), global).map_err(Error::other)?;
            let open = *heap_library.get::<Open>(b"nv_open\0").map_err(Error::other)?;
            let library = unix::Library::open(Some(applet_file("libtable.so")?), unix::RTLD_NOW)
                .map_err(Error::other)?;
            let work = *library.get::<Work>(b"table_work\0").map_err(Error::other)?;
            (
                open(heap.as_ptr(), limit_bytes),
                Table { work, _library: library, _heap: heap_library },
            )
        };
        if opened == 0 { Ok(table) } else { Err(refused(opened)) }
    }

    pub(crate) fn work(&self, rounds: u64) -> io::Result<u64> {
        let mut result = 0;
        // SAFETY: the heap is open, and there is room for the result.
        let status = unsafe { (self.work)(rounds, &mut result) };
        if status == 0 { Ok(result) } else { Err(refused(status)) }
    }
}

fn refused(status: c_int) -> Error {
    Error::other(format!("libholdfast refused with code {status} of holdfast.h"))
}
