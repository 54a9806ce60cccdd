//! `holdfast run` and `holdfast call` with an applet on a server.

use std::process::Command;

use holdfast_testkit::Programs;

use crate::client::sha256;
use crate::served::{Home, applet};

/// The command runs an applet by its address and hash, also when its server is gone; and nothing
/// that has another hash, or none.
///
/// Guarantee: serve/pinned
#[test]
fn command_runs_a_pinned_applet() {
    let (home, program) = (Home::new(), applet("echo"));
    std::fs::write(home.web().join("echo"), &program).unwrap();
    let served = home.serve();
    let address = format!("http://127.0.0.1:{}/echo", served.port);
    let call = |address: &str| {
        let mut command = Command::new(Programs::find().unwrap().holdfast());
        command.env("HOLDFAST_HOME", home.home()).env("HOLDFAST_POOL", home.pool());
        let output = command.args(["call", address, "reverse", "abc"]).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), error)
    };
    let (code, _, error) = call(&address);
    assert!(code == Some(2) && error.contains("#sha256="), "{error}");
    let wrong = "0".repeat(64);
    let (code, _, error) = call(&format!("{address}#sha256={wrong}"));
    assert!(code == Some(126) && error.contains(&wrong), "{error}");
    assert!(error.contains(&sha256(&program)), "{error}");
    let (code, _, error) = call(&format!("http://127.0.0.1:{}/gone#sha256={wrong}", served.port));
    assert!(code == Some(127) && error.contains("404"), "{error}");
    let (code, _, error) = call(&format!("http://example.org/echo#sha256={wrong}"));
    assert!(code == Some(2) && error.contains("https:"), "{error}");
    let pinned = format!("{address}#sha256={}", sha256(&program));
    let (code, said, error) = call(&pinned);
    assert_eq!((code, said.as_str()), (Some(0), "cba"), "{error}");
    served.stop();
    assert_eq!(call(&pinned).0, Some(0), "kept by its hash");
    let kept = home.home().join("applets").join(sha256(&program));
    std::fs::remove_file(&kept).unwrap();
    std::fs::write(&kept, applet("trial")).unwrap();
    assert_eq!(call(&pinned).0, Some(127), "a changed file of the cache is not used");
}
