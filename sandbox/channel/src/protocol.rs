//! The protocol: which messages there are, in which direction, and what their fields mean. Native
//! applets exchange them over rings, wasm applets through imports; the numbers are the same and
//! never change their meaning.
//!
//! Host to applet: `Call`, `Cancel`, `Reply` (to `Grow`, `Commit` and `Import`), `Return` (to
//! `Invoke`), `End`. Applet to host: `Hello` (once, names of exports), `Result`, `Chunk` (any number
//! before the result), `Failure`, `Grow`, `Commit`, `Seal`, `Import`, `Invoke`. One call at a time.
//!
//! What it must not do: touch shared memory, or judge whether a message comes at the right moment.

#![forbid(unsafe_code)]

use holdfast_types::RequestStatus;

use crate::Side;
use crate::header::Header;
use crate::layout::Handle;

/// The version that `Hello` names.
pub const PROTOCOL_VERSION: u32 = 1;

/// The longest payload of one message, in either direction: larger ones are refused by those who
/// would send them. What is larger goes in parts, or through a shared buffer.
pub const MESSAGE_BYTES_MAX: u64 = 64 << 20;

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum MessageKind {
    /// Host: run an export; the payload is its input.
    Call = 1,
    /// Host: the call's result is not wanted any more.
    Cancel = 2,
    /// Host: answer to `Grow`, `Commit` or `Import`.
    Reply = 3,
    /// Host: return from serving.
    End = 4,
    /// Host: a host function is done; the payload is its result, or its words about a failure.
    Return = 5,
    /// Applet: ready; the payload is [`hello`](crate::hello).
    Hello = 16,
    /// Applet: the call is done; the payload is its result.
    Result = 17,
    /// Applet: a part of a streaming result.
    Chunk = 18,
    /// Applet: the call has failed; the payload is a text.
    Failure = 19,
    /// Applet: back more of the region.
    Grow = 20,
    /// Applet: make the heap durable.
    Commit = 21,
    /// Applet: what loads programs is done; close the filter.
    Seal = 22,
    /// Applet: the number of the host function of a name; the payload is the name.
    Import = 23,
    /// Applet: run a host function; the payload is its input.
    Invoke = 24,
}

impl MessageKind {
    /// All kinds.
    pub const ALL: [MessageKind; 14] = [
        MessageKind::Call,
        MessageKind::Cancel,
        MessageKind::Reply,
        MessageKind::End,
        MessageKind::Return,
        MessageKind::Hello,
        MessageKind::Result,
        MessageKind::Chunk,
        MessageKind::Failure,
        MessageKind::Grow,
        MessageKind::Commit,
        MessageKind::Seal,
        MessageKind::Import,
        MessageKind::Invoke,
    ];

    /// The kind with a number.
    #[must_use]
    pub fn from_number(number: u16) -> Option<MessageKind> {
        BY_NUMBER.get(usize::from(number)).copied().flatten()
    }

    /// The sender.
    #[must_use]
    pub const fn sender(self) -> Side {
        match self {
            MessageKind::Call
            | MessageKind::Cancel
            | MessageKind::Reply
            | MessageKind::End
            | MessageKind::Return => Side::Host,
            MessageKind::Hello
            | MessageKind::Result
            | MessageKind::Chunk
            | MessageKind::Failure
            | MessageKind::Grow
            | MessageKind::Commit
            | MessageKind::Seal
            | MessageKind::Import
            | MessageKind::Invoke => Side::Applet,
        }
    }
}

/// Kinds at the place of their number: each message asks for one.
const BY_NUMBER: [Option<MessageKind>; 32] = {
    let mut kinds = [None; 32];
    let mut at = 0;
    while at < MessageKind::ALL.len() {
        kinds[MessageKind::ALL[at] as usize] = Some(MessageKind::ALL[at]);
        at += 1;
    }
    kinds
};

/// What a host says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostMessage {
    /// Run an export.
    Call {
        /// Number of the call; answers name it.
        call: u64,
        /// Which export, in the order of `Hello`.
        index: u32,
        /// The call's shared buffer; none if it has no bytes.
        buffer: Handle,
        /// How long the host is going to wait, in nanoseconds; 0 if it does not say.
        time_ns: u64,
    },
    /// The result of a call is not wanted any more.
    Cancel {
        /// The number of the call.
        call: u64,
    },
    /// Answer to `Grow`, `Commit` and `Import`.
    Reply {
        /// What it came to; one of a later version is read as a failure.
        status: RequestStatus,
        /// What was asked for: the bytes that are backed now, the number of a function; or 0.
        value: u64,
    },
    /// Return from serving.
    End,
    /// Answer to `Invoke`.
    Return {
        /// Whether the function was run.
        status: RequestStatus,
        /// What the function says of itself: 0, or its code of a failure.
        code: i32,
    },
}

