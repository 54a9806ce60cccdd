//! Sets strace's account of a program beside the measured one.

use std::collections::BTreeMap;

use crate::report::{Look, Report, Table, text};

/// One kind of call by both.
#[derive(Clone, Debug, PartialEq)]
pub struct BesideRow {
    /// The call.
    pub name: String,
    /// How often, by the log.
    pub log_calls: u64,
    /// How long, by the log.
    pub log_ns: u64,
    /// Its place by time in the log, from 1; 0 if it is not there.
    pub log_rank: usize,
    /// How often, as measured.
    pub calls: u64,
    /// From begin to end, as measured.
    pub wall_ns: u64,
    /// On a CPU, as measured: what `strace -c` means to say.
    pub cpu_ns: u64,
    /// Without sleep, as measured.
    pub awake_ns: u64,
    /// Its place by time without sleep; 0 if it is not there.
    pub rank: usize,
}

/// Both.
#[derive(Clone, Debug, PartialEq)]
pub struct StraceComparison {
    /// Whether the log has sums of system time (`-c`) and not the length of calls.
    pub log_is_sums: bool,
    /// By the time in the log, longest first.
    pub rows: Vec<BesideRow>,
}

impl StraceComparison {
    /// Sets a log beside a measured report.
    #[must_use]
    pub fn of(log: &Report, measured: &Report) -> StraceComparison {
        let mut rows: BTreeMap<&str, BesideRow> = BTreeMap::new();
        let blank = |name: &str| BesideRow {
            name: name.to_owned(),
            log_calls: 0,
            log_ns: 0,
            log_rank: 0,
            calls: 0,
            wall_ns: 0,
            cpu_ns: 0,
            awake_ns: 0,
            rank: 0,
        };
        for call in &log.calls {
            let row = rows.entry(&call.name).or_insert_with(|| blank(&call.name));
            row.log_calls = row.log_calls.saturating_add(call.sums.calls);
            row.log_ns = row.log_ns.saturating_add(call.sums.time.wall_ns);
        }
        for call in &measured.calls {
            let row = rows.entry(&call.name).or_insert_with(|| blank(&call.name));
            row.calls = row.calls.saturating_add(call.sums.calls);
            row.wall_ns = row.wall_ns.saturating_add(call.sums.time.wall_ns);
            row.cpu_ns = row.cpu_ns.saturating_add(call.sums.time.cpu_ns);
            row.awake_ns = row.awake_ns.saturating_add(call.sums.awake_ns);
        }
        let mut rows: Vec<_> = rows.into_values().collect();
        rows.sort_by_key(|row| std::cmp::Reverse((row.awake_ns, row.calls)));
        let measured = rows.iter_mut().filter(|row| row.calls > 0);
        measured.enumerate().for_each(|(index, row)| row.rank = index + 1);
        rows.sort_by_key(|row| std::cmp::Reverse((row.log_ns, row.log_calls)));
        let logged = rows.iter_mut().filter(|row| row.log_calls > 0);
        logged.enumerate().for_each(|(index, row)| row.log_rank = index + 1);
        StraceComparison {
            log_is_sums: log.calls.iter().all(|call| call.distribution.is_none()),
            rows,
        }
    }
}

/// Both on a terminal.
#[must_use]
pub fn terminal(beside: &StraceComparison, look: &Look) -> String {
    let mut out = String::from("What the log says, beside what was measured\n");
    let mut table =
        Table::new(&["call", "log", "time", "#", "here", "wall", "on CPU", "awake", "#", "off by"]);
    let rank = |rank: usize| if rank == 0 { "-".to_owned() } else { rank.to_string() };
    for row in beside.rows.iter().take(look.top.max(1) * 2) {
        let truth = if beside.log_is_sums { row.cpu_ns } else { row.wall_ns };
        let times = if truth == 0 || row.log_ns == 0 {
            "-".to_owned()
        } else {
            format!("x{:.1}", row.log_ns as f64 / truth as f64)
        };
        table.row([
            row.name.clone(),
            text::count_or_blank(row.log_calls),
            text::time_or_blank(row.log_ns),
            rank(row.log_rank),
            text::count_or_blank(row.calls),
            text::time_or_blank(row.wall_ns),
            text::time_or_blank(row.cpu_ns),
            text::time_or_blank(row.awake_ns),
            rank(row.rank),
            times,
        ]);
    }
    out += &table.render(look.width, look.colour);
    out += if beside.log_is_sums {
        "\n#: place by time. Off by: the log's time against that on a CPU, which it means.\n"
    } else {
        "\n#: place by time. Off by: the log's time against that from begin to end.\n"
    };
    out
}
