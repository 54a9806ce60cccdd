//! What was published beside what was measured, judged: the report, as it becomes JSON, HTML and
//! Markdown.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::machine::Machine;
use crate::number::{rounded, with_unit};
use crate::papers::{Better, Exhibit, Papers, Row, parse_goal};
use crate::prose::{self, Reference, Value};
use crate::results::{Done, Measured};
use crate::source;

/// A result of fewer values is not firm.
const FIRM_VALUES: u64 = 5;
/// Nor is one of a step during which others had more of the machine than this.
const FIRM_OTHERS: f64 = 0.10;
/// Nor is one whose largest value is more times its least than this.
const FIRM_SPREAD: f64 = 4.0;

/// Every measurement, by suite and key.
pub(crate) type Suites = BTreeMap<String, BTreeMap<String, Judged>>;

/// The whole report.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// The machine of most steps.
    pub machine: Machine,
    /// The source of most steps.
    pub source: String,
    /// When the first and the last step began, in seconds since 1970.
    pub between: (u64, u64),
    /// Steps, in the order of the table.
    pub steps: Vec<StepLine>,
    /// The papers.
    pub papers: Vec<PaperPart>,
    /// Goals that are missed, of suites and of rows, by suite and key.
    pub missed: Vec<Missed>,
    /// Every measurement, by suite and key.
    pub suites: BTreeMap<String, BTreeMap<String, Judged>>,
}

/// A measurement, and whether it is firm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Judged {
    /// As the suite printed it, to six digits.
    #[serde(flatten)]
    pub measured: Measured,
    /// Enough values that are not far apart, on a machine that did little else.
    pub firm: bool,
}

impl Judged {
    fn new(measured: &Measured, done: &Done) -> Judged {
        let firm = measured.n >= FIRM_VALUES
            && done.others <= FIRM_OTHERS
            && is_close(measured.min, measured.max);
        let kept = |value: Option<f64>| value.map(rounded);
        let Measured { median, min, max, .. } = *measured;
        let measured =
            Measured { median: kept(median), min: kept(min), max: kept(max), ..measured.clone() };
        Judged { measured, firm }
    }

    /// Whether the median meets its goal, if it has one.
    #[must_use]
    pub fn is_goal_met(&self) -> Option<bool> {
        meets(self.measured.goal.as_deref()?, self.measured.median?)
    }

    /// The median with its unit, behind a ~ if it is not firm.
    #[must_use]
    pub fn shown(&self) -> String {
        let median = self.measured.median.map(|value| with_unit(value, &self.measured.unit));
        match median {
            Some(median) => format!("{}{median}", mark(self.firm)),
            None => "-".to_owned(),
        }
    }
}

/// A goal that is missed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Missed {
    /// Suite of the key.
    pub suite: String,
    /// Key of the measurement.
    pub key: String,
    /// The median as it is shown, in the unit of the row if the goal is a row's.
    pub shown: String,
    /// What it should come to.
    pub goal: String,
    /// Why it does not, if that is known.
    pub why: Option<String>,
}

/// What stands before a number.
fn mark(is_firm: bool) -> &'static str {
    if is_firm { "" } else { "~" }
}

/// Whether the least and the largest value are of one sign, and the one further from zero is not
/// many times the other.
fn is_close(min: Option<f64>, max: Option<f64>) -> bool {
    let (Some(min), Some(max)) = (min, max) else { return true };
    let (near, far) = if min < 0.0 { (max, min) } else { (min, max) };
    near * far >= 0.0 && far.abs() <= FIRM_SPREAD * near.abs()
}

/// One line of the report about a step.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StepLine {
    /// `suite/section`.
    pub name: String,
    /// How long it took.
    pub seconds: f64,
    /// Which part of the machine others used, from 0 to 1.
    pub others: f64,
    /// Repetitions.
    pub runs: u32,
    /// Repetitions in a full run, if this one had fewer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full_runs: Option<u32>,
    /// Measurements.
    pub numbers: usize,
    /// Peers that took no part.
    pub missing: Vec<String>,
    /// Why there is nothing.
    pub failed: Option<String>,
    /// The source that it was built from, if that is not the report's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The machine, if that is not the report's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<Machine>,
    /// What its suite says about its numbers, tables in the paper's form among it.
    pub notes: Vec<String>,
}

impl StepLine {
    /// Which peers took no part, and what is unlike most of the report: few repetitions, another
    /// source or machine.
    pub(crate) fn remarks(&self) -> Vec<String> {
        let runs = self.full_runs.iter().map(|full| format!("{full} runs in a full run"));
        let named = |name: &String| format!("source {}", source::described(name));
        let source = self.source.iter().map(named);
        let machine = self.machine.iter().map(Machine::line);
        self.missing.iter().cloned().chain(runs).chain(source).chain(machine).collect()
    }

