//! Metall: persistent like ours, and not crash-consistent: what a killed process leaves must be
//! thrown away, back to the last snapshot. Header-only C++ that no distribution has;
//! `METALL_INCLUDE` says where its headers are (and `BOOST_ROOT` where Boost is, if not in the
//! system), and the part that the suite calls is compiled then.
//!
//! Configuration: default, the store on tmpfs, `-O3 -DNDEBUG`.
//!
//! Invariant: the functions are those of metall.cpp, and not called after the library is unloaded.

use std::ffi::{CString, c_char, c_void};
use std::io::{self, Error};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;
use std::ptr::NonNull;

use libloading::Library;

use super::symbol;
use crate::heap::alloc::{Allocator, OBJECT_BYTES};

const SOURCE: &str = include_str!("metall.cpp");
const INCLUDE: &str = "METALL_INCLUDE";
/// What is done about its absence.
pub(crate) const REMEDY: &str =
    "METALL_INCLUDE=DIRECTORY names its headers (github.com/LLNL/metall, with Boost 1.80)";

type Create = unsafe extern "C" fn(*const c_char) -> *mut c_void;
type Alloc = unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void;
type Free = unsafe extern "C" fn(*mut c_void, *mut c_void);
type Close = unsafe extern "C" fn(*mut c_void);

/// An open store.
pub(crate) struct Metall {
    alloc: Alloc,
    free: Free,
    close: Close,
    manager: *mut c_void,
    /// Last, so that it is unloaded last.
    _library: Library,
}

impl Metall {
    /// Makes a store in a directory; `None` when nothing says where Metall is.
    pub(crate) fn new(directory: &Path) -> io::Result<Option<Metall>> {
        let Some(include) = std::env::var_os(INCLUDE) else { return Ok(None) };
        let (source, library) = (directory.join("metall.cpp"), directory.join("metall.so"));
        std::fs::write(&source, SOURCE)?;
        let mut compiler = Command::new("c++");
        compiler
            .args(["-std=c++17", "-O3", "-DNDEBUG", "-fPIC", "-shared", "-w", "-I"])
            .arg(include);
        if let Some(boost) = std::env::var_os("BOOST_ROOT") {
            compiler.arg("-I").arg(boost);
        }
        let output = compiler.arg(&source).arg("-o").arg(&library).output()?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let first = said.lines().find(|line| line.contains("error")).unwrap_or("no message");
            return Err(Error::other(format!(
                "Metall does not compile; are {INCLUDE} and Boost right? {first}"
            )));
        }
        // SAFETY: what was compiled just now initialises nothing but the C++ library.
        let library = unsafe { Library::new(&library) }.map_err(Error::other)?;
        // SAFETY: the types are those of metall.cpp.
        let (create, alloc, free, close) = unsafe {
            (
                *symbol::<Create>(&library, "bench_metall_create")?,
                *symbol::<Alloc>(&library, "bench_metall_alloc")?,
                *symbol::<Free>(&library, "bench_metall_free")?,
                *symbol::<Close>(&library, "bench_metall_close")?,
            )
        };
        let path = CString::new(directory.join("store").as_os_str().as_bytes())?;
        // SAFETY: a string that ends.
        let manager = unsafe { create(path.as_ptr()) };
        if manager.is_null() {
            return Err(Error::other(format!("Metall makes no store in {}", directory.display())));
        }
        Ok(Some(Metall { alloc, free, close, manager, _library: library }))
    }
}

impl Drop for Metall {
    fn drop(&mut self) {
        // SAFETY: open until now.
        unsafe { (self.close)(self.manager) };
    }
}

impl Allocator for Metall {
    type Object = NonNull<u8>;

    #[inline]
    fn alloc(&mut self) -> Option<NonNull<u8>> {
        // SAFETY: the store is open.
        NonNull::new(unsafe { (self.alloc)(self.manager, OBJECT_BYTES) }.cast())
    }

    #[inline]
    fn free(&mut self, object: NonNull<u8>) -> Option<()> {
        // SAFETY: allocated above, freed once.
        unsafe { (self.free)(self.manager, object.as_ptr().cast()) };
        Some(())
    }

    #[inline]
    fn at(&self, object: NonNull<u8>) -> *mut u64 {
        object.as_ptr().cast()
    }
}
