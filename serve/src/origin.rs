//! The origin of a page, as a browser writes it in the header `Origin`.

use std::fmt;
use std::str::FromStr;

use holdfast_identity::GivenName;
use url::{Host, Url};

/// The origin of a page: `https://example.org` or `http://localhost:8000`.
///
/// Invariant: the text is the one serialisation of the origin, so equal texts are equal origins.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin(String);

/// The text is no origin of a web page.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no origin of a web page; write https://HOST or https://HOST:PORT, as its address begins, without a path"
)]
pub struct OriginError {
    text: String,
}

impl Origin {
    /// The text of it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether its pages reach the browser as the origin sent them: encrypted, or on this machine.
    #[must_use]
    pub fn is_secure(&self) -> bool {
        self.0.starts_with("https://") || self.is_of_this_machine()
    }

    fn is_of_this_machine(&self) -> bool {
        let url = Url::parse(&self.0).ok();
        match url.as_ref().and_then(Url::host) {
            Some(Host::Domain(name)) => name == "localhost",
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            None => false,
        }
    }

    /// What the applets of its pages are called: their heaps are those of this name.
    ///
    /// # Errors
    /// [`OriginError`] where it cannot be a name.
    pub(crate) fn applet_name(&self) -> Result<GivenName, OriginError> {
        GivenName::parse(&self.0).map_err(|_| OriginError { text: self.0.clone() })
    }
}

impl FromStr for Origin {
    type Err = OriginError;

    fn from_str(text: &str) -> Result<Origin, OriginError> {
        let refused = || OriginError { text: text.chars().take(300).collect() };
        let url = Url::parse(text).map_err(|_| refused())?;
        let is_web = matches!(url.scheme(), "http" | "https");
        if !is_web || url.origin().ascii_serialization() != text {
            return Err(refused());
        }
        let origin = Origin(text.to_owned());
        origin.applet_name().map(|_| origin)
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_has_one_text() {
        for good in ["https://example.org", "http://localhost:8000", "https://[::1]:1"] {
            let origin: Origin = good.parse().unwrap();
            assert_eq!(origin.as_str(), good);
            assert_eq!(origin.applet_name().unwrap().as_str(), good);
        }
        for bad in [
            "",
            "null",
            "example.org",
            "https://example.org/",
            "https://EXAMPLE.org",
            "https://example.org:443",
            "https://u@example.org",
            "https://example.org/a",
            "file://",
            "chrome-extension://abcdef",
            "https://example.org\r\nx: y",
        ] {
            assert!(bad.parse::<Origin>().is_err(), "{bad:?}");
        }
        let is_secure = |text: &str| text.parse::<Origin>().unwrap().is_secure();
        assert!(is_secure("https://example.org") && is_secure("http://127.0.0.1:1"));
        assert!(!is_secure("http://example.org") && !is_secure("http://localhost.example.org"));
    }
}
