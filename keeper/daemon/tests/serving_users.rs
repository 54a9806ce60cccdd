//! Users of one keeper: none has anything of another's, and each has so much and no more.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use std::time::{Duration, Instant};

use common::served::{Serving, load_from, store_into};
use common::{play, soon};
use holdfast_keeper_client::{Client, KeeperError, RefusedKind};
use serde_json::json;

/// Users that no machine has.
const ALICE: u32 = 61_001;
const BOB: u32 = 61_002;

#[test]
fn a_child_plays_its_role() {
    play();
}

/// What a user's question came to.
fn asked(serving: &Serving, user: u32, what: &str, name: &str) -> Option<String> {
    let mut program = serving.program_of(user, &format!("ask {what} {name}"))?;
    let said = program.hear();
    program.finish();
    Some(said)
}

/// A user's region is for others neither opened nor named nor listed nor measured.
///
/// Guarantee: keeper/users-apart
#[test]
fn users_region_is_invisible_to_others() {
    let serving = Serving::new("users=all");
    let mut borrowed = serving.open("secret");
    store_into(&borrowed, 1);
    borrowed.close().unwrap();
    let Some(said) = asked(&serving, ALICE, "open", "own") else { return };
    assert_eq!(said, "opened");
    let ask = |user, what, name| asked(&serving, user, what, name).unwrap();
    // One that is another's and one that no user has are told apart by nothing.
    for what in ["retrieve", "as-root", "delete", "delete-as-root"] {
        let (theirs, nobodys) = (ask(ALICE, what, "secret"), ask(ALICE, what, "nothing"));
        assert_eq!(theirs, nobodys, "{what}");
        assert!(theirs.contains("refused"), "{what}: {theirs}");
    }
    assert!(ask(ALICE, "as-root", "secret").contains("and of nobody else"));
    assert_eq!(ask(BOB, "list", "-"), "0 regions");
    assert_eq!(ask(ALICE, "list", "-"), "1 regions");
    assert_eq!(ask(ALICE, "usage", "-"), format!("{} bytes", 1 << 20));
    // The same name is another region.
    assert_eq!(ask(BOB, "open", "secret"), "opened");
    assert_eq!(ask(BOB, "delete", "secret"), "deleted");
    assert_eq!(load_from(&serving.open("secret")), Some(1));
    // And what the files are called helps no process.
    let home = serving.home.path().join("store");
    let mode = std::os::unix::fs::PermissionsExt::mode(&home.metadata().unwrap().permissions());
    assert_eq!(mode & 0o077, 0);
}

/// What a killed program of another user had stored is there for that user.
///
/// Guarantee: keeper/stored
#[test]
fn killed_users_stores_are_there_for_that_user() {
    let serving = Serving::new(&format!("users={ALICE}"));
    let Some(mut program) = serving.program_of(ALICE, "borrow words 6") else { return };
    assert_eq!(program.hear(), "here");
    let refused = asked(&serving, ALICE, "retrieve", "words").unwrap();
    assert!(refused.contains("another program has the region"), "{refused}");
    program.kill();
    let mut said = String::new();
    assert!(soon(|| {
        said = asked(&serving, ALICE, "retrieve", "words").unwrap();
        said == "retrieved"
    }));
    let name = common::named(&format!("served.{ALICE}.words"));
    assert!(soon(|| serving.status().users.iter().all(|user| user.lent == 0)));
    let bytes = serving.home.names().open_read(&name).unwrap().read_all().unwrap();
    assert_eq!(bytes[..8], 6_u64.to_le_bytes());
}

/// A user that was not let in is refused with a word that says what to do.
///
/// Guarantee: keeper/admission
#[test]
fn unadmitted_user_is_refused_with_a_remedy() {
    let serving = Serving::new(&format!("users={ALICE}"));
    let Some(said) = asked(&serving, BOB, "open", "words") else { return };
    assert!(said.contains("not served") && said.contains(&format!("--serve-to {BOB}")), "{said}");
    assert_eq!(asked(&serving, ALICE, "open", "words").unwrap(), "opened");
}

