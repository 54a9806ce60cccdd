//! The fonts of this machine, and the file of each.
//!
//! A page is laid out with the fonts that are there: one more or one less can change every line. So
//! an entry keeps the state of the folders of fonts, and of each font that it uses the file and its
//! sum. What a folder that is not looked into has counts as brought by the page, and is never
//! looked at again: so every folder that fontconfig looks into is to be in here.

use std::cell::{Cell, OnceCell};
use std::collections::{BTreeMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::hash::Hasher;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread::{Builder, JoinHandle};

use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, openat};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use crate::fetch::read_file;

/// Folders that are looked into.
const FOLDERS_MAX: usize = 10_000;
/// Bytes of a font.
pub(crate) const FONT_BYTES_MAX: u64 = 256 << 20;

/// Files of fontconfig that are looked at.
const CONFIGURATIONS_MAX: usize = 2_000;
/// Bytes of a file of fontconfig.
const CONFIGURATION_BYTES_MAX: u64 = 1 << 20;
/// What fontconfig takes the languages of the user from, and where else it looks: other fonts are
/// chosen with another value.
const VARIABLES: [&str; 6] =
    ["FC_LANG", "LC_ALL", "LC_CTYPE", "LANG", "FONTCONFIG_PATH", "FONTCONFIG_SYSROOT"];

/// The folders of fonts and the files that say which they are.
pub(crate) struct FontFolders {
    roots: Vec<PathBuf>,
    configurations: Vec<PathBuf>,
    /// Of [`VARIABLES`]; empty, where there is none.
    variables: Vec<PathBuf>,
}

/// The folders of fonts, with their stamp when they were looked at: a thread looks while the page
/// and the cache are read, since there are some hundred files and folders to ask for.
pub(crate) struct FontsAhead {
    thread: Cell<Option<JoinHandle<(FontFolders, u64)>>>,
    found: OnceCell<StampedFolders>,
}

/// Folders of fonts, and what their stamp was.
pub(crate) struct StampedFolders {
    folders: FontFolders,
    stamp: u64,
}

impl FontsAhead {
    /// Begins to look.
    pub(crate) fn begin() -> FontsAhead {
        let look = FontFolders::of_system_with_stamp;
        let thread = Builder::new().name("folders of fonts".to_owned()).spawn(look).ok();
        FontsAhead { thread: Cell::new(thread), found: OnceCell::new() }
    }

    /// What was found.
    pub(crate) fn get(&self) -> &StampedFolders {
        self.found.get_or_init(|| {
            let found = self.thread.take().and_then(|thread| thread.join().ok());
            // Where there can be no thread.
            let (folders, stamp) = found.unwrap_or_else(FontFolders::of_system_with_stamp);
            StampedFolders { folders, stamp }
        })
    }

    pub(crate) fn into_folders(self) -> FontFolders {
        self.get();
        self.found.into_inner().map_or_else(FontFolders::of_system, |found| found.folders)
    }
}

impl StampedFolders {
    /// The stamp when they were looked at: after the opening began.
    pub(crate) fn stamp(&self) -> u64 {
        self.stamp
    }

    /// The folders, to be looked at again.
    pub(crate) fn of_now(&self) -> &FontFolders {
        &self.folders
    }

    /// Whether there is any font at all.
    pub(crate) fn has_fonts(&self) -> bool {
        self.folders.has_fonts()
    }
}

impl FontFolders {
    /// As the system's configuration has them.
    pub(crate) fn of_system() -> FontFolders {
        FontFolders::of_system_with_states().0
    }

    /// The same, and [`FontFolders::stamp`] as of when each file was read.
    fn of_system_with_stamp() -> (FontFolders, u64) {
        let (folders, states) = FontFolders::of_system_with_states();
        let stamp = folders.stamp_with(states.into_iter());
        (folders, stamp)
    }

    fn of_system_with_states() -> (FontFolders, Vec<Option<State>>) {
        FontFolders::with_states(|name| std::env::var_os(name).map(PathBuf::from))
    }

