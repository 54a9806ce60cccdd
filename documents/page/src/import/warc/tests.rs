//! WARC files that are made here: sound, packed, cut, and of bad intent.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use sha1::{Digest as _, Sha1};

use super::*;
use crate::fetch::Purpose;

const PAGE: &str = "<!doctype html><title>page</title><p>text";

fn record(version: &str, kind: &str, url: &str, fields: &str, block: &[u8]) -> Vec<u8> {
    let head = format!(
        "WARC/{version}\r\nWARC-Type: {kind}\r\nWARC-Target-URI: {url}\r\nWARC-Date: 2024-05-06T07:08:09Z\r\n{fields}Content-Length: {}\r\n\r\n",
        block.len()
    );
    [head.as_bytes(), block, b"\r\n\r\n"].concat()
}

fn http(fields: &str, body: &[u8]) -> Vec<u8> {
    [format!("HTTP/1.1 200 OK\r\n{fields}\r\n").as_bytes(), body].concat()
}

fn html(url: &str, body: &str) -> Vec<u8> {
    record("1.0", "response", url, "", &http("Content-Type: text/html\r\n", body.as_bytes()))
}

fn sum(bytes: &[u8]) -> String {
    format!("sha1:{}", data_encoding::BASE32.encode(&Sha1::digest(bytes)))
}

fn gzip(record: &[u8]) -> Vec<u8> {
    let mut to = GzEncoder::new(Vec::new(), Compression::best());
    to.write_all(record).unwrap();
    to.finish().unwrap()
}

fn opened(bytes: &[u8]) -> Result<Warc, ImportError> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    Warc::open(file.path(), &AtomicBool::new(false), &mut |_| {})
}

/// Plain, and each record packed.
fn both(records: &[Vec<u8>]) -> [Warc; 2] {
    let packed: Vec<Vec<u8>> = records.iter().map(|record| gzip(record)).collect();
    [records.concat(), packed.concat()].map(|bytes| opened(&bytes).unwrap())
}

fn get(warc: &Warc, url: &str) -> Result<FetchedBytes, FetchError> {
    let url = Url::parse(url).unwrap();
    let wanted = FetchRequest {
        url: &url,
        bytes_max: 1 << 20,
        purpose: Purpose::Page,
        known: None,
        anew: false,
    };
    match warc.fetch(&wanted)? {
        FetchAnswer::Bytes(fetched) => Ok(fetched),
        FetchAnswer::Unchanged(_) | FetchAnswer::Nothing(_) => panic!("nothing was known"),
    }
}

fn whats(warc: &Warc) -> String {
    warc.troubles().iter().map(|trouble| format!("{trouble:?}\n")).collect()
}

/// Guarantee: pages/warc
#[test]
fn pages_and_what_they_ask_for_are_found_by_address() {
    let style = http("Content-Type: text/css\r\nETag: \"1\"\r\n", b"p { color: red }");
    let missing = b"HTTP/1.1 404 Not Found\r\nContent-Type: text/html\r\n\r\n<p>no".to_vec();
    let moved = b"HTTP/1.1 302 Found\r\nLocation: /b.html#x\r\n\r\n".to_vec();
    let round = b"HTTP/1.1 301 Moved\r\nLocation: /round\r\n\r\n".to_vec();
    let records = [
        record(
            "1.1",
            "warcinfo",
            "urn:x",
            "Content-Type: application/warc-fields\r\n",
            b"software: test\r\n",
        ),
        record("1.0", "request", "http://a.org/", "", b"GET / HTTP/1.1\r\n\r\n"),
        html("<http://a.org/>", PAGE),
        record("1.1", "response", "http://a.org/style.css", "", &style),
        html("http://a.org/b.html", "<p>b"),
        record("1.0", "response", "http://a.org/none", "", &missing),
        record("1.0", "response", "http://a.org/moved", "", &moved),
        record("1.0", "response", "http://a.org/round", "", &round),
        record(
            "1.0",
            "resource",
            "http://a.org/kept",
            "Content-Type: text/html; charset=x\r\n",
            b"<p>kept",
        ),
        record("1.0", "response", "dns:a.org", "Content-Type: text/dns\r\n", b"127.0.0.1"),
        record(
            "1.0",
            "response",
            "http://a.org/untyped",
            "",
            &http("", b" <!DOCTYPE html><p>untyped"),
        ),
    ];
    for warc in both(&records) {
        let pages = ["", "b.html", "kept", "untyped"].map(|name| format!("http://a.org/{name}"));
        assert_eq!(warc.pages(), pages);
        assert_eq!(get(&warc, "http://a.org/").unwrap().bytes, PAGE.as_bytes());
        let style = get(&warc, "http://a.org/style.css").unwrap();
        assert_eq!(
            (&style.bytes[..], style.headers.get("etag")),
            (&b"p { color: red }"[..], Some("\"1\""))
        );
        assert_eq!(humantime::format_rfc3339(style.at).to_string(), "2024-05-06T07:08:09Z");
        let moved = get(&warc, "http://a.org/moved").unwrap();
        assert_eq!((moved.bytes, moved.url.as_str()), (b"<p>b".to_vec(), "http://a.org/b.html"));
        let kept = get(&warc, "http://a.org/kept").unwrap();
        assert_eq!(
            (&kept.bytes[..], kept.headers.get("content-type")),
            (&b"<p>kept"[..], Some("text/html; charset=x"))
        );
        for none in ["none", "round", "nothing"] {
            let none = get(&warc, &format!("http://a.org/{none}"));
            assert!(matches!(none, Err(FetchError::NotFound)), "{none:?}");
        }
        assert_eq!((warc.damaged(), warc.troubles()), (0, &[][..]));
    }
}

