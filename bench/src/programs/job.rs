//! A program with a storage in a sandbox, as a command; and what a run of it said.

use std::fs::{self, File};
use std::io::{self, Error};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use holdfast_testkit::{Programs, Scratch};
use rustix::fs::{Advice, fadvise, fsync};

use crate::free_memory;
use crate::timing::{ms_since, spell_check};

/// The applet, its heap, and the name whose key opens it.
const APPLET: &str = "programs";
const HEAP: &str = "programs";
/// The image is in memory. `compress` keeps 500 MB, what they become, and one object more while it
/// replaces another.
const HEAP_SIZE: &str = "1536MiB";
/// The largest table of `knucleotide` has 512 MiB, and is made from one of 128.
const MEMORY: &str = "2GiB";
/// Names that one command line takes.
const NAMES: usize = 1_000;

/// What surrounds a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sandbox {
    Wasm,
    Native,
    Unsandboxed,
}

impl Sandbox {
    pub(super) const ALL: [Sandbox; 3] = [Sandbox::Wasm, Sandbox::Native, Sandbox::Unsandboxed];

    /// Of keys.
    pub(super) fn suffix(self) -> &'static str {
        match self {
            Sandbox::Wasm => "",
            Sandbox::Native => "_native",
            Sandbox::Unsandboxed => "_unsandboxed",
        }
    }
}

/// Where a program's objects are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Storage {
    /// Files, each record with a call.
    Posix,
    /// Files through the buffer that `stdio` has in newlib, musl and wasi-libc.
    Stdio,
    /// The same for glibc.
    Glibc,
    /// Files through a buffer of 64 KiB.
    Buffered,
    Mapped,
    Heap,
    /// Ordinary memory of the sandbox.
    Ideal,
}

impl Storage {
    pub(super) const ALL: [Storage; 6] = [
        Storage::Posix,
        Storage::Stdio,
        Storage::Buffered,
        Storage::Mapped,
        Storage::Heap,
        Storage::Ideal,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Storage::Posix => "posix",
            Storage::Stdio => "stdio",
            Storage::Glibc => "glibc",
            Storage::Buffered => "buffered",
            Storage::Mapped => "mmap",
            Storage::Heap => "heap",
            Storage::Ideal => "ideal",
        }
    }

    fn options(self) -> &'static [&'static str] {
        match self {
            Storage::Posix => &["--storage", "files"],
            Storage::Stdio => &["--storage", "files", "--buffer", "1024"],
            Storage::Glibc => &["--storage", "files", "--buffer", "4096"],
            Storage::Buffered => &["--storage", "files", "--buffer", "65536"],
            Storage::Mapped => &["--storage", "mapped"],
            Storage::Heap => &["--storage", "heap"],
            Storage::Ideal => &["--storage", "volatile"],
        }
    }

    /// Without a sandbox there is no heap here: a native program's is measured by the suite `heap`.
    pub(super) fn is_in(self, sandbox: Sandbox) -> bool {
        self != Storage::Heap || sandbox != Sandbox::Unsandboxed
    }
}

/// Where the image of a heap lies, which programs map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Image {
    /// In the pool, a tmpfs.
    Memory,
    /// In the home.
    Home,
}

/// A scratch home with a directory of files, and the built programs.
pub(super) struct Ground {
    scratch: Scratch,
    home: PathBuf,
    image: Image,
    wasm: PathBuf,
    native: PathBuf,
}

/// What a run said and took.
#[derive(Debug)]
pub(super) struct Said {
    /// The program's own time; of its first round, if it has several.
    pub(super) ms: f64,
    /// Of each round after the first.
    pub(super) later_ms: Vec<f64>,
    /// Of it until its input was in memory, if it says so.
    pub(super) reading_ms: f64,
    /// Of it in Snappy, if it says so.
    pub(super) encoding_ms: f64,
    /// The process, from its start to its end.
    pub(super) run_ms: f64,
    /// Calls that left the program.
    pub(super) crossings: f64,
    /// What the processes that took part had, start and end included.
    pub(super) usage: Usage,
    /// Everything else that it printed: its result.
    pub(super) result: String,
}

impl Ground {
    pub(super) fn new() -> io::Result<Ground> {
        let programs = Programs::find()?;
        let (wasm, native) = (programs.applet(APPLET)?, programs.native_applet(APPLET)?);
        let scratch = Scratch::new(programs)?;
        Ok(Ground { home: scratch.home(), image: Image::Memory, scratch, wasm, native })
    }

    /// With the home, which has the heap's checkpoints, in this directory.
    pub(super) fn with_home(home: PathBuf, image: Image) -> io::Result<Ground> {
        Ok(Ground { home, image, ..Ground::new()? })
    }

    /// The home and the files.
    pub(super) fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    /// The directory of files, in memory.
    pub(super) fn files(&self) -> PathBuf {
        self.scratch.files()
    }

    /// A program over files of this directory.
    pub(super) fn command(
        &self,
        sandbox: Sandbox,
        storage: Storage,
        directory: &Path,
        arguments: &[&str],
    ) -> Command {
        let mut command = match sandbox {
            Sandbox::Unsandboxed => Command::new(&self.native),
            Sandbox::Wasm => self.granted(&self.wasm, storage, directory),
            Sandbox::Native => self.granted(&self.native, storage, directory),
        };
        command.args(arguments).args(storage.options()).arg("--dir").arg(directory);
        command
    }

