//! Persistent HTML documents. A page is parsed once, as the HTML specification says, into a heap.
//! From then on the document is used in place by any number of readers: walked, searched by
//! selectors, serialised, and changed in transactions. Nothing is loaded or copied to open it.
//!
//! # To use it
//! [`Documents`] holds the documents of a heap: `parse` stores a page, `open` returns a
//! [`Document`], `edit` changes one in a transaction ([`Edit`]). [`Document::select`] takes a
//! [`Selector`] and returns [`Node`]s. [`LoosePage`] is a document outside any heap.
//!
//! # The modules, bottom up
//! - `layout`: the records of the format. `namespace`, `error`, `limits`: shared terms.
//! - `sink`, `arena`: the tree while html5ever builds it. `tokens`, `parse`: the source and its
//!   limits. `image`: the bytes of a document from that tree.
//! - `document`, `node`: a document in its bytes. `serialize`: HTML again. `check`: every byte.
//! - `selector`, `plan`, `pass`, `matching`, `select`: queries.
//! - `documents`, `edit`, `name`, `append`: the documents of a heap and their changes.
//!
//! # Invariant
//! **No byte of a document is trusted.** Each number is looked up in a table whose place in the
//! document was checked. A wrong value reads as absent and is noted, and a query over it returns an
//! error. No function copies a document to read it or recurses on the depth of a page.

#![forbid(unsafe_code)]

mod arena;
mod check;
mod climb;
mod document;
mod documents;
mod edit;
mod error;
mod image;
pub mod layout;
mod limits;
mod matching;
mod name;
mod namespace;
mod node;
mod open_tag;
mod parse;
mod pass;
mod plan;
mod select;
mod selector;
mod serialize;
mod sink;
mod tokens;

pub use check::CheckReport;
pub use document::{Document, DocumentSize, Quirks};
pub use documents::{Documents, LoosePage, ParseReport};
pub use edit::Edit;
pub use error::{ChangeError, Damage, DomError, ParseLimit};
pub use layout::NodeKind;
pub use limits::ParseLimits;
pub use namespace::Namespace;
pub use node::{Ancestors, AttributeRef, Descendants, Doctype, Node, Siblings};
pub use parse::ParseOptions;
pub use selector::Selector;
