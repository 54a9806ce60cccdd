//! The report on a terminal: tables as the study has them, then what it could not have.
//!
//! Invariants: no line is wider than asked for. Without colours nothing but text comes out.

use super::document::{CallRow, Distribution, Report, Sleep, Sums, Time};
use super::look::{Grouping, Look};
use super::study::SHORT_CITATION;
use super::table::{Align, Table};
use super::text;
use crate::classes::{Class, Scheme};
use crate::crossings;
use holdfast_sys::counted::noun_for;

/// Histograms that are drawn when nothing else was asked for.
const HISTOGRAMS: usize = 3;

/// The report as text.
#[must_use]
pub fn terminal(report: &Report, look: &Look) -> String {
    let mut out = Page { look, text: String::new() };
    heading(report, &mut out);
    let all = look.by.is_none();
    let by = |kind| all || look.by == Some(kind);
    if by(Grouping::Class) {
        classes(report, &mut out);
        split(report, &mut out);
    }
    if by(Grouping::Call) {
        calls(report, &mut out, all);
    }
    if by(Grouping::Process) && (!all || report.processes.len() > 1) {
        processes(report, &mut out);
    }
    if by(Grouping::Thread) && (!all || report.threads.len() > report.processes.len()) {
        threads(report, &mut out);
    }
    match &report.crossings {
        Some(crossings) if by(Grouping::Crossing) => {
            out.text += &crossings::terminal(crossings, look)
        }
        None if look.by == Some(Grouping::Crossing) => {
            out.text.push('\n');
            out.paragraph("What crosses sandboxes was not recorded; trace with --sandbox.");
        }
        _ => {}
    }
    unfinished(report, &mut out);
    closing(report, &mut out);
    out.text
}

struct Page<'a> {
    look: &'a Look,
    text: String,
}

