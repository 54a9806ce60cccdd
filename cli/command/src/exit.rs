//! Exit codes, which every program of the command line shares, and [`Failure`]: a code with the
//! message that belongs to it.
//!
//! Invariant: a code never changes its meaning; scripts rely on it.

use holdfast_region::{ErrorKind, KeyError, PlaceError, RegionError};

/// Exit codes of the products' programs, for their help.
pub const CODES: &str = "\
Exit codes: 0 done; 1 something was found or left, as the command says; 2 wrong arguments; 3 no such heap or file; 4 held by \
another process; 5 a damaged or foreign file; 6 no room; 7 any other failure; 8 the key may not do it.";

/// `check` or `salvage` found damage, `diff` differences, `doctor` a blocking lack, or `page query`
/// no match.
pub const FOUND: u8 = 1;
/// Wrong arguments.
pub const USAGE: u8 = 2;
/// There is no such heap, snapshot or key, or no file to import.
pub const NOT_FOUND: u8 = 3;
/// The heap is held by another process.
pub const HELD: u8 = 4;
/// A file is damaged, foreign or of a newer format.
pub const BAD_FILE: u8 = 5;
/// The pool or the store is full.
pub const NO_ROOM: u8 = 6;
/// Anything else.
pub const OTHER: u8 = 7;
/// The key may not do it.
pub const DENIED: u8 = 8;
/// `run`: the time limit is used up, as timeout(1) has it.
pub const TIME_LIMIT: u8 = 124;
/// `run`: Holdfast or the heap failed.
pub const HOST_FAILED: u8 = 125;
/// `run`: the applet cannot be loaded.
pub const NOT_LOADABLE: u8 = 126;
/// `run`: there is no such applet.
pub const NO_APPLET: u8 = 127;
/// `run`: the applet trapped or crashed, as if it had aborted, or used up what it was given.
pub const TRAPPED: u8 = 134;
/// `run`: the applet made a system call that it may not make, as if SIGSYS had killed it.
pub const VIOLATION: u8 = 159;

/// What an exit code of `run` means where Holdfast gives it; `None` for one that is the applet's
/// alone.
pub fn meaning(code: u8) -> Option<&'static str> {
    match code {
        TIME_LIMIT => Some("a time limit"),
        HOST_FAILED => Some("a failure of Holdfast or the heap"),
        NOT_LOADABLE => Some("an applet that cannot be loaded"),
        NO_APPLET => Some("a missing applet"),
        TRAPPED => Some("a crash"),
        VIOLATION => Some("a forbidden system call"),
        _ => None,
    }
}

/// The end of a command that failed.
#[derive(Debug)]
pub struct Failure {
    /// For the shell.
    pub code: u8,
    /// For the person.
    pub message: String,
}

impl Failure {
    pub fn new(code: u8, message: impl ToString) -> Failure {
        Failure { code, message: message.to_string() }
    }
}

pub fn usage(error: impl ToString) -> Failure {
    Failure::new(USAGE, error)
}

/// In `run` and `call`, exit codes below 124 are the applet's own: whatever fails on our side is
/// one of ours.
pub fn host(error: impl ToString) -> Failure {
    Failure::new(HOST_FAILED, error)
}

impl From<RegionError> for Failure {
    fn from(error: RegionError) -> Failure {
        Failure::new(code_of(error.kind()), error)
    }
}

/// The exit code of the commands other than `run`.
fn code_of(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::Usage | ErrorKind::AlreadyExists => USAGE,
        ErrorKind::NotFound => NOT_FOUND,
        ErrorKind::Held => HELD,
        ErrorKind::BadFile => BAD_FILE,
        ErrorKind::NoRoom => NO_ROOM,
        ErrorKind::Denied => DENIED,
        _ => OTHER,
    }
}

impl From<PlaceError> for Failure {
    fn from(error: PlaceError) -> Failure {
        Failure::new(code_of(error.kind()), error)
    }
}

impl From<KeyError> for Failure {
    fn from(error: KeyError) -> Failure {
        Failure::new(code_of(error.kind()), error)
    }
}