    /// With the state of each configuration before it was read.
    fn with_states(
        variable: impl Fn(&str) -> Option<PathBuf>,
    ) -> (FontFolders, Vec<Option<State>>) {
        let home = variable("HOME").unwrap_or_default();
        let data = variable("XDG_DATA_HOME").unwrap_or_else(|| home.join(".local/share"));
        let settings = variable("XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config"));
        let file = main_configuration(&variable);
        let own = settings.join("fontconfig");
        let beside = file.parent().map(|folder| folder.join("conf.d"));
        let mut configurations = vec![file];
        beside.into_iter().for_each(|folder| push_with_files(folder, &mut configurations));
        configurations.push(own.join("fonts.conf"));
        push_with_files(own.join("conf.d"), &mut configurations);
        let (mut roots, mut states) = (Vec::new(), Vec::new());
        while let Some(configuration) = configurations.get(states.len()).cloned() {
            let (state, text) = read_configuration(&configuration);
            states.push(state);
            let text = String::from_utf8_lossy(&text);
            roots.extend(named("dir", &text, &home, &data));
            let beside = configuration.parent().unwrap_or(Path::new("/"));
            for included in named("include", &text, &home, &settings) {
                // An absolute name stays what it is.
                let included = beside.join(included);
                if configurations.len() >= CONFIGURATIONS_MAX || configurations.contains(&included)
                {
                    continue;
                }
                if included.is_dir() {
                    push_with_files(included, &mut configurations);
                } else {
                    configurations.push(included);
                }
            }
        }
        if roots.is_empty() {
            roots = ["/usr/share/fonts", "/usr/local/share/fonts"].map(PathBuf::from).to_vec();
            roots.extend([data.join("fonts"), home.join(".fonts")]);
        }
        let variables = VARIABLES.iter().map(|name| variable(name).unwrap_or_default()).collect();
        (FontFolders { roots, configurations, variables }, states)
    }

    /// A number that changes when a font comes, goes or is replaced, or the configuration or the
    /// user's language changes.
    pub(crate) fn stamp(&self) -> u64 {
        self.stamp_with(self.configurations.iter().map(|path| State::at(path)))
    }

    fn stamp_with(&self, states: impl Iterator<Item = Option<State>>) -> u64 {
        let mut sum = Xxh3::new();
        self.variables.iter().for_each(|value| add_text(&mut sum, value.as_os_str()));
        for (path, state) in self.configurations.iter().zip(states) {
            add_state(&mut sum, path, state);
        }
        for (folder, Listing { state, names }) in self.all() {
            add_state(&mut sum, &folder, Some(state));
            // What came and went between two ticks of the clock that the times are taken from shows
            // in the names alone.
            sum.write_u64(names.len() as u64);
            names.iter().for_each(|name| add_text(&mut sum, name));
        }
        sum.finish()
    }

    /// [`FontFolders::stamp`], and a number that changes too when a file is changed where it is:
    /// for what does not say which fonts it has.
    pub(crate) fn stamps(&self) -> [u64; 2] {
        let of_folders = self.stamp();
        let mut sum = Xxh3::new();
        sum.write_u64(of_folders);
        for (folder, Listing { names, .. }) in self.all() {
            for path in names.iter().map(|name| folder.join(name)) {
                add_state(&mut sum, &path, State::at(&path));
            }
        }
        [of_folders, sum.finish()]
    }

    /// The folders and all below them, also behind links, as fontconfig goes; with what is in each.
    /// One with several names has the first that is come by.
    fn all(&self) -> BTreeMap<PathBuf, Listing> {
        let mut found = BTreeMap::new();
        let mut seen = HashSet::new();
        let mut next = self.roots.clone();
        while let Some(path) = next.pop() {
            let Ok(folder) = Folder::open(&path) else { continue };
            // Circles of links end here.
            if found.len() >= FOLDERS_MAX || !seen.insert(folder.identity) {
                continue;
            }
            let Ok((listing, below)) = folder.list(&path) else { continue };
            next.extend(below);
            found.insert(path, listing);
        }
        found
    }

    /// The file that has these bytes, if one has.
    pub(crate) fn find(&self, bytes: &[u8]) -> Option<PathBuf> {
        for (folder, Listing { names, .. }) in self.all() {
            for path in names.iter().map(|name| folder.join(name)) {
                let same_size = std::fs::metadata(&path)
                    .is_ok_and(|about| about.is_file() && about.len() == bytes.len() as u64);
                if same_size && read_file(&path, FONT_BYTES_MAX).is_ok_and(|there| there == bytes) {
                    return Some(path.canonicalize().unwrap_or(path));
                }
            }
        }
        None
    }

    /// Whether there is any font at all.
    pub(crate) fn has_fonts(&self) -> bool {
        let is_font = |name: &OsString| {
            let extension = Path::new(name).extension().unwrap_or_default().to_ascii_lowercase();
            ["ttf", "otf", "ttc", "otc"].iter().any(|known| extension == *known)
        };
        self.all().values().any(|listing| listing.names.iter().any(is_font))
    }
}

