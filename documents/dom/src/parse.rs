//! From bytes to a tree: pieces of a source go to html5ever, as long as no limit is passed.
//!
//! The source is taken for UTF-8; what is none becomes U+FFFD, as a browser shows it. How a source
//! is cut into pieces changes nothing.

use std::io::Read;
use std::rc::Rc;

use html5ever::tendril::StrTendril;
use html5ever::tokenizer::{BufferQueue, Tokenizer, TokenizerOpts};
use html5ever::tree_builder::{TreeBuilder, TreeBuilderOpts, TreeSink, create_element};
use html5ever::{QualName, ns};

use crate::arena::Arena;
use crate::error::{DomError, ParseLimit};
use crate::limits::ParseLimits;
use crate::namespace::Namespace;
use crate::open_tag::OpenTag;
use crate::sink::Sink;
use crate::tokens::{Tokens, feed};

/// How a page is parsed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParseOptions {
    /// How much of it.
    pub limits: ParseLimits,
    /// As a browser that runs scripts: the content of `noscript` is text then.
    pub scripting: bool,
    /// As the content of this element (its namespace and name), not as a whole page: what assigning
    /// to `innerHTML` does. The document then has an element `html` with the nodes in it.
    pub fragment_of: Option<(Namespace, String)>,
}

/// What is given to the parser at once.
const PIECE_BYTES: usize = 16 << 10;
/// Longest start of a character that is not complete.
const CHARACTER_REST_MAX: usize = 3;

/// U+FEFF in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// Parses a source to its end. A byte order mark at its start is none of its characters; every
/// other U+FEFF is.
pub(crate) fn parse(
    mut source: impl Read,
    options: &ParseOptions,
) -> Result<(Arena, ParsedSource), DomError> {
    let limits = options.limits.within_format();
    let queue = Rc::new(BufferQueue::default());
    let tokenizer = tokenizer(options, limits, queue.clone());
    let mut parsed = ParsedSource::default();
    let mut token = TokenWatch::default();
    let mut is_start = true;
    let mut piece = vec![0; PIECE_BYTES + CHARACTER_REST_MAX];
    let mut kept = 0;
    loop {
        let got = match source.read(&mut piece[kept..kept + PIECE_BYTES]) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            got => got?,
        };
        parsed.source_bytes += got as u64;
        if parsed.source_bytes > limits.source_bytes {
            return Err(DomError::Limit {
                limit: ParseLimit::SourceBytes,
                max: limits.source_bytes,
            });
        }
        let bytes = &piece[..kept + got];
        // The start of a character whose rest is still to come.
        let rest = if got == 0 { 0 } else { unfinished(bytes) };
        let mut whole = &bytes[..bytes.len() - rest];
        if is_start && !whole.is_empty() {
            // Once: a second mark is a character of the page.
            whole = whole.strip_prefix(BYTE_ORDER_MARK).unwrap_or(whole);
            is_start = false;
        }
        if !whole.is_empty() {
            let text = String::from_utf8_lossy(whole);
            queue.push_back(StrTendril::from_slice(&text));
            feed(&tokenizer, &queue);
            token.watch(&tokenizer.sink, &text, &limits)?;
        }
        let end = bytes.len();
        piece.copy_within(end - rest..end, 0);
        kept = rest;
        if got == 0 {
            break;
        }
    }
    tokenizer.end();
    // What ends with the last piece is judged, too.
    not_passed(&tokenizer.sink)?;
    let (mut arena, errors) = tokenizer.sink.builder.sink.finish();
    arena.scripting = options.scripting.into();
    parsed.errors = errors;
    Ok((arena, parsed))
}

/// What was seen while parsing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ParsedSource {
    pub(crate) source_bytes: u64,
    pub(crate) errors: u64,
}

