//! The address of an applet on a server, with its hash: `https://HOST/PATH#sha256=HEX`.

use std::fmt;
use std::net::IpAddr;

use url::{Host, Url};

use crate::hash::AppletHash;

const PIN: &str = "sha256=";

/// Whether a text is meant as an address, and not as a path.
#[must_use]
pub fn is_address(text: &str) -> bool {
    let Some((scheme, _)) = text.split_once("://") else { return false };
    scheme.starts_with(|letter: char| letter.is_ascii_alphabetic())
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

/// Why a text is no address of an applet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// It does not parse.
    #[error("{text:?} is no address ({reason}); write https://HOST/PATH#sha256=HEX")]
    Malformed {
        /// The text.
        text: String,
        /// What is wrong.
        reason: String,
    },
    /// Neither `https:`, nor `http:` on this machine.
    #[error(
        "an applet is fetched over https:, and over http: from this machine only; {text:?} is neither"
    )]
    Scheme {
        /// The text.
        text: String,
    },
    /// A name or password in it.
    #[error("the address has a user name or password, which is sent to no server; leave it out")]
    Credentials,
    /// Another fragment than a hash.
    #[error("the hash in the address is not valid: {reason}; write ADDRESS#sha256=HEX")]
    Pin {
        /// What is wrong.
        reason: String,
    },
}

/// Where an applet is, and which bytes it must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinnedAddress {
    url: Url,
    hash: Option<AppletHash>,
}

impl PinnedAddress {
    /// Parses an address. One without a hash is an address, too: [`crate::fetch`] says what to add.
    ///
    /// # Errors
    /// [`AddressError`].
    pub fn parse(text: &str) -> Result<PinnedAddress, AddressError> {
        let mut url = Url::parse(text).map_err(|error| AddressError::Malformed {
            text: text.to_owned(),
            reason: error.to_string(),
        })?;
        if !is_fetched(&url) {
            return Err(AddressError::Scheme { text: text.to_owned() });
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(AddressError::Credentials);
        }
        let hash = match url.fragment() {
            None => None,
            Some(fragment) => {
                let refused = |reason: String| AddressError::Pin { reason };
                let digits = fragment.strip_prefix(PIN);
                let digits = digits.ok_or_else(|| refused("it is not sha256".to_owned()))?;
                Some(digits.parse().map_err(|error| refused(format!("{error}")))?)
            }
        };
        url.set_fragment(None);
        Ok(PinnedAddress { url, hash })
    }

    /// The hash that the applet must have.
    #[must_use]
    pub fn hash(&self) -> Option<AppletHash> {
        self.hash
    }

    pub(crate) fn url(&self) -> &Url {
        &self.url
    }
}

impl fmt::Display for PinnedAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.url.fmt(formatter)
    }
}

/// `https:`, or `http:` on this machine, where no network is in between.
fn is_fetched(url: &Url) -> bool {
    url.scheme() == "https" || url.scheme() == "http" && is_this_machine(url)
}

/// Whether the host is this machine by its name or address.
pub(crate) fn is_this_machine(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => IpAddr::from(address).is_loopback(),
        Some(Host::Ipv6(address)) => IpAddr::from(address).is_loopback(),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_https_or_of_this_machine() {
        let hash = "ab".repeat(32);
        let pinned = PinnedAddress::parse(&format!("https://example.org/a.wasm#sha256={hash}"));
        let pinned = pinned.unwrap();
        assert_eq!(pinned.hash().unwrap().to_string(), hash);
        assert_eq!(pinned.to_string(), "https://example.org/a.wasm");
        for good in ["https://example.org/a", "http://127.0.0.1:8000/a", "http://localhost/a"] {
            assert_eq!(PinnedAddress::parse(good).unwrap().hash(), None);
        }
        for bad in ["http://example.org/a", "ftp://example.org/a", "file:///etc/passwd"] {
            assert!(is_address(bad));
            assert!(matches!(PinnedAddress::parse(bad), Err(AddressError::Scheme { .. })), "{bad}");
        }
        for bad in ["#md5=00", "#sha256=", "#sha256=xyz", "#"] {
            let bad = format!("https://example.org/a{bad}");
            assert!(matches!(PinnedAddress::parse(&bad), Err(AddressError::Pin { .. })), "{bad}");
        }
        let named = PinnedAddress::parse("https://ada:secret@example.org/a");
        assert_eq!(named, Err(AddressError::Credentials));
        for path in ["applet.wasm", "./https:/a", "/x://y", "1://a", "a b://c"] {
            assert!(!is_address(path), "{path}");
        }
    }
}
