//! Requests and answers between a keeper and those who ask it: one frame each, over a stream socket.
//!
//! A frame is the length of what follows (4 bytes, little endian, at most 64 KiB in a request and 16 MiB in an answer) and a JSON
//! object with the version of the protocol. Whoever sees another version, or anything else that is wrong, says so and hangs
//! up.

use serde::{Deserialize, Serialize};

use crate::background::TendReport;
use crate::eviction::EvictReport;
use crate::flush::FlushReport;
use crate::status::Status;

/// The version that this module speaks.
pub(crate) const VERSION: u32 = 1;
/// A longer request is refused before it is read.
pub(crate) const REQUEST_BYTES_MAX: usize = 64 << 10;
/// A longer answer is not believed.
pub(crate) const ANSWER_BYTES_MAX: usize = 16 << 20;
/// The length before each frame.
pub(crate) const LENGTH_BYTES: usize = 4;

/// What can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Ask {
    Status,
    Metrics,
    Flush,
    Tend,
    Evict,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    pub(crate) version: u32,
    pub(crate) ask: Ask,
}

/// What is said to it.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Answer {
    Status(Status),
    Metrics(String),
    Flush(FlushReport),
    Tend(TendReport),
    Evict(EvictReport),
    Refused(String),
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reply {
    pub(crate) version: u32,
    pub(crate) answer: Answer,
}

/// A value as a frame; an empty one if it cannot be written, which no value of this module is.
pub(crate) fn frame(value: &impl Serialize) -> Vec<u8> {
    let body = serde_json::to_vec(value).unwrap_or_default();
    let mut frame = (body.len() as u32).to_le_bytes().to_vec();
    frame.extend_from_slice(&body);
    frame
}

/// The length that the first bytes of a frame say.
pub(crate) fn length(bytes: &[u8]) -> Option<usize> {
    let length: [u8; LENGTH_BYTES] = bytes.get(..LENGTH_BYTES)?.try_into().ok()?;
    Some(u32::from_le_bytes(length) as usize)
}

/// What the start of a stream asks; `None` as long as it is not whole.
pub(crate) fn parse_request(bytes: &[u8]) -> Option<Result<Ask, String>> {
    /// What every version has.
    #[derive(Deserialize)]
    struct Versioned {
        version: u32,
    }
    let length = length(bytes)?;
    if length > REQUEST_BYTES_MAX {
        return Some(Err(format!("a request has at most {REQUEST_BYTES_MAX} bytes, and this one {length}")));
    }
    let body = bytes.get(LENGTH_BYTES..LENGTH_BYTES + length)?;
    let parsed = serde_json::from_slice::<Versioned>(body).map_err(|error| error.to_string());
    Some(parsed.and_then(|Versioned { version }| {
        if version != VERSION {
            return Err(format!("this keeper speaks version {VERSION} of the protocol, not {version}"));
        }
        serde_json::from_slice::<Request>(body).map(|request| request.ask).map_err(|error| error.to_string())
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_understood_when_it_is_whole_and_not_before() {
        let bytes = frame(&Request { version: VERSION, ask: Ask::Flush });
        assert_eq!(&bytes[4..], br#"{"version":1,"ask":"flush"}"#);
        for cut in 0..bytes.len() {
            assert_eq!(parse_request(&bytes[..cut]), None);
        }
        assert_eq!(parse_request(&bytes), Some(Ok(Ask::Flush)));
    }

    #[test]
    fn what_is_wrong_is_refused_with_a_reason() {
        let refused = |bytes: &[u8], reason: &str| {
            let why = parse_request(bytes).unwrap().unwrap_err();
            assert!(why.contains(reason), "{why}");
        };
        refused(&u32::MAX.to_le_bytes(), "at most 65536");
        refused(&frame(&serde_json::json!({"version": 2, "ask": "flush"})), "version 1");
        refused(&frame(&serde_json::json!({"version": 1, "ask": "fly"})), "fly");
        refused(&frame(&serde_json::json!({"version": 1, "ask": "flush", "more": 1})), "more");
        refused(&frame(&serde_json::json!([1])), "");
        refused(b"\x02\0\0\0\xff\xff", "");
    }
}
