//! The threads that open pages and paint them: one for each page that is shown or on its way, one
//! for the line below.
//!
//! Invariants: a caller that asks does not wait; a page that is not wanted any more is not
//! reported, and its thread ends by itself (at the latest when the engine's time is over); no more
//! than [`OPENING_MAX`] are opened or recorded at once, and the newest before older ones that the
//! viewer does not want (a record that was begun, and is not wanted any more, is not counted).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::serving::{PageMessage, PageServer};
use super::talk::{LineText, PageId, PageRequest, ReloadMode, ViewerEvent, ViewerRequest};
use super::text::LinePainter;
use crate::opened::OpenOptions;
use crate::{Cache, CachePolicy, Fetch, PageError, PageLimits};

/// Pages that are opened at once. One that is shown counts until it is recorded: it has the
/// engine's memory as long.
const OPENING_MAX: u32 = 2;
/// How long the end waits for what is being recorded and kept.
const END_MAX: Duration = Duration::from_secs(60);

/// How pages are opened.
pub struct Opener {
    /// How much is taken.
    pub limits: PageLimits,
    /// What was kept, and where what is made is kept.
    pub cache: Option<Cache>,
    /// The source of pages and their resources.
    pub from: Arc<dyn Fetch>,
    /// Whether pages of this machine may ask servers.
    pub network: bool,
    /// Whether servers are asked for what is kept.
    pub asking: CachePolicy,
}

impl Opener {
    pub(super) fn opening<'a>(
        &'a self,
        asked: &PageRequest,
        cache: Option<&'a Cache>,
    ) -> OpenOptions<'a> {
        let mut opening = OpenOptions::new(asked.view, &self.limits, cache, Arc::clone(&self.from));
        opening.network = self.network;
        opening.asking = match (self.asking, asked.again) {
            (CachePolicy::Usual, ReloadMode::AskServer | ReloadMode::IgnoreCache) => {
                CachePolicy::Reload
            }
            (usual, _) => usual,
        };
        opening
    }
}

pub(super) type EventSink = Arc<dyn Fn(ViewerEvent) + Send + Sync>;

/// The threads of all pages that are shown or are being opened.
pub(crate) struct PageThreads {
    opener: Arc<Opener>,
    tell: EventSink,
    slots: Arc<OpenSlots>,
    pages: Vec<PageThread>,
    shown: PageId,
    ending: Vec<(JoinHandle<()>, Arc<PageDemand>)>,
    line: Option<Sender<LineText>>,
}

struct PageThread {
    id: PageId,
    asks: Sender<PageMessage>,
    wanted: Arc<PageDemand>,
    thread: JoinHandle<()>,
}

/// What of a page is wanted still.
pub(super) struct PageDemand {
    /// It is being opened: there is nothing to keep yet.
    pub(super) is_opening: AtomicBool,
    /// Nothing.
    pub(super) is_gone: AtomicBool,
    /// Everything, but it is not to be kept.
    pub(super) is_passing: AtomicBool,
}

impl PageDemand {
    pub(super) fn new() -> PageDemand {
        PageDemand {
            is_opening: AtomicBool::new(true),
            is_gone: AtomicBool::new(false),
            is_passing: AtomicBool::new(false),
        }
    }
}

impl PageThreads {
    /// `tell` is called from other threads.
    pub(crate) fn new(
        opener: Opener,
        tell: impl Fn(ViewerEvent) + Send + Sync + 'static,
    ) -> PageThreads {
        PageThreads {
            opener: Arc::new(opener),
            tell: Arc::new(tell),
            slots: Arc::default(),
            pages: Vec::new(),
            shown: 0,
            ending: Vec::new(),
            line: None,
        }
    }

    /// Has done what is asked for; the answer comes by itself.
    pub(crate) fn serve(&mut self, ask: ViewerRequest) {
        self.ending.retain(|(thread, _)| !thread.is_finished());
        match ask {
            ViewerRequest::Open(asked) => {
                self.leave(|page, shown| page.id != shown);
                if asked.is_resize {
                    // A window that is drawn larger goes through many sizes.
                    self.pages
                        .iter()
                        .for_each(|page| page.wanted.is_passing.store(true, Ordering::Relaxed));
                }
                self.begin(asked);
            }
            ViewerRequest::Show(id) => {
                self.shown = id;
                self.leave(|page, shown| page.id != shown);
            }
            ViewerRequest::Stop(id) => self.leave(|page, _| page.id == id),
            ViewerRequest::Paint { page, .. }
            | ViewerRequest::Find { page, .. }
            | ViewerRequest::Place { page, .. } => {
                if let Some(thread) = self.pages.iter().find(|thread| thread.id == page) {
                    // One that has ended has told why.
                    let _ = thread.asks.send(PageMessage::Ask(ask));
                }
            }
            ViewerRequest::Line(text) => self.paint_line(text),
        }
    }

