//! The command line: pages from files and servers to pictures, and what is kept of them.
//!
//! It is two programs. `holdfast-page`, which `holdfast page open` and its like start, writes the
//! picture file of a page that is kept ([`front`]) and becomes `holdfast-page-engine` for all else
//! ([`run`]): that one has the layout engine and the window, whose tables and libraries take as long
//! to load as a kept page takes to open.

#![deny(clippy::print_stderr, clippy::print_stdout)]

mod args;
mod ask;
mod browse;
mod front;
mod importing;
mod query;

pub use front::front;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;
use holdfast_command::exit::{self, BAD_FILE, FOUND, NO_ROOM, NOT_FOUND, OTHER, USAGE};
use holdfast_command::{output, program};
use holdfast_region::{NameSpace, Places};
use holdfast_sys::terminal::{Shown, notice};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;

use crate::{
    Address, Cache, CacheError, CachePolicy, ClosedWindow, Fetch, LAYOUT_THREAD, OpenOptions,
    OpenPage, Opener, PageError, PageLimits, PageUse, View, ViewRow, Web, open_with,
};
use args::{CacheArgs, Cli, Command, ListArgs, OpenArgs, RemoveArgs, ServerArgs, ShowArgs};
use holdfast_sys::counted::counted;

/// Data of the process: no limit on a page bounds what the engine makes of it. Heaps and the
/// addresses they reserve do not count.
const DATA_BYTES_MAX: u64 = 4 << 30;

struct Failure {
    code: u8,
    message: String,
}

impl From<exit::Failure> for Failure {
    fn from(failure: exit::Failure) -> Failure {
        Failure { code: failure.code, message: failure.message }
    }
}

impl From<PageError> for Failure {
    fn from(error: PageError) -> Failure {
        let code = match &error {
            PageError::Fetch { error, .. } if error.is_not_found() => NOT_FOUND,
            PageError::Address { .. } | PageError::Range { .. } => USAGE,
            _ => OTHER,
        };
        Failure { code, message: error.to_string() }
    }
}

impl From<CacheError> for Failure {
    fn from(error: CacheError) -> Failure {
        Failure { code: OTHER, message: error.to_string() }
    }
}

/// What [`run`] asks for a window.
pub struct WindowOrder {
    /// The page.
    pub address: Address,
    /// The size of the page's part of the window.
    pub view: View,
    /// How pages are opened.
    pub opener: Opener,
    /// It closes by itself when the page is on the screen.
    pub closes_after_first_frame: bool,
    /// What its times are counted from.
    pub since: Instant,
}

/// The program with everything: answers the arguments of this process. `show_window` shows a window
/// until that is closed, and says why there is none.
pub fn run<E: ToString>(
    show_window: impl FnOnce(WindowOrder) -> Result<ClosedWindow, E>,
) -> ExitCode {
    let started = Instant::now();
    // The layout thread's panic becomes an error of the page, which this program prints: the usual
    // hook would print it a second time.
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if std::thread::current().name() != Some(LAYOUT_THREAD) {
            usual(panic);
        }
    }));
    program::answer_in_commands();
    let arguments: Vec<_> = std::env::args_os().collect();
    let cli = match Cli::try_parse_from(&arguments) {
        Ok(cli) => cli,
        Err(refused_or_help) => {
            let told = program::tell(&refused_or_help, &arguments);
            return ExitCode::from(told.unwrap_or_else(|failure| failure.code));
        }
    };
    bound_memory(match &cli.command {
        // The process that does the work has the limit of the one that starts it.
        Command::Import(args) => importing::data_bytes_max(args),
        _ => DATA_BYTES_MAX,
    });
    let done = match &cli.command {
        Command::Query(args) => query::query(args).map_err(Failure::from),
        Command::Keep(args) => query::keep(args).map_err(Failure::from),
        Command::Open(args) if args.window => browse::run(args, started, show_window),
        Command::Open(args) => open_page(args),
        Command::Find(args) => ask::find(args),
        Command::Boxes(args) => ask::boxes(args),
        Command::Import(args) => importing::import(args),
        Command::Ls(args) => list(args),
        Command::Show(args) => show(args),
        Command::Rm(args) => remove(args),
        Command::Stats(args) => stats(args),
    };
    ExitCode::from(told(done))
}

