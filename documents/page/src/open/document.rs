//! A page that is only parsed: its document is kept, for queries and for a later layout.

use holdfast_dom::Document;

use crate::address::Address;
use crate::base;
use crate::engine::{EngineTimes, LaidOutPage, RecordedPage, title_of};
use crate::error::PageError;
use crate::fetch::FetchError;
use crate::keeping::{UnsavedPage, UnsavedView};
use crate::opened::OpenOptions;
use crate::picture::StaleReason;
use crate::pixels::Pixels;
use crate::places::PageLayout;
use crate::record::PaintRecord;
use crate::steps::DeferredResult;
use crate::view::View;

use super::{Lookup, OpenSession};

/// Reads and parses a page; `None`, if the cache has its document.
///
/// # Errors
/// As [`super::open_with`].
pub(crate) fn open_document(
    address: &Address,
    opening: &OpenOptions<'_>,
) -> Result<Option<UnsavedPage>, PageError> {
    let visit = OpenSession::of(address, opening, View::DOCUMENT);
    let mut page = if address.is_of_network() {
        visit.sources.ask(&[visit.wanted_page()]);
        visit.of_server()?
    } else {
        visit.of_file()?
    };
    if let Some(cache) = opening.cache
        && let Ok(Some(Ok(Lookup::Done(found)))) = cache.read(|heap| visit.look(heap, Some(&page)))
        && let (Some(StaleReason::NoPicture), Some(_)) = (found.stale, found.dom)
    {
        return Ok(None);
    }
    let dom = visit.parse(&mut page)?;
    if visit.sources.unkeepable().is_some() {
        return Err(visit.failed(FetchError::Refused("its server does not want it to be kept")));
    }
    let (title, base) = {
        let document = Document::from_bytes(dom.bytes())?;
        (title_of(&document), base::of(&document, &page.found))
    };
    let made = LaidOutPage {
        pixels: Pixels::NONE,
        title,
        content: (0, 0),
        scroll: 0,
        resources: Vec::new(),
        left_out: Vec::new(),
        wants_network: false,
        has_drawn_text: false,
        times: EngineTimes::default(),
    };
    let recorded = PaintRecord { strips: Vec::new(), scroll_bound: false };
    let rest = DeferredResult::there(RecordedPage {
        recorded: Some(recorded),
        places: Some(PageLayout::default()),
    });
    let view = UnsavedView {
        name: visit.name,
        source: page.source,
        dom,
        made,
        rest,
        snapshot: None,
        found: page.found.into(),
        base: base.into(),
        reach: visit.reach,
        view: View::DOCUMENT,
        fonts: visit.folders.get().of_now().stamps(),
        folders: visit.folders.into_folders(),
        now_s: visit.now_s,
    };
    let news = visit.sources.news();
    Ok(Some(UnsavedPage::new(address.as_str(), news, Some(view), true, Vec::new())))
}
