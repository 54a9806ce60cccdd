//! Imports of folders and WARC files: killed, stopped, twice at once, with pages that fail, with
//! little room.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use holdfast_page::{Address, CachePolicy, OpenOptions, Tier, open_with};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::{Place, anew, limits, png, view};

/// Pages that ask for one style sheet.
pub(crate) fn pages(place: &Place, count: usize) -> PathBuf {
    let folder = place.folder.path().join("site");
    std::fs::create_dir_all(folder.join("deep")).unwrap();
    std::fs::write(folder.join("style.css"), "h1 { color: red }").unwrap();
    for number in 0..count {
        let name = if number.is_multiple_of(2) {
            format!("{number:03}.html")
        } else {
            format!("deep/{number:03}.html")
        };
        std::fs::write(folder.join(&name), page(number)).unwrap();
    }
    folder
}

fn page(number: usize) -> String {
    let style = if number.is_multiple_of(2) { "style.css" } else { "../style.css" };
    let rest = "<p>text of a page that many others are like".repeat(40);
    format!(
        "<!doctype html><title>{number}</title><link rel=stylesheet href={style}><h1>{number}</h1>{rest}"
    )
}

pub(crate) fn importing(place: &Place, from: &Path) -> Command {
    importing_at(place, from, "300x200")
}