impl Page<'_> {
    fn title(&mut self, title: &str) {
        self.text += &text::title(title, self.look.width, self.look.colour);
    }

    fn table(&mut self, table: &Table) {
        self.text += &table.render(self.look.width, self.look.colour);
    }

    fn paragraph(&mut self, words: &str) {
        self.text += &text::paragraph(words, self.look.width);
    }

    fn tint(&self, text: &str, code: &str) -> String {
        if self.look.colour && !text.is_empty() {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}

fn heading(report: &Report, out: &mut Page<'_>) {
    let source = &report.source;
    let what = match (source.command.is_empty(), source.attached.is_empty()) {
        (false, _) => text::command(&source.command),
        (true, false) => {
            let list: Vec<_> = source.attached.iter().map(ToString::to_string).collect();
            format!("process {}", list.join(", "))
        }
        (true, true) => "a trace".to_owned(),
    };
    let what = text::cut(&what, out.look.width);
    let what = out.tint(&what, "1");
    out.text += &(what + "\n");
    // A report that is read from JSON may say any number.
    let threads = report.threads.iter().map(|row| row.threads).fold(0, u64::saturating_add);
    let processes = report.processes.iter().map(|row| row.processes).fold(0, u64::saturating_add);
    let many = |count: u64, one: &str, more: &str| {
        format!("{} {}", text::count(count), if count == 1 { one } else { more })
    };
    let lasted = if source.lasted_ns == 0 {
        String::new()
    } else {
        format!("{}; ", text::time(source.lasted_ns))
    };
    let of = if processes > 0 {
        format!(
            " by {} of {}",
            many(threads, "thread", "threads"),
            many(processes, "process", "processes")
        )
    } else {
        String::new()
    };
    let calls = many(report.total.calls, "call", "calls");
    let by = match source.backend.as_str() {
        "" => String::new(),
        "imported" => "; read from a log".to_owned(),
        backend => format!("; measured with {backend}"),
    };
    out.paragraph(&format!("{lasted}{calls}{of}{by}."));
}

fn rows(report: &Report) -> Vec<(String, bool, &Sums)> {
    let mut rows = Vec::new();
    for subclass in report
        .subclasses
        .iter()
        .filter(|row| row.class == Class::Os || one_of_several(report, row.class))
    {
        rows.push((format!("  {}", subclass.subclass.title()), false, &subclass.sums));
    }
    // As the study has it: the parts of the operating system first, then the classes.
    for class in &report.classes {
        rows.push((class.class.title().to_owned(), true, &class.sums));
    }
    rows
}

/// Whether a class has more than the one part that it has in the study.
fn one_of_several(report: &Report, class: Class) -> bool {
    report.subclasses.iter().filter(|row| row.class == class).count() > 1
}

fn classes(report: &Report, out: &mut Page<'_>) {
    let scheme = match report.scheme {
        Scheme::Paper => "by their names",
        Scheme::Refined => "by their arguments and descriptors",
    };
    out.title(&format!("System calls by class ({scheme})"));
    let mut table =
        Table::new(&["", "kinds", "calls", "%", "time %", "awake %", "errors", "bytes"]);
    for (title, strong, sums) in rows(report) {
        let cells = [
            title,
            text::count_or_blank(sums.distinct),
            text::count_or_blank(sums.calls),
            text::percent(sums.calls_percent),
            text::percent(sums.time_percent),
            text::percent(sums.awake_percent),
            text::count_or_blank(sums.errors),
            text::bytes(sums.bytes_in.saturating_add(sums.bytes_out)),
        ];
        if strong { table.strong_row(cells) } else { table.row(cells) }
    }
    out.table(&table);
    let rule = match report.sleep {
        Sleep::Measured => "without sleep, as measured".to_owned(),
        Sleep::Paper => {
            format!("without sleep, by the rule of {SHORT_CITATION} (waits of 60 us and more)")
        }
    };
    out.paragraph(&format!("kinds: different calls; %: of all calls; awake %: of the time {rule}"));
}

fn split(report: &Report, out: &mut Page<'_>) {
    if !report.has_split() {
        out.paragraph(
            "Where the time went is not known: the source has the length of calls alone.",
        );
        return;
    }
    out.title("Where their time went");
    let mut table =
        Table::new(&["", "wall", "on CPU", "asleep", "waiting", "device", "queue", "awake"]);
    let mut rows = rows(report);
    rows.push(("All".to_owned(), true, &report.total));
    for (title, strong, sums) in rows {
        let Time { wall_ns, cpu_ns, sleep_ns, wait_ns, io_wait_ns, queue_ns, .. } = sums.time;
        let parts = [wall_ns, cpu_ns, sleep_ns, wait_ns, io_wait_ns, queue_ns, sums.awake_ns];
        let cells = [title].into_iter().chain(parts.map(text::time_or_blank));
        if strong { table.strong_row(cells) } else { table.row(cells) }
    }
    out.table(&table);
}

fn calls(report: &Report, out: &mut Page<'_>, all: bool) {
    let rows = top(&report.calls, out.look.top, |row| row.sums.calls);
    if all && !rows.is_empty() {
        out.title("Most frequent calls");
        let mut table = Table::new(&["call", "class", "calls", "%", "errors", "", "bytes"])
            .aligned(1, Align::Left)
            .aligned(5, Align::Left);
        for row in rows {
            let error =
                row.errors_by_code.first().map(|error| error.name.clone()).unwrap_or_default();
            table.row([
                called(row),
                row.subclass.title().to_owned(),
                text::count(row.sums.calls),
                text::percent(row.sums.calls_percent),
                text::count_or_blank(row.sums.errors),
                error,
                text::bytes(row.sums.bytes_in.saturating_add(row.sums.bytes_out)),
            ]);
        }
        out.table(&table);
    }
    let limit = if all { out.look.top } else { usize::MAX };
    let rows = top(&report.calls, limit, |row| row.sums.time.wall_ns);
    if !rows.is_empty() {
        out.title("Most time-consuming calls");
        let mut table = Table::new(&["call", "calls", "wall", "%", "p50", "p90", "p99", "max"]);
        for row in rows {
            let at = |of: fn(&Distribution) -> u64| {
                row.distribution
                    .as_ref()
                    .map_or("-".to_owned(), |distribution| text::time(of(distribution)))
            };
            table.row([
                called(row),
                text::count(row.sums.calls),
                text::time(row.sums.time.wall_ns),
                text::percent(row.sums.time_percent),
                at(|d| d.p50_ns),
                at(|d| d.p90_ns),
                at(|d| d.p99_ns),
                at(|d| d.max_ns),
            ]);
        }
        out.table(&table);
    }
    let rows = top(&report.calls, limit, |row| row.sums.awake_ns);
    if !rows.is_empty() {
        out.title("Most time-consuming calls without their sleep");
        let mut table =
            Table::new(&["call", "calls", "awake", "%", "on CPU", "waiting", "device", "queue"]);
        for row in rows {
            let time = &row.sums.time;
            let shown = text::time_or_blank;
            table.row([
                called(row),
                text::count(row.sums.calls),
                shown(row.sums.awake_ns),
                text::percent(row.sums.awake_percent),
                shown(time.cpu_ns),
                shown(time.wait_ns),
                shown(time.io_wait_ns),
                shown(time.queue_ns),
            ]);
        }
        out.table(&table);
    }
    let drawn = if all { HISTOGRAMS } else { out.look.top };
    for row in top(&report.calls, drawn, |row| row.sums.time.wall_ns) {
        histogram(row, out);
    }
}

/// The largest by something, of which there is any; where all are wanted, those, too, of which
/// there is none.
fn top(rows: &[CallRow], limit: usize, key: impl Fn(&CallRow) -> u64) -> Vec<&CallRow> {
    let mut rows: Vec<_> = rows.iter().filter(|row| limit == usize::MAX || key(row) > 0).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(key(row)));
    rows.truncate(limit);
    rows
}

