//! `holdfast page` as a person types it.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::{scratch, succeed, tell};

const PAGE: &str = "<!DOCTYPE html><title>News</title><ul id=news><li class=new><a href=/1>one</a>\
    <li><a HREF='/2?a&amp;b'>two &amp; more</a></ul><p>end";

#[test]
fn a_page_is_kept_once_and_queried_from_its_file_and_from_the_heap_alike() {
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
        let json: serde_json::Value = serde_json::from_str(&query(&["li:last-child a", "--json"])).unwrap();
        assert_eq!(
            json,
            serde_json::json!([{ "name": "a", "attributes": [["href", "/2?a&b"]], "text": "two & more" }])
        );
    }
    let report = succeed(
        scratch.holdfast().args(["page", "keep", file, "--heap", "pages", "--name", "again", "--json"]),
    );
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!((&report["name"], &report["nodes"]), (&"again".into(), &16.into()));
    let told = tell(scratch.holdfast().args(["page", "query", "pages", "li"]));
    assert_eq!(told.status, 2);
    assert!(told.err.contains("--name: again, news.html"), "{}", told.err);
    let one =
        succeed(scratch.holdfast().args(["page", "query", "pages", "li", "--name", "again", "--count"]));
    assert_eq!(one, "2\n");
    let sound = succeed(scratch.holdfast().args(["heap", "check", "pages"]));
    assert!(!sound.is_empty());
}

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

#[test]
fn what_cannot_be_queried_or_kept_is_told_with_what_to_do() {
    let scratch = scratch();
    let file = scratch.write("news.html", PAGE).unwrap();
    let file = file.to_str().unwrap();
    let deep = scratch.write("deep.html", "<div>".repeat(3_000)).unwrap();
    let told = |arguments: &[&str]| tell(scratch.holdfast().arg("page").args(arguments));
    for (arguments, status, part) in [
        (&["query", file, "li:hover"][..], 2, "`li:hover` is no selector"),
        (&["query", file, "table"], 1, ""),
        (&["query", "./missing.html", "li"], 3, "missing.html"),
        (&["query", "missing.html", "li"], 3, "there is no file missing.html in this folder"),
        (&["query", "nothing", "li"], 3, "no heap of this name"),
        (&["query", file, "li", "--text", "--json"], 2, "cannot be used with"),
        (&["query", deep.to_str().unwrap(), "li"], 7, "more than 2048 levels of elements; only programs"),
        (&["query", file, "li", "--name", "x"], 2, "--name and --key are of heaps"),
        (&["query", "-", "li", "--key", "x"], 2, "--name and --key are of heaps"),
        (&["keep", deep.to_str().unwrap(), "--heap", "pages"], 7, "more than 2048 levels of elements"),
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

#[test]
fn pages_are_laid_out_by_a_program_beside_this_one_and_without_it_there_is_word_how_to_build_it() {
    let scratch = scratch();
    let own = scratch.files().join("holdfast");
    // Files that are run are written by others: what another thread starts meanwhile would hold them open.
    succeed(Command::new("cp").arg(scratch.programs().holdfast()).arg(&own));
    let run = |arguments: &[&str]| {
        let mut command = Command::new(&own);
        command.env("HOLDFAST_HOME", scratch.home()).env("HOLDFAST_POOL", scratch.pool());
        tell(command.env("PATH", "/nowhere").arg("page").args(arguments))
    };
    for command in ["open", "ls", "show", "rm", "stats"] {
        let told = run(&[command, "x.html"]);
        assert_eq!(told.status, 3, "{command}");
        assert!(told.err.contains("cargo build --release -p holdfast-page"), "{}", told.err);
    }
    // It gets what was typed as it was typed, and its end is the end.
    let text = "printf '%s\\n' '#!/bin/sh' 'printf \"<%s>\" \"$@\"' 'exit 5' > \"$0\" && chmod +x \"$0\"";
    succeed(Command::new("sh").args(["-c", text]).arg(own.with_file_name("holdfast-page")));
    let told = run(&["open", "a b.html", "--png", "--help", "-x"]);
    assert_eq!((told.status, &*told.out), (5, "<open><a b.html><--png><--help><-x>"), "{}", told.err);
}
