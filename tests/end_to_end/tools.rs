//! Snapshots, copies, streams, limits, statistics and maps at the command line: what a person gets
//! to see, the exit codes, and that the entries of a guest book are there afterwards.

use std::fs;
use std::process::{Command, Stdio};

use holdfast_testkit::Scratch;

use crate::guestbook::{assert_both_entries, with_two_entries};
use crate::{Finished, succeed, tell, victim};

fn heap(scratch: &Scratch, arguments: &[&str]) -> Command {
    let mut command = scratch.holdfast();
    command.arg("heap").args(arguments);
    command
}

/// The command fails with this exit code, and its message has the words.
fn assert_fails(scratch: &Scratch, arguments: &[&str], status: i32, words: &[&str]) -> Finished {
    let told = tell(&mut heap(scratch, arguments));
    assert_eq!(told.status, status, "{arguments:?}: {}{}", told.out, told.err);
    for word in words {
        assert!(told.err.contains(word), "{arguments:?}: no {word:?} in: {}", told.err);
    }
    told
}

fn add(scratch: &Scratch, entry: &str) {
    let applet = scratch.programs().applet("guestbook").unwrap();
    succeed(scratch.holdfast().arg("run").arg(applet).args(["--heap", "book", "--", "add", entry]));
}

#[test]
fn a_heap_goes_back_to_its_snapshot_and_forward_again() {
    let scratch = with_two_entries();
    succeed(&mut heap(&scratch, &["snapshot", "book", "two"]));
    assert!(succeed(&mut heap(&scratch, &["diff", "book", "two"])).contains("alike"));
    add(&scratch, "and Barbara");
    let differs = tell(&mut heap(&scratch, &["diff", "book", "two"]));
    assert_eq!((differs.status, differs.out.contains("pages")), (1, true), "{}", differs.out);
    let restored = succeed(&mut heap(&scratch, &["restore", "book", "two", "--json"]));
    assert_both_entries(&scratch);
    let kept: serde_json::Value = serde_json::from_str(&restored).unwrap();
    let kept = kept["kept"].as_str().unwrap();
    assert!(succeed(&mut heap(&scratch, &["snapshots", "book"])).contains(kept));
    succeed(&mut heap(&scratch, &["restore", "book", kept, "--discard"]));
    assert_eq!(tell(&mut heap(&scratch, &["diff", "book", kept])).status, 0);
    assert_eq!(tell(&mut heap(&scratch, &["diff", "book", "two", kept])).status, 1);
    succeed(&mut heap(&scratch, &["rm", "--snapshot", kept, "book"]));
    assert_fails(&scratch, &["restore", "book", kept], 3, &["two"]);
    assert_fails(&scratch, &["snapshot", "book", "two"], 2, &["heap rm --snapshot two book"]);
    assert_fails(&scratch, &["snapshot", "bok", "two"], 3, &["book"]);
    succeed(&mut heap(&scratch, &["cp", "book", "theirs", "--key", "stranger"]));
    assert_fails(
        &scratch,
        &["restore", "book", "two", "--key", "stranger"],
        8,
        &["another key", "heap cp book NEW"],
    );
}

#[test]
fn a_removed_heap_comes_back_from_its_snapshot() {
    let scratch = with_two_entries();
    succeed(&mut heap(&scratch, &["snapshot", "book", "two"]));
    let removed = tell(&mut heap(&scratch, &["rm", "book"]));
    assert!(removed.err.contains("heap snapshots book"), "{}", removed.err);
    succeed(&mut heap(&scratch, &["restore", "book", "two"]));
    assert_both_entries(&scratch);
}

