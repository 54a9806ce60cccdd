//! The messages of the WebSocket, as docs/serve-protocol.md has them: a byte that says which one,
//! numbers in little endian, then text or bytes.
//!
//! Invariant: nothing a page sends makes parsing panic or allocate; what is left of a message is a
//! slice of it.

use axum::body::Bytes;
use holdfast_fetch::AppletHash;
use serde::{Deserialize, Serialize};

use crate::limits::ServeLimits;
use crate::token::{TOKEN_BYTES, Token};

/// The version of the protocol.
pub(crate) const VERSION: u8 = 1;
/// A result that is larger comes in pieces of this size.
pub(crate) const PIECE_BYTES: usize = 1 << 20;
/// Parts of a streaming call that are sent before the page asks for more.
pub(crate) const PARTS_AHEAD: u32 = 32;
/// The longest text about a failure.
const TEXT_BYTES_MAX: usize = 16 << 10;
const START_BYTES_MAX: usize = 64 << 10;
const CONTINUES: u8 = 1;
const STREAMS: u8 = 1;

/// A message from a page.
#[derive(Debug, PartialEq)]
pub(crate) enum Request {
    Hello { token: Token },
    Start { applet: u32, body: StartBody },
    Upload { applet: u32, chunk: Bytes },
    Uploaded { applet: u32 },
    Call { applet: u32, call: u32, streams: bool, function: String, input: Bytes },
    Cancel { applet: u32, call: u32 },
    More { applet: u32, call: u32, parts: u32 },
    Close { applet: u32 },
}

/// What a page wants to start.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct StartBody {
    #[serde(deserialize_with = "hash")]
    pub(crate) sha256: AppletHash,
    #[serde(default)]
    pub(crate) heaps: Vec<HeapBody>,
    #[serde(default)]
    pub(crate) limits: LimitsBody,
}

/// A heap that it wants.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct HeapBody {
    pub(crate) heap: String,
    #[serde(default)]
    pub(crate) name: Option<String>,
    #[serde(default)]
    pub(crate) access: AccessBody,
}

#[derive(Debug, Default, PartialEq, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum AccessBody {
    #[default]
    ReadWrite,
    ReadOnly,
}

/// Limits that it sets itself, within those of the server.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct LimitsBody {
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) call_timeout_ms: Option<u64>,
    pub(crate) threads: Option<u32>,
}

fn hash<'de, D: serde::Deserializer<'de>>(from: D) -> Result<AppletHash, D::Error> {
    let text = String::deserialize(from)?;
    text.parse().map_err(serde::de::Error::custom)
}

/// Why a message is none, for the reason of the close.
pub(crate) type Malformed = String;

impl Request {
    pub(crate) fn parse(message: &Bytes) -> Result<Request, Malformed> {
        let mut rest = Rest { message, at: 0 };
        let request = match rest.byte()? {
            0x01 => {
                if rest.byte()? != VERSION {
                    return Err(format!("this server speaks version {VERSION} of the protocol"));
                }
                let token = rest.take(TOKEN_BYTES)?;
                let token = token.as_ref().try_into().map_err(|_| "the token is cut off")?;
                Request::Hello { token }
            }
            0x02 => {
                let applet = rest.number()?;
                let text = rest.all();
                if text.len() > START_BYTES_MAX {
                    return Err("the start of an applet has more than 64 KiB".to_owned());
                }
                let body = serde_json::from_slice(&text)
                    .map_err(|error| format!("the start of an applet cannot be read: {error}"))?;
                Request::Start { applet, body }
            }
            0x03 => Request::Upload { applet: rest.number()?, chunk: rest.all() },
            0x04 => Request::Uploaded { applet: rest.number()? },
            0x05 => {
                let (applet, call) = (rest.number()?, rest.number()?);
                let streams = rest.byte()? & STREAMS != 0;
                let length = usize::from(rest.byte()?);
                let function = String::from_utf8(rest.take(length)?.to_vec())
                    .map_err(|_| "the name of the function is not UTF-8")?;
                Request::Call { applet, call, streams, function, input: rest.all() }
            }
            0x06 => Request::Cancel { applet: rest.number()?, call: rest.number()? },
            0x07 => Request::More {
                applet: rest.number()?,
                call: rest.number()?,
                parts: rest.number()?,
            },
            0x08 => Request::Close { applet: rest.number()? },
            other => return Err(format!("there is no message {other}")),
        };
        match rest.all().is_empty() {
            true => Ok(request),
            false => Err("there are bytes behind the end of the message".to_owned()),
        }
    }
}

