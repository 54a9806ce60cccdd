//! Queries of the mapped document give what a second implementation gives on its own tree of the
//! same page.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use common::{empty, parsed, reopened};
use holdfast_dom::{Document, Namespace, ParseOptions, Selector};

/// What occurs in pages, and each form of the grammar.
const SELECTORS: &[&str] = &[
    "*",
    "p",
    "A",
    "#toc",
    "div#preface",
    ".title",
    ".section.title",
    "a[href]",
    "a[href^='http']",
    "a[href$='.html']",
    "a[href*='debian' i]",
    "[class~=title]",
    "[lang|=en]",
    "[title]",
    "div > p",
    "div p",
    "h1 + p",
    "h2 ~ div",
    "ul li a",
    "table tr td:first-child",
    "li:last-child",
    "p:nth-child(2n+1)",
    "li:nth-last-child(2)",
    "p:only-child",
    "dt:first-of-type",
    "dd:last-of-type",
    "p:nth-of-type(3)",
    "td:nth-last-of-type(2n)",
    "span:only-of-type",
    "div:not(.section)",
    "p:not(:first-child):not(:last-child)",
    ":is(h1, h2, h3) a",
    ":where(ul, ol) > li",
    "div:has(> table)",
    "li:has(ul)",
    "tr:has(td + td)",
    "p:empty",
    "a:root",
    ":root > body",
    "html:root",
    "a, p, li",
    "body *",
    "body > * > * > *",
    "div div div div a",
    "*:not(*)",
    "code",
    "pre.screen",
    "[id]",
    "p :is(em, strong, code)",
    "tbody tr:nth-child(odd) td:nth-child(2)",
    "a:not([href])",
    "[class='']",
    ":scope > body",
    "blockquote, .note, .tip",
    "div.toc dl dt span a",
    "p:nth-child(2n+1 of .simpara)",
    "svg|path",
    "*|a",
    "|a",
];

/// What is accepted by this grammar and not by the other.
const OURS_ALONE: &[&str] = &["p:nth-child(2n+1 of .simpara)", "svg|path"];

fn shape(name: &str, attributes: impl Iterator<Item = (String, String)>) -> String {
    let mut attributes: Vec<_> =
        attributes.map(|(name, value)| format!("{name}={value}")).collect();
    attributes.sort();
    format!("{name} {attributes:?}")
}

fn ours(page: &Document<'_>, selector: &str) -> Vec<String> {
    let selector = Selector::parse(selector).unwrap();
    let found = page.select(&selector).unwrap();
    let first = page.select_first(&selector).unwrap();
    assert_eq!(first, found.first().copied());
    assert!(found.iter().all(|node| node.matches(&selector).unwrap()));
    let attributes = |node: &holdfast_dom::Node<'_>| {
        node.attributes().map(|at| (at.name.to_owned(), at.value.to_owned())).collect::<Vec<_>>()
    };
    found.iter().map(|node| shape(node.name().unwrap(), attributes(node).into_iter())).collect()
}

fn theirs(page: &scraper::Html, selector: &str) -> Vec<String> {
    let selector = scraper::Selector::parse(selector).unwrap();
    let found = page.select(&selector);
    let attributes = |element: &scraper::ElementRef<'_>| {
        let attributes = element.value().attrs.iter();
        attributes
            .map(|(name, value)| (name.local.to_string(), value.to_string()))
            .collect::<Vec<_>>()
    };
    found.map(|element| shape(element.value().name(), attributes(&element).into_iter())).collect()
}

/// A page whose anchors are closed. They are not in XHTML that is sent as HTML, and of elements `a`
/// within each other the other implementation builds another tree than its parser's own.
fn closed(source: &str) -> String {
    let mut parts = source.split("<a id=");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text.push_str("<a id=");
        text.push_str(&part.replacen("/>", "></a>", 1));
    }
    text
}

