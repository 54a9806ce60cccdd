//! Queries: all matches of a selector in the mapped document, and in the parsed trees of scraper and
//! lexbor. All collect what they find, the selectors are parsed before, and no side's parsing of the page is in
//! the time.

use std::collections::HashMap;
use std::hint::black_box;
use std::io::{self, Error};

use holdfast_dom::{Document, Selector};
use scraper::Html;

use super::Shelf;
use super::lexbor::{Lexbor, Tree};
use super::list::Page;
use crate::heap::ground::{Ground, Store};
use crate::race::{Side, race};
use crate::timing::processor_ns;

const OURS: &str = "holdfast";
const SCRAPER: &str = "scraper";
const LEXBOR: &str = "lexbor";
/// Short queries are repeated as long in a turn.
const TURN_NS: f64 = 500_000.0;
const REPEATS_MAX: f64 = 1000.0;
/// A query that takes lexbor longer is measured once.
const ROUNDS_NS_MAX: f64 = 100_000_000.0;
/// One that takes it longer than this is not waited for, and counts as long.
const SECONDS_MAX: u32 = 2;

/// Kinds of selectors; CLASS is the class that most elements of the page have, ID is the identifier
/// in the middle of the page.
const KINDS: [(&str, &str); 14] = [
    ("tag", "a"),
    ("class", ".CLASS"),
    ("id", "#ID"),
    ("tag_class", "span.CLASS"),
    ("descendant", "div a"),
    ("descendants", "body div .CLASS"),
    ("child", "div > a"),
    ("sibling", "a + *"),
    ("attribute", "[title]"),
    ("attribute_prefix", "a[href^=http]"),
    ("not", "a:not([class])"),
    ("nth_child", ":nth-child(3)"),
    ("nth_of_type", "a:nth-of-type(2n+1)"),
    ("list", "h1, h2, h3, h4"),
];

/// What a kind of selectors came to, with a value for each page.
pub(super) struct Kind {
    pub(super) name: &'static str,
    /// Scraper's time for one of ours.
    pub(super) ratios: Vec<f64>,
    /// Lexbor's, if it is there.
    pub(super) lexbor_ratios: Vec<f64>,
    pub(super) ns_per_node: Vec<f64>,
}

pub(super) fn run(
    ground: &Ground,
    pages: &[Page],
    rounds: usize,
    lexbor: Option<&Lexbor>,
    notes: &mut Vec<String>,
) -> io::Result<Vec<Kind>> {
    let home = ground.home(Store::Memory)?;
    let mut shelf = Shelf::create(&home, "pages")?;
    for page in pages {
        shelf.parse(page)?;
    }
    shelf.close()?;
    let shelf = Shelf::open_to_read(&home, "pages")?;
    let mut kinds: Vec<Kind> = KINDS
        .iter()
        .map(|(name, _)| Kind {
            name,
            ratios: Vec::new(),
            lexbor_ratios: Vec::new(),
            ns_per_node: Vec::new(),
        })
        .collect();
    for page in pages {
        let document = shelf.documents.open(page.name).map_err(Error::other)?;
        let source = std::str::from_utf8(&page.source).map_err(Error::other)?;
        let html = Html::parse_document(source);
        let tree = match lexbor {
            Some(lexbor) => Some((lexbor, lexbor.parse(&page.source)?)),
            None => None,
        };
        for ((_, text), kind) in KINDS.iter().zip(&mut kinds) {
            let text = of_page(text, &document);
            let (ours, ratio, compared) =
                compare(&document, &html, tree.as_ref(), &text, rounds)
                    .map_err(|error| Error::other(format!("{} in {}: {error}", text, page.name)))?;
            kind.ratios.push(ratio);
            match compared {
                None => {}
                Some(Compared::Took(ratio)) => kind.lexbor_ratios.push(ratio),
                Some(Compared::TookLonger(ratio)) => {
                    kind.lexbor_ratios.push(ratio);
                    notes.push(format!(
                        "lexbor does not end within {SECONDS_MAX} s with {text} in {}, and counts as if it did then",
                        page.name
                    ));
                }
                Some(Compared::Found(many)) => notes.push(format!(
                    "lexbor finds {many} matches of {text} in {}, which is not what the two others find: its \
                     time does not count there",
                    page.name
                )),
            }
            kind.ns_per_node.push(ours / f64::from(document.size().nodes));
        }
    }
    shelf.close()?;
    Ok(kinds)
}

