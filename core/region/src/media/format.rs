//! The bytes of an image or base file, version 1, as `docs/format.md` draws them.
//!
//! A file is two header slots, a reserved part and the data area. This module turns slots into
//! [`Header`] values and back; a `Header` that exists has passed every check. It does no I/O, and
//! it never looks at the data area.

#![forbid(unsafe_code)]

use xxhash_rust::xxh3::xxh3_64;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::media::medium::Medium;
use crate::name::RegionName;

/// First bytes of every slot.
pub(crate) const MAGIC: [u8; 8] = *b"HOLDFAST";
/// The version that this module writes, and the newest that it reads.
pub(crate) const FORMAT_VERSION: u32 = 1;
/// Bytes of a slot.
pub(crate) const SLOT_BYTES: usize = 4096;
/// Bytes of both slots.
pub(crate) const SLOTS_BYTES: usize = 2 * SLOT_BYTES;
/// Where an image has the word that says how its limit is shared out (see `media::allotment`).
pub(crate) const ALLOTMENT_OFFSET: u64 = 8192;
/// The page that the word has to itself.
pub(crate) const ALLOTMENT_BYTES: u64 = 4096;
/// Where the data area starts: a multiple of the huge page size, so that it can be mapped by huge
/// pages.
pub(crate) const DATA_OFFSET: u64 = 2 << 20;
/// Where a packed base file has its packed part (see [`crate::media::packed`]).
pub(crate) const PACKED_OFFSET: u64 = SLOTS_BYTES as u64;
/// The shortest packed part: that of an area in which nothing is.
pub(crate) const PACKED_BYTES_MIN: u64 = 32;
/// The longest packed part, head and table included.
pub(crate) const PACKED_BYTES_MAX: u64 = 64 << 10;
/// The largest area that is packed: its offsets fit into the table.
pub(crate) const PACKED_DATA_BYTES_MAX: u64 = 1 << 32;
/// Limits are multiples of this (a page of WebAssembly, and of every Linux).
pub(crate) const LIMIT_UNIT_BYTES: u64 = 64 << 10;
/// The smallest limit of a region, in bytes; smaller wishes are rounded up to it.
pub const LIMIT_BYTES_MIN: u64 = 1 << 20;
/// The largest limit of a region, in bytes.
pub const LIMIT_BYTES_MAX: u64 = 1 << 40;
/// A region is backed in steps of this.
pub(crate) const GROWTH_STEP_BYTES: u64 = 4 << 20;
/// The largest growth hint.
pub(crate) const GROWTH_HINT_BYTES_MAX: u64 = 16 << 20;
/// Native addresses are multiples of this.
pub(crate) const ADDRESS_UNIT_BYTES: u64 = 1 << 30;
/// Native addresses start here.
pub(crate) const WINDOW_START: u64 = 0x1000_0000_0000;
/// Native addresses end here.
pub(crate) const WINDOW_END: u64 = 0x5000_0000_0000;

/// No honest counter gets here.
const COUNTERS_END: u64 = 1 << 62;

/// A journal may continue this file: alone it need not be the newest state.
const FLAG_CONTINUED: u32 = 1;
/// The region's image lies on a disk.
const FLAG_ON_DISK: u32 = 2;
/// Stores to this image reach memory in an order that a reset may cut off anywhere.
const FLAG_ORDERED: u32 = 4;
/// The data is packed behind the slots, and there is no data area.
const FLAG_PACKED: u32 = 8;
/// All features that this module knows.
const FLAGS_KNOWN: u32 = FLAG_CONTINUED | FLAG_ON_DISK | FLAG_ORDERED | FLAG_PACKED;

const RESERVED_BYTES: usize = 3776;

