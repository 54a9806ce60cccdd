//! Compiles the programs of the BPF backend, where clang is there. Without it the crate is built
//! without the backend, which says so when it is asked for.

#[path = "build/clang.rs"]
mod clang;

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use clang::Compiled;

fn main() {
    println!("cargo:rustc-check-cfg=cfg(bpf_programs)");
    println!("cargo:rerun-if-changed=bpf");
    println!("cargo:rerun-if-changed=build");
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
        link_what_libelf_needs();
    }
}

/// Newer releases of libelf unpack sections with zstd, which a program that is linked statically
/// has to bring along. (What names a library before the one that needs it is enough for lld, Rust's
/// linker on x86-64.)
fn link_what_libelf_needs() {
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");
    let features = env::var("CARGO_CFG_TARGET_FEATURE").unwrap_or_default();
    if !features.split(',').any(|feature| feature == "crt-static") {
        return;
    }
    let pkg_config = env::var_os("PKG_CONFIG").unwrap_or_else(|| "pkg-config".into());
    // Without an answer the linker has the last word.
    let answer = Command::new(pkg_config).args(["--static", "--libs", "libelf"]).output();
    if answer.is_ok_and(|answer| {
        String::from_utf8_lossy(&answer.stdout).split_whitespace().any(|word| word == "-lzstd")
    }) {
        println!("cargo:rustc-link-lib=zstd");
    }
}

/// Whether there is a compiler. What it does not compile is an error of the build.
fn compile(headers: &Path, object: &Path) -> bool {
    let clang = env::var_os("CLANG").unwrap_or_else(|| "clang".into());
    match clang::compile(&clang, headers, Path::new("bpf/trace.bpf.c"), object) {
        Compiled::Done => true,
        Compiled::Refused(why) => panic!("{}: {why}", clang.display()),
        Compiled::NoCompiler(error) => {
            println!(
                "cargo:warning=the BPF backend of `holdfast trace` is left out, as {} cannot be run: {error}",
                clang.display()
            );
            false
        }
    }
}
