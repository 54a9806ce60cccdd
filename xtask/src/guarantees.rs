//! The promises of `docs/guarantees/*.md`, and the tests that prove them.
//!
//! A promise is a line ``- **`heap/transactions`** ...`` on the page `heap`. A test names each
//! promise that it proves in a line `/// Guarantee: heap/transactions` (in Python and C `#
//! Guarantee:`, `// Guarantee:`) above its `#[test]` or `def test_`. `cargo xtask guarantees` lists
//! the tests by promise, and `cargo xtask tidy` compares both sides.
//!
//! Invariant: a line that begins as an annotation either belongs to a test or is a finding.

use std::collections::BTreeMap;

use crate::failure::{Failure, Result};
use crate::tidy::{File, Findings, project_files};
use crate::workspace::Workspace;

const FOLDER: &str = "docs/guarantees/";
const LIST: &str = "docs/guarantees/tests.md";
/// More promises than a person reads.
const PAGE_MAX: usize = 60;
/// In pieces, so that this file has no annotation.
const MARK: &str = concat!("Guarantee", ": ");

/// A promise on a page, and where it stands.
struct Promise<'a> {
    id: &'a str,
    file: &'a File,
    line: usize,
}

/// A test that names a promise.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Proof {
    path: String,
    test: String,
}

/// Arguments of `cargo xtask guarantees`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Write the list to docs/guarantees/tests.md
    #[arg(long)]
    write: bool,
}

pub(crate) fn guarantees(workspace: &Workspace, arguments: &Arguments) -> Result<()> {
    let text = list(&project_files(workspace)?);
    if arguments.write {
        std::fs::write(workspace.root.join(LIST), text)
            .map_err(|error| Failure::new(format!("cannot write {LIST}: {error}")))?;
    } else {
        print!("{text}");
    }
    Ok(())
}

pub(crate) fn check(files: &[File], findings: &mut Findings) {
    let promises = promises(files, findings);
    let proofs = proofs(files, findings);
    for promise in &promises {
        if !proofs.contains_key(promise.id) {
            let what = format!(
                "no test proves `{}`; write `/// {MARK}{}` above one",
                promise.id, promise.id
            );
            findings.at_line(promise.file, promise.line, &what);
        }
    }
    for (id, tests) in &proofs {
        if !promises.iter().any(|promise| promise.id == id) {
            let what = format!("`{}` proves `{id}`, which no page promises", tests[0].test);
            findings.in_file(&tests[0].path, &what);
        }
    }
    if let Some(file) = files.iter().find(|file| file.path == LIST)
        && file.text() != list(files)
    {
        findings.in_file(LIST, "is not what the tests say; run `cargo xtask guarantees --write`");
    }
}

/// The promises of all pages; what is wrong with a page goes to `findings`.
fn promises<'a>(files: &'a [File], findings: &mut Findings) -> Vec<Promise<'a>> {
    let mut promises: Vec<Promise> = Vec::new();
    for file in files {
        let Some(page) = file.path.strip_prefix(FOLDER).and_then(|name| name.strip_suffix(".md"))
        else {
            continue;
        };
        let before = promises.len();
        for (index, text) in file.text().lines().enumerate() {
            let Some((id, _)) = text.strip_prefix("- **`").and_then(|rest| rest.split_once("`**"))
            else {
                continue;
            };
            if id.split_once('/').is_none_or(|(first, _)| first != page) {
                findings.at_line(file, index + 1, &format!("`{id}` does not begin with `{page}/`"));
            }
            if promises.iter().any(|promise| promise.id == id) {
                findings.at_line(
                    file,
                    index + 1,
                    &format!("`{id}` stands twice; give it another name"),
                );
            }
            promises.push(Promise { id, file, line: index + 1 });
        }
        if promises.len() - before > PAGE_MAX {
            findings.in_file(&file.path, &format!("has more than {PAGE_MAX} promises; join some"));
        }
    }
    if promises.is_empty() {
        findings.in_file(FOLDER, "has no promise; they look like ``- **`heap/roots`** ...``");
    }
    promises
}

/// The tests by the id that they name, in order of their paths.
fn proofs(files: &[File], findings: &mut Findings) -> BTreeMap<String, Vec<Proof>> {
    let mut proofs: BTreeMap<String, Vec<Proof>> = BTreeMap::new();
    for file in files.iter().filter(|file| file.has_extension(&["rs", "py", "c", "cpp", "mjs"])) {
        let lines: Vec<&str> = file.text().lines().collect();
        for (index, line) in lines.iter().enumerate() {
            let Some(id) = annotation(line) else { continue };
            match test_below(&lines[index + 1..], file.has_extension(&["rs"])) {
                Some(test) => {
                    let proof = Proof { path: file.path.clone(), test: test.to_owned() };
                    proofs.entry(id.to_owned()).or_default().push(proof);
                }
                None => findings.at_line(file, index + 1, "this annotation stands above no test"),
            }
        }
    }
    proofs.values_mut().for_each(|tests| tests.sort());
    proofs
}

