//! The pages of a folder: its HTML files and those of the folders in it, sorted.
//!
//! Links are followed as long as they stay in the folder; what is hidden is left out unless it is
//! asked for.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use walkdir::{DirEntry, WalkDir};

/// Files that are looked at.
const FILES_MAX: usize = 10_000_000;
/// Bytes of a file that tell whether it is a page.
const SNIFFED: u64 = 512;
/// Sentences about what could not be looked at that are kept.
const TROUBLES_MAX: usize = 100;

/// The pages found in a folder, and how many files were left out.
#[derive(Debug, Default)]
pub(crate) struct FolderWalk {
    pub(crate) pages: Vec<PathBuf>,
    /// Hidden files and folders that were left out.
    pub(crate) hidden: u64,
    /// Links that lead out of the folder.
    pub(crate) outside: u64,
    /// What could not be looked at; not all of it is named.
    pub(crate) failed: u64,
    pub(crate) troubles: Vec<String>,
    /// There are more files than are looked at.
    pub(crate) is_cut: bool,
}

/// Looks for the pages of a folder; `None`, if it was to stop.
///
/// # Errors
/// When the folder itself cannot be read.
pub(crate) fn walk(
    root: &Path,
    with_hidden: bool,
    stop: &AtomicBool,
) -> io::Result<Option<FolderWalk>> {
    let real = root.canonicalize()?;
    // What the walk itself says of this would name the folder twice.
    std::fs::read_dir(&real)?;
    let mut walked = FolderWalk::default();
    let mut outside = 0;
    let mut hidden = 0;
    let is_taken = |entry: &DirEntry| {
        if entry.depth() == 0 {
            return true;
        }
        if !with_hidden && entry.file_name().as_encoded_bytes().starts_with(b".") {
            hidden += 1;
            return false;
        }
        let is_inside = !entry.path_is_symlink()
            || entry.path().canonicalize().is_ok_and(|target| target.starts_with(&real));
        outside += u64::from(!is_inside);
        is_inside
    };
    let files = WalkDir::new(&real)
        .follow_links(true)
        .sort_by_file_name()
        .into_iter()
        .filter_entry(is_taken);
    for (count, entry) in files.enumerate() {
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        if count == FILES_MAX {
            walked.is_cut = true;
            break;
        }
        let looked = entry.map_err(io::Error::from).and_then(|entry| {
            Ok((entry.file_type().is_file() && is_page(entry.path())?).then(|| entry.into_path()))
        });
        match looked {
            Ok(page) => walked.pages.extend(page),
            Err(error) => {
                walked.failed += 1;
                if walked.troubles.len() < TROUBLES_MAX {
                    walked.troubles.push(error.to_string());
                }
            }
        }
    }
    (walked.hidden, walked.outside) = (hidden, outside);
    Ok(Some(walked))
}

/// Whether a file is a page, as its name has it; where the name has no ending, as its first bytes
/// have it.
fn is_page(path: &Path) -> io::Result<bool> {
    match path.extension() {
        Some(extension) => {
            let extension = extension.to_ascii_lowercase();
            Ok(["html", "htm", "xhtml", "xht"]
                .iter()
                .any(|known| extension.as_encoded_bytes() == known.as_bytes()))
        }
        None => {
            let mut first = Vec::new();
            let named = |error: io::Error| {
                io::Error::new(error.kind(), format!("{}: {error}", path.display()))
            };
            File::open(path)
                .and_then(|file| file.take(SNIFFED).read_to_end(&mut first))
                .map_err(named)?;
            Ok(is_html(&first))
        }
    }
}

/// Whether bytes begin as a page does (a subset of the WHATWG's sniffing: what no text begins with
/// by chance).
pub(crate) fn is_html(first: &[u8]) -> bool {
    let text = first.strip_prefix(b"\xef\xbb\xbf").unwrap_or(first).trim_ascii_start();
    let begins =
        |mark: &[u8]| text.get(..mark.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(mark));
    [&b"<!doctype html"[..], b"<html", b"<head", b"<body", b"<title"]
        .iter()
        .any(|mark| begins(mark))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use super::*;

    /// Pages of a directory are listed in order, without hidden files and files outside it.
    ///
    /// Guarantee: pages/imports
    #[test]
    fn folder_pages_are_sorted_and_inside() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join(".folder");
        let write = |name: &str, text: &str| {
            let path = root.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        for name in [
            "b.html",
            "a/z.HTM",
            "a/y.xhtml",
            "a.html",
            "x.xht",
            "style.css",
            ".git/c.html",
            "a/.d.html",
        ] {
            write(name, "text");
        }
        write("c/start", " \n<!DOCTYPE html><p>text");
        write("c/notes", "text < text");
        std::fs::write(place.path().join("out.html"), "text").unwrap();
        let link = |to: &str, name: &str| std::os::unix::fs::symlink(to, root.join(name)).unwrap();
        link("../out.html", "out.html");
        link("..", "up");
        link("nothing", "broken.html");
        link("../b.html", "a/inside.html");
        link(".", "circle");
        let go = AtomicBool::new(false);
        let walked = walk(&root, false, &go).unwrap().unwrap();
        let names = |walked: &FolderWalk| -> Vec<String> {
            let real = root.canonicalize().unwrap();
            walked
                .pages
                .iter()
                .map(|path| path.strip_prefix(&real).unwrap().to_str().unwrap().to_owned())
                .collect()
        };
        let expected =
            ["a/inside.html", "a/y.xhtml", "a/z.HTM", "a.html", "b.html", "c/start", "x.xht"];
        assert_eq!(names(&walked), expected);
        assert_eq!((walked.hidden, walked.outside, walked.failed), (2, 2, 2), "{walked:?}");
        let all = walk(&root, true, &go).unwrap().unwrap();
        assert!(
            names(&all).contains(&".git/c.html".to_owned())
                && names(&all).contains(&"a/.d.html".to_owned())
        );
        assert!(walk(&place.path().join("nothing"), false, &go).is_err());
        assert!(walk(&root, false, &AtomicBool::new(true)).unwrap().is_none());
    }

    #[test]
    fn bytes_are_a_page_as_they_begin() {
        for page in ["<!doctype HTML>", "\u{feff}<html lang=en>", "\r\n\t<HEAD>", "<title>"] {
            assert!(is_html(page.as_bytes()), "{page}");
        }
        for other in ["", "<", "text <html>", "<?xml version='1.0'?>", "<svg>", "%PDF"] {
            assert!(!is_html(other.as_bytes()), "{other}");
        }
    }
}