/// The file that fontconfig begins with: a name without a folder is looked for in the folders of
/// `FONTCONFIG_PATH`, and then in the system's.
fn main_configuration(variable: &impl Fn(&str) -> Option<PathBuf>) -> PathBuf {
    let is_set = |path: &PathBuf| !path.as_os_str().is_empty();
    let file =
        variable("FONTCONFIG_FILE").filter(is_set).unwrap_or_else(|| PathBuf::from("fonts.conf"));
    let folders = variable("FONTCONFIG_PATH").unwrap_or_default();
    let folders = std::env::split_paths(&folders).filter(is_set);
    let mut found = folders.map(|folder| folder.join(&file)).filter(|path| path.exists());
    // An absolute name stays what it is.
    found.next().unwrap_or_else(|| Path::new("/etc/fonts").join(file))
}

/// A folder of configurations, and those that are in it, in order.
fn push_with_files(folder: PathBuf, configurations: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "conf"));
    files.sort();
    configurations.push(folder);
    configurations.extend(files);
}

/// What a folder has.
struct Listing {
    /// Before it was read.
    state: State,
    /// In order.
    names: Vec<OsString>,
}

/// An open folder.
struct Folder {
    entries: Dir,
    state: State,
    /// Device and inode.
    identity: (u64, u64),
}

impl Folder {
    fn open(path: &Path) -> rustix::io::Result<Folder> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let entries = Dir::new(openat(CWD, path, flags, Mode::empty())?)?;
        let about = entries.stat()?;
        let state = State { changed_s: about.st_ctime, changed_ns: about.st_ctime_nsec as i64 };
        Ok(Folder { entries, state, identity: (about.st_dev, about.st_ino) })
    }

    /// What is in it, and the folders among that.
    fn list(mut self, path: &Path) -> rustix::io::Result<(Listing, Vec<PathBuf>)> {
        let (mut names, mut below) = (Vec::new(), Vec::new());
        while let Some(entry) = self.entries.read() {
            let entry = entry?;
            let name = OsString::from_vec(entry.file_name().to_bytes().to_vec());
            if name == "." || name == ".." {
                continue;
            }
            let is_folder = match entry.file_type() {
                FileType::Directory => true,
                // Some file systems do not say.
                FileType::Symlink | FileType::Unknown => path.join(&name).is_dir(),
                _ => false,
            };
            if is_folder {
                below.push(path.join(&name));
            }
            names.push(name);
        }
        names.sort();
        below.sort();
        Ok((Listing { state: self.state, names }, below))
    }
}

/// When something of a file changed last, which no program sets.
#[derive(Clone, Copy)]
struct State {
    changed_s: i64,
    changed_ns: i64,
}

impl State {
    fn of(about: &Metadata) -> State {
        State { changed_s: about.ctime(), changed_ns: about.ctime_nsec() }
    }

    fn at(path: &Path) -> Option<State> {
        std::fs::metadata(path).ok().map(|about| State::of(&about))
    }
}

