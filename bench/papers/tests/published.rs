//! What the documents of the project say of its speed is what a run measured: `docs/results.json`
//! is that run, `docs/results.md` is written from it, and README quotes it. A second report is of
//! another machine. `holdfast bench --no-run --out DIRECTORY`, with such a JSON as its
//! `results.json`, writes both files again when the table of papers has changed.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use holdfast_papers::markdown::markdown;
use holdfast_papers::number::short;
use holdfast_papers::papers::Papers;
use holdfast_papers::prose;
use holdfast_papers::report::{Judged, Report};
use holdfast_papers::results::Measured;

/// The reports, without what their names end with; README quotes the first.
const REPORTS: [&str; 2] = ["docs/results", "docs/results-xeon"];
/// Documents in which lines with a [`MARK`] quote the first report, and others are of other runs.
const QUOTING: [&str; 4] =
    ["bench/README.md", "sqlite/README.md", "trace/README.md", "web/README.md"];
/// What finds numbers that are in no run; the last is a program of its own, which is not kept.
const PROFILERS: [&str; 3] = ["`perf", "`strace", "loader of 20 lines"];
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

fn papers() -> Papers {
    Papers::parse(&file("bench/papers/papers.toml")).expect("a table of papers")
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

/// What a report says of its numbers is what the table of papers says now, with the numbers of that
/// report: its reasons and sentences are not from another run, and neither is its list of goals.
#[test]
fn reports_say_what_the_table_says() {
    let papers = papers();
    for name in REPORTS {
        let (written, wanted) = (report(name), report(name).renewed(&papers));
        let (written, wanted) = (markdown(&written), markdown(&wanted));
        for (number, (written, wanted)) in written.lines().zip(wanted.lines()).enumerate() {
            assert_eq!(written, wanted, "{name}.json is not of this table (line {})", number + 1);
        }
        assert_eq!(written.lines().count(), wanted.lines().count(), "{name}.json");
    }
}

/// A number in a sentence of the table is one that the run has.
#[test]
fn references_are_in_the_run() {
    let (papers, run) = (papers(), run());
    let mut unknown = Vec::new();
    let mut count = 0;
    for (place, text) in papers.sentences() {
        for found in prose::references(text).expect("references") {
            count += 1;
            let suite = run.suites.get(found.suite);
            if suite.and_then(|suite| suite.get(found.key)).is_none() {
                unknown.push(format!("{place}: the run has no {} {}", found.suite, found.key));
            }
        }
    }
    assert!(unknown.is_empty(), "{}", unknown.join("\n"));
    assert!(count > 50, "{count} references");
}

/// A measured number in a sentence of the table is a reference. Typed by hand are the papers' own,
/// which the exhibit has besides, and in a reason those of a profile, beside the tool that found
/// them.
#[test]
fn sentences_have_no_measured_number_by_hand() {
    let papers = papers();
    let mut typed = Vec::new();
    for exhibit in papers.paper.iter().flat_map(|paper| &paper.exhibit) {
        let mut known: BTreeSet<String> =
            exhibit.row.iter().filter_map(|row| row.published.map(short)).collect();
        let labels = exhibit.row.iter().map(|row| &row.label);
        for text in labels.chain([&exhibit.setting]) {
            known.extend(numbers(text).into_iter().map(|number| number.text.to_owned()));
        }
        for text in [&exhibit.holds, &exhibit.fails] {
            let found = measured_by_hand(text).into_iter().filter(|number| !known.contains(number));
            typed.extend(found.map(|number| format!("{}: {number}", exhibit.label)));
        }
    }
    for (key, reason) in papers.why.values().flatten() {
        for sentence in reason.split(". ") {
            if !PROFILERS.iter().any(|tool| sentence.contains(tool)) {
                let found = measured_by_hand(sentence);
                typed.extend(found.into_iter().map(|number| format!("why {key}: {number}")));
            }
        }
    }
    assert!(typed.is_empty(), "write them as {{SUITE KEY}}:\n{}", typed.join("\n"));
    assert_eq!(measured_by_hand("5 ms, {pool a} s, `6 ms`, 7 of 8 (9.5 %)"), ["5", "9.5"]);
}

/// The numbers of a sentence that were measured and are no references.
fn measured_by_hand(text: &str) -> Vec<String> {
    let mut plain = String::new();
    for part in text.split('{') {
        plain.push_str(part.split_once('}').map_or(part, |(_, behind)| behind));
    }
    let measured = numbers(&plain).into_iter().filter(|number| number.is_measured);
    measured.map(|number| number.text.to_owned()).collect()
}

#[test]
fn readme_quotes_the_run() {
    let errors = wrong_quotes(&file("README.md"), &run());
    assert!(errors.is_empty(), "{}", errors.join("\n"));
}

/// Guides may have numbers of other runs, which say how they were made; a line with keys has those
/// of the report.
#[test]
fn marked_lines_quote_the_run() {
    let run = run();
    for name in QUOTING {
        let errors = wrong_quotes(&marked_lines(&file(name)), &run);
        assert!(errors.is_empty(), "{name}:\n{}", errors.join("\n"));
    }
}

/// A text with nothing in place of each line that has no mark.
fn marked_lines(text: &str) -> String {
    let kept = text.lines().map(|line| if line.contains(MARK) { line } else { "" });
    kept.collect::<Vec<_>>().join("\n")
}

/// A row has no goal of its own for a key that has one in its suite: which of both is meant?
#[test]
fn rows_have_goals_that_suites_lack() {
    let run = run();
    let papers = papers();
    let rows = papers.paper.iter().flat_map(|paper| &paper.exhibit).flat_map(|it| &it.row);
    let twice: Vec<&str> = rows
        .filter(|row| row.goal.is_some())
        .filter(|row| {
            let found = run.suites.get(&row.suite).and_then(|suite| suite.get(&row.key));
            found.is_some_and(|found| found.measured.goal.is_some())
        })
        .map(|row| row.key.as_str())
        .collect();
    assert!(twice.is_empty(), "{twice:?}");
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
    let marked = |text: &str| errors(&marked_lines(text));
    assert_eq!(marked("it takes 3 ms\n20.5 times <!-- results: test ratio -->"), 1);
    assert_eq!(marked("it takes 3 ms\n20.4 times <!-- results: test ratio -->"), 0);
    assert_eq!(errors("it is 5× as fast"), 1);
    assert_eq!(errors("20.4 times as fast"), 1);
    assert_eq!(errors("on ext4, `3 ms`, x86-64, 1,000 kills, wasm32-wasip1"), 0);
}
