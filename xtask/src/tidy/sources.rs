//! Rules about source text, line by line: nothing here parses Rust.

use super::{File, Findings};

/// A SAFETY comment may stand this far above the `unsafe` that it is for: a statement can be long.
const SAFETY_LINES_MAX: usize = 8;

/// What may not be left behind. In pieces, so that this file does not accuse itself.
const LEFTOVERS: [(&str, &str); 4] = [
    (concat!("TO", "DO"), "finish it or open an issue"),
    (concat!("FIX", "ME"), "fix it or open an issue"),
    (concat!("#[", "ignore"), "make the test run, or remove it"),
    (concat!("dbg", "!("), "remove it"),
];

/// Comments that say nothing.
const EMPTY: [&str; 11] = [
    "As above",
    "How",
    "See the module",
    "The same",
    "What",
    "When",
    "Where",
    "Which",
    "Who",
    "Whose",
    "Why",
];

/// Folders whose errors say what to do as data, for each front to put in its own words.
const WITHOUT_COMMANDS: [&str; 2] = ["core/", "sandbox/"];
const COMMANDS: [&str; 5] = ["heap ", "run", "call ", "doctor", "keeper "];

pub(crate) fn check(file: &File, findings: &mut Findings) {
    if !file.has_extension(&["rs", "c", "h", "sh", "toml"]) {
        return;
    }
    let lines: Vec<&str> = file.text().lines().collect();
    leftovers(file, &lines, findings);
    if !file.has_extension(&["rs"]) {
        return;
    }
    if !lines.first().is_some_and(|line| line.starts_with("//! ")) {
        findings.at_line(
            file,
            1,
            "open with `//!`: what it is, its invariants, what it must not do",
        );
    }
    unsafe_blocks(file, &lines, findings);
    empty_comments(file, &lines, findings);
    commands(file, &lines, findings);
}

/// A comment has to say more than the name under it.
fn empty_comments(file: &File, lines: &[&str], findings: &mut Findings) {
    let text_of = |index: usize| {
        let line: Option<&&str> = lines.get(index);
        line.and_then(|line| line.trim_start().strip_prefix("/// ")).unwrap_or("")
    };
    for index in 0..lines.len() {
        let is_alone = index == 0 || text_of(index - 1).is_empty();
        let says_nothing = text_of(index).strip_suffix('.').is_some_and(|it| EMPTY.contains(&it));
        if is_alone && says_nothing {
            findings.at_line(file, index + 1, "says nothing; say what the item is, or remove it");
        }
    }
}

/// A library that names a command is wrong in a program that has none.
fn commands(file: &File, lines: &[&str], findings: &mut Findings) {
    if !WITHOUT_COMMANDS.iter().any(|folder| file.path.starts_with(folder)) {
        return;
    }
    for (index, line) in lines.iter().enumerate() {
        let is_comment = line.trim_start().starts_with("//");
        let names_one = line
            .match_indices("holdfast ")
            .any(|(at, found)| COMMANDS.iter().any(|it| line[at + found.len()..].starts_with(it)));
        if !is_comment && names_one {
            findings.at_line(
                file,
                index + 1,
                "names a command; say it as a `Remedy` (core/types), and its command in cli/remedies",
            );
        }
    }
}

fn leftovers(file: &File, lines: &[&str], findings: &mut Findings) {
    for (index, line) in lines.iter().enumerate() {
        for (word, remedy) in LEFTOVERS {
            if has_word(line, word) {
                findings.at_line(file, index + 1, &format!("`{word}` is left behind; {remedy}"));
            }
        }
    }
}

/// Whether the line has the word, not as a part of a longer one.
fn has_word(line: &str, word: &str) -> bool {
    let joins =
        |character: Option<char>| character.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let ends_open = word.ends_with(char::is_alphanumeric);
    line.match_indices(word).any(|(at, _)| {
        let joined_before =
            joins(line[..at].chars().next_back()) && word.starts_with(char::is_alphanumeric);
        let joined_after = ends_open && joins(line[at + word.len()..].chars().next());
        !joined_before && !joined_after
    })
}

fn unsafe_blocks(file: &File, lines: &[&str], findings: &mut Findings) {
    let opening = concat!("unsafe", " {");
    for (index, line) in lines.iter().enumerate() {
        let code = line.split("//").next().unwrap_or("");
        if !has_word(code, opening) {
            continue;
        }
        let above = &lines[index.saturating_sub(SAFETY_LINES_MAX)..=index];
        if !above.iter().any(|line| line.contains("SAFETY:")) {
            findings.at_line(file, index + 1, "no `// SAFETY:` above says why this is sound");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::findings_about;

    #[test]
    fn a_file_without_a_header_is_found() {
        assert_eq!(findings_about("a.rs", "fn a() {}\n", check).len(), 1);
        assert_eq!(findings_about("a.rs", "//! What it is.\nfn a() {}\n", check), [""; 0]);
        assert_eq!(findings_about("a.md", "no header needed\n", check), [""; 0]);
    }

    #[test]
    fn leftovers_are_found_as_whole_words() {
        let text = format!("//! A.\n// {}: later\n", LEFTOVERS[0].0);
        assert_eq!(findings_about("a.rs", &text, check).len(), 1);
        let part_of_a_name = format!("//! A.\nconst {}_LIST: u8 = 0;\n", LEFTOVERS[0].0);
        assert_eq!(findings_about("a.rs", &part_of_a_name, check), [""; 0]);
    }

    #[test]
    fn a_comment_that_says_nothing_is_found() {
        let text = "//! A.\n/// Which.\nb: u8,\n/// Which one it is, and\n/// why.\nc: u8,\n";
        assert_eq!(findings_about("a.rs", text, check).len(), 1);
    }

    #[test]
    fn a_command_in_a_message_of_the_core_is_found() {
        let text = "//! A, as `holdfast run` does.\nconst B: &str = \"run `holdfast heap ls`\";\n";
        assert_eq!(findings_about("core/heap/src/a.rs", text, check).len(), 1);
        assert_eq!(findings_about("cli/src/a.rs", text, check), [""; 0]);
    }

    #[test]
    fn an_unsafe_block_needs_its_comment_near() {
        let block = concat!("unsafe", " { f() }");
        let far =
            format!("//! A.\n// SAFETY: it holds.\n{}{block}\n", "\n".repeat(SAFETY_LINES_MAX + 1));
        assert_eq!(findings_about("a.rs", &far, check).len(), 1);
        let near =
            format!("//! A.\n// SAFETY: it holds.\nlet a =\n    {block};\n// about {block}\n");
        assert_eq!(findings_about("a.rs", &near, check), [""; 0]);
    }
}
