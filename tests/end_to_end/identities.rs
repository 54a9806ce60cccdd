//! Who an applet is, at the command line: signatures, names, refusals, heaps that change hands.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use holdfast_testkit::Scratch;

use crate::{Finished, scratch, succeed, tell};

/// A copy of the guest book in WebAssembly, which differs from others in a custom section.
fn copy(scratch: &Scratch, name: &str, version: u8) -> PathBuf {
    let mut bytes = fs::read(scratch.programs().applet("guestbook").unwrap()).unwrap();
    bytes.extend([0, 9, 7]);
    bytes.extend(b"version");
    bytes.push(version);
    let path = scratch.files().join(name);
    fs::write(&path, bytes).unwrap();
    path
}

/// A copy of the native guest book, which differs from others behind its end.
fn native_copy(scratch: &Scratch, name: &str, version: u8) -> PathBuf {
    let path = scratch.files().join(name);
    // With the permission bits.
    fs::copy(scratch.programs().native_applet("guestbook").unwrap(), &path).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    bytes.extend(b"version ");
    bytes.extend([version; 8]);
    fs::write(&path, bytes).unwrap();
    path
}

type Copy = fn(&Scratch, &str, u8) -> PathBuf;

/// What holds of an applet's identity holds in both sandboxes.
fn with_each(test: impl Fn(&Scratch, Copy)) {
    for (sandbox, copy) in [("webassembly", copy as Copy), ("native", native_copy)] {
        eprintln!("{sandbox}");
        test(&scratch(), copy);
    }
}

fn add(scratch: &Scratch, applet: &Path, options: &[&str]) -> Finished {
    let mut run = scratch.holdfast();
    run.arg("run").arg(applet).args(["--heap", "book"]).args(options);
    tell(run.args(["--", "add", "an entry"]).env("LC_ALL", "C"))
}

/// Makes a publisher's key; its file.
fn publisher(scratch: &Scratch, name: &str, file: &str) -> PathBuf {
    let path = scratch.files().join(file);
    succeed(scratch.holdfast().args(["publisher", "new", name, "--file"]).arg(&path));
    path
}

fn sign(scratch: &Scratch, applet: &Path, key: &Path) {
    let mut sign = scratch.holdfast();
    sign.arg("sign").arg(applet).arg("--with").arg(key).args(["--app", "guestbook"]);
    succeed(&mut sign);
}

/// An unrelated applet is refused in words, and an upgrade of the publisher is not.
///
/// Guarantee: applets/identities
#[test]
fn upgrade_opens_its_heap_and_an_unrelated_applet_is_refused() {
    with_each(|scratch, copy| {
        let acme = publisher(scratch, "Acme Ltd", "acme.key");
        let (first, second) = (copy(scratch, "1.applet", 1), copy(scratch, "2.applet", 2));
        sign(scratch, &first, &acme);
        let told = add(scratch, &first, &[]);
        assert_eq!(told.status, 0, "{}", told.err);
        assert!(told.err.contains("first applet of publisher `Acme Ltd`"), "{}", told.err);
        let refused = add(scratch, &second, &[]);
        assert_eq!(refused.status, 125, "{}", refused.err);
        for words in [
            "belongs to application `guestbook` of publisher `Acme Ltd`",
            "this applet is the unsigned program",
            "holdfast heap adopt book --by APPLET",
        ] {
            assert!(refused.err.contains(words), "{words}: {}", refused.err);
        }
        sign(scratch, &second, &acme);
        let told = add(scratch, &second, &[]);
        assert_eq!((told.status, told.err.as_str()), (0, ""));
        let shown = succeed(scratch.holdfast().args(["heap", "show", "book"]));
        assert!(
            shown.contains("owner       application `guestbook` of publisher `Acme"),
            "{shown}"
        );
        // Whoever the applets are, the user's own commands work.
        for command in
            [&["limit", "book", "80MiB"][..], &["snapshot", "book", "now"], &["rm", "book"]]
        {
            succeed(scratch.holdfast().arg("heap").args(command));
        }
        succeed(scratch.holdfast().args(["heap", "restore", "book", "now"]));
    });
}

