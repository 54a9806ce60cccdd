//! The boot record: what an applet must know before the first message, in the first page of the
//! shared file.
//!
//! Invariants: little endian, explicit widths, asserted size; the host writes it before the applet
//! starts and never reads it back; the applet copies it once and checks it.

#![forbid(unsafe_code)]

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::error::BootError;
use crate::layout::{Layout, PAGE_BYTES};

/// The descriptor at which an applet finds the shared file.
pub const CHANNEL_FD: i32 = 3;
/// The descriptor at which an applet finds its region's image, if a heap was granted.
pub const REGION_FD: i32 = 4;

/// The first bytes of the file.
pub const MAGIC: [u8; 8] = *b"HFCHAN01";
/// The version of the layout and of the rings.
pub const VERSION: u32 = 2;

/// A heap was granted: the fields of the region mean something, and [`REGION_FD`] is open.
pub const REGION_GRANTED: u32 = 1;
/// The region was made for this run.
pub const REGION_NEW: u32 = 1 << 1;
/// The region may only be read.
pub const REGION_READ_ONLY: u32 = 1 << 2;
/// The region is to be mapped privately: what is stored counts when the host publishes it.
pub const REGION_ATOMIC: u32 = 1 << 3;
/// The host is going to call: the applet shall serve.
pub const SERVE: u32 = 1 << 4;
/// The region is memory that survives a reset of the machine: the applet's heap writes its lines
/// back in order.
pub const REGION_ORDERED: u32 = 1 << 5;
/// Then the region must be mapped with `MAP_SYNC`, or not at all.
pub const REGION_SYNCHRONOUS: u32 = 1 << 6;
/// The region is a compartment, which a thread of the applet may have for itself.
pub const REGION_COMPARTMENT: u32 = 1 << 7;

/// The record. All offsets are from the start of the shared file, all sizes in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Boot {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`VERSION`].
    pub version: u32,
    /// [`REGION_GRANTED`] and the others.
    pub flags: u32,
    /// Of the whole file.
    pub total_bytes: u64,
    /// Data of each ring; a power of two.
    pub ring_bytes: u32,
    /// 0.
    pub reserved: u32,
    /// Control pages of the ring that the host writes to.
    pub host_ring_offset: u64,
    /// Control pages of the ring that the applet writes to.
    pub applet_ring_offset: u64,
    /// Arena of the shared buffers.
    pub arena_offset: u64,
    /// Its size.
    pub arena_bytes: u64,
    /// Where the applet must map the region.
    pub region_address: u64,
    /// Where the region's bytes begin in the file at [`REGION_FD`].
    pub region_data_offset: u64,
    /// What of the region can be used now.
    pub region_backed_bytes: u64,
    /// What of it can be used ever: this much is mapped at once.
    pub region_limit_bytes: u64,
}

const _: () = assert!(size_of::<Boot>() == 96 && (size_of::<Boot>() as u64) < PAGE_BYTES);

/// What the record says of the region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BootRegion {
    /// Where to map it.
    pub address: u64,
    /// Where its bytes begin in its file.
    pub data_offset: u64,
    /// Usable now.
    pub backed_bytes: u64,
    /// Usable ever.
    pub limit_bytes: u64,
    /// Made for this run.
    pub is_new: bool,
    /// May only be read.
    pub is_read_only: bool,
    /// To be mapped privately.
    pub is_atomic: bool,
    /// To be stored to in an order that survives a reset.
    pub is_ordered: bool,
    /// And to be mapped with `MAP_SYNC`.
    pub is_synchronous: bool,
    /// A thread may have it for itself.
    pub is_compartment: bool,
}

impl Boot {
    /// The record for a layout.
    #[must_use]
    pub fn new(layout: &Layout, region: Option<BootRegion>, serve: bool) -> Boot {
        let mut flags = if serve { SERVE } else { 0 };
        if let Some(region) = region {
            flags |= REGION_GRANTED;
            let set = [
                (region.is_new, REGION_NEW),
                (region.is_read_only, REGION_READ_ONLY),
                (region.is_atomic, REGION_ATOMIC),
                (region.is_ordered, REGION_ORDERED),
                (region.is_synchronous, REGION_SYNCHRONOUS),
                (region.is_compartment, REGION_COMPARTMENT),
            ];
            flags |=
                set.iter().filter(|(is_set, _)| *is_set).fold(0, |flags, (_, flag)| flags | flag);
        }
        let region = region.unwrap_or_default();
        Boot {
            magic: MAGIC,
            version: VERSION,
            flags,
            total_bytes: layout.total_bytes(),
            ring_bytes: layout.ring_bytes(),
            reserved: 0,
            host_ring_offset: layout.host_ring_offset(),
            applet_ring_offset: layout.applet_ring_offset(),
            arena_offset: layout.arena_offset(),
            arena_bytes: layout.arena_bytes(),
            region_address: region.address,
            region_data_offset: region.data_offset,
            region_backed_bytes: region.backed_bytes,
            region_limit_bytes: region.limit_bytes,
        }
    }

