//! `open --window`: the page in a window, and what is said of it when that is closed.

use std::time::{Duration, Instant};

use holdfast_sys::terminal::{Shown, notice};
use serde::Serialize;

use super::WindowOrder;
use crate::command::args::OpenArgs;
use crate::command::{
    Failure, OTHER, cache_unless_without, limits, opening, print, print_json, web,
};
use crate::{Address, ClosedWindow, FirstFrame, OpenOptions, Opener};

pub(crate) fn run<E: ToString>(
    args: &OpenArgs,
    since: Instant,
    show_window: impl FnOnce(WindowOrder) -> Result<ClosedWindow, E>,
) -> Result<u8, Failure> {
    let address = Address::parse(&args.page)?;
    let view = args.viewport.view()?.scrolled(args.scroll).scrolled_right(args.scroll_x);
    let limits = limits(args.timeout, &args.servers);
    let OpenOptions { from, network, asking, .. } =
        opening(view, &limits, None, &args.servers, web(&args.servers));
    let opener = Opener { limits, cache: cache_unless_without(args), from, network, asking };
    let closes_after_first_frame = args.exit_after_first_frame;
    let order = WindowOrder { address, view, opener, closes_after_first_frame, since };
    let closed =
        show_window(order).map_err(|error| Failure { code: OTHER, message: error.to_string() })?;
    for note in &closed.notes {
        notice(format_args!("holdfast: {}", Shown(note)));
    }
    let Some(first) = closed.first else { return Ok(0) };
    if args.json {
        print_json(&WindowReport::of(&first))?;
    } else if args.exit_after_first_frame {
        let ms = first.shown.as_secs_f64() * 1000.0;
        print(&format!("{}; on the screen after {ms:.1} ms\n", first.served))?;
    }
    Ok(0)
}

/// What `open --window --json` prints when the window was closed; times in milliseconds.
#[derive(Serialize)]
struct WindowReport<'a> {
    tier: Option<String>,
    total_ms: f64,
    disk_ms: f64,
    parse_ms: f64,
    layout_ms: f64,
    paint_ms: f64,
    /// From the program's beginning.
    window_ms: f64,
    shown_ms: f64,
    title: &'a str,
}

impl WindowReport<'_> {
    fn of(first: &FirstFrame) -> WindowReport<'_> {
        let ms = |time: Duration| time.as_secs_f64() * 1000.0;
        let split = first.served.split;
        WindowReport {
            tier: first.served.tier.map(|tier| tier.to_string()),
            total_ms: ms(split.total()),
            disk_ms: ms(split.disk),
            parse_ms: ms(split.parse),
            layout_ms: ms(split.layout),
            paint_ms: ms(split.paint),
            window_ms: ms(first.window),
            shown_ms: ms(first.shown),
            title: &first.title,
        }
    }
}
