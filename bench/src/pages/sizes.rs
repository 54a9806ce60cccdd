//! Measures the bytes that a document takes in its heap for each byte of the source.

use std::io::{self, Error};

use holdfast_dom::layout::{AttributeRecord, NodeRecord};

use super::Shelf;
use super::list::Page;
use crate::heap::ground::{Ground, Store};

/// For each byte of the source.
pub(super) struct Sizes {
    /// All that the allocator gave away for the document.
    pub(super) in_heap: f64,
    pub(super) nodes: f64,
    pub(super) attributes: f64,
    pub(super) text: f64,
}

pub(super) fn run(ground: &Ground, pages: &[Page]) -> io::Result<Vec<Sizes>> {
    let home = ground.home(Store::Memory)?;
    let mut shelf = Shelf::create(&home, "pages")?;
    let mut sizes = Vec::new();
    for page in pages {
        shelf.parse(page)?;
        let heap = shelf.documents.heap();
        let root = heap
            .root(page.name)
            .ok_or_else(|| Error::other("a page that was parsed is not there"))?;
        let in_heap = heap.usable_bytes(root.pointer).map_err(Error::other)?;
        let size = shelf.documents.open(page.name).map_err(Error::other)?.size();
        let each = |bytes: u64| bytes as f64 / page.source.len() as f64;
        let table = |records: u32, record: usize| each(u64::from(records) * record as u64);
        sizes.push(Sizes {
            in_heap: each(in_heap),
            nodes: table(size.nodes, size_of::<NodeRecord>()),
            attributes: table(size.attributes, size_of::<AttributeRecord>()),
            text: table(size.text_bytes, 1),
        });
    }
    shelf.close()?;
    Ok(sizes)
}
