//! Blocks from somewhere durable to a database file: from the redo log, or from a copy that was
//! saved.
//!
//! Invariant: a database file that is written to bears a mark from before the first block until
//! after the last one, so a process that comes when this broke off does it again.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use crate::base::{Base, read_header};
use crate::error::Result;
use crate::file_size;
use crate::image::BLOCK_BYTES;
use crate::mark::{self, Stamp};

/// Neighbours are written together, so many at most: one MiB.
const RUN_BLOCKS_MAX: usize = (1 << 20) / BLOCK_BYTES;

/// How neighbours are read, each a block and its place, into room for all of them.
type ReadRun<'a> = Box<dyn Fn(&[(u32, u64)], &mut [u8]) -> Result<()> + 'a>;

/// Blocks, and where each of them is.
pub(crate) struct Blocks<'a> {
    pub(crate) places: &'a BTreeMap<u32, u64>,
    /// Of the database with these blocks, in bytes.
    pub(crate) size: u64,
    pub(crate) read: ReadRun<'a>,
}

impl Blocks<'_> {
    /// The blocks that are within the database, in order, as runs of neighbours.
    fn runs(&self) -> Vec<Vec<(u32, u64)>> {
        let end = self.size.div_ceil(BLOCK_BYTES as u64);
        let within = self.places.iter().take_while(|(block, _)| u64::from(**block) < end);
        let mut runs: Vec<Vec<(u32, u64)>> = Vec::new();
        for (block, place) in within {
            let last = runs.last_mut().filter(|run| {
                run.len() < RUN_BLOCKS_MAX && run.last().is_some_and(|(last, _)| last + 1 == *block)
            });
            match last {
                Some(run) => run.push((*block, *place)),
                None => runs.push(vec![(*block, *place)]),
            }
        }
        runs
    }
}

/// Writes blocks to a database file in order, neighbours at once, gives that its size, and waits
/// until it is durable, with the mark.
pub(crate) fn apply(base: &dyn Base, blocks: &Blocks<'_>, stamp: Stamp) -> Result<()> {
    let mut pages = Vec::new();
    base.grow_to(blocks.size);
    for run in blocks.runs() {
        pages.resize(run.len() * BLOCK_BYTES, 0);
        (blocks.read)(&run, &mut pages)?;
        let (first, _) = run[0];
        if first == 0 {
            mark::put(&mut pages[..BLOCK_BYTES], stamp);
        }
        let offset = u64::from(first) * BLOCK_BYTES as u64;
        let bytes = (blocks.size - offset).min(pages.len() as u64) as usize;
        base.write(offset, &pages[..bytes])?;
    }
    if blocks.size == 0 {
        write_stand_in(base, stamp)?;
    } else {
        stamp_file(base, stamp)?;
        file_size::set(base, blocks.size, &read_header(base)?)?;
    }
    base.sync()
}

/// Makes a file what stands for an empty database, with the mark. It is not durable yet.
pub(crate) fn write_stand_in(base: &dyn Base, stamp: Stamp) -> Result<()> {
    let mut stand_in = [0; mark::STAND_IN_BYTES as usize];
    mark::put(&mut stand_in, stamp);
    base.write(0, &stand_in)?;
    base.cut_to(mark::STAND_IN_BYTES)
}

/// Puts the mark back into a complete file from which it was taken, or was to be, and has it
/// durable; also one that is there.
pub(crate) fn mark_again(base: &dyn Base, stamp: Stamp) -> Result<()> {
    if base.size()? == 0 {
        let mut stand_in = [0; mark::STAND_IN_BYTES as usize];
        mark::put(&mut stand_in, stamp);
        base.write(0, &stand_in)?;
    } else {
        let mut header = [0; mark::HEADER_BYTES];
        base.read(0, &mut header)?;
        if mark::find(&header).is_none() {
            mark::put(&mut header, stamp);
        }
        base.write(0, &header)?;
    }
    base.sync()
}

/// Has the mark in a database file say as of when that is. It is not durable yet.
fn stamp_file(base: &dyn Base, stamp: Stamp) -> Result<()> {
    let mut header = [0; mark::HEADER_BYTES];
    base.read(0, &mut header)?;
    if mark::find(&header).is_none_or(|found| {
        found.nonce == stamp.nonce && found.transaction == Some(stamp.transaction as u32)
    }) {
        return Ok(());
    }
    mark::take(&mut header);
    mark::put(&mut header, stamp);
    base.write(0, &header)
}
