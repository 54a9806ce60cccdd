//! The signal of a file that becomes larger than it may be (`ulimit -f`): by default it ends a
//! process without a word.

#![allow(unsafe_code, reason = "the actions of signals are in no safe library")]

/// Has this process, and those that it starts, get an error (`EFBIG`) instead of the signal
/// `SIGXFSZ`. For programs; a library leaves signals to its program. Called before there are
/// threads that set the same signal.
pub fn ignore() {
    // SAFETY: ignoring a signal runs no code of this process.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}
