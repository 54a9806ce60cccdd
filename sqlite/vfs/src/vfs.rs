//! The VFS `holdfast` as SQLite sees it: opening, deleting and looking for files; all that is not a
//! database or its journal is the base VFS's.
//!
//! Databases in WAL mode are passed through, with a notice: their commits are not ours to make
//! faster.

#![allow(unsafe_code, reason = "called by C, with its pointers")]

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::Duration;

use holdfast_types::set_how_to;

use crate::base::read_mark;
use crate::base::{Base, HostFile};
use crate::complaints;
use crate::connection::{Connection, report};
use crate::error::{Result, SqliteError};
use crate::ffi::{self, RawFile, Vfs};
use crate::host::{self, Host, text_for_sqlite};
use crate::image::BLOCK_BYTES;
use crate::methods::{JOURNAL, MAIN, OurFile, choose_methods};
use crate::parameters::ChosenSettings;
use crate::passing::base_of;
use crate::patience::sleep_until_free;
use crate::pool::Pool;
use crate::refused;
use crate::registry;

/// The name of the VFS.
pub const NAME: &CStr = c"holdfast";

/// The base file of a connection is behind ours.
const BASE_AT: usize = size_of::<OurFile>().next_multiple_of(16);

static REGISTERED: AtomicPtr<Vfs> = AtomicPtr::new(std::ptr::null_mut());

/// Registers the VFS with the SQLite that `host` belongs to; on top of the VFS that is the default
/// at the first time. Returns a code of SQLite.
pub fn register(host: Host, make_default: bool) -> c_int {
    set_how_to(&holdfast_remedies::COMMANDS);
    catch_unwind(|| {
        let host = host.keep();
        let mut ours = REGISTERED.load(Ordering::Acquire);
        if ours.is_null() {
            // SAFETY: null asks for the default VFS.
            let base = unsafe { (host.vfs_find)(std::ptr::null()) };
            if base.is_null() {
                return ffi::ERROR;
            }
            ours = Box::into_raw(Box::new(describe(base)));
            REGISTERED.store(ours, Ordering::Release);
        }
        // What is wrong with it is reported when a database is opened.
        let _ = complaints::configure();
        // SAFETY: it is complete, and stays for as long as the process.
        unsafe { (host.vfs_register)(ours, c_int::from(make_default)) }
    })
    .unwrap_or(ffi::ERROR)
}

/// Whether a VFS is the one that was registered here.
pub(crate) fn is_ours(vfs: *const Vfs) -> bool {
    !vfs.is_null() && std::ptr::eq(vfs, REGISTERED.load(Ordering::Acquire))
}

/// Keeps an extension in memory: SQLite goes on to call it after the connection that loaded it is
/// closed.
const OK_LOAD_PERMANENTLY: c_int = 256;
/// The environment variable that makes the VFS of an extension the default.
const DEFAULT_VARIABLE: &str = "HOLDFAST_SQLITE_DEFAULT";

/// What the entry point of a loadable extension does: registers the VFS, as the default one with
/// `HOLDFAST_SQLITE_DEFAULT=1`. Returns a code of SQLite, with a text in `message` if it is an
/// error.
///
/// # Safety
/// The arguments must be those that SQLite passes to the entry point of an extension.
pub unsafe fn load(
    database: *mut c_void,
    message: *mut *mut c_char,
    routines: *const c_void,
) -> c_int {
    // SAFETY: per the contract.
    let Some(host) = (unsafe { Host::from_api(routines) }) else { return ffi::ERROR };
    let host = host.keep();
    let default = std::env::var_os(DEFAULT_VARIABLE).unwrap_or_default();
    let is_default = match default.to_str() {
        Some("1") => Ok(true),
        Some("" | "0") => Ok(false),
        _ => Err(format!("holdfast: {DEFAULT_VARIABLE} is {}; `1` or `0`", default.display())),
    };
    let code = match is_default {
        Ok(is_default) => register(*host, is_default),
        Err(wrong) => {
            if !message.is_null() {
                // SAFETY: SQLite's variable, whose text it frees.
                unsafe { *message = text_for_sqlite(&wrong) };
            }
            return ffi::ERROR;
        }
    };
    if code != ffi::OK {
        return code;
    }
    // SAFETY: the connection that loads the extension: what is registered for new ones comes too
    // late for it.
    unsafe { refused::add_functions(host, database) };
    OK_LOAD_PERMANENTLY
}

