//! The errors of documents, each with what to do about it.

use holdfast_heap::HeapError;

/// A part of a document's bytes that cannot be what it claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Damage {
    /// The object is too small for a header, or does not begin with one.
    NoHeader,
    /// The header's sum does not match.
    HeaderSum,
    /// A word of the header is none of those that it can be.
    HeaderWord {
        /// Which one.
        word: &'static str,
    },
    /// A table does not lie in the object.
    Table {
        /// Which one.
        table: &'static str,
    },
    /// A node's number or a link between nodes is wrong.
    Node {
        /// The node that leads there.
        node: u32,
    },
    /// An attribute's number or value is wrong.
    Attribute {
        /// Its number.
        attribute: u32,
    },
    /// A name's number or text is wrong.
    Name {
        /// Its number.
        name: u32,
    },
    /// A text does not lie in the document, or is no UTF-8.
    Text {
        /// Where it starts.
        start: u32,
    },
    /// Nodes lead to each other in a circle.
    Circle {
        /// The node at which that was seen.
        node: u32,
    },
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoHeader => f.write_str("it has no header of a document"),
            Self::HeaderSum => f.write_str("the sum of its header does not match"),
            Self::HeaderWord { word } => write!(f, "its header has {word} that there are not"),
            Self::Table { table } => write!(f, "its table of {table} does not lie in it"),
            Self::Node { node } => write!(f, "node {node} leads to none"),
            Self::Attribute { attribute } => write!(f, "attribute {attribute} is none"),
            Self::Name { name } => write!(f, "name {name} is none"),
            Self::Text { start } => write!(f, "the text at {start} is none"),
            Self::Circle { node } => write!(f, "node {node} is part of a circle"),
        }
    }
}

/// A limit on what is parsed or queried: see [`ParseLimits`](crate::ParseLimits).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParseLimit {
    /// Bytes of the source.
    SourceBytes,
    /// Nodes of the document.
    Nodes,
    /// Nodes below each other.
    Depth,
    /// Attributes of one element or tag.
    Attributes,
    /// Attributes of all elements, or of all tags.
    AllAttributes,
    /// Different names of elements and attributes.
    Names,
    /// White space, slashes and quotes in one tag or comment: no tag has more attributes than that.
    TokenParts,
    /// Bytes of text, values and names.
    TextBytes,
    /// Bytes of a selector.
    SelectorBytes,
    /// Brackets in each other in a selector.
    SelectorNesting,
    /// Compound selectors in a row.
    SelectorParts,
    /// Bytes of long names in HTML that is written.
    NamesBytes,
    /// Levels below an element that `:has` is asked of.
    HasDepth,
}

impl std::fmt::Display for ParseLimit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::SourceBytes => "bytes of source",
            Self::Nodes => "nodes",
            Self::Depth => "levels of elements",
            Self::Attributes => "attributes of one element",
            Self::AllAttributes => "attributes of all elements",
            Self::Names => "different names of elements and attributes",
            Self::TokenParts => "parts of one tag or comment",
            Self::TextBytes => "bytes of text",
            Self::SelectorBytes => "bytes of a selector",
            Self::SelectorNesting => "levels of brackets in a selector",
            Self::SelectorParts => "compounds in a selector",
            Self::NamesBytes => "bytes of long names of elements and attributes in one HTML",
            Self::HasDepth => "levels of elements below one that `:has` is asked of",
        })
    }
}

impl ParseLimit {
    /// What to do about it.
    #[must_use]
    pub fn advice(self) -> &'static str {
        match self {
            Self::SelectorBytes | Self::SelectorNesting | Self::SelectorParts => {
                "ask by several shorter selectors"
            }
            Self::HasDepth => "ask of elements further below, or without `:has`",
            Self::NamesBytes => "ask for parts of the document one by one",
            _ => "raise the limit if the page is known to be good",
        }
    }

    /// Whether it is one of [`ParseLimits`](crate::ParseLimits).
    #[must_use]
    pub fn of_pages(self) -> bool {
        !matches!(
            self,
            Self::SelectorBytes
                | Self::SelectorNesting
                | Self::SelectorParts
                | Self::HasDepth
                | Self::NamesBytes
        )
    }
}

/// Why something was not done with a document.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DomError {
    /// The source cannot be read, or the target cannot be written.
    #[error("the page cannot be read or written: {0}")]
    Io(#[from] std::io::Error),
    /// More than a limit allows; nothing was stored.
    #[error("more than {max} {limit}; {}", limit.advice())]
    Limit {
        /// Which one.
        limit: ParseLimit,
        /// What it is.
        max: u64,
    },
    /// There is no such document.
    #[error("there is no document {name:?} in the heap; parse a page under that name first")]
    NoSuchDocument {
        /// The name.
        name: String,
    },
    /// The name is that of something else.
    #[error("{name:?} in the heap is no document; choose another name")]
    NotADocument {
        /// The name.
        name: String,
    },
    /// The document was written by a newer version.
    #[error("the document is of format {version}, this program knows {known}; use a newer one, or parse the page again", known = crate::layout::FORMAT_VERSION)]
    NewerFormat {
        /// Its format.
        version: u32,
    },
    /// Bytes of the document are wrong.
    #[error("the document is damaged: {0}; parse the page again")]
    Damaged(Damage),
    /// The selector is invalid.
    #[error("invalid selector `{selector}`: {reason} at character {column}")]
    Selector {
        /// The text.
        selector: String,
        /// What is wrong with it.
        reason: String,
        /// Where, from 1.
        column: u32,
    },
    /// A change that no document can have.
    #[error("{0}")]
    Change(#[from] ChangeError),
    /// What the heap says.
    #[error(transparent)]
    Heap(#[from] HeapError),
}

/// A change that was refused, because a tree cannot be so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeError {
    /// No node has this number.
    #[error("node {node} does not exist")]
    NoSuchNode {
        /// The number.
        node: u32,
    },
    /// The node cannot have children, or not this one.
    #[error(
        "node {child} cannot be put into node {parent}: only the document, elements and templates' contents hold nodes, and nothing holds the document"
    )]
    Hierarchy {
        /// The one that was to hold it.
        parent: u32,
        /// The one that was to be put there.
        child: u32,
    },
    /// The node would be its own ancestor.
    #[error("node {child} holds node {parent}; it cannot be put into it")]
    OwnAncestor {
        /// The one that was to hold it.
        parent: u32,
        /// The one that was to be put there.
        child: u32,
    },
    /// The node is of a kind that does not have that.
    #[error("node {node} is no {wanted}")]
    WrongKind {
        /// The node.
        node: u32,
        /// What it had to be.
        wanted: &'static str,
    },
    /// The node has no parent.
    #[error("node {node} has no parent, and so no siblings")]
    NoParent {
        /// The node.
        node: u32,
    },
    /// No element or attribute can have this name.
    #[error(
        "an element's or attribute's name has at least one character, and no white space, `/`, `=`, `>`, `<`, quotes or NUL; an element's begins with a letter"
    )]
    BadName,
}
