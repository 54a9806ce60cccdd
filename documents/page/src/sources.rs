//! The resources at addresses, during one opening of a page: each server is asked no more than once
//! for each address, and not at all for what it declared fresh.
//!
//! Invariants:
//! - What was found first at an address counts for the whole opening, so that the picture and what
//!   is kept of it are of one state.
//! - A server's silence (no connection, too slow, out of order) is no change: what is kept counts
//!   then, and it is told. Bytes that came in part are as good as none.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use blitz_traits::net::Url;
use holdfast_heap::Owned;
use holdfast_native_heap::RegionBacking;
use xxhash_rust::xxh3::xxh3_128;

use crate::answers::{self, CachedResponse};
use crate::cache::Cache;
use crate::fetch::{
    self, CONNECTIONS, Fetch, FetchAnswer, FetchError, FetchRequest, FetchedBytes, KnownResponse,
    MissingResource, Purpose, freshness,
};
use crate::limits::PageLimits;
use crate::resource::{Resource, ResourceSum, is_of_network};

/// Whether servers are asked for what is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CachePolicy {
    /// If it is not good still, as they said.
    #[default]
    Usual,
    /// For all of it, and all its bytes.
    Reload,
    /// No server is asked.
    Offline,
}

/// What there is at an address.
#[derive(Clone, Debug)]
pub(crate) struct FetchedResource {
    /// What was said of it; none, if there is nothing.
    pub(crate) said: Option<CachedResponse>,
    /// Its bytes, if they came with this opening.
    pub(crate) bytes: Option<Arc<Vec<u8>>>,
    /// Why there is nothing, or why no server could be asked.
    pub(crate) error: Option<Arc<FetchError>>,
    /// Whether something was said in this opening.
    pub(crate) is_new: bool,
    /// Whether what is kept of it counts, since no server answered.
    is_as_kept: bool,
    /// Whether the server said in this opening that it must not be kept.
    is_forbidden: bool,
}

impl FetchedResource {
    fn nothing(error: Arc<FetchError>) -> FetchedResource {
        FetchedResource {
            said: None,
            bytes: None,
            error: Some(error),
            is_new: false,
            is_as_kept: false,
            is_forbidden: false,
        }
    }

    /// What was found at the address that was asked for; `is_utf_8`, if its bytes are in UTF-8.
    fn found(&self, asked: &str, is_utf_8: bool) -> ResourceSum {
        self.said.as_ref().map_or(ResourceSum::Nothing, |said| said.found(asked, is_utf_8))
    }
}

/// The resources that one opening of a page has fetched, read or found in the cache.
pub(crate) struct Sources {
    from: Arc<dyn Fetch>,
    cache: Option<Cache>,
    asking: CachePolicy,
    now: SystemTime,
    /// Of parts that come from servers, all together.
    bytes_left: AtomicU64,
    bodies_max: u64,
    end: Instant,
    state: Mutex<SourcesState>,
}

#[derive(Default)]
struct SourcesState {
    /// What is kept, and would have to be asked for.
    kept: HashMap<String, CachedResponse>,
    there: HashMap<String, FetchedResource>,
    /// Kept bytes, by their sums.
    bodies: HashMap<u128, Arc<Vec<u8>>>,
    /// Servers that were not to be reached.
    unreachable: Vec<(String, Arc<FetchError>)>,
}