/// Of several responses for one address, the newest is used.
///
/// Guarantee: pages/warc
#[test]
fn newest_response_of_an_address_counts() {
    let older = String::from_utf8(html("http://a.org/", "<p>older"))
        .unwrap()
        .replace("2024", "2023")
        .into_bytes();
    let later = html("http://a.org/", "<p>later of one moment");
    let first = html("http://a.org/", "<p>first of one moment");
    for records in [[older.clone(), first.clone(), later.clone()], [first, later, older]] {
        for warc in both(&records) {
            assert_eq!(warc.pages(), ["http://a.org/"]);
            assert_eq!(get(&warc, "http://a.org/").unwrap().bytes, b"<p>later of one moment");
        }
    }
}

/// A revisit record leads to the bytes of its original and has the newest headers.
///
/// Guarantee: pages/warc
#[test]
fn revisit_record_leads_to_its_bytes() {
    let digest = format!("WARC-Payload-Digest: {}\r\n", sum(PAGE.as_bytes()));
    let fields = "Content-Type: text/html\r\nETag: old\r\nLast-Modified: then\r\n";
    let again =
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nETag: new\r\nContent-Length: 41\r\n\r\n";
    let not_modified = b"HTTP/1.1 304 Not Modified\r\nETag: newer\r\n\r\n";
    let refers = format!("{digest}WARC-Refers-To-Target-URI: http://a.org/a\r\n");
    let only_named = "WARC-Refers-To-Target-URI: http://a.org/a\r\n";
    let elsewhere = format!("WARC-Payload-Digest: {}\r\n", sum(b"another"));
    let records = [
        record("1.1", "response", "http://a.org/a", &digest, &http(fields, PAGE.as_bytes())),
        record("1.1", "revisit", "http://a.org/b", &refers, again),
        record("1.1", "revisit", "http://a.org/c", &digest, not_modified),
        record("1.1", "revisit", "http://a.org/d", only_named, b""),
        record("1.1", "revisit", "http://a.org/e", &elsewhere, again),
    ];
    for warc in both(&records) {
        assert_eq!(
            warc.pages(),
            ["a", "b", "c", "d", "e"].map(|name| format!("http://a.org/{name}"))
        );
        for (name, etag) in [("a", "old"), ("b", "new"), ("c", "newer"), ("d", "old")] {
            let fetched = get(&warc, &format!("http://a.org/{name}")).unwrap();
            assert_eq!(fetched.bytes, PAGE.as_bytes(), "{name}");
            assert_eq!(fetched.headers.get("etag"), Some(etag));
            assert_eq!(fetched.headers.get("last-modified"), Some("then"));
            assert_eq!(fetched.url.path(), format!("/{name}"));
        }
        assert!(matches!(get(&warc, "http://a.org/e"), Err(FetchError::NotFound)));
        assert_eq!(warc.wrong_sums(), 0);
    }
}

