//! Emergencies: what is saved, in which order, what is told of the rest, and that a process that
//! was stopped goes on.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{Home, MIB, Player, config, is_stopped, named, play, soon};
use holdfast_keeper::{Cause, Keeper, UnsavedReason, thaw_after_killed_keeper};
use holdfast_region::Opened;
use rustix::process::Signal;

#[test]
fn a_child_plays_its_role() {
    play();
}

/// What running programs had stored is there after the machine went and they go on.
///
/// Guarantee: keeper/flush
#[test]
fn running_programs_are_saved_and_go_on() {
    let home = Home::new();
    let mut program = Player::start(&home, "hold first second");
    assert_eq!(program.hear(), "here");
    home.closed("quiet", MIB, 5);
    home.crashed("dead", MIB, 6);
    let mut keeper = home.keeper(config());
    let report = keeper.flush(Cause::PowerButton);
    let mut saved: Vec<_> = report.saved.iter().map(|saved| saved.name.as_str()).collect();
    saved.sort_unstable();
    assert_eq!((saved, report.left.len()), (vec!["dead", "first", "second"], 0), "{report:?}");
    assert_eq!(report.stopped, [program.pid()]);
    assert!(program.is_here(), "it was not let go on");
    program.kill();
    home.lose_the_pool();
    for (name, expected) in [("first", 7), ("second", 7), ("dead", 6)] {
        assert_eq!(home.number(name), (Opened::Rescued, expected));
    }
    assert_eq!(home.number("quiet"), (Opened::Cold, 5));
}

/// A program that stores without a pause is saved whole.
///
/// Guarantee: keeper/flush
#[test]
fn endlessly_storing_program_is_saved_whole() {
    let home = Home::new();
    let mut program = Player::start(&home, "busy words");
    assert_eq!(program.hear(), "here");
    let mut keeper = home.keeper(config());
    for _ in 0..5 {
        let report = keeper.flush(Cause::Asked);
        assert_eq!((report.saved.len(), report.left.len()), (1, 0), "{report:?}");
    }
    program.kill();
    home.lose_the_pool();
    // Reading it finds a number that is nowhere torn.
    assert_eq!(home.number("words").0, Opened::Rescued);
}

/// What does not fit into the time is told and what is worth most goes first.
///
/// Guarantee: keeper/what-fits
#[test]
fn worthiest_heaps_go_first_when_time_is_short() {
    let home = Home::new();
    home.crashed("small", MIB, 1);
    home.crashed("large", 8 * MIB, 1);
    home.crashed("other", MIB, 1);
    let mut slow = config();
    // For 2.7 MiB: the large one has 4 MiB.
    slow.bandwidth_bytes_per_s = Some(MIB);
    slow.emergency = Duration::from_secs(3);
    slow.first = vec![named("large"), named("other")];
    let report = home.keeper(slow.clone()).flush(Cause::LowBattery);
    let saved: Vec<_> = report.saved.iter().map(|saved| saved.name.as_str()).collect();
    assert_eq!(saved, ["other", "small"]);
    assert_eq!(
        (report.left[0].name.as_str(), &report.left[0].why),
        ("large", &UnsavedReason::NoTime)
    );
    assert!(report.budget.bytes < 3 * MIB && report.budget.bytes > 2 * MIB);
    slow.emergency = Duration::from_secs(10);
    let report = home.keeper(slow).flush(Cause::LowBattery);
    assert_eq!((report.saved[0].name.as_str(), report.left.len()), ("large", 0));
}

/// A store without room keeps what fits and tells what does not.
///
/// Guarantee: keeper/what-fits
#[test]
fn full_store_keeps_what_fits_and_says_so() {
    let both = tempfile::tempdir_in("/dev/shm").unwrap();
    std::fs::create_dir(both.path().join("home")).unwrap();
    let script = format!(
        "mount -t tmpfs -o size=5m,mode=700 none {}/home && exec \"$@\"",
        both.path().display()
    );
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--mount", "sh", "-c", &script, "sh"]);
    command.arg(std::env::current_exe().unwrap());
    let probe = Command::new("unshare").args(["--map-root-user", "--mount", "true"]).status();
    if !probe.is_ok_and(|status| status.success()) {
        println!("not run: no user namespaces here");
        return;
    }
    let mut child = Player::start_in(command, both.path(), "full");
    assert_eq!(child.hear(), "small");
    let left = child.hear();
    assert!(left.contains("large") && left.contains("NoRoom"), "{left}");
    child.finish();
}

