//! Counts for each user, for the status and for metrics.

use std::collections::BTreeMap;

use holdfast_region::{NameSpace, RegionSummary, Result};

use holdfast_keeper_client::UserStatus;

use crate::served::own_name::of_user;
use crate::served::policy::Quota;
use holdfast_keeper_client::served_wire::Usage;

/// Counts that no file tells.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) requests: u64,
    pub(crate) quota_refusals: u64,
    pub(crate) refusals: u64,
}

/// A user's regions, and those of all.
#[derive(Debug, Default)]
pub(crate) struct Holdings {
    regions: Vec<RegionSummary>,
}

impl Holdings {
    pub(crate) fn of(names: &NameSpace) -> Result<Holdings> {
        let regions =
            names.list()?.into_iter().filter(|region| of_user(&region.name).is_some()).collect();
        Ok(Holdings { regions })
    }

    /// A user's regions, by the user's own names.
    pub(crate) fn of_user(&self, user: u32) -> impl Iterator<Item = (&str, &RegionSummary)> {
        self.regions.iter().filter_map(move |region| {
            of_user(&region.name).filter(|(of, _)| *of == user).map(|(_, name)| (name, region))
        })
    }

    pub(crate) fn usage(&self, user: u32, quota: &Quota) -> Usage {
        Usage {
            regions: self.of_user(user).count() as u64,
            bytes: self.of_user(user).map(|(_, region)| region.limit_bytes).sum(),
            quota_regions: quota.regions,
            quota_bytes: quota.bytes,
        }
    }

    /// The limits of everybody's regions.
    pub(crate) fn bytes(&self) -> u64 {
        self.regions.iter().map(|region| region.limit_bytes).sum()
    }

    /// What there is to say of each.
    pub(crate) fn users(&self, counts: &BTreeMap<u32, Counts>) -> BTreeMap<u32, UserStatus> {
        let mut users: BTreeMap<u32, UserStatus> = BTreeMap::new();
        for region in &self.regions {
            let Some((user, _)) = of_user(&region.name) else { continue };
            let status = users.entry(user).or_default();
            status.regions += 1;
            status.bytes += region.limit_bytes;
            status.backed_bytes += region.backed_bytes;
        }
        for (&user, counts) in counts {
            let status = users.entry(user).or_default();
            status.requests = counts.requests;
            status.quota_refusals = counts.quota_refusals;
            status.refusals = counts.refusals;
        }
        for (&user, status) in &mut users {
            status.user = user;
        }
        users
    }
}
