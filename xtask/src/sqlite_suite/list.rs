//! The list of test files that pass, which never gets shorter, and the document with the reasons of
//! those that do not.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::failure::Result;

use super::build::cannot;
use super::files::{FileResult, RunMode};

/// One name a line, with the word `released` behind it where the file is run in that way; `#`
/// begins a remark.
pub(crate) const PASSING: &str = "sqlite/tests/passing.txt";
/// Each file that is not in the list is named there, between backticks, with the reason.
pub(crate) const REASONS: &str = "docs/sqlite-suite.md";
const HEADING: &str = "\
# Files of SQLite's own test suite that pass with our VFS as the default one. `cargo xtask sqlite-suite` fails when one of them
# does not, and says which others do; `--write` adds those. Nothing is ever taken out. In those that say `released`, a database
# is asked to release its file before a test looks at the file itself (xtask/src/sqlite_suite/released.tcl).
";
const RELEASED: &str = "released";

/// The files that pass, and how they are run.
pub(crate) type Listed = BTreeMap<String, RunMode>;

/// What a run means, by the list.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// Listed, and passed.
    pub(crate) kept: usize,
    /// Listed, and did not pass; these fail the run.
    pub(crate) lost: Vec<String>,
    /// Passed, and are not listed yet.
    pub(crate) gained: Vec<(String, RunMode)>,
    /// Neither listed nor passed.
    pub(crate) failing: Vec<String>,
}

impl Verdict {
    pub(crate) fn of(ran: &[FileResult], listed: &Listed) -> Verdict {
        let mut verdict = Verdict::default();
        for FileResult { name, way, failed, .. } in ran {
            match (listed.contains_key(name), failed) {
                (true, None) => verdict.kept += 1,
                (true, Some(_)) => verdict.lost.push(name.clone()),
                (false, None) => verdict.gained.push((name.clone(), *way)),
                (false, Some(_)) => verdict.failing.push(name.clone()),
            }
        }
        verdict
    }
}

pub(crate) fn read(root: &Path) -> Result<Listed> {
    let path = root.join(PASSING);
    let text = fs::read_to_string(&path).map_err(|error| cannot("read", &path, &error))?;
    Ok(parse(&text))
}

fn parse(text: &str) -> Listed {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or("").split_whitespace());
    let named = lines.filter_map(|mut words| Some((words.next()?.to_owned(), words.next())));
    let way = |word| if word == Some(RELEASED) { RunMode::Released } else { RunMode::AsItIs };
    named.map(|(name, word)| (name, way(word))).collect()
}

/// Adds names to the list.
pub(crate) fn add(root: &Path, listed: &Listed, gained: &[(String, RunMode)]) -> Result<()> {
    let path = root.join(PASSING);
    let mut all = listed.clone();
    all.extend(gained.iter().cloned());
    let lines: String = all.iter().map(|(name, way)| line(name, *way)).collect();
    fs::write(&path, format!("{HEADING}{lines}")).map_err(|error| cannot("write", &path, &error))
}

fn line(name: &str, way: RunMode) -> String {
    match way {
        RunMode::AsItIs => format!("{name}\n"),
        RunMode::Released => format!("{name} {RELEASED}\n"),
    }
}

/// Those of the names for which the document has no reason.
pub(crate) fn without_reason(root: &Path, names: &[String]) -> Result<Vec<String>> {
    let path = root.join(REASONS);
    let text = fs::read_to_string(&path).map_err(|error| cannot("read", &path, &error))?;
    Ok(names.iter().filter(|name| !text.contains(&format!("`{name}`"))).cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A listed file that fails counts as lost; one that passes without being listed counts as
    /// gained.
    ///
    /// Guarantee: sqlite/same-results
    #[test]
    fn listed_failure_is_lost_unlisted_pass_is_gained() {
        let ran = |name: &str, passed: bool| FileResult {
            way: RunMode::AsItIs,
            name: name.to_owned(),
            failed: (!passed).then(|| "1 of 2 tests".to_owned()),
            tests: 2,
        };
        let all = [ran("a", true), ran("b", false), ran("c", true), ran("d", false)];
        let verdict = Verdict::of(&all, &parse("# remark\na\nb # too\n"));
        let names = |name: &str| vec![name.to_owned()];
        let gained = vec![("c".to_owned(), RunMode::AsItIs)];
        assert_eq!(verdict, Verdict { kept: 1, lost: names("b"), gained, failing: names("d") });
    }

    /// Guarantee: sqlite/same-results
    #[test]
    fn the_list_says_of_each_file_how_it_is_run() {
        let listed = parse("# remark\na released # too\nb\n");
        assert_eq!(
            (listed["a"], listed["b"], listed.len()),
            (RunMode::Released, RunMode::AsItIs, 2)
        );
        let again: String = listed.iter().map(|(name, way)| line(name, *way)).collect();
        assert_eq!(parse(&again), listed);
    }
}
