//! What addresses in a page are relative to: where the page was found, or what its `<base>` says.
//!
//! Source: HTML, "2.4.1 Terminology" (document base URL) and "4.2.3 The `base` element".

use holdfast_dom::{Document, Namespace, Node};

use crate::fetch::Url;

/// What addresses in a document are relative to that was found at `found`.
pub(crate) fn of(document: &Document<'_>, found: &Url) -> Url {
    let said = document.root().descendants().find_map(href);
    said.and_then(|href| taken(href, found)).unwrap_or_else(|| found.clone())
}

/// What an element says, if it is a `<base>` that says something: the first one counts, also where
/// its address is none.
fn href<'d>(node: Node<'d>) -> Option<&'d str> {
    let is_base = node.name() == Some("base") && node.namespace() == Some(Namespace::Html);
    if is_base { node.attribute("href") } else { None }
}

/// An address that others can be relative to. A page from the network leads to no files.
fn taken(href: &str, found: &Url) -> Option<Url> {
    let mut url = found.join(href).ok()?;
    let is_known = match url.scheme() {
        "file" => found.scheme() == "file",
        "http" | "https" => true,
        _ => false,
    };
    if !is_known {
        return None;
    }
    url.set_fragment(None);
    // Names and passwords are not taken; an address that has a host can be without both.
    let _ = url.set_username("").and_then(|()| url.set_password(None));
    Some(url)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use holdfast_dom::{LoosePage, ParseOptions};

    use super::*;

    /// Guarantee: pages/addresses
    #[test]
    fn first_base_with_an_address_counts() {
        let of = |found: &str, source: &str| {
            let page = LoosePage::parse(source.as_bytes(), &ParseOptions::default()).unwrap();
            of(&page.open().unwrap(), &Url::parse(found).unwrap()).to_string()
        };
        let found = "http://example.org/a/b.html?q";
        for (source, base) in [
            ("<p>x", found),
            ("<base href='../c/d'>", "http://example.org/c/d"),
            ("<base target=x><base href=/c/><base href=/d/>", "http://example.org/c/"),
            ("<p>x<div><BASE HREF=' //example.com/#x '></div>", "http://example.com/"),
            ("<base href='https://name:word@example.com/'>", "https://example.com/"),
            // The first one counts, and leads nowhere.
            ("<base href='http://[/'><base href=/d/>", found),
            ("<base href='data:text/html,x'><base href=/d/>", found),
            ("<base href='javascript:1'>", found),
            ("<base href='mailto:x@example.org'>", found),
            ("<base href='file:///etc/'>", found),
            ("<svg><base href=/c/></svg>", found),
            ("<svg><g><desc><base href=/c/></desc></g></svg>", "http://example.org/c/"),
            ("<template><base href=/c/></template>", found),
            ("<!-- <base href=/c/> --><title><base href=/c/></title>", found),
        ] {
            assert_eq!(of(found, source), base, "{source}");
        }
        assert_eq!(of("file:///a/b.html", "<base href='c/'>"), "file:///a/c/");
        assert_eq!(of("file:///a/b.html", "<base href='http://x.org'>"), "http://x.org/");
    }
}
