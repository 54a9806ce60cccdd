//! SQLite's own test programs, built once from the source that `setup.sh` has unpacked below the
//! target directory, and the library that makes the VFS under test their default one.
//!
//! Invariants: what is there already is used again unless it was built from something else; a
//! half-built directory is never taken for a whole one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::command::{cargo, run, with_timeout};
use crate::failure::{Failure, Result};
use crate::workspace::Workspace;

const HOOK: &str = include_str!("hook.c");
const CONFIGURE: [&str; 4] =
    ["--disable-amalgamation", "--disable-shared", "--disable-readline", "CFLAGS=-O1 -g0"];
/// So that a library that is loaded finds the functions of the program's own SQLite.
const LINK: [&str; 5] = ["-Wl,--export-dynamic", "-ldl", "-lm", "-lpthread", "-lz"];
const EXTRA_INIT: &str = "-DSQLITE_EXTRA_INIT=holdfast_suite_init";
/// Beside `testfixture`: name and source of each program, and what SQLite's makefile compiles it
/// with. For all programs. In WAL they are measured with `synchronous=NORMAL`, which their options
/// do not offer.
const LIBRARY: [&str; 2] = ["-DSQLITE_ENABLE_RTREE", "-DSQLITE_DEFAULT_WAL_SYNCHRONOUS=1"];
const PROGRAMS: [(&str, &str, &[&str]); 5] = [
    ("mptester", "mptest/mptest.c", &[]),
    ("speedtest1", "test/speedtest1.c", &["-DSQLITE_ENABLE_RTREE"]),
    ("wordcount", "test/wordcount.c", &[]),
    ("kvtest", "test/kvtest.c", &[]),
    // Seen from the directory of the build.
    (
        "threadtest3",
        "test/threadtest3.c",
        &["-I../source/src", "../source/src/test_multiplex.c", "-DSQLITE_THREADSAFE=1"],
    ),
];
/// Compiling SQLite three times over on a slow machine.
const BUILD_TIMEOUT_S: u32 = 20 * 60;
/// The package with the static library.
const PACKAGE: &str = "holdfast-sqlite-static";
const ARCHIVE: &str = "libholdfast_sqlite.a";

/// Where everything is.
pub(crate) struct Built {
    /// SQLite's source.
    pub(crate) source: PathBuf,
    /// The built programs.
    pub(crate) programs: PathBuf,
}

impl Built {
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.programs.join(name)
    }

    /// SQLite's test files.
    pub(crate) fn tests(&self) -> PathBuf {
        self.source.join("test")
    }
}

fn place(workspace: &Workspace) -> PathBuf {
    workspace.target.join("sqlite")
}

/// What this machine lacks for it.
pub(crate) fn missing(workspace: &Workspace) -> Option<String> {
    if !place(workspace).join("source").join("VERSION").is_file() {
        return Some(
            "there is no source of SQLite; ./test gets it out of Debian's source package"
                .to_owned(),
        );
    }
    if tcl().is_none() {
        return Some("there is no Tcl to build with; ./test installs tcl-dev".to_owned());
    }
    let has_cc = Command::new("cc").arg("--version").stdout(Stdio::null()).status().is_ok();
    (!has_cc).then(|| "there is no C compiler; ./test installs build-essential".to_owned())
}

/// The folder with `tclConfig.sh`, and the library's version.
fn tcl() -> Option<(PathBuf, String)> {
    let script = "puts [info tclversion]; exit";
    let mut tclsh = Command::new("tclsh");
    let mut child = tclsh.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
    std::io::Write::write_all(&mut child.stdin.take()?, script.as_bytes()).ok()?;
    let said = String::from_utf8(child.wait_with_output().ok()?.stdout).ok()?;
    let version = said.lines().next()?.to_owned();
    let name = format!("tcl{version}");
    let machine = format!("{}-linux-gnu", std::env::consts::ARCH);
    let folders = [
        format!("/usr/lib/{machine}/{name}"),
        format!("/usr/lib/{name}"),
        format!("/usr/lib64/{name}"),
    ];
    let found =
        folders.iter().map(PathBuf::from).find(|folder| folder.join("tclConfig.sh").is_file())?;
    Some((found, version))
}

