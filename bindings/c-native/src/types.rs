//! Types that a program in C has described (`NV_TYPE` of `holdfast_types.h`): where their pointers
//! are, so that a heap of them can be moved when its address is taken.
//!
//! Invariants:
//! - A type is known once, by its layout, which is a hash over its name and all that is said of it,
//!   as `nv_type_layout` computes it; one that two files describe is one type.
//! - Maps are never freed: a relocation refers to them for good. There are no more than
//!   [`TYPES_MAX`].

#![allow(unreachable_pub, reason = "what a function that is exported by its symbol takes")]

use std::collections::HashMap;
use std::ffi::{CStr, c_char};
use std::sync::{Mutex, MutexGuard, PoisonError};

use holdfast_heap::types::{layout_field, layout_start};
use holdfast_heap::{Described, PointerMap, RootType};

use crate::failure::Failure;

/// Types that one process describes.
const TYPES_MAX: usize = 4096;
/// Pointers in one type.
const LINKS_MAX: usize = 4096;

/// `struct nv_link_`.
#[repr(C)]
pub struct LinkInC {
    name: *const c_char,
    to: *const TypeInC,
    offset: u64,
    kind: u32,
    /// Bytes of the pointer.
    bytes: u32,
}

/// `struct nv_type_`.
#[repr(C)]
pub struct TypeInC {
    name: *const c_char,
    links: *const LinkInC,
    bytes: u64,
    align_bytes: u64,
    count: u64,
}

/// The kinds of `struct nv_link_`.
const LINK: u32 = 0;
const RUN: u32 = 1;
const BYTES: u32 = 2;
/// So many pointers deep, what they lead to is part of a layout.
const DEPTH: u32 = 3;

static TYPES: Mutex<Vec<Described>> = Mutex::new(Vec::new());

fn types() -> MutexGuard<'static, Vec<Described>> {
    TYPES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether none was registered.
pub(crate) fn is_empty() -> bool {
    types().is_empty()
}

/// All that were registered.
pub(crate) fn all() -> Vec<Described> {
    types().clone()
}

/// Registers a type, and those that its pointers lead to.
///
/// # Errors
/// [`Failure::BadType`]; nothing is registered then.
///
/// # Safety
/// `described` must be NULL or a `struct nv_type_` that stays, as must be all that it leads to.
pub(crate) unsafe fn register(described: *const TypeInC) -> Result<(), Failure> {
    let mut known = types();
    let mut next = known.clone();
    let mut indices = HashMap::new();
    let mut layouts = Layouts::default();
    let mut waiting = vec![described];
    // First each type gets its number, since types lead to each other in circles.
    while let Some(described) = waiting.pop() {
        // SAFETY: per the contract.
        let Some(it) = (unsafe { described.as_ref() }) else { return bad("a type is NULL") };
        // SAFETY: per the contract.
        let layout = unsafe { layouts.of(it)? };
        if indices.contains_key(&layout) {
            continue;
        }
        let found = next.iter().position(|other| other.root_type.layout == layout);
        let index = found.unwrap_or(next.len());
        indices.insert(layout, index);
        if found.is_some() {
            continue;
        }
        // SAFETY: per the contract.
        let links = unsafe { links_of(it)? };
        if next.len() >= TYPES_MAX {
            return bad(&format!("a program describes {TYPES_MAX} types at most"));
        }
        let root_type = RootType { layout, version: 0 };
        let (bytes, align_bytes, map) = (it.bytes, it.align_bytes, PointerMap::Unknown);
        next.push(Described { root_type, outline: root_type, bytes, align_bytes, map });
        waiting.extend(links.iter().filter(|link| link.kind != BYTES).map(|link| link.to));
    }
    let mut seen = vec![described];
    let mut done = std::collections::HashSet::new();
    while let Some(described) = seen.pop() {
        // SAFETY: per the contract; none is NULL, or the first pass had ended.
        let Some(it) = (unsafe { described.as_ref() }) else { continue };
        // SAFETY: per the contract.
        let layout = unsafe { layouts.of(it)? };
        let Some(index) = indices.get(&layout).copied() else { continue };
        if index < known.len() || !done.insert(layout) {
            continue;
        }
        // SAFETY: per the contract.
        let links = unsafe { links_of(it)? };
        let mut fields = Vec::with_capacity(links.len());
        for link in links {
            // SAFETY: per the contract.
            let to = match unsafe { link.to.as_ref() } {
                // SAFETY: per the contract.
                Some(to) => indices.get(&unsafe { layouts.of(to)? }).copied(),
                None => None,
            };
            let map = match (link.kind, to) {
                (BYTES, _) => PointerMap::Link(Described::of::<u8>),
                (LINK, Some(to)) => PointerMap::Listed(to),
                (RUN, Some(to)) => PointerMap::ListedRun(to),
                _ => return bad("a pointer is of an unknown kind"),
            };
            fields.push((link.offset as usize, map));
            seen.push(link.to);
        }
        next[index].map = PointerMap::Fields(Box::leak(fields.into_boxed_slice()));
    }
    *known = next;
    Ok(())
}