/// A digest is compared with the payload as received and with the decoded body.
///
/// Guarantee: pages/warc
#[test]
fn digests_cover_payload_and_decoded_body() {
    let packed = gzip(PAGE.as_bytes());
    let body = http("Content-Type: text/html\r\nContent-Encoding: gzip\r\n", &packed);
    let with = |sum: &str| {
        record(
            "1.0",
            "response",
            "http://a.org/",
            &format!("WARC-Payload-Digest: {sum}\r\n"),
            &body,
        )
    };
    for (said, wrong) in [
        (sum(&packed), 0),
        (sum(PAGE.as_bytes()), 0),
        (sum(b"other"), 1),
        ("md5:d41d8cd98f00b204e9800998ecf8427e".to_owned(), 0),
    ] {
        for warc in both(&[with(&said)]) {
            assert_eq!(get(&warc, "http://a.org/").unwrap().bytes, PAGE.as_bytes());
            assert_eq!(warc.wrong_sums(), wrong, "{said}");
        }
    }
}

/// A WARC file cut at any byte gives its whole records and reports where it ends.
///
/// Guarantee: pages/warc
#[test]
fn cut_file_gives_its_whole_records() {
    let records: Vec<Vec<u8>> =
        (0..4).map(|n| html(&format!("http://a.org/{n}"), &format!("<p>{n}"))).collect();
    let packed: Vec<Vec<u8>> = records.iter().map(|record| gzip(record)).collect();
    for records in [records, packed] {
        let ends: Vec<usize> = records
            .iter()
            .scan(0, |end, record| {
                *end += record.len();
                Some(*end)
            })
            .collect();
        let all = records.concat();
        for cut in (6..all.len()).step_by(7) {
            let whole = ends.iter().filter(|end| **end <= cut).count();
            let warc = match opened(&all[..cut]) {
                Ok(warc) => warc,
                Err(error) => panic!("{cut}: {error}"),
            };
            let pages = warc.pages().len();
            // Of a plain record only empty lines may be missing.
            assert!(pages == whole || pages == whole + 1, "{cut}: {pages} of {whole}");
            for page in warc.pages() {
                assert_eq!(
                    get(&warc, &page).unwrap().bytes,
                    format!("<p>{}", &page[13..]).as_bytes()
                );
            }
            let between = ends.contains(&cut);
            assert!(
                warc.damaged() == u64::from(!between) || pages == whole + 1,
                "{cut}: {}",
                whats(&warc)
            );
        }
    }
}

/// A damaged record is reported with its offset, and the next records are read.
///
/// Guarantee: pages/warc
#[test]
fn damaged_record_is_named_and_skipped() {
    let records: Vec<Vec<u8>> =
        (0..4).map(|n| html(&format!("http://a.org/{n}"), &format!("<p>{n}"))).collect();
    let lies = |length: &str| {
        let text = String::from_utf8(records[1].clone()).unwrap();
        let at = text.find("Content-Length: ").unwrap();
        let end = at + text[at..].find('\r').unwrap();
        [&text[..at], "Content-Length: ", length, &text[end..]].concat().into_bytes()
    };
    let too_long = u64::MAX.to_string();
    let mut rotten = gzip(&records[1]);
    let middle = rotten.len() / 2;
    rotten[middle] ^= 0xff;
    let endless = [b"WARC/1.0\r\nX: ".to_vec(), vec![b'a'; 100_000]].concat();
    let control = String::from_utf8(records[1].clone())
        .unwrap()
        .replace("a.org/1", "a.org/\u{1b}[2J")
        .into_bytes();
    let twice = String::from_utf8(records[1].clone())
        .unwrap()
        .replace("Content-Length:", "Content-Length: 1\r\nContent-Length:");
    for (name, bad) in [
        ("short", lies("3")),
        ("long", lies("300")),
        ("beyond the file", lies("3000000")),
        ("beyond all files", lies(&too_long)),
        ("negative", lies("-1")),
        ("no number", lies("many")),
        ("endless header", endless),
        ("rubbish", b"rubbish\r\n\r\n".to_vec()),
        ("control characters", control),
        ("two lengths", twice.into_bytes()),
    ] {
        let plain = [records[0].clone(), bad.clone(), records[2].clone(), records[3].clone()];
        let packed: Vec<u8> = plain.iter().flat_map(|record| gzip(record)).collect();
        for bytes in [plain.concat(), packed] {
            let warc = opened(&bytes).unwrap();
            // One that says that it is longer than it is takes the next one with it where nothing
            // else bounds it.
            let pages = warc.pages();
            // Whether a plain record ends where it says shows in what follows.
            let is_bounded = name != "rubbish" || pages.len() == 3;
            assert!(
                pages.contains(&"http://a.org/0".to_owned()) == is_bounded
                    && pages.contains(&"http://a.org/3".to_owned()),
                "{name}: {pages:?}"
            );
            assert!(!pages.contains(&"http://a.org/1".to_owned()), "{name}");
            assert_eq!(warc.damaged(), 1, "{name}: {}", whats(&warc));
            assert!(
                warc.troubles()[0].at.is_some_and(|at| at > 0 || !is_bounded),
                "{name}: {}",
                whats(&warc)
            );
        }
    }
    let packed: Vec<u8> = [gzip(&records[0]), rotten, gzip(&records[2])].concat();
    let warc = opened(&packed).unwrap();
    assert_eq!((warc.pages().len(), warc.damaged()), (2, 1), "{}", whats(&warc));
}