/// A file of fontconfig with its state before it was read, or a folder of them with its own; what
/// cannot be read, or is too long, has no text.
fn read_configuration(path: &Path) -> (Option<State>, Vec<u8>) {
    // Opening a pipe waits for its other end without this.
    let flags = OFlags::NONBLOCK.bits() as i32;
    let Ok(file) = File::options().read(true).custom_flags(flags).open(path) else {
        return (State::at(path), Vec::new());
    };
    let Ok(about) = file.metadata() else { return (None, Vec::new()) };
    let mut text = Vec::new();
    if about.is_file() && about.len() <= CONFIGURATION_BYTES_MAX {
        text.resize(about.len() as usize, 0);
        if file.read_exact_at(&mut text, 0).is_err() {
            text.clear();
        }
    }
    (Some(State::of(&about)), text)
}

fn add_text(sum: &mut Xxh3, text: &OsStr) {
    sum.write_u64(text.len() as u64);
    sum.write(text.as_bytes());
}

/// A path and its state, if there is something.
fn add_state(sum: &mut Xxh3, path: &Path, state: Option<State>) {
    let Some(State { changed_s, changed_ns }) = state else { return };
    add_text(sum, path.as_os_str());
    sum.write_i64(changed_s);
    sum.write_i64(changed_ns);
}

/// What elements of a configuration name, such as `dir`: `<dir>/usr/share/fonts</dir>`, `<dir
/// prefix="xdg">fonts</dir>`, `<dir>~/.fonts</dir>`.
fn named(element: &str, text: &str, home: &Path, data: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let (start, end) = (format!("<{element}"), format!("</{element}>"));
    for piece in text.split(&start).skip(1) {
        let Some((attributes, rest)) = piece.split_once('>') else { continue };
        let Some((name, _)) = rest.split_once(&end) else { continue };
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
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) enum FontPlace {
    /// In a file, of which something changed last at this time.
    File {
        #[serde(with = "path_bytes")]
        path: PathBuf,
        changed_ns: u64,
    },
    /// In the entry, from here on: one that the page brought with it.
    Entry { at: u64 },
}

/// The form of a path in an entry: its bytes, since a path need not be UTF-8.
mod path_bytes {
    use std::ffi::OsString;
    use std::path::{Path, PathBuf};

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
        path.as_os_str().serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
        OsString::deserialize(from).map(PathBuf::from)
    }
}

/// A font that an entry uses.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
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
        FontRecord {
            hash: xxh3_128(bytes),
            bytes: bytes.len() as u64,
            place: FontPlace::Entry { at },
        }
    }

    /// Whether the file is the one that it was, as far as is known without reading it; else it
    /// is read.
    pub(crate) fn is_there(&self) -> bool {
        let FontPlace::File { path, changed_ns: then } = &self.place else { return true };
        let same =
            std::fs::metadata(path).is_ok_and(|about| about.is_file() && about.len() == self.bytes);
        same && (changed_ns(path) == *then || self.read(path).is_some())
    }

    /// The bytes of the file, if they are what they were.
    pub(crate) fn read(&self, path: &Path) -> Option<Vec<u8>> {
        let bytes = read_file(path, FONT_BYTES_MAX).ok()?;
        (bytes.len() as u64 == self.bytes && xxh3_128(&bytes) == self.hash).then_some(bytes)
    }
}

