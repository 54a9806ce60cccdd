//! The user's name space, and the keys in it.

use holdfast_region::{KeyError, NameSpace, OwnerKey, Places, RegionError, RegionName};

use crate::exit::Failure;
use crate::output::say;

/// The key of a command that names none. Making it is not announced.
pub const DEFAULT_KEY: &str = "default";

pub fn name_space() -> Result<NameSpace, Failure> {
    Ok(NameSpace::new(Places::from_env()?))
}

/// The key of a command that uses what exists. `heap` is what the command is about: if that does
/// not exist either, its absence is the error.
pub fn key(
    names: &NameSpace,
    key_name: &str,
    heap: Option<&RegionName>,
) -> Result<OwnerKey, Failure> {
    OwnerKey::load_existing(names.places(), key_name).map_err(|error| {
        match heap.map(|heap| names.summary(heap)) {
            Some(Err(missing @ RegionError::NotFound { .. }))
                if matches!(error, KeyError::Missing { .. }) =>
            {
                missing.into()
            }
            _ => error.into(),
        }
    })
}

/// The key of a command that makes something which the key will own or use. Only these commands
/// make keys, and they say so.
pub fn key_for_new(names: &NameSpace, key_name: &str) -> Result<OwnerKey, KeyError> {
    if OwnerKey::load(names.places(), key_name)?.is_none() && key_name != DEFAULT_KEY {
        say(format_args!("there was no key {key_name}; it is made now"));
    }
    OwnerKey::load_or_create(names.places(), key_name)
}
