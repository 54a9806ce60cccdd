//! The cache: one heap of pages. Each view of a page is a root (`view:` and the sum of address and
//! viewport), each document another (`dom:`, the sum of the source and the build that parsed it,
//! and that of the document's bytes).
//!
//! Invariants:
//! - An entry comes in one transaction with its document: a kill leaves the old one or the new one.
//! - A process that shows a page only reads: any number of processes at once. That a page was used
//!   is noted when no other process is there.
//! - Views and documents together stay below the quota: what was used longest ago goes, its picture
//!   first, and a document with its last view.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use holdfast_dom::Document;
use holdfast_heap::{Changes, HeapError, OpenError, Owned};
use holdfast_native_heap::{HeapRegion, OpenHeapError, RegionBacking, open_data_heap};
use holdfast_region::{ErrorKind, NameSpace, OwnerKey, Region, RegionError, RegionName};
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};
use zerocopy::IntoBytes;
use zerocopy::little_endian::U64;

use crate::about::PageDescription;
use crate::answers;
use crate::entry::{Entry, EntryPart, Header, USED_AT, engine_build};
use crate::error::{CacheError, EntryDamage};
use crate::evict::{EvictionCounts, IncomingView, drop_lonely, evict_oldest, make_room};
use crate::view::View;

pub(crate) const VIEW: &str = "view:";
pub(crate) const DOM: &str = "dom:";
/// How long it is waited for another writer, and by a process that has no page to show
/// meanwhile.
const PATIENCE: Duration = Duration::from_secs(2);
const LONG_PATIENCE: Duration = Duration::from_secs(60);
/// That a page was used is noted if the last note is older.
const NOTE_AFTER_S: u64 = 60;
/// Room beyond the quota for what replaces something: the old and the new are there together.
const ROOM: u64 = 64 << 20;

pub(crate) type Heap = Owned<RegionBacking>;

/// The open cache of pages.
#[derive(Clone, Debug)]
pub struct Cache {
    names: NameSpace,
    region: RegionName,
    key: String,
    quota_bytes: u64,
    /// Views that were used since are not let go.
    spared_since_s: u64,
    /// How long it is waited for another writer.
    patience: Duration,
    /// A process has a heap once; of its threads one after the other has this one.
    turn: Arc<Mutex<()>>,
}

/// A view of a page in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewRow {
    /// What it is called.
    pub name: String,
    /// The page's address; empty, if it cannot be read.
    pub address: String,
    /// The page's title.
    pub title: String,
    /// Width, height and scale in thousandths.
    pub viewport: (u32, u32, u32),
    /// Bytes of the view.
    pub bytes: u64,
    /// Bytes of it that are what is painted, and of pixels; 0 if that had to go.
    pub picture_bytes: u64,
    /// Those of them that are pixels of a viewport.
    pub pixels_bytes: u64,
    /// Bytes of it that say what is where.
    pub layout_bytes: u64,
    /// Bytes of the page's document; 0 if it is not there.
    pub document_bytes: u64,
    /// When it was used last, in seconds since 1970.
    pub used_s: u64,
    /// What is wrong with it.
    pub damage: Option<EntryDamage>,
}

/// How full the cache is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Views of pages.
    pub views: u64,
    /// Their bytes.
    pub view_bytes: u64,
    /// Those of them that are what is painted, and pixels.
    pub picture_bytes: u64,
    /// Those of them that are pixels of a viewport.
    pub pixels_bytes: u64,
    /// Those of them that say what is where.
    pub layout_bytes: u64,
    /// Documents.
    pub documents: u64,
    /// Their bytes.
    pub document_bytes: u64,
    /// Bytes of what servers said and sent.
    pub answers_bytes: u64,
    /// What all of it may have together.
    pub quota_bytes: u64,
}

/// The name of a view: the same address and viewport have the same.
pub(crate) fn view_name(address: &str, view: View) -> String {
    let text = format!("{address}\n{}x{}@{}", view.width(), view.height(), view.scale_permille());
    format!("{VIEW}{:032x}", xxh3_128(text.as_bytes()))
}

/// Of the document that a build made of a source: another build may make another one.
pub(crate) fn dom_prefix(source: &[u8; 16], engine: &[u8; 16]) -> String {
    format!("{DOM}{:032x}:", xxh3_128([*source, *engine].as_flattened()))
}

/// Of a document of this build.
fn dom_name(source: u128, bytes: &[u8]) -> String {
    format!("{}{:016x}", dom_prefix(&source.to_le_bytes(), &engine_build()), xxh3_64(bytes))
}

impl Cache {
    /// The cache in the heap of this name, of which `key` is the owner's; it is made when something
    /// is kept.
    #[must_use]
    pub fn new(names: NameSpace, region: RegionName, key: &str, quota_bytes: u64) -> Cache {
        Cache {
            names,
            region,
            key: key.to_owned(),
            quota_bytes,
            spared_since_s: u64::MAX,
            patience: PATIENCE,
            turn: Arc::default(),
        }
    }

