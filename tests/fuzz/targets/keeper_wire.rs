//! Any bytes as what is said to a keeper and by it, and as its notes: each is understood, or
//! refused with a reason, and no length in them is believed before it was checked.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    holdfast_keeper::fuzzing::frame(bytes);
    // A length that fits reaches what is behind it more often.
    let framed = [&(bytes.len() as u32).to_le_bytes(), bytes].concat();
    holdfast_keeper::fuzzing::frame(&framed);
    holdfast_keeper::fuzzing::note(bytes);
});
