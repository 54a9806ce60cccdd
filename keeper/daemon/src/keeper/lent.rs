//! Lent regions in the keeper's other work: before anything is saved, what borrowers stored is
//! brought to the regions. Saving these is then the same as for every other region.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::time::Instant;

use holdfast_region::RegionName;
use holdfast_sys::process::ProcessId;

use crate::freeze::{Frozen, Held};
use crate::keeper::Keeper;
use crate::procfs::{FileId, stat};
use crate::served::{Loan, LoanOutcome};
use holdfast_keeper_client::UnsavedReason;

/// How often a borrower that stores meanwhile is read once more, between emergencies.
const QUIET_ATTEMPTS: u32 = 3;
/// The part of an emergency's time in which what is lent is brought: the rest is for all that has
/// to be written.
const PART_FOR_LENT: u32 = 4;

impl Keeper {
    pub(crate) fn is_lent(&self, name: &RegionName) -> bool {
        self.serving.as_ref().is_some_and(|serving| serving.loans.contains_key(name))
    }

    /// Brings what a borrower stored to its region, between emergencies. One that is never quiet is
    /// stopped for it, if it may be.
    pub(crate) fn bring_lent(&mut self, name: &RegionName, may_stop: bool) -> LoanOutcome {
        let pool = self.names.places().pool().to_owned();
        let Some(serving) = &mut self.serving else { return LoanOutcome::Whole };
        let brought = serving.bring(name, QUIET_ATTEMPTS, None);
        if brought != LoanOutcome::Busy || !may_stop || !self.config.stop_for_copies {
            return brought;
        }
        let borrower = serving.loans.get(name).and_then(|loan| borrower(name, loan));
        // As with every other program: a shell would take the terminal back.
        let is_on_none = |pid: &u32| stat(*pid).is_some_and(|stat| !stat.on_terminal);
        let borrower = borrower.filter(|held| held.holders.iter().all(is_on_none));
        let Some(borrower) = borrower else { return brought };
        match Frozen::stop(&pool, &[borrower], self.config.guard.as_ref()) {
            Ok(_frozen) => serving.bring(name, QUIET_ATTEMPTS, None),
            Err(_) => brought,
        }
    }

    /// Brings everything that is lent, with the borrowers stopped as far as they may be. Says which
    /// regions are behind all the same, and who was stopped.
    ///
    /// Each is tried once, the small ones first, and for a part of the time only: one that is
    /// large, or whose borrower stores without a pause, costs the others nothing.
    pub(crate) fn bring_all_lent(
        &mut self,
        started: Instant,
    ) -> (BTreeMap<RegionName, UnsavedReason>, Vec<u32>) {
        let pool = self.names.places().pool().to_owned();
        let until = started.checked_add(self.config.emergency / PART_FOR_LENT);
        let Some(serving) = &mut self.serving else { return (BTreeMap::new(), Vec::new()) };
        let borrowers: Vec<Held> =
            serving.loans.iter().filter_map(|(name, loan)| borrower(name, loan)).collect();
        // They go on when all is brought, and before any of it is written to the disk.
        let frozen = Frozen::stop(&pool, &borrowers, self.config.guard.as_ref()).ok();
        let mut names: Vec<RegionName> = serving.loans.keys().cloned().collect();
        names.sort_by_key(|name| serving.loans.get(name).map(|loan| loan.facts.backed_bytes));
        let behind = names.into_iter().filter_map(|name| match serving.bring(&name, 1, until) {
            LoanOutcome::Whole => None,
            LoanOutcome::Busy => Some((name, UnsavedReason::Running)),
            LoanOutcome::Late => Some((name, UnsavedReason::NoTime)),
            LoanOutcome::Failed(why) => Some((name, UnsavedReason::Failed(why))),
        });
        (behind.collect(), frozen.iter().flat_map(Frozen::pids).collect())
    }
}

