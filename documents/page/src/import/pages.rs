//! The pages of an import, and the making of one.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::address::Address;
use crate::cache::{self, Cache};
use crate::error::PageError;
use crate::fetch::{Fetch, Files, Url};
use crate::import::warc::{ImportProblem, Warc};
use crate::import::{Import, ImportError, ImportEvent, ImportPlan, ImportScope, folder, page_sum};
use crate::keeping::UnsavedPage;
use crate::open::{open_document, open_with};
use crate::opened::OpenOptions;
use crate::picture::{StaleReason, Tier};
use crate::sources::CachePolicy;
use crate::view::View;

/// The pages of an import, from a folder or from WARC files.
pub(crate) struct ImportPages {
    /// The source of the pages and their resources.
    pub(crate) from: Arc<dyn Fetch>,
    /// Those to try alone first.
    pub(crate) addresses: Vec<String>,
    /// How many these are.
    pub(crate) alone: usize,
    pub(crate) plan: ImportPlan,
    warc: Option<Arc<Warc>>,
}

/// What was made of a page.
pub(crate) enum ImportedPage {
    /// What the cache had is as it would be made.
    Unchanged {
        view: String,
    },
    Entry(Box<UnsavedPage>),
    /// It was made, and is not to be kept.
    Refused {
        why: String,
    },
}

impl ImportPages {
    /// Looks what there is.
    pub(crate) fn find(
        import: &Import,
        stop: &AtomicBool,
        tell: &(dyn Fn(ImportEvent<'_>) + Sync),
    ) -> Result<ImportPages, ImportError> {
        let mut pages = if import.from.is_dir() {
            ImportPages::of_folder(import, stop)?
        } else {
            ImportPages::of_warc(&import.from, import, stop, tell)?
        };
        let before = pages.addresses.len();
        pages.addresses.truncate(
            import.limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX),
        );
        pages.plan.left_out += (before - pages.addresses.len()) as u64;
        let sums = |sums: &[u64]| sums.iter().copied().collect::<HashSet<u64>>();
        let (done, alone) = (sums(&import.done), sums(&import.alone));
        pages.addresses.retain(|address| !done.contains(&page_sum(address)));
        let (first, rest): (Vec<_>, Vec<_>) =
            pages.addresses.drain(..).partition(|address| alone.contains(&page_sum(address)));
        pages.alone = first.len();
        pages.addresses = first.into_iter().chain(rest).collect();
        pages.plan.pages = pages.addresses.len() as u64;
        Ok(pages)
    }

    fn of_folder(import: &Import, stop: &AtomicBool) -> Result<ImportPages, ImportError> {
        let read = |error| ImportError::Read { path: import.from.clone(), error };
        let walked = folder::walk(&import.from, import.hidden, stop)
            .map_err(read)?
            .ok_or(ImportError::Stopped)?;
        if walked.is_cut {
            return Err(ImportError::TooManyFiles { path: import.from.clone() });
        }
        let root = import.from.canonicalize().map_err(read)?;
        let mut plan = ImportPlan {
            hidden: walked.hidden,
            outside: walked.outside,
            damaged: walked.failed,
            ..ImportPlan::default()
        };
        plan.troubles = walked
            .troubles
            .into_iter()
            .map(|what| ImportProblem { at: None, url: None, what })
            .collect();
        let mut addresses = Vec::new();
        for path in &walked.pages {
            if !import.matches(&path.strip_prefix(&root).unwrap_or(path).to_string_lossy()) {
                plan.left_out += 1;
                continue;
            }
            if let Ok(url) = Url::from_file_path(path) {
                addresses.push(url.into());
            }
        }
        Ok(ImportPages { from: Arc::new(Files), addresses, alone: 0, plan, warc: None })
    }

    fn of_warc(
        path: &Path,
        import: &Import,
        stop: &AtomicBool,
        tell: &(dyn Fn(ImportEvent<'_>) + Sync),
    ) -> Result<ImportPages, ImportError> {
        let of = std::fs::metadata(path).map_or(0, |about| about.len());
        let warc = Arc::new(Warc::open(path, stop, &mut |bytes| {
            tell(ImportEvent::Looking { bytes, of })
        })?);
        let mut addresses = warc.pages();
        let before = addresses.len();
        addresses.retain(|address| import.matches(address));
        let plan = ImportPlan {
            left_out: (before - addresses.len()) as u64,
            damaged: warc.damaged(),
            troubles: warc.troubles().to_vec(),
            ..ImportPlan::default()
        };
        Ok(ImportPages {
            from: Arc::clone(&warc) as Arc<dyn Fetch>,
            addresses,
            alone: 0,
            plan,
            warc: Some(warc),
        })
    }

    pub(crate) fn wrong_sums(&self) -> u64 {
        self.warc.as_ref().map_or(0, |warc| warc.wrong_sums())
    }
}

impl Import {
    fn matches(&self, name: &str) -> bool {
        self.matching.as_ref().is_none_or(|pattern| pattern.matches(name))
    }
}

/// Makes what is to be kept of a page.
pub(crate) fn make(
    import: &Import,
    cache: &Cache,
    from: &Arc<dyn Fetch>,
    address: &Address,
) -> Result<ImportedPage, PageError> {
    // What is kept may have been said to be good still; here it counts what there is to import.
    let usual = OpenOptions::new(import.view, &import.limits, Some(cache), Arc::clone(from));
    let opening = OpenOptions { asking: CachePolicy::Reload, ..usual };
    if import.only == ImportScope::Document {
        let view = cache::view_name(address.as_str(), View::DOCUMENT);
        let to_keep = open_document(address, &opening)?;
        return Ok(to_keep.map_or(ImportedPage::Unchanged { view }, |to_keep| {
            ImportedPage::Entry(Box::new(to_keep))
        }));
    }
    let mut opened = open_with(address, &opening)?;
    let is_new = |to_keep: &UnsavedPage| to_keep.has_view();
    if let Some(mut to_keep) = opened.to_keep.take().filter(is_new) {
        // Here, and not by the one who writes: what goes wrong is the page's.
        to_keep.places()?;
        // Here several do it at once; and others may wait for the one who writes.
        to_keep.pack();
        return Ok(ImportedPage::Entry(Box::new(to_keep)));
    }
    // A page whose picture cannot be kept is laid out each time, and nothing of it is new.
    let is_kept = matches!(opened.tier, Tier::Pixels | Tier::List)
        || matches!(opened.stale, Some(StaleReason::NoPicture | StaleReason::Beyond { .. }));
    if is_kept {
        return Ok(ImportedPage::Unchanged {
            view: cache::view_name(address.as_str(), import.view),
        });
    }
    let why = opened.notes.into_iter().rfind(|note| note.starts_with("not kept"));
    Ok(ImportedPage::Refused { why: why.unwrap_or_else(|| "not kept".to_owned()) })
}
