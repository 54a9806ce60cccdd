//! Removes what servers forbid to keep: all views of the page, and of pages of which it is a part.

use std::collections::HashSet;

use holdfast_heap::HeapError;

use crate::about::PageDescription;
use crate::cache::{Cache, Heap, VIEW, names};
use crate::entry::{Entry, EntryPart};
use crate::error::{CacheError, EntryDamage};
use crate::evict::drop_lonely;

impl Cache {
    /// Removes all views that are of these addresses or ask for them, with what only they needed;
    /// returns how many there were.
    ///
    /// # Errors
    /// When the heap cannot be opened or changed.
    pub(crate) fn forget(&self, urls: &[String]) -> Result<u64, CacheError> {
        if self.read(|heap| views_of(heap, urls).is_empty())?.unwrap_or(true) {
            return Ok(0);
        }
        self.write(|heap| {
            let views = views_of(heap, urls);
            heap.transaction(|tx| {
                for name in &views {
                    tx.remove(name)?;
                }
                Ok::<(), HeapError>(())
            })?;
            drop_lonely(heap, &HashSet::new())?;
            Ok(views.len() as u64)
        })
    }
}

fn views_of(heap: &Heap, urls: &[String]) -> Vec<String> {
    let asks_for = |bytes: &[u8]| -> Result<bool, EntryDamage> {
        let about = PageDescription::read(Entry::open(bytes)?.part(EntryPart::PageDescription)?)?;
        let parts = about.resources.iter().map(|resource| &resource.url);
        Ok(parts.chain([&about.address]).any(|url| urls.contains(url)))
    };
    // What cannot be read is not shown, and may be one of them.
    let is_one =
        |name: &String| heap.bytes(name).is_some_and(|bytes| asks_for(bytes).unwrap_or(true));
    names(heap, VIEW).into_iter().filter(is_one).collect()
}
