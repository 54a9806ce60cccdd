//! Remedies of errors, as data. The library that fails names the remedy; the program or the binding
//! that shows the error says how its own users carry it out.
//!
//! Invariant: no text here names a command line or a language. The command line, C and Python each
//! set their [`HowTo`] once, before they can show an error; a Rust host without one reads the plain
//! clauses, whose functions the variants name.

use core::fmt;

use once_cell::race::OnceRef;

/// What a caller can do about an error. Displayed as a clause in the imperative ("list all heaps"),
/// followed by what the front of this process adds to it ("(`COMMAND`)").
///
/// A heap is `None` where the library does not know the heap's name.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub enum Remedy<'a> {
    /// `NameSpace::list`.
    ListHeaps,
    /// `OwnerKey::names`.
    ListKeys,
    /// `NameSpace::grants`.
    ListGrants {
        /// The heap's name.
        heap: &'a str,
    },
    /// The owner calls `NameSpace::grant`.
    Grant {
        /// The heap's name.
        heap: Option<&'a str>,
    },
    /// The owner grants the right to write.
    GrantWriting {
        /// The heap's name.
        heap: Option<&'a str>,
    },
    /// The owner grants a larger quota.
    GrantQuota {
        /// The heap's name.
        heap: &'a str,
    },
    /// The owner calls `NameSpace::revoke_all`, and grants again.
    RevokeAll {
        /// The heap's name.
        heap: &'a str,
    },
    /// `NameSpace::set_limit`, upwards.
    RaiseLimit {
        /// The heap's name.
        heap: Option<&'a str>,
    },
    /// `NameSpace::set_limit`, downwards.
    LowerLimit {
        /// The heap's name.
        heap: &'a str,
    },
    /// `NameSpace::remove`.
    Remove {
        /// The heap's name.
        heap: Option<&'a str>,
    },
    /// `NameSpace::remove_with_compartments`.
    RemoveWithCompartments {
        /// The heap's name.
        heap: &'a str,
    },
    /// `NameSpace::remove_image`: the next open starts from the last checkpoint.
    RemoveImage {
        /// The heap's name.
        heap: Option<&'a str>,
    },
    /// `NameSpace::remove_snapshot`.
    RemoveSnapshot {
        /// The heap's name.
        heap: &'a str,
        /// The snapshot's tag.
        tag: &'a str,
    },
    /// `NameSpace::snapshot`.
    TakeSnapshot {
        /// The heap's name.
        heap: &'a str,
    },
    /// `NameSpace::copy`, which needs no key of the original's owner.
    Copy {
        /// The heap's name.
        heap: Option<&'a str>,
    },
    /// `NameSpace::checkpoint_unheld`.
    Checkpoint {
        /// The heap's name.
        heap: &'a str,
    },
    /// `holdfast_heap::survey`.
    Check {
        /// The heap's name.
        heap: Option<&'a str>,
    },
    /// `NameSpace::examine`, then `Examination::mend`.
    Repair {
        /// The heap's name.
        heap: &'a str,
    },
    /// `DamagedFile::salvage`.
    Salvage {
        /// The file to read from.
        file: &'a dyn fmt::Display,
    },
    /// `RegionReader::export`.
    Export,
    /// `NameSpace::import`.
    Import {
        /// The exported heap.
        file: &'a dyn fmt::Display,
    },
    /// `NameSpace::set_medium` with `Medium::File`.
    PutOnDisk,
    /// `NameSpace::checkpoint_unheld`, then `NameSpace::remove_image`, of each heap, in the pool of
    /// that path.
    LeavePool {
        /// The pool in which the images are.
        pool: &'a dyn fmt::Display,
    },
    /// `Places::adopt_from_env`.
    AdoptPool,
    /// `holdfast_identity::hand_over`.
    HandOver {
        /// The heap's name.
        heap: &'a str,
    },
    /// `holdfast_identity::Publishers::add`.
    AddPublisher {
        /// The publisher: name and public key.
        publisher: &'a dyn fmt::Display,
    },
    /// `holdfast_identity::Publishers::remove`.
    RemovePublisher {
        /// The publisher's name.
        name: &'a str,
    },
    /// `NameSpace::open_compartment`.
    OpenCompartment,
    /// The machine's own report of what it offers.
    ExamineMachine,
    /// A larger limit of the applet: a field of `holdfast_applet::Limits`.
    RaiseAppletLimit(AppletLimit),
}

