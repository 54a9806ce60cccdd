//! Bytes of the cache that are not what was stored: the page is made anew, and nobody sees anything else.

use holdfast_page::{Stale, Tier};

use crate::{Place, anew, png, view};

const PAGE: &str = "<!doctype html><title>Damage</title><style>h1 { background: linear-gradient(red, blue); border-radius: 9px }
    .s { box-shadow: 1px 1px 4px red; overflow: hidden; opacity: .5 }</style><h1>Some <i>text</i></h1><img src=a.png>
    <div class=s><a href=b>b</a></div><table border=1><tr><td>1</table>";

#[test]
fn whatever_byte_of_a_view_rots_the_page_is_shown_as_it_is() {
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
        let opened = place.open(&page, view);
        assert_eq!(opened.pixels, made, "byte {at}");
        match (opened.tier, opened.stale) {
            // What this view does not need: links, when it was used last.
            (Tier::List, None) => {
                unharmed += 1;
                let names = [row.name.clone()];
                assert_eq!(place.cache().remove(&names).unwrap(), 1);
                place.open(&page, view);
            }
            (Tier::Document, Some(Stale::Damaged(_))) => {
                assert!(opened.notes.iter().any(|note| note.contains("damaged")), "{:?}", opened.notes);
            }
            other => panic!("byte {at}: {other:?}"),
        }
        assert_eq!(place.open(&page, view).tier, Tier::List, "it is kept again");
    }
    assert!(unharmed < 10, "{unharmed}");
}

#[test]
fn a_rotten_view_is_told_of_by_a_look_at_every_byte() {
    let place = Place::new();
    let page = place.write("a.html", PAGE);
    place.open(&page, view(300, 200));
    let cache = place.cache();
    assert_eq!(cache.check().unwrap(), []);
    let row = cache.views().unwrap().remove(0);
    place.spoil(|heap| {
        heap.transaction(|tx| tx.write(tx.root(&row.name).unwrap(), row.bytes / 2, b"rot")).unwrap();
    });
    assert_eq!(cache.check().unwrap().len(), 1);
}

#[test]
fn a_rotten_document_is_parsed_again() {
    let place = Place::new();
    let page = place.write("a.html", PAGE);
    place.open(&page, view(300, 200));
    place.spoil(|heap| {
        let name = heap.heap().roots().find(|(name, _)| name.starts_with("dom:")).unwrap().0.to_owned();
        let bytes = heap.bytes(&name).unwrap();
        // A letter of the text, which no sum of the document's own covers.
        let at = bytes.windows(5).position(|window| window == b"Some ").unwrap();
        heap.transaction(|tx| tx.write(tx.root(&name).unwrap(), at as u64, b"C")).unwrap();
    });
    let other = view(200, 200);
    let opened = place.open(&page, other);
    assert_eq!((opened.tier, opened.pixels == anew(&page, other)), (Tier::Nothing, true));
    assert!(opened.notes.iter().any(|note| note.contains("document in the cache is damaged")));
    assert_eq!(place.open(&page, view(250, 200)).tier, Tier::Document, "the right one is there again");
}

#[test]
fn an_entry_that_is_something_else_altogether_is_made_anew() {
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
        assert_eq!((opened.tier != Tier::List, opened.pixels == anew(&page, view)), (true, true));
    }
}
