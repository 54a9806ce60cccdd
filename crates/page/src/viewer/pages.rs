//! The threads that open pages and paint them: one for each page that is shown or on its way, one for the line below.
//!
//! Invariants: whoever asks does not wait; a page that is not wanted any more is not told of, and its thread ends by itself (at the
//! latest when the engine's time is over); no more than [`OPENING_MAX`] are opened at once, and the newest before older ones that nobody
//! wants.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::failure;
use super::talk::{Again, Answer, Ask, AskedPage, LineText, OpenedPage, PageId, Painted, Served};
use super::text::LinePainter;
use crate::open::open_with;
use crate::opened::{Opened, Opening, Want};
use crate::picture::Stale;
use crate::showing::Showing;
use crate::{Asking, Cache, Fetch, PageError, PageLimits};

/// Pages that are opened at once.
const OPENING_MAX: u32 = 2;
/// A page is kept when it was looked at for so long, or was left.
const KEPT_AFTER: Duration = Duration::from_millis(300);
/// How long the end waits for what is being kept.
const END_MAX: Duration = Duration::from_secs(20);

/// How pages are opened.
pub struct Opener {
    /// How much is taken.
    pub limits: PageLimits,
    /// What was kept, and where what is made is kept.
    pub cache: Option<Cache>,
    /// Who gives pages and what they ask for.
    pub from: Arc<dyn Fetch>,
    /// Whether pages of this machine may ask servers.
    pub network: bool,
    /// Whether servers are asked for what is kept.
    pub asking: Asking,
}

impl Opener {
    fn opening<'a>(&'a self, asked: &AskedPage, cache: Option<&'a Cache>) -> Opening<'a> {
        let mut opening = Opening::new(asked.view, &self.limits, cache, Arc::clone(&self.from));
        opening.network = self.network;
        opening.asking = match (self.asking, asked.again) {
            (Asking::Usual, Again::Asked | Again::Anew) => Asking::Reload,
            (usual, _) => usual,
        };
        opening
    }
}

type Tell = Arc<dyn Fn(Answer) + Send + Sync>;

/// See the module.
pub(crate) struct Pages {
    opener: Arc<Opener>,
    tell: Tell,
    slots: Arc<Slots>,
    pages: Vec<PageThread>,
    shown: PageId,
    ending: Vec<(JoinHandle<()>, Arc<Wanted>)>,
    line: Option<Sender<LineText>>,
}

struct PageThread {
    id: PageId,
    asks: Sender<Ask>,
    wanted: Arc<Wanted>,
    thread: JoinHandle<()>,
}

/// What of a page is wanted still.
struct Wanted {
    /// It is being opened: there is nothing to keep yet.
    is_opening: AtomicBool,
    /// Nothing.
    is_gone: AtomicBool,
    /// Everything, but it is not to be kept.
    is_passing: AtomicBool,
}

impl Wanted {
    fn new() -> Wanted {
        Wanted {
            is_opening: AtomicBool::new(true),
            is_gone: AtomicBool::new(false),
            is_passing: AtomicBool::new(false),
        }
    }
}

