//! The initramfs of the machine: its programs with the libraries that they need, modules of the
//! kernel, and a program of one's choice. A cpio archive, which the kernel unpacks into memory.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use cpio::newc::{Builder, ModeFileType, trailer};

use crate::missing::{LabError, Result, host};

/// The first process's program.
pub const INIT: &str = "init";
/// The program that calls the applet.
pub const CALLER: &str = "caller";
/// The applet that it calls.
pub const APPLET: &str = "applet";
/// Where modules are in the machine, each behind a number: their order.
pub const MODULES: &str = "/modules";
/// Where a program of one's choice is.
pub const PROGRAM: &str = "/program";
/// Its arguments, and lines `NAME=VALUE` of its environment, each closed by a zero byte.
pub const ARGUMENTS: &str = "/arguments";
/// See [`ARGUMENTS`].
pub const ENVIRONMENT: &str = "/environment";

const DIRECTORIES: [&str; 9] =
    ["dev", "proc", "sys", "run", "tmp", "flash", "pmem", "modules", "root"];

/// What the machine runs.
#[derive(Debug, Clone)]
pub struct Programs {
    /// Its first process.
    pub guest: PathBuf,
    /// What calls the applet.
    pub caller: PathBuf,
    /// The applet.
    pub applet: PathBuf,
}

impl Programs {
    /// Whether all are there.
    ///
    /// # Errors
    /// `Missing` with the first that is not.
    pub fn check(&self) -> Result<()> {
        match [&self.guest, &self.caller, &self.applet]
            .into_iter()
            .find(|program| !program.is_file())
        {
            Some(program) => {
                Err(LabError::Missing { what: format!("{} is not built", program.display()) })
            }
            None => Ok(()),
        }
    }
}

/// A program that is brought along, to be run in the machine.
#[derive(Debug, Clone, Default)]
pub struct ExtraProgram {
    /// The program.
    pub program: PathBuf,
    /// What it is called with.
    pub arguments: Vec<String>,
    /// `NAME=VALUE`.
    pub environment: Vec<String>,
}

/// Writes the archive to `path`.
///
/// # Errors
/// When a file cannot be read or the archive not be written.
pub fn write(
    path: &Path,
    programs: &Programs,
    modules: &[PathBuf],
    brought: Option<&ExtraProgram>,
) -> Result<()> {
    let file = File::create(path).map_err(host("create", path))?;
    let mut archive = Archive { out: std::io::BufWriter::new(file), made: BTreeSet::new(), path };
    for directory in DIRECTORIES {
        archive.directory(Path::new(directory))?;
    }
    // Without it the first process has no standard streams.
    let console = Builder::new("dev/console").mode(0o600).rdev_major(5).rdev_minor(1);
    archive.entry(console.set_mode_file_type(ModeFileType::Char), &[])?;
    for (name, program) in
        [(INIT, &programs.guest), (CALLER, &programs.caller), (APPLET, &programs.applet)]
    {
        let libraries = libraries(program)?;
        let slim = path.with_extension(name);
        let is_slim = strip(program, &slim);
        archive.file(Path::new(name), if is_slim { &slim } else { program })?;
        archive.libraries(&libraries)?;
        if is_slim {
            std::fs::remove_file(&slim).map_err(host("remove", &slim))?;
        }
    }
    for (number, module) in modules.iter().enumerate() {
        let name = module.file_name().unwrap_or_default().to_string_lossy().into_owned();
        archive.file(&Path::new("modules").join(format!("{number:02}-{name}")), module)?;
    }
    if let Some(brought) = brought {
        archive.program(Path::new(PROGRAM), &brought.program)?;
        archive.bytes(Path::new(ARGUMENTS), 0o644, &zero_ended(&brought.arguments))?;
        archive.bytes(Path::new(ENVIRONMENT), 0o644, &zero_ended(&brought.environment))?;
    }
    archive.end()
}

fn zero_ended(words: &[String]) -> Vec<u8> {
    words.iter().flat_map(|word| word.bytes().chain([0])).collect()
}

struct Archive<'a> {
    out: std::io::BufWriter<File>,
    made: BTreeSet<PathBuf>,
    path: &'a Path,
}

