//! A viewer with the threads that open its pages: what a window needs to have.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use super::input::Input;
use super::pages::{Opener, PageThreads};
use super::talk::{OpenStats, ViewerEvent};
use super::{Cursor, Viewer};
use crate::Address;
use crate::view::View;

/// A browser without a window: what the user does goes in, and pixels come out. Nothing here waits
/// for a page.
pub struct Browser {
    viewer: Viewer,
    pages: PageThreads,
    answers: Receiver<ViewerEvent>,
    /// What could not be told in the window.
    notes: Vec<String>,
}

impl Browser {
    /// One that opens a page at once, whose part of the window has the size of `view`. `wake` is
    /// called, from other threads, when [`Browser::exchange`] has something to do.
    #[must_use]
    pub fn new(
        address: Address,
        view: View,
        opener: Opener,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Browser {
        let (sender, answers) = channel();
        let wake = Arc::new(wake);
        let pages = PageThreads::new(opener, move |answer| {
            // A receiver that is gone wants no answer.
            let _ = sender.send(answer);
            wake();
        });
        let viewer = Viewer::new(address, view, 1000);
        let mut browser = Browser { viewer, pages, answers, notes: Vec::new() };
        browser.serve();
        browser
    }

    fn serve(&mut self) {
        self.viewer.take_asks().into_iter().for_each(|ask| self.pages.serve(ask));
    }

    /// Gives the viewer what its threads have sent, and the threads what the viewer asks for. Notes go
    /// to the line of the window; with `keeps_notes` [`Browser::close`] returns them as well.
    pub fn exchange(&mut self, keeps_notes: bool) {
        while let Ok(answer) = self.answers.try_recv() {
            if let (true, ViewerEvent::Note { text, .. }) = (keeps_notes, &answer) {
                self.notes.push(text.clone());
            }
            self.viewer.answer(answer);
        }
        self.serve();
    }

    /// What the user does.
    pub fn input(&mut self, input: Input) {
        self.viewer.input(input);
    }

    /// The window's width and height, in pixels.
    #[must_use]
    pub fn size(&self) -> (u32, u32) {
        self.viewer.size()
    }

    /// The window's title.
    #[must_use]
    pub fn title(&self) -> String {
        self.viewer.title()
    }

    /// What the pointer looks like where it is.
    #[must_use]
    pub fn cursor(&self) -> Cursor {
        self.viewer.cursor()
    }

    /// Whether the window is to be closed.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.viewer.is_done()
    }

    /// Whether the window shows something else than the last time that this was asked.
    pub fn take_changed(&mut self) -> bool {
        self.viewer.take_changed()
    }

    /// Whether there is no page, and none on its way.
    #[must_use]
    pub fn has_nothing(&self) -> bool {
        self.viewer.has_nothing()
    }

    /// Whether what was asked for is there: the page, painted as far as it is scrolled.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.viewer.is_settled()
    }

    /// What served the page that is shown, and its title.
    #[must_use]
    pub fn shown(&self) -> Option<(OpenStats, &str)> {
        self.viewer.shown()
    }

    /// Paints the window: a word for each of its pixels, line by line, blue in its lowest byte.
    pub fn compose(&self, pixels: &mut [u32]) {
        self.viewer.compose(pixels);
    }

    /// Ends all of it; what is being kept is kept. Returns what was not told in the window: that a
    /// page is not kept, and the like, for people.
    #[must_use]
    pub fn close(self) -> Vec<String> {
        let Browser { pages, answers, mut notes, .. } = self;
        let late = pages.close();
        let is_note =
            |answer| if let ViewerEvent::Note { text, .. } = answer { Some(text) } else { None };
        notes.extend(answers.try_iter().filter_map(is_note).chain(late));
        notes
    }
}

/// The first complete picture in the window.
#[derive(Clone, Debug)]
pub struct FirstFrame {
    /// From the beginning until there was a window.
    pub window: Duration,
    /// From the beginning until the picture was on the screen.
    pub shown: Duration,
    /// What served the page.
    pub served: OpenStats,
    /// Its title.
    pub title: String,
}

/// What is to be said when the window is closed.
#[derive(Clone, Debug, Default)]
pub struct ClosedWindow {
    /// None, if it was closed before that.
    pub first: Option<FirstFrame>,
    /// What could not be told in the window any more: that a page is not kept, and the like, for
    /// people.
    pub notes: Vec<String>,
}
