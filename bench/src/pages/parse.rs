//! Parsing: ours from the bytes of a source to the committed document in a heap (level `process`),
//! with everything that was needed for it given back; html5ever's own tree from the same bytes to
//! the tree in memory, which is dropped outside of the time. The older document is removed outside
//! of the time, too.

use std::io::{self, Error};

use html5ever::tendril::{StrTendril, TendrilSink};
use markup5ever_rcdom::{Handle, NodeData, RcDom};

use super::Shelf;
use super::list::Page;
use crate::heap::ground::{Ground, Store};
use crate::race::{Side, race};
use crate::stats::Series;
use crate::timing::processor_ns;

const OURS: &str = "holdfast";
const RCDOM: &str = "rcdom";
/// Small pages are parsed several times in a turn: so many bytes.
const BYTES_A_TURN: usize = 1 << 20;

/// Of each page our nanoseconds and the other side's, of the processor.
pub(super) fn run(
    ground: &Ground,
    pages: &[Page],
    rounds: usize,
) -> io::Result<Vec<(Series, Series)>> {
    let home = ground.home(Store::Memory)?;
    let mut shelf = Shelf::create(&home, "pages")?;
    let mut times = Vec::new();
    for page in pages {
        same(&mut shelf, page)?;
        let turns = (BYTES_A_TURN / page.source.len()).max(1);
        let mut ours = || -> io::Result<f64> {
            let mut taken_ns = 0.0;
            for _ in 0..turns {
                shelf.documents.remove(page.name).map_err(Error::other)?;
                let started_ns = processor_ns();
                shelf.parse(page)?;
                taken_ns += processor_ns() - started_ns;
            }
            Ok(taken_ns / turns as f64)
        };
        let theirs = || -> io::Result<f64> {
            let mut taken_ns = 0.0;
            for _ in 0..turns {
                let started_ns = processor_ns();
                let tree = rcdom(page)?;
                taken_ns += processor_ns() - started_ns;
                drop(tree);
            }
            Ok(taken_ns / turns as f64)
        };
        let raced = race(rounds, vec![Side::new(OURS, &mut ours), Side::new(RCDOM, theirs)])?;
        let series = |name| raced.of(name).cloned().unwrap_or_default();
        times.push((series(OURS), series(RCDOM)));
    }
    shelf.close()?;
    Ok(times)
}

fn rcdom(page: &Page) -> io::Result<RcDom> {
    let source = std::str::from_utf8(&page.source).map_err(Error::other)?;
    Ok(html5ever::parse_document(RcDom::default(), Default::default())
        .one(StrTendril::from_slice(source)))
}

/// Both trees have the same number of nodes.
fn same(shelf: &mut Shelf, page: &Page) -> io::Result<()> {
    let ours = shelf.parse(page)?.nodes;
    // A node that goes takes its children out of nodes below it that are still held, too.
    let tree = rcdom(page)?;
    let mut theirs = 0;
    let mut open: Vec<Handle> = vec![tree.document.clone()];
    while let Some(node) = open.pop() {
        theirs += 1;
        open.extend(node.children.borrow().iter().cloned());
        if let NodeData::Element { template_contents, .. } = &node.data {
            open.extend(template_contents.borrow().clone());
        }
    }
    if ours == theirs {
        return Ok(());
    }
    Err(Error::other(format!(
        "the page {} has {ours} nodes in the heap and {theirs} in the other tree",
        page.name
    )))
}
