//! `papers.toml`: what was published, which measurement stands beside each number, and which steps
//! a run has.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Deserialize;

use crate::error::{ReportError, while_doing};
use crate::prose;

/// Where the table is in the source tree.
pub const PATH: &str = "bench/papers/papers.toml";

/// The whole table.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Papers {
    /// What a run is made of, in order.
    pub step: Vec<Step>,
    /// The papers.
    pub paper: Vec<Paper>,
    /// Why goals are missed: for a suite and a key, or a key's beginning and `*`, where the time or
    /// the bytes go, and which command shows it; as in [`prose`].
    #[serde(default)]
    pub why: BTreeMap<String, BTreeMap<String, String>>,
}

/// One process of a run: a section of a suite.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Suite of `cargo xtask bench`.
    pub suite: String,
    /// Its section; none for a suite without sections.
    #[serde(default)]
    pub section: Option<String>,
    /// Repetitions in a full run.
    pub runs: u32,
    /// Repetitions in a quick run; a step without does not belong to one.
    #[serde(default)]
    pub quick_runs: Option<u32>,
}

impl Step {
    /// `suite/section`.
    #[must_use]
    pub fn name(&self) -> String {
        match &self.section {
            Some(section) => format!("{}/{section}", self.suite),
            None => self.suite.clone(),
        }
    }
}

/// A paper.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paper {
    /// Short and unique, for links.
    pub id: String,
    /// Its title.
    pub title: String,
    /// Who wrote it, and when.
    pub by: String,
    /// Tables and figures, in its order.
    pub exhibit: Vec<Exhibit>,
}

/// A table or a figure.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exhibit {
    /// As in the paper: `Table 2`, `Figure 5`.
    pub label: String,
    /// What it shows.
    pub title: String,
    /// How the two sides differ: machine, workload, what is counted; as in [`prose`].
    pub setting: String,
    /// Whether a larger number is the better one.
    pub better: Better,
    /// What the horizontal axis is of, with its unit, where the exhibit is of lines.
    #[serde(default)]
    pub axis: Option<String>,
    /// Its numbers.
    pub row: Vec<Row>,
    /// What is said when every row is at least as good as the paper's (or meets our goal, where the
    /// paper has no number); as in [`prose`].
    pub holds: String,
    /// What is said when one is not; as in [`prose`].
    pub fails: String,
}

/// Which way is up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// A larger number.
    More,
    /// A smaller number.
    Less,
    /// Neither: the number describes.
    Neither,
}

/// A number of the paper and the measurement beside it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// What the number is of.
    pub label: String,
    /// What the paper has for it, if it has a number.
    #[serde(default)]
    pub published: Option<f64>,
    /// What the paper has for it in words, where it is no single number.
    #[serde(default)]
    pub published_text: Option<String>,
    /// Unit of both.
    pub unit: String,
    /// Suite that measures it.
    pub suite: String,
    /// Key of the measurement.
    pub key: String,
    /// The measurement is multiplied by this to be in the unit.
    #[serde(default = "one")]
    pub scale: f64,
    /// What it should come to, in the unit, where the suite has no goal for the key.
    #[serde(default)]
    pub goal: Option<String>,
    /// Where the number lies on the exhibit's axis, for a row that is a point of a line.
    #[serde(default)]
    pub at: Option<f64>,
    /// Which line of the exhibit it is a point of.
    #[serde(default)]
    pub line: String,
}

fn one() -> f64 {
    1.0
}

impl Papers {
    /// Reads the table of a source tree.
    ///
    /// # Errors
    /// [`ReportError::NoSource`] when there is none, [`ReportError::Papers`] when it is not what it
    /// should be.
    pub fn of_source(source: &Path) -> Result<Papers, ReportError> {
        let path = source.join(PATH);
        if !path.is_file() {
            return Err(ReportError::NoSource { directory: source.to_owned() });
        }
        let text = std::fs::read_to_string(&path)
            .map_err(while_doing(format!("cannot read {}", path.display())))?;
        Papers::parse(&text).map_err(|reason| ReportError::Papers { path, reason })
    }

