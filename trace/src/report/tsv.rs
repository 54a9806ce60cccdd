//! The report as columns for other programs: one row for each class, part, call, process and
//! thread.
//!
//! Invariants: the columns are those of the header, in every row; new ones are added at the end. A
//! name never has a tab or a line's end in it.

use std::fmt::Write;

use super::document::{Distribution, Report, Sums, Time};
use super::text::{percent_of, plain};

const HEADER: &str = "kind\tname\tclass\tsubclass\tdistinct\tcalls\tcalls_percent\terrors\tinterrupted\tunfinished\t\
    bytes_in\tbytes_out\twall_ns\tcpu_ns\tsleep_ns\twait_ns\tio_wait_ns\tqueue_ns\tuntold_ns\ttime_percent\tawake_ns\t\
    awake_percent\tp50_ns\tp90_ns\tp99_ns\tmax_ns";

/// The report as tab-separated values.
#[must_use]
pub fn tsv(report: &Report) -> String {
    let mut out = HEADER.to_owned() + "\n";
    row(&mut out, ["total", "all", "", ""], &report.total, None);
    for class in &report.classes {
        row(&mut out, ["class", class.class.id(), class.class.id(), ""], &class.sums, None);
    }
    for part in &report.subclasses {
        row(
            &mut out,
            ["subclass", part.subclass.id(), part.class.id(), part.subclass.id()],
            &part.sums,
            None,
        );
    }
    for call in &report.calls {
        let name = if call.abi == "x86_64" {
            call.name.clone()
        } else {
            format!("{}:{}", call.abi, call.name)
        };
        let heads = ["call", &name, call.class.id(), call.subclass.id()];
        row(&mut out, heads, &call.sums, call.distribution.as_ref());
    }
    for process in &report.processes {
        let sums = sums(process.calls, process.errors, process.time, process.awake_ns, report);
        row(
            &mut out,
            ["process", &format!("{} {}", process.process, process.command), "", ""],
            &sums,
            None,
        );
    }
    for thread in &report.threads {
        let sums = sums(thread.calls, thread.errors, thread.time, thread.awake_ns, report);
        row(
            &mut out,
            ["thread", &format!("{} {}", thread.thread, thread.command), "", ""],
            &sums,
            None,
        );
    }
    out
}

fn sums(calls: u64, errors: u64, time: Time, awake_ns: u64, report: &Report) -> Sums {
    let percent = |part: u64, whole: u64| percent_of(part as f64, whole as f64);
    Sums {
        calls,
        calls_percent: percent(calls, report.total.calls),
        errors,
        time,
        time_percent: percent(time.wall_ns, report.total.time.wall_ns),
        awake_ns,
        awake_percent: percent(awake_ns, report.total.awake_ns),
        ..Sums::default()
    }
}

fn row(out: &mut String, heads: [&str; 4], sums: &Sums, distribution: Option<&Distribution>) {
    let Sums {
        distinct, calls, errors, interrupted, unfinished, bytes_in, bytes_out, time, ..
    } = sums;
    let Time { wall_ns, cpu_ns, sleep_ns, wait_ns, io_wait_ns, queue_ns, untold_ns } = time;
    let at =
        |of: fn(&Distribution) -> u64| distribution.map_or(String::new(), |d| of(d).to_string());
    let heads = heads.map(plain).join("\t");
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "{heads}\t{distinct}\t{calls}\t{:.4}\t{errors}\t{interrupted}\t{unfinished}\t{bytes_in}\t{bytes_out}\t{wall_ns}\t{cpu_ns}\t\
         {sleep_ns}\t{wait_ns}\t{io_wait_ns}\t{queue_ns}\t{untold_ns}\t{:.4}\t{}\t{:.4}\t{}\t{}\t{}\t{}",
        sums.calls_percent,
        sums.time_percent,
        sums.awake_ns,
        sums.awake_percent,
        at(|d| d.p50_ns),
        at(|d| d.p90_ns),
        at(|d| d.p99_ns),
        at(|d| d.max_ns)
    );
}
