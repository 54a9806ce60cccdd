//! Where compiled applets are kept between runs: a file for each, found by the applet's SHA-256.
//!
//! wasmtime has a cache of its own; it compresses, which costs several milliseconds at every start of an applet
//! of some size (docs/adr/0004). Reading a file and taking its checksum costs a fraction of one.
//!
//! Invariants:
//! - Compiled code is trusted like this program itself: the directory must belong to the user and be closed to
//!   everybody else, and no file is believed whose checksum does not match.
//! - A file appears whole or not at all, and is never changed. A damaged one is compiled over.
//! - Without a usable directory an applet is compiled anew on every run; nothing else changes.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use sha2::{Digest, Sha256};
use wasmtime::{Engine, Module};
use xxhash_rust::xxh3::xxh3_64;

/// What a file starts with: this, then the XXH3-64 of what follows.
const MAGIC: &[u8; 8] = b"HFSTCODE";
const HEAD_BYTES: usize = 16;
/// The oldest files go when all together are larger.
const CACHE_BYTES_MAX: u64 = 512 << 20;
const SUFFIX: &str = "cwasm";

pub(crate) struct CodeCache {
    directory: PathBuf,
}

/// One applet's place in the cache.
pub(crate) struct Entry {
    path: PathBuf,
}

impl CodeCache {
    /// Opens the cache in `directory`, creating it if need be; otherwise says why there is none.
    pub(crate) fn open(directory: &Path) -> Result<CodeCache, String> {
        make_private(directory)
            .map(|()| CodeCache { directory: directory.to_owned() })
            .map_err(|reason| format!("no cache of compiled applets in {}: {reason}", directory.display()))
    }

    /// The place of a program compiled by this engine. The program's part of the name has to withstand somebody
    /// who looks for a second program of the same name: hence SHA-256.
    pub(crate) fn entry(&self, engine: &Engine, program: &[u8]) -> Entry {
        let mut settings = DefaultHasher::new();
        engine.precompile_compatibility_hash().hash(&mut settings);
        let mut name: String = Sha256::digest(program).iter().map(|byte| format!("{byte:02x}")).collect();
        name.push_str(&format!("-{:016x}.{SUFFIX}", settings.finish()));
        Entry { path: self.directory.join(name) }
    }

    /// Removes the oldest files while there is too much.
    fn prune(&self) {
        let Ok(entries) = fs::read_dir(&self.directory) else { return };
        let mut files: Vec<(SystemTime, u64, PathBuf)> = entries
            .filter_map(|entry| {
                let entry = entry.ok()?;
                let metadata = entry.metadata().ok()?;
                Some((metadata.modified().ok()?, metadata.len(), entry.path()))
            })
            .filter(|(_, _, path)| path.extension().is_some_and(|extension| extension == SUFFIX))
            .collect();
        files.sort();
        let mut total: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
        for (_, bytes, path) in files {
            if total <= CACHE_BYTES_MAX {
                break;
            }
            if fs::remove_file(path).is_ok() {
                total -= bytes;
            }
        }
    }

    /// Keeps a compiled program; a failure costs only the next run's time.
    pub(crate) fn keep(&self, entry: &Entry, module: &Module) {
        let Ok(code) = module.serialize() else { return };
        let temporary = self.directory.join(format!(".{}.tmp", std::process::id()));
        let written = (|| {
            let mut file = holdfast_sys::file::private_options()
                .write(true)
                .create(true)
                .truncate(true)
                .open(&temporary)?;
            file.write_all(MAGIC)?;
            file.write_all(&xxh3_64(&code).to_le_bytes())?;
            file.write_all(&code)?;
            fs::rename(&temporary, &entry.path)
        })();
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        self.prune();
    }
}

impl Entry {
    /// The compiled program, if a whole one is there that this engine can use.
    pub(crate) fn load(&self, engine: &Engine) -> Option<Module> {
        let file = fs::read(&self.path).ok()?;
        let (head, code) = file.split_at_checked(HEAD_BYTES)?;
        if head[..8] != *MAGIC || head[8..] != xxh3_64(code).to_le_bytes() {
            return None;
        }
        // SAFETY: the bytes are what `keep` wrote, that is, what wasmtime serialised: the checksum says that
        // they are whole, and only this user can write to the directory. wasmtime itself refuses what another
        // version or other settings made.
        unsafe { Module::deserialize(engine, code) }.ok()
    }
}

fn make_private(directory: &Path) -> Result<(), String> {
    match fs::DirBuilder::new().recursive(true).mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error.to_string()),
        _ => {}
    }
    let metadata = fs::symlink_metadata(directory).map_err(|error| error.to_string())?;
    if !metadata.is_dir() {
        return Err("it is not a directory".to_owned());
    }
    if metadata.uid() != holdfast_sys::file::effective_user() {
        return Err("it belongs to another user".to_owned());
    }
    if metadata.mode() & 0o022 != 0 {
        return Err("others may write to it; `chmod 700` it".to_owned());
    }
    Ok(())
}
