//! Tables of plain text that fit a width.

use super::text;

/// Where the cells of a column stand.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// Rows under a header. When they are too wide, the first column gives way, and then the last ones
/// are left out.
#[derive(Clone, Debug, Default)]
pub struct Table {
    header: Vec<(String, Align)>,
    rows: Vec<Row>,
}

#[derive(Clone, Debug)]
struct Row {
    cells: Vec<String>,
    strong: bool,
    apart: bool,
}

/// The first column is not cut below this.
const FIRST_WIDTH_MIN: usize = 12;

impl Table {
    /// With these columns; the first one is words, all others numbers.
    #[must_use]
    pub fn new(header: &[&str]) -> Table {
        let column = |(index, title): (usize, &&str)| {
            ((*title).to_owned(), if index == 0 { Align::Left } else { Align::Right })
        };
        Table { header: header.iter().enumerate().map(column).collect(), rows: Vec::new() }
    }

    /// This column is aligned so.
    #[must_use]
    pub fn aligned(mut self, column: usize, align: Align) -> Table {
        if let Some(column) = self.header.get_mut(column) {
            column.1 = align;
        }
        self
    }

    /// A row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.push(cells, false, false);
    }

    /// A row that sums up others.
    pub fn strong_row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.push(cells, true, false);
    }

    /// The next row stands apart from those above.
    pub fn gap(&mut self) {
        if let Some(row) = self.rows.last_mut() {
            row.apart = true;
        }
    }

    fn push(&mut self, cells: impl IntoIterator<Item = String>, strong: bool, apart: bool) {
        let mut cells: Vec<_> = cells.into_iter().map(|cell| text::plain(&cell)).collect();
        cells.resize(self.header.len(), String::new());
        self.rows.push(Row { cells, strong, apart });
    }

    /// Whether there is anything in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The text, at most this wide, with its header dim and its sums strong where colours are
    /// wanted.
    #[must_use]
    pub fn render(&self, width: usize, colour: bool) -> String {
        let columns = self.header.len();
        let cell_width = |column: usize| {
            let cells = self.rows.iter().map(|row| row.cells[column].chars().count());
            cells.chain([self.header[column].0.chars().count()]).max().unwrap_or(0)
        };
        let mut widths: Vec<_> = (0..columns).map(cell_width).collect();
        let total =
            |widths: &[usize]| widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1);
        if let Some(first) = widths.first().copied() {
            let over = total(&widths).saturating_sub(width);
            widths[0] = first.saturating_sub(over).max(first.min(FIRST_WIDTH_MIN));
        }
        while widths.len() > 2 && total(&widths) > width {
            widths.pop();
        }
        let line = |cells: &mut dyn Iterator<Item = &str>| {
            let mut line = String::new();
            for (index, (cell, width)) in cells.zip(&widths).enumerate() {
                let cell = text::cut(cell, *width);
                let pad = " ".repeat(width - cell.chars().count());
                let gap = if index == 0 { "" } else { "  " };
                line += &match self.header[index].1 {
                    Align::Left => format!("{gap}{cell}{pad}"),
                    Align::Right => format!("{gap}{pad}{cell}"),
                };
            }
            line.trim_end().to_owned()
        };
        let styled = |line: String, code: &str| {
            if colour { format!("\x1b[{code}m{line}\x1b[0m\n") } else { line + "\n" }
        };
        let mut out = styled(line(&mut self.header.iter().map(|(title, _)| title.as_str())), "2");
        for row in &self.rows {
            let text = line(&mut row.cells.iter().map(String::as_str));
            out += &if row.strong { styled(text, "1") } else { text + "\n" };
            if row.apart {
                out.push('\n');
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table is never wider than requested; the last columns are dropped first.
    #[test]
    fn table_fits_and_drops_last_columns_first() {
        let mut table = Table::new(&["name", "one", "two", "three"]).aligned(3, Align::Left);
        table.row(["a long name that has to give way", "1", "22", "x"].map(str::to_owned));
        table.gap();
        table.strong_row(["b\n", "1000", "2", "y"].map(str::to_owned));
        for width in [20, 30, 80] {
            let text = table.render(width, false);
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}\n{text}");
            assert_eq!(text.lines().count(), 4);
        }
        assert_eq!(
            table.render(36, false),
            "name                 one  two  three\na long name that …     1   22  x\n\nb?                  1000    2  y\n"
        );
        assert!(table.render(80, true).contains("\x1b[1mb?"));
    }
}
