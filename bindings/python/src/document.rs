//! A document as the Python half of the package uses it: nodes are numbers with their kinds.
//!
//! Invariants:
//! - Nothing of a document is kept from one call to the next; each reads it with the interpreter in
//!   hand, so that no other thread of Python changes it meanwhile. Only parsing, which is done in
//!   plain memory, lets go of the interpreter.
//! - A page that was parsed again, compacted or removed leads to no other one: its holder is
//!   refused.
#![forbid(unsafe_code)]

use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use holdfast_dom::{
    Document, DomError, Edit, LoosePage, Namespace, Node, NodeKind, ParseLimits, ParseOptions,
    Selector,
};
use holdfast_native_heap::RegionBacking;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::heap::Heap;
use crate::heap_core::{Core, Lent};
use crate::heap_error::Refusal;
use crate::process::Maker;

/// A node's number and kind.
type Found = (u32, u8);

/// A document in a heap, or a page in plain memory.
#[pyclass(frozen, weakref, module = "holdfast._holdfast", name = "_Document")]
pub(crate) struct NativeDocument {
    source: Mutex<Option<Arc<Source>>>,
    maker: Maker,
}

enum Source {
    Heap { core: Arc<Core>, name: String, edition: u64 },
    Loose(LoosePage),
}

fn found(node: Node<'_>) -> Found {
    (node.id(), node.kind() as u8)
}

impl NativeDocument {
    fn new(source: Source) -> NativeDocument {
        NativeDocument { source: Mutex::new(Some(Arc::new(source))), maker: Maker::new() }
    }

    fn source(&self, py: Python<'_>) -> PyResult<Arc<Source>> {
        self.maker.check(py)?;
        let source = self.source.lock().unwrap_or_else(PoisonError::into_inner).clone();
        source.ok_or_else(|| Refusal::DocumentClosed.raise(py))
    }

    /// Reads the document, with the interpreter in hand.
    fn read<R>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Document<'_>) -> Result<R, DomError>,
    ) -> PyResult<R> {
        let whole = |document: &Document<'_>| {
            let result = work(document);
            match document.damage() {
                Some(damage) => Err(DomError::Damaged(damage).into()),
                None => result.map_err(Refusal::from),
            }
        };
        let answer = match &*self.source(py)? {
            Source::Loose(page) => {
                page.open().map_err(Refusal::from).and_then(|document| whole(&document))
            }
            Source::Heap { core, name, edition } => {
                let _turn = core.my_turn(py)?;
                core.document(name, *edition, |documents| whole(&documents.open(name)?))
            }
        };
        answer.map_err(|refused| refused.raise(py))
    }

    /// Reads a node of the document.
    fn node<R>(&self, py: Python<'_>, id: u32, work: impl FnOnce(Node<'_>) -> R) -> PyResult<R> {
        self.read(py, |document| Ok(work(node_of(document, id)?)))
    }

    /// Changes the document, in the transaction that is open or in one of its own. What is refused
    /// before a store leaves that as it was.
    fn edit<R>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Edit<'_, '_, RegionBacking>) -> Result<R, DomError>,
    ) -> PyResult<R> {
        let source = self.source(py)?;
        let Source::Heap { core, name, edition } = &*source else {
            return Err(Refusal::Loose.raise(py));
        };
        let _turn = core.my_turn(py)?;
        let edited = core.change_documents(|documents, editions| {
            editions.check(name, *edition)?;
            let done: Result<_, DomError> = documents.edit(name, |edit| match work(edit) {
                Err(refused @ (DomError::Change(_) | DomError::Limit { .. })) => Ok(Err(refused)),
                done => done.map(Ok),
            });
            Ok(done??)
        });
        edited.map_err(|refused| refused.raise(py))
    }
}

fn node_of<'d>(document: &'d Document<'_>, id: u32) -> Result<Node<'d>, DomError> {
    document.node(id).ok_or_else(|| holdfast_dom::ChangeError::NoSuchNode { node: id }.into())
}

