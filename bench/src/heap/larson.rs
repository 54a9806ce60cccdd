//! Larson's benchmark (Larson and Krishnan, "Memory Allocation for Long-Running Server
//! Applications") over `holdfast.h`: each thread replaces random ones of its objects by others of
//! 64 to 400 bytes, ends, and leaves them to the next thread.
//!
//! Ours is crash-consistent at each call at the level `process`, and so is Ralloc, whose flushes
//! are taken out; glibc's is volatile. `nvmalloc_uninit` does what Ralloc's `RP_malloc` does;
//! `nvmalloc` zeroes and is compared with both `RP_malloc` and `RP_calloc`.
//!
//! Invariants: all sides replace the same objects by others of the same sizes in the same order;
//! each new object is written to, and what was written is read when it is freed.

#[cfg(feature = "peers")]
use std::ffi::CString;
use std::ffi::{c_char, c_void};
use std::io::{self, Error};
#[cfg(feature = "peers")]
use std::path::Path;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use super::ground::Ground;
use super::native::Native;
use crate::race::{Side, Times, race};

/// Names of the sides.
pub(crate) const UNINIT: &str = "nvmalloc_uninit";
pub(crate) const ZEROED: &str = "nvmalloc";
pub(crate) const RALLOC: &str = "Ralloc";
pub(crate) const RALLOC_ZEROED: &str = "Ralloc's calloc";
pub(crate) const GLIBC: &str = "glibc";

const OBJECTS: usize = 1000;
const BYTES_MIN: u64 = 64;
const BYTES_MAX: u64 = 400;
/// Replacements by a thread before it ends.
const REPLACED: usize = 500_000;
/// Threads that one after the other work with the same objects.
const GENERATIONS: usize = 3;
const LIMIT_BYTES: u64 = 256 << 20;

type Malloc = unsafe extern "C" fn(usize) -> *mut c_void;
#[cfg(feature = "peers")]
type Calloc = unsafe extern "C" fn(usize, usize) -> *mut c_void;
type Named = unsafe extern "C" fn(*const c_char, usize) -> *mut c_void;
/// What `free` returns, if it does, is not looked at.
type Free = unsafe extern "C" fn(*mut c_void);

/// How a side allocates.
#[derive(Clone, Copy)]
enum Alloc {
    Malloc(Malloc),
    #[cfg(feature = "peers")]
    Calloc(Calloc),
    Named(Named),
}

/// The two functions of a side, for all threads.
#[derive(Clone, Copy)]
pub(crate) struct Functions {
    alloc: Alloc,
    free: Free,
}

impl Functions {
    pub(crate) fn malloc(malloc: Malloc, free: Free) -> Functions {
        Functions { alloc: Alloc::Malloc(malloc), free }
    }

    #[cfg(feature = "peers")]
    pub(crate) fn calloc(calloc: Calloc, free: Free) -> Functions {
        Functions { alloc: Alloc::Calloc(calloc), free }
    }

    #[inline(always)]
    fn alloc(self, bytes: usize) -> *mut u64 {
        // SAFETY: the functions take any size; NULL is looked for.
        unsafe {
            match self.alloc {
                Alloc::Malloc(malloc) => malloc(bytes),
                #[cfg(feature = "peers")]
                Alloc::Calloc(calloc) => calloc(1, bytes),
                Alloc::Named(named) => named(std::ptr::null(), bytes),
            }
        }
        .cast()
    }
}

/// A side's objects, by thread; addresses, as they go from thread to thread.
struct Work {
    functions: Functions,
    threads: Vec<(Random, Vec<usize>)>,
}

/// As fast as what is measured needs it (Marsaglia's xorshift).
struct Random(u64);

impl Random {
    #[inline(always)]
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

impl Work {
    fn new(functions: Functions, threads: usize) -> io::Result<Work> {
        let mut random = Random(88_172_645_463_325_252);
        let threads = (1..=threads as u64).map(|thread| {
            let objects = (0..OBJECTS).map(|_| object(functions, random.next())).collect();
            Ok((Random(thread * 0x9E37_79B9_7F4A_7C15), objects_or(objects)?))
        });
        Ok(Work { functions, threads: threads.collect::<io::Result<_>>()? })
    }

