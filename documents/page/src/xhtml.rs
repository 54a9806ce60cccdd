//! A page in XHTML, written so that the parser of HTML reads it as it is meant.
//!
//! To HTML `<script/>` and `<title/>` begin what goes on to the end of the page, `<a id="x"/>` holds
//! what follows it, `<br></br>` is two lines, a CDATA section is a comment, what a document type
//! declares is text, and a style sheet has `&gt;` as letters.
//!
//! Invariant: nothing is refused. What is not well-formed is left to the parser of HTML.
//!
//! What it must not do: take time or memory beyond a multiple of the page's bytes.
//!
//! Source: XML 1.0, "2.7 CDATA Sections", "2.8 Prolog and Document Type Declaration", "3.1
//! Start-Tags, End-Tags, and Empty-Element Tags"; HTML, "13.1.2 Elements" (void elements, raw text
//! elements).

use memchr::{memchr, memchr_iter, memchr2, memmem};

use crate::fetch::Url;

/// The type that a server says.
const KIND: &str = "application/xhtml+xml";
/// The endings of the names of files.
const ENDINGS: [&str; 2] = [".xhtml", ".xht"];
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";
/// Pages in XHTML have no quirks, whatever document type they name.
const DOCTYPE: &[u8] = b"<!DOCTYPE html>";
/// Elements that have neither content nor an end tag in HTML.
const VOID: [&[u8]; 14] = [
    b"area", b"base", b"br", b"col", b"embed", b"hr", b"img", b"input", b"link", b"meta", b"param",
    b"source", b"track", b"wbr",
];
/// What is written otherwise in XML.
const REFERENCES: [(&[u8], u8); 5] =
    [(b"&lt;", b'<'), (b"&gt;", b'>'), (b"&amp;", b'&'), (b"&quot;", b'"'), (b"&apos;", b'\'')];

/// Whether a page is in XHTML: its server says so, or the name of its file.
pub(crate) fn is_said(url: &Url, content_type: Option<&str>) -> bool {
    let kind = content_type.unwrap_or_default().split(';').next().unwrap_or_default().trim_ascii();
    match kind {
        "" => url.scheme() == "file" && is_named(url.path()),
        kind => kind.eq_ignore_ascii_case(KIND),
    }
}

/// Whether the name of a file says that it is in XHTML.
pub(crate) fn is_named(path: &str) -> bool {
    let has_ending = |ending: &&str| {
        let end = path.len().checked_sub(ending.len()).and_then(|at| path.get(at..));
        end.is_some_and(|end| end.eq_ignore_ascii_case(ending))
    };
    ENDINGS.iter().any(has_ending)
}

/// The page for the parser of HTML. Letters are in UTF-8.
pub(crate) fn as_html(source: &[u8]) -> Vec<u8> {
    let mut rest = source.strip_prefix(BYTE_ORDER_MARK).unwrap_or(source);
    let mut html = DOCTYPE.to_vec();
    html.reserve(rest.len());
    // Of pictures and formulas, in which HTML has no raw text.
    let mut foreign = 0u32;
    let mut has_doctype = false;
    while let Some(at) = memchr(b'<', rest) {
        html.extend_from_slice(&rest[..at]);
        let markup = &rest[at..];
        rest = if let Some(section) = markup.strip_prefix(b"<![CDATA[") {
            let (data, behind) = until(section, b"]]>");
            write_escaped(data, &mut html);
            behind
        } else if let Some(comment) = markup.strip_prefix(b"<!--") {
            let (text, behind) = until(comment, b"-->");
            html.extend_from_slice(b"<!--");
            // HTML ends a comment there at once.
            if text.starts_with(b">") || text.starts_with(b"->") {
                html.push(b' ');
            }
            html.extend_from_slice(&comment[..comment.len() - behind.len()]);
            behind
        } else if markup.starts_with(b"<?") {
            until(markup, b"?>").1
        } else if markup.get(..9).is_some_and(|start| start.eq_ignore_ascii_case(b"<!DOCTYPE")) {
            behind_doctype(markup, !std::mem::replace(&mut has_doctype, true))
        } else {
            write_tag(markup, &mut foreign, &mut html)
        };
    }
    html.extend_from_slice(rest);
    html
}

