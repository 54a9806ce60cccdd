//! The list of test files that pass, which never gets shorter, and the document with the reasons of those that do not.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::failure::Result;

use super::build::cannot;
use super::files::Ran;

/// One name a line; `#` begins a remark.
pub(crate) const PASSING: &str = "tests/sqlite/passing.txt";
/// Each file that is not in the list is named there, between backticks, with the reason.
pub(crate) const REASONS: &str = "docs/sqlite-suite.md";
const HEADING: &str = "\
# Files of SQLite's own test suite that pass with our VFS as the default one. `cargo xtask sqlite-suite` fails when one of them
# does not, and says which others do; `--write` adds those. Nothing is ever taken out.
";

/// What a run means, by the list.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// Listed, and passed.
    pub(crate) kept: usize,
    /// Listed, and did not pass; these fail the run.
    pub(crate) lost: Vec<String>,
    /// Passed, and are not listed yet.
    pub(crate) gained: Vec<String>,
    /// Neither listed nor passed.
    pub(crate) failing: Vec<String>,
}

impl Verdict {
    pub(crate) fn of(ran: &[Ran], listed: &BTreeSet<String>) -> Verdict {
        let mut verdict = Verdict::default();
        for Ran { name, failed, .. } in ran {
            match (listed.contains(name), failed) {
                (true, None) => verdict.kept += 1,
                (true, Some(_)) => verdict.lost.push(name.clone()),
                (false, None) => verdict.gained.push(name.clone()),
                (false, Some(_)) => verdict.failing.push(name.clone()),
            }
        }
        verdict
    }
}

pub(crate) fn read(root: &Path) -> Result<BTreeSet<String>> {
    let path = root.join(PASSING);
    let text = fs::read_to_string(&path).map_err(|error| cannot("read", &path, &error))?;
    Ok(parse(&text))
}

fn parse(text: &str) -> BTreeSet<String> {
    let names = text.lines().map(|line| line.split('#').next().unwrap_or("").trim());
    names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Adds names to the list.
pub(crate) fn add(root: &Path, listed: &BTreeSet<String>, gained: &[String]) -> Result<()> {
    let path = root.join(PASSING);
    let all: BTreeSet<&str> = listed.iter().chain(gained).map(String::as_str).collect();
    let lines: String = all.iter().map(|name| format!("{name}\n")).collect();
    fs::write(&path, format!("{HEADING}{lines}")).map_err(|error| cannot("write", &path, &error))
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

    #[test]
    fn a_listed_file_that_fails_is_lost_and_one_that_passes_unlisted_is_gained() {
        let ran = |name: &str, passed: bool| Ran {
            name: name.to_owned(),
            failed: (!passed).then(|| "1 of 2 tests".to_owned()),
            tests: 2,
        };
        let all = [ran("a", true), ran("b", false), ran("c", true), ran("d", false)];
        let verdict = Verdict::of(&all, &parse("# remark\na\nb # too\n"));
        let names = |name: &str| vec![name.to_owned()];
        let (lost, gained, failing) = (names("b"), names("c"), names("d"));
        assert_eq!(verdict, Verdict { kept: 1, lost, gained, failing });
    }
}
