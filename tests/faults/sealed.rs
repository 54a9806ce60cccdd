//! Row H9, behind the checksums: one field of one file of a home is absurd, and the sums are right.
//! Each command of `holdfast heap`, and the keeper's, gives a typed error or shows it: no panic, no
//! overflow, no allocation that the file does not justify, no end without an exit code.
//!
//! Each trial lays the same home out, with one file changed, and runs commands on it in a child:
//! that has limits of memory, of processor time and of file sizes, so a command that allocates what
//! a header claims, or loops, ends it.

#![allow(unsafe_code, reason = "limits of the child, and its standard streams")]

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use holdfast_keeper::{Cause, Config, Keeper};
use holdfast_region::Places;
use holdfast_testkit::Trials;
use holdfast_testkit::full_home::{CHANGES, FullHome, LOOKS, PLAIN_LOOKS};
use holdfast_testkit::sealed::{FileKind, Home, Sketch};
use rand::RngExt;
use rand::rngs::StdRng;

use crate::driver::{Child, Ended};
use crate::home::MIB;

const TRIALS: u64 = 300;
/// However many are asked for: a trial takes 40 ms, and those of the other tests of this row less
/// than 3.
const TRIALS_MAX: u64 = 30_000;
/// More than any command takes for these files.
const DATA_BYTES_MAX: u64 = 512 << 20;
const FILE_BYTES_MAX: u64 = 64 << 20;
const CPU_S_MAX: u64 = 20;
/// A child's word that a command was at fault, and which; the text is in `Streams`.
const AT_FAULT: i32 = 42;
/// The last of the exit codes of commands other than `run`.
const CODE_MAX: u8 = 8;
/// A word that is no command: what a keeper does.
const KEEP: &str = "(keep)";
/// Where the driver finds room for streams.
const FILES: &str = "HOLDFAST_FAULT_FILES";
const KINDS: [FileKind; 8] = [
    FileKind::Image,
    FileKind::Base,
    FileKind::Rescue,
    FileKind::Journal,
    FileKind::Redo,
    FileKind::Stream,
    FileKind::Grants,
    FileKind::Plain,
];

/// Absurd values behind valid checksums are refused or shown.
///
/// Guarantee: heap/hostile-content
/// Guarantee: heap/damaged-headers
/// Guarantee: heap/damaged-journal
#[test]
fn absurd_values_with_valid_sums_do_no_harm() {
    run("sealed");
}

/// The body of the driver.
pub(crate) fn drive() {
    let scene = full_home();
    every_field(&scene);
    let mut trials = Trials::of("H9", "absurd values behind right sums", TRIALS);
    while let Some(mut trial) = trials.next() {
        let (path, sketch) = distorted(scene.home(), &mut trial.random);
        let commands = commands(&scene, &mut trial.random);
        attempt(&scene, &path, &sketch, &commands, &format!("seed {:#x}", trial.seed));
        if trial.number + 1 == TRIALS_MAX {
            break;
        }
    }
}

/// Each field of the header of an image and of a snapshot, with values that it cannot have.
fn every_field(scene: &FullHome) {
    const FIELDS: [u64; 15] = [16, 24, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 144, 280, 288];
    let looks = ["heap show words", "heap ls", "heap check words", "heap stats words --json"];
    let snapshots =
        ["heap snapshots words", "heap snapshots words --json", "heap salvage SNAPSHOT"];
    let snapshot =
        scene.home().paths().find(|(path, _)| path.ends_with("words/monday.base")).unwrap();
    let mut trials = Trials::of_all("H9", "each field of a header");
    for (path, kind, commands) in [
        (scene.image(), FileKind::Image, &looks[..]),
        (snapshot.0.to_path_buf(), FileKind::Base, &snapshots[..]),
    ] {
        let commands: Vec<_> = commands.iter().map(|command| scene.arguments(command)).collect();
        for field in FIELDS {
            // The last second that a calendar has is one less.
            for value in [253_402_300_800, 1 << 62, u64::MAX] {
                trials.next();
                let mut sketch = scene.home().sketch(&path).unwrap().clone();
                for slot in [0, 4096] {
                    sketch.store(slot + field, &value.to_le_bytes());
                }
                sketch.seal(kind);
                attempt(
                    scene,
                    &path,
                    &sketch,
                    &commands,
                    &format!("field {field}, value {value:#x}"),
                );
            }
        }
    }
}

