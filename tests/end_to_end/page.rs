//! `holdfast page` as a person types it.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::{scratch, succeed, tell};

const PAGE: &str = "<!DOCTYPE html><title>News</title><ul id=news><li class=new><a href=/1>one</a>\
    <li><a HREF='/2?a&amp;b'>two &amp; more</a></ul><p>end";

/// A page stored once gives the same query results from its file and from the heap.
///
/// Guarantee: documents/command
#[test]
fn page_query_is_equal_from_file_and_heap() {
    let scratch = scratch();
    let file = scratch.write("news.html", PAGE).unwrap();
    let file = file.to_str().unwrap();
    let kept = succeed(scratch.holdfast().args(["page", "keep", file, "--heap", "pages"]));
    assert!(kept.starts_with("news.html: 16 nodes in "), "{kept}");
    for source in [file, "pages"] {
        let query = |arguments: &[&str]| {
            let mut command = scratch.holdfast();
            succeed(command.args(["page", "query", source]).args(arguments))
        };
        assert_eq!(
            query(&["#news a"]),
            "<a href=\"/1\">one</a>\n<a href=\"/2?a&amp;b\">two &amp; more</a>\n"
        );
        assert_eq!(query(&["#news a", "--attr", "href"]), "/1\n/2?a&b\n");
        assert_eq!(query(&["#news li:not(.new)", "--text"]), "two & more\n");
        assert_eq!(query(&["li, p", "--count"]), "3\n");
        assert_eq!(query(&["li.new", "--attr", "id"]), "");
        let json: serde_json::Value =
            serde_json::from_str(&query(&["li:last-child a", "--json"])).unwrap();
        assert_eq!(
            json,
            serde_json::json!([{ "name": "a", "attributes": [["href", "/2?a&b"]], "text": "two & more" }])
        );
    }
    let report = succeed(
        scratch
            .holdfast()
            .args(["page", "keep", file, "--heap", "pages", "--name", "again", "--json"]),
    );
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!((&report["name"], &report["nodes"]), (&"again".into(), &16.into()));
    let told = tell(scratch.holdfast().args(["page", "query", "pages", "li"]));
    assert_eq!(told.status, 2);
    assert!(told.err.contains("--name: again, news.html"), "{}", told.err);
    let one = succeed(
        scratch.holdfast().args(["page", "query", "pages", "li", "--name", "again", "--count"]),
    );
    assert_eq!(one, "2\n");
    let sound = succeed(scratch.holdfast().args(["heap", "check", "pages"]));
    assert!(!sound.is_empty());
}

