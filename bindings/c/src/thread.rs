//! What each thread has of its own: the code of its last failure, and the compartment that it has
//! entered.
//!
//! Natively it lies in the thread's own storage, for which Rust without its standard library has no
//! stable form; so the bytes are declared in assembly, as a C compiler would declare a `static
//! _Thread_local struct`.
//!
//! Invariant: a value is read and written by the thread that it is of, and zero when that begins.

use core::ffi::{c_int, c_void};
use core::ptr::null_mut;

/// A thread's own.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct OwnState {
    pub(crate) last_error: c_int,
    /// The index of the compartment, counted from 1; 0 outside of one.
    pub(crate) compartment: u32,
    /// Its slot.
    pub(crate) slot: *mut c_void,
    /// Which of the stays in compartments it is.
    pub(crate) session: u64,
}

const _: () = assert!(size_of::<OwnState>() <= 24 && align_of::<OwnState>() <= 8);

/// What the calling thread has.
pub(crate) fn own() -> OwnState {
    // SAFETY: this thread's own variable, which is initialised.
    unsafe { place::here().read() }
}

/// Changes what the calling thread has.
pub(crate) fn change(change: impl FnOnce(&mut OwnState)) {
    let mut own = own();
    change(&mut own);
    // SAFETY: as above.
    unsafe { place::here().write(own) };
}

impl OwnState {
    /// The thread is in no compartment.
    pub(crate) fn leave(&mut self) {
        (self.compartment, self.slot, self.session) = (0, null_mut(), 0);
    }
}

#[cfg(not(target_family = "wasm"))]
mod place {
    use core::arch::{asm, global_asm};

    use super::OwnState;

    global_asm!(
        ".pushsection .tbss.holdfast_own_state,\"awT\",@nobits",
        ".balign 8",
        ".type holdfast_own_state, @object",
        ".size holdfast_own_state, 24",
        "holdfast_own_state:",
        ".zero 24",
        ".popsection",
    );

    pub(super) fn here() -> *mut OwnState {
        let place: *mut OwnState;
        // SAFETY: as the x86-64 psABI says for the model `initial exec`: the word at fs:0 is the
        // thread's own address, and the linker or the loader knows how far from it the variable
        // lies. Nothing is stored.
        unsafe {
            asm!(
                "mov {place}, qword ptr fs:[0]",
                "add {place}, qword ptr [rip + holdfast_own_state@GOTTPOFF]",
                place = out(reg) place,
                options(nostack, readonly)
            );
        }
        place
    }
}

#[cfg(target_family = "wasm")]
mod place {
    use core::cell::UnsafeCell;
    use core::ptr::null_mut;

    use super::OwnState;

    struct Own(UnsafeCell<OwnState>);

    // SAFETY: an applet in WebAssembly has one thread.
    unsafe impl Sync for Own {}

    static OWN: Own = Own(UnsafeCell::new(OwnState {
        last_error: 0,
        compartment: 0,
        slot: null_mut(),
        session: 0,
    }));

    pub(super) fn here() -> *mut OwnState {
        OWN.0.get()
    }
}
