//! The files of the page, from one directory.
//!
//! Invariants: no file outside of the directory is read, whatever a path or a symbolic link says: the
//! kernel resolves each path beneath the open directory. Hidden files are not served.

use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::response::Response;
use futures_util::StreamExt;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use tokio_util::io::ReaderStream;

use crate::listener::Serving;

const INDEX: &str = "index.html";

/// A directory that is served.
#[derive(Debug, Clone)]
pub(crate) struct Files(Arc<OwnedFd>);

/// What a path leads to.
enum Found {
    File(File, u64),
    Directory,
}

impl Files {
    pub(crate) fn open(path: &Path) -> io::Result<Files> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Files(Arc::new(rustix::fs::open(path, flags, Mode::empty())?)))
    }

    /// The answer to a request for the path of an address, as it is written there.
    /// Its bytes are read while they leave, and keep `serving` until then.
    pub(crate) async fn answer(
        &self,
        method: &Method,
        address: &Uri,
        serving: Arc<Serving>,
    ) -> Response {
        let path = address.path();
        if *method != Method::GET && *method != Method::HEAD {
            return text(StatusCode::METHOD_NOT_ALLOWED, "files are read with GET");
        }
        let Some(mut name) = file_name(path) else { return not_found() };
        if path.ends_with('/') {
            name.push(INDEX);
        }
        match self.find(&name) {
            Ok(Found::File(file, bytes)) => {
                let body = match *method == Method::HEAD {
                    true => Body::empty(),
                    false => body_of(file, serving),
                };
                file_answer(&name, body, bytes)
            }
            // So that relative addresses in its page are right.
            Ok(Found::Directory) if !path.starts_with("//") => {
                let mut answer = text(StatusCode::PERMANENT_REDIRECT, "");
                // What is behind the path is for that page.
                let query = address.query().map(|query| format!("?{query}")).unwrap_or_default();
                match HeaderValue::from_str(&ascii(&format!("{path}/{query}"))) {
                    Ok(to) => {
                        answer.headers_mut().insert(header::LOCATION, to);
                        answer
                    }
                    Err(_) => not_found(),
                }
            }
            _ => not_found(),
        }
    }

    fn find(&self, name: &Path) -> io::Result<Found> {
        // A pipe must not make the opening wait.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let file = loop {
            match rustix::fs::openat2(&*self.0, name, flags, Mode::empty(), resolve) {
                // A directory was renamed meanwhile.
                Err(rustix::io::Errno::AGAIN) => {}
                other => break other?,
            }
        };
        let found = rustix::fs::fstat(&file)?;
        match FileType::from_raw_mode(found.st_mode) {
            FileType::RegularFile => {
                Ok(Found::File(File::from(file), u64::try_from(found.st_size).unwrap_or(0)))
            }
            FileType::Directory => Ok(Found::Directory),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

/// The path of a file beneath the directory; `None` for one that is not served.
fn file_name(path: &str) -> Option<PathBuf> {
    let bytes = percent_decoded(path.strip_prefix('/')?)?;
    let decoded = String::from_utf8(bytes).ok()?;
    let mut name = PathBuf::new();
    for part in decoded.split('/').filter(|part| !part.is_empty()) {
        // Neither `..` nor what is hidden, as `.git` is.
        if part.starts_with('.') || part.contains('\0') {
            return None;
        }
        name.push(part);
    }
    if name.as_os_str().is_empty() && !path.ends_with('/') {
        return None;
    }
    Some(name)
}

/// An address as a header may have it: what is beyond ASCII is percent-encoded.
fn ascii(address: &str) -> String {
    let mut encoded = String::with_capacity(address.len());
    for byte in address.bytes() {
        if byte.is_ascii() {
            encoded.push(char::from(byte));
        } else {
            // A `String` takes all that is written to it.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

fn percent_decoded(text: &str) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let mut digit = || char::from(bytes.next()?).to_digit(16);
        decoded.push((digit()? << 4 | digit()?) as u8);
    }
    Some(decoded)
}

fn body_of(file: File, serving: Arc<Serving>) -> Body {
    let chunks = ReaderStream::new(tokio::fs::File::from_std(file));
    Body::from_stream(chunks.inspect(move |_| drop(Arc::clone(&serving))))
}

fn file_answer(name: &Path, body: Body, bytes: u64) -> Response {
    let mut answer = Response::new(body);
    let kind = mime_guess::from_path(name).first_or_octet_stream();
    let kind = match (kind.type_(), kind.subtype()) {
        // As RFC 9239 has it.
        (_, mime_guess::mime::JAVASCRIPT) => "text/javascript; charset=utf-8".to_owned(),
        (mime_guess::mime::TEXT, _) => format!("{kind}; charset=utf-8"),
        _ => kind.to_string(),
    };
    let headers = answer.headers_mut();
    if let Ok(kind) = HeaderValue::from_str(&kind) {
        headers.insert(header::CONTENT_TYPE, kind);
    }
    headers.insert(header::CONTENT_LENGTH, bytes.into());
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    answer
}

fn not_found() -> Response {
    text(StatusCode::NOT_FOUND, "there is no such file")
}

/// An answer of one line.
pub(crate) fn text(status: StatusCode, line: &str) -> Response {
    let body = if line.is_empty() { String::new() } else { format!("{line}\n") };
    let mut answer = Response::new(Body::from(body));
    *answer.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    answer.headers_mut().insert(header::CONTENT_TYPE, kind);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_stay_beneath() {
        let named = |path: &str| file_name(path).map(|name| name.display().to_string());
        assert_eq!(named("/").as_deref(), Some(""));
        assert_eq!(named("/a/b.mjs").as_deref(), Some("a/b.mjs"));
        assert_eq!(named("/a%20b/").as_deref(), Some("a b"));
        for bad in [
            "",
            "a",
            "/../a",
            "/a/../../b",
            "/%2e%2e/a",
            "/..%2fa",
            "/.git/config",
            "/a/.env",
            "/%00",
            "/%zz",
            "/%f",
            "/%ff",
        ] {
            assert_eq!(named(bad), None, "{bad}");
        }
    }
}
