//! Which heaps an applet may open: its own, those of earlier versions, and those handed over.

use std::fs::File;
use std::path::Path;

use holdfast_identity::{
    AppletFile, GivenName, Identity, KeySource, LEGACY_KEY, Owner, OwnershipError, PublisherKey,
    Publishers, hand_over, implicit_owner_key, key_for, owner_of,
};
use holdfast_region::{Grant, KeyFingerprint, NameSpace, OwnerKey, Places, RegionName, Rights};

use crate::{module_file, publisher, signed_file};

const LIMIT: u64 = 1 << 20;

fn name_space(scratch: &Path) -> NameSpace {
    let (home, pool) = (scratch.join("home"), scratch.join("pool"));
    NameSpace::new(Places::at(home, pool).unwrap())
}

fn heap(name: &str) -> RegionName {
    RegionName::parse(name).unwrap()
}

fn identify(names: &NameSpace, path: &Path) -> Identity {
    let file = AppletFile::of_file(&File::open(path).unwrap()).unwrap();
    Publishers::of(names.places()).identify(&file, None).unwrap().0
}

fn signed(names: &NameSpace, scratch: &Path, constant: i32, by: &PublisherKey) -> Identity {
    identify(names, &signed_file(scratch, &format!("{constant}.wasm"), constant, by))
}

fn unsigned(names: &NameSpace, scratch: &Path, constant: i32) -> Identity {
    identify(names, &module_file(scratch, &format!("plain{constant}.wasm"), constant))
}

/// Opens a heap as this applet, and leaves something in it.
fn create(names: &NameSpace, name: &str, identity: &Identity) {
    let key = key_for(names, &heap(name), identity).unwrap();
    assert_eq!(key.source(), KeySource::New);
    names.create(&heap(name), key.key(), 8 * LIMIT).unwrap().close().unwrap();
}

fn create_legacy(names: &NameSpace, name: &str) -> OwnerKey {
    let key = OwnerKey::load_or_create(names.places(), LEGACY_KEY).unwrap();
    names.create(&heap(name), &key, LIMIT).unwrap().close().unwrap();
    key
}

fn source(names: &NameSpace, name: &str, identity: &Identity) -> Option<KeySource> {
    match key_for(names, &heap(name), identity) {
        Ok(key) => {
            names.open(&heap(name), key.key()).unwrap().close().unwrap();
            Some(key.source())
        }
        Err(OwnershipError::Refused { .. }) => None,
        Err(error) => panic!("{error}"),
    }
}

/// Guarantee: applets/identities
#[test]
fn upgrade_opens_the_heap_and_an_unrelated_applet_does_not() {
    let scratch = tempfile::tempdir().unwrap();
    let (scratch, names) = (scratch.path(), name_space(scratch.path()));
    let acme = publisher(1, "Acme");
    let first = signed(&names, scratch, 1, &acme);
    create(&names, "notes", &first);
    let upgrade = signed(&names, scratch, 2, &acme);
    assert_eq!(source(&names, "notes", &upgrade), Some(KeySource::Identity));
    let keys_before = OwnerKey::names(names.places()).unwrap();
    for other in [
        signed(&names, scratch, 3, &publisher(2, "Other")),
        unsigned(&names, scratch, 1),
        Identity::Named(GivenName::parse("notes").unwrap()),
    ] {
        let error = key_for(&names, &heap("notes"), &other).unwrap_err();
        let message = error.to_string();
        assert!(
            message.contains("belongs to application `notes` of publisher `Acme`"),
            "{message}"
        );
        assert!(message.contains(&format!("this applet is {other}")), "{message}");
    }
    assert_eq!(OwnerKey::names(names.places()).unwrap(), keys_before, "a refusal made a key");
}

#[test]
fn unsigned_versions_are_different_unless_named() {
    let scratch = tempfile::tempdir().unwrap();
    let (scratch, names) = (scratch.path(), name_space(scratch.path()));
    let (old, new) = (unsigned(&names, scratch, 1), unsigned(&names, scratch, 2));
    create(&names, "notes", &old);
    assert_eq!(source(&names, "notes", &old), Some(KeySource::Identity));
    assert_eq!(source(&names, "notes", &new), None);
    let named = Identity::Named(GivenName::parse("notes").unwrap());
    create(&names, "named", &named);
    assert_eq!(source(&names, "named", &named), Some(KeySource::Identity));
    assert_eq!(source(&names, "named", &old), None);
}

/// Guarantee: applets/identities
#[test]
fn legacy_heap_opens_for_all_until_it_is_handed_over() {
    let scratch = tempfile::tempdir().unwrap();
    let (scratch, names) = (scratch.path(), name_space(scratch.path()));
    let (one, two) = (unsigned(&names, scratch, 1), unsigned(&names, scratch, 2));
    let legacy = create_legacy(&names, "notes");
    for applet in [&one, &two] {
        assert_eq!(source(&names, "notes", applet), Some(KeySource::Legacy));
    }
    let report = hand_over(&names, &heap("notes"), &legacy, &one).unwrap();
    assert_eq!(report.key_name(), one.key_name());
    assert!(report.other_grants().is_empty());
    assert_eq!(source(&names, "notes", &one), Some(KeySource::Identity));
    assert_eq!(source(&names, "notes", &two), None);
    let message = key_for(&names, &heap("notes"), &two).unwrap_err().to_string();
    assert!(message.contains("whoever uses the key `default`"), "{message}");
    // The owner still is, and may take it back.
    names.revoke_all(&heap("notes"), &legacy).unwrap();
    assert_eq!(source(&names, "notes", &two), Some(KeySource::Legacy));
}

