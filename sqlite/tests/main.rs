//! The SQLite VFS `holdfast` as programs use it: loaded as an extension into an SQLite, against
//! faults, against other ways to keep a database, and from several languages. What needs no SQLite
//! of its own is tested in `sqlite/vfs`.
//!
//! Each process that has a database open is this program again, in a role (`sides`): it may be
//! killed, and has a home and a pool of its own. `HOLDFAST_CRASH_S5=1000` makes 1,000 trials of row
//! S5, `HOLDFAST_SEED` chooses others; `cargo xtask crash` does both.

#![allow(
    clippy::unwrap_used,
    reason = "a failed step fails the test, and the panic names its line"
)]

mod differential;
#[allow(unsafe_code, reason = "loads an extension into SQLite")]
mod engine;
mod errors;
mod examples;
#[allow(unsafe_code, reason = "a VFS is a table of C functions")]
mod faulty;
mod holders;
mod many_rows;
mod memory;
mod messages;
mod names;
mod power;
mod room;
mod script;
mod sides;
mod statements;
mod system_calls;

#[test]
fn a_side_plays_its_role() {
    sides::play();
}