/// The exit code of what was done; a failure is printed.
fn told(done: Result<u8, Failure>) -> u8 {
    done.unwrap_or_else(|failure| {
        // The engine's words can be the page's.
        notice(format_args!("holdfast: {}", Shown(&failure.message)));
        failure.code
    })
}

/// Takes no more data than this, or the lower limit that there is: what needs more ends the
/// program.
fn bound_memory(bytes: u64) {
    let Rlimit { current, maximum } = getrlimit(Resource::Data);
    let bounded = current.map_or(bytes, |current| current.min(bytes));
    // A limit can always be lowered; where a filter forbids even that, the author of the filter
    // bounds the program.
    let _ = setrlimit(Resource::Data, Rlimit { current: Some(bounded), maximum });
}

fn cache(args: &CacheArgs) -> Result<Cache, CacheError> {
    holdfast_keeper_client::use_for_room();
    let names = NameSpace::new(Places::from_env()?);
    Ok(Cache::new(names, args.cache.clone(), &args.key, args.quota))
}

fn open_page(args: &OpenArgs) -> Result<u8, Failure> {
    let address = Address::parse(&args.page)?;
    let view = args.viewport.view()?.scrolled(args.scroll).scrolled_right(args.scroll_x);
    let limits = limits(args.timeout, &args.servers);
    let cache = cache_unless_without(args);
    let opening = OpenOptions {
        repaint: args.repaint,
        want: if args.png.is_some() { PageUse::File } else { PageUse::Picture },
        ..opening(view, &limits, cache.as_ref(), &args.servers, web(&args.servers))
    };
    let mut opened = open_with(&address, &opening)?;
    let encoded = match &args.png {
        Some(path) => Some(write_png(&mut opened, path)?),
        None => None,
    };
    report_opened(&opened, encoded, args.json)?;
    keep(&mut opened, cache.as_ref());
    Ok(0)
}

/// Prints what was opened, and what there is to say of it.
fn report_opened(opened: &OpenPage, encoded: Option<Duration>, json: bool) -> Result<u8, Failure> {
    if json {
        print_json(&OpenReport::of(opened, encoded))?;
    } else {
        print(&report(opened, encoded))?;
    }
    for note in &opened.notes {
        notice(format_args!("holdfast: {}", Shown(note)));
    }
    Ok(0)
}

/// How long things may take.
fn limits(timeout_s: u64, servers: &ServerArgs) -> PageLimits {
    let usual = PageLimits::default();
    let network = usual.network.max(Duration::from_secs(servers.patience));
    PageLimits { time: Duration::from_secs(timeout_s), network, ..usual }
}

/// Files and servers.
fn web(servers: &ServerArgs) -> Arc<dyn Fetch> {
    Arc::new(Web::new(Duration::from_secs(servers.patience)))
}

fn opening<'a>(
    view: View,
    limits: &PageLimits,
    cache: Option<&'a Cache>,
    servers: &ServerArgs,
    from: Arc<dyn Fetch>,
) -> OpenOptions<'a> {
    let asking = match (servers.reload, servers.offline) {
        (true, _) => CachePolicy::Reload,
        (false, true) => CachePolicy::Offline,
        (false, false) => CachePolicy::Usual,
    };
    OpenOptions { network: servers.network, asking, ..OpenOptions::new(view, limits, cache, from) }
}

/// Keeps what was made.
fn keep(opened: &mut OpenPage, cache: Option<&Cache>) {
    if let (Some(to_keep), Some(cache)) = (opened.to_keep.take(), cache) {
        match to_keep.keep(cache) {
            Ok(kept) if kept.evicted + kept.pictures_evicted > 0 => {
                let (views, pictures) = (kept.evicted, kept.pictures_evicted);
                notice(format_args!(
                    "holdfast: {} and {} that were used longer ago had to go",
                    counted(pictures, "picture"),
                    counted(views, "whole view")
                ));
            }
            Ok(_) => {}
            Err(error) => notice(format_args!("holdfast: the page is not kept: {error}")),
        }
    }
}

/// The cache; none, if the page is opened without, or there can be none.
fn cache_unless_without(args: &OpenArgs) -> Option<Cache> {
    if args.no_cache {
        return None;
    }
    cache(&args.place)
        .inspect_err(|error| notice(format_args!("holdfast: nothing is kept: {error}")))
        .ok()
}

