//! Damaged, foreign, missing and held heaps, and a full pool: each is a typed error with a remedy,
//! has its exit code, and leaves every file as it was.

use std::fs;
use std::process::Command;

use holdfast_testkit::Scratch;

use crate::guestbook::{assert_both_entries, hand_over, with_two_entries};
use crate::{succeed, tell, victim};

/// Where the applet's data starts in an image.
const DATA_OFFSET: usize = 2 << 20;

/// The image after `damage`: the heap cannot be checked or used, both say why, and nothing is
/// changed.
fn assert_refused(damage: impl Fn(&mut Vec<u8>), words: &[&str]) -> Scratch {
    let scratch = with_two_entries();
    let path = scratch.image("book");
    let mut image = fs::read(&path).unwrap();
    damage(&mut image);
    fs::write(&path, &image).unwrap();
    let applet = scratch.programs().applet("guestbook").unwrap();
    let checked = tell(scratch.holdfast().args(["heap", "check", "book"]));
    assert_eq!(checked.status, 5, "{}{}", checked.out, checked.err);
    let run =
        tell(scratch.holdfast().arg("run").arg(applet).args(["--heap", "book", "--", "list"]));
    assert_eq!(run.status, 125, "{}{}", run.out, run.err);
    for word in words {
        assert!(
            checked.err.contains(word) && run.err.contains(word),
            "no {word:?} in: {}",
            checked.err
        );
    }
    assert!(fs::read(&path).unwrap() == image, "the damaged image was changed");
    scratch
}

/// The checkpoint is good: the remedy in the message works.
fn assert_recovers_from_the_store(scratch: &Scratch) {
    succeed(scratch.holdfast().args(["heap", "rm", "--image", "book"]));
    assert_both_entries(scratch);
}

/// Guarantee: heap/messages
#[test]
fn a_truncated_image_is_refused_and_the_remedy_works() {
    let scratch = assert_refused(
        |image| image.truncate(DATA_OFFSET + (1 << 20)),
        &["book.image", "heap rm --image"],
    );
    assert_recovers_from_the_store(&scratch);
}

/// An image with flipped bits in both headers is refused, and the suggested remedy works.
#[test]
fn damage_to_both_headers_is_refused_and_repaired() {
    let flip = |image: &mut Vec<u8>| {
        image[100] ^= 1;
        image[4096 + 100] ^= 1;
    };
    let scratch = assert_refused(flip, &["book.image", "heap rm --image"]);
    assert_recovers_from_the_store(&scratch);
}

#[test]
fn one_flipped_bit_in_one_header_costs_nothing() {
    for slot in [0, 4096] {
        let scratch = with_two_entries();
        let mut image = fs::read(scratch.image("book")).unwrap();
        image[slot + 100] ^= 1;
        fs::write(scratch.image("book"), image).unwrap();
        assert_both_entries(&scratch);
    }
}

/// A foreign file under the name of a heap is refused and not changed.
#[test]
fn foreign_file_named_as_a_heap_is_left_alone() {
    assert_refused(|image| *image = b"Dear diary, today".repeat(1000), &["book.image"]);
}

#[test]
fn check_finds_flipped_bits_in_allocator_tables() {
    let scratch = with_two_entries();
    let mut image = fs::read(scratch.image("book")).unwrap();
    // The first words of the data area are the heap's own head.
    for byte in &mut image[DATA_OFFSET..DATA_OFFSET + 64] {
        *byte ^= 0x10;
    }
    fs::write(scratch.image("book"), &image).unwrap();
    let checked = tell(scratch.holdfast().args(["heap", "check", "book"]));
    assert_eq!(checked.status, 1, "{}{}", checked.out, checked.err);
    assert!(checked.out.contains("book"), "{}", checked.out);
    assert!(fs::read(scratch.image("book")).unwrap() == image, "the check changed the image");
    assert_recovers_from_the_store(&scratch);
}

/// The error for a missing heap names a similar one that exists.
#[test]
fn missing_heap_error_names_a_similar_one() {
    let scratch = with_two_entries();
    for command in ["show", "check", "rm", "checkpoint"] {
        let told = tell(scratch.holdfast().args(["heap", command, "bok"]));
        assert_eq!(told.status, 3, "{command}: {}", told.err);
        assert!(told.err.contains("book"), "{command} names the near one: {}", told.err);
    }
}

/// A heap in use is refused with its holder, and is free again after a kill.
#[test]
fn heap_in_use_names_its_holder_until_killed() {
    let scratch = with_two_entries();
    let applet = scratch.programs().applet("guestbook").unwrap();
    let list = || {
        let mut command = scratch.holdfast();
        command.arg("run").arg(&applet).args(["--heap", "book", "--", "list"]);
        command
    };
    hand_over(&scratch, "loops_for_ever");
    let mut holder = scratch.holdfast();
    holder.arg("run").arg(victim("loops_for_ever")).args(["--heap", "book"]);
    let mut holder = holder.spawn().unwrap();
    let pid = holder.id().to_string();
    wait_until(|| succeed(scratch.holdfast().args(["heap", "ls", "--json"])).contains(&pid));
    let refused = tell(&mut list());
    assert_eq!(refused.status, 125, "{}", refused.err);
    assert!(refused.err.contains(&pid), "it names the holder {pid}: {}", refused.err);
    assert_eq!(tell(scratch.holdfast().args(["heap", "rm", "book"])).status, 4);
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert_both_entries(&scratch);
}