/// Row D1: the keeper is killed while it flushes, at any moment.
///
/// Guarantee: keeper/killed-keeper
#[test]
fn killed_flush_leaves_nobody_stopped_or_half_saved() {
    let home = Home::new();
    let mut program = Player::start(&home, "hold words");
    assert_eq!(program.hear(), "here");
    for round in 0..10 {
        // Without a guard the next keeper lets go on, with one no process has to come.
        let guarded = round % 2 == 0;
        let mut keeper =
            Player::start(&home, if guarded { "flush guarded" } else { "flush alone" });
        assert_eq!(keeper.hear(), "here");
        assert!(soon(|| is_stopped(program.pid())), "no flush came");
        std::thread::sleep(Duration::from_millis(round));
        keeper.kill();
        if !guarded {
            drop(home.keeper(config()));
        }
        assert!(soon(|| !is_stopped(program.pid())), "round {round}: it was left stopped");
        assert!(program.is_here());
    }
    // What they left half done is in no process's way.
    assert_eq!(home.keeper(config()).flush(Cause::Asked).saved.len(), 1);
    program.kill();
    home.lose_the_pool();
    assert_eq!(home.number("words"), (Opened::Rescued, 7));
}

/// A guard that wakes late, when another keeper has the home, leaves alone whom that one stopped.
///
/// Guarantee: keeper/killed-keeper
#[test]
fn late_guard_leaves_the_next_keepers_note_alone() {
    let home = Home::new();
    let mut program = Player::start(&home, "hold words");
    assert_eq!(program.hear(), "here");
    let next = home.keeper(config());
    // As the next keeper's flush has it.
    program.signal(Signal::STOP);
    assert!(soon(|| is_stopped(program.pid())));
    let note = home.pool().join(".stopped");
    let start_ticks = common::stat(program.pid()).unwrap().starttime;
    std::fs::write(&note, format!("{} {start_ticks}\n", program.pid())).unwrap();
    assert_eq!(thaw_after_killed_keeper(&home.places()).unwrap(), 0);
    assert!(note.exists() && is_stopped(program.pid()), "it took the next keeper's note");
    drop(next);
    assert_eq!(thaw_after_killed_keeper(&home.places()).unwrap(), 1);
    assert!(!note.exists() && soon(|| !is_stopped(program.pid())));
    assert!(program.is_here());
    program.kill();
}

/// Where no program can be stopped, the report says why.
///
/// Guarantee: keeper/stopped-programs
#[test]
fn programs_that_cannot_be_stopped_are_reported_with_a_reason() {
    let home = Home::new();
    let mut program = Player::start(&home, "hold words");
    assert_eq!(program.hear(), "here");
    // In the way of the note of who is stopped.
    std::fs::create_dir_all(home.pool().join(".stopped.new/x")).unwrap();
    let report = home.keeper(config()).flush(Cause::Asked);
    assert_eq!((report.saved.len(), report.left.len()), (0, 1), "{report:?}");
    let UnsavedReason::Failed(why) = &report.left[0].why else { panic!("{report:?}") };
    assert!(why.contains("could not be stopped"), "{why}");
    assert!(!is_stopped(program.pid()) && program.is_here());
    program.kill();
}

/// Guarantee: keeper/one-keeper
#[test]
fn a_home_has_one_keeper() {
    let home = Home::new();
    let first = home.keeper(config());
    let second = Keeper::new(home.places(), config()).unwrap_err();
    assert!(
        matches!(second, holdfast_keeper::DaemonError::Running { holder: Some(_), .. }),
        "{second}"
    );
    drop(first);
    home.keeper(config());
}

/// A program that a person stopped is saved and stays stopped.
///
/// Guarantee: keeper/stopped-programs
#[test]
fn manually_stopped_program_is_saved_as_it_is() {
    let home = Home::new();
    let mut program = Player::start(&home, "hold words");
    assert_eq!(program.hear(), "here");
    program.signal(Signal::STOP);
    assert!(soon(|| is_stopped(program.pid())));
    let report = home.keeper(config()).flush(Cause::Asked);
    assert_eq!((report.saved.len(), report.stopped.len()), (1, 0));
    std::thread::sleep(Duration::from_millis(20));
    assert!(is_stopped(program.pid()));
}

