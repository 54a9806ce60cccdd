//! Message digests: the test suite of RFC 1321, every length of a rest, messages in pieces, and a
//! kill between pieces.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};

use crate::host::{Answer, Host, Image};
use crate::{assert_fails, call_with, python, serving};

const HEAP_BYTES: u64 = 64 << 20;

/// RFC 1321, section A.5.
const SUITE: [(&str, &str); 7] = [
    ("", "d41d8cd98f00b204e9800998ecf8427e"),
    ("a", "0cc175b9c0f1b6a831c399e269772661"),
    ("abc", "900150983cd24fb0d6963f7d28e17f72"),
    ("message digest", "f96b697d7cb7938d525a2f31aaf161d0"),
    ("abcdefghijklmnopqrstuvwxyz", "c3fcd3d76192e4007dfb496cca67e13b"),
    (
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789",
        "d174ab98d277d9f5a5611c2c9f419d9f",
    ),
    (
        "12345678901234567890123456789012345678901234567890123456789012345678901234567890",
        "57edf4a22be3c955ac49da2e2107b67a",
    ),
];

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn random_bytes(seed: u64, size: usize) -> Vec<u8> {
    let mut bytes = vec![0; size];
    StdRng::seed_from_u64(seed).fill_bytes(&mut bytes);
    bytes
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().unwrap())
}

#[test]
fn the_applet_passes_the_test_suite_of_rfc_1321() {
    let mut host = serving("md5", None);
    for (message, digest) in SUITE {
        assert_eq!(hex(&host.call("digest", message.as_bytes())), digest, "{message:?}");
    }
}

/// For every length, the applet, the Python reference and Python's library compute the same digest.
#[test]
fn md5_matches_both_python_versions() {
    let mut host = serving("md5", None);
    let bytes = random_bytes(1, 4096);
    let lengths = (0..260).chain([1000, 1023, 4095, 4096]);
    let applet: String =
        lengths.clone().map(|length| hex(&host.call("digest", &bytes[..length])) + "\n").collect();
    let script = "import sys, hashlib, reference\n\
                  bytes_, lengths = sys.stdin.read().split('\\n')\n\
                  for length in map(int, lengths.split()):\n\
                  \x20   message = bytes.fromhex(bytes_)[:length]\n\
                  \x20   print(hashlib.md5(message, usedforsecurity=False).hexdigest())\n\
                  \x20   assert reference.digest(message).hex() == hashlib.md5(message).hexdigest(), length\n";
    let lengths: Vec<String> = lengths.map(|length| length.to_string()).collect();
    if let Some(library) =
        python::run("md5", script, &format!("{}\n{}", hex(&bytes), lengths.join(" ")))
    {
        assert_eq!(applet, library);
    }
}

/// The digest of a shared buffer covers its first bytes or all of them.
#[test]
fn md5_of_a_shared_buffer_covers_its_prefix() {
    let mut host = serving("md5", None);
    let bytes = random_bytes(2, 100_000);
    let buffer = host.memory.buffer(bytes.len() as u64).unwrap();
    buffer.copy_in(0, &bytes).unwrap();
    let all = call_with(&mut host, "digest_buffer", b"", buffer.handle());
    assert_eq!(all, Answer::Result(host.call("digest", &bytes)));
    let part = call_with(&mut host, "digest_buffer", &777u64.to_le_bytes(), buffer.handle());
    assert_eq!(part, Answer::Result(host.call("digest", &bytes[..777])));

    let too_long = (buffer.len() + 1).to_le_bytes();
    assert_fails(
        call_with(&mut host, "digest_buffer", &too_long, buffer.handle()),
        1,
        "longer than the shared",
    );
    assert_fails(call_with(&mut host, "digest_buffer", b"7", buffer.handle()), 1, "8 bytes");
    assert_fails(host.try_call("digest_buffer", b"").unwrap(), 1, "needs a shared buffer");
}

