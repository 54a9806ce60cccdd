//! Any bytes as a page, and any bytes in the place of some of its document: parsing, walking,
//! searching and writing end without a panic; what is sound says so, and what is damaged gives no
//! answer that may be a part of one.

#![no_main]

use holdfast_dom::{Document, DomError, LoosePage, ParseLimits, ParseOptions, Selector};
use libfuzzer_sys::fuzz_target;

/// How a document is damaged: where, and with what.
type Damage = Vec<(u16, u32)>;

fn ask(document: &Document<'_>, selector: &Selector, is_sound: bool) -> Result<(), DomError> {
    let found = document.select(selector)?;
    for node in found {
        // A query goes by the order of the nodes, a look at one of them by its links.
        assert!(node.matches(selector)? || !is_sound, "a match does not match");
        node.text()?;
        node.html()?;
    }
    document.root().html()?;
    Ok(())
}

fuzz_target!(|input: (&[u8], &str, Damage)| {
    let (source, selector, damage) = input;
    let limits = ParseLimits { depth: 200, ..ParseLimits::default() };
    let page = match LoosePage::parse(source, &ParseOptions { limits, ..ParseOptions::default() }) {
        Ok(page) => page,
        Err(DomError::Limit { .. }) => return,
        Err(error) => panic!("{error}"),
    };
    let document = page.open().expect("a document that was just written opens");
    document.check().expect("a document that was just written is sound");
    let selector = Selector::parse(selector).or_else(|_| Selector::parse("body :has(*)"));
    let selector = selector.expect("the second is one");
    ask(&document, &selector, true).expect("a sound document gives every answer");
    let mut bytes = page.bytes().to_vec();
    bytes.resize(bytes.len() + 8, 0);
    let start = bytes.as_ptr().align_offset(8);
    bytes.copy_within(0..page.bytes().len(), start);
    let bytes = &mut bytes[start..start + page.bytes().len()];
    for (at, word) in damage.into_iter().take(64) {
        let words = bytes.len() / 4;
        let at = usize::from(at) % words * 4;
        bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
    }
    if let Ok(document) = Document::from_bytes(bytes) {
        let is_sound = document.check().is_ok();
        let document = Document::from_bytes(bytes).expect("it opened before");
        if let Err(error) = ask(&document, &selector, is_sound) {
            assert!(document.damage().is_some(), "no answer, and no damage: {error}");
            assert!(!is_sound, "damage that a check does not find");
        }
    }
});
