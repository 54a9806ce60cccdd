//! Changes of a document: what they do, what is refused, and that a change which was not committed
//! never was.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use common::{empty, parsed, reopened};
use holdfast_dom::{ChangeError, Document, Documents, DomError, Edit, Namespace, Selector};
use holdfast_testkit::TestMemory;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

type Change<'tx, 'heap> = Edit<'tx, 'heap, TestMemory>;

fn id(page: &Document<'_>, selector: &str) -> u32 {
    page.select_first(&Selector::parse(selector).unwrap()).unwrap().unwrap().id()
}

fn body(documents: &Documents<TestMemory>) -> String {
    let page = documents.open("page").unwrap();
    page.check().unwrap();
    let body = page.select_first(&Selector::parse("body").unwrap()).unwrap().unwrap();
    body.inner_html().unwrap()
}

/// Does `work` and gives what the body is then, in the heap opened again.
fn changed(source: &str, work: impl FnOnce(&mut Change<'_, '_>) -> Result<(), DomError>) -> String {
    let mut documents = parsed(source);
    documents.edit("page", work).unwrap();
    body(&reopened(&documents))
}

/// Edits insert, move and remove nodes and change texts and attributes.
///
/// Guarantee: documents/edits
#[test]
fn edits_change_nodes_texts_and_attributes() {
    let find = |edit: &Change<'_, '_>, selector: &str| id(&edit.document().unwrap(), selector);
    let html = changed("<p id=a>1<p id=b>2<p id=c>3", |edit| {
        let (a, b, c) = (find(edit, "#a"), find(edit, "#b"), find(edit, "#c"));
        edit.insert_before(a, c)?;
        edit.append(a, b)?;
        let bold = edit.create_element(Namespace::Html, "B")?;
        let text = edit.create_text("<4>")?;
        edit.append(bold, text)?;
        edit.insert_before(b, bold)?;
        edit.set_attribute(bold, "TITLE", "\"x\"")?;
        edit.set_attribute(b, "id", "z")?;
        edit.remove_attribute(c, "id")?;
        let comment = edit.create_comment("c")?;
        edit.append(c, comment)
    });
    assert_eq!(
        html,
        "<p>3<!--c--></p><p id=\"a\">1<b title=\"&quot;x&quot;\">&lt;4&gt;</b><p id=\"z\">2</p></p>"
    );
    let html = changed("<ul><li>1<li>2<li>3</ul><i>x</i>", |edit| {
        let page = edit.document()?;
        let items: Vec<u32> =
            page.select(&Selector::parse("li").unwrap())?.iter().map(|node| node.id()).collect();
        let (list, italic) = (id(&page, "ul"), id(&page, "i"));
        for item in &items {
            edit.remove(*item)?;
            edit.remove(*item)?;
        }
        edit.append(list, items[2])?;
        edit.append(list, items[0])?;
        edit.set_text(items[0], "first")?;
        edit.set_text(italic, "")
    });
    assert_eq!(html, "<ul><li>3</li><li>first</li></ul><i></i>");
}

/// A document edited thousands of times grows, moves and stays sound.
///
/// Guarantee: documents/edits
#[test]
fn thousands_of_edits_leave_a_sound_document() {
    let mut documents = parsed("<ul></ul>");
    let list = id(&documents.open("page").unwrap(), "ul");
    for round in 0..30 {
        documents
            .edit("page", |edit| {
                for number in 0..100 {
                    let item = edit.create_element(Namespace::Html, "li")?;
                    edit.set_attribute(item, &format!("data-{number}"), "v")?;
                    edit.set_attribute(item, "class", &format!("c{round}"))?;
                    edit.set_text(item, &format!("{round} {number}"))?;
                    edit.append(list, item)?;
                }
                Ok::<_, DomError>(())
            })
            .unwrap();
    }
    let documents = reopened(&documents);
    let page = documents.open("page").unwrap();
    page.check().unwrap();
    let select = |text: &str| page.select(&Selector::parse(text).unwrap()).unwrap();
    assert_eq!(select("li").len(), 3_000);
    assert_eq!(select("li.c7[data-99=v]")[0].text().unwrap(), "7 99");
    assert_eq!(select("li:last-child")[0].text().unwrap(), "29 99");
    assert_eq!(select("li")[2_999].previous_sibling().unwrap().text().unwrap(), "29 98");
}