/// The selector with names that the page has.
pub(super) fn of_page(selector: &str, document: &Document<'_>) -> String {
    let mut many: HashMap<&str, usize> = HashMap::new();
    let mut ids = Vec::new();
    // Names that mean the same in a selector.
    let plain = |name: &&str| {
        name.starts_with(|c: char| c.is_ascii_alphabetic())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    for node in document.root().descendants() {
        node.classes().filter(plain).for_each(|class| *many.entry(class).or_default() += 1);
        ids.extend(node.html_id().filter(plain));
    }
    let class = many
        .into_iter()
        .max_by_key(|(class, many)| (*many, *class))
        .map_or("none", |(class, _)| class);
    let id = ids.get(ids.len() / 2).copied().unwrap_or("none");
    selector.replace("CLASS", class).replace("ID", id)
}

/// How often in one turn what takes so long is repeated.
fn repeats_of(once_ns: f64) -> usize {
    (TURN_NS / once_ns).clamp(1.0, REPEATS_MAX) as usize
}

/// How lexbor compares.
enum Compared {
    /// Its time for one of ours.
    Took(f64),
    /// At least.
    TookLonger(f64),
    /// It finds so many matches, which is not what the others find.
    Found(usize),
}

/// Our nanoseconds for a query, the medians of scraper's time for one of ours, and how lexbor
/// compares, where it is there.
fn compare(
    document: &Document<'_>,
    html: &Html,
    tree: Option<&(&Lexbor, Tree)>,
    text: &str,
    rounds: usize,
) -> io::Result<(f64, f64, Option<Compared>)> {
    let selector = Selector::parse(text).map_err(Error::other)?;
    let other = scraper::Selector::parse(text).map_err(|error| Error::other(error.to_string()))?;
    let ours =
        || document.select(black_box(&selector)).map(|found| found.len()).map_err(Error::other);
    let theirs = || html.select(black_box(&other)).collect::<Vec<_>>().len();
    let started_ns = processor_ns();
    let found = (ours()?, theirs());
    if found.0 != found.1 {
        return Err(Error::other(format!(
            "{} matches in the heap and {} in the other tree",
            found.0, found.1
        )));
    }
    let repeats = repeats_of(processor_ns() - started_ns);
    let our_side = Side::new(OURS, || {
        let started_ns = processor_ns();
        for _ in 0..repeats {
            black_box(ours()?);
        }
        Ok((processor_ns() - started_ns) / repeats as f64)
    });
    let their_side = Side::new(SCRAPER, || {
        let started_ns = processor_ns();
        for _ in 0..repeats {
            black_box(theirs());
        }
        Ok((processor_ns() - started_ns) / repeats as f64)
    });
    let mut sides = vec![our_side, their_side];
    let (mut other_count, mut once_ns) = (None, None);
    let limit_ns = f64::from(SECONDS_MAX) * 1e9;
    if let Some((lexbor, tree)) = tree {
        let list = lexbor.selectors(text)?;
        if lexbor.ends_within(SECONDS_MAX, tree, &list)? {
            let started_ns = processor_ns();
            let many = lexbor.matches(tree, &list)?;
            // Of some queries a large page takes it a thousand times as long as the two others.
            let took_ns = processor_ns() - started_ns;
            let repeats = repeats_of(took_ns);
            if many != found.0 {
                other_count = Some(many);
            } else if took_ns > ROUNDS_NS_MAX {
                once_ns = Some(took_ns);
            } else {
                sides.push(Side::new(LEXBOR, move || {
                    let started_ns = processor_ns();
                    for _ in 0..repeats {
                        black_box(lexbor.matches(tree, &list)?);
                    }
                    Ok((processor_ns() - started_ns) / repeats as f64)
                }));
            }
        } else {
            once_ns = Some(limit_ns);
        }
    }
    let times = race(rounds, sides)?;
    let ratio = times.ratio(SCRAPER, OURS).unwrap_or_default().median();
    let ours_ns = times.of(OURS).map_or(f64::NAN, crate::stats::Series::median);
    let compared = match (times.ratio(LEXBOR, OURS), once_ns, other_count) {
        (Some(ratios), ..) => Some(Compared::Took(ratios.median())),
        (None, Some(once_ns), _) if once_ns >= limit_ns => {
            Some(Compared::TookLonger(once_ns / ours_ns))
        }
        (None, Some(once_ns), _) => Some(Compared::Took(once_ns / ours_ns)),
        (None, None, many) => many.map(Compared::Found),
    };
    Ok((ours_ns, ratio, compared))
}
