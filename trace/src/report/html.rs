//! The report as one file for a browser: pictures that a person can ask, drawn from the JSON that
//! is in the page.
//!
//! Invariants: the page asks the network for nothing, and its own policy forbids it to. Nothing of
//! the traced program (names, arguments) is ever markup: it is in the page as data only, and
//! becomes text.

use std::fmt::Write;

use super::document::Report;
use crate::diff::Diff;
use crate::matrix::document::Matrix;

const HEAD: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
const SCRIPTS: [&str; 5] = [
    include_str!("page/base.js"),
    include_str!("page/crossings.js"),
    include_str!("page/report.js"),
    include_str!("page/compare.js"),
    include_str!("page/main.js"),
];

/// What a page is about.
#[derive(Clone, Copy, Debug)]
pub enum Page<'a> {
    /// One trace.
    Report(&'a Report),
    /// Two traces, or groups of them.
    Diff(&'a Diff),
    /// Platforms.
    Matrix(&'a Matrix),
}

/// The page.
#[must_use]
pub fn html(page: Page<'_>) -> String {
    let (kind, data) = match page {
        Page::Report(report) => ("report", compact(report)),
        Page::Diff(diff) => ("diff", compact(diff)),
        Page::Matrix(matrix) => ("matrix", compact(matrix)),
    };
    let mut script = SCRIPTS.concat();
    // The scripts are ours, but a comment could name the tag.
    script = script.replace("</script", "<\\/script");
    let mut out = String::new();
    let mut rest = HEAD;
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, after) = after.split_once("}}").unwrap_or((after, ""));
        out += before;
        out += match name {
            "kind" => kind,
            "style" => STYLE,
            "script" => &script,
            _ => &data,
        };
        rest = after;
    }
    out += rest;
    out
}

/// JSON in which nothing can end the element that it is in.
fn compact(value: &impl serde::Serialize) -> String {
    let text = serde_json::to_string(value).unwrap_or_else(|error| {
        unreachable!("structs with string keys and finite numbers are always JSON: {error}")
    });
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                // Writing to a string cannot fail.
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            _ => out.push(c),
        }
    }
    out
}