/// An edit that would make an invalid tree is refused; the rest of its transaction commits.
///
/// Guarantee: documents/invalid-changes
#[test]
fn impossible_edits_are_refused_alone() {
    let mut documents =
        parsed("<!DOCTYPE html><div id=a><p id=b>text</p></div><template><i></i></template>");
    documents
        .edit("page", |edit| {
            let page = edit.document()?;
            let (a, b, template) = (id(&page, "#a"), id(&page, "#b"), id(&page, "template"));
            let (root, doctype) = (page.root().id(), page.root().first_child().unwrap().id());
            let contents = page.node(template).unwrap().template_contents().unwrap().id();
            let text = page.node(b).unwrap().first_child().unwrap().id();
            let refused = |result: Result<(), DomError>| match result {
                Err(DomError::Change(error)) => error,
                other => panic!("{other:?}"),
            };
            assert_eq!(
                refused(edit.append(b, a)),
                ChangeError::OwnAncestor { parent: b, child: a }
            );
            assert_eq!(
                refused(edit.append(a, a)),
                ChangeError::OwnAncestor { parent: a, child: a }
            );
            assert!(matches!(
                refused(edit.append(contents, template)),
                ChangeError::OwnAncestor { .. }
            ));
            assert!(matches!(refused(edit.append(a, contents)), ChangeError::Hierarchy { .. }));
            assert!(matches!(refused(edit.append(a, root)), ChangeError::Hierarchy { .. }));
            assert!(matches!(refused(edit.append(text, b)), ChangeError::Hierarchy { .. }));
            assert!(matches!(refused(edit.append(a, doctype)), ChangeError::Hierarchy { .. }));
            assert!(matches!(refused(edit.append(root, text)), ChangeError::Hierarchy { .. }));
            assert_eq!(refused(edit.append(a, 0)), ChangeError::NoSuchNode { node: 0 });
            assert_eq!(refused(edit.remove(9_999)), ChangeError::NoSuchNode { node: 9_999 });
            assert_eq!(refused(edit.insert_before(root, a)), ChangeError::NoParent { node: root });
            assert!(matches!(
                refused(edit.set_attribute(text, "a", "")),
                ChangeError::WrongKind { .. }
            ));
            assert!(matches!(refused(edit.set_text(doctype, "a")), ChangeError::WrongKind { .. }));
            for name in ["", "a b", "a=b", "a>", "\"", "a\0"] {
                assert_eq!(refused(edit.set_attribute(a, name, "")), ChangeError::BadName);
                assert!(edit.create_element(Namespace::Html, name).is_err());
            }
            // To a parser these are text, comments and end tags.
            for name in ["1a", "!--", "!doctype", "?x", "-a", "&"] {
                let made = edit.create_element(Namespace::Svg, name);
                assert!(matches!(made, Err(DomError::Change(ChangeError::BadName))), "{name}");
            }
            edit.insert_before(a, a)?;
            edit.set_text(text, "changed")
        })
        .unwrap();
    assert_eq!(
        body(&reopened(&documents)),
        "<div id=\"a\"><p id=\"b\">changed</p></div><template><i></i></template>"
    );
}

/// A template created by an edit has contents like a parsed one.
///
/// Guarantee: documents/invalid-changes
#[test]
fn created_template_has_contents() {
    let mut documents = parsed("<!DOCTYPE html><p>text");
    documents
        .edit("page", |edit| {
            let paragraph = id(&edit.document()?, "p");
            let template = edit.create_element(Namespace::Html, "TEMPLATE")?;
            edit.append(paragraph, template)?;
            let contents =
                edit.document()?.node(template).unwrap().template_contents().unwrap().id();
            let inside = edit.create_element(Namespace::Html, "i")?;
            edit.append(contents, inside)?;
            // One of another namespace is an element like others.
            let other = edit.create_element(Namespace::Svg, "template")?;
            assert_eq!(edit.document()?.node(other).unwrap().template_contents(), None);
            assert!(edit.append(inside, template).is_err());
            Ok::<_, DomError>(())
        })
        .unwrap();
    let written = "<p>text<template><i></i></template></p>";
    assert_eq!(body(&reopened(&documents)), written);
    documents.open("page").unwrap().check().unwrap();
    documents.compact("page").unwrap();
    let documents = reopened(&documents);
    assert_eq!(body(&documents), written);
    assert_eq!(documents.open("page").unwrap().select(&Selector::parse("i").unwrap()).unwrap(), []);
}

