//! The history of a window: pages, and their scroll positions.

use crate::Address;

/// Visits that are remembered.
const VISITS_MAX: usize = 1_000;

/// A page that was looked at.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HistoryEntry {
    pub(crate) address: Address,
    /// How far it was scrolled to the right and down, in thousandths of a pixel of the page.
    pub(crate) scroll: (u64, u64),
}

/// The pages before and after the shown one, each with its scroll position.
#[derive(Debug, Default)]
pub(crate) struct History {
    visits: Vec<HistoryEntry>,
    /// The one that is looked at.
    at: usize,
}

impl History {
    /// The one that is looked at.
    pub(crate) fn now(&mut self) -> Option<&mut HistoryEntry> {
        self.visits.get_mut(self.at)
    }

    /// One that is so many steps ahead of the one that is looked at, or of one that is on its way.
    pub(crate) fn ahead(
        &self,
        on_its_way: Option<usize>,
        steps: i32,
    ) -> Option<(usize, &HistoryEntry)> {
        let at = on_its_way.unwrap_or(self.at).checked_add_signed(steps as isize)?;
        Some((at, self.visits.get(at)?))
    }

    /// Goes to one.
    pub(crate) fn go(&mut self, at: usize) {
        if at < self.visits.len() {
            self.at = at;
        }
    }

    /// Goes to a new one, from which none leads forward.
    pub(crate) fn push(&mut self, visit: HistoryEntry) {
        self.visits.truncate(self.at + 1);
        if self.visits.len() == VISITS_MAX {
            self.visits.remove(0);
        }
        self.visits.push(visit);
        self.at = self.visits.len() - 1;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use super::*;

    #[test]
    fn a_new_page_ends_what_led_forward() {
        let mut history = History::default();
        let visit =
            |name: &str| HistoryEntry { address: Address::parse(name).unwrap(), scroll: (0, 0) };
        assert!(history.now().is_none() && history.ahead(None, -1).is_none());
        for name in ["a.html", "b.html", "c.html"] {
            history.push(visit(name));
        }
        assert!(history.ahead(None, 1).is_none());
        let (at, before) = history.ahead(None, -2).unwrap();
        assert_eq!((at, before), (0, &visit("a.html")));
        assert_eq!(history.ahead(Some(0), 1).unwrap().1, &visit("b.html"));
        history.go(at);
        assert_eq!(history.ahead(None, 1).unwrap().1, &visit("b.html"));
        history.push(visit("d.html"));
        assert_eq!(history.now().unwrap(), &visit("d.html"));
        assert!(history.ahead(None, 1).is_none() && history.ahead(None, -2).is_none());
        for _ in 0..2 * VISITS_MAX {
            history.push(visit("e.html"));
        }
        assert_eq!(history.visits.len(), VISITS_MAX);
    }
}
