//! The errors of the spell checker; every message says what to do next.

use std::io;

use holdfast_heap::HeapError;

/// Why the spell checker cannot do its work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpellError {
    /// There is no table, and no dictionary to make one from.
    #[error(
        "there is no dictionary in the heap yet; name a directory with one: --dict DIR (and grant it: --dir DIR)"
    )]
    NoDictionary,
    /// A table is not finished.
    #[error(
        "the build of {root} was cut off at byte {bytes_done} of {source_bytes}; go on with it by --dict DIR, \
         or drop it with --forget {root}"
    )]
    Unfinished {
        /// Its root.
        root: String,
        /// Bytes of the source that are in the table.
        bytes_done: u64,
        /// All of them.
        source_bytes: u64,
    },
    /// A root of ours holds something else.
    #[error(
        "the root {root} holds {}, not a table of layout {}; remove it with --forget {root}, \
         the next build with --dict DIR makes it anew",
        match layout { Some(version) => format!("a table of layout {version}"), None => "something else".to_owned() },
        crate::layout::LAYOUT_VERSION
    )]
    ForeignRoot {
        /// Its name.
        root: String,
        /// The layout version found, if it is a table.
        layout: Option<u32>,
    },
    /// `--forget` names no root.
    #[error("the heap has no root {root}; it has: {present}")]
    NoSuchRoot {
        /// The name given.
        root: String,
        /// The tables that there are.
        present: String,
    },
    /// Two dictionary files would share a root.
    #[error("there are two dictionaries named {name}, {first} and {second}; give only one of them")]
    SameName {
        /// The file name.
        name: String,
        /// The one that came first.
        first: String,
        /// The other.
        second: String,
    },
    /// A directory without any dictionary.
    #[error(
        "{path} has no dictionary: no index.noun and the like, no *.exc, no word list (a file without a dot in \
         its name); name another directory"
    )]
    EmptyDirectory {
        /// The directory.
        path: String,
    },
    /// A file that shrank while it was read, or is not what its table was built from.
    #[error("{path} changed while it was read; run again")]
    SourceChanged {
        /// The file.
        path: String,
    },
    /// A table cannot grow any more.
    #[error("a dictionary of more than {words} words does not fit in 4-byte pointers; split it")]
    TooManyWords {
        /// Words so far.
        words: u32,
    },
    /// A file that cannot be read.
    #[error(
        "cannot read {path}: {source}; check the name, and that its directory is granted with --dir"
    )]
    Read {
        /// The file.
        path: String,
        /// The underlying error.
        source: io::Error,
    },
    /// The report cannot be written.
    #[error("cannot write the report: {source}")]
    Write {
        /// The underlying error.
        #[from]
        source: io::Error,
    },
    /// The command line.
    #[error("{problem}; --help shows how it goes")]
    Usage {
        /// What is wrong with it.
        problem: String,
    },
    /// The text has no word to look up.
    #[error("{path} has no words to look up; give a longer TEXT")]
    NoWords {
        /// The text.
        path: String,
    },
    /// The heap.
    #[error(transparent)]
    Heap(#[from] HeapError),
}

impl SpellError {
    pub(crate) fn usage(problem: impl Into<String>) -> Self {
        SpellError::Usage { problem: problem.into() }
    }
}
