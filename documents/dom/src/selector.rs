//! Selectors as text, and what they consist of: the grammar of the `selectors` crate, which is that
//! of a browser.
//!
//! Invariant: what is long or deep is refused before it is parsed, because parsing and matching go
//! as deep as the selector.

use std::fmt;

use cssparser::{ParseErrorKind, ToCss};
use precomputed_hash::PrecomputedHash;
use selectors::parser::{self, ParseRelative, SelectorList, SelectorParseErrorKind};

use crate::error::{DomError, ParseLimit};
use crate::layout::name_hash;
use crate::limits::{SELECTOR_BYTES_MAX, SELECTOR_NESTING_MAX, SELECTOR_PARTS_MAX};
use crate::namespace::Namespace;

/// A parsed selector, or a list of them; of use with any document.
#[derive(Clone, Debug)]
pub struct Selector {
    list: SelectorList<Grammar>,
}

impl Selector {
    pub(crate) fn list(&self) -> &SelectorList<Grammar> {
        &self.list
    }

    /// Parses a selector, or a list of them. Beyond those of the structure, the pseudo-classes
    /// `:link`, `:any-link`, `:checked`, `:enabled` and `:disabled` are known; `html|`, `svg|`,
    /// `mathml|`, `xlink|` and `xml|` name namespaces.
    ///
    /// # Errors
    /// [`DomError::Selector`]; [`DomError::Limit`] for one of more than 16 KiB, 32 brackets in each
    /// other or 256 compounds.
    pub fn parse(text: &str) -> Result<Selector, DomError> {
        bounded(text)?;
        let mut parser = cssparser::Parser::new(text);
        let list = SelectorList::parse(&SelectorRules, &mut parser, ParseRelative::No).map_err(
            |error| {
                let column = parser.current_source_location().column;
                DomError::Selector {
                    selector: text.to_owned(),
                    reason: reason(&error.kind),
                    column,
                }
            },
        )?;
        Ok(Selector { list })
    }
}

fn reason(kind: &ParseErrorKind<SelectorParseErrorKind>) -> String {
    use SelectorParseErrorKind as Error;
    let reason = match kind {
        ParseErrorKind::Basic(_) => "unexpected input",
        ParseErrorKind::Custom(kind) => match kind {
            Error::EmptySelector => "empty selector",
            Error::DanglingCombinator => "a combinator without a selector on both sides",
            Error::UnsupportedPseudoClassOrElement => "unknown pseudo-class or pseudo-element",
            Error::ExpectedNamespace => {
                "unknown namespace (known are html, svg, mathml, xlink and xml)"
            }
            Error::NoIdentForPseudo | Error::PseudoElementExpectedIdent => {
                "missing name of a pseudo-class"
            }
            Error::BadValueInAttr
            | Error::InvalidQualNameInAttr
            | Error::ExpectedBarInAttr
            | Error::NoQualifiedNameInAttributeSelector
            | Error::UnexpectedTokenInAttributeSelector => "invalid attribute in brackets",
            _ => "unexpected input",
        },
    };
    reason.to_owned()
}

/// Refuses what is too long or too deep to be parsed and matched.
fn bounded(text: &str) -> Result<(), DomError> {
    let over = |limit, max: usize| Err(DomError::Limit { limit, max: max as u64 });
    if text.len() > SELECTOR_BYTES_MAX {
        return over(ParseLimit::SelectorBytes, SELECTOR_BYTES_MAX);
    }
    // The brackets that are open, below a level for the selector itself.
    let mut levels = vec![Level::default()];
    let mut bytes = text.bytes().peekable();
    while let Some(byte) = bytes.next() {
        let Some(level) = levels.last_mut() else { break };
        match byte {
            b'/' if bytes.peek() == Some(&b'*') => skip_comment(&mut bytes),
            b',' => level.next_selector(),
            b')' | b']' | b'}' if level.closes == byte => {
                let inner = level.deepest();
                levels.pop();
                if let Some(level) = levels.last_mut() {
                    level.inner = level.inner.max(inner);
                }
            }
            _ if byte.is_ascii_whitespace() || matches!(byte, b'>' | b'+' | b'~') => {
                level.in_compound = false
            }
            _ => {
                level.part();
                match byte {
                    b'\\' => drop(bytes.next()),
                    b'"' | b'\'' => skip_string(&mut bytes, byte),
                    b'(' => levels.push(Level { closes: b')', ..Level::default() }),
                    b'[' => levels.push(Level { closes: b']', ..Level::default() }),
                    b'{' => levels.push(Level { closes: b'}', ..Level::default() }),
                    _ => {}
                }
            }
        }
        if levels.len() > SELECTOR_NESTING_MAX + 1 {
            return over(ParseLimit::SelectorNesting, SELECTOR_NESTING_MAX);
        }
    }
    // What is open at the end is closed by it.
    let longest = levels
        .iter()
        .rev()
        .fold(0, |inner, level| Level { inner: level.inner.max(inner), ..*level }.deepest());
    if longest > SELECTOR_PARTS_MAX {
        return over(ParseLimit::SelectorParts, SELECTOR_PARTS_MAX);
    }
    Ok(())
}

