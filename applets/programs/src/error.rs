//! Everything that can go wrong in a program.

use std::io;

use holdfast_guest::{AttachError, HeapError};

/// An error of a program or its storage.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// The command line.
    #[error("{0}; see `programs --help`")]
    Usage(String),
    /// A file of the storage.
    #[error("cannot {act} {name}: {source}")]
    File {
        /// Read, write or create.
        act: &'static str,
        /// As the program calls it.
        name: String,
        /// What the system says.
        source: io::Error,
    },
    /// There is no object of this name.
    #[error(
        "there is no {name} in the {storage}; make it with `programs fasta` or `programs import`"
    )]
    Missing {
        /// As the program calls it.
        name: String,
        /// The kind of storage.
        storage: &'static str,
    },
    /// An object is not one that this program made.
    #[error("the root {name} is no object of this program; use a heap of its own, or make it anew")]
    Foreign {
        /// The root.
        name: String,
    },
    /// More is written than was announced.
    #[error("{name} gets more than the {capacity_bytes} bytes that were announced for it")]
    Full {
        /// As the program calls it.
        name: String,
        /// What was announced.
        capacity_bytes: u64,
    },
    /// The heap.
    #[error(
        "the heap: {0}; give it more room with --heap-size, or remove it with `holdfast heap rm`"
    )]
    Heap(#[from] HeapError),
    /// No heap.
    #[error("{0} (or use another --storage)")]
    Attach(#[from] AttachError),
    /// The input is not what the program reads.
    #[error("{name}, line {line}: {complaint}")]
    Input {
        /// As the program calls it.
        name: String,
        /// From 1.
        line: u64,
        /// What is wrong, and what belongs there.
        complaint: &'static str,
    },
}
