//! Pointer maps: which bytes of a typed value are pointers, and what they lead to. With them a heap
//! is moved to another address: see [`relocate`](crate::relocate()).
//!
//! Invariants:
//! - A map names every pointer of a value: [`typed!`](crate::typed!) makes it from the types of all
//!   fields, and a field whose target is not known (a plain `*mut T`) makes the whole type one
//!   without a map. None is guessed.
//! - The outline of a [`Link`] is that of a plain pointer, so a program may go over from that to
//!   links without a migration.

use core::fmt;
use core::marker::PhantomData;
use core::ptr::{NonNull, null_mut};

use crate::types::{RootType, Typed, layout_field, layout_start};

/// Where the pointers of a value are.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum PointerMap {
    /// There are none.
    Plain,
    /// The value is a pointer to one value of another type, or null.
    Link(fn() -> Described),
    /// The value is a pointer to several values of another type that follow each other, or null,
    /// and behind it (8 bytes on) their number.
    Run(fn() -> Described),
    /// The value has fields: their offsets and maps.
    Fields(&'static [(usize, PointerMap)]),
    /// Elements of this many bytes each follow each other.
    Elements {
        /// Bytes of one element.
        bytes: usize,
        /// How many there are.
        length: usize,
        /// The map of each.
        of: &'static PointerMap,
    },
    /// As [`PointerMap::Link`], to the type of this number among those that the relocation is
    /// given: for types that are described while the program runs.
    Listed(usize),
    /// As [`PointerMap::Run`], likewise.
    ListedRun(usize),
    /// It is not known what its pointers lead to.
    Unknown,
}

/// A type, as a relocation needs to know it.
#[derive(Clone, Copy, Debug)]
pub struct Described {
    /// What roots of it carry.
    pub root_type: RootType,
    /// What those carry that were stored with plain pointers; see [`RootType::outline_of`].
    pub outline: RootType,
    /// Bytes of a value.
    pub bytes: u64,
    /// Alignment of a value in bytes.
    pub align_bytes: u64,
    /// Where its pointers are.
    pub map: PointerMap,
}

impl Described {
    /// The type `T`.
    #[must_use]
    pub fn of<T: Typed>() -> Described {
        Described {
            root_type: RootType::of::<T>(),
            outline: RootType::outline_of::<T>(),
            bytes: size_of::<T>() as u64,
            align_bytes: align_of::<T>() as u64,
            map: T::POINTERS,
        }
    }
}

/// A pointer to one `T` in the same heap, or null, which a relocation knows how to follow and to
/// rewrite.
#[repr(transparent)]
pub struct Link<T>(*mut T);

impl<T> Link<T> {
    /// The link that leads nowhere.
    #[must_use]
    pub const fn null() -> Link<T> {
        Link(null_mut())
    }

    /// A link to the value at `target`.
    #[must_use]
    pub const fn to(target: NonNull<T>) -> Link<T> {
        Link(target.as_ptr())
    }

    /// Where it leads.
    #[must_use]
    pub const fn target(self) -> Option<NonNull<T>> {
        NonNull::new(self.0)
    }
}

impl<T> Clone for Link<T> {
    fn clone(&self) -> Link<T> {
        *self
    }
}

impl<T> Copy for Link<T> {}

impl<T> PartialEq for Link<T> {
    fn eq(&self, other: &Link<T>) -> bool {
        core::ptr::eq(self.0, other.0)
    }
}

impl<T> Eq for Link<T> {}

impl<T> fmt::Debug for Link<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Link({:p})", self.0)
    }
}

// SAFETY: `repr(transparent)` over a pointer; any bytes are one, as long as it is not followed.
unsafe impl<T: Typed> Typed for Link<T> {
    const LAYOUT: u64 = layout_field(Self::OUTLINE, "to", T::VERSION as usize, T::OUTLINE);
    const OUTLINE: u64 = layout_start("pointer", size_of::<Self>(), align_of::<Self>());
    const POINTERS: PointerMap = PointerMap::Link(Described::of::<T>);
}

/// A pointer to several `T` in the same heap that follow each other, or null, and how many they
/// are.
#[repr(C)]
pub struct Run<T> {
    first: u64,
    length: u64,
    of: PhantomData<*mut T>,
}