/// The layouts of types by their addresses, each computed once: what a type leads to is a part of
/// its layout, so that a type of many pointers takes the cube of their number.
#[derive(Default)]
struct Layouts(HashMap<*const TypeInC, u64>);

impl Layouts {
    /// # Safety
    /// As for [`register`].
    unsafe fn of(&mut self, it: &TypeInC) -> Result<u64, Failure> {
        if let Some(layout) = self.0.get(&std::ptr::from_ref(it)) {
            return Ok(*layout);
        }
        // SAFETY: per the contract.
        let layout = unsafe { layout_of(it, DEPTH)? };
        self.0.insert(it, layout);
        Ok(layout)
    }
}

/// The layout of a type: `nv_type_hash_` of the header.
///
/// # Safety
/// As for [`register`].
unsafe fn layout_of(it: &TypeInC, depth: u32) -> Result<u64, Failure> {
    // SAFETY: per the contract.
    let links = unsafe { links_of(it)? };
    // SAFETY: per the contract.
    let name = |place: *const c_char| match unsafe { place.as_ref() } {
        // SAFETY: per the contract.
        Some(_) => Ok(unsafe { CStr::from_ptr(place) }.to_string_lossy()),
        None => bad("a type or a pointer has no name"),
    };
    let hash = layout_start("c", it.bytes as usize, it.align_bytes as usize);
    let mut hash = layout_field(hash, &name(it.name)?, it.count as usize, 0);
    for link in links {
        // SAFETY: per the contract.
        let target = match unsafe { link.to.as_ref() } {
            // SAFETY: per the contract.
            Some(to) if depth > 0 => unsafe { layout_of(to, depth - 1)? },
            _ => 0,
        };
        let place = link.offset as usize * 4 + link.kind as usize;
        hash = layout_field(hash, &name(link.name)?, place, target);
    }
    Ok(hash.max(1))
}

/// The pointers of a type, each of which lies in it.
///
/// # Safety
/// As for [`register`].
unsafe fn links_of(it: &TypeInC) -> Result<&[LinkInC], Failure> {
    // SAFETY: per the contract.
    let name = || unsafe {
        it.name.as_ref().map_or("?".into(), |name| CStr::from_ptr(name).to_string_lossy())
    };
    let is_sound = it.bytes > 0
        && it.align_bytes.is_power_of_two()
        && it.count <= LINKS_MAX as u64
        && (it.count == 0 || !it.links.is_null());
    if !is_sound {
        return bad(&format!("the description of {} is none", name()));
    }
    if it.count == 0 {
        return Ok(&[]);
    }
    // SAFETY: per the contract, and not NULL.
    let links = unsafe { std::slice::from_raw_parts(it.links, it.count as usize) };
    for link in links {
        // A run has its length behind the pointer.
        let bytes = if link.kind == RUN { 16 } else { 8 };
        let fits = link.offset.checked_add(bytes).is_some_and(|end| end <= it.bytes);
        if link.bytes != 8 || link.offset % 8 != 0 || !fits {
            return bad(&format!("a pointer of {} has no place in it", name()));
        }
    }
    Ok(links)
}

fn bad<T>(what: &str) -> Result<T, Failure> {
    Err(Failure::BadType { what: what.to_owned() })
}
