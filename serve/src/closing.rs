//! Why the server closes a connection, as the close frame of a WebSocket says it (RFC 6455).

/// The longest reason that a close frame has room for.
const REASON_BYTES_MAX: usize = 120;
const PROTOCOL: u16 = 1002;
const POLICY: u16 = 1008;

/// A code and a reason.
#[derive(Debug)]
pub(crate) struct Closing {
    pub(crate) code: u16,
    pub(crate) reason: String,
}

impl Closing {
    pub(crate) const AWAY: u16 = 1001;
    pub(crate) const UNSUPPORTED: u16 = 1003;
    pub(crate) const SIZE: u16 = 1009;

    pub(crate) fn new(code: u16, reason: &str) -> Closing {
        let reason = reason[..reason.floor_char_boundary(REASON_BYTES_MAX)].to_owned();
        Closing { code, reason }
    }

    /// The page does not keep to the protocol.
    pub(crate) fn protocol(reason: &str) -> Closing {
        Closing::new(PROTOCOL, reason)
    }

    /// The page does what it may not.
    pub(crate) fn policy(reason: &str) -> Closing {
        Closing::new(POLICY, reason)
    }
}
