//! The workload of a commit of 4 KiB: 4096 pages, of which one is replaced and committed.

use std::io;

/// Bytes of a page.
pub(crate) const PAGE_BYTES: usize = 4096;
/// How many there are: 16 MiB.
pub(crate) const PAGES: usize = 4096;
/// Our side.
pub(super) const HOLDFAST: &str = "holdfast";
/// Peers, by the end of a key.
pub(super) const LMDB: &str = "lmdb";
pub(super) const SQLITE: &str = "sqlite";
pub(super) const PMDK: &str = "pmdk";

/// Something that has [`PAGES`] pages.
pub(crate) trait Pages {
    /// Replaces one and commits.
    fn replace(&mut self, page: usize, content: &[u8; PAGE_BYTES]) -> io::Result<()>;
    /// The first word of one.
    fn first_word(&mut self, page: usize) -> io::Result<u64>;
}