impl Sources {
    /// Within these limits.
    pub(crate) fn new(
        from: Arc<dyn Fetch>,
        cache: Option<Cache>,
        asking: CachePolicy,
        limits: &PageLimits,
    ) -> Sources {
        Sources {
            from,
            cache,
            asking,
            now: SystemTime::now(),
            bodies_max: limits.resources_bytes,
            bytes_left: AtomicU64::new(limits.resources_bytes),
            end: Instant::now() + limits.network,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, SourcesState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes from the cache what was said of an address; whether no server needs to be asked.
    pub(crate) fn learn(&self, heap: &Owned<RegionBacking>, url: &str, purpose: Purpose) -> bool {
        let mut state = self.state();
        if state.there.contains_key(url) {
            return true;
        }
        let said = answers::said(heap, url);
        // A request for a page itself wants to know whether there is one by now.
        let counts = |said: &CachedResponse| purpose == Purpose::Part || !said.is_missing();
        let Some(said) = said.filter(counts) else { return false };
        let is_good = match self.asking {
            CachePolicy::Usual => {
                freshness::is_fresh(said.status, &said.headers, said.at, self.now)
                    && said.url.as_str() == url
            }
            CachePolicy::Reload => false,
            CachePolicy::Offline => true,
        };
        if is_good {
            let there = FetchedResource {
                said: Some(said),
                bytes: None,
                error: None,
                is_new: false,
                is_as_kept: false,
                is_forbidden: false,
            };
            state.there.insert(url.to_owned(), there);
        } else {
            state.kept.insert(url.to_owned(), said);
        }
        is_good
    }

    /// What there is at an address that was asked for.
    pub(crate) fn there(&self, url: &str) -> Option<FetchedResource> {
        self.state().there.get(url).cloned()
    }

    /// Finds out what there is at each of these addresses, several at a time.
    pub(crate) fn ask(&self, urls: &[(Url, Purpose, u64)]) {
        let mut unknown: Vec<&(Url, Purpose, u64)> = Vec::new();
        for one in urls {
            let is_known = self.state().there.contains_key(one.0.as_str());
            if !is_known && !unknown.iter().any(|other| other.0 == one.0) {
                unknown.push(one);
            }
        }
        if let (Some(cache), false) = (&self.cache, unknown.is_empty()) {
            // What cannot be read is asked for.
            let _ = cache.read(|heap| {
                unknown.retain(|(url, purpose, _)| !self.learn(heap, url.as_str(), *purpose))
            });
        }
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some((url, purpose, bytes_max)) =
                unknown.get(next.fetch_add(1, Ordering::Relaxed))
            {
                let kept = self.state().kept.get(url.as_str()).cloned();
                let there = self.one(url, *purpose, *bytes_max, kept.as_ref());
                self.state().there.insert(url.as_str().to_owned(), there);
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..unknown.len().min(CONNECTIONS) {
                // Without another thread this one does it all.
                let _ = std::thread::Builder::new().spawn_scoped(scope, work);
            }
            work();
        });
    }

    /// Asks for the bytes, whatever is known.
    fn ask_anew(&self, url: &Url, purpose: Purpose, bytes_max: u64) -> FetchedResource {
        let there = self.one(url, purpose, bytes_max, None);
        self.state().there.insert(url.as_str().to_owned(), there.clone());
        there
    }

    /// Asks, unless its server was not to be reached a moment ago.
    fn one(
        &self,
        url: &Url,
        purpose: Purpose,
        bytes_max: u64,
        kept: Option<&CachedResponse>,
    ) -> FetchedResource {
        let server = url.origin().ascii_serialization();
        let known = self
            .state()
            .unreachable
            .iter()
            .find(|(known, _)| *known == server)
            .map(|(_, error)| Arc::clone(error));
        if let Some(error) = known {
            return silent(error, purpose, kept);
        }
        let there = self.ask_server(url, purpose, bytes_max, kept);
        if let Some(error) = there.error.as_ref().filter(|error| error.is_of_server()) {
            self.state().unreachable.push((server, Arc::clone(error)));
        }
        there
    }

    fn ask_server(
        &self,
        url: &Url,
        purpose: Purpose,
        bytes_max: u64,
        kept: Option<&CachedResponse>,
    ) -> FetchedResource {
        let nothing = |error| FetchedResource::nothing(Arc::new(error));
        if self.asking == CachePolicy::Offline {
            return nothing(FetchError::Offline);
        }
        if Instant::now() >= self.end {
            return silent(Arc::new(FetchError::Late), purpose, kept);
        }
        let is_reload = self.asking == CachePolicy::Reload;
        let is_known = |said: &&CachedResponse| !is_reload && !said.is_missing();
        let known = kept
            .filter(is_known)
            .map(|said| KnownResponse { url: &said.url, headers: &said.headers });
        let bytes_max = match purpose {
            Purpose::Page => bytes_max,
            Purpose::Part => bytes_max.min(self.bytes_left.load(Ordering::Relaxed)),
        };
        let wanted = FetchRequest { url, bytes_max, purpose, known, anew: is_reload };
        let asked = fetch::ask(&*self.from, &wanted);
        // What was said before of what is kept all the same (an archive's pages) is not said again
        // by silence.
        let is_forbidden = match &asked {
            Ok(
                FetchAnswer::Bytes(FetchedBytes { headers, .. }) | FetchAnswer::Unchanged(headers),
            ) => !freshness::may_be_kept(headers),
            // What is not to be remembered of that is not.
            Ok(FetchAnswer::Nothing(_)) | Err(_) => false,
        };
        let (said, bytes) = match (asked, kept) {
            (Ok(FetchAnswer::Bytes(fetched)), _) => {
                if purpose == Purpose::Part {
                    let length = fetched.bytes.len() as u64;
                    let less = |left: u64| Some(left.saturating_sub(length));
                    let _ =
                        self.bytes_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
                }
                let hash = xxh3_128(&fetched.bytes);
                // The same bytes may be a page of their own: a part does not take its letters away.
                let encoding =
                    kept.filter(|kept| kept.hash == hash).map(|kept| kept.encoding.clone());
                let said = CachedResponse {
                    hash,
                    bytes: fetched.bytes.len() as u64,
                    url: fetched.url,
                    headers: fetched.headers,
                    at: fetched.at,
                    status: freshness::FOUND,
                    encoding: encoding.unwrap_or_default(),
                };
                (said, Some(Arc::new(fetched.bytes)))
            }
            (Ok(FetchAnswer::Nothing(missing)), _) if freshness::may_be_kept(&missing.headers) => {
                let MissingResource { url, status, headers } = missing;
                let at = SystemTime::now();
                (
                    CachedResponse {
                        url,
                        headers,
                        at,
                        status,
                        hash: 0,
                        bytes: 0,
                        encoding: String::new(),
                    },
                    None,
                )
            }
            (Ok(FetchAnswer::Nothing(_)), _) => return nothing(FetchError::NotFound),
            (Ok(FetchAnswer::Unchanged(now)), Some(kept)) => {
                // What the bytes are was said with them; servers say here what comes to their mind.
                let headers = kept.headers.renewed_by(&now.without("content-type"));
                (CachedResponse { headers, at: SystemTime::now(), ..kept.clone() }, None)
            }
            (Ok(FetchAnswer::Unchanged(_)), None) => {
                return nothing(FetchError::Status { status: 304 });
            }
            (Err(error), kept) if error.is_silence() => {
                return silent(Arc::new(error), purpose, kept);
            }
            (Err(error), _) => return nothing(error),
        };
        FetchedResource {
            said: Some(said),
            bytes,
            error: None,
            is_new: true,
            is_as_kept: false,
            is_forbidden,
        }
    }

    /// What gives the files of this machine.
    pub(crate) fn from(&self) -> &dyn Fetch {
        &*self.from
    }

    /// What there is now of a part of a kept view: what was there, if no server answers.
    pub(crate) fn found_since(&self, resource: &Resource, bytes_max: u64) -> ResourceSum {
        if let Some(there) = self.state().there.get_mut(&resource.url)
            && there.said.is_none()
            && there.error.as_ref().is_some_and(|error| error.is_silence())
        {
            there.is_as_kept = resource.found != ResourceSum::Nothing;
            return resource.found;
        }
        let found = self.found(&resource.url, true, bytes_max);
        if found == resource.found || !is_of_network(&resource.url) {
            return found;
        }
        // The same bytes are in UTF-8 if they were, and only those are the same.
        self.found(&resource.url, false, bytes_max)
    }

    /// What there is now at an address; `is_utf_8`, if bytes of a server are in UTF-8.
    pub(crate) fn found(&self, url: &str, is_utf_8: bool, bytes_max: u64) -> ResourceSum {
        if is_of_network(url) {
            self.there(url).map_or(ResourceSum::Nothing, |there| there.found(url, is_utf_8))
        } else {
            ResourceSum::at(url, bytes_max, &*self.from)
        }
    }

    /// Reads from the cache, in one go, the bytes that did not have to come; no more than a page
    /// may have.
    pub(crate) fn fetch_kept<'u>(&self, urls: impl Iterator<Item = &'u Url>) {
        let Some(cache) = &self.cache else { return };
        let mut state = self.state();
        let of = |url: &Url| {
            state.there.get(url.as_str()).filter(|there| there.bytes.is_none())?.said.as_ref()
        };
        let found = |url| of(url).filter(|said| !said.is_missing());
        let mut hashes: Vec<u128> = urls.filter_map(|url| Some(found(url)?.hash)).collect();
        hashes.retain(|hash| !state.bodies.contains_key(hash));
        if hashes.is_empty() {
            return;
        }
        // What cannot be read is asked for.
        let _ = cache.read(|heap| {
            for hash in hashes {
                let there: u64 = state.bodies.values().map(|bytes| bytes.len() as u64).sum();
                if let Some(bytes) = answers::body(heap, hash)
                    .filter(|bytes| there + bytes.len() as u64 <= self.bodies_max)
                {
                    state.bodies.insert(hash, Arc::new(bytes.to_vec()));
                }
            }
        });
    }

