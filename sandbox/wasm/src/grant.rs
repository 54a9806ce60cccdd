//! The directories that an applet may reach, one by one.
#![forbid(unsafe_code)]

use std::path::PathBuf;

use holdfast_types::PathAccess;

/// One directory that the applet sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirGrant {
    /// The directory on the host.
    pub host: PathBuf,
    /// The path under which the applet sees it.
    pub guest: String,
    /// What it may do there.
    pub access: PathAccess,
}

/// A grant that cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{given:?} is no directory grant; write HOST, HOST::GUEST or HOST::GUEST:ro")]
#[non_exhaustive]
pub struct GrantError {
    /// What was given.
    pub given: String,
}

impl std::str::FromStr for DirGrant {
    type Err = GrantError;

    /// Reads `HOST[::GUEST][:ro]`. Without GUEST the applet sees the host's path as it was written.
    fn from_str(given: &str) -> Result<Self, GrantError> {
        let (paths, access) = match given.strip_suffix(":ro") {
            Some(paths) => (paths, PathAccess::ReadOnly),
            None => (given, PathAccess::ReadWrite),
        };
        let (host, guest) = paths.split_once("::").unwrap_or((paths, paths));
        if host.is_empty() || guest.is_empty() {
            return Err(GrantError { given: given.to_owned() });
        }
        Ok(DirGrant { host: PathBuf::from(host), guest: guest.to_owned(), access })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(host: &str, guest: &str, access: PathAccess) -> DirGrant {
        DirGrant { host: host.into(), guest: guest.to_owned(), access }
    }

    #[test]
    fn grants_are_read_as_people_write_them() {
        let cases = [
            ("/data", grant("/data", "/data", PathAccess::ReadWrite)),
            ("/data:ro", grant("/data", "/data", PathAccess::ReadOnly)),
            ("/srv/x::/in", grant("/srv/x", "/in", PathAccess::ReadWrite)),
            ("./x::/in:ro", grant("./x", "/in", PathAccess::ReadOnly)),
        ];
        for (text, expected) in cases {
            assert_eq!(text.parse::<DirGrant>().unwrap(), expected);
        }
    }

    #[test]
    fn a_grant_without_a_path_is_refused() {
        for text in ["", ":ro", "::/in", "/data::"] {
            assert!(text.parse::<DirGrant>().is_err(), "{text:?}");
        }
    }
}
