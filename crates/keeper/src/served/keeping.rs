//! What a keeper's other work has to know of what it lends: before anything is saved, what borrowers stored is brought to the
//! regions. Saving these is then the same as for every other region.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;

use holdfast_region::RegionName;

use crate::flush::LeftWhy;
use crate::freeze::{Frozen, Held};
use crate::keeper::Keeper;
use crate::procfs::{FileId, stat};
use crate::served::loan::Loan;
use crate::served::serving::Serving;

/// What became of a region that is lent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Brought {
    /// Its region holds what the borrower had at a moment just now.
    Whole,
    /// The borrower stored all the time.
    Busy,
    /// In words.
    Failed(String),
}

impl Keeper {
    pub(crate) fn is_lent(&self, name: &RegionName) -> bool {
        self.serving.as_ref().is_some_and(|serving| serving.loans.contains_key(name))
    }

    /// Brings what a borrower stored to its region, between emergencies. One that is never quiet is stopped for it, if it
    /// may be.
    pub(crate) fn bring_lent(&mut self, name: &RegionName, may_stop: bool) -> Brought {
        let pool = self.names.places().pool().to_owned();
        let Some(serving) = &mut self.serving else { return Brought::Whole };
        let brought = serving.bring(name);
        if brought != Brought::Busy || !may_stop || !self.config.stop_for_copies {
            return brought;
        }
        let borrower = serving.loans.get(name).and_then(|loan| borrower(name, loan));
        // As with every other program: a shell would take the terminal back.
        let borrower = borrower.filter(|held| stat(held.holder).is_some_and(|stat| !stat.on_terminal));
        let Some(borrower) = borrower else { return brought };
        match Frozen::stop(&pool, &[borrower], self.config.guard.as_ref()) {
            Ok(_frozen) => serving.bring(name),
            Err(_) => brought,
        }
    }

    /// Brings everything that is lent, with the borrowers stopped as far as they may be. Says which regions are behind
    /// all the same, and who was stopped.
    pub(crate) fn bring_all_lent(&mut self) -> (BTreeMap<RegionName, LeftWhy>, Vec<u32>) {
        let pool = self.names.places().pool().to_owned();
        let Some(serving) = &mut self.serving else { return (BTreeMap::new(), Vec::new()) };
        let borrowers: Vec<Held> =
            serving.loans.iter().filter_map(|(name, loan)| borrower(name, loan)).collect();
        // They go on when all is brought, and before any of it is written to the disk.
        let frozen = Frozen::stop(&pool, &borrowers, self.config.guard.as_ref()).ok();
        let names: Vec<RegionName> = serving.loans.keys().cloned().collect();
        let behind = names.into_iter().filter_map(|name| match serving.bring(&name) {
            Brought::Whole => None,
            Brought::Busy => Some((name, LeftWhy::Running)),
            Brought::Failed(why) => Some((name, LeftWhy::Failed(why))),
        });
        (behind.collect(), frozen.iter().flat_map(Frozen::pids).collect())
    }
}

impl Serving {
    fn bring(&mut self, name: &RegionName) -> Brought {
        let names = &self.names;
        match self.loans.get_mut(name).map(|loan| loan.bring_quietly(names)) {
            None | Some(Ok(true)) => Brought::Whole,
            Some(Ok(false)) => Brought::Busy,
            Some(Err(error)) => Brought::Failed(error.to_string()),
        }
    }
}

/// The process that has a region, if it still is one of its user's: a number may come round again.
fn borrower(name: &RegionName, loan: &Loan) -> Option<Held> {
    let holder = loan.process?;
    let found = std::fs::metadata(format!("/proc/{holder}")).ok()?;
    (found.uid() == loan.user).then(|| Held {
        name: name.clone(),
        holder,
        image: FileId::of_open(&loan.image),
    })
}
