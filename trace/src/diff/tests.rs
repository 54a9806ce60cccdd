//! The claims that a comparison may and may not make.

use super::*;
use crate::summary::{Options, Summary};
use crate::{Abi, Call, Event, Object, Split};

/// A run with these calls: number, how many, ns each.
fn run(calls: &[(u32, u64, u64)]) -> Report {
    let mut summary = Summary::new(Options::default());
    let mut start_ns = 0;
    for &(number, count, ns) in calls {
        for index in 0..count {
            let time = Split::of(ns + index % 3, 0, 0, 0, 0);
            start_ns += 10 * ns;
            summary.add(&Event::Call(Call {
                process: 1,
                thread: 1,
                abi: Abi::X86_64,
                number,
                arguments: [0; 6],
                result: Some(0),
                start_ns,
                time,
                object: Object::None,
                restarted: false,
            }));
        }
    }
    summary.into_report(Source::default())
}

fn runs(name: &str, reports: Vec<Report>) -> Runs {
    Runs { name: name.to_owned(), reports }
}

fn change<'a>(diff: &'a Diff, name: &str) -> &'a Change {
    diff.calls.iter().find(|change| change.name == name).unwrap()
}

/// Guarantee: trace/diff
#[test]
fn calls_that_differ_are_told_from_cost_that_differs() {
    let repeat = |calls: &[(u32, u64, u64)]| -> Vec<_> {
        (0..8)
            .map(|run_no| {
                run(&calls.iter().map(|&(n, c, ns)| (n, c, ns + run_no)).collect::<Vec<_>>())
            })
            .collect()
    };
    // read: as many, twice as costly. stat: twice as many, as costly. write: the same. close: B
    // alone.
    let a = runs("a", repeat(&[(0, 100, 1_000), (4, 100, 500), (1, 50, 700)]));
    let b = runs("b", repeat(&[(0, 100, 2_000), (4, 200, 500), (1, 50, 700), (3, 10, 100)]));
    let diff = Diff::of(&a, &b);
    let read = change(&diff, "read");
    assert_eq!((read.calls, read.cost), (Verdict::Same, Verdict::Differs));
    assert!(
        read.from_calls_ns.abs() < 1e-6 && (read.from_cost_ns - 100_000.0).abs() < 1_000.0,
        "{read:?}"
    );
    let stat = change(&diff, "stat");
    assert_eq!((stat.calls, stat.cost), (Verdict::Differs, Verdict::Same));
    assert!(stat.from_calls_ns > 40_000.0 && stat.from_cost_ns.abs() < 2_000.0, "{stat:?}");
    let write = change(&diff, "write");
    assert_eq!(
        (write.calls, write.cost, write.awake_change_ns),
        (Verdict::Same, Verdict::Same, 0.0)
    );
    let close = change(&diff, "close");
    assert_eq!((close.calls, close.from_cost_ns), (Verdict::Differs, 0.0));
    for change in diff.calls.iter().chain(&diff.classes).chain([&diff.total]) {
        let sum = change.from_calls_ns + change.from_cost_ns;
        assert!((sum - change.awake_change_ns).abs() < 1e-6, "{change:?}");
    }
    assert_eq!(diff.calls[0].name, "read", "the largest change comes first");
}

/// Guarantee: trace/diff
#[test]
fn a_trace_compared_with_itself_differs_in_nothing() {
    let one = || runs("same", (0..6).map(|_| run(&[(0, 100, 1_000), (7, 3, 90_000)])).collect());
    let diff = Diff::of(&one(), &one());
    for change in &diff.calls {
        assert_eq!(
            (change.calls, change.cost, change.awake_change_ns),
            (Verdict::Same, Verdict::Same, 0.0)
        );
    }
}

/// Two single runs can be compared by the cost of their calls, but not by their number of calls.
///
/// Guarantee: trace/diff
#[test]
fn single_runs_compare_cost_not_counts() {
    let a = runs("a", vec![run(&[(0, 1_000, 1_000), (4, 3, 500)])]);
    let b = runs("b", vec![run(&[(0, 1_000, 1_500), (4, 3, 5_000)])]);
    let diff = Diff::of(&a, &b);
    let read = change(&diff, "read");
    assert_eq!((read.calls, read.cost), (Verdict::Unknown, Verdict::Differs));
    assert!(read.a.cost_ns.interval.is_some());
    assert_eq!(change(&diff, "stat").cost, Verdict::Unknown, "three calls are too few");
}