fn describe(base: *mut Vfs) -> Vfs {
    // SAFETY: a registered VFS stays.
    let found = unsafe { &*base };
    Vfs {
        version: found.version.min(3),
        file_bytes: BASE_AT as c_int + found.file_bytes,
        path_bytes_max: found.path_bytes_max,
        next: std::ptr::null_mut(),
        name: NAME.as_ptr(),
        app_data: base.cast(),
        open: Some(open),
        delete: Some(delete),
        access: Some(access),
        full_pathname: Some(crate::passing::full_pathname),
        dl_open: Some(crate::passing::dl_open),
        dl_error: Some(crate::passing::dl_error),
        dl_sym: Some(crate::passing::dl_sym),
        dl_close: Some(crate::passing::dl_close),
        randomness: Some(crate::passing::randomness),
        sleep: Some(sleep),
        current_time: Some(crate::passing::current_time),
        get_last_error: Some(last_error),
        current_time_int64: found
            .current_time_int64
            .map(|_| crate::passing::current_time_int64 as _),
        set_system_call: Some(crate::passing::set_system_call),
        get_system_call: Some(crate::passing::get_system_call),
        next_system_call: Some(crate::passing::next_system_call),
    }
}

fn open_base(
    base: *mut Vfs,
    name: *const c_char,
    file: *mut RawFile,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: the arguments are those that SQLite gave us, or made alike; `file` has room for a
    // file of the base VFS.
    unsafe { (*base).open.map_or(ffi::CANTOPEN, |open| open(base, name, file, flags, out_flags)) }
}

/// A path from SQLite.
fn path_of(name: *const c_char) -> PathBuf {
    // SAFETY: SQLite's names end with a zero.
    PathBuf::from(OsStr::from_bytes(unsafe { CStr::from_ptr(name) }.to_bytes()))
}

unsafe extern "C" fn open(
    vfs: *mut Vfs,
    name: *const c_char,
    file: *mut RawFile,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    let base = base_of(vfs);
    let opened = catch_unwind(AssertUnwindSafe(|| {
        if name.is_null() || flags & ffi::OPEN_DELETEONCLOSE != 0 {
            return open_base(base, name, file, flags, out_flags);
        }
        if flags & ffi::OPEN_MAIN_DB != 0 {
            // SAFETY: SQLite gives room for as much as `file_bytes` says.
            unsafe { (*file).methods = std::ptr::null() };
            return open_main(base, name, file, flags, out_flags);
        }
        if flags & ffi::OPEN_WAL != 0
            && let Err(code) = leave_pool(name)
        {
            return code;
        }
        if flags & ffi::OPEN_MAIN_JOURNAL != 0
            && let Some(code) = open_journal(name, file, flags, out_flags)
        {
            return code;
        }
        open_base(base, name, file, flags, out_flags)
    }));
    opened.unwrap_or(ffi::CANTOPEN)
}