    /// The same cache, for a holder that keeps many pages: those that were used since a moment (in
    /// seconds since 1970) are not let go for another one. Where that leaves no room, keeping one
    /// more is [`CacheError::Full`].
    #[must_use]
    pub(crate) fn sparing(&self, since_s: u64) -> Cache {
        Cache { spared_since_s: since_s, patience: LONG_PATIENCE, ..self.clone() }
    }

    fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `work` with the heap, to read; `None` when there is no cache yet.
    pub(crate) fn read<R>(&self, work: impl FnOnce(&Heap) -> R) -> Result<Option<R>, CacheError> {
        let Some(key) = OwnerKey::load(self.names.places(), &self.key)? else { return Ok(None) };
        let _turn = self.turn();
        let mut is_settled = false;
        loop {
            let region = match wait(self.patience, || self.names.open_read_only(&self.region, &key))
            {
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
                region => region?,
            };
            match open_data_heap(region) {
                // Its maker was killed before there was anything in it.
                Err(OpenHeapError::Heap(OpenError::Empty)) => return Ok(None),
                // The last writer was killed meanwhile, and what only reads may not undo it.
                Err(OpenHeapError::Heap(OpenError::Unfinished)) if !is_settled => {
                    is_settled = true;
                    let region = wait(self.patience, || self.names.open(&self.region, &key))?;
                    with_heap(region, |_| Ok::<(), CacheError>(()))?;
                }
                opened => {
                    return with_open(opened?, |heap| Ok::<R, CacheError>(work(heap))).map(Some);
                }
            }
        }
    }

    /// Runs `work` with the heap, to change it.
    pub(crate) fn write<R>(
        &self,
        work: impl FnOnce(&mut Heap) -> Result<R, CacheError>,
    ) -> Result<R, CacheError> {
        let key = OwnerKey::load_or_create(self.names.places(), &self.key)?;
        let limit = self.quota_bytes.saturating_add(self.quota_bytes / 4).saturating_add(ROOM);
        let _turn = self.turn();
        let mut region =
            wait(self.patience, || self.names.open_or_create(&self.region, &key, limit))?;
        if region.limit_bytes() < limit {
            // It was made for a smaller quota. Where it cannot grow, pages go sooner.
            let _ = region.set_limit(limit);
        }
        with_heap(region, work)
    }

    /// Keeps a page's view and its document, in the place of what was there; returns what went for
    /// it. With `others`, what servers said.
    pub(crate) fn keep(
        &self,
        name: &str,
        source: u128,
        entry: &[u8],
        dom: &[u8],
        others: &[(String, Vec<u8>)],
    ) -> Result<EvictionCounts, CacheError> {
        let dom_name = dom_name(source, dom);
        let said: u64 = others.iter().map(|(_, bytes)| bytes.len() as u64).sum();
        let needed = entry.len() as u64 + dom.len() as u64 + said;
        if needed > self.quota_bytes {
            return Err(CacheError::TooLarge { bytes: needed, quota_bytes: self.quota_bytes });
        }
        let mut replaced: HashSet<String> = others.iter().map(|(name, _)| name.clone()).collect();
        replaced.insert(dom_name.clone());
        let mut wanted = answers::wanted_by(entry).unwrap_or_default();
        wanted.extend(replaced.iter().cloned());
        let coming =
            IncomingView { view: name, replaced, wanted, spared_since_s: self.spared_since_s };
        self.write(|heap| {
            let mut evicted = make_room(heap, &coming, self.quota_bytes - needed)?;
            loop {
                let stored = heap.transaction(|tx| -> Result<(), HeapError> {
                    if tx.root(name).is_some() {
                        tx.remove(name)?;
                    }
                    tx.create(name, entry.len() as u64, None, |to| to.copy_from_slice(entry))?;
                    for (name, bytes) in others {
                        put(tx, name, bytes)?;
                    }
                    let there = tx.root(&dom_name);
                    if there.and_then(|there| tx.bytes(there)) != Some(dom) {
                        // The name has the sum of what was stored; the bytes may have rotted since.
                        if there.is_some() {
                            tx.remove(&dom_name)?;
                        }
                        let kind = Some(holdfast_dom::layout::root_type());
                        tx.create(&dom_name, dom.len() as u64, kind, |to| to.copy_from_slice(dom))?;
                    }
                    Ok(())
                });
                match stored {
                    // What is free is in pieces.
                    Err(HeapError::OutOfMemory { .. })
                        if evict_oldest(heap, &coming, &mut evicted)? => {}
                    stored => {
                        stored?;
                        drop_lonely(heap, &coming.replaced)?;
                        return Ok(evicted);
                    }
                }
            }
        })
    }

