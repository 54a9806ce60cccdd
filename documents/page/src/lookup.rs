//! Looks up the cached document of an address, for programs that query it where it lies.

use crate::cache::{self, Cache};
use crate::error::CacheError;

impl Cache {
    /// The name of the root of the document of an address: of the view of it that was used last, if
    /// this build made it and it is what was stored.
    ///
    /// # Errors
    /// When the heap cannot be opened.
    pub fn document_of(&self, address: &str) -> Result<Option<String>, CacheError> {
        let look = |heap: &_| {
            let rows = cache::rows(heap).into_iter().filter(|row| row.address == address);
            let mut names = rows.filter_map(|row| cache::document_of_view(heap, &row.name));
            names.next()
        };
        Ok(self.read(look)?.flatten())
    }
}
