//! The program's own root: a tmpfs with the loader's files and what was granted, and nothing else.
//!
//! Invariants:
//! - All of it is read-only, without set-user bits and without any device but those of [`DEVICES`];
//!   only directories granted for writing can be written to, and what is there cannot be executed.
//! - What is mounted is looked up before anything of the program runs.
//! - Nothing is made in what comes from the host: places are made before the first of it is there.
//! - The most specific grant counts, in whatever order they are named: what lies in another one is
//!   mounted after it, and a part of the host's that was granted for reading is for reading by
//!   whatever way the program gets there.

#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

use holdfast_sys::spawn::{MountChange, Steps};
use holdfast_types::PathAccess;

use crate::error::JailError;
use crate::jail::PathGrant;
use crate::program::{LIBRARY_DIRECTORIES, LOADER_FILES};

/// Any directory that is always there will do: it is covered for a moment, in a mount name space of
/// the child's own.
const PLACE: &str = "/tmp";
/// The old root within the new one, while there is one.
const OLD: &str = "old-root";
/// A device that a program finds in its root.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) path: &'static str,
    /// Of the memory devices, whose major number is 1.
    minor: u32,
    pub(crate) is_written_to: bool,
    /// The step that makes it one.
    step: &'static str,
}

/// Shells, Perl and many a library open it, and nothing is behind it.
pub(crate) const NULL: &str = "/dev/null";
/// All of them. Of random numbers the kernel gives every program as many as it asks for; git, and
/// SQLite for the names of its files, ask here.
pub(crate) const DEVICES: [Device; 2] = [
    Device { path: NULL, minor: 3, is_written_to: true, step: "let /dev/null be a device" },
    Device {
        path: "/dev/urandom",
        minor: 9,
        is_written_to: false,
        step: "let /dev/urandom be a device",
    },
];

/// What the root holds.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    directories: BTreeSet<PathBuf>,
    links: Vec<(PathBuf, PathBuf)>,
    binds: Vec<Bind>,
    devices: Vec<&'static Device>,
}

#[derive(Debug)]
struct Bind {
    source: PathBuf,
    target: PathBuf,
    is_directory: bool,
    writable: bool,
}

impl Plan {
    /// The root of a program with these grants; with libraries if it is dynamic.
    pub(crate) fn new(is_dynamic: bool, grants: &[PathGrant]) -> Result<Plan, JailError> {
        let mut plan = Plan::default();
        if is_dynamic {
            for path in LIBRARY_DIRECTORIES.into_iter().chain(LOADER_FILES).map(Path::new) {
                plan.add_library(path);
            }
        }
        let libraries = plan.binds.len();
        for grant in grants {
            plan.add_grant(grant)?;
        }
        plan.refuse_what_is_granted_twice(libraries)?;
        plan.add_reading_within_writing(libraries);
        // The sort keeps the order of neighbours.
        plan.binds.sort_by_key(|bind| bind.target.components().count());
        for device in &DEVICES {
            let path = Path::new(device.path);
            if !device.is_there() || grants.iter().any(|grant| path.starts_with(&grant.guest)) {
                continue;
            }
            let (source, target) = (path.to_owned(), path.to_owned());
            plan.bind(Bind { source, target, is_directory: false, writable: false });
            plan.devices.push(device);
        }
        plan.refuse_what_has_no_place()?;
        Ok(plan)
    }

    /// A grant below another one needs something to be mounted on in what that one brings.
    fn refuse_what_has_no_place(&self) -> Result<(), JailError> {
        for (index, bind) in self.binds.iter().enumerate() {
            let is_around = |outer: &&Bind| {
                bind.target != outer.target && bind.target.starts_with(&outer.target)
            };
            let Some(outer) = self.binds[..index].iter().rev().find(is_around) else { continue };
            let rest = bind.target.strip_prefix(&outer.target).unwrap_or(&bind.target);
            // What there is may still be of the wrong kind, or gone by then: the kernel says so.
            if outer.source.join(rest).symlink_metadata().is_err() {
                return Err(JailError::Text {
                    what: "the granted path",
                    value: bind.target.display().to_string(),
                    advice: "it lies in another granted directory: make something empty of that name there, or grant it elsewhere",
                });
            }
        }
        Ok(())
    }

