//! A page in its thread, whose record is made when a test says so.

use std::sync::mpsc::{channel, sync_channel};

use tempfile::TempDir;

use super::*;
use crate::engine::{LaidOutPage, RecordedPage};
use crate::error::RecordError;
use crate::fetch::Files;
use crate::steps::ResultSender;
use crate::steps::held::ends;
use crate::view::View;
use crate::{Address, Cache, CachePolicy, PageLimits};
use holdfast_region::{NameSpace, Places, RegionName};

const LONG: Duration = Duration::from_secs(120);

/// A page that is shown, with the hand that records it.
struct RecordedTestPage {
    folder: TempDir,
    asks: Sender<PageMessage>,
    answers: Receiver<ViewerEvent>,
    slots: Arc<OpenSlots>,
    wanted: Arc<PageDemand>,
    thread: std::thread::JoinHandle<()>,
    hand: ResultSender<LaidOutPage, RecordedPage>,
    rest: Result<RecordedPage, RecordError>,
}

fn cache(folder: &TempDir) -> Cache {
    let place = |name| folder.path().join(name);
    let names = NameSpace::new(Places::at(place("home"), place("pool")).unwrap());
    Cache::new(names, RegionName::parse("page-cache").unwrap(), "default", 64 << 20)
}

fn shown() -> RecordedTestPage {
    shown_of(false)
}

/// A page that is new, or one that was kept and must not be any more.
fn shown_of(is_forbidden: bool) -> RecordedTestPage {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.html");
    let lines: String = (0..100).map(|number| format!("<p>line {number} of a page")).collect();
    std::fs::write(&path, format!("<!doctype html><title>A</title><a href=b.html>next</a>{lines}"))
        .unwrap();
    let opener = Opener {
        limits: PageLimits { time: LONG, ..PageLimits::default() },
        cache: Some(cache(&folder)),
        from: Arc::new(Files),
        network: false,
        asking: CachePolicy::Usual,
    };
    let asked = PageRequest {
        id: 1,
        address: Address::parse(path.to_str().unwrap()).unwrap(),
        view: View::new(300, 200, 1000).unwrap(),
        fragment: None,
        again: ReloadMode::Cached,
        is_resize: false,
    };
    let kept = opener.cache.as_ref().filter(|_| is_forbidden);
    if kept.is_some() {
        let opened = crate::open(&asked.address, asked.view, &opener.limits, kept).unwrap();
        opened.to_keep.unwrap().keep(&cache(&folder)).unwrap();
    }
    let mut opening = opener.opening(&asked, opener.cache.as_ref().filter(|_| !is_forbidden));
    opening.want = PageUse::Scrolling;
    let mut opened = open_with(&asked.address, &opening).unwrap();
    if is_forbidden {
        opened.to_keep.as_mut().unwrap().forget_also(asked.address.as_str());
    }
    // The engine has recorded it; the viewer learns that later.
    let (hand, coming) = ends(|_| ());
    let rest = opened.to_keep.as_mut().unwrap().rest_mut().unwrap();
    let rest = std::mem::replace(rest, coming).take();
    let (tell, answers) = sync_channel(100);
    let (asks, told) = channel();
    let (slots, wanted) = (Arc::<OpenSlots>::default(), Arc::new(PageDemand::new()));
    let page = PageServer {
        opener: Arc::new(opener),
        tell: Arc::new(move |answer| tell.send(answer).unwrap()),
        wanted: Arc::clone(&wanted),
        asked,
    };
    let (itself, of_thread) = (asks.clone(), Arc::clone(&slots));
    let thread = std::thread::spawn(move || {
        let slot = of_thread.take(&page.wanted).unwrap();
        page.show(opened, None, &told, itself, slot);
    });
    RecordedTestPage { folder, asks, answers, slots, wanted, thread, hand, rest }
}

impl RecordedTestPage {
    fn ask(&self, ask: ViewerRequest) {
        self.asks.send(PageMessage::Ask(ask)).unwrap();
    }

    fn answer(&self) -> ViewerEvent {
        self.answers.recv_timeout(LONG).unwrap()
    }

    /// The page as it comes first: without links.
    fn first(&self) -> Pixels {
        let ViewerEvent::Opened(page) = self.answer() else { panic!("it is not shown") };
        assert!(page.links.is_none() && page.title == "A");
        page.first.pixels.unwrap()
    }

    fn anew(&self, scroll: u32) -> Pixels {
        let address = Address::parse(self.folder.path().join("a.html").to_str().unwrap()).unwrap();
        let view = View::new(300, 200, 1000).unwrap().scrolled(scroll);
        crate::open(&address, view, &PageLimits::default(), None).unwrap().pixels
    }

    fn leave(&self) {
        self.wanted.is_gone.store(true, Ordering::Relaxed);
        self.asks.send(PageMessage::Left).unwrap();
    }
}

fn paint(line: u32) -> ViewerRequest {
    ViewerRequest::Paint { page: 1, scroll: (0, line) }
}

