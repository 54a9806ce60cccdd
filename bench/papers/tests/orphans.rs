//! In a process of its own, as it waits for all children of a process.

use std::process::Command;
use std::time::Duration;

use holdfast_papers::machine::{Account, adopt_orphans, collect_orphans};

/// What a child leaves running when it is killed is this run's work, and not that of others.
#[test]
fn time_of_orphans_is_counted() {
    const BUSY: &str = "sh -c 'i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done' & kill -9 $$";
    adopt_orphans();
    let before = Account::now().unwrap();
    let status = Command::new("sh").args(["-c", BUSY]).status().unwrap();
    assert!(!status.success(), "{status}");
    let left = Account::now().unwrap().children_ticks_since(before);
    collect_orphans(Duration::from_secs(60));
    let all = Account::now().unwrap().children_ticks_since(before);
    assert!(all > left + 5, "{left} ticks, and then {all}");
}