/// A slot as it lies in the file. All integers are little endian.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct HeaderSlot {
    magic: [u8; 8],
    format_version: U32,
    header_bytes: U32,
    sequence: U64,
    uuid: [u8; 16],
    address: U64,
    limit_bytes: U64,
    backed_bytes: U64,
    data_offset: U64,
    state: U32,
    flags: U32,
    checkpoint_count: U64,
    image_generation: U64,
    created_unix_s: U64,
    data_checksum: U64,
    owner_fingerprint: [u8; 32],
    name_bytes: U16,
    name: [u8; 128],
    padding: [u8; 6],
    journal_sequence: U64,
    boot: [u8; 16],
    packed_bytes: U64,
    reserved: [u8; RESERVED_BYTES],
    checksum: U64,
}

/// Fails to compile when a field is not where docs/format.md says.
macro_rules! assert_offsets {
    ($($field:ident: $offset:expr),* $(,)?) => {
        const _: () = { $(assert!(std::mem::offset_of!(HeaderSlot, $field) == $offset);)* };
    };
}
const _: () = assert!(size_of::<HeaderSlot>() == SLOT_BYTES);
assert_offsets! {
    magic: 0, format_version: 8, header_bytes: 12, sequence: 16, uuid: 24, address: 40, limit_bytes: 48,
    backed_bytes: 56, data_offset: 64, state: 72, flags: 76, checkpoint_count: 80, image_generation: 88,
    created_unix_s: 96, data_checksum: 104, owner_fingerprint: 112, name_bytes: 144, name: 146,
    padding: 274, journal_sequence: 280, boot: 288, packed_bytes: 304, reserved: 312,
    checksum: 4088,
}

/// Whether a writer has, or had, the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileState {
    /// Closed in order; the base file holds the same data.
    Clean,
    /// A writer has it, or died with it.
    Open,
}

/// A checked header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) sequence: u64,
    pub(crate) uuid: [u8; 16],
    pub(crate) address: u64,
    pub(crate) limit_bytes: u64,
    pub(crate) backed_bytes: u64,
    pub(crate) state: FileState,
    pub(crate) checkpoint_count: u64,
    pub(crate) image_generation: u64,
    pub(crate) created_unix_s: u64,
    pub(crate) data_checksum: u64,
    pub(crate) owner_fingerprint: [u8; 32],
    pub(crate) name: RegionName,
    /// A journal may continue this file. True in base files only.
    pub(crate) continued: bool,
    /// In an image: the newest record of the journal that is known to be durable; 0 without one.
    pub(crate) journal_sequence: u64,
    /// Where the region's image lies.
    pub(crate) medium: Medium,
    /// In an image: the boot in which its last writer opened it. Zeros elsewhere, and where an
    /// older version wrote it.
    pub(crate) boot: [u8; 16],
    /// In an image that outlives the boot: whatever was stored to it reached memory in an order
    /// from which a prefix can be restored. False elsewhere.
    pub(crate) ordered: bool,
    /// In a base file that is packed: bytes of the packed part (see [`crate::media::packed`]). 0
    /// elsewhere.
    pub(crate) packed_bytes: u64,
}

/// Why a slot is no header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlotFault {
    /// It does not start with the magic.
    NoMagic,
    /// Its checksum or a field is wrong.
    Damaged,
    /// It claims a newer version or unknown flags; `sure` when its checksum is right.
    Newer { version: u32, flags: u32, sure: bool },
}

/// Why a pair of slots gives no header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeaderFault {
    /// Neither slot starts with the magic.
    Foreign,
    /// Both slots are damaged.
    Damaged,
    /// The file is newer than this program.
    Newer { version: u32, flags: u32 },
}

/// The header in force, and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chosen {
    pub(crate) header: Header,
    /// 0 or 1.
    pub(crate) slot: usize,
    /// The other slot is unusable, so this one may be the older of the two.
    pub(crate) other_damaged: bool,
}

impl Header {
    /// The same for a file of the store, which is of no boot.
    pub(crate) fn for_store(self) -> Header {
        Header { boot: [0; 16], ordered: false, ..self }
    }

    /// Bytes of a file whose data area is backed as the header says, or that is packed.
    pub(crate) fn file_bytes(&self) -> u64 {
        match self.packed_bytes {
            0 => DATA_OFFSET + self.backed_bytes,
            packed_bytes => PACKED_OFFSET + packed_bytes,
        }
    }