impl Archive<'_> {
    fn entry(&mut self, entry: Builder, bytes: &[u8]) -> Result<()> {
        let length = u32::try_from(bytes.len()).map_err(std::io::Error::other);
        let number = self.made.len() as u32 + 1;
        let written = length.and_then(|length| {
            let mut writer = entry.ino(number).write(&mut self.out, length);
            writer.write_all(bytes)?;
            writer.finish().map(drop)
        });
        written.map_err(host("write", self.path))
    }

    /// Makes it with its parents, once. Paths in the archive have no leading slash.
    fn directory(&mut self, path: &Path) -> Result<()> {
        let path = path.strip_prefix("/").unwrap_or(path).to_owned();
        if path.as_os_str().is_empty() || self.made.contains(&path) {
            return Ok(());
        }
        if let Some(parent) = path.parent() {
            self.directory(parent)?;
        }
        let entry = Builder::new(&path.to_string_lossy()).mode(0o755);
        self.made.insert(path);
        self.entry(entry.set_mode_file_type(ModeFileType::Directory), &[])
    }

    fn bytes(&mut self, to: &Path, mode: u32, bytes: &[u8]) -> Result<()> {
        let to = to.strip_prefix("/").unwrap_or(to).to_owned();
        if self.made.contains(&to) {
            return Ok(());
        }
        if let Some(parent) = to.parent() {
            self.directory(parent)?;
        }
        let entry = Builder::new(&to.to_string_lossy()).mode(mode);
        self.made.insert(to);
        self.entry(entry.set_mode_file_type(ModeFileType::Regular), bytes)
    }

    fn file(&mut self, to: &Path, from: &Path) -> Result<()> {
        let bytes = std::fs::read(from).map_err(host("read", from))?;
        self.bytes(to, 0o755, &bytes)
    }

    /// A program, and each library at the path at which its loader looks for it.
    fn program(&mut self, to: &Path, from: &Path) -> Result<()> {
        self.file(to, from)?;
        self.libraries(&libraries(from)?)
    }

    fn libraries(&mut self, libraries: &[PathBuf]) -> Result<()> {
        libraries.iter().try_for_each(|library| self.file(library, library))
    }

    fn end(mut self) -> Result<()> {
        let ended = trailer(&mut self.out).and_then(|out| out.flush());
        ended.map_err(host("write", self.path))
    }
}

/// A copy without what only debuggers read, which is most of a program: the machine unpacks it at
/// every start. False where it cannot be made; the program itself does as well.
fn strip(program: &Path, to: &Path) -> bool {
    let status = Command::new("strip").arg("--strip-debug").arg("-o").arg(to).arg(program).status();
    status.is_ok_and(|status| status.success())
}

/// What `ldd` says that a program loads, its loader included.
fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("ldd").arg(program).output().map_err(host("run ldd on", program))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if let Some(line) = text.lines().find(|line| line.contains("not found")) {
        return Err(LabError::Program { program: "ldd", said: line.trim().to_owned() });
    }
    // A static program loads nothing, and ldd says so by its status.
    Ok(text.lines().filter_map(library).collect())
}

/// The path in `libc.so.6 => /lib/x/libc.so.6 (0x7f…)` and in `/lib64/ld-linux-x86-64.so.2
/// (0x7f…)`.
fn library(line: &str) -> Option<PathBuf> {
    let path = line.rsplit_once(" (0x")?.0;
    let path = path.split_once("=> ").map_or(path, |(_, path)| path).trim();
    path.starts_with('/').then(|| PathBuf::from(path))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_read_from_what_ldd_says() {
        let said = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibc.so.6 => /lib/x/libc.so.6 (0x00007f)\n\t/lib64/ld.so.2 (0x7f)\n";
        let found: Vec<_> = said.lines().filter_map(library).collect();
        assert_eq!(found, [Path::new("/lib/x/libc.so.6"), Path::new("/lib64/ld.so.2")]);
    }

    /// An archive holds programs with their libraries once, and directories before their files.
    #[test]
    fn archive_has_each_library_once_in_order() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("initramfs");
        let this = std::env::current_exe().unwrap();
        let module = directory.path().join("b.ko");
        std::fs::write(&module, "module").unwrap();
        let brought = ExtraProgram {
            program: this.clone(),
            arguments: vec!["a b".to_owned()],
            ..ExtraProgram::default()
        };
        let programs = Programs { guest: this.clone(), caller: this.clone(), applet: this };
        write(&path, &programs, &[module], Some(&brought)).unwrap();
        let mut reader = cpio::newc::Reader::new(File::open(&path).unwrap()).unwrap();
        let mut names = Vec::new();
        while !reader.entry().is_trailer() {
            names.push(reader.entry().name().to_owned());
            let file = reader.finish().unwrap();
            reader = cpio::newc::Reader::new(file).unwrap();
        }
        let unique: BTreeSet<_> = names.iter().collect();
        assert_eq!(unique.len(), names.len(), "{names:?}");
        let at = |name: &str| names.iter().position(|other| other == name).unwrap();
        assert!(
            at("modules") < at("modules/00-b.ko")
                && at("init") < at("program")
                && at("caller") < at("applet")
        );
        assert!(names.iter().any(|name| name.contains("libc.so")), "{names:?}");
    }
}
