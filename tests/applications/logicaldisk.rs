//! The logical disk: what is written is found again whatever is cleaned, and the applet against the
//! same in Python.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::host::Host;
use crate::{assert_fails, python, serving, to_bytes, to_numbers};

const NOWHERE: u32 = u32::MAX;
const BLOCKS: u32 = 1024;
const SEGMENT_BLOCKS: u32 = 16;
/// As full as it may be.
const LOGICAL_BLOCKS: u32 = BLOCKS - 2 * SEGMENT_BLOCKS;

/// The disk that the applet's answers are carried out on: what each place holds.
struct Disk {
    host: Host,
    places: Vec<u64>,
    /// What was asked and answered, in the reference's words.
    story: String,
}

impl Disk {
    fn new() -> Disk {
        let mut host = serving("logicaldisk", None);
        host.call("format", &to_bytes(&[BLOCKS, SEGMENT_BLOCKS, LOGICAL_BLOCKS]));
        Disk { host, places: vec![0; BLOCKS as usize], story: String::new() }
    }

    /// Writes a value to each block, cleaning where it must.
    fn write(&mut self, blocks: &[u32], value: u64) {
        let mut left = blocks;
        // Each clean makes room for a block at least.
        for _ in 0..=blocks.len() {
            if left.is_empty() {
                return;
            }
            let places = to_numbers(&self.host.call("write", &to_bytes(left)));
            for (block, &place) in left.iter().zip(&places) {
                self.places[place as usize] = value + u64::from(*block);
                self.story += &format!("w {block} {place}\n");
            }
            left = &left[places.len()..];
            if let Some(block) = left.first() {
                self.story += &format!("w {block} {NOWHERE}\n");
                self.clean();
            }
        }
        panic!("the disk is cleaned and cleaned, and there is no room");
    }

    fn clean(&mut self) {
        let moves = to_numbers(&self.host.call("clean", b""));
        assert!(!moves.is_empty(), "a disk that is not full has something to clean");
        // From places that are overwritten later, at the earliest: in any order.
        for pair in moves.chunks_exact(2).rev() {
            self.places[pair[1] as usize] = self.places[pair[0] as usize];
        }
        self.story += &format!("c {moves:?}\n");
    }

    fn read(&mut self, block: u32) -> Option<u64> {
        let place = to_numbers(&self.host.call("read", &to_bytes(&[block])))[0];
        (place != NOWHERE).then(|| self.places[place as usize])
    }
}

/// A block reads as it was last written, whatever the cleaner moved since.
#[test]
fn logical_disk_reads_what_was_written() {
    let mut disk = Disk::new();
    let mut random = StdRng::seed_from_u64(7);
    let mut written = vec![None; LOGICAL_BLOCKS as usize];
    for round in 1..=600u64 {
        // 80 of 100 writes go to 20 of 100 blocks; all of it is in use from some round on.
        let mut pick = || {
            let hot = LOGICAL_BLOCKS / 5;
            if random.random_bool(0.8) {
                random.random_range(0..hot)
            } else {
                random.random_range(hot..LOGICAL_BLOCKS)
            }
        };
        let mut blocks: Vec<u32> = (0..20).map(|_| pick()).collect();
        blocks.push((round % u64::from(LOGICAL_BLOCKS)) as u32);
        disk.write(&blocks, round << 32);
        for &block in &blocks {
            written[block as usize] = Some((round << 32) + u64::from(block));
        }
        let block = random.random_range(0..LOGICAL_BLOCKS);
        assert_eq!(disk.read(block), written[block as usize], "round {round}, block {block}");
    }
    for block in 0..LOGICAL_BLOCKS {
        assert_eq!(disk.read(block), written[block as usize], "block {block}");
    }
    assert!(disk.story.contains("c ["), "nothing was ever cleaned");
    assert_same_in_python(&disk.story);
}