impl HostMessage {
    /// Reads the fields of a header.
    ///
    /// # Errors
    /// What is wrong with it, as a part of a sentence.
    pub fn parse(header: &Header) -> Result<HostMessage, &'static str> {
        Ok(match header.kind().ok_or(UNKNOWN_KIND)? {
            MessageKind::Call => HostMessage::Call {
                call: header.call,
                index: header.index,
                buffer: Handle { offset: header.a, bytes: header.b },
                time_ns: header.c,
            },
            MessageKind::Cancel => HostMessage::Cancel { call: header.call },
            MessageKind::Reply => {
                let status =
                    RequestStatus::from_number(header.status).unwrap_or(RequestStatus::Failed);
                HostMessage::Reply { status, value: header.a }
            }
            MessageKind::End => HostMessage::End,
            MessageKind::Return => HostMessage::Return {
                status: RequestStatus::from_number(header.status).unwrap_or(RequestStatus::Failed),
                code: header.index as i32,
            },
            _ => return Err(WRONG_WAY),
        })
    }
}

impl From<HostMessage> for Header {
    fn from(message: HostMessage) -> Header {
        match message {
            HostMessage::Call { call, index, buffer, time_ns } => {
                let Handle { offset: a, bytes: b } = buffer;
                Header { call, index, a, b, c: time_ns, ..Header::new(MessageKind::Call) }
            }
            HostMessage::Cancel { call } => Header { call, ..Header::new(MessageKind::Cancel) },
            HostMessage::Reply { status, value } => {
                Header { status: status.number(), a: value, ..Header::new(MessageKind::Reply) }
            }
            HostMessage::End => Header::new(MessageKind::End),
            HostMessage::Return { status, code } => Header {
                status: status.number(),
                index: code as u32,
                ..Header::new(MessageKind::Return)
            },
        }
    }
}

/// What an applet says. The host believes none of the numbers: it compares calls with the one that
/// is open, and asks the buffer that it gave whether a part lies in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppletMessage {
    /// Ready to be called.
    Hello {
        /// [`PROTOCOL_VERSION`].
        version: u32,
        /// How many names are in the payload.
        count: u64,
    },
    /// A call is done.
    Result {
        /// The number of the call.
        call: u64,
    },
    /// A part of a streaming result: the payload, or a part of the arena.
    Chunk {
        /// Of which call.
        call: u64,
        /// Where in the arena; none if it has no bytes.
        part: Handle,
    },
    /// A call has failed.
    Failure {
        /// The number of the call.
        call: u64,
        /// A code of the applet's choice; never 0.
        code: i32,
    },
    /// Back more of a heap's region.
    Grow {
        /// Which heap, in the order of the grants.
        heap: u32,
        /// So many more, or a few more than that.
        at_least_bytes: u64,
    },
    /// Make a heap durable.
    Commit {
        /// Which heap, in the order of the grants.
        heap: u32,
        /// 0 for `process`, 1 for `system`, 2 for `power`.
        level: u32,
    },
    /// Close the filter.
    Seal,
    /// Which number has the host function of the name that is the payload.
    Import,
    /// Run a host function.
    Invoke {
        /// Its number.
        function: u32,
    },
}

impl AppletMessage {
    /// Reads the fields of a header.
    ///
    /// # Errors
    /// What is wrong with it, as a part of a sentence.
    pub fn parse(header: &Header) -> Result<AppletMessage, &'static str> {
        let call = header.call;
        Ok(match header.kind().ok_or(UNKNOWN_KIND)? {
            MessageKind::Hello => AppletMessage::Hello { version: header.index, count: header.a },
            MessageKind::Result => AppletMessage::Result { call },
            MessageKind::Chunk => {
                AppletMessage::Chunk { call, part: Handle { offset: header.a, bytes: header.b } }
            }
            MessageKind::Failure if header.status == 0 => {
                return Err("reported a failure without a code");
            }
            MessageKind::Failure => AppletMessage::Failure { call, code: header.status },
            MessageKind::Grow => {
                AppletMessage::Grow { heap: header.index, at_least_bytes: header.a }
            }
            MessageKind::Commit if header.index > 2 => {
                return Err("asked for a durability level that there is not");
            }
            // No heap has so high a number, so a field that is too large names none.
            MessageKind::Commit => AppletMessage::Commit {
                heap: u32::try_from(header.a).unwrap_or(u32::MAX),
                level: header.index,
            },
            MessageKind::Seal => AppletMessage::Seal,
            MessageKind::Import => AppletMessage::Import,
            MessageKind::Invoke => AppletMessage::Invoke { function: header.index },
            _ => return Err(WRONG_WAY),
        })
    }
}

