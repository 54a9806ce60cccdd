//! Builds an applet in C or C++: for WebAssembly with clang, for the jail with the system's
//! compiler, both against the library for applets; and what it computes (everything but `main`) as
//! `libNAME.so`, which tests and measurements load to compare the applet with the same code outside
//! of a sandbox.
//!
//! Invariant: the native program and the library are built with the same compiler and the same
//! flags, so that a difference between their speeds is the sandbox's.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::applets;
use crate::command::{output, run};
use crate::failure::{Failure, Result};
use crate::workspace::Workspace;

/// The C interface of applets, as a static library.
pub(crate) const LIBRARY_PACKAGE: &str = "holdfast-c";
const LINK: &str = "-lholdfast_applet";
const MATHEMATICS: &str = "-lm";
const FLAGS: [&str; 4] = ["-O2", "-Wall", "-Wextra", "-Werror"];
const CPP: &str = "cpp";
/// The stem of the file where the applet's functions are registered; the rest knows nothing of
/// applets.
const MAIN: &str = "main";
/// Lists libraries of the system.
const LIBRARIES: &str = "pkg-config";

/// The sources of one applet.
pub(crate) struct CApplet {
    name: String,
    files: Vec<PathBuf>,
    /// What pkg-config is asked for.
    libraries: Vec<String>,
}

impl CApplet {
    pub(crate) fn find(name: &str, folder: &Path) -> io::Result<CApplet> {
        let mut files = Vec::new();
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "c" || extension == CPP) {
                files.push(path);
            }
        }
        files.sort();
        let libraries = match fs::read_to_string(folder.join(LIBRARIES)) {
            Ok(text) => text
                .lines()
                .map(str::trim)
                .filter(|line| !line.is_empty())
                .map(str::to_owned)
                .collect(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        Ok(CApplet { name: name.to_owned(), files, libraries })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Why it cannot be built here, if it cannot for want of libraries.
    pub(crate) fn missing_libraries(&self) -> Result<Option<String>> {
        if self.libraries.is_empty() {
            return Ok(None);
        }
        if !is_there("pkg-config") {
            return Ok(Some("there is no pkg-config; ./test installs it".to_owned()));
        }
        for library in &self.libraries {
            let found = Command::new("pkg-config").arg("--exists").arg(library).status();
            if !found.is_ok_and(|status| status.success()) {
                return Ok(Some(format!("pkg-config does not find {library}; ./test installs it")));
            }
        }
        Ok(None)
    }

    /// Builds every form of it into a folder; returns what it made.
    pub(crate) fn build(&self, workspace: &Workspace, folder: &Path) -> Result<Vec<PathBuf>> {
        let mut built = Vec::new();
        if self.libraries.is_empty() && !self.is_cpp() {
            let wasm = folder.join(format!("{}.wasm", self.name));
            let mut clang = clang()?;
            self.compile(&mut clang, &self.files, workspace);
            clang.arg("-L").arg(applets::for_wasm(workspace)).arg(LINK);
            finish(clang, &wasm, &mut built)?;
        }
        let native = folder.join(&self.name);
        let mut cc = self.compiler();
        self.compile(&mut cc, &self.files, workspace);
        cc.arg("-L").arg(applets::for_jail(workspace)).arg(LINK).args(self.link_flags()?);
        finish(cc, &native, &mut built)?;
        if self.libraries.is_empty() && !self.is_cpp() {
            let fixed = folder.join(format!("{}-static", self.name));
            let mut cc = self.compiler();
            self.compile(cc.arg("-static"), &self.files, workspace);
            cc.arg("-L").arg(applets::for_jail(workspace)).arg(LINK).args(self.link_flags()?);
            finish(cc, &fixed, &mut built)?;
        }
        let (_, rest): (Vec<_>, Vec<_>) =
            self.files.iter().cloned().partition(|file| file.file_stem() == Some(OsStr::new(MAIN)));
        if !rest.is_empty() {
            let library = folder.join(format!("lib{}.so", self.name));
            let mut cc = self.compiler();
            self.compile(cc.args(["-shared", "-fPIC"]), &rest, workspace);
            cc.args(self.link_flags()?);
            finish(cc, &library, &mut built)?;
        }
        Ok(built)
    }

    fn is_cpp(&self) -> bool {
        self.files.iter().any(|file| file.extension().is_some_and(|extension| extension == CPP))
    }

    /// The system's.
    fn compiler(&self) -> Command {
        Command::new(if self.is_cpp() { "c++" } else { "cc" })
    }

    fn compile(&self, compiler: &mut Command, files: &[PathBuf], workspace: &Workspace) {
        compiler
            .args(FLAGS)
            .arg(if self.is_cpp() { "-std=c++17" } else { "-std=c11" })
            .arg("-I")
            .arg(workspace.root.join("bindings/c/include"))
            .args(files);
    }

    /// The system's libraries, with what their headers need, and the C library's mathematics.
    fn link_flags(&self) -> Result<Vec<String>> {
        let mut flags = vec![MATHEMATICS.to_owned()];
        if !self.libraries.is_empty() {
            let mut ask = Command::new("pkg-config");
            let text = output(ask.args(["--cflags", "--libs"]).args(&self.libraries))?;
            flags.extend(String::from_utf8_lossy(&text).split_whitespace().map(str::to_owned));
        }
        Ok(flags)
    }
}

/// Runs a compiler. A program may be running from the old file, which therefore is removed and not
/// written to.
fn finish(mut compiler: Command, to: &Path, built: &mut Vec<PathBuf>) -> Result<()> {
    remove(to)?;
    run(compiler.arg("-o").arg(to))?;
    built.push(to.to_owned());
    Ok(())
}

pub(crate) fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Failure::new(format!("cannot replace {}: {error}", path.display())))
        }
        _ => Ok(()),
    }
}

fn is_there(program: &str) -> bool {
    let asked =
        Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    asked.is_ok_and(|status| status.success())
}

fn clang() -> Result<Command> {
    if !is_there("clang") {
        return Err(Failure::new(
            "applets in C need clang, lld, wasi-libc and libclang-rt-dev-wasm32; ./test installs them",
        ));
    }
    let mut command = Command::new("clang");
    // Below everything else, so that a stack that overflows is a trap and not a change of the
    // program's data.
    command.args(["--target=wasm32-wasi", "-Wl,--stack-first", "-Wl,-z,stack-size=262144"]);
    // The libraries' debugging information was half of a program, which pages fetch; the names of
    // functions, which traps tell, stay.
    command.arg("-Wl,--strip-debug");
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A C applet consists of its C files and the libraries that it lists.
    #[test]
    fn c_applet_is_its_files_and_libraries() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../applets/video");
        let video = CApplet::find("video", &folder).unwrap();
        let names: Vec<_> =
            video.files.iter().filter_map(|file| file.file_name()?.to_str()).collect();
        assert_eq!(names, ["main.c", "memory_file.c", "video.c"]);
        assert!(video.libraries.iter().any(|library| library == "libavcodec"));
    }

    #[test]
    fn a_library_that_is_not_installed_is_named() {
        let applet = CApplet {
            name: "x".to_owned(),
            files: Vec::new(),
            libraries: vec!["no-such-library".to_owned()],
        };
        let reason = applet.missing_libraries().unwrap().unwrap();
        assert!(reason.contains("no-such-library") || reason.contains("no pkg-config"), "{reason}");
    }
}
