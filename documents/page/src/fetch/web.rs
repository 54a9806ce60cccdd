//! Fetches from servers, over HTTP and HTTPS; and from files.
//!
//! Invariants: everything has an end: redirects, bytes (as they come and as they are without
//! compression), time; half an answer is an error. A server leads to no files. What is known is
//! told only to the address that said it.

use std::io::{self, Read};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use blitz_traits::net::Url;
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{ConnectProxyConnector, Connector, TcpConnector};
use ureq::{Agent, Body, http};

use crate::fetch::tls::TlsConnector;
use crate::fetch::{
    Fetch, FetchAnswer, FetchError, FetchRequest, FetchedBytes, Files, Headers, MissingResource,
    Purpose, freshness, sniff,
};

/// How long is waited for a connection.
const CONNECT: Duration = Duration::from_secs(15);
/// How often a server may lead to another address.
const REDIRECTS_MAX: u32 = 10;
/// Connections that are kept open, to all servers and to one; as many are used at once.
pub(crate) const CONNECTIONS: usize = 6;
/// The first bytes of a body that has no length; more room comes with the bytes.
const FIRST_BYTES: u64 = 64 << 10;

/// Gives files, and what servers have. No cookies are taken, and no names and passwords given.
#[derive(Clone, Debug)]
pub struct Web {
    agent: Agent,
    patience: Duration,
}

/// What is wrong with a server says nothing of the one that led there.
fn elsewhere(asked: &Url, at: &Url, error: FetchError) -> FetchError {
    if asked.origin() == at.origin() {
        return error;
    }
    let host = at.host_str().unwrap_or_default().to_owned();
    FetchError::Elsewhere { host, error: Arc::new(error) }
}

impl Web {
    /// Waits no longer than `patience` for an answer, and each part of it.
    #[must_use]
    pub fn new(patience: Duration) -> Web {
        let config = Agent::config_builder()
            .user_agent(concat!("holdfast-page/", env!("CARGO_PKG_VERSION")))
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_connect(Some(CONNECT.min(patience)))
            .timeout_per_read(Some(patience))
            .max_idle_connections(CONNECTIONS)
            .max_idle_connections_per_host(CONNECTIONS)
            .build();
        let connector =
            ().chain(ConnectProxyConnector::default())
                .chain(TcpConnector::default())
                .chain(TlsConnector::default());
        Web { agent: Agent::with_parts(config, connector, DefaultResolver::default()), patience }
    }

    fn ask(&self, wanted: &FetchRequest<'_>) -> Result<FetchAnswer, FetchError> {
        let end = Instant::now() + self.patience;
        let mut url = nameless(wanted.url.clone());
        // What was found by a redirect is kept no longer than that.
        let mut on_the_way = Headers::default();
        let said_by = |on_the_way: Headers, response: &http::Response<Body>| {
            let mut headers = on_the_way;
            headers_of(response).iter().for_each(|(name, value)| headers.add(name, value));
            headers
        };
        for _ in 0..=REDIRECTS_MAX {
            let called = self.call(&url, wanted, end);
            let mut response = called.map_err(|error| elsewhere(wanted.url, &url, error))?;
            let status = response.status().as_u16();
            match status {
                200 => {}
                304 if wanted.known.is_some_and(|known| *known.url == url) => {
                    return Ok(FetchAnswer::Unchanged(said_by(on_the_way, &response)));
                }
                301 | 302 | 303 | 307 | 308 => {
                    for word in freshness::restrictions(&headers_of(&response)) {
                        on_the_way.add("cache-control", word);
                    }
                    url = target(&url, &response)?;
                    continue;
                }
                404 | 410 if wanted.purpose == Purpose::Part => {
                    let headers = said_by(on_the_way, &response);
                    return Ok(FetchAnswer::Nothing(MissingResource { url, status, headers }));
                }
                404 | 410 => return Err(FetchError::NotFound),
                _ => return Err(FetchError::Status { status }),
            }
            let headers = said_by(on_the_way, &response);
            if wanted.purpose == Purpose::Page {
                check_kind(headers.get("content-type"))?;
            }
            let bytes = body(&mut response, wanted.bytes_max)?;
            let is_said = headers.get("content-type").is_some_and(|said| !said.trim().is_empty());
            if let (Purpose::Page, false, Some(kind)) =
                (wanted.purpose, is_said, sniff::binary_kind(&bytes))
            {
                return Err(FetchError::Binary { kind });
            }
            return Ok(FetchAnswer::Bytes(FetchedBytes {
                bytes,
                url,
                headers,
                at: SystemTime::now(),
            }));
        }
        Err(FetchError::Redirects { max: REDIRECTS_MAX })
    }

    fn call(
        &self,
        url: &Url,
        wanted: &FetchRequest<'_>,
        end: Instant,
    ) -> Result<http::Response<Body>, FetchError> {
        if Instant::now() >= end {
            return Err(FetchError::TimeOut { seconds: self.patience.as_secs() });
        }
        let accept = match wanted.purpose {
            Purpose::Page => "text/html,application/xhtml+xml;q=0.9,*/*;q=0.1",
            Purpose::Part => "*/*",
        };
        let ask = || {
            let mut request = self.agent.get(url.as_str()).header("Accept", accept);
            if wanted.anew {
                request = request.header("Cache-Control", "no-cache");
            }
            // Another address may have said the same of other bytes.
            if let Some(known) = wanted.known.filter(|known| known.url == url) {
                for (said, asked) in
                    [("etag", "If-None-Match"), ("last-modified", "If-Modified-Since")]
                {
                    if let Some(value) = known.headers.get(said) {
                        request = request.header(asked, value);
                    }
                }
            }
            let left = end.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            let mut config = request.config().timeout_global(Some(left));
            if is_this_machine(url) {
                config = config.proxy(None);
            }
            config.build().call()
        };
        let called = match ask() {
            // A connection that was kept open may have been closed at the other end just now.
            Err(ureq::Error::Io(error)) if is_hang_up(&error) => ask(),
            called => called,
        };
        called.map_err(|error| self.error_of(error))
    }