impl From<AppletMessage> for Header {
    fn from(message: AppletMessage) -> Header {
        match message {
            AppletMessage::Hello { version, count } => {
                Header { index: version, a: count, ..Header::new(MessageKind::Hello) }
            }
            AppletMessage::Result { call } => Header { call, ..Header::new(MessageKind::Result) },
            AppletMessage::Chunk { call, part } => {
                Header { call, a: part.offset, b: part.bytes, ..Header::new(MessageKind::Chunk) }
            }
            AppletMessage::Failure { call, code } => {
                Header { call, status: code, ..Header::new(MessageKind::Failure) }
            }
            AppletMessage::Grow { heap, at_least_bytes } => {
                Header { index: heap, a: at_least_bytes, ..Header::new(MessageKind::Grow) }
            }
            AppletMessage::Commit { heap, level } => {
                Header { index: level, a: heap.into(), ..Header::new(MessageKind::Commit) }
            }
            AppletMessage::Seal => Header::new(MessageKind::Seal),
            AppletMessage::Import => Header::new(MessageKind::Import),
            AppletMessage::Invoke { function } => {
                Header { index: function, ..Header::new(MessageKind::Invoke) }
            }
        }
    }
}

pub(crate) const UNKNOWN_KIND: &str = "sent a message of an unknown kind";
pub(crate) const WRONG_WAY: &str = "sent a message that only the other side may send";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_they_were_written() {
        let part = Handle { offset: 4096, bytes: 77 };
        for message in [
            HostMessage::Call { call: 7, index: 3, buffer: part, time_ns: 5_000_000 },
            HostMessage::Cancel { call: 8 },
            HostMessage::Reply { status: RequestStatus::NoRoom, value: 1 << 20 },
            HostMessage::End,
            HostMessage::Return { status: RequestStatus::Ok, code: -7 },
        ] {
            let header = Header::from(message);
            assert_eq!(HostMessage::parse(&header), Ok(message));
            assert_eq!(AppletMessage::parse(&header), Err(WRONG_WAY));
        }
        for message in [
            AppletMessage::Hello { version: PROTOCOL_VERSION, count: 2 },
            AppletMessage::Result { call: 1 },
            AppletMessage::Chunk { call: 1, part },
            AppletMessage::Failure { call: 1, code: -3 },
            AppletMessage::Grow { heap: 0, at_least_bytes: 1 << 30 },
            AppletMessage::Grow { heap: 3, at_least_bytes: 1 << 16 },
            AppletMessage::Commit { heap: 0, level: 2 },
            AppletMessage::Commit { heap: 15, level: 0 },
            AppletMessage::Seal,
            AppletMessage::Import,
            AppletMessage::Invoke { function: 1023 },
        ] {
            let header = Header::from(message);
            assert_eq!(AppletMessage::parse(&header), Ok(message));
            assert_eq!(HostMessage::parse(&header), Err(WRONG_WAY));
        }
    }

    /// Each kind of message has a fixed number and one side that may send it.
    #[test]
    fn each_message_kind_has_one_number_and_side() {
        for number in 0..=u16::MAX {
            let Some(kind) = MessageKind::from_number(number) else { continue };
            assert_eq!(kind as u16, number);
            assert_eq!(kind.sender() == Side::Host, number < 16);
        }
        assert_eq!(
            MessageKind::ALL.map(|kind| kind as u16),
            [1, 2, 3, 4, 5, 16, 17, 18, 19, 20, 21, 22, 23, 24]
        );
    }

    #[test]
    fn fields_that_cannot_be_are_named() {
        let failure = Header::new(MessageKind::Failure);
        assert!(AppletMessage::parse(&failure).is_err());
        let commit = Header { index: 3, ..Header::new(MessageKind::Commit) };
        assert!(AppletMessage::parse(&commit).is_err());
        let unknown = Header { kind: 99, ..Header::default() };
        assert_eq!(AppletMessage::parse(&unknown), Err(UNKNOWN_KIND));
    }
}
