//! Which owner key an applet uses for a heap, whose a heap is, and how it changes hands.
//!
//! Invariants:
//! - The access table and the headers decide, never a record in words.
//! - A refusal makes no key and no record.
//! - A heap of [`LEGACY_KEY`] opens for every applet until it is handed over, and from then on for
//!   those that it was handed over to.

use std::fmt;
use std::io;
use std::path::PathBuf;

use holdfast_region::{
    Access, Grant, KeyError, KeyFingerprint, NameSpace, OwnerKey, RegionError, RegionName, Rights,
};

use holdfast_types::Remedy;

use crate::identity::{Identity, is_key_name};
use crate::record;
use crate::text_file::StepError;

/// The key that all applets used before they had identities.
pub const LEGACY_KEY: &str = "default";

/// Why an applet has no key for a heap, or a heap does not change hands.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OwnershipError {
    /// The heap is another applet's.
    #[error(
        "heap `{heap}` belongs to {owner}; this applet is {applet}; use another heap, or {}",
        Remedy::HandOver { heap: heap.as_str() }
    )]
    Refused {
        /// Name of the heap.
        heap: RegionName,
        /// Whose it is.
        owner: Box<Owner>,
        /// Who asked for it.
        applet: Box<Identity>,
    },
    /// Workers have compartments of the heap, under keys that only its owner's key derives.
    #[error(
        "heap `{heap}` has {count} compartments (`{first}` is one), whose keys derive from its owner's, so the new \
         owner could not use them; remove them first, or copy the heap with the new owner's key"
    )]
    HasCompartments {
        /// Name of the heap.
        heap: RegionName,
        /// How many.
        count: usize,
        /// The name of one.
        first: RegionName,
    },
    /// A key cannot be used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The heap cannot be used; of [`hand_over`] also `NotOwner`, and `Access` for a compartment, a
    /// full or damaged access table, and an applet that owns the heap already.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// The words for a new key could not be recorded.
    #[error("cannot {step} {}: {source}", path.display())]
    Record {
        /// The step, as a verb.
        step: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl From<StepError> for OwnershipError {
    fn from((step, path, source): StepError) -> OwnershipError {
        OwnershipError::Record { step, path, source }
    }
}

/// Whose a heap is, as far as this home knows.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Owner {
    /// An applet's.
    Applet(Identity),
    /// A key's of this home that no applet uses by default.
    Key {
        /// The key's name.
        name: RegionName,
    },
    /// A key's of which nothing else is known here.
    Unknown {
        /// The key.
        fingerprint: KeyFingerprint,
    },
    /// No header of the heap can be read.
    Unreadable,
}

impl fmt::Display for Owner {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Owner::Applet(identity) => identity.fmt(formatter),
            Owner::Key { name } => write!(formatter, "whoever uses the key `{name}`"),
            Owner::Unknown { fingerprint } => {
                write!(formatter, "an unknown owner (key with fingerprint {fingerprint})")
            }
            Owner::Unreadable => formatter.write_str("an owner that its damaged files do not tell"),
        }
    }
}

/// Why an applet's key is the one that it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeySource {
    /// There is no such heap yet. It will belong to this applet's own key.
    New,
    /// The applet's own key may use the heap.
    Identity,
    /// The heap is of the time before identities, and every applet may use it. The user should be
    /// told, and can hand it over.
    Legacy,
}

/// The key that an applet uses for a heap.
#[derive(Debug, Clone)]
pub struct AppletKey {
    key: OwnerKey,
    name: String,
    source: KeySource,
}

