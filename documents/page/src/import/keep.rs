//! The one who writes: entries come from the workers, and go into the cache one after the other.

use std::time::{SystemTime, UNIX_EPOCH};

use holdfast_heap::HeapError;
use zerocopy::IntoBytes;
use zerocopy::little_endian::U64;

use crate::cache::Cache;
use crate::entry::USED_AT;
use crate::error::{CacheError, PageError};
use crate::import::pages::ImportedPage;
use crate::import::{ImportEnd, PageOutcome};

/// Pages that need not be kept again are noted as used together.
const TOUCHED_MAX: usize = 1_000;

/// The writer of the cache, which takes one finished page after the other.
pub(crate) struct CacheWriter {
    cache: Cache,
    touched: Vec<String>,
}

impl CacheWriter {
    pub(crate) fn new(cache: &Cache, since_s: u64) -> CacheWriter {
        CacheWriter { cache: cache.sparing(since_s), touched: Vec::new() }
    }

    /// Keeps what was made.
    ///
    /// # Errors
    /// When no more can be kept.
    pub(crate) fn write(
        &mut self,
        made: Result<ImportedPage, PageError>,
    ) -> Result<PageOutcome, ImportEnd> {
        match made {
            Err(error) => Ok(PageOutcome::Failed { why: error.to_string() }),
            Ok(ImportedPage::Refused { why }) => Ok(PageOutcome::Failed { why }),
            Ok(ImportedPage::Unchanged { view }) => {
                self.touched.push(view);
                if self.touched.len() == TOUCHED_MAX {
                    self.note();
                }
                Ok(PageOutcome::Unchanged)
            }
            Ok(ImportedPage::Entry(to_keep)) => {
                // Before something is let go.
                self.note();
                match to_keep.keep(&self.cache) {
                    Ok(kept) => {
                        let bytes = kept.view_bytes + kept.document_bytes;
                        Ok(PageOutcome::Kept { bytes, evicted: kept.evicted })
                    }
                    Err(error @ (CacheError::TooLarge { .. } | CacheError::Record(_))) => {
                        Ok(PageOutcome::Failed { why: error.to_string() })
                    }
                    Err(CacheError::Full) => Err(ImportEnd::Full),
                    Err(error) => Err(ImportEnd::Cache(error)),
                }
            }
        }
    }

    /// Notes what is there already as used, so that it does not go for what comes now.
    fn note(&mut self) {
        if self.touched.is_empty() {
            return;
        }
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        // A note that is not made costs nothing but a page that goes too early.
        let _ = self.cache.write(|heap| {
            heap.transaction(|tx| {
                for name in &self.touched {
                    if let Some(object) = tx.root(name) {
                        tx.write(object, USED_AT, U64::new(now_s).as_bytes())?;
                    }
                }
                Ok::<(), HeapError>(())
            })?;
            Ok(())
        });
        self.touched.clear();
    }
}

impl Drop for CacheWriter {
    fn drop(&mut self) {
        self.note();
    }
}
