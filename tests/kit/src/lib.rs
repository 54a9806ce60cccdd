//! Drives the built `holdfast` command from outside: where the programs are, a scratch home for
//! them, the main job as commands, and a look into the heaps that they leave behind; heaps in plain
//! memory; file systems whose power is cut; golden files; and how often a fault is tried. For the
//! tests of this workspace and the measurements in `bench/`.
//!
//! Invariants: nothing here touches the user's own heaps; every scratch home is removed with its
//! value.
//!
//! What it must not do: build anything. A missing program is an error that says who builds it.

#![deny(unsafe_code)]

#[cfg(not(target_family = "wasm"))]
#[allow(unsafe_code, reason = "one ioctl")]
pub mod file_system;
#[cfg(not(target_family = "wasm"))]
pub mod full_home;
#[cfg(not(target_family = "wasm"))]
pub mod golden;
#[cfg(not(target_family = "wasm"))]
mod heaps;
#[cfg(not(target_family = "wasm"))]
pub mod measure;
mod memory;
#[cfg(not(target_family = "wasm"))]
mod programs;
#[cfg(not(target_family = "wasm"))]
mod proportional;
#[cfg(not(target_family = "wasm"))]
mod scratch;
#[cfg(not(target_family = "wasm"))]
pub mod sealed;
#[cfg(not(target_family = "wasm"))]
mod spellcheck;
#[cfg(not(target_family = "wasm"))]
mod trials;

#[cfg(not(target_family = "wasm"))]
pub use heaps::{Soundness, heap_soundness};
pub use memory::TestMemory;
#[cfg(not(target_family = "wasm"))]
pub use programs::{Programs, applet_file, native_applet, target_directory};
#[cfg(not(target_family = "wasm"))]
pub use proportional::proportional_bytes;
#[cfg(not(target_family = "wasm"))]
pub use scratch::Scratch;
#[cfg(not(target_family = "wasm"))]
pub use spellcheck::{Dictionaries, Spellcheck};
#[cfg(not(target_family = "wasm"))]
pub use trials::{Trial, Trials};
