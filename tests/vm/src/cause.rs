//! The failures, and which level survives which: the table of docs/guarantees.md that the lab holds the library to.

use std::fmt;

use crate::words::{Level, Place};

/// What is done to the machine or to the writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// SIGKILL: the writer crashes.
    Crash,
    /// SIGSTOP, and SIGKILL a second later: the writer hangs.
    Hang,
    /// `c` to `/proc/sysrq-trigger`, and the machine starts anew by itself.
    Panic,
    /// The power button, and a reset while it is held.
    Button,
    /// The machine stands still, and is reset.
    Freeze,
    /// The machine is gone with all that was in memory, and with what its disk had not been told to keep.
    PowerCut,
}

impl Cause {
    /// All, in the order in which one machine lives through them.
    pub const ALL: [Cause; 6] =
        [Cause::Crash, Cause::Hang, Cause::Panic, Cause::Button, Cause::Freeze, Cause::PowerCut];

    /// As a person names it on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Cause::Crash => "crash",
            Cause::Hang => "hang",
            Cause::Panic => "panic",
            Cause::Button => "button",
            Cause::Freeze => "freeze",
            Cause::PowerCut => "power-cut",
        }
    }

    /// The cause of this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Cause> {
        Cause::ALL.into_iter().find(|cause| cause.name() == name)
    }

    /// What happens, for a reader of the table.
    #[must_use]
    pub fn describe(self) -> &'static str {
        match self {
            Cause::Crash => "writer killed (SIGKILL)",
            Cause::Hang => "writer hangs (SIGSTOP), then killed",
            Cause::Panic => "kernel panic, restarts by itself",
            Cause::Button => "power button held, then reset",
            Cause::Freeze => "machine frozen, then reset",
            Cause::PowerCut => "power cut, memory lost",
        }
    }

    /// Whether the machine goes on.
    #[must_use]
    pub fn spares_machine(self) -> bool {
        matches!(self, Cause::Crash | Cause::Hang)
    }

    /// The weakest level whose records must all be there afterwards.
    #[must_use]
    pub fn needs(self) -> Level {
        match self {
            Cause::Crash | Cause::Hang => Level::Process,
            Cause::Panic | Cause::Button | Cause::Freeze => Level::System,
            Cause::PowerCut => Level::Power,
        }
    }

    /// Whether the records of this heap are promised to survive.
    #[must_use]
    pub fn is_survived_by(self, place: Place) -> bool {
        place.level >= self.needs()
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}
