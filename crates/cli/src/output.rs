//! What people and programs see: tables, JSON, and a sign of life when something takes long.

use std::fmt::Display;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::time::Duration;

use holdfast_sys::terminal::notice;
use indicatif::{ProgressBar, ProgressStyle};
use serde::{Serialize, Serializer};

use crate::exit::{Failure, OTHER};

/// Prints rows under a header.
pub fn print_table(header: &[&str], right: &[usize], rows: &[Vec<String>]) -> Result<(), Failure> {
    print(&aligned(header, right, rows))
}

/// Rows under a header, columns aligned; numbers and sizes (the columns named) to the right.
pub fn aligned(header: &[&str], right: &[usize], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([header[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..header.len()).map(width).collect();
    let line = |cells: &[&str]| {
        let mut line = String::new();
        for (column, cell) in cells.iter().enumerate() {
            let pad = " ".repeat(widths[column].saturating_sub(cell.chars().count()));
            let gap = if column == 0 { "" } else { "  " };
            let (left, right) = if right.contains(&column) { (pad.as_str(), "") } else { ("", pad.as_str()) };
            line.push_str(&format!("{gap}{left}{cell}{right}"));
        }
        line.trim_end().to_owned()
    };
    let mut text = line(header) + "\n";
    for row in rows {
        text.push_str(&line(&row.iter().map(String::as_str).collect::<Vec<_>>()));
        text.push('\n');
    }
    text
}

/// Prints a value as JSON, indented.
pub fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Failure::new(OTHER, error))?;
    print(&(text + "\n"))
}

/// Prints a sequence as JSON, indented, of which only one element is in memory at a time.
///
/// # Errors
/// That of the first element that has one, or why nothing can be printed.
pub fn print_json_each<T: Serialize>(
    elements: impl Iterator<Item = Result<T, Failure>>,
) -> Result<(), Failure> {
    let mut out = BufWriter::new(io::stdout().lock());
    let mut failed = None;
    let until_failure = elements.map_while(|element| element.map_err(|error| failed = Some(error)).ok());
    let mut serializer = serde_json::Serializer::pretty(&mut out);
    let written = serializer.collect_seq(until_failure).map_err(io::Error::from);
    written_out(written.and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush()))?;
    failed.map_or(Ok(()), Err)
}

/// Prints lines, of which only one is in memory at a time.
///
/// # Errors
/// That of the first line that has one, or why nothing can be printed.
pub fn print_each(lines: impl Iterator<Item = Result<String, Failure>>) -> Result<(), Failure> {
    let mut out = BufWriter::new(io::stdout().lock());
    for line in lines {
        match writeln!(out, "{}", line?) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            written => written_out(written)?,
        }
    }
    written_out(out.flush())
}

/// Prints to standard output; a reader that went away (`| head`) is no failure.
pub fn print(text: &str) -> Result<(), Failure> {
    written_out(io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()))
}

fn written_out(written: io::Result<()>) -> Result<(), Failure> {
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(OTHER, cannot_print(&error)))
        }
        _ => Ok(()),
    }
}

/// The same to standard error, for results of a command whose standard output is another program's.
pub fn print_beside(text: &str) -> Result<(), Failure> {
    match io::stderr().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(OTHER, format!("cannot write to standard error: {error}")))
        }
        _ => Ok(()),
    }
}

/// Tells the person something on standard error. Where that cannot be written there is nobody to tell, and no reason to end.
pub fn say(text: impl Display) {
    notice(format_args!("holdfast: {text}"));
}

/// Why results cannot be printed.
pub fn cannot_print(error: &io::Error) -> String {
    format!(
        "cannot write to standard output: {error}; free some room where it leads, or choose another place"
    )
}

/// Runs `work`; if that takes more than a second and a person watches standard error, says what is going on.
pub fn with_progress<R>(what: &str, work: impl FnOnce() -> R) -> R {
    if !io::stderr().is_terminal() {
        return work();
    }
    let (done, wait) = std::sync::mpsc::channel::<()>();
    let what = what.to_owned();
    let watcher = std::thread::spawn(move || {
        if wait.recv_timeout(Duration::from_secs(1)).is_ok() {
            return;
        }
        let style = ProgressStyle::with_template("{spinner} {msg} {elapsed}");
        let bar = ProgressBar::new_spinner().with_message(what);
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        bar.enable_steady_tick(Duration::from_millis(100));
        let _ = wait.recv();
        bar.finish_and_clear();
    });
    let result = work();
    let _ = done.send(());
    let _ = watcher.join();
    result
}
