//! The code of each thread's last failure.
//!
//! Natively it lies in the thread's own storage, for which Rust without its standard library has no
//! stable form; so the four bytes are declared in assembly, as a C compiler would declare a `static
//! _Thread_local int`.

use core::ffi::c_int;

/// Remembers a code, and returns it.
pub(crate) fn note(code: c_int) -> c_int {
    place::set(code);
    code
}

pub(crate) fn last() -> c_int {
    place::get()
}

#[cfg(not(target_family = "wasm"))]
mod place {
    use core::arch::{asm, global_asm};
    use core::ffi::c_int;

    global_asm!(
        ".pushsection .tbss.holdfast_last_error,\"awT\",@nobits",
        ".balign 4",
        ".type holdfast_last_error, @object",
        ".size holdfast_last_error, 4",
        "holdfast_last_error:",
        ".zero 4",
        ".popsection",
    );

    fn here() -> *mut c_int {
        let place: *mut c_int;
        // SAFETY: as the x86-64 psABI says for the model `initial exec`: the word at fs:0 is the
        // thread's own address, and the linker or the loader knows how far from it the variable
        // lies. Nothing is stored.
        unsafe {
            asm!(
                "mov {place}, qword ptr fs:[0]",
                "add {place}, qword ptr [rip + holdfast_last_error@GOTTPOFF]",
                place = out(reg) place,
                options(nostack, readonly)
            );
        }
        place
    }

    pub(super) fn set(code: c_int) {
        // SAFETY: this thread's own variable.
        unsafe { here().write(code) };
    }

    pub(super) fn get() -> c_int {
        // SAFETY: as above.
        unsafe { here().read() }
    }
}

#[cfg(target_family = "wasm")]
mod place {
    use core::ffi::c_int;
    use core::sync::atomic::{AtomicI32, Ordering};

    /// An applet in WebAssembly has one thread.
    static LAST: AtomicI32 = AtomicI32::new(0);

    pub(super) fn set(code: c_int) {
        LAST.store(code, Ordering::Relaxed);
    }

    pub(super) fn get() -> c_int {
        LAST.load(Ordering::Relaxed)
    }
}