fn assert_same_in_python(story: &str) {
    let script = format!(
        "import sys, json, reference\n\
         disk = reference.LogicalDisk({BLOCKS}, {SEGMENT_BLOCKS}, {LOGICAL_BLOCKS})\n\
         for line in sys.stdin:\n\
         \x20   what, rest = line.split(' ', 1)\n\
         \x20   if what == 'w':\n\
         \x20       block, place = map(int, rest.split())\n\
         \x20       assert disk.write(block) == place, line\n\
         \x20   else:\n\
         \x20       assert sum(disk.clean(), ()) == tuple(json.loads(rest)), line\n\
         print('same')\n"
    );
    if let Some(said) = python::run("logicaldisk", &script, story) {
        assert_eq!(said, "same\n");
    }
}

#[test]
fn a_full_disk_can_be_written_for_ever() {
    let mut disk = Disk::new();
    let all: Vec<u32> = (0..LOGICAL_BLOCKS).collect();
    let backwards: Vec<u32> = all.iter().rev().copied().collect();
    for round in 1..=5 {
        disk.write(&all, round << 32);
        disk.write(&backwards, round << 32);
    }
    assert!(all.iter().all(|&block| disk.read(block) == Some((5 << 32) + u64::from(block))));
}

#[test]
fn disks_and_blocks_that_are_none_are_refused() {
    let mut host = serving("logicaldisk", None);
    for name in ["write", "read", "clean"] {
        assert_fails(host.try_call(name, &to_bytes(&[0])).unwrap(), 3, "call format first");
    }
    let bad: [[u32; 3]; 6] =
        [[0, 16, 1], [64, 0, 1], [65, 16, 1], [64, 16, 33], [64, 16, 0], [u32::MAX, 1, 1]];
    for disk in bad {
        assert_fails(host.try_call("format", &to_bytes(&disk)).unwrap(), 1, "no such disk");
    }
    host.call("format", &to_bytes(&[64, 16, 32]));
    assert_eq!(to_numbers(&host.call("read", &to_bytes(&[0, 31]))), [NOWHERE; 2]);
    assert_fails(host.try_call("read", &to_bytes(&[0, 32])).unwrap(), 1, "not on this disk");
    assert_fails(host.try_call("write", b"").unwrap(), 1, "one number");
    assert_eq!(host.call("clean", b""), b"", "nothing to clean");
}

/// Updates clean in between: what they say is to be done, done in order, leaves every block where
/// `read` finds it.
#[test]
fn updates_clean_and_lose_no_block() {
    let mut host = serving("logicaldisk", None);
    host.call("format", &to_bytes(&[BLOCKS, SEGMENT_BLOCKS, LOGICAL_BLOCKS]));
    let mut places = vec![NOWHERE; BLOCKS as usize];
    let mut moves = 0;
    for round in 0..12 {
        let is_written = |block: &u32| round == 0 || (block * 7 + round).is_multiple_of(3);
        let blocks: Vec<u32> = (0..LOGICAL_BLOCKS).filter(is_written).collect();
        let mut left = &blocks[..];
        // Each call takes a step at least, and cleaning makes room.
        for _ in 0..10 * LOGICAL_BLOCKS {
            if left.is_empty() {
                break;
            }
            for step in to_numbers(&host.call("update", &to_bytes(left))).chunks_exact(2) {
                if step[0] == NOWHERE {
                    places[step[1] as usize] = left[0];
                    left = &left[1..];
                } else {
                    places[step[1] as usize] = places[step[0] as usize];
                    moves += 1;
                }
            }
        }
        assert!(left.is_empty(), "there is no room");
    }
    let all: Vec<u32> = (0..LOGICAL_BLOCKS).collect();
    for (block, place) in all.iter().zip(to_numbers(&host.call("read", &to_bytes(&all)))) {
        assert_eq!(places[place as usize], *block);
    }
    assert!(moves > 0, "a disk as full as this one is cleaned");
}
