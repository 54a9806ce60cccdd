//! The cache of compiled applets: a file for each, found by the applet's SHA-256.
//!
//! wasmtime has a cache of its own; it compresses, which costs several milliseconds at every start
//! of an applet of some size (docs/adr/0004). Taking a file's checksum and mapping it costs a
//! fraction of one.
//!
//! Invariants:
//! - Compiled code is trusted like this program itself: directory and files must belong to the
//!   user, be closed to everybody else's writing and have no other name, and no file is believed
//!   whose checksum does not match. The directory is opened once, so what was checked is what is
//!   used.
//! - A file appears whole or not at all, and is never changed: it is replaced or unlinked, so what
//!   is mapped stays what it was. A damaged one is compiled over.
//! - Without a usable directory an applet is compiled anew on every run; nothing else changes.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use holdfast_sys::directory::{Entry as FileEntry, NotPrivate, PrivateDirectory};
use wasmtime::{Engine, Module};
use xxhash_rust::xxh3::{Xxh3, xxh3_64, xxh3_64_with_seed};

use crate::compiler::Artefact;
use crate::program;

/// What a file ends with, after the code (which has to start where pages do): this, and the code's
/// XXH3-64, seeded by the file's name.
const MAGIC: &[u8; 8] = b"HFSTCODE";
const TRAILER_BYTES: usize = 16;
/// How much is read at a time for the checksum; small enough to stay in the processor's cache.
const PIECE_BYTES: usize = 64 << 10;
/// The oldest files go when all together are larger.
const CACHE_BYTES_MAX: u64 = 512 << 20;
const SUFFIX: &str = "cwasm";
/// Of a file that is being written; one older than [`TEMPORARY_AGE_MAX`] was left by a process that
/// died.
const TEMPORARY_SUFFIX: &str = "tmp";
const TEMPORARY_AGE_MAX: Duration = Duration::from_secs(3600);

pub(crate) struct CodeCache {
    directory: PrivateDirectory,
}

/// One applet's place in the cache.
pub(crate) struct Entry {
    name: String,
}

impl CodeCache {
    /// Opens the cache in `directory`, creating it if need be; otherwise says why there is none.
    pub(crate) fn open(directory: &Path) -> Result<CodeCache, String> {
        PrivateDirectory::open_or_create(directory).map(|directory| CodeCache { directory }).map_err(|reason| {
            let place = directory.display();
            let reason = match reason {
                NotPrivate::Refused(error) => error.to_string(),
                NotPrivate::NotADirectory => "it is not a directory".to_owned(),
                NotPrivate::OfAnother => "it belongs to another user; name another one".to_owned(),
                // Closing it to them now would leave in it what they wrote before.
                NotPrivate::WritableByOthers => {
                    format!("others may write to it, and may have; remove it (`rm -r {place}`), and it is made anew")
                }
            };
            format!("no cache of compiled applets in {place}: {reason}")
        })
    }

    /// The place of the program with this SHA-256, compiled by this engine. SHA-256, because an
    /// attacker may search for a second program with the same name.
    pub(crate) fn entry(&self, engine: &Engine, program: [u8; 32]) -> Entry {
        let mut settings = DefaultHasher::new();
        engine.precompile_compatibility_hash().hash(&mut settings);
        let mut name: String = program.iter().map(|byte| format!("{byte:02x}")).collect();
        name.push_str(&format!("-{:016x}.{SUFFIX}", settings.finish()));
        Entry { name }
    }

    /// Removes the oldest files while there is too much.
    fn prune(&self) {
        let Ok(mut files) = self.directory.entries() else { return };
        let has = |file: &FileEntry, suffix: &str| {
            file.path().extension().is_some_and(|extension| extension == suffix)
        };
        for file in files.iter().filter(|file| has(file, TEMPORARY_SUFFIX)) {
            if file.modified.elapsed().is_ok_and(|age| age > TEMPORARY_AGE_MAX) {
                let _ = self.directory.remove(file.path());
            }
        }
        files.retain(|file| has(file, SUFFIX));
        files.sort_by_key(|file| file.modified);
        let mut total: u64 = files.iter().map(|file| file.bytes).sum();
        for file in files {
            if total <= CACHE_BYTES_MAX {
                break;
            }
            if self.directory.remove(file.path()).is_ok() {
                total -= file.bytes;
            }
        }
    }

