//! `holdfast heap map`: which chunk is used for what, as characters in the terminal or as a
//! picture.
//!
//! Both draw the same cells. In a picture a cell is one chunk and a row is a segment; in the
//! terminal a cell stands for as many chunks as it takes to keep the map on a page or two.

use std::io::{self, IsTerminal, Write};
use std::path::Path;

use holdfast_heap::layout::{CHUNK_BYTES, SEGMENT_CHUNKS};
use holdfast_heap::survey::{ChunkKind, Survey};
use serde::Serialize;

use super::{cut_off, name_space};
use crate::heap_args::MapArgs;
use holdfast_command::exit::{Failure, OTHER, USAGE};
use holdfast_command::output::{print_as_is, print_json, with_progress};
use holdfast_command::size::show_size;

/// Cells in a row of the terminal: a segment, with room for the offset on 80 columns.
const COLUMNS: usize = SEGMENT_CHUNKS as usize;
/// More rows are not looked at; cells stand for more chunks instead.
const ROWS_MAX: usize = 64;
/// Chunks that a picture or a JSON document shows, of 64 GiB: the author of a file chooses the size
/// that it claims.
const CELLS_MAX: usize = 1 << 20;
/// Side of a cell in a picture, and the gap between two.
const CELL: usize = 10;
const GAP: usize = 2;
const SIDE: usize = CELL - GAP;

/// What a chunk is, in the order of the legend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    Small,
    Large,
    Table,
    Log,
    Unknown,
    Free,
    Untouched,
}

impl Kind {
    const ALL: [Kind; 7] = [
        Kind::Small,
        Kind::Large,
        Kind::Table,
        Kind::Log,
        Kind::Unknown,
        Kind::Free,
        Kind::Untouched,
    ];

    fn label(self) -> &'static str {
        match self {
            Kind::Small => "small objects",
            Kind::Large => "large objects",
            Kind::Table => "tables",
            Kind::Log => "log",
            Kind::Unknown => "not described",
            Kind::Free => "free",
            Kind::Untouched => "not formatted yet",
        }
    }

    /// Red, green, blue; told apart by the colour-blind too (after Okabe and Ito).
    fn colour(self) -> [u8; 3] {
        match self {
            Kind::Small => [0, 114, 178],
            Kind::Large => [230, 159, 0],
            Kind::Table => [90, 90, 90],
            Kind::Log => [0, 158, 115],
            Kind::Unknown => [213, 0, 50],
            Kind::Free => [226, 230, 234],
            Kind::Untouched => [244, 246, 248],
        }
    }
}

/// A chunk: what it is, and how much of it is in use, 0 to 1.
#[derive(Clone, Copy, Debug)]
struct Cell {
    kind: Kind,
    fill: f64,
    /// It goes on with the object of the cell before.
    goes_on: bool,
}

const UNTOUCHED: Cell = Cell { kind: Kind::Untouched, fill: 0.0, goes_on: false };

/// What `--json` prints.
#[derive(Serialize)]
struct Map {
    chunk_bytes: u64,
    chunks: Vec<Chunk>,
}

#[derive(Serialize)]
struct Chunk {
    offset: u64,
    kind: Kind,
    used_bytes: u64,
    /// Whether it goes on with the large object of the chunk before.
    goes_on: bool,
}

impl Map {
    fn new(cells: &[Cell]) -> Map {
        let chunks = cells.iter().zip(0..).map(|(cell, index)| Chunk {
            offset: index * CHUNK_BYTES,
            kind: cell.kind,
            used_bytes: (cell.fill * CHUNK_BYTES as f64).round() as u64,
            goes_on: cell.goes_on,
        });
        Map { chunk_bytes: CHUNK_BYTES, chunks: chunks.collect() }
    }
}

pub fn run(args: &MapArgs) -> Result<u8, Failure> {
    let reader = name_space()?.open_read(&args.name)?;
    let cells = with_progress(&format!("reading {}", args.name), || cells(reader.bytes()))?;
    if reader.lost_backing() {
        return Err(cut_off(&args.name));
    }
    if cells.len() > CELLS_MAX && (args.json || args.svg.is_some()) {
        let message = format!(
            "{} has {} chunks, and one picture or JSON document has {CELLS_MAX} at most; in the terminal a cell is several \
             chunks",
            args.name,
            cells.len()
        );
        return Err(Failure::new(USAGE, message));
    }
    match &args.svg {
        _ if args.json => print_json(&Map::new(&cells))?,
        Some(path) => write_new(path, &svg(args.name.as_str(), &cells))?,
        None => {
            let colours = io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            print_as_is(&terminal(&cells, colours))?;
        }
    }
    Ok(0)
}

