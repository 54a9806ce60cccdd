//! Parses the URI of a database and the environment, and refuses what is misspelled: SQLite hands a
//! VFS every parameter, and ignores one that it does not know.
//!
//! Other software has parameters, too. SQLite's own pass; so do those whose names begin with `_`,
//! as drivers have them, and all with `unknown=ignore`.

#![forbid(unsafe_code)]

use std::ffi::OsString;

use crate::settings::{NAMES, Settings, limit_slots};

/// In front of the name of each setting.
pub(crate) const PREFIX: &str = "holdfast_";

/// Bytes of the pool for a database.
pub(crate) const POOL_LIMIT: &str = "pool_limit";
/// What becomes of unknown parameters.
const UNKNOWN: &str = "unknown";
/// SQLite's own, by its documentation of URI filenames; `8_3_names` where it is compiled in.
const OF_SQLITE: [&str; 8] =
    ["vfs", "mode", "cache", "psow", "nolock", "immutable", "modeof", "8_3_names"];
/// In front of the names of variables.
const VARIABLES: &str = "HOLDFAST_SQLITE_";
/// Variables that are no settings of a database.
const OTHER_VARIABLES: [&str; 3] = ["DEFAULT", "EXTENSION", "LOG"];

/// What was chosen for a database.
#[derive(Debug, Default)]
pub(crate) struct ChosenSettings {
    /// Names and values from its URI.
    settings: Vec<(&'static str, String)>,
    /// Of the pool, in slots; as its URI says, or else the environment.
    pub(crate) limit_slots: Option<u32>,
    pub(crate) is_limit_of_uri: bool,
    /// Whether it may go over to WAL mode.
    pub(crate) lets_wal_pass: bool,
}

impl ChosenSettings {
    /// Reads the parameters of a URI, and the environment; the text says what is wrong.
    pub(crate) fn read(
        parameters: impl IntoIterator<Item = (String, String)>,
    ) -> Result<ChosenSettings, String> {
        let (mut wishes, mut unknown, mut ignores) =
            (ChosenSettings::default(), None, ignores_by_environment()?);
        let mut limit = None;
        for (key, value) in parameters {
            let name = key.strip_prefix(PREFIX).unwrap_or(&key);
            let known = known_names().find(|known| *known == name);
            match known {
                Some(UNKNOWN) => ignores = is_ignore(&value)?,
                Some(POOL_LIMIT) => given_once(limit.replace(value.clone()), POOL_LIMIT, &value)?,
                Some(known) => {
                    let before = wishes.settings.iter().find(|(name, _)| *name == known);
                    given_once(before.map(|(_, value)| value.clone()), known, &value)?;
                    wishes.settings.push((known, value));
                }
                None if name == key && (OF_SQLITE.contains(&name) || name.starts_with('_')) => {}
                None => unknown = Some(key),
            }
        }
        if let Some(key) = unknown.filter(|key| !ignores || key.starts_with(PREFIX)) {
            let name = key.strip_prefix(PREFIX).unwrap_or(&key);
            return Err(format!(
                "the URI has the parameter {key}, which is unknown{}; the VFS knows {}. To pass parameters of other \
                 software, add unknown=ignore",
                proposal(name, known_names().chain(OF_SQLITE)),
                list(known_names())
            ));
        }
        let settings = settings_of_environment(std::env::vars_os())?;
        wishes.apply(&settings)?;
        wishes.lets_wal_pass = settings.lets_wal_pass();
        wishes.is_limit_of_uri = limit.is_some();
        wishes.limit_slots = match limit {
            Some(limit) => Some(limit_slots(&limit)?),
            None => limit_of_environment()?,
        };
        Ok(wishes)
    }

    /// Sets what the URI says.
    pub(crate) fn apply(&self, settings: &Settings) -> Result<(), String> {
        self.settings.iter().try_for_each(|(name, value)| settings.set(name, value))
    }
}

fn given_once(before: Option<String>, name: &str, value: &str) -> Result<(), String> {
    match before {
        Some(before) if before != value => {
            Err(format!("the URI says {name} twice, as {before} and as {value}; say it once"))
        }
        _ => Ok(()),
    }
}

/// What the URI of a database may have, by itself or behind [`PREFIX`].
fn known_names() -> impl Iterator<Item = &'static str> {
    NAMES.into_iter().chain([POOL_LIMIT, UNKNOWN])
}

fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

/// The name that was perhaps meant, as a part of a sentence.
pub(crate) fn proposal<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    /// Letters that may be wrong.
    const WRONG_MAX: usize = 2;
    let nearest = known.map(|known| (strsim::osa_distance(name, known), known)).min();
    match nearest {
        Some((wrong, known)) if wrong <= WRONG_MAX && wrong < known.len() => {
            format!(" (is {known} meant?)")
        }
        _ => String::new(),
    }
}

fn variable(name: &str) -> String {
    format!("{VARIABLES}{}", name.to_ascii_uppercase())
}