/// A comparison is never wider than the terminal and names both sides.
#[test]
fn comparison_fits_and_names_both_sides() {
    let a = runs("/tmp/first recording", (0..6).map(|_| run(&[(0, 100, 1_000)])).collect());
    let b = runs("second", (0..6).map(|_| run(&[(0, 100, 2_000), (4, 5, 5)])).collect());
    let text = terminal(&Diff::of(&a, &b), &crate::report::Look::default());
    assert!(text.contains("A: /tmp/first recording") && text.contains("B: second"), "{text}");
    assert!(text.contains("Calls that differ in cost") && text.contains("x2.00"), "{text}");
    assert!(text.contains("Calls that differ in number"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

/// The note on single runs appears only if both sides are single runs.
#[test]
fn single_run_note_needs_two_single_runs() {
    let of = |runs_a: usize, runs_b: usize| {
        let side = |name, count| runs(name, (0..count).map(|_| run(&[(0, 100, 1_000)])).collect());
        terminal(&Diff::of(&side("a", runs_a), &side("b", runs_b)), &crate::report::Look::default())
    };
    assert!(of(1, 1).contains("One run each"));
    for (runs_a, runs_b) in [(1, 5), (5, 1), (1, 6), (3, 3)] {
        let text = of(runs_a, runs_b);
        assert!(
            !text.contains("One run each") && text.contains("Fewer than 6 runs of a side"),
            "{text}"
        );
    }
    assert!(of(6, 7).contains("Medians of runs"));
}

/// Cells of the first row of a call below a title, by the words of the header above them.
fn cells(text: &str, title: &str, call: &str) -> Vec<(String, String)> {
    let split = |line: &str| -> Vec<_> {
        line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect()
    };
    let mut lines = text.lines().skip_while(|line| *line != title).skip(1);
    let header = split(lines.next().unwrap());
    let row = split(lines.find(|line| line.starts_with(call)).unwrap());
    assert_eq!(header.len(), row.len(), "{text}");
    header.into_iter().zip(row).collect()
}

/// Most calls got cheaper and a few much dearer: the ratio of the medians and the part of the cost
/// go different ways, and each stands below its own heading, beside the numbers that it is made of.
///
/// Guarantee: trace/diff
#[test]
fn by_cost_has_the_sign_of_the_means_beside_it() {
    let a = runs("a", vec![run(&[(0, 100, 1_000), (4, 9, 500)])]);
    let b = runs("b", vec![run(&[(0, 95, 650), (0, 5, 100_000), (4, 18, 500)])]);
    let diff = Diff::of(&a, &b);
    let read = change(&diff, "read");
    assert!(
        read.b.cost_ns.value < read.a.cost_ns.value && read.b.mean_ns > read.a.mean_ns,
        "{read:?}"
    );
    assert!(read.from_cost_ns > 0.0);
    let text = terminal(&diff, &crate::report::Look::default());
    let row = cells(&text, "Calls that differ in cost", "read");
    let expected = [
        ("call", "read"),
        ("median A", "1.00 us"),
        ("median B", "651 ns"),
        ("x", "x0.65"),
        ("mean A", "1.00 us"),
        ("mean B", "5.62 us"),
        ("by cost", "+462 us"),
    ];
    assert_eq!(row, expected.map(|(head, cell)| (head.to_owned(), cell.to_owned())));
    let row = cells(&text, "Calls that differ in number", "stat");
    let of = |head: &str| row.iter().find(|(found, _)| found == head).unwrap().1.as_str();
    assert_eq!(
        (of("calls A"), of("calls B"), of("mean A"), of("x")),
        ("9", "18", "501 ns", "x1.00")
    );
    assert_eq!((of("by calls"), of("by cost")), ("+4.51 us", "-"));
}

/// With runs of any numbers and costs the parts add up, and no sign contradicts the numbers beside
/// it.
///
/// Guarantee: trace/diff
#[test]
fn parts_of_a_change_never_contradict_its_figures() {
    let sides = |seed: u64, count: u64| -> Vec<Report> {
        (0..count)
            .map(|index| {
                let random = (seed + index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                run(&[
                    (0, 1 + (random >> 60), 100 + (random >> 40) % 9_000),
                    (4, (random >> 30) % 7, 300),
                ])
            })
            .collect()
    };
    for seed in 0..60 {
        let diff = Diff::of(
            &runs("a", sides(seed, 1 + seed % 8)),
            &runs("b", sides(seed + 99, 1 + seed % 7)),
        );
        for change in
            diff.calls.iter().chain(&diff.classes).chain(&diff.subclasses).chain([&diff.total])
        {
            let sum = change.from_calls_ns + change.from_cost_ns;
            assert!((sum - change.awake_change_ns).abs() < 1e-6 * sum.abs().max(1.0), "{change:?}");
            if change.a.calls.value > 0.0 && change.b.calls.value > 0.0 {
                let (cost, mean) = (change.from_cost_ns, change.b.mean_ns - change.a.mean_ns);
                assert!(cost * mean > 0.0 || cost == mean, "{change:?}");
                let calls = change.b.calls.value - change.a.calls.value;
                assert!(change.from_calls_ns * calls > 0.0 || calls == 0.0, "{change:?}");
            }
        }
    }
}
