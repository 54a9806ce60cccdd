//! Bytes of the cache that are not what was stored: the page is made anew, and the viewer sees
//! nothing else.

use std::path::Path;

use holdfast_heap::HeapError;
use holdfast_page::{EntryDamage, StaleReason, Tier};
use holdfast_region::{OwnerKey, RegionName};
use xxhash_rust::xxh3::xxh3_64;

use crate::{CACHE, HEADER_BYTES, Place, QUOTA, anew, png, view};

const PAGE: &str = "<!doctype html><title>Damage</title><style>h1 { background: linear-gradient(red, blue); border-radius: 9px }
    .s { box-shadow: 1px 1px 4px red; overflow: hidden; opacity: .5 }</style><h1>Some <i>text</i></h1><img src=a.png>
    <div class=s><a href=b>b</a></div><table border=1><tr><td>1</table>";

/// Whichever byte of a stored view is damaged, the page is shown as it really is.
///
/// Guarantee: pages/damage
#[test]
fn rotted_view_is_never_shown() {
    let place = Place::new();
    place.write("a.png", png(30, 10, [9, 99, 9, 255]));
    let page = place.write("a.html", PAGE);
    let view = view(300, 200);
    place.open(&page, view);
    let made = anew(&page, view);
    let row = place.cache().views().unwrap().remove(0);
    let mut unharmed = 0;
    // A number without a common factor, so that every kind of byte has its turn.
    for at in (0..row.bytes).step_by((row.bytes as usize / 60) | 1) {
        place.spoil(|heap| {
            let mut byte = [heap.bytes(&row.name).unwrap()[at as usize]];
            byte[0] ^= 0x41;
            heap.transaction(|tx| tx.write(tx.root(&row.name).unwrap(), at, &byte)).unwrap();
        });
        let opened = place.repainted(&page, view);
        assert_eq!(opened.pixels, made, "byte {at}");
        match (opened.tier, opened.stale) {
            // What this view does not need: links, pixels, when it was used last.
            (Tier::List, None) => {
                unharmed += 1;
                let names = [row.name.clone()];
                assert_eq!(place.cache().remove(&names).unwrap(), 1);
                place.open(&page, view);
            }
            (Tier::Document, Some(StaleReason::Damaged(_))) => {
                assert!(
                    opened.notes.iter().any(|note| note.contains("damaged")),
                    "{:?}",
                    opened.notes
                );
            }
            other => panic!("byte {at}: {other:?}"),
        }
        assert_eq!(place.repainted(&page, view).tier, Tier::List, "it is kept again");
    }
    assert!(unharmed < 10, "{unharmed}");
}

/// Guarantee: pages/damage
#[test]
fn a_rotten_view_is_told_of_by_a_look_at_every_byte() {
    let place = Place::new();
    let page = place.write("a.html", PAGE);
    place.open(&page, view(300, 200));
    let cache = place.cache();
    assert_eq!(cache.check().unwrap(), []);
    let row = cache.views().unwrap().remove(0);
    place.spoil(|heap| {
        heap.transaction(|tx| tx.write(tx.root(&row.name).unwrap(), row.bytes / 2, b"rot"))
            .unwrap();
    });
    assert_eq!(cache.check().unwrap().len(), 1);
}

/// Guarantee: pages/damage
#[test]
fn a_rotten_document_is_parsed_again() {
    let place = Place::new();
    let page = place.write("a.html", PAGE);
    place.open(&page, view(300, 200));
    place.spoil(|heap| {
        let name =
            heap.heap().roots().find(|(name, _)| name.starts_with("dom:")).unwrap().0.to_owned();
        let bytes = heap.bytes(&name).unwrap();
        // A letter of the text, which no sum of the document's own covers.
        let at = bytes.windows(5).position(|window| window == b"Some ").unwrap();
        heap.transaction(|tx| tx.write(tx.root(&name).unwrap(), at as u64, b"C")).unwrap();
    });
    let other = view(200, 200);
    let opened = place.open(&page, other);
    assert_eq!((opened.tier, opened.pixels == anew(&page, other)), (Tier::Nothing, true));
    assert!(opened.notes.iter().any(|note| note.contains("document in the cache is damaged")));
    assert_eq!(
        place.open(&page, view(250, 200)).tier,
        Tier::Document,
        "the right one is there again"
    );
}

/// A cache entry of another kind is made again.
///
/// Guarantee: pages/damage
#[test]
fn foreign_entry_is_remade() {
    let place = Place::new();
    let page = place.write("a.html", PAGE);
    let view = view(300, 200);
    place.open(&page, view);
    let row = place.cache().views().unwrap().remove(0);
    for bytes in [&b""[..], b"short", &[0; 5000], &[0xff; 400]] {
        place.spoil(|heap| {
            heap.transaction(|tx| {
                tx.remove(&row.name)?;
                tx.create(&row.name, bytes.len().max(1) as u64, None, |to| {
                    to.fill(7);
                    to[..bytes.len()].copy_from_slice(bytes);
                })
            })
            .unwrap();
        });
        let opened = place.open(&page, view);
        assert_eq!(
            (opened.tier == Tier::Document, opened.pixels == anew(&page, view)),
            (true, true)
        );
    }
}

