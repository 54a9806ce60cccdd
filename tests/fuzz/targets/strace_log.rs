//! Any bytes as a log of strace: reading it never panics or hangs, every line is a call, something
//! else of strace's or counted as neither, and every call is in the report once.

#![no_main]

use holdfast_trace::import;
use holdfast_trace::report::document::Sleep;
use holdfast_trace::report::{Look, terminal};
use holdfast_trace::{Scheme, Summary, SummaryOptions as Options};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (bool, &[u8])| {
    let (refined, log) = input;
    let scheme = if refined { Scheme::Refined } else { Scheme::Paper };
    let mut summary = Summary::new(Options { scheme, sleep: Sleep::Paper });
    let mut reader = log;
    let imported = import::read(&mut reader, &mut summary).expect("memory can be read");
    assert!(imported.skipped <= imported.lines, "more lines were skipped than there are");
    let report = summary.into_report(imported.source("log"));
    let calls = imported.calls.saturating_add(imported.summed);
    assert_eq!(report.total.calls, calls, "a call is not in the report, or twice");
    let text = terminal(&report, &Look::default());
    assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "a log moved the cursor");
});
