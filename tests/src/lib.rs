//! Nothing: this package is its tests, `crash/` and `end_to_end/`, which drive the built command
//! from outside with what `tests/kit` offers.

#![forbid(unsafe_code)]