    /// Keeps a compiled program; a failure costs only the next run's time.
    pub(crate) fn keep(&self, entry: &Entry, module: &Module) {
        let Ok(code) = module.serialize() else { return };
        let sum = xxh3_64_with_seed(&code, entry.seed());
        self.put(&entry.name, |file| {
            [&code[..], MAGIC, &sum.to_le_bytes()].iter().try_for_each(|part| file.write_all(part))
        });
    }

    /// The same for code that another process has compiled; it is copied without being held in
    /// memory.
    pub(crate) fn keep_file(&self, entry: &Entry, artefact: &Artefact) {
        // A write past the limit would end this process.
        if !program::has_room(artefact.code_bytes + TRAILER_BYTES as u64) {
            return;
        }
        let Ok(sum) = sum_of(&artefact.file, artefact.code_bytes, entry.seed()) else { return };
        self.put(&entry.name, |file| {
            let mut code = artefact.file.try_clone()?;
            code.rewind()?;
            if io::copy(&mut code.take(artefact.code_bytes), file)? != artefact.code_bytes {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            file.write_all(MAGIC)?;
            file.write_all(&sum.to_le_bytes())
        });
    }

    /// Makes or replaces a file, whole or not at all.
    fn put(&self, name: &str, write: impl FnOnce(&mut File) -> io::Result<()>) {
        static WRITTEN: AtomicU64 = AtomicU64::new(0);
        // A name that no other thread, and no process of another PID name space, uses at the same
        // time: two writers of one file could give one applet the code of another.
        let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
        let now =
            SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
        let temporary = format!(".{}-{number}-{now:x}.{TEMPORARY_SUFFIX}", std::process::id());
        let Ok(mut file) = self.directory.create_new(&temporary) else { return };
        let written = write(&mut file);
        if written.and_then(|()| self.directory.rename(&temporary, name)).is_err() {
            let _ = self.directory.remove(&temporary);
        }
        self.prune();
    }
}

impl Entry {
    /// Ties the checksum to the file's name, so that one applet's code is not taken for another's.
    fn seed(&self) -> u64 {
        xxh3_64(self.name.as_bytes())
    }

    /// The compiled program, if a whole one is there that this engine can use.
    pub(crate) fn load(&self, cache: &CodeCache, engine: &Engine) -> Option<Module> {
        let file = cache.directory.open_own(&self.name).ok()?;
        let is_whole = is_whole(&file, self.seed()).ok()?;
        // SAFETY: it is whole.
        is_whole.then(|| unsafe { map(engine, file) })?
    }
}

/// Maps compiled code.
///
/// # Safety
/// `file` must be one of the cache whose checksum is right, or what
/// [`crate::compiler::compile`] returned.
pub(crate) unsafe fn map(engine: &Engine, file: File) -> Option<Module> {
    // SAFETY: the bytes are what `keep` wrote, that is, what wasmtime serialised: the checksum says
    // that they are whole, only this user can have written the file, and no file of the cache is
    // ever changed. wasmtime itself refuses what another version or other settings made.
    unsafe { Module::deserialize_open_file(engine, file) }.ok()
}

/// Whether the checksum at the end is that of all before.
fn is_whole(file: &File, seed: u64) -> io::Result<bool> {
    let Some(code_bytes) = file.metadata()?.len().checked_sub(TRAILER_BYTES as u64) else {
        return Ok(false);
    };
    let sum = sum_of(file, code_bytes, seed)?;
    let mut trailer = [0; TRAILER_BYTES];
    file.read_exact_at(&mut trailer, code_bytes)?;
    Ok(trailer[..8] == *MAGIC && trailer[8..] == sum.to_le_bytes())
}

/// The XXH3-64 of the first bytes of a file.
pub(crate) fn sum_of(file: &File, bytes: u64, seed: u64) -> io::Result<u64> {
    let mut piece = vec![0; PIECE_BYTES];
    let mut sum = Xxh3::with_seed(seed);
    let mut done = 0;
    while done < bytes {
        let wanted = (bytes - done).min(PIECE_BYTES as u64) as usize;
        file.read_exact_at(&mut piece[..wanted], done)?;
        sum.update(&piece[..wanted]);
        done += wanted as u64;
    }
    Ok(sum.digest())
}
