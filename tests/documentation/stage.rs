//! The directory in which a document's commands run: it has what a user of a fresh clone has in
//! front of them.
//!
//! The directory shows the files of the clone, by links, and takes the files that the document
//! writes. `HOME` is a scratch directory, so heaps and databases are where the defaults say. One
//! shell runs all commands of a document, one after the other, as a user's terminal does.
//!
//! Files that documents speak of as the reader's own (`index.html`, `./program`) are in `reader/`.
//!
//! `cargo` is a script. `cargo build` only looks whether there is such a package: `./test` has
//! built all of them, in the profile of tests, which `target/release` leads to. Other commands run
//! in the clone; what they say of their progress on standard error is only shown if they fail.
//!
//! Invariants: every document ends within a time limit; the shell and all that it started end with
//! the stage.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use holdfast_testkit::{Programs, target_directory};
use tempfile::TempDir;

/// What a user's home is called in documents.
const HOME: &str = "/home/ada";
/// All commands of one document together, on a loaded machine.
const LIMIT_S: u32 = 15 * 60;
/// What no command prints.
const END: &str = "~~end of the command's output~~";

pub(crate) struct Stage {
    directory: TempDir,
    /// What is printed for each path of the stage.
    names: Vec<(String, String)>,
    shell: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Stage {
    /// # Panics
    /// When there is no room for it, or a program is not built.
    pub(crate) fn new() -> Stage {
        let clone = clone();
        let target = target_directory().unwrap();
        let programs = Programs::find().unwrap();
        // Below /tmp, as its path is in addresses of sockets, which are short.
        let directory = tempfile::Builder::new().prefix("holdfast-doc-").tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        let (home, work, bin) = (root.join("ada"), root.join("work"), root.join("bin"));
        let pool = Path::new("/dev/shm").join(root.file_name().unwrap());
        for folder in [&home, &work, &bin] {
            fs::create_dir(folder).unwrap();
        }
        for entry in fs::read_dir(&clone).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name();
            if name != "target" && name != ".git" {
                symlink(entry.path(), work.join(name)).unwrap();
            }
        }
        for entry in fs::read_dir(clone.join("tests/documentation/reader")).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), work.join(entry.file_name())).unwrap();
        }
        stand_in_for_target(&target, &work.join("target"));
        for (name, text) in scripts(&clone, &target) {
            let script = bin.join(name);
            fs::write(&script, text).unwrap();
            fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        }
        for program in ["holdfast", "holdfast-page"] {
            symlink(programs.holdfast().with_file_name(program), bin.join(program)).unwrap();
        }
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", &LIMIT_S.to_string(), "bash", "--norc", "-u"]);
        command.current_dir(&work).env("HOME", &home).env("PATH", path).env("HOLDFAST_POOL", &pool);
        // Nothing leaves the machine; a name that is not looked up is refused at once.
        command
            .env("ALL_PROXY", "http://127.0.0.1:9")
            .env("NO_COLOR", "1")
            .env("LC_ALL", "C.UTF-8");
        for variable in
            ["HOLDFAST_HOME", "XDG_DATA_HOME", "DISPLAY", "WAYLAND_DISPLAY", "CARGO_TARGET_DIR"]
        {
            command.env_remove(variable);
        }
        let mut shell =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0).spawn().unwrap();
        let (input, output) = (shell.stdin.take().unwrap(), shell.stdout.take().unwrap());
        let names = [
            (pool.display().to_string(), "/dev/shm/holdfast-1000".to_owned()),
            (root.join("tmp").display().to_string(), "/tmp".to_owned()),
            (home.display().to_string(), HOME.to_owned()),
            (work.display().to_string(), format!("{HOME}/holdfast")),
        ];
        Stage { directory, names: names.into(), shell, input, output: BufReader::new(output) }
    }

    /// Writes a file where the commands run.
    pub(crate) fn write(&self, name: &Path, content: &str) {
        fs::write(self.directory.path().join("work").join(name), content).unwrap();
    }

    /// Runs one command as the shell's next one; returns its status and all that it printed, as a
    /// document shows it.
    pub(crate) fn run(&mut self, command: &str) -> (i32, String) {
        // What a document puts below /tmp is below the stage.
        let root = self.directory.path().canonicalize().unwrap();
        let text = command.replace("/tmp/", &format!("{}/", root.join("tmp").display()));
        fs::create_dir_all(root.join("tmp")).unwrap();
        let script = root.join("command");
        fs::write(&script, text).unwrap();
        // By a file, so that no quoting is needed; in the shell itself, which keeps its variables.
        writeln!(self.input, ". {} </dev/null 2>&1; echo \"{END}$?\"", script.display()).unwrap();
        let mut text = String::new();
        loop {
            let mut line = Vec::new();
            let read = self.output.read_until(b'\n', &mut line).unwrap();
            assert!(read > 0, "the shell ended during `{command}`, after: {text}");
            let line = String::from_utf8_lossy(&line);
            // A command may leave its last line open.
            if let Some((rest, status)) = line.split_once(END) {
                text.push_str(rest);
                for (path, name) in &self.names {
                    text = text.replace(path, name);
                }
                return (status.trim().parse().unwrap(), text);
            }
            text.push_str(&line);
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // The shell is the leader of a group, in which everything is that it started.
        if let Some(group) = rustix::process::Pid::from_raw(self.shell.id().cast_signed()) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let _ = self.shell.wait();
        let mut rest = Vec::new();
        let _ = self.output.read_to_end(&mut rest);
        let root = self.directory.path();
        let _ =
            fs::remove_dir_all(Path::new("/dev/shm").join(root.file_name().unwrap_or_default()));
    }
}

/// The clone that these tests belong to.
pub(crate) fn clone() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// A `target` with links to all that is in the real one. `release` is the profile of the tests.
fn stand_in_for_target(target: &Path, stand_in: &Path) {
    fs::create_dir(stand_in).unwrap();
    for entry in fs::read_dir(target).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name() != "release" {
            symlink(entry.path(), stand_in.join(entry.file_name())).unwrap();
        }
    }
    symlink(target.join("debug"), stand_in.join("release")).unwrap();
}

/// Commands that a document's reader has and that mean something else here.
fn scripts(clone: &Path, target: &Path) -> [(&'static str, String); 2] {
    // Without the stage's own directory, in which this script would find itself.
    let path = std::env::var("PATH").unwrap();
    let applets = target.join("applets");
    let (clone, target) = (clone.display(), target.display());
    let applets = applets.display();
    let cargo = format!(
        "#!/bin/bash\n\
         set -eu -o pipefail\n\
         export PATH='{path}'\n\
         export HOME=$(getent passwd \"$(id -u)\" | cut -d: -f6)\n\
         export CARGO_TARGET_DIR='{target}'\n\
         cd '{clone}'\n\
         if [ \"$1\" = build ]; then\n\
           while [ $# -gt 0 ]; do [ \"$1\" != -p ] || cargo pkgid -p \"$2\" >/dev/null; shift; done\n\
         else\n\
           messages=$(mktemp)\n\
           cargo \"$@\" 2>$messages | sed 's,{applets},target/applets,' || {{ cat $messages >&2; exit 1; }}\n\
         fi\n"
    );
    let sudo = "#!/bin/bash\n\
         [ \"$(id -u)\" = 0 ] && exec \"$@\"\n\
         echo \"not run: without root: $*\"\n"
        .to_owned();
    [("cargo", cargo), ("sudo", sudo)]
}
