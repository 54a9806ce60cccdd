//! PMDK's libpmemobj, loaded when it is there: a pool on tmpfs, atomic allocations, and
//! transactions.
//!
//! Configuration (set here, unless the environment says otherwise): `PMEM_IS_PMEM_FORCE=1`, or
//! every operation would call msync; `PMEMOBJ_CONF=prefault.at_create=1`, so that its memory is made
//! ready as ours is. PMDK then flushes cache lines, which a killed process does not
//! need; with `PMEM_NO_FLUSH=1` in the environment it leaves that out, too. Where its macros would
//! jump back on an error, errors are returned.
//!
//! Invariant: the functions are called with the types of libpmemobj 1.x (`libpmemobj.so.1`), and
//! not after the library is unloaded.

use std::ffi::{CString, c_char, c_int, c_void};
use std::io::{self, Error};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;
use std::rc::Rc;

use libloading::Library;

use super::symbol;
use crate::heap::alloc::{Allocator, OBJECT_BYTES};
use crate::heap::maps::Transactional;
use crate::heap::update::{Transactions, Words};

const LIBRARY: &str = "libpmemobj.so.1";
/// The Debian package that has it.
pub(crate) const PACKAGE: &str = "libpmemobj1";
const POOL_BYTES: usize = 64 << 20;
const FORCE: &str = "PMEM_IS_PMEM_FORCE";
const SETTINGS: &str = "PMEMOBJ_CONF";
/// The pages of a new pool are touched when it is made, and not in the measured time.
const TOUCHED: &str = "prefault.at_create=1";

/// `PMEMoid`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Oid {
    pool: u64,
    offset: u64,
}

type Pool = *mut c_void;
type Create = unsafe extern "C" fn(*const c_char, *const c_char, usize, u32) -> Pool;
type Close = unsafe extern "C" fn(Pool);
type Construct = Option<unsafe extern "C" fn(Pool, *mut c_void, *mut c_void) -> c_int>;
type Alloc = unsafe extern "C" fn(Pool, *mut Oid, usize, u64, Construct, *mut c_void) -> c_int;
type Free = unsafe extern "C" fn(*mut Oid);
type Begin = unsafe extern "C" fn(Pool, *mut c_void, ...) -> c_int;
type AddRange = unsafe extern "C" fn(*const c_void, usize) -> c_int;
type Persist = unsafe extern "C" fn(Pool, *const c_void, usize);
type Commit = unsafe extern "C" fn();
type End = unsafe extern "C" fn() -> c_int;
type AllocInside = unsafe extern "C" fn(usize, u64) -> Oid;
type FreeInside = unsafe extern "C" fn(Oid) -> c_int;
type IdentityOf = unsafe extern "C" fn(*const c_void) -> Oid;

struct Functions {
    alloc: Alloc,
    free: Free,
    persist: Persist,
    begin: Begin,
    add_range: AddRange,
    commit: Commit,
    end: End,
    alloc_inside: AllocInside,
    alloc_zeroed_inside: AllocInside,
    free_inside: FreeInside,
    identity_of: IdentityOf,
}

/// An open pool.
#[derive(Clone)]
pub(crate) struct Pmdk(Rc<Opened>);

struct Opened {
    functions: Functions,
    close: Close,
    pool: Pool,
    /// Last, so that it is unloaded last.
    _library: Library,
}

impl Pmdk {
    /// Makes a pool in a directory; `None` when the library is not there.
    pub(crate) fn new(directory: &Path) -> io::Result<Option<Pmdk>> {
        Pmdk::with_bytes(directory, POOL_BYTES)
    }

    /// As [`Pmdk::new`], a pool of so many bytes.
    pub(crate) fn with_bytes(directory: &Path, bytes: usize) -> io::Result<Option<Pmdk>> {
        for (name, value) in [(FORCE, "1"), (SETTINGS, TOUCHED)] {
            if std::env::var_os(name).is_none() {
                // SAFETY: the suite starts no thread that reads the environment.
                unsafe { std::env::set_var(name, value) };
            }
        }
        // SAFETY: the library's initialisation reads the environment and nothing else of ours.
        let Ok(library) = (unsafe { Library::new(LIBRARY) }) else { return Ok(None) };
        // SAFETY: the types are those of the library's header, for this version of its interface.
        let (functions, create, close) = unsafe {
            let functions = Functions {
                alloc: *symbol::<Alloc>(&library, "pmemobj_alloc")?,
                free: *symbol::<Free>(&library, "pmemobj_free")?,
                persist: *symbol::<Persist>(&library, "pmemobj_persist")?,
                begin: *symbol::<Begin>(&library, "pmemobj_tx_begin")?,
                add_range: *symbol::<AddRange>(&library, "pmemobj_tx_add_range_direct")?,
                commit: *symbol::<Commit>(&library, "pmemobj_tx_commit")?,
                end: *symbol::<End>(&library, "pmemobj_tx_end")?,
                alloc_inside: *symbol::<AllocInside>(&library, "pmemobj_tx_alloc")?,
                alloc_zeroed_inside: *symbol::<AllocInside>(&library, "pmemobj_tx_zalloc")?,
                free_inside: *symbol::<FreeInside>(&library, "pmemobj_tx_free")?,
                identity_of: *symbol::<IdentityOf>(&library, "pmemobj_oid")?,
            };
            let create = *symbol::<Create>(&library, "pmemobj_create")?;
            (functions, create, *symbol::<Close>(&library, "pmemobj_close")?)
        };
        let path = CString::new(directory.join("pool").as_os_str().as_bytes())?;
        // SAFETY: two strings that end, a size, a mode.
        let pool = unsafe { create(path.as_ptr(), c"bench".as_ptr(), bytes, 0o600) };
        if pool.is_null() {
            return Err(Error::other(format!("PMDK makes no pool: {}", Error::last_os_error())));
        }
        let opened = Opened { functions, close, pool, _library: library };
        Ok(Some(Pmdk(Rc::new(opened))))
    }

