//! Keys, grants and compartments at the command line.

use std::path::PathBuf;
use std::process::Command;

use holdfast_testkit::Scratch;

use crate::guestbook::{key_file, with_two_entries};
use crate::{scratch, succeed, tell, victim};

fn heap(scratch: &Scratch, arguments: &[&str]) -> Command {
    let mut command = scratch.holdfast();
    command.arg("heap").args(arguments);
    command
}

fn guestbook(scratch: &Scratch, options: &[&str], arguments: &[&str]) -> Command {
    let mut command = scratch.holdfast();
    command.arg("run").arg(scratch.programs().applet("guestbook").unwrap());
    command.args(options).arg("--").args(arguments);
    command
}

const AS_GUEST: [&str; 4] = ["--heap", "book", "--key", "guest"];

/// A heap is shared for reading, then for writing, then not at all.
#[test]
fn heap_grants_read_then_write_then_nothing() {
    let scratch = with_two_entries();
    let refused = tell(&mut guestbook(&scratch, &AS_GUEST, &["list"]));
    assert_eq!(refused.status, 125);
    assert!(
        refused.err.contains("holdfast heap grant book --to KEY") && !refused.out.contains("Ada"),
        "{}",
        refused.err
    );

    let said = succeed(&mut heap(&scratch, &["grant", "book", "--to", "guest"]));
    assert_eq!(said, "book: guest may read it\n");
    assert!(succeed(&mut guestbook(&scratch, &AS_GUEST, &["list"])).contains("2 entries"));
    // The C library answers with an error where it would have to store.
    let told = tell(&mut guestbook(&scratch, &AS_GUEST, &["add", "me too"]));
    assert_eq!(told.status, 1);
    assert!(told.err.contains("may only be read by this run"), "{}", told.err);
    for refused in [
        vec!["checkpoint", "book", "--key", "guest"],
        vec!["rm", "book", "--key", "guest"],
        vec!["grants", "book", "--key", "guest"],
    ] {
        assert_eq!(tell(&mut heap(&scratch, &refused)).status, 8, "{refused:?}");
    }

    let nothing = ["grant", "book", "--to", "guest", "--rw", "--quota", "0"];
    assert_eq!(tell(&mut heap(&scratch, &nothing)).status, 2);
    succeed(&mut heap(&scratch, &["grant", "book", "--to", "guest", "--rw", "--quota", "16MiB"]));
    assert!(succeed(&mut guestbook(&scratch, &AS_GUEST, &["add", "me too"])).contains("entry 3"));
    let listed = succeed(&mut heap(&scratch, &["grants", "book"]));
    assert!(
        listed.lines().nth(1).is_some_and(|row| row.starts_with("guest  rw      16.0 MiB  ")),
        "{listed}"
    );
    let listed = succeed(&mut heap(&scratch, &["grants", "book", "--json"]));
    for part in ["\"key\": \"guest\"", "\"rights\": \"rw\"", "\"quota_bytes\": 16777216"] {
        assert!(listed.contains(part), "{listed}");
    }

    succeed(&mut heap(&scratch, &["revoke", "book", "--from", "guest"]));
    assert_eq!(tell(&mut guestbook(&scratch, &AS_GUEST, &["list"])).status, 125);
    let nothing = tell(&mut heap(&scratch, &["revoke", "book", "--from", "guest"]));
    assert!(
        nothing.status == 3 && nothing.err.contains("holdfast heap grants book"),
        "{}",
        nothing.err
    );
    assert!(
        succeed(&mut guestbook(&scratch, &["--heap", "book"], &["list"])).contains("3 entries")
    );
}