    /// Notes that a view was used, unless another process has the cache: then the next time does.
    pub(crate) fn note_use(&self, name: &str, then_s: u64, now_s: u64) {
        if now_s < then_s.saturating_add(NOTE_AFTER_S) {
            return;
        }
        let Ok(Some(key)) = OwnerKey::load(self.names.places(), &self.key) else { return };
        let _turn = self.turn();
        let Ok(region) = self.names.open(&self.region, &key) else { return };
        // A note that is not made costs nothing but a page that goes too early.
        let _ = with_heap(region, |heap| {
            heap.transaction(|tx| match tx.root(name) {
                Some(object) => tx.write(object, USED_AT, U64::new(now_s).as_bytes()),
                None => Ok(()),
            })
        });
    }

    /// Stores new answers of servers in the place of older ones. While another process writes,
    /// nothing is stored: the servers are asked again later.
    pub(crate) fn note_answers(&self, answers: &[(String, Vec<u8>)]) {
        let Ok(Some(key)) = OwnerKey::load(self.names.places(), &self.key) else { return };
        let _turn = self.turn();
        let Ok(region) = self.names.open(&self.region, &key) else { return };
        let _ = with_heap(region, |heap| {
            heap.transaction(|tx| -> Result<(), HeapError> {
                for (name, bytes) in answers {
                    // One that is not there has gone with its page.
                    if tx.root(name).is_some() {
                        put(tx, name, bytes)?;
                    }
                }
                Ok(())
            })
        });
    }

    /// The views, the one that was used last first.
    ///
    /// # Errors
    /// When the heap cannot be opened.
    pub fn views(&self) -> Result<Vec<ViewRow>, CacheError> {
        Ok(self.read(rows)?.unwrap_or_default())
    }

    /// Looks at every byte of the views: what is wrong with which.
    ///
    /// # Errors
    /// As [`Cache::views`].
    pub fn check(&self) -> Result<Vec<(String, EntryDamage)>, CacheError> {
        let look = |heap: &Heap| {
            let mut found = Vec::new();
            for name in names(heap, VIEW) {
                let looked = heap.bytes(&name).ok_or(EntryDamage::NoHeader).and_then(checked);
                if let Err(damage) = looked
                    && !damage.is_of_older_build()
                {
                    found.push((name, damage));
                }
            }
            found
        };
        Ok(self.read(look)?.unwrap_or_default())
    }

    /// Removes the views of these names, and documents with their last view; returns how many there
    /// were.
    ///
    /// # Errors
    /// When the heap cannot be opened or changed.
    pub fn remove(&self, views: &[String]) -> Result<u64, CacheError> {
        if self.read(|_| ())?.is_none() {
            return Ok(0);
        }
        self.write(|heap| {
            let mut removed = 0;
            for name in views {
                if name.starts_with(VIEW) && heap.heap().root(name).is_some() {
                    heap.transaction(|tx| tx.remove(name))?;
                    removed += 1;
                }
            }
            drop_lonely(heap, &HashSet::new())?;
            Ok(removed)
        })
    }

    /// How full it is.
    ///
    /// # Errors
    /// As [`Cache::views`].
    pub fn stats(&self) -> Result<CacheStats, CacheError> {
        let count = |heap: &Heap| {
            let mut stats = CacheStats::default();
            for (name, root) in heap.heap().roots() {
                if name.starts_with(VIEW) {
                    stats.views += 1;
                    stats.view_bytes += root.bytes;
                    if let Some(Ok(header)) = heap.bytes(name).map(Header::read) {
                        stats.picture_bytes += header.picture_bytes();
                        stats.pixels_bytes += header.pixels_bytes();
                        stats.layout_bytes += header.layout_bytes();
                    }
                } else if name.starts_with(DOM) {
                    stats.documents += 1;
                    stats.document_bytes += root.bytes;
                } else if is_counted(name) {
                    stats.answers_bytes += root.bytes;
                }
            }
            stats
        };
        Ok(CacheStats { quota_bytes: self.quota_bytes, ..self.read(count)?.unwrap_or_default() })
    }
}

/// The document that this build made of a source, if it is there and what was stored.
pub(crate) fn document(heap: &Heap, source: u128) -> Option<Result<&[u8], EntryDamage>> {
    let prefix = dom_prefix(&source.to_le_bytes(), &engine_build());
    let (name, _) = heap.heap().roots().find(|(name, _)| name.starts_with(&prefix))?;
    let bytes = heap.bytes(name)?;
    let is_right = dom_name(source, bytes) == name && Document::from_bytes(bytes).is_ok();
    Some(if is_right { Ok(bytes) } else { Err(EntryDamage::Value { what: "document" }) })
}

