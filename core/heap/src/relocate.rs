//! Moving a heap to another address: every pointer in it is found by the pointer maps of its types,
//! checked, and rewritten.
//!
//! Invariants:
//! - All or nothing: the whole heap is looked at before the first word is changed, and what is not
//!   understood (a root without a type, a pointer whose target is not known, an object that no
//!   typed pointer reaches) is an error.
//! - Only words that a map calls pointers change, and the superblock's note of the base.
//!
//! What it must not do: guess. A number that looks like a pointer is none unless a map says so. And
//! it does not make the change count: the caller has the heap in private pages, and publishes them.

use core::fmt;
use std::collections::BTreeSet;
use std::string::{String, ToString};
use std::vec::Vec;

use holdfast_types::Remedy;

use crate::backing::Backing;
use crate::check::check;
use crate::heap::Heap;
use crate::layout::{SUPER_POINTER_BASE, SUPER_VERSION};
use crate::pointer_map::{Described, PointerMap};
use crate::survey::Survey;
use crate::types::RootType;

/// What a relocation did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Relocated {
    /// Objects that were looked at.
    pub objects: u64,
    /// Pointers that were rewritten.
    pub pointers: u64,
}

/// Why a heap cannot be relocated. Offsets count from the start of the heap.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RelocationError {
    /// It holds no pointers of 8 bytes.
    NotNative {
        /// Bytes of its pointers; 0 of a portable heap.
        pointer_bytes: u32,
    },
    /// Its metadata contradicts itself, or a transaction is open.
    Damaged {
        /// Contradictions.
        findings: u64,
    },
    /// A root carries no type.
    UntypedRoot {
        /// Its name.
        name: String,
    },
    /// A root has a type that the program did not describe.
    UnknownType {
        /// Its name.
        name: String,
        /// Its type.
        root_type: RootType,
    },
    /// A root has a type that several of the described types share, and these differ in where their
    /// pointers lead.
    AmbiguousType {
        /// Its name.
        name: String,
        /// Its type.
        root_type: RootType,
    },
    /// A type has a pointer whose target is not known.
    UnknownPointer {
        /// Where it is.
        offset: u64,
    },
    /// A pointer does not lead to a value of its type in an allocated object.
    BadPointer {
        /// Where it is.
        offset: u64,
        /// What it holds.
        pointer: u64,
    },
    /// Objects that no typed pointer leads to: without a type, or leaked.
    Unreached {
        /// The first of them.
        offset: u64,
        /// Its room in bytes.
        bytes: u64,
        /// How many there are.
        objects: u64,
    },
}

impl fmt::Display for RelocationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotNative { pointer_bytes } => {
                if *pointer_bytes == 0 {
                    return f
                        .write_str("it is portable, which needs no relocation; open it as such");
                }
                write!(
                    f,
                    "its pointers have {pointer_bytes} bytes, so it is an applet's, which needs no relocation"
                )
            }
            Self::Damaged { findings } => {
                let s = if *findings == 1 { "" } else { "s" };
                write!(f, "it has {findings} contradiction{s}; {}", Remedy::Check { heap: None })
            }
            Self::UntypedRoot { name } => {
                write!(f, "its root {name:?} has no type; give it one with `adopt_root`")
            }
            Self::UnknownType { name, root_type } => write!(
                f,
                "its root {name:?} has the layout {:016x} version {}, which this program did not describe; name that type, too",
                root_type.layout, root_type.version
            ),
            Self::AmbiguousType { name, root_type } => write!(
                f,
                "its root {name:?} has the layout {:016x} version {}, which several of the named types share; name only the \
                 right one, or give them versions of their own",
                root_type.layout, root_type.version
            ),
            Self::UnknownPointer { offset } => write!(
                f,
                "at {offset:#x} there is a pointer without a target type; declare the field as a `Link` or a `Run`"
            ),
            Self::BadPointer { offset, pointer } => write!(
                f,
                "the pointer {pointer:#x} at {offset:#x} leads to no value of its type; set it to null where it is not used"
            ),
            Self::Unreached { offset, bytes, objects } => write!(
                f,
                "no typed pointer leads to {objects} of its objects, the first at {offset:#x} with {bytes} bytes; free \
                 them, or link them by types"
            ),
        }
    }
}

impl core::error::Error for RelocationError {}

