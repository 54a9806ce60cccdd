//! Chooses the style sheets of a page that apply. The engine takes every one that it finds; a page
//! has some for printers, for other sizes of the viewport, or to be chosen from. And takes from
//! their text what the engine panics at.
//!
//! Source: HTML, "4.2.4 The `link` element" (`disabled`, `media`, `type`) and "4.2.6 The `style`
//! element"; CSSOM, "6.2 CSS Style Sheet Collections" (a page's preferred set, by its title, and
//! alternative ones, which are never chosen here).

use std::borrow::Cow;
use std::collections::HashSet;

use blitz_dom::BaseDocument;
use blitz_traits::net::Url;
use cssparser::{Parser, Token};
use holdfast_dom::{Document, Namespace, Node};
use style::context::QuirksMode;
use style::stylesheets::{CssRule, CustomMediaEvaluator, Origin};

/// What no list of media has; with it, one could say more than that.
const NO_MEDIA: [char; 7] = ['{', '}', ';', '@', '\\', '"', '\''];

/// The elements (`link` and `style`) whose style sheets do not count.
pub(crate) fn left_out(document: &Document<'_>, engine: &mut BaseDocument) -> HashSet<u32> {
    // The first title of a sheet that is not an alternative one.
    let mut preferred: Option<&str> = None;
    let mut without = HashSet::new();
    for node in document.root().descendants() {
        if node.namespace() != Some(Namespace::Html) {
            continue;
        }
        let is_alternative = match node.name() {
            Some("style") => false,
            Some("link") if is_of_style(node) => {
                rels(node).any(|rel| rel.eq_ignore_ascii_case("alternate"))
            }
            _ => continue,
        };
        let title = node.attribute("title").filter(|title| !title.is_empty());
        if let (Some(title), false) = (title, is_alternative) {
            preferred.get_or_insert(title);
        }
        let is_chosen = !is_alternative && (title.is_none() || title == preferred);
        let is_disabled = node.name() == Some("link") && node.attribute("disabled").is_some();
        if is_disabled || !is_chosen || !is_css(node) || !applies(node.attribute("media"), engine) {
            without.insert(node.id());
        }
    }
    without
}

fn rels(node: Node<'_>) -> impl Iterator<Item = &str> {
    node.attribute("rel").unwrap_or_default().split_ascii_whitespace()
}

fn is_of_style(node: Node<'_>) -> bool {
    rels(node).any(|rel| rel.eq_ignore_ascii_case("stylesheet"))
}

fn is_css(node: Node<'_>) -> bool {
    let kind = node.attribute("type").unwrap_or_default();
    // Of a link it is a type with parameters, of other elements a word.
    let end = kind.find(';').filter(|_| node.name() == Some("link")).unwrap_or(kind.len());
    kind.is_empty() || kind[..end].trim_ascii().eq_ignore_ascii_case("text/css")
}

const IMPORT: &str = "import";
/// Appended to the name of a rule, so that no browser knows the rule.
const UNKNOWN: &str = "-of-nothing";

/// The text of a style sheet in which addresses are relative to `base`, without the `@import`
/// rules whose address is none. The engine's own tokenizer reads it: names and addresses may be
/// written with `\`, and in strings and comments there are no rules.
pub(crate) fn without_lost_imports<'t>(css: &'t str, base: &Url) -> Cow<'t, str> {
    if !may_import(css) {
        return Cow::Borrowed(css);
    }
    let (mut kept, mut copied) = (String::new(), 0);
    let mut parser = Parser::new(css);
    // Steps over blocks, in which the engine imports nothing.
    while let Ok(token) = parser.next() {
        if !matches!(token, Token::AtKeyword(name) if name.eq_ignore_ascii_case(IMPORT)) {
            continue;
        }
        let end = parser.position().byte_index();
        let address = parser.try_parse(|parser| parser.expect_url_or_string());
        if address.is_ok_and(|address| address.is_empty() || base.join(&address).is_err()) {
            kept.push_str(&css[copied..end]);
            kept.push_str(UNKNOWN);
            copied = end;
        }
    }
    if copied == 0 {
        return Cow::Borrowed(css);
    }
    kept.push_str(&css[copied..]);
    Cow::Owned(kept)
}

/// Whether there may be an `@import` in a text; most have none, and need no tokenizer.
fn may_import(css: &str) -> bool {
    css.split('@').skip(1).any(|rest| {
        let end = rest.find(|letter: char| !letter.is_ascii_alphabetic()).unwrap_or(rest.len());
        rest[..end].eq_ignore_ascii_case(IMPORT) || rest[end..].starts_with('\\')
    })
}

/// Whether what is shown is one of these media.
pub(crate) fn applies(media: Option<&str>, engine: &mut BaseDocument) -> bool {
    let media = media.unwrap_or_default().trim_ascii();
    if media.is_empty() {
        return true;
    }
    if media.contains(NO_MEDIA) || media.contains("/*") {
        return false;
    }
    let sheet = engine.make_stylesheet(format!("@media {media} {{ a {{}} }}"), Origin::Author);
    let lock = engine.guard().clone();
    let guard = lock.read();
    let [CssRule::Media(rule)] = sheet.0.contents.read_with(&guard).rules(&guard) else {
        return false;
    };
    let queries = rule.media_queries.read_with(&guard);
    queries.evaluate(
        engine.stylist_device(),
        QuirksMode::NoQuirks,
        &mut CustomMediaEvaluator::none(),
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use super::*;

    /// Guarantee: pages/style-sheets
    #[test]
    fn imports_of_nothing_alone_are_renamed() {
        let base = Url::parse("http://example.org/").unwrap();
        for same in [
            "@import 'a.css';",
            "@\\69mport u\\72l(\\61.css);",
            "@import",
            "@importer '';",
            "@media { @import ''; }",
            "/* @import ''; */",
            "a::after { content: '@import \"\"' }",
            "@import @media '';",
        ] {
            assert!(matches!(without_lost_imports(same, &base), Cow::Borrowed(_)), "{same}");
        }
        for (lost, renamed) in [
            ("@import ''; @import 'a';", "@import-of-nothing ''; @import 'a';"),
            ("@import ' '; @IMPORT url()", "@import ' '; @IMPORT-of-nothing url()"),
            ("@impor\\74  \"\\\n\";", "@impor\\74 -of-nothing \"\\\n\";"),
            ("/* @import ' */@import u\\72l('');", "/* @import ' */@import-of-nothing u\\72l('');"),
        ] {
            assert_eq!(without_lost_imports(lost, &base), renamed);
        }
    }
}
