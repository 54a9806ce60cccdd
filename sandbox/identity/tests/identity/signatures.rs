//! Signing files, and files whose signature is not good.

use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use holdfast_identity::{AppletFile, SignError, SignatureError, SignatureFault, sign};
use proptest::prelude::*;

use crate::{application, module, module_file, publisher, signed_file};

fn applet_file(path: &Path) -> Result<AppletFile, SignatureError> {
    AppletFile::of_file(&File::open(path).unwrap())
}

fn fault(bytes: &[u8]) -> Option<SignatureFault> {
    match AppletFile::of_bytes(bytes) {
        Err(SignatureError::Fault(fault)) => Some(fault),
        Err(error) => panic!("{error}"),
        Ok(_) => None,
    }
}

/// A small program of this machine, and the same signed.
fn programs() -> (Vec<u8>, Vec<u8>) {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("true");
    std::fs::copy("/bin/true", &path).unwrap();
    let bare = std::fs::read(&path).unwrap();
    sign(&path, &publisher(1, "Acme"), &application("notes")).unwrap();
    (bare, std::fs::read(&path).unwrap())
}

fn signed_module() -> Vec<u8> {
    let scratch = tempfile::tempdir().unwrap();
    std::fs::read(signed_file(scratch.path(), "a.wasm", 1, &publisher(1, "Acme"))).unwrap()
}

#[test]
fn signature_names_publisher_and_application() {
    let acme = publisher(1, "Acme Ltd");
    let scratch = tempfile::tempdir().unwrap();
    let path = module_file(scratch.path(), "a.wasm", 1);
    std::fs::set_permissions(&path, Permissions::from_mode(0o751)).unwrap();
    let unsigned = applet_file(&path).unwrap();
    assert_eq!(unsigned.signature(), None);
    sign(&path, &acme, &application("notes")).unwrap();
    let signed = applet_file(&path).unwrap();
    let signature = signed.signature().unwrap();
    assert_eq!(signature.publisher(), &acme.publisher());
    assert_eq!(signature.application().as_str(), "notes");
    assert_ne!(signed.hash(), unsigned.hash());
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o7777, 0o751);
    assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 1, "a temporary file stayed");
    // Bytes tell the same as the file.
    let of_bytes = AppletFile::of_bytes(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!(of_bytes.signature(), signed.signature());
    assert_eq!(of_bytes.hash(), signed.hash());
}

/// The signature is one more custom section, so the module is still one.
#[test]
fn signed_module_is_a_module_with_one_more_section() {
    let (bare, signed) = (module(1), signed_module());
    assert!(signed.starts_with(&bare));
    let printed = |bytes: &[u8]| wat::parse_bytes(bytes).unwrap().into_owned();
    assert_eq!(printed(&signed), signed);
}

#[test]
fn signed_program_still_runs() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("true");
    std::fs::copy("/bin/true", &path).unwrap();
    sign(&path, &publisher(1, "Acme"), &application("notes")).unwrap();
    assert!(applet_file(&path).unwrap().signature().is_some());
    assert!(std::process::Command::new(&path).status().unwrap().success());
}

#[test]
fn signing_again_replaces_the_signature() {
    let scratch = tempfile::tempdir().unwrap();
    for (name, bare) in [("a.wasm", module(1)), ("true", programs().0)] {
        let path = scratch.path().join(name);
        std::fs::write(&path, &bare).unwrap();
        sign(&path, &publisher(1, "Acme"), &application("notes")).unwrap();
        let first = std::fs::read(&path).unwrap();
        sign(&path, &publisher(2, "Other"), &application("mail")).unwrap();
        let found = applet_file(&path).unwrap();
        let signature = found.signature().unwrap();
        assert_eq!(signature.publisher(), &publisher(2, "Other").publisher());
        sign(&path, &publisher(1, "Acme"), &application("notes")).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), first, "{name}");
        // A damaged one is replaced, too.
        let mut damaged = first.clone();
        let last = damaged.len() - 1;
        damaged[last] ^= 1;
        std::fs::write(&path, damaged).unwrap();
        if applet_file(&path).is_ok() {
            panic!("{name}: a damaged signature was taken");
        }
        sign(&path, &publisher(1, "Acme"), &application("notes")).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), first, "{name}, damaged");
    }
}

/// Guarantee: applets/identities
#[test]
fn every_flipped_byte_of_a_signature_is_refused() {
    for (name, bare, signed) in
        [("module", module(1), signed_module()), ("program", programs().0, programs().1)]
    {
        for at in bare.len()..signed.len() {
            for bit in [0x01, 0x80] {
                let mut flipped = signed.clone();
                flipped[at] ^= bit;
                // A section under another name is no signature, and says nothing of a publisher.
                let unsigned =
                    AppletFile::of_bytes(&flipped).is_ok_and(|file| file.signature().is_none());
                let error = AppletFile::of_bytes(&flipped).is_err();
                assert!(error && !unsigned, "{name}: byte {at} of {}", signed.len());
            }
        }
    }
}