/// A mistyped key is refused with near names; only commands that create something create a key.
///
/// Guarantee: heap/keys
#[test]
fn mistyped_key_gives_near_names_and_creates_none() {
    let scratch = with_two_entries();
    let key_files = || {
        let files = std::fs::read_dir(scratch.home().join("keys")).unwrap();
        let names = files.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.ends_with(".key")).count()
    };
    succeed(&mut heap(&scratch, &["grant", "book", "--to", "reader"]));
    let commands: [&[&str]; 8] = [
        &["rm", "book"],
        &["checkpoint", "book"],
        &["backing", "book", "file"],
        &["limit", "book", "1GiB"],
        &["snapshot", "book", "now"],
        &["repair", "book"],
        &["grants", "book"],
        &["restore", "book", "now"],
    ];
    for command in commands {
        let told = tell(heap(&scratch, command).args(["--key", "raeder"]));
        assert_eq!(told.status, 3, "{command:?}: {}", told.err);
        assert!(
            told.err.contains("near names: reader") && told.err.contains("heap keys"),
            "{}",
            told.err
        );
    }
    let told = tell(&mut guestbook(&scratch, &["--heap", "book", "--key", "raeder"], &["list"]));
    assert!(told.status == 125 && told.err.contains("near names: reader"), "{}", told.err);
    assert_eq!(tell(heap(&scratch, &["rm", "nothing"]).args(["--key", "raeder"])).status, 3);
    assert_eq!(tell(heap(&scratch, &["rm", "book"]).args(["--key", "../x"])).status, 2);
    assert_eq!(key_files(), 2);

    let told =
        tell(&mut guestbook(&scratch, &["--heap", "new", "--key", "writer"], &["add", "mine"]));
    assert!(told.status == 0 && told.err.contains("no key writer; it is made now"), "{}", told.err);
    let listed = succeed(&mut heap(&scratch, &["keys"]));
    let rows: Vec<Vec<_>> =
        listed.lines().skip(1).map(|row| row.split_whitespace().collect()).collect();
    let own = key_file(&scratch);
    assert_eq!(
        rows.iter().map(|row| [row[0], row[2]]).collect::<Vec<_>>(),
        [[own.file_stem().unwrap().to_str().unwrap(), "book"], ["reader", "-"], ["writer", "new"]]
    );
    let listed: serde_json::Value =
        serde_json::from_str(&succeed(&mut heap(&scratch, &["keys", "--json"]))).unwrap();
    assert_eq!(
        (&listed[2]["owns"][0], listed[1]["fingerprint"].as_str().unwrap().len()),
        (&"new".into(), 64)
    );
}

/// A command that makes a heap makes no key where the heap cannot be made.
///
/// Guarantee: heap/keys
#[test]
fn refused_copy_or_import_makes_no_key() {
    let scratch = with_two_entries();
    let stream = scratch.files().join("book.holdfast");
    let (stream, image) = (stream.to_str().unwrap(), scratch.image("book"));
    let image = image.to_str().unwrap();
    succeed(&mut heap(&scratch, &["export", "book", stream]));
    let refused: [(&[&str], i32); 5] = [
        (&["cp", "bok", "new"], 3),
        (&["cp", "book", "book"], 2),
        (&["import", "no-such-file", "new"], 3),
        (&["import", stream, "book"], 2),
        (&["salvage", image, "--to", "book"], 2),
    ];
    let key_file = scratch.home().join("keys/raeder.key");
    for (command, status) in refused {
        let told = tell(heap(&scratch, command).args(["--key", "raeder"]));
        assert_eq!(told.status, status, "{command:?}: {}", told.err);
        assert!(!told.err.contains("it is made now"), "{command:?}: {}", told.err);
        assert!(!key_file.exists(), "{command:?}");
    }
    succeed(heap(&scratch, &["import", stream, "new"]).args(["--key", "raeder"]));
    assert!(key_file.exists());
}

/// A heap whose key is lost can be copied to a heap of another key.
#[test]
fn heap_with_a_lost_key_is_copied_to_another() {
    let scratch = with_two_entries();
    std::fs::remove_file(key_file(&scratch)).unwrap();
    let told = tell(&mut heap(&scratch, &["rm", "book"]));
    assert!(told.status == 3 && told.err.contains("heap cp"), "{}", told.err);
    succeed(&mut heap(&scratch, &["cp", "book", "mine", "--key", "me"]));
    let list = succeed(&mut guestbook(&scratch, &["--heap", "mine", "--key", "me"], &["list"]));
    assert!(list.contains("2 entries"), "{list}");
}

