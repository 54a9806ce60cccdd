//! Promises of order, each for one writer: after a reset an image is believed as far as the process
//! that stored to it last had promised, whatever an earlier writer, or a later one, did.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use std::os::unix::fs::FileExt;
use std::sync::Arc;

use common::power::Kept;
use common::reset::{ResetStorage, names_in_boot};
use common::{Home, MIB, PAGE_BYTES, key, named, number, store_number};
use holdfast_region::{Durability, KernelStorage, Lent, NameSpace, Opened, Region, Written};

/// Where `number` looks.
const NUMBERED_PAGES: [u64; 6] = [0, 1, 2, 40, 300, 1000];

fn reset_home() -> (Home, Arc<ResetStorage>, NameSpace) {
    let home = Home::in_memory();
    let storage = Arc::new(ResetStorage::new(&home));
    let names = names_in_boot(&home, 2, storage.clone());
    (home, storage, names)
}

/// What a borrower stores to the first `pages` of the pages that have the number: it is in no one's
/// memory until it is written back.
fn lend_and_store(lent: &Lent, value: u64, pages: usize) {
    for page in &NUMBERED_PAGES[..pages] {
        let at = lent.data_offset + page * PAGE_BYTES as u64 + 8;
        lent.file.write_all_at(&value.to_le_bytes(), at).unwrap();
    }
}

/// What there is after a reset, however much of what was not written back has arrived.
fn assert_number_after_a_reset(storage: &ResetStorage, expected: u64) {
    let some = (1..=6).map(Kept::Some);
    for kept in [Kept::Nothing, Kept::Everything].into_iter().chain(some) {
        let after = storage.after_reset(kept);
        let names = names_in_boot(&after, 3, Arc::new(KernelStorage));
        let mut region = names.open(&named("words"), &key()).unwrap();
        assert_eq!(number(&mut region), expected, "{kept:?}");
    }
    // Only the header has arrived.
    let after = storage.after_reset_with_headers();
    let mut region =
        names_in_boot(&after, 3, Arc::new(KernelStorage)).open(&named("words"), &key()).unwrap();
    assert_eq!(number(&mut region), expected, "the header alone");
}

/// Guarantee: heap/order-promises
#[test]
fn a_promise_of_order_ends_with_its_mapping() {
    let (_home, storage, names) = reset_home();
    let mut region = names.create(&named("words"), &key(), 8 * MIB).unwrap();
    region.promise_order().unwrap();
    store_number(&mut region, 1);
    assert_eq!(region.commit(Durability::System).unwrap().written, Written::Memory);
    region.unmap().unwrap();
    // The next one has promised nothing, and half of what it stores arrives.
    store_number(&mut region, 2);
    assert!(!region.is_ordered());
    region.commit(Durability::Process).unwrap();
    assert_number_after_a_reset(&storage, 1);
    assert_eq!(region.commit(Durability::System).unwrap().level, Durability::Power);
    assert_number_after_a_reset(&storage, 2);
}

/// Guarantee: heap/order-promises
#[test]
fn a_borrowers_promise_of_order_ends_with_its_loan() {
    let (_home, storage, names) = reset_home();
    let mut region = names.create(&named("words"), &key(), 8 * MIB).unwrap();
    region.promise_order().unwrap();
    let lent = region.lend().unwrap();
    assert!(
        lent.is_ordered && !lent.is_synchronous,
        "what is emulated cannot be mapped with MAP_SYNC"
    );
    lend_and_store(&lent, 1, 6);
    let report = region.commit(Durability::System).unwrap();
    assert_eq!((report.written, report.level), (Written::Memory, Durability::System));
    region.end_lending().unwrap();
    let lent = region.lend().unwrap();
    assert!(!lent.is_ordered);
    lend_and_store(&lent, 2, 3);
    assert_number_after_a_reset(&storage, 1);
    lend_and_store(&lent, 2, 6);
    assert_eq!(region.commit(Durability::System).unwrap().level, Durability::Power);
    assert_number_after_a_reset(&storage, 2);
    lend_and_store(&lent, 3, 2);
    region.end_lending().unwrap();
    assert_number_after_a_reset(&storage, 2);
}

/// What a borrower committed at level power is in its image after a reset.
///
/// Guarantee: heap/reset-ordered
#[test]
fn borrowed_power_commit_is_in_image_after_reset() {
    let (_home, storage, names) = reset_home();
    let mut region = names.create(&named("words"), &key(), 8 * MIB).unwrap();
    region.promise_order().unwrap();
    let lent = region.lend().unwrap();
    lend_and_store(&lent, 1, 6);
    assert_eq!(region.commit(Durability::Power).unwrap().written, Written::Base);
    assert_number_after_a_reset(&storage, 1);
    // The store has it, too; but after a reset the image is believed.
    lend_and_store(&lent, 2, 6);
    assert_eq!(region.commit(Durability::Power).unwrap().written, Written::Journal);
    assert_number_after_a_reset(&storage, 2);
    region.end_lending().unwrap();
    region.close().unwrap();
    assert_number_after_a_reset(&storage, 2);
}

/// What a killed writer left in the caches is in memory before an ordered one stores.
///
/// Guarantee: heap/order-promises
#[test]
fn killed_writers_caches_are_flushed_first() {
    for was_lent in [false, true] {
        let (_home, storage, names) = reset_home();
        let mut region = names.create(&named("words"), &key(), 8 * MIB).unwrap();
        region.promise_order().unwrap();
        if was_lent {
            let lent = region.lend().unwrap();
            lend_and_store(&lent, 7, 6);
            region.end_lending().unwrap();
        } else {
            store_number(&mut region, 7);
            drop(region);
            region = names.open(&named("words"), &key()).unwrap();
            assert_eq!(region.opened(), Opened::WarmAfterCrash);
        }
        // It relies on what it finds: that must not be taken away while what it stores stays.
        region.promise_order().unwrap();
        assert_number_after_a_reset(&storage, 7);
    }
}

/// A loan for reading or of a pool that ends with the boot asks for no order.
///
/// Guarantee: applets/languages
/// Guarantee: heap/order-promises
#[test]
fn loan_orders_only_where_it_matters() {
    let (_home, _storage, names) = reset_home();
    let region = names.create(&named("words"), &key(), 8 * MIB).unwrap();
    region.close().unwrap();
    let mut region = names.open_read_only(&named("words"), &key()).unwrap();
    assert!(!region.needs_order() && !region.lend().unwrap().is_ordered);
    drop(region);
    let home = Home::with_text("words", b"hello");
    let mut region: Region = home.names().open(&named("words"), &key()).unwrap();
    region.promise_order().unwrap();
    let lent = region.lend().unwrap();
    assert!(!lent.is_ordered && !lent.is_synchronous);
    region.end_lending().unwrap();
    region.close().unwrap();
}
