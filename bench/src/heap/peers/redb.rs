//! redb. Configuration without sync: `Durability::None`; with sync: its default,
//! `Durability::Immediate`.

use std::io::{self, Error};
use std::path::Path;

use redb::{Database, Durability, ReadableDatabase, TableDefinition};

use crate::heap::kv::{KeyValue, Pair, Sync};

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("map");

/// An open database.
pub(crate) struct Redb {
    database: Database,
    durability: Durability,
}

impl Redb {
    /// An empty one in an empty directory.
    pub(crate) fn new(directory: &Path, sync: Sync) -> io::Result<Redb> {
        let database = Database::create(directory.join("redb")).map_err(Error::other)?;
        let durability = match sync {
            Sync::No => Durability::None,
            Sync::Yes => Durability::Immediate,
        };
        Ok(Redb { database, durability })
    }
}

impl KeyValue for Redb {
    fn insert_all(&mut self, pairs: &[Pair]) -> io::Result<()> {
        let mut transaction = self.database.begin_write().map_err(Error::other)?;
        transaction.set_durability(self.durability).map_err(Error::other)?;
        {
            let mut table = transaction.open_table(TABLE).map_err(Error::other)?;
            for (key, value) in pairs {
                table.insert(&key[..], &value[..]).map_err(Error::other)?;
            }
        }
        transaction.commit().map_err(Error::other)
    }

    fn get(&mut self, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        let transaction = self.database.begin_read().map_err(Error::other)?;
        let table = transaction.open_table(TABLE).map_err(Error::other)?;
        let found = table.get(key).map_err(Error::other)?;
        Ok(found.map(|value| value.value().to_vec()))
    }
}
