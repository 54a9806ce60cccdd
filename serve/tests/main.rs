//! `holdfast serve` from the side of its clients: pages that keep to the protocol, pages that do not,
//! and the files of the server's own page. The applets are those that `cargo xtask applets` builds.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

mod calls;
mod client;
mod files;
mod hostile;
mod life;
mod pinned;
mod program;
mod served;
mod terminal;
