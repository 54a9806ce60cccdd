//! A browser for pages without scripts: all that it knows and does, but without a window, so that
//! it can be tried without one.
//!
//! What the user does goes in ([`Viewer::input`]), and what was told by those who open and paint
//! ([`Viewer::answer`]); what is asked for comes out ([`Viewer::take_asks`]), and what the window
//! shows ([`Viewer::compose`]). Nothing here waits, reads or lays out.

mod browser;
mod failure;
mod find;
mod frame;
mod history;
mod input;
mod later;
mod navigate;
mod pages;
mod place;
mod pointer;
mod scroll;
mod serving;
mod status;
mod talk;
mod text;
mod typing;

pub use browser::{Browser, ClosedWindow, FirstFrame};
pub use input::{Button, Input, Key, Modifiers};
pub use pages::Opener;

use crate::Address;
use crate::fetch::Url;
use crate::pixels::Pixels;
use crate::places::{Link, Match};
use crate::view::View;
use history::History;
use input::ViewerCommand;
use place::WindowParts;
pub use talk::OpenStats;
use talk::{LineText, PageId, PaintedView, ReloadMode, ViewerEvent, ViewerRequest};

/// What the pointer looks like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cursor {
    /// As usual.
    #[default]
    Arrow,
    /// On a link.
    Hand,
}

/// The page that is shown.
struct ShownPage {
    id: PageId,
    address: Address,
    /// What addresses in it are relative to, as the engine has it: the name of a folder may stand
    /// there for a file beside it.
    base: Url,
    view: View,
    title: String,
    content: (u32, u32),
    links: Vec<Link>,
    /// They come later.
    awaits_links: bool,
    served: OpenStats,
    notes: Vec<String>,
    is_failure: bool,
}

/// Pixels that are shown, and where of which page they are.
struct ShownPicture {
    page: PageId,
    scroll: (u32, u32),
    pixels: Pixels,
}

/// What is looked for, and where it is.
#[derive(Debug, Default)]
struct TextSearch {
    text: String,
    matches: Vec<Match>,
    /// The one that one has come to.
    at: usize,
    /// Whether it was looked for already, and what went wrong.
    done: Option<Result<(), String>>,
}

/// What is typed.
#[derive(Debug)]
struct LineInput {
    what: LineInputKind,
    text: String,
}

/// What the line is typed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineInputKind {
    Find,
    Address,
}

/// What is done when the links are there.
#[derive(Clone, Copy, Debug, PartialEq)]
enum LinkCommand {
    /// The link there is followed.
    Click {
        /// Where in the window.
        at: (f64, f64),
        /// How far the page was scrolled in what was seen, and was to be.
        seen: (u32, u32),
        scroll: (u32, u32),
    },
    /// The keyboard goes so many links on.
    Focus(isize),
}

/// A page that was asked for and is not there yet.
struct PendingPage {
    id: PageId,
    address: Address,
    view: View,
    then: HistoryChange,
}

/// What becomes of the history when it is there.
enum HistoryChange {
    /// It is a new page.
    New,
    /// It is one that was visited.
    Visit(usize),
    /// It is the same.
    Stay,
    /// It is the same, in another viewport.
    Fit,
}

impl PendingPage {
    fn is_of(&self, page: PageId) -> bool {
        self.id == page
    }
}

/// The direction of a scroll bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Axis {
    Across,
    Down,
}

/// The browser and all of its state.
pub(crate) struct Viewer {
    size: (u32, u32),
    /// Of the display, and what the user wants on top of it.
    display_permille: u32,
    zoom_permille: u32,
    page: Option<ShownPage>,
    picture: Option<ShownPicture>,
    /// How far the page is to be scrolled; the picture follows.
    scroll: (u32, u32),
    /// What is painted, or is going to be when all that was asked for is there.
    asked_paint: (PageId, (u32, u32)),
    pending: Option<PendingPage>,
    /// What is done when the links are there.
    later: Option<LinkCommand>,
    history: History,
    typing: Option<LineInput>,
    finding: Option<TextSearch>,
    /// Number of the link that the keyboard is on.
    focus: Option<usize>,
    pointer: Option<(f64, f64)>,
    /// The scroll bar that is held, and where on its thumb.
    held_bar: Option<(Axis, f64)>,
    /// What of a notch is less than a pixel.
    rest: (f64, f64),
    /// The message to the user until the next event.
    said: Option<String>,
    line: (LineText, Option<Pixels>),
    asks: Vec<ViewerRequest>,
    last_id: PageId,
    is_changed: bool,
    is_done: bool,
}

