//! Gives the shared library its name and keeps it loaded.
//!
//! The major number of the soname changes when `holdfast.h` breaks. `nodelete`: the fault handler
//! of a region stays installed, so its code must stay, too.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libholdfast.so.0");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