    /// Nanoseconds of a thread for each object that it replaces.
    fn run(&mut self) -> io::Result<f64> {
        let functions = self.functions;
        let mut taken_ns = 0.0;
        for _ in 0..GENERATIONS {
            let start = Barrier::new(self.threads.len());
            taken_ns += thread::scope(|scope| {
                let started: Vec<_> = self
                    .threads
                    .iter_mut()
                    .map(|(random, objects)| {
                        let start = &start;
                        scope.spawn(move || {
                            start.wait();
                            let started = Instant::now();
                            replace(functions, random, objects)?;
                            Ok(started.elapsed().as_secs_f64() * 1e9)
                        })
                    })
                    .collect();
                let ended = started.into_iter().map(|thread| thread.join());
                ended
                    .map(|taken| taken.map_err(|_| Error::other("a thread ended with a panic"))?)
                    .sum::<io::Result<f64>>()
            })?;
        }
        Ok(taken_ns / (GENERATIONS * REPLACED * self.threads.len()) as f64)
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        for object in self.threads.iter().flat_map(|(_, objects)| objects) {
            // SAFETY: the side's own, freed once.
            unsafe { (self.functions.free)(*object as *mut c_void) };
        }
    }
}

fn objects_or(objects: Vec<usize>) -> io::Result<Vec<usize>> {
    match objects.contains(&0) {
        true => Err(Error::other("there is no room")),
        false => Ok(objects),
    }
}

/// A new object that holds its address; 0 when there is no room.
#[inline(always)]
fn object(functions: Functions, random: u64) -> usize {
    let bytes = BYTES_MIN + (random >> 32) % (BYTES_MAX - BYTES_MIN + 1);
    let object = functions.alloc(bytes as usize);
    if !object.is_null() {
        // SAFETY: at least 64 bytes, aligned to 8.
        unsafe { object.write(object as u64) };
    }
    object as usize
}

fn replace(functions: Functions, random: &mut Random, objects: &mut [usize]) -> io::Result<()> {
    for _ in 0..REPLACED {
        let number = random.next();
        let place = &mut objects[(number as u32 as usize) % OBJECTS];
        // SAFETY: an object of this side, which holds its address and is freed once.
        let held = unsafe {
            let held = (*place as *const u64).read();
            (functions.free)(*place as *mut c_void);
            held
        };
        if held != *place as u64 {
            return Err(Error::other("two have the same bytes"));
        }
        *place = object(functions, number);
        if *place == 0 {
            return Err(Error::other("there is no room"));
        }
    }
    Ok(())
}

/// Races with one thread and with two; `None` when there is no C library. `peers` are further
/// sides.
pub(crate) fn run(
    ground: &Ground,
    runs: usize,
    peers: &[(&'static str, Functions)],
) -> io::Result<Option<[Times; 2]>> {
    let Some(native) = Native::open(ground, LIMIT_BYTES)? else { return Ok(None) };
    // SAFETY: the types are those of `holdfast.h`.
    let (free, named, uninit) = unsafe {
        (
            native.symbol::<Free>("nvfree")?,
            native.symbol("nvmalloc")?,
            native.symbol("nvmalloc_uninit")?,
        )
    };
    let mut all = vec![
        (UNINIT, Functions::malloc(uninit, free)),
        (ZEROED, Functions { alloc: Alloc::Named(named), free }),
        (GLIBC, Functions::malloc(malloc, glibc_free)),
    ];
    all.extend_from_slice(peers);
    let times = |threads| {
        let sides = all.iter().map(|(name, functions)| {
            let mut work = Work::new(*functions, threads)?;
            Ok(Side::new(name, move || work.run()))
        });
        race(runs, sides.collect::<io::Result<_>>()?)
    };
    Ok(Some([times(1)?, times(2)?]))
}

unsafe extern "C" {
    fn malloc(bytes: usize) -> *mut c_void;
    #[link_name = "free"]
    fn glibc_free(object: *mut c_void);
}

/// A path below the directory of shared memory, as a C string.
#[cfg(feature = "peers")]
pub(crate) fn below_memory(path: &Path) -> io::Result<CString> {
    let below = path.strip_prefix("/dev/shm").map_err(Error::other)?;
    Ok(CString::new(below.as_os_str().as_encoded_bytes())?)
}
