//! Databases in each mode of committing, all in the SQLite of this program.
//!
//! Invariant: what a mode asks for is in force, or opening it fails: SQLite answers a mode that it
//! cannot do with another one.

use std::io::{self, Error};
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};

/// Names the extension, which `cargo xtask bench sqlite` builds.
pub(super) const EXTENSION: &str = "HOLDFAST_SQLITE_EXTENSION";
/// A writer waits so long for another one.
const BUSY_MS: u32 = 30_000;

/// A way to commit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Mode {
    pub(super) name: &'static str,
    /// Parameters of the URI; with `vfs=holdfast` it is ours.
    parameters: &'static str,
    journal: Option<&'static str>,
    synchronous: &'static str,
    exclusive: bool,
}

impl Mode {
    const fn theirs(name: &'static str, journal: &'static str, synchronous: &'static str) -> Mode {
        Mode { name, parameters: "", journal: Some(journal), synchronous, exclusive: false }
    }

    const fn ours(name: &'static str, parameters: &'static str) -> Mode {
        Mode { name, parameters, journal: None, synchronous: "FULL", exclusive: false }
    }

    const fn exclusive(self, name: &'static str) -> Mode {
        Mode { name, exclusive: true, ..self }
    }

    pub(super) const DELETE_FULL: Mode = Mode::theirs("delete_full", "delete", "FULL");
    pub(super) const WAL_FULL: Mode = Mode::theirs("wal_full", "wal", "FULL");
    pub(super) const WAL_NORMAL: Mode = Mode::theirs("wal_normal", "wal", "NORMAL");
    pub(super) const WAL_OFF: Mode = Mode::theirs("wal_off", "wal", "OFF");
    pub(super) const WAL_OFF_EXCLUSIVE: Mode = Mode::WAL_OFF.exclusive("wal_off_exclusive");
    pub(super) const MEMORY: Mode =
        Mode { name: "memory", ..Mode::theirs("memory", "memory", "OFF") };
    /// With nothing chosen.
    pub(super) const OURS_AS_IT_COMES: Mode = Mode::ours("holdfast_default", "vfs=holdfast");
    pub(super) const OURS: Mode =
        Mode::ours("holdfast", "vfs=holdfast&level=process&threshold=infinity");
    pub(super) const OURS_EXCLUSIVE: Mode = Mode::OURS.exclusive("holdfast_exclusive");
    pub(super) const OURS_K5: Mode =
        Mode::ours("holdfast_k5", "vfs=holdfast&level=process&threshold=5&flush=inline");
    pub(super) const OURS_K0: Mode =
        Mode::ours("holdfast_k0", "vfs=holdfast&level=process&threshold=0&flush=inline");
    pub(super) const OURS_K0_BACKGROUND: Mode =
        Mode::ours("holdfast_k0_background", "vfs=holdfast&level=process&threshold=0");
    pub(super) const OURS_K5_BACKGROUND: Mode =
        Mode::ours("holdfast_k5_background", "vfs=holdfast&level=process&threshold=5");
    pub(super) const OURS_8_MIB: Mode =
        Mode::ours("holdfast_8_mib", "vfs=holdfast&pool_limit=8388608");
    pub(super) const OURS_POWER: Mode = Mode::ours("holdfast_power", "vfs=holdfast&level=power");
    pub(super) const OURS_SYSTEM: Mode =
        Mode::ours("holdfast_system", "vfs=holdfast&level=system&threshold=infinity");

    /// Whether each transaction does.
    pub(super) fn waits_for_the_disk(self) -> bool {
        self == Mode::DELETE_FULL || self == Mode::WAL_FULL
    }

    /// By its name, for another process.
    pub(super) fn named(name: &str) -> Option<Mode> {
        let all = [
            Mode::WAL_FULL,
            Mode::WAL_NORMAL,
            Mode::WAL_OFF,
            Mode::OURS,
            Mode::OURS_AS_IT_COMES,
            Mode::OURS_K5,
            Mode::DELETE_FULL,
        ];
        all.into_iter().find(|mode| mode.name == name)
    }
}

/// Loads the VFS, once and for all connections of this process.
pub(super) fn load() -> io::Result<()> {
    let path = std::env::var_os(EXTENSION).map(PathBuf::from).ok_or_else(|| {
        Error::other(format!(
            "{EXTENSION} does not name the extension; run `cargo xtask bench sqlite`"
        ))
    })?;
    let connection = Connection::open_in_memory().map_err(Error::other)?;
    // SAFETY: the library is the one that was built with this program; loading stays allowed on
    // this connection alone.
    let loaded = unsafe {
        connection
            .load_extension_enable()
            .and_then(|()| connection.load_extension(&path, None::<&str>))
    };
    loaded.map_err(|error| Error::other(format!("cannot load {}: {error}", path.display())))
}

/// An open database.
pub(super) struct Database(pub(super) Connection);

impl Database {
    pub(super) fn open(mode: Mode, path: &Path) -> io::Result<Database> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_URI
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let place = match mode {
            Mode::MEMORY => ":memory:".to_owned(),
            _ => format!("file:{}?{}", path.display(), mode.parameters),
        };
        let open = || -> rusqlite::Result<Connection> {
            let connection = Connection::open_with_flags(&place, flags)?;
            connection.busy_timeout(std::time::Duration::from_millis(BUSY_MS.into()))?;
            if mode.exclusive {
                connection.pragma_update_and_check(
                    None,
                    "locking_mode",
                    "EXCLUSIVE",
                    |_| Ok(()),
                )?;
            }
            Ok(connection)
        };
        let connection = open().map_err(|error| Error::other(format!("{}: {error}", mode.name)))?;
        if let Some(journal) = mode.journal {
            let answer = |row: &rusqlite::Row<'_>| row.get::<_, String>(0);
            let found = connection.pragma_update_and_check(None, "journal_mode", journal, answer);
            let found = found.map_err(Error::other)?;
            if found != journal {
                return Err(Error::other(format!(
                    "SQLite works with journal_mode={found} instead of {journal}"
                )));
            }
        }
        connection.pragma_update(None, "synchronous", mode.synchronous).map_err(Error::other)?;
        Ok(Database(connection))
    }

    /// Writes to the file what the mode keeps back.
    pub(super) fn write_back(&self) -> io::Result<()> {
        // One of them is none of this mode's; what they answer says nothing here.
        for pragma in ["PRAGMA wal_checkpoint(TRUNCATE)", "PRAGMA holdfast_checkpoint"] {
            self.0.execute_batch(pragma).map_err(Error::other)?;
        }
        Ok(())
    }

    /// Closes it; what a mode puts off to its end is done then.
    pub(super) fn close(self) -> io::Result<()> {
        self.0.close().map_err(|(_, error)| Error::other(error))
    }
}
