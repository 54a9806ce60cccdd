//! Documents whose links, texts and names are made up, and pages made to be slow: every query
//! and walk ends soon, in bounded memory, and sound pages of any shape are never called damaged.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::sync::mpsc;
use std::time::{Duration, Instant};

use common::parsed;
use holdfast_dom::layout::{
    AttributeRecord, Header, LONG, NAME_CLASS, NAME_ID, NameRecord, NodeRecord, ORDERED,
    TableCapacity, name_hash,
};
use holdfast_dom::{
    Damage, Document, DomError, LoosePage, NodeKind, ParseLimit, ParseOptions, Selector,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use zerocopy::IntoBytes;

/// A document of these records; its names are `id`, `class` and `b`, its text is `idclassb` and
/// what is given.
struct Made {
    nodes: Vec<NodeRecord>,
    attributes: Vec<AttributeRecord>,
    text: Vec<u8>,
    quirks: u32,
    flags: u64,
    names: Vec<&'static str>,
    hash_of: fn(&str) -> u32,
    length_of: fn(&str) -> u32,
    words: Vec<u64>,
}

const NAME_B: u32 = 2;

impl Made {
    fn of(nodes: Vec<NodeRecord>) -> Made {
        Made {
            nodes,
            attributes: Vec::new(),
            text: b"idclassb".to_vec(),
            quirks: 0,
            flags: 0,
            names: vec!["id", "class", "b"],
            hash_of: name_hash,
            length_of: |name| name.len() as u32,
            words: Vec::new(),
        }
    }

    fn open(&mut self) -> Result<Document<'_>, DomError> {
        let name = |text: &str| NameRecord {
            local: "idclassb".find(text).unwrap() as u32,
            local_length: (self.length_of)(text),
            namespace: u8::from(text == "b"),
            hash: (self.hash_of)(text),
            ..NameRecord::default()
        };
        let names: Vec<NameRecord> = self.names.iter().map(|text| name(text)).collect();
        let room = TableCapacity {
            nodes: self.nodes.len() as u32,
            attributes: self.attributes.len() as u32,
            names: names.len() as u32,
            text: self.text.len() as u32,
        };
        let (mut header, bytes) = Header::with_room(room, self.quirks);
        for table in
            [&mut header.nodes, &mut header.attributes, &mut header.names, &mut header.text]
        {
            table.used = table.room;
        }
        header.flags = self.flags;
        self.words = vec![0; bytes.div_ceil(8) as usize];
        let target = self.words.as_mut_bytes();
        for (at, bytes) in [
            (0, header.summed().as_bytes()),
            (header.nodes.at, self.nodes.as_bytes()),
            (header.attributes.at, self.attributes.as_bytes()),
            (header.names.at, names.as_bytes()),
            (header.text.at, &self.text),
        ] {
            target[at as usize..][..bytes.len()].copy_from_slice(bytes);
        }
        Document::from_bytes(&self.words.as_bytes()[..bytes as usize])
    }
}

fn element(parent: u32, next: u32, previous: u32, first_child: u32) -> NodeRecord {
    let tag = NodeRecord::element(NAME_B, [], false);
    NodeRecord { parent, next, previous, first: first_child, tag, ..NodeRecord::default() }
}

/// Node 0, the document with this first child, and the others.
fn tree(first_child: u32, others: impl IntoIterator<Item = NodeRecord>) -> Vec<NodeRecord> {
    let document =
        NodeRecord { tag: NodeKind::Document as u32, first: first_child, ..NodeRecord::default() };
    [NodeRecord::default(), document].into_iter().chain(others).collect()
}

/// Fails when the work takes longer than any honest machine needs; what does not end is left
/// behind.
fn soon<R: Send + 'static>(work: impl FnOnce() -> R + Send + 'static) -> R {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(work()));
    receiver.recv_timeout(Duration::from_secs(120)).expect("it panicked, or does not end")
}