/// What is between two brackets: a list of selectors.
#[derive(Clone, Copy, Default)]
struct Level {
    /// The byte that closes it.
    closes: u8,
    /// Compounds in the selector that is read; each but the first follows white space or a sign.
    parts: usize,
    in_compound: bool,
    /// The longest way through brackets in that selector, and through those before it.
    inner: usize,
    before: usize,
}

impl Level {
    fn part(&mut self) {
        self.parts += usize::from(!self.in_compound);
        self.in_compound = true;
    }

    fn next_selector(&mut self) {
        *self = Level { closes: self.closes, before: self.deepest(), ..Level::default() };
    }

    /// Compounds that matching may be in at a time: those in a row, and in brackets of one of them.
    fn deepest(&self) -> usize {
        self.before.max(self.parts + self.inner)
    }
}

fn skip_comment(bytes: &mut impl Iterator<Item = u8>) {
    // The star that opens it does not close it.
    bytes.next();
    let mut last = 0;
    for byte in bytes {
        if last == b'*' && byte == b'/' {
            return;
        }
        last = byte;
    }
}

/// To the quote at its end, or to the end of the line, where a string ends that has none.
fn skip_string(bytes: &mut impl Iterator<Item = u8>, quote: u8) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => drop(bytes.next()),
            b'\n' | b'\r' | b'\x0C' => return,
            _ if byte == quote => return,
            _ => {}
        }
    }
}

/// The types of which selectors consist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Grammar;

impl parser::SelectorImpl for Grammar {
    type ExtraMatchingData<'a> = ();
    type AttrValue = SelectorValue;
    type Identifier = SelectorName;
    type LocalName = SelectorName;
    type NamespaceUrl = NamespaceUrl;
    type NamespacePrefix = SelectorValue;
    type BorrowedNamespaceUrl = NamespaceUrl;
    type BorrowedLocalName = SelectorName;
    type NonTSPseudoClass = PseudoClass;
    type PseudoElement = PseudoElement;
}

/// The value of an attribute.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SelectorValue(String);

impl From<&str> for SelectorValue {
    fn from(text: &str) -> SelectorValue {
        SelectorValue(text.to_owned())
    }
}

impl AsRef<str> for SelectorValue {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl ToCss for SelectorValue {
    fn to_css<W: fmt::Write>(&self, target: &mut W) -> fmt::Result {
        cssparser::serialize_string(&self.0, target)
    }
}

/// A name, with the hash that documents have of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SelectorName {
    pub(crate) hash: u32,
    pub(crate) text: String,
}

impl From<&str> for SelectorName {
    fn from(text: &str) -> SelectorName {
        SelectorName { hash: name_hash(text), text: text.to_owned() }
    }
}

impl ToCss for SelectorName {
    fn to_css<W: fmt::Write>(&self, target: &mut W) -> fmt::Result {
        cssparser::serialize_identifier(&self.text, target)
    }
}

impl PrecomputedHash for SelectorName {
    fn precomputed_hash(&self) -> u32 {
        self.hash
    }
}

/// A namespace; one that no document has is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NamespaceUrl(pub(crate) Namespace);

impl PrecomputedHash for NamespaceUrl {
    fn precomputed_hash(&self) -> u32 {
        self.0 as u32
    }
}

impl ToCss for NamespaceUrl {
    fn to_css<W: fmt::Write>(&self, target: &mut W) -> fmt::Result {
        cssparser::serialize_string(self.0.url(), target)
    }
}

/// The pseudo-classes beyond those of the structure that a page without scripts or a user can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PseudoClass {
    Link,
    AnyLink,
    Checked,
    Enabled,
    Disabled,
}

const PSEUDO_CLASSES: [(&str, PseudoClass); 5] = [
    ("link", PseudoClass::Link),
    ("any-link", PseudoClass::AnyLink),
    ("checked", PseudoClass::Checked),
    ("enabled", PseudoClass::Enabled),
    ("disabled", PseudoClass::Disabled),
];

impl ToCss for PseudoClass {
    fn to_css<W: fmt::Write>(&self, target: &mut W) -> fmt::Result {
        let named = PSEUDO_CLASSES.iter().find(|(_, class)| class == self);
        write!(target, ":{}", named.map_or("", |(name, _)| name))
    }
}

impl parser::NonTSPseudoClass for PseudoClass {
    fn is_active_or_hover(&self) -> bool {
        false
    }

    fn is_user_action_state(&self) -> bool {
        false
    }
}

/// There are none in a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PseudoElement {}

impl ToCss for PseudoElement {
    fn to_css<W: fmt::Write>(&self, _: &mut W) -> fmt::Result {
        match *self {}
    }
}

impl parser::PseudoElement for PseudoElement {}

struct SelectorRules;

