//! The classification of system calls: the classes and subclasses of the study of POSIX in the age
//! of non-volatile memory, for every call of Linux on x86-64.
//!
//! There are two schemes. [`Scheme::Paper`] goes by the name alone, as the study did, so that its
//! tables can be set beside. [`Scheme::Refined`] ([`refined`]) looks at the arguments and at what
//! the descriptor is.
//!
//! Invariants: the table is data (`data/syscall-classes.tsv`), read once; every number is in it
//! once. What is not in it has a class all the same, so no call is ever left out of a sum.

mod names;
mod refined;

use std::collections::HashMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

pub(crate) use names::known_as;
pub(crate) use refined::place;

/// The three classes.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Objects in volatile memory: processes, memory, waiting, signals, sockets, descriptors.
    Os,
    /// Where files are and what they are like.
    Metadata,
    /// What is in files.
    Data,
}

impl Class {
    /// In the order of the study's tables.
    pub const ALL: [Class; 3] = [Class::Os, Class::Metadata, Class::Data];

    /// As the study's tables call the row.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Class::Os => "OS related",
            Class::Metadata => "Metadata related",
            Class::Data => "User data related",
        }
    }

    /// Short, for files and options.
    #[must_use]
    pub const fn id(self) -> &'static str {
        match self {
            Class::Os => "os",
            Class::Metadata => "metadata",
            Class::Data => "data",
        }
    }
}

/// The parts of the classes. The study has the first six, and one each for metadata and user data;
/// [`System`] and [`AsyncIo`] hold what it did not see.
///
/// [`System`]: Subclass::System
/// [`AsyncIo`]: Subclass::AsyncIo
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Subclass {
    /// Processes and threads, users, limits, clocks.
    Process,
    /// Address space.
    Memory,
    /// Waiting for something, and waking what waits.
    Sync,
    /// Signals.
    Signal,
    /// Sockets and pipes.
    Socket,
    /// Descriptors as such.
    FileObject,
    /// The machine: modules, keys, security, tracing.
    System,
    /// Where files are and what they are like.
    Metadata,
    /// What is in files.
    UserData,
    /// Input and output that goes on while the program does.
    AsyncIo,
}

impl Subclass {
    /// In the order of the study's tables.
    pub const ALL: [Subclass; 10] = [
        Subclass::Process,
        Subclass::Memory,
        Subclass::Sync,
        Subclass::Signal,
        Subclass::Socket,
        Subclass::FileObject,
        Subclass::System,
        Subclass::Metadata,
        Subclass::UserData,
        Subclass::AsyncIo,
    ];

    /// As the study's tables call the row.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Subclass::Process => "Process/Thread",
            Subclass::Memory => "Memory",
            Subclass::Sync => "Synchronization",
            Subclass::Signal => "Signal",
            Subclass::Socket => "Socket",
            Subclass::FileObject => "File object",
            Subclass::System => "System",
            Subclass::Metadata => "Metadata",
            Subclass::UserData => "User data",
            Subclass::AsyncIo => "Asynchronous I/O",
        }
    }

    /// Short, for files.
    #[must_use]
    pub const fn id(self) -> &'static str {
        match self {
            Subclass::Process => "process",
            Subclass::Memory => "memory",
            Subclass::Sync => "sync",
            Subclass::Signal => "signal",
            Subclass::Socket => "socket",
            Subclass::FileObject => "file-object",
            Subclass::System => "system",
            Subclass::Metadata => "metadata",
            Subclass::UserData => "user-data",
            Subclass::AsyncIo => "async-io",
        }
    }

    /// The class that it is a part of.
    #[must_use]
    pub const fn class(self) -> Class {
        match self {
            Subclass::Metadata => Class::Metadata,
            Subclass::UserData | Subclass::AsyncIo => Class::Data,
            _ => Class::Os,
        }
    }
}

/// By what a call is put into a class.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Scheme {
    /// Its name, as the study did.
    #[default]
    Paper,
    /// Its arguments and what its descriptor is, too.
    Refined,
}

/// What a call can wait for.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Waits {
    /// Another program, a person, a clock: sleep, that no faster memory takes away.
    pub event: bool,
    /// A device.
    pub io: bool,
    /// A lock in the kernel, for a short time.
    pub lock: bool,
}

impl Waits {
    /// For nothing.
    pub(crate) const NEVER: Waits = Waits { event: false, io: false, lock: false };

    fn parse(text: &str) -> Option<Waits> {
        let mut waits = Waits::NEVER;
        for word in text.split('+') {
            match word {
                "event" => waits.event = true,
                "io" => waits.io = true,
                "lock" => waits.lock = true,
                "-" => {}
                _ => return None,
            }
        }
        Some(waits)
    }
}

/// Where a call belongs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Treatment {
    /// Its part; [`Subclass::class`] has the class.
    pub subclass: Subclass,
    /// What it can wait for.
    pub waits: Waits,
}

impl Treatment {
    /// Of calls that no table knows.
    pub(crate) const UNKNOWN: Treatment =
        Treatment { subclass: Subclass::System, waits: Waits::NEVER };
}

/// A row of the table.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Of the call on x86-64.
    pub number: u32,
    /// As the kernel calls it.
    pub name: &'static str,
    /// Where it belongs by its name.
    pub place: Treatment,
}

static TEXT: &str = include_str!("../../data/syscall-classes.tsv");

static TABLE: LazyLock<Vec<Entry>> =
    LazyLock::new(|| TEXT.lines().skip(1).filter_map(row).collect());

static BY_NAME: LazyLock<HashMap<&'static str, usize>> =
    LazyLock::new(|| TABLE.iter().enumerate().map(|(index, entry)| (entry.name, index)).collect());

/// One line of the file. A test holds that every line is one.
fn row(line: &'static str) -> Option<Entry> {
    let mut fields = line.split('\t');
    let number = fields.next()?.parse().ok()?;
    let name = fields.next()?;
    let class = fields.next()?;
    let subclass = fields.next()?;
    let subclass = Subclass::ALL.into_iter().find(|known| known.id() == subclass)?;
    let waits = Waits::parse(fields.next()?)?;
    // The last two are for readers: whether the study itself placed the call, or this project by
    // the study's definitions, and what decides in the refined scheme.
    fields.next().filter(|by| ["paper", "ours"].contains(by))?;
    fields.next()?;
    (subclass.class().id() == class && fields.next().is_none()).then_some(Entry {
        number,
        name,
        place: Treatment { subclass, waits },
    })
}

/// The call with this number on x86-64.
#[must_use]
pub(crate) fn by_number(number: u32) -> Option<&'static Entry> {
    let index = TABLE.binary_search_by_key(&number, |entry| entry.number).ok()?;
    TABLE.get(index)
}

/// The call with this name on x86-64.
#[must_use]
pub(crate) fn by_name(name: &str) -> Option<&'static Entry> {
    TABLE.get(*BY_NAME.get(name)?)
}

#[cfg(test)]
mod tests;