fn open_main(
    base: *mut Vfs,
    name: *const c_char,
    file: *mut RawFile,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    let path = path_of(name);
    let is_told = Host::get().is_some_and(refused::look_at_connections);
    let refuse = |error: &SqliteError| {
        // Also what SQLite calls busy: it is not asked again for a database that was not opened.
        host::log(error.code(), &error.to_string());
        // SAFETY: SQLite gives room for a file of ours.
        unsafe {
            refused::refuse(file, (flags, out_flags), (error.code(), error.to_string()), is_told)
        }
    };
    let wishes = match wishes(name, &path) {
        Ok(wishes) => wishes,
        Err(error) => return refuse(&error),
    };
    // SAFETY: there is room for both files, one after the other; the base VFS's ask for no more
    // than 16 of alignment.
    let below: *mut RawFile = unsafe { file.cast::<u8>().add(BASE_AT).cast() };
    let mut got = 0;
    let code = open_base(base, name, below, flags, &raw mut got);
    if code != ffi::OK {
        // SAFETY: `below` is where it may have been opened half.
        unsafe { close_half(below) };
        return code;
    }
    let below_file = HostFile::new(below, &path);
    match is_for_base(name, &path, &below_file, &wishes) {
        Ok(false) => {}
        Ok(true) => {
            below_file.close();
            return open_base(base, name, file, flags, out_flags);
        }
        Err(error) => {
            below_file.close();
            return refuse(&error);
        }
    }
    match connect(base, &wishes, below_file, &path) {
        Ok(connection) => {
            // SAFETY: SQLite gives room for a file of ours; the names are those of an open
            // database.
            unsafe {
                file.cast::<OurFile>()
                    .write(OurFile { raw: RawFile { methods: &raw const MAIN }, connection });
                (*connection).file = file;
                (*connection).is_read_only = got & ffi::OPEN_READONLY != 0;
                if let Some(host) = Host::get() {
                    (*connection).wal_name = (host.filename_wal)(name);
                    registry::remember((host.filename_journal)(name), connection);
                    registry::remember((*connection).wal_name, connection);
                }
                choose_methods(&*connection, false);
                if !out_flags.is_null() {
                    *out_flags = got;
                }
            }
            ffi::OK
        }
        Err(error) => {
            // SAFETY: it is open.
            unsafe { close_half(below) };
            refuse(&error)
        }
    }
}

/// Closes a file that the base VFS opened, or began to.
///
/// # Safety
/// `file` must be what the base VFS was given to open.
unsafe fn close_half(file: *mut RawFile) {
    // SAFETY: per the contract; without methods there is nothing to close.
    unsafe {
        if let Some(close) = (*file).methods.as_ref().and_then(|methods| methods.close) {
            close(file);
        }
    }
}

/// What the URI of a database says of one of SQLite's own parameters.
fn parameter(name: *const c_char, key: &CStr) -> Option<String> {
    let host = Host::get()?;
    // SAFETY: the name is one that SQLite made for a database; the answer is a text in it, or null.
    unsafe {
        let value = (host.uri_parameter)(name, key.as_ptr());
        (!value.is_null()).then(|| CStr::from_ptr(value).to_string_lossy().into_owned())
    }
}

/// All parameters of the URI of a database, and what is wrong with them or the environment.
fn wishes(name: *const c_char, path: &Path) -> Result<ChosenSettings> {
    let read = complaints::configure().and_then(|()| ChosenSettings::read(parameters(name)));
    read.map_err(|wrong| SqliteError::Parameter { path: path.to_owned(), wrong })
}

/// Keys and values of the URI of a database.
fn parameters(name: *const c_char) -> Vec<(String, String)> {
    let Some(host) = Host::get() else { return Vec::new() };
    let mut found = Vec::new();
    loop {
        // SAFETY: the name is one that SQLite made for a database; the answers are texts in it, or
        // null behind the last.
        unsafe {
            let key = (host.uri_key)(name, c_int::try_from(found.len()).unwrap_or(c_int::MAX));
            if key.is_null() {
                return found;
            }
            // SQLite's list has each value behind its key.
            let key = CStr::from_ptr(key);
            let value = CStr::from_ptr(key.as_ptr().add(key.count_bytes() + 1));
            found.push((key.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()));
        }
    }
}

