//! The code blocks of a Markdown document, with what the document's author says about them to the
//! test.
//!
//! An HTML comment right before a block is a directive, which readers do not see:
//!
//! - `<!-- file: NAME -->`: the block is the content of this file; commands of later blocks use it.
//! - `<!-- numbers vary -->`: numbers in the block's output are not compared.
//! - `<!-- status 1: REASON -->`: commands of the block may end with 1 as well as with 0.
//! - `<!-- run by: FILE TEST -->`: that test runs the block's commands. It must exist.
//! - `<!-- not run: REASON -->`: the block's commands are not run, and the test prints the reason.
//!
//! `<!-- run: COMMAND -->`, anywhere, is a command that the test runs at that place without a
//! reader seeing it: what the text above says in words ("a bit of the image was flipped").
//!
//! Invariant: nothing is skipped silently. An unknown directive, and one without a block, is an
//! error.

use std::path::PathBuf;

const NUMBERS_VARY: &str = "numbers vary";
const STATUS_1: &str = "status 1: ";
const RUN_BY: &str = "run by: ";
const NOT_RUN: &str = "not run: ";

/// One thing for the test to do, in the order of the document.
#[derive(Debug, PartialEq)]
pub(crate) enum Step {
    /// Write the file.
    File { name: PathBuf, content: String },
    /// Run the command; there is nothing to compare.
    Setup { line: usize, command: String },
    /// Run the commands and compare what they print, if the document shows it.
    Block { commands: Vec<Command>, numbers_vary: bool, status_max: i32 },
    /// Look whether the other test is there.
    RunBy { line: usize, file: String, test: String },
    /// Say that these commands are not run.
    NotRun { line: usize, reason: String },
}

/// A command, and what the document says that it prints.
#[derive(Debug, PartialEq)]
pub(crate) struct Command {
    pub(crate) line: usize,
    pub(crate) text: String,
    /// `None` where the document shows commands only.
    pub(crate) output: Option<String>,
}

/// Reads the document. `Err` names the line of what is not understood.
pub(crate) fn steps(document: &str) -> Result<Vec<Step>, String> {
    let mut steps = Vec::new();
    let mut directive: Option<(usize, &str)> = None;
    let mut lines = document.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        let number = index + 1;
        if let Some(comment) = line.strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->"))
        {
            if let Some(command) = comment.strip_prefix("run: ") {
                steps.push(Step::Setup { line: number, command: command.to_owned() });
            } else if is_directive(comment) {
                directive = Some((number, comment));
            }
            continue;
        }
        let Some(language) = line.strip_prefix("```") else {
            if let (Some((at, comment)), false) = (directive, line.is_empty()) {
                return Err(format!("line {at}: `{comment}` stands before no code block"));
            }
            continue;
        };
        let mut content = Vec::new();
        loop {
            match lines.next() {
                Some((_, "```")) => break,
                Some((_, line)) => content.push(line),
                None => return Err(format!("line {number}: the block has no end")),
            }
        }
        let step = step(number, language, &content, directive.take().map(|(_, comment)| comment));
        steps.extend(step.map_err(|why| format!("line {number}: {why}"))?);
    }
    Ok(steps)
}

fn is_directive(comment: &str) -> bool {
    let starts = |start| comment.starts_with(start);
    comment == NUMBERS_VARY || ["file: ", STATUS_1, RUN_BY, NOT_RUN].into_iter().any(starts)
}

fn step(
    line: usize,
    language: &str,
    content: &[&str],
    directive: Option<&str>,
) -> Result<Option<Step>, String> {
    if let Some(name) = directive.and_then(|directive| directive.strip_prefix("file: ")) {
        let content = content.iter().map(|line| format!("{line}\n")).collect();
        return Ok(Some(Step::File { name: name.into(), content }));
    }
    let commands = match language {
        "sh" => listed(line + 1, content),
        "console" => shown(line + 1, content)?,
        "" if content.iter().any(|line| PROMPTS.iter().any(|prompt| line.starts_with(prompt))) => {
            return Err("commands after a prompt are a `console` block".to_owned());
        }
        _ if directive.is_some() => {
            return Err("this directive is for commands: a block of `sh` or `console`".to_owned());
        }
        _ => return Ok(None),
    };
    if let Some(by) = directive.and_then(|directive| directive.strip_prefix(RUN_BY)) {
        let (file, test) = by.split_once(' ').ok_or("`run by:` names a file and a test in it")?;
        return Ok(Some(Step::RunBy { line, file: file.to_owned(), test: test.to_owned() }));
    }
    if let Some(reason) = directive.and_then(|directive| directive.strip_prefix(NOT_RUN)) {
        return Ok(Some(Step::NotRun { line, reason: reason.to_owned() }));
    }
    let status_max = directive.is_some_and(|directive| directive.starts_with(STATUS_1)).into();
    Ok(Some(Step::Block { commands, numbers_vary: directive == Some(NUMBERS_VARY), status_max }))
}