/// Guarantee: documents/command
#[test]
fn a_page_comes_from_standard_input_too() {
    let scratch = scratch();
    let mut child = scratch
        .holdfast()
        .args(["page", "query", "-", "title", "--text"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(PAGE.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stdout), (Some(0), b"News\n".to_vec()));
}

/// A page that cannot be queried or stored gives an error that says what to do.
///
/// Guarantee: documents/command
#[test]
fn invalid_page_queries_fail_with_advice() {
    let scratch = scratch();
    let file = scratch.write("news.html", PAGE).unwrap();
    let file = file.to_str().unwrap();
    let deep = scratch.write("deep.html", "<div>".repeat(3_000)).unwrap();
    let told = |arguments: &[&str]| tell(scratch.holdfast().arg("page").args(arguments));
    for (arguments, status, part) in [
        (&["query", file, "li:hover"][..], 2, "invalid selector `li:hover`"),
        (&["query", file, "table"], 1, ""),
        (&["query", "./missing.html", "li"], 3, "missing.html"),
        (&["query", "missing.html", "li"], 3, "there is no file missing.html in this folder"),
        (&["query", "nothing", "li"], 3, "no heap of this name"),
        (&["query", file, "li", "--text", "--json"], 2, "cannot be used with"),
        (
            &["query", deep.to_str().unwrap(), "li"],
            7,
            "more than 2048 levels of elements; only programs",
        ),
        (&["query", file, "li", "--name", "x"], 2, "--name and --key are of heaps"),
        (&["query", "-", "li", "--key", "x"], 2, "--name and --key are of heaps"),
        (
            &["keep", deep.to_str().unwrap(), "--heap", "pages"],
            7,
            "more than 2048 levels of elements",
        ),
        // The page that was refused has left no heap.
        (&["query", "pages", "li"], 3, "pages"),
        (&["keep", "-", "--heap", "pages"], 2, "--name"),
        (&["keep", "./missing.html", "--heap", "pages"], 3, "missing.html"),
    ] {
        let told = told(arguments);
        assert_eq!(told.status, status, "{arguments:?}: {}", told.err);
        assert!(told.err.contains(part), "{arguments:?}: {}", told.err);
    }
    succeed(scratch.holdfast().args(["page", "keep", file, "--heap", "pages"]));
    let told = told(&["query", "pages", "li", "--name", "other"]);
    assert_eq!(told.status, 3);
    assert!(told.err.contains("parse a page under that name first"), "{}", told.err);
}

/// A product is a program of its own: `holdfast NAME` starts holdfast-NAME.
///
/// Guarantee: pages/program
#[test]
fn product_is_found_beside_the_command_or_in_path() {
    let scratch = scratch();
    let own = scratch.files().join("holdfast");
    // Files that are run are written by others: what another thread starts meanwhile would hold
    // them open.
    succeed(Command::new("cp").arg(scratch.programs().holdfast()).arg(&own));
    let run = |path: &str, arguments: &[&str]| {
        let mut command = Command::new(&own);
        command.env("HOLDFAST_HOME", scratch.home()).env("HOLDFAST_POOL", scratch.pool());
        tell(command.env("PATH", path).args(arguments))
    };
    for (name, package) in [
        ("keeper", "holdfast-keeper-command"),
        ("sqlite", "holdfast-sqlite-command"),
        ("page", "holdfast-page"),
        ("trace", "holdfast-trace-command"),
        ("serve", "holdfast-serve"),
        ("model", "holdfast-model"),
        ("bench", "holdfast-bench"),
    ] {
        for arguments in [&[name][..], &[name, "--help"], &["help", name]] {
            let told = run("/nowhere", arguments);
            assert_eq!(told.status, 3, "{arguments:?}");
            assert!(
                told.err.contains(&format!("cargo build --release -p {package}")),
                "{}",
                told.err
            );
        }
    }
    let told = run("/nowhere", &["doctor", "--json"]);
    assert!(
        told.out.contains("\"holdfast-sqlite\"") && told.out.contains("not installed"),
        "{}",
        told.out
    );
    // A script in the place of a program gets the arguments as they were typed, and its exit code
    // is the command's.
    let script = |file: &Path, says: &str| {
        let text =
            format!("printf '%s\\n' '#!/bin/sh' '{says}' 'exit 5' > \"$0\" && chmod +x \"$0\"");
        succeed(Command::new("sh").args(["-c", &text]).arg(file));
    };
    script(&own.with_file_name("holdfast-page"), "printf \"<%s>\" \"$@\"");
    let told = run("/nowhere", &["page", "open", "a b.html", "--png", "--help", "-x"]);
    assert_eq!(
        (told.status, &*told.out),
        (5, "<open><a b.html><--png><--help><-x>"),
        "{}",
        told.err
    );
    // Any other name as well, and from PATH; a command of our own is never replaced.
    let folder = scratch.files().join("bin");
    std::fs::create_dir(&folder).unwrap();
    let path = folder.to_str().unwrap();
    for name in ["holdfast-mine", "holdfast-doctor"] {
        script(&folder.join(name), "echo replaced");
    }
    let told = run(path, &["mine", "x"]);
    assert_eq!((told.status, &*told.out), (5, "replaced\n"));
    assert!(!run(path, &["doctor"]).out.contains("replaced"));
    for name in ["yours", "../mine", "bin/mine", ""] {
        let told = run(path, &[name]);
        assert!(
            told.status == 2 && told.err.contains("unrecognized subcommand"),
            "{name}: {}",
            told.err
        );
    }
    // Nonsense in answer to the doctor is reported, and is no reason to fail.
    script(&own.with_file_name("holdfast-sqlite"), "echo nonsense");
    let told = run("/nowhere", &["doctor"]);
    assert!(told.out.contains("does not answer"), "{}", told.out);
}
