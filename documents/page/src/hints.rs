//! Presentational hints: old attributes of HTML (`<font color>`, `<table border cellpadding>`,
//! `<body text link>`) as rules of a style sheet that comes before all that the page says, one for
//! each value that the page has.
//!
//! Source: HTML, "15 Rendering", "2.3.6 Colors" (rules for parsing a legacy color value), "2.3.4.4"
//! (dimensions).

use std::collections::BTreeSet;
use std::fmt::Write;

use blitz_dom::{DocumentConfig, UserAgentStylesheet};
use blitz_traits::net::Url;
use holdfast_dom::{Document, Namespace, Node};
use style::color::ColorSpace;

/// Rules for values of the page.
const RULES_MAX: usize = 2_000;
/// Bytes of a value.
const VALUE_BYTES_MAX: usize = 200;
/// Pixels of a border or distance.
const PIXELS_MAX: u32 = 10_000;

/// The style sheets that come before the page's.
pub(crate) fn sheets(document: &Document<'_>, base: &str) -> Vec<UserAgentStylesheet> {
    let base = Url::parse(base).ok();
    let mut sheets = DocumentConfig::default().ua_stylesheets;
    let mut text = include_str!("hints.css").to_owned();
    for rule in rules(document, base.as_ref()) {
        text.push_str(&rule);
    }
    sheets.push(UserAgentStylesheet::parse(&text));
    sheets
}

fn rules(document: &Document<'_>, base: Option<&Url>) -> BTreeSet<String> {
    let mut rules = BTreeSet::new();
    for node in document.root().descendants() {
        if rules.len() >= RULES_MAX {
            break;
        }
        if node.namespace() == Some(Namespace::Html) {
            add(node, base, &mut rules);
        }
    }
    rules
}

fn add(node: Node<'_>, base: Option<&Url>, rules: &mut BTreeSet<String>) {
    let name = node.name().unwrap_or_default();
    for attribute in node.attributes() {
        let value = attribute.value;
        if attribute.namespace != Namespace::None
            || value.is_empty()
            || value.len() > VALUE_BYTES_MAX
        {
            continue;
        }
        let has = format!("{name}[{}=\"{}\"]", attribute.name, escaped(value));
        let rule = match (name, attribute.name) {
            ("font", "color") => color(value).map(|color| format!("{has} {{ color: {color} }}")),
            ("font", "face") => {
                family(value).map(|family| format!("{has} {{ font-family: {family} }}"))
            }
            ("table", "border") => pixels(value)
                .filter(|width| *width > 1)
                // As much as the rule for any border, behind which it comes.
                .map(|width| format!("{has}[border] {{ border-width: {width}px }}")),
            ("table", "bordercolor") => {
                color(value).map(|color| format!("{has} {{ border-color: {color} }}"))
            }
            ("table", "cellspacing") => {
                pixels(value).map(|space| format!("{has} {{ border-spacing: {space}px }}"))
            }
            ("table", "cellpadding") => pixels(value).map(|space| {
                format!(
                    "{has} > tr > :is(td, th), {has} > :is(thead, tbody, tfoot) > tr > :is(td, th) \
                     {{ padding: {space}px }}"
                )
            }),
            ("body", "text") => color(value).map(|color| format!("{has} {{ color: {color} }}")),
            ("body", "link") => {
                color(value).map(|color| format!("{has} a[href] {{ color: {color} }}"))
            }
            ("body" | "table" | "td" | "th", "background") => {
                // Addresses in this sheet are relative to nothing.
                base.and_then(|base| base.join(value).ok()).map(|url| {
                    format!("{has} {{ background-image: url(\"{}\") }}", escaped(url.as_str()))
                })
            }
            ("hr", "color") => color(value)
                .map(|color| format!("{has} {{ color: {color}; border-color: {color} }}")),
            ("hr", "size") => pixels(value)
                .map(|size| format!("{has} {{ height: {}px }}", size.saturating_sub(2))),
            _ => None,
        };
        rules.extend(rule.map(|rule| format!("{rule}\n")));
    }
}

/// As a string of CSS has it.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' | '\\' | '\0'..='\x1F' | '\x7F' => {
                // Writing into a string is not refused.
                let _ = write!(escaped, "\\{:x} ", u32::from(c));
            }
            _ => escaped.push(c),
        }
    }
    escaped
}

/// A list of families: names in quotes, but for those that mean no family.
fn family(value: &str) -> Option<String> {
    const GENERIC: [&str; 6] =
        ["serif", "sans-serif", "monospace", "cursive", "fantasy", "system-ui"];
    let names = value
        .split(',')
        .map(|name| name.trim().trim_matches(['"', '\'']))
        .filter(|name| !name.is_empty());
    let list: Vec<String> = names
        .map(|name| match GENERIC.iter().find(|known| known.eq_ignore_ascii_case(name)) {
            Some(generic) => (*generic).to_owned(),
            None => format!("\"{}\"", escaped(name)),
        })
        .collect();
    (!list.is_empty()).then(|| list.join(", "))
}

fn pixels(value: &str) -> Option<u32> {
    let digits: String = value.trim().chars().take_while(char::is_ascii_digit).take(9).collect();
    digits.parse().ok().map(|pixels: u32| pixels.min(PIXELS_MAX))
}

/// A colour as old pages write it.
pub(crate) fn color(value: &str) -> Option<String> {
    let color = style::servo::attr::parse_legacy_color(value).ok()?;
    let parts = *color.to_color_space(ColorSpace::Srgb).raw_components();
    let [red, green, blue, _] = parts.map(|part| (part * 255.0).round().clamp(0.0, 255.0) as u8);
    Some(format!("#{red:02x}{green:02x}{blue:02x}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use super::*;

    /// A presentational value of a page becomes one style rule and cannot escape from it.
    ///
    /// Guarantee: pages/svg
    #[test]
    fn hints_cannot_escape_their_rule() {
        let source = "<body text=#123 link='red'><table border=3 cellpadding=4 cellspacing=x><font color=chucknorris \
            face='Arial, serif'><font color=chucknorris><font face='\"}* { display: none'><hr size=5>";
        let page = holdfast_dom::LoosePage::parse(source.as_bytes(), &Default::default()).unwrap();
        let rules: Vec<String> = rules(&page.open().unwrap(), None).into_iter().collect();
        for wanted in [
            "body[text=\"#123\"] { color: #112233 }\n",
            "body[link=\"red\"] a[href] { color: #ff0000 }\n",
            "table[border=\"3\"][border] { border-width: 3px }\n",
            "font[color=\"chucknorris\"] { color: #c00000 }\n",
            "font[face=\"Arial, serif\"] { font-family: \"Arial\", serif }\n",
            "font[face=\"\\22 }* { display: none\"] { font-family: \"}* { display: none\" }\n",
            "hr[size=\"5\"] { height: 3px }\n",
        ] {
            assert!(rules.iter().any(|rule| rule == wanted), "{wanted}: {rules:?}");
        }
        assert_eq!(rules.len(), 8, "{rules:?}");
    }
}
