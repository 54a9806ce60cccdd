//! Names the build: a kept picture is that of one build, and whoever has another makes it anew. What draws is this crate's source,
//! that of the parser, and the versions and features of what they link.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};

fn main() {
    let manifests = ["../../Cargo.lock", "../../Cargo.toml", "../dom/Cargo.toml", "Cargo.toml"];
    let mut files = manifests.map(PathBuf::from).to_vec();
    collect(Path::new("src"), &mut files);
    collect(Path::new("../dom/src"), &mut files);
    files.sort();
    let mut hasher = DefaultHasher::new();
    for file in &files {
        println!("cargo::rerun-if-changed={}", file.display());
        let bytes =
            std::fs::read(file).unwrap_or_else(|error| panic!("cannot read {}: {error}", file.display()));
        (file, bytes).hash(&mut hasher);
    }
    for variable in ["TARGET", "PROFILE", "OPT_LEVEL"] {
        std::env::var(variable).unwrap_or_default().hash(&mut hasher);
    }
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rerun-if-changed=../dom/src");
    println!("cargo::rustc-env=HOLDFAST_PAGE_BUILD={:016x}", hasher.finish());
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let entries =
        std::fs::read_dir(folder).unwrap_or_else(|error| panic!("cannot list {}: {error}", folder.display()));
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}
