//! Limits on a page that is parsed. A page comes from strangers: it may be endless, as deep as it
//! is long, or one tag.

/// Limits on a page that is parsed; what is more is a typed error, and nothing is stored. Parsing
/// takes some 90 bytes of memory for each node, 40 for each attribute, and twice the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseLimits {
    /// Bytes of the source: 64 MiB. No more than 1 GiB counts.
    pub source_bytes: u64,
    /// Nodes: 4 million.
    pub nodes: u32,
    /// Nodes below each other: 2,048. The tree builder looks at all open elements for some tags, so
    /// time is the product of this and the length of the page.
    pub depth: u32,
    /// Attributes of one element: 1,023, which is as many as count.
    pub attributes: u32,
    /// White space, slashes and quotes within one tag or comment: 100,000. A tokenizer compares
    /// each attribute with all before it.
    pub token_parts: u64,
    /// Attributes of all elements together, and of all tags: 4 million. Some elements are made
    /// again and again, with their attributes.
    pub all_attributes: u32,
    /// Different names of elements and attributes: 16,384. The tokenizer has them in a table that
    /// does not grow. No more than 50,000 count.
    pub names: u32,
    /// Bytes of text, attributes' values and names: 128 MiB. No more than 2 GiB count.
    pub text_bytes: u64,
}

impl Default for ParseLimits {
    fn default() -> ParseLimits {
        ParseLimits {
            source_bytes: 64 << 20,
            nodes: 4_000_000,
            depth: 2_048,
            attributes: ATTRIBUTES_MAX,
            all_attributes: 4_000_000,
            names: 16_384,
            token_parts: 100_000,
            text_bytes: 128 << 20,
        }
    }
}

/// Bytes of a source that count at most.
pub(crate) const SOURCE_BYTES_MAX: u64 = 1 << 30;
/// Nodes, and attributes of all, that count at most.
pub(crate) const NODES_MAX: u32 = 1 << 30;
/// Bytes of text that count at most.
pub(crate) const TEXT_BYTES_MAX: u64 = 1 << 31;
/// Attributes of one element that count at most.
pub(crate) const ATTRIBUTES_MAX: u32 = 1_023;
/// Names that count at most. A record has 16 bits for their number, and the tag with which the
/// limit is passed adds fewer than the rest.
pub(crate) const NAMES_MAX: u32 = 50_000;
/// Texts of up to this many bytes are stored once, where the same was stored lately.
pub(crate) const SHARED_BYTES_MAX: usize = 64;
/// Bytes of a selector.
pub(crate) const SELECTOR_BYTES_MAX: usize = 16 << 10;
/// Brackets in each other in a selector.
pub(crate) const SELECTOR_NESTING_MAX: usize = 32;
/// Compound selectors in a row: matching goes as deep.
pub(crate) const SELECTOR_PARTS_MAX: usize = 256;
/// Levels that `:has` looks down: it does so by recursion, on a stack that may be 2 MiB, as a
/// thread's is.
pub(crate) const HAS_DEPTH_MAX: u16 = 2_048;

impl ParseLimits {
    /// As far as the format goes.
    pub(crate) fn within_format(self) -> ParseLimits {
        ParseLimits {
            source_bytes: self.source_bytes.min(SOURCE_BYTES_MAX),
            nodes: self.nodes.min(NODES_MAX),
            attributes: self.attributes.min(ATTRIBUTES_MAX),
            all_attributes: self.all_attributes.min(NODES_MAX),
            names: self.names.min(NAMES_MAX),
            text_bytes: self.text_bytes.min(TEXT_BYTES_MAX),
            ..self
        }
    }
}