/// When something of it changed last. The system sets it (`st_ctime`); who writes to a file and
/// sets its time of change back cannot set this.
fn changed_ns(path: &Path) -> u64 {
    let about = std::fs::metadata(path);
    about.map_or(0, |about| {
        (about.ctime() as u64).wrapping_mul(1_000_000_000).wrapping_add(about.ctime_nsec() as u64)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folders_of(variable: impl Fn(&str) -> Option<PathBuf>) -> FontFolders {
        let (folders, states) = FontFolders::with_states(variable);
        assert_eq!(folders.stamp(), folders.stamp_with(states.into_iter()), "read or asked for");
        folders
    }

    #[test]
    fn the_folders_of_a_configuration_are_found() {
        let text = r#"<fontconfig><dir>/usr/share/fonts</dir> <dir prefix="xdg">fonts</dir><dir>~/.fonts</dir></fontconfig>"#;
        let found = named("dir", text, Path::new("/home/a"), Path::new("/home/a/data"));
        let wanted =
            ["/usr/share/fonts", "/home/a/data/fonts", "/home/a/.fonts"].map(PathBuf::from);
        assert_eq!(found, wanted);
    }

    /// Guarantee: pages/changed
    #[test]
    fn the_stamp_changes_when_a_font_comes_or_goes() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("fonts.conf");
        let fonts = folder.path().join("fonts/below");
        std::fs::create_dir_all(&fonts).unwrap();
        std::fs::write(&file, format!("<dir>{}</dir>", folder.path().join("fonts").display()))
            .unwrap();
        let folders = || folders_of(|name| (name == "FONTCONFIG_FILE").then(|| file.clone()));
        let changed = std::fs::metadata(&fonts).unwrap().modified().unwrap();
        let before = folders().stamp();
        assert_eq!(before, folders().stamp());
        assert!(!folders().has_fonts());
        std::fs::write(fonts.join("a.ttf"), b"a font").unwrap();
        // As if the clock that the times are taken from had not moved.
        File::open(&fonts).unwrap().set_modified(changed).unwrap();
        assert_ne!(before, folders().stamp());
        assert!(folders().has_fonts());
        assert_eq!(folders().find(b"a font"), Some(fonts.canonicalize().unwrap().join("a.ttf")));
        assert_eq!(folders().find(b"a fond"), None);
    }

    /// Guarantee: pages/changed
    #[test]
    fn the_stamp_changes_with_the_users_language() {
        let of = |set: &str, value: &str| {
            folders_of(|name| (name == set).then(|| PathBuf::from(value))).stamp()
        };
        let none = of("", "");
        assert_eq!(none, of("LANG", ""));
        for name in VARIABLES {
            assert_ne!(none, of(name, "ja_JP.UTF-8"), "{name}");
        }
        assert_ne!(of("LC_ALL", "ja"), of("LC_CTYPE", "ja"));
        assert_ne!(of("LANG", "ja"), of("LANG", "zh"));
    }

    /// The font configuration and directories behind symbolic links are those that fontconfig
    /// finds.
    ///
    /// Guarantee: pages/changed
    /// Guarantee: pages/fonts
    #[test]
    fn font_folders_are_those_of_fontconfig() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["other", "beside/conf.d", "behind", "named", "fonts"] {
            std::fs::create_dir_all(at(name)).unwrap();
        }
        let dir =
            |name: &str| format!("<fontconfig><dir>{}</dir></fontconfig>", at(name).display());
        std::fs::write(at("beside/fonts.conf"), dir("fonts")).unwrap();
        std::fs::write(at("beside/conf.d/50-more.conf"), dir("named")).unwrap();
        std::os::unix::fs::symlink(at("behind"), at("fonts/link")).unwrap();
        std::os::unix::fs::symlink(at("fonts"), at("behind/back")).unwrap();
        std::fs::write(at("behind/a.ttf"), b"behind a link").unwrap();
        std::fs::write(at("named/b.ttf"), b"named beside").unwrap();
        std::fs::write(
            at("beside/conf.d/60-include.conf"),
            format!(
                "<include ignore_missing=\"yes\">../more/one.conf</include><include>{}</include>",
                at("whole").display()
            ),
        )
        .unwrap();
        for (file, text) in
            [("beside/more/one.conf", dir("included")), ("whole/two.conf", String::new())]
        {
            std::fs::create_dir_all(at(file).parent().unwrap()).unwrap();
            std::fs::write(at(file), text).unwrap();
        }
        std::fs::create_dir_all(at("included")).unwrap();
        let path = std::env::join_paths([at("other"), at("beside")]).unwrap();
        let folders = folders_of(|name| (name == "FONTCONFIG_PATH").then(|| PathBuf::from(&path)));
        assert_eq!(folders.configurations[0], at("beside/fonts.conf"));
        for name in ["behind/a.ttf", "named/b.ttf"] {
            let bytes = std::fs::read(at(name)).unwrap();
            assert_eq!(folders.find(&bytes), Some(at(name).canonicalize().unwrap()));
        }
        assert_eq!(folders.all().len(), 4, "a circle ends");
        for file in ["beside/conf.d/../more/one.conf", "whole/two.conf"] {
            assert!(folders.configurations.contains(&at(file)), "{:?}", folders.configurations);
        }
    }
}
