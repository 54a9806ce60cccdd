//! Runs the plain Python that applets are compared with.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Runs a script that can import the `reference.py` of an applet; returns what it prints. `None`,
/// and that is said, where there is no Python.
pub(crate) fn run(applet: &str, script: &str, input: &str) -> Option<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../applets").join(applet);
    let child = Command::new("python3")
        .args(["-B", "-c", script])
        .env("PYTHONPATH", folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        println!("not run: {applet} in Python, since there is no python3");
        return None;
    };
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success(), "the script for {applet} ended with {}", output.status);
    Some(String::from_utf8(output.stdout).unwrap())
}
