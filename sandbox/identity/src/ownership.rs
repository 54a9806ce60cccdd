//! Which owner key an applet uses for a heap, whose a heap is, and how it changes hands.
//!
//! Invariants:
//! - The access table and the headers decide, never a record in words.
//! - A refusal makes no key and no record.
//! - A heap of [`LEGACY_KEY`] opens for every applet until its owner grants it to an applet, or
//!   takes a grant to one back, and from then on for those that it is granted to. Only
//!   [`open_to_all`] undoes that, not the loss of the access table.

use std::fmt;
use std::io;
use std::path::PathBuf;

use holdfast_region::text_file::StepError;
use holdfast_region::{
    Access, Grant, KeyError, KeyFingerprint, NameSpace, OwnerKey, RegionError, RegionName, Rights,
};

use holdfast_types::Remedy;

use crate::closed;
use crate::identity::{Identity, is_key_name};
use crate::record;

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
    /// Only a heap of [`LEGACY_KEY`] can be every applet's.
    #[error("heap `{heap}` belongs to {owner}, and only one of the key `{LEGACY_KEY}` can be open to every applet; {}",
        Remedy::HandOver { heap: heap.as_str() }
    )]
    NotDefault {
        /// Name of the heap.
        heap: RegionName,
        /// Whose it is.
        owner: Box<Owner>,
    },
    /// Applets have grants of their own on the heap, which would count before what all may do.
    #[error(
        "heap `{heap}` has grants to applets (`{first}` has one), which would keep what they say; {}, then open it to \
         every applet",
        Remedy::RevokeAll { heap: heap.as_str() }
    )]
    HasGrants {
        /// Name of the heap.
        heap: RegionName,
        /// What one of these keys is called, or its fingerprint.
        first: String,
    },
    /// A key cannot be used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The heap cannot be used; of [`hand_over`] also `NotOwner`, and `Access` for a compartment, a
    /// full or damaged access table, and an applet that owns the heap already.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// The words for a new key, or that a heap is no longer every applet's, could not be recorded
    /// or looked at.
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
    let uuid = match names.summary(heap) {
        Err(RegionError::NotFound { .. }) => {
            let key = own_key(names, identity)?;
            return Ok(AppletKey { key, name: own_name, source: KeySource::New });
        }
        other => other?.uuid,
    };
    if let Some(key) = OwnerKey::load(names.places(), &own_name)?
        && access(names, heap, &key)?.is_some()
    {
        // For words only; a home that cannot be written has heaps that can be read.
        let _ = record::write(names.places(), &own_name, fingerprint(&key), identity);
        return Ok(AppletKey { key, name: own_name, source: KeySource::Identity });
    }
    if let Some(key) = OwnerKey::load(names.places(), LEGACY_KEY)?
        && let Some(access) = access(names, heap, &key)?
    {
        if access != Access::Owner || !is_closed(names, heap, &uuid, &key)? {
            return Ok(AppletKey { key, name: LEGACY_KEY.to_owned(), source: KeySource::Legacy });
        }
        // What a host granted without us outlives its table from now on; in a home that cannot be
        // written no table changes.
        let _ = note_closed(names, heap);
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
/// It is a grant in the heap's access table, given by the owner key `from`, also while a program
/// has the heap, and the owner can revoke it. A heap of [`LEGACY_KEY`] is closed to all others
/// before: if the machine stops in between, it opens for no applet, until it is handed over again.
/// Other grants stay. The header keeps the owner key: what only an owner may do (limits, grants,
/// removal) is done with `from` as before, and an applet that `from` is the own key of may still
/// use the heap.
///
/// # Errors
/// `HasCompartments`; `Region` as described there; `Key`; `Record`. Nothing was granted then,
/// except after an `Io` while the table was made durable; a heap of [`LEGACY_KEY`] may be closed.
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
    grant(names, heap, from, Grant::new(granted, label, Rights::Write { quota_bytes: None }))?;
    let other_grants = grants.into_iter().filter(|grant| grant.key != granted).collect();
    Ok(HandOverReport { key_name, other_grants })
}

