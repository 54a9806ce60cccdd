//! Nothing: this package is its tests, `crash/` and `end_to_end/`, which drive the built command from outside
//! with what `crates/testkit` offers.

#![forbid(unsafe_code)]
