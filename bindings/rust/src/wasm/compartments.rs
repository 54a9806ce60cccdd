//! The compartment of an applet in WebAssembly: one, for its one thread.

use crate::region::{AttachError, Granted};

/// The one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Thread;

impl Thread {
    /// The calling one.
    pub(crate) fn current() -> Thread {
        Thread
    }

    /// There is no other.
    pub(crate) fn is_succeeded_by(self, _other: Thread) -> bool {
        false
    }

    /// It runs.
    pub(crate) fn has_ended(self) -> bool {
        false
    }
}

/// The compartment of this name, or of this worker; without a name the one that there is.
pub(crate) fn find(
    name: Option<&str>,
    is_free: &mut dyn FnMut(u32) -> bool,
) -> Result<Granted, AttachError> {
    // Without a byte it would be no name.
    if name.is_some_and(str::is_empty) {
        return Err(AttachError::NotGranted);
    }
    let name = name.unwrap_or_default().as_bytes();
    // The host takes a name with this sign before it for that of a compartment.
    let mut signed = [b'+'; NAME_BYTES_MAX + 1];
    let place = signed.get_mut(1..=name.len()).ok_or(AttachError::NotGranted)?;
    place.copy_from_slice(name);
    let signed = core::str::from_utf8(&signed[..=name.len()]);
    let granted = super::attach(Some(signed.map_err(|_| AttachError::NotGranted)?))?;
    if is_free(granted.index) { Ok(granted) } else { Err(AttachError::Held) }
}

const NAME_BYTES_MAX: usize = holdfast_channel::heaps::HEAP_NAME_BYTES_MAX;

/// There is no other thread to keep out.
pub(crate) fn open_to_this_thread(_index: u32) {}

/// As [`open_to_this_thread`].
pub(crate) fn close_to_this_thread() {}

/// There are no keys in WebAssembly.
pub(crate) fn is_closed_by_key(_index: usize) -> bool {
    false
}