fn annotation(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let comment = ["/// ", "# ", "// "].iter().find_map(|begin| line.strip_prefix(begin))?;
    Some(comment.strip_prefix(MARK)?.trim_end())
}

/// The name of the test that the next lines begin: behind comments and attributes, of which in Rust
/// one is `#[test]`.
fn test_below<'a>(lines: &[&'a str], is_rust: bool) -> Option<&'a str> {
    let mut is_test = false;
    for line in lines.iter().map(|line| line.trim_start()) {
        is_test |= line.starts_with("#[test]");
        // A test of Node.js has a text as its name.
        if let Some(rest) = line.strip_prefix("test(\"").filter(|_| !is_rust) {
            return rest.split_once('"').map(|(name, _)| name);
        }
        let signature =
            line.split_once("fn ").filter(|_| is_rust).or_else(|| line.split_once("def "));
        let Some((before, rest)) = signature.filter(|_| !line.starts_with(['/', '#', '@'])) else {
            let continues =
                line.starts_with(['/', '#', '@', ')']) || line.ends_with([',', '(', '[', ']']);
            if continues { continue } else { return None }
        };
        let is_whole =
            before.split_whitespace().all(|word| matches!(word, "pub" | "async" | "unsafe"));
        let name = rest.split(['(', '<']).next()?;
        return (is_whole && (is_test || !is_rust && name.starts_with("test_"))).then_some(name);
    }
    None
}

/// The page that names the tests behind each promise.
fn list(files: &[File]) -> String {
    // What is wrong is `check`'s to say.
    let (promises, proofs) =
        (promises(files, &mut Findings::default()), proofs(files, &mut Findings::default()));
    let mut text =
        "# Guarantees: the tests\n\nGenerated by `cargo xtask guarantees --write`.\n".to_owned();
    for Promise { id, .. } in promises {
        text += &format!("\n## `{id}`\n\n");
        for Proof { path, test } in proofs.get(id).into_iter().flatten() {
            text += &format!("- `{test}`\n  ({path})\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::Findings;

    fn file(path: &str, text: String) -> File {
        File { path: path.to_owned(), bytes: text.into_bytes(), executable: false }
    }

    fn found(page: &str, source: &str) -> Vec<String> {
        let files = [
            file("docs/guarantees/heap.md", page.to_owned()),
            file("a.rs", source.replace("MARK", MARK)),
        ];
        let mut findings = Findings::default();
        check(&files, &mut findings);
        findings.into_lines()
    }

    const PAGE: &str = "# Heaps\n\n- **`heap/roots`** A root is whole.\n";
    const TEST: &str = "/// Why.\n/// MARKheap/roots\n#[test]\nfn roots() {}\n";

    #[test]
    fn every_promise_has_a_test() {
        assert_eq!(found(PAGE, TEST), [""; 0]);
        assert_eq!(found(PAGE, "#[test]\nfn roots() {}\n").len(), 1);
        // Neither a function without `#[test]` nor the test behind one proves anything.
        assert_eq!(
            found(PAGE, "/// MARKheap/roots\nfn roots() {}\n#[test]\nfn it() {}\n").len(),
            2
        );
        assert_eq!(found("# Heaps\n", "").len(), 1);
    }

    #[test]
    fn every_annotation_has_a_promise() {
        let unknown = TEST.replace("/roots\n#", "/leaves\n#");
        assert_eq!(found(PAGE, &unknown).len(), 2);
        assert_eq!(
            found(PAGE, &format!("{TEST}{}", TEST.replace("MARKheap", "MARKheaps"))).len(),
            1
        );
        assert_eq!(found("- **`roots`** A root.\n", "").len(), 2);
        assert_eq!(found(&format!("{PAGE}{PAGE}"), TEST).len(), 1);
    }

    #[test]
    fn the_list_names_tests_in_every_language() {
        let files = [
            file("docs/guarantees/heap.md", PAGE.to_owned()),
            file("a.rs", TEST.replace("MARK", MARK)),
            file(
                "t.py",
                format!(
                    "# {MARK}heap/roots\n@pytest.mark.parametrize('a', A)\ndef test_roots(a):\n"
                ),
            ),
            file("u.mjs", format!("// {MARK}heap/roots\ntest(\"a root\", async () => {{\n")),
        ];
        let text = list(&files);
        let tests = "- `roots`\n  (a.rs)\n- `test_roots`\n  (t.py)\n- `a root`\n  (u.mjs)\n";
        assert!(text.ends_with(&format!("## `heap/roots`\n\n{tests}")), "{text}");
        let stale = [file(LIST, "old".to_owned())];
        let mut findings = Findings::default();
        check(&stale, &mut findings);
        assert!(findings.into_lines().iter().any(|line| line.contains("--write")));
    }
}
