//! Which heaps an applet may open: its own, those of earlier versions, and those handed over.

use std::fs::File;
use std::path::Path;

use holdfast_identity::{
    AppletFile, GivenName, Identity, KeySource, LEGACY_KEY, Owner, OwnershipError, PublisherKey,
    Publishers, close, grant, hand_over, implicit_owner_key, is_open_to_all, key_for, note_closed,
    open_to_all, owner_of, revoke, revoke_all,
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

/// The same without opening it, which a key for reading alone cannot.
fn source_to_read(names: &NameSpace, name: &str, identity: &Identity) -> Option<KeySource> {
    key_for(names, &heap(name), identity).ok().map(|key| key.source())
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
    // The owner still is, and may take it back: then it is nobody's.
    revoke_all(&names, &heap("notes"), &legacy).unwrap();
    for applet in [&one, &two] {
        assert_eq!(source(&names, "notes", applet), None);
    }
    assert!(!is_open_to_all(&names, &heap("notes")).unwrap());
    open_to_all(&names, &heap("notes"), &legacy).unwrap();
    assert_eq!(source(&names, "notes", &two), Some(KeySource::Legacy));
}

/// What an applet loses it does not get back as one of all, whatever was granted, and however it is
/// taken back.
///
/// Guarantee: applets/closed-heaps
#[test]
fn revoked_grant_does_not_open_a_legacy_heap() {
    let scratch = tempfile::tempdir().unwrap();
    let (scratch, names) = (scratch.path(), name_space(scratch.path()));
    let (one, two) = (unsigned(&names, scratch, 1), unsigned(&names, scratch, 2));
    let key = OwnerKey::load_or_create(names.places(), &one.key_name()).unwrap();
    let key = KeyFingerprint::from_bytes(key.fingerprint());
    let label = RegionName::parse(&one.key_name()).ok();
    let grants = [
        Grant::new(key, label.clone(), Rights::Read),
        Grant::new(key, label, Rights::Write { quota_bytes: None }),
        // One that was granted by the fingerprint alone.
        Grant::new(key, None, Rights::Write { quota_bytes: None }),
    ];
    for (number, granted) in grants.into_iter().enumerate() {
        let name = format!("notes{number}");
        let legacy = create_legacy(&names, &name);
        assert!(grant(&names, &heap(&name), &legacy, granted).unwrap(), "{name}");
        assert_eq!(source_to_read(&names, &name, &one), Some(KeySource::Identity), "{name}");
        assert_eq!(source(&names, &name, &two), None, "{name}");
        assert_eq!(revoke(&names, &heap(&name), &legacy, |grant| grant.key == key).unwrap(), 1);
        for applet in [&one, &two] {
            assert_eq!(source(&names, &name, applet), None, "{name}");
        }
    }
    // A table that was granted without us, as before there were marks.
    let legacy = create_legacy(&names, "old");
    let granted = Grant::new(key, RegionName::parse(&one.key_name()).ok(), Rights::Read);
    names.grant(&heap("old"), &legacy, granted).unwrap();
    assert_eq!(source(&names, "old", &two), None);
    names.revoke_all(&heap("old"), &legacy).unwrap();
    assert_eq!(source(&names, "old", &two), None, "the refusal left a mark");
    // Grants to other keys close nothing.
    let legacy = create_legacy(&names, "shared");
    let reader = OwnerKey::load_or_create(names.places(), "reader").unwrap();
    let reader = KeyFingerprint::from_bytes(reader.fingerprint());
    let granted = Grant::new(reader, None, Rights::Read);
    assert!(!grant(&names, &heap("shared"), &legacy, granted).unwrap());
    assert_eq!(revoke(&names, &heap("shared"), &legacy, |grant| grant.key == reader).unwrap(), 1);
    assert_eq!(source(&names, "shared", &two), Some(KeySource::Legacy));
}

/// A heap that was handed over comes back closed after its removal, without table or grants.
///
/// Guarantee: applets/closed-heaps
#[test]
fn restored_heap_is_closed_as_it_was() {
    let scratch = tempfile::tempdir().unwrap();
    let (scratch, names) = (scratch.path(), name_space(scratch.path()));
    let (one, two) = (unsigned(&names, scratch, 1), unsigned(&names, scratch, 2));
    let legacy = create_legacy(&names, "notes");
    names.snapshot(&heap("notes"), &legacy, &heap("tag")).unwrap();
    hand_over(&names, &heap("notes"), &legacy, &one).unwrap();
    names.remove(&heap("notes"), &legacy).unwrap();
    names.restore(&heap("notes"), &legacy, &heap("tag"), false).unwrap();
    for applet in [&one, &two] {
        assert_eq!(source(&names, "notes", applet), None);
    }
    // A removal that a crash interrupted has taken the table alone.
    std::fs::remove_file(names.places().store().join("notes.grants")).unwrap_or_default();
    assert_eq!(source(&names, "notes", &two), None);
    hand_over(&names, &heap("notes"), &legacy, &one).unwrap();
    assert_eq!(source(&names, "notes", &one), Some(KeySource::Identity));
    std::fs::remove_file(names.places().store().join("notes.grants")).unwrap();
    assert_eq!(source(&names, "notes", &one), None);
    // Another heap of the name is another heap.
    names.remove(&heap("notes"), &legacy).unwrap();
    create_legacy(&names, "notes");
    assert_eq!(source(&names, "notes", &two), Some(KeySource::Legacy));
}

/// A question writes no mark; a caller that removes the heap asks for one, and its snapshot comes
/// back closed.
///
/// Guarantee: applets/closed-heaps
#[test]
fn heap_closed_by_its_table_is_marked_before_removal() {
    let scratch = tempfile::tempdir().unwrap();
    let (scratch, names) = (scratch.path(), name_space(scratch.path()));
    let one = unsigned(&names, scratch, 1);
    let legacy = create_legacy(&names, "notes");
    names.snapshot(&heap("notes"), &legacy, &heap("tag")).unwrap();
    let uuid = names.summary(&heap("notes")).unwrap().uuid;
    let mark = names.places().keys().join(format!("{uuid}.closed"));
    note_closed(&names, &heap("notes")).unwrap();
    assert!(is_open_to_all(&names, &heap("notes")).unwrap(), "an open heap was closed");
    let key = OwnerKey::load_or_create(names.places(), &one.key_name()).unwrap();
    let key = KeyFingerprint::from_bytes(key.fingerprint());
    // As a host grants that knows nothing of marks.
    names.grant(&heap("notes"), &legacy, Grant::new(key, None, Rights::Read)).unwrap();
    assert!(!is_open_to_all(&names, &heap("notes")).unwrap());
    assert!(!mark.exists(), "a question wrote a mark");
    note_closed(&names, &heap("notes")).unwrap();
    assert!(mark.exists());
    names.remove(&heap("notes"), &legacy).unwrap();
    names.restore(&heap("notes"), &legacy, &heap("tag"), false).unwrap();
    assert!(!is_open_to_all(&names, &heap("notes")).unwrap());
}

/// A mark that a crash cut off, or that cannot be read, closes the heap as well.
///
/// Guarantee: applets/closed-heaps
#[test]
fn any_entry_in_the_place_of_a_mark_closes_the_heap() {
    let scratch = tempfile::tempdir().unwrap();
    let (scratch, names) = (scratch.path(), name_space(scratch.path()));
    let one = unsigned(&names, scratch, 1);
    for (number, make) in [
        |path: &Path| std::fs::write(path, "").unwrap(),
        |path: &Path| std::os::unix::fs::symlink("nowhere", path).unwrap(),
        |path: &Path| std::fs::create_dir(path).unwrap(),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("notes{number}");
        create_legacy(&names, &name);
        let uuid = names.summary(&heap(&name)).unwrap().uuid;
        make(&names.places().keys().join(format!("{uuid}.closed")));
        assert_eq!(source(&names, &name, &one), None, "{name}");
    }
}

/// The mark, as it is documented.
#[test]
fn mark_has_the_uuid_in_its_name_and_the_heap_in_words() {
    let scratch = tempfile::tempdir().unwrap();
    let names = name_space(scratch.path());
    let legacy = create_legacy(&names, "notes");
    let uuid = names.summary(&heap("notes")).unwrap().uuid;
    let path = names.places().keys().join(format!("{uuid}.closed"));
    assert!(close(&names, &heap("notes"), &legacy).unwrap());
    assert!(!close(&names, &heap("notes"), &legacy).unwrap(), "it was closed already");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "holdfast closed heap 1\nheap notes\n");
    open_to_all(&names, &heap("notes"), &legacy).unwrap();
    assert!(!path.exists());
}

