//! The engines that the heap is compared with. Each file is one of them, in the configuration that suits it best
//! for the question asked, and says which that is.

pub(super) mod lmdb;
pub(super) mod mimalloc;
pub(super) mod pmdk;
pub(super) mod redb;
