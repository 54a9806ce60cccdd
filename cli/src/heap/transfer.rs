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
    let key = match &args.key {
        Some(key) => super::key_for_new(&names, key)?,
        None => key_of_copy(&names, &args.from)?,
    };
    let what = format!("copying {}", args.from);
    let report = with_progress(&what, || names.copy(&args.from, &args.to, &key))?;
    if args.key.is_none() {
        tell_if_open_to_all(&names, &args.to);
    }
    tell(args.json, args.to.as_str(), report, "copied")
}

/// The key of a copy for which the user names none: it is open to no applet that the heap itself is
/// closed to.
fn key_of_copy(names: &NameSpace, from: &RegionName) -> Result<OwnerKey, Failure> {
    let default = || Ok(super::key_for_new(names, LEGACY_KEY)?);
    let (key_name, key) = match implicit_owner_key(names, from) {
        Ok(Some(found)) => found,
        Ok(None) => {
            return match owner_of(names, from).map_err(ownership_failure)? {
                Owner::Key { name } => Ok(super::key_for_new(names, name.as_str())?),
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
    let key = super::key_for_new(&names, args.key.as_deref().unwrap_or(LEGACY_KEY))?;
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
    let check_free = || match args.file.symlink_metadata() {
        Ok(_) => Err(failed(io::ErrorKind::AlreadyExists.into())),
        Err(_) => Ok(()),
    };
    check_free()?;
    // Under its own name only when it is whole: who finds it must be able to rely on it.
    let temporary = temporary_beside(&args.file);
    let file = private_options().write(true).create_new(true).open(&temporary).map_err(failed)?;
    let written = with_progress(&what, || {
        let mut out = BufWriter::with_capacity(BUFFER_BYTES, &file);
        let report = reader.export(&mut out)?;
        out.flush().and_then(|()| file.sync_all()).map_err(failed)?;
        check_free()?;
        std::fs::rename(&temporary, &args.file).map_err(failed)?;
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
