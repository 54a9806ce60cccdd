//! Fetches an applet from a server, by its pinned address.
//!
//! Invariants: without a pinned hash nothing is kept; every request ends, after a bounded number of
//! bytes, redirects and seconds; a redirect leads to `https:` or nowhere.

use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::{Agent, Body, http};
use url::Url;

use crate::cache::{AppletCache, CacheError};
use crate::hash::AppletHash;
use crate::pinned::{PinnedAddress, is_this_machine};

/// The largest applet that is fetched, or taken from a page.
pub const APPLET_BYTES_MAX: u64 = 64 << 20;
const REDIRECTS_MAX: u32 = 5;
const CONNECT: Duration = Duration::from_secs(15);
const ANSWER: Duration = Duration::from_secs(120);
const CHUNK_BYTES: usize = 64 << 10;

/// Why an applet was not fetched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DownloadError {
    /// The address has no hash.
    #[error(
        "the applet at {address} is not pinned; nothing ran. What the server has now has SHA-256 {found}: compare that with \
         what its author says, and add it to the address, as {address}#sha256=HEX"
    )]
    NotPinned {
        /// The address.
        address: String,
        /// What the server sent.
        found: AppletHash,
    },
    /// The server answered with another status than 200.
    #[error("the server answers {status} for {url}; check the address")]
    Status {
        /// The status.
        status: u16,
        /// What was asked for.
        url: String,
    },
    /// A redirect to what is not fetched.
    #[error(
        "the server at {from} leads to {to}, and redirects are followed to https: addresses only; fetch it by hand"
    )]
    Redirect {
        /// Where it began.
        from: String,
        /// Where it would lead.
        to: String,
    },
    /// The redirects have no end.
    #[error("the server redirects more than {REDIRECTS_MAX} times; give the address of the file")]
    Redirects,
    /// The connection failed.
    #[error("cannot fetch {url}: {reason}; check the address and the network")]
    Failed {
        /// What was asked for.
        url: String,
        /// What went wrong.
        reason: String,
    },
    /// It cannot be kept, or is not what was asked for.
    #[error(transparent)]
    Cache(#[from] CacheError),
}

/// The file of a pinned applet: from the cache, or else from its server.
///
/// # Errors
/// [`DownloadError`]; nothing was kept then.
pub fn fetch(address: &PinnedAddress, cache: &AppletCache) -> Result<PathBuf, DownloadError> {
    let Some(hash) = address.hash() else {
        let (mut hasher, mut bytes) = (Sha256::new(), 0);
        read(address.url(), |chunk| {
            bytes += chunk.len() as u64;
            hasher.update(chunk);
            match bytes > APPLET_BYTES_MAX {
                true => Err(CacheError::TooLarge { bytes_max: APPLET_BYTES_MAX }),
                false => Ok(()),
            }
        })?;
        let found = AppletHash::from_bytes(hasher.finalize().into());
        return Err(DownloadError::NotPinned { address: address.to_string(), found });
    };
    if let Some(path) = cache.find(hash)? {
        return Ok(path);
    }
    let mut incoming = cache.receive(hash, APPLET_BYTES_MAX)?;
    read(address.url(), |chunk| incoming.write(chunk))?;
    Ok(cache.store(incoming)?)
}

/// Hands the bytes of an address to `take`, chunk by chunk.
fn read(
    from: &Url,
    take: impl FnMut(&[u8]) -> Result<(), CacheError>,
) -> Result<(), DownloadError> {
    let mut url = from.clone();
    let mut client = agent(url.scheme() == "https");
    for _ in 0..=REDIRECTS_MAX {
        let mut config = client.get(url.as_str()).config();
        if is_this_machine(&url) {
            config = config.proxy(None);
        }
        let mut response =
            config.build().call().map_err(|error| failed(&url, &error.to_string()))?;
        match response.status().as_u16() {
            200 => return read_body(&url, &mut response, take),
            301 | 302 | 303 | 307 | 308 => {
                let to = target(&url, &response)?;
                if to.scheme() != url.scheme() {
                    client = agent(to.scheme() == "https");
                }
                url = to;
            }
            status => return Err(DownloadError::Status { status, url: url.to_string() }),
        }
    }
    Err(DownloadError::Redirects)
}

