//! The matrix on a terminal.

use super::Matrix;
use crate::classes::{Class, Subclass};
use crate::diff::{Change, Estimate, Figures, Verdict};
use crate::report::{Align, Look, Table, text};

/// The matrix as text.
#[must_use]
pub fn terminal(matrix: &Matrix, look: &Look) -> String {
    let mut out = String::new();
    let Some(first) = matrix.platforms.first() else { return out };
    out += &(text::cut(&text::command(&first.side.source.command), look.width) + "\n");
    let runs = if matrix.repetitions == 1 { "run" } else { "runs" };
    out += &format!(
        "{} {runs} on each of {} platforms\n\n",
        matrix.repetitions,
        matrix.platforms.len()
    );
    let mut table =
        Table::new(&["platform", "", "took", "from", "to", "calls", "awake", "on CPU", "device"])
            .aligned(1, Align::Left);
    for platform in &matrix.platforms {
        let side = &platform.side;
        let (from, to) = side.lasted_ns.interval.map_or(("-".into(), "-".into()), |(from, to)| {
            (text::time(from as u64), text::time(to as u64))
        });
        table.row([
            side.name.clone(),
            if platform.kind == side.name { String::new() } else { platform.kind.clone() },
            text::time(side.lasted_ns.value as u64),
            from,
            to,
            text::count(side.total.calls.value as u64),
            text::time(side.total.awake_ns.value as u64),
            text::time_or_blank(side.total.cpu_ns.value as u64),
            text::time_or_blank(side.total.io_wait_ns.value as u64),
        ]);
    }
    out += &table.render(look.width, look.colour);
    out += "\nThreads, and where the machine's processors were meanwhile\n";
    let mut table = Table::new(&["platform", "threads", "in programs", "in the kernel", "idle"]);
    for platform in &matrix.platforms {
        let percent = |of: &Estimate| format!("{:.0} %", of.value);
        table.row([
            platform.side.name.clone(),
            text::count(platform.threads.value as u64),
            percent(&platform.machine_user_percent),
            percent(&platform.machine_kernel_percent),
            percent(&platform.machine_idle_percent),
        ]);
    }
    out += &table.render(look.width, look.colour);
    for (title, of) in [
        (
            "Time of calls, sleep included",
            (|figures: &Figures| figures.wall_ns) as fn(&Figures) -> Estimate,
        ),
        ("Time of calls without sleep", |figures| figures.awake_ns),
    ] {
        out += &format!("\n{title}\n");
        out += &by_class(matrix, of).render(look.width, look.colour);
    }
    for diff in &matrix.comparisons {
        out += &format!("\n{} against {}\n", text::plain(&diff.b.name), text::plain(&diff.a.name));
        let mut table = Table::new(&["", "change", "by calls", "by cost", "calls", "cost"])
            .aligned(4, Align::Left)
            .aligned(5, Align::Left);
        let os = diff.subclasses.iter().filter(|change| change.class == Some(Class::Os));
        for change in os {
            table.row(changes(change, &format!("  {}", change.name)));
        }
        for change in diff.classes.iter().chain([&diff.total]) {
            table.strong_row(changes(change, &change.name));
        }
        let told = diff.calls.iter().filter(|change| {
            change.cost == Verdict::Differs || change.calls == Verdict::Differs || diff.a.runs < 6
        });
        table.gap();
        for change in told.filter(|change| change.awake_change_ns.abs() >= 0.5).take(look.top) {
            table.row(changes(change, &format!("  {}", change.name)));
        }
        out += &table.render(look.width, look.colour);
    }
    out += "\nMedians, and where they are with a probability of 95 %.\nWhat differs has intervals that do not touch.\n";
    for note in &matrix.notes {
        out += &(text::plain(note) + "\n");
    }
    out
}

fn by_class(matrix: &Matrix, of: fn(&Figures) -> Estimate) -> Table {
    let names: Vec<_> =
        matrix.platforms.iter().map(|platform| platform.side.name.as_str()).collect();
    let mut table = Table::new(&[&[""][..], &names].concat());
    let cell = |figures: Option<&Figures>| {
        let value = figures.map(of).unwrap_or_default();
        let shown = text::time_or_blank(value.value as u64);
        match value.interval {
            // Half of the interval's width, of the value.
            Some((low, high)) if value.value > 0.0 => {
                format!("{shown} ±{:.0}%", (high - low) / 2.0 / value.value * 100.0)
            }
            _ => shown,
        }
    };
    let subclasses = Subclass::ALL.into_iter().filter(|subclass| subclass.class() == Class::Os);
    for subclass in subclasses {
        let cells: Vec<_> = matrix
            .platforms
            .iter()
            .map(|platform| {
                platform
                    .subclasses
                    .iter()
                    .find(|row| row.subclass == subclass)
                    .map(|row| &row.figures)
            })
            .collect();
        if cells.iter().any(Option::is_some) {
            table.row(
                [format!("  {}", subclass.title())].into_iter().chain(cells.into_iter().map(cell)),
            );
        }
    }
    for class in Class::ALL {
        let figures = |platform: &'_ super::document::Platform| {
            platform.classes.iter().find(|row| row.class == class).map(|row| row.figures)
        };
        let cells = matrix.platforms.iter().map(|platform| cell(figures(platform).as_ref()));
        table.strong_row([class.title().to_owned()].into_iter().chain(cells));
    }
    let all = matrix.platforms.iter().map(|platform| cell(Some(&platform.side.total)));
    table.strong_row(["All".to_owned()].into_iter().chain(all));
    table
}

fn changes(change: &Change, title: &str) -> [String; 6] {
    let verdict = |verdict| match verdict {
        Verdict::Differs => "differs".to_owned(),
        Verdict::Same => "same".to_owned(),
        Verdict::Unknown => "?".to_owned(),
    };
    [
        title.to_owned(),
        text::signed_time(change.awake_change_ns),
        text::signed_time(change.from_calls_ns),
        text::signed_time(change.from_cost_ns),
        verdict(change.calls),
        verdict(change.cost),
    ]
}