fn write_png(opened: &mut OpenPage, path: &Path) -> Result<Duration, PageError> {
    let started = Instant::now();
    let file = opened.png()?;
    std::fs::write(path, &*file)
        .map_err(|error| PageError::Write { path: PathBuf::from(path), error })?;
    Ok(started.elapsed())
}

fn report(opened: &OpenPage, encoded: Option<Duration>) -> String {
    let ms = |time: Duration| format!("{:.2}", time.as_secs_f64() * 1000.0);
    let split = opened.split;
    let mut line = format!(
        "{}: {} ms (disk {}, parse {}, style and layout {}, paint {})",
        opened.tier,
        ms(split.total()),
        ms(split.disk),
        ms(split.parse),
        ms(split.layout),
        ms(split.paint)
    );
    if let Some(encoded) = encoded {
        let _ = write!(line, ", PNG {} ms", ms(encoded));
    }
    let (width, height) = opened.content;
    let _ =
        writeln!(line, "; page {width}x{height}, from {}: {}", opened.scroll, Shown(&opened.title));
    line
}

/// What `open --json` prints; times in milliseconds.
#[derive(Serialize)]
struct OpenReport<'a> {
    tier: String,
    stale: Option<String>,
    total_ms: f64,
    disk_ms: f64,
    parse_ms: f64,
    layout_ms: f64,
    paint_ms: f64,
    png_ms: Option<f64>,
    title: &'a str,
    width: u32,
    height: u32,
    scroll: u32,
    notes: &'a [String],
}

impl OpenReport<'_> {
    fn of(opened: &OpenPage, encoded: Option<Duration>) -> OpenReport<'_> {
        let ms = |time: Duration| time.as_secs_f64() * 1000.0;
        let split = opened.split;
        OpenReport {
            tier: opened.tier.to_string(),
            stale: opened.stale.as_ref().map(ToString::to_string),
            total_ms: ms(split.total()),
            disk_ms: ms(split.disk),
            parse_ms: ms(split.parse),
            layout_ms: ms(split.layout),
            paint_ms: ms(split.paint),
            png_ms: encoded.map(ms),
            title: &opened.title,
            width: opened.content.0,
            height: opened.content.1,
            scroll: opened.scroll,
            notes: &opened.notes,
        }
    }
}

/// What `ls --json` prints of a view; sizes in bytes, the scale in thousandths.
#[derive(Serialize)]
struct ViewReport {
    address: String,
    title: String,
    viewport: (u32, u32),
    scale_permille: u32,
    view_bytes: u64,
    picture_bytes: u64,
    pixels_bytes: u64,
    layout_bytes: u64,
    document_bytes: u64,
    used_s: u64,
    damage: Option<String>,
}

/// What `stats --json` prints; sizes in bytes.
#[derive(Serialize)]
struct StatsReport {
    views: u64,
    view_bytes: u64,
    picture_bytes: u64,
    pixels_bytes: u64,
    layout_bytes: u64,
    documents: u64,
    document_bytes: u64,
    answers_bytes: u64,
    quota_bytes: u64,
    damaged: Vec<String>,
}

fn print_json(report: &impl Serialize) -> Result<(), Failure> {
    Ok(output::print_json(report)?)
}

fn print(text: &str) -> Result<(), Failure> {
    Ok(output::print(text)?)
}

fn line(row: &ViewRow) -> String {
    let (width, height, scale) = row.viewport;
    let (factor, rest) = (scale / 1000, scale % 1000);
    let scale = if rest == 0 { factor.to_string() } else { format!("{factor}.{rest:03}") };
    let looked_at =
        if width == 0 { "document only".to_owned() } else { format!("{width}x{height}@{scale}") };
    let mut line = format!(
        "{looked_at}  view {} B (picture {} B, layout {} B)  document {} B",
        row.bytes, row.picture_bytes, row.layout_bytes, row.document_bytes
    );
    match row.damage {
        Some(damage) if damage.is_of_older_build() => {
            line.push_str("  of an older build; made anew when it is opened");
        }
        Some(damage) => {
            let _ = write!(line, "  damaged: {damage}");
        }
        None => {
            let _ = write!(line, "  {}  {}", Shown(&row.address), Shown(&row.title));
        }
    }
    line.push('\n');
    line
}

