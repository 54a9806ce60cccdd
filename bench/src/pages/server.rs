//! The pages and what they ask for, over HTTP on this machine's own address.
//!
//! Addresses begin with how long an answer is good: `/fresh/` for an hour, `/ask/` never, so that
//! it is asked whether it changed, which it did not. Files are read when they are asked for first.
//! Nothing outside of the site is given.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use xxhash_rust::xxh3::xxh3_64;

/// Answers that are good for an hour.
pub(super) const FRESH: &str = "fresh";
/// Answers that are asked for again.
pub(super) const ASK: &str = "ask";
/// Bytes of a request.
const REQUEST_BYTES_MAX: u64 = 64 << 10;
/// How long a connection may be silent.
const SILENCE: Duration = Duration::from_secs(30);

struct File {
    bytes: Vec<u8>,
    tag: String,
}

struct Site {
    folder: PathBuf,
    files: Mutex<HashMap<PathBuf, Option<Arc<File>>>>,
    /// Answers with a file, or that it did not change.
    answers: AtomicU64,
    ends: AtomicBool,
}

/// An HTTP server on loopback that serves one set of pages.
pub(super) struct Server {
    site: Arc<Site>,
    port: u16,
    listens: Option<JoinHandle<()>>,
}

impl Server {
    pub(super) fn start(folder: &Path) -> io::Result<Server> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let port = listener.local_addr()?.port();
        let site = Arc::new(Site {
            folder: folder.to_owned(),
            files: Mutex::default(),
            answers: AtomicU64::new(0),
            ends: AtomicBool::new(false),
        });
        let here = Arc::clone(&site);
        let listens = std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if here.ends.load(Ordering::Relaxed) {
                    break;
                }
                let site = Arc::clone(&here);
                // A client that goes away is no error of the server.
                std::thread::spawn(move || drop(site.serve(&stream)));
            }
        });
        Ok(Server { site, port, listens: Some(listens) })
    }

    /// The address of a page; `how` is [`FRESH`] or [`ASK`].
    pub(super) fn address(&self, how: &str, path: &str) -> String {
        format!("http://127.0.0.1:{}/{how}/{path}", self.port)
    }

    /// How many times it had what was asked for.
    pub(super) fn answers(&self) -> u64 {
        self.site.answers.load(Ordering::Relaxed)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.site.ends.store(true, Ordering::Relaxed);
        // So that it looks.
        drop(TcpStream::connect(("127.0.0.1", self.port)));
        if let Some(listens) = self.listens.take() {
            let _ = listens.join();
        }
    }
}

impl Site {
    fn serve(&self, stream: &TcpStream) -> io::Result<()> {
        stream.set_read_timeout(Some(SILENCE))?;
        stream.set_write_timeout(Some(SILENCE))?;
        stream.set_nodelay(true)?;
        loop {
            let mut from = BufReader::new(stream.take(REQUEST_BYTES_MAX));
            let mut first = String::new();
            if from.read_line(&mut first)? == 0 {
                return Ok(());
            }
            let (mut tag, mut closes) = (None, first.trim_end().ends_with("HTTP/1.0"));
            loop {
                let mut line = String::new();
                if from.read_line(&mut line)? == 0 {
                    return Ok(());
                }
                let Some((name, value)) = line.split_once(':') else { break };
                match name.to_ascii_lowercase().as_str() {
                    "if-none-match" => tag = Some(value.trim().to_owned()),
                    "connection" => closes |= value.trim().eq_ignore_ascii_case("close"),
                    _ => {}
                }
            }
            self.answer(
                stream,
                first.split(' ').nth(1).unwrap_or_default(),
                tag.as_deref(),
                closes,
            )?;
            if closes {
                return Ok(());
            }
        }
    }

    fn answer(
        &self,
        mut to: &TcpStream,
        target: &str,
        tag: Option<&str>,
        closes: bool,
    ) -> io::Result<()> {
        let target = target.split(['?', '#']).next().unwrap_or_default().trim_start_matches('/');
        let (how, path) = target.split_once('/').unwrap_or_default();
        let control = if how == FRESH { "max-age=3600" } else { "no-cache" };
        let ends = if closes { "Connection: close\r\n" } else { "" };
        let file = self.file(Path::new(path)).filter(|_| matches!(how, FRESH | ASK));
        let Some(file) = file else {
            return to.write_all(
                format!("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n{ends}\r\n").as_bytes(),
            );
        };
        self.answers.fetch_add(1, Ordering::Relaxed);
        let about = format!("ETag: {}\r\nCache-Control: {control}\r\n{ends}\r\n", file.tag);
        if tag == Some(&file.tag) {
            return to.write_all(format!("HTTP/1.1 304 Not Modified\r\n{about}").as_bytes());
        }
        let (kind, length) = (kind(path), file.bytes.len());
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{about}"
        );
        to.write_all(head.as_bytes())?;
        to.write_all(&file.bytes)
    }

    fn file(&self, path: &Path) -> Option<Arc<File>> {
        if !path.components().all(|part| matches!(part, Component::Normal(_))) {
            return None;
        }
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let read = || {
            let bytes = std::fs::read(self.folder.join(path)).ok()?;
            let tag = format!("\"{:016x}\"", xxh3_64(&bytes));
            Some(Arc::new(File { bytes, tag }))
        };
        files.entry(path.to_owned()).or_insert_with(read).clone()
    }
}

fn kind(path: &str) -> &'static str {
    match path.rsplit('.').next().unwrap_or_default() {
        "html" => "text/html; charset=utf-8",
        "css" => "text/css",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "svg" => "image/svg+xml",
        "woff2" => "font/woff2",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(server: &Server, request: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn a_page_is_given_once_and_then_said_to_be_the_same() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.html"), "a page").unwrap();
        let server = Server::start(folder.path()).unwrap();
        let answer = asked(&server, "GET /ask/a.html HTTP/1.1\r\nConnection: close\r\n\r\n");
        assert!(
            answer.starts_with("HTTP/1.1 200") && answer.ends_with("\r\n\r\na page"),
            "{answer}"
        );
        assert!(answer.contains("no-cache") && answer.contains("text/html"), "{answer}");
        let tag = answer.split("ETag: ").nth(1).unwrap().split('\r').next().unwrap();
        let again =
            asked(&server, &format!("GET /ask/a.html HTTP/1.0\r\nIf-None-Match: {tag}\r\n\r\n"));
        assert!(again.starts_with("HTTP/1.1 304") && !again.contains("a page"), "{again}");
        assert!(asked(&server, "GET /fresh/a.html?x HTTP/1.0\r\n\r\n").contains("max-age=3600"));
        assert_eq!(server.answers(), 3);
        for nowhere in ["/ask/b.html", "/ask/../a.html", "/a.html", "/ask//etc/passwd", ""] {
            let answer = asked(&server, &format!("GET {nowhere} HTTP/1.0\r\n\r\n"));
            assert!(answer.starts_with("HTTP/1.1 404"), "{nowhere}: {answer}");
        }
    }
}
