//! In a process of its own, as it waits for all children of a process.

use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdfast_papers::account::{Meter, collect_orphans};

/// Some 0.3 s of one processor.
const LOOP: &str = "i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done";
/// Less than the loop takes anywhere.
const TICKS: u64 = 5;

/// One test at a time, because each counts all children of the process.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn shell(script: &str) -> bool {
    Command::new("sh").args(["-c", script]).status().expect("sh").success()
}

/// What a child leaves running when it is killed is this run's work, and not that of others.
#[test]
fn time_of_orphans_is_counted() {
    let _alone = alone();
    let meter = Meter::start();
    let before = meter.now().unwrap();
    assert!(!shell(&format!("sh -c '{LOOP}' & kill -9 $$")));
    let left = meter.now().unwrap().own_ticks_since(before);
    collect_orphans(Duration::from_secs(60));
    let all = meter.now().unwrap().own_ticks_since(before);
    assert!(all > left + TICKS, "{left} ticks, and then {all}");
}

/// A daemon that outlives the patience of its step is counted as it runs.
#[test]
fn time_of_daemons_is_counted_while_they_run() {
    let _alone = alone();
    let meter = Meter::start();
    let before = meter.now().unwrap();
    assert!(shell(&format!("sh -c '{LOOP}; sleep 2' & sleep 1")));
    collect_orphans(Duration::ZERO);
    let running = meter.now().unwrap().own_ticks_since(before);
    assert!(running > TICKS, "{running} ticks");
    collect_orphans(Duration::from_secs(60));
}

/// No process waits for the children of one that ignores SIGCHLD, nor for those of a PID
/// namespace that is torn down. The control group has their time.
#[test]
fn time_that_nobody_waits_for_is_counted() {
    let _alone = alone();
    let meter = Meter::start();
    if !meter.has_group() {
        eprintln!("no control group can be made here");
        return;
    }
    let before = meter.now().unwrap();
    assert!(shell(&format!("trap '' CHLD; sh -c '{LOOP}' & sleep 2")));
    let own = meter.now().unwrap().own_ticks_since(before);
    assert!(own > TICKS, "{own} ticks");
}

/// The group of a meter ends with it.
#[test]
fn group_is_left_and_removed() {
    let _alone = alone();
    let groups = || std::fs::read_to_string("/proc/self/cgroup").unwrap();
    let before = groups();
    let meter = Meter::start();
    assert_eq!(meter.has_group(), groups() != before);
    drop(meter);
    assert_eq!(groups(), before);
}