impl Viewer {
    /// One whose page's part has the size of `view`, which asks for a page at once.
    /// `display_permille` are the thousandths of a pixel that the display has for one of a page, of
    /// those in the view.
    #[must_use]
    pub(crate) fn new(address: Address, view: View, display_permille: u32) -> Viewer {
        let display_permille = display_permille.clamp(100, 10_000);
        let zoom_permille = (view.scale_permille() * 1000 / display_permille).clamp(ZOOM.0, ZOOM.1);
        let mut viewer = Viewer {
            size: place::around((view.width(), view.height()), display_permille),
            display_permille,
            zoom_permille,
            page: None,
            picture: None,
            scroll: (view.scroll_x(), view.scroll()),
            asked_paint: (0, (0, 0)),
            pending: None,
            later: None,
            history: History::default(),
            typing: None,
            finding: None,
            focus: None,
            pointer: None,
            held_bar: None,
            rest: (0.0, 0.0),
            said: None,
            line: (LineText::default(), None),
            asks: Vec::new(),
            last_id: 0,
            is_changed: true,
            is_done: false,
        };
        viewer.begin(address, view);
        viewer
    }

    /// The window's size.
    #[must_use]
    pub(crate) fn size(&self) -> (u32, u32) {
        self.size
    }

    /// The window's title.
    #[must_use]
    pub(crate) fn title(&self) -> String {
        match &self.page {
            Some(page) if page.title.is_empty() => page.address.to_string(),
            Some(page) => page.title.clone(),
            None => "holdfast-page".to_owned(),
        }
    }

    /// What the pointer looks like where it is.
    #[must_use]
    pub(crate) fn cursor(&self) -> Cursor {
        if self.hovered().is_some() { Cursor::Hand } else { Cursor::Arrow }
    }

    /// Whether the window is to be closed.
    #[must_use]
    pub(crate) fn is_done(&self) -> bool {
        self.is_done
    }