/// Builds what is not built yet.
pub(crate) fn build(workspace: &Workspace) -> Result<Built> {
    let built =
        Built { source: place(workspace).join("source"), programs: place(workspace).join("build") };
    let version = read(&built.source.join("VERSION"))?;
    let made_of =
        format!("{version}{CONFIGURE:?}{LINK:?}{EXTRA_INIT}{LIBRARY:?}{PROGRAMS:?}{HOOK}");
    let stamp = built.programs.join("made-of");
    if fs::read_to_string(&stamp).is_ok_and(|before| before == made_of) {
        return Ok(built);
    }
    let _ = fs::remove_dir_all(&built.programs);
    fs::create_dir_all(&built.programs)
        .map_err(|error| cannot("create", &built.programs, &error))?;
    write(&built.program("hook.c"), HOOK)?;
    let (tcl, tcl_version) =
        tcl().ok_or_else(|| Failure::new("there is no Tcl; ./test installs tcl-dev"))?;
    let mut configure = Command::new(built.source.join("configure"));
    configure.args(CONFIGURE).arg(format!("--with-tcl={}", tcl.display()));
    bounded(&built, configure)?;
    compile(&built, &["-O1", "-c", "hook.c"])?;
    let libraries = format!("hook.o {} -ltcl{tcl_version}", LINK.join(" "));
    let mut make = Command::new("make");
    make.args(["testfixture", "sqlite3.c", &format!("OPTS={EXTRA_INIT}")]);
    make.args([&format!("LIBTCL={libraries}"), "TLIBS="]);
    bounded(&built, make)?;
    let mut words = vec!["-O2", "-I.", EXTRA_INIT, "-c", "sqlite3.c"];
    words.extend(LIBRARY);
    compile(&built, &words)?;
    for (name, source, options) in PROGRAMS {
        let source = built.source.join(source).display().to_string();
        let mut words = vec!["-O2", "-I.", "-o", name, &source, "sqlite3.o", "hook.o"];
        words.extend(options.iter().chain(&LINK));
        compile(&built, &words)?;
    }
    write(&stamp, &made_of)?;
    Ok(built)
}

/// How our library is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Profile {
    /// As the tests are.
    Debug,
    /// For measurements.
    Release,
}

/// Builds the static library as it is now, and makes of it one that the programs can load.
pub(crate) fn vfs(workspace: &Workspace, built: &Built, profile: Profile) -> Result<PathBuf> {
    let (options, folder, library): (&[&str], _, _) = match profile {
        Profile::Debug => (&[], "debug", "libholdfast_suite_vfs.so"),
        Profile::Release => (&["--release"], "release", "libholdfast_suite_vfs_release.so"),
    };
    let mut build = cargo(&workspace.root);
    build.args(["build", "-p", PACKAGE]).args(options);
    run(with_timeout(&build, BUILD_TIMEOUT_S).stdout(Stdio::null()))?;
    let archive = workspace.target.join(folder).join(ARCHIVE).display().to_string();
    compile(
        built,
        &[
            "-shared",
            "-o",
            library,
            "-Wl,-u,holdfast_sqlite_register",
            &archive,
            "-ldl",
            "-lm",
            "-lpthread",
            "-lgcc_s",
        ],
    )?;
    Ok(built.program(library))
}

fn compile(built: &Built, words: &[&str]) -> Result<()> {
    let mut cc = Command::new("cc");
    cc.args(words);
    bounded(built, cc)
}

/// Runs a step of the build, in the directory of the build; what it says is in a file there.
fn bounded(built: &Built, mut command: Command) -> Result<()> {
    let log = built.program("build.log");
    let output = fs::File::options().create(true).append(true).open(&log);
    let output = output.map_err(|error| cannot("write", &log, &error))?;
    let errors = output.try_clone().map_err(|error| cannot("write", &log, &error))?;
    command.current_dir(&built.programs);
    let mut bounded = with_timeout(&command, BUILD_TIMEOUT_S);
    let done = run(bounded.stdout(output).stderr(errors));
    done.map_err(|failure| Failure::new(format!("{failure}; {} has what it said", log.display())))
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(|error| cannot("read", path, &error))
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(|error| cannot("write", path, &error))
}

pub(crate) fn cannot(what: &str, path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("cannot {what} {}: {error}", path.display()))
}
