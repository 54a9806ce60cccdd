//! The heaps of an applet: any number of regions, each under the name that the applet knows it by.
#![forbid(unsafe_code)]

use std::fmt;
use std::str::FromStr;

use holdfast_channel::heaps::HEAPS_MAX;
use holdfast_region::{NameError, Region, RegionName};

/// A heap that is granted to an applet.
pub struct GrantedHeap {
    /// By which the applet knows it.
    pub name: RegionName,
    /// Where it lies.
    pub region: Region,
    /// The linear offset to which its pointers refer, in WebAssembly; `None` for one that can lie
    /// anywhere: a new one, or one without pointers.
    pub base: Option<u64>,
}

impl GrantedHeap {
    /// Whether it is a compartment, which one thread of the applet may have for itself.
    #[must_use]
    pub fn is_compartment(&self) -> bool {
        self.region.name().parent_and_worker().is_some()
    }
}

/// The heaps of one applet, in the order of their grants. The first one is what an applet has that
/// names none.
#[derive(Default)]
pub struct Heaps(Vec<GrantedHeap>);

/// Heaps that cannot be granted together. Nothing was started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeapsError {
    /// There are too many.
    #[error("{count} heaps were granted, and an applet can have {HEAPS_MAX}; grant fewer")]
    TooMany {
        /// How many there are.
        count: usize,
    },
    /// There are more compartments than threads.
    #[error(
        "{count} compartments were granted to a WebAssembly applet, which has one thread, and so one compartment; grant \
         one to each of several applets"
    )]
    Compartments {
        /// How many there are.
        count: usize,
    },
    /// Two of them have one name in the applet.
    #[error(
        "two heaps were granted under the name {name:?}; give one of them another name in the applet (NAME=HEAP)"
    )]
    SameName {
        /// The name.
        name: String,
    },
}

/// A heap that is to be granted, as a text: `[NAME=]HEAP[:ro]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeapRequest {
    /// By which the applet shall know it, if not by its own name.
    pub alias: Option<RegionName>,
    /// Its name.
    pub heap: RegionName,
    /// Grant reading only, whatever the key allows.
    pub is_read_only: bool,
}

/// Why a text names no heap.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeapRequestError {
    /// A name is none.
    #[error(transparent)]
    Name(#[from] NameError),
    /// It is granted in another way than there is.
    #[error("`:{way}` is no way to grant a heap; write {heap}:ro to grant reading only, or {heap}")]
    Way {
        /// The heap.
        heap: String,
        /// What stands behind the colon.
        way: String,
    },
    /// It is the compartment of a worker.
    #[error("{heap}+{worker} is a compartment; grant {heap} with the compartment {worker}")]
    Compartment {
        /// The heap.
        heap: RegionName,
        /// The worker.
        worker: RegionName,
    },
}

impl FromStr for HeapRequest {
    type Err = HeapRequestError;

    fn from_str(text: &str) -> Result<HeapRequest, HeapRequestError> {
        let (alias, rest) = match text.split_once('=') {
            Some((alias, rest)) => (Some(RegionName::parse(alias)?), rest),
            None => (None, text),
        };
        let (name, is_read_only) = match rest.split_once(':') {
            None => (rest, false),
            Some((name, "ro")) => (name, true),
            Some((heap, way)) => {
                let (heap, way) = (heap.to_owned(), way.to_owned());
                return Err(HeapRequestError::Way { heap, way });
            }
        };
        if let Ok(Some((heap, worker))) =
            RegionName::parse_any(name).map(|name| name.parent_and_worker())
        {
            return Err(HeapRequestError::Compartment { heap, worker });
        }
        Ok(HeapRequest { alias, heap: RegionName::parse(name)?, is_read_only })
    }
}

impl fmt::Display for HeapRequest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(alias) = &self.alias {
            write!(formatter, "{alias}=")?;
        }
        write!(formatter, "{}{}", self.heap, if self.is_read_only { ":ro" } else { "" })
    }
}

impl Heaps {
    /// None.
    #[must_use]
    pub fn none() -> Heaps {
        Heaps::default()
    }

