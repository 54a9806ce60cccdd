//! Bounds the spans of table cells: to the rows that there are, and to columns that the engine can
//! count.
//!
//! The engine makes a row or column of its grid for each that a cell names, and counts them in 16
//! bits.
//!
//! Source: HTML, "4.9.12.1 Forming a table": a cell ends with its row group.

use std::collections::{HashMap, HashSet};

use holdfast_dom::{Document, Namespace, Node};

/// Columns of a table that are taken.
const COLUMNS_MAX: u32 = 16_000;
/// Columns that a cell may say.
const COLSPAN_MAX: u32 = 1_000;
/// Rows that a cell may say.
const ROWSPAN_MAX: u32 = 65_534;

/// Cells that reach less far than they say: columns and rows.
#[derive(Default)]
pub(crate) struct Spans {
    cells: HashMap<u32, (u32, u32)>,
    /// Whether a table has more columns than are taken.
    pub(crate) is_cut: bool,
}

impl Spans {
    /// Looks at all tables of a page.
    pub(crate) fn of(document: &Document<'_>) -> Spans {
        let mut spans = Spans::default();
        // Rows are in groups, or in the table itself; the first one comes first.
        let mut groups: HashSet<u32> = HashSet::new();
        for node in document.root().descendants().filter(|node| is(*node, "tr")) {
            if node.parent().is_some_and(|group| groups.insert(group.id())) {
                spans.look_at(node);
            }
        }
        spans
    }

    /// What is not as the page says, for people.
    pub(crate) fn left_out(&self) -> Option<String> {
        self.is_cut.then(|| {
            format!(
                "columns of a table beyond {COLUMNS_MAX}: its cells reach less far than they say"
            )
        })
    }

    /// What an attribute of a cell says instead.
    pub(crate) fn value(&self, cell: Node<'_>, name: &str) -> Option<String> {
        let (columns, rows) = self.cells.get(&cell.id())?;
        match name {
            "colspan" => Some(columns.to_string()),
            "rowspan" => Some(rows.to_string()),
            _ => None,
        }
    }

    /// Looks at a row and those that follow it in its group.
    fn look_at(&mut self, first: Node<'_>) {
        let rows: Vec<Node<'_>> = std::iter::successors(Some(first), |row| row.next_sibling())
            .filter(|row| is(*row, "tr"))
            .collect();
        // Columns of cells that reach down, by the row before which they end.
        let mut ends: HashMap<usize, u32> = HashMap::new();
        let mut taken = 0u32;
        for (number, row) in rows.iter().enumerate() {
            taken -= ends.remove(&number).unwrap_or(0);
            let mut of_row = 0u32;
            for cell in row.children().filter(|cell| is(*cell, "td") || is(*cell, "th")) {
                let says = |name: &str| cell.attribute(name).and_then(leading_number);
                let (columns, down) = (says("colspan"), says("rowspan"));
                let rest = (rows.len() - number) as u32;
                let mut wide = columns.unwrap_or(1).clamp(1, COLSPAN_MAX);
                // None says: to the end of the group.
                let mut tall = match down.unwrap_or(1) {
                    0 => rest,
                    down => down.min(ROWSPAN_MAX).min(rest),
                };
                let left = COLUMNS_MAX.saturating_sub(taken + of_row);
                if wide > left && wide > 1 {
                    (wide, tall) = (left.max(1), 1);
                    self.is_cut = true;
                }
                if tall > 1 {
                    taken += wide;
                    *ends.entry(number + tall as usize).or_default() += wide;
                } else {
                    of_row += wide;
                }
                if columns.is_some_and(|columns| columns != wide)
                    || down.is_some_and(|down| down != tall)
                {
                    self.cells.insert(cell.id(), (wide, tall));
                }
            }
        }
    }
}

fn is(node: Node<'_>, name: &str) -> bool {
    node.name() == Some(name) && node.namespace() == Some(Namespace::Html)
}

/// The number that an attribute begins with, as HTML reads it.
fn leading_number(value: &str) -> Option<u32> {
    let value = value.trim_start();
    let digits: String =
        value.strip_prefix('+').unwrap_or(value).chars().take_while(char::is_ascii_digit).collect();
    if digits.is_empty() { None } else { Some(digits.parse().unwrap_or(u32::MAX)) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use super::*;

    /// `colspan` and `rowspan` of a cell.
    type Cell = (Option<String>, Option<String>);

    fn spans(source: &str) -> (Vec<Cell>, bool) {
        let page = holdfast_dom::LoosePage::parse(source.as_bytes(), &Default::default()).unwrap();
        let document = page.open().unwrap();
        let spans = Spans::of(&document);
        let cells = document.root().descendants().filter(|node| is(*node, "td"));
        (
            cells
                .map(|cell| (spans.value(cell, "colspan"), spans.value(cell, "rowspan")))
                .collect(),
            spans.is_cut,
        )
    }

    /// Guarantee: pages/too-much
    #[test]
    fn cells_end_with_their_group_and_with_the_columns() {
        let text = |columns: u32, rows: u32| (Some(columns.to_string()), Some(rows.to_string()));
        let (found, is_cut) = spans(
            "<table><tr><td rowspan=2>a<td rowspan=9 colspan=2>b<tr><td rowspan=0>c<tbody><tr><td colspan=0>d\
             <tr><td colspan=5000 rowspan=3>e<td>f</table>",
        );
        assert_eq!(
            found,
            [(None, None), text(2, 2), text(1, 1), text(1, 1), text(1_000, 1), (None, None)]
        );
        assert!(!is_cut);
        let many = format!("<table>{}</table>", "<tr><td rowspan=1000 colspan=1000>x".repeat(66));
        let (found, is_cut) = spans(&many);
        assert!(
            is_cut
                && found[0] == text(1_000, 66)
                && found[15] == text(1_000, 51)
                && found[16] == text(1, 1)
        );
        // What ends gives its columns back.
        let (found, is_cut) =
            spans(&format!("<table>{}</table>", "<tr><td rowspan=2 colspan=900>x<tr>".repeat(100)));
        assert!(!is_cut && found.iter().all(|cell| *cell == (None, None)));
    }
}
