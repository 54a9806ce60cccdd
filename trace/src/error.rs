//! Why a trace could not be made, and the text that says what to do about it.

use std::io;
use std::path::PathBuf;

/// Short for results of tracing.
pub type Result<T> = std::result::Result<T, TraceError>;

/// Why a trace could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// There is no such program.
    #[error("there is no program {}; give a path with a slash, or a name that is in PATH", program.display())]
    NoProgram {
        /// As it was given.
        program: PathBuf,
    },
    /// The program cannot be run.
    #[error("{} cannot be run: {source}; it must be a file with the right to execute (chmod +x) for this machine", program.display())]
    NotExecutable {
        /// The file.
        program: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
    /// There is no such process.
    #[error("there is no process {process}; `ps -e` lists those that run")]
    NoProcess {
        /// Its number.
        process: u32,
    },
    /// The process may not be traced by this user.
    #[error("process {process} may not be traced: {why}")]
    AttachDenied {
        /// Its number.
        process: u32,
        /// The reason, and what to do.
        why: String,
    },
    /// Another program traces it.
    #[error(
        "process {process} is traced by process {tracer} already, and the kernel allows one tracer; end that one first"
    )]
    AlreadyTraced {
        /// The process.
        process: u32,
        /// The other tracer.
        tracer: u32,
    },
    /// There is no such control group.
    #[error("{} is no control group: {source}; give a directory below /sys/fs/cgroup", path.display())]
    NoCgroup {
        /// As it was given.
        path: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
    /// The CPU does not exist, or may not be used.
    #[error("CPU {cpu} cannot be used: {source}; choose one that `nproc --all` counts, from 0 on")]
    NoCpu {
        /// The number of the CPU.
        cpu: u32,
        /// What the kernel says.
        source: io::Error,
    },
    /// This backend does not do that, or not here.
    #[error("{backend} cannot trace here: {why}")]
    Unavailable {
        /// The backend, as the options have it.
        backend: &'static str,
        /// The reason, and what to do.
        why: String,
    },
    /// The kernel refused something else.
    #[error("cannot {step}: {source}; the traced program goes on untraced")]
    Kernel {
        /// The step, as a verb.
        step: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}
