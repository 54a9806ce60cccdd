//! Numbers and texts as bytes, little-endian, and back. Reading believes nothing: what is not there
//! is damage.

use crate::error::EntryDamage;

/// Bytes that grow.
#[derive(Default)]
pub(crate) struct ByteWriter {
    pub(crate) bytes: Vec<u8>,
}

impl ByteWriter {
    pub(crate) fn u8(&mut self, value: u8) {
        self.bytes.push(value);
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn f32s(&mut self, values: &[f32]) {
        for value in values {
            self.u32(value.to_bits());
        }
    }

    pub(crate) fn f64s(&mut self, values: &[f64]) {
        for value in values {
            self.u64(value.to_bits());
        }
    }

    /// A count and that many bytes.
    pub(crate) fn block(&mut self, bytes: &[u8]) {
        self.u32(bytes.len() as u32);
        self.bytes.extend_from_slice(bytes);
    }
}

/// Bytes that are read from the front.
#[derive(Clone, Copy)]
pub(crate) struct ByteReader<'a> {
    bytes: &'a [u8],
    what: &'static str,
}

impl<'a> ByteReader<'a> {
    /// `what` it is that is read, for who is told that it is damaged.
    pub(crate) fn new(bytes: &'a [u8], what: &'static str) -> ByteReader<'a> {
        ByteReader { bytes, what }
    }

    pub(crate) fn wrong(&self) -> EntryDamage {
        EntryDamage::Value { what: self.what }
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], EntryDamage> {
        let (taken, rest) =
            self.bytes.split_at_checked(count).ok_or(EntryDamage::Outside { what: self.what })?;
        self.bytes = rest;
        Ok(taken)
    }

    fn array<const COUNT: usize>(&mut self) -> Result<[u8; COUNT], EntryDamage> {
        let (taken, rest) =
            self.bytes.split_first_chunk().ok_or(EntryDamage::Outside { what: self.what })?;
        self.bytes = rest;
        Ok(*taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, EntryDamage> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    pub(crate) fn u16(&mut self) -> Result<u16, EntryDamage> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, EntryDamage> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, EntryDamage> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(crate) fn f32s<const COUNT: usize>(&mut self) -> Result<[f32; COUNT], EntryDamage> {
        let mut values = [0.0; COUNT];
        for value in &mut values {
            *value = f32::from_bits(self.u32()?);
        }
        Ok(values)
    }

    pub(crate) fn f64s<const COUNT: usize>(&mut self) -> Result<[f64; COUNT], EntryDamage> {
        let mut values = [0.0; COUNT];
        for value in &mut values {
            *value = f64::from_bits(self.u64()?);
        }
        Ok(values)
    }

    /// How many records of at least `bytes` bytes follow: no more than there can be.
    pub(crate) fn count(&mut self, bytes: usize) -> Result<usize, EntryDamage> {
        let count = self.u32()? as usize;
        match count.checked_mul(bytes) {
            Some(all) if all <= self.bytes.len() => Ok(count),
            _ => Err(EntryDamage::Outside { what: self.what }),
        }
    }

    pub(crate) fn block(&mut self) -> Result<&'a [u8], EntryDamage> {
        let count = self.count(1)?;
        self.take(count)
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, EntryDamage> {
        std::str::from_utf8(self.block()?).map_err(|_| self.wrong())
    }

    pub(crate) fn end(&self) -> Result<(), EntryDamage> {
        if self.bytes.is_empty() { Ok(()) } else { Err(self.wrong()) }
    }
}