    /// Whether the window shows something else than the last time that this was asked.
    pub(crate) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.is_changed)
    }

    /// Whether there is no page, and none on its way.
    #[must_use]
    pub(crate) fn has_nothing(&self) -> bool {
        self.pending.is_none() && self.page.is_none()
    }

    /// Whether what was asked for is there: the page, painted as far as it is scrolled.
    #[must_use]
    pub(crate) fn is_settled(&self) -> bool {
        self.pending.is_none() && self.is_painted()
    }

    /// What served the page that is shown, and its title.
    #[must_use]
    pub(crate) fn shown(&self) -> Option<(OpenStats, &str)> {
        self.page.as_ref().map(|page| (page.served, page.title.as_str()))
    }

    fn is_painted(&self) -> bool {
        let (Some(page), Some(picture)) = (&self.page, &self.picture) else { return false };
        picture.page == page.id && picture.scroll == self.scroll
    }

    /// What is asked for since the last time.
    pub(crate) fn take_asks(&mut self) -> Vec<ViewerRequest> {
        self.ask_for_line();
        std::mem::take(&mut self.asks)
    }

    fn parts(&self) -> WindowParts {
        WindowParts::of(self.size.0, self.size.1, self.display_permille)
    }

    /// The viewport that the window has now.
    fn view(&self) -> View {
        let page = self.parts().page;
        let scale = self.display_permille * self.zoom_permille / 1000;
        View::within(page.width, page.height, scale)
    }

    /// What the user does.
    pub(crate) fn input(&mut self, input: Input) {
        self.is_changed = true;
        match input {
            Input::Key(key, held, text) => {
                if self.typed(key, held, &text) {
                    self.later = None;
                } else if let Some(command) = input::command(key, held) {
                    self.said = None;
                    if !matches!(command, ViewerCommand::NextLink | ViewerCommand::PreviousLink) {
                        self.later = None;
                    }
                    self.command(command);
                }
            }
            Input::Pointer(x, y) => self.pointed(x, y),
            Input::PointerGone => self.pointer = None,
            Input::Press(button) => {
                self.said = None;
                self.later = None;
                self.pressed(button);
            }
            Input::Release(button) => self.released(button),
            Input::Scroll(x, y) => self.scroll_by(x, y),
            Input::Wheel(x, y) => {
                let line = self.line_pixels() * WHEEL_LINES;
                self.scroll_by(x * line, y * line);
            }
            Input::Resize(width, height) => {
                self.size = (width.max(1), height.max(1));
                self.adapt();
            }
            Input::Scale(permille) => {
                self.display_permille = permille.clamp(100, 10_000);
                self.adapt();
            }
            Input::Close => self.is_done = true,
        }
    }

    fn command(&mut self, command: ViewerCommand) {
        match command {
            ViewerCommand::Lines(x, y) => {
                let line = self.line_pixels();
                self.scroll_by(f64::from(x) * line, f64::from(y) * line);
            }
            ViewerCommand::Pages(count) => {
                // A line or two of before stays, to find on.
                let page = (f64::from(self.parts().page.height) - self.line_pixels()).max(1.0);
                self.scroll_by(0.0, f64::from(count) * page);
            }
            ViewerCommand::Top => self.scroll_to(self.scroll.0, 0),
            ViewerCommand::End => self.scroll_to(self.scroll.0, u32::MAX),
            ViewerCommand::Back => self.travel(-1),
            ViewerCommand::Forward => self.travel(1),
            ViewerCommand::Reload => self.reload(ReloadMode::AskServer),
            ViewerCommand::ReloadIgnoringCache => self.reload(ReloadMode::IgnoreCache),
            ViewerCommand::Find => self.begin_find(),
            ViewerCommand::FindNext => self.find_step(1),
            ViewerCommand::FindPrevious => self.find_step(-1),
            ViewerCommand::Address => self.begin_address(),
            ViewerCommand::Larger => self.zoom(1),
            ViewerCommand::Smaller => self.zoom(-1),
            ViewerCommand::Usual => self.zoom(0),
            ViewerCommand::NextLink => self.focus_step(1),
            ViewerCommand::PreviousLink => self.focus_step(-1),
            ViewerCommand::Follow => self.follow_focus(),
            ViewerCommand::Stop => self.stop(),
            ViewerCommand::Quit => self.is_done = true,
        }
    }

    /// The event.
    pub(crate) fn answer(&mut self, answer: ViewerEvent) {
        match answer {
            ViewerEvent::Opened(opened) => self.opened(*opened),
            ViewerEvent::Links { page, links } => self.linked(page, links),
            ViewerEvent::Failed { page, text } => {
                if self.pending.take_if(|pending| pending.is_of(page)).is_some() {
                    self.said = Some(text);
                }
            }
            ViewerEvent::Painted(painted) => self.painted(painted),
            ViewerEvent::Found { page, text, matches } => self.found(page, &text, matches),
            ViewerEvent::Place { page, line } => {
                if self.page.as_ref().is_some_and(|shown| shown.id == page) {
                    match line {
                        Some(line) => self.scroll_to(self.scroll.0, line),
                        None => self.said = Some("there is no such place on this page".to_owned()),
                    }
                }
            }
            ViewerEvent::Line(text, pixels) => self.line = (text, Some(pixels)),
            ViewerEvent::Note { page, text } => {
                if let Some(shown) = self.page.as_mut().filter(|shown| shown.id == page) {
                    shown.notes.push(text);
                }
            }
        }
        self.is_changed = true;
    }

    fn painted(&mut self, painted: PaintedView) {
        if self.page.as_ref().is_none_or(|page| page.id != painted.page) {
            return;
        }
        match painted.pixels {
            Ok(pixels) => {
                self.picture =
                    Some(ShownPicture { page: painted.page, scroll: painted.scroll, pixels });
            }
            Err(why) => self.said = Some(why),
        }
    }
}

/// Thousandths: the least, and the most.
const ZOOM: (u32, u32) = (100, 10_000);
/// Lines of a notch of the wheel.
const WHEEL_LINES: f64 = 3.0;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests;
