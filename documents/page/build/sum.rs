//! The sum of source files: another one for each other file, name or byte.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};

/// The sum of these files, of all sources in these folders, and of these words; and which files
/// that are.
pub(crate) fn of(files: &[&Path], folders: &[&Path], words: &[String]) -> (u64, Vec<PathBuf>) {
    let mut all: Vec<PathBuf> = files.iter().map(|file| file.to_path_buf()).collect();
    folders.iter().for_each(|folder| collect(folder, &mut all));
    all.sort();
    let mut hasher = DefaultHasher::new();
    for file in &all {
        let bytes = std::fs::read(file)
            .unwrap_or_else(|error| panic!("cannot read {}: {error}", file.display()));
        (file, bytes).hash(&mut hasher);
    }
    words.hash(&mut hasher);
    (hasher.finish(), all)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("cannot list {}: {error}", folder.display()));
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs" || extension == "css")
        {
            files.push(path);
        }
    }
}
