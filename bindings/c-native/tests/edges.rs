//! The edges of `holdfast.h`: what programs in C get wrong, and what the library makes of it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use common::{Bench, Linking, has};
use holdfast_testkit::{Soundness, heap_soundness};

fn assert_sound(bench: &Bench) {
    let soundness = heap_soundness(&bench.names(), "heap").unwrap();
    assert!(matches!(soundness, Soundness::Sound { .. }), "{soundness:?}");
}

fn said_nothing(command: &str) {
    if !has("pkg-config") || !has("cc") {
        return;
    }
    let bench = Bench::new();
    let program = bench.compile("edges.c", Linking::Shared);
    assert_eq!(bench.run(&program, command), "");
    assert_sound(&bench);
}

#[test]
fn what_follows_an_inner_abort_is_rolled_back_with_the_whole_transaction() {
    said_nothing("nested");
}
