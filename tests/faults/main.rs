//! The fault matrix, as far as it needs real processes, real file systems and real memory limits;
//! rows H2 and H7, which need a simulated storage, are in `core/region/tests`.
//!
//! The oracle is the same everywhere: opening succeeds or gives a typed error; what is found is a
//! prefix of the commits with every acknowledged one, and at most the one in flight besides; the
//! checker finds nothing; recovery can itself be cut off.
//!
//! Each test is a `driver`: this program again, as a process with one thread, which may fork and
//! has its own limits and mounts. `HOLDFAST_CRASH_H1=20000` makes 20,000 trials of row H1,
//! `HOLDFAST_SEED` chooses others; `cargo xtask crash` does both.

#![allow(
    clippy::unwrap_used,
    reason = "a failed step fails the test, and the panic names its line"
)]

#[allow(unsafe_code, reason = "regions are filled through their mapping")]
mod damage;
mod driver;
mod golden;
mod home;
mod kills;
mod ledger;
mod memory;
mod openers;
mod owners;
mod power_cuts;
#[allow(unsafe_code, reason = "heaps are filled through their pointers")]
mod room;
mod sealed;
mod truncation;

#[test]
fn a_driver_plays_its_role() {
    driver::play();
}