/// The name of a call, with the door that it came through unless that is the usual one.
pub(super) fn called(row: &CallRow) -> String {
    if row.abi == "x86_64" { row.name.clone() } else { format!("{} ({})", row.name, row.abi) }
}

/// Bars of how many calls took how long; the part of their time that they were blocked for is
/// shaded.
fn histogram(row: &CallRow, out: &mut Page<'_>) {
    let Some(distribution) = &row.distribution else { return };
    let most = distribution.bars.iter().map(|bar| bar.calls).max().unwrap_or(0);
    if most == 0 {
        return;
    }
    out.title(&format!("How long {} took (█ running, ▒ blocked, ░ not told)", called(row)));
    let width = out.look.width.saturating_sub(34).max(8);
    let mut empty = 0;
    for (index, bar) in distribution.bars.iter().enumerate() {
        // A long way without calls is one line.
        empty = if bar.calls == 0 { empty + 1 } else { 0 };
        let next_is_empty = distribution.bars.get(index + 1).is_some_and(|next| next.calls == 0);
        if empty > 1 || (empty == 1 && next_is_empty) {
            if empty == 1 {
                out.text += "        ...\n";
            }
            continue;
        }
        let length = (bar.calls as f64 / most as f64 * width as f64).ceil() as usize;
        let part = |ns: u64| {
            let whole = bar.time.wall_ns.max(1) as f64;
            (ns as f64 / whole * length as f64).round() as usize
        };
        let untold = part(bar.time.untold_ns).min(length);
        let blocked =
            part(bar.time.blocked_ns().saturating_add(bar.time.io_wait_ns)).min(length - untold);
        let running = "█".repeat(length - blocked - untold);
        let (running, blocked) = (out.tint(&running, "32"), out.tint(&"▒".repeat(blocked), "33"));
        let untold = "░".repeat(untold);
        let below = if bar.below_ns == u64::MAX {
            "more".to_owned()
        } else {
            format!("< {}", text::time(bar.below_ns))
        };
        let line = format!(
            "  {below:>9} {:>14}  {running}{blocked}{untold}",
            text::count_or_blank(bar.calls)
        );
        out.text += &(line.trim_end().to_owned() + "\n");
    }
}

const PARTS: [&str; 8] =
    ["calls", "errors", "wall", "on CPU", "asleep", "device", "queue", "own code"];

fn parts(calls: u64, errors: u64, time: &Time, cpu_ns: Option<u64>) -> [String; 8] {
    [
        text::count(calls),
        text::count_or_blank(errors),
        text::time_or_blank(time.wall_ns),
        text::time_or_blank(time.cpu_ns),
        text::time_or_blank(time.blocked_ns()),
        text::time_or_blank(time.io_wait_ns),
        text::time_or_blank(time.queue_ns),
        cpu_ns.map_or_else(
            || "-".to_owned(),
            |cpu| text::time_or_blank(cpu.saturating_sub(time.cpu_ns)),
        ),
    ]
}

