//! Documents in a heap: parsed, opened again elsewhere, walked, written as HTML again, beside other
//! things in the heap.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use common::{empty, parsed, reopened};
use holdfast_dom::{
    Document, Documents, DomError, LoosePage, Namespace, Node, NodeKind, ParseLimit, ParseLimits,
    ParseOptions, Quirks,
};
use holdfast_heap::{Heap, OpenOptions};

const PAGE: &str = "<!DOCTYPE html PUBLIC \"p\" \"s\"><!-- first --><title>A &amp; B</title>\
    <body class='a b' id=x><p>one<b>two</b>three<br><svg xlink:href='#y'><path D=1 /></svg>\
    <template><i>in</i></template><input disabled>";

/// A document stored in a heap is complete after the heap is mapped at another address.
///
/// Guarantee: documents/html
#[test]
fn page_is_whole_at_another_address() {
    let documents = reopened(&parsed(PAGE));
    let page = documents.open("page").unwrap();
    let root = page.root();
    let kinds: Vec<NodeKind> = root.children().map(|node| node.kind()).collect();
    assert_eq!(kinds, [NodeKind::Doctype, NodeKind::Comment, NodeKind::Element]);
    let doctype = root.first_child().unwrap().doctype().unwrap();
    assert_eq!((doctype.name, doctype.public_id, doctype.system_id), ("html", "p", "s"));
    assert_eq!(root.children().nth(1).unwrap().data(), Some(" first "));
    let html = page.root_element().unwrap();
    assert_eq!((html.name(), html.namespace()), (Some("html"), Some(Namespace::Html)));
    let names = |node: Node<'_>| -> Vec<String> {
        node.descendants().filter_map(|node| node.name().map(str::to_owned)).collect()
    };
    assert_eq!(
        names(root),
        ["html", "head", "title", "body", "p", "b", "br", "svg", "path", "template", "input"]
    );
    let body = html.last_child().unwrap();
    assert_eq!(body.classes().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(
        (body.html_id(), body.attribute("id"), body.attribute("ID")),
        (Some("x"), Some("x"), None)
    );
    let svg = body.descendants().find(|node| node.name() == Some("svg")).unwrap();
    assert_eq!(svg.namespace(), Some(Namespace::Svg));
    let link = svg.attributes().next().unwrap();
    assert_eq!((link.namespace, link.prefix, link.name), (Namespace::XLink, Some("xlink"), "href"));
    assert_eq!(svg.attribute_in(Namespace::XLink, "href"), Some("#y"));
    assert_eq!(svg.first_child().unwrap().attribute("d"), Some("1"));
    let template = body.descendants().find(|node| node.name() == Some("template")).unwrap();
    assert_eq!(template.children().count(), 0);
    assert_eq!(template.template_contents().unwrap().text().unwrap(), "in");
    assert_eq!(root.text().unwrap(), "A & Bonetwothree");
    assert_eq!(page.quirks(), Quirks::None);
    let input = body.descendants().find(|node| node.name() == Some("input")).unwrap();
    assert_eq!(input.attribute("disabled"), Some(""));
    assert_eq!(input.ancestors().map(|node| node.kind()).last(), Some(NodeKind::Document));
    assert_eq!(input.previous_sibling(), Some(template));
    assert_eq!(page.check().unwrap().removed, 0);
}

/// A document is serialised exactly as html5ever serialises it.
///
/// Guarantee: documents/serialise
#[test]
fn document_serialises_as_html5ever_does() {
    use html5ever::serialize::{SerializeOpts, serialize};
    use html5ever::tendril::TendrilSink;
    use markup5ever_rcdom::{RcDom, SerializableHandle};
    // That serialiser leaves out what templates hold.
    let own = PAGE.replace("<i>in</i>", "");
    let mut sources: Vec<(String, String)> = vec![("own".into(), own)];
    sources.push((
        "escapes".into(),
        "<pre>\n\n a&lt;&nbsp;&amp;<script>a<b&&c</script><p title='\"&nbsp;<'>".into(),
    ));
    sources.push((
        "raw".into(),
        "<style>a>b</style><noscript>x<b></noscript><table>t<tr><td>u".into(),
    ));
    sources.extend(common::pages());
    for (name, source) in sources {
        let options = ParseOptions { scripting: true, ..ParseOptions::default() };
        let mut documents = empty();
        documents.parse("page", source.as_bytes(), &options).unwrap();
        let documents = reopened(&documents);
        let page = documents.open("page").unwrap();
        let dom =
            html5ever::parse_document(RcDom::default(), Default::default()).one(source.as_str());
        let mut expected = Vec::new();
        let node: SerializableHandle = dom.document.clone().into();
        serialize(&mut expected, &node, SerializeOpts::default()).unwrap();
        let html = page.root().html().unwrap();
        assert_eq!(html, String::from_utf8(expected).unwrap(), "{name}");
        assert_eq!(page.root().inner_html().unwrap(), html);
    }
}

