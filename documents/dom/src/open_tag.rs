//! Counts the attributes of an unfinished tag: the attribute states of HTML's tokenizer (13.2.5.6
//! to 13.2.5.40).
//!
//! Invariant: it takes the bytes as the tokenizer does, and holds no more than a state and a
//! number. It must not decide anything about a tag that is complete.

/// What was read last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Nothing of a tag; what is before `<`.
    #[default]
    Before,
    /// `<`, or `</`.
    Open,
    Slash,
    Name,
    BeforeAttribute,
    AttributeName,
    AfterName,
    BeforeValue,
    DoubleQuoted,
    SingleQuoted,
    Unquoted,
    AfterQuoted,
    /// A comment, a document type, or text.
    Other,
}

/// A token that has begun.
#[derive(Debug, Default)]
pub(crate) struct OpenTag {
    state: State,
    attributes: u64,
}

impl OpenTag {
    /// Attributes that have begun, those that the tag has twice included.
    pub(crate) fn attributes(&self) -> u64 {
        self.attributes
    }

    /// Reads on. The first bytes are those behind the token before.
    pub(crate) fn read(&mut self, mut bytes: &[u8]) {
        while let Some((&byte, rest)) = bytes.split_first() {
            // Most of a long tag is values, most of a long token that is none does not matter.
            let skipped = match self.state {
                State::Other => return,
                State::DoubleQuoted => memchr::memchr(b'"', bytes),
                State::SingleQuoted => memchr::memchr(b'\'', bytes),
                _ => Some(0),
            };
            match skipped {
                Some(0) => {
                    self.state = self.after(byte);
                    bytes = rest;
                }
                Some(skipped) => bytes = &bytes[skipped..],
                None => return,
            }
        }
    }

    fn after(&mut self, byte: u8) -> State {
        let is_space = byte.is_ascii_whitespace();
        match self.state {
            State::Before if byte == b'<' => State::Open,
            State::Before => State::Before,
            State::Open if byte == b'/' => State::Slash,
            State::Open | State::Slash if byte.is_ascii_alphabetic() => State::Name,
            State::Open | State::Slash | State::Other => State::Other,
            State::Name if is_space || byte == b'/' => State::BeforeAttribute,
            State::Name if byte == b'>' => State::Before,
            State::Name => State::Name,
            State::BeforeAttribute | State::AfterQuoted if is_space || byte == b'/' => {
                State::BeforeAttribute
            }
            State::BeforeAttribute
            | State::AfterQuoted
            | State::AttributeName
            | State::AfterName
                if byte == b'>' =>
            {
                State::Before
            }
            State::AfterName if is_space => State::AfterName,
            State::AttributeName if is_space => State::AfterName,
            State::AttributeName | State::AfterName if byte == b'/' => State::BeforeAttribute,
            State::AttributeName | State::AfterName if byte == b'=' => State::BeforeValue,
            State::AttributeName => State::AttributeName,
            State::BeforeAttribute | State::AfterQuoted | State::AfterName => {
                self.attributes += 1;
                State::AttributeName
            }
            State::BeforeValue if is_space => State::BeforeValue,
            State::BeforeValue if byte == b'"' => State::DoubleQuoted,
            State::BeforeValue if byte == b'\'' => State::SingleQuoted,
            State::BeforeValue | State::Unquoted if byte == b'>' => State::Before,
            State::Unquoted if is_space => State::BeforeAttribute,
            State::BeforeValue | State::Unquoted => State::Unquoted,
            State::DoubleQuoted if byte == b'"' => State::AfterQuoted,
            State::SingleQuoted if byte == b'\'' => State::AfterQuoted,
            State::DoubleQuoted => State::DoubleQuoted,
            State::SingleQuoted => State::SingleQuoted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantee: documents/limits
    #[test]
    fn attributes_are_counted_as_the_tokenizer_takes_them() {
        for (tag, attributes) in [
            ("text &am", 0),
            ("<", 0),
            ("<p", 0),
            ("<p a", 1),
            ("</p a b=c d", 3),
            ("<p/a/b", 2),
            // The first `=` begins a name, the second one leads to its value.
            ("<p =a =b", 1),
            ("<p =a b", 2),
            ("<p a = b c= 'd e>f' g=\"h i>j\"k", 4),
            ("<p a=b/c d", 2),
            ("<p a=\"x y z", 1),
            ("<!-- a b c", 0),
            ("<!doctype a b", 0),
            ("<? a b c", 0),
            ("</ a b c", 0),
            ("< a b c", 0),
        ] {
            let mut whole = OpenTag::default();
            whole.read(tag.as_bytes());
            assert_eq!(whole.attributes(), attributes, "{tag}");
            let mut parts = OpenTag::default();
            tag.bytes().for_each(|byte| parts.read(&[byte]));
            assert_eq!((parts.attributes(), parts.state), (attributes, whole.state), "{tag}");
        }
    }
}
