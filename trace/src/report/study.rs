//! The study's own figures, to set a report beside: its tables 4 to 8, and what its text says of
//! the budgets. Which study that is says [`CITATION`].
//!
//! Invariant: the figures are data (`data/study.tsv`) as they were published, where they do not add
//! up, too.

use std::str::FromStr;

use super::document::Report;
use super::table::Table;
use super::text;
use crate::classes::{Class, Subclass};
use crate::matrix::document::Platform;

/// The study, in full.
pub const CITATION: &str = "V. Dubeyko, C. Guyot, L. Cargnini, A. Manzanares: POSIX-based Operating System in the \
    environment of NVM/SCM memory, 2017 (arXiv:1712.07759)";
/// The same, where there is little room.
pub const SHORT_CITATION: &str = "Dubeyko et al., 2017";

static TEXT: &str = include_str!("../../data/study.tsv");

/// The programs that were studied.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Case {
    /// A software centre installs a package.
    Installation,
    /// A viewer of differences compares two folders.
    Diff,
    /// A browser looks for something.
    Browser,
    /// A spreadsheet is filled and stored.
    Office,
    /// `make` builds a project.
    Compilation,
}

impl Case {
    /// All of them.
    pub const ALL: [Case; 5] =
        [Case::Installation, Case::Diff, Case::Browser, Case::Office, Case::Compilation];

    /// Short.
    #[must_use]
    pub const fn id(self) -> &'static str {
        match self {
            Case::Installation => "installation",
            Case::Diff => "diff",
            Case::Browser => "browser",
            Case::Office => "office",
            Case::Compilation => "compilation",
        }
    }
}

impl FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Case, String> {
        let found = Case::ALL.into_iter().find(|case| case.id() == text);
        found.ok_or_else(|| format!("cases are {}", Case::ALL.map(Case::id).join(", ")))
    }
}

/// A row, of the study or of a report; what is not known is None.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Figures {
    calls: Option<u64>,
    frequency: Option<u64>,
    frequency_percent: Option<f64>,
    time_percent: Option<f64>,
    awake_percent: Option<f64>,
}

/// Rows of the study's tables.
const ROWS: [(&str, &str); 9] = [
    ("process", "  Process/Thread"),
    ("memory", "  Memory"),
    ("sync", "  Synchronization"),
    ("signal", "  Signal"),
    ("socket", "  Socket"),
    ("file-object", "  File object"),
    ("os", "OS related"),
    ("metadata", "Metadata related"),
    ("data", "User data related"),
];

fn published(case: Case, row: &str) -> Figures {
    let line = TEXT
        .lines()
        .map(|line| line.split('\t').collect::<Vec<_>>())
        .find(|fields| fields[..2] == [case.id(), row]);
    let Some(fields) = line else { return Figures::default() };
    let number = |index: usize| fields.get(index).and_then(|field| field.parse().ok());
    let percent = |index: usize| fields.get(index).and_then(|field| field.parse().ok());
    let mut figures = Figures {
        calls: number(2),
        frequency: number(3),
        time_percent: percent(4),
        frequency_percent: percent(5),
        awake_percent: percent(6),
    };
    if figures.frequency_percent.is_none() {
        let all: u64 =
            Class::ALL.iter().filter_map(|class| published(case, class.id()).frequency).sum();
        figures.frequency_percent =
            figures.frequency.map(|frequency| frequency as f64 * 100.0 / all.max(1) as f64);
    }
    figures
}

fn of_report(report: &Report, row: &str) -> Figures {
    let class =
        report.classes.iter().find(|found| found.class.id() == row).map(|found| &found.sums);
    let part =
        report.subclasses.iter().find(|found| found.subclass.id() == row).map(|found| &found.sums);
    let Some(sums) = class.or(part) else { return Figures::default() };
    Figures {
        calls: Some(sums.distinct),
        frequency: Some(sums.calls),
        frequency_percent: Some(sums.calls_percent),
        time_percent: Some(sums.time_percent),
        awake_percent: Some(sums.awake_percent),
    }
}