/// What was text is none but text where it is read again, in both modes.
///
/// Guarantee: documents/serialise
#[test]
fn text_of_a_noscript_never_becomes_markup() {
    let source = "<p>a<noscript>&lt;/noscript&gt;&lt;script&gt;b&lt;/script&gt;</noscript>";
    for scripting in [false, true] {
        let options = ParseOptions { scripting, ..ParseOptions::default() };
        let mut documents = empty();
        documents.parse("page", source.as_bytes(), &options).unwrap();
        let html = documents.open("page").unwrap().root().html().unwrap();
        documents.parse("again", html.as_bytes(), &options).unwrap();
        let documents = reopened(&documents);
        for name in ["page", "again"] {
            let page = documents.open(name).unwrap();
            assert_eq!(page.scripting(), scripting);
            assert!(page.root().descendants().all(|node| node.name() != Some("script")), "{html}");
        }
        assert_eq!(documents.open("again").unwrap().root().html().unwrap(), html);
    }
}

/// Guarantee: documents/serialise
#[test]
fn html_of_a_part_is_that_of_the_part_alone() {
    let documents = parsed(PAGE);
    let page = documents.open("page").unwrap();
    let bold = page.root().descendants().find(|node| node.name() == Some("b")).unwrap();
    assert_eq!(
        (bold.html().unwrap(), bold.inner_html().unwrap()),
        ("<b>two</b>".into(), "two".into())
    );
    let template = page.root().descendants().find(|node| node.name() == Some("template")).unwrap();
    assert_eq!(template.html().unwrap(), "<template><i>in</i></template>");
    let mut written = Vec::new();
    bold.write_html(&mut written).unwrap();
    assert_eq!(written, b"<b>two</b>");
}

/// Storing a document replaces the older document of its name and leaves other objects alone.
///
/// Guarantee: documents/replacing
#[test]
fn document_replaces_only_itself() {
    let memory = empty().into_heap().close();
    let options = OpenOptions { pointers: Some(common::POINTERS), format_if_empty: true };
    let mut heap = Heap::open(memory, options).unwrap();
    heap.create_root("data", 200).unwrap();
    let mut documents = Documents::new(heap);
    let parse = |documents: &mut Documents<_>, name: &str, source: &str| {
        documents.parse(name, source.as_bytes(), &ParseOptions::default())
    };
    assert!(matches!(parse(&mut documents, "data", "x"), Err(DomError::NotADocument { .. })));
    assert!(matches!(documents.open("data"), Err(DomError::NotADocument { .. })));
    assert!(matches!(documents.remove("data"), Err(DomError::NotADocument { .. })));
    assert!(matches!(documents.open("page"), Err(DomError::NoSuchDocument { .. })));
    parse(&mut documents, "page", "<p>old").unwrap();
    parse(&mut documents, "other", "<p>other").unwrap();
    let report = parse(&mut documents, "page", "<p>new</i>").unwrap();
    assert_eq!((report.source_bytes, report.nodes, report.errors), (10, 6, 2));
    let text = |name: &str| documents.open(name).unwrap().root().text().unwrap();
    assert_eq!((text("page"), text("other")), ("new".into(), "other".into()));
    let mut names: Vec<&str> = documents.names().collect();
    names.sort_unstable();
    assert_eq!(names, ["other", "page"]);
    // A page that was parsed before is kept just the same.
    let loose = LoosePage::parse(&b"<p>loose"[..], &ParseOptions::default()).unwrap();
    assert!(matches!(documents.keep("data", &loose), Err(DomError::NotADocument { .. })));
    assert_eq!(documents.keep("other", &loose).unwrap(), loose.report());
    assert_eq!(documents.open("other").unwrap().root().text().unwrap(), "loose");
    documents.remove("other").unwrap();
    assert_eq!(documents.names().count(), 1);
    assert_eq!(documents.heap().root("data").unwrap().bytes, 200);
}

