//! Says whether its own code is found in its own program, and that of nothing is not:
//! `tests/linking.rs` runs it linked in each way.

use std::ffi::c_void;
use std::process::ExitCode;

use holdfast_sys::worker::is_in_main_program;

fn main() -> ExitCode {
    let is_found =
        is_in_main_program(main as *const c_void) && !is_in_main_program(std::ptr::null());
    ExitCode::from(u8::from(!is_found))
}
