//! The commands that carry out what an error recommends: one for each [`Remedy`].
//!
//! Every program of ours sets [`COMMANDS`] before it starts. C and Python use [`command`] for what
//! their own interfaces do not have.
//!
//! Invariant: each command here exists (`tests/end_to_end/remedies.rs` asks the program).

#![no_std]
#![forbid(unsafe_code)]

use core::fmt;

use holdfast_types::{AppletLimit, HowTo, Remedy};

/// For [`holdfast_types::set_how_to`].
pub static COMMANDS: HowTo = command;

/// Writes the command, or the option of `holdfast run`, in parentheses.
///
/// # Errors
///
/// Those of the formatter.
pub fn command(remedy: &Remedy<'_>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match *remedy {
        Remedy::ListHeaps => f.write_str(" (`holdfast heap ls`)"),
        Remedy::ListKeys => f.write_str(" (`holdfast heap keys`)"),
        Remedy::ListGrants { heap } => write!(f, " (`holdfast heap grants {heap}`)"),
        Remedy::Grant { heap } => write!(f, " (`holdfast heap grant {} --to KEY`)", name(heap)),
        Remedy::GrantWriting { heap } => {
            write!(f, " (`holdfast heap grant {} --to KEY --rw`)", name(heap))
        }
        Remedy::GrantQuota { heap } => {
            write!(f, " (`holdfast heap grant {heap} --to KEY --rw --quota SIZE`)")
        }
        Remedy::RevokeAll { heap } => write!(f, " (`holdfast heap revoke {heap} --all`)"),
        Remedy::RaiseLimit { heap } => write!(f, " (`holdfast heap limit {} SIZE`)", name(heap)),
        Remedy::LowerLimit { heap } => write!(f, " (`holdfast heap limit {heap} SIZE`)"),
        Remedy::Remove { heap } => write!(f, " (`holdfast heap rm {}`)", name(heap)),
        Remedy::RemoveWithCompartments { heap } => {
            write!(f, " (`holdfast heap rm --compartments {heap}`)")
        }
        Remedy::RemoveImage { heap } => write!(f, " (`holdfast heap rm --image {}`)", name(heap)),
        Remedy::RemoveSnapshot { heap, tag } => {
            write!(f, " (`holdfast heap rm --snapshot {tag} {heap}`)")
        }
        Remedy::TakeSnapshot { heap } => write!(f, " (`holdfast heap snapshot {heap} TAG`)"),
        Remedy::Copy { heap } => write!(f, " (`holdfast heap cp {} NEW`)", name(heap)),
        Remedy::Checkpoint { heap } => write!(f, " (`holdfast heap checkpoint {heap}`)"),
        Remedy::Check { heap } => write!(f, " (`holdfast heap check {}`)", name(heap)),
        Remedy::Repair { heap } => write!(f, " (`holdfast heap repair {heap}`)"),
        Remedy::Salvage { file } => write!(f, " (`holdfast heap salvage {file} --to NEW`)"),
        Remedy::Export => f.write_str(" (`holdfast heap export NAME FILE`)"),
        Remedy::Import { file } => write!(f, " (`holdfast heap import {file} NAME`)"),
        Remedy::PutOnDisk => f.write_str(
            " (`--backing file` for a new heap, `holdfast heap backing NAME file` for one that exists)",
        ),
        Remedy::LeavePool { pool } => write!(
            f,
            " (for each heap `HOLDFAST_POOL={pool} holdfast heap checkpoint NAME`, then `HOLDFAST_POOL={pool} holdfast heap \
             rm --image NAME`)"
        ),
        Remedy::AdoptPool => f.write_str(" (`holdfast heap adopt`)"),
        Remedy::HandOver { heap } => write!(f, " (`holdfast heap adopt {heap} --by APPLET`)"),
        Remedy::AddPublisher { publisher } => {
            write!(f, " (`holdfast publisher add {publisher}`)")
        }
        Remedy::RemovePublisher { name } => write!(f, " (`holdfast publisher rm {name}`)"),
        Remedy::OpenCompartment => {
            f.write_str(" (`holdfast run APPLET --heap PARENT --compartment WORKER`)")
        }
        Remedy::ExamineMachine => f.write_str(" (`holdfast doctor`)"),
        Remedy::RaiseAppletLimit(limit) => write!(f, " ({})", option(limit)),
        _ => Ok(()),
    }
}

fn name(heap: Option<&str>) -> &str {
    heap.unwrap_or("NAME")
}

/// The option of `holdfast run` and `holdfast call` that sets a limit; for those that have none,
/// the field of the Rust interface.
fn option(limit: AppletLimit) -> &'static str {
    match limit {
        AppletLimit::CompileMemory => "--compile-memory",
        AppletLimit::Fuel => "--fuel",
        AppletLimit::Memory => "--memory",
        AppletLimit::CallTime
        | AppletLimit::CompileTime
        | AppletLimit::RunTime
        | AppletLimit::StartTime => "--timeout",
        AppletLimit::Text => "--text-limit",
        other => other.field(),
    }
}
