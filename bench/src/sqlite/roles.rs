//! What this program does as another process of a measurement, by the arguments that it got.

use std::io::{self, Error};
use std::path::Path;

use super::engine::{self, Mode};
use super::{contention, dax_inside, readers, recovery, sizes};

/// Plays a role.
///
/// # Errors
/// When there is no such role, or the work of it fails.
pub fn play(words: &[String]) -> io::Result<()> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["dax", runs] => dax_inside(number(runs)?),
        ["insert", mode, path, count] => {
            engine::load()?;
            contention::insert(named(mode)?, Path::new(path), number(count)?).map(drop)
        }
        ["compete", mode, path, first, count, pause_us] => {
            engine::load()?;
            let numbers = [number(first)?, number(count)?, number(pause_us)?];
            contention::compete(named(mode)?, Path::new(path), numbers)
        }
        ["transact", mode, path, size, count] => {
            engine::load()?;
            sizes::transact(named(mode)?, Path::new(path), size, number(count)?)
        }
        ["read", mode, path, kind] => {
            engine::load()?;
            readers::read(named(mode)?, Path::new(path), kind)
        }
        ["dirty", path, pages] => {
            engine::load()?;
            recovery::leave_dirty(Path::new(path), number(pages)?)
        }
        _ => Err(Error::other(format!("there is no side {words:?}"))),
    }
}

fn named(mode: &str) -> io::Result<Mode> {
    Mode::named(mode).ok_or_else(|| Error::other(format!("there is no mode {mode}")))
}

fn number(word: &str) -> io::Result<usize> {
    word.parse().map_err(|error| Error::other(format!("{word}: {error}")))
}
