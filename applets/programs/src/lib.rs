//! The programs with which *NVM Heaps for Accelerating Browser-based Applications* is evaluated,
//! written once and run over four kinds of storage, native, as a native applet and in WebAssembly:
//!
//! - [`chunks`]: a file of 512-byte writes (the paper's Figure 2);
//! - [`fasta`], [`revcomp`], [`knucleotide`]: as the Computer Language Benchmarks Game defines them
//!   (Table 1, Figure 5);
//! - [`compress`]: Snappy over the files of a cache (Figures 6 and 7);
//! - [`mail`]: a classifier whose learning data are parsed, or kept as they are (Figure 8).
//!
//! [`storage`] is the interface that they read and write through, [`command`] the command line.
//!
//! Invariant: a program does not know its storage; what it writes is the same on all of them.

#![deny(unsafe_code)]

pub mod chunks;
pub mod command;
pub mod compress;
pub mod error;
pub mod fasta;
pub mod knucleotide;
pub mod mail;
pub mod options;
pub mod revcomp;
pub mod storage;