/// Only a heap of `default` without grants to applets is opened to all, and only by its owner.
///
/// Guarantee: applets/closed-heaps
#[test]
fn opening_to_all_is_the_owner_s_and_of_legacy_heaps_alone() {
    let scratch = tempfile::tempdir().unwrap();
    let (scratch, names) = (scratch.path(), name_space(scratch.path()));
    let one = unsigned(&names, scratch, 1);
    create(&names, "own", &one);
    let (_, owner) = implicit_owner_key(&names, &heap("own")).unwrap().unwrap();
    let error = open_to_all(&names, &heap("own"), &owner).unwrap_err();
    assert!(matches!(error, OwnershipError::NotDefault { .. }), "{error}");
    assert!(!close(&names, &heap("own"), &owner).unwrap(), "it never was open");
    let legacy = create_legacy(&names, "notes");
    let stranger = OwnerKey::from_bytes([9; 32]);
    assert!(open_to_all(&names, &heap("notes"), &stranger).is_err());
    assert!(close(&names, &heap("notes"), &stranger).is_err());
    assert!(is_open_to_all(&names, &heap("notes")).unwrap(), "a stranger closed it");
    hand_over(&names, &heap("notes"), &legacy, &one).unwrap();
    let error = open_to_all(&names, &heap("notes"), &legacy).unwrap_err();
    assert!(matches!(error, OwnershipError::HasGrants { .. }), "{error}");
    assert!(!is_open_to_all(&names, &heap("notes")).unwrap());
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