fn processes(report: &Report, out: &mut Page<'_>) {
    out.title("Processes by the time of their calls");
    let mut table = Table::new(&[&["process", "threads"][..], &PARTS].concat());
    let limit = if out.look.by.is_some() { usize::MAX } else { out.look.top };
    for row in report.processes.iter().take(limit) {
        let name = match row.process {
            0 => format!("{} {}", text::count(row.processes), row.command),
            _ => format!("{} {}", row.process, row.command),
        };
        let cells = [name, text::count(row.threads)];
        table.row(cells.into_iter().chain(parts(
            row.calls,
            row.errors,
            &row.time,
            row.thread_cpu_ns,
        )));
    }
    out.table(&table);
    left_out(report.processes.len(), limit, out);
}

fn threads(report: &Report, out: &mut Page<'_>) {
    out.title("Threads by the time of their calls");
    let mut table = Table::new(&[&["thread"][..], &PARTS].concat());
    let limit = if out.look.by.is_some() { usize::MAX } else { out.look.top };
    for row in report.threads.iter().take(limit) {
        let name = match row.thread {
            0 => format!("{} {}", text::count(row.threads), row.command),
            _ => format!("{} {}", row.thread, row.command),
        };
        table.row([name].into_iter().chain(parts(
            row.calls,
            row.errors,
            &row.time,
            row.thread_cpu_ns,
        )));
    }
    out.table(&table);
    left_out(report.threads.len(), limit, out);
}

fn left_out(rows: usize, limit: usize, out: &mut Page<'_>) {
    if rows > limit {
        out.paragraph(&format!(
            "and {} more (--by thread or --by process has all)",
            text::count((rows - limit) as u64)
        ));
    }
}

fn unfinished(report: &Report, out: &mut Page<'_>) {
    if report.unfinished.is_empty() {
        return;
    }
    out.title("Calls that had not returned when their thread or the trace ended");
    let mut table =
        Table::new(&["thread", "call", "for", "on CPU", "asleep"]).aligned(1, Align::Left);
    for call in report.unfinished.iter().take(out.look.top) {
        table.row([
            format!("{} {}", call.thread, call.command),
            call.name.clone(),
            text::time(call.time.wall_ns),
            text::time_or_blank(call.time.cpu_ns),
            text::time_or_blank(call.time.blocked_ns()),
        ]);
    }
    out.table(&table);
}

/// About itself.
fn closing(report: &Report, out: &mut Page<'_>) {
    let source = &report.source;
    out.title("About this trace");
    let mut lines = Vec::new();
    if let Some(cost) = source.cost_per_call_ns {
        let share = if source.lasted_ns == 0 {
            0.0
        } else {
            cost as f64 * report.total.calls as f64 / source.lasted_ns as f64
        };
        lines.push(format!(
            "Measuring cost {} a call, {} in all ({} % of the run).",
            text::time(cost),
            text::time(cost.saturating_mul(report.total.calls)),
            text::percent(share * 100.0)
        ));
    }
    match source.events_lost {
        0 if source.incomplete.is_empty() => lines.push("No event was lost.".to_owned()),
        0 => {}
        lost => {
            let events = noun_for(lost, "event");
            lines
                .push(format!("LOST: {} {events}; sums are too small by that.", text::count(lost)));
        }
    }
    lines.extend(source.incomplete.iter().cloned());
    if report.lines_skipped > 0 {
        lines.push(format!(
            "{} {} could not be read: not in the sums.",
            text::count(report.lines_skipped),
            noun_for(report.lines_skipped, "line")
        ));
    }
    let list = |counts: &[super::document::Count]| {
        counts
            .iter()
            .map(|count| format!("{} {}", text::count(count.count), count.name))
            .collect::<Vec<_>>()
            .join(", ")
    };
    if !report.signals.is_empty() {
        lines.push(format!("Signals: {}.", list(&report.signals)));
    }
    if !report.io_uring.is_empty() {
        lines.push(format!(
            "Operations of io_uring, which are no calls: {}.",
            list(&report.io_uring)
        ));
    }
    if !source.kernel.is_empty() {
        let pinned = source.pinned.map_or(String::new(), |cpu| format!(", pinned to {cpu}"));
        lines.push(format!(
            "Linux {}, clock {}, {} CPUs{pinned}, files in memory {}{}.",
            source.kernel,
            source.clock,
            source.cpus,
            if source.cache == "as found" { "as they were" } else { &source.cache },
            if source.file_systems.is_empty() {
                String::new()
            } else {
                format!("; {}", source.file_systems.join(", "))
            }
        ));
    }
    lines.iter().chain(&source.notes).for_each(|line| out.paragraph(line));
}