    pub(crate) fn encode(&self) -> [u8; SLOT_BYTES] {
        let mut name = [0; 128];
        // A RegionName has at most 64 bytes, that of a compartment 128.
        name[..self.name.as_str().len()].copy_from_slice(self.name.as_str().as_bytes());
        let slot = HeaderSlot {
            magic: MAGIC,
            format_version: FORMAT_VERSION.into(),
            header_bytes: (SLOT_BYTES as u32).into(),
            sequence: self.sequence.into(),
            uuid: self.uuid,
            address: self.address.into(),
            limit_bytes: self.limit_bytes.into(),
            backed_bytes: self.backed_bytes.into(),
            data_offset: DATA_OFFSET.into(),
            state: (self.state as u32).into(),
            flags: self.flags().into(),
            checkpoint_count: self.checkpoint_count.into(),
            image_generation: self.image_generation.into(),
            created_unix_s: self.created_unix_s.into(),
            data_checksum: self.data_checksum.into(),
            owner_fingerprint: self.owner_fingerprint,
            name_bytes: (self.name.as_str().len() as u16).into(),
            name,
            padding: [0; 6],
            journal_sequence: self.journal_sequence.into(),
            boot: self.boot,
            packed_bytes: self.packed_bytes.into(),
            reserved: [0; RESERVED_BYTES],
            checksum: 0.into(),
        };
        let mut bytes: [u8; SLOT_BYTES] = zerocopy::transmute!(slot);
        seal(&mut bytes);
        bytes
    }

    fn flags(&self) -> u32 {
        let continued = if self.continued { FLAG_CONTINUED } else { 0 };
        let ordered = if self.ordered { FLAG_ORDERED } else { 0 };
        let packed = if self.packed_bytes > 0 { FLAG_PACKED } else { 0 };
        continued
            | ordered
            | packed
            | match self.medium {
                Medium::Memory => 0,
                Medium::File => FLAG_ON_DISK,
            }
    }

    pub(crate) fn decode(bytes: &[u8; SLOT_BYTES]) -> Result<Header, SlotFault> {
        let slot: &HeaderSlot = zerocopy::transmute_ref!(bytes);
        if slot.magic != MAGIC {
            return Err(SlotFault::NoMagic);
        }
        let sure = slot.checksum.get() == xxh3_64(&bytes[..SLOT_BYTES - 8]);
        let (version, flags) = (slot.format_version.get(), slot.flags.get());
        if version > FORMAT_VERSION || (sure && flags & !FLAGS_KNOWN != 0) {
            return Err(SlotFault::Newer { version, flags, sure });
        }
        let state = match slot.state.get() {
            0 => FileState::Clean,
            1 => FileState::Open,
            _ => return Err(SlotFault::Damaged),
        };
        let name = slot.name.get(..usize::from(slot.name_bytes.get())).ok_or(SlotFault::Damaged)?;
        let name = std::str::from_utf8(name).ok().and_then(|name| RegionName::parse_any(name).ok());
        let is_packed = flags & FLAG_PACKED != 0;
        let header = Header {
            sequence: slot.sequence.get(),
            uuid: slot.uuid,
            address: slot.address.get(),
            limit_bytes: slot.limit_bytes.get(),
            backed_bytes: slot.backed_bytes.get(),
            state,
            checkpoint_count: slot.checkpoint_count.get(),
            image_generation: slot.image_generation.get(),
            created_unix_s: slot.created_unix_s.get(),
            data_checksum: slot.data_checksum.get(),
            owner_fingerprint: slot.owner_fingerprint,
            name: name.ok_or(SlotFault::Damaged)?,
            continued: flags & FLAG_CONTINUED != 0,
            journal_sequence: slot.journal_sequence.get(),
            medium: if flags & FLAG_ON_DISK != 0 { Medium::File } else { Medium::Memory },
            boot: slot.boot,
            ordered: flags & FLAG_ORDERED != 0,
            // Without the flag it means nothing.
            packed_bytes: if is_packed { slot.packed_bytes.get() } else { 0 },
        };
        let fits = sure
            && version == FORMAT_VERSION
            && slot.header_bytes.get() as usize == SLOT_BYTES
            && slot.data_offset.get() == DATA_OFFSET
            && header.sizes_fit()
            && (!is_packed || header.packing_fits())
            && header.counters_fit();
        if fits { Ok(header) } else { Err(SlotFault::Damaged) }
    }