/// The settings that the environment chooses. Called with all of it: a variable that is misspelled
/// is one of those.
pub(crate) fn settings_of_environment(
    environment: impl Iterator<Item = (OsString, OsString)>,
) -> Result<Settings, String> {
    let settings = Settings::default();
    for (key, value) in environment {
        let key = key.to_string_lossy().into_owned();
        let Some(rest) = key.strip_prefix(VARIABLES) else { continue };
        let name = rest.to_ascii_lowercase();
        if NAMES.contains(&name.as_str()) && key == variable(&name) {
            let set = settings.set(&name, &value.to_string_lossy());
            set.map_err(|wrong| format!("in the environment, {key}: {wrong}"))?;
        } else if !OTHER_VARIABLES.contains(&rest)
            && ![POOL_LIMIT, UNKNOWN].iter().any(|own| key == variable(own))
        {
            let known: Vec<String> = NAMES
                .into_iter()
                .chain([POOL_LIMIT, UNKNOWN])
                .map(str::to_ascii_uppercase)
                .chain(OTHER_VARIABLES.map(str::to_owned))
                .collect();
            let names = || known.iter().map(String::as_str);
            return Err(format!(
                "the environment has {key}, which is unknown{}; the VFS knows {VARIABLES}… with {}",
                proposal(rest, names()),
                list(names())
            ));
        }
    }
    Ok(settings)
}

/// What becomes of unknown parameters.
fn is_ignore(value: &str) -> Result<bool, String> {
    match value {
        "ignore" => Ok(true),
        "refuse" => Ok(false),
        _ => Err(format!("unknown is {value}; `refuse` or `ignore`")),
    }
}

fn ignores_by_environment() -> Result<bool, String> {
    let key = variable(UNKNOWN);
    let chosen = std::env::var_os(&key).map(|value| is_ignore(&value.to_string_lossy()));
    let chosen =
        chosen.transpose().map_err(|wrong| format!("in the environment, {key}: {wrong}"))?;
    Ok(chosen.unwrap_or(false))
}

fn limit_of_environment() -> Result<Option<u32>, String> {
    let key = variable(POOL_LIMIT);
    let limit = std::env::var_os(&key).map(|value| limit_slots(&value.to_string_lossy()));
    limit.transpose().map_err(|wrong| format!("in the environment, {key}: {wrong}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by it")]
mod tests {
    use super::*;
    use holdfast_types::Durability;

    fn read(text: &str) -> Result<ChosenSettings, String> {
        ChosenSettings::read(text.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (key.to_owned(), value.to_owned())
        }))
    }

    /// Guarantee: sqlite/settings
    #[test]
    fn known_parameters_and_those_of_drivers_pass() {
        let wishes =
            read("vfs=holdfast&mode=rw&psow=1&_busy_timeout=5&level=power&holdfast_threshold=7");
        let settings = Settings::default();
        wishes.unwrap().apply(&settings).unwrap();
        assert_eq!((settings.level(), settings.threshold(1000)), (Durability::Power, 7));
        assert!(read("chunksize=5&unknown=ignore&holdfast_level=system&level=system").is_ok());
        let limited = read("pool_limit=4194304").unwrap();
        assert_eq!((limited.limit_slots, limited.is_limit_of_uri), (Some(1024), true));
        assert!(!read("level=power").unwrap().is_limit_of_uri);
    }

    /// Guarantee: sqlite/settings
    #[test]
    fn what_is_misspelled_is_refused_with_what_was_meant() {
        for (text, parts) in [
            (
                "treshold=5",
                &["treshold", "is threshold meant?", "flush_interval", "unknown=ignore"][..],
            ),
            ("holdfast_levl=power", &["holdfast_levl", "is level meant?"]),
            ("holdfast_levl=power&unknown=ignore", &["is level meant?"]),
            ("Level=power", &["Level", "is level meant?"]),
            ("imutable=1", &["is immutable meant?"]),
            ("chunksize=5", &["chunksize, which is unknown;"]),
            ("level=sytem", &["level is sytem", "`process`, `system` or `power`"]),
            ("level", &["level is ;"]),
            ("threshold=-1", &["threshold is -1", "`infinity`"]),
            ("flush=no", &["`background` or `inline`"]),
            ("flush_interval=soon", &["flush_interval is soon", "500ms"]),
            ("flush_interval=0", &["flush_interval is 0", "threshold=0"]),
            ("flush_interval=2d", &["flush_interval is 2d", "24h"]),
            ("pool_limit=5", &["pool_limit is 5"]),
            ("wal=yes", &["`refuse` or `pass`"]),
            ("unknown=yes", &["`refuse` or `ignore`"]),
            ("level=power&holdfast_level=system", &["level twice", "power", "system"]),
        ] {
            let wrong = read(text).unwrap_err();
            assert!(parts.iter().all(|part| wrong.contains(part)), "{text}: {wrong}");
        }
    }

    /// Guarantee: sqlite/settings
    #[test]
    fn variables_are_read_and_refused_alike() {
        let read = |key: &str, value: &str| {
            settings_of_environment([(OsString::from(key), OsString::from(value))].into_iter())
        };
        assert_eq!(read("HOLDFAST_SQLITE_LEVEL", "power").unwrap().level(), Durability::Power);
        assert_eq!(read("HOLDFAST_SQLITE_FLUSH_INTERVAL", "off").unwrap().flush_interval(), None);
        for known in
            ["HOLDFAST_SQLITE_EXTENSION", "HOLDFAST_SQLITE_POOL_LIMIT", "HOLDFAST_POOL", "PATH"]
        {
            read(known, "anything").unwrap();
        }
        for (key, value, part) in [
            ("HOLDFAST_SQLITE_TRESHOLD", "5", "is THRESHOLD meant?"),
            ("HOLDFAST_SQLITE_level", "power", "which is unknown"),
            ("HOLDFAST_SQLITE_WAL", "maybe", "HOLDFAST_SQLITE_WAL: wal is maybe"),
        ] {
            let wrong = read(key, value).unwrap_err();
            assert!(wrong.contains(part), "{wrong}");
        }
    }
}
