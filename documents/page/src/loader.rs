//! Reads what a page asks for: style sheets, images and fonts beside it, and those within it
//! (`data:`).
//!
//! Invariants: everything that was asked for is in the list that [`Loader::finish`] gives, with
//! what was found, so that a later opening can tell whether it would find the same; nothing is read
//! but regular files, within the limits; the engine always gets an answer, since it waits for style
//! sheets. A page from the network gets nothing of this machine; a page of this machine gets
//! nothing from the network, unless that is wanted.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use blitz_traits::net::{Bytes, NetHandler, NetProvider, Request, Url};
use data_url::DataUrl;
use encoding_rs::Encoding;

use crate::decode::style_in_utf_8;
use crate::fetch::{FetchError, Purpose};
use crate::hints;
use crate::limits::PageLimits;
use crate::resource::{
    Reach, Resource, ResourceSum, bytes_of, is_of_network, is_page, is_style, pixel_count,
    seems_font,
};
use crate::sheets;
use crate::sources::Sources;
use crate::svg::{self, SvgSummary};

/// The resources of one page while the engine lays it out.
pub(crate) struct Loader {
    limits: PageLimits,
    page: Reach,
    sources: Arc<Sources>,
    /// The encoding of the page.
    encoding: &'static Encoding,
    /// Whether a style sheet may be what its server says is a page.
    takes_pages: bool,
    state: Mutex<LoaderState>,
}

#[derive(Default)]
struct LoaderState {
    requests: u32,
    bytes: u64,
    pixels: u64,
    pixels_max: u64,
    found: HashMap<String, ResourceSum>,
    order: Vec<String>,
    /// Why something was left out, and what that was.
    left_out: Vec<(String, Vec<String>)>,
    wants_network: bool,
    pending: Vec<PendingRequest>,
    /// What was found in pictures of SVG.
    svg: SvgSummary,
    /// Addresses at which a font was found.
    fonts: HashSet<String>,
    /// A style sheet that a redirect led to, and where; the engine asks for it there next.
    moved_style: Option<(Url, Vec<u8>)>,
}

/// What a server is going to be asked for.
struct PendingRequest {
    url: Url,
    /// As it was asked for.
    asked: String,
    handler: Box<dyn NetHandler>,
}

/// What came of reading.
pub(crate) struct LoadReport {
    pub(crate) resources: Vec<Resource>,
    /// What was not read though it is asked for, and why, for people.
    pub(crate) left_out: Vec<String>,
    /// Whether it asked for something of the network, got or not.
    pub(crate) wants_network: bool,
    /// Whether a picture has text in fonts of this machine, of which nothing tells afterwards.
    pub(crate) has_drawn_text: bool,
}

/// U+FEFF in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";
const TOO_MANY_PIXELS: &str = "the page's images have more pixels than are taken";
const IS_PAGE: &str =
    "its server says that it is a page (text/html), which no image, font or style sheet is";
/// Reasons for what was left out that are kept.
const LEFT_OUT_MAX: usize = 20;
/// What was left out for one reason that is named.
const NAMED_MAX: usize = 3;

impl Loader {
    /// For a page in an encoding. Where it is shown as browsers of old did, style sheets may be what
    /// their servers say are pages (`takes_pages`).
    pub(crate) fn new(
        limits: PageLimits,
        page: Reach,
        sources: Arc<Sources>,
        encoding: &'static Encoding,
        takes_pages: bool,
    ) -> Loader {
        let state = LoaderState { pixels_max: limits.image_pixels, ..LoaderState::default() };
        Loader { limits, page, sources, encoding, takes_pages, state: Mutex::new(state) }
    }

    /// Notes what is found in the pictures that the page has in it; those of which the engine gets
    /// nothing, it is said of.
    pub(crate) fn note_pictures(&self, pictures: &mut svg::Pictures) {
        let mut state = self.state();
        for vetted in pictures.values_mut() {
            if let Ok(found) = vetted
                && !state.note_svg(found.clone())
            {
                *vetted = Err(TOO_MANY_PIXELS);
            }
            if let Err(why) = vetted {
                state.say_left_out("a picture in SVG within the page".to_owned(), why);
            }
        }
    }

