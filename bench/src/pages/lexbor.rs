//! lexbor (lexbor.com), a parser of HTML and CSS in C; `LEXBOR_SOURCE` says where its folder
//! `source` is (`fetch_lexbor` of the set-up gets one), which is compiled with `-O2`, as its own
//! build does.
//!
//! Invariant: a selector is parsed once, and each match is collected once, as on the other sides.

use std::ffi::{c_char, c_void};
use std::io::{self, Error};
use std::path::{Path, PathBuf};
use std::process::Command;

use libloading::Library;

const SOURCE: &str = "LEXBOR_SOURCE";
/// What is done about its absence.
pub(super) const REMEDY: &str = "lexbor: `cargo xtask bench pages` gets its sources from PyPI, or LEXBOR_SOURCE=DIRECTORY names them";
/// Parts of the library that parsing and searching need; the last has a folder for each system.
const PARTS: [&str; 13] = [
    "core",
    "css",
    "dom",
    "encoding",
    "html",
    "ns",
    "punycode",
    "selectors",
    "style",
    "tag",
    "unicode",
    "url",
    "ports/posix",
];
/// `LXB_SELECTORS_OPT_MATCH_FIRST`: an element that several selectors of a list match comes once.
const MATCH_FIRST: u32 = 1 << 2;

/// A pointer to something of the library's.
type Object = *mut c_void;
type Create = unsafe extern "C" fn() -> Object;
type Collect = unsafe extern "C" fn(Object, u32, Object) -> u32;

/// The library, loaded; never unloaded.
pub(super) struct Lexbor {
    library: &'static Library,
    parser: Object,
    selectors: Object,
    find: unsafe extern "C" fn(Object, Object, Object, Collect, Object) -> u32,
}

/// A parsed page.
pub(super) struct Tree(Object);

/// A parsed list of selectors.
pub(super) struct List(Object);

unsafe extern "C" fn collect(node: Object, _: u32, found: Object) -> u32 {
    // SAFETY: `matches` gives a vector, which nobody else has meanwhile.
    unsafe { (*found.cast::<Vec<Object>>()).push(node) };
    0
}