/// The name of the document of a view, under the same conditions.
pub(crate) fn document_of_view(heap: &Heap, view: &str) -> Option<String> {
    let header =
        Header::read(heap.bytes(view)?).ok().filter(|header| header.engine == engine_build())?;
    let bytes = document(heap, u128::from_le_bytes(header.source))?.ok()?;
    Some(dom_name(u128::from_le_bytes(header.source), bytes))
}

/// Checks every byte of an entry, and its description.
fn checked(bytes: &[u8]) -> Result<(), EntryDamage> {
    let entry = Entry::open(bytes)?;
    PageDescription::read(entry.part(EntryPart::PageDescription)?)?.check()?;
    entry.check()
}

/// What counts against the quota.
pub(crate) fn is_counted(name: &str) -> bool {
    [VIEW, DOM, answers::ANSWER, answers::BODY].iter().any(|kind| name.starts_with(kind))
}

/// Stores bytes under a name, unless they are there.
fn put(tx: &mut Changes<'_, RegionBacking>, name: &str, bytes: &[u8]) -> Result<(), HeapError> {
    let there = tx.root(name);
    if there.and_then(|there| tx.bytes(there)) == Some(bytes) {
        return Ok(());
    }
    if there.is_some() {
        tx.remove(name)?;
    }
    tx.create(name, bytes.len() as u64, None, |to| to.copy_from_slice(bytes)).map(drop)
}

/// Runs `work` with the heap in a region, and closes both.
fn with_heap<R, E>(
    region: Region,
    work: impl FnOnce(&mut Heap) -> Result<R, E>,
) -> Result<R, CacheError>
where
    CacheError: From<E>,
{
    with_open(open_data_heap(region)?, work)
}

fn with_open<R, E>(
    (heap, region): (holdfast_heap::Heap<RegionBacking>, HeapRegion),
    work: impl FnOnce(&mut Heap) -> Result<R, E>,
) -> Result<R, CacheError>
where
    CacheError: From<E>,
{
    let mut heap = Owned::new(heap);
    let result = work(&mut heap);
    drop(heap.into_heap().close());
    let closed = region.close();
    let result = result?;
    closed?;
    Ok(result)
}

/// Waits for the process that has the region to be done with it.
fn wait(
    patience: Duration,
    open: impl Fn() -> Result<Region, RegionError>,
) -> Result<Region, RegionError> {
    let end = Instant::now() + patience;
    loop {
        match open() {
            Err(error) if error.kind() == ErrorKind::Held && Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(2));
            }
            opened => return opened,
        }
    }
}

pub(crate) fn names(heap: &Heap, prefix: &str) -> Vec<String> {
    heap.heap()
        .roots()
        .map(|(name, _)| name)
        .filter(|name| name.starts_with(prefix))
        .map(str::to_owned)
        .collect()
}

pub(crate) fn rows(heap: &Heap) -> Vec<ViewRow> {
    let documents: Vec<(String, u64)> = heap
        .heap()
        .roots()
        .filter(|(name, _)| name.starts_with(DOM))
        .map(|(name, root)| (name.to_owned(), root.bytes))
        .collect();
    let mut rows: Vec<ViewRow> =
        names(heap, VIEW).into_iter().map(|name| row(heap, name, &documents)).collect();
    rows.sort_by(|one, other| {
        other.used_s.cmp(&one.used_s).then_with(|| one.name.cmp(&other.name))
    });
    rows
}

fn row(heap: &Heap, name: String, documents: &[(String, u64)]) -> ViewRow {
    let bytes = heap.bytes(&name).unwrap_or_default();
    let mut row = ViewRow {
        name,
        address: String::new(),
        title: String::new(),
        viewport: (0, 0, 0),
        bytes: bytes.len() as u64,
        picture_bytes: 0,
        pixels_bytes: 0,
        layout_bytes: 0,
        document_bytes: 0,
        used_s: 0,
        damage: None,
    };
    let mut prefix = None;
    let read = Header::read(bytes).and_then(|header| {
        let [width, height] = header.viewport;
        row.viewport = (width.get(), height.get(), header.scale_permille.get());
        row.used_s = header.used_s.get();
        (row.picture_bytes, row.layout_bytes) = (header.picture_bytes(), header.layout_bytes());
        row.pixels_bytes = header.pixels_bytes();
        prefix = Some(dom_prefix(&header.source, &header.engine));
        PageDescription::read(Entry::open(bytes)?.part(EntryPart::PageDescription)?)
    });
    match read {
        Ok(about) => (row.address, row.title) = (about.address, about.title),
        Err(damage) => row.damage = Some(damage),
    }
    let is_its = |name: &str| prefix.as_ref().is_some_and(|prefix| name.starts_with(prefix));
    row.document_bytes =
        documents.iter().find(|(name, _)| is_its(name)).map_or(0, |(_, bytes)| *bytes);
    row
}