/// A damaged access table admits only the owner, and the suggested remedy works.
///
/// Guarantee: heap/grants
#[test]
fn damaged_access_table_admits_only_the_owner() {
    let scratch = with_two_entries();
    succeed(&mut heap(&scratch, &["grant", "book", "--to", "guest"]));
    let table: PathBuf = scratch.home().join("store/book.grants");
    let mut bytes = std::fs::read(&table).unwrap();
    bytes[70] ^= 1;
    std::fs::write(&table, bytes).unwrap();
    assert!(tell(&mut guestbook(&scratch, &AS_GUEST, &["list"])).err.contains("is damaged"));
    let told = tell(&mut heap(&scratch, &["grants", "book"]));
    assert!(
        told.status == 5 && told.err.contains("holdfast heap revoke book --all"),
        "{}",
        told.err
    );
    succeed(&mut guestbook(&scratch, &["--heap", "book"], &["list"]));
    succeed(&mut heap(&scratch, &["revoke", "book", "--all"]));
    succeed(&mut heap(&scratch, &["grant", "book", "--to", "guest"]));
    succeed(&mut guestbook(&scratch, &AS_GUEST, &["list"]));
}

/// A store to a read-only heap traps with the cause.
#[test]
fn applet_store_to_a_read_only_heap_traps() {
    let scratch = with_two_entries();
    succeed(&mut heap(&scratch, &["grant", "book", "--to", "guest"]));
    let mut run = scratch.holdfast();
    let told = tell(run.arg("run").arg(victim("stores_to_its_heap")).args(AS_GUEST));
    assert_eq!(told.status, 134, "{}", told.err);
    assert!(told.err.contains("`scribble`") && told.err.contains("may only read"), "{}", told.err);
    assert!(succeed(&mut guestbook(&scratch, &AS_GUEST, &["list"])).contains("2 entries"));
}

/// Workers have compartments, which are listed and removed with their heap.
#[test]
fn worker_compartments_go_with_their_heap() {
    let scratch = scratch();
    for (worker, entry) in [("w1", "one"), ("w2", "two")] {
        let options = ["--heap", "jobs", "--compartment", worker];
        succeed(&mut guestbook(&scratch, &options, &["add", entry]));
        let list = succeed(&mut guestbook(&scratch, &options, &["list"]));
        assert!(list.contains(entry) && list.contains("1 entry"), "{list}");
    }
    let listed = succeed(&mut heap(&scratch, &["ls"]));
    let names: Vec<_> = listed.lines().skip(1).filter_map(|row| row.split(' ').next()).collect();
    assert_eq!(names, ["jobs", "jobs+w1", "jobs+w2"]);
    assert!(
        succeed(&mut heap(&scratch, &["show", "jobs"]))
            .contains("workers     jobs+w1 (4.0 MiB of at most 8.0 MiB)")
    );
    succeed(&mut heap(&scratch, &["check", "jobs+w1", "jobs+w2"]));
    // A compartment can be named neither as a heap nor as something to share.
    assert_eq!(tell(&mut guestbook(&scratch, &["--heap", "jobs+w1"], &["list"])).status, 2);
    assert_eq!(tell(&mut heap(&scratch, &["grant", "jobs+w1", "--to", "guest"])).status, 2);
    let other = ["--heap", "jobs", "--compartment", "w1", "--key", "guest"];
    assert_eq!(tell(&mut guestbook(&scratch, &other, &["list"])).status, 125);
    let refused = tell(&mut heap(&scratch, &["rm", "jobs"]));
    assert!(
        refused.status == 2 && refused.err.contains("holdfast heap rm --compartments jobs"),
        "{}",
        refused.err
    );
    succeed(&mut heap(&scratch, &["rm", "jobs+w1"]));
    succeed(&mut heap(&scratch, &["rm", "--compartments", "jobs"]));
    assert_eq!(succeed(&mut heap(&scratch, &["ls"])).lines().count(), 1);
}