/// A page that exceeds a limit is a typed error, and the stored document stays.
///
/// Guarantee: documents/limits
#[test]
fn page_over_a_limit_leaves_the_older_one() {
    let mut documents = parsed("<p>old");
    let small = ParseLimits {
        source_bytes: 100_000,
        nodes: 1_000,
        depth: 100,
        attributes: 10,
        all_attributes: 2_000,
        names: 100,
        token_parts: 20_000,
        text_bytes: 50_000,
    };
    let nested = "<div>".repeat(101);
    let attributes = |many: u32| (0..many).map(|n| format!(" a{n}")).collect::<String>();
    let (many, few) = (attributes(11), attributes(10));
    for (source, expected) in [
        ("<p a>".repeat(20_001), ParseLimit::Nodes),
        ("z</x>".repeat(20_001), ParseLimit::SourceBytes),
        ("<br>".repeat(1_001), ParseLimit::Nodes),
        (nested, ParseLimit::Depth),
        (format!("<p{many}>"), ParseLimit::Attributes),
        (format!("<body a><body{many}>"), ParseLimit::Attributes),
        // Of these tags no element becomes.
        (format!("</p{many}>"), ParseLimit::Attributes),
        (format!("<td{many}>"), ParseLimit::Attributes),
        ("</i a a a a a a a>".repeat(300), ParseLimit::AllAttributes),
        (format!("</i{few}>").repeat(201), ParseLimit::AllAttributes),
        // Each paragraph has an element of its own for the bold text, with all attributes.
        (format!("<p><b{few}>{}", "<p>x".repeat(250)), ParseLimit::AllAttributes),
        ((0..101).map(|n| format!("<p x-{n}>")).collect(), ParseLimit::Names),
        ((0..101).map(|n| format!("<x-{n}>")).collect(), ParseLimit::Names),
        ("<template>".repeat(60), ParseLimit::Depth),
        (format!("<p a='{}", " /".repeat(40_000)), ParseLimit::TokenParts),
        (format!("</p a='{}", " /".repeat(40_000)), ParseLimit::TokenParts),
        (format!("<p><!--{}", "//".repeat(40_000)), ParseLimit::TokenParts),
        ("x".repeat(60_000), ParseLimit::TextBytes),
        (format!("<a b='{}'>", "x".repeat(60_000)), ParseLimit::TextBytes),
        (format!("<{}>", "x".repeat(60_000)), ParseLimit::TextBytes),
    ] {
        let options = ParseOptions { limits: small, ..ParseOptions::default() };
        match documents.parse("page", source.as_bytes(), &options) {
            Err(DomError::Limit { limit, .. }) => assert_eq!(limit, expected, "{:.20}", source),
            other => panic!("{expected:?}: {other:?}"),
        }
        let documents = reopened(&documents);
        assert_eq!(documents.open("page").unwrap().root().text().unwrap(), "old");
    }
}

/// Guarantee: documents/limits
#[test]
fn a_source_without_end_ends_at_the_limit() {
    struct Endless;
    impl std::io::Read for Endless {
        fn read(&mut self, target: &mut [u8]) -> std::io::Result<usize> {
            target.fill(b'x');
            Ok(target.len())
        }
    }
    let options = ParseOptions {
        limits: ParseLimits { source_bytes: 4 << 20, ..ParseLimits::default() },
        ..ParseOptions::default()
    };
    let refused = empty().parse("page", Endless, &options).unwrap_err();
    assert!(refused.to_string().contains("more than 4194304 bytes of source"), "{refused}");
}

