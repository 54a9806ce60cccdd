//! `holdfast heap cp`, `export` and `import`, and `limit`.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

use holdfast_identity::{LEGACY_KEY, Owner, implicit_owner_key, is_open_to_all, owner_of};
use holdfast_region::{NameSpace, OwnerKey, RegionName, Rights, TransferReport};
use holdfast_sys::file::private_options;
use serde::Serialize;

use crate::heap_args::{CpArgs, ExportArgs, ImportArgs, LimitArgs};
use crate::identity::{owner_key, ownership_failure};
use holdfast_command::exit::{Failure, NOT_FOUND, OTHER, USAGE, usage};
use holdfast_command::output::{print, print_json, say, with_progress};
use holdfast_command::size::show_size;

/// Fits blocks of pages; larger buffers gain nothing.
const BUFFER_BYTES: usize = 256 << 10;

/// What `--json` prints.
#[derive(Serialize)]
struct TransferResult<'a> {
    name: &'a str,
    #[serde(flatten)]
    report: TransferReport,
}

pub fn cp(args: &CpArgs) -> Result<u8, Failure> {
    let names = super::name_space()?;
    let check = || {
        super::refuse_existing(&names, &args.to)?;
        names.open_read(&args.from)?;
        Ok::<_, Failure>(())
    };
    let key = match &args.key {
        Some(key) => super::key_of_new_heap(&names, key, &check)?,
        None => key_of_copy(&names, &args.from, &check)?,
    };
    let what = format!("copying {}", args.from);
    let report = with_progress(&what, || names.copy(&args.from, &args.to, &key))?;
    if args.key.is_none() {
        tell_if_open_to_all(&names, &args.to);
    }
    tell(args.json, args.to.as_str(), report, "copied")
}

/// The key of a copy for which the user names none: it is open to no applet that the heap itself is
/// closed to. `check` says whether the copy can be made.
fn key_of_copy(
    names: &NameSpace,
    from: &RegionName,
    check: &dyn Fn() -> Result<(), Failure>,
) -> Result<OwnerKey, Failure> {
    let default = || super::key_of_new_heap(names, LEGACY_KEY, check);
    let (key_name, key) = match implicit_owner_key(names, from) {
        Ok(Some(found)) => found,
        Ok(None) => {
            return match owner_of(names, from).map_err(ownership_failure)? {
                Owner::Key { name } => super::key_of_new_heap(names, name.as_str(), check),
                // Nobody here has the key: whoever makes the copy owns it.
                _ => default(),
            };
        }
        // What is wrong with the heap the copying says.
        Err(_) => return default(),
    };
    if key_name.as_str() != LEGACY_KEY || is_open_to_all(names, from).map_err(ownership_failure)? {
        return Ok(key);
    }
    let grants = names.grants(from, &key)?;
    let writers = grants.iter().filter(|grant| matches!(grant.rights, Rights::Write { .. }));
    match writers.map(|grant| grant.label.as_ref()).collect::<Vec<_>>()[..] {
        [Some(label)] => Ok(holdfast_command::keys::key(names, label.as_str(), None)?),
        _ => Err(usage(format!(
            "heap {from} is closed to applets without a grant, and a copy has no grants; name the key that is to own the \
             copy with --key (`holdfast heap grants {from}` lists who may use the heap)"
        ))),
    }
}

/// Says that every applet may use a heap whose key the user did not name.
pub fn tell_if_open_to_all(names: &NameSpace, heap: &RegionName) {
    // It was made now: what cannot be asked about it its next use says.
    if is_open_to_all(names, heap).is_ok_and(|is_open| is_open) {
        say(format_args!(
            "every applet may use {heap}, which belongs to the key `{LEGACY_KEY}`; `holdfast heap adopt {heap} --by APPLET` \
             hands it over to one, `holdfast heap revoke {heap} --every-applet` closes it to all"
        ));
    }
}

pub fn import(args: &ImportArgs) -> Result<u8, Failure> {
    let names = super::name_space()?;
    let mut input: Box<dyn Read> = if args.file == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        let failed = |error: io::Error| {
            let code = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { OTHER };
            Failure::new(
                code,
                format!("cannot open {}: {error}; check the path", args.file.display()),
            )
        };
        Box::new(BufReader::with_capacity(BUFFER_BYTES, File::open(&args.file).map_err(failed)?))
    };
    let key_name = args.key.as_deref().unwrap_or(LEGACY_KEY);
    let check = || super::refuse_existing(&names, &args.name);
    let key = super::key_of_new_heap(&names, key_name, &check)?;
    let what = format!("importing {}", args.name);
    let report = with_progress(&what, || names.import(&args.name, &key, &mut input))?;
    if args.key.is_none() {
        tell_if_open_to_all(&names, &args.name);
    }
    tell(args.json, args.name.as_str(), report, "imported")
}

