//! The places of records: what holds them, in which pool, at which level they are acknowledged.
//!
//! Invariant: each place has a name without blanks, by which host and guest know it, and it is no
//! other's.

use std::fmt;
use std::str::FromStr;

use holdfast_types::Durability;

/// How a place was found when it was opened, in a word. Those of heaps are of
/// `holdfast_region::Opened`.
pub mod found {
    /// A heap: its image was in a pool that outlived the machine's last boot.
    pub const AFTER_RESET: &str = "WarmAfterReset";
    /// A heap: from its rescue copy.
    pub const RESCUED: &str = "Rescued";
    /// A heap or database that is not there.
    pub const NEVER: &str = "Never";
    /// A database: its newest pages were in the pool.
    pub const POOL: &str = "Pool";
    /// A database: the pool was lost, and its opener learned that it is as of its last
    /// flush.
    pub const LAST_FLUSH: &str = "LastFlush";
    /// A database: the pool was lost, and its opener learned that it is as a keeper saved
    /// it.
    pub const SAVED: &str = "Saved";
    /// A database whose file was complete.
    pub const FILE: &str = "File";
}

/// What holds the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Holder {
    /// A heap of the writer's own.
    Heap,
    /// The heap of a native applet, which the writer calls.
    Applet,
    /// A database of SQLite, over the VFS `holdfast`.
    Database,
}

/// Where the image lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pool {
    /// Ordinary memory.
    Tmpfs,
    /// A file system with DAX in memory that the kernel was told to leave alone.
    Dax,
}

/// One heap or database: it holds records of one level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// What it is.
    pub holder: Holder,
    /// Where its image is.
    pub pool: Pool,
    /// The level of its records.
    pub level: Durability,
}

impl Holder {
    /// All.
    pub const ALL: [Holder; 3] = [Holder::Heap, Holder::Applet, Holder::Database];

    /// Its word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Holder::Heap => "heap",
            Holder::Applet => "applet",
            Holder::Database => "database",
        }
    }
}

impl Pool {
    /// All.
    pub const ALL: [Pool; 2] = [Pool::Tmpfs, Pool::Dax];

    /// Its word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Pool::Tmpfs => "tmpfs",
            Pool::Dax => "dax",
        }
    }

    /// The one of this word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Pool> {
        Pool::ALL.into_iter().find(|pool| pool.name() == word)
    }
}

impl Place {
    /// Heaps and databases in every pool and at every level; and an applet whose transactions are
    /// to survive a reset without the disk, which only direct access offers.
    pub fn all() -> impl Iterator<Item = Place> {
        let every = |holder| {
            let at = move |pool| Durability::ALL.map(|level| Place { holder, pool, level });
            Pool::ALL.into_iter().flat_map(at)
        };
        let applet = Place { holder: Holder::Applet, pool: Pool::Dax, level: Durability::System };
        every(Holder::Heap).chain([applet]).chain(every(Holder::Database))
    }

    /// Whether the machine's keeper looks after it.
    #[must_use]
    pub fn is_kept(self) -> bool {
        self.pool == Pool::Tmpfs
    }

    /// Whether nothing but a keeper, or a checkpoint, brings its records to the disk.
    #[must_use]
    pub fn is_volatile(self) -> bool {
        self.is_kept() && self.level == Durability::Process
    }

    /// Those of one holder.
    pub fn of(holder: Holder) -> impl Iterator<Item = Place> {
        Place::all().filter(move |place| place.holder == holder)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}-{}-{}", self.holder.name(), self.pool.name(), self.level.name())
    }
}

impl FromStr for Place {
    type Err = ();

    fn from_str(text: &str) -> Result<Place, ()> {
        Place::all().find(|place| place.to_string() == text).ok_or(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every place has its own name, and parsing the name finds the place.
    #[test]
    fn every_place_has_a_unique_name() {
        let places: Vec<_> = Place::all().collect();
        assert_eq!(places.len(), 13);
        for place in &places {
            assert_eq!(place.to_string().parse(), Ok(*place));
        }
        assert_eq!(places.iter().filter(|place| place.is_volatile()).count(), 2);
        assert_eq!("applet-tmpfs-power".parse::<Place>(), Err(()));
        assert!(Pool::ALL.into_iter().all(|pool| Pool::parse(pool.name()) == Some(pool)));
    }
}