#[test]
fn handed_over_heap_opens_for_both_and_grows() {
    let scratch = tempfile::tempdir().unwrap();
    let (scratch, names) = (scratch.path(), name_space(scratch.path()));
    let (old, new) = (unsigned(&names, scratch, 1), unsigned(&names, scratch, 2));
    create(&names, "notes", &old);
    let reader = OwnerKey::load_or_create(names.places(), "reader").unwrap();
    let (key_name, owner) = implicit_owner_key(&names, &heap("notes")).unwrap().unwrap();
    assert_eq!(key_name.as_str(), old.key_name());
    let granted = Grant::new(KeyFingerprint::from_bytes(reader.fingerprint()), None, Rights::Read);
    names.grant(&heap("notes"), &owner, granted).unwrap();
    let report = hand_over(&names, &heap("notes"), &owner, &new).unwrap();
    assert_eq!(report.other_grants().len(), 1);
    for applet in [&old, &new] {
        assert_eq!(source(&names, "notes", applet), Some(KeySource::Identity));
    }
    let key = key_for(&names, &heap("notes"), &new).unwrap();
    let mut region = names.open(&heap("notes"), key.key()).unwrap();
    region.grow(LIMIT / 2).unwrap();
    region.close().unwrap();
    // Handing over twice is handing over once.
    hand_over(&names, &heap("notes"), &owner, &new).unwrap();
    assert_eq!(names.grants(&heap("notes"), &owner).unwrap().len(), 2);
}

/// Guarantee: applets/identities
#[test]
fn hand_over_is_the_owner_s_and_not_of_heaps_with_compartments() {
    let scratch = tempfile::tempdir().unwrap();
    let (scratch, names) = (scratch.path(), name_space(scratch.path()));
    let (old, new) = (unsigned(&names, scratch, 1), unsigned(&names, scratch, 2));
    create(&names, "notes", &old);
    let keys_before = OwnerKey::names(names.places()).unwrap();
    let stranger = OwnerKey::from_bytes([9; 32]);
    assert!(hand_over(&names, &heap("notes"), &stranger, &new).is_err());
    let (_, owner) = implicit_owner_key(&names, &heap("notes")).unwrap().unwrap();
    assert!(hand_over(&names, &heap("missing"), &owner, &new).is_err());
    names
        .open_compartment(&heap("notes"), &heap("worker"), &owner, LIMIT)
        .unwrap()
        .close()
        .unwrap();
    let error = hand_over(&names, &heap("notes"), &owner, &new).unwrap_err();
    assert!(matches!(error, OwnershipError::HasCompartments { count: 1, .. }), "{error}");
    assert_eq!(OwnerKey::names(names.places()).unwrap(), keys_before, "a refusal made a key");
}

#[test]
fn owners_are_told_in_words_without_the_key_s_file() {
    let scratch = tempfile::tempdir().unwrap();
    let (scratch, names) = (scratch.path(), name_space(scratch.path()));
    let identity = signed(&names, scratch, 1, &publisher(1, "Acme"));
    create(&names, "notes", &identity);
    assert_eq!(owner_of(&names, &heap("notes")).unwrap(), Owner::Applet(identity.clone()));
    let keys = names.places().keys();
    let record = keys.join(format!("{}.identity", identity.key_name()));
    // The record is words: a damaged or missing one changes no right.
    std::fs::write(&record, "nonsense").unwrap();
    assert_eq!(source(&names, "notes", &identity), Some(KeySource::Identity));
    assert_eq!(owner_of(&names, &heap("notes")).unwrap(), Owner::Applet(identity.clone()));
    std::fs::remove_file(keys.join(format!("{}.key", identity.key_name()))).unwrap();
    assert_eq!(owner_of(&names, &heap("notes")).unwrap(), Owner::Applet(identity.clone()));
    assert_eq!(implicit_owner_key(&names, &heap("notes")).unwrap().map(|(name, _)| name), None);
    std::fs::remove_file(&record).unwrap();
    let owner = owner_of(&names, &heap("notes")).unwrap();
    assert!(matches!(owner, Owner::Unknown { .. }), "{owner}");
}

/// A record that claims another identity for a key opens nothing.
///
/// Guarantee: applets/identities
#[test]
fn forged_record_gives_no_right() {
    let scratch = tempfile::tempdir().unwrap();
    let (scratch, names) = (scratch.path(), name_space(scratch.path()));
    let (one, two) = (unsigned(&names, scratch, 1), unsigned(&names, scratch, 2));
    create(&names, "notes", &one);
    create(&names, "other", &two);
    let record = |identity: &Identity| {
        names.places().keys().join(format!("{}.identity", identity.key_name()))
    };
    std::fs::copy(record(&two), record(&one)).unwrap();
    let words = owner_of(&names, &heap("notes")).unwrap();
    assert!(matches!(words, Owner::Key { .. }), "{words}");
    assert_eq!(source(&names, "notes", &two), None);
    assert_eq!(source(&names, "notes", &one), Some(KeySource::Identity));
}
