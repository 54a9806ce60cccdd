//! The cases' files: parts that begin with a line `#name`.

use std::path::Path;

use holdfast_dom::Namespace;

/// A case.
pub struct Case {
    pub data: String,
    pub document: String,
    pub fragment_of: Option<(Namespace, String)>,
    pub scripting: Option<bool>,
}

/// All files below a folder, by name.
pub fn read(folder: &Path) -> Vec<(String, Vec<Case>)> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            // Those need a script to run.
            if path.is_dir() && !path.ends_with("scripted") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "dat") {
                let name = path.file_stem().unwrap().to_string_lossy().into_owned();
                let text = std::fs::read(&path).unwrap();
                files.push((name, parsed(&String::from_utf8_lossy(&text))));
            }
        }
    }
    files.sort_by(|a, b| a.0.cmp(&b.0));
    files
}

fn parsed(text: &str) -> Vec<Case> {
    let mut cases: Vec<Vec<(String, Vec<&str>)>> = Vec::new();
    for line in text.split('\n') {
        if line == "#data" {
            cases.push(Vec::new());
        }
        let Some(case) = cases.last_mut() else { continue };
        let names = [
            "#data",
            "#errors",
            "#new-errors",
            "#document-fragment",
            "#script-off",
            "#script-on",
            "#document",
        ];
        match case.last_mut() {
            // A document can hold such a line only behind its bar.
            Some((_, lines)) if !names.contains(&line) => lines.push(line),
            _ => case.push((line.to_owned(), Vec::new())),
        }
    }
    cases.iter().map(|parts| case(parts)).collect()
}

fn case(parts: &[(String, Vec<&str>)]) -> Case {
    let part = |name: &str| parts.iter().find(|(part, _)| part == name).map(|(_, lines)| lines);
    let mut document = part("#document").cloned().unwrap_or_default();
    while document.last().is_some_and(|line| line.is_empty()) {
        document.pop();
    }
    let fragment_of = part("#document-fragment").map(|lines| match lines[0].split_once(' ') {
        Some(("svg", name)) => (Namespace::Svg, name.to_owned()),
        Some(("math", name)) => (Namespace::MathMl, name.to_owned()),
        _ => (Namespace::Html, lines[0].to_owned()),
    });
    let scripting = match (part("#script-on"), part("#script-off")) {
        (Some(_), _) => Some(true),
        (_, Some(_)) => Some(false),
        _ => None,
    };
    let data = part("#data").map(|lines| lines.join("\n")).unwrap_or_default();
    Case { data, document: format!("{}\n", document.join("\n")), fragment_of, scripting }
}