fn find(text: &str) -> ViewerRequest {
    ViewerRequest::Find { page: 1, text: text.to_owned() }
}

/// A page is shown before it is recorded, and requests made meanwhile are served afterwards.
///
/// Guarantee: pages/window-waits
#[test]
fn requests_wait_for_the_record() {
    let page = shown();
    assert!(page.first() == page.anew(0), "another picture");
    for ask in [paint(10), find("line 7 "), paint(300), find("line 9 ")] {
        page.ask(ask);
    }
    assert!(page.answers.try_recv().is_err(), "without a record nothing of this is known");
    assert_eq!(*page.slots.taken.lock().unwrap(), 1, "it takes the place of one that is opened");
    let (there, leave) = (page.anew(300), page.asks.clone());
    page.hand.put(page.rest);
    let next = || page.answers.recv_timeout(LONG).unwrap();
    let ViewerEvent::Links { page: 1, links: Ok(links) } = next() else { panic!("no links") };
    assert_eq!(links[0].href, "b.html");
    let ViewerEvent::Painted(painted) = next() else { panic!("not painted") };
    assert_eq!(painted.scroll, (0, 300), "the newest, and nothing else");
    assert!(painted.pixels.unwrap() == there, "another picture");
    let ViewerEvent::Found { text, matches, .. } = next() else { panic!("nothing is looked for") };
    assert_eq!((text.as_str(), matches.unwrap().len()), ("line 9 ", 1));
    assert_eq!(*page.slots.taken.lock().unwrap(), 0, "others may be opened");
    page.wanted.is_gone.store(true, Ordering::Relaxed);
    leave.send(PageMessage::Left).unwrap();
    page.thread.join().unwrap();
    assert_eq!(cache(&page.folder).views().unwrap().len(), 1, "it is kept");
}

/// A page that may no longer be stored is removed when the user leaves it, even if it could not be
/// recorded.
///
/// Guarantee: pages/no-store
#[test]
fn forbidden_page_is_removed_without_a_record() {
    let page = shown_of(true);
    page.first();
    assert_eq!(cache(&page.folder).views().unwrap().len(), 1);
    page.leave();
    page.hand.put(Err(RecordError::TimeOut { seconds: 0 }));
    page.thread.join().unwrap();
    assert_eq!(cache(&page.folder).views().unwrap(), []);
}

/// A page that the user leaves before it is recorded is stored once the record is ready.
///
/// Guarantee: pages/window-waits
#[test]
fn left_page_is_kept_once_recorded() {
    let page = shown();
    page.first();
    page.leave();
    assert!(!page.thread.is_finished());
    page.hand.put(page.rest);
    page.thread.join().unwrap();
    assert_eq!(cache(&page.folder).views().unwrap().len(), 1);
    assert!(page.answers.try_recv().is_err(), "nobody is told of links any more");
}

/// A page that is only passed through waits for no record.
///
/// Guarantee: pages/window-waits
#[test]
fn passing_page_waits_for_no_record() {
    let page = shown();
    page.first();
    page.wanted.is_passing.store(true, Ordering::Relaxed);
    page.leave();
    // The hand is here still, and empty.
    page.thread.join().unwrap();
    assert!(!page.hand.is_wanted(), "and whoever makes it need not go on");
    assert_eq!(cache(&page.folder).views().unwrap(), []);
    assert_eq!(*page.slots.taken.lock().unwrap(), 0);
}

/// A page that cannot be recorded is shown and scrolled, and a message says that it is not stored.
///
/// Guarantee: pages/window-waits
#[test]
fn unrecordable_page_is_shown_and_scrolled() {
    let page = shown();
    assert!(page.first() == page.anew(0), "another picture");
    page.ask(paint(300));
    page.ask(find("line 7 "));
    page.hand.put(Err(RecordError::Engine { message: "node 7 is gone".to_owned() }));
    let mut seen = Vec::new();
    // Its note may come before what takes longer.
    while seen.len() < 4 {
        seen.push(match page.answer() {
            ViewerEvent::Links { links: Err(why), .. } => format!("links: {why}"),
            ViewerEvent::Painted(painted) => {
                assert!(painted.pixels.unwrap() == page.anew(300), "the engine paints it");
                "painted".to_owned()
            }
            ViewerEvent::Found { matches: Err(why), .. } => why,
            ViewerEvent::Note { text, .. } => text,
            other => panic!("{other:?}"),
        });
    }
    let why = "the layout engine failed when it was recorded: node 7 is gone";
    let all = ["links: ", "cannot look for it: ", "the page is not kept: "]
        .map(|of| format!("{of}{why}"));
    for wanted in all.iter().map(String::as_str).chain(["painted"]) {
        assert!(seen.iter().any(|said| said == wanted), "{wanted}: {seen:?}");
    }
    page.leave();
    page.thread.join().unwrap();
    assert_eq!(cache(&page.folder).views().unwrap(), []);
}
