//! What the documents of the project say of its speed is what a run measured: `docs/results.json`
//! is that run, `docs/results.md` is written from it, and README quotes it. A second report is of
//! another machine.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use holdfast_papers::markdown::markdown;
use holdfast_papers::number::short;
use holdfast_papers::report::{Judged, Report};
use holdfast_papers::results::Measured;

/// The reports, without what their names end with; README quotes the first.
const REPORTS: [&str; 2] = ["docs/results", "docs/results-xeon"];
/// In front of the keys of what is quoted in the same line: `<!-- results: SUITE KEY, ... -->`.
const MARK: &str = "<!-- results: ";
/// A number that one of these follows was measured.
const UNITS: [&str; 12] =
    ["ns", "us", "µs", "ms", "s", "x", "×", "%", "times", "KB/s", "MB/s", "GB/s"];

fn file(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::read_to_string(root.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn report(name: &str) -> Report {
    serde_json::from_str(&file(&format!("{name}.json"))).expect("a report")
}

fn run() -> Report {
    report(REPORTS[0])
}

/// A report has no number that is not in the JSON of its run, because all of it is.
#[test]
fn results_are_those_of_the_run() {
    for name in REPORTS {
        let (written, wanted) = (file(&format!("{name}.md")), markdown(&report(name)));
        for (number, (written, wanted)) in written.lines().zip(wanted.lines()).enumerate() {
            assert_eq!(written, wanted, "{name}.md, line {}", number + 1);
        }
        assert_eq!(written.lines().count(), wanted.lines().count(), "{name}.md");
    }
}

#[test]
fn readme_quotes_the_run() {
    let errors = wrong_quotes(&file("README.md"), &run());
    assert!(errors.is_empty(), "{}", errors.join("\n"));
}

/// A goal that a run misses has a reason in the table of papers.
#[test]
fn missed_goals_have_a_reason() {
    let missed = REPORTS.map(|name| report(name).missed);
    let open: Vec<String> = missed
        .iter()
        .flatten()
        .filter(|one| one.why.is_none())
        .map(|one| format!("{} {}: {}, goal {}", one.suite, one.key, one.shown, one.goal))
        .collect();
    assert!(open.is_empty(), "no [why] in bench/papers/papers.toml for\n{}", open.join("\n"));
}

/// What is wrong with the measured numbers of a text.
fn wrong_quotes(text: &str, run: &Report) -> Vec<String> {
    let mut errors = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let mut error = |reason: String| errors.push(format!("line {}: {reason}", index + 1));
        let Some((shown, keys)) = line.split_once(MARK) else {
            for number in numbers(line).into_iter().filter(|number| number.is_measured) {
                error(format!("{} is of no run: name its key, or take it out", number.text));
            }
            continue;
        };
        let mut known = BTreeSet::new();
        let mut is_firm = true;
        for key in keys.split("-->").next().unwrap_or_default().split(',') {
            let found = key.trim().split_once(' ').and_then(|(suite, key)| {
                let judged = run.suites.get(suite)?.get(key)?;
                is_firm &= judged.firm;
                let measured = &judged.measured;
                Some([measured.median, measured.min, measured.max])
            });
            match found {
                Some(values) => known.extend(values.into_iter().flatten().map(short)),
                None => error(format!("the run has no {}", key.trim())),
            }
        }
        // In a table, what stands in front is the name of the row.
        let shown = shown.rsplit('|').next().unwrap_or(shown);
        if shown.contains('~') == is_firm {
            let is = if is_firm { "firm, and needs no" } else { "not firm, and needs a" };
            error(format!("what is quoted is {is} ~"));
        }
        for number in numbers(shown).into_iter().filter(|number| !known.contains(number.text)) {
            error(format!("{} is not what the run says: {known:?}", number.text));
        }
    }
    errors
}

struct Number<'a> {
    text: &'a str,
    is_measured: bool,
}

/// The numbers of a line, but for those that are parts of names and what is between backquotes.
fn numbers(line: &str) -> Vec<Number<'_>> {
    let mut found = Vec::new();
    for (index, part) in line.split('`').enumerate() {
        if index % 2 == 1 {
            continue;
        }
        let mut rest = part;
        while let Some(start) = rest.find(|letter: char| letter.is_ascii_digit()) {
            let before = rest[..start].chars().next_back();
            let is_end = |letter: char| !letter.is_ascii_digit() && !".,".contains(letter);
            let end = start + rest[start..].find(is_end).unwrap_or(rest.len() - start);
            let text = rest[start..end].trim_end_matches(['.', ',']);
            let behind = &rest[start + text.len()..];
            let unit: &str = behind.trim_start();
            let unit = &unit[..unit.find([' ', ',', '.', ')', ';', '|']).unwrap_or(unit.len())];
            // `ext4`, `x86-64`, `0.5.x`, links and dates are names.
            let is_name = before
                .is_some_and(|letter| letter.is_alphanumeric() || "-/_#.".contains(letter))
                || behind.starts_with(['-', '/', '_', ':']);
            if !is_name {
                found.push(Number { text, is_measured: UNITS.contains(&unit) });
            }
            rest = &rest[end..];
        }
    }
    found
}

/// The canary of the tests above.
#[test]
fn wrong_numbers_are_found() {
    let mut run = run();
    let measured = run.suites["programs"]["fasta_vs_posix"].clone();
    let suite = run.suites.entry("test".to_owned()).or_default();
    let measured = Measured { median: Some(20.44), min: Some(19.0), ..measured.measured };
    for (key, firm) in [("ratio", true), ("loose", false)] {
        suite.insert(key.to_owned(), Judged { measured: measured.clone(), firm });
    }
    let errors = |text: &str| wrong_quotes(text, &run).len();
    assert_eq!(errors("20.4 times (19 at least) <!-- results: test ratio -->"), 0);
    assert_eq!(errors("20.5 times <!-- results: test ratio -->"), 1);
    assert_eq!(errors("~20.4 times <!-- results: test ratio -->"), 1);
    assert_eq!(errors("20.4 times <!-- results: test loose -->"), 1);
    assert_eq!(errors("| 64 MB | ~20.4 (19) <!-- results: test loose --> |"), 0);
    assert_eq!(errors("| 64 MB | 20.4 <!-- results: test ratio --> |"), 0);
    assert_eq!(errors("| 64 MB | 20.3 <!-- results: test ratio --> |"), 1);
    assert_eq!(errors("20.4 times <!-- results: test other -->"), 2);
    assert_eq!(errors("it takes 3 ms"), 1);
    assert_eq!(errors("it is 5× as fast"), 1);
    assert_eq!(errors("20.4 times as fast"), 1);
    assert_eq!(errors("on ext4, `3 ms`, x86-64, 1,000 kills, wasm32-wasip1"), 0);
}
