//! Children that make a prepared list of calls.

#![cfg(target_arch = "x86_64")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use holdfast_sys::child::{Status, reap};
use holdfast_sys::spawn::{Progress, ResourceLimit, Steps};
use rustix::process::{PidfdFlags, getpid, pidfd_open};

const LONG: Duration = Duration::from_secs(20);

fn itself() -> OwnedFd {
    pidfd_open(getpid(), PidfdFlags::empty()).unwrap()
}

#[test]
fn the_last_call_makes_a_program_of_the_child() {
    let program = std::fs::File::open("/bin/sh").unwrap();
    let mut steps = Steps::new();
    steps.die_with_parent();
    steps.limit("limit core dumps", ResourceLimit { resource: libc::RLIMIT_CORE, value: 0 });
    let text = |text: &std::ffi::CStr| text.to_owned();
    let args = vec![text(c"sh"), text(c"-c"), text(c"exit $WORD")];
    steps.execute(program.as_raw_fd(), args, vec![text(c"WORD=7")]);
    let mut child = steps.start(0).unwrap();
    assert!(child.wait_until_gone(LONG));
    assert_eq!(child.failure(), None);
    assert!(child.hand_over());
    assert_eq!(reap(child.pid(), true).unwrap().unwrap().status, Status::Exited(7));
}

/// A call that fails ends the child and is told by its name.
#[test]
fn failed_call_ends_the_child_and_is_named() {
    let mut steps = Steps::new();
    steps.private_files();
    steps.change_directory(c"/there/is/no/such/directory".to_owned());
    steps.await_parent(itself().as_raw_fd());
    let mut child = steps.start(0).unwrap();
    assert!(!child.has_arrived(1, LONG));
    assert_eq!(child.failure(), Some(("chdir", libc::ENOENT)));
    assert!(matches!(child.wait(LONG), Progress::Gone));
    let pid = child.pid();
    drop(child);
    assert!(reap(pid, false).is_err(), "it is reaped with the value");
}

#[test]
fn a_child_waits_until_it_is_let_go() {
    let itself = itself();
    let mut steps = Steps::new();
    steps.await_parent(itself.as_raw_fd());
    steps.await_parent(itself.as_raw_fd());
    steps.exit();
    let mut child = steps.start(0).unwrap();
    assert!(child.has_arrived(1, LONG));
    assert!(!child.has_arrived(2, Duration::from_millis(120)), "nobody let it go");
    child.let_go(1);
    assert!(child.has_arrived(2, LONG));
    child.let_go(2);
    assert!(child.wait_until_gone(LONG));
    assert_eq!(child.failure(), None);
}

/// A host that is killed leaves a child that no process will ever let go, and that may have been
/// born too late to be killed with it: `PR_SET_PDEATHSIG` counts from its own call on.
///
/// Guarantee: sandbox/dies-with-host
#[test]
fn a_child_whose_parent_is_dead_does_not_wait_for_it() {
    let mut parent = std::process::Command::new("true").spawn().unwrap();
    let pid = rustix::process::Pid::from_child(&parent);
    let dead = pidfd_open(pid, PidfdFlags::empty()).unwrap();
    parent.wait().unwrap();
    let mut steps = Steps::new();
    steps.await_parent(dead.as_raw_fd());
    let mut child = steps.start(0).unwrap();
    assert!(child.wait_until_gone(LONG));
    assert_eq!(child.failure(), Some(("wait for the host", libc::ESRCH)));
}

#[test]
fn a_child_that_is_dropped_is_killed_and_reaped() {
    let itself = itself();
    let mut steps = Steps::new();
    steps.await_parent(itself.as_raw_fd());
    let child = steps.start(0).unwrap();
    let pid = child.pid();
    drop(child);
    assert!(reap(pid, false).is_err());
}
