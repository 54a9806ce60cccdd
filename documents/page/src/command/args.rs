//! The arguments of the program. Data only.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use holdfast_command::exit::CODES;
use holdfast_command::size::parse_heap_limit;
use holdfast_native_heap::parse_size;
use holdfast_region::RegionName;

use crate::{PageError, View};

const HELP: &str = "\
Examples:
  holdfast page query index.html 'a[href]' --attr href
  holdfast page keep index.html --heap pages --name start         # parse once ...
  holdfast page query pages '#news li' --text                     # ... and query as often as you like
  holdfast page open index.html --png page.png                    # laid out, painted, and kept
  holdfast page open index.html --png page.png                    # its pixels were kept
  holdfast page open index.html --png page.png --scroll 2000      # painted from the display list that was kept
  holdfast page find index.html 'some words' --json
  holdfast page boxes index.html 'h2 > a'
  holdfast page open https://example.org/#news --png page.png     # the server is asked whether it changed
  holdfast page open https://example.org/ --png page.png --offline
  holdfast page open . --png folder.png                           # a folder: its index.html, or a list
  holdfast page open index.html --window                          # a small browser
  holdfast page import crawl.warc.gz                              # all pages that a crawler kept
  holdfast page ls
  holdfast page rm --all";

const IMPORT_HELP: &str = "\
Examples:
  holdfast page import /usr/share/doc/debian-reference
  holdfast page import crawl.warc.gz --only document --jobs 4
  holdfast page import crawl.warc.gz --match 'https://example.org/*' --limit 1000 --json

What the cache has as it is there is skipped, so an import that was ended goes on where it was. It stops when the cache is full of its own \
pages. Exit code 1: some pages or records could not be taken, which are named; 6: there is no more room; 130: it was stopped.";

const QUERY_HELP: &str = "\
Examples:
  holdfast page query index.html 'a[href]' --attr href
  holdfast page query https://example.org/ h2 --text         # as `import` or `open` has kept it
  curl -s https://example.org | holdfast page query - title --text
  holdfast page query pages 'table tr:nth-child(2n) > td' --name start --json

What begins with http: or https: is looked for in the cache of pages, where `open` or `import` has kept it: the document of the view \
that was used last, and no server is asked. What contains a slash, and what is a file here, is a file; `-` is standard input; all else is \
the name of a heap. Without a word \
of what to print, it is the HTML of each match, one match a line if it has one. Exit code 1: nothing matches.";

const KEEP_HELP: &str = "\
Example:
  holdfast page keep index.html --heap pages --name start

A document of the same name is replaced when the new one is complete.";

/// Keep HTML pages in heaps: query them, open them without parsing or layout
#[derive(Debug, Parser)]
#[command(name = "holdfast-page", bin_name = "holdfast page", version, after_help = format!("{HELP}\n\n{CODES}"))]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Print the elements of a page that match a selector
    #[command(after_help = QUERY_HELP)]
    Query(QueryArgs),
    /// Parse a page into a heap, where queries find it
    #[command(after_help = KEEP_HELP)]
    Keep(KeepArgs),
    /// Open a page and paint it; it is kept, and opens without being laid out the next time
    Open(OpenArgs),
    /// Fill the cache with the pages of a folder or of a WARC file, several at once
    #[command(after_help = IMPORT_HELP)]
    Import(ImportArgs),
    /// List the pages in the cache, the one that was used last first
    Ls(ListArgs),
    /// Find a text on a page: where it is, also over the ends of lines. Exits with 1 if it is not
    /// there
    Find(FindArgs),
    /// Tell where the elements are that match a selector. Exits with 1 if there are none
    Boxes(BoxesArgs),
    /// Show what the cache has of a page: views, links
    Show(ShowArgs),
    /// Remove pages from the cache
    Rm(RemoveArgs),
    /// Tell how full the cache is, and look at every byte of it
    Stats(ListArgs),
}

#[derive(Debug, Args)]
pub(crate) struct CacheArgs {
    /// The heap with the kept pages; it is made if there is none
    #[arg(long, value_name = "HEAP", default_value = "page-cache", value_parser = RegionName::parse)]
    pub(crate) cache: RegionName,
    /// Name of the owner key
    #[arg(long, value_name = "KEY", default_value = "default")]
    pub(crate) key: String,
    /// How much may be kept; beyond it, what was used longest ago goes
    #[arg(long, value_name = "SIZE", default_value = "512MiB", value_parser = parse_size)]
    pub(crate) quota: u64,
}