/// What of a message is not read yet.
struct Rest<'m> {
    message: &'m Bytes,
    at: usize,
}

impl Rest<'_> {
    fn take(&mut self, count: usize) -> Result<Bytes, Malformed> {
        let end = self.at.saturating_add(count);
        if end > self.message.len() {
            return Err("the message is cut off".to_owned());
        }
        let taken = self.message.slice(self.at..end);
        self.at = end;
        Ok(taken)
    }

    fn all(&mut self) -> Bytes {
        let taken = self.message.slice(self.at..);
        self.at = self.message.len();
        taken
    }

    fn byte(&mut self) -> Result<u8, Malformed> {
        Ok(self.take(1)?[0])
    }

    fn number(&mut self) -> Result<u32, Malformed> {
        let bytes = self.take(4)?;
        Ok(bytes.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte)))
    }
}

/// What a failure is about, for a page that branches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// The applet was closed as the page asked.
    Closed = 0,
    /// The function failed, with a code and words of its own.
    Failed = 1,
    UnknownFunction = 2,
    TooLarge = 3,
    Cancelled = 4,
    /// The applet died, or is not there any more.
    Died = 5,
    /// The heap is open elsewhere.
    Held = 6,
    /// The heap is not the origin's.
    Denied = 7,
    /// The page asks for what there is not, or too much of it.
    Refused = 8,
    /// There is no room.
    NoRoom = 9,
    WrongHash = 10,
    /// The file is no applet that serves here.
    NotAnApplet = 11,
    /// Anything else that went wrong on this side.
    Other = 12,
}

/// Limits that a page has to know.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Welcome {
    frame_bytes: usize,
    applet_bytes: u64,
    applets: usize,
    pending_calls: usize,
    pending_bytes: usize,
    parts_ahead: u32,
}

#[derive(Serialize)]
struct Started<'a> {
    functions: &'a [String],
    notes: &'a [String],
}

pub(crate) fn welcome(limits: &ServeLimits) -> Vec<u8> {
    let told = Welcome {
        frame_bytes: limits.frame_bytes,
        applet_bytes: limits.applet_bytes,
        applets: limits.applets_per_connection,
        pending_calls: limits.pending_calls,
        pending_bytes: limits.pending_bytes,
        parts_ahead: PARTS_AHEAD,
    };
    json(vec![0x81, VERSION], &told)
}

pub(crate) fn need(applet: u32) -> Vec<u8> {
    with_numbers(0x82, &[applet])
}

pub(crate) fn started(applet: u32, functions: &[String], notes: &[String]) -> Vec<u8> {
    json(with_numbers(0x83, &[applet]), &Started { functions, notes })
}

/// A part of a result, in pieces.
pub(crate) fn part(applet: u32, call: u32, bytes: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    pieces(0x84, applet, call, bytes)
}

/// The result, in pieces; empty behind the parts of a streaming call.
pub(crate) fn done(applet: u32, call: u32, bytes: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    pieces(0x85, applet, call, bytes)
}

fn pieces(kind: u8, applet: u32, call: u32, bytes: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let count = bytes.len().div_ceil(PIECE_BYTES).max(1);
    (0..count).map(move |at| {
        let begin = at * PIECE_BYTES;
        let end = bytes.len().min(begin + PIECE_BYTES);
        let mut message = Vec::with_capacity(10 + end - begin);
        message.push(kind);
        message.extend_from_slice(&applet.to_le_bytes());
        message.extend_from_slice(&call.to_le_bytes());
        message.push(if at + 1 < count { CONTINUES } else { 0 });
        message.extend_from_slice(&bytes[begin..end]);
        message
    })
}

