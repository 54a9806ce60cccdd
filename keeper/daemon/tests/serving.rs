//! Regions for other programs: what a borrower stored is there for the next one, however borrower
//! and keeper end.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use common::served::{Serving, given, in_home, is_alive, key_name, load_from, store_into};
use common::{Player, is_idle, play, processor_ticks, soon};
use holdfast_keeper_client::{Client, KeeperError, RefusedKind};
use holdfast_region::{Durability, Opened, RegionState};
use serde_json::json;

#[test]
fn a_child_plays_its_role() {
    play();
}

fn kind(error: &KeeperError) -> Option<RefusedKind> {
    match error {
        KeeperError::NotServed { kind, .. } => Some(*kind),
        _ => None,
    }
}

/// Of an earlier attempt: the keeper took the region back and never looked at what had been stored.
///
/// Guarantee: keeper/stored
#[test]
fn borrowed_stores_reach_the_next_borrower() {
    let serving = Serving::new("");
    let mut borrowed = serving.open("words");
    assert!(borrowed.is_new());
    store_into(&borrowed, 1);
    borrowed.close().unwrap();
    let borrowed = serving.open("words");
    assert!(!borrowed.is_new());
    assert_eq!(load_from(&borrowed), Some(1));
    store_into(&borrowed, 2);
    drop(borrowed);
    let again = || match serving.borrower().open("words", 0, None) {
        Ok(borrowed) => Some(borrowed),
        Err(error) => {
            assert_eq!(kind(&error), Some(RefusedKind::Held), "{error}");
            None
        }
    };
    let mut found = None;
    assert!(soon(|| {
        found = again().and_then(|borrowed| load_from(&borrowed));
        found.is_some()
    }));
    assert_eq!(found, Some(2), "it hung up without a word");
    let role = format!("borrow words 3 {}", serving.socket().display());
    assert!(soon(|| again().is_some_and(|mut borrowed| borrowed.close().is_ok())));
    let mut program = Player::start(&serving.home, &role);
    assert_eq!(program.hear(), "here");
    program.kill();
    assert!(soon(|| {
        found = again().and_then(|borrowed| load_from(&borrowed));
        found.is_some()
    }));
    assert_eq!(found, Some(3), "it was killed");
}

/// A commit at level power is in the store and one at process survives both programs.
///
/// Guarantee: keeper/stored
#[test]
fn power_commit_is_stored_and_process_commit_survives() {
    let mut serving = Serving::new("");
    let mut borrowed = serving.open("words");
    store_into(&borrowed, 7);
    assert_eq!(borrowed.commit(Durability::Power).unwrap(), Durability::Power);
    store_into(&borrowed, 8);
    serving.kill_keeper();
    serving.home.lose_the_pool();
    drop(borrowed);
    serving.start("");
    let mut borrowed = serving.open("words");
    assert_eq!(load_from(&borrowed), Some(7));
    store_into(&borrowed, 9);
    assert_eq!(borrowed.commit(Durability::Process).unwrap(), Durability::Process);
    store_into(&borrowed, 10);
    serving.kill_keeper();
    drop(borrowed);
    serving.start("");
    assert_eq!(load_from(&serving.open("words")), Some(9));
}

#[test]
fn a_region_grows_up_to_its_limit_and_no_further() {
    let serving = Serving::new("");
    let mut borrowed = serving.borrower().open("large", 16 << 20, None).unwrap();
    assert_eq!(borrowed.backed_bytes(), 4 << 20);
    let backed = borrowed.grow(5 << 20).unwrap();
    assert!((5 << 20..=16 << 20).contains(&backed));
    borrowed.image().write_all_at(b"far", backed - 3).unwrap();
    let error = borrowed.grow((16 << 20) + 1).unwrap_err();
    assert_eq!(kind(&error), Some(RefusedKind::LimitReached), "{error}");
    borrowed.close().unwrap();
    let borrowed = serving.borrower().open("large", 0, None).unwrap();
    assert_eq!(borrowed.backed_bytes(), backed);
    let mut found = [0; 3];
    borrowed.image().read_exact_at(&mut found, backed - 3).unwrap();
    assert_eq!(&found, b"far");
}