    fn granted(&self, applet: &Path, storage: Storage, directory: &Path) -> Command {
        let mut command = self.holdfast();
        command.arg("run").arg(applet).args(["--memory", MEMORY, "--dir"]).arg(directory);
        if storage == Storage::Heap {
            command.args(["--heap", HEAP, "--heap-size", HEAP_SIZE, "--app", HEAP]);
            if self.image == Image::Home {
                command.args(["--backing", "file"]);
            }
        }
        command.arg("--");
        command
    }

    fn holdfast(&self) -> Command {
        let mut command = self.scratch.holdfast();
        command.env("HOLDFAST_HOME", &self.home);
        command
    }

    /// Copies files into the heap: the paper's helper process.
    pub(super) fn import(&self, directory: &Path, names: &[String]) -> io::Result<()> {
        for names in names.chunks(NAMES) {
            let arguments: Vec<&str> =
                std::iter::once("import").chain(names.iter().map(String::as_str)).collect();
            self.run(Sandbox::Native, Storage::Heap, directory, &arguments)?;
        }
        Ok(())
    }

    /// Removes the heap, if there is one. The next run makes another.
    pub(super) fn remove_heap(&self) -> io::Result<()> {
        if !self.scratch.image(HEAP).exists() {
            return Ok(());
        }
        let mut command = self.holdfast();
        command.args(["heap", "rm", HEAP]);
        output(command).map(drop)
    }

    /// As after a restart of the machine: the heap has no image, and its checkpoint is on the disk
    /// of the home alone.
    pub(super) fn forget_heap(&self) -> io::Result<()> {
        let mut command = self.holdfast();
        command.args(["heap", "rm", "--image", HEAP]);
        output(command)?;
        for entry in fs::read_dir(self.home.join("store"))? {
            drop_pages(&entry?.path())?;
        }
        Ok(())
    }

    /// How long a program takes from its start, with the opening of its heap, until it has said
    /// what it found: milliseconds. The checkpoint comes after that.
    pub(super) fn answer_ms(
        &self,
        storage: Storage,
        directory: &Path,
        arguments: &[&str],
    ) -> io::Result<f64> {
        let command = self.command(Sandbox::Wasm, storage, directory, arguments);
        free_memory::warm_up()?;
        Ok(spell_check(command)?.wall_ms)
    }

    /// Runs a program, with warm memory free.
    pub(super) fn run(
        &self,
        sandbox: Sandbox,
        storage: Storage,
        directory: &Path,
        arguments: &[&str],
    ) -> io::Result<Said> {
        free_memory::warm_up()?;
        self.run_in_any_memory(sandbox, storage, directory, arguments)
    }

    /// Runs a program.
    pub(super) fn run_in_any_memory(
        &self,
        sandbox: Sandbox,
        storage: Storage,
        directory: &Path,
        arguments: &[&str],
    ) -> io::Result<Said> {
        let command = self.command(sandbox, storage, directory, arguments);
        let (started, before) = (Instant::now(), Usage::of_children());
        let out = output(command)?;
        let (run_ms, usage) = (ms_since(started), Usage::of_children().since(before));
        let values = |key: &str| {
            let numbers = out.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
            numbers.filter_map(|number| number.parse::<f64>().ok()).collect::<Vec<_>>()
        };
        let value = |key: &str| values(key).first().copied();
        let is_measured = |line: &&str| {
            !["ns ", "reading_ns ", "encoding_ns ", "crossings "]
                .iter()
                .any(|key| line.starts_with(key))
        };
        Ok(Said {
            ms: value("ns").unwrap_or_default() / 1e6,
            later_ms: values("ns").iter().skip(1).map(|ns| ns / 1e6).collect(),
            reading_ms: value("reading_ns").unwrap_or_default() / 1e6,
            encoding_ms: value("encoding_ns").unwrap_or_default() / 1e6,
            run_ms,
            crossings: value("crossings").unwrap_or_default(),
            usage,
            result: out.lines().filter(is_measured).collect::<Vec<_>>().join("\n"),
        })
    }
}

/// What processes had of the kernel.
#[derive(Debug, Clone, Copy)]
pub(super) struct Usage {
    /// Context switches, voluntary or not.
    pub(super) switches: f64,
    /// Page faults that read nothing from a disk.
    pub(super) page_faults: f64,
}

impl Usage {
    /// Of all children that have ended.
    pub(super) fn of_children() -> Usage {
        // SAFETY: all its fields are numbers, of which any may be 0.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: the structure is there to be written to.
        unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) };
        Usage {
            switches: (usage.ru_nvcsw + usage.ru_nivcsw) as f64,
            page_faults: usage.ru_minflt as f64,
        }
    }

    pub(super) fn since(self, before: Usage) -> Usage {
        Usage {
            switches: self.switches - before.switches,
            page_faults: self.page_faults - before.page_faults,
        }
    }
}

/// Has the kernel forget the pages of a file.
pub(super) fn drop_pages(path: &Path) -> io::Result<()> {
    let file = File::open(path)?;
    fsync(&file)?;
    fadvise(&file, 0, None, Advice::DontNeed)?;
    Ok(())
}

/// Runs a command to its end and returns what it printed.
pub(super) fn output(mut command: Command) -> io::Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Error::other(format!("cannot start {command:?}: {error}")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    Err(Error::other(format!("{command:?} ended with {}: {complaint}", output.status)))
}