/// What the signature is about may not change either.
///
/// Guarantee: applets/identities
#[test]
fn changed_content_is_called_forged() {
    let (bare, signed) = programs();
    for at in (64..bare.len()).step_by(bare.len() / 97) {
        let mut changed = signed.clone();
        changed[at] ^= 0x10;
        let Some(found) = fault(&changed) else { panic!("byte {at} was not missed") };
        let is_known = matches!(
            found,
            SignatureFault::Forged { .. }
                | SignatureFault::Several
                | SignatureFault::Damaged { .. }
        );
        assert!(is_known, "byte {at}: {found}");
    }
    let mut module = signed_module();
    let data = module.windows(9).position(|bytes| bytes == b"some data").unwrap();
    module[data] = b'S';
    let found = fault(&module);
    assert!(matches!(found, Some(SignatureFault::Forged { .. })), "{found:?}");
}

/// Guarantee: applets/identities
#[test]
fn cut_off_signature_is_not_unsigned() {
    for (name, bare, signed) in
        [("module", module(1), signed_module()), ("program", programs().0, programs().1)]
    {
        // Of a section without a name nothing tells what it was; wasm engines refuse the file.
        let first = bare.len() + if name == "module" { 5 } else { 1 };
        for len in first..signed.len() {
            assert!(fault(&signed[..len]).is_some(), "{name}: {len} of {} bytes", signed.len());
        }
        assert!(AppletFile::of_bytes(&bare).unwrap().signature().is_none());
    }
}

/// Guarantee: applets/identities
#[test]
fn second_signature_and_one_elsewhere_are_refused() {
    let (bare, signed) = programs();
    let trailer = &signed[bare.len()..];
    let twice = [&signed[..], trailer].concat();
    assert_eq!(fault(&twice), Some(SignatureFault::Several));
    let section = &signed_module()[module(1).len()..];
    let twice = [&signed_module()[..], section].concat();
    assert_eq!(fault(&twice), Some(SignatureFault::Several));
    // `wasm-strip`, `wasm-opt` and others write what they keep in an order of their own.
    let custom = b"\0\x05\x04name";
    let in_the_middle = [&signed_module()[..], custom].concat();
    assert_eq!(fault(&in_the_middle), Some(SignatureFault::NotLast));
    let behind = [&signed[..], b"more"].concat();
    assert!(fault(&behind).is_some());
}

/// A signature behind bytes that no table of the program names is found, whichever of its ends is
/// damaged and whatever was added.
///
/// Guarantee: applets/identities
#[test]
fn damaged_signature_behind_an_overlay_is_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("program");
    let (bare, _) = programs();
    // One is larger than what is read at once, and the marks lie across two pieces.
    for overlay_bytes in [1, 100, (64 << 10) - 3, (128 << 10) + 7] {
        let content = [&bare[..], &vec![b'x'; overlay_bytes]].concat();
        assert!(AppletFile::of_bytes(&content).unwrap().signature().is_none());
        std::fs::write(&path, &content).unwrap();
        sign(&path, &publisher(1, "Acme"), &application("notes")).unwrap();
        let signed = std::fs::read(&path).unwrap();
        assert!(applet_file(&path).unwrap().signature().is_some());
        let mut no_end = signed.clone();
        *no_end.last_mut().unwrap() ^= 1;
        let mut no_start = signed.clone();
        no_start[content.len()] ^= 1;
        let twice = [&signed[..], b"x", &signed[content.len()..]].concat();
        let longer = [&signed[..], b"x"].concat();
        for damaged in [no_end, no_start, twice, longer] {
            assert!(fault(&damaged).is_some(), "{overlay_bytes} bytes of overlay");
        }
        // Signing again makes it good, and keeps the overlay.
        std::fs::write(&path, [&signed[..], b"x"].concat()).unwrap();
        sign(&path, &publisher(2, "Other"), &application("notes")).unwrap();
        let again = std::fs::read(&path).unwrap();
        assert_eq!(again[..content.len()], content);
        assert!(applet_file(&path).unwrap().signature().is_some());
        // Of one without a beginning nothing tells where the program ends.
        let mut no_start = signed[..signed.len()].to_vec();
        no_start[content.len()] ^= 1;
        no_start.push(b'x');
        std::fs::write(&path, &no_start).unwrap();
        assert!(sign(&path, &publisher(2, "Other"), &application("notes")).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), no_start);
    }
}

/// Guarantee: applets/identities
#[test]
fn signature_of_another_file_is_forged() {
    let section = signed_module()[module(1).len()..].to_vec();
    let copied = [module(2), section].concat();
    let found = fault(&copied);
    assert!(matches!(found, Some(SignatureFault::Forged { .. })), "{found:?}");
    let message = found.unwrap().to_string();
    assert!(message.contains("`notes` of publisher `Acme`"), "{message}");
}

