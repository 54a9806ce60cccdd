//! The access table at work: who is let in, and how the owner changes that.
//!
//! Invariants:
//! - Whether a key is let in is decided under the region's lock, by the header in force and the
//!   table of that moment. What was decided holds until the region is closed: a revocation counts
//!   from the next opening on.
//! - Tables change under the lock on the name space, not under the region's: the owner can revoke
//!   while a program holds the region.
//! - Everything is denied that is not known to be granted: without a table, with a damaged one,
//!   with a stale one.

#![forbid(unsafe_code)]

use crate::error::access::AccessError;
use crate::error::{RegionError, Result};
use crate::media::files::{grants_path, is_missing};
use crate::media::format::Header;
use crate::name::RegionName;
use crate::names::access::{Access, Grant, Rights};
use crate::names::grants::{GRANTS_MAX, TABLE_VERSION, TableFault, read_table, write_table};
use crate::names::key::{KeyFingerprint, OwnerKey, check_key, is_owner};
use crate::names::namespace::NameSpace;

impl NameSpace {
    /// What a key may do with a region now. Takes no lock: an opening asks again.
    ///
    /// # Errors
    /// `NotFound`; `NotOwner` when it may do nothing; `Access` when the access table cannot be
    /// used.
    pub fn access(&self, name: &RegionName, key: &OwnerKey) -> Result<Access> {
        let header = self.header_of(name)?;
        self.admit(&header, key)
    }

    /// Lets another key use a region, in place of what was granted to that key before.
    ///
    /// # Errors
    /// `NotFound`, `NotOwner`, `Io`; `Access` when the key is the owner's, the table is full or
    /// cannot be used, or the region is a compartment. The table is then as it was; after an error
    /// while it is made durable, as it was or changed.
    pub fn grant(&self, name: &RegionName, owner: &OwnerKey, grant: Grant) -> Result<()> {
        if grant.key == KeyFingerprint::from_bytes(owner.fingerprint()) {
            return Err(AccessError::OwnKey { name: name.to_string() }.into());
        }
        self.change_grants(name, owner, |grants| {
            grants.retain(|other| other.key != grant.key);
            if grants.len() >= GRANTS_MAX {
                return Err(
                    AccessError::TooManyGrants { name: name.to_string(), max: GRANTS_MAX }.into()
                );
            }
            grants.push(grant);
            Ok(())
        })
    }

    /// Takes grants back: all that `matches` says yes to. Returns how many these were. Programs
    /// that have the region open keep it until they close it.
    ///
    /// # Errors
    /// As [`NameSpace::grant`].
    pub fn revoke(
        &self,
        name: &RegionName,
        owner: &OwnerKey,
        matches: impl Fn(&Grant) -> bool,
    ) -> Result<usize> {
        self.change_grants(name, owner, |grants| {
            let before = grants.len();
            grants.retain(|grant| !matches(grant));
            Ok(before - grants.len())
        })
    }

    /// Takes all grants back, also when the table is damaged.
    ///
    /// # Errors
    /// As [`NameSpace::grant`].
    pub fn revoke_all(&self, name: &RegionName, owner: &OwnerKey) -> Result<()> {
        let _names = self.lock_names()?;
        let header = self.owned(name, owner)?;
        self.replace_grants(&header, &[])
    }

    /// All grants on a region, in the order in which they were given.
    ///
    /// # Errors
    /// `NotFound`, `NotOwner`; `Access` when the table cannot be used.
    pub fn grants(&self, name: &RegionName, owner: &OwnerKey) -> Result<Vec<Grant>> {
        let header = self.owned(name, owner)?;
        self.granted(&header)
    }

    fn change_grants<R>(
        &self,
        name: &RegionName,
        owner: &OwnerKey,
        change: impl FnOnce(&mut Vec<Grant>) -> Result<R>,
    ) -> Result<R> {
        self.refuse_compartment(name)?;
        let _names = self.lock_names()?;
        let header = self.owned(name, owner)?;
        let before = self.granted(&header)?;
        let mut grants = before.clone();
        let result = change(&mut grants)?;
        if grants != before {
            self.replace_grants(&header, &grants)?;
        }
        Ok(result)
    }

    fn replace_grants(&self, header: &Header, grants: &[Grant]) -> Result<()> {
        write_table(self.storage(), self.places().store(), &header.name, header.uuid, grants)
            .map_err(|(step, path, source)| RegionError::Io { step, path, source })
    }

    /// Removes the table of a region that is being removed, or comes back after it was; durably,
    /// before anything else of the region changes.
    pub(crate) fn remove_grants(&self, name: &RegionName) -> Result<()> {
        let path = grants_path(self.places().store(), name);
        if is_missing(&path) {
            return Ok(());
        }
        self.remove_file(&path)?;
        self.sync_store()
    }

    /// The header of a region that this key owns.
    fn owned(&self, name: &RegionName, owner: &OwnerKey) -> Result<Header> {
        let header = self.header_of(name)?;
        check_key(&header.name, header.owner_fingerprint, owner)?;
        Ok(header)
    }

    /// What the header's owner and the access table let a key do.
    pub(crate) fn admit(&self, header: &Header, key: &OwnerKey) -> Result<Access> {
        if is_owner(&header.name, header.owner_fingerprint, key) {
            return Ok(Access::Owner);
        }
        let key = KeyFingerprint::from_bytes(key.fingerprint());
        let granted = self.granted(header)?.into_iter().find(|grant| grant.key == key);
        granted
            .map(|grant| Access::Granted(grant.rights))
            .ok_or_else(|| RegionError::NotOwner { name: header.name.to_string() })
    }

    /// The same for a writer.
    pub(crate) fn admit_writer(&self, header: &Header, key: &OwnerKey) -> Result<Access> {
        match self.admit(header, key)? {
            Access::Granted(Rights::Read) => {
                Err(AccessError::ReadOnly { name: header.name.to_string() }.into())
            }
            access => Ok(access),
        }
    }

    fn granted(&self, header: &Header) -> Result<Vec<Grant>> {
        let (store, name) = (self.places().store(), &header.name);
        read_table(store, name, header.uuid).map_err(|fault| {
            let path = grants_path(store, name);
            match fault {
                TableFault::Damaged => {
                    AccessError::TableDamaged { name: name.to_string(), path }.into()
                }
                TableFault::Newer { version } => {
                    AccessError::TableNewer { path, found: version, known: TABLE_VERSION }.into()
                }
                TableFault::Io(source) => RegionError::Io { step: "read", path, source },
            }
        })
    }
}