    /// How often it was asked.
    pub(crate) fn requests(&self) -> u32 {
        self.state().requests
    }

    pub(crate) fn finish(&self) -> LoadReport {
        let mut state = self.state();
        let order = std::mem::take(&mut state.order);
        let resources = order
            .into_iter()
            .map(|url| Resource {
                found: state.found.remove(&url).unwrap_or(ResourceSum::Nothing),
                url,
            })
            .collect();
        // One sentence for each reason, however many there are of a kind.
        let mut left_out: Vec<String> = std::mem::take(&mut state.left_out)
            .into_iter()
            .map(|(why, what)| {
                let shown = what.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join(", ");
                match what.len().checked_sub(NAMED_MAX) {
                    Some(more @ 1..) => format!("{shown} and {more} more: {why}"),
                    _ => format!("{shown}: {why}"),
                }
            })
            .collect();
        if !state.svg.lacks.is_empty() {
            let lacks: Vec<&str> = state.svg.lacks.iter().copied().collect();
            left_out.push(format!("of pictures in SVG: {}", lacks.join(", ")));
        }
        LoadReport {
            resources,
            left_out,
            wants_network: state.wants_network,
            has_drawn_text: state.svg.has_text,
        }
    }

    fn state(&self) -> MutexGuard<'_, LoaderState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that an address is asked for, and whether it is given at all.
    fn admit(&self, url: &Url) -> bool {
        let mut state = self.state();
        state.requests += 1;
        if state.requests > self.limits.resources {
            if state.requests == self.limits.resources + 1 {
                let why = "the page asks for more than is read; this and what follows is left out";
                state.leave_out(url, why);
            }
            return false;
        }
        match self.page.allows(url.scheme()) {
            Ok(()) => true,
            Err(why) => {
                state.leave_out(url, why);
                state.wants_network |= is_of_network(url.as_str());
                false
            }
        }
    }

    /// Whether there was a font at an address when it was asked for.
    pub(crate) fn is_font(&self, url: &Url) -> bool {
        self.state().fonts.contains(without_place(url.clone()).as_str())
    }

    /// The bytes of a font that the engine did not ask for, or did not get. Servers are asked at
    /// once.
    pub(crate) fn font(&self, url: &Url) -> Option<Vec<u8>> {
        let url = without_place(url.clone());
        if !self.admit(&url) {
            return None;
        }
        if is_of_network(url.as_str()) {
            self.sources.ask(&[(url.clone(), Purpose::Part, self.limits.resource_bytes)]);
            self.sources.fetch_kept(std::iter::once(&url));
        }
        self.get(&url)
    }