/// The commands, one after the other, on the home with that file.
fn attempt(scene: &FullHome, path: &Path, sketch: &Sketch, commands: &[Vec<OsString>], what: &str) {
    scene.home().lay_out(path, sketch).unwrap();
    let mut streams = Streams::new();
    let ended = Child::fork(|| streams.play(commands)).wait();
    assert_eq!(ended, Ended::With(0), "{}, {what}\n{}", path.display(), streams.said());
}

/// The largest region that there can be, of which nothing is there.
///
/// Guarantee: heap/hostile-content
#[test]
fn huge_sparse_images_are_no_reason_to_allocate() {
    run("inflated");
}

/// The body of that driver.
pub(crate) fn drive_inflated() {
    let scene = full_home();
    let mut trials = Trials::of_all("H9", "huge sparse images");
    let path = scene.image();
    let mut sketch = scene.home().sketch(&path).unwrap().clone();
    sketch.inflate();
    sketch.seal(FileKind::Image);
    // Not the export: it sums a TiB of zeros for minutes, as it has to.
    let json = LOOKS.iter().map(|look| format!("{look} --json"));
    let more =
        ["heap map words --svg FILES/out.svg", "heap repair words"].into_iter().map(str::to_owned);
    for look in LOOKS.into_iter().map(str::to_owned).chain(json).chain(more) {
        trials.next();
        attempt(&scene, &path, &sketch, &[scene.arguments(&look)], &look);
        let allocated = path.metadata().unwrap().blocks() * 512;
        assert!(allocated <= 64 * MIB, "{look} filled {allocated} bytes of the image's holes");
    }
}

/// In the parent: the driver of a role, with a home of its own.
fn run(role: &str) {
    let directory =
        tempfile::Builder::new().prefix("holdfast-sealed-").tempdir_in("/dev/shm").unwrap();
    let mut program = Command::new(std::env::current_exe().unwrap());
    for (variable, folder) in
        [("HOLDFAST_HOME", "home"), ("HOLDFAST_POOL", "pool"), (FILES, "files")]
    {
        program.env(variable, directory.path().join(folder));
    }
    crate::driver::run_with(program, role);
}

fn full_home() -> FullHome {
    let scene =
        FullHome::make(&Places::from_env().unwrap(), Path::new(&std::env::var_os(FILES).unwrap()));
    let scene = scene.unwrap();
    for kind in KINDS {
        assert!(scene.home().paths().any(|(_, found)| found == kind), "the home has no {kind:?}");
    }
    scene
}

/// One of the files, with up to three fields that are absurd, and right sums.
fn distorted(home: &Home, random: &mut StdRng) -> (PathBuf, Sketch) {
    // Most files of a home are without sums; each kind is as likely.
    let kind = KINDS[random.random_range(0..KINDS.len())];
    let of_kind: Vec<_> = home.paths().filter(|(_, found)| *found == kind).collect();
    let path = of_kind[random.random_range(0..of_kind.len())].0;
    let mut sketch = home.sketch(path).unwrap().clone();
    for _ in 0..random.random_range(1..=3) {
        sketch.distort(kind, random);
    }
    sketch.seal(kind);
    (path.to_path_buf(), sketch)
}

