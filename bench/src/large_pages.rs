//! Large pages for the memory of all programs, whether they ask for them or not.
//!
//! That is how Debian's kernel is built (`CONFIG_TRANSPARENT_HUGEPAGE_ALWAYS`); others give them on
//! request only, and browsers make no request for the memory of WebAssembly. New memory costs a page
//! fault for each 4 KiB then, instead of one for 2 MiB.
//!
//! Invariant: the setting ends with its value. A kill leaves it in force.

use std::fs;

const SETTING: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// In force until it is dropped.
#[derive(Debug)]
pub(crate) struct LargePages {
    before: String,
}

impl LargePages {
    /// Sets it; the text says why it cannot be set.
    pub(crate) fn for_all() -> Result<LargePages, String> {
        let named = |error| format!("large pages for all programs: {SETTING}: {error}");
        let all = fs::read_to_string(SETTING).map_err(named)?;
        // The one in force stands in brackets.
        let before = all.split(['[', ']']).nth(1).unwrap_or("madvise").to_owned();
        fs::write(SETTING, "always").map_err(named)?;
        Ok(LargePages { before })
    }
}

impl Drop for LargePages {
    fn drop(&mut self) {
        // It could be set, and so can it be set back.
        let _ = fs::write(SETTING, &self.before);
    }
}
