//! The page that is shown in the place of one that cannot be: what went wrong, and what can be
//! done.

use std::sync::Arc;

use crate::fetch::{self, Fetch, FetchError, FetchRequest, FetchedBytes};
use crate::open::open_with;
use crate::opened::{OpenOptions, OpenPage, PageUse};
use crate::view::View;
use crate::{Address, PageError, PageLimits};

/// A page of our own.
struct FailurePage(String);

impl Fetch for FailurePage {
    fn fetch(&self, wanted: &FetchRequest<'_>) -> Result<fetch::FetchAnswer, FetchError> {
        match wanted.purpose {
            fetch::Purpose::Page => Ok(fetch::FetchAnswer::Bytes(FetchedBytes::new(
                wanted.url.clone(),
                self.0.clone().into_bytes(),
            ))),
            fetch::Purpose::Part => Err(FetchError::NotFound),
        }
    }
}

/// Lays it out.
pub(super) fn page(
    address: &Address,
    error: &PageError,
    view: View,
    limits: &PageLimits,
) -> Result<OpenPage, PageError> {
    let from = Arc::new(FailurePage(text(&address.to_string(), &error.to_string())));
    let mut opening = OpenOptions::new(view.scrolled(0).scrolled_right(0), limits, None, from);
    opening.want = PageUse::Scrolling;
    open_with(address, &opening)
}

fn text(address: &str, error: &str) -> String {
    let (address, error) = (escaped(address), escaped(error));
    format!(
        "<!doctype html><html><head><title>Not opened: {address}</title><style>
body {{ font: 16px sans-serif; margin: 3em 4em; color: #222 }} h1 {{ font-size: 24px }} p {{ max-width: 46em }}
code {{ background: #eee }} .why {{ background: #fff3d6; padding: 0.8em 1em }}
</style></head><body><h1>This page cannot be opened</h1><p><code>{address}</code></p><p class=why>{error}</p>
<p>F5 tries again; Ctrl+L takes another address; Alt+Left leads back.</p></body></html>"
    )
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for one in text.chars() {
        match one {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            one if one.is_control() => escaped.push(' '),
            one => escaped.push(one),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantee: pages/window-waits
    #[test]
    fn what_is_said_of_a_page_is_text_and_no_markup() {
        let page = text("file:///a/<b>&c", "cannot read <script>");
        assert!(
            page.contains("file:///a/&lt;b&gt;&amp;c")
                && page.contains("cannot read &lt;script&gt;")
        );
        assert_eq!(page.matches("<p").count(), 3, "{page}");
    }
}
