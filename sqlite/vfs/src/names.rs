//! Under which names a database and its redo log are found. A commit that waits for the log counts
//! only while recovery would find it: the database under the name by which it was opened, the log
//! beside it, and both names on the disk.
//!
//! Nothing keeps other programs from moving, removing or replacing either file. So both names are
//! looked at before a record is written, and again when it is durable; and where the folder has
//! changed since its entries were last known to be durable, the folder is synced, too: a log that
//! was renamed and renamed back may be on the disk by the first of these names only.
//!
//! In a folder where other files come and go, that would be a sync for each commit. There it is
//! asked when the inodes of database and log changed last, which a rename changes, too. Elsewhere
//! it is not asked: see `holdfast_sys::file::FileId` for what the question costs the next write.
//!
//! Invariant: it changes no file. What is missing is made anew by `flush.rs`, or the commit is
//! refused.

#![forbid(unsafe_code)]

use std::path::Path;

use holdfast_sys::file::{FileId, sync_directory};

use crate::base::read_mark;
use crate::error::{Result, SqliteError};
use crate::file_names::{Names, SeenFile, folder_of};
use crate::log::Log;
use crate::pool::Pool;

/// How often the folder may change while a commit looks at it.
const LOOKS_MAX: u32 = 8;

impl Pool {
    /// Refuses where the name of the database no longer names the file that was opened.
    pub(crate) fn check_database_name(&self) -> Result<()> {
        self.look_at_database().map(drop)
    }

    /// Refuses where the file no longer bears the mark of this image: it was overwritten, and
    /// recovery would take it for complete, or for one of another time.
    pub(crate) fn check_mark(&self) -> Result<()> {
        let nonce = self.image.mode().nonce();
        match read_mark(self.base())?.0 {
            Some(mark) if mark.nonce == nonce && mark.is_of(self.since_log()) => Ok(()),
            _ => Err(SqliteError::Replaced {
                database: self.database.clone(),
                image: self.image.path().to_owned(),
            }),
        }
    }

    fn look_at_database(&self) -> Result<FileId> {
        let found =
            FileId::at(&self.database).map_err(SqliteError::io("examine", &self.database))?;
        found
            .filter(|found| self.file.is_none_or(|opened| opened == *found))
            .ok_or_else(|| SqliteError::Moved { database: self.database.clone() })
    }

    /// Refuses where one of the names no longer names its file; returns their folder as it is then.
    fn look_at_names(&self, log: &Log) -> Result<SeenFile> {
        let path = log.path();
        let named = FileId::at(path).map_err(SqliteError::io("examine", path))?;
        if named != Some(log.id()) {
            return Err(SqliteError::LogTaken {
                log: path.to_owned(),
                database: self.database.clone(),
            });
        }
        self.look_at_database()?;
        let folder = folder_of(path);
        let found = folder.metadata().map_err(SqliteError::io("examine", folder))?;
        Ok(SeenFile::of(&found))
    }

    /// Both names, with when the inodes of their files changed last, and then their folder.
    fn look_closely(&self, log: &Log) -> Result<Names> {
        let seen = |path: &Path| -> Result<SeenFile> {
            let found = path.symlink_metadata().map_err(SqliteError::io("examine", path))?;
            Ok(SeenFile::of(&found))
        };
        let files = [seen(&self.database)?, seen(log.path())?];
        Ok(Names { folder: self.look_at_names(log)?, files: Some(files) })
    }

    /// Before a record: has the names on the disk where one of them may have changed since they
    /// were. The log's inode changes with each write, the folder with each file in it; a rename
    /// changes both.
    pub(crate) fn settle_names(&self, log: &mut Log) -> Result<()> {
        for look in 0..LOOKS_MAX {
            let folder = self.look_at_names(log)?;
            if let Some(known) = log.names.filter(|known| known.folder == folder) {
                let files = known.files.filter(|_| look > 0);
                log.names = Some(Names { files, ..known });
                return Ok(());
            }
            let names = self.look_closely(log)?;
            let files = log.names.and_then(|known| known.files);
            // What changes while the folder is synced is seen in the next round.
            log.names = Some(names);
            if files.is_some() && files == names.files {
                return Ok(());
            }
            self.sync_folder(log)?;
        }
        Err(SqliteError::LogTaken { log: log.path().to_owned(), database: self.database.clone() })
    }