    fn suite(&self) -> &str {
        self.name.split('/').next().unwrap_or(&self.name)
    }
}

/// A paper of the report.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PaperPart {
    /// Short and unique.
    pub id: String,
    /// Its title.
    pub title: String,
    /// Who wrote it, and when.
    pub by: String,
    /// Its tables and figures.
    pub exhibits: Vec<ExhibitPart>,
}

/// A table or figure of the report.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ExhibitPart {
    /// As in the paper.
    pub label: String,
    /// What it shows.
    pub title: String,
    /// How the two sides differ.
    pub setting: String,
    /// Which way is up.
    pub better: Better,
    /// What the horizontal axis of its lines is of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub axis: Option<String>,
    /// Its numbers.
    pub rows: Vec<RowPart>,
    /// What comes of it.
    pub verdict: Verdict,
    /// One sentence on what holds and what does not.
    pub sentence: String,
}

/// What comes of a table or figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Every number is at least as good.
    Holds,
    /// Some number is not.
    Partly,
    /// No number is.
    Fails,
    /// Nothing of it was measured.
    Open,
    /// There is nothing to judge.
    Described,
}

/// A number of the paper, and ours.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RowPart {
    /// What it is of.
    pub label: String,
    /// The paper's, if it is a number.
    pub published: Option<f64>,
    /// The paper's in words.
    pub published_text: Option<String>,
    /// Unit of both.
    pub unit: String,
    /// `suite` and `key` of the measurement.
    pub key: (String, String),
    /// Ours.
    pub ours: Option<Ours>,
    /// How many times as good as the paper's ours is.
    pub times_as_good: Option<f64>,
    /// Whether ours is at least as good as the paper's, or meets its goal.
    pub is_good: Option<bool>,
    /// Why a goal is missed, if it is and that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Where it lies on the exhibit's axis.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<f64>,
    /// Which line it is a point of.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub line: String,
}

/// A measurement in the unit of its row.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Ours {
    /// The middle value.
    pub median: f64,
    /// The least value.
    pub min: f64,
    /// The largest value.
    pub max: f64,
    /// How many values there are.
    pub n: u64,
    /// What the median should come to.
    pub goal: Option<String>,
    /// The number of the goal, in the unit of the row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<f64>,
    /// As [`Judged::firm`].
    pub is_firm: bool,
}

impl Report {
    /// Joins the table of papers with what was measured.
    ///
    /// Only exhibits of whose suites at least one step was run are in it.
    #[must_use]
    pub fn new(papers: &Papers, done: &[Done]) -> Report {
        let mut suites = Suites::new();
        for done in done {
            let suite = suites.entry(done.suite.clone()).or_default();
            let found = |(key, one): (&String, &Measured)| (key.clone(), Judged::new(one, done));
            suite.extend(done.measured.iter().map(found));
        }
        let times = || done.iter().map(|done| done.at);
        let machines: Vec<String> = done.iter().map(|done| done.machine.line()).collect();
        let machine = most_frequent(machines.iter().map(String::as_str));
        let machine = done.iter().map(|done| &done.machine).find(|found| found.line() == machine);
        let source = most_frequent(done.iter().map(|done| done.source.as_str()));
        let report = Report {
            machine: machine.map_or_else(Machine::here, Clone::clone),
            source: source.to_owned(),
            between: (times().min().unwrap_or(0), times().max().unwrap_or(0)),
            steps: done.iter().map(|done| step_line(done, papers, source, machine)).collect(),
            papers: Vec::new(),
            missed: Vec::new(),
            suites,
        };
        report.renewed(papers)
    }

    /// The same measurements beside the table of papers as it is now. What a step is remarked for
    /// stays as it was.
    #[must_use]
    pub fn renewed(self, papers: &Papers) -> Report {
        let (suites, steps) = (&self.suites, &self.steps);
        let of_run =
            |exhibit: &&Exhibit| exhibit.row.iter().any(|row| suites.contains_key(&row.suite));
        let part = |exhibit: &Exhibit| exhibit_part(exhibit, papers, suites, steps);
        let parts = papers.paper.iter().filter_map(|paper| {
            let exhibits: Vec<ExhibitPart> =
                paper.exhibit.iter().filter(of_run).map(part).collect();
            (!exhibits.is_empty()).then(|| PaperPart {
                id: paper.id.clone(),
                title: paper.title.clone(),
                by: paper.by.clone(),
                exhibits,
            })
        });
        let (parts, missed) = (parts.collect(), missed(papers, suites));
        Report { papers: parts, missed, ..self }
    }

    /// How many steps had fewer repetitions than in a full run.
    #[must_use]
    pub fn quick_steps(&self) -> usize {
        self.steps.iter().filter(|step| step.full_runs.is_some()).count()
    }

