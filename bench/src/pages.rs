//! The suite `pages`: what persistent documents cost, on real pages: opening one, parsing a page
//! into a heap, its size, queries, and several readers at a time; and what it takes to show a page
//! again, against our own first time and other browsers. `bench/README.md` says what each key
//! means.
//!
//! Invariants: both sides parse the same bytes with scripts on, and their results are compared; a
//! page that is not there is named, and its keys are not in the output.

mod browsers;
mod disk;
#[allow(unsafe_code, reason = "calls a library in C")]
mod lexbor;
mod list;
mod open;
mod ours;
mod parse;
mod process;
mod query;
mod readers;
mod reopen;
mod screen;
mod server;
mod sizes;

use std::io::{self, Error};

use holdfast_dom::{Documents, ParseOptions, ParseReport};
use holdfast_native_heap::{HeapRegion, RegionBacking, open_data_heap};

use crate::heap::ground::{Ground, Home, name};
use crate::report::{Goal, Outcome};
use crate::section;
use crate::stats::Series;

pub use readers::{READER, play};

use list::{Page, pages};

/// Of a heap that holds one page, or some.
const LIMIT_BYTES: u64 = 256 << 20;

/// A part of the suite.
type Section = (&'static str, fn(&Ground, &[Page], usize, &mut Outcome) -> io::Result<()>);

const SECTIONS: [Section; 9] = [
    ("open", opens),
    ("parse", parses),
    ("size", document_sizes),
    ("query", queries),
    ("readers", several_readers),
    ("reopen", reopen::run),
    ("collection", reopen::collection),
    ("disk", disk::run),
    ("browsers", browsers::run),
];

/// Runs the suite, or the section with the name `only`; `progress` gets the name of each step.
///
/// # Errors
/// When there is no such section, no page, no room, or two sides come to different results.
pub fn run(runs: usize, only: Option<&str>, progress: &mut dyn FnMut(&str)) -> io::Result<Outcome> {
    let chosen = section::chosen(&SECTIONS, only)?;
    let (pages, missing) = pages()?;
    println!("pages: {}", list::told(&pages));
    let ground = Ground::new()?;
    let mut outcome =
        section::run(chosen, progress, |section, outcome| section(&ground, &pages, runs, outcome))?;
    outcome.missing.extend(missing);
    Ok(outcome)
}

fn opens(ground: &Ground, pages: &[Page], runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    let opened = open::run(ground, pages, runs)?;
    let medians: Series = opened.iter().map(|(whole, _)| whole.median()).collect();
    outcome.add("dom_open_us", Some(medians.clone()), "us", Some(Goal::AtMost(50.0)));
    outcome.add(
        "dom_open_in_heap_us",
        Some(opened.iter().map(|(_, inner)| inner.median()).collect()),
        "us",
        None,
    );
    let (first, last) =
        (opened.first().map(|(whole, _)| whole), opened.last().map(|(whole, _)| whole));
    let ratio = first.zip(last).map(|(small, large)| large.over(small));
    outcome.add("dom_open_largest_vs_smallest", ratio, "x", None);
    for (page, (whole, _)) in pages.iter().zip(opened) {
        outcome.add(
            format!("dom_open_us/{}", page.name),
            Some(whole),
            "us",
            Some(Goal::AtMost(50.0)),
        );
    }
    Ok(())
}

fn parses(ground: &Ground, pages: &[Page], runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    let times = parse::run(ground, pages, fewer(runs))?;
    let ratios: Vec<Series> = times.iter().map(|(ours, theirs)| ours.over(theirs)).collect();
    let key = "parse_into_heap_vs_html5ever_rcdom";
    let goal = Some(Goal::AtMost(1.1));
    outcome.add(key, Some(ratios.iter().map(Series::median).collect()), "x", goal);
    let speed = pages
        .iter()
        .zip(&times)
        .map(|(page, (ours, _))| page.source.len() as f64 * 1e3 / ours.median());
    outcome.add("parse_into_heap_mb_per_s", Some(speed.collect()), "MB/s", None);
    for (page, ratio) in pages.iter().zip(ratios) {
        outcome.add(format!("{key}/{}", page.name), Some(ratio), "x", goal);
    }
    Ok(())
}

fn document_sizes(
    ground: &Ground,
    pages: &[Page],
    _: usize,
    outcome: &mut Outcome,
) -> io::Result<()> {
    let sizes = sizes::run(ground, pages)?;
    let key = "bytes_per_source_byte";
    let goal = Some(Goal::AtMost(2.0));
    outcome.add(key, Some(sizes.iter().map(|size| size.in_heap).collect()), "x", goal);
    outcome.add(
        "parts_per_source_byte_nodes",
        Some(sizes.iter().map(|size| size.nodes).collect()),
        "x",
        None,
    );
    let attributes = sizes.iter().map(|size| size.attributes).collect();
    outcome.add("parts_per_source_byte_attributes", Some(attributes), "x", None);
    outcome.add(
        "parts_per_source_byte_text",
        Some(sizes.iter().map(|size| size.text).collect()),
        "x",
        None,
    );
    for (page, size) in pages.iter().zip(sizes) {
        outcome.add(
            format!("{key}/{}", page.name),
            Some(Series::from_iter([size.in_heap])),
            "x",
            goal,
        );
    }
    Ok(())
}

fn queries(ground: &Ground, pages: &[Page], runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    let lexbor = lexbor::Lexbor::load(&ground.on_disk("lexbor")?).unwrap_or_else(|error| {
        outcome.missing.push(error.to_string());
        None
    });
    if lexbor.is_none() {
        outcome.missing.push(lexbor::REMEDY.to_owned());
    }
    let times = query::run(ground, pages, fewer(runs), lexbor.as_ref(), &mut outcome.notes)?;
    let goal = Some(Goal::AtLeast(1.5));
    let all: Series = times.iter().flat_map(|kind| &kind.lexbor_ratios).copied().collect();
    if all.count() > 0 {
        outcome.add("query_vs_lexbor", Some(all), "x", goal);
        for kind in times.iter().filter(|kind| !kind.lexbor_ratios.is_empty()) {
            let ratios = kind.lexbor_ratios.iter().copied().collect();
            outcome.add(format!("query_vs_lexbor/{}", kind.name), Some(ratios), "x", goal);
        }
    }
    let goal = Some(Goal::AtLeast(2.0));
    let all = times.iter().flat_map(|kind| &kind.ratios).copied().collect();
    outcome.add("query_vs_scraper", Some(all), "x", goal);
    for kind in &times {
        let ratios = kind.ratios.iter().copied().collect();
        outcome.add(format!("query_vs_scraper/{}", kind.name), Some(ratios), "x", goal);
    }
    for kind in &times {
        let ours = kind.ns_per_node.iter().copied().collect();
        outcome.add(format!("query_ns_per_node/{}", kind.name), Some(ours), "ns", None);
    }
    Ok(())
}

fn several_readers(
    ground: &Ground,
    pages: &[Page],
    runs: usize,
    outcome: &mut Outcome,
) -> io::Result<()> {
    let (readers, scaling) = readers::run(ground, pages, fewer(runs))?;
    outcome.add("readers_scaling", Some(scaling), "x", None);
    outcome.add("readers", Some(Series::from_iter([readers as f64])), "", None);
    Ok(())
}

/// What takes seconds is repeated less often than what takes milliseconds.
fn fewer(runs: usize) -> usize {
    runs.div_ceil(3)
}

/// A heap of documents, open.
struct Shelf {
    documents: Documents<RegionBacking>,
    region: HeapRegion,
}

impl Shelf {
    fn create(home: &Home, heap: &str) -> io::Result<Shelf> {
        let region =
            home.names.create(&name(heap)?, &home.key, LIMIT_BYTES).map_err(Error::other)?;
        Shelf::of(region)
    }

    fn open_to_read(home: &Home, heap: &str) -> io::Result<Shelf> {
        Shelf::of(home.names.open_read_only(&name(heap)?, &home.key).map_err(Error::other)?)
    }

    fn of(region: holdfast_region::Region) -> io::Result<Shelf> {
        let (heap, region) = open_data_heap(region).map_err(Error::other)?;
        Ok(Shelf { documents: Documents::new(heap), region })
    }

    fn parse(&mut self, page: &Page) -> io::Result<ParseReport> {
        self.documents.parse(page.name, &page.source[..], &options()).map_err(Error::other)
    }

    fn close(self) -> io::Result<()> {
        drop(self.documents.into_heap().close());
        self.region.close().map(drop).map_err(Error::other)
    }
}

/// As the other sides parse.
fn options() -> ParseOptions {
    ParseOptions { scripting: true, ..ParseOptions::default() }
}