/// What comes before an end, and what comes behind it; nothing, if there is no end.
fn until<'s>(text: &'s [u8], end: &[u8]) -> (&'s [u8], &'s [u8]) {
    match memmem::find(text, end) {
        Some(at) => (&text[..at], &text[at + end.len()..]),
        None => (text, &[]),
    }
}

fn write_escaped(data: &[u8], html: &mut Vec<u8>) {
    for byte in data {
        match byte {
            b'<' => html.extend_from_slice(b"&lt;"),
            b'&' => html.extend_from_slice(b"&amp;"),
            byte => html.push(*byte),
        }
    }
}

/// What follows a document type, with what it declares if it is the first one.
fn behind_doctype(markup: &[u8], is_first: bool) -> &[u8] {
    let Some(at) = memchr2(b'[', b'>', markup) else { return &[] };
    let declared = &markup[at..];
    if is_first && markup[at] == b'[' {
        let behind = memchr_iter(b']', declared)
            .find_map(|at| declared[at + 1..].trim_ascii_start().strip_prefix(b">"));
        if let Some(behind) = behind {
            return behind;
        }
    }
    until(declared, b">").1
}

/// Writes a tag, and all of an element of raw text; returns what follows.
fn write_tag<'s>(markup: &'s [u8], foreign: &mut u32, html: &mut Vec<u8>) -> &'s [u8] {
    let is_end = markup.starts_with(b"</");
    let name = &markup[if is_end { 2 } else { 1 }..];
    let begins_name = |first: &u8| first.is_ascii_alphabetic() || matches!(first, b'_' | 0x80..);
    if !name.first().is_some_and(begins_name) {
        html.push(b'<');
        return &markup[1..];
    }
    let is_behind = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, b'/' | b'>');
    let name = &name[..name.iter().position(is_behind).unwrap_or(name.len())];
    let Some(end) = tag_end(markup) else {
        html.extend_from_slice(markup);
        return &[];
    };
    let (tag, behind) = markup.split_at(end);
    let is = |known: &&[u8]| known.eq_ignore_ascii_case(name);
    // Elements that HTML cannot write, with nothing of their own to show: to it such a name is text
    // or a comment, and what follows the other one is text, to the end.
    if !name.first().is_some_and(u8::is_ascii_alphabetic) || is(&&b"plaintext"[..]) {
        return behind;
    }
    let is_foreign = [&b"svg"[..], b"math"].iter().any(is);
    if VOID.iter().any(is) {
        // An end tag of its own would be one element more.
        html.extend_from_slice(if is_end { &[] } else { tag });
        return behind;
    }
    if is_end {
        *foreign = foreign.saturating_sub(u32::from(is_foreign));
        html.extend_from_slice(tag);
        return behind;
    }
    if let Some(open) = tag.strip_suffix(b"/>").filter(|open| ends_itself(open)) {
        for part in [open, b"></", name, b">"] {
            html.extend_from_slice(part);
        }
        return behind;
    }
    *foreign = foreign.saturating_add(u32::from(is_foreign));
    html.extend_from_slice(tag);
    if *foreign == 0 && [&b"script"[..], b"style"].iter().any(is) {
        return write_raw(name, behind, html);
    }
    behind
}

/// Whether a tag with `/>` behind this is one of an empty element: in a value without quotes the `/`
/// is a letter of it.
fn ends_itself(open: &[u8]) -> bool {
    let is_between = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, b'"' | b'\'');
    let last = open.iter().rposition(is_between).map_or(0, |at| at + 1);
    memchr(b'=', &open[last..]).is_none()
}

/// Where a tag ends: a value may have the sign of that.
fn tag_end(markup: &[u8]) -> Option<usize> {
    let mut quote: Option<u8> = None;
    for (at, byte) in markup.iter().enumerate() {
        match (quote, byte) {
            (Some(begun), byte) if begun == *byte => quote = None,
            (Some(_), _) => {}
            (None, b'"' | b'\'') => quote = Some(*byte),
            (None, b'>') => return Some(at + 1),
            (None, _) => {}
        }
    }
    None
}