    /// Whatever counts up can be counted up further.
    fn counters_fit(&self) -> bool {
        [self.sequence, self.checkpoint_count, self.image_generation, self.journal_sequence]
            .iter()
            .all(|counter| *counter < COUNTERS_END)
    }

    fn packing_fits(&self) -> bool {
        (PACKED_BYTES_MIN..=PACKED_BYTES_MAX).contains(&self.packed_bytes)
            && self.backed_bytes <= PACKED_DATA_BYTES_MAX
    }

    fn sizes_fit(&self) -> bool {
        (LIMIT_BYTES_MIN..=LIMIT_BYTES_MAX).contains(&self.limit_bytes)
            && self.limit_bytes.is_multiple_of(LIMIT_UNIT_BYTES)
            && (1..=self.limit_bytes).contains(&self.backed_bytes)
            && self.backed_bytes.is_multiple_of(LIMIT_UNIT_BYTES)
            && (WINDOW_START..WINDOW_END).contains(&self.address)
            && self.address.is_multiple_of(ADDRESS_UNIT_BYTES)
            && self.limit_bytes <= WINDOW_END - self.address
    }
}

/// Puts the right checksum at the end of a slot.
fn seal(bytes: &mut [u8; SLOT_BYTES]) {
    let checksum = xxh3_64(&bytes[..SLOT_BYTES - 8]);
    bytes[SLOT_BYTES - 8..].copy_from_slice(&checksum.to_le_bytes());
}

/// Chooses the header in force from both slots: the valid one with the highest sequence.
pub(crate) fn choose(slots: &[u8; SLOTS_BYTES]) -> Result<Chosen, HeaderFault> {
    let (first, second) = slots.split_at(SLOT_BYTES);
    let decode = |half: &[u8]| half.try_into().map_or(Err(SlotFault::Damaged), Header::decode);
    match (decode(first), decode(second)) {
        // A newer program wrote at least one of the slots: the older one is not the truth any more.
        (Err(SlotFault::Newer { version, flags, sure: true }), _)
        | (_, Err(SlotFault::Newer { version, flags, sure: true })) => {
            Err(HeaderFault::Newer { version, flags })
        }
        (Ok(first), Ok(second)) if second.sequence > first.sequence => {
            Ok(Chosen { header: second, slot: 1, other_damaged: false })
        }
        (Ok(first), Ok(_)) => Ok(Chosen { header: first, slot: 0, other_damaged: false }),
        (Ok(header), Err(_)) => Ok(Chosen { header, slot: 0, other_damaged: true }),
        (Err(_), Ok(header)) => Ok(Chosen { header, slot: 1, other_damaged: true }),
        // Both say the same newer version, though its checksum may be elsewhere: no accident.
        (
            Err(SlotFault::Newer { version, flags, .. }),
            Err(SlotFault::Newer { version: second, .. }),
        ) if version == second => Err(HeaderFault::Newer { version, flags }),
        (Err(SlotFault::NoMagic), Err(SlotFault::NoMagic)) => Err(HeaderFault::Foreign),
        (Err(_), Err(_)) => Err(HeaderFault::Damaged),
    }
}