/// Two publishers with one name: the second is refused until the user decides.
///
/// Guarantee: applets/identities
#[test]
fn second_publisher_of_a_name_is_refused() {
    with_each(|scratch, copy| {
        let (one, two) = (copy(scratch, "1.applet", 1), copy(scratch, "2.applet", 2));
        sign(scratch, &one, &publisher(scratch, "Acme Ltd", "1.key"));
        sign(scratch, &two, &publisher(scratch, "Acme Ltd", "2.key"));
        assert_eq!(add(scratch, &one, &[]).status, 0);
        let refused = add(scratch, &two, &[]);
        assert_eq!(refused.status, 125, "{}", refused.err);
        assert!(refused.err.contains("holdfast publisher rm Acme Ltd"), "{}", refused.err);
        succeed(scratch.holdfast().args(["publisher", "rm", "Acme", "Ltd"]));
        // Still another one than the heap's, and known from its own heap on.
        let other = add(scratch, &two, &[]);
        assert!(
            other.status == 125 && other.err.contains("belongs to application"),
            "{}",
            other.err
        );
        let mut own = scratch.holdfast();
        own.arg("run").arg(&two).args(["--heap", "own", "--", "add", "an entry"]);
        let told = tell(own.env("LC_ALL", "C"));
        assert!(told.status == 0 && told.err.contains("first applet of"), "{}", told.err);
        let listed = succeed(scratch.holdfast().args(["publisher", "ls", "--json"]));
        let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
        let key = listed[0]["key"].as_str().unwrap().to_owned();
        let again =
            tell(scratch.holdfast().args(["publisher", "add", "ed25519", &key, "Acme", "Ltd"]));
        assert_eq!((again.status, again.out.as_str()), (0, "Acme Ltd: known already\n"));
        let similar = copy(scratch, "3.applet", 3);
        sign(scratch, &similar, &publisher(scratch, "ACME-LTD", "3.key"));
        let refused = add(scratch, &similar, &[]);
        assert!(refused.err.contains("looks like `Acme Ltd`"), "{}", refused.err);
        assert!(refused.err.contains("holdfast publisher add ed25519 "), "{}", refused.err);
    });
}

/// A forged identity is no identity: the applet does not start.
///
/// Guarantee: applets/identities
#[test]
fn applet_with_a_forged_signature_does_not_start() {
    with_each(|scratch, copy| {
        let applet = copy(scratch, "1.applet", 1);
        let bare = fs::read(&applet).unwrap();
        sign(scratch, &applet, &publisher(scratch, "Acme Ltd", "acme.key"));
        let signature = fs::read(&applet).unwrap()[bare.len()..].to_vec();
        assert_eq!(add(scratch, &applet, &[]).status, 0);
        let other = copy(scratch, "2.applet", 2);
        let mut forged = fs::read(&other).unwrap();
        forged.extend(signature);
        fs::write(&other, forged).unwrap();
        let told = add(scratch, &other, &[]);
        assert_eq!(told.status, 126, "{}", told.err);
        assert!(told.err.contains("forged"), "{}", told.err);
        let shown = tell(scratch.holdfast().arg("identity").arg(&other));
        assert_eq!(shown.status, 5, "{}", shown.err);
    });
}

