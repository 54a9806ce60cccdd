//! The C interface of the heap for applets: the functions of `include/holdfast.h`, as a static library for
//! wasm32-wasip1 (`cargo build -p holdfast-c --target wasm32-wasip1 --profile applet`).
//!
//! Invariants: attaches once, at first use; remembers the last error; a nested transaction is part of the
//! outermost; no panic (there is nobody to catch it: it would be a trap of the applet).

#![no_std]

#[cfg(target_family = "wasm")]
mod exports;

#[cfg(not(target_family = "wasm"))]
compile_error!("this library is for applets; build it with --target wasm32-wasip1");

#[cfg(target_family = "wasm")]
#[panic_handler]
fn trap(_: &core::panic::PanicInfo<'_>) -> ! {
    core::arch::wasm32::unreachable()
}
