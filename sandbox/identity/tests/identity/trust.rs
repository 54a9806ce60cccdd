//! The record of publishers: first use, changed keys, names that look alike, damage.

use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Barrier};

use holdfast_identity::{
    AppletFile, GivenName, Identity, PublisherKey, PublisherName, Publishers, Trust, TrustError,
};
use holdfast_region::KernelStorage;

use crate::{publisher, signed_file};

fn publishers(home: &Path) -> Publishers {
    Publishers::with_storage(home, Arc::new(KernelStorage))
}

fn meet(home: &Path, key: &PublisherKey) -> Result<Trust, TrustError> {
    let path = signed_file(home, "applet.wasm", 1, key);
    let file = AppletFile::of_file(&File::open(&path).unwrap()).unwrap();
    publishers(home).meet(file.signature().unwrap())
}

/// Guarantee: applets/identities
#[test]
fn first_use_is_recorded_and_another_key_refused() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    assert_eq!(meet(home, &publisher(1, "Acme Ltd")).unwrap(), Trust::FirstUse);
    assert_eq!(meet(home, &publisher(1, "Acme Ltd")).unwrap(), Trust::Known);
    let error = meet(home, &publisher(2, "Acme Ltd")).unwrap_err();
    assert!(matches!(error, TrustError::KeyChanged { .. }), "{error}");
    let message = error.to_string();
    for key in [publisher(1, "Acme Ltd"), publisher(2, "Acme Ltd")] {
        assert!(message.contains(&key.publisher().key().to_string()), "{message}");
    }
    // The same key under a second name is no danger.
    assert_eq!(meet(home, &publisher(1, "Acme Labs")).unwrap(), Trust::FirstUse);
    let found = publishers(home).list().unwrap();
    let names: Vec<_> = found.iter().map(|publisher| publisher.name().as_str()).collect();
    assert_eq!(names, ["Acme Ltd", "Acme Labs"]);
    // The way on after a change of keys.
    let name = PublisherName::parse("Acme Ltd").unwrap();
    assert!(publishers(home).remove(&name).unwrap());
    assert!(!publishers(home).remove(&name).unwrap());
    assert_eq!(meet(home, &publisher(2, "Acme Ltd")).unwrap(), Trust::FirstUse);
}

/// Guarantee: applets/identities
#[test]
fn names_that_look_like_a_known_one_are_refused() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    meet(home, &publisher(1, "Acme Ltd")).unwrap();
    for name in ["ACME LTD", "acme-ltd", "AcmeLtd", "Acrne Ltd"] {
        let error = meet(home, &publisher(2, name)).unwrap_err();
        assert!(matches!(error, TrustError::LooksLike { .. }), "{name}: {error}");
        // With the same key it is the same publisher, whatever it is called.
        meet(home, &publisher(1, name)).unwrap();
    }
    // The user may know better.
    let other = publisher(3, "Acme.Ltd").publisher();
    assert!(publishers(home).add(&other).unwrap());
    assert!(!publishers(home).add(&other).unwrap());
    assert_eq!(meet(home, &publisher(3, "Acme.Ltd")).unwrap(), Trust::Known);
    let changed = publishers(home).add(&publisher(4, "Acme.Ltd").publisher()).unwrap_err();
    assert!(matches!(changed, TrustError::KeyChanged { .. }), "{changed}");
}