/// An import through a pipe creates the same heap, and a broken stream creates none.
#[test]
fn import_from_a_pipe_is_equal_or_nothing() {
    let scratch = with_two_entries();
    let file = scratch.files().join("book.holdfast");
    let path = file.to_str().unwrap();
    succeed(&mut heap(&scratch, &["export", "book", path]));
    assert_fails(&scratch, &["export", "book", path], 2, &["another name"]);
    assert_fails(&scratch, &["import", path, "book"], 2, &["exists"]);
    let mut stream = fs::read(&file).unwrap();
    let mut piped = heap(&scratch, &["export", "book"]);
    assert!(piped.output().unwrap().stdout == stream);
    succeed(&mut heap(&scratch, &["rm", "book"]));
    let mut import = heap(&scratch, &["import", "-", "book"]);
    succeed(import.stdin(Stdio::from(fs::File::open(&file).unwrap())));
    assert_both_entries(&scratch);
    *stream.last_mut().unwrap() ^= 1;
    fs::write(&file, &stream).unwrap();
    assert_fails(&scratch, &["import", path, "second"], 5, &["damaged"]);
    fs::write(&file, &stream[..stream.len() / 2]).unwrap();
    assert_fails(&scratch, &["import", path, "second"], 5, &["cut off"]);
    fs::write(&file, "Dear diary, today").unwrap();
    assert_fails(&scratch, &["import", path, "second"], 5, &["no exported heap"]);
    assert_fails(&scratch, &["import", "no-such-file", "second"], 3, &["no-such-file"]);
    assert_fails(&scratch, &["show", "second"], 3, &[]);
}

/// An export that is killed leaves no file under its final name.
///
/// Guarantee: heap/messages
#[test]
fn killed_export_leaves_no_named_file() {
    let scratch = with_two_entries();
    let file = scratch.files().join("book.holdfast");
    // The kernel kills a process that writes more than a block to a file.
    let script = r#"ulimit -f 1; "$HOLDFAST" heap export book "$FILE"; echo "ended: $?""#;
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).env("HOLDFAST", scratch.programs().holdfast()).env("FILE", &file);
    shell.env("HOLDFAST_HOME", scratch.home()).env("HOLDFAST_POOL", scratch.pool());
    let told = succeed(&mut shell);
    assert!(told.contains("ended: 153"), "128 and SIGXFSZ: {told}");
    assert!(!file.exists());
    succeed(&mut heap(&scratch, &["export", "book", file.to_str().unwrap()]));
    succeed(&mut heap(&scratch, &["import", file.to_str().unwrap(), "second"]));
}

/// A heap that cannot be written does not keep the others from a checkpoint.
#[test]
fn one_failed_checkpoint_does_not_stop_the_others() {
    let scratch = with_two_entries();
    let told = assert_fails(&scratch, &["checkpoint", "bok", "book"], 3, &["near names: book"]);
    assert!(told.out.starts_with("book: "), "{}", told.out);
}

#[test]
fn a_copy_is_a_heap_of_its_own() {
    let scratch = with_two_entries();
    succeed(&mut heap(&scratch, &["cp", "book", "original"]));
    add(&scratch, "and Barbara");
    succeed(&mut heap(&scratch, &["rm", "book"]));
    succeed(&mut heap(&scratch, &["cp", "original", "book"]));
    assert_both_entries(&scratch);
    assert_fails(&scratch, &["cp", "original", "book"], 2, &["exists"]);
    assert_fails(&scratch, &["cp", "orginal", "third"], 3, &["original"]);
}

#[test]
fn a_limit_lets_a_heap_grow_that_had_met_it() {
    let scratch = with_two_entries();
    let grow = || {
        tell(
            scratch
                .holdfast()
                .arg("run")
                .arg(victim("grows_its_heap_without_end"))
                .args(["--heap", "g"]),
        )
    };
    assert_eq!(grow().status, 42, "40 and the code for the limit");
    let size = |scratch: &Scratch| {
        let shown = succeed(&mut heap(scratch, &["show", "g", "--json"]));
        serde_json::from_str::<serde_json::Value>(&shown).unwrap()["backed_bytes"].as_u64().unwrap()
    };
    assert_eq!(size(&scratch), 64 << 20);
    succeed(&mut heap(&scratch, &["limit", "g", "72MiB"]));
    assert_eq!(grow().status, 42);
    assert_eq!(size(&scratch), 72 << 20);
    assert_fails(&scratch, &["limit", "g", "8MiB"], 2, &["larger"]);
    assert_fails(&scratch, &["limit", "g", "8 apples"], 2, &["64MiB"]);
    assert_fails(&scratch, &["limit", "nobody", "8MiB"], 3, &["heap ls"]);
}