/// What a page is laid out for.
#[derive(Debug, Args)]
pub(crate) struct ViewportArgs {
    /// Width and height of the viewport, in pixels
    #[arg(long, value_name = "WIDTHxHEIGHT", default_value = "1280x800", value_parser = parse_viewport)]
    pub(crate) viewport: (u32, u32),
    /// Pixels for one of the page
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = parse_scale)]
    pub(crate) scale: u32,
}

impl ViewportArgs {
    /// Not scrolled.
    pub(crate) fn view(&self) -> Result<View, PageError> {
        View::new(self.viewport.0, self.viewport.1, self.scale)
    }
}

#[derive(Debug, Args)]
pub(crate) struct OpenArgs {
    /// An HTML file, a folder, or an address (`file:`, `http:`, `https:`), perhaps with a `#place`
    /// in it
    #[arg(value_name = "PAGE")]
    pub(crate) page: String,
    #[command(flatten)]
    pub(crate) viewport: ViewportArgs,
    /// How far down the page is scrolled, in pixels
    #[arg(long, value_name = "PIXELS", default_value_t = 0)]
    pub(crate) scroll: u32,
    /// Write the picture here
    #[arg(long, value_name = "FILE")]
    pub(crate) png: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) servers: ServerArgs,
    /// How far to the right the page is scrolled, in pixels
    #[arg(long, value_name = "PIXELS", default_value_t = 0)]
    pub(crate) scroll_x: u32,
    /// Show the page in a window: links, back and forth, find, zoom; documents/window.md has
    /// the keys
    #[arg(long, conflicts_with = "png")]
    pub(crate) window: bool,
    /// Close the window when the page is on the screen: to measure how long that takes
    #[arg(long, requires = "window", hide = true)]
    pub(crate) exit_after_first_frame: bool,
    /// Neither look into the cache nor keep anything
    #[arg(long)]
    pub(crate) no_cache: bool,
    /// Paint the page from its display list, also where its pixels are kept
    #[arg(long, conflicts_with = "window")]
    pub(crate) repaint: bool,
    /// How long style and layout may take, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) timeout: u64,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) place: CacheArgs,
}

/// A page that is asked what is where: its kept layout answers, or a new one.
#[derive(Debug, Args)]
pub(crate) struct AskArgs {
    /// An HTML file, a folder, or an address
    #[arg(value_name = "PAGE")]
    pub(crate) page: String,
    #[command(flatten)]
    pub(crate) viewport: ViewportArgs,
    /// Neither look into the cache nor keep anything
    #[arg(long)]
    pub(crate) no_cache: bool,
    /// How long style and layout may take, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) timeout: u64,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) servers: ServerArgs,
    #[command(flatten)]
    pub(crate) place: CacheArgs,
}

#[derive(Debug, Args)]
pub(crate) struct FindArgs {
    #[command(flatten)]
    pub(crate) ask: AskArgs,
    /// What is looked for
    #[arg(value_name = "TEXT")]
    pub(crate) text: String,
    /// Capitals differ from small letters
    #[arg(long)]
    pub(crate) case: bool,
    /// The most matches that are reported
    #[arg(long, value_name = "COUNT", default_value_t = 10_000)]
    pub(crate) max: usize,
}

#[derive(Debug, Args)]
pub(crate) struct BoxesArgs {
    #[command(flatten)]
    pub(crate) ask: AskArgs,
    /// A selector of CSS
    #[arg(value_name = "SELECTOR")]
    pub(crate) selector: String,
}

#[derive(Debug, Args)]
pub(crate) struct QueryArgs {
    /// An HTML file, `-`, the address of a kept page, or a heap that has pages
    #[arg(value_name = "FILE|ADDRESS|HEAP")]
    pub(crate) source: String,
    /// What to look for: a CSS selector
    pub(crate) selector: String,
    #[command(flatten)]
    pub(crate) form: MatchForm,
    /// Which document of the heap, if it has several
    #[arg(long, value_name = "DOCUMENT")]
    pub(crate) name: Option<String>,
    /// Name of the owner key [default: default]
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,
}

