//! The header of a message and what limits it. The channel of native applets has the same one.
#![forbid(unsafe_code)]

/// The longest payload of one message, in either direction.
pub const PAYLOAD_BYTES_MAX: usize = 64 << 20;

/// Provisional numbers of the protocol.
pub(crate) const KIND_CALL: u16 = 1;
pub(crate) const KIND_END: u16 = 4;

/// What precedes a payload.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Header {
    /// Bytes of the payload.
    pub payload_bytes: u32,
    /// What the message is.
    pub kind: u16,
    /// Bit 0: the payload goes on in the next message.
    pub flags: u16,
    /// Which call it belongs to.
    pub call: u64,
    /// 0, or a code.
    pub status: i32,
    /// Depends on the kind.
    pub index: u32,
    /// Depends on the kind.
    pub a: u64,
    /// Depends on the kind.
    pub b: u64,
    /// Depends on the kind.
    pub c: u64,
}

pub(crate) const HEADER_BYTES: usize = 48;

impl Header {
    pub(crate) fn from_bytes(bytes: &[u8; HEADER_BYTES]) -> Header {
        let field = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        Header {
            payload_bytes: field(0) as u32,
            kind: (field(0) >> 32) as u16,
            flags: (field(0) >> 48) as u16,
            call: field(8),
            status: field(16) as i32,
            index: (field(16) >> 32) as u32,
            a: field(24),
            b: field(32),
            c: field(40),
        }
    }

    pub(crate) fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let words = [
            u64::from(self.payload_bytes) | u64::from(self.kind) << 32 | u64::from(self.flags) << 48,
            self.call,
            u64::from(self.status as u32) | u64::from(self.index) << 32,
            self.a,
            self.b,
            self.c,
        ];
        let mut bytes = [0; HEADER_BYTES];
        for (field, word) in bytes.chunks_exact_mut(8).zip(words) {
            field.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }
}