/// The repair that a check proposes for a compartment is a command that mends it.
///
/// Guarantee: heap/repair
#[test]
fn damaged_compartment_is_repaired() {
    let scratch = scratch();
    let options = ["--heap", "jobs", "--compartment", "w1"];
    succeed(&mut guestbook(&scratch, &options, &["add", "one"]));
    let path = scratch.image("jobs+w1");
    let mut image = std::fs::read(&path).unwrap();
    // The descriptor of the first slab.
    image[(2 << 20) + 2048] ^= 0x10;
    std::fs::write(&path, image).unwrap();
    let checked = tell(&mut heap(&scratch, &["check", "jobs+w1"]));
    assert_eq!(checked.status, 1, "{}{}", checked.out, checked.err);
    let proposal = "`holdfast heap repair jobs+w1` mends it, and nothing is lost";
    assert!(checked.out.contains(proposal), "{}", checked.out);
    let repaired = succeed(&mut heap(&scratch, &["repair", "jobs+w1"]));
    assert!(repaired.contains("mended: "), "{repaired}");
    succeed(&mut heap(&scratch, &["check", "jobs", "jobs+w1"]));
    let list = succeed(&mut guestbook(&scratch, &options, &["list"]));
    assert!(list.contains("one") && list.contains("1 entry"), "{list}");
}

/// A run that has no chance leaves neither a compartment nor the heap that it made for it, so that
/// the command line works once it is mended.
///
/// Guarantee: heap/compartments
#[test]
fn failed_run_leaves_no_heap_of_its_compartment() {
    let scratch = scratch();
    let part = ["--heap", "jobs", "--compartment", "w1", "--quota", "32MiB"];
    let assert_nothing_left =
        || assert_eq!(succeed(&mut heap(&scratch, &["ls", "--json"])).trim(), "[]");
    let small = [&part[..], &["--heap-size", "16MiB"]].concat();
    let refused = tell(&mut guestbook(&scratch, &small, &["list"]));
    assert_eq!(refused.status, 125, "{}", refused.err);
    assert_nothing_left();
    let mut run = scratch.holdfast();
    let told = tell(run.arg("run").arg(victim("calls_an_import_that_nobody_has")).args(part));
    assert_eq!(told.status, 126, "{}", told.err);
    assert_nothing_left();

    let large = [&part[..], &["--heap-size", "48MiB"]].concat();
    succeed(&mut guestbook(&scratch, &large, &["add", "one"]));
    let shown = succeed(&mut heap(&scratch, &["show", "jobs"]));
    assert!(shown.contains("4.0 MiB of at most 48.0 MiB"), "{shown}");
}

/// Threads of an applet have compartments besides the heap, which are listed below it; a run that
/// has no chance leaves none behind.
///
/// Guarantee: applets/compartments
#[test]
fn threads_have_compartments_besides_the_heap() {
    let scratch = scratch();
    let names = |scratch: &Scratch| -> Vec<String> {
        let listed = succeed(&mut heap(scratch, &["ls"]));
        listed.lines().skip(1).filter_map(|row| row.split(' ').next().map(str::to_owned)).collect()
    };
    for (options, status, words) in [
        (vec!["--heap", "jobs", "--compartments", "2"], 2, "one thread"),
        (vec!["--heap", "jobs", "--compartments", "1", "--atomic"], 2, "--atomic"),
        (vec!["--heap", "jobs", "--compartments", "1", "--compartment", "w"], 2, "cannot be used"),
        (vec!["--compartments", "1"], 2, "--heap"),
        (vec!["--heap", "jobs", "--compartments", "16"], 2, "1..=15"),
    ] {
        let refused = tell(&mut guestbook(&scratch, &options, &["list"]));
        assert!(refused.status == status && refused.err.contains(words), "{}", refused.err);
        assert!(names(&scratch).is_empty());
    }
    let too_large =
        ["--heap", "jobs", "--heap-size", "16MiB", "--compartments", "1", "--quota", "32MiB"];
    assert_ne!(tell(&mut guestbook(&scratch, &too_large, &["list"])).status, 0);
    assert!(names(&scratch).is_empty());
    let options = ["--heap", "jobs", "--compartments", "1", "--quota", "4MiB"];
    succeed(&mut guestbook(&scratch, &options, &["add", "to the heap"]));
    assert_eq!(names(&scratch), ["jobs", "jobs+thread-1"]);
    let list = succeed(&mut guestbook(&scratch, &["--heap", "jobs"], &["list"]));
    assert!(list.contains("to the heap"), "{list}");
}