impl Lexbor {
    /// Compiles and loads it; `None` when nothing says where it is.
    pub(super) fn load(folder: &Path) -> io::Result<Option<Lexbor>> {
        let Some(source) = std::env::var_os(SOURCE).map(PathBuf::from) else { return Ok(None) };
        let library = folder.join("lexbor.so");
        let mut compiler = Command::new("cc");
        compiler.args(["-O2", "-fPIC", "-shared", "-w", "-I"]).arg(&source);
        for part in PARTS {
            add_files(&source.join("lexbor").join(part), &mut compiler)?;
        }
        let output = compiler.arg("-o").arg(&library).arg("-lm").output()?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let first = said.lines().find(|line| line.contains("error")).unwrap_or("no message");
            return Err(Error::other(format!(
                "lexbor does not compile; is {SOURCE} right? {first}"
            )));
        }
        // SAFETY: what was compiled just now has nothing that runs when it is loaded.
        let library = unsafe { Library::new(&library) }.map_err(Error::other)?;
        let library: &'static Library = Box::leak(Box::new(library));
        // SAFETY: the types are those of its headers css/parser.h and selectors/selectors.h.
        unsafe {
            let parser = symbol::<Create>(library, "lxb_css_parser_create")?();
            let selectors = symbol::<Create>(library, "lxb_selectors_create")?();
            let init = "lxb_css_parser_init";
            let init = symbol::<unsafe extern "C" fn(Object, Object) -> u32>(library, init)?;
            sound(init(parser, std::ptr::null_mut()))?;
            let init = "lxb_selectors_init";
            let init = symbol::<unsafe extern "C" fn(Object) -> u32>(library, init)?;
            sound(init(selectors))?;
            let choose = "lxb_selectors_opt_set_noi";
            symbol::<unsafe extern "C" fn(Object, u32)>(library, choose)?(selectors, MATCH_FIRST);
            let find = symbol(library, "lxb_selectors_find")?;
            Ok(Some(Lexbor { library, parser, selectors, find }))
        }
    }

    /// Parses a page. The library keeps what it needs of it.
    pub(super) fn parse(&self, source: &[u8]) -> io::Result<Tree> {
        // SAFETY: the types are those of its header html/interfaces/document.h.
        unsafe {
            let document = symbol::<Create>(self.library, "lxb_html_document_create")?();
            let parse = "lxb_html_document_parse";
            type Parse = unsafe extern "C" fn(Object, *const u8, usize) -> u32;
            let parse = symbol::<Parse>(self.library, parse)?;
            sound(parse(document, source.as_ptr(), source.len()))?;
            Ok(Tree(document))
        }
    }

    /// Parses a list of selectors.
    pub(super) fn selectors(&self, text: &str) -> io::Result<List> {
        type Parse = unsafe extern "C" fn(Object, *const c_char, usize) -> Object;
        // SAFETY: the type is that of its header css/selectors/selectors.h.
        let list = unsafe {
            let parse = symbol::<Parse>(self.library, "lxb_css_selectors_parse")?;
            parse(self.parser, text.as_ptr().cast(), text.len())
        };
        if list.is_null() {
            Err(Error::other("lexbor takes it for no selector"))
        } else {
            Ok(List(list))
        }
    }

    /// Whether it finds the matches within so many seconds, which a child tries: a search cannot be
    /// broken off, and some take it an hour.
    pub(super) fn ends_within(&self, seconds: u32, tree: &Tree, list: &List) -> io::Result<bool> {
        // SAFETY: the child searches, which the library does without locks, and ends without
        // running anything of this program's.
        let child = unsafe { libc::fork() };
        match child {
            -1 => Err(Error::last_os_error()),
            0 => {
                // SAFETY: the signal ends the child, as nothing here handles it.
                unsafe { libc::alarm(seconds) };
                let code = i32::from(self.matches(tree, list).is_err());
                // SAFETY: it ends the child, whatever else there is.
                unsafe { libc::_exit(code) }
            }
            child => {
                let mut status = 0;
                // SAFETY: the child is this process's, and no other code of it waits for the child.
                if unsafe { libc::waitpid(child, &raw mut status, 0) } != child {
                    return Err(Error::last_os_error());
                }
                match (libc::WIFEXITED(status), libc::WEXITSTATUS(status)) {
                    (true, 0) => Ok(true),
                    (false, _) if libc::WTERMSIG(status) == libc::SIGALRM => Ok(false),
                    _ => Err(Error::other("lexbor's search in a child failed")),
                }
            }
        }
    }

    /// How many elements match; each was collected.
    pub(super) fn matches(&self, tree: &Tree, list: &List) -> io::Result<usize> {
        let mut found: Vec<Object> = Vec::new();
        // SAFETY: all of them are of this library; a document begins with its node.
        let status = unsafe {
            (self.find)(self.selectors, tree.0, list.0, collect, (&raw mut found).cast())
        };
        sound(status)?;
        Ok(found.len())
    }
}

fn add_files(folder: &Path, compiler: &mut Command) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            add_files(&path, compiler)?;
        } else if path.extension().is_some_and(|extension| extension == "c") {
            compiler.arg(path);
        }
    }
    Ok(())
}

fn sound(status: u32) -> io::Result<()> {
    if status == 0 { Ok(()) } else { Err(Error::other(format!("lexbor: status {status}"))) }
}

/// A function of the library.
///
/// # Safety
/// `T` is its type.
unsafe fn symbol<T: Copy>(library: &Library, name: &str) -> io::Result<T> {
    // SAFETY: per the contract.
    unsafe { library.get::<T>(name) }.map(|symbol| *symbol).map_err(Error::other)
}
