//! Building tables from dictionary files: what is there already is kept, what is unfinished goes on
//! where it stopped, what changed is made anew.

use std::io::Read;

use crate::arena::Arena;
use crate::error::SpellError;
use crate::source::{Source, Words};
use crate::table::{Progress, Table};

/// Words per transaction unless told otherwise: their undo records fit in the log's own chunk.
pub const DEFAULT_BATCH_WORDS: u64 = 1000;

/// Is told of every committed batch: root, and words done.
pub type OnBatch<'a> = &'a mut dyn FnMut(&str, u64) -> Result<(), SpellError>;

/// Makes sure that there is a finished table for a source.
///
/// # Errors
/// The source cannot be read, the heap has no room, a foreign root is in the way. What was
/// committed stays.
pub fn ensure<A: Arena>(
    arena: &mut A,
    source: &Source,
    batch_words: u64,
    on_batch: OnBatch<'_>,
) -> Result<(), SpellError> {
    let mut table = match Table::open(arena, &source.root)? {
        Some(table) if table.stamp() == source.stamp => table,
        Some(_) => {
            Table::remove(arena, &source.root)?;
            Table::create(arena, &source.root, source.stamp)?
        }
        None => Table::create(arena, &source.root, source.stamp)?,
    };
    if table.progress().complete {
        return Ok(());
    }
    let mut words = source.words(table.progress().bytes)?;
    fill(arena, &mut table, &mut words, source, batch_words, on_batch)
}

fn fill<A: Arena, R: Read>(
    arena: &mut A,
    table: &mut Table,
    words: &mut Words<R>,
    source: &Source,
    batch_words: u64,
    on_batch: OnBatch<'_>,
) -> Result<(), SpellError> {
    loop {
        if !table.has_room() {
            table.grow(arena)?;
        }
        arena.begin()?;
        let before = *table;
        if let Err(error) = batch(arena, table, words, source, batch_words) {
            arena.abort();
            *table = before;
            return Err(error);
        }
        on_batch(&source.root, table.progress().words)?;
        if table.progress().complete {
            return Ok(());
        }
    }
}

/// Fills and commits one batch; the caller has opened the transaction.
fn batch<A: Arena, R: Read>(
    arena: &mut A,
    table: &mut Table,
    words: &mut Words<R>,
    source: &Source,
    batch_words: u64,
) -> Result<(), SpellError> {
    let mut count = 0;
    let mut complete = false;
    while count < batch_words.max(1) && table.has_room() {
        match words.next_word() {
            Ok(Some(word)) => table.insert(arena, word)?,
            Ok(None) => {
                complete = true;
                break;
            }
            Err(error) => {
                return Err(SpellError::Read { path: source.path.clone(), source: error });
            }
        }
        count += 1;
    }
    let now =
        Progress { words: table.progress().words + count, bytes: words.bytes_done(), complete };
    if complete && now.bytes != source.stamp.bytes {
        return Err(SpellError::SourceChanged { path: source.path.clone() });
    }
    table.commit_batch(arena, now)
}