    /// Reads a record from the first bytes of the file and checks mark and version, so that the
    /// file can be mapped in full; [`Boot::layout`] checks the rest.
    ///
    /// # Errors
    /// When it is no record, or of another version.
    pub fn parse(bytes: &[u8]) -> Result<Boot, BootError> {
        let (boot, _) = Boot::read_from_prefix(bytes).map_err(|_| BootError::NotAChannel)?;
        if boot.magic != MAGIC {
            return Err(BootError::NotAChannel);
        }
        if boot.version != VERSION {
            return Err(BootError::Version { found: boot.version });
        }
        Ok(boot)
    }

    /// Where the parts are, in a file that is mapped with so many bytes.
    ///
    /// # Errors
    /// When sizes and offsets contradict each other or the file.
    pub fn layout(&self, file_bytes: u64) -> Result<Layout, BootError> {
        let wrong = |what| BootError::Layout { what };
        let layout = Layout::new(self.ring_bytes, self.arena_bytes)
            .map_err(|_| wrong("sizes of rings or arena"))?;
        let ours = Boot::new(&layout, self.region(), self.wants_serving());
        let same = [
            (self.total_bytes == ours.total_bytes, "total size"),
            (self.total_bytes <= file_bytes, "size of the file"),
            (self.host_ring_offset == ours.host_ring_offset, "ring of the host"),
            (self.applet_ring_offset == ours.applet_ring_offset, "ring of the applet"),
            (self.arena_offset == ours.arena_offset, "arena"),
        ];
        match same.iter().find(|(is_right, _)| !is_right) {
            Some((_, what)) => Err(wrong(what)),
            None => Ok(layout),
        }
    }

    /// The region, if one was granted.
    #[must_use]
    pub fn region(&self) -> Option<BootRegion> {
        let has = |flag| self.flags & flag != 0;
        has(REGION_GRANTED).then_some(BootRegion {
            address: self.region_address,
            data_offset: self.region_data_offset,
            backed_bytes: self.region_backed_bytes,
            limit_bytes: self.region_limit_bytes,
            is_new: has(REGION_NEW),
            is_read_only: has(REGION_READ_ONLY),
            is_atomic: has(REGION_ATOMIC),
            is_ordered: has(REGION_ORDERED),
            is_synchronous: has(REGION_SYNCHRONOUS),
            is_compartment: has(REGION_COMPARTMENT),
        })
    }

    /// Whether the host is going to call.
    #[must_use]
    pub fn wants_serving(&self) -> bool {
        self.flags & SERVE != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region() -> BootRegion {
        BootRegion {
            address: 1 << 40,
            data_offset: 8192,
            backed_bytes: 1 << 20,
            limit_bytes: 1 << 30,
            is_new: true,
            is_read_only: false,
            is_atomic: true,
            is_ordered: true,
            is_synchronous: true,
            is_compartment: false,
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        for (region, serve) in [(None, true), (Some(region()), false)] {
            let layout = Layout::default();
            let boot = Boot::new(&layout, region, serve);
            let read = Boot::parse(boot.as_bytes()).unwrap();
            assert_eq!(read, boot);
            assert_eq!(read.layout(layout.total_bytes()), Ok(layout));
            assert_eq!((read.region(), read.wants_serving()), (region, serve));
        }
    }

    #[test]
    fn the_fields_are_where_the_format_says() {
        let boot = Boot::new(&Layout::default(), Some(region()), true);
        let bytes = boot.as_bytes();
        assert_eq!(&bytes[..8], b"HFCHAN01");
        assert_eq!(bytes[8..16], [2, 0, 0, 0, 0b111_1011, 0, 0, 0]);
        assert_eq!(bytes[24..32], [0, 0, 4, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[32..40], 4096_u64.to_le_bytes());
        assert_eq!(bytes[64..72], (1_u64 << 40).to_le_bytes());
        assert_eq!(bytes[88..96], (1_u64 << 30).to_le_bytes());
    }

    /// Bytes that are no boot record, or one that contradicts itself, are refused.
    #[test]
    fn invalid_boot_record_is_refused() {
        let layout = Layout::default();
        let boot = Boot::new(&layout, None, true);
        assert_eq!(Boot::parse(&[]), Err(BootError::NotAChannel));
        assert_eq!(Boot::parse(&[0; 4096]), Err(BootError::NotAChannel));
        for version in [0, 1, 3, u32::MAX] {
            let other = Boot { version, ..boot };
            assert_eq!(Boot::parse(other.as_bytes()), Err(BootError::Version { found: version }));
        }
        let total = layout.total_bytes();
        assert!(boot.layout(total - 1).is_err());
        for wrong in [
            Boot { ring_bytes: 5000, ..boot },
            Boot { arena_bytes: 1, ..boot },
            Boot { total_bytes: total + 4096, ..boot },
            Boot { host_ring_offset: 0, ..boot },
            Boot { applet_ring_offset: boot.host_ring_offset, ..boot },
            Boot { arena_offset: u64::MAX, ..boot },
        ] {
            assert!(matches!(wrong.layout(u64::MAX), Err(BootError::Layout { .. })), "{wrong:?}");
        }
    }
}