#[test]
fn a_digest_in_pieces_needs_a_heap_and_a_beginning() {
    let mut host = serving("md5", None);
    for name in ["begin", "update", "progress", "finish"] {
        assert_fails(host.try_call(name, b"x").unwrap(), 2, "");
    }
    let mut host = serving("md5", Some(Image::new(HEAP_BYTES)));
    assert_fails(host.try_call("update", b"x").unwrap(), 3, "call begin first");
}

/// A digest computed in pieces equals that of the whole, and a new one starts empty.
#[test]
fn md5_in_pieces_equals_the_whole() {
    let mut host = serving("md5", Some(Image::new(HEAP_BYTES)));
    let mut random = StdRng::seed_from_u64(3);
    for round in 0..20 {
        let bytes = random_bytes(round, random.random_range(0..3000));
        host.call("begin", b"");
        let mut taken = 0;
        while taken < bytes.len() {
            let piece = random.random_range(0..=(bytes.len() - taken).min(200));
            assert_eq!(
                number(&host.call("update", &bytes[taken..taken + piece])),
                (taken + piece) as u64
            );
            taken += piece;
        }
        assert_eq!(number(&host.call("progress", b"")), bytes.len() as u64);
        assert_eq!(host.call("finish", b""), host.call("digest", &bytes));
    }
    host.end().unwrap().assert_sound();
}

#[test]
fn an_update_takes_its_input_and_then_its_buffer() {
    let mut host = serving("md5", Some(Image::new(HEAP_BYTES)));
    let buffer = host.memory.buffer(4096).unwrap();
    buffer.copy_in(0, &[7; 4096]).unwrap();
    host.call("begin", b"");
    let taken = call_with(&mut host, "update", b"first", buffer.handle());
    assert_eq!(taken, Answer::Result((5 + buffer.len()).to_le_bytes().to_vec()));
    let mut whole = b"first".to_vec();
    whole.resize(5 + buffer.len() as usize, 7);
    assert_eq!(host.call("finish", b""), host.call("digest", &whole));
}

/// The process is killed at some moment of each update. Its next life asks how far the last one
/// came, and goes on.
///
/// Guarantee: applets/examples
#[test]
fn a_digest_goes_on_after_a_kill_in_the_middle_of_it() {
    const PIECE: usize = 300_000;
    let bytes = random_bytes(4, 12 * PIECE);
    let mut random = StdRng::seed_from_u64(5);
    let mut image = Image::new(HEAP_BYTES);
    let mut host = serving("md5", Some(image));
    host.call("begin", b"");
    let (mut before, mut answered) = (0, false);
    // Three of ten updates are waited for, so that it does not take nearly as many.
    for round in 0.. {
        assert!(round < 1000, "the digest does not come on");
        let taken = number(&host.call("progress", b"")) as usize;
        // All of an update, or nothing; all of it if it was answered.
        let is_whole = taken == before + PIECE && round > 0;
        assert!(is_whole || !answered && taken == before, "{before}, then {taken}");
        if taken == bytes.len() {
            break;
        }
        let update = host.begin("update", &bytes[taken..taken + PIECE], Default::default());
        before = taken;
        // About as long as an update takes.
        answered = random.random_bool(0.3);
        if answered {
            assert_eq!(
                host.finish(update).unwrap(),
                Answer::Result(((taken + PIECE) as u64).to_le_bytes().to_vec())
            );
        } else {
            std::thread::sleep(Duration::from_micros(random.random_range(0..1500)));
        }
        image = killed(host);
        host = serving("md5", Some(image));
    }
    assert_eq!(host.call("finish", b""), host.call("digest", &bytes));
    host.end().unwrap().assert_sound();
}

/// Kills the applet; what it leaves.
fn killed(mut host: Host) -> Image {
    host.signal(libc::SIGKILL);
    host.wait();
    let mut image = host.image.take().unwrap();
    image.region.is_new = false;
    image
}