/// An edit that fails or runs out of room leaves the document unchanged.
///
/// Guarantee: documents/edits
#[test]
fn failed_edit_leaves_the_document() {
    let mut documents = parsed("<p>kept");
    let before = body(&documents);
    let failed = documents.edit("page", |edit| {
        let page = id(&edit.document()?, "p");
        edit.set_text(page, "lost")?;
        edit.set_attribute(page, "class", "lost")?;
        Err::<(), _>(DomError::Change(ChangeError::BadName))
    });
    assert!(failed.is_err());
    assert_eq!(body(&reopened(&documents)), before);
    // A heap that is full in the middle of a change, of which the caller goes on.
    let mut documents = common::open(TestMemory::new(8 << 20));
    documents.parse("page", &b"<p>kept"[..], &Default::default()).unwrap();
    let before = body(&documents);
    let text = "x".repeat(3 << 20);
    let full = documents.edit("page", |edit| {
        let page = id(&edit.document()?, "p");
        edit.set_attribute(page, "class", "lost")?;
        let mut failed = false;
        for _ in 0..10 {
            failed |= edit.create_text(&text).is_err();
        }
        assert!(failed, "the heap is full");
        Ok::<_, DomError>(())
    });
    assert!(full.is_err(), "a part of the change did not happen");
    assert_eq!(body(&reopened(&documents)), before);
}

/// Guarantee: documents/edits
#[test]
fn random_changes_are_those_of_a_plain_tree() {
    // A tree of vectors, changed in the same way.
    #[derive(Clone, Default)]
    struct Plain {
        children: Vec<Vec<u32>>,
        parent: Vec<Option<usize>>,
    }
    fn html(plain: &Plain, node: usize) -> String {
        let inner: String =
            plain.children[node].iter().map(|child| html(plain, *child as usize)).collect();
        format!("<n{node}>{inner}</n{node}>")
    }
    let mut generator = StdRng::seed_from_u64(0x9E37_79B9);
    let mut random = |below: usize| generator.random_range(0..below);
    let mut documents = empty();
    documents.parse("page", &b"<n0></n0>"[..], &Default::default()).unwrap();
    let mut numbers = vec![id(&documents.open("page").unwrap(), "n0")];
    let mut plain = Plain { children: vec![Vec::new()], parent: vec![None] };
    for _ in 0..300 {
        let fails = random(5) == 0;
        let (old_plain, old_numbers) = (plain.clone(), numbers.clone());
        let result = documents.edit("page", |edit| {
            for _ in 0..random(12) {
                let detach = |plain: &mut Plain, node: usize| {
                    if let Some(parent) = plain.parent[node].take() {
                        plain.children[parent].retain(|child| *child != node as u32);
                    }
                };
                let (a, b) = (random(numbers.len()), random(numbers.len()));
                match random(5) {
                    0 if numbers.len() < 40 && !fails => {
                        let name = format!("n{}", numbers.len());
                        numbers.push(edit.create_element(Namespace::Html, &name)?);
                        plain.children.push(Vec::new());
                        plain.parent.push(None);
                    }
                    1 if b != 0 => {
                        edit.remove(numbers[b])?;
                        detach(&mut plain, b);
                    }
                    2 if a != 0 && b != 0 => match edit.insert_before(numbers[a], numbers[b]) {
                        Ok(()) if a == b => {}
                        Ok(()) => {
                            detach(&mut plain, b);
                            // The parent of `n0` is not in the model.
                            let Some(parent) = plain.parent[a] else {
                                panic!("a sibling without a parent")
                            };
                            let place =
                                plain.children[parent].iter().position(|child| *child == a as u32);
                            plain.children[parent].insert(place.unwrap(), b as u32);
                            plain.parent[b] = Some(parent);
                        }
                        Err(DomError::Change(_)) => {}
                        Err(other) => return Err(other),
                    },
                    _ if b != 0 => match edit.append(numbers[a], numbers[b]) {
                        Ok(()) => {
                            detach(&mut plain, b);
                            plain.children[a].push(b as u32);
                            plain.parent[b] = Some(a);
                        }
                        Err(DomError::Change(_)) => {}
                        Err(other) => return Err(other),
                    },
                    _ => {}
                }
            }
            if fails { Err(DomError::Change(ChangeError::BadName)) } else { Ok(()) }
        });
        assert_eq!(result.is_err(), fails);
        if fails {
            (plain, numbers) = (old_plain, old_numbers);
        }
        assert_eq!(body(&documents), html(&plain, 0));
    }
    documents = reopened(&documents);
    assert_eq!(body(&documents), html(&plain, 0));
}