/// The process that has a region, if it still is there, and its user's: a number may come round
/// again.
fn borrower(name: &RegionName, loan: &Loan) -> Option<Held> {
    let holder = loan.process?;
    let found = std::fs::metadata(format!("/proc/{}", holder.pid)).ok()?;
    let is_there = ProcessId::of(holder.pid).is_ok_and(|found| found == Some(holder));
    (found.uid() == loan.user && is_there).then(|| Held {
        name: name.to_string(),
        holders: vec![holder.pid],
        image: FileId::of_open(&loan.image),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;
    use std::path::Path;
    use std::time::Duration;

    use holdfast_region::{Durability, NameSpace, Opened, OwnerKey, Places, RegionError};

    use super::*;
    use crate::config::{Config, PoolLimit};
    use crate::served::{LoanWork, ServePolicy, Serving, TurnReport, Work, key_name};
    use holdfast_keeper_client::Cause;
    use holdfast_keeper_client::{Borrowed, Borrower};

    fn keeper(directory: &Path) -> Keeper {
        let places = Places::at(directory.join("home"), directory.join("pool")).unwrap();
        let mut config = Config { pool_limit: PoolLimit::None, ..Config::default() };
        config.bandwidth_bytes_per_s = Some(1 << 30);
        let mut keeper = Keeper::new(places.clone(), config).unwrap();
        keeper.serving =
            Some(Serving::new(&places, ServePolicy::at(directory.join("socket"))).unwrap());
        keeper
    }

    /// Lends a region, in which 1 is committed and 2 is stored.
    fn lent(keeper: &mut Keeper, directory: &Path) -> (Borrowed, RegionName) {
        let program = std::thread::spawn({
            let borrower = Borrower::new(directory.join("socket"));
            move || {
                let mut borrowed = borrower.open("words", 1 << 20, None).unwrap();
                borrowed.image().write_all_at(&[1], 0).unwrap();
                borrowed.commit(Durability::Process).unwrap();
                borrowed.image().write_all_at(&[2], 0).unwrap();
                borrowed
            }
        });
        while !program.is_finished() {
            keeper.serving.as_mut().unwrap().turn(Instant::now());
            std::thread::sleep(Duration::from_millis(1));
        }
        let name = keeper.serving.as_ref().unwrap().loans.keys().next().unwrap().clone();
        (program.join().unwrap(), name)
    }

    /// Of an earlier attempt: one who stored without a pause used up the time of all others, and
    /// got three attempts.
    ///
    /// Guarantee: keeper/emergency
    /// Guarantee: keeper/what-fits
    #[test]
    fn lent_regions_get_a_part_of_the_time() {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let mut keeper = keeper(directory.path());
        let (_borrowed, name) = lent(&mut keeper, directory.path());
        let part = keeper.config.emergency / PART_FOR_LENT;
        let (behind, _) = keeper.bring_all_lent(Instant::now().checked_sub(part).unwrap());
        assert_eq!(behind, BTreeMap::from([(name, UnsavedReason::NoTime)]));
        assert_eq!(keeper.bring_all_lent(Instant::now()).0, BTreeMap::new());
    }

    /// Of an earlier attempt: what a program had brought back was dropped when it could not be
    /// given the region again.
    ///
    /// Guarantee: keeper/leases
    #[test]
    fn returned_region_is_saved_when_it_cannot_be_lent() {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let mut keeper = keeper(directory.path());
        let (_borrowed, name) = lent(&mut keeper, directory.path());
        let serving = keeper.serving.as_mut().unwrap();
        serving.loans.get_mut(&name).unwrap().work = Work::new(LoanWork::Resume);
        let error = RegionError::Poisoned { name: name.to_string() };
        serving.fail(&name, &error, Instant::now(), &mut TurnReport::default());
        assert!(serving.loans.contains_key(&name));
        let started = Instant::now();
        while !serving.loans.is_empty() {
            assert!(started.elapsed() < Duration::from_secs(20), "it is not brought");
            serving.turn(Instant::now());
        }
        assert_eq!(serving.names.open_read(&name).unwrap().read_all().unwrap()[0], 2);
    }

    /// A process that has the number of a borrower that is gone is none: it is not stopped.
    ///
    /// Guarantee: keeper/stopped-programs
    #[test]
    fn later_process_with_a_borrowers_number_is_not_one() {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let mut keeper = keeper(directory.path());
        let (_borrowed, name) = lent(&mut keeper, directory.path());
        let loan = keeper.serving.as_mut().unwrap().loans.get_mut(&name).unwrap();
        let us = ProcessId::current().unwrap();
        assert_eq!(loan.process, Some(us));
        assert_eq!(borrower(&name, loan).unwrap().holders, [us.pid]);
        loan.process = Some(ProcessId { start_ticks: us.start_ticks - 1, ..us });
        assert_eq!(borrower(&name, loan), None);
    }

    /// Of an earlier attempt: a region whose borrower could not be stopped was not saved at all.
    ///
    /// Guarantee: keeper/emergency
    #[test]
    fn unbringable_region_is_saved_as_published() {
        for is_emergency in [true, false] {
            let directory = tempfile::tempdir_in("/dev/shm").unwrap();
            let mut keeper = keeper(directory.path());
            let (borrowed, name) = lent(&mut keeper, directory.path());
            let loans = &mut keeper.serving.as_mut().unwrap().loans;
            // More than the image has, so that reading it fails.
            loans.get_mut(&name).unwrap().facts.backed_bytes += 1 << 20;
            if is_emergency {
                let report = keeper.flush(Cause::Asked);
                assert_eq!((report.saved.len(), report.left.len()), (1, 1), "{report:?}");
                assert!(matches!(report.left[0].why, UnsavedReason::Failed(_)), "{report:?}");
            } else {
                let report = keeper.tend();
                assert_eq!(report.copied, [name.as_str()], "{report:?}");
                assert_eq!((report.failed.len(), report.busy.len()), (1, 0), "{report:?}");
            }
            drop((keeper, borrowed));
            std::fs::remove_dir_all(directory.path().join("pool")).unwrap();
            let places =
                Places::at(directory.path().join("home"), directory.path().join("pool")).unwrap();
            let user = holdfast_sys::file::effective_user();
            let key = OwnerKey::load_existing(&places, &key_name(user)).unwrap();
            let region = NameSpace::new(places).open(&name, &key).unwrap();
            let mut found = [0];
            region.read_at(0, &mut found).unwrap();
            assert_eq!((region.opened(), found), (Opened::Rescued, [1]));
        }
    }
}
