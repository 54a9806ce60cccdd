//! The image in the address space: fixed addresses, mappings, and which pages were stored to.
//!
//! Knows files ([`crate::media`]); does not know when an image is opened, grown or committed.

pub(crate) mod address;
pub(crate) mod dirty;
pub(crate) mod memory;
pub(crate) mod private;
pub(crate) mod private_copy;
