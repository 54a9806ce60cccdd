//! The failures, and which level survives which: the table of docs/guarantees/heap.md that the lab
//! holds the library to.

use std::fmt;

use crate::place::{Holder, Place, Pool, found};
use holdfast_types::Durability;

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
    /// The power key is held, a keeper saves what is in ordinary memory, and a reset while it is
    /// held.
    Hold,
    /// The same, and the power is off while it is held.
    HoldOff,
    /// The machine stands still, and is reset.
    Freeze,
    /// The machine is gone with all that was in memory, and with what its disk had not been told to
    /// keep.
    PowerCut,
}

impl Cause {
    /// All, in the order in which one machine lives through them.
    pub const ALL: [Cause; 8] = [
        Cause::Crash,
        Cause::Hang,
        Cause::Panic,
        Cause::Button,
        Cause::Hold,
        Cause::Freeze,
        Cause::HoldOff,
        Cause::PowerCut,
    ];

    /// As a person names it on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Cause::Crash => "crash",
            Cause::Hang => "hang",
            Cause::Panic => "panic",
            Cause::Button => "button",
            Cause::Hold => "hold",
            Cause::HoldOff => "hold-off",
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
            Cause::Button => "power button (ACPI), then reset",
            Cause::Hold => "power key held, keeper saves, reset",
            Cause::HoldOff => "power key held, keeper saves, power off",
            Cause::Freeze => "machine frozen, then reset",
            Cause::PowerCut => "power cut, memory lost",
        }
    }

    /// Whether the machine goes on.
    #[must_use]
    pub fn spares_machine(self) -> bool {
        matches!(self, Cause::Crash | Cause::Hang)
    }

    /// Whether all memory is lost, the reserved one, too.
    #[must_use]
    pub fn takes_memory(self) -> bool {
        matches!(self, Cause::PowerCut | Cause::HoldOff)
    }

    /// Whether it announces itself to a keeper, which saves what is in ordinary memory.
    #[must_use]
    pub fn is_announced(self) -> bool {
        matches!(self, Cause::Hold | Cause::HoldOff)
    }

    /// The weakest level whose records must all be there afterwards, whatever is announced.
    #[must_use]
    pub fn needs(self) -> Durability {
        match self {
            Cause::Crash | Cause::Hang => Durability::Process,
            Cause::Panic | Cause::Button | Cause::Hold | Cause::Freeze => Durability::System,
            Cause::PowerCut | Cause::HoldOff => Durability::Power,
        }
    }

    /// Whether the records of this place are promised to survive; of an announced failure, those
    /// from before it began, which a keeper has saved.
    #[must_use]
    pub fn is_survived_by(self, place: Place) -> bool {
        place.level >= self.needs() || (self.is_announced() && place.is_kept())
    }

    /// As what a place must be found afterwards, in the words of [`crate::place::found`]: one of
    /// these, or, where there is none, anything.
    #[must_use]
    pub fn leaves(self, place: Place) -> &'static [&'static str] {
        let keeps_pool = self.spares_machine() || (place.pool == Pool::Dax && !self.takes_memory());
        let is_saved = self.is_announced() && place.is_kept();
        match place.holder {
            Holder::Database if keeps_pool => &[found::POOL],
            // Its writer went on after it was saved, and may have flushed more.
            Holder::Database if is_saved => &[found::SAVED, found::LAST_FLUSH],
            Holder::Database => &[found::LAST_FLUSH],
            _ if keeps_pool && !self.spares_machine() => &[found::AFTER_RESET],
            // Those of the other levels may be in the store as they are.
            _ if is_saved && place.is_volatile() => &[found::RESCUED],
            _ => &[],
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a keeper saves is promised at every level; other data only at its own level.
    #[test]
    fn promise_depends_on_the_cause_and_the_level() {
        let place = |pool, level| Place { holder: Holder::Heap, pool, level };
        for level in Durability::ALL {
            assert!(Cause::Hold.is_survived_by(place(Pool::Tmpfs, level)));
            assert!(Cause::HoldOff.is_survived_by(place(Pool::Tmpfs, level)));
            assert_eq!(
                Cause::Button.is_survived_by(place(Pool::Tmpfs, level)),
                level >= Durability::System
            );
            assert_eq!(
                Cause::Hold.is_survived_by(place(Pool::Dax, level)),
                level >= Durability::System
            );
            assert_eq!(
                Cause::HoldOff.is_survived_by(place(Pool::Dax, level)),
                level == Durability::Power
            );
        }
        assert!(Cause::ALL.into_iter().all(|cause| Cause::parse(cause.name()) == Some(cause)));
    }

    /// A database is found in the pool while the pool exists, and otherwise as of its last flush.
    #[test]
    fn database_comes_from_the_pool_or_last_flush() {
        let place = |holder, pool| Place { holder, pool, level: Durability::System };
        let database = |pool| place(Holder::Database, pool);
        assert_eq!(Cause::Hang.leaves(database(Pool::Tmpfs)), [found::POOL]);
        assert_eq!(Cause::Panic.leaves(database(Pool::Dax)), [found::POOL]);
        assert_eq!(Cause::Panic.leaves(database(Pool::Tmpfs)), [found::LAST_FLUSH]);
        assert_eq!(Cause::PowerCut.leaves(database(Pool::Dax)), [found::LAST_FLUSH]);
        assert_eq!(Cause::Freeze.leaves(place(Holder::Applet, Pool::Dax)), [found::AFTER_RESET]);
        assert!(Cause::HoldOff.leaves(place(Holder::Heap, Pool::Dax)).is_empty());
        assert_eq!(Cause::Hold.leaves(database(Pool::Tmpfs)), [found::SAVED, found::LAST_FLUSH]);
        let volatile = Place { level: Durability::Process, ..place(Holder::Heap, Pool::Tmpfs) };
        assert_eq!(Cause::HoldOff.leaves(volatile), [found::RESCUED]);
        assert!(Cause::Button.leaves(volatile).is_empty());
    }
}