    /// The bytes of what was asked for: those that came, or those that are kept.
    pub(crate) fn bytes(
        &self,
        url: &Url,
        purpose: Purpose,
        bytes_max: u64,
    ) -> Result<Arc<Vec<u8>>, Arc<FetchError>> {
        let none = || Arc::new(FetchError::NotFound);
        let there = self.there(url.as_str()).ok_or_else(none)?;
        let said = there.said.as_ref().filter(|said| !said.is_missing());
        let Some(said) = said else { return Err(there.error.unwrap_or_else(none)) };
        if let Some(bytes) = &there.bytes {
            return Ok(Arc::clone(bytes));
        }
        // Of a page no bytes are kept: those that are there came as a part of another one, and were
        // not looked at as a page.
        if purpose == Purpose::Part {
            if !self.state().bodies.contains_key(&said.hash) {
                self.fetch_kept(std::iter::once(url));
            }
            if let Some(bytes) = self.state().bodies.get(&said.hash) {
                return Ok(Arc::clone(bytes));
            }
        }
        // It went, or it rotted.
        let there = self.ask_anew(url, purpose, bytes_max);
        there.bytes.ok_or_else(|| there.error.unwrap_or_else(none))
    }

    /// That a server was silent, for people; `page` is the page's address.
    pub(crate) fn silences(&self, page: &str) -> Vec<String> {
        let state = self.state();
        let mut silent: Vec<(&String, &FetchError)> = state
            .there
            .iter()
            .filter(|(_, there)| there.is_as_kept)
            .filter_map(|(url, there)| Some((url, there.error.as_deref()?)))
            .collect();
        silent.sort_by_key(|(url, _)| (*url != page, *url));
        let mut notes = Vec::new();
        if let Some((url, error)) = silent.first() {
            notes.push(format!("{url} is as it was kept: {error}"));
        }
        if silent.len() > 1 {
            notes.push(format!("and so are {} other parts of the page", silent.len() - 1));
        }
        notes
    }