#[test]
fn statistics_add_up_to_the_size_of_the_heap() {
    let scratch = with_two_entries();
    let stats = succeed(&mut heap(&scratch, &["stats", "book", "--json"]));
    let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
    let bytes = |field: &str| stats[field].as_u64().unwrap();
    let parts = ["overhead_bytes", "small_object_bytes", "idle_slab_bytes", "large_object_bytes"];
    let rest = ["large_rounding_bytes", "free_bytes", "untouched_bytes"];
    let sum: u64 = parts.iter().chain(&rest).map(|field| bytes(field)).sum();
    assert_eq!(sum, bytes("backed_bytes"));
    assert!(bytes("small_objects") > 0 && stats["roots"][0]["name"] == "guestbook", "{stats}");
    assert!(succeed(&mut heap(&scratch, &["stats", "book"])).contains("idle in slabs"));
    assert_fails(&scratch, &["stats", "bok"], 3, &["book"]);
}

/// The map has a cell for every chunk and no colours outside a terminal.
#[test]
fn map_shows_every_chunk_without_stray_colours() {
    let scratch = with_two_entries();
    let map = succeed(&mut heap(&scratch, &["map", "book"]));
    let row = map.lines().next().unwrap().split_once("  ").unwrap().1.trim_start_matches(' ');
    let cells = row.rsplit(' ').next().unwrap();
    assert_eq!(cells.chars().count(), 64, "{map}");
    assert!(
        cells.starts_with("tl") && map.contains("small objects") && !map.contains('\x1b'),
        "{map}"
    );
    let described = json(&scratch, &["map", "book", "--json"]);
    let chunks = described["chunks"].as_array().unwrap();
    assert_eq!((described["chunk_bytes"].as_u64(), chunks.len()), (Some(64 << 10), 64));
    assert!(chunks[0]["kind"] == "table" && chunks[63]["offset"] == 63 << 16, "{described}");
    let picture = scratch.files().join("book.svg");
    succeed(&mut heap(&scratch, &["map", "book", "--svg", picture.to_str().unwrap()]));
    let svg = fs::read_to_string(&picture).unwrap();
    assert!(
        svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>") && svg.contains("64 KiB")
    );
    assert_fails(
        &scratch,
        &["map", "book", "--svg", picture.to_str().unwrap()],
        2,
        &["another name"],
    );
}

#[test]
fn a_damaged_image_is_salvaged_under_a_new_name() {
    let scratch = with_two_entries();
    let path = scratch.image("book");
    let image = path.to_str().unwrap();
    assert!(succeed(&mut heap(&scratch, &["salvage", image])).contains("guestbook"));
    let mut bytes = fs::read(&path).unwrap();
    for slot in [100, 4096 + 100] {
        bytes[slot] ^= 1;
    }
    fs::write(&path, &bytes).unwrap();
    assert_eq!(tell(&mut heap(&scratch, &["check", "book"])).status, 5);
    let told = tell(&mut heap(&scratch, &["salvage", image, "--to", "saved"]));
    assert_eq!(told.status, 1, "{}{}", told.out, told.err);
    assert!(told.out.contains("guestbook") && told.out.contains("intact"), "{}", told.out);
    succeed(&mut heap(&scratch, &["rm", "--image", "book"]));
    succeed(&mut heap(&scratch, &["rm", "book"]));
    succeed(&mut heap(&scratch, &["cp", "saved", "book"]));
    assert_both_entries(&scratch);
}

