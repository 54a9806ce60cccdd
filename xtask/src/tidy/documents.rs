//! Rules about documents: what they name must exist.

use std::collections::HashSet;

use super::{File, Findings};
use crate::workspace::Package;

const ARCHITECTURE: &str = "ARCHITECTURE.md";

pub(crate) fn check(files: &[File], packages: &[Package], findings: &mut Findings) {
    let paths = paths_and_folders(files);
    for file in files.iter().filter(|file| file.has_extension(&["md"])) {
        links(file, &paths, findings);
    }
    match files.iter().find(|file| file.path == ARCHITECTURE) {
        Some(file) => architecture(file, packages, findings),
        None => findings.in_file(ARCHITECTURE, "is missing; it is the map of the packages"),
    }
}

/// Every file, and every folder that holds one.
fn paths_and_folders(files: &[File]) -> HashSet<String> {
    let mut paths = HashSet::from([String::new()]);
    for file in files {
        let ends = file.path.match_indices('/').map(|(at, _)| at).chain([file.path.len()]);
        paths.extend(ends.map(|end| file.path[..end].to_owned()));
    }
    paths
}

fn links(file: &File, paths: &HashSet<String>, findings: &mut Findings) {
    let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut fenced = false;
    for (index, line) in file.text().lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        for target in link_targets(line) {
            let target = target.split('#').next().unwrap_or("");
            if target.is_empty() || target.contains(':') {
                continue;
            }
            if !resolve(folder, target).is_some_and(|path| paths.contains(&path)) {
                findings.at_line(
                    file,
                    index + 1,
                    &format!("the link to {target} leads nowhere; correct it"),
                );
            }
        }
    }
}

/// The targets of `[text](target)` and `[label]: target`, outside of `code`.
fn link_targets(line: &str) -> Vec<&str> {
    // Every other piece between backticks is code.
    let mut targets: Vec<&str> = Vec::new();
    if let Some((label, target)) = line.split_once("]: ")
        && label.starts_with('[')
        && !label.contains('`')
    {
        targets.extend(target.split_whitespace().next());
    }
    let in_code = |at: usize| line[..at].matches('`').count() % 2 == 1;
    for (at, opening) in line.match_indices("](") {
        let rest = &line[at + opening.len()..];
        if let (false, Some(end)) = (in_code(at), rest.find(')')) {
            // A title may follow the target.
            targets.extend(rest[..end].split_whitespace().next());
        }
    }
    targets
}

/// A relative link as a path from the root; `None` when it leads out of the project.
fn resolve(folder: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = match target.strip_prefix('/') {
        Some(_) => Vec::new(),
        None => folder.split('/').filter(|part| !part.is_empty()).collect(),
    };
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

fn architecture(file: &File, packages: &[Package], findings: &mut Findings) {
    for package in packages {
        let last = package.folder.rsplit('/').next().unwrap_or(&package.folder);
        let names = [package.folder.clone(), package.name.clone(), format!("`{last}`")];
        if !names.iter().any(|name| file.text().contains(name)) {
            findings.in_file(
                &file.path,
                &format!("does not mention {}; describe it in the map", package.folder),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::findings_about;

    #[test]
    fn a_link_that_leads_nowhere_is_found() {
        let paths =
            HashSet::from(["docs/a.md".to_owned(), "README.md".to_owned(), "docs".to_owned()]);
        let about = |text: &str| {
            findings_about("docs/a.md", text, |file, found| links(file, &paths, found))
        };
        assert_eq!(
            about("[x](../README.md#top), [y](a.md), [z](https://example.org), [s](#here)"),
            [""; 0]
        );
        assert_eq!(about("[x](README.md)").len(), 1);
        assert_eq!(about("[x](../../etc/passwd)").len(), 1);
        assert_eq!(about("[x]: missing.md").len(), 1);
        assert_eq!(about("`[x](code.md)`\n```\n[x](code.md)\n```"), [""; 0]);
    }
}