/// A page that is too deep is refused long before its end is parsed.
///
/// Guarantee: documents/limits
#[test]
fn too_deep_page_is_refused_early() {
    /// Opens one element in the other, and counts the bytes.
    struct Deeper(&'static [u8], u64);
    impl std::io::Read for Deeper {
        fn read(&mut self, target: &mut [u8]) -> std::io::Result<usize> {
            for byte in &mut *target {
                *byte = self.0[self.1 as usize % self.0.len()];
                self.1 += 1;
            }
            Ok(target.len())
        }
    }
    for tag in ["<div>", "<template>"] {
        let mut source = Deeper(tag.as_bytes(), 0);
        // Little enough that a test without the early stop ends, too.
        let limits = ParseLimits { source_bytes: 200 << 10, ..ParseLimits::default() };
        let options = ParseOptions { limits, ..ParseOptions::default() };
        let refused = empty().parse("page", &mut source, &options);
        assert!(
            matches!(refused, Err(DomError::Limit { limit: ParseLimit::Depth, .. })),
            "{refused:?}"
        );
        assert!(source.1 < 100_000, "{} bytes of {tag} were read", source.1);
    }
}

/// A page at the depth limit is walked, searched, serialised and dropped without recursion.
///
/// Guarantee: documents/limits
/// Guarantee: documents/depth
#[test]
fn deep_page_needs_no_recursion() {
    let options = ParseOptions {
        limits: ParseLimits { depth: 60_000, ..ParseLimits::default() },
        ..ParseOptions::default()
    };
    let source = "<svg>".to_owned() + &"<g>".repeat(20_000) + "deep";
    let mut documents = empty();
    documents.parse("page", source.as_bytes(), &options).unwrap();
    let page = documents.open("page").unwrap();
    assert_eq!(page.root().text().unwrap(), "deep");
    assert!(page.root().html().unwrap().len() > source.len());
    let selector = holdfast_dom::Selector::parse("svg g:not(:has(*))").unwrap();
    assert_eq!(page.select(&selector).unwrap().len(), 1);
    assert_eq!(page.check().unwrap().nodes, 20_006);
}

/// Invalid UTF-8 is replaced in the same way wherever the source is split into pieces.
///
/// Guarantee: documents/encodings
#[test]
fn invalid_utf_8_is_replaced_across_pieces() {
    struct Pieces<'a>(&'a [u8], usize);
    impl std::io::Read for Pieces<'_> {
        fn read(&mut self, target: &mut [u8]) -> std::io::Result<usize> {
            let many = self.1.min(self.0.len()).min(target.len());
            target[..many].copy_from_slice(&self.0[..many]);
            self.0 = &self.0[many..];
            Ok(many)
        }
    }
    let source = b"a\xFFb\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\xE2\x82<p>\xC3";
    let expected = String::from_utf8_lossy(source).replace("<p>", "");
    for many in 1..source.len() {
        let mut documents = empty();
        documents.parse("page", Pieces(source, many), &ParseOptions::default()).unwrap();
        assert_eq!(
            documents.open("page").unwrap().root().text().unwrap(),
            expected,
            "pieces of {many}"
        );
    }
}

/// A page parsed outside the heap is stored as if it had been parsed there, also through a lease.
///
/// Guarantee: documents/readers
#[test]
fn loose_page_stores_as_if_parsed_there() {
    let parsed = parsed(PAGE);
    let page = LoosePage::parse(PAGE.as_bytes(), &ParseOptions::default()).unwrap();
    let mut heap = empty().into_heap();
    heap.begin().unwrap();
    let mut documents = Documents::lent(&mut heap).unwrap();
    documents.keep("page", &page).unwrap();
    assert_eq!(documents.names().collect::<Vec<_>>(), ["page"]);
    heap.commit().unwrap();
    heap.create_root("other", 8).unwrap();
    let documents = reopened(&Documents::new(heap));
    let (kept, own) = (documents.open("page").unwrap(), parsed.open("page").unwrap());
    assert_eq!(kept.root().html().unwrap(), own.root().html().unwrap());
    assert_eq!((kept.size(), kept.check().unwrap()), (own.size(), own.check().unwrap()));
    let mut heap = documents.into_heap();
    heap.begin().unwrap();
    let mut documents = Documents::lent(&mut heap).unwrap();
    assert!(matches!(documents.keep("other", &page), Err(DomError::NotADocument { .. })));
    documents
        .keep("page", &LoosePage::parse(&b"new"[..], &ParseOptions::default()).unwrap())
        .unwrap();
    heap.abort().unwrap();
    let documents = Documents::new(heap);
    assert_eq!(documents.open("page").unwrap().root().html().unwrap(), own.root().html().unwrap());
}

/// A source that gives a few bytes at a time.
struct Pieces<'a>(&'a [u8], usize);

