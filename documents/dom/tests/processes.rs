//! Documents and processes: some that read one at a time, one that is killed while it changes or
//! parses.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use holdfast_dom::{Documents, DomError, Namespace, ParseOptions, Selector};
use holdfast_native_heap::{HeapRegion, RegionBacking, open_data_heap};
use holdfast_region::{NameSpace, OwnerKey, Places, RegionName};

/// Says to a process of this test where its heap is, and what to do with it.
const PLACE: &str = "HOLDFAST_DOM_TEST_PLACE";
/// Kills in a run of the test.
const KILLS: u64 = 12;
/// Nodes in the list that is changed.
const ITEMS: usize = 30;

fn names(place: &Path) -> (NameSpace, OwnerKey, RegionName) {
    let places = Places::at(place.join("home"), place.join("pool")).unwrap();
    (NameSpace::new(places), OwnerKey::from_bytes([7; 32]), RegionName::parse("pages").unwrap())
}

fn open(place: &Path) -> (Documents<RegionBacking>, HeapRegion) {
    let (names, key, name) = names(place);
    let (heap, region) =
        open_data_heap(names.open_or_create(&name, &key, 256 << 20).unwrap()).unwrap();
    (Documents::new(heap), region)
}

fn open_to_read(place: &Path) -> (Documents<RegionBacking>, HeapRegion) {
    let (names, key, name) = names(place);
    let (heap, region) = open_data_heap(names.open_read_only(&name, &key).unwrap()).unwrap();
    (Documents::new(heap), region)
}

fn close(documents: Documents<RegionBacking>, region: HeapRegion) {
    drop(documents.into_heap().close());
    region.close().unwrap();
}

/// This program again, doing the part of another process.
fn process(part: &str, place: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", part, "--nocapture", "--test-threads=1"])
        .env(PLACE, place)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// What a process of this test says, without what the harness says.
fn told(child: &mut Child) -> impl Iterator<Item = u64> + use<> {
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    lines.map_while(Result::ok).filter_map(|line| line.rsplit("told ").next()?.parse().ok())
}

fn tell(number: u64) {
    let mut out = std::io::stdout();
    writeln!(out, "\ntold {number}").unwrap();
    out.flush().unwrap();
}

fn items(documents: &Documents<RegionBacking>) -> (u64, usize) {
    let page = documents.open("page").unwrap();
    page.check().unwrap();
    let one =
        |selector: &str| page.select_first(&Selector::parse(selector).unwrap()).unwrap().unwrap();
    let count: u64 = one("ul").attribute("data-count").unwrap().parse().unwrap();
    let many = one("ul").children().count();
    let last = one("ul").last_child().map(|last| last.text().unwrap());
    assert_eq!(one("#last").text().unwrap(), count.to_string(), "a part of a transaction counts");
    assert_eq!(
        last.unwrap_or_else(|| "0".into()),
        count.to_string(),
        "a part of a transaction counts"
    );
    (count, many)
}

/// Changes the document until it is killed, and tells of each commit.
#[test]
fn part_that_changes_the_document_until_it_is_killed() {
    let Some(place) = std::env::var_os(PLACE) else { return };
    let (mut documents, _region) = open(Path::new(&place));
    let id = |page: &holdfast_dom::Document<'_>, selector: &str| {
        page.select_first(&Selector::parse(selector).unwrap()).unwrap().unwrap().id()
    };
    let (mut count, _) = items(&documents);
    // Ended by its parent, or by the limit.
    while count < 10_000_000 {
        count += 1;
        documents
            .edit("page", |edit| {
                let page = edit.document()?;
                let (list, last) = (id(&page, "ul"), id(&page, "#last"));
                let children: Vec<u32> =
                    page.node(list).unwrap().children().map(|child| child.id()).collect();
                edit.set_attribute(list, "data-count", &count.to_string())?;
                let item = edit.create_element(Namespace::Html, "li")?;
                edit.set_text(item, &count.to_string())?;
                edit.append(list, item)?;
                if children.len() >= ITEMS {
                    edit.remove(children[0])?;
                }
                edit.set_text(last, &count.to_string())
            })
            .unwrap();
        if count % 500 == 0 {
            documents.compact("page").unwrap();
        }
        tell(count);
    }
}

