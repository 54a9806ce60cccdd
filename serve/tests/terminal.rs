//! The question on the controlling terminal, which `script` (util-linux) makes.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::client::Page;
use crate::program::within;
use crate::served::Home;

/// A server in a terminal.
struct Terminal {
    script: Child,
    keys: ChildStdin,
    shown: Arc<Mutex<String>>,
}

impl Terminal {
    fn start(home: &Home) -> Terminal {
        let program = env!("CARGO_BIN_EXE_holdfast-serve");
        let command = format!("exec {program} --web {}", home.web().display());
        let mut script = Command::new("script");
        script.args(["-qfec", &command, "/dev/null"]);
        script.env("HOLDFAST_HOME", home.home()).env("HOLDFAST_POOL", home.pool());
        let mut script = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (keys, mut screen) = (script.stdin.take().unwrap(), script.stdout.take().unwrap());
        let shown = Arc::new(Mutex::new(String::new()));
        let text = Arc::clone(&shown);
        thread::spawn(move || {
            let mut bytes = [0; 1000];
            while let Ok(count @ 1..) = screen.read(&mut bytes) {
                text.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        });
        Terminal { script, keys, shown }
    }

    fn shown(&self) -> String {
        self.shown.lock().unwrap().clone()
    }

    fn port(&self) -> u16 {
        within(|| self.shown().contains("/\r\n"));
        let shown = self.shown();
        let rest = shown.split_once("http://127.0.0.1:").unwrap().1;
        rest.split_once('/').unwrap().0.parse().unwrap()
    }

    fn type_in(&mut self, text: &str) {
        self.keys.write_all(text.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    /// What a page of this origin is answered when the user types this at the question.
    fn ask(&mut self, port: u16, origin: &str, typed: &str) -> u16 {
        let page = Page::of(port, origin);
        let asked = thread::spawn(move || page.ask_token().status);
        let question = format!("allow {origin} to run native applets here? [y/N]");
        within(|| self.shown().contains(&question));
        self.type_in(typed);
        asked.join().unwrap()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // The server of a terminal that is gone gets a SIGHUP.
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

/// The user is asked once about an origin; a yes is remembered, and only an answer to the question
/// counts.
///
/// Guarantee: serve/consent
#[test]
fn user_is_asked_on_the_terminal() {
    let home = Home::new();
    let mut terminal = Terminal::start(&home);
    let port = terminal.port();
    terminal.type_in("y\n");
    within(|| terminal.shown().contains("y\r\n"));
    assert_eq!(terminal.ask(port, "https://early.example", "\n"), 403, "typed before the question");
    assert_eq!(terminal.ask(port, "https://good.example", "y\n"), 200);
    assert_eq!(terminal.ask(port, "https://bad.example", "n\n"), 403);
    let questions = terminal.shown().matches("[y/N]").count();
    for (origin, status) in [("https://good.example", 200), ("https://bad.example", 403)] {
        assert_eq!(Page::of(port, origin).ask_token().status, status);
    }
    assert_eq!(Page::of(port, "http://open.example").ask_token().status, 403);
    assert_eq!(terminal.shown().matches("[y/N]").count(), questions);
    let record = holdfast_serve::OriginRecord::of(&home.places());
    let known: Vec<String> = record.list().unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(known, ["https://good.example"]);
}