impl std::io::Read for Pieces<'_> {
    fn read(&mut self, target: &mut [u8]) -> std::io::Result<usize> {
        let length = self.1.min(target.len()).min(self.0.len());
        target[..length].copy_from_slice(&self.0[..length]);
        self.0 = &self.0[length..];
        Ok(length)
    }
}

fn text_of(source: &[u8], piece: usize, options: &ParseOptions) -> String {
    let page = LoosePage::parse(Pieces(source, piece), options).unwrap();
    page.open().unwrap().root().text().unwrap()
}

/// The tokenizer was fed in pieces of 16 KiB, and threw a U+FEFF at the start of each away; that
/// behind a script or a `<meta charset>`, too.
///
/// Guarantee: documents/encodings
#[test]
fn a_byte_order_mark_counts_at_the_start_alone() {
    let options = ParseOptions::default();
    let fragment = ParseOptions {
        fragment_of: Some((Namespace::Html, "div".to_owned())),
        ..ParseOptions::default()
    };
    let start = "<meta charset=utf-8><p>";
    // Before, on and behind each place at which a piece can end; the mark itself is three bytes.
    for boundary in [16_384usize, 32_768, 49_152] {
        for at in boundary - 4..=boundary + 1 {
            for marks in ["\u{feff}", "\u{feff}\u{feff}", "\u{feff}a\u{feff}"] {
                let wanted = format!("{}{marks}z", "a".repeat(at - start.len()));
                let source = format!("{start}{wanted}");
                for piece in [usize::MAX, 1_000] {
                    for options in [&options, &fragment] {
                        let text = text_of(source.as_bytes(), piece, options);
                        assert!(text == wanted, "{at} {piece} {marks:?}: {} bytes", text.len());
                    }
                }
            }
        }
    }
    // In any piece, down to a byte.
    for (source, wanted) in [
        ("\u{feff}", ""),
        ("\u{feff}x", "x"),
        ("\u{feff}\u{feff}x", "\u{feff}x"),
        ("\u{feff}<p>x", "x"),
        (" \u{feff}x", "\u{feff}x"),
        ("<p>\u{feff}x\u{feff}", "\u{feff}x\u{feff}"),
        ("<script></script>\u{feff}x", "\u{feff}x"),
        ("<meta charset=utf-8>\u{feff}x", "\u{feff}x"),
        ("<textarea>\n\u{feff}x", "\u{feff}x"),
        ("<title>&amp\u{feff}</title>", "&\u{feff}"),
    ] {
        for piece in 1..=source.len() {
            let text = text_of(source.as_bytes(), piece, &options);
            assert_eq!(text, wanted, "{source:?} in pieces of {piece}");
        }
    }
    let (page, values) =
        ("<p title='\u{feff}\u{feff}a'><!--\u{feff}-->", ["\u{feff}\u{feff}a", "\u{feff}"]);
    for piece in 1..=page.len() {
        let page = LoosePage::parse(Pieces(page.as_bytes(), piece), &options).unwrap();
        let document = page.open().unwrap();
        let paragraph =
            document.root().descendants().find(|node| node.name() == Some("p")).unwrap();
        let comment = paragraph.first_child().and_then(Node::data);
        assert_eq!([paragraph.attribute("title").unwrap(), comment.unwrap()], values, "{piece}");
    }
}

