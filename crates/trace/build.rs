//! Compiles the programs of the BPF backend, where clang is there. Without it the crate is built without the backend, which says
//! so when it is asked for.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo:rustc-check-cfg=cfg(bpf_programs)");
    println!("cargo:rerun-if-changed=bpf");
    println!("cargo:rerun-if-env-changed=CLANG");
    println!("cargo:rerun-if-env-changed=PATH");
    let is_wanted = env::var_os("CARGO_FEATURE_BPF").is_some()
        && env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|target| target == "x86_64");
    // `libbpf-sys` tells where it has put the headers of its library.
    if let Some(headers) = env::var_os("DEP_BPF_INCLUDE")
        && let Some(folder) = env::var_os("OUT_DIR")
        && is_wanted
        && compile(Path::new(&headers), &PathBuf::from(folder).join("trace.bpf.o"))
    {
        println!("cargo:rustc-cfg=bpf_programs");
    }
}

/// Whether there is a compiler. What it does not compile is an error of the build.
fn compile(headers: &Path, object: &Path) -> bool {
    let clang = env::var_os("CLANG").unwrap_or_else(|| "clang".into());
    let mut command = Command::new(&clang);
    command.args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-I"]);
    command.arg(headers).args(["-c", "bpf/trace.bpf.c", "-o"]).arg(object);
    match command.output() {
        Ok(output) if output.status.success() => true,
        Ok(output) => panic!("{}: {}", clang.display(), String::from_utf8_lossy(&output.stderr)),
        Err(error) => {
            println!(
                "cargo:warning=the BPF backend of `holdfast trace` is left out, as {} cannot be run: {error}",
                clang.display()
            );
            false
        }
    }
}
