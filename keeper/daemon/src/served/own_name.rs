//! Names of served regions: what users call them, and what they are called in the keeper's home.
//!
//! Invariant: the name in the home begins with the number of the user that the kernel vouched for,
//! so no text that a user sends leads to another's region.

use holdfast_region::{NameError, RegionName};

/// What a user may call a region: with what is put before it, it fills a region's name.
pub const SERVED_NAME_BYTES_MAX: usize = 46;
const PREFIX: &str = "served.";

/// The region's name in the home.
pub(crate) fn in_home(user: u32, name: &str) -> Result<RegionName, NameError> {
    // Checked by itself: with a prefix a first dot would pass.
    RegionName::parse(name)?;
    if name.len() > SERVED_NAME_BYTES_MAX {
        return Err(NameError::TooLong { found_bytes: name.len() });
    }
    RegionName::parse(&format!("{PREFIX}{user}.{name}"))
}

/// Whose region it is and what that user calls it, if it is served.
pub(crate) fn of_user(name: &RegionName) -> Option<(u32, &str)> {
    let (user, own) = name.as_str().strip_prefix(PREFIX)?.split_once('.')?;
    let number: u32 = user.parse().ok()?;
    // One way to write a number.
    (number.to_string() == user && !own.is_empty()).then_some((number, own))
}

/// The key of a user's regions in the keeper's home.
pub(crate) fn key_name(user: u32) -> String {
    format!("{PREFIX}{user}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantee: keeper/users-apart
    #[test]
    fn a_name_leads_to_its_users_region_and_to_no_other() {
        let name = in_home(1000, "words.v2").unwrap();
        assert_eq!(name.as_str(), "served.1000.words.v2");
        assert_eq!(of_user(&name), Some((1000, "words.v2")));
        assert!(in_home(u32::MAX, &"n".repeat(SERVED_NAME_BYTES_MAX)).is_ok());
        for bad in ["", ".1000.words", "a/b", "a+b", "../x", &"n".repeat(SERVED_NAME_BYTES_MAX + 1)]
        {
            assert!(in_home(1000, bad).is_err(), "{bad}");
        }
        for other in ["words", "served.words", "served.01.words", "served.-1.w"] {
            assert_eq!(of_user(&RegionName::parse(other).unwrap()), None, "{other}");
        }
    }
}
