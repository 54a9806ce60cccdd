//! SIGKILL at random moments, of this test program again, as a writer. Parent and child share a
//! home; the child says each number of steps that it has made count, in lines that start with `@@
//! `.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use holdfast_region::Consistency;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::session::{Home, MODES};

const ROLE: &str = "HOLDFAST_TEST_ROLE";
const HOME: &str = "HOLDFAST_TEST_HOME";
const POOL: &str = "HOLDFAST_TEST_POOL";
const KILLS: u64 = 60;
/// Steps that count together in the mode `atomic`.
const TOGETHER: u64 = 4;
/// A writer that is not killed ends after this many steps.
const STEPS_MAX: u64 = 1_000_000;
const DELAY_US_MAX: u64 = 1500;

#[test]
fn a_child_writes_until_it_is_killed() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let place = |variable| PathBuf::from(std::env::var_os(variable).unwrap());
    let mode = MODES.into_iter().find(|mode| format!("{mode:?}") == role).unwrap();
    let mut session = Home::at(place(HOME), place(POOL)).open(mode);
    session.work();
    for step in 1..=STEPS_MAX {
        let made = match mode {
            Consistency::Atomic => session.step().unwrap(),
            _ => {
                session.heap.begin().unwrap();
                let made = session.step().unwrap();
                session.heap.commit().unwrap();
                made
            }
        };
        if mode == Consistency::Atomic && step % TOGETHER == 0 {
            session.commit();
        }
        if mode == Consistency::Direct || step % TOGETHER == 0 {
            println!("@@ {made}");
            std::io::stdout().flush().unwrap();
        }
    }
}

/// The number that a line of the child says, if it is one of those.
fn said(line: &str) -> Option<u64> {
    line.split_once("@@ ").and_then(|(_, number)| number.trim().parse().ok())
}

/// A writer that is killed at random leaves every transaction it committed or its last commit.
///
/// Guarantee: heap/atomic-kill
/// Guarantee: heap/power
#[test]
fn killed_writer_leaves_transactions_or_last_commit() {
    for mode in MODES {
        let home = Home::new();
        let mut random = SmallRng::seed_from_u64(11);
        let (mut acknowledged, mut in_work) = (0, 0);
        for round in 0..KILLS {
            let mut child = Command::new(std::env::current_exe().unwrap());
            child.args(["kills::a_child_writes_until_it_is_killed", "--exact", "--nocapture"]);
            child.env(ROLE, format!("{mode:?}")).env(HOME, home.home()).env(POOL, home.pool());
            let mut child = child.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
            let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
            // One in four dies while it starts.
            if random.random_range(0..4) > 0 {
                acknowledged = lines.by_ref().find_map(|line| said(&line.unwrap())).unwrap();
                in_work += 1;
            }
            std::thread::sleep(Duration::from_micros(random.random_range(0..DELAY_US_MAX)));
            child.kill().unwrap();
            assert_eq!(child.wait().unwrap().signal(), Some(9));
            // What it had said before it died counts, too; the last line may be torn.
            for line in lines.map_while(Result::ok) {
                acknowledged = said(&line).unwrap_or(acknowledged).max(acknowledged);
            }
            let mut session = home.open(mode);
            let found = session.steps();
            let most = acknowledged + if mode == Consistency::Atomic { TOGETHER } else { 1 };
            let context = format!("kill {round}: {found} steps, {acknowledged} acknowledged");
            assert!((acknowledged..=most).contains(&found), "{mode:?}, {context}");
            assert!(
                mode == Consistency::Direct || found.is_multiple_of(TOGETHER),
                "{context}: part of a commit"
            );
            session.verify(found, &context);
            session.die();
            acknowledged = found;
        }
        assert!(in_work * 2 > KILLS, "{in_work} of {KILLS}");
    }
}