    /// Tables and figures for which the paper has no number, so that our goals judge.
    #[must_use]
    pub fn judged_by_goals(&self) -> usize {
        let exhibits = self.papers.iter().flat_map(|paper| &paper.exhibits);
        let has_verdict =
            |it: &&ExhibitPart| !matches!(it.verdict, Verdict::Open | Verdict::Described);
        let has_number = |it: &&ExhibitPart| it.rows.iter().any(|row| row.published.is_some());
        exhibits.filter(has_verdict).filter(|it| !has_number(it)).count()
    }

    /// How many steps ran on another machine than most, and how many from another source.
    #[must_use]
    pub fn steps_of_others(&self) -> (usize, usize) {
        let count = |is_other: fn(&StepLine) -> bool| {
            self.steps.iter().filter(|step| is_other(step)).count()
        };
        (count(|step| step.machine.is_some()), count(|step| step.source.is_some()))
    }

    /// How many tables and figures came to a verdict.
    #[must_use]
    pub fn count(&self, verdict: Verdict) -> usize {
        let exhibits = self.papers.iter().flat_map(|paper| &paper.exhibits);
        exhibits.filter(|exhibit| exhibit.verdict == verdict).count()
    }

    /// How many steps were built from a tree that differed from its commit.
    #[must_use]
    pub fn steps_of_changed_source(&self) -> usize {
        let names = self.steps.iter().map(|step| step.source.as_ref().unwrap_or(&self.source));
        names.filter(|name| source::is_changed(name)).count()
    }

    /// Goals that are met, and all of them, those of rows among them.
    #[must_use]
    pub fn goals(&self) -> (usize, usize) {
        let judged = self.judged();
        (judged.iter().filter(|(_, is_met)| *is_met).count(), judged.len())
    }

    /// Goals that are met by numbers that are not firm.
    #[must_use]
    pub fn goals_met_loosely(&self) -> usize {
        self.judged().iter().filter(|(is_firm, is_met)| *is_met && !is_firm).count()
    }

    /// For each goal whether the number is firm, and whether it meets the goal.
    fn judged(&self) -> Vec<(bool, bool)> {
        let all = self.suites.values().flat_map(BTreeMap::values);
        let of_suites = all.filter_map(|found| Some((found.firm, found.is_goal_met()?)));
        let exhibits = self.papers.iter().flat_map(|paper| &paper.exhibits);
        let mut seen = BTreeSet::new();
        let of_rows = exhibits.flat_map(|exhibit| &exhibit.rows).filter_map(|row| {
            let (suite, key) = &row.key;
            let (ours, found) = (row.ours.as_ref()?, self.suites.get(suite)?.get(key)?);
            let goal = ours.goal.as_deref()?;
            let is_new = found.measured.goal.is_none() && seen.insert((suite, key, goal));
            Some((ours.is_firm, meets(goal, ours.median)?)).filter(|_| is_new)
        });
        of_suites.chain(of_rows).collect()
    }
}

/// The goals that are missed: those of the suites, and those that stand on a row because the suite
/// has none for its key.
fn missed(papers: &Papers, suites: &Suites) -> Vec<Missed> {
    let why = |suite: &str, key: &str| papers.why(suite, key).map(|why| filled(why, suites));
    let all = suites.iter().flat_map(|(suite, found)| found.iter().map(move |one| (suite, one)));
    let of_suites = all.filter(|(_, (_, found))| found.is_goal_met() == Some(false)).map(
        |(suite, (key, found))| Missed {
            suite: suite.clone(),
            key: key.clone(),
            shown: found.shown(),
            goal: found.measured.goal.clone().unwrap_or_default(),
            why: why(suite, key),
        },
    );
    let exhibits = papers.paper.iter().flat_map(|paper| &paper.exhibit);
    let of_rows = exhibits.flat_map(|exhibit| &exhibit.row).filter_map(|row| {
        let found = suites.get(&row.suite)?.get(&row.key)?;
        let goal = row.goal.as_ref().filter(|_| found.measured.goal.is_none())?;
        let median = found.measured.median? * row.scale;
        (meets(goal, median) == Some(false)).then(|| Missed {
            suite: row.suite.clone(),
            key: row.key.clone(),
            shown: format!("{}{}", mark(found.firm), with_unit(median, &row.unit)),
            goal: goal.clone(),
            why: why(&row.suite, &row.key),
        })
    });
    let mut missed: Vec<Missed> = of_suites.chain(of_rows).collect();
    missed.sort_by(|one, other| {
        (&one.suite, &one.key, &one.goal).cmp(&(&other.suite, &other.key, &other.goal))
    });
    // Several rows may stand for one measurement.
    missed.dedup_by(|one, other| {
        (&one.suite, &one.key, &one.goal) == (&other.suite, &other.key, &other.goal)
    });
    missed
}