/// Whether a database is passed through, as if it were opened with the base VFS.
fn is_for_base(
    name: *const c_char,
    path: &Path,
    file: &HostFile,
    wishes: &ChosenSettings,
) -> Result<bool> {
    let (marked, is_wal) = read_mark(file)?;
    let is_on = |key| parameter(name, key).is_some_and(|value| is_true(&value));
    if is_on(c"nolock") || is_on(c"immutable") {
        // Without locks nothing says where a transaction begins and ends.
        return match marked {
            None => Ok(true),
            Some(_) => Err(SqliteError::Unlocked { path: path.to_owned() }),
        };
    }
    // With `wal=pass` it can come back to the pool.
    let is_passed = !wishes.lets_wal_pass && marked.is_none() && is_wal;
    if is_passed {
        let text = format!(
            "{} is in WAL mode and is passed through; `PRAGMA journal_mode=DELETE` makes it one of ours when it is \
             opened the next time",
            path.display()
        );
        host::log(ffi::NOTICE, &text);
    }
    Ok(is_passed)
}

/// As SQLite reads a switch in a URI.
fn is_true(value: &str) -> bool {
    ["yes", "true", "on"].iter().any(|word| word.eq_ignore_ascii_case(value))
        || value.parse::<i64>().is_ok_and(|number| number != 0)
}

fn connect(
    base: *mut Vfs,
    wishes: &ChosenSettings,
    file: HostFile,
    path: &Path,
) -> Result<*mut Connection> {
    let pool =
        registry::enter(path, wishes.limit_slots, || Ok(Box::new(SharedBase::open(base, path)?)))?;
    if let Err(wrong) = wishes.apply(&pool.settings) {
        registry::leave(pool);
        return Err(SqliteError::Parameter { path: path.to_owned(), wrong });
    }
    set_limit(&pool, wishes);
    // A process that died may have left commits in the pool alone.
    if let Err(error) = pool.flush_in_time() {
        report(&error);
    }
    Ok(Box::into_raw(Box::new(Connection::new(pool, file, path))))
}

/// Sets the limit of a pool that may be in use, for all processes; the last caller wins. If the image
/// has less room than that, SQLite's error log gets a notice.
fn set_limit(pool: &Pool, wishes: &ChosenSettings) {
    let Some(slots) = wishes.limit_slots else { return };
    if wishes.is_limit_of_uri {
        pool.image.set_limit(slots);
    }
    let room = pool.image.plan().capacity;
    if slots > room {
        let bytes = |slots: u32| u64::from(slots) * BLOCK_BYTES as u64;
        let text = format!(
            "pool_limit={} is more than the image of {} has room for in the pool, {}; close the \
             database everywhere, and open it with this limit first",
            bytes(slots),
            pool.database.display(),
            bytes(room)
        );
        host::log(ffi::NOTICE, &text);
    }
}

/// Before the log of WAL mode is opened: if it is one of our databases, it is not to be in the pool
/// any more.
fn leave_pool(name: *const c_char) -> std::result::Result<(), c_int> {
    let known = registry::find(name.cast());
    if known.is_null() {
        return Ok(());
    }
    // SAFETY: as in `open_journal`.
    let connection = unsafe { &mut *known };
    connection.drop_claim();
    connection.go_over()
}

