//! The Landlock ruleset of a jail: which files can be reached, and that nothing else of what this
//! kernel's Landlock knows can. What an older one does not know is reported by
//! [`crate::jail::choice`].

#![forbid(unsafe_code)]

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use holdfast_types::PathAccess;
use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, Scope,
};

use crate::jail::PathGrant;
use crate::program::{ElfProgram, LIBRARY_DIRECTORIES, LOADER_FILES};
use crate::root::DEVICES;

/// The newest interface whose rights are asked for; of those, a kernel takes what it knows.
const NEWEST: ABI = ABI::V7;

/// Builds the ruleset. `None` when the kernel has no Landlock.
pub(crate) fn build(program: &ElfProgram, grants: &[PathGrant]) -> io::Result<Option<OwnedFd>> {
    let handled = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))
        .and_then(|ruleset| ruleset.handle_access(AccessNet::from_all(NEWEST)))
        .and_then(|ruleset| ruleset.scope(Scope::from_all(NEWEST)))
        .and_then(Ruleset::create)
        .map_err(other)?;
    let mut ruleset = handled;
    let run = AccessFs::Execute | AccessFs::ReadFile;
    // Landlock knows no files in memory: it lets them run, and refuses a rule about one.
    if !program.is_sealed {
        ruleset = ruleset.add_rule(PathBeneath::new(&program.file, run)).map_err(other)?;
    }
    if program.is_dynamic {
        for directory in LIBRARY_DIRECTORIES {
            ruleset = add(ruleset, Path::new(directory), run | AccessFs::ReadDir, true)?;
        }
        for file in LOADER_FILES {
            ruleset = add(ruleset, Path::new(file), AccessFs::ReadFile.into(), true)?;
        }
    }
    for device in DEVICES.iter().filter(|device| device.is_there()) {
        let mut access = BitFlags::from(AccessFs::ReadFile);
        if device.is_written_to {
            access |= AccessFs::WriteFile;
        }
        ruleset = add(ruleset, Path::new(device.path), access, true)?;
    }
    for grant in grants {
        ruleset = add(ruleset, &grant.host, rights(grant.access), false)?;
    }
    Ok(ruleset.into())
}

fn rights(access: PathAccess) -> BitFlags<AccessFs> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    match access {
        PathAccess::ReadOnly => read,
        PathAccess::ReadWrite => {
            read | AccessFs::WriteFile
                | AccessFs::Truncate
                | AccessFs::MakeReg
                | AccessFs::MakeDir
                | AccessFs::RemoveFile
                | AccessFs::RemoveDir
                | AccessFs::Refer
        }
    }
}

/// Rights to a directory are cut down to those that a file can have, when it is one.
fn add(
    ruleset: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
    may_be_missing: bool,
) -> io::Result<RulesetCreated> {
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if may_be_missing && error.kind() == io::ErrorKind::NotFound => {
            return Ok(ruleset);
        }
        Err(error) => return Err(error),
    };
    let access = if metadata.is_dir() { access } else { access & AccessFs::from_file(NEWEST) };
    let file = PathFd::new(path).map_err(other)?;
    ruleset.add_rule(PathBeneath::new(file, access)).map_err(other)
}

fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::other(error)
}