/// A file that cannot be written whole is removed again: half a picture may look like a whole one.
fn write_new(path: &Path, text: &str) -> Result<(), Failure> {
    let file = holdfast_sys::file::shown_options().write(true).create_new(true).open(path);
    let written = file.and_then(|mut file| {
        file.write_all(text.as_bytes()).inspect_err(|_| drop(std::fs::remove_file(path)))
    });
    written.map_err(|error| {
        let taken = error.kind() == io::ErrorKind::AlreadyExists;
        let remedy = match taken {
            true => "choose another name, or remove it",
            false => "check the path, and whether there is room",
        };
        let message = format!("cannot write {}: {error}; {remedy}", path.display());
        Failure::new(if taken { USAGE } else { OTHER }, message)
    })
}

fn cells(bytes: &[u8]) -> Result<Vec<Cell>, Failure> {
    let (mut cells, chunks) = (Vec::new(), bytes.len() / CHUNK_BYTES as usize);
    cells.try_reserve_exact(chunks).map_err(|_| {
        let size = show_size((chunks * size_of::<Cell>()) as u64);
        Failure::new(
            OTHER,
            format!("a map of the heap needs {size} of memory; free some, or raise its limit"),
        )
    })?;
    if let Some(survey) = Survey::new(bytes) {
        cells.extend(survey.chunks().map(|chunk| {
            let kind = match chunk.kind {
                ChunkKind::Table => Kind::Table,
                ChunkKind::Log => Kind::Log,
                ChunkKind::Slab => Kind::Small,
                ChunkKind::Large => Kind::Large,
                ChunkKind::Free => Kind::Free,
                ChunkKind::Absent => Kind::Untouched,
                _ => Kind::Unknown,
            };
            let fill = match kind {
                Kind::Unknown => 1.0,
                _ => f64::from(chunk.used_bytes) / CHUNK_BYTES as f64,
            };
            let object = survey.object_at(chunk.offset);
            let goes_on =
                kind == Kind::Large && object.is_some_and(|object| object.offset < chunk.offset);
            Cell { kind, fill, goes_on }
        }));
    }
    cells.resize(chunks.max(cells.len()), UNTOUCHED);
    Ok(cells)
}

/// Chunks of each kind, without those that there are none of.
fn totals(cells: &[Cell]) -> Vec<(Kind, u64, f64)> {
    let of = |kind| {
        let chunks = cells.iter().filter(|cell| cell.kind == kind);
        chunks.fold((0, 0.0), |(count, fill), cell| (count + 1, fill + cell.fill))
    };
    let all = Kind::ALL.into_iter().map(|kind| (kind, of(kind)));
    all.filter(|(_, (count, _))| *count > 0)
        .map(|(kind, (count, fill))| (kind, count, fill))
        .collect()
}

/// What the legend says about a kind, after its label.
fn amount(kind: Kind, chunks: u64, fill: f64) -> String {
    let size = show_size(chunks * CHUNK_BYTES);
    match kind {
        Kind::Small | Kind::Large => format!("{size}, {:.0} % full", fill * 100.0 / chunks as f64),
        _ => size,
    }
}

/// The character of a cell: kinds differ without colours, too.
fn character(kind: Kind, fill: f64) -> char {
    match kind {
        Kind::Small => ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'][((fill * 8.0) as usize).min(7)],
        Kind::Large => '#',
        Kind::Table => 't',
        Kind::Log => 'l',
        Kind::Unknown => '?',
        Kind::Free => '·',
        Kind::Untouched => '-',
    }
}