    /// What was said in this opening, with the bytes that came; to be kept.
    pub(crate) fn news(&self) -> Vec<(String, FetchedResource)> {
        let state = self.state();
        let is_news =
            |(url, there): &(&String, &FetchedResource)| there.is_new && is_of_network(url);
        let mut news: Vec<(String, FetchedResource)> = state
            .there
            .iter()
            .filter(is_news)
            .map(|(url, there)| (url.clone(), there.clone()))
            .collect();
        news.sort_by(|one, other| one.0.cmp(&other.0));
        news
    }

    /// An address whose server wants nothing of it to be kept.
    pub(crate) fn unkeepable(&self) -> Option<String> {
        let state = self.state();
        let is_so = |there: &FetchedResource| {
            there.said.as_ref().is_some_and(|said| !freshness::may_be_kept(&said.headers))
        };
        state.there.iter().filter(|(_, there)| is_so(there)).map(|(url, _)| url.clone()).min()
    }

    /// Addresses of which servers said in this opening that nothing is to be kept.
    pub(crate) fn forbidden(&self) -> Vec<String> {
        let state = self.state();
        let forbidden = state.there.iter().filter(|(_, there)| there.is_forbidden);
        let mut forbidden: Vec<String> = forbidden.map(|(url, _)| url.clone()).collect();
        forbidden.sort();
        forbidden
    }

    /// Notes the encoding that a page was read in.
    pub(crate) fn note_encoding(&self, url: &str, name: &str) {
        if let Some(said) = self.state().there.get_mut(url).and_then(|there| there.said.as_mut()) {
            name.clone_into(&mut said.encoding);
        }
    }
}

/// No server answered: what is kept counts, unless it is a page of which it was said that it must
/// not. Without its parts a page would be shown, and kept, as it never was.
fn silent(
    error: Arc<FetchError>,
    purpose: Purpose,
    kept: Option<&CachedResponse>,
) -> FetchedResource {
    let said = match kept {
        Some(said) if purpose == Purpose::Page && freshness::must_ask(&said.headers) => {
            return FetchedResource::nothing(Arc::new(FetchError::MustAsk { error }));
        }
        kept => kept.cloned(),
    };
    let is_as_kept = said.is_some();
    FetchedResource {
        said,
        bytes: None,
        error: Some(error),
        is_new: false,
        is_as_kept,
        is_forbidden: false,
    }
}

/// The answers of servers as the cache stores them, by name.
pub(crate) fn stored_answers(news: &[(String, FetchedResource)]) -> Vec<(String, Vec<u8>)> {
    let stored = |(url, there): &(String, FetchedResource)| {
        Some((answers::answer_name(url), there.said.as_ref()?.write()))
    };
    news.iter().filter_map(stored).collect()
}

/// The answers and bodies that the cache stores of a page, by name. The page itself has no body:
/// its document is stored.
pub(crate) fn stored_roots(
    news: &[(String, FetchedResource)],
    page: &str,
) -> Vec<(String, Vec<u8>)> {
    let mut roots = stored_answers(news);
    for (_, there) in news.iter().filter(|(url, _)| url != page) {
        if let (Some(said), Some(bytes)) = (&there.said, &there.bytes) {
            roots.push((answers::body_name(said.hash), bytes.to_vec()));
        }
    }
    roots.sort();
    roots.dedup();
    roots
}