    /// Adds one behind those that there are.
    pub fn push(&mut self, heap: GrantedHeap) {
        self.0.push(heap);
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The region of the first one.
    #[must_use]
    pub fn first(&self) -> Option<&Region> {
        self.0.first().map(|heap| &heap.region)
    }

    /// The region of the first one; the others are let go of without a checkpoint.
    #[must_use]
    pub fn into_first(self) -> Option<Region> {
        self.0.into_iter().next().map(|heap| heap.region)
    }

    /// The region of the heap that the applet knows by this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Region> {
        self.0.iter().find(|heap| heap.name.as_str() == name).map(|heap| &heap.region)
    }

    /// Takes out the heap that the applet knows by this name.
    pub fn take(&mut self, name: &str) -> Option<Region> {
        let index = self.0.iter().position(|heap| heap.name.as_str() == name)?;
        Some(self.0.remove(index).region)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &GrantedHeap> {
        self.0.iter()
    }

    /// All of them, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut GrantedHeap> {
        self.0.iter_mut()
    }

    /// The one with this index.
    pub fn at(&mut self, index: usize) -> Option<&mut GrantedHeap> {
        self.0.get_mut(index)
    }

    /// Backed bytes of all of them.
    #[must_use]
    pub fn backed_bytes(&self) -> u64 {
        self.0.iter().map(|heap| heap.region.backed_bytes()).sum()
    }

    /// Whether one of them was stored to since its last checkpoint.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        self.0.iter().any(|heap| heap.region.is_dirty())
    }

    /// Whether an applet can have them together.
    ///
    /// # Errors
    /// [`HeapsError`].
    pub fn check(&self) -> Result<(), HeapsError> {
        if self.0.len() > HEAPS_MAX {
            return Err(HeapsError::TooMany { count: self.0.len() });
        }
        for (index, heap) in self.0.iter().enumerate() {
            if self.0[..index].iter().any(|other| other.name == heap.name) {
                return Err(HeapsError::SameName { name: heap.name.to_string() });
            }
        }
        Ok(())
    }
}

impl Heaps {
    /// As [`Heaps::check`], for an applet with one thread.
    ///
    /// # Errors
    /// [`HeapsError`].
    pub(crate) fn check_for_one_thread(&self) -> Result<(), HeapsError> {
        let count = self.0.iter().filter(|heap| heap.is_compartment()).count();
        if count > 1 {
            return Err(HeapsError::Compartments { count });
        }
        self.check()
    }
}

impl From<Region> for Heaps {
    /// The region under its own name; its pointers can refer to any place.
    fn from(region: Region) -> Heaps {
        Heaps(vec![GrantedHeap { name: region.name().clone(), region, base: None }])
    }
}

impl From<Option<Region>> for Heaps {
    fn from(region: Option<Region>) -> Heaps {
        region.map(Heaps::from).unwrap_or_default()
    }
}

impl IntoIterator for Heaps {
    type Item = GrantedHeap;
    type IntoIter = std::vec::IntoIter<GrantedHeap>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl FromIterator<GrantedHeap> for Heaps {
    fn from_iter<I: IntoIterator<Item = GrantedHeap>>(heaps: I) -> Heaps {
        Heaps(heaps.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_as_they_are_shown() {
        for (text, alias, heap, is_read_only) in [
            ("notes", None, "notes", false),
            ("dict:ro", None, "dict", true),
            ("words=dict.v2", Some("words"), "dict.v2", false),
            ("words=dict:ro", Some("words"), "dict", true),
        ] {
            let request: HeapRequest = text.parse().unwrap();
            assert_eq!(request.alias.as_ref().map(RegionName::as_str), alias);
            assert_eq!((request.heap.as_str(), request.is_read_only), (heap, is_read_only));
            assert_eq!(request.to_string(), text);
        }
        for text in
            ["", "a b", "=x", "x=", "x=y=z", "x:", "x:rw", "x:ro:ro", "jobs+w1", "a=jobs+w1"]
        {
            let error = text.parse::<HeapRequest>().unwrap_err().to_string();
            assert!(!error.is_empty(), "{text}");
        }
    }
}
