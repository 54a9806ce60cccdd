//! Documents whose bytes were changed by an attacker: everything ends, nothing panics, and no
//! answer is given that may be a part of one.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use common::{open, parsed};
use holdfast_dom::layout::NodeRecord;
use holdfast_dom::{Damage, Document, DomError, Edit, Namespace, NodeKind, Selector};
use holdfast_testkit::TestMemory;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const PAGE: &str = "<!DOCTYPE html><title>t</title><body class='a b' id=x><!--c--><p>one<b title=y>two</b>three\
    <svg xlink:href='#y'><g/></svg><template><i>in</i></template><ul><li>1<li>2<li>3</ul>";
const SELECTORS: &[&str] = &[
    "*",
    "li:nth-child(2)",
    "body :has(b)",
    "p > b ~ svg",
    "#x .a",
    "[title]",
    "li + li",
    "i",
    "li:nth-child(2n+1) ~ li:nth-child(3n+1)",
    "li:nth-last-child(2n+1) ~ li:nth-last-child(3n+1)",
];

/// A heap with a document, and where that lies.
fn memory() -> (TestMemory, usize, usize) {
    memory_of(PAGE)
}

fn memory_of(page: &str) -> (TestMemory, usize, usize) {
    let documents = parsed(page);
    let length = documents.open("page").unwrap().size().bytes as usize;
    let memory = documents.into_heap().close();
    let start = memory.bytes().windows(8).position(|bytes| bytes == b"HFSTHTML").unwrap();
    (memory, start, length)
}

/// Everything that can be asked of a document; what was damaged, if that was seen.
fn ask(document: &Document<'_>) -> Option<Damage> {
    let selectors: Vec<Selector> =
        SELECTORS.iter().map(|text| Selector::parse(text).unwrap()).collect();
    let mut failed = 0;
    for selector in &selectors {
        failed += usize::from(document.select(selector).is_err());
    }
    failed += usize::from(document.root().html().is_err());
    failed += usize::from(document.root().text().is_err());
    for node in document.root().descendants() {
        let _ = (
            node.kind(),
            node.name(),
            node.namespace(),
            node.data(),
            node.doctype(),
            node.target(),
        );
        let _ =
            (node.attributes().count(), node.classes().count(), node.html_id(), node.last_child());
        let _ = (node.template_contents(), node.previous_sibling(), node.attribute("title"));
        let _ = (node.ancestors().count(), node.children().count());
    }
    if failed > 0 {
        assert!(document.damage().is_some(), "an answer was refused without damage");
    }
    let _ = document.check();
    document.damage()
}

/// Changes a document that may be damaged.
fn change<B: holdfast_heap::Backing>(
    edit: &mut Edit<'_, '_, B>,
    node: u32,
) -> Result<(), DomError> {
    let item = edit.create_element(Namespace::Html, "li")?;
    edit.append(node, item)?;
    edit.set_attribute(node, "class", "z")?;
    edit.remove_attribute(node, "id")?;
    edit.insert_before(node, item)?;
    edit.set_text(item, "text")?;
    edit.set_text(node, "text")?;
    edit.remove(node)
}

/// Every flipped bit of the header is found when the document is opened.
///
/// Guarantee: documents/bounded-memory
/// Guarantee: documents/damage
#[test]
fn flipped_header_bits_are_found() {
    let (mut memory, start, _) = memory();
    for bit in 0..128 * 8 {
        memory.bytes_mut()[start + bit / 8] ^= 1 << (bit % 8);
        let documents = open(memory);
        match documents.open("page") {
            Err(DomError::Damaged(_) | DomError::NewerFormat { .. }) => {}
            other => panic!("bit {bit}: {other:?}"),
        }
        memory = documents.into_heap().close();
        memory.bytes_mut()[start + bit / 8] ^= 1 << (bit % 8);
    }
}

/// Tables that lie outside the document are found even if the checksum is right.
///
/// Guarantee: documents/bounded-memory
/// Guarantee: documents/damage
#[test]
fn tables_outside_the_document_are_found() {
    let page = holdfast_dom::LoosePage::parse(PAGE.as_bytes(), &Default::default()).unwrap();
    let original = page.bytes().to_vec();
    let length = original.len() as u64;
    let mut place = vec![0u8; original.len() + 8];
    let start = place.as_ptr().align_offset(8);
    let bytes = &mut place[start..start + original.len()];
    for table in 0..4usize {
        // Words of a table: where it is, and how much is in use of how much room.
        for (at, value) in [
            (0, length),
            (0, length - 8),
            (0, u64::MAX - 7),
            (0, 129),
            (8, 5 | 4 << 32),
            (8, 1 << 31 | 1 << 63),
            (8, u64::MAX),
        ] {
            bytes.copy_from_slice(&original);
            let at = 16 + table * 16 + at;
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
            let sum = xxhash_rust::xxh3::xxh3_64(&bytes[..120]);
            bytes[120..128].copy_from_slice(&sum.to_le_bytes());
            match Document::from_bytes(bytes) {
                Err(DomError::Damaged(Damage::Table { .. })) => {}
                other => panic!("table {table}, {value:#x} at {at}: {other:?}"),
            }
        }
    }
}