fn importing_at(place: &Place, from: &Path, viewport: &str) -> Command {
    let mut command = place.program();
    command.arg("import").arg(from).args(["--viewport", viewport, "--timeout", "300"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub(crate) fn ended(command: &mut Command) -> (Value, String, i32) {
    let output = command.arg("--json").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let report = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {output:?}"));
    (report, said, output.status.code().unwrap_or(-1))
}

/// Pages, kept, unchanged, failed.
pub(crate) fn counts(report: &Value) -> [u64; 4] {
    ["pages", "kept", "unchanged", "failed_count"].map(|name| report[name].as_u64().unwrap())
}

fn warc(records: &[(&str, &str, &[u8])]) -> Vec<u8> {
    let mut all = Vec::new();
    for (url, fields, body) in records {
        let http = [format!("HTTP/1.1 200 OK\r\n{fields}\r\n").as_bytes(), body].concat();
        let head = format!(
            "WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: {url}\r\nWARC-Date: 2024-05-06T07:08:09Z\r\n\
             Content-Type: application/http; msgtype=response\r\nContent-Length: {}\r\n\r\n",
            http.len()
        );
        all.extend_from_slice(&[head.as_bytes(), &http, b"\r\n\r\n"].concat());
    }
    all
}

const HTML: &str = "Content-Type: text/html\r\nETag: \"1\"\r\n";

/// A directory is imported, and the next import skips unchanged pages.
///
/// Guarantee: pages/imports
#[test]
fn folder_import_skips_unchanged_pages() {
    let place = Place::new();
    let site = pages(&place, 8);
    let (report, said, code) = ended(&mut importing(&place, &site));
    assert_eq!((counts(&report), code), ([8, 8, 0, 0], 0), "{said}");
    assert!(
        report["pages_per_s"].as_f64().unwrap() > 0.0 && report["bytes"].as_u64().unwrap() > 8_000
    );
    let (first, other) = (site.join("000.html"), site.join("deep/001.html"));
    let opened = place.open(&first, view(300, 200));
    assert_eq!((opened.tier, opened.pixels), (Tier::Pixels, anew(&first, view(300, 200))));
    assert_eq!(counts(&ended(&mut importing(&place, &site)).0), [8, 0, 8, 0]);
    std::fs::write(&other, page(101)).unwrap();
    assert_eq!(counts(&ended(&mut importing(&place, &site)).0), [8, 1, 7, 0]);
    std::fs::write(site.join("style.css"), "h1 { color: blue }").unwrap();
    assert_eq!(counts(&ended(&mut importing(&place, &site)).0), [8, 8, 0, 0]);
    assert_eq!(place.open(&first, view(300, 200)).pixels, anew(&first, view(300, 200)));
    let some = |arguments: &[&str]| {
        counts(&ended(importing_at(&place, &site, "200x100").args(arguments)).0)
    };
    assert_eq!(some(&["--match", "deep/*"]), [4, 4, 0, 0]);
    assert_eq!(some(&["--match", "*2.html"]), [1, 1, 0, 0]);
    assert_eq!(some(&["--limit", "3", "--jobs", "1"]), [3, 2, 1, 0]);
}

/// A WARC file is imported under its addresses with the resources that its pages request.
///
/// Guarantee: pages/imports
#[test]
fn warc_import_keeps_pages_with_their_parts() {
    let place = Place::new();
    let shown =
        b"<!doctype html><title>Kept</title><link rel=stylesheet href=/style.css><img src=a.png><p>text";
    let red = png(20, 20, [200, 0, 0, 255]);
    let records: [(&str, &str, &[u8]); 4] = [
        ("http://a.invalid/page", HTML, shown),
        ("http://a.invalid/style.css", "Content-Type: text/css\r\n", b"p { background: green }"),
        ("http://a.invalid/a.png", "Content-Type: image/png\r\n", &red),
        (
            "http://a.invalid/never",
            &format!("{HTML}Cache-Control: no-store\r\n"),
            b"<p>of no store",
        ),
    ];
    let file = place.write("crawl.warc", warc(&records));
    let (report, said, code) = ended(&mut importing(&place, &file));
    assert_eq!((counts(&report), code), ([2, 2, 0, 0], 0), "{said}");
    assert_eq!(counts(&ended(&mut importing(&place, &file)).0), [2, 0, 2, 0]);

    let site = place.folder.path().join("same");
    std::fs::create_dir(&site).unwrap();
    let text = String::from_utf8(shown.to_vec()).unwrap().replace("/style.css", "style.css");
    std::fs::write(site.join("page.html"), text).unwrap();
    std::fs::write(site.join("style.css"), "p { background: green }").unwrap();
    std::fs::write(site.join("a.png"), &red).unwrap();
    let cache = place.cache();
    let usual = OpenOptions::new(
        view(300, 200),
        &limits(),
        Some(&cache),
        std::sync::Arc::new(holdfast_page::Files),
    );
    for page in ["http://a.invalid/page", "http://a.invalid/never"] {
        let opening = OpenOptions { asking: CachePolicy::Offline, ..usual.clone() };
        let opened = open_with(&Address::parse(page).unwrap(), &opening).unwrap();
        assert_eq!(opened.tier, Tier::Pixels, "{page}: {:?}", opened.notes);
        assert!(
            opened.notes.iter().any(|note| note.contains("2024-05-06T07:08:09Z")),
            "{:?}",
            opened.notes
        );
        if page.ends_with("page") {
            assert_eq!(opened.pixels, anew(&site.join("page.html"), view(300, 200)));
        }
    }
    let listed = place.program().arg("ls").output().unwrap();
    assert!(String::from_utf8_lossy(&listed.stdout).contains("http://a.invalid/page  Kept"));
}

/// The document of an address belongs to the view that was used last.
///
/// Guarantee: pages/imports
#[test]
fn document_is_that_of_the_last_used_view() {
    let place = Place::new();
    let document = |address: &str| {
        let address = Address::parse(address).unwrap();
        place.cache().document_of(address.as_str()).unwrap()
    };
    assert_eq!(document("http://a.invalid/"), None);
    let file =
        place.write("crawl.warc", warc(&[("http://a.invalid/", HTML, b"<!doctype html><p>older")]));
    ended(importing(&place, &file).args(["--only", "document"]));
    let older = document("http://a.invalid/#place").unwrap();
    assert!(older.starts_with("dom:"), "{older}");
    let name = place.cache().views().unwrap()[0].name.clone();
    place.spoil(|heap| {
        let used = crate::HEADER_BYTES as u64 - 8;
        heap.transaction(|tx| tx.write(tx.root(&name).unwrap(), used, &1_000u64.to_le_bytes()))
            .unwrap();
    });
    place.write("crawl.warc", warc(&[("http://a.invalid/", HTML, b"<!doctype html><p>newer")]));
    ended(&mut importing(&place, &file));
    let newer = document("http://a.invalid/").unwrap();
    assert!(newer.starts_with("dom:") && newer != older, "{newer}");
    place.spoil(|heap| {
        heap.transaction(|tx| tx.write(tx.root(&newer).unwrap(), 100, &[0xff; 8])).unwrap();
    });
    assert_eq!(document("http://a.invalid/"), Some(older), "a rotted document is not returned");
}

/// Answers that nothing changed to a client that knows the validator of the archive.
fn unchanged_server() -> (u16, std::sync::mpsc::Receiver<String>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, asked) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().take(4) {
            let mut stream = stream.unwrap();
            let mut head = String::new();
            let mut lines = BufReader::new(stream.try_clone().unwrap());
            while lines.read_line(&mut head).is_ok_and(|read| read > 2) {}
            let _ = sender.send(head);
            let _ = stream.write_all(b"HTTP/1.1 304 Not Modified\r\nConnection: close\r\n\r\n");
        }
    });
    (port, asked)
}

