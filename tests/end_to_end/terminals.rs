//! Untrusted names (of files, variables and directories) in the output of commands: they must
//! neither steer the terminal nor look like a message of Holdfast.

use std::path::Path;

use crate::guestbook::with_two_entries;
use crate::{scratch, tell, victim};

/// Clears a screen in two ways, sets a title, turns the direction of text, and begins a line as
/// messages do.
const HOSTILE: &str = "a\u{1b}[2J\u{9b}2J\u{1b}]0;gone\u{7}\r\u{202e}b\nholdfast: all is well";

fn assert_harmless(what: &str, said: &str) {
    let steers = |c: char| (c.is_control() && c != '\n' && c != '\t') || c == '\u{202e}';
    assert!(!said.contains(steers), "{what}: {said:?}");
    let forged = said.lines().any(|line| line.starts_with("holdfast: all is well"));
    assert!(!forged, "{what}: {said:?}");
}

/// Commands with a word that another process chose, `@` in these; each of them fails, or says the
/// word.
const COMMANDS: &[&[&str]] = &[
    &["run", "@"],
    &["run", "@/there"],
    &["run", "@.wasm"],
    &["run", "@.wat"],
    &["call", "@.wat", "f"],
    &["call", "@/there"],
    &["run", "/bin/true", "--dir", "@"],
    &["run", "/bin/true", "--dir", "@::/x:rx"],
    &["run", "/bin/true", "--env", "@"],
    &["run", "/bin/true", "--heap", "@"],
    &["run", "/bin/true", "--heap", "book", "--key", "@"],
    &["run", "/bin/true", "--timeout", "@"],
    &["run", "/bin/true", "--report", "@/x/y"],
    &["call", "/bin/true", "f", "--input", "@"],
    &["@"],
    &["--@"],
    &["heap", "show", "@"],
    &["heap", "check", "@"],
    &["heap", "rm", "@"],
    &["heap", "snapshot", "book", "@"],
    &["heap", "restore", "book", "@"],
    &["heap", "grant", "book", "--to", "@"],
    &["heap", "export", "book", "@/x"],
    &["heap", "import", "other", "@"],
    &["heap", "import", "other", "@.wat"],
    &["heap", "map", "book", "--svg", "@/x"],
    &["heap", "salvage", "@", "--to", "@"],
    &["sqlite", "status", "@"],
    &["sqlite", "status", "@.wat"],
    &["sqlite", "checkpoint", "@"],
    &["sqlite", "recover", "@.wat"],
    &["page", "query", "@", "p"],
    &["page", "query", "@.wat", "p["],
    &["page", "query", "@.wat", "@"],
    &["trace", "report", "@"],
    &["trace", "report", "@.wat"],
    &["trace", "import", "@"],
    &["trace", "import", "@.wat"],
    &["trace", "diff", "@", "@"],
    &["trace", "run", "--", "@"],
    &["keeper", "status", "@"],
    &["model", "@.wat", "--plot", "@/x.svg"],
    &["completions", "@"],
];

/// Guarantee: sandbox/terminal
#[test]
fn names_steer_no_terminal() {
    let scratch = with_two_entries();
    let folder = scratch.files();
    let name = folder.join(HOSTILE);
    let path = name.to_str().unwrap();
    std::fs::create_dir(&name).unwrap();
    std::fs::write(name.join("there"), "no program\n").unwrap();
    std::fs::copy(victim("stores_half_and_traps"), format!("{path}.wat")).unwrap();
    std::fs::write(format!("{path}.wasm"), b"\0asm\x01\0\0\0\xff\x1b[2J").unwrap();
    for words in COMMANDS {
        let words: Vec<String> = words.iter().map(|word| word.replace('@', path)).collect();
        let told = tell(scratch.holdfast().args(&words));
        assert_harmless(&format!("{words:?}"), &told.err);
        assert_harmless(&format!("{words:?}"), &told.out);
    }
}

/// Guarantee: sandbox/terminal
#[test]
fn places_steer_no_terminal() {
    let scratch = scratch();
    let place = scratch.files().join(HOSTILE);
    std::fs::create_dir(&place).unwrap();
    let commands: &[&[&str]] = &[
        &["doctor"],
        &["doctor", "--json"],
        &["heap", "ls"],
        &["heap", "ls", "--json"],
        &["heap", "show", "none"],
        &["heap", "tidy"],
        &["keeper", "status"],
        &["keeper", "status", "--json"],
        &["run", "/bin/true", "--heap", "new"],
        &["heap", "show", "new"],
        &["heap", "show", "new", "--json"],
    ];
    let file = scratch.write("file", "").unwrap();
    for home in [place.join("home"), Path::new(&file).join(HOSTILE)] {
        for words in commands {
            let mut command = scratch.holdfast();
            command.env("HOLDFAST_HOME", &home).env("HOLDFAST_POOL", home.with_file_name("pool"));
            let told = tell(command.args(*words));
            assert_harmless(&format!("{words:?} {home:?}"), &told.err);
            assert_harmless(&format!("{words:?} {home:?}"), &told.out);
        }
    }
}