impl<'i> parser::Parser<'i> for SelectorRules {
    type Impl = Grammar;
    type Error = SelectorParseErrorKind;

    fn parse_nth_child_of(&self) -> bool {
        true
    }

    fn parse_is_and_where(&self) -> bool {
        true
    }

    fn parse_has(&self) -> bool {
        true
    }

    fn parse_non_ts_pseudo_class(
        &self,
        name: &str,
    ) -> Result<PseudoClass, cssparser::ParseError<SelectorParseErrorKind>> {
        let known = PSEUDO_CLASSES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        known.map(|(_, class)| *class).ok_or_else(|| {
            cssparser::ParseError::custom(SelectorParseErrorKind::UnsupportedPseudoClassOrElement)
        })
    }

    fn namespace_for_prefix(&self, prefix: &SelectorValue) -> Option<NamespaceUrl> {
        let namespace = match prefix.as_ref() {
            "html" => Namespace::Html,
            "svg" => Namespace::Svg,
            "mathml" => Namespace::MathMl,
            "xlink" => Namespace::XLink,
            "xml" => Namespace::Xml,
            _ => return None,
        };
        Some(NamespaceUrl(namespace))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantee: documents/queries
    #[test]
    fn selectors_over_a_limit_are_not_parsed() {
        let limit = |text: &str| match Selector::parse(text) {
            Err(DomError::Limit { limit, .. }) => Some(limit),
            _ => None,
        };
        assert_eq!(limit(&"a".repeat(SELECTOR_BYTES_MAX + 1)), Some(ParseLimit::SelectorBytes));
        let deep = |levels: usize| format!("{}a{}", ":is(".repeat(levels), ")".repeat(levels));
        assert_eq!(limit(&deep(SELECTOR_NESTING_MAX)), None);
        assert_eq!(limit(&deep(SELECTOR_NESTING_MAX + 1)), Some(ParseLimit::SelectorNesting));
        let row = |parts: usize| vec!["a"; parts].join(">");
        assert!(Selector::parse(&row(SELECTOR_PARTS_MAX)).is_ok());
        assert_eq!(limit(&row(SELECTOR_PARTS_MAX + 1)), Some(ParseLimit::SelectorParts));
    }

    /// Guarantee: documents/queries
    #[test]
    fn limits_count_brackets_strings_and_comments() {
        let limit = |text: &str| match Selector::parse(text) {
            Err(DomError::Limit { limit, .. }) => Some(limit),
            _ => None,
        };
        let row = |parts: usize| vec!["a"; parts].join(" ");
        let (half, more) = (SELECTOR_PARTS_MAX / 2, SELECTOR_PARTS_MAX + 1);
        // Commas between brackets end no row outside of them, and a list is no row.
        assert_eq!(limit(&vec![":is(a,a)"; more].join(" ")), Some(ParseLimit::SelectorParts));
        assert_eq!(limit(&format!(":is({})", vec!["a"; more].join(", "))), None);
        // What is between brackets is matched in the middle of what is outside, whichever comes
        // first.
        assert_eq!(limit(&format!("{} :is({})", row(half - 1), row(half))), None);
        assert_eq!(
            limit(&format!("{} :is({})", row(half), row(half))),
            Some(ParseLimit::SelectorParts)
        );
        assert_eq!(
            limit(&format!(":is({}) {}", row(half), row(half))),
            Some(ParseLimit::SelectorParts)
        );
        assert_eq!(limit(&format!(":is(b, {}", row(more))), Some(ParseLimit::SelectorParts));
        // A bracket that is none closes none.
        let deep =
            |between: &str| format!(":is({between} {}", ":is(a ".repeat(SELECTOR_NESTING_MAX));
        let levels = |between: &str| limit(&deep(&between.repeat(SELECTOR_NESTING_MAX)));
        for between in [r"\)", r#"[b=")"]"#, "[b=')']", "/*)*/", "/*/)*/", r#"[b="\")"]"#, "]"] {
            assert_eq!(levels(between), Some(ParseLimit::SelectorNesting), "{between}");
        }
        assert_eq!(limit(&format!("{}a", r"\(".repeat(SELECTOR_NESTING_MAX + 1))), None);
        assert_eq!(limit(&format!(r#"[b="{}"]"#, "(".repeat(SELECTOR_NESTING_MAX + 1))), None);
        assert!(Selector::parse(&format!(r#"[b="{}"]"#, " x,".repeat(more))).is_ok());
    }

    /// Guarantee: documents/queries
    #[test]
    fn invalid_selectors_have_a_reason_and_a_place() {
        for (text, reason) in [
            ("", "empty"),
            ("a >", "combinator"),
            ("a:hover", "pseudo"),
            ("a::before", "pseudo"),
            (".", "unexpected"),
            ("foo|a", "namespace"),
            ("a[b=", "unexpected"),
            ("a[1]", "brackets"),
            ("a]", "unexpected"),
        ] {
            let error = Selector::parse(text).unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
