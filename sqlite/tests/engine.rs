//! SQLite with the extension in it.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};

/// The extension that was built with this test.
pub(crate) fn extension() -> Result<PathBuf, String> {
    let here = std::env::current_exe().map_err(|error| error.to_string())?;
    let folder = here.parent().and_then(Path::parent).unwrap_or(Path::new("."));
    let path = folder.join("libholdfast_sqlite.so");
    match path.is_file() {
        true => Ok(path),
        false => Err(format!(
            "{} is not built; run ./test, or `cargo build -p holdfast-sqlite-extension`",
            path.display()
        )),
    }
}

/// Loads it, once for all connections of this process.
pub(crate) fn load() {
    let path = extension().unwrap();
    let connection = Connection::open_in_memory().unwrap();
    // SAFETY: the library was built with this test, and loading is allowed on this connection
    // alone.
    unsafe {
        connection.load_extension_enable().unwrap();
        connection.load_extension(&path, None::<&str>).unwrap();
    }
}

/// Opens a database by these parameters of its URI, such as `vfs=holdfast&threshold=2`.
pub(crate) fn open(path: &Path, parameters: &str) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_URI;
    let connection =
        Connection::open_with_flags(format!("file:{}?{parameters}", path.display()), flags)?;
    connection.busy_timeout(std::time::Duration::from_secs(30))?;
    Ok(connection)
}

/// What `PRAGMA integrity_check` says.
pub(crate) fn integrity(connection: &Connection) -> rusqlite::Result<String> {
    connection.query_row("PRAGMA integrity_check", [], |row| row.get(0))
}