/// A limit of an applet that an error can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AppletLimit {
    /// Shared buffers of all calls together.
    Buffers,
    /// Wall time of a call.
    CallTime,
    /// Memory of the compiler.
    CompileMemory,
    /// Wall time of the compiler.
    CompileTime,
    /// Units of fuel.
    Fuel,
    /// Volatile memory.
    Memory,
    /// Bytes of a result.
    Result,
    /// Wall time of a run.
    RunTime,
    /// Wall time until the applet serves.
    StartTime,
    /// Bytes of a program in the text format.
    Text,
}

impl AppletLimit {
    /// The field of `holdfast_applet::Limits`.
    #[must_use]
    pub const fn field(self) -> &'static str {
        match self {
            Self::Buffers => "buffer_bytes",
            Self::CallTime => "call_timeout",
            Self::CompileMemory => "compile_memory_bytes",
            Self::CompileTime => "compile_timeout",
            Self::Fuel => "fuel",
            Self::Memory => "memory_bytes",
            Self::Result => "result_bytes",
            Self::RunTime => "timeout",
            Self::StartTime => "start_timeout",
            Self::Text => "text_bytes",
        }
    }
}

/// Writes how the users of a front carry a remedy out, with a space before it, such as
/// " (`COMMAND`)"; nothing where the clause says all.
pub type HowTo = fn(&Remedy<'_>, &mut fmt::Formatter<'_>) -> fmt::Result;

static HOW_TO: OnceRef<'static, HowTo> = OnceRef::new();

/// Sets the front of this process. The first one stays: a library inside a program does not take
/// the program's words.
pub fn set_how_to(how_to: &'static HowTo) {
    // A second front is refused on purpose.
    let _ = HOW_TO.set(how_to);
}

/// How a Rust host carries a remedy out, as far as the clause does not say it.
fn by_field(remedy: &Remedy<'_>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match remedy {
        Remedy::RaiseAppletLimit(limit) => write!(f, " ({})", limit.field()),
        _ => Ok(()),
    }
}

impl Remedy<'_> {
    /// The clause.
    const fn clause(&self) -> &'static str {
        match self {
            Self::ListHeaps => "list all heaps",
            Self::ListKeys => "list all keys with what they own",
            Self::ListGrants { .. } => "list all its grants",
            Self::Grant { .. } => "have its owner let this key use it",
            Self::GrantWriting { .. } => "its owner can let it write",
            Self::GrantQuota { .. } => "its owner can raise that",
            Self::RevokeAll { .. } => "drop the table and grant again",
            Self::RaiseLimit { .. } => "raise its limit",
            Self::LowerLimit { .. } => "lower that",
            Self::Remove { .. } => "remove it",
            Self::RemoveWithCompartments { .. } => "remove them with it",
            Self::RemoveImage { .. } => {
                "drop the image and go on from the last checkpoint, without what was stored since"
            }
            Self::RemoveSnapshot { .. } => "remove that one",
            Self::TakeSnapshot { .. } => "take one",
            Self::Copy { .. } => "make a copy that is yours",
            Self::Checkpoint { .. } => "make a checkpoint",
            Self::Check { .. } => "check it for a full list",
            Self::Repair { .. } => "repair it, which loses nothing without asking",
            Self::Salvage { .. } => "salvage what is there",
            Self::Export => "export one",
            Self::Import { .. } => "import it",
            Self::PutOnDisk => "let the heap lie there",
            Self::LeavePool { .. } => {
                "make a checkpoint of each heap in the old pool and drop its image there"
            }
            Self::AdoptPool => "adopt the pool, which makes it this home's",
            Self::HandOver { .. } => "have this one handed over to the applet",
            Self::AddPublisher { .. } => "add this one to those you know",
            Self::RemovePublisher { .. } => "remove the publisher from those you know",
            Self::OpenCompartment => "open it through its parent",
            Self::ExamineMachine => "examine what this machine offers",
            Self::RaiseAppletLimit(_) => "raise the limit",
        }
    }
}

impl fmt::Display for Remedy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.clause())?;
        HOW_TO.get().copied().unwrap_or(by_field)(self, f)
    }
}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::*;

    /// Without a front, a limit is named as a Rust host knows it; the first front that is set
    /// stays.
    #[test]
    fn first_front_adds_its_words() {
        let limit = Remedy::RaiseAppletLimit(AppletLimit::Memory);
        assert_eq!(limit.to_string(), "raise the limit (memory_bytes)");
        assert_eq!(Remedy::ListHeaps.to_string(), "list all heaps");
        static FIRST: HowTo = |_, f| f.write_str(" (so)");
        static SECOND: HowTo = |_, f| f.write_str(" (otherwise)");
        set_how_to(&FIRST);
        set_how_to(&SECOND);
        assert_eq!(Remedy::ListHeaps.to_string(), "list all heaps (so)");
    }
}