/// A region has one borrower at a time and is removed when no program has it.
#[test]
fn region_has_one_borrower_and_is_removed_at_rest() {
    let serving = Serving::new("");
    let borrower = serving.borrower();
    let missing = borrower.open("words", 0, None).unwrap_err();
    assert_eq!(kind(&missing), Some(RefusedKind::NotFound), "{missing}");
    let mut borrowed = serving.open("words");
    for error in
        [borrower.open("words", 0, None).unwrap_err(), borrower.delete("words", None).unwrap_err()]
    {
        assert_eq!(kind(&error), Some(RefusedKind::Held), "{error}");
    }
    let listed = borrower.list().unwrap();
    assert_eq!((listed[0].name.as_str(), listed[0].is_lent, listed.len()), ("words", true, 1));
    borrowed.close().unwrap();
    assert!(!borrower.list().unwrap()[0].is_lent);
    borrower.delete("words", None).unwrap();
    let missing = borrower.delete("words", None).unwrap_err();
    assert_eq!(kind(&missing), Some(RefusedKind::NotFound), "{missing}");
    assert_eq!(borrower.usage().unwrap().regions, 0);
}

/// Of an earlier attempt: the next keeper found an image in which a program was storing, and
/// believed half of it.
///
/// Guarantee: keeper/leases
#[test]
fn dead_keepers_borrower_keeps_its_region() {
    let mut serving = Serving::new("");
    let role = format!("store words {}", serving.socket().display());
    let mut program = Player::start(&serving.home, &role);
    assert_eq!(program.hear(), "here");
    serving.kill_keeper();
    serving.start("");
    let name = in_home("words");
    for _ in 0..10 {
        let error = serving.borrower().open("words", 0, None).unwrap_err();
        assert_eq!(kind(&error), Some(RefusedKind::Held), "{error}");
        let error = serving.borrower().delete("words", None).unwrap_err();
        assert_eq!(kind(&error), Some(RefusedKind::Held), "{error}");
        let client = Client::new(serving.home.socket());
        assert_eq!(client.tend().unwrap().failed, Vec::<String>::new());
        client.flush().unwrap();
        // What the keeper saves is the last commit, whole.
        let reader = serving.home.names().open_read(&name).unwrap();
        let bytes = reader.read_all().unwrap();
        for page in bytes.chunks(4096).take(common::served::PAGES as usize) {
            assert_eq!(page[..8], 1_u64.to_le_bytes());
        }
    }
    assert!(serving.borrower().list().unwrap()[0].is_lent);
    program.kill();
    assert_eq!(load_from(&serving.open("words")), Some(1));
}

/// Of an earlier attempt: descriptors piled up for a client that never took them.
///
/// Guarantee: keeper/descriptors
#[test]
fn descriptors_that_nobody_takes_are_taken_back() {
    let serving = Serving::new("patience=300 connections=16");
    assert_eq!(serving.borrower().list().unwrap().len(), 0);
    let before = serving.descriptors();
    let mut lazy: Vec<_> = (0..16).map(|_| serving.raw()).collect();
    for (number, raw) in lazy.iter_mut().enumerate() {
        raw.ask(&json!({"open": {"name": format!("r{number}"), "limit_bytes": 1 << 20}}));
    }
    assert!(soon(|| serving.status().users[0].lent > 0), "nothing was lent");
    assert!(soon(|| serving.status().users[0].lent == 0), "what nobody took is lent still");
    assert!(soon(|| serving.descriptors() <= before + 1), "{} and {before}", serving.descriptors());
    // A process that says that it took them and does not read cannot have a second pair on that
    // connection.
    let mut liar = serving.raw();
    for ask in
        [json!({"open": {"name": "liar", "limit_bytes": 1 << 20}}), json!("taken"), json!("close")]
    {
        liar.ask(&ask);
    }
    let is_over = || {
        let regions = serving.borrower().list().unwrap();
        regions.iter().any(|region| region.name == "liar") && serving.status().users[0].lent == 0
    };
    assert!(soon(is_over));
    liar.receive_lent();
    assert_eq!(liar.answer(), Some(json!("closed")));
    assert!(liar.is_hung_up());
}

