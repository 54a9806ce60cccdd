//! The outcome of a request.

/// What a host answers an applet, and what the calls of C return: the numbers are those of `enum
/// nv_error`, of which these are the ones that a host has.
///
/// The imports of a WebAssembly applet returned three of them under other numbers from the start,
/// and do so for ever: [`RequestStatus::import_number`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[repr(i32)]
pub enum RequestStatus {
    /// It was done.
    Ok = 0,
    /// No heap was granted, or the applet has not attached it yet.
    NotGranted = 1,
    /// The heap may not grow that far.
    LimitReached = 2,
    /// The pool or the store has no room.
    NoRoom = 3,
    /// The host does not offer this.
    Unsupported = 4,
    /// The host failed; its report holds the reason.
    Failed = 5,
    /// The applet's memory cannot take the heap: its declared maximum is too small, or something
    /// is at the heap's place already.
    MemoryShape = 7,
    /// What the applet passed does not lie in its memory.
    BadRange = 12,
    /// The heap may only be read.
    ReadOnly = 20,
    /// A message is longer than a message may be.
    TooLarge = 30,
    /// The host does not want the result of that call any more.
    Cancelled = 31,
}

impl RequestStatus {
    /// Each of them.
    pub const ALL: [RequestStatus; 11] = [
        RequestStatus::Ok,
        RequestStatus::NotGranted,
        RequestStatus::LimitReached,
        RequestStatus::NoRoom,
        RequestStatus::Unsupported,
        RequestStatus::Failed,
        RequestStatus::MemoryShape,
        RequestStatus::BadRange,
        RequestStatus::ReadOnly,
        RequestStatus::TooLarge,
        RequestStatus::Cancelled,
    ];

    /// As C and the messages of native applets have it.
    #[must_use]
    pub const fn number(self) -> i32 {
        self as i32
    }

    /// The status of this number, if there is one.
    #[must_use]
    pub fn from_number(number: i32) -> Option<RequestStatus> {
        RequestStatus::ALL.into_iter().find(|status| status.number() == number)
    }

    /// As an import of the module `holdfast` returns it; negated where it returns a size otherwise.
    #[must_use]
    pub const fn import_number(self) -> i32 {
        match self {
            RequestStatus::BadRange => 6,
            RequestStatus::ReadOnly => 8,
            RequestStatus::TooLarge => 9,
            status => status.number(),
        }
    }

    /// The status that an import returns as this number, if there is one.
    #[must_use]
    pub fn from_import_number(number: i32) -> Option<RequestStatus> {
        RequestStatus::ALL.into_iter().find(|status| status.import_number() == number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_statuses_never_change() {
        let numbers = RequestStatus::ALL.map(RequestStatus::number);
        assert_eq!(numbers, [0, 1, 2, 3, 4, 5, 7, 12, 20, 30, 31]);
        let of_imports = RequestStatus::ALL.map(RequestStatus::import_number);
        assert_eq!(of_imports, [0, 1, 2, 3, 4, 5, 7, 6, 8, 9, 31]);
        for status in RequestStatus::ALL {
            assert_eq!(RequestStatus::from_number(status.number()), Some(status));
            assert_eq!(RequestStatus::from_import_number(status.import_number()), Some(status));
        }
        assert_eq!(
            (RequestStatus::from_number(6), RequestStatus::from_import_number(20)),
            (None, None)
        );
    }
}
