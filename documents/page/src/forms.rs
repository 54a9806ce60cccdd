//! The texts of empty fields and closed `details`: the engine knows neither placeholders nor lists
//! of options, and takes the texts of a `details` for its summary.

use holdfast_dom::{Namespace, Node, NodeKind};

/// The mark of an element whose look follows from it ([`hints`](crate::hints)).
pub(crate) const MARK: &str = "data-holdfast";

/// Sign of a list that opens.
const OPENS: char = '\u{25BE}';
/// Kinds of `input` that show text.
const TEXT_KINDS: [&str; 7] = ["", "text", "email", "number", "search", "tel", "url"];
/// Letters of an option that are shown.
const LABEL_MAX: usize = 200;

/// What an element shows in the place of its children, or of its value.
pub(crate) enum FieldContent {
    /// What it has.
    Own,
    /// This as its value, which is not one.
    Placeholder(String),
    /// This as its text, which is a placeholder.
    PlaceholderText(String),
    /// This as its text.
    Text(String),
    /// What it has but texts.
    WithoutTexts,
}

pub(crate) fn shown(node: Node<'_>) -> FieldContent {
    if node.namespace() != Some(Namespace::Html) {
        return FieldContent::Own;
    }
    let placeholder =
        || node.attribute("placeholder").filter(|text| !text.is_empty()).map(str::to_owned);
    match node.name() {
        Some("input") => {
            let kind = node.attribute("type").unwrap_or_default().to_ascii_lowercase();
            let is_empty = node.attribute("value").unwrap_or_default().is_empty();
            let shows = is_empty && TEXT_KINDS.contains(&kind.as_str());
            placeholder().filter(|_| shows).map_or(FieldContent::Own, FieldContent::Placeholder)
        }
        Some("textarea") if node.first_child().is_none() => {
            placeholder().map_or(FieldContent::Own, FieldContent::PlaceholderText)
        }
        Some("select") => FieldContent::Text(format!("{} {OPENS}", chosen(node))),
        Some("details") if node.attribute("open").is_none() => FieldContent::WithoutTexts,
        _ => FieldContent::Own,
    }
}

/// The option that a list shows: the last one that is chosen, or else the first one.
fn chosen(list: Node<'_>) -> String {
    let options = || {
        list.descendants()
            .filter(|node| node.kind() == NodeKind::Element && node.name() == Some("option"))
    };
    let selected = options().filter(|option| option.attribute("selected").is_some()).last();
    let Some(option) =
        selected.or_else(|| options().find(|option| option.attribute("disabled").is_none()))
    else {
        return String::new();
    };
    let label = option.attribute("label").filter(|label| !label.is_empty()).map(str::to_owned);
    let text = label.or_else(|| option.text().ok()).unwrap_or_default();
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(LABEL_MAX).collect()
}
