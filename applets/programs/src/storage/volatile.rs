//! Ordinary memory: nothing outlives the program.

use std::collections::HashMap;
use std::mem;
use std::rc::Rc;

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
}