/// After a kill during edits, each transaction is complete or absent.
///
/// Guarantee: documents/edits
#[test]
fn kill_leaves_each_edit_whole_or_absent() {
    let place = tempfile::tempdir().unwrap();
    let (mut documents, region) = open(place.path());
    let page = "<ul data-count=0></ul><p id=last>0";
    documents.parse("page", page.as_bytes(), &ParseOptions::default()).unwrap();
    close(documents, region);
    let mut acknowledged = 0;
    for kill in 0..KILLS {
        let mut child = process("part_that_changes_the_document_until_it_is_killed", place.path());
        let wanted = acknowledged + 1 + kill * 37 % 400;
        for count in told(&mut child) {
            acknowledged = count;
            if count >= wanted {
                break;
            }
        }
        assert!(acknowledged >= wanted, "the other process ended by itself");
        child.kill().unwrap();
        child.wait().unwrap();
        let (documents, region) = open(place.path());
        let (count, many) = items(&documents);
        assert!(count >= acknowledged, "commit {acknowledged} was acknowledged, {count} is there");
        assert!(many <= ITEMS && many as u64 == count.min(ITEMS as u64));
        acknowledged = count;
        close(documents, region);
    }
}

/// Parses one page after the other under one name until it is killed.
#[test]
fn part_that_parses_until_it_is_killed() {
    let Some(place) = std::env::var_os(PLACE) else { return };
    let (mut documents, _region) = open(Path::new(&place));
    for round in 0..1_000_000u64 {
        let source = format!("<p id=round>{round}</p>").repeat(1 + round as usize % 300);
        documents.parse("page", source.as_bytes(), &ParseOptions::default()).unwrap();
        tell(round);
    }
}

/// After a kill while a page replaces another, the heap holds the old page or the new one.
///
/// Guarantee: documents/replacing
#[test]
fn kill_leaves_the_old_page_or_the_new() {
    let place = tempfile::tempdir().unwrap();
    for kill in 0..KILLS {
        let mut child = process("part_that_parses_until_it_is_killed", place.path());
        let last = told(&mut child).find(|round| *round >= kill * 29 % 200);
        child.kill().unwrap();
        child.wait().unwrap();
        let (documents, region) = open(place.path());
        let page = documents.open("page").unwrap();
        page.check().unwrap();
        let rounds = page.select(&Selector::parse("#round").unwrap()).unwrap();
        let round: u64 = rounds[0].text().unwrap().parse().unwrap();
        assert!(
            last.is_some_and(|last| round >= last),
            "{round} is there, {last:?} was acknowledged"
        );
        assert_eq!(rounds.len() as u64, 1 + round % 300);
        assert_eq!(documents.heap().roots().count(), 1);
        close(documents, region);
    }
}

/// Opens the document to read, says so, and searches it when told to.
#[test]
fn part_that_reads() {
    let Some(place) = std::env::var_os(PLACE) else { return };
    let (mut documents, region) = open_to_read(Path::new(&place));
    tell(1);
    std::io::stdin().read_line(&mut String::new()).unwrap();
    let refused = documents.edit("page", |_| Ok::<_, DomError>(()));
    assert!(matches!(refused, Err(DomError::Heap(holdfast_heap::HeapError::ReadOnly))));
    let page = documents.open("page").unwrap();
    tell(page.select(&Selector::parse("li").unwrap()).unwrap().len() as u64);
    close(documents, region);
}

/// Guarantee: documents/readers
#[test]
fn several_processes_read_one_document_at_a_time() {
    let place = tempfile::tempdir().unwrap();
    let (mut documents, region) = open(place.path());
    let source = "<ul>".to_owned() + &"<li>x".repeat(5_000);
    documents.parse("page", source.as_bytes(), &ParseOptions::default()).unwrap();
    close(documents, region);
    let mut children: Vec<Child> =
        (0..3).map(|_| process("part_that_reads", place.path())).collect();
    let mut answers: Vec<_> = children.iter_mut().map(told).collect();
    // All have it open before one goes on.
    answers.iter_mut().for_each(|answers| assert_eq!(answers.next(), Some(1)));
    for child in &mut children {
        child.stdin.take().unwrap().write_all(b"\n").unwrap();
    }
    answers.iter_mut().for_each(|answers| assert_eq!(answers.next(), Some(5_000)));
    for mut child in children {
        // The harness still says that the part passed.
        assert!(wait(&mut child), "a reader failed");
    }
}

fn wait(child: &mut Child) -> bool {
    for _ in 0..600 {
        if let Some(status) = child.try_wait().unwrap() {
            return status.success();
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    child.kill().unwrap();
    false
}
