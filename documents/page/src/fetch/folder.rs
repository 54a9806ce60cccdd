//! A folder as a page: its `index.html`, or a list of what is in it.
//!
//! Invariant: the same folder gives the same bytes, so that the list is found in the cache until
//! something in the folder changes.

use std::fmt::Write as _;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::UNIX_EPOCH;

use blitz_traits::net::Url;
use holdfast_sys::terminal::Shown;

use crate::fetch::files::read_file;

/// Names in a list; what is more is counted.
const NAMES_MAX: usize = 10_000;
/// Names that are looked at to find the first of them.
const LOOKED_AT_MAX: usize = 1_000_000;
const INDEX: &str = "index.html";

/// The page of a folder.
pub(super) fn page_of(folder: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let index = folder.join(INDEX);
    if index.is_file() {
        return read_file(&index, bytes_max);
    }
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(folder)?.take(LOOKED_AT_MAX) {
        entries.push(Entry::of(&entry?));
    }
    Ok(list(folder, entries).into_bytes())
}

/// What is in a folder.
#[derive(Debug)]
struct Entry {
    name: std::ffi::OsString,
    is_folder: bool,
    bytes: u64,
    changed_s: u64,
}

impl Entry {
    fn of(entry: &std::fs::DirEntry) -> Entry {
        // Behind a link is what counts; a link to nothing is listed all the same.
        let about = std::fs::metadata(entry.path()).ok();
        let changed = about.as_ref().and_then(|about| about.modified().ok());
        Entry {
            name: entry.file_name(),
            is_folder: about.as_ref().is_some_and(std::fs::Metadata::is_dir),
            bytes: about.as_ref().map_or(0, std::fs::Metadata::len),
            changed_s: changed
                .and_then(|changed| changed.duration_since(UNIX_EPOCH).ok())
                .map_or(0, |since| since.as_secs()),
        }
    }
}

/// From the year 10000 on, in seconds since 1970, there is no way to write a time.
pub(crate) const TIME_END_S: u64 = 253_402_300_800;
const STYLE: &str = "body { font-family: sans-serif; margin: 1.5em } table { border-spacing: 0 } \
td, th { padding: .2em 1.5em .2em 0; text-align: left; white-space: nowrap } .n { text-align: right } \
a { text-decoration: none } p { color: #555 }";

fn list(folder: &Path, mut entries: Vec<Entry>) -> String {
    // Folders first, each in the order of their bytes, which is the same on every machine.
    entries.sort_by(|one, other| {
        other.is_folder.cmp(&one.is_folder).then_with(|| one.name.cmp(&other.name))
    });
    let (hidden, seen): (Vec<Entry>, Vec<Entry>) =
        entries.into_iter().partition(|entry| entry.name.as_bytes().starts_with(b"."));
    let title = escaped(&folder.display().to_string());
    let mut page = format!(
        "<!doctype html><meta charset=utf-8><title>{title}</title><style>{STYLE}</style><h1>{title}</h1>\n\
         <table><tr><th>name<th class=n>bytes<th>changed (UTC)\n"
    );
    if folder.parent().is_some() {
        page.push_str("<tr><td><a href=\"../\">../</a><td><td>\n");
    }
    for entry in seen.iter().take(NAMES_MAX) {
        let name =
            format!("{}{}", entry.name.to_string_lossy(), if entry.is_folder { "/" } else { "" });
        let is_written = entry.changed_s < TIME_END_S;
        let changed =
            is_written.then(|| UNIX_EPOCH + std::time::Duration::from_secs(entry.changed_s));
        let changed = changed.map_or_else(String::new, |changed| {
            let text = humantime::format_rfc3339_seconds(changed).to_string();
            text.trim_end_matches('Z').replace('T', " ")
        });
        let bytes = if entry.is_folder { String::new() } else { entry.bytes.to_string() };
        let _ = writeln!(
            page,
            "<tr><td><a href=\"{}\">{}</a><td class=n>{bytes}<td>{changed}",
            escaped(&href(folder, entry)),
            escaped(&name)
        );
    }
    page.push_str("</table>\n");
    if seen.is_empty() {
        page.push_str("<p>There is nothing here.\n");
    }
    if seen.len() > NAMES_MAX {
        let _ = writeln!(page, "<p>And {} more.", seen.len() - NAMES_MAX);
    }
    if !hidden.is_empty() {
        let _ = writeln!(page, "<p>{} hidden.", hidden.len());
    }
    page
}

/// An address relative to the folder, as any bytes can be in a name.
fn href(folder: &Path, entry: &Entry) -> String {
    let path = folder.join(&entry.name);
    let url =
        if entry.is_folder { Url::from_directory_path(&path) } else { Url::from_file_path(&path) };
    url.map_or_else(|()| String::new(), |url| url.path().to_owned())
}

/// A text in HTML; what would steer a terminal or the order of the letters shows as its number.
fn escaped(text: &str) -> String {
    let shown = Shown(text).to_string();
    shown.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use super::*;

    /// A directory listing is the same each time, and file names in it cannot act as markup.
    ///
    /// Guarantee: pages/terminal
    #[test]
    fn folder_list_is_stable_and_escaped() {
        let folder = tempfile::tempdir().unwrap();
        for name in
            ["b.txt", "a & b.html", "<b>&lt;.html", "\u{1b}]0;x\u{7}", "\u{202e}x", ".hidden"]
        {
            std::fs::write(folder.path().join(name), "12345").unwrap();
        }
        std::fs::create_dir(folder.path().join("z")).unwrap();
        let of_bytes = std::ffi::OsStr::from_bytes(b"\xff.html");
        std::fs::write(folder.path().join(of_bytes), "").unwrap();
        let listed = String::from_utf8(page_of(folder.path(), 1 << 20).unwrap()).unwrap();
        assert_eq!(listed.as_bytes(), page_of(folder.path(), 1 << 20).unwrap());
        for there in [
            "z/\">z/</a>",
            "a%20&amp;%20b.html\">a &amp; b.html<",
            "&lt;b&gt;&amp;lt;.html<",
            "%FF.html",
            ">5<",
            "1 hidden",
        ] {
            assert!(listed.contains(there), "{there}: {listed}");
        }
        assert!(!listed.contains(['\u{1b}', '\u{202e}']) && !listed.contains("<b>"), "{listed}");
        let places: Vec<usize> =
            ["z/</a>", "a &amp; b", "b.txt<"].map(|name| listed.find(name).unwrap()).to_vec();
        assert!(places.is_sorted(), "{listed}");
        std::fs::write(folder.path().join(INDEX), "<p>index").unwrap();
        assert_eq!(page_of(folder.path(), 1 << 20).unwrap(), b"<p>index");
    }
}
