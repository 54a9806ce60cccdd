//! Requests and answers between a keeper and those who ask it: one frame each, over a stream
//! socket.
//!
//! A frame is the length of what follows (4 bytes, little endian, at most 64 KiB in a request and
//! 16 MiB in an answer) and a JSON object with the version of the protocol. A process that sees
//! another version, or anything else that is wrong, says so and hangs up.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::KeeperError;
use crate::report::{EvictReport, FlushReport, Status, TendReport};

/// The version of what a keeper is asked about its own home.
pub const VERSION: u32 = 1;
/// A longer request is refused before it is read.
pub const REQUEST_BYTES_MAX: usize = 64 << 10;
/// A longer answer is not believed.
pub const ANSWER_BYTES_MAX: usize = 16 << 20;
/// The length before each frame.
pub const LENGTH_BYTES: usize = 4;

/// What can be asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ask {
    Status,
    Metrics,
    Flush,
    Tend,
    Evict,
    /// For an allocation that found no room in the pool. A keeper of another pool refuses: one
    /// socket of the service manager may be that of another home.
    MakeRoom {
        bytes: u64,
        pool: String,
    },
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request<A> {
    pub version: u32,
    pub ask: A,
}

/// What is said to it.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    Status(Box<Status>),
    Metrics(String),
    Flush(FlushReport),
    Tend(TendReport),
    Evict(EvictReport),
    Refused(String),
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply<A> {
    pub version: u32,
    pub answer: A,
}

/// Why a request is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadRequest {
    #[error("a request has at most {bytes_max} bytes, and this one {bytes}")]
    TooLong { bytes: usize, bytes_max: usize },
    #[error("this keeper speaks version {spoken} of the protocol here, not {asked}")]
    Version { spoken: u32, asked: u32 },
    #[error("{0}")]
    Malformed(String),
}

/// A value as a frame; an empty one if it cannot be written, which no value of this module is.
pub fn frame(value: &impl Serialize) -> Vec<u8> {
    let body = serde_json::to_vec(value).unwrap_or_default();
    let mut frame = (body.len() as u32).to_le_bytes().to_vec();
    frame.extend_from_slice(&body);
    frame
}

/// The length that the first bytes of a frame say.
pub fn length(bytes: &[u8]) -> Option<usize> {
    let length: [u8; LENGTH_BYTES] = bytes.get(..LENGTH_BYTES)?.try_into().ok()?;
    Some(u32::from_le_bytes(length) as usize)
}

/// What the body of an answer says.
pub fn parse_answer<A: DeserializeOwned>(body: &[u8]) -> Result<A, KeeperError> {
    let reply = serde_json::from_slice::<Reply<A>>(body);
    let reply = reply.map_err(|error| KeeperError::Protocol {
        what: format!("its answer is no answer: {error}"),
    })?;
    Ok(reply.answer)
}

/// What the start of a stream asks in a version; `None` as long as it is not whole.
pub fn parse_request<A: DeserializeOwned>(
    bytes: &[u8],
    spoken: u32,
    bytes_max: usize,
) -> Option<Result<A, BadRequest>> {
    /// What every version has.
    #[derive(Deserialize)]
    struct Versioned {
        version: u32,
    }
    let length = length(bytes)?;
    if length > bytes_max {
        return Some(Err(BadRequest::TooLong { bytes: length, bytes_max }));
    }
    let body = bytes.get(LENGTH_BYTES..LENGTH_BYTES + length)?;
    let malformed = |error: serde_json::Error| BadRequest::Malformed(error.to_string());
    let parsed = serde_json::from_slice::<Versioned>(body).map_err(malformed);
    Some(parsed.and_then(|Versioned { version: asked }| {
        if asked != spoken {
            return Err(BadRequest::Version { spoken, asked });
        }
        serde_json::from_slice::<Request<A>>(body).map(|request| request.ask).map_err(malformed)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bytes: &[u8]) -> Option<Result<Ask, BadRequest>> {
        parse_request(bytes, VERSION, REQUEST_BYTES_MAX)
    }

    /// A request is understood when it is whole and not before.
    #[test]
    fn request_is_understood_only_when_whole() {
        let bytes = frame(&Request { version: VERSION, ask: Ask::Flush });
        assert_eq!(&bytes[4..], br#"{"version":1,"ask":"flush"}"#);
        for cut in 0..bytes.len() {
            assert_eq!(parse(&bytes[..cut]), None);
        }
        assert_eq!(parse(&bytes), Some(Ok(Ask::Flush)));
    }

    /// Guarantee: keeper/clients
    #[test]
    fn what_is_wrong_is_refused_with_a_reason() {
        let refused = |bytes: &[u8], reason: &str| {
            let why = parse(bytes).unwrap().unwrap_err().to_string();
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