fn painted(text: &str, kind: Kind, colours: bool) -> String {
    let code = match kind {
        Kind::Small => "34",
        Kind::Large => "33",
        Kind::Table => "90",
        Kind::Log => "32",
        Kind::Unknown => "1;31",
        Kind::Free | Kind::Untouched => "2",
    };
    if colours { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

fn terminal(cells: &[Cell], colours: bool) -> String {
    let per_cell = cells.len().div_ceil(COLUMNS * ROWS_MAX).next_power_of_two().max(1);
    let merged: Vec<Cell> = cells.chunks(per_cell).map(merge).collect();
    let mut text = String::new();
    for (row, cells) in merged.chunks(COLUMNS).enumerate() {
        let offset = (row * COLUMNS * per_cell) as u64 * CHUNK_BYTES;
        text.push_str(&format!("{:>10}  ", show_size(offset)));
        for same in cells.chunk_by(|a, b| a.kind == b.kind) {
            let run: String = same.iter().map(|cell| character(cell.kind, cell.fill)).collect();
            text.push_str(&painted(&run, same[0].kind, colours));
        }
        text.push('\n');
    }
    text.push_str(&format!("\none cell is {}\n", show_size(per_cell as u64 * CHUNK_BYTES)));
    for (kind, chunks, fill) in totals(cells) {
        let sample = match kind {
            Kind::Small => "▁▄█".to_owned(),
            _ => format!("{}  ", character(kind, 1.0)),
        };
        let (label, amount) = (kind.label(), amount(kind, chunks, fill));
        text.push_str(&format!("  {}  {label:<17}  {amount}\n", painted(&sample, kind, colours)));
    }
    text
}

/// What several chunks look like: the kind that most of them are, and how full those are.
fn merge(cells: &[Cell]) -> Cell {
    let most = totals(cells).into_iter().max_by_key(|(_, count, _)| *count);
    most.map_or(UNTOUCHED, |(kind, count, fill)| Cell {
        kind,
        fill: fill / count as f64,
        goes_on: false,
    })
}

/// A colour between the background of free chunks and that of the kind, by fill; never so pale that
/// a chunk in use looks free.
fn shade(cell: Cell) -> String {
    let strength = 0.25 + 0.75 * cell.fill;
    let mix = |channel: usize| {
        let (from, to) =
            (f64::from(Kind::Free.colour()[channel]), f64::from(cell.kind.colour()[channel]));
        match cell.kind {
            Kind::Free | Kind::Untouched => to as u8,
            _ => (from + (to - from) * strength) as u8,
        }
    };
    format!("#{:02x}{:02x}{:02x}", mix(0), mix(1), mix(2))
}

fn svg(name: &str, cells: &[Cell]) -> String {
    let rows = cells.len().div_ceil(COLUMNS);
    let totals = totals(cells);
    let (left, top) = (86, 44);
    let width = left + COLUMNS * CELL + 16;
    let legend_top = top + rows * CELL + 26;
    let height = legend_top + totals.len() * 20 + 6;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"16\" y=\"26\" font-size=\"16\" font-weight=\"bold\">{name}</text>\n\
         <text x=\"{}\" y=\"26\" text-anchor=\"end\" fill=\"#666\">{} in all; one cell is 64 KiB, one row \
         4 MiB</text>\n",
        width - 16,
        show_size(cells.len() as u64 * CHUNK_BYTES),
    );
    // Every row of a small heap has its offset, of a large one as many as are readable.
    let labelled = rows.div_ceil(64).next_power_of_two().max(2);
    for (row, cells) in cells.chunks(COLUMNS).enumerate() {
        let y = top + row * CELL;
        if row % labelled == 0 {
            let offset = show_size((row * COLUMNS) as u64 * CHUNK_BYTES);
            text.push_str(&format!(
                "<text x=\"{}\" y=\"{}\" text-anchor=\"end\" font-size=\"10\" fill=\"#666\">{offset}</text>\n",
                left - 8,
                y + CELL - 1
            ));
        }
        let mut column = 0;
        // Equal neighbours are one element, so that the picture of a large heap stays small.
        let alike = |a: &Cell, b: &Cell| {
            a.kind == b.kind && shade(*a) == shade(*b) && (b.goes_on || a.kind != Kind::Large)
        };
        for same in cells.chunk_by(alike) {
            let (x, shade) = (left + column * CELL, shade(same[0]));
            column += same.len();
            if same[0].kind == Kind::Large {
                // One object is one bar, whatever its last chunk looks like.
                let bridged = cells.get(column).is_some_and(|next| next.goes_on);
                let wide = same.len() * CELL - if bridged { 0 } else { GAP };
                text.push_str(&format!(
                    "<rect x=\"{x}\" y=\"{y}\" width=\"{wide}\" height=\"{SIDE}\" fill=\"{shade}\"/>\n"
                ));
                continue;
            }
            text.push_str(&format!("<path fill=\"{shade}\" d=\""));
            for index in 0..same.len() {
                text.push_str(&format!("M{} {y}h{SIDE}v{SIDE}h-{SIDE}z", x + index * CELL));
            }
            text.push_str("\"/>\n");
        }
    }
    for (index, (kind, chunks, fill)) in totals.into_iter().enumerate() {
        let y = legend_top + index * 20;
        let steps: &[f64] = if kind == Kind::Small { &[0.0, 0.5, 1.0] } else { &[1.0] };
        let wide = 36 / steps.len();
        for (step, fill) in steps.iter().enumerate() {
            let sample = shade(Cell { kind, fill: *fill, goes_on: false });
            let (x, y) = (left + step * wide, y - 10);
            text.push_str(&format!(
                "<rect x=\"{x}\" y=\"{y}\" width=\"{wide}\" height=\"12\" fill=\"{sample}\"/>\n"
            ));
        }
        let (label, amount) = (kind.label(), amount(kind, chunks, fill));
        let (label_x, amount_x) = (left + 46, left + 170);
        text.push_str(&format!(
            "<text x=\"{label_x}\" y=\"{y}\">{label}</text>\n\
             <text x=\"{amount_x}\" y=\"{y}\" fill=\"#666\">{amount}</text>\n"
        ));
    }
    text.push_str("</svg>\n");
    text
}