impl AppletKey {
    /// The key.
    #[must_use]
    pub fn key(&self) -> &OwnerKey {
        &self.key
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Why it is this one.
    #[must_use]
    pub fn source(&self) -> KeySource {
        self.source
    }
}

/// The key with which an applet uses a heap, if it may use it. For a heap that does not exist yet
/// the applet's own key, which is made if there is none.
///
/// # Errors
/// `Refused` when the heap is another one's; `Key`, `Region`, `Record`.
pub fn key_for(
    names: &NameSpace,
    heap: &RegionName,
    identity: &Identity,
) -> Result<AppletKey, OwnershipError> {
    let own_name = identity.key_name();
    match names.summary(heap) {
        Err(RegionError::NotFound { .. }) => {
            let key = own_key(names, identity)?;
            return Ok(AppletKey { key, name: own_name, source: KeySource::New });
        }
        other => drop(other?),
    }
    if let Some(key) = OwnerKey::load(names.places(), &own_name)?
        && access(names, heap, &key)?.is_some()
    {
        // For words only; a home that cannot be written has heaps that can be read.
        let _ = record::write(names.places(), &own_name, fingerprint(&key), identity);
        return Ok(AppletKey { key, name: own_name, source: KeySource::Identity });
    }
    if let Some(key) = OwnerKey::load(names.places(), LEGACY_KEY)?
        && let Some(access) = access(names, heap, &key)?
        && !(access == Access::Owner && was_handed_over(names, heap, &key)?)
    {
        return Ok(AppletKey { key, name: LEGACY_KEY.to_owned(), source: KeySource::Legacy });
    }
    Err(OwnershipError::Refused {
        heap: heap.clone(),
        owner: Box::new(owner_of(names, heap)?),
        applet: Box::new(identity.clone()),
    })
}

/// Whose a heap is.
///
/// # Errors
/// `Region` when there is no such heap.
pub fn owner_of(names: &NameSpace, heap: &RegionName) -> Result<Owner, OwnershipError> {
    let Some(owner) = names.summary(heap)?.owner else { return Ok(Owner::Unreadable) };
    let places = names.places();
    if let Some((key_name, key)) = key_of_home(names, heap, owner, |_| true)? {
        let identity = record::of_key(places, key_name.as_str(), fingerprint(&key));
        return Ok(identity.map_or(Owner::Key { name: key_name }, Owner::Applet));
    }
    let identity = record::of_fingerprint(places, owner);
    Ok(identity.map_or(Owner::Unknown { fingerprint: owner }, Owner::Applet))
}

/// The key that owns a heap, or what snapshots are left of it, with its name, if it is one that
/// no user has to name: an applet's own, or [`LEGACY_KEY`]. For what a user does with the heaps of
/// this home.
///
/// # Errors
/// `NotFound` when there is no such heap and no snapshot of it; `Key` when the keys cannot be
/// listed.
pub fn implicit_owner_key(
    names: &NameSpace,
    heap: &RegionName,
) -> Result<Option<(RegionName, OwnerKey)>, RegionError> {
    let owner = match names.summary(heap) {
        Ok(summary) => summary.owner,
        Err(missing @ RegionError::NotFound { .. }) => {
            let left = names.snapshots(heap).unwrap_or_default();
            let owner = left.iter().find_map(|snapshot| snapshot.owner);
            Some(owner.ok_or(missing)?)
        }
        Err(error) => return Err(error),
    };
    match owner {
        Some(owner) => {
            key_of_home(names, heap, owner, |name| name == LEGACY_KEY || is_key_name(name))
        }
        None => Ok(None),
    }
}

/// The key of this home with which a heap's header was made, among those with such a name.
fn key_of_home(
    names: &NameSpace,
    heap: &RegionName,
    owner: KeyFingerprint,
    is_wanted: impl Fn(&str) -> bool,
) -> Result<Option<(RegionName, OwnerKey)>, RegionError> {
    let places = names.places();
    for key_name in OwnerKey::names(places)? {
        if !is_wanted(key_name.as_str()) {
            continue;
        }
        // One bad file does not hide the others.
        let Ok(Some(key)) = OwnerKey::load(places, key_name.as_str()) else { continue };
        if key.owns(heap, owner) {
            return Ok(Some((key_name, key)));
        }
    }
    Ok(None)
}

/// What [`hand_over`] did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandOverReport {
    key_name: String,
    other_grants: Vec<Grant>,
}

impl HandOverReport {
    /// The name of the key that may use the heap now.
    #[must_use]
    pub fn key_name(&self) -> &str {
        &self.key_name
    }

    /// What other keys may do with the heap, as before.
    #[must_use]
    pub fn other_grants(&self) -> &[Grant] {
        &self.other_grants
    }
}

/// Hands a heap over to an applet, whose key is made if there is none: from the next opening on the
/// applet uses it without asking, and may let it grow up to its limit. A heap of [`LEGACY_KEY`] no
/// longer opens for other applets.
///
/// It is a grant in the heap's access table, given by the owner key `from`, so it takes effect
/// whole or not at all, also while a program has the heap, and the owner can revoke it. Other
/// grants stay. The header keeps the owner key: what only an owner may do (limits, grants, removal)
/// is done with `from` as before, and an applet that `from` is the own key of may still use the
/// heap.
///
/// # Errors
/// `HasCompartments`; `Region` as described there; `Key`; `Record`. Nothing was granted then,
/// except after an `Io` while the table was made durable.
pub fn hand_over(
    names: &NameSpace,
    heap: &RegionName,
    from: &OwnerKey,
    to: &Identity,
) -> Result<HandOverReport, OwnershipError> {
    // Before a key is made: the heap must be there, and be that key's.
    let grants = names.grants(heap, from)?;
    let compartments = names.compartments(heap)?;
    if let Some(first) = compartments.first() {
        let (heap, first) = (heap.clone(), first.name.clone());
        return Err(OwnershipError::HasCompartments { heap, count: compartments.len(), first });
    }
    let key = own_key(names, to)?;
    let (key_name, granted) = (to.key_name(), fingerprint(&key));
    let label = RegionName::parse(&key_name).ok();
    names.grant(heap, from, Grant::new(granted, label, Rights::Write { quota_bytes: None }))?;
    let other_grants = grants.into_iter().filter(|grant| grant.key != granted).collect();
    Ok(HandOverReport { key_name, other_grants })
}

/// An applet's own key, made if there is none, with its words.
fn own_key(names: &NameSpace, identity: &Identity) -> Result<OwnerKey, OwnershipError> {
    let key_name = identity.key_name();
    let key = OwnerKey::load_or_create(names.places(), &key_name)?;
    record::write(names.places(), &key_name, fingerprint(&key), identity)?;
    Ok(key)
}

/// What a key may do with a heap; `None` for nothing.
fn access(
    names: &NameSpace,
    heap: &RegionName,
    key: &OwnerKey,
) -> Result<Option<Access>, RegionError> {
    match names.access(heap, key) {
        Ok(access) => Ok(Some(access)),
        Err(RegionError::NotOwner { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether the owner gave an applet the right to write: then the heap is no longer everyone's.
fn was_handed_over(
    names: &NameSpace,
    heap: &RegionName,
    owner: &OwnerKey,
) -> Result<bool, RegionError> {
    let grants = names.grants(heap, owner)?;
    Ok(grants.iter().any(|grant| {
        let label = grant.label.as_ref().map_or("", RegionName::as_str);
        matches!(grant.rights, Rights::Write { .. }) && is_key_name(label)
    }))
}

fn fingerprint(key: &OwnerKey) -> KeyFingerprint {
    KeyFingerprint::from_bytes(key.fingerprint())
}