/// Some looks, in both forms, and up to two changes.
fn commands(scene: &FullHome, random: &mut StdRng) -> Vec<Vec<OsString>> {
    let mut commands = Vec::new();
    for _ in 0..4 {
        let look = LOOKS[random.random_range(0..LOOKS.len())];
        commands.extend([scene.arguments(look), scene.arguments(&format!("{look} --json"))]);
    }
    commands.push(scene.arguments(PLAIN_LOOKS[random.random_range(0..PLAIN_LOOKS.len())]));
    for _ in 0..random.random_range(0..=2) {
        commands.push(scene.arguments(CHANGES[random.random_range(0..CHANGES.len())]));
    }
    if random.random_ratio(1, 4) {
        commands.push(vec![KEEP.into()]);
    }
    commands
}

/// What a keeper does by itself, without its loop.
fn keep() -> u8 {
    let mut keeper = match Keeper::new(Places::from_env().unwrap(), Config::default()) {
        Ok(keeper) => keeper,
        Err(error) => {
            eprintln!("{error}");
            return 7;
        }
    };
    let done = (keeper.tend(), keeper.evict(), keeper.flush(Cause::Asked));
    eprintln!("{done:?} {:?}", keeper.status().map(|status| status.metrics()));
    0
}

/// Where a child writes to, and what it said.
struct Streams {
    out: File,
    err: File,
}

impl Streams {
    fn new() -> Streams {
        Streams {
            out: tempfile::tempfile_in("/dev/shm").unwrap(),
            err: tempfile::tempfile_in("/dev/shm").unwrap(),
        }
    }

    /// In the child: runs the commands under limits; its status.
    fn play(&mut self, commands: &[Vec<OsString>]) -> i32 {
        for (resource, most) in [
            (libc::RLIMIT_DATA, DATA_BYTES_MAX),
            (libc::RLIMIT_FSIZE, FILE_BYTES_MAX),
            (libc::RLIMIT_CPU, CPU_S_MAX),
        ] {
            let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
            // SAFETY: a valid pointer to a limit.
            assert_eq!(unsafe { libc::setrlimit(resource, &raw const limit) }, 0);
        }
        // SAFETY: signals and descriptors of this child alone, which has one thread. A file that
        // would be too long is an error then.
        unsafe {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            libc::dup2(self.out.as_raw_fd(), 1);
            libc::dup2(self.err.as_raw_fd(), 2);
        }
        for command in commands {
            if let Err(why) = self.run(command) {
                eprintln!("{why}");
                return AT_FAULT;
            }
        }
        0
    }

    fn run(&mut self, command: &[OsString]) -> Result<(), String> {
        for stream in [&mut self.out, &mut self.err] {
            stream.set_len(0).unwrap();
            stream.seek(SeekFrom::Start(0)).unwrap();
        }
        let line: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
        // Read by the parent when the child is killed.
        eprintln!("$ {}", line.join(" "));
        let code = if command == [KEEP] { keep() } else { holdfast_cli::run(command.to_vec()) };
        if code > CODE_MAX {
            return Err(format!("exit code {code}"));
        }
        let out = read(&mut self.out);
        let text = String::from_utf8(out).map_err(|error| format!("no text: {error}"))?;
        if command.iter().any(|word| word == "--json") {
            if code <= 5 && !text.is_empty() {
                serde_json::from_str::<serde_json::Value>(&text)
                    .map_err(|error| format!("{error}: {text}"))?;
            }
        } else if let Some(steers) = text.chars().find(|c| c.is_control() && *c != '\n') {
            return Err(format!("{steers:?} would reach a terminal: {text:?}"));
        }
        let errors =
            String::from_utf8(read(&mut self.err)).map_err(|error| format!("no text: {error}"))?;
        match errors.chars().find(|c| c.is_control() && *c != '\n') {
            Some(steers) => Err(format!("{steers:?} would reach a terminal: {errors:?}")),
            None => Ok(()),
        }
    }

    fn said(&mut self) -> String {
        String::from_utf8_lossy(&[read(&mut self.err), read(&mut self.out)].concat()).into_owned()
    }
}

fn read(file: &mut File) -> Vec<u8> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_to_end(&mut bytes).unwrap();
    bytes
}
