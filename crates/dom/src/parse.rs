//! From bytes to a tree: pieces of a source go to html5ever, as long as no limit is passed.
//!
//! The source is taken for UTF-8; what is none becomes U+FFFD, as a browser shows it.

use std::io::Read;

use html5ever::tendril::{StrTendril, TendrilSink};
use html5ever::tree_builder::TreeBuilderOpts;
use html5ever::{ParseOpts, Parser, QualName, ns, parse_document, parse_fragment};

use crate::arena::Arena;
use crate::error::{DomError, Limit};
use crate::limits::Limits;
use crate::namespace::Namespace;
use crate::sink::Sink;

/// How a page is parsed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParseOptions {
    /// How much of it.
    pub limits: Limits,
    /// As a browser that runs scripts: the content of `noscript` is text then.
    pub scripting: bool,
    /// As the content of this element (its namespace and name), not as a whole page: what assigning to `innerHTML` does. The
    /// document then has an element `html` with the nodes in it.
    pub fragment_of: Option<(Namespace, String)>,
}

/// What is given to the parser at once.
const PIECE_BYTES: usize = 16 << 10;
/// Longest start of a character that is not complete.
const CHARACTER_REST_MAX: usize = 3;

/// Parses a source to its end.
pub(crate) fn parse(mut source: impl Read, options: &ParseOptions) -> Result<(Arena, Parsed), DomError> {
    let limits = options.limits.within_format();
    let mut parser = parser(options, limits);
    let mut parsed = Parsed::default();
    let mut token = TokenWatch { calls: 0, parts: 0 };
    let mut piece = vec![0; PIECE_BYTES + CHARACTER_REST_MAX];
    let mut kept = 0;
    loop {
        let got = match source.read(&mut piece[kept..kept + PIECE_BYTES]) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            got => got?,
        };
        parsed.source_bytes += got as u64;
        if parsed.source_bytes > limits.source_bytes {
            return Err(DomError::Limit { limit: Limit::SourceBytes, max: limits.source_bytes });
        }
        let bytes = &piece[..kept + got];
        // The start of a character whose rest is still to come.
        let rest = if got == 0 { 0 } else { unfinished(bytes) };
        let whole = &bytes[..bytes.len() - rest];
        if !whole.is_empty() {
            let text = String::from_utf8_lossy(whole);
            parser.process(StrTendril::from_slice(&text));
            token.watch(&parser.tokenizer.sink.sink, whole, &limits)?;
        }
        let end = bytes.len();
        piece.copy_within(end - rest..end, 0);
        kept = rest;
        if got == 0 {
            break;
        }
    }
    let (arena, errors) = parser.finish();
    parsed.errors = errors;
    check(&arena, &limits)?;
    Ok((arena, parsed))
}

/// What was seen while parsing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parsed {
    pub(crate) source_bytes: u64,
    pub(crate) errors: u64,
}

fn parser(options: &ParseOptions, limits: Limits) -> Parser<Sink> {
    let tree_builder = TreeBuilderOpts { scripting_enabled: options.scripting, ..TreeBuilderOpts::default() };
    let parse_options = ParseOpts { tree_builder, ..ParseOpts::default() };
    match &options.fragment_of {
        None => parse_document(Sink::new(limits), parse_options),
        Some((namespace, name)) => {
            let url = if *namespace == Namespace::None { ns!(html) } else { namespace.to_url() };
            let context = QualName::new(None, url, name.as_str().into());
            parse_fragment(Sink::new(limits), parse_options, context, Vec::new(), options.scripting)
        }
    }
}

/// What ends with the last piece is judged, too.
fn check(arena: &Arena, limits: &Limits) -> Result<(), DomError> {
    let is = [
        (Limit::Nodes, arena.nodes.len() as u64, u64::from(limits.nodes)),
        (Limit::Attributes, u64::from(arena.attributes_most), u64::from(limits.attributes)),
        (Limit::Names, arena.names.all.len() as u64, u64::from(limits.names)),
        (Limit::TextBytes, arena.text_bytes, limits.text_bytes),
    ];
    match is.into_iter().find(|(_, is, max)| is > max) {
        Some((limit, _, max)) => Err(DomError::Limit { limit, max }),
        None => Ok(()),
    }
}

/// Watches that a tag ends before it has too many attributes: the tokenizer hands it over only then, and takes the longer for
/// each attribute the more there are.
struct TokenWatch {
    calls: u64,
    /// Bytes that separate attributes, since the last token.
    parts: u64,
}

impl TokenWatch {
    fn watch(&mut self, sink: &Sink, piece: &[u8], limits: &Limits) -> Result<(), DomError> {
        if let Some((limit, max)) = sink.passed() {
            return Err(DomError::Limit { limit, max });
        }
        let calls = sink.calls.get();
        if calls != self.calls {
            (self.calls, self.parts) = (calls, 0);
            return Ok(());
        }
        let separates = |byte: &&u8| byte.is_ascii_whitespace() || matches!(byte, b'/' | b'"' | b'\'');
        self.parts += piece.iter().filter(separates).count() as u64;
        if self.parts > limits.token_parts {
            return Err(DomError::Limit { limit: Limit::TokenParts, max: limits.token_parts });
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

    #[test]
    fn the_start_of_a_character_waits_for_its_rest_and_nothing_else_does() {
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