/// Whether a value meets a goal.
fn meets(goal: &str, value: f64) -> Option<bool> {
    let (is_least, bound) = parse_goal(goal)?;
    Some(if is_least { value >= bound } else { value <= bound })
}

/// The word that is there most often; of several the first.
fn most_frequent<'a>(words: impl Iterator<Item = &'a str> + Clone) -> &'a str {
    let count = |word: &str| words.clone().filter(|other| *other == word).count();
    let mut most = ("", 0);
    for word in words.clone() {
        let count = count(word);
        if count > most.1 {
            most = (word, count);
        }
    }
    most.0
}

fn step_line(done: &Done, papers: &Papers, source: &str, machine: Option<&Machine>) -> StepLine {
    let full = papers.step.iter().find(|step| step.name() == done.step).map(|step| step.runs);
    StepLine {
        name: done.step.clone(),
        seconds: done.seconds,
        others: done.others,
        runs: done.runs,
        full_runs: full.filter(|full| done.runs < *full),
        numbers: done.measured.len(),
        missing: done.missing.clone(),
        failed: done.failed.clone(),
        source: (done.source != source).then(|| done.source.clone()),
        machine: (Some(&done.machine) != machine).then(|| done.machine.clone()),
        notes: done.notes.clone(),
    }
}

fn exhibit_part(
    exhibit: &Exhibit,
    papers: &Papers,
    suites: &Suites,
    steps: &[StepLine],
) -> ExhibitPart {
    let mut explained = BTreeSet::new();
    let rows: Vec<RowPart> = exhibit
        .row
        .iter()
        .map(|row| {
            let found = suites.get(&row.suite).and_then(|suite| suite.get(&row.key));
            let mut part = row_part(row, exhibit.better, found, papers);
            // A reason stands at the first of the rows that have it.
            part.why = part.why.map(|why| filled(&why, suites));
            part.why = part.why.filter(|why| explained.insert(why.clone()));
            part
        })
        .collect();
    let judged: Vec<bool> = rows.iter().filter_map(|row| row.is_good).collect();
    let good = judged.iter().filter(|good| **good).count();
    let is_measured = rows.iter().any(|row| row.ours.is_some());
    let verdict = match (is_measured, good) {
        (false, _) => Verdict::Open,
        (true, _) if judged.is_empty() => Verdict::Described,
        (true, 0) => Verdict::Fails,
        (true, good) if good == judged.len() => Verdict::Holds,
        (true, _) => Verdict::Partly,
    };
    let sentence = match verdict {
        Verdict::Holds | Verdict::Described => filled(&exhibit.holds, suites),
        Verdict::Partly | Verdict::Fails => {
            format!("{} ({good} of {} rows.)", filled(&exhibit.fails, suites), judged.len())
        }
        Verdict::Open => format!("Not measured in this run: {}.", why_open(exhibit, steps)),
    };
    ExhibitPart {
        label: exhibit.label.clone(),
        title: exhibit.title.clone(),
        setting: filled(&exhibit.setting, suites),
        better: exhibit.better,
        axis: exhibit.axis.clone(),
        rows,
        verdict,
        sentence,
    }
}

fn row_part(row: &Row, better: Better, found: Option<&Judged>, papers: &Papers) -> RowPart {
    let ours = found.and_then(|found| {
        let measured = &found.measured;
        let median = measured.median? * row.scale;
        Some(Ours {
            median,
            min: measured.min.map_or(median, |value| value * row.scale),
            max: measured.max.map_or(median, |value| value * row.scale),
            n: measured.n,
            goal: row.goal.clone().or_else(|| measured.goal.clone()),
            bound: match (&row.goal, &measured.goal) {
                (Some(goal), _) => parse_goal(goal).map(|(_, bound)| bound),
                (None, Some(goal)) => parse_goal(goal).map(|(_, bound)| bound * row.scale),
                (None, None) => None,
            },
            is_firm: found.firm,
        })
    });
    let times_as_good = ours.as_ref().zip(row.published).and_then(|(ours, published)| {
        let ratio = match better {
            Better::More => ours.median / published,
            Better::Less => published / ours.median,
            Better::Neither => return None,
        };
        ratio.is_finite().then_some(rounded(ratio))
    });
    let goal_met = match (&row.goal, &ours) {
        (Some(goal), Some(ours)) => meets(goal, ours.median),
        _ => found.and_then(Judged::is_goal_met),
    };
    let why = papers.why(&row.suite, &row.key).filter(|_| goal_met == Some(false));
    RowPart {
        label: row.label.clone(),
        published: row.published,
        published_text: row.published_text.clone(),
        unit: row.unit.clone(),
        key: (row.suite.clone(), row.key.clone()),
        ours,
        times_as_good,
        is_good: times_as_good.map(|times| times >= 1.0).or(goal_met),
        why: why.map(str::to_owned),
        at: row.at,
        line: row.line.clone(),
    }
}