    /// Takes back what was said of addresses: what they were asked for was found at another one.
    pub(crate) fn excuse<'u>(&self, urls: impl Iterator<Item = &'u Url>) {
        let mut state = self.state();
        for url in urls {
            let names = [shown(url), shown(&without_place(url.clone()))];
            for (_, what) in &mut state.left_out {
                what.retain(|what| !names.contains(what));
            }
        }
        state.left_out.retain(|(_, what)| !what.is_empty());
    }

    /// The bytes within an address, of a file, or of what servers were asked for; none, if there
    /// are none to be had.
    fn get(&self, url: &Url) -> Option<Vec<u8>> {
        let mut state = self.state();
        let left =
            self.limits.resources_bytes.saturating_sub(state.bytes).min(self.limits.resource_bytes);
        let bytes = if url.scheme() == "data" {
            let decoded =
                DataUrl::process(url.as_str()).ok().and_then(|data| data.decode_to_vec().ok());
            decoded.map(|(bytes, _)| bytes).filter(|bytes| bytes.len() as u64 <= left)?
        } else {
            let is_of_network = is_of_network(url.as_str());
            let read =
                if is_of_network { self.of_server(url, left) } else { self.of_file(url, left) };
            // Of what changes while the page is made, the first look counts: the next opening sees
            // another.
            if !state.found.contains_key(url.as_str()) {
                let found = match &read {
                    Ok(bytes) if !is_of_network => ResourceSum::of(bytes),
                    Ok(bytes) => self.found(url.as_str(), std::str::from_utf8(bytes).is_ok()),
                    // What only finds no room beside the others is there for a later opening, which
                    // looks at each by itself.
                    Err(_) => self.found(url.as_str(), false),
                };
                state.found.insert(url.as_str().to_owned(), found);
                state.order.push(url.as_str().to_owned());
            }
            state.wants_network |= is_of_network;
            read.map(|bytes| self.in_utf_8(url, bytes))
                .map_err(|why| state.leave_out(url, &why))
                .ok()?
        };
        state.bytes += bytes.len() as u64;
        let bytes = self.without_lost_imports(url, bytes);
        let bytes = if svg::may_be(&bytes) { state.vet_svg(url, bytes, left)? } else { bytes };
        match pixel_count(&bytes) {
            Some(pixels) if state.pixels.saturating_add(pixels) > self.limits.image_pixels => {
                state.leave_out(url, TOO_MANY_PIXELS);
                None
            }
            pixels => {
                state.pixels += pixels.unwrap_or(0);
                let is_font = seems_font(&bytes);
                if is_font {
                    state.fonts.insert(url.as_str().to_owned());
                }
                // Images and fonts are known by their bytes.
                if pixels.is_none() && !is_font && !self.takes_pages && self.is_page(url) {
                    state.leave_out(url, IS_PAGE);
                    return None;
                }
                Some(bytes)
            }
        }
    }

    /// Whether its server says that it is a page.
    fn is_page(&self, url: &Url) -> bool {
        let said = self.sources.there(url.as_str()).and_then(|there| there.said);
        is_page(said.as_ref().and_then(|said| said.headers.get("content-type")))
    }

    fn of_file(&self, url: &Url, bytes_max: u64) -> Result<Vec<u8>, String> {
        bytes_of(url, bytes_max, self.sources.from()).map_err(|error| error.to_string())
    }

    fn of_server(&self, url: &Url, bytes_max: u64) -> Result<Vec<u8>, String> {
        let bytes = self
            .sources
            .bytes(url, Purpose::Part, self.limits.resource_bytes)
            .map_err(|error| error.to_string())?;
        if bytes.len() as u64 > bytes_max {
            return Err(FetchError::TooLarge { bytes_max }.to_string());
        }
        Ok(bytes.to_vec())
    }

    /// A style sheet in other letters; the engine takes those of UTF-8 alone. Anything else is as
    /// it is.
    fn in_utf_8(&self, url: &Url, bytes: Vec<u8>) -> Vec<u8> {
        let there = self.sources.there(url.as_str()).and_then(|there| there.said);
        let said = there.as_ref().and_then(|said| said.headers.get("content-type"));
        if is_style(url, said) && std::str::from_utf8(&bytes).is_err() {
            return style_in_utf_8(&bytes, said, self.encoding);
        }
        // To the engine the mark would be the first letter of a selector.
        match bytes.strip_prefix(BYTE_ORDER_MARK) {
            Some(rest) => rest.to_vec(),
            None => bytes,
        }
    }

    /// A style sheet as the engine may have it. Anything else is as it is.
    fn without_lost_imports(&self, url: &Url, bytes: Vec<u8>) -> Vec<u8> {
        let Ok(text) = std::str::from_utf8(&bytes) else { return bytes };
        let said = self.sources.there(url.as_str()).and_then(|there| there.said);
        let base = said.as_ref().and_then(|said| said.moved_style(url.as_str())).unwrap_or(url);
        let changed = match sheets::without_lost_imports(text, base) {
            Cow::Owned(text) => Some(text),
            Cow::Borrowed(_) => None,
        };
        changed.map_or(bytes, String::into_bytes)
    }

    /// The engine takes addresses in a style sheet for relative to the one that it asked for. Where
    /// a redirect led to another one, it gets a style sheet that imports the other from there.
    fn where_it_was_found(&self, asked: &Url, bytes: Vec<u8>) -> Vec<u8> {
        let said = self.sources.there(asked.as_str()).and_then(|there| there.said);
        let Some(url) = said.as_ref().and_then(|said| said.moved_style(asked.as_str())) else {
            return bytes;
        };
        self.state().moved_style = Some((url.clone(), bytes));
        format!("@import \"{}\";", hints::escaped(url.as_str())).into_bytes()
    }

    /// What the engine asks for since it was told where that was found.
    fn take_moved(&self, url: &Url) -> Option<Vec<u8>> {
        let mut state = self.state();
        state.moved_style.take_if(|(found, _)| *found == *url).map(|(_, bytes)| bytes)
    }

    fn found(&self, url: &str, is_utf_8: bool) -> ResourceSum {
        self.sources.found(url, is_utf_8, self.limits.resource_bytes)
    }

    /// Asks servers for all that was asked for since the last time, several at a time, and hands it
    /// to the engine in the order in which that asked.
    pub(crate) fn deliver(&self) {
        loop {
            let pending = std::mem::take(&mut self.state().pending);
            if pending.is_empty() {
                return;
            }
            let urls: Vec<_> = pending
                .iter()
                .map(|one| (one.url.clone(), Purpose::Part, self.limits.resource_bytes))
                .collect();
            self.sources.ask(&urls);
            self.sources.fetch_kept(urls.iter().map(|(url, ..)| url));
            for PendingRequest { url, asked, handler } in pending {
                let bytes = self.get(&url).unwrap_or_default();
                let bytes = self.where_it_was_found(&url, bytes);
                // A style sheet asks for more in here.
                handler.bytes(asked, Bytes::from(bytes));
                self.state().moved_style = None;
            }
        }
    }
}