fn of_platform(platform: &Platform, row: &str) -> Figures {
    let distinct = |of: &dyn Fn(Subclass) -> bool| -> u64 {
        platform
            .subclasses
            .iter()
            .filter(|found| of(found.subclass))
            .map(|found| found.distinct)
            .sum()
    };
    let figures = |calls, figures: &crate::diff::Figures, percents: [f64; 3]| Figures {
        calls: Some(calls),
        frequency: Some(figures.calls.value as u64),
        frequency_percent: Some(percents[0]),
        time_percent: Some(percents[1]),
        awake_percent: Some(percents[2]),
    };
    if let Some(found) = platform.classes.iter().find(|found| found.class.id() == row) {
        let percents = [found.calls_percent, found.time_percent, found.awake_percent];
        return figures(distinct(&|part| part.class() == found.class), &found.figures, percents);
    }
    let found = platform.subclasses.iter().find(|found| found.subclass.id() == row);
    found.map_or(Figures::default(), |found| {
        let percents = [found.calls_percent, found.time_percent, found.awake_percent];
        figures(found.distinct, &found.figures, percents)
    })
}

/// A report beside the study's table of a case.
#[must_use]
pub fn beside_report(report: &Report, case: Case, width: usize, colour: bool) -> String {
    table(case, "here", &|row| of_report(report, row), width, colour)
}

/// The runs on a platform beside the study's table of a case.
#[must_use]
pub fn beside_platform(platform: &Platform, case: Case, width: usize, colour: bool) -> String {
    table(case, &platform.side.name, &|row| of_platform(platform, row), width, colour)
}

fn table(
    case: Case,
    name: &str,
    here: &dyn Fn(&str) -> Figures,
    width: usize,
    colour: bool,
) -> String {
    let mut table =
        Table::new(&["", "kinds", "%", "time %", "awake %", "kinds", "%", "time %", "awake %"]);
    let count = |count: Option<u64>| count.map_or("-".to_owned(), text::count_or_blank);
    let percent = |percent: Option<f64>| percent.map_or("-".to_owned(), text::percent);
    for (row, title) in ROWS {
        let (here, there) = (here(row), published(case, row));
        let cells = [
            title.to_owned(),
            count(here.calls),
            percent(here.frequency_percent),
            percent(here.time_percent),
            percent(here.awake_percent),
            count(there.calls),
            percent(there.frequency_percent),
            percent(there.time_percent),
            percent(there.awake_percent),
        ];
        if title.starts_with(' ') { table.row(cells) } else { table.strong_row(cells) }
    }
    let title =
        format!("{}: {} (left), and {SHORT_CITATION} (right)", case.id(), text::plain(name));
    let key = format!("kinds: different calls; %: of all calls. The study is {CITATION}.");
    let (title, table) = (text::cut(&title, width), table.render(width, colour));
    format!("\n{title}\n{table}{}", text::paragraph(&key, width))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All rows of the study's tables are present, and each sum is the sum of its parts.
    #[test]
    fn study_rows_are_complete_and_add_up() {
        for case in Case::ALL {
            assert_eq!(case.id().parse(), Ok(case));
            let mut parts = 0;
            for (row, _) in ROWS {
                let figures = published(case, row);
                assert!(
                    figures.frequency.is_some() && figures.time_percent.is_some(),
                    "{case:?} {row}"
                );
                if row == "os" {
                    assert_eq!(figures.frequency, Some(parts), "{case:?}");
                }
                parts += figures.frequency.unwrap_or(0);
            }
            let awake: f64 = Class::ALL
                .iter()
                .filter_map(|class| published(case, class.id()).awake_percent)
                .sum();
            assert!((awake - 100.0).abs() < 0.1, "{case:?} {awake}");
        }
        assert!("lunch".parse::<Case>().unwrap_err().contains("office"));
    }

    #[test]
    fn a_report_beside_the_study_fits_the_terminal() {
        let report = super::super::samples::report();
        let text = beside_report(&report, Case::Compilation, 80, false);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("61.16") && !text.contains('…'), "nothing gives way: {text}");
    }
}