/// A document of arbitrary bytes never causes a panic, a hang or a partial answer.
///
/// Guarantee: documents/bounded-memory
/// Guarantee: documents/damage
#[test]
fn any_bytes_never_panic_hang_or_half_answer() {
    any_bytes(PAGE);
    // Without a template, nodes are searched in the order in which they lie.
    any_bytes(&PAGE.replace("template", "section"));
}

fn any_bytes(source: &str) {
    let (memory, start, length) = memory_of(source);
    let original = memory.bytes()[start..start + length].to_vec();
    let mut generator = StdRng::seed_from_u64(7);
    let mut random = |below: usize| generator.random_range(0..below);
    let (mut damaged, mut changed) = (0, 0);
    let rounds = 4_000;
    let mut memory = memory;
    for round in 0..rounds {
        for _ in 0..=random(4) {
            // Behind the header, whose sum would be wrong; small numbers lead to other records.
            let at = start + 128 + random((length - 128) / 4) * 4;
            let word = match random(4) {
                0 => random(40) as u32,
                1 => u32::MAX - random(4) as u32,
                2 => 1 << random(32),
                _ => random(1 << 31) as u32,
            };
            memory.bytes_mut()[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        let mut documents = open(memory);
        if let Ok(document) = documents.open("page") {
            damaged += usize::from(ask(&document).is_some());
        }
        let _ = documents.edit("page", |edit| {
            let result = change(edit, random(30) as u32);
            changed += usize::from(result.is_ok());
            // What was changed is thrown away, and so is the damage below.
            Err::<(), _>(DomError::Damaged(Damage::NoHeader))
        });
        // One that is found sound enough is somewhere else then.
        let has_moved = round % 8 == 0 && documents.compact("page").is_ok();
        memory = documents.into_heap().close();
        if has_moved {
            (memory, _, _) = memory_of(source);
        } else {
            memory.bytes_mut()[start..start + length].copy_from_slice(&original);
        }
    }
    assert!(damaged > rounds / 4 && changed > rounds / 20, "{damaged} and {changed} of {rounds}");
}

/// A cycle of nodes ends each walk, query and edit with a damage error.
///
/// Guarantee: documents/bounded-memory
/// Guarantee: documents/damage
#[test]
fn circles_end_walks_queries_and_edits() {
    let words = |document: &Document<'_>, name: &str| {
        document.root().descendants().find(|node| node.name() == Some(name)).unwrap().id()
    };
    let (memory, start, _) = memory();
    let documents = open(memory);
    let page = documents.open("page").unwrap();
    let (list, item, paragraph, bold) =
        (words(&page, "ul"), words(&page, "li"), words(&page, "p"), words(&page, "b"));
    let mut memory = documents.into_heap().close();
    let nodes = start + 128;
    // Word 0 is the parent, 1 the next sibling, 2 the previous one, 3 the first child. Behind each
    // item is its text.
    for (node, word, to) in [
        (item, 1, item),
        (bold, 1, paragraph),
        (item + 2, 2, item + 4),
        (paragraph, 3, paragraph),
        (list, 0, list),
        (item, 3, list),
    ] {
        let at = nodes + node as usize * size_of::<NodeRecord>() + word * 4;
        let before: [u8; 4] = memory.bytes()[at..at + 4].try_into().unwrap();
        memory.bytes_mut()[at..at + 4].copy_from_slice(&to.to_le_bytes());
        let mut documents = open(memory);
        let page = documents.open("page").unwrap();
        assert!(page.check().is_err(), "{node} {word} {to}");
        let page = documents.open("page").unwrap();
        assert!(ask(&page).is_some(), "{node} {word} {to}");
        let _ = documents.edit("page", |edit| {
            let _ = change(edit, node);
            Err::<(), _>(DomError::Damaged(Damage::NoHeader))
        });
        memory = documents.into_heap().close();
        memory.bytes_mut()[at..at + 4].copy_from_slice(&before);
    }
}

/// A document node that claims a text is reported as damage by every function that copies the
/// document.
///
/// Guarantee: documents/bounded-memory
#[test]
fn document_node_with_a_text_is_damage() {
    let (memory, start, _) = memory();
    // Words 4 and 5 of node 1: where its text starts, and what else than its kind it may have.
    for (word, claim) in [(4, u32::MAX), (5, !7 | NodeKind::Document as u32)] {
        let mut memory = memory.copy();
        let at = start + 128 + size_of::<NodeRecord>() + word * 4;
        memory.bytes_mut()[at..at + 4].copy_from_slice(&claim.to_le_bytes());
        let mut documents = open(memory);
        let compacted = documents.compact("page");
        assert!(
            matches!(compacted, Err(DomError::Damaged(Damage::Node { node: 1 }))),
            "{compacted:?}"
        );
    }
}

/// An edit that meets a cycle after its first store is undone, even if the caller continues.
///
/// Guarantee: documents/bounded-memory
/// Guarantee: documents/damage
#[test]
fn edit_that_meets_a_circle_is_undone() {
    let (memory, start, _) = memory();
    let documents = open(memory);
    let page = documents.open("page").unwrap();
    let find =
        |name: &str| page.root().descendants().find(|node| node.name() == Some(name)).unwrap().id();
    let (list, item) = (find("ul"), find("li"));
    let mut memory = documents.into_heap().close();
    let at = start + 128 + item as usize * size_of::<NodeRecord>() + 4;
    memory.bytes_mut()[at..at + 4].copy_from_slice(&item.to_le_bytes());
    let before = memory.bytes()[start..start + 2_048].to_vec();
    let mut documents = open(memory);
    let edited = documents.edit("page", |edit| {
        let set = edit.set_text(list, "text");
        assert!(matches!(set, Err(DomError::Damaged(Damage::Circle { .. }))), "{set:?}");
        Ok::<_, DomError>(())
    });
    assert!(edited.is_err());
    assert_eq!(documents.into_heap().close().bytes()[start..start + 2_048], before);
}

/// Elements that claim the same attributes are damage, and finding them takes bounded work.
///
/// Guarantee: documents/bounded-memory
/// Guarantee: documents/damage
#[test]
fn shared_attributes_are_damage_at_bounded_cost() {
    let many: String = (0..500).map(|n| format!(" a{n}")).collect();
    let source = format!("<p{many}>{}", "<b id=x>".repeat(1_000));
    let (mut memory, start, _) = memory_of(&source);
    let documents = open(memory);
    let page = documents.open("page").unwrap();
    let selector = Selector::parse("p b[id=x], [title=none]").unwrap();
    assert_eq!(page.select(&selector).unwrap().len(), 1_000);
    let (first, all) =
        (page.select(&Selector::parse("p").unwrap()).unwrap()[0].id(), page.size().nodes);
    memory = documents.into_heap().close();
    let at = |node: u32| start + 128 + node as usize * size_of::<NodeRecord>() + 16;
    let claim: [u8; 8] = memory.bytes()[at(first)..at(first) + 8].try_into().unwrap();
    for node in first..=all {
        memory.bytes_mut()[at(node)..at(node) + 8].copy_from_slice(&claim);
    }
    let documents = open(memory);
    let page = documents.open("page").unwrap();
    let refused = page.select(&Selector::parse("p[title=none], [a499=none]").unwrap());
    assert!(matches!(refused, Err(DomError::Damaged(_))), "{refused:?}");
}

/// A selector whose left part is looked for above an element does not take a parent that can be none
/// for the end of the document.
///
/// Guarantee: documents/damage
#[test]
fn parent_that_has_no_children_is_damage() {
    let (mut memory, start, _) = memory_of("<div>text<b>x</b></div>");
    let documents = open(memory);
    let page = documents.open("page").unwrap();
    let selector = Selector::parse("div b").unwrap();
    let found = page.select(&selector).unwrap()[0];
    let (bold, text) = (found.id(), found.previous_sibling().unwrap().id());
    memory = documents.into_heap().close();
    let at = start + 128 + bold as usize * size_of::<NodeRecord>();
    memory.bytes_mut()[at..at + 4].copy_from_slice(&text.to_le_bytes());
    let documents = open(memory);
    let refused = documents.open("page").unwrap().select(&selector).map(|found| found.len());
    assert!(matches!(refused, Err(DomError::Damaged(_))), "{refused:?}");
}