/// One content has one signed file: a size that is written with more bytes than it needs, or bytes
/// between the section's name and the signature, make another one.
#[test]
fn section_in_another_form_is_refused() {
    let bare = module(1);
    let section = signed_module()[bare.len()..].to_vec();
    let (size, rest) = (u64::from(section[1] & 0x7f) | u64::from(section[2]) << 7, &section[3..]);
    assert_eq!(size as usize, rest.len(), "it has a size of two bytes");
    let longer = [&bare[..], &[0, section[1], section[2] | 0x80, 0], rest].concat();
    assert!(matches!(fault(&longer), Some(SignatureFault::Damaged { .. })));
    let (name, block) = rest.split_at(19);
    let size = size + 1;
    let head = [0, size as u8 | 0x80, (size >> 7) as u8];
    let stuffed = [&bare[..], &head, name, &[7], block].concat();
    assert!(matches!(fault(&stuffed), Some(SignatureFault::Damaged { .. })));
}

#[test]
fn giant_claims_allocate_nothing() {
    // A section of 4 GiB, a trailer of 4 GiB, a table of 2^64 sections.
    let mut section = module(1);
    section.extend(b"\0\xff\xff\xff\xff\x0f\x12holdfast.signature");
    assert!(fault(&section).is_some());
    let (bare, mut signed) = programs();
    let end = signed.len() - 16;
    signed[end..end + 4].fill(0xff);
    assert!(fault(&signed).is_some());
    let mut table = bare;
    table[40..48].fill(0xff);
    table[60..62].fill(0);
    // It has no signature; what the kernel makes of it is another matter.
    assert_eq!(fault(&table), None);
}

#[test]
fn files_that_cannot_carry_a_signature_say_so() {
    let scratch = tempfile::tempdir().unwrap();
    let at = |name: &str, bytes: &[u8]| {
        let path = scratch.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        (path.clone(), sign(&path, &publisher(1, "Acme"), &application("notes")).unwrap_err())
    };
    let (_, text) = at("a.wat", b"(module)");
    assert!(matches!(text, SignError::Text { .. }), "{text}");
    for (name, bytes, says) in [
        ("empty", &b""[..], "it is empty"),
        ("script", b"#!/bin/sh\n", "it is a script"),
        ("words", b"words", "it is no program"),
        ("elf32", &[b"\x7fELF\x01\x01".as_slice(), &[0; 58]].concat(), "ELF file of another kind"),
    ] {
        let (path, error) = at(name, bytes);
        assert!(error.to_string().contains(says), "{error}");
        assert_eq!(std::fs::read(path).unwrap(), bytes);
    }
    let (path, error) = at("cut.wasm", &module(1)[..20]);
    assert!(matches!(error, SignError::CutOff { .. }), "{error}");
    assert_eq!(std::fs::read(path).unwrap(), module(1)[..20]);
    let missing = scratch.path().join("missing");
    let error = sign(&missing, &publisher(1, "Acme"), &application("notes")).unwrap_err();
    assert!(error.to_string().contains("missing"), "{error}");
}

#[test]
fn changed_file_is_noticed() {
    let scratch = tempfile::tempdir().unwrap();
    let path = module_file(scratch.path(), "a.wasm", 1);
    let file = File::open(&path).unwrap();
    let found = AppletFile::of_file(&file).unwrap();
    assert!(found.is_unchanged(&file).unwrap());
    std::fs::write(&path, module(2)).unwrap();
    assert!(!found.is_unchanged(&file).unwrap());
    std::fs::write(&path, module(1)).unwrap();
    assert!(found.is_unchanged(&file).unwrap(), "the same bytes are no change");
    // Another file under the same path is another file.
    let other = module_file(scratch.path(), "b.wasm", 2);
    std::fs::rename(other, &path).unwrap();
    assert!(!found.is_unchanged(&File::open(&path).unwrap()).unwrap());
    assert!(AppletFile::of_file(&File::open(scratch.path()).unwrap()).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Nothing that a file contains makes the reader fail otherwise than with an error, and
    /// nothing but the signer's file has its signature.
    #[test]
    fn mutated_modules_are_unsigned_or_refused(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in proptest::option::of(any::<prop::sample::Index>()),
        more in proptest::collection::vec(any::<u8>(), 0..40),
    ) {
        let good = signed_module();
        let mut bytes = good.clone();
        for (index, value) in changes {
            let at = index.index(bytes.len());
            bytes[at] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(good.len()));
        }
        bytes.extend(more);
        prop_assume!(bytes != good);
        if let Ok(found) = AppletFile::of_bytes(&bytes) {
            prop_assert_eq!(found.signature(), None);
        }
    }

    #[test]
    fn mutated_programs_are_unsigned_or_refused(
        head in proptest::collection::vec((0usize..64, any::<u8>()), 0..6),
        tail in proptest::collection::vec((1usize..200, any::<u8>()), 1..6),
    ) {
        thread_local!(static GOOD: Vec<u8> = programs().1);
        GOOD.with(|good| {
            let mut bytes = good.clone();
            let len = bytes.len();
            for (at, value) in head {
                bytes[at] = value;
            }
            for (at, value) in tail {
                bytes[len - at] = value;
            }
            prop_assume!(&bytes != good);
            if let Ok(found) = AppletFile::of_bytes(&bytes) {
                prop_assert_eq!(found.signature(), None);
            }
            Ok(())
        })?;
    }
}