fn read_body(
    url: &Url,
    response: &mut http::Response<Body>,
    mut take: impl FnMut(&[u8]) -> Result<(), CacheError>,
) -> Result<(), DownloadError> {
    // The client says how many bytes it takes, so its own limit is not the one that counts.
    let mut body = response.body_mut().as_reader();
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        match body.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => take(&buffer[..count])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(failed(url, &error.to_string())),
        }
    }
}

fn failed(url: &Url, reason: &str) -> DownloadError {
    DownloadError::Failed { url: url.to_string(), reason: reason.to_owned() }
}

/// Where a redirect leads.
fn target(from: &Url, response: &http::Response<Body>) -> Result<Url, DownloadError> {
    let said = response.headers().get(http::header::LOCATION).and_then(|value| value.to_str().ok());
    let to = said.unwrap_or_default();
    match from.join(to) {
        Ok(url) if url.scheme() == "https" && url.username().is_empty() && !to.is_empty() => {
            Ok(url)
        }
        _ => Err(DownloadError::Redirect { from: from.to_string(), to: to.to_owned() }),
    }
}

/// A client that believes the certificates that the system trusts. They are read only for `https:`.
fn agent(is_https: bool) -> Agent {
    let certificates = match is_https {
        true => rustls_native_certs::load_native_certs().certs,
        false => Vec::new(),
    };
    let certificates: Vec<_> = certificates
        .iter()
        .map(|certificate| Certificate::from_der(certificate).to_owned())
        .collect();
    let tls = TlsConfig::builder()
        .root_certs(RootCerts::new_with_certs(&certificates))
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build();
    Agent::config_builder()
        .user_agent(concat!("holdfast/", env!("CARGO_PKG_VERSION")))
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .timeout_connect(Some(CONNECT))
        .timeout_global(Some(ANSWER))
        .tls_config(tls)
        .build()
        .new_agent()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::TcpListener;
    use std::thread;

    /// A server of this machine that gives each request the next answer; its address.
    fn server(answers: Vec<String>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 4096];
                let _ = stream.read(&mut request).unwrap();
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        format!("http://{address}/applet")
    }

    fn answer(body: &str) -> String {
        format!(
            "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
    }

    fn fetched(address: &str, cache: &AppletCache) -> Result<PathBuf, DownloadError> {
        fetch(&PinnedAddress::parse(address).unwrap(), cache)
    }

    fn hex(bytes: &str) -> String {
        AppletHash::from_bytes(Sha256::digest(bytes).into()).to_string()
    }

    /// A pinned applet is fetched once; what is not pinned, or is something else, is not kept.
    ///
    /// Guarantee: serve/pinned
    #[test]
    fn applet_is_fetched_once_by_its_pinned_hash() {
        let folder = tempfile::tempdir().unwrap();
        let cache = AppletCache::at(folder.path(), 1000).unwrap();
        let address = server(vec![answer("applet"), answer("applet"), answer("another")]);
        let error = fetched(&address, &cache).unwrap_err().to_string();
        assert!(error.contains("#sha256=") && error.contains(&hex("applet")), "{error}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        let pinned = format!("{address}#sha256={}", hex("applet"));
        let path = fetched(&pinned, &cache).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"applet");
        assert_eq!(fetched(&pinned, &cache).unwrap(), path);
        let other = format!("{address}#sha256={}", hex("other"));
        let error = fetched(&other, &cache).unwrap_err().to_string();
        assert!(error.contains(&hex("other")) && error.contains(&hex("another")), "{error}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    /// Guarantee: serve/pinned
    #[test]
    fn redirects_lead_to_https_or_nowhere() {
        let folder = tempfile::tempdir().unwrap();
        let cache = AppletCache::at(folder.path(), 1000).unwrap();
        for to in ["http://127.0.0.1:1/b", "file:///etc/passwd", "/b", "", "https://u@a/b"] {
            let address = server(vec![format!(
                "HTTP/1.1 302 Found\r\nlocation: {to}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
            )]);
            let pinned = format!("{address}#sha256={}", hex("applet"));
            let refused = fetched(&pinned, &cache).unwrap_err();
            assert!(matches!(refused, DownloadError::Redirect { .. }), "{to}: {refused}");
        }
        let cut =
            "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 9\r\n\r\nappl".to_owned();
        let pinned = format!("{}#sha256={}", server(vec![cut]), hex("appl"));
        let refused = fetched(&pinned, &cache).unwrap_err();
        assert!(matches!(refused, DownloadError::Failed { .. }), "{refused}");
    }
}