/// A name from the host outlives the code, and an explicit key goes before everything.
///
/// Guarantee: applets/identities
#[test]
fn named_applet_keeps_its_heap_when_its_code_changes() {
    with_each(|scratch, copy| {
        let (one, two) = (copy(scratch, "1.applet", 1), copy(scratch, "2.applet", 2));
        assert_eq!(add(scratch, &one, &["--app", "https://example.org"]).status, 0);
        assert_eq!(add(scratch, &two, &["--app", "https://example.org"]).status, 0);
        let refused = add(scratch, &two, &["--app", "https://example.com"]);
        assert!(refused.err.contains("names `https://example.org`"), "{}", refused.err);
        assert_eq!(add(scratch, &two, &["--app", "x", "--key", "y"]).status, 2);
        let words = succeed(scratch.holdfast().arg("identity").arg(&one).args(["--app", "notes"]));
        assert!(
            words.starts_with("the applet that its host names `notes`\nkey: named-notes-"),
            "{words}"
        );
        // A grant to a named key is used as it is named.
        succeed(scratch.holdfast().args(["heap", "grant", "book", "--to", "reader", "--rw"]));
        assert_eq!(add(scratch, &one, &["--key", "reader"]).status, 0);
    });
}

/// Heaps of the time when all applets had one key open with a note, until they are handed over.
///
/// Guarantee: applets/identities
#[test]
fn heap_of_the_old_default_key_opens_until_it_is_handed_over() {
    let scratch = scratch();
    let (one, two) = (copy(&scratch, "1.applet", 1), copy(&scratch, "2.applet", 2));
    assert_eq!(add(&scratch, &one, &["--key", "default"]).status, 0);
    for applet in [&one, &two] {
        let told = add(&scratch, applet, &[]);
        assert_eq!(told.status, 0, "{}", told.err);
        assert!(told.err.contains("holdfast heap adopt book --by "), "{}", told.err);
    }
    let mut adopt = scratch.holdfast();
    let said = succeed(adopt.args(["heap", "adopt", "book", "--by"]).arg(&two));
    assert!(said.starts_with("book: handed over to the unsigned program"), "{said}");
    assert_eq!((add(&scratch, &two, &[]).status, add(&scratch, &one, &[]).status), (0, 125));
    let told = tell(scratch.holdfast().args(["heap", "adopt", "missing", "--by"]).arg(&two));
    assert_eq!(told.status, 3, "{}", told.err);
}

/// What an applet had by a hand-over is not open to all when it is taken back, nor when the heap
/// was removed and restored; only the explicit command opens it.
///
/// Guarantee: applets/closed-heaps
#[test]
fn revoked_hand_over_leaves_the_heap_closed() {
    let scratch = scratch();
    let (one, two) = (copy(&scratch, "1.applet", 1), copy(&scratch, "2.applet", 2));
    assert_eq!(add(&scratch, &one, &["--key", "default"]).status, 0);
    let heap = |arguments: &[&str]| succeed(scratch.holdfast().arg("heap").args(arguments));
    let own = succeed(scratch.holdfast().arg("identity").arg(&one).arg("--json"));
    let own: serde_json::Value = serde_json::from_str(&own).unwrap();
    let own = own["key"].as_str().unwrap();
    let statuses = || [add(&scratch, &one, &[]).status, add(&scratch, &two, &[]).status];
    let adopt = || {
        let mut adopt = scratch.holdfast();
        succeed(adopt.args(["heap", "adopt", "book", "--by"]).arg(&one));
        assert_eq!(statuses(), [0, 125]);
    };
    adopt();
    let said = heap(&["revoke", "book", "--from", own]);
    assert!(said.contains("may do nothing from the next opening on"), "{said}");
    assert_eq!(statuses(), [125, 125]);
    adopt();
    heap(&["snapshot", "book", "now"]);
    heap(&["rm", "book"]);
    heap(&["restore", "book", "now"]);
    assert_eq!(statuses(), [125, 125]);
    adopt();
    let refused = tell(scratch.holdfast().args(["heap", "grant", "book", "--every-applet"]));
    assert!(refused.status == 8 && refused.err.contains("revoke book --all"), "{}", refused.err);
    heap(&["revoke", "book", "--all"]);
    assert_eq!(statuses(), [125, 125]);
    heap(&["grant", "book", "--every-applet"]);
    assert_eq!(statuses(), [0, 0]);
    // A grant for reading closes it as well, and says so.
    let said = heap(&["grant", "book", "--to", own]);
    assert!(said.ends_with("applets without a grant may no longer use it\n"), "{said}");
    assert_eq!(add(&scratch, &two, &[]).status, 125);
    heap(&["revoke", "book", "--from", own]);
    assert_eq!(statuses(), [125, 125]);
    heap(&["grant", "book", "--every-applet"]);
    heap(&["revoke", "book", "--every-applet"]);
    assert_eq!(statuses(), [125, 125]);
}