/// The limit that a wish becomes; `None` when it is out of range.
pub(crate) fn limit_for(asked_bytes: u64) -> Option<u64> {
    let limit_bytes =
        asked_bytes.max(LIMIT_BYTES_MIN).checked_next_multiple_of(LIMIT_UNIT_BYTES)?;
    (asked_bytes > 0 && limit_bytes <= LIMIT_BYTES_MAX).then_some(limit_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(sequence: u64) -> Header {
        Header {
            sequence,
            uuid: [3; 16],
            address: WINDOW_START + 5 * ADDRESS_UNIT_BYTES,
            limit_bytes: 64 << 20,
            backed_bytes: 4 << 20,
            state: FileState::Open,
            checkpoint_count: 7,
            image_generation: 2,
            created_unix_s: 1_800_000_000,
            data_checksum: 0x0123_4567_89ab_cdef,
            owner_fingerprint: [9; 32],
            name: RegionName::parse("words").unwrap(),
            continued: false,
            journal_sequence: 0,
            medium: Medium::Memory,
            boot: [0; 16],
            ordered: false,
            packed_bytes: 0,
        }
    }

    fn pair(first: &Header, second: &Header) -> [u8; SLOTS_BYTES] {
        let mut both = [0; SLOTS_BYTES];
        both[..SLOT_BYTES].copy_from_slice(&first.encode());
        both[SLOT_BYTES..].copy_from_slice(&second.encode());
        both
    }

    /// Changes one field of an encoded slot and makes its checksum right again.
    fn resealed(offset: usize, bytes: &[u8]) -> [u8; SLOT_BYTES] {
        let mut slot = sample(1).encode();
        slot[offset..offset + bytes.len()].copy_from_slice(bytes);
        seal(&mut slot);
        slot
    }

    #[test]
    fn a_header_comes_back_as_it_was_written() {
        let image = Header { journal_sequence: 5, boot: [7; 16], ordered: true, ..sample(11) };
        assert_eq!(Header::decode(&image.encode()), Ok(image));
        let base = Header { continued: true, medium: Medium::File, ..sample(11) };
        assert_eq!(Header::decode(&base.encode()), Ok(base));
        let packed = Header { packed_bytes: 400, ..sample(11) };
        assert_eq!(packed.file_bytes(), 8592);
        assert_eq!(Header::decode(&packed.encode()), Ok(packed));
    }

    /// A packed file that claims to be shorter or longer than any is damaged, and so is one of an
    /// area that no table describes.
    #[test]
    fn sizes_of_packed_files_are_bounded() {
        for packed_bytes in [1, PACKED_BYTES_MIN - 1, PACKED_BYTES_MAX + 1, u64::MAX] {
            let header = Header { packed_bytes, ..sample(1) };
            assert_eq!(Header::decode(&header.encode()), Err(SlotFault::Damaged));
        }
        let (limit_bytes, backed_bytes) = (1 << 33, PACKED_DATA_BYTES_MAX + LIMIT_UNIT_BYTES);
        let header = Header { packed_bytes: 400, limit_bytes, backed_bytes, ..sample(1) };
        assert_eq!(Header::decode(&header.encode()), Err(SlotFault::Damaged));
        // The flag decides: what earlier versions left in these bytes means nothing.
        let unflagged = resealed(304, &400_u64.to_le_bytes());
        assert_eq!(Header::decode(&unflagged), Ok(sample(1)));
    }

    #[test]
    fn the_bytes_of_version_1_never_change() {
        // Offsets and values as docs/format.md gives them; a change here is a new format version.
        let bytes = sample(11).encode();
        assert_eq!(&bytes[..16], b"HOLDFAST\x01\0\0\0\0\x10\0\0");
        assert_eq!(bytes[16..24], 11u64.to_le_bytes());
        assert_eq!(bytes[40..48], 0x1001_4000_0000u64.to_le_bytes());
        assert_eq!(bytes[144..152], *b"\x05\0words\0");
        assert_eq!(u64::from_le_bytes(bytes[4088..].try_into().unwrap()), 0x7f65_39df_e6be_efb4);
    }

    /// Guarantee: heap/damaged-headers
    #[test]
    fn a_counter_that_could_not_be_counted_up_is_damage() {
        for change in [
            (|header| header.sequence = u64::MAX) as fn(&mut Header),
            |header| header.checkpoint_count = u64::MAX,
            |header| header.image_generation = COUNTERS_END,
            |header| header.journal_sequence = u64::MAX,
        ] {
            let mut header = sample(1);
            change(&mut header);
            assert_eq!(Header::decode(&header.encode()), Err(SlotFault::Damaged));
        }
    }

    #[test]
    fn the_slot_with_the_higher_sequence_is_in_force() {
        assert_eq!(choose(&pair(&sample(4), &sample(5))).unwrap().slot, 1);
        assert_eq!(choose(&pair(&sample(6), &sample(5))).unwrap().slot, 0);
    }

    /// Every flipped bit of a slot is noticed and the other slot serves.
    #[test]
    fn flipped_slot_bit_is_noticed_and_other_serves() {
        let good = pair(&sample(4), &sample(5));
        for position in 0..SLOTS_BYTES {
            for bit in 0..8 {
                let mut bytes = good;
                bytes[position] ^= 1 << bit;
                let chosen = choose(&bytes).unwrap();
                let other = usize::from(position < SLOT_BYTES);
                assert_eq!(
                    (chosen.slot, chosen.other_damaged),
                    (other, true),
                    "bit {bit} of byte {position}"
                );
            }
        }
    }

    #[test]
    fn two_damaged_slots_give_an_error_for_every_byte() {
        let good = pair(&sample(4), &sample(5));
        for position in 0..SLOT_BYTES {
            let mut bytes = good;
            bytes[position] ^= 0x40;
            bytes[SLOT_BYTES + position] ^= 0x40;
            assert!(choose(&bytes).is_err(), "byte {position}");
        }
        assert_eq!(choose(&[0; SLOTS_BYTES]), Err(HeaderFault::Foreign));
        assert_eq!(choose(&[0xff; SLOTS_BYTES]), Err(HeaderFault::Foreign));
    }

    #[test]
    fn a_newer_version_is_called_newer_and_not_damaged() {
        let mut both = pair(&sample(4), &sample(5));
        both[SLOT_BYTES..].copy_from_slice(&resealed(8, &2u32.to_le_bytes()));
        assert_eq!(choose(&both), Err(HeaderFault::Newer { version: 2, flags: 0 }));
        both[SLOT_BYTES..].copy_from_slice(&resealed(76, &16u32.to_le_bytes()));
        assert_eq!(choose(&both), Err(HeaderFault::Newer { version: 1, flags: 16 }));
        // A newer version may keep its checksum elsewhere; then both slots have to agree.
        let mut both = pair(&sample(4), &sample(5));
        both[8] = 3;
        both[SLOT_BYTES + 8] = 3;
        assert_eq!(choose(&both), Err(HeaderFault::Newer { version: 3, flags: 0 }));
    }

    /// A well sealed header with impossible fields is damaged.
    #[test]
    fn sealed_header_with_impossible_fields_is_damaged() {
        let impossible: [(usize, &[u8]); 10] = [
            (8, &0u32.to_le_bytes()),
            (12, &8192u32.to_le_bytes()),
            (40, &(WINDOW_START + 4096).to_le_bytes()),
            (40, &WINDOW_END.to_le_bytes()),
            (48, &u64::MAX.to_le_bytes()),
            (56, &(128u64 << 20).to_le_bytes()),
            (56, &0u64.to_le_bytes()),
            (64, &4096u64.to_le_bytes()),
            (72, &2u32.to_le_bytes()),
            (144, &200u16.to_le_bytes()),
        ];
        for (offset, bytes) in impossible {
            assert_eq!(
                Header::decode(&resealed(offset, bytes)),
                Err(SlotFault::Damaged),
                "offset {offset}"
            );
        }
        assert_eq!(Header::decode(&resealed(146, b"/")), Err(SlotFault::Damaged));
    }

    #[test]
    fn limits_are_rounded_up_and_bounded() {
        assert_eq!(limit_for(0), None);
        assert_eq!(limit_for(1), Some(1 << 20));
        assert_eq!(limit_for((1 << 20) + 1), Some((1 << 20) + (64 << 10)));
        assert_eq!(limit_for(1 << 40), Some(1 << 40));
        assert_eq!(limit_for((1 << 40) + 1), None);
        assert_eq!(limit_for(u64::MAX), None);
    }
}
