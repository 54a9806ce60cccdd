//! Ordinary memory: nothing outlives the program. Where programs say which memory is to be in huge
//! pages, that of large objects is, as a heap's memory is. (In WebAssembly only the host could say so.)

use std::collections::HashMap;
use std::mem;
#[cfg(not(target_family = "wasm"))]
use std::mem::MaybeUninit;
use std::rc::Rc;

#[cfg(not(target_family = "wasm"))]
use rustix::mm::{Advice, madvise};

use super::{Lines, Reader, Storage, Writer};
use crate::error::ProgramError;

/// Objects in ordinary memory.
#[derive(Debug, Default)]
pub struct Volatile {
    objects: HashMap<String, Rc<Vec<u8>>>,
}

impl Volatile {
    /// Puts an object there.
    pub fn put(&mut self, name: &str, content: Vec<u8>) {
        self.objects.insert(name.to_owned(), Rc::new(content));
    }
}

impl Storage for Volatile {
    type Reader = VolatileReader;
    type Writer = VolatileWriter;

    fn open(&mut self, name: &str) -> Result<VolatileReader, ProgramError> {
        let missing = || ProgramError::Missing { name: name.to_owned(), storage: "memory" };
        let content = self.objects.get(name).ok_or_else(missing)?;
        Ok(VolatileReader { content: Rc::clone(content), lines: Lines::default() })
    }

    fn create(&mut self, name: &str, capacity_bytes: u64) -> Result<VolatileWriter, ProgramError> {
        // The memory of the object that is replaced, so that a second run finds it mapped.
        let mut content = self
            .objects
            .get_mut(name)
            .and_then(|object| Rc::get_mut(object))
            .map(mem::take)
            .unwrap_or_default();
        content.clear();
        content.reserve_exact(capacity_bytes as usize);
        #[cfg(not(target_family = "wasm"))]
        in_huge_pages(content.spare_capacity_mut());
        Ok(VolatileWriter { name: name.to_owned(), content, capacity_bytes })
    }

    fn finish(&mut self, writer: VolatileWriter) -> Result<u64, ProgramError> {
        let bytes = writer.content.len() as u64;
        self.objects.insert(writer.name, Rc::new(writer.content));
        Ok(bytes)
    }

    fn crossings(&self) -> u64 {
        0
    }
}

/// Asks for huge pages where there are whole ones. Without them it is only slower.
#[cfg(not(target_family = "wasm"))]
fn in_huge_pages(memory: &mut [MaybeUninit<u8>]) {
    const HUGE_BYTES: usize = 2 << 20;
    let start = memory.as_ptr().align_offset(HUGE_BYTES);
    let bytes = memory.len().saturating_sub(start) & !(HUGE_BYTES - 1);
    if let Some(whole) = memory.get_mut(start..start + bytes).filter(|whole| !whole.is_empty()) {
        // SAFETY: the advice changes no content.
        let _ = unsafe { madvise(whole.as_mut_ptr().cast(), bytes, Advice::LinuxHugepage) };
    }
}

/// An object in memory.
#[derive(Debug)]
pub struct VolatileReader {
    content: Rc<Vec<u8>>,
    lines: Lines,
}

impl Reader for VolatileReader {
    fn size_bytes(&self) -> u64 {
        self.content.len() as u64
    }

    #[inline]
    fn line(&mut self) -> Result<Option<&[u8]>, ProgramError> {
        Ok(self.lines.next(&self.content))
    }

    fn rest(&mut self) -> Result<&[u8], ProgramError> {
        Ok(self.lines.rest(&self.content))
    }
}

/// An object that grows.
#[derive(Debug)]
pub struct VolatileWriter {
    name: String,
    content: Vec<u8>,
    capacity_bytes: u64,
}

impl Writer for VolatileWriter {
    #[inline]
    fn write(&mut self, record: &[u8]) -> Result<(), ProgramError> {
        if record.len() > self.capacity_bytes as usize - self.content.len() {
            let (name, capacity_bytes) = (self.name.clone(), self.capacity_bytes);
            return Err(ProgramError::Full { name, capacity_bytes });
        }
        self.content.extend_from_slice(record);
        Ok(())
    }

    fn write_made(
        &mut self,
        bytes_max: usize,
        _scratch: &mut Vec<u8>,
        make: impl FnOnce(&mut [u8]) -> Result<usize, ProgramError>,
    ) -> Result<(), ProgramError> {
        let start = self.content.len();
        if bytes_max > self.capacity_bytes as usize - start {
            let (name, capacity_bytes) = (self.name.clone(), self.capacity_bytes);
            return Err(ProgramError::Full { name, capacity_bytes });
        }
        self.content.resize(start + bytes_max, 0);
        let length = make(&mut self.content[start..])?.min(bytes_max);
        self.content.truncate(start + length);
        Ok(())
    }
}