impl LoaderState {
    /// A picture of SVG, as the engine may have it; anything else as it is.
    fn vet_svg(&mut self, url: &Url, bytes: Vec<u8>, bytes_max: u64) -> Option<Vec<u8>> {
        match svg::vet_file(&bytes, bytes_max) {
            Ok(None) => Some(bytes),
            Ok(Some((fixed, vetted))) => self.note_svg(vetted).then_some(fixed).or_else(|| {
                self.leave_out(url, TOO_MANY_PIXELS);
                None
            }),
            Err(why) => {
                self.leave_out(url, why);
                None
            }
        }
    }

    /// Whether the page may have this picture, too.
    fn note_svg(&mut self, vetted: SvgSummary) -> bool {
        let pixels = self.pixels.saturating_add(vetted.pixels);
        if pixels > self.pixels_max {
            return false;
        }
        self.pixels = pixels;
        self.svg.merge(vetted);
        true
    }

    fn leave_out(&mut self, url: &Url, why: &str) {
        self.say_left_out(shown(url), why);
    }

    fn say_left_out(&mut self, what: String, why: &str) {
        if let Some((_, all)) = self.left_out.iter_mut().find(|(known, _)| known == why) {
            all.push(what);
        } else if self.left_out.len() < LEFT_OUT_MAX {
            self.left_out.push((why.to_owned(), vec![what]));
        }
    }
}

impl NetProvider for Loader {
    fn fetch(&self, _document: usize, request: Request, handler: Box<dyn NetHandler>) {
        let asked = request.url.to_string();
        if let Some(bytes) = self.take_moved(&request.url) {
            return handler.bytes(asked, Bytes::from(bytes));
        }
        if !self.admit(&request.url) {
            return handler.bytes(asked, Bytes::new());
        }
        let url = without_place(request.url);
        if is_of_network(url.as_str()) {
            self.state().pending.push(PendingRequest { url, asked, handler });
            return;
        }
        let bytes = self.get(&url).unwrap_or_default();
        handler.bytes(asked, Bytes::from(bytes));
    }
}

/// The address of what a place is in.
fn without_place(mut url: Url) -> Url {
    if url.scheme() != "data" {
        url.set_fragment(None);
    }
    url
}

/// The beginning of an address, for people.
fn shown(url: &Url) -> String {
    url.as_str().chars().take(200).collect()
}
