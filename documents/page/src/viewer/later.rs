//! Clicks on links that are not known yet: a page is painted before the places of its links are
//! found.
//!
//! Invariant: it means what it would have meant at once. A click is one on what was seen where it
//! fell; it counts no more when the page is another one by then, is scrolled elsewhere, or the user
//! did something else.

use super::talk::PageId;
use super::{LinkCommand, Viewer};
use crate::places::Link;

/// Steps from link to link that count: more than a reader takes meanwhile.
const STEPS_MAX: usize = 1_000;
/// The message to the user meanwhile.
const SOON: &str = "it is found out where the links are ...";

impl Viewer {
    /// A click on a page whose links come.
    pub(super) fn click_later(&mut self, at: (f64, f64)) {
        let is_awaited = self.page.as_ref().is_some_and(|page| page.awaits_links);
        if let (Some(seen), true, None) = (self.seen(), is_awaited, &self.pending) {
            self.later = Some(LinkCommand::Click { at, seen, scroll: self.scroll });
            self.said = Some(SOON.to_owned());
        }
    }

    /// A step from link to link on such a page.
    pub(super) fn focus_later(&mut self, step: isize) {
        let before = match self.later {
            Some(LinkCommand::Focus(steps)) => steps,
            _ => 0,
        };
        self.later = Some(LinkCommand::Focus(before.saturating_add(step)));
        self.said = Some(SOON.to_owned());
    }

