//! The jail for native programs: starts an ELF program under every layer of confinement that the
//! machine offers, supervises it, and says how it ended.
//!
//! [`Jail`] is a builder; [`Jail::spawn`] returns a [`Jailed`]. What the program may do is data:
//! [`policy`] holds a table of rules, each with its reason. Two steps: while *loading* the program
//! may map code and open files for reading, where Landlock and its own root let it;
//! [`Jailed::seal`] ends that.
//!
//! Invariants:
//! - A program whose jail could not be set up completely does not run a single instruction.
//! - A program never outlives its host: it dies with the thread that started it, and that thread
//!   lives as long as the process.
//! - Decisions look at numbers only, never at memory that the program can change.
//! - What a machine cannot give is refused (`strict`) or listed ([`Jailed::weaker`]); it is never
//!   left out silently.
//!
//! This crate knows nothing of channels' contents, of regions or of WebAssembly: it is given
//! descriptors to install.
#![forbid(unsafe_code)]

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
compile_error!(
    "the jail's policy is written for x86-64 Linux; other machines run WebAssembly applets"
);

mod answer;
mod end;
mod error;
mod filter;
mod groups;
mod inmate;
mod jail;
mod jailed;
mod layers;
mod limits;
mod machine;
mod null;
pub mod policy;
mod program;
mod relay;
mod resources;
mod root;
mod ruleset;
mod supervisor;

pub use end::{End, KillReason, LimitHit, Usage, Violation, signal_name};
pub use error::JailError;
pub use holdfast_types::PathAccess;
pub use jail::{Examined, Jail, JailStdio, PathGrant};
pub use jailed::Jailed;
pub use layers::{Layer, Layers, Weakness};
pub use limits::JailLimits;
pub use policy::{Policy, Step};
pub use program::{ElfNote, notes};
