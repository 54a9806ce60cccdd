//! What writes to a device were for: the paper's figure 1.
//!
//! The paper counts as written for atomicity alone: journals of databases, the journal of the file
//! system, and, where a program replaces a file by a new one, the blocks of the new file that the
//! old one had already.

use std::collections::{HashMap, HashSet};

use super::block_trace::{Files, Life};
use super::names::Named;

/// A file gets its name so many nanoseconds after its inode at most.
const NAMED_WITHIN: u64 = 50_000_000;

/// What a block was written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Rollback journal, write-ahead log and its index, the log of our VFS.
    DatabaseJournal,
    /// A block of a file that replaces one which has the block, too.
    DoubleWrite,
    /// The journal of ext4.
    FileSystemJournal,
    /// Pages of databases.
    Database,
    /// Any other file.
    OtherFile,
    /// Inodes, directories and maps, in their places.
    Metadata,
}

impl Kind {
    pub(super) const ALL: [Kind; 6] = [
        Kind::DatabaseJournal,
        Kind::DoubleWrite,
        Kind::FileSystemJournal,
        Kind::Database,
        Kind::OtherFile,
        Kind::Metadata,
    ];
    pub(super) const ATOMICITY: [Kind; 3] =
        [Kind::DatabaseJournal, Kind::DoubleWrite, Kind::FileSystemJournal];

    pub(super) fn key(self) -> &'static str {
        match self {
            Kind::DatabaseJournal => "database_journal",
            Kind::DoubleWrite => "double_write",
            Kind::FileSystemJournal => "file_system_journal",
            Kind::Database => "database",
            Kind::OtherFile => "other_file",
            Kind::Metadata => "metadata",
        }
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            Kind::DatabaseJournal => "database journal",
            Kind::DoubleWrite => "double write",
            Kind::FileSystemJournal => "ext4 journal",
            Kind::Database => "database",
            Kind::OtherFile => "other file",
            Kind::Metadata => "inodes, maps",
        }
    }
}

/// Blocks of each kind, in the order of `Kind::ALL`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Shares([u64; Kind::ALL.len()]);

impl Shares {
    /// Those that were written from `begun` on.
    pub(super) fn new(files: &Files, names: &[Named], begun: u64) -> Shares {
        let since = |times: &[u64]| times.iter().filter(|&&at| at >= begun).count() as u64;
        let mut shares = Shares::default();
        shares.add(Kind::FileSystemJournal, since(&files.journal));
        shares.add(Kind::Metadata, since(&files.metadata));
        let known = Known::new(&files.lives, names);
        for (number, life) in files.lives.iter().enumerate() {
            let written = life.writes.iter().filter(|(at, ..)| *at >= begun);
            let name = known.names.get(&number).map_or("", String::as_str);
            if is_journal(name) {
                shares.add(Kind::DatabaseJournal, written.count() as u64);
                continue;
            }
            let kind = if life.is_database { Kind::Database } else { Kind::OtherFile };
            let replaced = known.replaced.get(&number).map(|&other| sums(&files.lives[other]));
            for (_, _, sum) in written {
                let is_double = replaced.as_ref().is_some_and(|sums| sums.contains(sum));
                shares.add(if is_double { Kind::DoubleWrite } else { kind }, 1);
            }
        }
        shares
    }

    fn add(&mut self, kind: Kind, blocks: u64) {
        self.0[kind as usize] += blocks;
    }

    /// All of them.
    pub(super) fn blocks(&self) -> u64 {
        self.0.iter().sum()
    }

    /// What these kinds are of all.
    pub(super) fn percent(&self, kinds: &[Kind]) -> f64 {
        let blocks: u64 = kinds.iter().map(|&kind| self.0[kind as usize]).sum();
        100.0 * blocks as f64 / self.blocks().max(1) as f64
    }
}

/// A journal of a database, by the name that SQLite or the VFS gives it.
fn is_journal(name: &str) -> bool {
    ["-journal", "-wal", "-shm", "-holdfast"].iter().any(|end| name.ends_with(end))
        || name.contains("-mj")
}

/// What a file holds: the last content of each of its blocks.
fn sums(life: &Life) -> HashSet<u64> {
    let last: HashMap<u64, u64> = life.writes.iter().map(|&(_, block, sum)| (block, sum)).collect();
    last.into_values().collect()
}

/// What names say about files, by their numbers.
#[derive(Debug, Default)]
struct Known {
    /// The last name.
    names: HashMap<usize, String>,
    /// Which file another one took the name of.
    replaced: HashMap<usize, usize>,
}

impl Known {
    fn new(lives: &[Life], names: &[Named]) -> Known {
        let mut known = Known::default();
        let mut by_inode: HashMap<u64, Vec<usize>> = HashMap::new();
        for (number, life) in lives.iter().enumerate() {
            by_inode.entry(life.inode).or_default().push(number);
        }
        let mut places: HashMap<(u64, &str), usize> = HashMap::new();
        for named in names {
            let candidates = by_inode.get(&named.inode).into_iter().flatten().copied();
            let born: Vec<usize> =
                candidates.filter(|&number| lives[number].born <= named.at).collect();
            // A number that is given again at once may have its next file before the name of the
            // last one was read.
            let fresh = born.iter().copied().find(|number| {
                !known.names.contains_key(number) && named.at - lives[*number].born <= NAMED_WITHIN
            });
            let file = fresh.filter(|_| !named.is_renamed).or(born.last().copied());
            let Some(file) = file else { continue };
            let before = places.insert((named.directory, &named.name), file);
            if let Some(before) = before.filter(|&before| named.is_renamed && before != file) {
                known.replaced.insert(file, before);
            }
            known.names.insert(file, named.name.clone());
        }
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(inode: u64, born: u64, sums: &[u64]) -> Life {
        let writes = (0..).zip(sums).map(|(block, &sum)| (born + 1, block, sum)).collect();
        Life { inode, born, writes, ..Life::default() }
    }

    fn named(at: u64, inode: u64, name: &str, is_renamed: bool) -> Named {
        Named { at, inode, directory: 2, name: name.to_owned(), is_renamed }
    }

    /// Of a file that replaces another, only the blocks that both have are for atomicity. Blocks that
    /// were written before the measurement are compared, and not counted.
    #[test]
    fn double_writes_are_what_the_replaced_file_had() {
        let lives = vec![life(12, 10, &[1, 2, 3]), life(13, 100, &[1, 2, 4])];
        let files = Files { lives, journal: vec![5, 101], ..Files::default() };
        let names = [
            named(11, 12, "notes", false),
            named(101, 13, "notes.new", false),
            named(102, 13, "notes", true),
        ];
        let shares = Shares::new(&files, &names, 50);
        assert_eq!(shares, Shares([0, 2, 1, 0, 1, 0]));
        assert_eq!(shares.percent(&Kind::ATOMICITY), 75.0);
    }

    /// A journal that is made again and again under one number of an inode is known each time, and
    /// what gets the number after it is not taken for one.
    #[test]
    fn journals_are_told_from_what_gets_their_inode() {
        let mut database = life(12, 1, &[9]);
        database.is_database = true;
        let lives = vec![database, life(13, 10, &[5]), life(13, 20, &[6]), life(13, 30, &[7])];
        let files = Files { lives, metadata: vec![40], ..Files::default() };
        let names = [
            named(2, 12, "a.db", false),
            named(21, 13, "a.db-journal", false),
            named(22, 13, "a.db-journal", false),
            named(31, 13, "other", false),
        ];
        assert_eq!(Shares::new(&files, &names, 0), Shares([2, 0, 0, 1, 1, 1]));
    }
}