/// Writes what an element of raw text has, up to its end tag, which HTML reads as it stands.
fn write_raw<'s>(name: &[u8], text: &'s [u8], html: &mut Vec<u8>) -> &'s [u8] {
    let mut content = Vec::new();
    let mut rest = text;
    while let Some(at) = memchr2(b'<', b'&', rest) {
        content.extend_from_slice(&rest[..at]);
        let markup = &rest[at..];
        let reference = REFERENCES.iter().find(|(written, _)| markup.starts_with(written));
        let ends = markup.strip_prefix(b"</").and_then(|end| end.get(..name.len()));
        if let Some(section) = markup.strip_prefix(b"<![CDATA[") {
            let (data, behind) = until(section, b"]]>");
            content.extend_from_slice(data);
            rest = behind;
        } else if markup.starts_with(b"<!--") {
            rest = until(&markup[4..], b"-->").1;
        } else if ends.is_some_and(|end| end.eq_ignore_ascii_case(name)) {
            rest = markup;
            break;
        } else if let Some((written, byte)) = reference {
            content.push(*byte);
            rest = &markup[written.len()..];
        } else if let Some((letter, behind)) = numbered(markup) {
            content.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
            rest = behind;
        } else {
            content.push(markup[0]);
            rest = &markup[1..];
        }
    }
    let is_over = rest.starts_with(b"</");
    content.extend_from_slice(if is_over { &[] } else { rest });
    // Within a string a `\` more changes nothing, and HTML finds no end there.
    let is_script = name.eq_ignore_ascii_case(b"script");
    let mut before = 0;
    for byte in content {
        if before == b'<' && (byte == b'/' || byte == b'!' && is_script) {
            html.push(b'\\');
        }
        html.push(byte);
        before = byte;
    }
    if is_over { rest } else { &[] }
}

