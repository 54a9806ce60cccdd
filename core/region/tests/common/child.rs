//! Children: this test program again, playing one role against the parent's home.
//!
//! The parent starts it with a filter that selects `a_child_plays_its_role` and with the role in
//! the environment. They talk in lines: the child's start with `@@ `, the parent's mean "go on".

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;

use holdfast_region::{Consistency, Medium, NameSpace, Places, RegionError};

use super::faulty::{Fault, FaultyStorage};
use super::{Home, MIB, key, load, named, number, other_key, push, store, store_number};

const ROLE: &str = "HOLDFAST_TEST_ROLE";
const HOME: &str = "HOLDFAST_TEST_HOME";
const POOL: &str = "HOLDFAST_TEST_POOL";

/// The body of the test that children run; without a role it does nothing.
pub(crate) fn play() {
    let Some(role) = role() else { return };
    let names = || NameSpace::new(places());
    let words: Vec<&str> = role.split(' ').collect();
    match words[..] {
        // Opens, stores a text, and stays until it is told to go on.
        ["hold", name, text] => {
            let mut region = names().open(&named(name), &key()).unwrap();
            store(&mut region, 0, text.as_bytes());
            say("holding");
            wait_for_parent();
            region.close().unwrap();
        }
        // Reads, and then stores to a region that it may only read.
        ["store-to-read-only", name] => {
            let mut region = names().open_read_only(&named(name), &other_key()).unwrap();
            let text = String::from_utf8(load(&mut region, 0, 5)).unwrap();
            say(&format!("read {text}"));
            store(&mut region, 0, b"X");
            say("stored");
        }
        ["create", name] => {
            let names = names();
            say("ready");
            wait_for_parent();
            match names.create(&named(name), &key(), 8 * MIB) {
                Ok(region) => {
                    say("won");
                    wait_for_parent();
                    drop(region);
                }
                Err(RegionError::AlreadyExists { .. } | RegionError::Held { .. }) => say("lost"),
                Err(error) => say(&format!("failed: {error}")),
            }
        }
        // Stores a text, and so much else that a new base is due, and hangs in the given step of
        // the checkpoint.
        ["hang", name, text, step] => {
            let storage = Arc::new(FaultyStorage::new(Fault::Hang));
            let names = NameSpace::with_storage(places(), storage.clone());
            let mut region = names.open(&named(name), &key()).unwrap();
            let filler = vec![step.parse::<u8>().unwrap() + 1; region.backed_bytes() as usize];
            store(&mut region, 0, &filler);
            store(&mut region, 0, text.as_bytes());
            storage.arm(step.parse().unwrap());
            region.checkpoint().unwrap();
            say("finished");
        }
        // Changes a list and a number on many pages for ever, and publishes every change.
        ["publish", name] => {
            let mut region = names().open(&named(name), &key()).unwrap();
            region.set_consistency(Consistency::Atomic).unwrap();
            let first = number(&mut region);
            for next in first + 1..first + 1_000_000 {
                push(&mut region, next - 1);
                store_number(&mut region, next);
                region.publish().unwrap();
                say(&format!("published {next}"));
            }
        }
        // Fills a small tmpfs that the surrounding namespace mounted as the pool.
        ["fill", name] => {
            let mut region = names().create(&named(name), &key(), 64 * MIB).unwrap();
            store(&mut region, 0, b"before");
            let mut backed_bytes = region.backed_bytes();
            let error = loop {
                match region.grow(backed_bytes + 1) {
                    Ok(grown) => backed_bytes = grown,
                    Err(error) => break error,
                }
            };
            assert!(
                matches!(error, RegionError::NoRoom { needed_bytes, available_bytes, .. }
                if available_bytes < needed_bytes),
                "{error}"
            );
            store(&mut region, backed_bytes as usize - 5, b"after");
            let second = names().create(&named("second"), &key(), 64 * MIB).unwrap_err();
            assert!(matches!(second, RegionError::NoRoom { .. }), "{second}");
            region.close().unwrap();
            let reader = names().open_read(&named(name)).unwrap();
            assert!(reader.bytes().starts_with(b"before") && reader.bytes().ends_with(b"after"));
            assert_eq!(names().list().unwrap().len(), 1);
            say("filled");
        }
        // Uses heaps in a pool that has no room for a single byte more.
        ["crowded", name] => {
            // More than what a region gives back when it is closed.
            let mut region = names().create(&named(name), &key(), 5 * MIB).unwrap();
            region.grow(5 * MIB).unwrap();
            store(&mut region, 0, b"before");
            region.close().unwrap();
            let pool = places().pool().to_owned();
            let mut filler = std::fs::File::create(pool.join("filler")).unwrap();
            while filler.write(&[1; 4096]).is_ok() {}
            // Another home would find no note of whose pool it is, and no room for one.
            std::fs::rename(pool.join("home"), pool.join("away")).unwrap();
            let mut region = names().open(&named(name), &key()).unwrap();
            assert_eq!(load(&mut region, 0, 6), b"before");
            store(&mut region, 0, b"after ");
            region.close().unwrap();
            assert!(names().open_read(&named(name)).unwrap().bytes().starts_with(b"after "));
            names().snapshot(&named(name), &key(), &named("kept")).unwrap();
            names().set_medium(&named(name), &key(), Medium::File).unwrap();
            // What the image had taken is free again.
            while filler.write(&[1; 4096]).is_ok() {}
            let mut region = names().open(&named(name), &key()).unwrap();
            assert_eq!(load(&mut region, 0, 6), b"after ");
            region.close().unwrap();
            names().remove(&named(name), &key()).unwrap();
            assert!(names().list().unwrap().is_empty());
            say("filled");
        }
        _ => panic!("unknown role {role:?}"),
    }
}