    /// Of two grants under one path only the last would be there, with the rights of either.
    fn refuse_what_is_granted_twice(&self, libraries: usize) -> Result<(), JailError> {
        let grants = &self.binds[libraries..];
        let is_known = |(index, bind): &(usize, &Bind)| {
            grants[..*index].iter().any(|known| known.target == bind.target)
        };
        match grants.iter().enumerate().find(is_known) {
            Some((_, bind)) => Err(JailError::Text {
                what: "the granted path",
                value: bind.target.display().to_string(),
                advice: "two grants have it: give each a path of its own",
            }),
            None => Ok(()),
        }
    }

    /// What may only be read can be part of a directory that may be written to, which is granted
    /// under another path: there, too, it may only be read.
    fn add_reading_within_writing(&mut self, libraries: usize) {
        let grants = &self.binds[libraries..];
        let mut found: Vec<Bind> = Vec::new();
        for inner in grants.iter().filter(|bind| !bind.writable) {
            for outer in grants.iter().filter(|bind| bind.writable && bind.source != inner.source) {
                let Ok(rest) = inner.source.strip_prefix(&outer.source) else { continue };
                let target = outer.target.join(rest);
                // What is granted there by itself is what was asked for.
                if !grants.iter().chain(&found).any(|bind| bind.target == target) {
                    found.push(Bind { source: inner.source.clone(), target, ..*inner });
                }
            }
        }
        found.into_iter().for_each(|bind| self.bind(bind));
    }

    /// Whatever of it there is: a link stays a link, because loaders know libraries by their paths.
    fn add_library(&mut self, path: &Path) {
        let Ok(metadata) = path.symlink_metadata() else { return };
        if metadata.is_symlink() {
            if let Ok(target) = path.read_link() {
                self.add_parents(path);
                self.links.push((path.to_owned(), target));
            }
            return;
        }
        let path = path.to_owned();
        self.bind(Bind {
            source: path.clone(),
            target: path,
            is_directory: metadata.is_dir(),
            writable: false,
        });
    }

    fn add_grant(&mut self, grant: &PathGrant) -> Result<(), JailError> {
        let wrong = |path: &Path| JailError::Text {
            what: "the granted path",
            value: path.display().to_string(),
            advice: "grant it under an absolute path below `/` without `..`",
        };
        let plain = |part| matches!(part, Component::RootDir | Component::Normal(_));
        if !grant.guest.is_absolute()
            || !grant.guest.components().all(plain)
            || grant.guest == Path::new("/")
        {
            return Err(wrong(&grant.guest));
        }
        let source = grant
            .host
            .canonicalize()
            .map_err(|source| JailError::Host { what: "look up a granted path", source })?;
        self.refuse_what_hides_libraries(grant, &source)?;
        let is_directory = source.is_dir();
        // What the host may not write to stays so, also for a host that could change that.
        let read_only = rustix::fs::statvfs(&source)
            .is_ok_and(|space| space.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY));
        let writable = grant.access == PathAccess::ReadWrite && !read_only;
        self.bind(Bind { source, target: grant.guest.clone(), is_directory, writable });
        Ok(())
    }

    /// A grant under a path of the loader's files is for those files, and for reading: anything
    /// else would be there instead of them, and what can be written to cannot be executed.
    fn refuse_what_hides_libraries(
        &self,
        grant: &PathGrant,
        source: &Path,
    ) -> Result<(), JailError> {
        let libraries = self
            .binds
            .iter()
            .map(|bind| &bind.target)
            .chain(self.links.iter().map(|(path, _)| path));
        let needed = LIBRARY_DIRECTORIES.into_iter().chain(LOADER_FILES).map(Path::new);
        let hidden: Vec<&Path> = needed.filter(|needed| needed.starts_with(&grant.guest)).collect();
        let is_itself = grant.guest.canonicalize().is_ok_and(|guest| guest == source);
        let is_harmless = is_itself && grant.access == PathAccess::ReadOnly;
        if is_harmless || !libraries.into_iter().any(|library| hidden.contains(&library.as_path()))
        {
            return Ok(());
        }
        Err(JailError::Text {
            what: "the granted path",
            value: grant.guest.display().to_string(),
            advice: "the program's loader and libraries are there: grant it under another path, or that very directory for reading (:ro)",
        })
    }

    fn bind(&mut self, bind: Bind) {
        self.add_parents(&bind.target);
        if bind.is_directory {
            self.directories.insert(bind.target.clone());
        }
        self.binds.push(bind);
    }

    fn add_parents(&mut self, path: &Path) {
        // A parent that is itself a link leads into a directory that is bound, with this path in
        // it.
        self.directories.extend(
            path.ancestors().skip(1).filter(|parent| *parent != Path::new("/")).map(Path::to_owned),
        );
    }
}