/// Rewrites the heap for a program that has its first byte at `to`. `types` are the types of its
/// roots; what these lead to describes itself.
///
/// The change takes many stores and is not crash-safe by itself: the backing must be a private copy
/// that is published whole, or thrown away. No pointer into the heap may be in use, and no
/// transaction open.
///
/// # Errors
/// [`RelocationError`]; nothing has changed then.
pub fn relocate<B: Backing>(
    heap: &mut Heap<B>,
    types: &[Described],
    to: u64,
) -> Result<Relocated, RelocationError> {
    let from = heap.pointers().base;
    // SAFETY: the heap is borrowed for as long as the bytes are read, and the caller has no pointer
    // into it in use.
    let bytes = unsafe { heap.memory().bytes(0, heap.memory().len()) };
    let (places, objects) = Plan::make(bytes.unwrap_or_default(), types)?;
    for place in &places {
        let pointer = heap.memory().load(*place);
        heap.memory().store(*place, pointer.wrapping_sub(from).wrapping_add(to));
    }
    heap.store_base(to);
    Ok(Relocated { objects, pointers: places.len() as u64 })
}

/// Tells maps apart: kind, where it lies, and two numbers. One type may have several, two different
/// maps never share one.
type Identity = (u8, usize, usize, usize);
/// A value to be looked at: where, and its map. The same place may be two values, an object and its
/// first field.
type Value = (u64, Identity);

fn identity(map: &PointerMap) -> Identity {
    match *map {
        PointerMap::Plain => (0, 0, 0, 0),
        PointerMap::Unknown => (1, 0, 0, 0),
        PointerMap::Link(of) => (2, of as usize, 0, 0),
        PointerMap::Run(of) => (3, of as usize, 0, 0),
        PointerMap::Listed(index) => (6, index, 0, 0),
        PointerMap::ListedRun(index) => (7, index, 0, 0),
        PointerMap::Fields(fields) => (4, fields.as_ptr() as usize, fields.len(), 0),
        PointerMap::Elements { bytes, length, of } => {
            (5, core::ptr::from_ref(of) as usize, length, bytes)
        }
    }
}

/// Whether two types have pointers at the same places that lead to types of which the same is true.
/// `compared` are the pairs of targets that are compared already: types may point to each other in
/// a circle.
fn alike(one: &Described, other: &Described, compared: &mut BTreeSet<(usize, usize)>) -> bool {
    one.bytes == other.bytes
        && one.align_bytes == other.align_bytes
        && maps_alike(&one.map, &other.map, compared)
}

fn maps_alike(
    one: &PointerMap,
    other: &PointerMap,
    compared: &mut BTreeSet<(usize, usize)>,
) -> bool {
    match (*one, *other) {
        (PointerMap::Plain, PointerMap::Plain) | (PointerMap::Unknown, PointerMap::Unknown) => true,
        (PointerMap::Link(one), PointerMap::Link(other))
        | (PointerMap::Run(one), PointerMap::Run(other)) => {
            !compared.insert((one as usize, other as usize)) || alike(&one(), &other(), compared)
        }
        (PointerMap::Listed(one), PointerMap::Listed(other))
        | (PointerMap::ListedRun(one), PointerMap::ListedRun(other)) => one == other,
        (PointerMap::Fields(one), PointerMap::Fields(other)) => {
            let mut pairs = one.iter().zip(other);
            one.len() == other.len()
                && pairs.all(|((at, map), (place, like))| {
                    at == place && maps_alike(map, like, compared)
                })
        }
        (
            PointerMap::Elements { bytes, length, of },
            PointerMap::Elements { bytes: other_bytes, length: other_length, of: like },
        ) => bytes == other_bytes && length == other_length && maps_alike(of, like, compared),
        _ => false,
    }
}

struct Plan<'a> {
    survey: Survey<'a>,
    types: &'a [Described],
    base: u64,
    /// Offsets of pointers.
    places: BTreeSet<u64>,
    /// Offsets of objects that were reached.
    reached: BTreeSet<u64>,
    seen: BTreeSet<Value>,
    queue: Vec<(u64, Described)>,
}

impl<'a> Plan<'a> {
    /// Where the pointers are that have to be rewritten, and how many objects there are.
    fn make(
        bytes: &'a [u8],
        types: &'a [Described],
    ) -> Result<(BTreeSet<u64>, u64), RelocationError> {
        let findings = check(bytes, &mut |_| {}).findings;
        let survey = Survey::new(bytes).filter(|_| findings == 0);
        let survey = survey.ok_or(RelocationError::Damaged { findings })?;
        let pointer_bytes = (survey.load(SUPER_VERSION) >> 32) as u32;
        if pointer_bytes != 8 {
            return Err(RelocationError::NotNative { pointer_bytes });
        }
        let base = survey.load(SUPER_POINTER_BASE);
        let reached = survey.root_objects().collect();
        let (places, seen, queue) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
        let mut plan = Plan { survey, types, base, places, reached, seen, queue };
        plan.push_roots()?;
        while let Some((offset, described)) = plan.queue.pop() {
            plan.visit(offset, &described.map)?;
        }
        plan.check_all_reached()?;
        Ok((plan.places, plan.reached.len() as u64))
    }