/// A grant to a key that is no applet's closes nothing, and taking it back says what stays.
///
/// Guarantee: applets/closed-heaps
#[test]
fn revoked_key_tells_that_applets_still_may() {
    let scratch = scratch();
    let one = copy(&scratch, "1.applet", 1);
    assert_eq!(add(&scratch, &one, &["--key", "default"]).status, 0);
    succeed(scratch.holdfast().args(["heap", "grant", "book", "--to", "reader"]));
    let told = tell(scratch.holdfast().args(["heap", "revoke", "book", "--from", "reader"]));
    assert_eq!(told.status, 0, "{}", told.err);
    assert!(told.err.contains("holdfast heap revoke book --every-applet"), "{}", told.err);
    assert_eq!(add(&scratch, &one, &[]).status, 0);
}

/// An applet that is refused its heap does not take its publisher's name.
///
/// Guarantee: applets/identities
#[test]
fn refused_applet_records_no_publisher() {
    let scratch = scratch();
    let (one, two) = (copy(&scratch, "1.applet", 1), copy(&scratch, "2.applet", 2));
    assert_eq!(add(&scratch, &one, &[]).status, 0);
    sign(&scratch, &two, &publisher(&scratch, "Acme Ltd", "1.key"));
    // One of its two heaps would be new.
    let refused = add(&scratch, &two, &["--heap", "other"]);
    assert_eq!(refused.status, 125, "{}", refused.err);
    let refused = add(&scratch, &two, &["--heap", "missing:ro"]);
    assert_eq!(refused.status, 125, "{}", refused.err);
    assert_eq!(succeed(scratch.holdfast().args(["publisher", "ls", "--json"])).trim(), "[]");
    assert_eq!(tell(scratch.holdfast().args(["heap", "show", "other"])).status, 3);
}

/// What the note advises hands the heap to the applet that ran, under the name that it had, from a
/// directory with any name.
///
/// Guarantee: applets/identities
#[test]
fn advised_command_hands_the_heap_to_this_applet() {
    let scratch = scratch();
    let directory = scratch.files().join("it's; a 'test'");
    fs::create_dir(&directory).unwrap();
    let one = copy(&scratch, "it's; a 'test'/1.applet", 1);
    assert_eq!(add(&scratch, &one, &["--key", "default"]).status, 0);
    let options = ["--app", "https://example.org/[a]~b"];
    let told = add(&scratch, &one, &options);
    let (start, end) =
        (told.err.find("`holdfast heap adopt").unwrap(), told.err.rfind('`').unwrap());
    let command = &told.err[start + 1..end];
    let program = scratch.programs().holdfast().to_str().unwrap();
    let mut shell = Command::new("/bin/sh");
    shell.env("HOLDFAST_HOME", scratch.home()).env("HOLDFAST_POOL", scratch.pool());
    succeed(shell.arg("-c").arg(command.replacen("holdfast", program, 1)));
    let told = add(&scratch, &one, &options);
    assert_eq!((told.status, told.err.as_str()), (0, ""));
    assert_eq!(add(&scratch, &one, &[]).status, 125);
}