/// The character that a reference gives by its number, and what comes behind it.
fn numbered(markup: &[u8]) -> Option<(char, &[u8])> {
    let written = markup.strip_prefix(b"&#")?;
    let (written, radix) = match written.strip_prefix(b"x") {
        Some(written) => (written, 16),
        None => (written, 10),
    };
    // Some have noughts before them, but not more than this.
    let end = written.iter().take(16).position(|byte| *byte == b';')?;
    let digits = std::str::from_utf8(&written[..end]).ok().filter(|text| !text.starts_with('+'))?;
    let letter = char::from_u32(u32::from_str_radix(digits, radix).ok()?)?;
    Some((letter, &written[end + 1..])).filter(|_| letter != '\0')
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use holdfast_dom::{LoosePage, ParseOptions};

    use super::*;

    fn written(source: &str) -> String {
        let html = String::from_utf8(as_html(source.as_bytes())).unwrap();
        html.strip_prefix("<!DOCTYPE html>").unwrap().to_owned()
    }

    /// What XML writes otherwise than HTML is written as HTML, and nothing else.
    ///
    /// Guarantee: pages/xhtml
    #[test]
    fn xhtml_is_written_as_html() {
        for (source, html) in [
            ("", ""),
            ("\u{feff}<p>a</p>", "<p>a</p>"),
            ("<?xml version='1.0'?><?x y > z?><p>a</p>", "<p>a</p>"),
            ("<title/><script src='a'/>b", "<title></title><script src='a'></script>b"),
            ("<a id=\"x>\" /><g><g /></g>", "<a id=\"x>\" ></a><g><g ></g></g>"),
            ("<br/><IMG src='a'/><hr></hr><br ></br\n>", "<br/><IMG src='a'/><hr><br >"),
            ("<!DOCTYPE html><p/>", "<p></p>"),
            ("<!DOCTYPE html [\n<!ENTITY a \"b\">\n<!-- ]] -->] ><p/>", "<p></p>"),
            ("<!doctype html PUBLIC 'a' 'b'\n>]>a", "]>a"),
            ("<!DOCTYPE html [ <p>a", "a"),
            ("<!DOCTYPE a><!DOCTYPE b [ <p>a]>c", "a]>c"),
            ("<!DOCTYPE html", ""),
            ("a<![CDATA[<b> & ]] ]]>c<![CDATA[d", "a&lt;b> &amp; ]] cd"),
            ("<!-- <p/> <![CDATA[ -->a<!-- <p/>", "<!-- <p/> <![CDATA[ -->a<!-- <p/>"),
            ("<style>a &gt; b &amp;&#65; { }</style>", "<style>a > b &A { }</style>"),
            (
                "<style>&#62; &#x2192;&#x3c;/style&#0;&#+1;&#xD800;&#X3E;&#;&#62</style>",
                "<style>> \u{2192}<\\/style&#0;&#+1;&#xD800;&#X3E;&#;&#62</style>",
            ),
            ("<_a b='>'>c</_a><\u{e9}/>d", "cd"),
            ("<plaintext/>a<PlainText>b</PlainText><p/>", "ab<p></p>"),
            ("<!-->a--><p/><!--->b--><p/>", "<!-- >a--><p></p><!-- ->b--><p></p>"),
            (
                "<a href=/docs/>b</a><a href='/c'/><a b=c />",
                "<a href=/docs/>b</a><a href='/c'></a><a b=c ></a>",
            ),
            ("<a href=/docs/ c/><q/>", "<a href=/docs/ c></a><q></q>"),
            (
                "<style><!-- a --><![CDATA[ b < \"</style>\" ]]></style><p/>",
                "<style> b < \"<\\/style>\" </style><p></p>",
            ),
            (
                "<script>//<![CDATA[\nif (a &lt; 1 && '</script>') '<!--'\n//]]></script ><p/>",
                "<script>//\nif (a &lt; 1 && '<\\/script>') '<\\!--'\n//</script ><p></p>",
            ),
            ("<script>a < b", "<script>a < b"),
            // In a picture it is no raw text.
            (
                "<svg><style>a &gt; b<![CDATA[ > c ]]></style><path/></svg><style>&gt;</style>",
                "<svg><style>a &gt; b > c </style><path></path></svg><style>></style>",
            ),
            // What is not well-formed stays.
            ("a < b <> </> <1/> <p", "a < b <> </> <1/> <p"),
            ("<p class='a/><q/>", "<p class='a/><q/>"),
            ("<", "<"),
            ("</", "</"),
            ("<![CDATA", "<![CDATA"),
        ] {
            assert_eq!(written(source), html, "{source}");
        }
    }

    /// The text that a page in XHTML shows.
    #[test]
    fn nothing_swallows_the_rest_of_a_page() {
        let source = "<?xml version='1.0'?><html xmlns='http://www.w3.org/1999/xhtml'><head><title/>\
                      <script src='a.js'/><style/></head><body><a id='x'/><p>one</p><textarea/><iframe/>\
                      <svg><title/><g/><path/></svg><p>two</p></body></html>";
        let html = as_html(source.as_bytes());
        let page = LoosePage::parse(&html[..], &ParseOptions::default()).unwrap();
        let document = page.open().unwrap();
        let of = |name: &str| {
            let mut found = document.root().descendants().filter(|node| node.name() == Some(name));
            found.next().unwrap()
        };
        assert_eq!(of("body").text().unwrap(), "onetwo");
        assert_eq!(of("p").parent(), Some(of("body")));
        assert_eq!(of("path").parent(), Some(of("svg")));
    }

    #[test]
    fn server_or_file_name_says_that_it_is_xhtml() {
        for (is_xhtml, url, said) in [
            (true, "http://example.org/a", Some("Application/XHTML+XML; charset=utf-8")),
            (false, "http://example.org/a.xhtml", Some("text/html")),
            (false, "http://example.org/a.xhtml", None),
            (true, "file:///a/b.XHTML", None),
            (true, "file:///a/b.xht?x#y", Some(" ")),
            (false, "file:///a/b.html", None),
            (false, "file:///xht", None),
            (false, "file:///a.xhtml/", None),
        ] {
            assert_eq!(is_said(&Url::parse(url).unwrap(), said), is_xhtml, "{url} {said:?}");
        }
    }
}
