//! Persistent HTML documents. A page is parsed once, as the specification of HTML says, into a heap; from then on the document
//! is used where it lies: walked, searched by selectors, written as HTML again and changed in transactions, without being
//! loaded, by any number of processes that read.
//!
//! A tour, bottom up:
//! - `layout`: the records of the format. `namespace`, `error`, `limits`: what they and everything else is told in.
//! - `sink`, `arena`: the tree while html5ever builds it. `tokens`, `parse`: pieces of a source, and when it is too much. `image`: the
//!   bytes of a document from that.
//! - [`Document`]: a document in its bytes. [`Node`]: its nodes. `serialize`: HTML again. `check`: all of it.
//! - [`Selector`], `plan`, `pass`, `matching`, `select`: queries.
//! - [`Documents`]: the documents of a heap. [`Edit`], `name`: changes; `append`: what they store.
//!
//! The invariant that all of it serves: **no byte of a document is believed.** Each number is looked up in a table whose place is
//! known to lie in the document; what is wrong reads as nothing and is noted, and a whole answer is an error then.
//!
//! What it must not do: copy a document to read it; recurse on the depth of a page; keep an address in a document.

#![forbid(unsafe_code)]

mod append;
mod arena;
mod check;
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
pub use error::{ChangeError, Damage, DomError, Limit};
pub use layout::NodeKind;
pub use limits::Limits;
pub use namespace::Namespace;
pub use node::{Ancestors, AttributeRef, Descendants, Doctype, Node, Siblings};
pub use parse::ParseOptions;
pub use selector::Selector;
