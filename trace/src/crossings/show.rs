//! The view on a terminal.

use super::document::{AppletCrossings, Crossings, Function, Gate, Kernel};
use crate::report::{Align, Look, Table, text};
use holdfast_sys::counted::noun_for;

/// The columns before the last one of the table of what is outside of calls.
const OUTSIDE_WIDTH: usize = 46;

/// The view as text. Nothing of it if there is nothing.
#[must_use]
pub(crate) fn terminal(crossings: &Crossings, look: &Look) -> String {
    let mut out = String::new();
    for applet in &crossings.applets {
        out += &title(applet, look);
        let mut table =
            Table::new(&["", "crossings", "per call", "time", "kernel", "per call", "time"]);
        for function in &applet.functions {
            rows(function, look, &mut table);
        }
        out += &table.render(look.width, look.colour);
        for function in applet.functions.iter().filter(|function| function.calls > 1) {
            out += &(text::cut(&summary(function), look.width) + "\n");
        }
    }
    if crossings.outside.iter().any(|outside| outside.kernel_calls > 0) {
        out += &text::title("System calls of the host outside of calls", look.width, look.colour);
        let mut table = Table::new(&["", "kernel", "time", "of them"]).aligned(3, Align::Left);
        for outside in &crossings.outside {
            let most = outside.kernel.iter().take(4);
            let most: Vec<_> = most.map(|row| format!("{} {}", row.calls, row.name)).collect();
            // The titles are to be read in full.
            let most =
                text::cut(&most.join(", "), look.width.saturating_sub(OUTSIDE_WIDTH).max(12));
            table.row([
                outside.when.title().to_owned(),
                text::count(outside.kernel_calls),
                text::time(outside.kernel_ns),
                most,
            ]);
        }
        out += &table.render(look.width, look.colour);
    }
    if crossings.own_calls > 0 {
        let calls = text::count(crossings.own_calls);
        let noun = noun_for(crossings.own_calls, "system call");
        let own = format!("The record of this took {calls} {noun} of the host, not counted here.");
        out += &text::paragraph(&own, look.width);
    }
    crossings.notes.iter().for_each(|note| out += &text::paragraph(note, look.width));
    out
}

fn title(applet: &AppletCrossings, look: &Look) -> String {
    let started = match applet.started {
        1 => String::new(),
        started => format!(", started {} times", text::count(started)),
    };
    let name = text::plain(&applet.name);
    text::title(
        &format!("Crossings of {name} ({}{started})", applet.kind.title()),
        look.width,
        look.colour,
    )
}

/// What crossed, as a row below its function; who let it through where the name alone does not
/// tell.
pub(super) fn crossed_title(name: &str, by: Option<Gate>) -> String {
    match by {
        None | Some(Gate::Import | Gate::Filter) => format!("  {name}"),
        Some(by @ (Gate::Message | Gate::Supervisor)) => format!("  {name} ({})", by.title()),
    }
}

fn rows(function: &Function, look: &Look, table: &mut Table) {
    let name = match function.calls {
        0 => function.name.clone(),
        calls => format!("{}, {} {}", function.name, text::count(calls), noun_for(calls, "call")),
    };
    table.strong_row([
        name,
        text::count(function.crossings),
        each(function.crossings, function.calls),
        text::time(function.crossings_ns),
        text::count(function.kernel_calls),
        each(function.kernel_calls, function.calls),
        text::time(function.kernel_ns),
    ]);
    let shown = if look.by.is_some() { usize::MAX } else { look.top };
    for crossed in function.crossed.iter().take(shown) {
        table.row([
            crossed_title(&crossed.name, Some(crossed.by)),
            text::count(crossed.crossings),
            each(crossed.crossings, function.calls),
            text::time(crossed.wall_ns),
            String::new(),
            String::new(),
            String::new(),
        ]);
        crossed.kernel.iter().for_each(|row| kernel(row, function, "    ", table));
    }
    if let Some(left) = function.crossed.len().checked_sub(shown).filter(|left| *left > 0) {
        table.row([format!("  and {left} more")]);
    }
    if !function.host.is_empty() {
        table.row(["  (in no crossing)".to_owned()]);
        function.host.iter().take(shown).for_each(|row| kernel(row, function, "    ", table));
    }
}

fn kernel(row: &Kernel, function: &Function, indent: &str, table: &mut Table) {
    table.row([
        format!("{indent}{}", row.name),
        String::new(),
        String::new(),
        String::new(),
        text::count(row.calls),
        each(row.calls, function.calls),
        text::time(row.wall_ns),
    ]);
}

/// Of one call.
fn each(number: u64, calls: u64) -> String {
    if calls == 0 { String::new() } else { text::mean(number as f64 / calls as f64) }
}

fn summary(function: &Function) -> String {
    format!(
        "{}: {} {}, {} crossings per call ({} to {}), {} system calls of the host per call",
        text::plain(&function.name),
        text::count(function.calls),
        noun_for(function.calls, "call"),
        each(function.crossings, function.calls),
        text::count(function.crossings_min),
        text::count(function.crossings_max),
        each(function.kernel_calls, function.calls)
    )
}
