//! SQL by chance, the same for the same seed: statements that work and statements that fail, inside
//! and outside of transactions, with rows from nothing to many pages.
//!
//! Invariant: what a statement does depends on nothing but the database: no clock, no random
//! function, no order that SQL leaves open.

use rand::RngExt;
use rand::rngs::StdRng;

const TABLES: [&str; 4] = ["a", "b", "c", "d"];

/// What is done next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    /// One statement.
    Run(String),
    /// All connections are closed and opened again.
    Reopen,
}

/// Statements by a seed.
pub(crate) struct Statements {
    random: StdRng,
}

impl Statements {
    pub(crate) fn new(random: StdRng) -> Statements {
        Statements { random }
    }

    fn below(&mut self, bound: u32) -> u32 {
        self.random.random_range(0..bound)
    }

    fn table(&mut self) -> &'static str {
        TABLES[self.below(TABLES.len() as u32) as usize]
    }

    /// Small numbers, so that rows meet.
    fn key(&mut self) -> u32 {
        self.below(60)
    }

    /// Bytes that tell where they come from; now and then more than a page of any size.
    fn content(&mut self) -> String {
        let (byte, length) = (self.below(256), self.below(100));
        let length = match self.below(12) {
            0 => length * 700,
            1..=3 => length * 40,
            _ => length,
        };
        format!("replace(hex(zeroblob({length})), '00', '{byte:02x}')")
    }

    /// The next one.
    pub(crate) fn next(&mut self) -> Action {
        let (table, other) = (self.table(), self.table());
        let (key, other_key, content) = (self.key(), self.key(), self.content());
        let kind = self.below(100);
        Action::Run(match kind {
            0..=2 => return Action::Reopen,
            3..=9 => "BEGIN".to_owned(),
            10..=14 => "COMMIT".to_owned(),
            15..=17 => "ROLLBACK".to_owned(),
            18..=21 => format!("SAVEPOINT s{}", key % 3),
            22..=23 => format!("ROLLBACK TO s{}", key % 3),
            24..=25 => format!("RELEASE s{}", key % 3),
            26..=28 => {
                format!("CREATE TABLE IF NOT EXISTS {table} (k INTEGER PRIMARY KEY, u UNIQUE, v)")
            }
            29 => format!(
                "CREATE TABLE IF NOT EXISTS {table} (k PRIMARY KEY, u UNIQUE, v) WITHOUT ROWID"
            ),
            30 => format!("DROP TABLE IF EXISTS {table}"),
            31 => format!("CREATE INDEX IF NOT EXISTS i{table} ON {table} (v, k)"),
            32 => format!("DROP INDEX IF EXISTS i{table}"),
            33 => format!("ALTER TABLE {table} ADD COLUMN w{}", key % 4),
            34 => "VACUUM".to_owned(),
            35 => format!("PRAGMA page_size = {}", 512 << (key % 8)),
            36 => format!("PRAGMA auto_vacuum = {}", key % 3),
            37 => "PRAGMA incremental_vacuum".to_owned(),
            38 => format!("PRAGMA cache_size = {}", 1 + key * 2),
            39 => "PRAGMA integrity_check".to_owned(),
            40 => format!("PRAGMA user_version = {key}"),
            41 => "PRAGMA user_version".to_owned(),
            42..=59 => {
                format!("INSERT INTO {table} (k, u, v) VALUES ({key}, {other_key}, {content})")
            }
            60..=63 => {
                format!(
                    "INSERT OR REPLACE INTO {table} (k, u, v) VALUES ({key}, {other_key}, {content})"
                )
            }
            // Fails in the middle when a row meets another one, and takes all of it back.
            64..=67 => {
                format!(
                    "INSERT INTO {table} (k, u, v) SELECT k + 7, u + {key}, v FROM {other} ORDER BY k"
                )
            }
            68..=69 => format!(
                "INSERT INTO {table} (k, u, v) VALUES ({key}, {other_key}, 1) ON CONFLICT (k) DO UPDATE SET v = {content}"
            ),
            70..=77 => format!("UPDATE {table} SET v = {content} WHERE k = {key}"),
            78..=80 => format!("UPDATE {table} SET v = v || {content}, u = u + 1 WHERE k < {key}"),
            81..=83 => format!("UPDATE OR FAIL {table} SET u = u / 2 WHERE k > {key}"),
            84..=87 => format!("DELETE FROM {table} WHERE k BETWEEN {key} AND {other_key}"),
            88 => format!("DELETE FROM {table}"),
            89..=94 => format!("SELECT k, u, length(v), substr(v, 1, 4) FROM {table} ORDER BY k"),
            95..=96 => format!("SELECT count(*), sum(length(v)), total(u) FROM {table}"),
            97..=98 => {
                format!("SELECT x.k, y.k FROM {table} x JOIN {other} y ON x.u = y.k ORDER BY 1, 2")
            }
            _ => "SELECT type, name, tbl_name FROM sqlite_schema ORDER BY name".to_owned(),
        })
    }
}

#[test]
fn the_same_seed_makes_the_same_statements() {
    use rand::SeedableRng;
    let take = |seed| -> Vec<Action> {
        let mut statements = Statements::new(StdRng::seed_from_u64(seed));
        (0..200).map(|_| statements.next()).collect()
    };
    assert_eq!(take(7), take(7));
    assert_ne!(take(7), take(8));
}
