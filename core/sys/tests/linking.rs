//! The promises of a statically linked program, as `cargo xtask release` links the command: no
//! loader is there to be asked.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds the example with these flags, in a folder of its own; its dependencies are few.
fn built(name: &str, flags: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "-p", "holdfast-sys", "--example", "own_program"]);
    command.current_dir(env!("CARGO_MANIFEST_DIR")).env("CARGO_TARGET_DIR", &target);
    command.env("CARGO_ENCODED_RUSTFLAGS", flags);
    assert!(command.status().is_ok_and(|status| status.success()), "{command:?}");
    target.join("debug/examples/own_program")
}

/// A command that does not find itself cannot compile WebAssembly.
#[test]
fn a_static_program_finds_its_own_code() {
    let program = built("static", "-Ctarget-feature=+crt-static");
    assert!(Command::new(program).status().unwrap().success());
}
