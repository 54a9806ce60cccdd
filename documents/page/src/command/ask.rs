//! `find` and `boxes`: what is where on a page, from its kept layout or a new one.

use std::fmt::Write as _;

use holdfast_sys::terminal::{Shown, notice};
use serde::Serialize;

use crate::command::args::{AskArgs, BoxesArgs, FindArgs};
use crate::command::{FOUND, Failure, USAGE, cache, keep, limits, opening, print, print_json, web};
use crate::{Address, FindOptions, OpenOptions, OpenPage, PageUse, Place, open_with};

/// What `find --json` prints of each match; pixels of the page.
#[derive(Serialize)]
struct MatchReport<'a> {
    /// Left, top, right, bottom, once for each line.
    places: &'a [Place],
    text: &'a str,
    fixed: bool,
    node: u32,
}

/// What `boxes --json` prints of each element; pixels of the page.
#[derive(Serialize)]
struct BoxReport {
    node: u32,
    /// Left, top, right, bottom.
    place: Place,
    fixed: bool,
}

pub(crate) fn find(args: &FindArgs) -> Result<u8, Failure> {
    let opened = ask(&args.ask)?;
    let Some(places) = &opened.places else { return Ok(FOUND) };
    let matches = places.find(&args.text, FindOptions { case: args.case, max: args.max });
    let reports: Vec<MatchReport<'_>> = matches
        .iter()
        .map(|one| MatchReport {
            places: &one.places,
            text: places
                .text
                .get(one.block)
                .and_then(|block| block.text().get(one.range.clone()))
                .unwrap_or_default(),
            fixed: one.fixed,
            node: one.node,
        })
        .collect();
    if args.ask.json {
        print_json(&reports)?;
    } else {
        let mut lines = String::new();
        for report in &reports {
            for (number, place) in report.places.iter().enumerate() {
                let text = if number == 0 { report.text } else { "..." };
                let _ =
                    writeln!(lines, "{}{}  {}", corners(place), fixed(report.fixed), Shown(text));
            }
        }
        print(&lines)?;
    }
    Ok(if reports.is_empty() { FOUND } else { 0 })
}

pub(crate) fn boxes(args: &BoxesArgs) -> Result<u8, Failure> {
    let opened = ask(&args.ask)?;
    let found = opened
        .boxes_of(&args.selector)
        .map_err(|error| Failure { code: USAGE, message: error.to_string() })?;
    if args.ask.json {
        let report =
            |one: &crate::NodeBox| BoxReport { node: one.node, place: one.place, fixed: one.fixed };
        print_json(&found.iter().map(report).collect::<Vec<_>>())?;
    } else {
        let line = |one: &crate::NodeBox| {
            format!("{}{}  node {}\n", corners(&one.place), fixed(one.fixed), one.node)
        };
        print(&found.iter().map(line).collect::<String>())?;
    }
    Ok(if found.is_empty() { FOUND } else { 0 })
}

fn corners(place: &Place) -> String {
    let [x0, y0, x1, y1] = place.map(f32::round);
    format!("{x0},{y0} {x1},{y1}")
}

fn fixed(fixed: bool) -> &'static str {
    if fixed { " (stays in the viewport)" } else { "" }
}

/// Opens a page to be asked, and keeps what had to be made for it.
fn ask(args: &AskArgs) -> Result<OpenPage, Failure> {
    let address = Address::parse(&args.page)?;
    let view = args.viewport.view()?;
    let limits = limits(args.timeout, &args.servers);
    let cache = if args.no_cache { None } else { cache(&args.place).ok() };
    let opening = OpenOptions {
        want: PageUse::Places,
        ..opening(view, &limits, cache.as_ref(), &args.servers, web(&args.servers))
    };
    let mut opened = open_with(&address, &opening)?;
    for note in &opened.notes {
        notice(format_args!("holdfast: {}", Shown(note)));
    }
    keep(&mut opened, cache.as_ref());
    Ok(opened)
}
