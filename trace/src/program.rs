//! Finding the program that is to be run, and having it wait until it is traced.

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use holdfast_sys::ptrace::{Started, Task, start};

use crate::{Program, Result, TraceError};

/// Where programs are looked for if there is no `PATH`.
const PATH_DEFAULT: &str = "/usr/local/bin:/usr/bin:/bin";

/// A started program, before its first instruction.
#[derive(Debug)]
pub struct Waiting {
    /// Where it was found.
    pub path: PathBuf,
    /// Its process, which waits.
    pub started: Started,
}

impl Program {
    /// Starts it as a child of this thread, which waits before it runs the program. It has `more`
    /// variables than the tracer.
    ///
    /// # Errors
    /// There is no such program, it cannot be run, or the CPU cannot be used.
    pub fn start(&self, pin: Option<u32>, more: &[(OsString, OsString)]) -> Result<Waiting> {
        let path = self.find()?;
        if let Some(cpu) = pin {
            check_cpu(cpu)?;
        }
        let not_executable =
            |source: io::Error| TraceError::NotExecutable { program: path.clone(), source };
        let text =
            |bytes: Vec<u8>| CString::new(bytes).map_err(|error| not_executable(error.into()));
        let own =
            std::env::vars_os().filter(|(name, _)| !more.iter().any(|(other, _)| other == name));
        let environment = own.chain(more.iter().cloned()).map(|(name, value)| {
            let mut variable = name.into_vec();
            variable.push(b'=');
            variable.extend(value.into_vec());
            variable
        });
        let task = Task::Program {
            path: text(path.as_os_str().as_bytes().to_vec())?,
            arguments: self
                .command
                .iter()
                .map(|word| text(word.as_bytes().to_vec()))
                .collect::<Result<_>>()?,
            environment: environment.map(text).collect::<Result<_>>()?,
            pin,
        };
        let started = start(&task)
            .map_err(|source| TraceError::Kernel { step: "start a process", source })?;
        Ok(Waiting { path, started })
    }

    /// Its file.
    ///
    /// # Errors
    /// There is none, or none that may be run.
    pub fn find(&self) -> Result<PathBuf> {
        let Some(name) = self.command.first().filter(|name| !name.is_empty()) else {
            return Err(TraceError::NoProgram { program: PathBuf::new() });
        };
        if name.as_bytes().contains(&b'/') {
            return match is_program(Path::new(name)) {
                Ok(()) => Ok(PathBuf::from(name)),
                Err(source) => Err(refusal(Path::new(name), source)),
            };
        }
        find_in(name, &std::env::var_os("PATH").unwrap_or_else(|| PATH_DEFAULT.into()))
    }
}

fn find_in(name: &OsStr, path: &OsString) -> Result<PathBuf> {
    let mut refused = None;
    for directory in std::env::split_paths(path) {
        let directory =
            if directory.as_os_str().is_empty() { PathBuf::from(".") } else { directory };
        let file = directory.join(name);
        match is_program(&file) {
            Ok(()) => return Ok(file),
            // As shells do: one that may not be run does not hide another one, but is told of if
            // there is no other.
            Err(source) if source.kind() == io::ErrorKind::PermissionDenied => {
                refused.get_or_insert(refusal(&file, source));
            }
            Err(_) => {}
        }
    }
    Err(refused.unwrap_or_else(|| TraceError::NoProgram { program: name.into() }))
}

fn is_program(file: &Path) -> io::Result<()> {
    let metadata = std::fs::metadata(file)?;
    if !metadata.is_file() || metadata.permissions().mode() & 0o111 == 0 {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    Ok(())
}

fn refusal(program: &Path, source: io::Error) -> TraceError {
    let program = program.to_owned();
    match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => TraceError::NoProgram { program },
        _ => TraceError::NotExecutable { program, source },
    }
}

/// The kernel would take a set of CPUs of which none may be used for an error only in the child.
fn check_cpu(cpu: u32) -> Result<()> {
    let allowed = rustix::thread::sched_getaffinity(None)
        .map_err(|error| TraceError::NoCpu { cpu, source: error.into() })?;
    if cpu as usize >= rustix::thread::CpuSet::MAX_CPU || !allowed.is_set(cpu as usize) {
        let source = io::Error::new(io::ErrorKind::NotFound, "this process may not run there");
        return Err(TraceError::NoCpu { cpu, source });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(command: &str, path: &OsString) -> Result<PathBuf> {
        if command.contains('/') {
            Program { command: vec![command.into()] }.find()
        } else {
            find_in(OsStr::new(command), path)
        }
    }

    /// A program is looked up as in a shell; a missing program and one without execute permission
    /// are different errors.
    #[test]
    fn program_lookup_tells_missing_from_not_executable() {
        let home = tempfile::tempdir().unwrap();
        let (first, second) = (home.path().join("first"), home.path().join("second"));
        for directory in [&first, &second] {
            std::fs::create_dir(directory).unwrap();
            std::fs::write(directory.join("tool"), "").unwrap();
        }
        let path = std::env::join_paths([&first, &second]).unwrap();
        assert!(
            matches!(find("tool", &path), Err(TraceError::NotExecutable { program, .. }) if program == first.join("tool"))
        );
        std::fs::set_permissions(second.join("tool"), PermissionsExt::from_mode(0o755)).unwrap();
        assert_eq!(find("tool", &path).unwrap(), second.join("tool"));
        assert!(matches!(find("no-such-tool", &path), Err(TraceError::NoProgram { .. })));
        assert!(matches!(find("/no/such/tool", &path), Err(TraceError::NoProgram { .. })));
        assert!(matches!(find("/etc/hostname/tool", &path), Err(TraceError::NoProgram { .. })));
        assert!(matches!(find("/tmp", &path), Err(TraceError::NotExecutable { .. })));
        assert!(matches!(
            Program { command: vec!["".into()] }.find(),
            Err(TraceError::NoProgram { .. })
        ));
    }

    #[test]
    fn a_cpu_that_does_not_exist_is_refused() {
        assert!(matches!(check_cpu(100_000), Err(TraceError::NoCpu { cpu: 100_000, .. })));
    }
}
