//! An applet in C: entries that one run wrote are there in the next.

use std::path::PathBuf;

use holdfast_testkit::Scratch;

use crate::{scratch, succeed, tell, victim};

/// A guest book with two entries, in the heap `book`.
pub(crate) fn with_two_entries() -> Scratch {
    let scratch = scratch();
    for entry in ["Ada was here", "so was Grace"] {
        succeed(guestbook(&scratch, &["add", entry]).env("LC_ALL", "C"));
    }
    scratch
}

fn guestbook(scratch: &Scratch, arguments: &[&str]) -> std::process::Command {
    let mut command = scratch.holdfast();
    command.arg("run").arg(scratch.programs().applet("guestbook").unwrap());
    command.args(["--heap", "book", "--"]).args(arguments);
    command
}

/// Lets a victim use the heap as well.
pub(crate) fn hand_over(scratch: &Scratch, name: &str) {
    let mut adopt = scratch.holdfast();
    succeed(adopt.args(["heap", "adopt", "book", "--by"]).arg(victim(name)));
}

/// The file of the key that owns it.
pub(crate) fn key_file(scratch: &Scratch) -> PathBuf {
    let keys = succeed(scratch.holdfast().args(["heap", "keys", "--json"]));
    let keys: serde_json::Value = serde_json::from_str(&keys).unwrap();
    let owns = |key: &&serde_json::Value| key["owns"].as_array().unwrap().contains(&"book".into());
    let key = keys.as_array().unwrap().iter().find(owns).unwrap();
    scratch.home().join("keys").join(format!("{}.key", key["name"].as_str().unwrap()))
}

/// Both entries are there, in their order, and the heap is sound.
pub(crate) fn assert_both_entries(scratch: &Scratch) {
    let list = succeed(&mut guestbook(scratch, &["list"]));
    let (ada, grace) = (list.find("Ada was here"), list.find("so was Grace"));
    assert!(ada.is_some() && ada < grace, "{list}");
    assert!(list.trim_end().ends_with("2 entries"), "{list}");
    succeed(scratch.holdfast().args(["heap", "check", "book"]));
}

#[test]
fn an_applet_in_c_finds_what_its_last_run_wrote() {
    assert_both_entries(&with_two_entries());
}

/// An applet in C that dies in a transaction leaves the heap as it was before.
#[test]
fn death_in_a_transaction_restores_the_guestbook() {
    let scratch = with_two_entries();
    let died = tell(&mut guestbook(&scratch, &["crash"]));
    assert_eq!(died.status, 134, "{}", died.err);
    assert!(
        died.err.contains("crash") || died.err.contains("main"),
        "it names the function: {}",
        died.err
    );
    assert_both_entries(&scratch);
}
