//! Loading an applet that was loaded before without reading it: a note in the cache tells which code belongs to
//! an applet's file, for as long as neither that file nor the file of the code has changed.
//!
//! Invariants:
//! - A note is made only when the code was just found by the SHA-256 of what the applet's file holds, between two
//!   equal stamps of that file, and loaded by its checksum. It is believed only while the stamps of both files
//!   are those of then, and in the same boot: so each code's checksum is taken once in every boot.
//! - Stamps have the change time, which nobody can set, and are taken only of files at rest
//!   ([`FileStamp::of_settled`]), so a file that was written to has another one. Stores to a shared mapping that
//!   was writable before do not count: whoever changes programs in place like that runs the old code until the
//!   file is touched.

use std::fs::File;
use std::io::Read;

use holdfast_sys::file::FileStamp;
use holdfast_sys::process::boot_id;
use sha2::{Digest, Sha256};
use wasmtime::{Engine, Module};

use crate::cache::{self, CodeCache, Entry};
use crate::program::Program;

pub(crate) const SUFFIX: &str = "stamp";

/// Bytes of a note: the SHA-256 of the applet, what tells the compiler's settings apart, and a SHA-256 of
/// everything that must still be as it was.
const NOTE_BYTES: usize = 32 + 8 + 32;

/// Code whose note is believed.
pub(crate) struct Stamped(File);

impl Stamped {
    /// The applet's code, if a note tells which it is.
    pub(crate) fn find(cache: &CodeCache, count_fuel: bool, program: &Program) -> Option<Stamped> {
        let (_, stamp) = program.file()?;
        let mut note = Vec::new();
        let file = cache.open_file(&note_name(count_fuel, &stamp))?;
        file.take(NOTE_BYTES as u64 + 1).read_to_end(&mut note).ok()?;
        let note: [u8; NOTE_BYTES] = note.try_into().ok()?;
        let (applet, rest) = note.split_first_chunk()?;
        let (settings, all) = rest.split_first_chunk()?;
        let entry = cache.entry_of(u64::from_le_bytes(*settings), *applet);
        let code = entry.open(cache)?;
        let code_stamp = FileStamp::of_settled(&code).ok()??;
        (all == sum(&entry, &stamp, &code_stamp)?).then_some(Stamped(code))
    }

    /// The code, if this engine can use it.
    pub(crate) fn load(self, engine: &Engine) -> Option<Module> {
        // SAFETY: the checksum of this file was right when the note was made; nothing has changed it since.
        unsafe { cache::map(engine, self.0) }
    }
}

/// Makes a note of code that was just loaded by its checksum from `code`; if it cannot be, later runs only take
/// longer.
pub(crate) fn keep(cache: &CodeCache, count_fuel: bool, program: &Program, entry: &Entry, code: &File) {
    let Some((file, stamp)) = program.file() else { return };
    let (Ok(Some(now)), Ok(Some(code_stamp))) = (FileStamp::of_settled(file), FileStamp::of_settled(code))
    else {
        return;
    };
    if now != stamp {
        return;
    }
    if let Some(all) = sum(entry, &stamp, &code_stamp) {
        let parts: [&[u8]; 3] = [&entry.applet, &entry.settings.to_le_bytes(), &all];
        cache.put(&note_name(count_fuel, &stamp), &parts);
    }
}

/// One name for each file, and for each way of compiling it that a user can choose.
fn note_name(count_fuel: bool, applet: &FileStamp) -> String {
    let [device, inode] = applet.identity;
    let fuel = if count_fuel { "-fuel" } else { "" };
    format!("{device:x}-{inode:x}{fuel}.{SUFFIX}")
}

fn sum(entry: &Entry, applet: &FileStamp, code: &FileStamp) -> Option<[u8; 32]> {
    let sum = Sha256::new()
        .chain_update(b"holdfast stamp 1")
        .chain_update(boot_id().ok()?)
        .chain_update(entry.applet)
        .chain_update(entry.settings.to_le_bytes())
        .chain_update(applet.to_bytes())
        .chain_update(code.to_bytes());
    Some(sum.finalize().into())
}
