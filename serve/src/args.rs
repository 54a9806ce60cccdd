//! The arguments of `holdfast serve`, as clap reads them. Data only: nothing is looked up or opened
//! here.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use holdfast_command::exit::CODES;
use holdfast_command::size::{parse_heap_limit, parse_size};
use holdfast_command::time::parse_time;
use holdfast_identity::GivenName;
use holdfast_serve::Origin;

const HELP: &str = "\
Examples:
  holdfast serve --web site                              # prints the address for the browser
  holdfast serve --web site --listen 127.0.0.1:8080 --app notes
  holdfast serve --web site --allow https://example.org  # pages of that origin may run applets, too
  holdfast serve --origins
  holdfast serve --forget https://example.org

The page uses the npm package @holdfast/web: NativeApplet.open(\"./applet\", { heaps: [\"notes\"] }). Its heaps belong to the \
origin of the page; to the directory, or the name after --app, for pages of the directory. Nothing is reachable from other \
machines or for other users.";

/// Serve a web page whose applets run here, natively and in the jail
#[derive(Debug, Parser)]
#[command(name = "holdfast-serve", bin_name = "holdfast serve", version, after_help = format!("{HELP}\n\n{CODES}"), max_term_width = 110)]
pub(crate) struct Cli {
    /// The directory with the page: its files, index.html for a directory
    #[arg(long, value_name = "DIR")]
    pub(crate) web: Option<PathBuf>,
    /// Where to listen: 127.0.0.1 or another address of this machine alone (127.0.0.0/8, [::1]), and a
    /// port, 0 for any that is free
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0", requires = "web")]
    pub(crate) listen: SocketAddr,
    /// What the applets of the directory's pages are called: their heaps are those of this name
    #[arg(long, value_name = "NAME", value_parser = GivenName::parse, requires = "web")]
    pub(crate) app: Option<GivenName>,
    /// Let pages of another origin run applets while this server runs; may be given several times.
    /// Without it the user is asked on the terminal
    #[arg(long, value_name = "ORIGIN", requires = "web")]
    pub(crate) allow: Vec<Origin>,
    /// Refuse pages of other origins without a question
    #[arg(long, requires = "web")]
    pub(crate) never_ask: bool,
    /// How large a new heap may ever get
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = parse_heap_limit, requires = "web")]
    pub(crate) heap_size: u64,
    /// How many heaps the pages of an origin may make
    #[arg(long, value_name = "COUNT", default_value_t = 16, requires = "web")]
    pub(crate) heaps_per_origin: usize,
    /// Limit of volatile memory of an applet; the heap does not count
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = parse_size, requires = "web")]
    pub(crate) memory: u64,
    /// Limit of the wall time of a call
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = parse_time, requires = "web")]
    pub(crate) timeout: Duration,
    /// How many applets run at a time, of all pages. An origin gets another one only while more are
    /// free than it has
    #[arg(long, value_name = "COUNT", default_value_t = 32, requires = "web")]
    pub(crate) applets: usize,
    /// List the origins that the user allowed on the terminal
    #[arg(long, conflicts_with_all = ["web", "forget"])]
    pub(crate) origins: bool,
    /// Allow an origin no longer; its heaps stay
    #[arg(long, value_name = "ORIGIN", conflicts_with = "web")]
    pub(crate) forget: Option<Origin>,
}
