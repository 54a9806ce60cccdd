//! Names the build: a kept picture is that of one build; another build makes it anew.
//! What draws is this crate's source, that of the parser, and the versions and features of what
//! they link.

#[path = "build/sum.rs"]
mod sum;

use std::path::Path;

fn main() {
    let manifests =
        ["../../Cargo.lock", "../../Cargo.toml", "../dom/Cargo.toml", "Cargo.toml"].map(Path::new);
    let folders = ["src", "../dom/src"].map(Path::new);
    let variables =
        ["TARGET", "PROFILE", "OPT_LEVEL"].map(|name| std::env::var(name).unwrap_or_default());
    let (sum, files) = sum::of(&manifests, &folders, &variables);
    for file in files.iter().map(|file| file.as_path()).chain(folders) {
        println!("cargo::rerun-if-changed={}", file.display());
    }
    println!("cargo::rerun-if-changed=build");
    println!("cargo::rustc-env=HOLDFAST_PAGE_BUILD={sum:016x}");
}
