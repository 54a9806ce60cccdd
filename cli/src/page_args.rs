//! What can be typed after `page`. Data only, as in `args`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use holdfast_region::RegionName;

use crate::size::parse_heap_limit;

pub const PAGE_HELP: &str = "\
Examples:
  holdfast page query index.html 'a[href]' --attr href
  holdfast page open index.html --png page.png              # laid out once, then painted from what is kept
  holdfast page open https://example.org/ --png page.png    # the server is asked whether it changed
  holdfast page import crawl.warc.gz                        # all pages that a crawler kept, several at once
  holdfast page keep index.html --heap pages --name start   # parse once ...
  holdfast page query pages '#news li' --text               # ... and query as often as you like, without parsing";

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

#[derive(Debug, Subcommand)]
pub enum PageCommand {
    /// Print the elements of a page that match a selector
    #[command(after_help = QUERY_HELP)]
    Query(PageQueryArgs),
    /// Parse a page into a heap, where queries find it
    #[command(after_help = KEEP_HELP)]
    Keep(PageKeepArgs),
    /// Open a page and paint it; it is kept, and opens without being laid out the next time
    #[command(disable_help_flag = true)]
    Open(PagePassedArgs),
    /// Fill the cache with the pages of a folder or of a WARC file
    #[command(disable_help_flag = true)]
    Import(PagePassedArgs),
    /// Find a text on a page: where it is
    #[command(disable_help_flag = true)]
    Find(PagePassedArgs),
    /// Tell where on a page the elements are that match a selector
    #[command(disable_help_flag = true)]
    Boxes(PagePassedArgs),
    /// List the pages that `open` has kept
    #[command(disable_help_flag = true)]
    Ls(PagePassedArgs),
    /// Show what is kept of a page
    #[command(disable_help_flag = true)]
    Show(PagePassedArgs),
    /// Remove kept pages
    #[command(disable_help_flag = true)]
    Rm(PagePassedArgs),
    /// Tell how full the cache of pages is
    #[command(disable_help_flag = true)]
    Stats(PagePassedArgs),
}

/// What the program `holdfast-page` is given as it is; `--help` tells what it takes.
#[derive(Debug, Args)]
pub struct PagePassedArgs {
    /// See `--help`
    #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
    pub arguments: Vec<OsString>,
}

#[derive(Debug, Args)]
pub struct PageQueryArgs {
    /// An HTML file, `-`, the address of a kept page, or a heap that has pages
    #[arg(value_name = "FILE|ADDRESS|HEAP")]
    pub source: String,
    /// What to look for: a CSS selector
    pub selector: String,
    #[command(flatten)]
    pub form: PageForm,
    /// Which document of the heap, if it has several
    #[arg(long, value_name = "DOCUMENT")]
    pub name: Option<String>,
    /// Name of the owner key [default: default]
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
}

/// What is printed of each match.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub struct PageForm {
    /// Print the value of this attribute of those that have it
    #[arg(long, value_name = "NAME")]
    pub attr: Option<String>,
    /// Print the text in it
    #[arg(long)]
    pub text: bool,
    /// Print names, attributes and texts as JSON
    #[arg(long)]
    pub json: bool,
    /// Print only how many there are
    #[arg(long)]
    pub count: bool,
}

#[derive(Debug, Args)]
pub struct PageKeepArgs {
    /// An HTML file, or `-`
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The heap; it is made if there is none
    #[arg(long, value_name = "HEAP", value_parser = RegionName::parse)]
    pub heap: RegionName,
    /// The name of the document [default: that of the file]
    #[arg(long, value_name = "DOCUMENT")]
    pub name: Option<String>,
    /// How large a heap that is made may become
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = parse_heap_limit)]
    pub heap_size: u64,
    /// Name of the owner key
    #[arg(long, value_name = "KEY", default_value = "default")]
    pub key: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