/// Of an earlier attempt: lengths from a header that the borrower had written. Here there is none
/// in what it gets.
///
/// Guarantee: keeper/no-resize
#[test]
fn borrower_changes_no_size_and_harms_no_keeper() {
    let serving = Serving::new("");
    let mut borrowed = serving.open("words");
    let keeper = serving.pid();
    let image = borrowed.image();
    for bytes in [0, 1, 4095, 4 << 20, (4 << 20) + 1, 1 << 40] {
        if bytes != borrowed.limit_bytes() {
            assert!(image.set_len(bytes).is_err(), "{bytes}");
        }
    }
    assert!(holdfast_sys::file::allocate(image, 0..(4 << 20) + 4096).is_err());
    // What would be headers, journals and lengths in any file of the project.
    image.write_all_at(&vec![0xFF; 4 << 20], 0).unwrap();
    borrowed.commit(Durability::Power).unwrap();
    assert_eq!((borrowed.backed_bytes(), borrowed.grow(1).unwrap()), (4 << 20, 4 << 20));
    let hole = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(borrowed.image(), hole, 0, 4 << 20).unwrap();
    borrowed.commit(Durability::Power).unwrap();
    store_into(&borrowed, 5);
    borrowed.close().unwrap();
    assert!(is_alive(keeper));
    assert_eq!(serving.borrower().list().unwrap()[0].backed_bytes, 4 << 20);
    assert_eq!(serving.home.names().summary(&in_home("words")).unwrap().state, RegionState::Clean);
    assert_eq!(load_from(&serving.open("words")), Some(5));
}

/// Of an earlier attempt: a client came back after the keeper's death, and wrote over what another
/// program had stored.
///
/// Guarantee: keeper/leases
#[test]
fn returning_borrower_is_refused_after_a_successor() {
    let mut serving = Serving::new("");
    let mut raw = serving.raw();
    let (lent, image, lease) = raw.borrow("words");
    let resume = json!({"resume": {"name": "words", "token": lent["token"]}});
    // No process came: it goes on where it was, also with the next keeper.
    serving.kill_keeper();
    serving.start("");
    std::fs::File::from(image.try_clone().unwrap()).write_all_at(b"mine", 0).unwrap();
    let mut raw = serving.raw();
    raw.ask_with(&resume, &given(&image));
    let (again, ..) = raw.take_lent();
    assert_ne!(again["token"], lent["token"]);
    // The old token is worth nothing any more.
    let mut other = serving.raw();
    other.ask_with(&resume, &given(&image));
    assert_eq!(other.refusal(), "held");
    drop((raw, lease));
    assert!(soon(|| serving.status().users[0].lent == 0));
    let mut other = serving.raw();
    other.ask_with(&resume, &given(&image));
    assert_eq!(other.refusal(), "superseded");
    // A process came.
    let resume = json!({"resume": {"name": "words", "token": again["token"]}});
    let mut between = serving.open("words");
    let mut found = [0; 4];
    between.image().read_exact_at(&mut found, 0).unwrap();
    assert_eq!(&found, b"mine");
    between.close().unwrap();
    let mut raw = serving.raw();
    raw.ask_with(&resume, &given(&image));
    assert_eq!(raw.refusal(), "superseded");
}