const SELECTORS: &[&str] = &[
    "b:has(nosuch)",
    "b:has(~ nosuch)",
    "b:has(~ b nosuch)",
    "b:has(+ b > nosuch) b",
    "nosuch b ~ b b ~ b",
    "nosuch > b ~ b b",
    "b:nth-child(2n+1)",
    "b:nth-last-child(2n)",
    "b:empty",
    "b:nth-last-of-type(3) ~ b:has(b ~ b)",
];

fn ask_all(made: &mut Made) -> Option<Damage> {
    let page = made.open().unwrap();
    let mut damage = None;
    for selector in SELECTORS {
        // Each in a document of its own: damage that one has met ends those after it.
        let page = page.clone();
        let found = page.select(&Selector::parse(selector).unwrap()).err();
        assert_eq!(found.is_some(), page.damage().is_some(), "{selector}: {found:?}");
        damage = damage.or(page.damage());
    }
    damage
}

/// Nodes that are both child and sibling of one node do not multiply the work of `:has`.
///
/// Guarantee: documents/bounded-memory
/// Guarantee: documents/damage
#[test]
fn tangled_nodes_do_not_multiply_has() {
    soon(|| {
        let last = 64;
        let both = |node: u32| if node == last { 0 } else { node + 1 };
        let chain = (2..=last).map(|node| element(node - 1, both(node), node - 1, both(node)));
        let mut made = Made::of(tree(2, chain));
        assert!(matches!(ask_all(&mut made), Some(Damage::Node { .. })));
    });
}

/// Sibling cycles at every level end a query with a damage error.
///
/// Guarantee: documents/bounded-memory
/// Guarantee: documents/damage
#[test]
fn sibling_circles_at_every_level_are_damage() {
    soon(|| {
        let last = 400;
        let below = |node: u32| if node == last { 0 } else { node + 1 };
        for previous_is_itself in [false, true] {
            let previous = |node: u32| if previous_is_itself { node } else { node - 1 };
            let chain = (2..=last).map(|node| element(node - 1, node, previous(node), below(node)));
            let mut made = Made::of(tree(2, chain));
            assert!(ask_all(&mut made).is_some());
        }
        // A ring of siblings that is on no node's list of children, each of which has the others'
        // parent above and a row below.
        let row = 200u32;
        let ring = |next: u32, previous: u32, child: u32| element(2, next, previous, child);
        let mut nodes = tree(2, [element(1, 3, 2, 0), ring(4, 5, 6), ring(5, 3, 0), ring(3, 4, 0)]);
        nodes.extend((0..row).map(|at| {
            let node = 6 + at;
            let next = if at + 1 == row { 0 } else { node + 1 };
            element(3, next, if at == 0 { 5 + row } else { node - 1 }, 0)
        }));
        assert!(ask_all(&mut Made::of(nodes)).is_some());
    });
}

/// Guarantee: documents/bounded-memory
/// Guarantee: documents/damage
#[test]
fn whatever_the_links_say_every_query_ends() {
    soon(|| {
        let mut generator = StdRng::seed_from_u64(11);
        let mut random = |below: u32| generator.random_range(0..below);
        let mut damaged = 0;
        for round in 0..400 {
            let count = 8 + round % 40;
            // Half of the links are those of a tree, so that walks get somewhere.
            let mut link = |likely: u32| if random(4) == 0 { random(count + 2) } else { likely };
            let nodes = (2..count + 2).map(|node| {
                let (parent, next, previous) = (link(node / 3), link(node + 1), link(node - 1));
                element(parent, next % (count + 2), previous, link(node * 2) % (count + 2))
            });
            damaged +=
                u32::from(ask_all(&mut Made::of(tree(2, nodes.collect::<Vec<_>>()))).is_some());
        }
        assert!(damaged > 300, "{damaged}");
    });
}