/// Quotas bound bytes regions and connections of a user and of all.
///
/// Guarantee: keeper/quotas
#[test]
fn quotas_bound_each_user_and_all() {
    let serving = Serving::new("bytes=8388608 regions=3 connections=4 total=9437184");
    let borrower = serving.borrower();
    let refused = |name: &str, bytes: u64| match borrower.open(name, bytes, None) {
        Err(KeeperError::NotServed { kind, why }) => (kind, why),
        other => panic!("{other:?}"),
    };
    let made = |name: &str, bytes: u64| borrower.open(name, bytes, None).unwrap().close().unwrap();
    assert_eq!(refused("huge", 16 << 20).0, RefusedKind::Quota);
    assert_eq!(refused("endless", u64::MAX).0, RefusedKind::Quota);
    made("a", 1);
    made("b", 6 << 20);
    let (kind, why) = refused("c", 2 << 20);
    assert_eq!(kind, RefusedKind::Quota);
    assert!(why.contains("8388608") && why.contains("7340032"), "{why}");
    made("c", 1 << 20);
    let (kind, why) = refused("d", 1);
    assert_eq!(kind, RefusedKind::Quota);
    assert!(why.contains("3 regions"), "{why}");
    assert_eq!(borrower.usage().unwrap().bytes, 8 << 20);
    // What is removed can be had again.
    borrower.delete("b", None).unwrap();
    made("d", 6 << 20);
    // A process that has too many connections is told so, and the others go on.
    let held: Vec<_> = (0..4).map(|_| serving.raw()).collect();
    let mut told = None;
    assert!(soon(|| {
        told = serving.raw().ask_quietly(&json!("usage"));
        told.as_ref().is_some_and(|told| told["refused"]["kind"] == "busy")
    }));
    drop(held);
    assert!(soon(|| borrower.usage().is_ok()));
    let status = serving.status();
    assert!(status.users[0].quota_refusals >= 5, "{status:?}");
    assert_eq!((status.bytes, status.total_bytes), (8 << 20, 9 << 20));
}

/// What all users may have together is bounded as well.
///
/// Guarantee: keeper/quotas
#[test]
fn quotas_bound_all_users_together() {
    let serving = Serving::new("users=all total=3145728");
    serving.borrower().open("a", 2 << 20, None).unwrap().close().unwrap();
    let Some(said) = asked(&serving, ALICE, "open", "own") else { return };
    assert_eq!(said, "opened");
    let said = asked(&serving, ALICE, "open", "more").unwrap();
    assert!(said.contains("is full"), "{said}");
}

/// Of an earlier attempt: one who sent without a pause was answered without a pause.
///
/// Guarantee: keeper/fairness
#[test]
fn a_user_who_floods_keeps_nobody_else_waiting() {
    let serving = Serving::new("users=all");
    let Some(mut flood) = serving.program_of(ALICE, "flood") else { return };
    assert_eq!(flood.hear(), "here");
    let borrower = serving.borrower();
    let started = Instant::now();
    for round in 0..20 {
        let mut borrowed = borrower.open(&format!("r{}", round % 3), 1 << 20, None).unwrap();
        borrowed.close().unwrap();
    }
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
    let of =
        |user| serving.status().users.iter().find(|found| found.user == user).copied().unwrap();
    assert!(soon(|| of(ALICE).requests + of(ALICE).refusals > 100), "it did not flood");
    flood.kill();
}

/// Guarantee: keeper/status
#[test]
fn status_and_metrics_tell_what_each_user_has() {
    let serving = Serving::new("");
    let us = holdfast_sys::file::effective_user();
    let borrowed = serving.open("words");
    let user = serving.status().users[0];
    assert_eq!((user.user, user.regions, user.lent, user.bytes), (us, 1, 1, 4 << 20));
    assert!(user.connections >= 1 && user.requests >= 1);
    let metrics = Client::new(serving.home.socket()).metrics().unwrap();
    for line in [
        format!("holdfast_served_user_lent{{uid=\"{us}\"}} 1"),
        format!("holdfast_served_user_bytes{{uid=\"{us}\"}} {}", 4 << 20),
        format!("holdfast_served_bytes {}", 4 << 20),
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} is not in\n{metrics}");
    }
    drop(borrowed);
    assert!(soon(|| serving.status().users[0].lent == 0), "the view is not live");
}
