//! The output for people and programs: tables, JSON, and progress when something takes long.

use std::fmt::Display;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

use comfy_table::{CellAlignment, Table, presets};
use holdfast_sys::terminal::{Shown, ShownJson, ShownLines, notice};
use indicatif::{ProgressBar, ProgressStyle};
use serde::{Serialize, Serializer};
use serde_json::ser::{Formatter, PrettyFormatter};

use crate::exit::{Failure, OTHER};

/// Prints rows under a header.
pub fn print_table(header: &[&str], right: &[usize], rows: &[Vec<String>]) -> Result<(), Failure> {
    print(&aligned(header, right, rows))
}

/// A path for a line of text: whatever its name is, it stays in the line, and steers no terminal.
pub fn shown(path: &Path) -> String {
    Shown(&path.display().to_string()).to_string()
}

/// A path as a word of a shell's command line, within a line of text.
pub fn quoted(path: &Path) -> String {
    let text = shown(path);
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+,:@%=".contains(letter);
    if text.starts_with('-') {
        // It would be an option.
        quoted(&Path::new(".").join(path))
    } else if !text.is_empty() && text.chars().all(is_plain) {
        text
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// Rows under a header, columns aligned; numbers and sizes (the columns named) to the right.
pub fn aligned(header: &[&str], right: &[usize], rows: &[Vec<String>]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header);
    table.add_rows(rows.iter().map(|row| row.iter().map(|cell| Shown(cell).to_string())));
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
        if right.contains(&column.index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt() + "\n"
}

/// Prints a value as JSON, indented.
pub fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    print(&json_text(value)?)
}

/// A value as JSON, indented, with the end of a line.
pub fn json_text(value: &impl Serialize) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Failure::new(OTHER, error))?;
    Ok(format!("{}\n", ShownJson(&text)))
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
    let until_failure =
        elements.map_while(|element| element.map_err(|error| failed = Some(error)).ok());
    let mut serializer =
        serde_json::Serializer::with_formatter(&mut out, EscapedJson(PrettyFormatter::new()));
    let written = serializer.collect_seq(until_failure).map_err(io::Error::from);
    written_out(written.and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush()))?;
    failed.map_or(Ok(()), Err)
}

/// Indented JSON whose strings steer no terminal.
struct EscapedJson(PrettyFormatter<'static>);

impl Formatter for EscapedJson {
    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        out: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        write!(out, "{}", ShownJson(fragment))
    }

    fn begin_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_array(out)
    }

    fn end_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_array(out)
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_array_value(out, first)
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_array_value(out)
    }

    fn begin_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_object(out)
    }

    fn end_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_object(out)
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_object_key(out, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_object_value(out)
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_object_value(out)
    }
}

/// Prints lines of data, of which only one is in memory at a time: as they are, but to a terminal
/// without what steers it.
///
/// # Errors
/// That of the first line that has one, or why nothing can be printed.
pub fn print_each(lines: impl Iterator<Item = Result<String, Failure>>) -> Result<(), Failure> {
    let is_terminal = io::stdout().is_terminal();
    let mut out = BufWriter::new(io::stdout().lock());
    for line in lines {
        let line = line?;
        let written = if is_terminal {
            writeln!(out, "{}", ShownLines(&line))
        } else {
            writeln!(out, "{line}")
        };
        match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            written => written_out(written)?,
        }
    }
    written_out(out.flush())
}

/// Prints to standard output, without what would steer a terminal: names in the text are other
/// people's. A reader that went away (`| head`) is no failure.
pub fn print(text: &str) -> Result<(), Failure> {
    print_as_is(&ShownLines(text).to_string())
}

/// The same for text in which nothing is other people's, or is cleaned already: it may have
/// colours.
pub fn print_as_is(text: &str) -> Result<(), Failure> {
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

/// Tells the person something on standard error. Where that cannot be written there is no one to
/// tell, and no reason to end.
pub fn say(text: impl Display) {
    notice(format_args!("holdfast: {text}"));
}

/// Why results cannot be printed.
pub fn cannot_print(error: &io::Error) -> String {
    format!(
        "cannot write to standard output: {error}; free some room where it leads, or choose another place"
    )
}

/// Runs `work`; if that takes more than a second and a person watches standard error, says what is
/// going on.
pub fn with_progress<R>(what: &str, work: impl FnOnce() -> R) -> R {
    if !io::stderr().is_terminal() {
        return work();
    }
    let (done, wait) = std::sync::mpsc::channel::<()>();
    let what = Shown(what).to_string();
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
