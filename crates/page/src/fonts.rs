//! Which fonts there are, and which file a font came from.
//!
//! A page is laid out with the fonts that are there: one more or one less can change every line. So an entry keeps the state of the
//! folders of fonts, and of each font that it uses the file and its sum.

use std::collections::BTreeSet;
use std::hash::Hasher;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use crate::loader::read_file;

/// Folders that are looked into.
const FOLDERS_MAX: usize = 10_000;
/// Bytes of a font.
pub(crate) const FONT_BYTES_MAX: u64 = 256 << 20;

/// The folders of fonts and the files that say which they are.
pub(crate) struct Folders {
    roots: Vec<PathBuf>,
    configurations: Vec<PathBuf>,
}

impl Folders {
    /// As the system's configuration has them.
    pub(crate) fn of_system() -> Folders {
        Folders::from(|name| std::env::var_os(name).map(PathBuf::from))
    }

    fn from(variable: impl Fn(&str) -> Option<PathBuf>) -> Folders {
        let home = variable("HOME").unwrap_or_default();
        let data = variable("XDG_DATA_HOME").unwrap_or_else(|| home.join(".local/share"));
        let settings = variable("XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config"));
        let file = variable("FONTCONFIG_FILE").unwrap_or_else(|| PathBuf::from("/etc/fonts/fonts.conf"));
        let text = read_file(&file, 1 << 20).unwrap_or_default();
        let mut roots = named_folders(&String::from_utf8_lossy(&text), &home, &data);
        if roots.is_empty() {
            roots = ["/usr/share/fonts", "/usr/local/share/fonts"].map(PathBuf::from).to_vec();
            roots.extend([data.join("fonts"), home.join(".fonts")]);
        }
        let beside = file.parent().map(|folder| folder.join("conf.d"));
        let own = settings.join("fontconfig");
        let configurations =
            std::iter::once(file).chain(beside).chain([own.join("fonts.conf"), own.join("conf.d")]);
        Folders { roots, configurations: configurations.collect() }
    }

    /// A number that changes when a font comes, goes or is replaced, or the configuration changes.
    pub(crate) fn stamp(&self) -> u64 {
        let mut sum = Xxh3::new();
        let mut add = |path: &Path| {
            let Ok(about) = std::fs::metadata(path) else { return };
            sum.write(path.as_os_str().as_bytes());
            sum.write_i64(about.mtime());
            sum.write_i64(about.mtime_nsec());
        };
        self.configurations.iter().for_each(|path| add(path));
        self.all().iter().for_each(|path| add(path));
        sum.finish()
    }

    /// The folders and all below them.
    fn all(&self) -> BTreeSet<PathBuf> {
        let mut found = BTreeSet::new();
        let mut next = self.roots.clone();
        while let Some(folder) = next.pop() {
            if found.len() >= FOLDERS_MAX || found.contains(&folder) {
                continue;
            }
            let Ok(entries) = std::fs::read_dir(&folder) else { continue };
            // No links: they can lead in a circle. The fonts in what they lead to are the library's to find.
            let below = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            next.extend(below.map(|entry| entry.path()));
            found.insert(folder);
        }
        found
    }

    /// The file that has these bytes, if one has.
    pub(crate) fn find(&self, bytes: &[u8]) -> Option<PathBuf> {
        for folder in self.all() {
            let Ok(entries) = std::fs::read_dir(folder) else { continue };
            for path in entries.flatten().map(|entry| entry.path()) {
                let same_size = std::fs::metadata(&path)
                    .is_ok_and(|about| about.is_file() && about.len() == bytes.len() as u64);
                if same_size && read_file(&path, FONT_BYTES_MAX).is_ok_and(|there| there == bytes) {
                    return Some(path);
                }
            }
        }
        None
    }

    /// Whether there is any font at all.
    pub(crate) fn has_fonts(&self) -> bool {
        let is_font = |path: &Path| {
            let extension = path.extension().unwrap_or_default().to_ascii_lowercase();
            ["ttf", "otf", "ttc", "otc"].iter().any(|known| extension == *known)
        };
        self.all().iter().any(|folder| {
            std::fs::read_dir(folder)
                .is_ok_and(|mut entries| entries.any(|entry| entry.is_ok_and(|entry| is_font(&entry.path()))))
        })
    }
}

