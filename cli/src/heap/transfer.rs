//! `holdfast heap cp`, `export` and `import`, and `limit`.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

use holdfast_region::TransferReport;
use holdfast_sys::file::private_options;
use serde::Serialize;

use crate::heap_args::{CpArgs, ExportArgs, ImportArgs, LimitArgs};
use crate::identity::owner_key;
use holdfast_command::exit::{Failure, NOT_FOUND, OTHER, USAGE};
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
    let key = super::key_for_new(&names, &args.key)?;
    let what = format!("copying {}", args.from);
    let report = with_progress(&what, || names.copy(&args.from, &args.to, &key))?;
    tell(args.json, args.to.as_str(), report, "copied")
}

pub fn import(args: &ImportArgs) -> Result<u8, Failure> {
    let names = super::name_space()?;
    let key = super::key_for_new(&names, &args.key)?;
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
