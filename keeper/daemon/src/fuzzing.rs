//! Entry points for fuzz targets: everything that reads bytes of another process or of a file.
//!
//! Only in builds for fuzzing (`--cfg fuzzing`); no interface.

use crate::bandwidth;
use crate::freeze::parse_note;
use crate::served::fuzzing::{parse_lease_note, parse_served_answer, parse_served_request};
use holdfast_keeper_client::wire::{
    ANSWER_BYTES_MAX, Answer, Ask, REQUEST_BYTES_MAX, VERSION, length, parse_answer, parse_request,
};

/// A frame of any kind: requests and answers of both protocols.
pub fn frame(bytes: &[u8]) {
    let _ = parse_request::<Ask>(bytes, VERSION, REQUEST_BYTES_MAX);
    parse_served_request(bytes);
    if length(bytes).is_some_and(|length| length <= ANSWER_BYTES_MAX) {
        let body = bytes.get(4..).unwrap_or_default();
        let _ = parse_answer::<Answer>(body).map(|answer| format!("{answer:?}"));
        parse_served_answer(body);
    }
}

/// A note in the pool or the home.
pub fn note(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = bandwidth::parse(text);
        let _ = parse_note(text);
    }
    parse_lease_note(bytes);
}