/// What is printed of each match.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub(crate) struct MatchForm {
    /// Print the value of this attribute of those that have it
    #[arg(long, value_name = "NAME")]
    pub(crate) attr: Option<String>,
    /// Print the text in it
    #[arg(long)]
    pub(crate) text: bool,
    /// Print names, attributes and texts as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Print only how many there are
    #[arg(long)]
    pub(crate) count: bool,
}

#[derive(Debug, Args)]
pub(crate) struct KeepArgs {
    /// An HTML file, or `-`
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The heap; it is made if there is none
    #[arg(long, value_name = "HEAP", value_parser = RegionName::parse)]
    pub(crate) heap: RegionName,
    /// The name of the document [default: that of the file]
    #[arg(long, value_name = "DOCUMENT")]
    pub(crate) name: Option<String>,
    /// How large a heap that is made may become
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = parse_heap_limit)]
    pub(crate) heap_size: u64,
    /// Name of the owner key
    #[arg(long, value_name = "KEY", default_value = "default")]
    pub(crate) key: String,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// How servers are asked.
#[derive(Debug, Args)]
pub(crate) struct ServerArgs {
    /// Ask for all of it again, also for what is good still
    #[arg(long, conflicts_with = "offline")]
    pub(crate) reload: bool,
    /// Ask no server: show what is kept, and say since when
    #[arg(long, conflicts_with = "no_cache")]
    pub(crate) offline: bool,
    /// Let a page of this machine have what it asks for from the network; a page from the network
    /// may, and gets no files
    #[arg(long)]
    pub(crate) network: bool,
    /// How long to wait for a server's answer, and for all of it, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) patience: u64,
}

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// A folder with HTML files, or a WARC file (plain, or with each record packed by gzip)
    #[arg(value_name = "DIR|WARC")]
    pub(crate) from: PathBuf,
    #[command(flatten)]
    pub(crate) viewport: ViewportArgs,
    /// How many pages are laid out at once [default: as many as there are processors, at most 16]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=64))]
    pub(crate) jobs: Option<u64>,
    /// Keep only this: `document` parses the pages for queries and lays nothing out
    #[arg(long, value_name = "WHAT")]
    pub(crate) only: Option<OnlyArg>,
    /// Only pages whose name in the folder, or whose address in the file, matches (`*` also matches
    /// `/`)
    #[arg(long = "match", value_name = "GLOB", value_parser = glob::Pattern::new)]
    pub(crate) matching: Option<glob::Pattern>,
    /// Only the first N of these
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<u64>,
    /// Also hidden files and folders
    #[arg(long)]
    pub(crate) hidden: bool,
    /// How long style and layout of a page may take, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) timeout: u64,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Do a part of it, for a process that reads what came of it
    #[arg(long, hide = true)]
    pub(crate) part: bool,
    #[command(flatten)]
    pub(crate) place: CacheArgs,
}

/// What is kept of each page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnlyArg {
    /// Its document
    Document,
    /// Its document and how it looks, as without this option
    List,
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) place: CacheArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// An HTML file, a folder, or an address
    #[arg(value_name = "PAGE")]
    pub(crate) page: String,
    #[command(flatten)]
    pub(crate) place: CacheArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RemoveArgs {
    /// HTML files, folders, or addresses
    #[arg(value_name = "PAGE", required_unless_present = "all")]
    pub(crate) pages: Vec<String>,
    /// Remove all of them
    #[arg(long, conflicts_with = "pages")]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) place: CacheArgs,
}

fn parse_viewport(text: &str) -> Result<(u32, u32), String> {
    let parsed = text
        .split_once('x')
        .and_then(|(width, height)| Some((width.parse().ok()?, height.parse().ok()?)));
    parsed.ok_or_else(|| "give width and height in pixels, as in 1280x800".to_owned())
}

/// In thousandths.
fn parse_scale(text: &str) -> Result<u32, String> {
    let factor: f64 = text.parse().map_err(|_| "give a number, as in 1.5".to_owned())?;
    if (0.1..=10.0).contains(&factor) {
        Ok((factor * 1000.0).round() as u32)
    } else {
        Err("give a number from 0.1 to 10".to_owned())
    }
}
