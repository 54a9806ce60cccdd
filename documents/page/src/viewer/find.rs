//! Text that is looked for on the page.

use super::talk::{PageId, ViewerRequest};
use super::{TextSearch, Viewer};
use crate::places::Match;

impl Viewer {
    /// Looks for a text, from what is seen on.
    pub(super) fn find(&mut self, text: String) {
        let Some(page) = &self.page else { return };
        let page = page.id;
        self.asks.retain(|asked| !matches!(asked, ViewerRequest::Find { .. }));
        if text.is_empty() {
            self.finding = None;
            return;
        }
        self.asks.push(ViewerRequest::Find { page, text: text.clone() });
        // What was found before stays until the new is there: the page does not flicker while one
        // types.
        let before = self.finding.take().unwrap_or_default();
        self.finding = Some(TextSearch { text, done: None, ..before });
    }

    /// The same on the page that has come in the place of the one before.
    pub(super) fn find_again(&mut self, text: String) {
        self.finding = None;
        self.find(text);
    }

    pub(super) fn found(&mut self, page: PageId, text: &str, matches: Result<Vec<Match>, String>) {
        let top = self.scroll.1 as f32;
        let is_shown = self.page.as_ref().is_some_and(|shown| shown.id == page);
        let Some(finding) =
            self.finding.as_mut().filter(|finding| is_shown && finding.text == text)
        else {
            return;
        };
        let (matches, done) = match matches {
            Ok(matches) => (matches, Ok(())),
            Err(why) => (Vec::new(), Err(why)),
        };
        finding.matches = matches;
        finding.done = Some(done);
        let below = finding
            .matches
            .iter()
            .position(|one| !one.fixed && one.places.first().is_some_and(|first| first[1] >= top));
        finding.at = below.unwrap_or(0);
        self.see_match();
    }

    /// To the next match, or the one before.
    pub(super) fn find_step(&mut self, step: isize) {
        let Some(finding) = &mut self.finding else { return };
        let count = finding.matches.len();
        if count > 0 {
            let next = finding.at.checked_add_signed(step).filter(|next| *next < count);
            finding.at = next.unwrap_or(if step > 0 { 0 } else { count - 1 });
            self.see_match();
        }
    }

    fn see_match(&mut self) {
        let place = self.finding.as_ref().and_then(|finding| {
            finding.matches.get(finding.at).filter(|one| !one.fixed)?.places.first().copied()
        });
        if let Some(place) = place {
            self.scroll_to_see(place);
        }
    }
}
