//! The supervisor's thread, turn by turn, with ordinary processes in the place of jailed ones.

use std::process::Command as Program;

use rustix::process::{PidfdFlags, pidfd_open};

use super::*;
use crate::inmate::Particulars;
use crate::limits::JailLimits;
use crate::policy::{Given, Policy};

const LONG: Duration = Duration::from_secs(30);

fn warden() -> Warden {
    let wake = rustix::event::eventfd(0, EventfdFlags::NONBLOCK).unwrap();
    Warden::new(epoll::create(epoll::CreateFlags::CLOEXEC).unwrap(), Arc::new(wake), Arc::default())
}

/// A program that sleeps this long. No process asks at its listener, which is none.
fn charge(seconds: &str, limits: JailLimits) -> Charge {
    let pid = Program::new("sleep").arg(seconds).spawn().unwrap().id();
    let pidfd = pidfd_open(Pid::from_raw(pid as i32).unwrap(), PidfdFlags::empty()).unwrap();
    let inmate = Inmate::new(Particulars {
        pid,
        pidfd: Arc::new(pidfd),
        policy: Policy::default(),
        given: Given {
            first_free_descriptor: 3,
            last_region_descriptor: 3,
            region_data_offset: 0,
            program_descriptor: 3,
            own_process: pid,
        },
        limits,
        started: Instant::now(),
        kept_bytes: 0,
        discards_output: false,
        on_end: Vec::new(),
        groups: None,
        crossings: holdfast_crossings::Mark::default(),
    });
    let no_listener = rustix::event::eventfd(0, EventfdFlags::NONBLOCK).unwrap();
    Charge::new(Arc::new(inmate), no_listener, [None, None])
}

fn until(what: impl Fn() -> bool) {
    let started = Instant::now();
    while !what() {
        assert!(started.elapsed() < LONG);
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A program that the kernel cannot watch is polled until it has ended.
///
/// Guarantee: sandbox/supervisor
#[test]
fn unwatched_program_is_polled_until_its_end() {
    let mut warden = warden();
    // Not one that can watch anything.
    warden.poll = rustix::event::eventfd(0, EventfdFlags::NONBLOCK).unwrap();
    let charge = charge("600", JailLimits::default());
    let inmate = charge.inmate.clone();
    warden.take_charge(charge);
    // However long the killed process takes: there is always a next look.
    let started = Instant::now();
    while inmate.end().is_none() {
        assert!(!warden.times.is_empty() && started.elapsed() < LONG, "nobody sees its end");
        warden.look_at_times();
    }
    assert!(
        matches!(inmate.end(), Some(End::Killed(KillReason::Other { .. }))),
        "{:?}",
        inmate.end()
    );
}

/// A program that has ended leaves no timer in the supervisor.
///
/// Guarantee: sandbox/supervisor
#[test]
fn ended_program_leaves_no_timer() {
    let mut warden = warden();
    let limits = JailLimits {
        wall_time: Some(LONG * 100),
        cpu_time: Some(LONG * 100),
        ..JailLimits::default()
    };
    let charge = charge("0", limits);
    let inmate = charge.inmate.clone();
    warden.take_charge(charge);
    until(|| has_ended(&inmate));
    warden.see_the_end(1);
    assert_eq!(inmate.end(), Some(End::Exited { status: 0 }));
    assert!(warden.times.is_empty() && warden.charges.is_empty(), "{:?}", warden.times);
}

/// A program whose system calls cannot be answered is killed instead of waiting without end.
///
/// Guarantee: sandbox/supervisor
#[test]
fn unanswerable_program_is_ended() {
    let mut warden = warden();
    let charge = charge("600", JailLimits::default());
    let inmate = charge.inmate.clone();
    warden.take_charge(charge);
    warden.serve(1, LISTENER, epoll::EventFlags::IN);
    until(|| has_ended(&inmate));
    warden.see_the_end(1);
    let end = inmate.end().unwrap();
    assert!(
        matches!(&end, End::Killed(KillReason::Other { what }) if what.contains("answered")),
        "{end}"
    );
}

/// In a forked copy of the host the lock may be held by a thread that the copy does not have.
///
/// Guarantee: sandbox/supervisor
#[test]
fn running_supervisor_is_found_without_the_lock() {
    Supervisor::get().unwrap();
    let _held = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    let (tell, told) = sync_channel(1);
    std::thread::spawn(move || tell.send(Supervisor::get().is_ok()));
    assert_eq!(told.recv_timeout(LONG), Ok(true));
}