/// A sound page is never reported as damaged, however long the paths of a selector are.
///
/// Guarantee: documents/queries
#[test]
fn sound_page_is_never_damaged_by_selectors() {
    let nested = "<!DOCTYPE html>".to_owned() + &"<div>".repeat(12) + "<b id=leaf>";
    let flat = "<!DOCTYPE html>".to_owned() + &"<p></p>".repeat(40) + "<p id=last>";
    for (source, selectors) in [
        (
            &nested,
            [
                "body:has(i b) #leaf",
                "body:has(div div i b) div #leaf",
                "div:has(:not(div i) ~ i) b",
            ],
        ),
        (
            &flat,
            [
                "p:has(~ i ~ b) ~ #last",
                "p:has(~ i ~ p ~ b) ~ p ~ #last",
                "p:nth-last-child(2) ~ #last:has(i)",
            ],
        ),
    ] {
        let page = LoosePage::parse(source.as_bytes(), &ParseOptions::default()).unwrap();
        let page = page.open().unwrap();
        for selector in selectors {
            assert_eq!(page.select(&Selector::parse(selector).unwrap()).unwrap(), [], "{selector}");
        }
        assert_eq!(page.damage(), None);
    }
}

/// `:has` works down to its depth limit on a small stack and stops there.
///
/// Guarantee: documents/depth
#[test]
fn has_reaches_its_limit_on_a_small_stack() {
    let deep = |levels: usize| {
        let mut options = ParseOptions::default();
        options.limits.depth = 60_000;
        let source = "<svg>".to_owned() + &"<g>".repeat(levels) + "<b><i><u>";
        LoosePage::parse(source.as_bytes(), &options).unwrap()
    };
    let row = vec!["*"; 250].join(">");
    let selectors = [
        "svg:has(nosuch)".to_owned(),
        format!("svg:has(nosuch {row})"),
        format!("svg:has({row}) nosuch"),
    ];
    // The smallest stack that a thread has if nothing says otherwise.
    let asked = std::thread::Builder::new().stack_size(2 << 20).spawn(move || {
        for selector in &selectors {
            let selector = Selector::parse(selector).unwrap();
            let page = deep(2_000);
            let page = page.open().unwrap();
            assert_eq!(page.select(&selector).unwrap(), []);
            let page = deep(20_000);
            let page = page.open().unwrap();
            let found = page.select(&selector);
            assert!(
                matches!(found, Err(DomError::Limit { limit: ParseLimit::HasDepth, .. }) | Ok(_)),
                "{found:?}"
            );
            // That is not damage, and no other query is the worse for it.
            assert_eq!(page.damage(), None);
            assert_eq!(page.select(&Selector::parse("svg > g").unwrap()).unwrap().len(), 1);
        }
        let page = deep(20_000);
        let page = page.open().unwrap();
        let found = page.select(&Selector::parse("svg:has(nosuch)").unwrap());
        assert!(
            matches!(found, Err(DomError::Limit { limit: ParseLimit::HasDepth, .. })),
            "{found:?}"
        );
    });
    asked.unwrap().join().unwrap();
}

/// The shortest of some runs: what the work takes when nothing disturbs it.
fn shortest(mut work: impl FnMut()) -> Duration {
    let times = (0..5).map(|_| {
        let begin = Instant::now();
        work();
        begin.elapsed()
    });
    times.min().unwrap()
}

/// `:disabled` does not search all fields of a disabled fieldset for each field.
///
/// Guarantee: documents/queries
#[test]
fn disabled_fields_cost_no_search_each() {
    let time = |fields: usize| {
        let documents = parsed(&("<fieldset disabled>".to_owned() + &"<input>".repeat(fields)));
        let page = documents.open("page").unwrap();
        let disabled = Selector::parse("input:disabled").unwrap();
        shortest(|| assert_eq!(page.select(&disabled).unwrap().len(), fields))
    };
    let (few, many) = (time(500), time(8_000));
    // 16 times as many: 16 times as long, not 256 times.
    assert!(many < few * 100, "{few:?}, {many:?}");
}