/// Grants as [`NameSpace::grant`] does. A heap of [`LEGACY_KEY`] of which an applet's own key is
/// granted something is closed to all other applets first. Returns whether that was done now.
///
/// # Errors
/// `Region` as described there; `Key`; `Record`.
pub fn grant(
    names: &NameSpace,
    heap: &RegionName,
    owner: &OwnerKey,
    grant: Grant,
) -> Result<bool, OwnershipError> {
    // What will be refused closes nothing.
    if grant.key == fingerprint(owner) {
        names.grant(heap, owner, grant)?;
        return Ok(false);
    }
    let closes =
        to_an_applet(names, std::slice::from_ref(&grant))?.is_some() && close(names, heap, owner)?;
    names.grant(heap, owner, grant)?;
    Ok(closes)
}

/// Takes grants back as [`NameSpace::revoke`] does, and returns how many these were. What an applet
/// loses it does not get back as one of all: a heap of [`LEGACY_KEY`] is closed first.
///
/// # Errors
/// `Region` as described there; `Key`; `Record`.
pub fn revoke(
    names: &NameSpace,
    heap: &RegionName,
    owner: &OwnerKey,
    matches: impl Fn(&Grant) -> bool,
) -> Result<usize, OwnershipError> {
    let mut lost = names.grants(heap, owner)?;
    lost.retain(|grant| matches(grant));
    if to_an_applet(names, &lost)?.is_some() {
        close(names, heap, owner)?;
    }
    Ok(names.revoke(heap, owner, matches)?)
}

/// Takes all grants back as [`NameSpace::revoke_all`] does, also when the table is damaged. A heap
/// of [`LEGACY_KEY`] is closed first: then no applet may use it.
///
/// # Errors
/// `Region` as described there; `Key`; `Record`.
pub fn revoke_all(
    names: &NameSpace,
    heap: &RegionName,
    owner: &OwnerKey,
) -> Result<(), OwnershipError> {
    close(names, heap, owner)?;
    Ok(names.revoke_all(heap, owner)?)
}

/// Closes a heap of [`LEGACY_KEY`] to all applets that it is not granted to, from the next opening
/// on, durably: the mark stays when grants are revoked, and when the heap is removed and restored.
/// Returns whether it was open to all; heaps of other keys never are.
///
/// # Errors
/// `Region` (`NotFound`, `NotOwner`); `Key`; `Record`.
pub fn close(
    names: &NameSpace,
    heap: &RegionName,
    owner: &OwnerKey,
) -> Result<bool, OwnershipError> {
    let uuid = uuid_of_owned(names, heap, owner)?;
    if !is_legacy(names, owner)? || closed::has_mark(names.places(), &uuid)? {
        return Ok(false);
    }
    // A table that cannot be used closes nothing.
    let was_closed = has_applet_grants(names, heap, owner).unwrap_or(false);
    closed::mark(names.places(), &uuid, heap)?;
    Ok(!was_closed)
}

/// Opens a heap of [`LEGACY_KEY`] to every applet again.
///
/// # Errors
/// `NotDefault`; `HasGrants`; `Region` (`NotFound`, `NotOwner`, `Access`); `Key`; `Record`.
pub fn open_to_all(
    names: &NameSpace,
    heap: &RegionName,
    owner: &OwnerKey,
) -> Result<(), OwnershipError> {
    let uuid = uuid_of_owned(names, heap, owner)?;
    if !is_legacy(names, owner)? {
        let owner = Box::new(owner_of(names, heap)?);
        return Err(OwnershipError::NotDefault { heap: heap.clone(), owner });
    }
    if let Some(grant) = to_an_applet(names, &names.grants(heap, owner)?)? {
        let label = grant.label.as_ref().map(RegionName::to_string);
        let first = label.unwrap_or_else(|| grant.key.to_string());
        return Err(OwnershipError::HasGrants { heap: heap.clone(), first });
    }
    Ok(closed::unmark(names.places(), &uuid)?)
}