/// The folders in a configuration: `<dir>/usr/share/fonts</dir>`, `<dir prefix="xdg">fonts</dir>`, `<dir>~/.fonts</dir>`.
fn named_folders(text: &str, home: &Path, data: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for piece in text.split("<dir").skip(1) {
        let Some((attributes, rest)) = piece.split_once('>') else { continue };
        let Some((name, _)) = rest.split_once("</dir>") else { continue };
        let name = name.trim();
        found.push(match name.strip_prefix("~/") {
            Some(below) => home.join(below),
            None if attributes.contains("xdg") => data.join(name),
            None => PathBuf::from(name),
        });
    }
    found
}

/// Where a font of an entry is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FontPlace {
    /// In a file, whose time of change was this.
    File { path: PathBuf, changed_ns: u64 },
    /// In the entry, from here on: one that the page brought with it.
    Entry { at: u64 },
}

/// A font that an entry uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FontRecord {
    pub(crate) hash: u128,
    pub(crate) bytes: u64,
    pub(crate) place: FontPlace,
}

impl FontRecord {
    /// Of a font in a file.
    pub(crate) fn of_file(path: PathBuf, bytes: &[u8]) -> FontRecord {
        let changed_ns = changed_ns(&path);
        FontRecord {
            hash: xxh3_128(bytes),
            bytes: bytes.len() as u64,
            place: FontPlace::File { path, changed_ns },
        }
    }

    /// Of a font that is kept with the page.
    pub(crate) fn of_entry(at: u64, bytes: &[u8]) -> FontRecord {
        FontRecord { hash: xxh3_128(bytes), bytes: bytes.len() as u64, place: FontPlace::Entry { at } }
    }

    /// Whether the file is the one that it was, as far as can be told without reading it; else it is read.
    pub(crate) fn is_there(&self) -> bool {
        let FontPlace::File { path, changed_ns: then } = &self.place else { return true };
        let same = std::fs::metadata(path).is_ok_and(|about| about.is_file() && about.len() == self.bytes);
        same && (changed_ns(path) == *then || self.read(path).is_some())
    }

    /// The bytes of the file, if they are what they were.
    pub(crate) fn read(&self, path: &Path) -> Option<Vec<u8>> {
        let bytes = read_file(path, FONT_BYTES_MAX).ok()?;
        (bytes.len() as u64 == self.bytes && xxh3_128(&bytes) == self.hash).then_some(bytes)
    }
}

fn changed_ns(path: &Path) -> u64 {
    let about = std::fs::metadata(path);
    about.map_or(0, |about| {
        (about.mtime() as u64).wrapping_mul(1_000_000_000).wrapping_add(about.mtime_nsec() as u64)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folders_of_a_configuration_are_found() {
        let text = r#"<fontconfig><dir>/usr/share/fonts</dir> <dir prefix="xdg">fonts</dir><dir>~/.fonts</dir></fontconfig>"#;
        let found = named_folders(text, Path::new("/home/a"), Path::new("/home/a/data"));
        let wanted = ["/usr/share/fonts", "/home/a/data/fonts", "/home/a/.fonts"].map(PathBuf::from);
        assert_eq!(found, wanted);
    }

    #[test]
    fn the_stamp_changes_when_a_font_comes_or_goes() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("fonts.conf");
        let fonts = folder.path().join("fonts/below");
        std::fs::create_dir_all(&fonts).unwrap();
        std::fs::write(&file, format!("<dir>{}</dir>", folder.path().join("fonts").display())).unwrap();
        let folders = || Folders::from(|name| (name == "FONTCONFIG_FILE").then(|| file.clone()));
        let before = folders().stamp();
        assert_eq!(before, folders().stamp());
        assert!(!folders().has_fonts());
        std::fs::write(fonts.join("a.ttf"), b"a font").unwrap();
        let after = folders().stamp();
        assert_ne!(before, after);
        assert!(folders().has_fonts());
        assert_eq!(folders().find(b"a font"), Some(fonts.join("a.ttf")));
        assert_eq!(folders().find(b"a fond"), None);
    }
}