fn wait_until(condition: impl Fn() -> bool) {
    for _ in 0..500 {
        if condition() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("nothing happened for 10 s");
}

/// A full pool is an error value for the applet and changes nothing.
#[test]
fn full_pool_is_an_error_value_for_the_applet() {
    let scratch = with_two_entries();
    let small = scratch.files().join("small-pool");
    fs::create_dir(&small).unwrap();
    let applet = scratch.programs().applet("guestbook").unwrap();
    let greedy = victim("grows_its_heap_without_end");
    let program = scratch.programs().holdfast();
    // A pool of 16 MiB, in a name space of its own: no growth without end fits. A heap that no
    // process has open makes room for a new one.
    let script = r#"
        mount -t tmpfs -o size=16m,mode=0700 none "$POOL" || exit 99
        "$HOLDFAST" heap rm --image book
        export HOLDFAST_POOL="$POOL"
        "$HOLDFAST" run "$GUESTBOOK" --heap book -- list; echo "cold: $?"
        "$HOLDFAST" run "$GREEDY" --heap greedy --heap-size 64MiB; echo "greedy: $?"
        "$HOLDFAST" heap check greedy; echo "check: $?"
        "$HOLDFAST" run "$GUESTBOOK" --heap third -- list; echo "third: $?"
        "$HOLDFAST" run "$GREEDY" --heap large --heap-size 64MiB; echo "large: $?"
        "$HOLDFAST" run "$GUESTBOOK" --heap book -- add "and Barbara"; echo "add: $?"
        "$HOLDFAST" run "$GUESTBOOK" --heap book -- list; echo "warm: $?"
    "#;
    let mut command = Command::new("unshare");
    command.args(["-Urm", "sh", "-c", script]).env("HOLDFAST_HOME", scratch.home());
    command
        .env("HOLDFAST_POOL", scratch.pool())
        .env("POOL", &small)
        .env("HOLDFAST", program)
        .env("GREEDY", greedy)
        .env("GUESTBOOK", applet);
    let Some(told) = in_name_space(&mut command) else { return };
    for expected in [
        "cold: 0",
        "greedy: 43",
        "check: 0",
        "third: 0",
        "large: 43",
        "add: 0",
        "warm: 0",
        "3 entries",
    ] {
        assert!(
            told.contains(expected),
            "no {expected:?} (43: the code for no room, and 40) in: {told}"
        );
    }
}

/// A picture for which there is no room leaves no file, which could pass for a whole one.
///
/// Guarantee: heap/messages
#[test]
fn picture_without_room_leaves_no_file() {
    let scratch = with_two_entries();
    let full = scratch.files().join("full");
    fs::create_dir(&full).unwrap();
    let script = r#"
        mount -t tmpfs -o size=64k,mode=0700 none "$FULL" || exit 99
        cat /dev/zero > "$FULL/filler" 2> /dev/null
        "$HOLDFAST" heap map book --svg "$FULL/book.svg"; echo "map: $?"
        for file in "$FULL"/*; do echo "there: ${file##*/}"; done
    "#;
    let mut command = Command::new("unshare");
    command.args(["-Urm", "sh", "-c", script]).env("HOLDFAST_HOME", scratch.home());
    command.env("HOLDFAST_POOL", scratch.pool()).env("FULL", &full);
    command.env("HOLDFAST", scratch.programs().holdfast());
    let Some(told) = in_name_space(&mut command) else { return };
    assert!(told.contains("map: 7") && told.contains("whether there is room"), "{told}");
    assert!(told.contains("there: filler") && !told.contains("there: book.svg"), "{told}");
}

/// A read-only store is reported by `doctor` and by the command that needs to write.
///
/// Guarantee: heap/messages
#[test]
fn read_only_store_is_reported() {
    let scratch = with_two_entries();
    let applet = scratch.programs().applet("guestbook").unwrap();
    let script = r#"
        mount --bind "$HOLDFAST_HOME/store" "$HOLDFAST_HOME/store" || exit 99
        mount -o remount,ro,bind "$HOLDFAST_HOME/store" || exit 99
        "$HOLDFAST" doctor; echo "doctor: $?"
        "$HOLDFAST" run "$GUESTBOOK" --heap book -- add "and Barbara"; echo "add: $?"
        "$HOLDFAST" heap ls
    "#;
    let mut command = Command::new("unshare");
    command.args(["-Urm", "sh", "-c", script]).env("HOLDFAST_HOME", scratch.home());
    command.env("HOLDFAST_POOL", scratch.pool()).env("GUESTBOOK", applet);
    command.env("HOLDFAST", scratch.programs().holdfast());
    let Some(told) = in_name_space(&mut command) else { return };
    for expected in [
        "MISSING  store",
        "doctor: 1",
        "add: 125",
        "is mounted read-only: make it writable",
        "not closed in order: killed, or its checkpoint failed",
    ] {
        assert!(told.contains(expected), "no {expected:?} in: {told}");
    }
}

/// Output of a command that needs user name spaces, which not every system allows.
fn in_name_space(command: &mut Command) -> Option<String> {
    let output = match command.output() {
        Ok(output) if output.status.code() != Some(99) && allowed(&output.stderr) => output,
        other => {
            println!(
                "not run: this system forbids mounting a tmpfs in a user name space ({other:?})"
            );
            return None;
        }
    };
    Some(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

fn allowed(complaint: &[u8]) -> bool {
    !complaint.starts_with(b"unshare:")
}