    fn begin(&mut self, asked: PageRequest) {
        let (asks, told) = channel();
        let wanted = Arc::new(PageDemand::new());
        let page = PageServer {
            opener: Arc::clone(&self.opener),
            tell: Arc::clone(&self.tell),
            wanted: Arc::clone(&wanted),
            asked,
        };
        let (id, slots) = (page.asked.id, Arc::clone(&self.slots));
        let itself = asks.clone();
        let run = move || page.run(&told, itself, &slots);
        match std::thread::Builder::new().name("page".to_owned()).spawn(run) {
            Ok(thread) => self.pages.push(PageThread { id, asks, wanted, thread }),
            Err(error) => {
                let text = PageError::Thread(error).to_string();
                (self.tell)(ViewerEvent::Failed { page: id, text });
            }
        }
    }

    /// Lets pages go.
    fn leave(&mut self, which: impl Fn(&PageThread, PageId) -> bool) {
        let mut left = Vec::new();
        for page in std::mem::take(&mut self.pages) {
            if which(&page, self.shown) {
                page.wanted.is_gone.store(true, Ordering::Relaxed);
                let _ = page.asks.send(PageMessage::Left);
                self.ending.push((page.thread, page.wanted));
            } else {
                left.push(page);
            }
        }
        self.pages = left;
    }

    fn paint_line(&mut self, text: LineText) {
        if self.line.is_none() {
            let (sender, receiver) = channel();
            let tell = Arc::clone(&self.tell);
            let run = move || paint_lines(&receiver, &tell);
            // Without a line there is a page still.
            if std::thread::Builder::new().name("line".to_owned()).spawn(run).is_ok() {
                self.line = Some(sender);
            }
        }
        if let Some(line) = &self.line {
            let _ = line.send(text);
        }
    }

    /// Ends all of it; what is being kept is kept. Says what is not, though it was to be: the rest
    /// is told as usual.
    pub(crate) fn close(mut self) -> Vec<String> {
        self.leave(|_, _| true);
        let end = Instant::now() + END_MAX;
        let mut late = 0;
        for (thread, wanted) in self.ending.drain(..) {
            let is_awaited = || !thread.is_finished() && !wanted.is_opening.load(Ordering::Relaxed);
            while is_awaited() && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(1));
            }
            late += u32::from(is_awaited());
        }
        let note =
            || format!("the page is not kept: that takes longer than {} s", END_MAX.as_secs());
        (0..late).map(|_| note()).collect()
    }
}

fn paint_lines(asked: &Receiver<LineText>, tell: &EventSink) {
    let mut painter = LinePainter::default();
    while let Ok(first) = asked.recv() {
        let newest = asked.try_iter().last().unwrap_or(first);
        let pixels = painter.paint(&newest);
        tell(ViewerEvent::Line(newest, pixels));
    }
}

/// How many may open a page at once.
#[derive(Default)]
pub(super) struct OpenSlots {
    pub(super) taken: Mutex<u32>,
    changed: Condvar,
}

/// One of them.
pub(super) struct OpenSlot<'a>(&'a OpenSlots);

impl OpenSlots {
    /// Waits for a slot; none for a page that is not wanted any more.
    pub(super) fn take(&self, wanted: &PageDemand) -> Option<OpenSlot<'_>> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        while *taken >= OPENING_MAX {
            if wanted.is_gone.load(Ordering::Relaxed) {
                return None;
            }
            let waited = self.changed.wait_timeout(taken, Duration::from_millis(20));
            taken = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        if wanted.is_gone.load(Ordering::Relaxed) {
            return None;
        }
        *taken += 1;
        Some(OpenSlot(self))
    }
}

impl Drop for OpenSlot<'_> {
    fn drop(&mut self) {
        *self.0.taken.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.changed.notify_all();
    }
}
