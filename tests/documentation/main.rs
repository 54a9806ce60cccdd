//! The commands of README and guides, run as they are printed, with their output compared: apart
//! from paths, dates and random values. `markdown` says how a document tells the test what it
//! needs.
//!
//! A document that is wrong says with what: the test prints the line, the command, what the
//! document shows and what was printed.

#![allow(
    clippy::unwrap_used,
    reason = "a failed step fails the test, and the panic names its line"
)]

mod compare;
mod markdown;
mod stage;

use std::fs;

use compare::Rules;
use markdown::{Command, Step, steps};
use stage::{Stage, clone};

/// Guarantee: project/commands-run
#[test]
fn readme() {
    check("README.md");
}

#[test]
fn guide_to_heaps() {
    check("docs/guides/heaps.md");
}

#[test]
fn guide_to_applets() {
    check("docs/guides/applets.md");
}

#[test]
fn guide_to_keeper() {
    check("keeper/README.md");
}

/// Guarantee: project/commands-run
#[test]
fn guide_to_sqlite() {
    check("sqlite/README.md");
}

#[test]
fn guide_to_sqlite_in_devices() {
    check("sqlite/embedded.md");
}

/// Guarantee: project/commands-run
#[test]
fn guide_to_trace() {
    check("trace/README.md");
}

/// Guarantee: project/commands-run
#[test]
fn guide_to_documents() {
    check("documents/README.md");
}

/// Guarantee: project/commands-run
#[test]
fn guide_to_pages() {
    check("documents/pages.md");
}

#[test]
fn guide_to_the_window() {
    check("documents/window.md");
}

#[test]
fn guide_to_reserved_ram() {
    check("docs/guides/reserved-ram.md");
}

#[test]
fn guide_to_the_failure_lab() {
    check("docs/guides/failure-lab.md");
}

/// A new guide is checked, too.
///
/// Guarantee: project/commands-run
#[test]
fn every_guide_is_checked() {
    let source = include_str!("main.rs");
    for folder in ["docs/guides", "documents", "keeper", "sqlite", "trace"] {
        for entry in fs::read_dir(clone().join(folder)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let is_checked = source.contains(&format!("check(\"{folder}/{name}\")"));
            assert!(is_checked || !name.ends_with(".md"), "no test runs {folder}/{name}");
        }
    }
}

/// Runs a document's commands and fails with all differences at once.
fn check(document: &str) {
    let text = fs::read_to_string(clone().join(document)).unwrap();
    let steps = steps(&text).unwrap_or_else(|why| panic!("{document}: {why}"));
    let rules = Rules::new();
    let mut stage = Stage::new();
    let mut differences = Vec::new();
    for step in steps {
        match step {
            Step::File { name, content } => stage.write(&name, &content),
            Step::NotRun { line, reason } => println!("not run: {document}:{line}: {reason}"),
            Step::RunBy { line, file, test } => {
                let source = fs::read_to_string(clone().join(&file)).unwrap_or_default();
                let there = source.contains(&format!("fn {test}()"));
                assert!(there, "{document}:{line}: there is no test {test} in {file}");
            }
            Step::Setup { line, command } => {
                let (status, output) = stage.run(&command);
                assert_eq!(status, 0, "{document}:{line}: `{command}` failed: {output}");
            }
            Step::Block { commands, numbers_vary, status_max } => {
                for command in commands {
                    let (status, output) = stage.run(&command.text);
                    for line in output.lines().filter(|line| line.starts_with("not run: ")) {
                        println!("{line}");
                    }
                    let failed = !(0..=status_max).contains(&status);
                    differences.extend(match &command.output {
                        None => failed.then(|| failure(&command, status, &output)),
                        Some(shown) => {
                            let [shown, printed] =
                                [shown, &output].map(|text| rules.essence(text, numbers_vary));
                            (shown != printed).then(|| difference(&command, &output))
                        }
                    });
                }
            }
        }
    }
    let differences: Vec<_> = differences.iter().map(|text| format!("{document}:{text}")).collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// Of a command whose output it does not show a document promises that it succeeds.
fn failure(command: &Command, status: i32, output: &str) -> String {
    format!("{}: `{}` fails with {status}:\n{output}", command.line, command.text)
}

fn difference(command: &Command, output: &str) -> String {
    let Command { line, text, output: shown } = command;
    let shown = shown.as_deref().unwrap_or_default();
    format!("{line}: `{text}` is said to print\n{shown}and prints\n{output}")
}
