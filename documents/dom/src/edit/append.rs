//! Storage of changes: new records and texts behind those in use, others where they are, and room
//! for more.
//!
//! Invariants: those of `edit`. A document that has no more room moves; the old bytes are whole
//! until the commit.

use holdfast_heap::Backing;
use zerocopy::IntoBytes;

use crate::edit::Edit;
use crate::error::{Damage, DomError, ParseLimit};
use crate::image::short_length;
use crate::layout::{
    AttributeRecord, Header, LONG, NameRecord, NodeRecord, ORDERED, Table, TableCapacity,
    name_hash, root_type,
};
use crate::limits::{NAMES_MAX, NODES_MAX, TEXT_BYTES_MAX};
use crate::namespace::Namespace;

impl<B: Backing> Edit<'_, '_, B> {
    pub(crate) fn name_number(
        &mut self,
        namespace: Namespace,
        local: &str,
    ) -> Result<u32, DomError> {
        let hash = name_hash(local);
        let document = self.document()?;
        let known = document.names().iter().position(|name| {
            name.hash == hash
                && name.namespace == namespace as u8
                && name.has_prefix == 0
                && document.bytes_at(name.local, name.local_length) == local.as_bytes()
        });
        if let Some(number) = known {
            return Ok(number as u32);
        }
        let (start, length) = self.push_text(local)?;
        let record = NameRecord {
            local: start,
            local_length: length,
            namespace: namespace as u8,
            hash,
            ..NameRecord::default()
        };
        self.reserve(TableCapacity { names: 1, ..TableCapacity::default() })?;
        let number = self.header.names.used;
        self.put_new(self.header.names, record.as_bytes())?;
        self.header.names.used += 1;
        Ok(number)
    }

    pub(crate) fn push_node(&mut self, record: NodeRecord) -> Result<u32, DomError> {
        self.header.flags &= !ORDERED;
        self.reserve(TableCapacity { nodes: 1, ..TableCapacity::default() })?;
        let number = self.header.nodes.used;
        self.put_new(self.header.nodes, record.as_bytes())?;
        self.header.nodes.used += 1;
        Ok(number)
    }

    pub(crate) fn push_attribute(&mut self, record: AttributeRecord) -> Result<(), DomError> {
        self.reserve(TableCapacity { attributes: 1, ..TableCapacity::default() })?;
        self.put_new(self.header.attributes, record.as_bytes())?;
        self.header.attributes.used += 1;
        Ok(())
    }

    pub(crate) fn push_text(&mut self, text: &str) -> Result<(u32, u32), DomError> {
        Ok((self.push_bytes(&[text.as_bytes()])?, text.len() as u32))
    }

    /// Stores parts of a text in a row; says where.
    fn push_bytes(&mut self, parts: &[&[u8]]) -> Result<u32, DomError> {
        let many: u64 = parts.iter().map(|part| part.len() as u64).sum();
        if many > TEXT_BYTES_MAX {
            return Err(DomError::Limit { limit: ParseLimit::TextBytes, max: TEXT_BYTES_MAX });
        }
        self.reserve(TableCapacity { text: many as u32, ..TableCapacity::default() })?;
        let start = self.header.text.used;
        for part in parts {
            let at = self.header.text.at + u64::from(self.header.text.used);
            self.tx.write_unlogged(self.object, at, part)?;
            self.header.text.used += part.len() as u32;
        }
        Ok(start)
    }

    /// Where a value is, and [`AttributeRecord::length`] of it.
    pub(crate) fn push_value(&mut self, value: &str) -> Result<(u32, u16), DomError> {
        let length = short_length(value.as_bytes());
        if length != LONG {
            return Ok((self.push_text(value)?.0, length));
        }
        let word = (value.len() as u32).to_le_bytes();
        Ok((self.push_bytes(&[&word, value.as_bytes()])?, LONG))
    }

    /// Stores a record behind those in use of its table.
    fn put_new(&mut self, table: Table, record: &[u8]) -> Result<(), DomError> {
        let at = table.at + u64::from(table.used) * record.len() as u64;
        Ok(self.tx.write_unlogged(self.object, at, record)?)
    }

    pub(crate) fn write_node(&mut self, node: u32, record: NodeRecord) -> Result<(), DomError> {
        let at = self.header.nodes.at + u64::from(node) * size_of::<NodeRecord>() as u64;
        Ok(self.tx.write(self.object, at, record.as_bytes())?)
    }

    pub(crate) fn write_attribute(
        &mut self,
        number: u32,
        record: AttributeRecord,
    ) -> Result<(), DomError> {
        let at =
            self.header.attributes.at + u64::from(number) * size_of::<AttributeRecord>() as u64;
        Ok(self.tx.write(self.object, at, record.as_bytes())?)
    }

    /// Makes room behind what is in use; the document moves when there is none.
    pub(crate) fn reserve(&mut self, wanted: TableCapacity) -> Result<(), DomError> {
        let header = self.header;
        let fits = |table: Table, wanted: u32| table.room - table.used >= wanted;
        if fits(header.nodes, wanted.nodes)
            && fits(header.attributes, wanted.attributes)
            && fits(header.names, wanted.names)
            && fits(header.text, wanted.text)
        {
            return Ok(());
        }
        let more = |table: Table, wanted: u32, least: u32, limit: ParseLimit, max: u64| {
            let needed = u64::from(table.used) + u64::from(wanted);
            if needed > max {
                return Err(DomError::Limit { limit, max });
            }
            // Half as much again, so that many small changes cost few moves.
            let room = needed + u64::from(table.used / 2).max(u64::from(least));
            Ok(room.min(max) as u32)
        };
        let nodes_max = u64::from(NODES_MAX);
        let room = TableCapacity {
            nodes: more(header.nodes, wanted.nodes, 16, ParseLimit::Nodes, nodes_max)?,
            attributes: more(
                header.attributes,
                wanted.attributes,
                16,
                ParseLimit::AllAttributes,
                nodes_max,
            )?,
            names: more(header.names, wanted.names, 4, ParseLimit::Names, NAMES_MAX.into())?,
            text: more(header.text, wanted.text, 1024, ParseLimit::TextBytes, TEXT_BYTES_MAX)?,
        };
        let (mut moved, bytes) = Header::with_room(room, header.quirks);
        moved.flags = header.flags;
        moved.scripting = header.scripting;
        let tables = [
            (header.nodes, &mut moved.nodes, size_of::<NodeRecord>()),
            (header.attributes, &mut moved.attributes, size_of::<AttributeRecord>()),
            (header.names, &mut moved.names, size_of::<NameRecord>()),
            (header.text, &mut moved.text, 1),
        ];
        let mut parts = Vec::new();
        for (from, to, record) in tables {
            to.used = from.used;
            parts.push((from.at as usize, to.at as usize, from.used as usize * record));
        }
        let moved = moved.summed();
        // A document that lies where the heap has its names may have changed what this one means by
        // a store of its own.
        if self.tx.root(&self.name) != Some(self.object) {
            return Err(DomError::Damaged(Damage::NoHeader));
        }
        self.object = self.tx.replace(&self.name, bytes, Some(root_type()), |old, new| {
            new.fill(0);
            new[..size_of::<Header>()].copy_from_slice(moved.as_bytes());
            for (from, to, length) in parts {
                new[to..to + length].copy_from_slice(&old[from..from + length]);
            }
        })?;
        self.header = moved;
        Ok(())
    }
}
