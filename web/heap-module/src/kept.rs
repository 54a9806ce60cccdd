//! Documents of the heap by the numbers of their nodes: what a light object of TypeScript asks.
//! Each question opens the document where it lies, which costs the same whatever its size.
//!
//! Invariant: answers are whole. Damage that was met on the way is an error.

use holdfast_dom::{Document, Documents, DomError, Node, ParseOptions, Selector};
use holdfast_heap::{Backing, Heap};

use crate::fault::{Code, Fault};

/// The number of the node that is the document itself.
pub use holdfast_dom::layout::DOCUMENT;

/// What of a node a text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Its name, with the prefix, in the letters of the document.
    Name,
    /// All text in it.
    Text,
    /// Its HTML.
    Outer,
    /// The HTML of what it holds.
    Inner,
    /// The URL of its namespace.
    Namespace,
}

/// A way from a node to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The elements below it that match, in document order.
    All,
    /// The first of these.
    First,
    /// It, or the nearest element above it, that matches.
    Closest,
    /// It, if it matches.
    Matches,
}

fn lent<B: Backing>(
    heap: &mut Heap<B>,
) -> Result<Documents<B, &mut holdfast_heap::Owned<B>>, Fault> {
    Documents::lent(heap).ok_or_else(|| Fault::new(Code::Host, "threads share the heap"))
}

/// Runs `work` with a document, and then looks whether damage was met.
fn with<B: Backing, R>(
    heap: &mut Heap<B>,
    name: &str,
    work: impl FnOnce(&Document<'_>) -> Result<R, Fault>,
) -> Result<R, Fault> {
    let documents = lent(heap)?;
    let document = documents.open(name)?;
    let answer = work(&document)?;
    match document.damage() {
        Some(damage) => Err(DomError::Damaged(damage).into()),
        None => Ok(answer),
    }
}

fn node<'d>(document: &'d Document<'_>, id: u32) -> Result<Node<'d>, Fault> {
    document.node(id).ok_or_else(|| Fault::new(Code::Stale, format!("node {id} does not exist")))
}

/// Looks whether there is a document of this name; whether there is.
///
/// # Errors
/// [`Code::Layout`] when something else has the name, [`Code::Newer`], [`Code::Corrupt`].
pub fn open<B: Backing>(heap: &mut Heap<B>, name: &str) -> Result<bool, Fault> {
    match with(heap, name, |_| Ok(())) {
        Ok(()) => Ok(true),
        Err(fault) if fault.code == Code::Missing => Ok(false),
        Err(fault) => Err(fault),
    }
}

/// Parses a page and keeps it under a name, in the place of the document that had it.
///
/// # Errors
/// [`Code::Limit`], [`Code::Layout`] when something else has the name, [`Code::Full`],
/// [`Code::ReadOnly`]: there is what there was before.
pub fn parse<B: Backing>(heap: &mut Heap<B>, name: &str, html: &[u8]) -> Result<(), Fault> {
    lent(heap)?.parse(name, html, &ParseOptions::default())?;
    Ok(())
}

/// The names of the documents.
///
/// # Errors
/// None that is known.
pub fn names<B: Backing>(heap: &mut Heap<B>) -> Result<Vec<String>, Fault> {
    let documents = lent(heap)?;
    let mut names: Vec<String> = documents.names().map(str::to_owned).collect();
    names.sort();
    Ok(names)
}

/// The elements that a selector leads to.
///
/// # Errors
/// [`Code::Selector`], [`Code::Limit`], [`Code::Stale`], [`Code::Corrupt`].
pub fn select<B: Backing>(
    heap: &mut Heap<B>,
    name: &str,
    from: u32,
    selector: &str,
    way: Way,
) -> Result<Vec<u32>, Fault> {
    let selector = Selector::parse(selector)?;
    with(heap, name, |document| {
        let from = node(document, from)?;
        Ok(match way {
            Way::All => from.select(&selector)?.into_iter().map(Node::id).collect(),
            Way::First => from.select_first(&selector)?.map(Node::id).into_iter().collect(),
            Way::Closest => from.closest(&selector)?.map(Node::id).into_iter().collect(),
            Way::Matches if from.matches(&selector)? => vec![from.id()],
            Way::Matches => Vec::new(),
        })
    })
}

/// The elements among the children of a node.
///
/// # Errors
/// [`Code::Stale`], [`Code::Corrupt`].
pub fn children<B: Backing>(heap: &mut Heap<B>, name: &str, of: u32) -> Result<Vec<u32>, Fault> {
    with(heap, name, |document| {
        let children = node(document, of)?.children().filter(|child| child.is_element());
        Ok(children.map(Node::id).collect())
    })
}

/// The element that a node is in.
///
/// # Errors
/// [`Code::Stale`], [`Code::Corrupt`].
pub fn parent<B: Backing>(heap: &mut Heap<B>, name: &str, of: u32) -> Result<Option<u32>, Fault> {
    with(heap, name, |document| {
        Ok(node(document, of)?.parent().filter(|parent| parent.is_element()).map(Node::id))
    })
}

/// A text of a node.
///
/// # Errors
/// [`Code::Stale`], [`Code::Limit`], [`Code::Corrupt`].
pub fn text<B: Backing>(
    heap: &mut Heap<B>,
    name: &str,
    of: u32,
    part: Part,
) -> Result<String, Fault> {
    with(heap, name, |document| {
        let node = node(document, of)?;
        Ok(match part {
            Part::Name => node.name().unwrap_or_default().to_owned(),
            Part::Text => node.text()?,
            Part::Outer => node.html()?,
            Part::Inner => node.inner_html()?,
            Part::Namespace => node.namespace().map(|of| of.url()).unwrap_or_default().to_owned(),
        })
    })
}

/// The value of an attribute of an element.
///
/// # Errors
/// [`Code::Stale`], [`Code::Corrupt`].
pub fn attribute<B: Backing>(
    heap: &mut Heap<B>,
    name: &str,
    of: u32,
    attribute: &str,
) -> Result<Option<String>, Fault> {
    with(heap, name, |document| Ok(node(document, of)?.attribute(attribute).map(str::to_owned)))
}

/// The names of the attributes of an element, in their order.
///
/// # Errors
/// [`Code::Stale`], [`Code::Corrupt`].
pub fn attribute_names<B: Backing>(
    heap: &mut Heap<B>,
    name: &str,
    of: u32,
) -> Result<Vec<String>, Fault> {
    with(heap, name, |document| {
        let node = node(document, of)?;
        Ok(node.attributes().map(|found| found.qualified_name().into_owned()).collect())
    })
}

/// Removes a document.
///
/// # Errors
/// [`Code::Missing`], [`Code::Layout`] for something else, [`Code::ReadOnly`].
pub fn remove<B: Backing>(heap: &mut Heap<B>, name: &str) -> Result<(), Fault> {
    Ok(lent(heap)?.remove(name)?)
}