    /// After a record: refuses where one of the names is gone, and has them on the disk where the
    /// folder has changed meanwhile.
    pub(crate) fn confirm_names(&self, log: &mut Log) -> Result<()> {
        for _ in 0..LOOKS_MAX {
            let before = log.names;
            let is_busy = before.is_some_and(|before| before.files.is_some());
            let names = match is_busy {
                true => self.look_closely(log)?,
                false => Names { folder: self.look_at_names(log)?, files: None },
            };
            if before.is_some_and(|before| before.folder == names.folder) {
                log.names = Some(names);
                return Ok(());
            }
            log.names = Some(self.look_closely(log)?);
            self.sync_folder(log)?;
        }
        Err(SqliteError::LogTaken { log: log.path().to_owned(), database: self.database.clone() })
    }

    fn sync_folder(&self, log: &Log) -> Result<()> {
        let folder = folder_of(log.path());
        sync_directory(folder).map_err(SqliteError::io("sync", folder))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by it")]
mod tests {
    use std::fs::{copy, remove_dir_all, remove_file, rename, write};
    use std::path::PathBuf;

    use crate::error::{Result, SqliteError};
    use crate::image::{BLOCK_BYTES, Suspicion};
    use crate::log::log_path;
    use crate::pool::Pool;
    use crate::testing::{commit, hot, lose, make_database, recovered, when_recorded};

    /// A database of three blocks in a folder of its own, that waits for its log, with a commit.
    fn at_level_power() -> (tempfile::TempDir, Pool) {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let pool = hot(folder.path(), 3);
        pool.settings.set("level", "power").unwrap();
        commit(&pool, &[(1, 2)], 3).unwrap();
        (folder, pool)
    }

    fn paths(pool: &Pool) -> [PathBuf; 3] {
        let aside = pool.database.with_file_name("aside");
        [pool.database.clone(), log_path(&pool.database), aside]
    }

    /// The blocks that every acknowledged commit left, found without the pool.
    fn assert_kept(folder: &tempfile::TempDir, pool: Pool, second: u8, third: u8, what: &str) {
        lose(pool);
        let (_, bytes) = recovered(folder.path());
        assert_eq!((bytes[BLOCK_BYTES], bytes[2 * BLOCK_BYTES]), (second, third), "{what}");
    }

    type Fault = fn(&[PathBuf; 3]);

    /// What other programs do to the log between two commits; the next one makes it whole again.
    const LOG_FAULTS: [(&str, Fault); 7] = [
        ("removed", |[_, log, _]| remove_file(log).unwrap()),
        ("renamed", |[_, log, aside]| rename(log, aside).unwrap()),
        ("cleared", |[_, log, _]| write(log, "").unwrap()),
        ("overwritten", |[_, log, _]| write(log, [7; 9000]).unwrap()),
        ("replaced by something else", |[_, log, aside]| {
            write(aside, [7; 9000]).unwrap();
            rename(aside, log).unwrap();
        }),
        ("replaced by its copy", |[_, log, aside]| {
            copy(log, aside).unwrap();
            rename(aside, log).unwrap();
        }),
        ("renamed and renamed back", |[_, log, aside]| {
            rename(log, aside).unwrap();
            rename(aside, log).unwrap();
        }),
    ];

    /// Commits at level power outlive what is done to the log.
    ///
    /// Guarantee: sqlite/level-power
    /// Guarantee: sqlite/log-removed
    #[test]
    fn power_commits_outlive_changes_to_the_log() {
        for (what, fault) in LOG_FAULTS {
            let (folder, pool) = at_level_power();
            fault(&paths(&pool));
            commit(&pool, &[(2, 3)], 3).unwrap();
            assert_kept(&folder, pool, 2, 3, what);
        }
    }

    /// A commit that trusts its log finds behind its record what was done to the log before it, and
    /// mends it; also where the log was replaced by a copy of it with fewer records.
    ///
    /// Guarantee: sqlite/level-power
    /// Guarantee: sqlite/log-removed
    #[test]
    fn commit_that_trusts_its_log_finds_what_came_between() {
        let copied: (&str, Fault) = ("replaced by an older copy", |[_, log, aside]| {
            copy(aside, log).unwrap();
        });
        for (what, fault) in LOG_FAULTS.into_iter().chain([copied]) {
            let (folder, pool) = at_level_power();
            let [_, log, aside] = paths(&pool);
            copy(&log, &aside).unwrap();
            // The folder is seen to be at rest.
            for _ in 0..3 {
                commit(&pool, &[(1, 4)], 3).unwrap();
            }
            assert!(pool.trusts_log(&pool.log_turn()), "{what}");
            fault(&paths(&pool));
            commit(&pool, &[(2, 3)], 3).unwrap();
            assert_kept(&folder, pool, 4, 3, what);
        }
    }

    /// It has the nonce of the database; of another time, or of this one with fewer records.
    ///
    /// Guarantee: sqlite/level-power
    /// Guarantee: sqlite/log-removed
    #[test]
    fn older_log_copy_takes_nothing_from_commits() {
        for (is_moved, is_older_generation) in
            [(true, true), (true, false), (false, true), (false, false)]
        {
            let (folder, pool) = at_level_power();
            let [_, log, aside] = paths(&pool);
            copy(&log, &aside).unwrap();
            if is_older_generation {
                pool.checkpoint().unwrap();
            }
            commit(&pool, &[(1, 4)], 3).unwrap();
            match is_moved {
                true => rename(&aside, &log).unwrap(),
                false => copy(&aside, &log).map(drop).unwrap(),
            }
            commit(&pool, &[(2, 3)], 3).unwrap();
            assert_eq!(pool.image.log_position().suspicion(), Suspicion::None);
            assert_kept(&folder, pool, 4, 3, "an older copy of the log");
        }
    }

    /// Commits that are told to have failed, and go on when what was done is undone.
    fn assert_refused(what: &str, fault: Fault, mend: Fault, is_right: fn(&SqliteError) -> bool) {
        let (folder, pool) = at_level_power();
        fault(&paths(&pool));
        for _ in 0..2 {
            let refused = commit_and_undo(&pool, 2, 9).unwrap_err();
            assert!(is_right(&refused), "{what}: {refused}");
        }
        mend(&paths(&pool));
        commit(&pool, &[(2, 3)], 3).unwrap();
        assert_kept(&folder, pool, 2, 3, what);
    }

    /// As a connection does it.
    fn commit_and_undo(pool: &Pool, block: u32, fill: u8) -> Result<()> {
        let link = crate::testing::put(pool, block, &crate::testing::page(fill));
        let committed = pool.commit(&[link], 3 * BLOCK_BYTES as u64);
        if committed.is_err() {
            pool.image.remove(link).unwrap();
        }
        committed.map(drop)
    }

    /// Guarantee: sqlite/log-removed
    #[test]
    fn a_commit_that_recovery_would_not_find_is_refused() {
        let is_moved = |error: &SqliteError| matches!(error, SqliteError::Moved { .. });
        let back: Fault = |[database, _, aside]| rename(aside, database).unwrap();
        assert_refused(
            "moved",
            |[database, _, aside]| rename(database, aside).unwrap(),
            back,
            is_moved,
        );
        let replace: Fault = |[database, _, aside]| {
            rename(database, aside).unwrap();
            copy(aside, database).unwrap();
        };
        assert_refused("replaced", replace, back, is_moved);
        let overwrite: Fault = |[database, _, aside]| {
            copy(database, aside).unwrap();
            write(database, [7; 3 * BLOCK_BYTES]).unwrap();
        };
        let restore: Fault = |[database, _, aside]| copy(aside, database).map(drop).unwrap();
        assert_refused("overwritten", overwrite, restore, |error| {
            matches!(error, SqliteError::Replaced { .. })
        });
        let leave: Fault = |[database, _, _]| {
            let folder = database.parent().unwrap();
            rename(folder, folder.with_extension("away")).unwrap();
        };
        let come_back: Fault = |[database, _, _]| {
            let folder = database.parent().unwrap();
            rename(folder.with_extension("away"), folder).unwrap();
        };
        assert_refused("its folder is moved", leave, come_back, is_moved);
    }

    /// Guarantee: sqlite/log-removed
    #[test]
    fn a_commit_to_a_removed_folder_is_refused() {
        let (folder, pool) = at_level_power();
        remove_dir_all(folder.path()).unwrap();
        let refused = commit(&pool, &[(2, 3)], 3).unwrap_err();
        assert!(matches!(refused, SqliteError::Moved { .. }), "{refused}");
    }

    /// It may have the newest commits of its own database, which was moved away from it.
    ///
    /// Guarantee: sqlite/level-power
    /// Guarantee: sqlite/log-removed
    #[test]
    fn the_log_of_another_database_is_not_written_to() {
        let (folder, pool) = at_level_power();
        let (other_folder, other) = at_level_power();
        commit(&other, &[(2, 77)], 3).unwrap();
        let (log, other_log) = (log_path(&pool.database), log_path(&other.database));
        let bytes = std::fs::read(&other_log).unwrap();
        rename(&other_log, &log).unwrap();
        for _ in 0..2 {
            let refused = commit_and_undo(&pool, 2, 9).unwrap_err();
            assert!(matches!(refused, SqliteError::LogReplaced { .. }), "{refused}");
        }
        assert!(std::fs::read(&log).unwrap() == bytes, "it was changed");
        rename(&log, &other_log).unwrap();
        commit(&pool, &[(2, 3)], 3).unwrap();
        assert_kept(&folder, pool, 2, 3, "its own");
        assert_kept(&other_folder, other, 2, 77, "that of the other one");
    }

    /// A database was moved away from its log, and another one begins at its name.
    ///
    /// Guarantee: sqlite/level-power
    /// Guarantee: sqlite/log-removed
    #[test]
    fn new_log_leaves_an_open_ones_file_alone() {
        let (folder, pool) = at_level_power();
        let [database, log, aside] = paths(&pool);
        let bytes = std::fs::read(&log).unwrap();
        let held = std::fs::File::open(&log).unwrap();
        rename(&database, &aside).unwrap();
        let other = make_database(folder.path(), 3);
        assert_eq!(other, database);
        let other = crate::testing::attached(folder.path());
        assert!(other.heat(other.base()).unwrap());
        let mut found = Vec::new();
        std::io::Read::read_to_end(&mut &held, &mut found).unwrap();
        assert!(found == bytes, "the log of the database that was moved was cleared");
        let refused = commit(&pool, &[(2, 3)], 3).unwrap_err();
        assert!(matches!(refused, SqliteError::Moved { .. }), "{refused}");
    }

    /// A checkpoint wrote pages of the pool among those of another program.
    ///
    /// Guarantee: sqlite/log-removed
    #[test]
    fn overwritten_file_gets_no_pool_page() {
        let (_folder, pool) = at_level_power();
        let others = [7; 3 * BLOCK_BYTES];
        write(&pool.database, others).unwrap();
        let refused = pool.checkpoint().unwrap_err();
        assert!(matches!(refused, SqliteError::Replaced { .. }), "{refused}");
        assert!(std::fs::read(&pool.database).unwrap() == others);
    }

    /// While the commit is under way: between its record and its answer.
    ///
    /// Guarantee: sqlite/log-removed
    #[test]
    fn a_name_that_goes_during_a_commit_undoes_it() {
        let faults: [(&str, Fault); 3] = [
            ("log removed", |[_, log, _]| remove_file(log).unwrap()),
            ("log renamed", |[_, log, aside]| rename(log, aside).unwrap()),
            ("database replaced and put back later", |[database, _, aside]| {
                rename(database, aside).unwrap();
            }),
        ];
        for (number, (what, fault)) in faults.into_iter().enumerate() {
            let (folder, pool) = at_level_power();
            let [database, log, aside] = paths(&pool);
            let all = paths(&pool);
            when_recorded(move || fault(&all));
            let refused = commit_and_undo(&pool, 2, 9).unwrap_err();
            let is_right =
                matches!(refused, SqliteError::Moved { .. } | SqliteError::LogTaken { .. });
            assert!(is_right, "{what}: {refused}");
            match number {
                0 => {}
                // What was undone is in it.
                1 => rename(&aside, &log).unwrap(),
                _ => rename(&aside, &database).unwrap(),
            }
            commit(&pool, &[(1, 5)], 3).unwrap();
            assert_kept(&folder, pool, 5, 1, what);
        }
    }

    /// The folder is synced, and the names are looked at again.
    ///
    /// Guarantee: sqlite/log-removed
    #[test]
    fn a_folder_that_changes_during_a_commit_keeps_it() {
        let (folder, pool) = at_level_power();
        let all = paths(&pool);
        when_recorded(move || write(&all[2], "another file").unwrap());
        commit(&pool, &[(2, 3)], 3).unwrap();
        assert_kept(&folder, pool, 2, 3, "beside another file");
    }
}
