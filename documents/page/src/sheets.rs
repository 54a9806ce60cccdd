//! Chooses the style sheets of a page that apply. The engine takes every one that it finds; a page
//! has some for printers, for other sizes of the viewport, or to be chosen from.
//!
//! Source: HTML, "4.2.4 The `link` element" (`disabled`, `media`, `type`) and "4.2.6 The `style`
//! element"; CSSOM, "6.2 CSS Style Sheet Collections" (a page's preferred set, by its title, and
//! alternative ones, which are never chosen here).

use std::collections::HashSet;

use blitz_dom::BaseDocument;
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
    kind.is_empty() || kind.trim_ascii().eq_ignore_ascii_case("text/css")
}

/// Whether what is shown is one of these media.
fn applies(media: Option<&str>, engine: &mut BaseDocument) -> bool {
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
