//! The program `holdfast-serve`, with its processes.

use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::client::Page;
use crate::served::Home;

pub(crate) struct Program {
    pub(crate) child: Child,
    pub(crate) port: u16,
}

impl Program {
    pub(crate) fn command(home: &Home) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast-serve"));
        command.env("HOLDFAST_HOME", home.home()).env("HOLDFAST_POOL", home.pool());
        command.stdin(Stdio::null());
        command
    }

    pub(crate) fn start(home: &Home, arguments: &[&str]) -> Program {
        Program::start_telling(home, arguments, Stdio::inherit())
    }

    /// With what it tells the user.
    pub(crate) fn start_telling(home: &Home, arguments: &[&str], told: Stdio) -> Program {
        let mut command = Program::command(home);
        command.stderr(told);
        command
            .arg("--web")
            .arg(home.web())
            .arg("--never-ask")
            .args(arguments)
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let port = line.trim().strip_prefix("http://127.0.0.1:").unwrap();
        let port = port.strip_suffix('/').unwrap().parse().unwrap();
        Program { child, port }
    }

    pub(crate) fn own(&self) -> Page {
        Page::own(self.port)
    }

    /// Processes below it.
    pub(crate) fn descendants(&self) -> HashSet<u32> {
        let (mut found, mut left) = (HashSet::new(), vec![self.child.id()]);
        while let Some(pid) = left.pop() {
            let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { continue };
            for task in tasks.flatten() {
                let text = std::fs::read_to_string(task.path().join("children"));
                for child in text.unwrap_or_default().split_whitespace() {
                    let child = child.parse().unwrap();
                    if found.insert(child) {
                        left.push(child);
                    }
                }
            }
        }
        found
    }

    /// Sends a signal, and returns the exit code.
    pub(crate) fn end_with(mut self, signal: rustix::process::Signal) -> Option<i32> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
        self.child.wait().unwrap().code()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How long it takes until something holds; panics after 10 s.
pub(crate) fn within(mut holds: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(10), "it does not come to it");
        std::thread::sleep(Duration::from_millis(2));
    }
    start.elapsed()
}
