//! The lowest floor: the bytes of files, and the steps that change them.
//!
//! Formats (header, journal, redo log), the names of files, the [`Storage`](storage::Storage)
//! through which every change passes, and plain access to file contents. Nothing here knows what a
//! checkpoint is, who may use a region, or that regions have names beside their files.

pub(crate) mod allotment;
pub(crate) mod files;
pub(crate) mod format;
pub(crate) mod image;
pub(crate) mod journal;
pub(crate) mod lines;
pub(crate) mod long_sum;
pub(crate) mod medium;
pub(crate) mod packed;
pub(crate) mod pending;
pub(crate) mod pool_kind;
pub(crate) mod redo;
pub(crate) mod rest;
pub(crate) mod sharing;
pub(crate) mod sparse;
pub(crate) mod storage;
pub(crate) mod turns;
pub(crate) mod view;