/// A journal of one of our databases; `None` for any other.
fn open_journal(
    name: *const c_char,
    file: *mut RawFile,
    flags: c_int,
    out_flags: *mut c_int,
) -> Option<c_int> {
    let known = registry::find(name.cast());
    if known.is_null() {
        return None;
    }
    // SAFETY: a name in the table is one of an open database, whose connection no other process
    // uses now.
    let connection = unsafe { &mut *known };
    let is_cold = !connection.is_hot() && !connection.is_going;
    let is_on_disk = match is_cold || connection.is_going {
        true => is_cold,
        false => match connection.has_disk_journal() {
            Ok(has_journal) => has_journal,
            Err(error) => return Some(report(&error)),
        },
    };
    if is_on_disk {
        let path = path_of(name);
        let opened = match is_cold && flags & ffi::OPEN_CREATE != 0 {
            true => connection.journal.create(&path, &connection.database),
            false => connection.journal.open(&path),
        };
        let opened = opened.map_err(SqliteError::io("open", &path));
        if let Err(error) = opened {
            return Some(match error {
                error @ SqliteError::Io { .. } => {
                    report(&error);
                    ffi::CANTOPEN
                }
                error => report(&error),
            });
        }
    } else {
        connection.journal.clear();
    }
    // SAFETY: SQLite gives room for a file of ours.
    unsafe {
        file.cast::<OurFile>()
            .write(OurFile { raw: RawFile { methods: &raw const JOURNAL }, connection: known });
        if !out_flags.is_null() {
            *out_flags = flags;
        }
    }
    Some(ffi::OK)
}

unsafe extern "C" fn delete(vfs: *mut Vfs, name: *const c_char, sync_directory: c_int) -> c_int {
    let base = base_of(vfs);
    let on_disk = |sync_directory| {
        // SAFETY: SQLite's own arguments, or a wait for the disk besides.
        unsafe { (*base).delete.map_or(ffi::IOERR, |delete| delete(base, name, sync_directory)) }
    };
    let known = registry::find(name.cast());
    if known.is_null() {
        return on_disk(sync_directory);
    }
    // SAFETY: as in `open_journal`.
    let connection = unsafe { &mut *known };
    if std::ptr::eq(name, connection.wal_name) {
        return on_disk(sync_directory);
    }
    let was_on_disk = match connection.journal.is_on_disk() {
        true => Ok(true),
        false => connection.has_disk_journal(),
    };
    let was_on_disk = match was_on_disk {
        Ok(was_on_disk) => was_on_disk,
        Err(error) => return report(&error),
    };
    connection.journal.clear();
    match was_on_disk {
        // The next commits go to the pool, and no journal of theirs takes this one's place: if it
        // came back with a power cut, it would undo them.
        true if connection.is_hot() => on_disk(1),
        true => on_disk(sync_directory),
        false => ffi::OK,
    }
}

unsafe extern "C" fn access(
    vfs: *mut Vfs,
    name: *const c_char,
    flags: c_int,
    answer: *mut c_int,
) -> c_int {
    let known = registry::find(name.cast());
    // SAFETY: as in `open_journal`; the answer is SQLite's to hold.
    unsafe {
        let is_wal = !known.is_null() && std::ptr::eq(name, (*known).wal_name);
        if is_wal && (*known).is_leaving() {
            (*known).drop_claim();
            match (*known).go_over() {
                // Others read, or one of them is at it: it is tried again, and then it has stayed
                // or left.
                Err(ffi::BUSY) => return ffi::BUSY,
                Err(_) => return ffi::IOERR,
                Ok(()) => {}
            }
        }
        if flags == ffi::ACCESS_EXISTS && !known.is_null() && (*known).is_hot() {
            let found = if is_wal { Ok(false) } else { (*known).has_disk_journal() };
            return match found {
                Ok(found) => {
                    *answer = c_int::from(found);
                    ffi::OK
                }
                Err(error) => report(&error),
            };
        }
        let base = base_of(vfs);
        let code = (*base).access.map_or(ffi::IOERR, |access| access(base, name, flags, answer));
        if is_wal && code == ffi::OK && *answer != 0 {
            // SQLite opens it next.
            choose_methods(&*known, true);
        }
        code
    }
}