/// Selectors find the same nodes as the `scraper` crate on real pages.
///
/// Guarantee: documents/queries
#[test]
fn selectors_agree_with_scraper_on_real_pages() {
    let mut pages = common::pages();
    if pages.is_empty() {
        println!("not run: on real pages, which are not there; ./test gets them");
    }
    // Modes without quirks: the other implementation knows none.
    pages.push((
        "own".into(),
        "<!DOCTYPE html><html lang=en-US><body><div id=toc class='A section'><p>x<p></p><p class=>y<em>z</em></div>\
         <ul><li><ul><li>a</ul><li>b</ul><svg><a href=x></a><path/></svg><table><tr><td>1<td>2<tr><td>3</table>"
            .into(),
    ));
    for (name, source) in pages {
        let source = closed(&source);
        let mut documents = empty();
        let options = ParseOptions { scripting: true, ..ParseOptions::default() };
        documents.parse("page", source.as_bytes(), &options).unwrap();
        let documents = reopened(&documents);
        let page = documents.open("page").unwrap();
        let other = scraper::Html::parse_document(&source);
        let mut found = 0;
        for selector in SELECTORS.iter().filter(|selector| !OURS_ALONE.contains(selector)) {
            let expected = theirs(&other, selector);
            found += expected.len();
            let found = ours(&page, selector);
            let differs = found.iter().zip(&expected).position(|(ours, theirs)| ours != theirs);
            if let Some(at) = differs {
                assert_eq!(found[at], expected[at], "match {at} of {selector} in {name}");
            }
            assert_eq!(found.len(), expected.len(), "{selector} in {name}");
        }
        assert!(found > 20, "the selectors find something in {name}");
        assert_eq!(page.damage(), None);
    }
}

fn ids(page: &Document<'_>, selector: &str) -> Vec<String> {
    let found = page.select(&Selector::parse(selector).unwrap()).unwrap();
    found.iter().map(|node| node.html_id().unwrap_or("-").to_owned()).collect()
}

/// Selectors that the `scraper` crate does not support follow the standard.
///
/// Guarantee: documents/queries
#[test]
fn selectors_beyond_scraper_follow_the_standard() {
    let documents = parsed(
        "<!DOCTYPE html><div id=d><p id=a class=x><p id=b><p id=c class=x><p id=e class=x></div>\
         <svg id=s><path id=path /><a id=sa href=x></a></svg><a id=l href=x></a><a id=n></a>\
         <template><p id=hidden class=x></template>\
         <form><fieldset id=f disabled><legend id=lg><input id=i1></legend><input id=i2><legend><input id=i3></legend></fieldset>\
         <input id=i4 type=CHECKBOX checked><input id=i5 disabled><select><optgroup disabled><option id=o1 selected></optgroup>\
         <option id=o2></select></form>",
    );
    let page = documents.open("page").unwrap();
    assert_eq!(ids(&page, "p:nth-child(2 of .x)"), ["c"]);
    assert_eq!(ids(&page, "svg|path"), ["path"]);
    assert_eq!(ids(&page, "html|a"), ["l", "n"]);
    assert_eq!(ids(&page, ":any-link"), ["l"]);
    assert_eq!(ids(&page, ":link"), ["l"]);
    // What a template holds is not in the document.
    assert_eq!(ids(&page, "#hidden"), Vec::<String>::new());
    assert_eq!(ids(&page, "#d .x"), ["a", "c", "e"]);
    assert_eq!(ids(&page, "input:disabled"), ["i2", "i3", "i5"]);
    assert_eq!(ids(&page, "input:enabled"), ["i1", "i4"]);
    assert_eq!(ids(&page, "option:disabled"), ["o1"]);
    assert_eq!(ids(&page, ":checked"), ["i4", "o1"]);
    let template = page.select_first(&Selector::parse("template").unwrap()).unwrap().unwrap();
    let inside =
        template.template_contents().unwrap().select(&Selector::parse(".x").unwrap()).unwrap();
    assert_eq!(inside[0].html_id(), Some("hidden"));
    let svg = page.select_first(&Selector::parse("svg").unwrap()).unwrap().unwrap();
    assert_eq!(svg.namespace(), Some(Namespace::Svg));
    let scoped = svg.select(&Selector::parse(":scope > a").unwrap()).unwrap();
    assert_eq!(scoped[0].html_id(), Some("sa"));
    let inner = page.select_first(&Selector::parse("#c").unwrap()).unwrap().unwrap();
    let around = inner.closest(&Selector::parse("div").unwrap()).unwrap().unwrap();
    assert_eq!(around.html_id(), Some("d"));
}

/// In quirks mode, classes and IDs are compared without regard to case.
///
/// Guarantee: documents/queries
#[test]
fn quirks_mode_ignores_case() {
    let old = parsed("<p id=X class=Y>");
    let new = parsed("<!DOCTYPE html><p id=X class=Y>");
    for (selector, in_old, in_new) in [("#x.y", 1, 0), ("#X.Y", 1, 1)] {
        let count = |documents: &holdfast_dom::Documents<_>| {
            ids(&documents.open("page").unwrap(), selector).len()
        };
        assert_eq!((count(&old), count(&new)), (in_old, in_new), "{selector}");
    }
}