/// The commands of a block that shows nothing else. A line that ends with `\` goes on in the next
/// one.
fn listed(first: usize, content: &[&str]) -> Vec<Command> {
    let mut commands: Vec<Command> = Vec::new();
    let mut continues = false;
    for (index, line) in content.iter().enumerate() {
        match commands.last_mut() {
            Some(command) if continues => command.text.push_str(&format!("\n{line}")),
            _ if line.trim().is_empty() => {}
            _ => commands.push(Command {
                line: first + index,
                text: (*line).to_owned(),
                output: None,
            }),
        }
        continues = line.ends_with('\\');
    }
    commands
}

const SQLITE: &str = "sqlite3 -batch <<'END'";
const SQLITE_END: &str = "\nEND";
const PROMPTS: [&str; 2] = ["$ ", "sqlite> "];

/// The commands of a transcript: each after `$ `, with what it printed below. What is typed after
/// `sqlite> `, line after line, is one session of SQLite's shell.
fn shown(first: usize, content: &[&str]) -> Result<Vec<Command>, String> {
    let mut commands: Vec<Command> = Vec::new();
    let mut continues = false;
    for (index, line) in content.iter().enumerate() {
        if let Some(text) = line.strip_prefix("$ ").filter(|_| !continues) {
            let output = Some(String::new());
            commands.push(Command { line: first + index, text: text.to_owned(), output });
            continues = text.ends_with('\\');
            continue;
        }
        if let Some(statement) = line.strip_prefix("sqlite> ") {
            match commands.last_mut() {
                Some(Command { text, output: Some(output), .. })
                    if text.starts_with(SQLITE) && output.is_empty() =>
                {
                    text.insert_str(text.len() - SQLITE_END.len(), &format!("\n{statement}"));
                }
                _ => {
                    let text = format!("{SQLITE}\n{statement}{SQLITE_END}");
                    commands.push(Command {
                        line: first + index,
                        text,
                        output: Some(String::new()),
                    });
                }
            }
            continue;
        }
        let command = commands.last_mut().ok_or("a transcript begins with a prompt")?;
        if continues {
            command.text.push_str(&format!("\n{line}"));
            continues = line.ends_with('\\');
        } else if let Some(output) = &mut command.output {
            output.push_str(&format!("{line}\n"));
        }
    }
    Ok(commands)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transcript_has_commands_with_output() {
        let document = "\
Text.
<!-- file: a.c -->
```c
int a;
```
<!-- run: flip a bit -->
<!-- numbers vary -->
```console
$ cc a.c \\
    -o a
$ ./a
1
2
```
";
        let command = |line, text: &str, output: &str| Command {
            line,
            text: text.to_owned(),
            output: Some(output.to_owned()),
        };
        let expected = [
            Step::File { name: "a.c".into(), content: "int a;\n".to_owned() },
            Step::Setup { line: 6, command: "flip a bit".to_owned() },
            Step::Block {
                commands: vec![command(9, "cc a.c \\\n    -o a", ""), command(11, "./a", "1\n2\n")],
                numbers_vary: true,
                status_max: 0,
            },
        ];
        assert_eq!(steps(document).unwrap(), expected);
    }

    #[test]
    fn lines_for_sqlite_are_one_session() {
        let document = "```console\nsqlite> .load a\nsqlite> SELECT 1;\n1\n$ ls\n```\n";
        let Some(Step::Block { commands, .. }) = steps(document).unwrap().pop() else { panic!() };
        let texts: Vec<_> = commands.iter().map(|command| command.text.as_str()).collect();
        assert_eq!(texts, ["sqlite3 -batch <<'END'\n.load a\nSELECT 1;\nEND", "ls"]);
        assert_eq!(commands[0].output.as_deref(), Some("1\n"));
    }

    /// Guarantee: project/commands-run
    #[test]
    fn what_would_be_skipped_silently_is_an_error() {
        for document in [
            "<!-- not run: no reason -->\ntext\n",
            "```console\nno command\n```\n",
            "```\n$ holdfast\n```\n",
            "```\nsqlite> SELECT 1;\n```\n",
            "```sh\nholdfast\n",
            "<!-- numbers vary -->\n```c\nint a;\n```\n",
        ] {
            assert!(steps(document).is_err(), "{document}");
        }
    }
}