/// 80,000 attributes took 2.2 s, as the tokenizer compares each with all before it and hands over
/// complete tags only.
///
/// Guarantee: documents/limits
#[test]
fn a_tag_with_too_many_attributes_is_read_no_further() {
    /// A tag without end, and how much of it was read.
    struct Tag(Vec<u8>, fn(u64) -> String, u64);
    impl std::io::Read for Tag {
        fn read(&mut self, target: &mut [u8]) -> std::io::Result<usize> {
            while self.0.len() < target.len() {
                self.0.extend_from_slice(self.1(self.2).as_bytes());
                self.2 += 1;
            }
            let rest = self.0.split_off(target.len());
            target.copy_from_slice(&std::mem::replace(&mut self.0, rest));
            Ok(target.len())
        }
    }
    let attributes: [fn(u64) -> String; 5] = [
        |n| format!(" a{n}"),
        |n| format!("/a{n}"),
        |n| format!(" a{n}='>'"),
        |n| format!("a{n}=\"<b>\""),
        |n| format!(" a{n} = >", n = n).replace('>', "x"),
    ];
    // What the tokenizer reads ahead of what it hands over, too.
    for start in
        ["<p ", "</p ", "x<p ", "<<p ", "</<p a></i ", "&am<p ", "<svg><p ", "<title></t<</title "]
    {
        for (which, attribute) in attributes.into_iter().enumerate() {
            let mut tag = Tag(start.into(), attribute, 0);
            let refused = LoosePage::parse(&mut tag, &ParseOptions::default());
            match refused {
                Err(DomError::Limit { limit: ParseLimit::Attributes, max: 1_023 }) => {}
                other => panic!("{start:?} {which}: {:?}", other.map(|page| page.report())),
            }
            assert!(tag.2 <= 1_023 + 16_384, "{start:?} {which}: {} attributes were read", tag.2);
        }
    }
    // What looks like attributes in a text, comment or script, and attributes that a tag has twice,
    // is let pass.
    let words = " a".repeat(20_000);
    let once: String = (0..1_023).map(|n| format!(" a{n}")).collect();
    for source in [
        format!("<p>{words}"),
        format!("<!--{words}-->"),
        format!("<script>if (a <b{words}"),
        format!("<title><b{words}"),
        format!("<style><b{words}</style>"),
        format!("<svg><![CDATA[<b{words}]]>"),
        format!("<!doctype html {words}>"),
        format!("<p{words}>"),
        format!("<p{once}{once}>"),
        format!("<p a='{words}{words}"),
    ] {
        let parsed = LoosePage::parse(source.as_bytes(), &ParseOptions::default());
        assert!(parsed.is_ok(), "{:.20}: {:?}", source, parsed.err());
    }
}

/// The parser's name of `xmlns` is one with a prefix of no letters, which was shown as `:xmlns`.
///
/// Guarantee: documents/namespaces
#[test]
fn attributes_of_svg_have_the_names_of_the_page() {
    let source = "<svg xmlns='http://www.w3.org/2000/svg' xmlns:xlink='http://www.w3.org/1999/xlink' xml:lang=de \
        viewbox='0 0 1 1'><use xlink:href='#a' href='#b' xlink:other=c /></svg><p xlink:href='#d' xmlns=e>";
    let mut documents = parsed(source);
    let names = |documents: &Documents<_>, wanted: &str| {
        let page: Document<'_> = documents.open("page").unwrap();
        let node = page.root().descendants().find(|node| node.name() == Some(wanted)).unwrap();
        let names: Vec<String> =
            node.attributes().map(|attribute| attribute.qualified_name().into_owned()).collect();
        for name in &names {
            assert!(node.attribute(name).is_some(), "{wanted} {name}");
        }
        (node.id(), names.join(" "))
    };
    assert_eq!(names(&documents, "svg").1, "xmlns xmlns:xlink xml:lang viewBox");
    let (used, of_use) = names(&documents, "use");
    assert_eq!(of_use, "xlink:href href xlink:other");
    assert_eq!(names(&documents, "p").1, "xlink:href xmlns");
    {
        let page = documents.open("page").unwrap();
        let node = page.node(used).unwrap();
        assert_eq!(node.attribute("xlink:href"), Some("#a"));
        assert_eq!(node.attribute("href"), Some("#b"));
        assert_eq!(node.attribute_in(Namespace::XLink, "href"), Some("#a"));
        assert_eq!(
            (node.attribute(":href"), node.attribute("x:href"), node.attribute("xlink:")),
            (None, None, None)
        );
    }
    documents
        .edit("page", |edit| {
            edit.set_attribute(used, "xlink:href", "#new")?;
            edit.set_attribute(used, "xlink:title", "t")?;
            assert!(edit.remove_attribute(used, "href")?);
            assert!(!edit.remove_attribute(used, "href")?);
            Ok::<_, DomError>(())
        })
        .unwrap();
    assert_eq!(names(&documents, "use").1, "xlink:href xlink:other xlink:title");
    let html = documents.open("page").unwrap().root().html().unwrap();
    assert!(
        html.contains(r##"<use xlink:href="#new" xlink:other="c" xlink:title="t">"##),
        "{html}"
    );
    assert!(html.contains(r#"<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="#), "{html}");
}