    /// Reads the table from its text.
    ///
    /// # Errors
    /// What is wrong with it: its form, a step or an exhibit that is there twice, a row whose suite
    /// no step runs or that has both a number and words of the paper, a goal that is none, points
    /// without an axis, a reason for a suite or key that cannot be, a sentence with what is no
    /// reference or refers to a suite that no step runs.
    pub fn parse(text: &str) -> Result<Papers, String> {
        let papers: Papers = toml::from_str(text).map_err(|error| error.to_string())?;
        let mut steps = BTreeSet::new();
        for step in &papers.step {
            if !steps.insert(step.name()) {
                return Err(format!("the step {} is there twice", step.name()));
            }
            if step.runs == 0 || step.quick_runs == Some(0) {
                return Err(format!("the step {} has no runs", step.name()));
            }
        }
        let suites: BTreeSet<&str> = papers.step.iter().map(|step| step.suite.as_str()).collect();
        let mut exhibits = BTreeSet::new();
        for paper in &papers.paper {
            for exhibit in &paper.exhibit {
                let name = format!("{}: {} ({})", paper.id, exhibit.label, exhibit.title);
                if exhibit.row.is_empty() {
                    return Err(format!("{name} has no rows"));
                }
                for row in &exhibit.row {
                    if !suites.contains(row.suite.as_str()) {
                        return Err(format!("{name}: no step runs the suite {}", row.suite));
                    }
                    if row.published.is_some() && row.published_text.is_some() {
                        return Err(format!("{name}, {}: a number and words", row.label));
                    }
                    if row.goal.as_deref().is_some_and(|goal| parse_goal(goal).is_none()) {
                        return Err(format!("{name}, {}: a goal is `>= 3` or `<= 3`", row.label));
                    }
                    if row.at.is_some() && exhibit.axis.is_none() {
                        return Err(format!("{name}, {}: a point without an axis", row.label));
                    }
                }
                if !exhibits.insert(name.clone()) {
                    return Err(format!("{name} is there twice"));
                }
            }
        }
        for (suite, reasons) in &papers.why {
            if !suites.contains(suite.as_str()) {
                return Err(format!("why.{suite}: no step runs the suite"));
            }
            let is_wrong = |(key, text): &(&String, &String)| {
                key.trim_end_matches('*').contains('*') || text.trim().is_empty()
            };
            if let Some((key, _)) = reasons.iter().find(is_wrong) {
                return Err(format!("why.{suite}.{key}: no text, or a `*` inside of the key"));
            }
        }
        for (place, text) in papers.sentences() {
            let found = prose::references(text).map_err(|reason| format!("{place}: {reason}"))?;
            if let Some(unknown) = found.iter().find(|found| !suites.contains(found.suite)) {
                return Err(format!("{place}: no step runs the suite {}", unknown.suite));
            }
        }
        Ok(papers)
    }

    /// All sentences that may refer to numbers of a run, each with where it stands.
    #[must_use]
    pub fn sentences(&self) -> Vec<(String, &str)> {
        let mut sentences = Vec::new();
        for paper in &self.paper {
            for exhibit in &paper.exhibit {
                let Exhibit { label, setting, holds, fails, .. } = exhibit;
                for (name, text) in [("setting", setting), ("holds", holds), ("fails", fails)] {
                    sentences.push((format!("{}: {label}, {name}", paper.id), text.as_str()));
                }
            }
        }
        for (suite, reasons) in &self.why {
            for (key, text) in reasons {
                sentences.push((format!("why.{suite}.{key}"), text.as_str()));
            }
        }
        sentences
    }

    /// Why the goal of a key is missed, if the table says so: of the key itself, or of the longest
    /// beginning that it has.
    #[must_use]
    pub fn why(&self, suite: &str, key: &str) -> Option<&str> {
        let reasons = self.why.get(suite)?;
        let longest = reasons
            .iter()
            .filter_map(|(pattern, text)| Some((pattern.strip_suffix('*')?, text)))
            .filter(|(beginning, _)| key.starts_with(beginning))
            .max_by_key(|(beginning, _)| beginning.len());
        reasons.get(key).or(longest.map(|(_, text)| text)).map(String::as_str)
    }

    /// The steps of a run: of the suites that are named (all if none is), and in a quick run those
    /// that belong to one. Each comes with its repetitions.
    ///
    /// # Errors
    /// [`ReportError::NoPart`].
    pub fn plan(&self, suites: &[String], quick: bool) -> Result<Vec<(Step, u32)>, ReportError> {
        let known: BTreeSet<&str> = self.step.iter().map(|step| step.suite.as_str()).collect();
        if let Some(name) = suites.iter().find(|suite| !known.contains(suite.as_str())) {
            let known = known.into_iter().collect::<Vec<_>>().join(", ");
            return Err(ReportError::NoPart { name: name.clone(), known });
        }
        let steps =
            self.step.iter().filter(|step| suites.is_empty() || suites.contains(&step.suite));
        let with_runs = steps.filter_map(|step| {
            let runs = if quick { step.quick_runs? } else { step.runs };
            Some((step.clone(), runs))
        });
        Ok(with_runs.collect())
    }
}