/// Whether every applet may use a heap, being one of [`LEGACY_KEY`] that is not closed.
///
/// # Errors
/// `Region` (`NotFound`, `Access`); `Key`; `Record`.
pub fn is_open_to_all(names: &NameSpace, heap: &RegionName) -> Result<bool, OwnershipError> {
    let uuid = names.summary(heap)?.uuid;
    match OwnerKey::load(names.places(), LEGACY_KEY)? {
        Some(key) if access(names, heap, &key)? == Some(Access::Owner) => {
            Ok(!is_closed(names, heap, &uuid, &key)?)
        }
        _ => Ok(false),
    }
}

/// Marks a heap of [`LEGACY_KEY`] as closed that its access table alone closes: for a caller that
/// is about to remove that table, with the heap, whose snapshots outlive both. Other heaps, and
/// heaps that are open to every applet, stay as they are.
///
/// # Errors
/// `Region` (`NotFound`, `Access`); `Key`; `Record`.
pub fn note_closed(names: &NameSpace, heap: &RegionName) -> Result<(), OwnershipError> {
    let uuid = names.summary(heap)?.uuid;
    match OwnerKey::load(names.places(), LEGACY_KEY)? {
        // Nothing can be said of a heap without a header.
        Some(key) if !uuid.is_empty() && access(names, heap, &key)? == Some(Access::Owner) => {
            if has_applet_grants(names, heap, &key)? {
                closed::mark(names.places(), &uuid, heap)?;
            }
            Ok(())
        }
        _ => Ok(()),
    }
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

/// Whether a heap of [`LEGACY_KEY`], which is `owner`, is no longer every applet's.
fn is_closed(
    names: &NameSpace,
    heap: &RegionName,
    uuid: &str,
    owner: &OwnerKey,
) -> Result<bool, OwnershipError> {
    // Nothing can be said of a heap without a header.
    Ok(uuid.is_empty()
        || closed::has_mark(names.places(), uuid)?
        || has_applet_grants(names, heap, owner)?)
}

fn has_applet_grants(
    names: &NameSpace,
    heap: &RegionName,
    owner: &OwnerKey,
) -> Result<bool, OwnershipError> {
    Ok(to_an_applet(names, &names.grants(heap, owner)?)?.is_some())
}

/// The first grant to an applet's own key, by what the owner calls it, or by the key itself.
fn to_an_applet<'a>(
    names: &NameSpace,
    grants: &'a [Grant],
) -> Result<Option<&'a Grant>, OwnershipError> {
    let has_name =
        |grant: &&Grant| grant.label.as_ref().is_some_and(|label| is_key_name(label.as_str()));
    if grants.is_empty() {
        return Ok(None);
    }
    if let Some(named) = grants.iter().find(has_name) {
        return Ok(Some(named));
    }
    let places = names.places();
    let applets = OwnerKey::names(places)?.into_iter().filter(|name| is_key_name(name.as_str()));
    // One bad file does not hide the others.
    let keys = applets.filter_map(|name| OwnerKey::load(places, name.as_str()).ok().flatten());
    let keys: Vec<_> = keys.map(|key| fingerprint(&key)).collect();
    Ok(grants.iter().find(|grant| keys.contains(&grant.key)))
}

/// The UUID of a heap that this key owns.
fn uuid_of_owned(
    names: &NameSpace,
    heap: &RegionName,
    owner: &OwnerKey,
) -> Result<String, OwnershipError> {
    let summary = names.summary(heap)?;
    if names.access(heap, owner)? != Access::Owner {
        return Err(RegionError::NotOwner { name: heap.to_string() }.into());
    }
    match summary.uuid.is_empty() {
        false => Ok(summary.uuid),
        // Its header was being changed all the time.
        true => Err(OwnershipError::Record {
            step: "read the header of",
            path: summary.image.or(summary.base).map_or_else(PathBuf::new, |file| file.path),
            source: io::ErrorKind::InvalidData.into(),
        }),
    }
}

fn is_legacy(names: &NameSpace, key: &OwnerKey) -> Result<bool, OwnershipError> {
    Ok(OwnerKey::load(names.places(), LEGACY_KEY)?.as_ref() == Some(key))
}

fn fingerprint(key: &OwnerKey) -> KeyFingerprint {
    KeyFingerprint::from_bytes(key.fingerprint())
}