fn tell(json: bool, name: &str, report: TransferReport, done: &str) -> Result<u8, Failure> {
    if json {
        print_json(&TransferResult { name, report })?;
    } else {
        let (bytes, all) = (show_size(report.bytes), show_size(report.backed_bytes));
        print(&format!("{name}: {done}, {bytes} of data in {all}\n"))?;
    }
    Ok(0)
}

pub fn export(args: &ExportArgs) -> Result<u8, Failure> {
    let reader = super::name_space()?.open_read(&args.name)?;
    let what = format!("exporting {}", args.name);
    if args.file == Path::new("-") {
        if io::stdout().is_terminal() {
            let message =
                "a stream is not for a terminal; name a file, or pipe it into another command";
            return Err(Failure::new(USAGE, message));
        }
        let mut out = BufWriter::with_capacity(BUFFER_BYTES, io::stdout().lock());
        with_progress(&what, || reader.export(&mut out))?;
        return Ok(0);
    }
    let failed = |error: io::Error| {
        let remedy = match error.kind() {
            io::ErrorKind::AlreadyExists => "choose another name, or remove it",
            _ => "check the path, and whether there is room",
        };
        let code = if error.kind() == io::ErrorKind::AlreadyExists { USAGE } else { OTHER };
        Failure::new(code, format!("cannot write {}: {error}; {remedy}", args.file.display()))
    };
    // Before the work.
    refuse_taken(&args.file).map_err(failed)?;
    // Under its own name only when it is whole: who finds it must be able to rely on it.
    let temporary = temporary_beside(&args.file);
    let file = private_options().write(true).create_new(true).open(&temporary).map_err(failed)?;
    let written = with_progress(&what, || {
        let mut out = BufWriter::with_capacity(BUFFER_BYTES, &file);
        let report = reader.export(&mut out)?;
        out.flush().and_then(|()| file.sync_all()).map_err(failed)?;
        publish(&temporary, &args.file).map_err(failed)?;
        Ok(report)
    });
    match written {
        Ok(report) => {
            say(format_args!("{} written to {}", show_size(report.bytes), args.file.display()));
            Ok(0)
        }
        Err(failure) => {
            let _ = std::fs::remove_file(&temporary);
            Err(failure)
        }
    }
}

/// Gives a whole file its name, and never takes the name from another file. Without success it stays
/// where it is.
fn publish(temporary: &Path, path: &Path) -> io::Result<()> {
    // Unlike rename, a hard link does not replace what appeared meanwhile.
    match std::fs::hard_link(temporary, path) {
        Ok(()) => {
            // Under its own name it is whole, whatever becomes of the other one.
            let _ = std::fs::remove_file(temporary);
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
        // A file system without hard links, such as FAT. The rename says what else is wrong.
        Err(_) => {
            refuse_taken(path)?;
            std::fs::rename(temporary, path)
        }
    }
}

fn refuse_taken(path: &Path) -> io::Result<()> {
    match path.symlink_metadata() {
        Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
        Err(_) => Ok(()),
    }
}

/// Where this process builds a file, in the directory where it will be.
fn temporary_beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.tmp-{}", std::process::id()))
}

pub fn limit(args: &LimitArgs) -> Result<u8, Failure> {
    let names = super::name_space()?;
    let key = owner_key(&names, &args.owner, &args.name)?;
    let limit_bytes = names.set_limit(&args.name, &key, args.size)?;
    print(&format!("{}: may grow to {}\n", args.name, show_size(limit_bytes)))?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that took the name of an export while that was written keeps it.
    ///
    /// Guarantee: heap/messages
    #[test]
    fn export_never_replaces_a_file() {
        let scratch = tempfile::tempdir().unwrap();
        let at = |name: &str| scratch.path().join(name);
        for name in ["built", "taken"] {
            std::fs::write(at(name), name).unwrap();
        }
        std::os::unix::fs::symlink("nowhere", at("link")).unwrap();
        for name in ["taken", "link"] {
            let refused = publish(&at("built"), &at(name)).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists, "{name}");
        }
        assert_eq!(std::fs::read_to_string(at("taken")).unwrap(), "taken");
        assert!(at("link").is_symlink() && !at("nowhere").exists());
        publish(&at("built"), &at("free")).unwrap();
        assert_eq!(std::fs::read_to_string(at("free")).unwrap(), "built");
        assert!(!at("built").exists());
    }
}
