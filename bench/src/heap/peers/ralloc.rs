//! Ralloc (Cai et al., "Understanding and Optimizing Persistent Memory Allocation"): persistent and
//! lock-free, with caches of threads that a recovery makes up for by a collection of garbage. In
//! C++; `RALLOC_SOURCE` says where its folder `src` is, which is compiled then.
//!
//! Configuration: files on tmpfs (`SHM_SIMULATING`), and no flush instructions (`PWB_IS_NOOP`),
//! which a killed process does not need; `-O3`.
//!
//! Invariant: the library is never unloaded, because its threads' caches are cleaned up late.

use std::ffi::{c_char, c_int, c_void};
use std::io::{self, Error};
use std::path::{Path, PathBuf};
use std::process::Command;

use libloading::Library;

use super::symbol;
use crate::heap::larson::{Functions, below_memory};

const SOURCE: &str = "RALLOC_SOURCE";
/// What is done about its absence.
pub(crate) const REMEDY: &str =
    "RALLOC_SOURCE=DIRECTORY names its sources (`src` of github.com/urcs-sync/ralloc)";
/// Its smallest region is 1 GiB; what is not touched takes no memory.
const REGION_BYTES: u64 = 2 << 30;

type Init = unsafe extern "C" fn(*const c_char, u64) -> c_int;

/// Its functions: malloc with free, and calloc with free. `None` when nothing says where it is.
pub(crate) fn functions(directory: &Path) -> io::Result<Option<[Functions; 2]>> {
    let Some(source) = std::env::var_os(SOURCE).map(PathBuf::from) else { return Ok(None) };
    let library = directory.join("ralloc.so");
    let mut compiler = Command::new("c++");
    compiler.args(["-std=c++17", "-O3", "-fpermissive", "-fPIC", "-shared", "-w"]);
    compiler.args(["-DSHM_SIMULATING", "-DPWB_IS_NOOP", "-I"]).arg(&source);
    for file in std::fs::read_dir(&source)? {
        let file = file?.path();
        if file.extension().is_some_and(|extension| extension == "cpp") {
            compiler.arg(file);
        }
    }
    let output = compiler.arg("-o").arg(&library).args(["-lpthread", "-latomic"]).output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let first = said.lines().find(|line| line.contains("error")).unwrap_or("no message");
        return Err(Error::other(format!("Ralloc does not compile; is {SOURCE} right? {first}")));
    }
    // SAFETY: what was compiled just now initialises its own tables.
    let library = Box::leak(Box::new(unsafe { Library::new(&library) }.map_err(Error::other)?));
    let path = below_memory(&directory.join("heap"))?;
    // SAFETY: the types are those of ralloc.hpp; the path is a string that ends.
    unsafe {
        symbol::<Init>(library, "RP_init")?(path.as_ptr(), REGION_BYTES);
        let free = *symbol::<unsafe extern "C" fn(*mut c_void)>(library, "RP_free")?;
        Ok(Some([
            Functions::malloc(*symbol(library, "RP_malloc")?, free),
            Functions::calloc(*symbol(library, "RP_calloc")?, free),
        ]))
    }
}