/// Puts other bytes into an entry, with all sums right, as an attacker would that can write the
/// cache.
pub(crate) fn plant(entry: &mut [u8], at: usize, bytes: &[u8]) {
    const CHUNK: usize = 16 << 10;
    entry[at..at + bytes.len()].copy_from_slice(bytes);
    let word = |entry: &[u8], at: usize| {
        u64::from_le_bytes(entry[at..at + 8].try_into().unwrap()) as usize
    };
    // docs/format.md: the table of sums, its sum, and that of the header.
    let (table, table_bytes) = (word(entry, 296), word(entry, 304));
    let sums: Vec<u8> = entry[HEADER_BYTES..table]
        .chunks(CHUNK)
        .flat_map(|chunk| xxh3_64(chunk).to_le_bytes())
        .collect();
    assert_eq!(sums.len(), table_bytes);
    entry[table..table + table_bytes].copy_from_slice(&sums);
    let sum = xxh3_64(&sums).to_le_bytes();
    entry[312..320].copy_from_slice(&sum);
    let sum = xxh3_64(&entry[..320]).to_le_bytes();
    entry[320..328].copy_from_slice(&sum);
}

/// A display list that would paint without end is damage, even if its checksums are right.
///
/// Guarantee: pages/planted
#[test]
fn endless_list_is_damage() {
    let place = Place::new();
    let style = "div { width: 236px; height: 9px; border-top: 4px dashed red }";
    let page = place.write("a.html", format!("<!doctype html><style>{style}</style><div></div>"));
    let view = view(300, 200);
    place.open(&page, view);
    let made = anew(&page, view);
    let row = place.cache().views().unwrap().remove(0);
    let mut entry = Vec::new();
    place.spoil(|heap| entry.extend_from_slice(heap.bytes(&row.name).unwrap()));
    // Two dashes: how many, and their lengths.
    let f64_at = |at: usize| f64::from_le_bytes(entry[at..at + 8].try_into().unwrap());
    let is_pattern = |at: &usize| {
        entry[*at..].starts_with(&[2, 0, 0, 0])
            && (f64_at(at + 4) - 8.0).abs() < 0.1
            && (f64_at(at + 12) - 4.0).abs() < 0.1
    };
    let at = (HEADER_BYTES..entry.len() - 20).find(is_pattern).unwrap() + 4;
    let other_dash: Vec<u8> =
        [7.0_f64, 5.0].iter().flat_map(|number| number.to_le_bytes()).collect();
    let endless: Vec<u8> =
        [1e-300_f64, 1e-300].iter().flat_map(|number| number.to_le_bytes()).collect();
    for (bytes, is_damage) in [(other_dash, false), (endless, true)] {
        let mut planted = entry.clone();
        plant(&mut planted, at, &bytes);
        place.spoil(|heap| {
            heap.transaction(|tx| {
                tx.remove(&row.name)?;
                tx.create(&row.name, planted.len() as u64, None, |to| to.copy_from_slice(&planted))
            })
            .unwrap();
        });
        let opened = place.repainted(&page, view);
        if is_damage {
            let endless =
                matches!(&opened.stale, Some(StaleReason::Damaged(EntryDamage::Endless { .. })));
            assert!(opened.tier == Tier::Document && endless, "{:?}", opened.stale);
            assert_eq!(opened.pixels, made);
        } else {
            // Sums do not tell who wrote: this one is believed.
            assert!(opened.tier == Tier::List && opened.pixels != made, "{:?}", opened.stale);
        }
    }
}

/// Copies all files of a folder, in their places. The pool's owner, a link, is that of the copy
/// when it is used.
fn copy_files(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let (path, target) =
            (entry.as_ref().unwrap().path(), to.join(entry.as_ref().unwrap().file_name()));
        if path.is_dir() {
            std::fs::create_dir_all(&target).unwrap();
            copy_files(&path, &target);
        } else if path.is_file() {
            std::fs::copy(&path, &target).unwrap();
        }
    }
}

/// After a writer is killed in a transaction, the next process reads the cache.
///
/// Guarantee: pages/kills
#[test]
fn cache_of_a_killed_writer_is_read() {
    let place = Place::new();
    let page = place.write("a.html", "<!doctype html><p>text");
    let view = view(300, 200);
    place.open(&page, view);
    let middle = tempfile::tempdir().unwrap();
    place.spoil(|heap| {
        let half = heap.transaction(|tx| -> Result<(), HeapError> {
            tx.create("view:half", 4096, None, |to| to.fill(7))?;
            copy_files(&place.pool(), middle.path());
            Ok(())
        });
        half.unwrap();
    });
    assert_eq!(place.cache().views().unwrap().len(), 2);
    copy_files(middle.path(), &place.pool());
    assert_eq!(place.cache().views().unwrap().len(), 1, "what was half done is undone");
    copy_files(middle.path(), &place.pool());
    let opened = place.open(&page, view);
    assert_eq!((opened.tier, opened.notes.as_slice()), (Tier::Pixels, &[][..]));
}

/// A cache whose creator was killed before it stored anything counts as no cache.
///
/// Guarantee: pages/kills
#[test]
fn empty_cache_of_a_killed_maker_is_none() {
    let place = Place::new();
    let page = place.write("a.html", PAGE);
    let names = place.names();
    let key = OwnerKey::load_or_create(names.places(), "default").unwrap();
    let region = names.open_or_create(&RegionName::parse(CACHE).unwrap(), &key, QUOTA * 2).unwrap();
    region.close().unwrap();
    assert_eq!(place.cache().views().unwrap(), []);
    let opened = place.open(&page, view(300, 200));
    assert_eq!(
        (opened.tier, opened.notes.iter().any(|note| note.contains("cache"))),
        (Tier::Nothing, false)
    );
    assert_eq!(place.open(&page, view(300, 200)).tier, Tier::Pixels);
}
