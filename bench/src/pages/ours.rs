//! Our program that opens pages, from its start to its pixels: it writes a picture to a file, and
//! says so when the file is whole.

use std::fs::{self, DirBuilder};
use std::io::{self, Error, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::process::Running;

const LIMIT: Duration = Duration::from_secs(120);
/// The size that all browsers have.
pub(super) const VIEWPORT: &str = "1280x800";
/// What it says of what served a page.
pub(super) const COLD: &str = "cold";
pub(super) const DOCUMENT: &str = "document";
pub(super) const LIST: &str = "display list";
/// From its pixels, or from its list where the pixels are too many, or too little alike, to be
/// kept.
pub(super) const WARM: &str = "pixels or display list";
const PIXELS: &str = "pixels";

/// Our page program.
pub(super) struct PageProgram {
    program: PathBuf,
}

/// A page that was opened; times in milliseconds.
#[derive(Debug, Clone)]
pub(super) struct Opened {
    /// From the start until the picture was written.
    pub(super) pixels_ms: f64,
    /// From the start until the end.
    pub(super) end_ms: f64,
    pub(super) tier: String,
    said: Value,
    pub(super) picture: Vec<u8>,
}

impl Opened {
    /// A part of the time, as the program says it.
    pub(super) fn part_ms(&self, part: &str) -> f64 {
        self.said[format!("{part}_ms")].as_f64().unwrap_or_default()
    }

    /// What is in none of the parts that the program tells: its start, and what it prints.
    pub(super) fn rest_ms(&self) -> f64 {
        self.pixels_ms - self.part_ms("total") - self.part_ms("png")
    }

    /// Without the making of the picture's file.
    pub(super) fn without_png_ms(&self) -> f64 {
        self.pixels_ms - self.part_ms("png")
    }

    /// An error, unless it was served as is said.
    pub(super) fn served(self, tier: &str) -> io::Result<Opened> {
        if self.tier == tier || tier == WARM && [PIXELS, LIST].contains(&&*self.tier) {
            return Ok(self);
        }
        let why = self.said["stale"].as_str().unwrap_or("nothing was kept");
        Err(Error::other(format!("it was served as {}, and not as {tier}: {why}", self.tier)))
    }
}

impl PageProgram {
    /// The program that was built with this one.
    pub(super) fn find() -> io::Result<PageProgram> {
        let program = PathBuf::from(std::env::var_os("HOLDFAST_PAGE_PROGRAM").unwrap_or_default());
        if program.is_file() {
            return Ok(PageProgram { program });
        }
        Err(Error::other(
            "there is no program that opens pages; `cargo xtask bench pages` builds it",
        ))
    }

    fn command(&self, page: &str, options: &[&str], cache: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["open", page]).args(options);
        command.env("HOLDFAST_HOME", cache.join("home")).env("HOLDFAST_POOL", cache.join("pool"));
        command
    }

    /// What shows a page in a window, with the cache in a folder.
    pub(super) fn in_window(&self, page: &str, options: &[&str], cache: &Path) -> Command {
        let mut command = self.command(page, options, cache);
        command.arg("--window");
        command
    }

    /// Opens a page with the cache in a folder; the picture goes to `picture`.
    pub(super) fn open(
        &self,
        page: &str,
        options: &[&str],
        cache: &Path,
        picture: &Path,
    ) -> io::Result<Opened> {
        let mut command = self.command(page, options, cache);
        command.args(["--json", "--png"]).arg(picture);
        if !options.contains(&"--viewport") {
            command.args(["--viewport", VIEWPORT]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut running = Running::start(&mut command, LIMIT)?;
        let (mut said, mut pixels_ms) = (Vec::new(), 0.0);
        if let Some(stdout) = &mut running.child.stdout {
            let mut piece = [0; 16 << 10];
            loop {
                let bytes = stdout.read(&mut piece)?;
                if said.is_empty() {
                    pixels_ms = running.started.elapsed().as_secs_f64() * 1e3;
                }
                if bytes == 0 {
                    break;
                }
                said.extend_from_slice(&piece[..bytes]);
            }
        }
        // A few lines at most, so the process never waits for their reader.
        let mut complaint = String::new();
        if let Some(stderr) = &mut running.child.stderr {
            stderr.read_to_string(&mut complaint)?;
        }
        let status = running.wait()?;
        let end_ms = running.ms();
        if !status.success() {
            let complaint = complaint.lines().last().unwrap_or("without a word");
            return Err(Error::other(format!("ended with {status}: {complaint}")));
        }
        let said: Value = serde_json::from_slice(&said)?;
        let tier = said["tier"].as_str().unwrap_or_default().to_owned();
        Ok(Opened { pixels_ms, end_ms, tier, said, picture: fs::read(picture)? })
    }
}

/// An empty folder for a cache.
pub(super) fn fresh(cache: &Path) -> io::Result<()> {
    if cache.exists() {
        fs::remove_dir_all(cache)?;
    }
    for folder in ["", "home", "pool"] {
        DirBuilder::new().mode(0o700).create(cache.join(folder))?;
    }
    Ok(())
}