pub(crate) fn failed(applet: u32, call: u32, kind: Kind, code: i32, words: &str) -> Vec<u8> {
    let mut message = with_numbers(0x86, &[applet, call]);
    message.push(kind as u8);
    message.extend_from_slice(&code.to_le_bytes());
    message.extend_from_slice(cut(words).as_bytes());
    message
}

pub(crate) fn ended(applet: u32, kind: Kind, words: &str) -> Vec<u8> {
    let mut message = with_numbers(0x87, &[applet]);
    message.push(kind as u8);
    message.extend_from_slice(cut(words).as_bytes());
    message
}

fn with_numbers(kind: u8, numbers: &[u32]) -> Vec<u8> {
    let mut message = vec![kind];
    numbers.iter().for_each(|number| message.extend_from_slice(&number.to_le_bytes()));
    message
}

fn json(mut message: Vec<u8>, value: &impl Serialize) -> Vec<u8> {
    // A vector takes all that is written, and these values have a text.
    let _ = serde_json::to_writer(&mut message, value);
    message
}

fn cut(words: &str) -> &str {
    &words[..words.floor_char_boundary(TEXT_BYTES_MAX)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bytes: &[u8]) -> Result<Request, Malformed> {
        Request::parse(&Bytes::copy_from_slice(bytes))
    }

    #[test]
    fn messages_are_parsed() {
        let call = [5, 1, 0, 0, 0, 2, 0, 0, 0, 1, 4, b'e', b'c', b'h', b'o', 7, 8];
        let expected = Request::Call {
            applet: 1,
            call: 2,
            streams: true,
            function: "echo".to_owned(),
            input: Bytes::from_static(&[7, 8]),
        };
        assert_eq!(parse(&call), Ok(expected));
        assert_eq!(parse(&[8, 1, 2, 0, 0]), Ok(Request::Close { applet: 513 }));
        let start = format!(
            "{{\"sha256\":\"{}\",\"heaps\":[{{\"heap\":\"a\",\"access\":\"read-only\"}}]}}",
            "0".repeat(64)
        );
        let message = [&[2, 1, 0, 0, 0], start.as_bytes()].concat();
        let Ok(Request::Start { body, .. }) = parse(&message) else { panic!("{start}") };
        assert_eq!(body.heaps[0].access, AccessBody::ReadOnly);
    }

    /// What is no message is refused, wherever it is cut off.
    ///
    /// Guarantee: serve/garbage
    #[test]
    fn garbage_is_no_message() {
        let call = [5, 1, 0, 0, 0, 2, 0, 0, 0, 1, 4, b'e', b'c', b'h', b'o'];
        for end in 0..call.len() {
            assert!(parse(&call[..end]).is_err(), "{end}");
        }
        for bad in [&[][..], &[0], &[9], &[0xff; 40], &[8, 1, 0, 0, 0, 0], &[2, 0, 0, 0, 0, b'{']] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
        let mut hello = vec![1, VERSION];
        hello.extend([7; TOKEN_BYTES]);
        assert!(parse(&hello).is_ok());
        hello[1] = 2;
        assert!(parse(&hello).unwrap_err().contains("version 1"));
    }

    #[test]
    fn large_results_come_in_pieces() {
        let bytes = vec![3; PIECE_BYTES + 1];
        let sent: Vec<Vec<u8>> = done(1, 2, &bytes).collect();
        assert_eq!(sent.len(), 2);
        assert_eq!((sent[0].len(), sent[1].len()), (10 + PIECE_BYTES, 11));
        assert_eq!((sent[0][9], sent[1][9]), (CONTINUES, 0));
        assert_eq!(done(1, 2, &[]).count(), 1);
        assert!(
            failed(1, 2, Kind::Failed, 7, &"ü".repeat(TEXT_BYTES_MAX)).len() <= TEXT_BYTES_MAX + 14
        );
    }
}
