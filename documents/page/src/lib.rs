//! Web pages that open without being laid out again. A page is parsed, styled, laid out and painted
//! once, stored in a persistent heap, and shown from there.
//!
//! # To open a page
//! [`open_with`] takes an [`Address`] and [`OpenOptions`] (the [`View`], the [`PageLimits`], the
//! [`Cache`], the [`Fetch`] that reads pages) and returns an [`OpenPage`] with its [`Pixels`]. Its
//! `to_keep` is stored by [`UnsavedPage::keep`]. [`Import`] does this for all pages of a folder or
//! of a WARC file. [`Browser`] is a browser that lacks a window only.
//!
//! # The modules, bottom up
//! - `limits`, `error`, `view`: terms that all others share.
//! - `address`, `fetch`: where pages come from. `resource`: what a page may ask for and what was
//!   found. `base`: what addresses in a page are relative to.
//! - `entry`: a stored view with its checksums. `about`: the description in it. `list`: the display
//!   list, bytes without pointers. `answers`: stored answers of servers.
//! - `cache`: the heap of views. `evict`: what is removed when it is full.
//! - `xhtml`: pages in XHTML, for the parser of HTML.
//! - `sources`: which servers are asked during one opening. `loader`: what the engine reads by it.
//! - `tree`, `engine`, `record`, `steps`: the layout engine. `fonts`, `faces`, `families`: its
//!   fonts. `srcset`: which of its images an element shows.
//! - `places`: the layout of a page, as boxes, links and text ([`PageLayout`]).
//! - `picture`, `snapshot`: from the engine to a stored view, and from that to pixels.
//! - `open`, `keeping`: opening and storing. `showing`, `viewer`: the browser.
//! - `command`: the programs, `holdfast-page` and, behind it, `holdfast-page-engine` with the
//!   window.
//!
//! # Invariant
//! **What is shown from the cache equals what the engine would make now**, bit by bit. Where that
//! is not certain, the page is made again. No byte of the cache is trusted, no panic of the engine
//! leaves this crate, and no script is run.

#![forbid(unsafe_code)]

mod about;
mod address;
mod ahead;
mod alts;
mod answers;
mod base;
mod bounded;
mod cache;
pub mod command;
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
mod resource;
mod sheets;
mod showing;
mod snapshot;
mod sources;
mod spans;
mod srcset;
mod steps;
mod svg;
mod tree;
mod view;
mod viewer;
mod xhtml;

pub use address::Address;
pub use cache::{Cache, CacheStats, ViewRow};
pub use error::{CacheError, EntryDamage, PageError, RecordError};
pub use fetch::{
    Fetch, FetchAnswer, FetchError, FetchRequest, FetchedBytes, Files, Headers, KnownResponse,
    MissingResource, Purpose, Url, Web,
};
pub use import::{
    Import, ImportEnd, ImportError, ImportEvent, ImportPlan, ImportProblem, ImportReport,
    ImportScope, JOBS_MAX, PageOutcome, page_sum,
};
pub use keeping::{SaveReport, UnsavedPage};
pub use limits::{PageLimits, VIEWPORT_MAX};
pub use open::{open, open_kept_file, open_with};
pub use opened::{OpenOptions, OpenPage, OpenTimes, PageUse, ShownFrom};
pub use picture::{StaleReason, Tier};
pub use pixels::Pixels;
pub use places::{
    FindOptions, Link, Match, NodeBox, PageLayout, Place, TextAt, TextBlock, TextLine,
};
pub use sources::CachePolicy;
pub use steps::LAYOUT_THREAD;
pub use view::View;
pub use viewer::{
    Browser, Button, ClosedWindow, Cursor, FirstFrame, Input, Key, Modifiers, OpenStats, Opener,
};