/// Elements in a row below the document's first, each with a text.
fn row(many: u32, element_of: impl Fn() -> NodeRecord, text: (u32, u32)) -> Vec<NodeRecord> {
    let mut nodes = tree(2, [element(1, 0, 2, 3)]);
    for at in 0..many {
        let (node, last) = (3 + at * 2, 1 + many * 2);
        let next = if node == last { 0 } else { node + 2 };
        let previous = if at == 0 { last } else { node - 2 };
        nodes.push(NodeRecord { parent: 2, next, previous, first: node + 1, ..element_of() });
        let (parent, tag) = (node, NodeKind::Text as u32);
        let (data, first) = text;
        nodes.push(NodeRecord {
            parent,
            previous: node + 1,
            data,
            first,
            tag,
            ..NodeRecord::default()
        });
    }
    nodes
}

/// Nodes that claim the same texts and attributes are found before anything is copied.
///
/// Guarantee: documents/bounded-memory
#[test]
fn shared_texts_are_found_before_a_copy() {
    let long = vec![b'x'; 10_000];
    let (at, length) = (8, long.len() as u32);
    let check = |made: &mut Made| {
        let page = made.open().unwrap();
        let (checked, html) = (page.clone().check(), page.root().html());
        assert!(matches!(html, Err(DomError::Damaged(_))), "{:?}", html.map(|html| html.len()));
        checked.unwrap_err()
    };
    let plain = || element(0, 0, 0, 0);
    let mut made = Made::of(row(300, plain, (at, 60)));
    made.text.extend(&long);
    assert!(made.open().unwrap().check().is_ok(), "short texts are shared");
    assert_eq!(made.open().unwrap().root().text().unwrap().len(), 18_000);
    let mut made = Made::of(row(300, plain, (at, length)));
    made.text.extend(&long);
    assert!(matches!(check(&mut made), DomError::Damaged(Damage::Text { .. })));

    let with = |many| move || element(0, 0, 0, 0).with_attributes(vec![NAME_CLASS; many]);
    let attribute = |length| AttributeRecord { name: NAME_CLASS as u16, length, value: at };
    let mut made = Made::of(row(300, with(1_000), (at, 0)));
    made.text.extend(&long);
    made.attributes = vec![attribute(5); 1_000];
    assert!(matches!(check(&mut made), DomError::Damaged(Damage::Attribute { .. })));
    let mut made = Made::of(row(1, with(1_000), (at, 0)));
    made.text.extend(&long);
    made.attributes = vec![attribute(length as u16); 1_000];
    assert!(matches!(check(&mut made), DomError::Damaged(Damage::Text { .. })));
    // The same with values whose length is in front of them.
    let mut made = Made::of(row(1, with(1_000), (at, 0)));
    made.text.extend(70_000u32.to_le_bytes());
    made.text.extend(vec![b'x'; 70_000]);
    made.attributes = vec![attribute(LONG); 1];
    made.attributes.extend(vec![attribute(0); 999]);
    assert!(made.open().unwrap().check().is_ok());
    made.attributes = vec![attribute(LONG); 1_000];
    assert!(matches!(check(&mut made), DomError::Damaged(Damage::Text { .. })));
}

