//! A filter between the tokenizer and the tree builder: it counts tags, also those of which no
//! element becomes, and passes nothing on after a limit was reached.
//!
//! Invariant: what is stored beyond a limit is what one token makes, however much of the source is
//! still with the tokenizer.

use std::cell::Cell;
use std::rc::Rc;

use html5ever::TokenizerResult;
use html5ever::tokenizer::{BufferQueue, Token, TokenSink, TokenSinkResult, Tokenizer};
use html5ever::tree_builder::TreeBuilder;

use crate::error::ParseLimit;
use crate::limits::ParseLimits;
use crate::sink::Sink;

/// What the tokenizer says of an attribute that the tag has already; it compares it with all of
/// them before.
const DUPLICATE: &str = "Duplicate attribute";

/// A filter between tokenizer and tree builder that enforces the limits on tags.
pub(crate) struct Tokens {
    pub(crate) builder: TreeBuilder<u32, Sink>,
    limits: ParseLimits,
    /// Tags, comments and texts that have ended.
    pub(crate) ended: Cell<u64>,
    /// Attributes of all tags.
    attributes: Cell<u64>,
    /// Attributes that the tag had already, since the last token.
    pub(crate) duplicates: Cell<u64>,
    /// What the tokenizer reads from, and bytes of it that were not read when the last token ended.
    queue: Rc<BufferQueue>,
    pub(crate) left_at_end: Cell<usize>,
}

impl Tokens {
    pub(crate) fn new(
        builder: TreeBuilder<u32, Sink>,
        limits: ParseLimits,
        queue: Rc<BufferQueue>,
    ) -> Tokens {
        Tokens {
            builder,
            limits,
            ended: Cell::new(0),
            attributes: Cell::new(0),
            duplicates: Cell::new(0),
            queue,
            left_at_end: Cell::new(0),
        }
    }

    fn end_token(&self) {
        self.ended.set(self.ended.get() + 1);
        self.duplicates.set(0);
        self.left_at_end.set(left_in(&self.queue));
    }

    /// The limit that was passed.
    pub(crate) fn passed(&self) -> Option<(ParseLimit, u64)> {
        self.builder.sink.passed()
    }

    fn count(&self, attributes: usize) {
        let all = self.attributes.get() + attributes as u64;
        self.attributes.set(all);
        for (limit, is, max) in [
            (ParseLimit::Attributes, attributes as u64, self.limits.attributes),
            (ParseLimit::AllAttributes, all, self.limits.all_attributes),
        ] {
            if is > u64::from(max) {
                self.builder.sink.pass(limit, max.into());
            }
        }
    }
}

impl TokenSink for Tokens {
    type Handle = u32;

    fn process_token(&self, token: Token, line: u64) -> TokenSinkResult<u32> {
        match &token {
            Token::ParseError(error) if error == DUPLICATE => {
                self.count(1);
                self.duplicates.set(self.duplicates.get() + 1);
            }
            Token::ParseError(_) => {}
            Token::TagToken(tag) => {
                self.end_token();
                self.count(tag.attrs.len());
            }
            _ => self.end_token(),
        }
        if self.passed().is_some() {
            return TokenSinkResult::Continue;
        }
        self.builder.process_token(token, line)
    }

    fn end(&self) {
        self.builder.end();
    }

    fn adjusted_current_node_present_but_not_in_html_namespace(&self) -> bool {
        self.builder.adjusted_current_node_present_but_not_in_html_namespace()
    }
}

/// Bytes that were not read. It is one part, but where the tokenizer has put something back.
fn left_in(queue: &BufferQueue) -> usize {
    let Some(part) = queue.pop_front() else { return 0 };
    let bytes = part.len() + if queue.is_empty() { 0 } else { left_in(queue) };
    queue.push_front(part);
    bytes
}

/// Gives the tokenizer what is in the queue. Scripts are not run, and the encoding is known.
pub(crate) fn feed(tokenizer: &Tokenizer<Tokens>, queue: &BufferQueue) {
    while !matches!(tokenizer.feed(queue), TokenizerResult::Done) {}
}

#[cfg(test)]
mod tests {
    use html5ever::tokenizer::TokenizerOpts;
    use html5ever::tree_builder::{TreeBuilderOpts, TreeSink};

    use super::*;

    /// A piece of the source passes a document limit by at most what one token adds.
    ///
    /// Guarantee: documents/limits
    #[test]
    fn limit_is_passed_by_one_token_at_most() {
        let limits = ParseLimits { text_bytes: 50_000, ..ParseLimits::default() };
        let builder = TreeBuilder::new(Sink::new(limits), TreeBuilderOpts::default());
        let queue = Rc::new(BufferQueue::default());
        let tokens = Tokens::new(builder, limits, queue.clone());
        let tokenizer = Tokenizer::new(tokens, TokenizerOpts::default());
        // Each paragraph has the bold text's element again, with its value.
        let source = format!("<p><b v='{}'>{}", "x".repeat(10_000), "<p>x".repeat(1_000));
        queue.push_back(source.as_str().into());
        feed(&tokenizer, &queue);
        tokenizer.end();
        assert_eq!(tokenizer.sink.passed(), Some((ParseLimit::TextBytes, 50_000)));
        let (arena, _) = tokenizer.sink.builder.sink.finish();
        assert!(arena.text_bytes <= 60_100, "{}", arena.text_bytes);
        assert!(arena.nodes.len() < 40, "{}", arena.nodes.len());
    }
}