/// A page imported from a WARC file is revalidated as its server said at the time.
///
/// Guarantee: pages/imports
#[test]
fn imported_page_is_revalidated() {
    let place = Place::new();
    let (port, asked) = unchanged_server();
    let url = format!("http://127.0.0.1:{port}/");
    let file = place.write("crawl.warc", warc(&[(&url, HTML, b"<!doctype html><p>text")]));
    assert_eq!(counts(&ended(&mut importing(&place, &file)).0), [1, 1, 0, 0]);
    let mut opening = place.program();
    let output = opening.args(["open", &url, "--viewport", "300x200"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.starts_with("pixels"), "{output:?}");
    let head = asked.recv_timeout(Duration::from_secs(60)).unwrap().to_ascii_lowercase();
    assert!(head.contains("if-none-match: \"1\""), "{head}");
}

/// An import of documents lays nothing out; the layout is made when a page is opened.
///
/// Guarantee: pages/imports
#[test]
fn document_import_lays_nothing_out() {
    let place = Place::new();
    let site = pages(&place, 3);
    let only = ["--only", "document"];
    assert_eq!(counts(&ended(importing(&place, &site).args(only)).0), [3, 3, 0, 0]);
    let stats = place.cache().stats().unwrap();
    assert_eq!((stats.views, stats.documents), (3, 3));
    assert!(stats.view_bytes < 3 * 1_000, "{stats:?}");
    assert_eq!(counts(&ended(importing(&place, &site).args(only)).0), [3, 0, 3, 0]);
    let first = site.join("000.html");
    assert_eq!(place.open(&first, view(300, 200)).tier, Tier::Document);
    assert_eq!(place.open(&first, view(300, 200)).tier, Tier::Pixels);
    assert_eq!(counts(&ended(importing(&place, &site).args(only)).0), [3, 0, 3, 0]);
    std::fs::write(&first, page(7)).unwrap();
    assert_eq!(counts(&ended(importing(&place, &site).args(only)).0), [3, 1, 2, 0]);
    assert_eq!(place.cache().check().unwrap(), []);
}

/// Guarantee: pages/imports
#[test]
fn pages_that_fail_are_named_and_the_others_are_kept() {
    let place = Place::new();
    let site = pages(&place, 4);
    std::fs::write(site.join("001-deep.html"), "<div>".repeat(1_000)).unwrap();
    let greedy = "u { text-decoration: underline dashed; letter-spacing: 1e9px }";
    // Both are begun when the process ends; which one it was shows only when each is tried alone.
    for name in ["003-greedy.html", "004-greedy.html"] {
        std::fs::write(site.join(name), format!("<style>{greedy}</style><u>ab</u>")).unwrap();
    }
    // A limit below the one that the program sets itself, so that it is soon met.
    let mut shell = Command::new("sh");
    let program = place.program();
    shell.args(["-c", "ulimit -d 1500000 && exec \"$0\" \"$@\""]).arg(program.get_program());
    shell.envs(program.get_envs().filter_map(|(key, value)| Some((key, value?))));
    shell.arg("import").arg(&site).args([
        "--viewport",
        "300x200",
        "--timeout",
        "300",
        "--jobs",
        "2",
    ]);
    let (report, said, code) = ended(shell.stdin(Stdio::null()));
    assert_eq!((counts(&report), code), ([7, 4, 0, 3], 1), "{said}");
    let why = |name: &str| {
        let failed = report["failed"].as_array().unwrap().iter();
        let mut found = failed.filter(|failed| failed["address"].as_str().unwrap().ends_with(name));
        found.next().unwrap()["why"].as_str().unwrap().to_owned()
    };
    assert!(why("001-deep.html").contains("more than 400 levels"), "{}", why("001-deep.html"));
    for name in ["003-greedy.html", "004-greedy.html"] {
        assert!(why(name).contains("ended the process"), "{}", why(name));
    }
    assert!(said.contains("001-deep.html") && said.contains("003-greedy.html"), "{said}");
    assert_eq!(place.cache().check().unwrap(), []);
}

/// A damaged WARC file gives its other records, and its text cannot steer the terminal.
///
/// Guarantee: pages/warc
#[test]
fn damaged_warc_file_gives_the_rest() {
    let place = Place::new();
    let whole =
        warc(&[("http://a.invalid/1", HTML, b"<p>1"), ("http://a.invalid/2", HTML, b"<p>2")]);
    let fields = format!("{HTML}Content-Encoding: \u{9b}31m\r\n");
    let evil = warc(&[("http://a.invalid/x", &fields, b"<p>x")]);
    let rubbish = b"WARC/1.0\r\nWARC-Type: response\r\nContent-Length: 99999999\r\n\r\n".to_vec();
    let file = place.write("crawl.warc", [evil, rubbish, whole].concat());
    let (report, said, code) = ended(&mut importing(&place, &file));
    assert_eq!((counts(&report), code), ([3, 2, 0, 1], 1), "{said}");
    assert_eq!(report["damaged"], 1);
    assert!(said.contains("at byte ") && said.contains("\\u{9b}31m"), "{said}");
    assert!(!said.contains(|c: char| c.is_control() && c != '\n'), "{said:?}");
    let wrong = place.write("wrong.txt", "no archive");
    let refused: Output = importing(&place, &wrong).output().unwrap();
    assert_eq!(refused.status.code(), Some(5), "{refused:?}");
    assert_eq!(
        importing(&place, &place.folder.path().join("nothing")).output().unwrap().status.code(),
        Some(3)
    );
}

/// Guarantee: pages/import-kills
#[test]
fn an_import_that_is_killed_goes_on_where_it_was() {
    let place = Place::new();
    let site = pages(&place, 24);
    let started = Instant::now();
    ended(&mut importing_at(&place, &site, "200x100"));
    let takes = started.elapsed();
    let mut kept = 0;
    for round in 0..12 {
        let mut child =
            importing(&place, &site).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(takes.mul_f64(0.2 + f64::from(round) / 20.0));
        // It may have ended.
        let _ = child.kill();
        child.wait().unwrap();
        assert_eq!(place.cache().check().unwrap(), [], "kill {round}");
        let views = place.cache().views().unwrap();
        assert!(views.iter().all(|row| row.document_bytes > 0), "kill {round}");
        let now = views.iter().filter(|row| row.viewport.0 == 300).count();
        assert!(now >= kept, "kill {round}: {now} of {kept}");
        kept = now;
        if round == 5 {
            std::fs::write(site.join("000.html"), page(300)).unwrap();
        }
    }
    let (report, said, code) = ended(&mut importing(&place, &site));
    let [pages, new, unchanged, failed] = counts(&report);
    assert_eq!((pages, failed, code), (24, 0, 0), "{said}");
    assert!(unchanged > 0 && new + unchanged == 24, "{report}");
    assert_eq!(place.open(&site.join("000.html"), view(300, 200)).tier, Tier::Pixels);
}

fn wait_for(child: &mut Child) -> (String, String, i32) {
    let (mut out, mut err) = (String::new(), String::new());
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    (out, err, child.wait().unwrap().code().unwrap_or(-1))
}

/// An import that is stopped ends after the pages already begun.
///
/// Guarantee: pages/import-kills
#[test]
fn stopped_import_ends_after_begun_pages() {
    let place = Place::new();
    let site = pages(&place, 300);
    let mut child = importing(&place, &site).arg("--json").spawn().unwrap();
    let started = Instant::now();
    while place.cache().views().unwrap().is_empty() && started.elapsed().as_secs() < 60 {
        std::thread::sleep(Duration::from_millis(5));
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let (out, said, code) = wait_for(&mut child);
    let report: Value = serde_json::from_str(&out).unwrap();
    let [pages, kept, _, failed] = counts(&report);
    assert_eq!((pages, failed, code, &report["ended"]), (300, 0, 130, &"stopped".into()), "{said}");
    assert!(kept > 0 && kept < 300 && said.contains("the same command goes on"), "{kept}: {said}");
    assert_eq!(place.cache().views().unwrap().len() as u64, kept);
}

/// Guarantee: pages/import-kills
#[test]
fn two_imports_and_a_browser_share_one_cache() {
    let place = Place::new();
    let site = pages(&place, 30);
    let first = site.join("000.html");
    place.open(&first, view(300, 200));
    let expected = anew(&first, view(300, 200));
    let children = [(); 2].map(|()| importing(&place, &site).arg("--json").spawn().unwrap());
    let mut opened = 0;
    let mut reports = Vec::new();
    for mut child in children {
        while child.try_wait().unwrap().is_none() {
            assert_eq!(place.open(&first, view(300, 200)).pixels, expected);
            opened += 1;
        }
        let (out, said, code) = wait_for(&mut child);
        assert_eq!(code, 0, "{said}");
        reports.push(counts(&serde_json::from_str(&out).unwrap()));
    }
    assert!(opened > 0);
    assert!(
        reports.iter().all(|[pages, kept, unchanged, _]| (*pages, kept + unchanged) == (30, 30)),
        "{reports:?}"
    );
    assert_eq!(place.cache().check().unwrap(), []);
    assert_eq!(place.cache().views().unwrap().len(), 30);
}

/// An import stops when the cache is full of the pages that it imported.
///
/// Guarantee: pages/import-kills
#[test]
fn import_stops_at_a_cache_full_of_its_pages() {
    let place = Place::new();
    let older = place.write("older.html", page(1));
    place.open(&older, view(300, 200));
    let name = place.cache().views().unwrap()[0].name.clone();
    place.spoil(|heap| {
        let used = crate::HEADER_BYTES as u64 - 8;
        heap.transaction(|tx| tx.write(tx.root(&name).unwrap(), used, &1_000u64.to_le_bytes()))
            .unwrap();
    });
    let site = pages(&place, 20);
    let stats = place.cache().stats().unwrap();
    // Five pages that differ by little, and not the layout of the older one beside them.
    let quota = ((stats.view_bytes + stats.document_bytes) * 51 / 10).to_string();
    let (report, said, code) = ended(importing(&place, &site).args(["--quota", &quota]));
    let [pages, kept, _, failed] = counts(&report);
    assert_eq!((pages, failed, code, &report["ended"]), (20, 0, 6, &"full".into()), "{said}");
    assert!((2..10).contains(&kept) && said.contains("--quota"), "{kept}: {said}");
    assert_eq!(report["evicted"], 1, "what was used longer ago goes for it");
    let left = place.cache().views().unwrap();
    assert_eq!(left.len() as u64, kept, "and nothing of its own: {left:?}");
    // Done again it keeps what it had, too.
    let (report, said, code) = ended(importing(&place, &site).args(["--quota", &quota]));
    assert_eq!((report["unchanged"].as_u64().unwrap(), code), (kept, 6), "{said}");
}

/// Guarantee: pages/import-kills
#[test]
fn a_reader_that_went_away_is_no_failure_of_an_import() {
    let place = Place::new();
    let site = pages(&place, 4);
    std::fs::write(site.join("bad.html"), "<div>".repeat(1_000)).unwrap();
    let mut child = importing(&place, &site).spawn().unwrap();
    drop((child.stdout.take(), child.stderr.take()));
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert_eq!(place.cache().views().unwrap().len(), 4);
}

/// Guarantee: pages/warc
#[test]
fn what_wget_has_kept_is_imported() {
    let place = Place::new();
    if Command::new("wget").arg("--version").output().is_err() {
        println!("not run: there is no wget; `./test` installs it");
        return;
    }
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming().take(20) {
            let mut stream = stream.unwrap();
            let (mut head, mut lines) =
                (String::new(), BufReader::new(stream.try_clone().unwrap()));
            while lines.read_line(&mut head).is_ok_and(|read| read > 2) {}
            let answer = match head.split(' ').nth(1) {
                Some("/") => {
                    "200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n\
                     31\r\n<!doctype html><title>Start</title><link rel=styl\r\n\
                     27\r\nesheet href=/a.css><a href=/b>b</a><p>x\r\n0\r\n\r\n"
                        .to_owned()
                }
                Some("/a.css") => {
                    "200 OK\r\nContent-Type: text/css\r\n\r\np { color: red }".to_owned()
                }
                Some("/b") => {
                    "200 OK\r\nContent-Type: text/html\r\n\r\n<title>B</title><p>b".to_owned()
                }
                _ => "404 Not Found\r\nContent-Type: text/html\r\n\r\n<p>no".to_owned(),
            };
            let _ = stream.write_all(
                format!("HTTP/1.1 {}", answer.replacen("\r\n", "\r\nConnection: close\r\n", 1))
                    .as_bytes(),
            );
        }
    });
    let got = Command::new("wget")
        .current_dir(place.folder.path())
        .args([
            "--no-config",
            "--no-proxy",
            "-q",
            "-r",
            "-p",
            "--tries=1",
            "--timeout=60",
            "--warc-file=crawl",
            "-P",
            "got",
            &url,
        ])
        .status()
        .unwrap();
    let file = place.folder.path().join("crawl.warc.gz");
    // It says 8 where a page is missing.
    assert!(got.code().is_some_and(|code| [0, 8].contains(&code)) && file.is_file(), "{got}");
    let (report, said, code) = ended(&mut importing(&place, &file));
    assert_eq!((counts(&report), code), ([2, 2, 0, 0], 0), "{said}");
    assert_eq!((&report["wrong_sums"], &report["damaged"]), (&0.into(), &0.into()), "{said}");
    let titles: Vec<String> =
        place.cache().views().unwrap().into_iter().map(|row| row.title).collect();
    assert!(titles.contains(&"Start".to_owned()) && titles.contains(&"B".to_owned()), "{titles:?}");
    let offline = place
        .program()
        .args(["open", &url, "--offline", "--viewport", "300x200"])
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&offline.stdout).starts_with("pixels"), "{offline:?}");
}