/// Guarantee: applets/identities
#[test]
fn damaged_record_refuses_everything_and_stays() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let path = home.join("publishers");
    meet(home, &publisher(1, "Acme")).unwrap();
    let good = std::fs::read_to_string(&path).unwrap();
    let line = good.lines().nth(1).unwrap();
    for (text, number) in [
        (String::new(), 1),
        ("something else\n".to_owned(), 1),
        (good.replace("ed25519", "rsa"), 2),
        (good.trim_end().to_owned(), 2),
        (format!("{good}{line}\n"), 3),
        (format!("{good}\n"), 3),
    ] {
        std::fs::write(&path, &text).unwrap();
        let error = meet(home, &publisher(1, "Acme")).unwrap_err();
        let is_right = matches!(error, TrustError::Damaged { line, .. } if line == number);
        assert!(is_right, "{text:?}: {error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "it was written over");
    }
    std::fs::write(&path, good.replace("publishers 1", "publishers 2")).unwrap();
    let error = meet(home, &publisher(1, "Acme")).unwrap_err();
    assert!(matches!(error, TrustError::Newer { .. }), "{error}");
    std::fs::write(&path, &good).unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(0o622)).unwrap();
    let error = meet(home, &publisher(1, "Acme")).unwrap_err();
    assert!(matches!(error, TrustError::NotPrivate { mode: 0o622, .. }), "{error}");
    std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
    assert!(meet(home, &publisher(1, "Acme")).is_err());
}

#[test]
fn record_that_cannot_be_written_refuses_new_publishers() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    meet(home, &publisher(1, "Acme")).unwrap();
    // A directory at the temporary file's place stops root, too.
    std::fs::create_dir(home.join("publishers.tmp")).unwrap();
    let error = meet(home, &publisher(2, "Other")).unwrap_err();
    assert!(matches!(error, TrustError::Io { .. }), "{error}");
    assert!(error.to_string().contains("publishers.tmp"), "{error}");
    assert_eq!(meet(home, &publisher(1, "Acme")).unwrap(), Trust::Known);
}

/// Guarantee: applets/identities
#[test]
fn of_many_who_meet_a_publisher_first_one_records_it() {
    const THREADS: usize = 8;
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    for round in 0..10 {
        let keys = [publisher(1, &format!("Acme {round}")), publisher(2, &format!("Acme {round}"))];
        let paths = keys
            .each_ref()
            .map(|key| signed_file(home, &format!("{}", key.publisher().key()), 1, key));
        let barrier = Barrier::new(THREADS);
        let found: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|index| {
                    let (path, barrier) = (&paths[index % 2], &barrier);
                    scope.spawn(move || {
                        let file = AppletFile::of_file(&File::open(path).unwrap()).unwrap();
                        barrier.wait();
                        (index % 2, publishers(home).meet(file.signature().unwrap()))
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let first: Vec<_> = found
            .iter()
            .filter(|(_, met)| matches!(met, Ok(Trust::FirstUse)))
            .map(|(key, _)| *key)
            .collect();
        assert_eq!(first.len(), 1, "{found:?}");
        for (key, met) in &found {
            assert_eq!(met.is_ok(), *key == first[0], "{found:?}");
        }
        assert_eq!(publishers(home).list().unwrap().len(), round + 1);
    }
}

#[test]
fn signature_precedes_given_name_precedes_code() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let given = GivenName::parse("https://example.org").unwrap();
    let open = |path: &Path| AppletFile::of_file(&File::open(path).unwrap()).unwrap();
    let signed = open(&signed_file(home, "signed.wasm", 1, &publisher(1, "Acme")));
    let unsigned = open(&crate::module_file(home, "unsigned.wasm", 1));
    let identify = |file, given| publishers(home).identify(file, given).unwrap();
    let (identity, trust) = identify(&signed, Some(&given));
    assert_eq!(trust, Trust::FirstUse);
    // To be identified records nothing: the applet may be refused its heap.
    assert_eq!(publishers(home).list().unwrap(), []);
    publishers(home).meet(signed.signature().unwrap()).unwrap();
    assert_eq!(identify(&signed, None).1, Trust::Known);
    assert_eq!(
        identity.to_string().split(" (").next(),
        Some("application `notes` of publisher `Acme`")
    );
    assert_eq!(
        identify(&unsigned, Some(&given)),
        (Identity::Named(given.clone()), Trust::NotSigned)
    );
    assert_eq!(identify(&unsigned, None), (Identity::Code(unsigned.hash()), Trust::NotSigned));
}
