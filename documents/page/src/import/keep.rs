//! The one who writes: entries come from the workers, and go into the cache one after the other.

use std::time::{SystemTime, UNIX_EPOCH};

use holdfast_heap::HeapError;
use zerocopy::IntoBytes;
use zerocopy::little_endian::U64;

use crate::cache::Cache;
use crate::entry::USED_AT;
use crate::error::{CacheError, PageError};
use crate::import::pages::Made;
use crate::import::{End, Outcome};

/// Pages that need not be kept again are noted as used together.
const TOUCHED_MAX: usize = 1_000;

/// See the module.
pub(crate) struct Writer {
    cache: Cache,
    touched: Vec<String>,
}

impl Writer {
    pub(crate) fn new(cache: &Cache, since_s: u64) -> Writer {
        Writer { cache: cache.sparing(since_s), touched: Vec::new() }
    }

    /// Keeps what was made.
    ///
    /// # Errors
    /// When no more can be kept.
    pub(crate) fn write(&mut self, made: Result<Made, PageError>) -> Result<Outcome, End> {
        match made {
            Err(error) => Ok(Outcome::Failed { why: error.to_string() }),
            Ok(Made::Refused { why }) => Ok(Outcome::Failed { why }),
            Ok(Made::Unchanged { view }) => {
                self.touched.push(view);
                if self.touched.len() == TOUCHED_MAX {
                    self.note();
                }
                Ok(Outcome::Unchanged)
            }
            Ok(Made::Entry(to_keep)) => {
                // Before something is let go.
                self.note();
                match to_keep.keep(&self.cache) {
                    Ok(kept) => {
                        let bytes = kept.view_bytes + kept.document_bytes;
                        Ok(Outcome::Kept { bytes, evicted: kept.evicted })
                    }
                    Err(error @ (CacheError::TooLarge { .. } | CacheError::Record(_))) => {
                        Ok(Outcome::Failed { why: error.to_string() })
                    }
                    Err(CacheError::Full) => Err(End::Full),
                    Err(error) => Err(End::Cache(error)),
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

impl Drop for Writer {
    fn drop(&mut self) {
        self.note();
    }
}