/// What this process is to play, if it is a child.
pub(crate) fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// The parent's home.
pub(crate) fn places() -> Places {
    let place = |variable| PathBuf::from(std::env::var_os(variable).unwrap());
    Places::at(place(HOME), place(POOL)).unwrap()
}

pub(crate) fn say(text: &str) {
    println!("@@ {text}");
    std::io::stdout().flush().unwrap();
}

pub(crate) fn wait_for_parent() {
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

/// A running child, killed when it is dropped.
pub(crate) struct Player {
    child: Child,
    lines: BufReader<ChildStdout>,
    input: ChildStdin,
}

impl Player {
    pub(crate) fn start(home: &Home, role: &str) -> Player {
        Player::start_with(Command::new(std::env::current_exe().unwrap()), home, role)
    }

    /// As `start`, through a command that runs its arguments.
    pub(crate) fn start_with(mut command: Command, home: &Home, role: &str) -> Player {
        command.args(["a_child_plays_its_role", "--exact", "--nocapture", "--test-threads=1"]);
        command.env(ROLE, role).env(HOME, home.path()).env(POOL, home.pool());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        let input = child.stdin.take().unwrap();
        Player { child, lines, input }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What the child says next; an empty text if it ended without a word.
    pub(crate) fn hear(&mut self) -> String {
        loop {
            let mut line = String::new();
            if self.lines.read_line(&mut line).unwrap() == 0 {
                return String::new();
            }
            if let Some((_, said)) = line.split_once("@@ ") {
                return said.trim_end().to_owned();
            }
        }
    }

    pub(crate) fn go_on(&mut self) {
        self.input.write_all(b"\n").unwrap();
    }

    /// SIGKILL, and waits for the end.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// The signal that ended it.
    pub(crate) fn signal(mut self) -> Option<i32> {
        std::os::unix::process::ExitStatusExt::signal(&self.child.wait().unwrap())
    }

    pub(crate) fn finish(mut self) {
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}");
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        // Both fail if the child was waited for, which is fine.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
