//! The text of the status line below the page.

use holdfast_sys::terminal::steers;

use super::LineInputKind;
use super::Viewer;
use super::pointer::LinkTarget;
use super::talk::{LineText, ViewerRequest};

/// Characters of a line that can be seen at all.
const SHOWN_MAX: usize = 1_000;

impl Viewer {
    /// Left and right of the line.
    fn line_text(&self) -> (String, String, bool) {
        let right = match (self.awaited(), &self.page) {
            (Some(_), _) => "opening ...".to_owned(),
            (None, Some(_)) if !self.is_painted() => "painting ...".to_owned(),
            (None, Some(page)) => page.served.to_string(),
            (None, None) => String::new(),
        };
        if let Some(typing) = &self.typing {
            return match typing.what {
                LineInputKind::Address => (format!("Address: {}|", typing.text), right, true),
                LineInputKind::Find => {
                    (format!("Find: {}|", typing.text), self.count_of_matches(), true)
                }
            };
        }
        let left = if let Some(said) = &self.said {
            said.clone()
        } else if let Some(link) = self.hovered().or(self.focused()) {
            match self.target(&link.href) {
                Some(LinkTarget::Page(address)) => match address.fragment() {
                    Some(fragment) => format!("{address}#{fragment}"),
                    None => address.to_string(),
                },
                Some(LinkTarget::Other(address, why)) => format!("{address}: {why}"),
                None => link.href.clone(),
            }
        } else if let Some(address) = self.awaited() {
            address.to_string()
        } else if let Some(finding) = &self.finding {
            return (format!("Find: {}", finding.text), self.count_of_matches(), false);
        } else if let Some(page) = &self.page {
            // The last one says of when the page is; it comes before an address that may be long.
            let note = match page.notes.as_slice() {
                [] => String::new(),
                [note] => format!("({note}) "),
                [more @ .., note] => format!("({note}; and {} more) ", more.len()),
            };
            match page.title.is_empty() {
                true => format!("{note}{}", page.address),
                false => format!("{} - {note}{}", page.title, page.address),
            }
        } else {
            String::new()
        };
        (left, right, false)
    }

    fn count_of_matches(&self) -> String {
        let Some(finding) = &self.finding else { return String::new() };
        match (&finding.done, finding.matches.len()) {
            (None, _) => "looking ...".to_owned(),
            (Some(Err(why)), _) => why.clone(),
            (Some(Ok(())), 0) => "not found".to_owned(),
            (Some(Ok(())), count) => format!("{} of {count}", finding.at + 1),
        }
    }

    /// Asks for the line, if it says something else than the one that there is.
    pub(super) fn ask_for_line(&mut self) {
        let (left, right, is_typed) = self.line_text();
        let area = self.parts().line;
        let shown = |text: String| -> String {
            // Nothing in an address or a title steers the line.
            let plain = text.chars().map(|one| if steers(one) { ' ' } else { one });
            if is_typed {
                let count = text.chars().count();
                plain.skip(count.saturating_sub(SHOWN_MAX)).collect()
            } else {
                plain.take(SHOWN_MAX).collect()
            }
        };
        let wanted = LineText {
            left: shown(left),
            right: right.chars().filter(|one| !steers(*one)).take(SHOWN_MAX).collect(),
            is_typed,
            width: area.width,
            height: area.height,
            scale_permille: self.display_permille,
        };
        let (asked, _) = &self.line;
        if *asked != wanted {
            self.line.0 = wanted.clone();
            self.asks.push(ViewerRequest::Line(wanted));
        }
    }

    /// What the line says, for tests.
    #[cfg(test)]
    pub(super) fn says(&self) -> String {
        let (left, right, _) = self.line_text();
        format!("{left} | {right}")
    }
}
