//! Who may ask: the host, the origin, and the way of a request.
//!
//! Invariants: a request under a foreign host name is answered 421, whatever it is about, so a page
//! cannot reach the server by a name that leads here (DNS rebinding). An answer has headers for
//! other origins only if that origin was allowed, and names that one alone.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::Response;

use crate::origin::Origin;

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const ASKS_PRIVATE: HeaderName = HeaderName::from_static("access-control-request-private-network");
const ALLOWS_PRIVATE: HeaderName = HeaderName::from_static("access-control-allow-private-network");

/// The server's name. It is the address alone: by the name `localhost` a browser may first reach
/// what another user has at the same port of `::1`.
pub(crate) fn own_host(port: u16) -> String {
    format!("127.0.0.1:{port}")
}

/// Whether the request is for this server by its own name.
pub(crate) fn is_for_us(headers: &HeaderMap, port: u16) -> bool {
    single(headers, header::HOST) == Some(own_host(port).as_str())
}

/// Whether the request is for the script of a service worker. One would answer for whatever is
/// served at this port later.
pub(crate) fn is_for_service_worker(headers: &HeaderMap) -> bool {
    headers.contains_key("service-worker")
}

/// Whether an origin is the one of the server's own pages.
pub(crate) fn is_own_origin(origin: &Origin, port: u16) -> bool {
    origin.as_str().strip_prefix("http://") == Some(own_host(port).as_str())
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
pub(crate) fn check_site(headers: &HeaderMap, origin: &Origin, host: &str) -> Result<(), String> {
    let is_same = origin.as_str().strip_prefix("http://") == Some(host);
    match (single(headers, FETCH_SITE), is_same) {
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
