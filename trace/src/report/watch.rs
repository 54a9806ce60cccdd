//! A view of a trace while it goes on: a screen that is drawn again and again.
//!
//! Plain ANSI, so that it works wherever a terminal does. Invariants: a screen never has more lines
//! or longer ones than the terminal, so nothing scrolls; the terminal is as it was when the view is
//! left, also after a panic.

use std::io::{self, Write};

use super::document::Report;
use super::table::Table;
use super::terminal::called;
use super::text;
use holdfast_sys::counted::noun_for;

const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
/// Of a class's line what is before its bar.
const HEAD_WIDTH: usize = 37;

/// One screen, `width` by `height`.
#[must_use]
pub fn screen(report: &Report, width: usize, height: usize, colour: bool) -> String {
    let mut out = String::new();
    let bar_width = width.saturating_sub(HEAD_WIDTH).clamp(4, 60);
    let total = &report.total;
    let lost = match report.source.events_lost {
        0 => String::new(),
        lost => format!("  LOST {}", text::count(lost)),
    };
    let title = format!(
        "{}  {} {}  {} in calls, {} awake{lost}",
        text::time(report.source.lasted_ns),
        text::count(total.calls),
        noun_for(total.calls, "call"),
        text::time(total.time.wall_ns),
        text::time(total.awake_ns)
    );
    let title = text::cut(&title, width);
    out += &if colour { format!("\x1b[1m{title}\x1b[0m\n") } else { title + "\n" };
    for class in &report.classes {
        let sums = &class.sums;
        let awake = share(sums.awake_ns, total.time.wall_ns, bar_width);
        let asleep = share(sums.time.wall_ns, total.time.wall_ns, bar_width).saturating_sub(awake);
        let (awake, asleep) = ("█".repeat(awake), "▒".repeat(asleep));
        let (awake, asleep) = if colour {
            (format!("\x1b[32m{awake}"), format!("\x1b[33m{asleep}\x1b[0m"))
        } else {
            (awake, asleep)
        };
        let head = format!(
            "{:<18}{:>7} % of calls ",
            class.class.title(),
            text::percent(sums.calls_percent)
        );
        out += &format!("{}{awake}{asleep}\n", text::cut(&head, width.saturating_sub(bar_width)));
    }
    out.push('\n');
    let mut table =
        Table::new(&["call", "calls", "wall", "awake", "on CPU", "asleep", "p50", "p99", "max"]);
    let used = 1 + report.classes.len() + 1 + 1;
    for row in report.calls.iter().take(height.saturating_sub(used)) {
        let at = |of: fn(&super::document::Distribution) -> u64| {
            row.distribution.as_ref().map_or("-".to_owned(), |d| text::time(of(d)))
        };
        table.row([
            called(row),
            text::count(row.sums.calls),
            text::time(row.sums.time.wall_ns),
            text::time_or_blank(row.sums.awake_ns),
            text::time_or_blank(row.sums.time.cpu_ns),
            text::time_or_blank(row.sums.time.blocked_ns()),
            at(|d| d.p50_ns),
            at(|d| d.p99_ns),
            at(|d| d.max_ns),
        ]);
    }
    out += &table.render(width, colour);
    out.lines().take(height).map(|line| line.to_owned() + "\n").collect()
}

fn share(part: u64, whole: u64, width: usize) -> usize {
    if whole == 0 { 0 } else { ((part as f64 / whole as f64) * width as f64).round() as usize }
}

/// The terminal while the view is open.
#[derive(Debug)]
pub struct View<W: Write> {
    terminal: W,
}

impl<W: Write> View<W> {
    /// Opens the view: another screen than the one that the person came from.
    ///
    /// # Errors
    /// Those of the terminal.
    pub fn open(mut terminal: W) -> io::Result<View<W>> {
        terminal.write_all(ENTER.as_bytes())?;
        Ok(View { terminal })
    }

    /// Draws a screen over the last one.
    ///
    /// # Errors
    /// Those of the terminal.
    pub fn draw(&mut self, screen: &str) -> io::Result<()> {
        let mut frame = String::from("\x1b[H");
        for (index, line) in screen.lines().enumerate() {
            // No line's end after the last one: it would scroll.
            frame += if index == 0 { "" } else { "\r\n" };
            frame += line;
            frame += "\x1b[K";
        }
        frame += "\x1b[J";
        self.terminal.write_all(frame.as_bytes())?;
        self.terminal.flush()
    }
}

impl<W: Write> Drop for View<W> {
    fn drop(&mut self) {
        let _ = self.terminal.write_all(LEAVE.as_bytes());
        let _ = self.terminal.flush();
    }
}