/// The newest error of this process as a text, and the system's number for the newest of the VFS
/// below.
unsafe extern "C" fn last_error(vfs: *mut Vfs, bytes: c_int, out: *mut c_char) -> c_int {
    if let (Some(text), Ok(room @ 1..)) = (complaints::newest(), usize::try_from(bytes))
        && !out.is_null()
    {
        let end = text.floor_char_boundary(room - 1);
        // SAFETY: there is room for so many bytes.
        unsafe {
            out.copy_from_nonoverlapping(text.as_ptr().cast(), end);
            *out.add(end) = 0;
        }
        // SAFETY: no text is asked for.
        return unsafe { crate::passing::get_last_error(vfs, 0, std::ptr::null_mut()) };
    }
    // SAFETY: SQLite's own arguments.
    unsafe { crate::passing::get_last_error(vfs, bytes, out) }
}

/// Sleeps, for the busy handler as long as what it was refused is not to be had.
unsafe extern "C" fn sleep(vfs: *mut Vfs, microseconds: c_int) -> c_int {
    let asked = Duration::from_micros(u64::try_from(microseconds).unwrap_or(0));
    let slept = catch_unwind(|| sleep_until_free(asked, registry::is_free)).ok().flatten();
    match slept.map(|slept| c_int::try_from(slept.as_micros())) {
        Some(slept) => slept.unwrap_or(c_int::MAX),
        // SAFETY: SQLite's own arguments.
        None => unsafe { crate::passing::sleep(vfs, microseconds) },
    }
}

/// The database file as the process has it open for flushes, beside those of its connections.
#[derive(Debug)]
struct SharedBase {
    file: HostFile,
    /// The file itself, and its name, which the base VFS keeps pointers to.
    _memory: Vec<u128>,
    _name: Vec<u8>,
}

impl SharedBase {
    fn open(base: *mut Vfs, path: &Path) -> Result<SharedBase> {
        // SAFETY: a registered VFS stays.
        let bytes = unsafe { (*base).file_bytes } as usize;
        let mut memory = vec![0_u128; bytes.div_ceil(16).max(1)];
        // As SQLite makes names: zeros in front, and an empty list of parameters behind.
        let name = [&[0; 4], path.as_os_str().as_bytes(), &[0; 8]].concat();
        let file: *mut RawFile = memory.as_mut_ptr().cast();
        let mut code = ffi::CANTOPEN;
        for access in [ffi::OPEN_READWRITE, ffi::OPEN_READONLY] {
            let mut got = 0;
            code = open_base(
                base,
                name[4..].as_ptr().cast(),
                file,
                access | ffi::OPEN_MAIN_DB,
                &raw mut got,
            );
            if code == ffi::OK {
                let file = HostFile::new(file, path);
                file.forbid_maps();
                return Ok(SharedBase { file, _memory: memory, _name: name });
            }
            // SAFETY: what was begun to be opened.
            unsafe { close_half(file) };
            memory.fill(0);
        }
        Err(SqliteError::Base { step: "open", path: path.to_owned(), code })
    }
}

impl Drop for SharedBase {
    fn drop(&mut self) {
        self.file.close();
    }
}

impl Base for SharedBase {
    fn read(&self, offset: u64, target: &mut [u8]) -> Result<bool> {
        self.file.read(offset, target)
    }

    fn write(&self, offset: u64, source: &[u8]) -> Result<()> {
        self.file.write(offset, source)
    }

    fn size(&self) -> Result<u64> {
        self.file.size()
    }

    fn truncate(&self, size: u64) -> Result<()> {
        self.file.truncate(size)
    }

    fn cut_to(&self, size: u64) -> Result<()> {
        self.file.cut_to(size)
    }

    fn sync(&self) -> Result<()> {
        self.file.sync()
    }

    fn lock_exclusive(&self) -> Result<()> {
        self.file.lock_exclusive()
    }

    fn unlock(&self) -> Result<()> {
        self.file.unlock()
    }

    fn is_being_written(&self) -> Result<bool> {
        self.file.is_being_written()
    }

    fn grow_by(&self, bytes: c_int) {
        self.file.grow_by(bytes);
    }

    fn grow_to(&self, bytes: u64) {
        self.file.grow_to(bytes);
    }
}