/// A signature that is not good gets no heap, under whatever key.
///
/// Guarantee: applets/identities
#[test]
fn forged_signature_gets_no_heap_of_a_named_key() {
    with_each(|scratch, copy| {
        let one = copy(scratch, "1.applet", 1);
        sign(scratch, &one, &publisher(scratch, "Acme Ltd", "acme.key"));
        for options in [&["--key", "mine"][..], &["--compartment", "worker"]] {
            let told = add(scratch, &one, options);
            assert_eq!(told.status, 0, "{}", told.err);
            succeed(scratch.holdfast().args(["heap", "rm", "book", "--compartments"]).args(
                match options[0] {
                    "--key" => options,
                    _ => &[],
                },
            ));
        }
        let mut forged = fs::read(&one).unwrap();
        let len = forged.len();
        forged[len - 100] ^= 1;
        fs::write(&one, forged).unwrap();
        for options in [&["--key", "mine"][..], &["--compartment", "worker"], &[]] {
            let told = add(scratch, &one, options);
            assert_eq!(told.status, 126, "{options:?}: {}", told.err);
            assert_eq!(tell(scratch.holdfast().args(["heap", "show", "book"])).status, 3);
        }
    });
}

/// A copy is open to no applet that the heap was closed to, and what every applet may use is told.
///
/// Guarantee: applets/closed-heaps
#[test]
fn copy_of_a_private_heap_is_private() {
    let scratch = scratch();
    let (one, two) = (copy(&scratch, "1.applet", 1), copy(&scratch, "2.applet", 2));
    let heap = |arguments: &[&str]| {
        let told = tell(scratch.holdfast().arg("heap").args(arguments));
        assert_eq!(told.status, 0, "{}", told.err);
        told.err
    };
    let run = |applet: &Path, name: &str| {
        let mut run = scratch.holdfast();
        run.arg("run").arg(applet).args(["--heap", name, "--", "add", "an entry"]);
        tell(run.env("LC_ALL", "C")).status
    };
    assert_eq!(run(&one, "book"), 0);
    assert_eq!(heap(&["cp", "book", "copy"]), "");
    assert_eq!([run(&one, "copy"), run(&two, "copy")], [0, 125]);
    // One that was handed over: the copy is that applet's.
    let mut add = scratch.holdfast();
    add.arg("run").arg(&one).args(["--heap", "old", "--key", "default", "--", "add", "an entry"]);
    succeed(&mut add);
    let noted = heap(&["cp", "old", "everyones"]);
    assert!(noted.contains("every applet may use everyones"), "{noted}");
    assert_eq!([run(&one, "everyones"), run(&two, "everyones")], [0, 0]);
    succeed(scratch.holdfast().args(["heap", "adopt", "old", "--by"]).arg(&two));
    assert_eq!(heap(&["cp", "old", "its"]), "");
    assert_eq!([run(&one, "its"), run(&two, "its")], [125, 0]);
    heap(&["revoke", "old", "--all"]);
    let refused = tell(scratch.holdfast().args(["heap", "cp", "old", "nobodys"]));
    assert!(refused.status == 2 && refused.err.contains("--key"), "{}", refused.err);
    assert_eq!(heap(&["cp", "old", "mine", "--key", "default"]), "");
    // A key that a user named stays the key.
    let mut add = scratch.holdfast();
    add.arg("run").arg(&one).args(["--heap", "named", "--key", "alice", "--", "add", "an entry"]);
    succeed(&mut add);
    assert_eq!(heap(&["cp", "named", "named-copy"]), "");
    assert_eq!(run(&one, "named-copy"), 125);
    // What comes from elsewhere says whose it is.
    let file = scratch.files().join("book.holdfast");
    let file = file.to_str().unwrap();
    heap(&["export", "book", file]);
    let noted = heap(&["import", file, "imported"]);
    assert!(noted.contains("every applet may use imported"), "{noted}");
    assert_eq!(heap(&["import", file, "private", "--key", "alice"]), "");
    let shown = succeed(scratch.holdfast().args(["heap", "show", "book", "--json"]));
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    let image = shown["image"]["path"].as_str().unwrap().to_owned();
    let noted = heap(&["salvage", &image, "--to", "saved"]);
    assert!(noted.contains("every applet may use saved"), "{noted}");
    assert_eq!([run(&one, "saved"), run(&two, "saved")], [0, 0]);
}