    /// The links are there.
    pub(super) fn linked(&mut self, id: PageId, links: Result<Vec<Link>, String>) {
        let Some(page) = self.page.as_mut().filter(|page| page.id == id) else { return };
        page.awaits_links = false;
        let later = self.later.take();
        if later.is_some() {
            self.said = None;
        }
        match links {
            Ok(links) => page.links = links,
            Err(why) => {
                page.notes.push(format!("its links are not known: {why}"));
                return;
            }
        }
        match later {
            Some(LinkCommand::Click { at, seen, scroll })
                if scroll == self.scroll && self.pending.is_none() =>
            {
                if let Some(href) = self.link_at(at, seen).map(|link| link.href.clone()) {
                    self.typing = None;
                    self.follow(&href);
                }
            }
            Some(LinkCommand::Focus(steps)) => {
                let (steps, step) = (steps.unsigned_abs().min(STEPS_MAX), steps.signum());
                (0..steps).for_each(|_| self.focus_step(step));
            }
            Some(LinkCommand::Click { .. }) | None => {}
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use super::super::talk::{ViewerEvent, ViewerRequest};
    use super::super::tests::{
        address, answer_with, asked, back, click, key, links, paint, viewer,
    };
    use super::super::{Button, Cursor, Input, Key, Viewer};

    /// A page that is there without its links.
    fn unlinked() -> Viewer {
        let mut viewer = viewer();
        let first = asked(&mut viewer);
        answer_with(&mut viewer, &first, None);
        viewer.take_asks();
        viewer
    }

    fn linked(viewer: &mut Viewer, page: u64) {
        viewer.answer(ViewerEvent::Links { page, links: Ok(links()) });
    }

    fn opens(viewer: &mut Viewer) -> Vec<String> {
        let asks = viewer.take_asks().into_iter();
        asks.filter_map(|ask| {
            if let ViewerRequest::Open(asked) = ask {
                Some(asked.address.to_string())
            } else {
                None
            }
        })
        .collect()
    }

    /// A click before the links are known follows the link that was visible at the time of the
    /// click.
    ///
    /// Guarantee: pages/clicks
    #[test]
    fn early_click_follows_the_link_seen() {
        let mut viewer = unlinked();
        assert!(viewer.is_settled(), "the page is shown");
        click(&mut viewer, 20.0, 60.0);
        // The pointer goes elsewhere meanwhile.
        viewer.input(Input::Pointer(300.0, 290.0));
        assert!(opens(&mut viewer).is_empty());
        assert!(viewer.says().contains("where the links are"), "{}", viewer.says());
        linked(&mut viewer, 1);
        assert_eq!(opens(&mut viewer), ["/pages/b.html"]);
        linked(&mut viewer, 1);
        assert!(opens(&mut viewer).is_empty(), "once");
    }

    /// The pointer on a link becomes a hand as soon as the links are known.
    ///
    /// Guarantee: pages/clicks
    #[test]
    fn pointer_becomes_a_hand_with_the_links() {
        let mut viewer = unlinked();
        viewer.input(Input::Pointer(20.0, 60.0));
        assert_eq!(viewer.cursor(), Cursor::Arrow);
        viewer.take_changed();
        linked(&mut viewer, 1);
        assert!(viewer.take_changed() && viewer.cursor() == Cursor::Hand);
        assert!(viewer.says().starts_with("/pages/b.html |"), "{}", viewer.says());
    }

    /// Scrolling cancels a click made before the links are known.
    ///
    /// Guarantee: pages/clicks
    #[test]
    fn scrolling_cancels_an_early_click() {
        let mut viewer = unlinked();
        click(&mut viewer, 20.0, 60.0);
        viewer.input(Input::Scroll(0.0, 30.0));
        linked(&mut viewer, 1);
        assert!(opens(&mut viewer).is_empty());
        // What is clicked on is what is seen, not what is going to be.
        let mut viewer = unlinked();
        viewer.input(Input::Scroll(0.0, 460.0));
        click(&mut viewer, 20.0, 60.0);
        linked(&mut viewer, 1);
        assert_eq!(
            opens(&mut viewer),
            ["/pages/b.html"],
            "not the place that is painted there later"
        );
        let mut viewer = unlinked();
        viewer.input(Input::Scroll(0.0, 460.0));
        paint(&mut viewer);
        click(&mut viewer, 20.0, 50.0);
        linked(&mut viewer, 1);
        let place = ViewerRequest::Place { page: 1, fragment: "end".to_owned() };
        assert!(viewer.take_asks().contains(&place));
    }

    /// Leaving the page cancels a click made before its links are known.
    ///
    /// Guarantee: pages/clicks
    #[test]
    fn leaving_cancels_an_early_click() {
        let mut viewer = unlinked();
        click(&mut viewer, 20.0, 60.0);
        viewer.go(address("file:///pages/c.html"));
        let next = asked(&mut viewer);
        linked(&mut viewer, 1);
        assert!(opens(&mut viewer).is_empty(), "something else was wanted since");
        answer_with(&mut viewer, &next, None);
        linked(&mut viewer, 1);
        assert!(opens(&mut viewer).is_empty() && viewer.page.as_ref().unwrap().links.is_empty());
        // Clicked while the next one is on its way: that is a link of the page before, or none.
        click(&mut viewer, 20.0, 60.0);
        back(&mut viewer);
        let before = asked(&mut viewer);
        answer_with(&mut viewer, &before, None);
        linked(&mut viewer, before.id);
        assert!(opens(&mut viewer).is_empty());
    }

    /// Newer input of the user replaces a click made before the links are known.
    ///
    /// Guarantee: pages/clicks
    #[test]
    fn newer_input_replaces_an_early_click() {
        for later in [
            Input::Press(Button::Left),
            Input::Key(Key::Escape, Default::default(), String::new()),
            Input::Key(Key::Char('/'), Default::default(), "/".to_owned()),
        ] {
            let mut viewer = unlinked();
            click(&mut viewer, 20.0, 60.0);
            // Where no link is.
            viewer.input(Input::Pointer(300.0, 290.0));
            viewer.input(later.clone());
            linked(&mut viewer, 1);
            assert!(opens(&mut viewer).is_empty(), "{later:?}");
        }
    }

    /// Guarantee: pages/clicks
    #[test]
    fn the_keyboard_goes_to_its_link_when_there_are_links() {
        let mut viewer = unlinked();
        key(&mut viewer, Key::Tab);
        key(&mut viewer, Key::Tab);
        assert!(viewer.says().contains("where the links are"), "{}", viewer.says());
        linked(&mut viewer, 1);
        assert!(viewer.says().starts_with("/pages/a.html#end"), "{}", viewer.says());
        // Past the last one comes the first.
        let mut viewer = unlinked();
        (0..links().len() + 2).for_each(|_| key(&mut viewer, Key::Tab));
        linked(&mut viewer, 1);
        assert!(viewer.says().starts_with("/pages/a.html#end"), "{}", viewer.says());
        let mut viewer = unlinked();
        key(&mut viewer, Key::Tab);
        viewer.answer(ViewerEvent::Links { page: 1, links: Ok(Vec::new()) });
        assert!(viewer.says().starts_with("there are no links"), "{}", viewer.says());
    }

    /// Guarantee: pages/clicks
    #[test]
    fn links_that_never_come_are_told() {
        let mut viewer = unlinked();
        click(&mut viewer, 20.0, 60.0);
        viewer.answer(ViewerEvent::Links { page: 1, links: Err("the engine gave up".to_owned()) });
        assert!(opens(&mut viewer).is_empty());
        assert!(
            viewer.says().contains("its links are not known: the engine gave up"),
            "{}",
            viewer.says()
        );
        key(&mut viewer, Key::Tab);
        assert!(viewer.says().starts_with("there are no links"), "{}", viewer.says());
    }
}