impl<T> Run<T> {
    /// Of nothing.
    #[must_use]
    pub const fn empty() -> Run<T> {
        Run { first: 0, length: 0, of: PhantomData }
    }

    /// Of `length` values from `first` on.
    #[must_use]
    pub fn new(first: NonNull<T>, length: u64) -> Run<T> {
        Run { first: first.as_ptr() as u64, length, of: PhantomData }
    }

    /// The first value.
    #[must_use]
    pub fn first(self) -> Option<NonNull<T>> {
        NonNull::new(self.first as usize as *mut T)
    }

    /// How many there are.
    #[must_use]
    pub const fn length(self) -> u64 {
        self.length
    }
}

impl<T> Clone for Run<T> {
    fn clone(&self) -> Run<T> {
        *self
    }
}

impl<T> Copy for Run<T> {}

impl<T> fmt::Debug for Run<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Run({:#x}, {})", self.first, self.length)
    }
}

// SAFETY: `repr(C)` with two words, of which any value is valid as long as the first is not
// followed.
unsafe impl<T: Typed> Typed for Run<T> {
    const LAYOUT: u64 = layout_field(Self::OUTLINE, "to", T::VERSION as usize, T::OUTLINE);
    const OUTLINE: u64 = layout_field(layout_start("run", 16, 8), "of", 0, size_of::<T>() as u64);
    const POINTERS: PointerMap = PointerMap::Run(Described::of::<T>);
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::typed! { struct Node: 1 { next: Link<Node>, value: u64 } }
    crate::typed! { struct Holder: 1 { count: u64, nodes: [Node; 3], names: Run<u8> } }
    crate::typed! { struct Newer: 2 { next: Link<Node>, value: u64 } }
    crate::typed! { struct Old: 1 { next: *mut u8, value: u64 } }

    /// A map has every pointer at any depth and none is guessed.
    #[test]
    fn map_has_every_pointer_at_any_depth() {
        let PointerMap::Fields(fields) = Node::POINTERS else { panic!("{:?}", Node::POINTERS) };
        assert!(matches!(fields, [(0, PointerMap::Link(_)), (8, PointerMap::Plain)]));
        let PointerMap::Fields(fields) = Holder::POINTERS else { panic!("{:?}", Holder::POINTERS) };
        assert!(matches!(fields[1], (8, PointerMap::Elements { bytes: 16, length: 3, .. })));
        assert!(matches!(fields[2], (56, PointerMap::Run(_))));
        let PointerMap::Fields(fields) = Old::POINTERS else { panic!("{:?}", Old::POINTERS) };
        assert!(matches!(fields[0], (0, PointerMap::Unknown)));
    }

    /// What a link leads to is part of a layout and no part of an outline.
    #[test]
    fn link_target_is_in_layout_but_not_in_outline() {
        assert_eq!(<Link<Node>>::OUTLINE, <*mut Node>::LAYOUT);
        assert_eq!(Node::OUTLINE, Old::LAYOUT);
        let layouts = [
            Node::OUTLINE,
            Node::LAYOUT,
            <Link<Node>>::LAYOUT,
            <Link<Holder>>::LAYOUT,
            <Link<Newer>>::LAYOUT,
            <Run<Link<u64>>>::LAYOUT,
            <Run<u64>>::LAYOUT,
            <Run<i64>>::LAYOUT,
            <[Link<u64>; 2]>::LAYOUT,
            <[Link<u32>; 2]>::LAYOUT,
        ];
        for (index, layout) in layouts.iter().enumerate() {
            assert!(!layouts[..index].contains(layout), "{index}");
        }
        // Roots on media carry these numbers.
        #[cfg(target_pointer_width = "64")]
        assert_eq!([Node::OUTLINE, Node::LAYOUT, <Run<u64>>::OUTLINE, <Run<u64>>::LAYOUT], PINNED);
    }

    #[cfg(target_pointer_width = "64")]
    const PINNED: [u64; 4] = [
        0x7B04_1C22_6B5C_A577,
        0x48DF_18C9_27A6_6309,
        0x1A7D_9F2C_B353_0DD9,
        0xB895_4006_157A_6398,
    ];
}