/// Queries on an edited document find its nodes in their new order.
///
/// Guarantee: documents/queries
#[test]
fn queries_follow_the_edited_order() {
    let mut documents = parsed("<ul><li id=a>1<li id=b>2</ul><ol></ol>");
    let found = |documents: &Documents<TestMemory>, selector: &str| -> Vec<String> {
        let page = documents.open("page").unwrap();
        let found = page.select(&Selector::parse(selector).unwrap()).unwrap();
        found.iter().map(|node| node.html_id().unwrap_or("new").to_owned()).collect()
    };
    assert_eq!(found(&documents, "li"), ["a", "b"]);
    let change = |work: fn(&mut Change<'_, '_>) -> Result<(), DomError>,
                  documents: &mut Documents<TestMemory>| {
        documents.edit("page", work).unwrap();
    };
    change(
        |edit| {
            let (a, b) = (id(&edit.document()?, "#a"), id(&edit.document()?, "#b"));
            edit.insert_before(a, b)
        },
        &mut documents,
    );
    assert_eq!(found(&documents, "li"), ["b", "a"]);
    assert_eq!(found(&documents, "ul > li + li"), ["a"]);
    documents.compact("page").unwrap();
    change(
        |edit| {
            let a = id(&edit.document()?, "#a");
            edit.remove(a)
        },
        &mut documents,
    );
    assert_eq!(found(&documents, "li"), ["b"]);
    documents.compact("page").unwrap();
    // A new element that is nowhere is not found.
    change(|edit| edit.create_element(Namespace::Html, "li").map(drop), &mut documents);
    assert_eq!(found(&documents, "li"), ["b"]);
    documents.compact("page").unwrap();
    change(
        |edit| {
            let list = id(&edit.document()?, "ol");
            edit.set_attribute(list, "class", "x")?;
            edit.set_attribute(list, "id", "list")?;
            edit.remove_attribute(list, "class").map(drop)
        },
        &mut documents,
    );
    assert_eq!(found(&documents, "#list"), ["list"]);
    assert!(found(&documents, ".x").is_empty());
}

/// Guarantee: documents/serialise
#[test]
fn values_of_attributes_of_any_length_are_whole() {
    for length in [0, 1, 64, 65, 65_534, 65_535, 65_536, 200_000] {
        let value: String = "0123456789".chars().cycle().take(length).collect();
        let mut documents = parsed(&format!("<p title='{value}'><b>"));
        let bold = id(&documents.open("page").unwrap(), "b");
        documents.edit("page", |edit| edit.set_attribute(bold, "title", &value)).unwrap();
        for compacted in [false, true] {
            let again = reopened(&documents);
            let page = again.open("page").unwrap();
            page.check().unwrap();
            let found = page
                .select(&Selector::parse(&format!("p[title='{value:.1000}']")).unwrap())
                .unwrap();
            assert_eq!(found.len(), usize::from(length <= 1000));
            let found = page.select(&Selector::parse("p[title], b[title]").unwrap()).unwrap();
            let values: Vec<_> =
                found.iter().map(|node| node.attribute("title").unwrap()).collect();
            assert!(values == [&value, &value], "{length} {compacted}");
            if !compacted {
                documents.compact("page").unwrap();
            }
        }
    }
}