/// The check finds changed words that would silently change the result of queries.
///
/// Guarantee: documents/bounded-memory
#[test]
fn check_finds_words_that_mislead_queries() {
    let made = || Made::of(tree(2, [element(1, 0, 2, 0)]));
    assert!(made().open().unwrap().check().is_ok());
    let damage = |mut made: Made| made.open().unwrap().check().unwrap_err().to_string();
    assert!(damage(Made { hash_of: |name| name_hash(name) ^ 1, ..made() }).contains("name 0"));
    assert!(damage(Made { names: vec!["class", "id", "b"], ..made() }).contains("name 0"));
    assert!(damage(Made { names: vec!["id", "b", "b"], ..made() }).contains("name 1"));
    assert!(damage(Made { quirks: 3, ..made() }).contains("quirks"));
    let mut with_name = made();
    with_name.nodes[1].tag |= 1 << 16;
    assert!(damage(with_name).contains("node 1"));
    let mut with_start = made();
    with_start.nodes[1].data = u32::MAX;
    assert!(damage(with_start).contains("node 1"));
    // Bits beside the kind, of what is no element.
    let mut with_text = Made::of(row(1, || element(0, 0, 0, 0), (0, 2)));
    with_text.nodes[4].tag |= 1 << 4;
    assert!(damage(with_text).contains("node 4"));
    // An attribute that the element has, as queries see it, and one that it has not.
    let marked = |names: [u32; 1]| {
        let mut made = Made::of(tree(2, [element(1, 0, 2, 0).with_attributes(names)]));
        made.attributes = vec![AttributeRecord { name: NAME_CLASS as u16, length: 1, value: 0 }];
        made
    };
    assert!(marked([NAME_CLASS]).open().unwrap().check().is_ok());
    assert!(damage(marked([NAME_ID])).contains("attribute 0"));
    assert!(damage(marked([NAME_B])).contains("attribute 0"));
    // A word in front of a value that needs none.
    let mut long = marked([NAME_CLASS]);
    long.attributes[0] = AttributeRecord { length: LONG, value: 8, ..long.attributes[0] };
    long.text.extend([1, 0, 0, 0, b'x']);
    assert!(damage(long).contains("attribute 0"));
    // The order that a pass goes by.
    assert!(damage(Made { flags: 2, ..made() }).contains("flags"));
    let in_order = |nodes| Made { flags: ORDERED, ..Made::of(nodes) };
    let child = element(2, 0, 3, 0);
    assert!(in_order(tree(2, [element(1, 0, 2, 3), child])).open().unwrap().check().is_ok());
    assert!(
        damage(in_order(tree(2, [element(1, 4, 3, 0), element(1, 0, 4, 0), element(1, 3, 2, 0)])))
            .contains("node 4")
    );
    assert!(
        damage(in_order(tree(2, [element(1, 0, 2, 0), element(0, 0, 0, 0)]))).contains("node 3")
    );
}

/// A long name shared by many elements is not serialised without bound.
///
/// Guarantee: documents/bounded-memory
#[test]
fn long_names_are_not_written_without_end() {
    let name = "x".repeat(1 << 20);
    let source = format!("<p><b {name}>{}", "<p>x".repeat(200));
    let page = LoosePage::parse(source.as_bytes(), &ParseOptions::default()).unwrap();
    let page = page.open().unwrap();
    let written = page.root().write_html(std::io::sink());
    assert!(
        matches!(written, Err(DomError::Limit { limit: ParseLimit::NamesBytes, .. })),
        "{written:?}"
    );
    let part = page.select_first(&Selector::parse("p b").unwrap()).unwrap().unwrap();
    assert!(part.html().unwrap().len() > name.len());
    assert_eq!(page.damage(), None);
    // One that is as long only by its own account is damage.
    let mut made = Made { length_of: |_| u32::MAX, ..Made::of(tree(2, [element(1, 0, 2, 0)])) };
    let written = made.open().unwrap().root().html();
    assert!(matches!(written, Err(DomError::Damaged(Damage::Text { .. }))), "{written:?}");
}

/// A selector list allocates no table for names that a damaged document only claims to have.
///
/// Guarantee: documents/bounded-memory
#[test]
fn claimed_names_take_no_tables() {
    let with_names =
        |many| Made { names: vec!["b"; many], ..Made::of(tree(2, [element(1, 0, 2, 0)])) };
    assert!(with_names(65_536).open().is_ok());
    let refused = with_names(65_537).open().unwrap_err().to_string();
    assert!(refused.contains("table of names"), "{refused}");
    let documents = parsed("<p class=x><i>1</i><b>2</b>");
    let page = documents.open("page").unwrap();
    // So many that names are no longer compared by number; what is found is the same.
    let list = "b,".repeat(8_000) + "b";
    for selector in [list.as_str(), "b"] {
        assert_eq!(page.select(&Selector::parse(selector).unwrap()).unwrap().len(), 1);
    }
}
