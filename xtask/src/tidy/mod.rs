//! The house rules that no compiler checks. Each module holds the rules about one kind of thing:
//!
//! - `sources`: every `.rs` file opens with `//!`; no unfinished work is left behind; every unsafe
//!   block has a SAFETY comment in the lines above.
//! - `documents`: relative links lead somewhere; `ARCHITECTURE.md` mentions every package.
//! - `guarantees`, a chore as well: each promise has a test, and each annotation a promise.
//! - `layers`: no package uses one above it; the root has at most 14 folders with code.
//! - `modules`: no cycle of files is larger than three; a type shows all of its fields or none.
//! - `files`: nothing is large or binary; scripts are executable.
//!
//! What is looked at: the files that git tracks or would track, so nothing below the target
//! directory.

mod documents;
mod files;
mod layers;
mod modules;
mod sources;

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::command::output;
use crate::failure::{Failure, Result};
use crate::guarantees;
use crate::workspace::Workspace;

/// One file of the project.
pub(crate) struct File {
    /// Relative to the root, with `/`.
    pub(crate) path: String,
    pub(crate) bytes: Vec<u8>,
    pub(crate) executable: bool,
}

impl File {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.bytes).unwrap_or("")
    }

    pub(crate) fn has_extension(&self, extensions: &[&str]) -> bool {
        self.path.rsplit_once('.').is_some_and(|(_, found)| extensions.contains(&found))
    }
}

/// Collects what is wrong, as `path:line: what, and what to do`.
#[derive(Default)]
pub(crate) struct Findings(Vec<String>);

impl Findings {
    pub(crate) fn at_line(&mut self, file: &File, line: usize, what: &str) {
        self.0.push(format!("{}:{line}: {what}", file.path));
    }

    pub(crate) fn in_file(&mut self, path: &str, what: &str) {
        self.0.push(format!("{path}: {what}"));
    }

    #[cfg(test)]
    pub(crate) fn into_lines(self) -> Vec<String> {
        self.0
    }
}

/// Checks the whole tree and prints every finding.
pub(crate) fn tidy(workspace: &Workspace) -> Result<()> {
    let files = project_files(workspace)?;
    let mut findings = Findings::default();
    for file in &files {
        files::check(file, &mut findings);
        sources::check(file, &mut findings);
    }
    documents::check(&files, &workspace.packages, &mut findings);
    guarantees::check(&files, &mut findings);
    layers::check(&files, &workspace.packages, &mut findings);
    modules::check(&files, &workspace.packages, &mut findings);
    let Findings(mut lines) = findings;
    lines.sort();
    for line in &lines {
        println!("{line}");
    }
    match lines.len() {
        0 => Ok(()),
        count => Err(Failure::new(format!("{count} found; each line says what to do"))),
    }
}

/// The files that git tracks or would track.
pub(crate) fn project_files(workspace: &Workspace) -> Result<Vec<File>> {
    let mut git = Command::new("git");
    // A checkout that belongs to another user is common in containers, and only read here.
    git.args([
        "-c",
        "safe.directory=*",
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]);
    let names = output(git.current_dir(&workspace.root))?;
    let mut files = Vec::new();
    for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let path = String::from_utf8_lossy(name).into_owned();
        let full: PathBuf = workspace.root.join(&path);
        // What is deleted but not yet committed is listed too.
        let Ok(metadata) = fs::symlink_metadata(&full) else { continue };
        if !metadata.is_file() {
            continue;
        }
        let bytes = fs::read(&full)
            .map_err(|error| Failure::new(format!("cannot read {}: {error}", full.display())))?;
        files.push(File { path, bytes, executable: files::is_executable(&metadata) });
    }
    Ok(files)
}

#[cfg(test)]
pub(crate) fn findings_about(
    path: &str,
    text: &str,
    check: impl Fn(&File, &mut Findings),
) -> Vec<String> {
    let file = File { path: path.to_owned(), bytes: text.as_bytes().to_vec(), executable: false };
    let mut findings = Findings::default();
    check(&file, &mut findings);
    findings.0
}
