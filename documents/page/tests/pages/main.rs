//! Pages opened anew and from the cache, over everything between: files that change, bytes that
//! rot, kills, two at once.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod alike;
mod changes;
mod coming;
mod crowded;
mod damage;
mod faulty;
mod fixed;
mod folders;
mod givers;
mod hostile;
mod importing;
mod looks;
mod network;
mod paragraphs;
mod places;
mod processes;
mod quota;
mod refusals;
mod server;
mod sheets;
mod snapshots;
mod srcset;
mod svg;
mod typefaces;
mod xhtml;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use holdfast_heap::Owned;
use holdfast_native_heap::{RegionBacking, open_data_heap};
use holdfast_page::{
    Address, Cache, Files, OpenOptions, OpenPage, PageError, PageLimits, Pixels, View, open,
    open_with,
};
use holdfast_region::{NameSpace, OwnerKey, Places, RegionName};
use tempfile::TempDir;

/// A folder of pages, and a cache beside it.
struct Place {
    folder: TempDir,
}

const CACHE: &str = "page-cache";
/// Of an entry: docs/format.md has its fields.
const HEADER_BYTES: usize = 336;
const QUOTA: u64 = 64 << 20;

fn limits() -> PageLimits {
    // A machine that is busy with other tests takes its time.
    PageLimits { time: Duration::from_secs(300), ..PageLimits::default() }
}

fn view(width: u32, height: u32) -> View {
    View::new(width, height, 1000).unwrap()
}

impl Place {
    fn new() -> Place {
        let memory = Path::new("/dev/shm");
        let mut prefix = tempfile::Builder::new();
        prefix.prefix("holdfast-page-");
        let folder = if memory.is_dir() { prefix.tempdir_in(memory) } else { prefix.tempdir() };
        Place { folder: folder.unwrap() }
    }

    fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    fn pool(&self) -> PathBuf {
        self.folder.path().join("pool")
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    fn names(&self) -> NameSpace {
        NameSpace::new(Places::at(self.home(), self.pool()).unwrap())
    }

    fn cache(&self) -> Cache {
        self.cache_of(QUOTA)
    }

    fn cache_of(&self, quota: u64) -> Cache {
        Cache::new(self.names(), RegionName::parse(CACHE).unwrap(), "default", quota)
    }

    /// Opens a page and keeps it.
    fn open(&self, page: &Path, view: View) -> OpenPage {
        self.try_open(page, view).unwrap()
    }

    fn try_open(&self, page: &Path, view: View) -> Result<OpenPage, PageError> {
        let cache = self.cache();
        let mut opened = open(&address(page), view, &limits(), Some(&cache))?;
        if let Some(to_keep) = opened.to_keep.take() {
            to_keep.keep(&cache).unwrap();
        }
        Ok(opened)
    }

    /// Opens a page as if only its display list were kept.
    fn repainted(&self, page: &Path, view: View) -> OpenPage {
        let cache = self.cache();
        let opening = OpenOptions {
            repaint: true,
            ..OpenOptions::new(view, &limits(), Some(&cache), Arc::new(Files))
        };
        let mut opened = open_with(&address(page), &opening).unwrap();
        if let Some(to_keep) = opened.to_keep.take() {
            to_keep.keep(&cache).unwrap();
        }
        opened
    }

    /// Changes the bytes of the cache behind its back.
    fn spoil(&self, work: impl FnOnce(&mut Owned<RegionBacking>)) {
        let names = self.names();
        let key = OwnerKey::load_existing(names.places(), "default").unwrap();
        let region = names.open(&RegionName::parse(CACHE).unwrap(), &key).unwrap();
        let (heap, region) = open_data_heap(region).unwrap();
        let mut heap = Owned::new(heap);
        work(&mut heap);
        drop(heap.into_heap().close());
        region.close().unwrap();
    }
}

fn address(page: &Path) -> Address {
    Address::parse(page.to_str().unwrap()).unwrap()
}

/// As it looks without a cache.
fn anew(page: &Path, view: View) -> Pixels {
    open(&address(page), view, &limits(), None).unwrap().pixels
}

/// A picture of one colour, as a file.
fn png(width: u32, height: u32, color: [u8; 4]) -> Vec<u8> {
    let bytes = color.repeat((width * height) as usize);
    Pixels { width, height, bytes }.to_png().unwrap()
}

/// Whether a picture has anything on it but one colour.
fn is_drawn(pixels: &Pixels) -> bool {
    pixels.bytes.chunks_exact(4).any(|pixel| pixel != &pixels.bytes[..4])
}