impl Pages {
    /// `tell` is called from other threads.
    pub(crate) fn new(opener: Opener, tell: impl Fn(Answer) + Send + Sync + 'static) -> Pages {
        Pages {
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
    pub(crate) fn serve(&mut self, ask: Ask) {
        self.ending.retain(|(thread, _)| !thread.is_finished());
        match ask {
            Ask::Open(asked) => {
                self.leave(|page, shown| page.id != shown);
                if asked.is_resize {
                    // A window that is drawn larger goes through many sizes.
                    self.pages.iter().for_each(|page| page.wanted.is_passing.store(true, Ordering::Relaxed));
                }
                self.begin(asked);
            }
            Ask::Show(id) => {
                self.shown = id;
                self.leave(|page, shown| page.id != shown);
            }
            Ask::Stop(id) => self.leave(|page, _| page.id == id),
            Ask::Paint { page, .. } | Ask::Find { page, .. } | Ask::Place { page, .. } => {
                if let Some(thread) = self.pages.iter().find(|thread| thread.id == page) {
                    // One that has ended has told why.
                    let _ = thread.asks.send(ask);
                }
            }
            Ask::Line(text) => self.paint_line(text),
        }
    }

    fn begin(&mut self, asked: AskedPage) {
        let (asks, asked_for) = channel();
        let wanted = Arc::new(Wanted::new());
        let page = Serving {
            opener: Arc::clone(&self.opener),
            tell: Arc::clone(&self.tell),
            wanted: Arc::clone(&wanted),
            asked,
        };
        let (id, slots) = (page.asked.id, Arc::clone(&self.slots));
        let run = move || page.run(&asked_for, &slots);
        match std::thread::Builder::new().name("page".to_owned()).spawn(run) {
            Ok(thread) => self.pages.push(PageThread { id, asks, wanted, thread }),
            Err(error) => {
                let text = PageError::Thread(error).to_string();
                (self.tell)(Answer::Failed { page: id, text });
            }
        }
    }

    /// Lets pages go.
    fn leave(&mut self, which: impl Fn(&PageThread, PageId) -> bool) {
        let mut left = Vec::new();
        for page in std::mem::take(&mut self.pages) {
            if which(&page, self.shown) {
                page.wanted.is_gone.store(true, Ordering::Relaxed);
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

    /// Ends all of it; what is being kept is kept.
    pub(crate) fn close(mut self) {
        self.leave(|_, _| true);
        let end = Instant::now() + END_MAX;
        for (thread, wanted) in self.ending.drain(..) {
            let is_awaited = || !thread.is_finished() && !wanted.is_opening.load(Ordering::Relaxed);
            while is_awaited() && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

fn paint_lines(asked: &Receiver<LineText>, tell: &Tell) {
    let mut painter = LinePainter::default();
    while let Ok(first) = asked.recv() {
        let newest = asked.try_iter().last().unwrap_or(first);
        let pixels = painter.paint(&newest);
        tell(Answer::Line(newest, pixels));
    }
}

/// How many may open a page at once.
#[derive(Default)]
struct Slots {
    taken: Mutex<u32>,
    changed: Condvar,
}

/// One of them.
struct Slot<'a>(&'a Slots);

impl Slots {
    /// Waits for a slot; none for a page that nobody wants any more.
    fn take(&self, wanted: &Wanted) -> Option<Slot<'_>> {
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
        Some(Slot(self))
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        *self.0.taken.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.changed.notify_all();
    }
}

/// A page, in its thread.
struct Serving {
    opener: Arc<Opener>,
    tell: Tell,
    wanted: Arc<Wanted>,
    asked: AskedPage,
}

impl Serving {
    fn is_gone(&self) -> bool {
        self.wanted.is_gone.load(Ordering::Relaxed)
    }

    fn run(&self, asks: &Receiver<Ask>, slots: &Slots) {
        let Some(slot) = slots.take(&self.wanted) else { return };
        let asked = &self.asked;
        let cache = self.opener.cache.as_ref().filter(|_| asked.again != Again::Anew);
        let mut opening = self.opener.opening(asked, cache);
        opening.want = Want::Scrolling;
        let (mut opened, failure) = match open_with(&asked.named(), &opening) {
            Ok(opened) => (opened, None),
            Err(error) => match failure::page(&asked.address, &error, asked.view, &self.opener.limits) {
                Ok(page) => (page, Some(error)),
                Err(worse) => {
                    let text = format!("{error} ({worse})");
                    return (self.tell)(Answer::Failed { page: asked.id, text });
                }
            },
        };
        drop(slot);
        self.wanted.is_opening.store(false, Ordering::Relaxed);
        if self.is_gone() {
            return;
        }
        let is_failure = failure.is_some();
        let scroll = (asked.view.scroll_x_within(opened.content.0), opened.scroll);
        let was = (opened.content, opened.source);
        (self.tell)(Answer::Opened(Box::new(self.told(&mut opened, failure, scroll))));
        let mut showing = Showing::of(&mut opened);
        self.serve(asks, &mut showing, was, if is_failure { None } else { Some(opened) });
    }

    fn told(&self, opened: &mut Opened, failure: Option<PageError>, scroll: (u32, u32)) -> OpenedPage {
        let empty = crate::Pixels { width: 0, height: 0, bytes: Vec::new() };
        let pixels = std::mem::replace(&mut opened.pixels, empty);
        let links = opened.links();
        let tier = failure.is_none().then_some(opened.tier);
        OpenedPage {
            id: self.asked.id,
            base: std::mem::take(&mut opened.base),
            title: std::mem::take(&mut opened.title),
            content: opened.content,
            links,
            served: Served { tier, split: opened.split },
            notes: std::mem::take(&mut opened.notes),
            failure,
            first: Painted { page: self.asked.id, scroll, pixels: Ok(pixels) },
        }
    }

    /// Paints, finds and keeps, until nobody wants the page any more.
    fn serve(
        &self,
        asks: &Receiver<Ask>,
        showing: &mut Showing,
        was: ((u32, u32), u128),
        mut unkept: Option<Opened>,
    ) {
        let id = self.asked.id;
        let since = Instant::now();
        loop {
            let first = if unkept.is_some() {
                asks.recv_timeout(KEPT_AFTER.saturating_sub(since.elapsed()).max(Duration::from_millis(1)))
            } else {
                asks.recv().map_err(|_| RecvTimeoutError::Disconnected)
            };
            let first = match first {
                Ok(first) => first,
                Err(RecvTimeoutError::Timeout) => {
                    self.keep(showing, unkept.take());
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => break,
            };
            let mut waiting: Vec<Ask> = std::iter::once(first).chain(asks.try_iter()).collect();
            // Of what is to be painted, and to be found, the newest.
            for is_one in [is_paint, is_find] {
                let newest = waiting.iter().rposition(is_one);
                let mut number = 0;
                waiting.retain(|ask| {
                    number += 1;
                    !is_one(ask) || Some(number - 1) == newest
                });
            }
            for ask in waiting {
                match ask {
                    Ask::Paint { scroll, .. } => {
                        let pixels = self.paint(showing, scroll.0, scroll.1, was);
                        (self.tell)(Answer::Painted(Painted { page: id, scroll, pixels }));
                    }
                    Ask::Find { text, .. } => {
                        let matches =
                            showing.find(&text).map_err(|damage| format!("cannot look for it: {damage}"));
                        (self.tell)(Answer::Found { page: id, text, matches });
                    }
                    Ask::Place { fragment, .. } => {
                        let line = showing.line_of(&fragment, self.opener.cache.as_ref());
                        (self.tell)(Answer::Place { page: id, line });
                    }
                    _ => {}
                }
            }
        }
        self.keep(showing, unkept);
    }

    fn keep(&self, showing: &Showing, opened: Option<Opened>) {
        let to_keep = opened.and_then(|opened| opened.to_keep);
        let (Some(to_keep), Some(cache)) = (to_keep, &self.opener.cache) else { return };
        if self.wanted.is_passing.load(Ordering::Relaxed) {
            return;
        }
        let text = match to_keep.keep_entry(showing.entry(), cache) {
            Ok(kept) if kept.evicted + kept.pictures_evicted > 0 => {
                format!(
                    "{} views of pages that were used longer ago had to go",
                    kept.evicted + kept.pictures_evicted
                )
            }
            Ok(_) => return,
            Err(error) => format!("the page is not kept: {error}"),
        };
        (self.tell)(Answer::Note { page: self.asked.id, text });
    }

    /// What is at this scroll position: from the list, or by the engine where the list has it not.
    fn paint(
        &self,
        showing: &mut Showing,
        x: u32,
        y: u32,
        was: ((u32, u32), u128),
    ) -> Result<crate::Pixels, String> {
        let view = self.asked.view.scrolled(y).scrolled_right(x);
        let changed = || "the page is another one by now; load it again (F5)".to_owned();
        match showing.paint(view) {
            Ok(pixels) => Ok(pixels),
            Err(Stale::NoPicture | Stale::PictureEvicted | Stale::ScrollBound | Stale::Beyond { .. }) => {
                let asked = AskedPage { view, again: Again::Not, ..self.asked.clone() };
                let opening = self.opener.opening(&asked, self.opener.cache.as_ref());
                let again = open_with(&self.asked.address.without_fragment(), &opening)
                    .map_err(|error| error.to_string())?;
                if (again.content, again.source) == was { Ok(again.pixels) } else { Err(changed()) }
            }
            Err(stale) => Err(format!("{stale}; load the page again (F5)")),
        }
    }
}

fn is_paint(ask: &Ask) -> bool {
    matches!(ask, Ask::Paint { .. })
}

fn is_find(ask: &Ask) -> bool {
    matches!(ask, Ask::Find { .. })
}