/// A truncated file is salvaged, and the report names the lost objects.
#[test]
fn truncated_file_is_salvaged_with_its_losses() {
    let scratch = with_two_entries();
    let bytes = fs::read(scratch.image("book")).unwrap();
    // The tables are there, the first slab is not.
    let file = scratch.write("cut.image", &bytes[..(2 << 20) + (2 << 16)]).unwrap();
    let told = tell(&mut heap(&scratch, &["salvage", file.to_str().unwrap()]));
    assert_eq!(told.status, 1, "{}{}", told.out, told.err);
    assert!(
        told.out.contains("missing from offset 0x20000") && told.out.contains("LOST"),
        "{}",
        told.out
    );
}

/// Salvage makes nothing of tables that contradict themselves or of a file that is no heap.
///
/// Guarantee: heap/salvage
#[test]
fn salvage_refuses_contradictory_and_foreign_files() {
    let scratch = with_two_entries();
    let path = scratch.image("book");
    let image = path.to_str().unwrap();
    let mut bytes = fs::read(&path).unwrap();
    // The descriptor of the first slab.
    bytes[(2 << 20) + 2 * 1024] ^= 0x10;
    fs::write(&path, &bytes).unwrap();
    assert_fails(&scratch, &["salvage", image, "--to", "saved"], 5, &["no heap was made"]);
    assert_fails(&scratch, &["show", "saved"], 3, &[]);
    fs::write(&path, "Dear diary, today").unwrap();
    assert_fails(&scratch, &["salvage", image], 5, &["no Holdfast file", "name an image"]);
    fs::write(&path, b"Dear diary, today".repeat(200_000)).unwrap();
    assert_fails(&scratch, &["salvage", image], 5, &["no Holdfast file", "name an image"]);
    let folder = scratch.files();
    assert_fails(&scratch, &["salvage", folder.to_str().unwrap()], 5, &["no Holdfast file"]);
    assert_fails(&scratch, &["salvage", "/dev/zero"], 5, &["no Holdfast file"]);
    let stream = folder.join("book.holdfast");
    fs::remove_file(&path).unwrap();
    succeed(&mut heap(&scratch, &["export", "book", stream.to_str().unwrap()]));
    assert_fails(&scratch, &["salvage", stream.to_str().unwrap()], 5, &["holdfast heap import"]);
    assert_fails(&scratch, &["salvage", "no-such-file"], 3, &["no-such-file"]);
}

fn json(scratch: &Scratch, arguments: &[&str]) -> serde_json::Value {
    let told = tell(&mut heap(scratch, arguments));
    serde_json::from_str(&told.out)
        .unwrap_or_else(|error| panic!("{error}: {}{}", told.out, told.err))
}

#[test]
fn objects_that_no_root_leads_to_are_listed_by_size() {
    let scratch = with_two_entries();
    let none = tell(&mut heap(&scratch, &["leaks", "book"]));
    assert_eq!((none.status, none.out.contains("no leaks")), (0, true), "{}", none.out);
    let reached = json(&scratch, &["leaks", "book", "--json"])["reached_objects"].as_u64().unwrap();
    // The book forgets its entries.
    let path = scratch.image("book");
    let salvaged = json(&scratch, &["salvage", path.to_str().unwrap(), "--json"]);
    let root = |field: &str| salvaged["roots"][0][field].as_u64().unwrap() as usize;
    let mut bytes = fs::read(&path).unwrap();
    bytes[(2 << 20) + root("offset")..][..root("bytes")].fill(0);
    fs::write(&path, bytes).unwrap();
    let found = json(&scratch, &["leaks", "book", "--json"]);
    assert_eq!(found["pointer_bytes"], 4);
    let leaked = found["leaked_objects"].as_u64().unwrap();
    assert!(
        leaked >= 2 && leaked + found["reached_objects"].as_u64().unwrap() == reached,
        "{found}"
    );
    assert_eq!(found["objects"].as_array().unwrap().len() as u64, leaked);
    let told = tell(&mut heap(&scratch, &["leaks", "book"]));
    assert_eq!(told.status, 1);
    assert!(told.out.contains("leaked") && told.out.contains("OBJECT BYTES"), "{}", told.out);
    assert!(succeed(&mut heap(&scratch, &["stats", "book"])).contains("heap leaks book"));
    assert_fails(&scratch, &["leaks", "bok"], 3, &["book"]);
}