    fn error_of(&self, error: ureq::Error) -> FetchError {
        match error {
            ureq::Error::Timeout(_) => FetchError::TimeOut { seconds: self.patience.as_secs() },
            ureq::Error::HostNotFound => FetchError::HostNotFound,
            ureq::Error::Rustls(error) => FetchError::Tls { message: error.to_string() },
            ureq::Error::Tls(message) => FetchError::Tls { message: message.to_owned() },
            ureq::Error::Io(error) => of_io(error, self.patience),
            ureq::Error::Protocol(error) => FetchError::Protocol { message: error.to_string() },
            other => FetchError::Protocol { message: other.to_string() },
        }
    }
}

impl Fetch for Web {
    fn fetch(&self, wanted: &FetchRequest<'_>) -> Result<FetchAnswer, FetchError> {
        match wanted.url.scheme() {
            "http" | "https" => self.ask(wanted),
            _ => Files.fetch(wanted),
        }
    }
}

/// No proxy is asked for what is here.
fn is_this_machine(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost"
        || host.ends_with(".localhost")
        || address.is_ok_and(|address| address.is_loopback())
}

fn is_hang_up(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
}

fn headers_of(response: &http::Response<Body>) -> Headers {
    let mut headers = Headers::default();
    for (name, value) in response.headers() {
        if let Ok(value) = value.to_str() {
            headers.add(name.as_str(), value);
        }
    }
    headers
}

/// Without a name and password, which are never given.
fn nameless(mut url: Url) -> Url {
    // An address that has a host can be without both.
    let _ = url.set_username("").and_then(|()| url.set_password(None));
    url
}

/// Where a redirect leads.
fn target(from: &Url, response: &http::Response<Body>) -> Result<Url, FetchError> {
    let said = response.headers().get(http::header::LOCATION);
    // Some write letters as they are, which browsers take.
    let said = said.and_then(|value| std::str::from_utf8(value.as_bytes()).ok());
    let refused = FetchError::Refused(
        "the server leads on to something that is no address of http: or https:",
    );
    let Some(mut url) = said.and_then(|said| from.join(said).ok()) else { return Err(refused) };
    if !matches!(url.scheme(), "http" | "https") {
        return Err(refused);
    }
    if from.scheme() == "https" && url.scheme() == "http" {
        return Err(FetchError::Refused(
            "the server leads from https: to http:, where anybody can change the page",
        ));
    }
    url.set_fragment(None);
    Ok(nameless(url))
}

/// Pages are HTML; a server that does not say what it sends is not asked twice.
fn check_kind(content_type: Option<&str>) -> Result<(), FetchError> {
    let Some(said) = content_type else { return Ok(()) };
    let kind = said.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match kind.as_str() {
        "" | "text/html" | "application/xhtml+xml" => Ok(()),
        _ => Err(FetchError::NotHtml { kind: kind.chars().take(100).collect() }),
    }
}

fn body(response: &mut http::Response<Body>, bytes_max: u64) -> Result<Vec<u8>, FetchError> {
    // What the client can undo, it has taken off.
    if let Some(other) = response.headers().get(http::header::CONTENT_ENCODING)
        && other.as_bytes() != b"identity"
    {
        let encoding = String::from_utf8_lossy(other.as_bytes()).chars().take(100).collect();
        return Err(FetchError::Encoding { encoding });
    }
    let length = response.body().content_length();
    if length.is_some_and(|length| length > bytes_max) {
        return Err(FetchError::TooLarge { bytes_max });
    }
    let mut bytes = Vec::with_capacity(length.unwrap_or(FIRST_BYTES).min(FIRST_BYTES) as usize);
    let read =
        response.body_mut().as_reader().take(bytes_max.saturating_add(1)).read_to_end(&mut bytes);
    if let Err(error) = read {
        return Err(match error.downcast::<ureq::Error>() {
            Ok(ureq::Error::Timeout(_)) => FetchError::Slow,
            Ok(ureq::Error::Io(error)) | Err(error) => of_body(&error),
            Ok(other) => FetchError::Cut { message: other.to_string() },
        });
    }
    if bytes.len() as u64 > bytes_max {
        return Err(FetchError::TooLarge { bytes_max });
    }
    Ok(bytes)
}

fn of_body(error: &io::Error) -> FetchError {
    match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => FetchError::Slow,
        _ => FetchError::Cut { message: error.to_string() },
    }
}

fn of_io(error: io::Error, patience: Duration) -> FetchError {
    match error.kind() {
        io::ErrorKind::TimedOut => FetchError::TimeOut { seconds: patience.as_secs() },
        _ => match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            Some(tls) => FetchError::Tls { message: tls.to_string() },
            None => FetchError::Unreachable(error),
        },
    }
}