fn tokenizer(
    options: &ParseOptions,
    limits: ParseLimits,
    queue: Rc<BufferQueue>,
) -> Tokenizer<Tokens> {
    let tree_builder =
        TreeBuilderOpts { scripting_enabled: options.scripting, ..TreeBuilderOpts::default() };
    let sink = Sink::new(limits);
    let (builder, initial_state) = match &options.fragment_of {
        None => (TreeBuilder::new(sink, tree_builder), None),
        Some((namespace, name)) => {
            let url = if *namespace == Namespace::None { ns!(html) } else { namespace.to_url() };
            let context = QualName::new(None, url, name.as_str().into());
            let context = create_element(&sink, context, Vec::new());
            let builder = TreeBuilder::new_for_fragment(sink, context, None, tree_builder);
            let state = builder.tokenizer_state_for_context_elem(options.scripting);
            (builder, Some(state))
        }
    };
    // The tokenizer would discard a U+FEFF at the start of all that it is fed with, and behind each
    // script (ADR 32).
    let options = TokenizerOpts { initial_state, discard_bom: false, ..TokenizerOpts::default() };
    Tokenizer::new(Tokens::new(builder, limits, queue), options)
}

fn not_passed(tokens: &Tokens) -> Result<(), DomError> {
    match tokens.passed() {
        Some((limit, max)) => Err(DomError::Limit { limit, max }),
        None => Ok(()),
    }
}

/// Watches the token that has begun and not ended at the end of each piece. The tokenizer hands a
/// tag over when it is complete, and compares each attribute with all before it.
#[derive(Default)]
struct TokenWatch {
    ended: u64,
    /// Bytes that separate attributes, since the last token.
    parts: u64,
    tag: OpenTag,
}

impl TokenWatch {
    /// Looks at what was fed last.
    fn watch(
        &mut self,
        tokens: &Tokens,
        piece: &str,
        limits: &ParseLimits,
    ) -> Result<(), DomError> {
        not_passed(tokens)?;
        let ended = tokens.ended.get();
        let mut open = piece.as_bytes();
        if ended != self.ended {
            (self.ended, self.parts, self.tag) = (ended, 0, OpenTag::default());
            let read = piece.len().saturating_sub(tokens.left_at_end.get());
            // A `<` behind another one is read before that one is handed over as text.
            let start = if piece.as_bytes()[..read].ends_with(b"<") { read - 1 } else { read };
            open = &piece.as_bytes()[start..];
        } else {
            let separates =
                |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, b'/' | b'"' | b'\'');
            self.parts += piece.bytes().filter(separates).count() as u64;
            if self.parts > limits.token_parts {
                return Err(DomError::Limit {
                    limit: ParseLimit::TokenParts,
                    max: limits.token_parts,
                });
            }
        }
        self.tag.read(open);
        if self.tag.attributes().saturating_sub(tokens.duplicates.get())
            > u64::from(limits.attributes)
        {
            return Err(DomError::Limit {
                limit: ParseLimit::Attributes,
                max: limits.attributes.into(),
            });
        }
        Ok(())
    }
}

/// Bytes at the end that are the start of a character.
fn unfinished(bytes: &[u8]) -> usize {
    let tail = &bytes[bytes.len().saturating_sub(CHARACTER_REST_MAX)..];
    for (index, byte) in tail.iter().enumerate().rev() {
        let have = tail.len() - index;
        let needed = match byte {
            0x80..=0xBF => continue,
            0xC2..=0xDF => 2,
            0xE0..=0xEF => 3,
            0xF0..=0xF4 => 4,
            _ => return 0,
        };
        return if have < needed { have } else { 0 };
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The decoder holds back only an incomplete character at the end of a piece of the source.
    ///
    /// Guarantee: documents/encodings
    #[test]
    fn only_split_characters_wait() {
        for (bytes, rest) in [
            (&b"abc"[..], 0),
            ("aé".as_bytes(), 0),
            (&b"a\xC3"[..], 1),
            (b"\xE2\x82", 2),
            (b"\xF0\x9F\x98", 3),
            (b"\xF0\x9F\x98\x80", 0),
            (b"\xFF", 0),
            (b"\x80\x80\x80\x80", 0),
            (b"", 0),
        ] {
            assert_eq!(unfinished(bytes), rest, "{bytes:?}");
        }
    }
}
