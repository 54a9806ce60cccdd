//! The `heap` commands, one file each, and what they share.

pub mod adopt;
pub mod backing;
pub mod check;
pub mod checkpoint;
pub mod diff;
pub mod grants;
pub mod keys;
pub mod leaks;
pub mod ls;
pub mod map;
pub mod repair;
pub mod rm;
pub mod root_name;
pub mod salvage;
pub mod show;
pub mod snapshot;
pub mod stats;
pub mod tidy;
pub mod transfer;

use holdfast_command::keys::{key_for_new, name_space};
use holdfast_heap::{Finding, Inspection, OpenError, bytes_of, inspect};
use holdfast_region::{NameSpace, OwnerKey, PrivateCopy, RegionError, RegionName, RegionReader};
pub use root_name::RootName;
use serde::Serialize;

use holdfast_command::exit::{BAD_FILE, Failure, OTHER};
use holdfast_command::size::show_size;

/// The failure of a command whose region's image was found shorter than its header says.
pub fn cut_off(name: &RegionName) -> Failure {
    let message = format!(
        "the image of {name} is shorter than its header says; `holdfast heap show {name}` tells what is left"
    );
    Failure::new(BAD_FILE, message)
}

/// The key that will own a new heap. One that is not there is made only where `check` finds nothing
/// in the way of the heap: a command that has no chance leaves no key of a mistyped name behind.
pub fn key_of_new_heap(
    names: &NameSpace,
    key_name: &str,
    check: &dyn Fn() -> Result<(), Failure>,
) -> Result<OwnerKey, Failure> {
    if OwnerKey::load(names.places(), key_name)?.is_none() {
        check()?;
    }
    Ok(key_for_new(names, key_name)?)
}

/// Refuses a name for a new heap that another heap has.
pub fn refuse_existing(names: &NameSpace, name: &RegionName) -> Result<(), Failure> {
    match names.summary(name) {
        Ok(_) => Err(RegionError::AlreadyExists { name: name.to_string() }.into()),
        Err(RegionError::NotFound { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Contradictions that are kept; all are counted. A hostile heap can have any number of them.
const FINDINGS_KEPT_MAX: usize = 10_000;

/// Roots that are kept; all are counted. A hostile heap can have one for every 8 of its bytes.
const ROOTS_KEPT_MAX: usize = 100_000;

/// A root as the tools show it.
#[derive(Debug, Serialize)]
pub struct RootRow {
    pub name: RootName,
    pub bytes: u64,
}

/// Everything that a look into a heap told.
pub struct Look {
    inspection: Result<Inspection, OpenError>,
    findings: Vec<Finding>,
    /// The first [`ROOTS_KEPT_MAX`], by name.
    roots: Vec<RootRow>,
    /// How many there are.
    root_count: u64,
    copy: Copied,
}

/// The bytes of a heap, for a look into them that may change them.
enum Copied {
    /// A copy of all of them.
    Words(Vec<u64>),
    /// A copy of the pages that were changed.
    Mapped(PrivateCopy),
}

impl Copied {
    fn words_mut(&mut self) -> &mut [u64] {
        match self {
            Copied::Words(words) => words,
            Copied::Mapped(copy) => copy.words_mut(),
        }
    }
}

impl Look {
    /// The bytes as the next program will find them: an open transaction is rolled back.
    pub fn bytes(&self) -> &[u8] {
        match &self.copy {
            Copied::Words(words) => bytes_of(words),
            Copied::Mapped(copy) => bytes_of(copy.words()),
        }
    }
}

/// Looks into a copy of a region's data, so that the heap itself is not touched.
///
/// # Errors
/// When the image is shorter than its header says: what was seen is then partly made up of zeros.
/// When there is no address space for the copy.
pub fn look(reader: &RegionReader) -> Result<Look, Failure> {
    let look = look_into(Copied::Mapped(reader.private_copy()?));
    let lost = matches!(&look.copy, Copied::Mapped(copy) if copy.lost_backing());
    if lost || reader.lost_backing() {
        return Err(cut_off(&reader.summary().name));
    }
    Ok(look)
}

/// A copy of a heap's bytes, in words. A header can claim more than there is memory: that is an
/// error, where `vec!` would end the process.
pub fn words_of(bytes: &[u8]) -> Result<Vec<u64>, Failure> {
    let mut words = Vec::new();
    words.try_reserve_exact(bytes.len() / 8).map_err(|_| {
        let size = show_size(bytes.len() as u64);
        let remedy = "raise the limit of this process (`ulimit -v`, `ulimit -d`) or free some memory, if the heap is as \
                      large as its header says";
        Failure::new(OTHER, format!("a copy of the heap to look into needs {size} of memory; {remedy}"))
    })?;
    words.extend(bytes.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_ne_bytes)));
    Ok(words)
}

/// As [`look`], into any bytes.
///
/// # Errors
/// When there is no memory for the copy.
pub fn look_at(bytes: &[u8]) -> Result<Look, Failure> {
    Ok(look_into(Copied::Words(words_of(bytes)?)))
}

fn look_into(mut copy: Copied) -> Look {
    let (mut findings, mut roots, mut root_count) = (Vec::new(), Vec::new(), 0);
    let mut keep = |finding| {
        if findings.len() < FINDINGS_KEPT_MAX {
            findings.push(finding);
        }
    };
    let inspection = inspect(copy.words_mut(), &mut keep, &mut |name, bytes| {
        root_count += 1;
        if roots.len() < ROOTS_KEPT_MAX {
            roots.push(RootRow { name: name.into(), bytes });
        }
    });
    roots.sort_by(|a, b| a.name.cmp(&b.name));
    Look { inspection, findings, roots, root_count, copy }
}

#[cfg(test)]
mod tests {
    use holdfast_region::Places;

    use super::*;

    /// No command takes zeros for what was cut off.
    ///
    /// Guarantee: heap/check
    #[test]
    fn look_at_a_cut_off_image_is_an_error() {
        let scratch = tempfile::tempdir().unwrap();
        let (home, pool) = (scratch.path().join("home"), scratch.path().join("pool"));
        let names = NameSpace::new(Places::at(home, pool).unwrap());
        let name = RegionName::parse("words").unwrap();
        let region = names.create(&name, &OwnerKey::from_bytes([1; 32]), 8 << 20).unwrap();
        region.close().unwrap();
        let reader = names.open_read(&name).unwrap();
        assert!(look(&reader).is_ok());
        let image = reader.summary().image.as_ref().unwrap().path.clone();
        let file = std::fs::OpenOptions::new().write(true).open(image).unwrap();
        // The first page of the data is there still.
        file.set_len((2 << 20) + 4096).unwrap();
        let failure = look(&reader).err().unwrap();
        assert_eq!(failure.code, BAD_FILE);
        assert!(failure.message.contains("shorter than its header says"), "{}", failure.message);
    }
}