fn why_open(exhibit: &Exhibit, steps: &[StepLine]) -> String {
    let of_exhibit = |step: &&StepLine| exhibit.row.iter().any(|row| row.suite == step.suite());
    let reasons: Vec<String> = steps
        .iter()
        .filter(of_exhibit)
        .filter_map(|step| Some(format!("{} failed: {}", step.name, step.failed.as_ref()?)))
        .collect();
    match reasons.is_empty() {
        // Which of the peers that a suite misses was the one is not known here.
        true => "its step is not in this run, or the list of steps names what it misses".to_owned(),
        false => reasons.join("; "),
    }
}

impl RowPart {
    /// Ours relative to the paper's, where neither more nor less is better.
    pub(crate) fn relative(&self) -> Option<f64> {
        let times = self.ours.as_ref()?.median / self.published?;
        (self.times_as_good.is_none() && times.is_finite()).then_some(times)
    }

    /// The paper's number as text.
    #[must_use]
    pub fn published_shown(&self) -> String {
        match (self.published, &self.published_text) {
            (Some(value), _) => with_unit(value, &self.unit),
            (None, Some(text)) => text.clone(),
            (None, None) => "-".to_owned(),
        }
    }

    /// Our number as text, behind a ~ if it is not firm, with its spread.
    #[must_use]
    pub fn ours_shown(&self) -> (String, String) {
        let Some(ours) = &self.ours else { return ("not measured".to_owned(), String::new()) };
        let shown = format!("{}{}", mark(ours.is_firm), with_unit(ours.median, &self.unit));
        match ours {
            ours if ours.n < 2 => (shown, "1 value".to_owned()),
            ours => (
                shown,
                format!(
                    "{} to {}, {} values",
                    crate::number::short(ours.min),
                    crate::number::short(ours.max),
                    ours.n
                ),
            ),
        }
    }
}

/// Seconds since 1970 as a date and a time of day, in UTC.
pub(crate) fn date(seconds: u64) -> String {
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    // Days since 0000-03-01 make leap days the last of their years.
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let of_era = shifted % 146_097;
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02} {:02}:{:02} UTC", of_day / 3600, of_day / 60 % 60)
}

/// A sentence of the table with the numbers of the run.
fn filled(text: &str, suites: &Suites) -> String {
    prose::filled(text, |reference| shown(suites, reference))
}

