//! Sums up events as rows, and prints them.

use std::collections::HashMap;

use holdfast_trace::{Abi, About, Event, Split};
use serde::Serialize;

use crate::exit::{Failure, OTHER};
use crate::output::{aligned, print};
use crate::trace_args::{ByArg, ShowArgs};

/// The version of the JSON.
const FORMAT: u32 = 1;

/// What is shown of a trace.
pub struct Table {
    by: ByArg,
    rows: HashMap<Key, Row>,
    /// Names of processes, as they were last.
    commands: HashMap<u32, String>,
    lost: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    Call(Abi, u32),
    Thread(u32, u32),
    Process(u32),
}

#[derive(Debug, Default, Clone)]
struct Row {
    calls: u64,
    errors: u64,
    unfinished: u64,
    time: Split,
}

impl Table {
    pub fn new(by: ByArg) -> Table {
        Table { by, rows: HashMap::new(), commands: HashMap::new(), lost: 0 }
    }

    pub fn add(&mut self, event: &Event) {
        match event {
            Event::Call(call) => {
                let key = match self.by {
                    ByArg::Call => Key::Call(call.abi, call.number),
                    ByArg::Thread => Key::Thread(call.process, call.thread),
                    ByArg::Process => Key::Process(call.process),
                };
                let row = self.rows.entry(key).or_default();
                row.calls += 1;
                row.errors += u64::from(call.error().is_some());
                row.unfinished += u64::from(call.result.is_none());
                row.time += call.time;
            }
            Event::Began { process, command, .. } | Event::Exec { process, command, .. } => {
                self.commands.insert(*process, command.clone());
            }
            Event::Lost { events } => self.lost += events,
            _ => {}
        }
    }

    fn name(&self, key: &Key) -> String {
        let command = |process| self.commands.get(process).map_or("", String::as_str);
        match key {
            Key::Call(Abi::X86_64, number) => holdfast_trace::call_name(Abi::X86_64, *number).into_owned(),
            Key::Call(Abi::I386, number) => {
                format!("{} (32-bit)", holdfast_trace::call_name(Abi::I386, *number))
            }
            Key::Call(Abi::X32, number) => format!("{} (x32)", holdfast_trace::call_name(Abi::X32, *number)),
            Key::Thread(process, thread) => format!("{process}/{thread} {}", command(process)),
            Key::Process(process) => format!("{process} {}", command(process)),
        }
    }

    /// Named rows, the longest time first.
    fn sorted(&self) -> Vec<(String, &Row)> {
        let mut rows: Vec<_> = self.rows.iter().map(|(key, row)| (self.name(key), row)).collect();
        rows.sort_by(|(name, row), (other, than)| {
            than.time.wall_ns.cmp(&row.time.wall_ns).then_with(|| name.cmp(other))
        });
        rows
    }

    fn total(&self) -> Row {
        self.rows.values().fold(Row::default(), |mut total, row| {
            total.calls += row.calls;
            total.errors += row.errors;
            total.unfinished += row.unfinished;
            total.time += row.time;
            total
        })
    }
}

/// A row as JSON.
#[derive(Debug, Serialize)]
struct RowJson<'a> {
    name: &'a str,
    calls: u64,
    errors: u64,
    unfinished: u64,
    #[serde(flatten)]
    time: Split,
}

/// All of it as JSON.
#[derive(Debug, Serialize)]
struct TableJson<'a> {
    format: u32,
    about: &'a About,
    total: RowJson<'a>,
    rows: Vec<RowJson<'a>>,
}

impl Row {
    fn json<'a>(&self, name: &'a str) -> RowJson<'a> {
        RowJson { name, calls: self.calls, errors: self.errors, unfinished: self.unfinished, time: self.time }
    }

    fn cells(&self, name: &str) -> Vec<String> {
        let time = self.time;
        let parts = [time.wall_ns, time.cpu_ns, time.sleep_ns, time.wait_ns, time.io_wait_ns, time.queue_ns]
            .map(milliseconds);
        let counts = [self.calls, self.errors].map(|count| count.to_string());
        counts.into_iter().chain(parts).chain([name.to_owned()]).collect()
    }
}

fn milliseconds(time_ns: u64) -> String {
    format!("{:.3}", time_ns as f64 / 1e6)
}

/// Prints the table, or writes it as JSON, or both; `print` is for the table.
pub fn write(
    table: &Table,
    about: &About,
    options: &ShowArgs,
    print_table: impl Fn(&str) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let Some(file) = &options.json else { return print_table(&text(table, about)) };
    let rows = table.sorted();
    let json = TableJson {
        format: FORMAT,
        about,
        total: table.total().json("total"),
        rows: rows.iter().map(|(name, row)| row.json(name)).collect(),
    };
    let json = serde_json::to_string_pretty(&json).map_err(|error| Failure::new(OTHER, error))? + "\n";
    if file.as_os_str() == "-" {
        return print(&json);
    }
    let cannot = |error| {
        Failure::new(OTHER, format!("cannot write {}: {error}; choose another place", file.display()))
    };
    std::fs::write(file, json).map_err(cannot)?;
    print_table(&text(table, about))
}

fn text(table: &Table, about: &About) -> String {
    let header = ["calls", "errors", "wall ms", "cpu", "asleep", "waiting", "device", "queue", ""];
    let mut rows: Vec<_> = table.sorted().iter().map(|(name, row)| row.cells(name)).collect();
    rows.push(table.total().cells("total"));
    let mut text = aligned(&header, &[0, 1, 2, 3, 4, 5, 6, 7], &rows);
    let cost = about.cost.map_or_else(String::new, |cost| format!(", {} ns a call", cost.slowdown_ns));
    text.push_str(&format!(
        "measured with {}{cost}; events lost: {}\n",
        about.backend.name(),
        about.lost.max(table.lost)
    ));
    for note in &about.notes {
        text.push_str(&format!("note: {note}\n"));
    }
    text
}