/// Whether a goal is the least that will do, and its number: `>= 3` and `<= 3` are goals.
pub(crate) fn parse_goal(goal: &str) -> Option<(bool, f64)> {
    let (sign, bound) = goal.split_once(' ')?;
    let bound: f64 = bound.parse().ok()?;
    match sign {
        ">=" => Some((true, bound)),
        "<=" => Some((false, bound)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = r#"
        [[step]]
        suite = "pool"
        section = "flush"
        runs = 15
        quick_runs = 1
        [[step]]
        suite = "slow"
        runs = 5
        [[paper]]
        id = "qnvram"
        title = "qNVRAM"
        by = "H. Luo"
        [[paper.exhibit]]
        label = "Section 3"
        title = "Emergency"
        setting = "phone"
        better = "less"
        holds = "yes"
        fails = "no"
        [[paper.exhibit.row]]
        label = "20 MB"
        published = 1.3
        unit = "s"
        suite = "pool"
        key = "flush_20mb_s"
    "#;

    /// The table in the source tree is one that a run can follow.
    #[test]
    fn shipped_table_is_sound() {
        let papers = Papers::parse(include_str!("../papers.toml")).unwrap();
        assert_eq!(papers.paper.len(), 5);
        assert!(!papers.plan(&[], true).unwrap().is_empty());
    }

    #[test]
    fn plan_has_the_steps_that_were_asked_for() {
        let papers = Papers::parse(SMALL).unwrap();
        let names = |suites: &[&str], quick| -> Vec<(String, u32)> {
            let suites: Vec<String> = suites.iter().map(|&suite| suite.to_owned()).collect();
            let plan = papers.plan(&suites, quick).unwrap();
            plan.into_iter().map(|(step, runs)| (step.name(), runs)).collect()
        };
        assert_eq!(names(&[], false), [("pool/flush".to_owned(), 15), ("slow".to_owned(), 5)]);
        assert_eq!(names(&[], true), [("pool/flush".to_owned(), 1)]);
        assert_eq!(names(&["slow"], false), [("slow".to_owned(), 5)]);
        let other = papers.plan(&["heap".to_owned()], false).unwrap_err().to_string();
        assert!(other.starts_with("the suite heap has no part in a report"), "{other}");
        assert!(other.ends_with("these have: pool, slow"), "{other}");
    }

    #[test]
    fn unsound_tables_are_refused() {
        let twice = SMALL.replace("suite = \"slow\"", "suite = \"pool\"\nsection = \"flush\"");
        let no_suite =
            SMALL.replacen("suite = \"pool\"\n        key", "suite = \"dice\"\n        key", 1);
        let both = SMALL.replace("unit = \"s\"", "unit = \"s\"\npublished_text = \"1 s\"");
        let unknown = SMALL.replace("unit = \"s\"", "unit = \"s\"\ncolour = 3");
        let idle = SMALL.replace("runs = 5", "runs = 0");
        let point = SMALL.replace("unit = \"s\"", "unit = \"s\"\nat = 20.0");
        let goal = SMALL.replace("unit = \"s\"", "unit = \"s\"\ngoal = \"> 3\"");
        let setting = SMALL.replace("setting = \"phone\"", "setting = \"{pool flush_s\"");
        let reason = |suite, key, text| format!("{SMALL}\n[why.{suite}]\n\"{key}\" = '{text}'");
        for (text, complaint) in [
            (twice, "the step pool/flush is there twice"),
            (no_suite, "no step runs the suite dice"),
            (both, "a number and words"),
            (unknown, "colour"),
            (idle, "the step slow has no runs"),
            (goal, "a goal is `>= 3` or `<= 3`"),
            (point, "a point without an axis"),
            (reason("dice", "a", "b"), "why.dice: no step runs the suite"),
            (reason("pool", "a*b", "b"), "why.pool.a*b: "),
            (reason("pool", "a", " "), "why.pool.a: no text"),
            (reason("pool", "a", "{pool}"), "why.pool.a: {pool} is no reference"),
            (reason("pool", "a", "{dice a}"), "why.pool.a: no step runs the suite dice"),
            (setting, "qnvram: Section 3, setting: a brace"),
        ] {
            let error = Papers::parse(&text).unwrap_err();
            assert!(error.contains(complaint), "{error}");
        }
    }

    /// A key has its own reason, or that of the longest beginning.
    #[test]
    fn reasons_are_found_by_key_and_beginning() {
        let reasons = "[why.pool]\n'flush_*' = 'all'\n'flush_2*' = 'twenty'\nflush_2_s = 'it'";
        let papers = Papers::parse(&format!("{SMALL}\n{reasons}")).unwrap();
        for (suite, key, why) in [
            ("pool", "flush_2_s", Some("it")),
            ("pool", "flush_20mb_s", Some("twenty")),
            ("pool", "flush_1_s", Some("all")),
            ("pool", "restore_s", None),
            ("slow", "flush_1_s", None),
        ] {
            assert_eq!(papers.why(suite, key), why, "{key}");
        }
    }
}