/// Guarantee: keeper/leases
#[test]
fn only_the_image_that_was_lent_resumes_a_loan() {
    let serving = Serving::new("");
    let mut raw = serving.raw();
    let (lent, image, _lease) = raw.borrow("words");
    drop(raw);
    assert!(soon(|| serving.status().users[0].lent == 0));
    let resume = json!({"resume": {"name": "words", "token": lent["token"]}});
    let mut raw = serving.raw();
    raw.ask(&resume);
    assert_eq!(raw.refusal(), "malformed");
    let other = holdfast_sys::file::anonymous("other", 4 << 20).unwrap();
    raw.ask_with(&resume, &[other.as_fd()]);
    assert_eq!(raw.refusal(), "superseded");
    raw.ask_with(&resume, &[image.as_fd(), other.as_fd()]);
    assert_eq!(raw.refusal(), "malformed");
    assert!(raw.is_hung_up());
    let mut raw = serving.raw();
    raw.ask_with(&resume, &given(&image));
    raw.take_lent();
}

/// Of an earlier attempt: closing failed for no reason but that the keeper was another one.
///
/// Guarantee: keeper/closing
/// Guarantee: keeper/keeper-dies
#[test]
fn close_after_keeper_death_needs_the_next_keeper() {
    let mut serving = Serving::new("");
    let mut borrowed = serving.open("words");
    store_into(&borrowed, 4);
    serving.kill_keeper();
    serving.start("");
    borrowed.close().unwrap();
    let mut borrowed =
        serving.borrower().with_patience(Duration::from_secs(2)).open("words", 0, None).unwrap();
    assert_eq!(load_from(&borrowed), Some(4));
    store_into(&borrowed, 5);
    serving.kill_keeper();
    let started = Instant::now();
    let nobody = borrowed.close().unwrap_err();
    assert!(matches!(nobody, KeeperError::NoKeeper { .. }), "{nobody}");
    assert!(started.elapsed() < Duration::from_secs(20));
    // It is this program's still, and can be closed later.
    assert_eq!(load_from(&borrowed), Some(5));
    serving.start("");
    borrowed.close().unwrap();
    assert_eq!(load_from(&serving.open("words")), Some(5));
}

/// What is lent is saved in an emergency also while its program stores.
///
/// Guarantee: keeper/emergency
#[test]
fn lent_regions_are_saved_in_an_emergency() {
    let mut serving = Serving::new("");
    let role = format!("store words {}", serving.socket().display());
    let mut program = Player::start(&serving.home, &role);
    assert_eq!(program.hear(), "here");
    // One that never commits.
    let role = format!("borrow quiet 7 {}", serving.socket().display());
    let mut quiet = Player::start(&serving.home, &role);
    assert_eq!(quiet.hear(), "here");
    let report = Client::new(serving.home.socket()).flush().unwrap();
    assert_eq!((report.saved.len(), report.left.len()), (2, 0), "{report:?}");
    assert!(quiet.is_here(), "it was not let go on");
    serving.end_keeper();
    program.kill();
    quiet.kill();
    serving.home.lose_the_pool();
    let key =
        holdfast_region::OwnerKey::load_existing(&serving.home.places(), &key_name()).unwrap();
    let found = |name: &str| {
        let region = serving.home.names().open(&in_home(name), &key).unwrap();
        (region.opened(), common::load(&region))
    };
    assert_eq!(found("quiet"), (Opened::Rescued, 7));
    // One that stored all the time, at a moment at which it was whole.
    let (opened, number) = found("words");
    assert!(opened == Opened::Rescued && number >= 1);
}

/// Guarantee: keeper/idle
#[test]
fn a_keeper_whose_borrowers_are_silent_sleeps() {
    let serving = Serving::new("");
    let _borrowed = serving.open("words");
    let _idle: Vec<_> = (0..4).map(|_| serving.raw()).collect();
    // Ticks of 10 ms: a loop that spins has 200 of them.
    assert!(is_idle(|| processor_ticks(serving.pid()), Duration::from_secs(2), 4));
}
