//! The functions that the host offers under the module name `holdfast`; `docs/format.md` describes
//! them for authors of other guest libraries.

use holdfast_channel::Header;

/// What `heap_open` tells. Sizes in bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RegionInfo {
    /// Address of the region in linear memory.
    pub(crate) base: u64,
    /// Usable now.
    pub(crate) backed: u64,
    /// Usable ever.
    pub(crate) limit: u64,
    /// Bit 0: the region was made in this run. Bit 1: it may only be read. Bit 2: stores count when
    /// they are published. Bit 3: it is a compartment.
    pub(crate) flags: u64,
}

/// What `host_call` tells.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Returned {
    /// 0, or the function's own code.
    pub(crate) code: i32,
    /// Bytes of what it returned.
    pub(crate) bytes: u32,
}

#[link(wasm_import_module = "holdfast")]
unsafe extern "C" {
    /// Maps the heaps into linear memory, if that was not done, and tells where the one of this
    /// name is (without a byte: the first; with a `+` before it: the compartment); its index, or a
    /// negative error code.
    pub(crate) fn heap_open(name: *const u8, name_bytes: u32, out: *mut RegionInfo) -> i32;
    /// Backs at least that many bytes of a heap; the new size or a negative error code.
    pub(crate) fn heap_grow(heap: i32, at_least_bytes: i64) -> i64;
    /// Makes everything so far in a heap durable at a level; 0 or an error code.
    pub(crate) fn heap_commit(heap: i32, level: i32) -> i32;
    /// Undoes what was stored to a heap and not published; 0 or an error code.
    pub(crate) fn heap_rollback(heap: i32) -> i32;
    /// Waits for the host's next message; the bytes of its payload, or a negative code. A payload
    /// that is larger than `capacity` is kept, and its size returned, negated.
    pub(crate) fn receive(header: *mut Header, payload: *mut u8, capacity: u32) -> i32;
    /// Sends a message; 0 or an error code.
    pub(crate) fn send(header: *const Header, payload: *const u8) -> i32;
    /// The number of the host function of this name, or a negative error code.
    pub(crate) fn host_import(name: *const u8, name_bytes: u32) -> i32;
    /// Runs a host function; 0 or an error code. What it returns is written if there is room for
    /// it, and else kept for `host_result`.
    pub(crate) fn host_call(
        function: i32,
        input: *const u8,
        input_bytes: u32,
        output: *mut u8,
        capacity: u32,
        returned: *mut Returned,
    ) -> i32;
    /// Writes the payload that `host_call` had no room for, all of its bytes; 0 or an error code.
    pub(crate) fn host_result(output: *mut u8, bytes: u32) -> i32;
}

unsafe extern "C" {
    /// The C library's, which Rust's own allocator uses too.
    pub(crate) fn malloc(bytes: usize) -> *mut u8;
    /// The C library's, whose memory is zero.
    pub(crate) fn calloc(count: usize, bytes: usize) -> *mut u8;
    /// The C library's.
    pub(crate) fn realloc(pointer: *mut u8, bytes: usize) -> *mut u8;
    /// The C library's.
    pub(crate) fn free(pointer: *mut u8);
}