impl Device {
    /// Whether its path is this device on this machine, and no other.
    pub(crate) fn is_there(&self) -> bool {
        Path::new(self.path).symlink_metadata().is_ok_and(|found| {
            found.file_type().is_char_device() && found.rdev() == rustix::fs::makedev(1, self.minor)
        })
    }
}

fn text(path: &Path) -> CString {
    // Paths that come from the system have no NUL bytes; one that was given is refused before.
    CString::new(path.as_os_str().as_bytes()).unwrap_or_default()
}

/// The steps that make the root and go there. The child must be in a mount name space of its own.
pub(crate) fn steps(steps: &mut Steps, plan: &Plan) {
    let none = || CString::from(c"none");
    let root = || CString::from(c"/");
    let private = libc::MS_REC | libc::MS_PRIVATE;
    steps.mount("make mounts private", none(), root(), None, private, None);
    let flags = libc::MS_NOSUID | libc::MS_NODEV;
    let options = CString::from(c"mode=0755,size=1m,nr_inodes=4k");
    let kind = CString::from(c"tmpfs");
    steps.mount(
        "mount the root",
        kind.clone(),
        text(Path::new(PLACE)),
        Some(kind),
        flags,
        Some(options),
    );
    steps.change_directory(text(Path::new(PLACE)));
    steps.make_directory(text(Path::new(OLD)));
    steps.change_root(text(Path::new(OLD)));
    // Sorted, so parents come before what is in them.
    for directory in &plan.directories {
        steps.make_directory(text(directory));
    }
    for (path, target) in &plan.links {
        steps.make_link(text(path), text(target));
    }
    for bind in plan.binds.iter().filter(|bind| !bind.is_directory) {
        steps.make_file(text(&bind.target));
    }
    let old = Path::new("/").join(OLD);
    for bind in &plan.binds {
        let source = old.join(bind.source.strip_prefix("/").unwrap_or(&bind.source));
        let flags = libc::MS_BIND | libc::MS_REC;
        steps.mount("bind into the root", text(&source), text(&bind.target), None, flags, None);
    }
    steps.unmount(text(&old));
    let set = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
    let sealed = MountChange { set, clear: 0, recursive: true };
    steps.mount_attributes("make the root read-only", root(), sealed);
    for device in &plan.devices {
        let (set, clear) = (libc::MOUNT_ATTR_NOEXEC, libc::MOUNT_ATTR_NODEV);
        let change = MountChange { set, clear, recursive: false };
        steps.mount_attributes(device.step, text(Path::new(device.path)), change);
    }
    for bind in plan.binds.iter().filter(|bind| bind.writable) {
        let change = MountChange {
            set: libc::MOUNT_ATTR_NOEXEC,
            clear: libc::MOUNT_ATTR_RDONLY,
            recursive: false,
        };
        steps.mount_attributes("make a granted directory writable", text(&bind.target), change);
    }
}
