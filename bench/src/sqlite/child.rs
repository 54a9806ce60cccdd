//! This program again, as another process of a measurement: one that is counted, one that dies, one
//! that competes, one with another kind of pool.
//!
//! Invariant: a side that fails says why and ends badly, and its measurement fails with it.

use std::io::{self, Error, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::stats::Series;

/// The argument that makes this program such a side; the role and what it needs follow.
pub const PEER: &str = "--sqlite-side";

/// This program in that role.
pub(super) fn side(words: &[&str]) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(PEER).args(words).stdin(Stdio::null());
    Ok(command)
}

/// Tells the values of a key to the parent.
pub(super) fn tell(key: &str, series: Option<Series>) -> io::Result<()> {
    let Some(series) = series else { return Ok(()) };
    let mut line = key.to_owned();
    for value in series.values() {
        line += &format!(" {value}");
    }
    writeln!(io::stdout(), "{line}")
}

/// What such a side told.
pub(super) fn series(mut command: Command) -> io::Result<Vec<(String, Series)>> {
    let output = command.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(Error::other(format!("{command:?} ended with {}", output.status)));
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines()
        .map(parse)
        .collect::<Option<_>>()
        .ok_or_else(|| Error::other(format!("no values: {text}")))
}

fn parse(line: &str) -> Option<(String, Series)> {
    let mut words = line.split(' ');
    let key = words.next()?.to_owned();
    Some((key, words.map(|word| word.parse().ok()).collect::<Option<Series>>()?))
}

/// A side that works beside this process; ended when it is dropped.
pub(super) struct SideProcess(Child);

impl SideProcess {
    pub(super) fn start(mut command: Command) -> io::Result<SideProcess> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map(SideProcess)
    }

    /// Waits until it says that it is ready.
    pub(super) fn ready(&mut self) -> io::Result<()> {
        let mut byte = [0];
        match &mut self.0.stdout {
            Some(output) => io::Read::read_exact(output, &mut byte),
            None => Err(Error::other("a side without an output")),
        }
    }

    /// Lets it go on.
    pub(super) fn go(&mut self) {
        drop(self.0.stdin.take());
    }

    /// Ends it as a crash would.
    pub(super) fn kill(mut self) -> io::Result<()> {
        self.0.kill()?;
        self.0.wait().map(drop)
    }

    /// Waits for its end.
    pub(super) fn wait(mut self) -> io::Result<()> {
        let status = self.0.wait()?;
        if status.success() {
            Ok(())
        } else {
            Err(Error::other(format!("a side ended with {status}")))
        }
    }
}

impl Drop for SideProcess {
    fn drop(&mut self) {
        // One that was waited for is not there any more.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// From within: says that this side is ready, and waits until it may go on.
pub(super) fn say_ready_and_wait() -> io::Result<()> {
    io::stdout().write_all(b"r")?;
    io::stdout().flush()?;
    io::copy(&mut io::stdin(), &mut io::sink()).map(drop)
}

/// A fresh database's place.
pub(super) fn database(folder: PathBuf) -> io::Result<(PathBuf, String)> {
    let path = folder.join("side.db");
    let text = path.to_str().map(str::to_owned);
    text.map(|text| (path, text))
        .ok_or_else(|| Error::other("the build lies below a path that is no text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_side_tells_is_read_back() {
        let (key, series) = parse("clwb_x 1.5 2").unwrap();
        assert_eq!((key.as_str(), series), ("clwb_x", Series::from_iter([1.5, 2.0])));
        assert!(parse("key one").is_none());
    }
}
