//! The engines that the heap is compared with. Each file is one of them, in the configuration that
//! suits it best for the question asked, and says which that is.

use std::io;

pub(crate) mod lmdb;
pub(super) mod metall;
pub(super) mod mimalloc;
pub(crate) mod pmdk;
pub(super) mod ralloc;
pub(super) mod redb;

/// A function of a library.
///
/// # Safety
/// `T` is the type of the symbol.
unsafe fn symbol<'a, T>(
    library: &'a libloading::Library,
    name: &str,
) -> io::Result<libloading::Symbol<'a, T>> {
    // SAFETY: per the contract.
    unsafe { library.get(name) }.map_err(io::Error::other)
}