#[pymethods]
impl NativeDocument {
    /// Parses a page into plain memory: bytes, or a file.
    #[staticmethod]
    #[pyo3(signature = (data, path, *, scripting, source_bytes, nodes, depth, attributes, text_bytes, all_attributes, names,
        token_parts))]
    #[allow(clippy::too_many_arguments, reason = "they are named in Python")]
    fn parse(
        py: Python<'_>,
        data: Option<&Bound<'_, PyBytes>>,
        path: Option<PathBuf>,
        scripting: bool,
        source_bytes: Option<u64>,
        nodes: Option<u32>,
        depth: Option<u32>,
        attributes: Option<u32>,
        text_bytes: Option<u64>,
        all_attributes: Option<u32>,
        names: Option<u32>,
        token_parts: Option<u64>,
    ) -> PyResult<NativeDocument> {
        let default = ParseLimits::default();
        let limits = ParseLimits {
            source_bytes: source_bytes.unwrap_or(default.source_bytes),
            nodes: nodes.unwrap_or(default.nodes),
            depth: depth.unwrap_or(default.depth),
            attributes: attributes.unwrap_or(default.attributes),
            text_bytes: text_bytes.unwrap_or(default.text_bytes),
            all_attributes: all_attributes.unwrap_or(default.all_attributes),
            names: names.unwrap_or(default.names),
            token_parts: token_parts.unwrap_or(default.token_parts),
        };
        let options = ParseOptions { limits, scripting, fragment_of: None };
        let parsed = match (data, path) {
            (_, Some(path)) => {
                let opened = py.detach(|| File::open(&path));
                let file = opened.map_err(|error| match error.raw_os_error() {
                    Some(number) => {
                        PyOSError::new_err((number, error.kind().to_string(), path.clone()))
                    }
                    None => error.into(),
                })?;
                py.detach(|| LoosePage::parse(file, &options))
            }
            (Some(data), None) => {
                let bytes = data.as_bytes();
                py.detach(|| LoosePage::parse(bytes, &options))
            }
            (None, None) => py.detach(|| LoosePage::parse(&[][..], &options)),
        };
        let page = parsed.map_err(|error| Refusal::from(error).raise(py))?;
        Ok(NativeDocument::new(Source::Loose(page)))
    }

    /// Keeps this page in a heap, in the place of the document of that name.
    fn keep(&self, py: Python<'_>, heap: &Heap, name: &str) -> PyResult<NativeDocument> {
        let source = self.source(py)?;
        let Source::Loose(page) = &*source else { return Err(Refusal::DocumentClosed.raise(py)) };
        let core = heap.core(py)?;
        let turn = core.my_turn(py)?;
        let kept = core.change_documents(|documents, editions| {
            if documents.holds(name) {
                documents_outside(documents, "replacing a document")?;
            }
            documents.keep(name, page)?;
            Ok(editions.made(name, documents.heap().in_transaction()))
        });
        let edition = kept.map_err(|refused| refused.raise(py))?;
        drop(turn);
        Ok(NativeDocument::new(Source::Heap { core, name: name.to_owned(), edition }))
    }

    /// Opens a document of a heap.
    #[staticmethod]
    fn open(py: Python<'_>, heap: &Heap, name: &str) -> PyResult<NativeDocument> {
        let core = heap.core(py)?;
        let turn = core.my_turn(py)?;
        let opened = core.documents(|documents, editions| {
            documents.open(name)?;
            Ok(editions.of(name))
        });
        let edition = opened.map_err(|refused| refused.raise(py))?;
        drop(turn);
        Ok(NativeDocument::new(Source::Heap { core, name: name.to_owned(), edition }))
    }

    /// The names of the documents of a heap, sorted.
    #[staticmethod]
    fn names(py: Python<'_>, heap: &Heap) -> PyResult<Vec<String>> {
        let core = heap.core(py)?;
        let _turn = core.my_turn(py)?;
        let names = core.documents(|documents, _| {
            let mut names: Vec<String> = documents.names().map(str::to_owned).collect();
            names.sort_unstable();
            Ok(names)
        });
        names.map_err(|refused| refused.raise(py))
    }

    /// Lets go of the document.
    fn close(&self) {
        let source = self.source.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(source) = source {
            self.maker.let_go(source);
        }
    }

    #[getter]
    fn closed(&self) -> bool {
        self.source.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// Gives back what changes have left unused; nodes get other numbers.
    fn compact(&self, py: Python<'_>) -> PyResult<NativeDocument> {
        let source = self.source(py)?;
        let Source::Heap { core, name, edition } = &*source else {
            return Err(Refusal::Loose.raise(py));
        };
        let _turn = core.my_turn(py)?;
        let compacted = core.change_documents(|documents, editions| {
            editions.check(name, *edition)?;
            documents_outside(documents, "compacting a document")?;
            documents.compact(name)?;
            Ok(editions.made(name, false))
        });
        let edition = compacted.map_err(|refused| refused.raise(py))?;
        Ok(NativeDocument::new(Source::Heap { core: core.clone(), name: name.clone(), edition }))
    }

    /// Looks at every byte that means something; the number of nodes, and of those that were
    /// removed.
    fn check(&self, py: Python<'_>) -> PyResult<(u64, u64)> {
        self.read(py, |document| document.check().map(|checked| (checked.nodes, checked.removed)))
    }

    /// Bytes in the heap, and nodes.
    fn size(&self, py: Python<'_>) -> PyResult<(u64, u32)> {
        self.read(py, |document| Ok((document.size().bytes, document.size().nodes)))
    }

    fn kind(&self, py: Python<'_>, id: u32) -> PyResult<u8> {
        self.node(py, id, |node| node.kind() as u8)
    }

    fn parent(&self, py: Python<'_>, id: u32) -> PyResult<Option<Found>> {
        self.node(py, id, |node| node.parent().map(found))
    }

    fn next_sibling(&self, py: Python<'_>, id: u32) -> PyResult<Option<Found>> {
        self.node(py, id, |node| node.next_sibling().map(found))
    }

    fn previous_sibling(&self, py: Python<'_>, id: u32) -> PyResult<Option<Found>> {
        self.node(py, id, |node| node.previous_sibling().map(found))
    }

    fn template_contents(&self, py: Python<'_>, id: u32) -> PyResult<Option<Found>> {
        self.node(py, id, |node| node.template_contents().map(found))
    }

    fn children(&self, py: Python<'_>, id: u32) -> PyResult<Vec<Found>> {
        self.node(py, id, |node| node.children().map(found).collect())
    }

    fn ancestors(&self, py: Python<'_>, id: u32) -> PyResult<Vec<Found>> {
        self.node(py, id, |node| node.ancestors().map(found).collect())
    }

    /// What is below a node, in document order.
    fn descendants(&self, py: Python<'_>, id: u32) -> PyResult<Vec<Found>> {
        self.node(py, id, |node| node.descendants().map(found).collect())
    }

    /// The elements below a node, in document order; with names, those of one of them.
    fn elements(&self, py: Python<'_>, id: u32, names: Option<Vec<String>>) -> PyResult<Vec<u32>> {
        self.node(py, id, |node| {
            let wanted = |node: &Node<'_>| match (&names, node.name()) {
                (_, None) => false,
                (None, Some(_)) => true,
                (Some(names), Some(name)) => names.iter().any(|wanted| wanted == name),
            };
            node.descendants().filter(wanted).map(Node::id).collect()
        })
    }

    fn name(&self, py: Python<'_>, id: u32) -> PyResult<Option<String>> {
        self.node(py, id, |node| node.name().map(str::to_owned))
    }

    fn namespace(&self, py: Python<'_>, id: u32) -> PyResult<Option<&'static str>> {
        self.node(py, id, |node| node.namespace().map(Namespace::url))
    }

    /// Names, with prefixes, and values.
    fn attributes(&self, py: Python<'_>, id: u32) -> PyResult<Vec<(String, String)>> {
        self.node(py, id, |node| {
            let attributes = node.attributes();
            attributes.map(|at| (at.qualified_name().into_owned(), at.value.to_owned())).collect()
        })
    }

    /// The text of a text, comment or instruction; the name of a document type.
    fn data(&self, py: Python<'_>, id: u32) -> PyResult<Option<String>> {
        self.node(py, id, |node| {
            let data = node.data().or_else(|| node.doctype().map(|doctype| doctype.name));
            data.map(str::to_owned)
        })
    }

    /// The texts below a node, or of a text; but those in elements of the names in `without`, if
    /// they are not directly in this one.
    fn texts(&self, py: Python<'_>, id: u32, without: Vec<String>) -> PyResult<Vec<(u32, String)>> {
        self.node(py, id, |node| {
            let is_text = |node: &Node<'_>| node.kind() == NodeKind::Text;
            let shows = |text: &Node<'_>| {
                let parent = text.parent().filter(|parent| *parent != node).and_then(Node::name);
                parent.is_none_or(|name| !without.iter().any(|without| without == name))
            };
            let all = std::iter::once(node).chain(node.descendants()).filter(is_text).filter(shows);
            all.map(|text| (text.id(), text.data().unwrap_or_default().to_owned())).collect()
        })
    }

    fn html(&self, py: Python<'_>, id: u32, inner: bool) -> PyResult<String> {
        self.read(py, |document| {
            let node = node_of(document, id)?;
            if inner { node.inner_html() } else { node.html() }
        })
    }

    /// The elements below a node that match, or the first one.
    fn select(&self, py: Python<'_>, id: u32, selector: &str, first: bool) -> PyResult<Vec<u32>> {
        self.read(py, |document| {
            let (selector, node) = (Selector::parse(selector)?, node_of(document, id)?);
            let matches = match first {
                true => node.select_first(&selector)?.into_iter().collect(),
                false => node.select(&selector)?,
            };
            Ok(matches.into_iter().map(Node::id).collect())
        })
    }

    fn closest(&self, py: Python<'_>, id: u32, selector: &str) -> PyResult<Option<u32>> {
        self.read(py, |document| {
            let (selector, node) = (Selector::parse(selector)?, node_of(document, id)?);
            Ok(node.closest(&selector)?.map(Node::id))
        })
    }

    fn set_attribute(&self, py: Python<'_>, id: u32, name: &str, value: &str) -> PyResult<()> {
        self.edit(py, |edit| edit.set_attribute(id, name, value))
    }

    fn remove_attribute(&self, py: Python<'_>, id: u32, name: &str) -> PyResult<bool> {
        self.edit(py, |edit| edit.remove_attribute(id, name))
    }

    fn set_text(&self, py: Python<'_>, id: u32, text: &str) -> PyResult<()> {
        self.edit(py, |edit| edit.set_text(id, text))
    }

    fn create_element(
        &self,
        py: Python<'_>,
        name: &str,
        attributes: Vec<(String, String)>,
    ) -> PyResult<u32> {
        self.edit(py, |edit| {
            let id = edit.create_element(Namespace::Html, name)?;
            for (name, value) in &attributes {
                edit.set_attribute(id, name, value)?;
            }
            Ok(id)
        })
    }

    fn create_text(&self, py: Python<'_>, text: &str) -> PyResult<u32> {
        self.edit(py, |edit| edit.create_text(text))
    }

    /// Puts a node, or a new text, behind all children of a parent, or before a sibling.
    #[pyo3(signature = (node, text, parent, sibling))]
    fn place(
        &self,
        py: Python<'_>,
        node: Option<u32>,
        text: Option<&str>,
        parent: Option<u32>,
        sibling: Option<u32>,
    ) -> PyResult<()> {
        self.edit(py, |edit| {
            let node = match node {
                Some(node) => node,
                None => edit.create_text(text.unwrap_or_default())?,
            };
            match (parent, sibling) {
                (_, Some(sibling)) => edit.insert_before(sibling, node),
                (parent, None) => edit.append(parent.unwrap_or_default(), node),
            }
        })
    }

    fn detach(&self, py: Python<'_>, id: u32) -> PyResult<()> {
        self.edit(py, |edit| edit.remove(id))
    }
}

fn documents_outside(documents: &Lent<'_>, what: &'static str) -> Result<(), Refusal> {
    if documents.heap().in_transaction() { Err(Refusal::InTransaction { what }) } else { Ok(()) }
}

impl Drop for NativeDocument {
    fn drop(&mut self) {
        self.close();
    }
}
