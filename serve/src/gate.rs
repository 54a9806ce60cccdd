//! Who may ask: the host, the origin, and the way of a request.
//!
//! Invariants: a request under a foreign host name is answered 421, whatever it is about, so a page
//! cannot reach the server by a name that leads here (DNS rebinding). An answer has headers for
//! other origins only if that origin was allowed, and names that one alone.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::Response;

use crate::origin::Origin;

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const ASKS_PRIVATE: HeaderName = HeaderName::from_static("access-control-request-private-network");
const ALLOWS_PRIVATE: HeaderName = HeaderName::from_static("access-control-allow-private-network");

/// The port that a browser leaves out of a name.
const HTTP_PORT: u16 = 80;
/// Ports at which browsers open nothing, because other protocols have them: the bad ports of
/// <https://fetch.spec.whatwg.org/#port-blocking> but 0, which stands for a free port here.
const PORTS_OF_OTHERS: [u16; 82] = [
    1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102,
    103, 104, 109, 110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427, 465,
    512, 513, 514, 515, 526, 530, 531, 532, 540, 548, 554, 556, 563, 587, 601, 636, 989, 990, 993,
    995, 1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566, 6665, 6666, 6667, 6668,
    6669, 6679, 6697, 10080,
];

/// The server's name, as a browser writes it in the header `Host` and in an origin. It is the
/// address alone: by the name `localhost` a browser may first reach what another user has at the
/// same port of `::1`.
pub(crate) fn own_host(address: SocketAddr) -> String {
    match (address.port(), address.ip()) {
        (HTTP_PORT, IpAddr::V4(ip)) => ip.to_string(),
        (HTTP_PORT, IpAddr::V6(ip)) => format!("[{ip}]"),
        (port, ip) => SocketAddr::new(ip, port).to_string(),
    }
}

/// Why no browser reaches an address of this machine; `None` for one that is reached.
pub(crate) fn why_unreachable(address: SocketAddr) -> Option<&'static str> {
    if PORTS_OF_OTHERS.contains(&address.port()) {
        return Some("browsers open no page at this port, which is another protocol's");
    }
    (address.ip() == Ipv4Addr::new(127, 255, 255, 255))
        .then_some("it is a broadcast address, to which nothing connects")
}

/// Whether the request is for this server by its own name.
pub(crate) fn is_for_us(headers: &HeaderMap, own_host: &str) -> bool {
    single(headers, header::HOST) == Some(own_host)
}

/// Whether the request is for the script of a service worker. One would answer for whatever is
/// served at this port later.
pub(crate) fn is_for_service_worker(headers: &HeaderMap) -> bool {
    headers.contains_key("service-worker")
}

/// Whether an origin is the one of the server's own pages.
pub(crate) fn is_own_origin(origin: &Origin, own_host: &str) -> bool {
    origin.as_str().strip_prefix("http://") == Some(own_host)
}

/// The origin of a request. A browser always names it where it matters here.
///
/// # Errors
/// In words.
pub(crate) fn origin(headers: &HeaderMap) -> Result<Origin, String> {
    let text = single(headers, header::ORIGIN)
        .ok_or("the request names no origin; only a page in a browser is served")?;
    text.parse().map_err(|error| format!("{error}"))
}

/// Whether the browser says of the request what it must say for a page of this origin.
///
/// # Errors
/// In words.
pub(crate) fn check_site(
    headers: &HeaderMap,
    origin: &Origin,
    own_host: &str,
) -> Result<(), String> {
    match (single(headers, FETCH_SITE), is_own_origin(origin, own_host)) {
        (Some("same-origin"), true) | (Some("same-site" | "cross-site"), false) => Ok(()),
        (Some(_), _) => {
            Err("the browser contradicts itself about the origin of the request".to_owned())
        }
        (None, _) => {
            Err("the request lacks Sec-Fetch-Site; use a browser that sends it".to_owned())
        }
    }
}

/// The only value of a header; `None` for a header that is missing, repeated or no text.
fn single(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().ok(),
        _ => None,
    }
}

/// Lets the page of an allowed origin read the answer.
pub(crate) fn open_to(answer: &mut Response, origin: &Origin) {
    if let Ok(value) = HeaderValue::from_str(origin.as_str()) {
        answer.headers_mut().insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, value);
        answer.headers_mut().insert(header::VARY, HeaderValue::from_static("Origin"));
    }
}

/// Lets it send the request that it asks about.
pub(crate) fn open_to_request(answer: &mut Response, origin: &Origin, asked: &HeaderMap) {
    open_to(answer, origin);
    let headers = answer.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("POST"));
    if single(asked, ASKS_PRIVATE) == Some("true") {
        headers.insert(ALLOWS_PRIVATE, HeaderValue::from_static("true"));
    }
}

/// What every answer has: its type is what it says, no other page shows it in a frame or loads it.
pub(crate) fn close_to_others(answer: &mut Response) {
    let headers = answer.headers_mut();
    for (name, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CONTENT_SECURITY_POLICY, "frame-ancestors 'self'"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The server's name is what a browser sends for its address.
    ///
    /// Guarantee: serve/loopback
    #[test]
    fn own_host_is_what_browsers_send() {
        for (address, host) in [
            ("127.0.0.1:8080", "127.0.0.1:8080"),
            ("127.0.0.1:80", "127.0.0.1"),
            ("127.0.0.1:443", "127.0.0.1:443"),
            ("127.0.0.2:18080", "127.0.0.2:18080"),
            ("[::1]:8080", "[::1]:8080"),
            ("[::1]:80", "[::1]"),
        ] {
            assert_eq!(own_host(address.parse().unwrap()), host);
            // The parser of addresses is that of browsers, and the name is in its form.
            let url = url::Url::parse(&format!("http://{address}/")).unwrap();
            let origin: Origin = url.origin().ascii_serialization().parse().unwrap();
            assert!(is_own_origin(&origin, host), "{origin}");
        }
    }

    /// Guarantee: serve/loopback
    #[test]
    fn what_browsers_do_not_open_is_known() {
        let is_reached = |address: &str| why_unreachable(address.parse().unwrap()).is_none();
        assert!(PORTS_OF_OTHERS.is_sorted());
        assert!(
            ["127.0.0.1:0", "127.0.0.1:80", "127.1.2.3:8466", "[::1]:0"]
                .iter()
                .all(|at| is_reached(at))
        );
        assert!(
            !["127.0.0.1:22", "127.0.0.1:6000", "[::1]:6667", "127.255.255.255:0"]
                .iter()
                .any(|at| is_reached(at))
        );
    }
}