    fn push_roots(&mut self) -> Result<(), RelocationError> {
        let types = self.types;
        let roots: Vec<_> = self.survey.roots().collect();
        for root in roots {
            let name = || root.name.to_string();
            let root_type =
                root.root_type.ok_or_else(|| RelocationError::UntypedRoot { name: name() })?;
            let mut fitting =
                types.iter().filter(|of| of.root_type == root_type || of.outline == root_type);
            let described = *fitting
                .next()
                .ok_or_else(|| RelocationError::UnknownType { name: name(), root_type })?;
            if !fitting.all(|other| alike(&described, other, &mut BTreeSet::new())) {
                return Err(RelocationError::AmbiguousType { name: name(), root_type });
            }
            self.reach(root.offset, self.base.wrapping_add(root.offset), 1, described)?;
        }
        Ok(())
    }

    /// Notes that a pointer at `place` leads to `length` values; its target must have them.
    fn reach(
        &mut self,
        place: u64,
        pointer: u64,
        length: u64,
        described: Described,
    ) -> Result<(), RelocationError> {
        let bad = RelocationError::BadPointer { offset: place, pointer };
        let offset = pointer.wrapping_sub(self.base);
        let object = self.survey.object_at(offset).ok_or(bad.clone())?;
        let room = object.offset + object.bytes - offset;
        let fits = length.checked_mul(described.bytes).is_some_and(|bytes| bytes <= room);
        // Where objects start at least as aligned as any value is, offsets are aligned as addresses
        // are.
        if !fits || !offset.is_multiple_of(described.align_bytes.max(1)) {
            return Err(bad);
        }
        self.reached.insert(object.offset);
        if matches!(described.map, PointerMap::Plain) || described.bytes == 0 {
            return Ok(());
        }
        for index in 0..length {
            let at = offset + index * described.bytes;
            if self.seen.insert((at, identity(&described.map))) {
                self.queue.push((at, described));
            }
        }
        Ok(())
    }

    /// Looks at the pointers of the value at `offset`.
    fn visit(&mut self, offset: u64, map: &PointerMap) -> Result<(), RelocationError> {
        match *map {
            PointerMap::Plain => Ok(()),
            PointerMap::Unknown => Err(RelocationError::UnknownPointer { offset }),
            PointerMap::Link(of) => self.follow(offset, 1, of()),
            PointerMap::Run(of) => self.follow(offset, self.survey.load(offset + 8), of()),
            PointerMap::Listed(index) => self.follow(offset, 1, self.listed(offset, index)?),
            PointerMap::ListedRun(index) => {
                let length = self.survey.load(offset + 8);
                self.follow(offset, length, self.listed(offset, index)?)
            }
            PointerMap::Fields(fields) => {
                fields.iter().try_for_each(|(at, map)| self.visit(offset + *at as u64, map))
            }
            PointerMap::Elements { bytes, length, of } => {
                (0..length).try_for_each(|index| self.visit(offset + (index * bytes) as u64, of))
            }
        }
    }

    /// The type of this number, to which a pointer at `offset` leads.
    fn listed(&self, offset: u64, index: usize) -> Result<Described, RelocationError> {
        self.types.get(index).copied().ok_or(RelocationError::UnknownPointer { offset })
    }

    fn follow(&mut self, place: u64, length: u64, of: Described) -> Result<(), RelocationError> {
        let pointer = self.survey.load(place);
        if pointer == 0 {
            return Ok(());
        }
        if !place.is_multiple_of(8) {
            return Err(RelocationError::BadPointer { offset: place, pointer });
        }
        self.places.insert(place);
        self.reach(place, pointer, length, of)
    }

    fn check_all_reached(&self) -> Result<(), RelocationError> {
        let unreached =
            || self.survey.objects().filter(|object| !self.reached.contains(&object.offset));
        match unreached().next() {
            None => Ok(()),
            Some(first) => Err(RelocationError::Unreached {
                offset: first.offset,
                bytes: first.bytes,
                objects: unreached().count() as u64,
            }),
        }
    }
}
