//! The three functions that the host offers under the module name `holdfast`; `docs/format.md` describes
//! them for authors of other guest libraries.

/// What `attach` tells. Sizes in bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RegionInfo {
    /// Address of the region in linear memory.
    pub(crate) base: u64,
    /// Usable now.
    pub(crate) backed: u64,
    /// Usable ever.
    pub(crate) limit: u64,
    /// Bit 0: the region was made in this run. Bit 1: it may only be read.
    pub(crate) flags: u64,
}

/// No heap was granted to this run.
pub(crate) const NOT_GRANTED: i32 = 1;
/// The region's limit is reached.
pub(crate) const LIMIT_REACHED: i32 = 2;
/// The pool is full.
pub(crate) const NO_ROOM: i32 = 3;
/// The host does not offer this durability level.
pub(crate) const UNSUPPORTED: i32 = 4;
/// The module's memory cannot hold the region at its address.
pub(crate) const MEMORY_SHAPE: i32 = 7;

#[link(wasm_import_module = "holdfast")]
unsafe extern "C" {
    /// Maps the region into linear memory; 0 or an error code.
    pub(crate) fn attach(out: *mut RegionInfo) -> i32;
    /// Backs at least that many bytes; the new size or a negative error code.
    pub(crate) fn grow(at_least_bytes: i64) -> i64;
    /// Makes everything so far durable at a level; 0 or an error code.
    pub(crate) fn commit(level: i32) -> i32;
}

unsafe extern "C" {
    /// The C library's, which Rust's own allocator uses too.
    pub(crate) fn malloc(bytes: usize) -> *mut u8;
    /// As above.
    pub(crate) fn free(pointer: *mut u8);
}
