//! `holdfast trace --watch` on a terminal: a pseudo-terminal of `script(1)`, at whose other end the
//! test reads and types.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use holdfast_testkit::Scratch;

use crate::scratch;
use crate::trace::{backends, until};

const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
/// Where each screen begins.
const HOME: &str = "\x1b[H";
const COLUMNS: usize = 90;
const ROWS: usize = 20;

/// A shell on a terminal.
struct Terminal {
    script: Child,
    keys: ChildStdin,
    shown: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    /// None without `script`.
    fn open(scratch: &Scratch, work: &str) -> Option<Terminal> {
        let mut command = Command::new("script");
        command.args(["--quiet", "--return", "--flush", "--command", work, "/dev/null"]);
        command.env("HOLDFAST_HOME", scratch.home()).env("HOLDFAST_POOL", scratch.pool());
        command
            .env("HOLDFAST", scratch.programs().holdfast())
            .env("SHELL", "/bin/sh")
            .env("TERM", "xterm");
        command.env_remove("NO_COLOR").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut script = match command.spawn() {
            Ok(script) => script,
            Err(error) => {
                println!("not run: script(1), which makes terminals, cannot be run: {error}");
                return None;
            }
        };
        let shown = Arc::new(Mutex::new(Vec::new()));
        let (mut output, more) = (script.stdout.take().unwrap(), Arc::clone(&shown));
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                more.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .extend_from_slice(&bytes[..count]);
            }
        });
        let keys = script.stdin.take().unwrap();
        Some(Terminal { script, keys, shown })
    }

    /// All that came to the terminal so far.
    fn shown(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().unwrap_or_else(PoisonError::into_inner))
            .into_owned()
    }

    fn type_key(&mut self, key: u8) {
        self.keys.write_all(&[key]).unwrap();
        self.keys.flush().unwrap();
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Its terminal hangs up on all that run on it.
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

/// The screens that were drawn in full; each lasts until the next one.
fn screens(shown: &str) -> Vec<&str> {
    let mut screens: Vec<_> = shown.split(HOME).skip(1).collect();
    screens.pop();
    screens
}

/// How many calls a screen says there were.
fn calls(screen: &str) -> u64 {
    let words = screen.split_once(" calls ").expect("a number of calls").0;
    let number = words.rsplit(' ').next().unwrap();
    number.replace(',', "").parse().expect("a number")
}

/// A trace is watched on a terminal, which is restored after an interrupt.
///
/// Guarantee: trace/watch
#[test]
fn interrupted_watch_restores_the_terminal() {
    let scratch = scratch();
    for backend in backends(&scratch) {
        // The shell between the terminal and the command stays, to say what became of both.
        let work = format!(
            "trap : INT; stty cols {COLUMNS} rows {ROWS}; echo before $(stty -g); \
             $HOLDFAST trace run --watch --backend {backend} -- sh -c 'while :; do echo of the program; sleep 0.02; done'; \
             echo after $? $(stty -g)"
        );
        let Some(mut terminal) = Terminal::open(&scratch, &work) else { return };
        until("a second screen", || {
            let shown = terminal.shown();
            let screens = screens(&shown);
            screens.len() > 1 && calls(screens[screens.len() - 1]) > calls(screens[0])
        });
        // An interrupt, to all in the foreground.
        terminal.type_key(3);
        until("the end", || terminal.shown().contains("after "));
        until("the shell's end", || terminal.script.try_wait().unwrap().is_some());
        let shown = terminal.shown();
        let (before, rest) = shown.split_once(ENTER).expect("another screen");
        let (drawn, after) = rest.split_once(LEAVE).expect("the first screen again");
        for screen in drawn.split(HOME).skip(1) {
            assert!(screen.split("\r\n").count() <= ROWS, "{screen:?}");
            assert!(
                screen.contains("% of calls") && !screen.contains("of the program"),
                "{screen:?}"
            );
        }
        assert!(!after.contains(HOME) && !after.contains(ENTER), "{after:?}");
        assert!(
            after.contains("System calls by class") && after.contains("clock_nanosleep"),
            "{after}"
        );
        let said = |text: &str, word: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(word)).map(str::trim);
            line.map(str::to_owned).unwrap_or_else(|| panic!("no {word} in {text}"))
        };
        let settings = said(before, "before ");
        assert_eq!(said(after, "after "), format!("130 {settings}"));
    }
}