fn list(args: &ListArgs) -> Result<u8, Failure> {
    let rows = cache(&args.place)?.views()?;
    if args.json {
        let reports = rows.into_iter().map(|row| ViewReport {
            viewport: (row.viewport.0, row.viewport.1),
            scale_permille: row.viewport.2,
            address: row.address,
            title: row.title,
            view_bytes: row.bytes,
            picture_bytes: row.picture_bytes,
            pixels_bytes: row.pixels_bytes,
            layout_bytes: row.layout_bytes,
            document_bytes: row.document_bytes,
            used_s: row.used_s,
            damage: row.damage.map(|damage| damage.to_string()),
        });
        print_json(&reports.collect::<Vec<_>>())?;
    } else {
        print(&rows.iter().map(line).collect::<String>())?;
    }
    Ok(0)
}

/// The rows of a page.
fn of_page(cache: &Cache, page: &str) -> Result<Vec<ViewRow>, Failure> {
    let address = Address::parse(page)?;
    let mut rows = cache.views()?;
    rows.retain(|row| row.address == address.as_str());
    if rows.is_empty() {
        return Err(Failure {
            code: NOT_FOUND,
            message: format!("the cache has nothing of {page}"),
        });
    }
    Ok(rows)
}

fn show(args: &ShowArgs) -> Result<u8, Failure> {
    let cache = cache(&args.place)?;
    let mut text = String::new();
    for row in of_page(&cache, &args.page)? {
        text.push_str(&line(&row));
        match cache.places(&row.name)? {
            Some(Ok(places)) => {
                let _ = writeln!(
                    text,
                    "  {}, {}",
                    counted(places.boxes.len(), "element"),
                    counted(places.links.len(), "link")
                );
                for link in places.links {
                    let [x0, y0, x1, y1] = link.place.map(f32::round);
                    let _ = writeln!(text, "  {x0},{y0} {x1},{y1}  {}", Shown(&link.href));
                }
            }
            Some(Err(damage)) => {
                let _ = writeln!(text, "  damaged: {damage}");
            }
            None => {}
        }
    }
    print(&text)?;
    Ok(0)
}

fn remove(args: &RemoveArgs) -> Result<u8, Failure> {
    let cache = cache(&args.place)?;
    let mut names = Vec::new();
    if args.all {
        names.extend(cache.views()?.into_iter().map(|row| row.name));
    }
    for page in &args.pages {
        names.extend(of_page(&cache, page)?.into_iter().map(|row| row.name));
    }
    let removed = cache.remove(&names)?;
    print(&format!("{} removed\n", counted(removed, "view")))?;
    Ok(0)
}

fn stats(args: &ListArgs) -> Result<u8, Failure> {
    let cache = cache(&args.place)?;
    let (stats, damaged) = (cache.stats()?, cache.check()?);
    let code = if damaged.is_empty() { 0 } else { FOUND };
    if args.json {
        print_json(&StatsReport {
            views: stats.views,
            view_bytes: stats.view_bytes,
            picture_bytes: stats.picture_bytes,
            pixels_bytes: stats.pixels_bytes,
            layout_bytes: stats.layout_bytes,
            documents: stats.documents,
            document_bytes: stats.document_bytes,
            answers_bytes: stats.answers_bytes,
            quota_bytes: stats.quota_bytes,
            damaged: damaged
                .into_iter()
                .map(|(name, damage)| format!("{name}: {damage}"))
                .collect(),
        })?;
        return Ok(code);
    }
    let mut text = format!(
        "{} in {} B (pictures {} B, {} B of them pixels; layouts {} B), {} in {} B, answers of servers in {} B; {} B may be kept\n",
        counted(stats.views, "view"),
        stats.view_bytes,
        stats.picture_bytes,
        stats.pixels_bytes,
        stats.layout_bytes,
        counted(stats.documents, "document"),
        stats.document_bytes,
        stats.answers_bytes,
        stats.quota_bytes
    );
    for (name, damage) in &damaged {
        let _ = writeln!(text, "{name} is damaged: {damage}; it is made anew when it is opened");
    }
    print(&text)?;
    Ok(code)
}