/// Guarantee: pages/warc
#[test]
fn a_record_that_is_unpacked_without_end_is_left_out() {
    let head = format!(
        "WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: http://a.org/b\r\nContent-Length: {}\r\n\r\n",
        1u64 << 40
    );
    let zeros = vec![0; 4 << 20];
    for length in [1 << 40, 100u64] {
        let head = head.replace(&(1u64 << 40).to_string(), &length.to_string());
        let mut bomb = GzEncoder::new(Vec::new(), Compression::best());
        bomb.write_all(head.as_bytes()).unwrap();
        (0..100).for_each(|_| bomb.write_all(&zeros).unwrap());
        let bomb = bomb.finish().unwrap();
        let bytes =
            [gzip(&html("http://a.org/a", PAGE)), bomb, gzip(&html("http://a.org/c", PAGE))]
                .concat();
        let warc = opened(&bytes).unwrap();
        assert_eq!(warc.pages(), ["http://a.org/a", "http://a.org/c"]);
        assert_eq!(warc.damaged(), 1, "{}", whats(&warc));
    }
}

/// Guarantee: pages/warc
#[test]
fn half_a_page_is_none() {
    let cut = record(
        "1.0",
        "response",
        "http://a.org/cut",
        "WARC-Truncated: length\r\n",
        &http("Content-Type: text/html\r\n", b"<p>ha"),
    );
    let short = record(
        "1.0",
        "response",
        "http://a.org/short",
        "",
        &http("Content-Type: text/html\r\nContent-Length: 9\r\n", b"<p>ha"),
    );
    let piece = record(
        "1.0",
        "response",
        "http://a.org/piece",
        "WARC-Segment-Number: 1\r\n",
        &http("Content-Type: text/html\r\n", b"<p>ha"),
    );
    for warc in both(&[cut, short, piece]) {
        assert_eq!(warc.pages(), ["http://a.org/cut", "http://a.org/short"]);
        for (page, why) in [("cut", "cut it short (length)"), ("short", "only 5 of 9 bytes")] {
            let error = get(&warc, &format!("http://a.org/{page}")).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        assert!(whats(&warc).contains("several records"), "{}", whats(&warc));
    }
}

/// A file that is no WARC file, or is compressed as a whole, is refused with advice.
#[test]
fn foreign_file_is_refused_with_advice() {
    for bytes in [&b""[..], b"<!doctype html>", b"WARC/0.9\r\n\r\n"] {
        assert!(matches!(opened(bytes), Err(ImportError::NotWarc { .. })), "{bytes:?}");
    }
    let whole = gzip(&[html("http://a.org/", PAGE), html("http://a.org/b", PAGE)].concat());
    let error = opened(&whole).unwrap_err();
    assert!(
        matches!(error, ImportError::PackedAsWhole { .. }) && error.to_string().contains("gunzip"),
        "{error}"
    );
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), html("http://a.org/", PAGE)).unwrap();
    let stopped = Warc::open(file.path(), &AtomicBool::new(true), &mut |_| {});
    assert!(matches!(stopped, Err(ImportError::Stopped)));
}