/// A native applet has the image of its heap mapped, and its host the lock.
///
/// Guarantee: keeper/flush
#[test]
fn writer_to_anothers_locked_heap_is_stopped_too() {
    let home = Home::new();
    let mut host = Player::start(&home, "hold words");
    assert_eq!(host.hear(), "here");
    let script = "import mmap, sys, time
file = open(sys.argv[1], 'r+b')
image = mmap.mmap(file.fileno(), 0)
print('mapped', flush=True)
while True: time.sleep(0.001)";
    let mut borrower = Command::new("python3")
        .args(["-c", script])
        .arg(home.pool().join("words.image"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = [0; 7];
    borrower.stdout.take().unwrap().read_exact(&mut said).unwrap();
    let report = home.keeper(config()).flush(Cause::Asked);
    let mut expected = [host.pid(), borrower.id()];
    expected.sort_unstable();
    assert_eq!((report.stopped, report.saved.len()), (expected.to_vec(), 1));
    assert!(soon(|| !is_stopped(borrower.id())));
    borrower.kill().unwrap();
    borrower.wait().unwrap();
}

/// No other process may pay for a program that another one, or a person, wakes up while it is
/// copied.
///
/// Guarantee: keeper/one-slow-writer
/// Guarantee: keeper/stopped-programs
#[test]
fn restless_writer_costs_no_other_heap_its_copy() {
    let home = Home::new();
    let mut restless = Player::start(&home, "hold restless");
    let mut program = Player::start(&home, "hold words");
    assert_eq!((restless.hear(), program.hear()), ("here".to_owned(), "here".to_owned()));
    let done = AtomicBool::new(false);
    let left = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                restless.signal(Signal::CONT);
            }
        });
        let mut keeper = home.keeper(config());
        let reports: Vec<_> = (0..5).map(|_| keeper.flush(Cause::Asked)).collect();
        done.store(true, Ordering::Relaxed);
        for report in &reports {
            assert!(report.saved.iter().any(|saved| saved.name == "words"), "{report:?}");
        }
        reports.into_iter().flat_map(|report| report.left).collect::<Vec<_>>()
    });
    assert!(
        left.iter().all(|left| left.name == "restless" && left.why == UnsavedReason::Running),
        "{left:?}"
    );
    assert!(!left.is_empty(), "it was never seen going on");
}

/// A child that does not outlive its test, whatever becomes of that.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `/proc/PID` of such a process says what its first thread is: a zombie without memory.
///
/// Guarantee: keeper/stopped-programs
#[test]
fn program_without_first_thread_is_stopped_too() {
    let home = Home::new();
    home.crashed("words", MIB, 7);
    let script = "import ctypes, fcntl, mmap, os, sys, threading
image = open(sys.argv[1], 'r+b')
memory = mmap.mmap(image.fileno(), 0)
lock = open(sys.argv[2], 'r+b')
fcntl.flock(lock, fcntl.LOCK_EX)
start = open('/proc/self/stat').read().rsplit(')')[-1].split()[19]
lock.write(f'{os.getpid()} {start}'.ljust(31).encode() + b'\\n')
lock.flush()
def go_on():
    while open('/proc/self/stat').read().rsplit(')')[-1].split()[0] != 'Z': pass
    print('mapped', flush=True)
    threading.Event().wait()
threading.Thread(target=go_on).start()
SYS_exit = {'x86_64': 60}.get(os.uname().machine, 93)
ctypes.CDLL(None).syscall(SYS_exit, 0)";
    let program = Command::new("python3")
        .args(["-c", script])
        .args([home.pool().join("words.image"), home.pool().join("words.lock")])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut program = Killed(program);
    let mut said = [0; 7];
    program.0.stdout.take().unwrap().read_exact(&mut said).unwrap();
    assert_eq!(home.names().summary(&named("words")).unwrap().holder, Some(program.0.id()));
    let report = home.keeper(config()).flush(Cause::Asked);
    assert_eq!((report.stopped, report.left.len()), (vec![program.0.id()], 0));
    assert_eq!(report.saved.len(), 1);
    drop(program);
    home.lose_the_pool();
    assert_eq!(home.number("words"), (Opened::Rescued, 7));
}