    /// A new object of so many bytes.
    pub(crate) fn alloc_bytes(&self, bytes: usize) -> Option<NonNull<u8>> {
        NonNull::new(self.direct(self.alloc_sized(bytes)?))
    }

    /// Brings to memory what was stored to a part of an object.
    #[inline]
    pub(crate) fn persist(&self, at: NonNull<u8>, bytes: usize) {
        // SAFETY: the pool is open; whatever the part is, its lines are written back and no more.
        unsafe { (self.0.functions.persist)(self.0.pool, at.as_ptr().cast(), bytes) };
    }

    /// Replaces a part of a live object, as a transaction of its own.
    #[inline]
    pub(crate) fn replace(&self, at: NonNull<u8>, content: &[u8]) -> Option<()> {
        const END_OF_PARAMETERS: c_int = 0;
        let Opened { functions, pool, .. } = &*self.0;
        // SAFETY: the pool is open and no transaction is; without a place to jump to, errors are
        // returned.
        let failed = unsafe { (functions.begin)(*pool, std::ptr::null_mut(), END_OF_PARAMETERS) };
        // SAFETY: a live object of the pool; the transaction is open, or the call refuses.
        let failed = failed | unsafe { (functions.add_range)(at.as_ptr().cast(), content.len()) };
        if failed != 0 {
            // SAFETY: ends the transaction that was aborted.
            unsafe { (functions.end)() };
            return None;
        }
        // SAFETY: a live object, announced; the transaction is open, and ends here.
        unsafe {
            at.as_ptr().copy_from_nonoverlapping(content.as_ptr(), content.len());
            (functions.commit)();
            ((functions.end)() == 0).then_some(())
        }
    }

    fn alloc_object(&self) -> Option<Oid> {
        self.alloc_sized(OBJECT_BYTES)
    }

    fn alloc_sized(&self, bytes: usize) -> Option<Oid> {
        let Opened { functions, pool, .. } = &*self.0;
        let mut object = Oid { pool: 0, offset: 0 };
        // SAFETY: the pool is open; the identity is stored to a variable of ours.
        let failed = unsafe {
            (functions.alloc)(*pool, &raw mut object, bytes, 0, None, std::ptr::null_mut())
        };
        (failed == 0).then_some(object)
    }

    /// Null when the allocation failed.
    fn allocated(&self, object: Oid) -> *mut u8 {
        if object.offset == 0 { std::ptr::null_mut() } else { self.direct(object) }
    }

    /// What PMDK's own inline function does.
    fn direct(&self, object: Oid) -> *mut u8 {
        self.0.pool.cast::<u8>().wrapping_add(object.offset as usize)
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: open until now, and nothing holds the value any more.
        unsafe { (self.close)(self.pool) };
    }
}

/// A failed call leaves its transaction aborted and open; the measurement ends then.
impl Transactional for Pmdk {
    fn begin(&self) -> bool {
        const END_OF_PARAMETERS: c_int = 0;
        let Opened { functions, pool, .. } = &*self.0;
        // SAFETY: the pool is open and no transaction is; without a place to jump to, errors are
        // returned.
        unsafe { (functions.begin)(*pool, std::ptr::null_mut(), END_OF_PARAMETERS) == 0 }
    }

    fn add(&self, start: *const u8, bytes: usize) -> bool {
        // SAFETY: a transaction is open; a range of the pool, or the call refuses.
        unsafe { (self.0.functions.add_range)(start.cast(), bytes) == 0 }
    }

    fn alloc(&self, bytes: usize) -> *mut u8 {
        // SAFETY: a transaction is open.
        self.allocated(unsafe { (self.0.functions.alloc_zeroed_inside)(bytes, 0) })
    }

    fn alloc_uninit(&self, bytes: usize) -> *mut u8 {
        // SAFETY: a transaction is open.
        self.allocated(unsafe { (self.0.functions.alloc_inside)(bytes, 0) })
    }

    fn free(&self, object: *mut u8) -> bool {
        let functions = &self.0.functions;
        // SAFETY: a transaction is open; an object of the pool.
        unsafe { (functions.free_inside)((functions.identity_of)(object.cast())) == 0 }
    }

    fn commit(&self) -> bool {
        // SAFETY: the transaction is open, and ends here.
        unsafe {
            (self.0.functions.commit)();
            (self.0.functions.end)() == 0
        }
    }
}

impl Allocator for Pmdk {
    type Object = Oid;

    #[inline]
    fn alloc(&mut self) -> Option<Oid> {
        self.alloc_object()
    }

    #[inline]
    fn free(&mut self, mut object: Oid) -> Option<()> {
        // SAFETY: allocated above, freed once.
        unsafe { (self.0.functions.free)(&raw mut object) };
        Some(())
    }

    #[inline]
    fn at(&self, object: Oid) -> *mut u64 {
        self.direct(object).cast()
    }
}

impl Transactions for Pmdk {
    fn alloc(&mut self) -> Option<NonNull<Words>> {
        let object = self.alloc_object()?;
        NonNull::new(self.direct(object).cast())
    }

    #[inline]
    fn update(&mut self, object: NonNull<Words>, words: Words) -> Option<()> {
        // SAFETY: numbers, seen as the bytes that they are.
        let bytes = unsafe { &*(&raw const words).cast::<[u8; OBJECT_BYTES]>() };
        self.replace(object.cast(), bytes)
    }
}