/// A number of the run in a sentence, behind a ~ if it is the median of what is not firm.
fn shown(suites: &Suites, reference: Reference<'_>) -> Option<String> {
    let judged = suites.get(reference.suite)?.get(reference.key)?;
    let measured = &judged.measured;
    let (value, mark) = match reference.value {
        Value::Median => (measured.median?, if judged.firm { "" } else { "~" }),
        Value::Least => (measured.min?, ""),
        Value::Largest => (measured.max?, ""),
    };
    // `1/s` is a unit for tables; a sentence says it in words.
    let unit = measured.unit.as_str();
    let unit = if unit == "1/s" { "a second" } else { unit };
    Some(format!("{mark}{}", with_unit(value, unit)))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const TABLE: &str = r#"
        [[step]]
        suite = "pool"
        section = "flush"
        runs = 15
        [[step]]
        suite = "trace"
        runs = 5
        [[paper]]
        id = "qnvram"
        title = "qNVRAM"
        by = "H. Luo <and others>"
        [[paper.exhibit]]
        label = "Section 3"
        title = "Emergency"
        setting = "a phone"
        better = "less"
        holds = "It holds."
        fails = "It does not."
        row = [
            { label = "20 MB", published = 1.3, unit = "s", suite = "pool", key = "flush_s" },
            { label = "ratio", unit = "x", suite = "pool", key = "ratio" },
        ]
        [[paper.exhibit]]
        label = "Figure 9"
        title = "Else"
        setting = "a phone"
        better = "more"
        holds = "It holds."
        fails = "It does not."
        row = [{ label = "a", published_text = "up to 2", unit = "x", suite = "trace", key = "a" }]
        [[paper.exhibit]]
        label = "Section 4"
        title = "A goal of the table"
        setting = "a phone"
        better = "more"
        holds = "It holds."
        fails = "It does not."
        row = [
            { label = "none", goal = ">= 2", unit = "s", suite = "pool", key = "missed", scale = 2.0 },
            { label = "again", unit = "s", suite = "pool", key = "missed" },
        ]
        [why.pool]
        "miss*" = "`strace` shows <90 %> in the disk."
    "#;

    fn sample_done(flush_s: f64, others: f64) -> Done {
        let measured = |median: f64, goal: Option<&str>| Measured {
            median: Some(median),
            min: Some(median / 2.0),
            max: Some(median * 2.0),
            n: 15,
            unit: "s".to_owned(),
            goal: goal.map(str::to_owned),
        };
        Done {
            step: "pool/flush".to_owned(),
            suite: "pool".to_owned(),
            runs: 15,
            source: "abc".to_owned(),
            at: 1_795_780_800,
            seconds: 3.0,
            others,
            machine: Machine::here(),
            measured: BTreeMap::from([
                ("flush_s".to_owned(), measured(flush_s, None)),
                ("ratio".to_owned(), measured(0.9, Some("<= 1"))),
                ("missed".to_owned(), measured(0.9, Some(">= 1"))),
            ]),
            notes: vec!["Figure <4>\n```\nWAL  1".to_owned()],
            missing: Vec::new(),
            failed: None,
        }
    }

    pub(crate) fn sample(flush_s: f64, others: f64) -> Report {
        let done = sample_done(flush_s, others);
        let failed = Done {
            step: "trace".to_owned(),
            suite: "trace".to_owned(),
            measured: BTreeMap::new(),
            notes: Vec::new(),
            failed: Some("no <root>".to_owned()),
            ..done.clone()
        };
        Report::new(&Papers::parse(TABLE).unwrap(), &[done, failed])
    }

    #[test]
    fn rows_are_judged_by_the_paper_and_by_goals() {
        let report = sample(0.013, 0.01);
        let exhibit = &report.papers[0].exhibits[0];
        assert_eq!(exhibit.verdict, Verdict::Holds);
        assert_eq!(exhibit.sentence, "It holds.");
        let row = &exhibit.rows[0];
        assert!((row.times_as_good.unwrap() - 100.0).abs() < 1e-9);
        assert_eq!(row.published_shown(), "1.3 s");
        assert_eq!(
            row.ours_shown(),
            ("0.013 s".to_owned(), "0.0065 to 0.026, 15 values".to_owned())
        );
        assert!(row.ours.as_ref().unwrap().is_firm);
        assert_eq!(report.goals(), (1, 2));

        let worse = sample(2.6, 0.01);
        let exhibit = &worse.papers[0].exhibits[0];
        assert_eq!(exhibit.verdict, Verdict::Partly);
        assert_eq!(exhibit.sentence, "It does not. (1 of 2 rows.)");
    }

    /// Where neither more nor less is better, a row has ours relative to the paper's.
    #[test]
    fn described_numbers_are_relative() {
        let table = TABLE.replace("better = \"less\"", "better = \"neither\"");
        let report = Report::new(&Papers::parse(&table).unwrap(), &[sample_done(0.013, 0.01)]);
        let row = &report.papers[0].exhibits[0].rows[0];
        assert_eq!(row.times_as_good, None);
        assert!((row.relative().unwrap() - 0.01).abs() < 1e-9);
        let judged = sample(0.013, 0.01);
        assert_eq!(judged.papers[0].exhibits[0].rows[0].relative(), None);
    }

    /// A step of another source than most says so.
    #[test]
    fn source_is_that_of_most_steps() {
        assert_eq!(most_frequent(["b", "a", "c", "a"].into_iter()), "a");
        assert_eq!(most_frequent(["b", "a"].into_iter()), "b");
        assert_eq!(most_frequent(std::iter::empty()), "");
        let done = |source: &str| Done { source: source.to_owned(), ..sample_done(0.013, 0.01) };
        let all = [done("new"), done("old"), done("old")];
        let report = Report::new(&Papers::parse(TABLE).unwrap(), &all);
        assert_eq!(report.source, "old");
        let remarks: Vec<Vec<String>> = report.steps.iter().map(StepLine::remarks).collect();
        assert_eq!(remarks, [vec!["source new".to_owned()], vec![], vec![]]);
    }

    /// A report is of the machine of most steps, and says which ones are of another.
    #[test]
    fn steps_of_another_machine_are_named() {
        let papers = Papers::parse(TABLE).unwrap();
        let (here, mut elsewhere) = (sample_done(4.0, 0.0), sample_done(4.0, 0.0));
        (elsewhere.machine.kernel, elsewhere.at) = ("1.0".to_owned(), here.at + 1);
        let report = Report::new(&papers, &[here.clone(), elsewhere, here]);
        assert_eq!(report.machine, Machine::here());
        let named: Vec<bool> = report.steps.iter().map(|step| step.machine.is_some()).collect();
        assert_eq!(named, [false, true, false]);
    }

    /// Numbers of a busy machine are shown, and never called firm.
    #[test]
    fn busy_machine_makes_nothing_firm() {
        let report = sample(0.013, 0.2);
        let rows = &report.papers[0].exhibits[0].rows;
        assert!(rows.iter().all(|row| !row.ours.as_ref().unwrap().is_firm));
        assert!(report.suites["pool"].values().all(|judged| !judged.firm));
        assert_eq!((report.goals(), report.goals_met_loosely()), ((1, 2), 1));
        assert_eq!(report.suites["pool"]["ratio"].shown(), "~0.9 s");
        assert_eq!(sample(0.013, 0.0).goals_met_loosely(), 0);
    }

    #[test]
    fn few_and_scattered_values_are_not_firm() {
        let is_firm = |n, min, max| {
            let one = Measured { n, min, max, ..sample_done(1.0, 0.0).measured["ratio"].clone() };
            Judged::new(&one, &sample_done(1.0, 0.0)).firm
        };
        assert!(is_firm(5, Some(1.0), Some(4.0)) && !is_firm(4, Some(1.0), Some(4.0)));
        assert!(!is_firm(5, Some(1.0), Some(4.1)));
        assert!(is_firm(5, Some(-4.0), Some(-1.0)) && !is_firm(5, Some(-4.1), Some(-1.0)));
        assert!(!is_firm(5, Some(-1.0), Some(1.0)) && !is_firm(5, Some(0.0), Some(1.0)));
        assert!(is_firm(5, Some(0.0), Some(0.0)) && is_firm(5, None, None));
    }

    #[test]
    fn missed_goals_come_with_their_reason() {
        let report = sample(0.013, 0.0);
        let why = "`strace` shows <90 %> in the disk.";
        let missed: Vec<_> =
            report.missed.iter().map(|one| (&*one.key, one.why.as_deref())).collect();
        assert_eq!(missed, [("missed", Some(why))]);
        assert_eq!(report.missed[0].shown, "0.9 s");
        // The table's goal counts in the row, in the row's unit.
        let [row, again] = &report.papers[0].exhibits[2].rows[..] else { panic!("two rows") };
        assert_eq!((again.is_good, &again.why), (Some(false), &None), "it is told once");
        assert_eq!((row.is_good, row.why.as_deref()), (Some(false), Some(why)));
        assert_eq!(row.ours.as_ref().unwrap().bound, Some(2.0));
    }

    /// A goal of a row is missed like one of a suite, in the row's unit; rows of one number are one
    /// goal, and a suite's goal goes before a row's.
    #[test]
    fn goals_of_rows_count() {
        let rows =
            r#"{ label = "20 MB", published = 1.3, unit = "s", suite = "pool", key = "flush_s" },"#;
        let with_goal = |unit: &str, scale: &str, goal: &str| {
            let rest =
                format!(r#"suite = "pool", key = "flush_s", scale = {scale}, goal = "{goal}""#);
            format!(r#"{{ label = "{goal}", unit = "{unit}", {rest} }},"#)
        };
        let (open, met) = (with_goal("ms", "1e3", "<= 5"), with_goal("s", "1.0", "<= 1"));
        let table = TABLE.replace(rows, &format!("{rows}{open}{open}{met}"));
        assert_ne!(table, TABLE);
        let report = Report::new(&Papers::parse(&table).unwrap(), &[sample_done(0.013, 0.0)]);
        let missed: Vec<_> = report
            .missed
            .iter()
            .map(|one| (one.key.as_str(), one.shown.as_str(), one.goal.as_str()))
            .collect();
        assert_eq!(missed, [("flush_s", "13 ms", "<= 5"), ("missed", "0.9 s", ">= 1")]);
        assert_eq!((report.goals(), report.goals_met_loosely()), ((2, 4), 0));
    }

    /// Numbers in sentences are those of the run, in each place that has sentences.
    #[test]
    fn sentences_have_the_numbers_of_the_run() {
        let table = TABLE
            .replace("setting = \"a phone\"", "setting = \"{pool ratio min}\"")
            .replace("It holds.", "It is {pool ratio}.")
            .replace("It does not.", "It is only {pool flush_s} or {trace a}.")
            .replace("<90 %> in the disk", "{pool missed}");
        let papers = Papers::parse(&table).unwrap();
        let part = |flush_s: f64, number: usize| {
            let report = Report::new(&papers, &[sample_done(flush_s, 0.0)]);
            report.papers[0].exhibits[number].clone()
        };
        assert_eq!(part(0.013, 0).setting, "0.45 s");
        assert_eq!(part(0.013, 0).sentence, "It is 0.9 s.");
        assert_eq!(part(2.6, 0).sentence, "It is only 2.6 s or (not measured). (1 of 2 rows.)");
        assert_eq!(part(0.013, 1).rows[0].why.as_deref(), Some("`strace` shows 0.9 s."));
        let report = Report::new(&papers, &[sample_done(0.013, 0.0)]);
        assert_eq!(report.missed[0].why.as_deref(), Some("`strace` shows 0.9 s."));
    }

    /// A report that is read again has what the table of papers says now, and else what it had.
    #[test]
    fn renewed_report_is_that_of_its_steps() {
        let text = |report: &Report| serde_json::to_string(report).unwrap();
        let report = sample(0.013, 0.2);
        let read: Report = serde_json::from_str(&text(&report)).unwrap();
        assert_eq!(text(&read.renewed(&Papers::parse(TABLE).unwrap())), text(&report));
        let table = TABLE.replace("It holds.", "It does hold.");
        let renewed = report.renewed(&Papers::parse(&table).unwrap());
        assert_eq!(renewed.papers[0].exhibits[0].sentence, "It does hold.");
    }

    /// The report names a source tree with uncommitted changes, of a single step and of most steps.
    #[test]
    fn changed_source_is_told() {
        let done = |source: &str| Done { source: source.to_owned(), ..sample_done(0.013, 0.01) };
        let papers = Papers::parse(TABLE).unwrap();
        let report = Report::new(&papers, &[done("a"), done("b+12"), done("a")]);
        assert_eq!(report.steps[1].remarks(), ["source b+12 (with uncommitted changes)"]);
        assert_eq!(report.steps_of_changed_source(), 1);
        let report = Report::new(&papers, &[done("a"), done("b+12"), done("b+12")]);
        assert_eq!(report.steps_of_changed_source(), 2);
    }

    /// The report counts steps of another machine of the same kind, if both steps have an id.
    #[test]
    fn machines_of_one_kind_are_told_apart() {
        let of = |id: Option<&str>| {
            let machine = Machine { id: id.map(str::to_owned), ..Machine::here() };
            Done { machine, ..sample_done(0.013, 0.0) }
        };
        let papers = Papers::parse(TABLE).unwrap();
        let report = Report::new(&papers, &[of(Some("1a")), of(Some("2b")), of(Some("1a"))]);
        assert!(report.machine.line().ends_with(", id 1a"), "{}", report.machine.line());
        assert_eq!(report.steps_of_others().0, 1);
        assert!(report.steps[1].remarks()[0].ends_with(", id 2b"));
        let report = Report::new(&papers, &[of(None), of(Some("2b"))]);
        assert_eq!((report.machine.id.as_deref(), report.steps_of_others().0), (None, 1));
    }

    /// What the JSON of a report says is what the report does.
    #[test]
    fn report_is_read_as_it_was_written() {
        let text = serde_json::to_string(&sample(0.013, 0.2)).unwrap();
        assert!(text.contains(r#""unit":"s","goal":"<= 1","firm":false"#), "{text}");
        let again: Report = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&again).unwrap(), text);
    }

    #[test]
    fn what_was_not_measured_says_why() {
        let report = sample(0.013, 0.0);
        let exhibit = &report.papers[0].exhibits[1];
        assert_eq!(exhibit.verdict, Verdict::Open);
        assert_eq!(exhibit.sentence, "Not measured in this run: trace failed: no <root>.");
        assert_eq!((report.count(Verdict::Holds), report.count(Verdict::Open)), (1, 1));
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00 UTC"),
            (951_827_696, "2000-02-29 12:34 UTC"),
            (1_795_780_800, "2026-11-27 12:00 UTC"),
            (4_107_542_400, "2100-03-01 00:00 UTC"),
        ] {
            assert_eq!(date(seconds), text);
        }
    }

    #[test]
    fn references_become_numbers_of_the_run() {
        let suites = sample(0.013, 0.01).suites;
        for (text, shown) in [
            ("It takes {pool flush_s}.", "It takes 0.013 s."),
            ("{pool flush_s min} to {pool flush_s max}", "0.0065 s to 0.026 s"),
            ("{pool other}, {heap flush_s}", "(not measured), (not measured)"),
            ("no number", "no number"),
            ("", ""),
        ] {
            assert_eq!(filled(text, &suites), shown);
        }
        // What is not firm has its mark.
        let busy = sample(0.013, 0.5).suites;
        assert_eq!(filled("{pool flush_s}, {pool flush_s min}", &busy), "~0.013 s, 0.0065 s");
    }

    #[test]
    fn rates_are_said_in_words() {
        let mut suites = sample(0.013, 0.0).suites;
        let pool = suites.get_mut("pool").unwrap();
        pool.get_mut("flush_s").unwrap().measured.unit = "1/s".to_owned();
        assert_eq!(filled("{pool flush_s}", &suites), "0.013 a second");
    }
}
