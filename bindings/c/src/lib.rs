//! The C interface for applets: the functions of `include/holdfast.h` and
//! `include/holdfast_applet.h`, as a static library for WebAssembly (`cargo build -p holdfast-c
//! --target wasm32-wasip1 --profile applet`) and for native applets (the same without a target;
//! `cargo xtask c-library` installs it).
//!
//! - `heap`: the functions of `holdfast.h`. `applet`: those of `holdfast_applet.h`. `last_error`:
//!   `nv_errno`. `slots`: what there is of each heap. `thread`: what a thread has of its own.
//!
//! Invariants: attaches once, at first use; a nested transaction is part of the outermost; no panic
//! (there is no caller to catch it: it would be a trap of the applet). No standard library, and of
//! a C library only what compilers themselves call (`memcpy` and the like, `strlen`): it goes into
//! a program of any language.

#![no_std]

mod applet;
mod heap;
mod last_error;
mod slots;
mod thread;

/// Ends the program in the way that shows where: a trap in WebAssembly, SIGILL natively.
#[panic_handler]
fn trap(_: &core::panic::PanicInfo<'_>) -> ! {
    #[cfg(target_family = "wasm")]
    core::arch::wasm32::unreachable();
    #[cfg(not(target_family = "wasm"))]
    // SAFETY: it does not return.
    unsafe {
        core::arch::asm!("ud2", options(noreturn, nomem, nostack))
    }
}
