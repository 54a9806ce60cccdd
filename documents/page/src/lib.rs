//! Pages that open without being laid out again: parsed, styled, laid out and painted once, then kept in a heap and shown from
//! there.
//!
//! A tour, bottom up:
//! - `limits`, `error`, `view`: what everything else is told in.
//! - [`Address`], [`Fetch`]: where pages come from. `loader`: what a page asks for. `fonts`: which fonts there are. `sheets`: which style sheets count. `tree`, `engine`, `record`, `steps`: the layout engine, at arm's length.
//! - `list`: the display list, in bytes without pointers. `about`: what a page was made from. `entry`: both in one object, with sums.
//! - [`PageLayout`]: what is where, taken from the engine or from an entry; finding text.
//! - `ahead`: what painting needs, made ready meanwhile.
//! - `picture`: an entry from what the engine made, and pixels from an entry. `snapshot`: pixels that are kept as such.
//! - [`Cache`]: the heap with the entries. `evict`: what goes when it is full. [`open`]: all of it. [`Import`]: all of it, for many pages.
//! - `showing`: a page that is painted again and again. `viewer`: a browser without a window. `window`: its window.
//!
//! The invariant that all of it serves: **what is shown from the cache is what would be made anew**, bit by bit; and when that cannot be
//! told, it is made anew.
//!
//! What it must not do: believe a byte of the cache; let the engine's panics through; run a script.

#![forbid(unsafe_code)]

mod about;
mod address;
mod ahead;
mod alts;
mod answers;
mod bounded;
mod cache;
mod decode;
mod dots;
mod engine;
mod entry;
mod error;
mod evict;
mod faces;
mod families;
mod fetch;
mod fonts;
mod forget;
mod forms;
mod hints;
mod import;
mod keeping;
mod limits;
mod list;
mod loader;
mod lookup;
mod open;
mod opened;
mod page_now;
mod paragraphs;
mod picture;
mod pixels;
mod place;
mod places;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod planted;
mod record;
mod sheets;
mod showing;
mod snapshot;
mod sources;
mod spans;
mod steps;
mod svg;
mod tree;
mod view;
mod viewer;
mod window;

pub use address::Address;
pub use cache::{Cache, CacheStats, ViewRow};
pub use error::{CacheError, EntryDamage, PageError, RecordError};
pub use fetch::{
    Fetch, FetchAnswer, FetchError, FetchRequest, FetchedBytes, Files, Headers, KnownResponse,
    MissingResource, Purpose, Url, Web,
};
pub use import::{
    Import, ImportEnd, ImportError, ImportEvent, ImportPlan, ImportProblem, ImportReport, ImportScope,
    JOBS_MAX, PageOutcome, page_sum,
};
pub use keeping::{SaveReport, UnsavedPage};
pub use limits::{PageLimits, VIEWPORT_MAX};
pub use open::{open, open_with};
pub use opened::{OpenOptions, OpenPage, OpenTimes, PageUse, Tier};
pub use picture::StaleReason;
pub use pixels::Pixels;
pub use places::{FindOptions, Link, Match, NodeBox, PageLayout, Place, TextAt, TextBlock, TextLine};
pub use sources::CachePolicy;
pub use steps::LAYOUT_THREAD;
pub use view::View;
pub use viewer::{OpenStats, Opener};
pub use window::{ClosedWindow, FirstFrame, WindowError, show};
