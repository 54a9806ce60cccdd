//! Portable types: values that lie in memory the same way on every target and in every language, so
//! that a heap made by one program is read and changed by any other.
//!
//! Invariants:
//! - No pointers, no integers of the machine's width, no bytes without a name: what a compiler
//!   could lay out in another way does not compile.
//! - The hash over such a type is computed by C, C++ and Python as it is here; a root carries it.
//!   It is stored on media, so the way it is computed is part of the format.
//! - What a reference leads to is part of the hash, three references deep. There, types that refer
//!   to each other in a circle end.

use crate::pointer_map::PointerMap;
use crate::reference::Ref;
use crate::types::{Typed, hash_word, layout_field, layout_start};

/// A value with one layout on every target; see [`portable!`](crate::portable!).
///
/// # Safety
/// As for [`Typed`], with [`Typed::IS_PORTABLE`] true. In addition size, alignment and the place of
/// every field are the same on every target, every byte belongs to a field, and it holds no
/// pointers.
pub unsafe trait Portable: Typed {
    /// Hash of the layout, with references that lead nowhere.
    const SHAPE_0: u64 = Self::LAYOUT;
    /// With what references lead to.
    const SHAPE_1: u64 = Self::LAYOUT;
    /// With what these lead to.
    const SHAPE_2: u64 = Self::LAYOUT;
    /// And one deeper: it is [`Typed::LAYOUT`].
    const SHAPE_3: u64 = Self::LAYOUT;
}

/// Hash of size and alignment in bytes, and of the version, of a portable struct: the start of its
/// shapes.
#[must_use]
pub const fn portable_start(bytes: usize, align_bytes: usize, version: u32) -> u64 {
    hash_word(layout_start("portable", bytes, align_bytes), version as u64)
}

macro_rules! portable_plain {
    ($($type:ty)*) => {$(
        const _: () = assert!(
            align_of::<$type>() == size_of::<$type>(),
            "portable types need a target that aligns integers to their size"
        );
        // SAFETY: an integer or a float of explicit width, aligned to its size (asserted).
        unsafe impl Portable for $type {}
    )*};
}

portable_plain!(u8 u16 u32 u64 i8 i16 i32 i64 f32 f64);

// SAFETY: elements follow each other without a gap.
unsafe impl<T: Portable, const LENGTH: usize> Portable for [T; LENGTH] {
    const SHAPE_0: u64 = array::<T, LENGTH>(T::SHAPE_0);
    const SHAPE_1: u64 = array::<T, LENGTH>(T::SHAPE_1);
    const SHAPE_2: u64 = array::<T, LENGTH>(T::SHAPE_2);
}

const fn array<T, const LENGTH: usize>(of: u64) -> u64 {
    let start = layout_start("array", size_of::<[T; LENGTH]>(), align_of::<T>());
    layout_field(start, "", LENGTH, of)
}

const REF_SHAPE: u64 = layout_start("ref", 4, 4);

const fn leading_to(target: u64) -> u64 {
    layout_field(REF_SHAPE, "to", 0, target)
}

// SAFETY: `repr(transparent)` over a `u32`, any value of which is a reference, as long as it is not
// followed.
unsafe impl<T: Portable> Typed for Ref<T> {
    const LAYOUT: u64 = leading_to(T::SHAPE_2);
    const POINTERS: PointerMap = PointerMap::Plain;
    const IS_PORTABLE: bool = true;
}

// SAFETY: 4 bytes, aligned to 4, on every target; no pointer.
unsafe impl<T: Portable> Portable for Ref<T> {
    const SHAPE_0: u64 = REF_SHAPE;
    const SHAPE_1: u64 = leading_to(T::SHAPE_0);
    const SHAPE_2: u64 = leading_to(T::SHAPE_1);
}

/// Declares a `repr(C)` struct of [`Portable`] fields with its version, and implements
/// [`Typed`](crate::Typed) and [`Portable`] for it. A layout with bytes that belong to no field
/// does not compile: give them a name.
///
/// ```
/// use holdfast_heap::{Ref, portable};
///
/// portable! {
///     /// An entry of a list.
///     pub struct Node: 1 {
///         /// The one behind it.
///         pub next: Ref<Node>,
///         /// Its flags.
///         pub flags: u32,
///         /// Its key.
///         pub key: u64,
///     }
/// }
/// assert_eq!(size_of::<Node>(), 16);
/// ```
///
/// ```compile_fail
/// holdfast_heap::portable! { struct Gap: 1 { small: u8, large: u64 } }
/// ```
///
/// ```compile_fail
/// holdfast_heap::portable! { struct Wide: 1 { of_the_machine: usize } }
/// ```
#[macro_export]
macro_rules! portable {
    (
        $(#[$attribute:meta])*
        $visible:vis struct $name:ident: $version:literal {
            $($(#[$field_attribute:meta])* $field_visible:vis $field:ident: $type:ty),* $(,)?
        }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug)]
        #[repr(C)]
        $visible struct $name {
            $($(#[$field_attribute])* $field_visible $field: $type,)*
        }

        const _: () = assert!(
            0 $(+ size_of::<$type>())* == size_of::<$name>(),
            concat!(
                "a portable struct has no gaps: give the bytes between fields, and behind the last one, a name in ",
                stringify!($name)
            )
        );

        #[allow(unsafe_code)]
        // SAFETY: `repr(C)`, every field is `Typed`, and the hash covers each with its place.
        unsafe impl $crate::Typed for $name {
            const LAYOUT: u64 = <$name as $crate::Portable>::SHAPE_3;
            const POINTERS: $crate::PointerMap = $crate::PointerMap::Plain;
            const IS_PORTABLE: bool = true;
        }

        #[allow(unsafe_code)]
        // SAFETY: `repr(C)`, every field is `Portable`, and no byte is without a field (asserted).
        unsafe impl $crate::Portable for $name {
            const SHAPE_0: u64 = $crate::portable!(@shape SHAPE_0, $name, $version, $($field: $type),*);
            const SHAPE_1: u64 = $crate::portable!(@shape SHAPE_1, $name, $version, $($field: $type),*);
            const SHAPE_2: u64 = $crate::portable!(@shape SHAPE_2, $name, $version, $($field: $type),*);
            const SHAPE_3: u64 = $crate::portable!(@shape SHAPE_3, $name, $version, $($field: $type),*);
        }
    };
    (@shape $shape:ident, $name:ident, $version:literal, $($field:ident: $type:ty),*) => {{
        let hash =
            $crate::portable::portable_start(size_of::<$name>(), align_of::<$name>(), $version);
        $(let hash = $crate::types::layout_field(
            hash,
            stringify!($field),
            core::mem::offset_of!($name, $field),
            <$type as $crate::Portable>::$shape,
        );)*
        hash
    }};
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::portable! { struct Node: 1 { next: Ref<Node>, flags: u32, key: u64 } }
    crate::portable! { struct Newer: 2 { next: Ref<Node>, flags: u32, key: u64 } }
    crate::portable! { struct Other: 1 { next: Ref<Node>, flags: i32, key: u64 } }
    crate::portable! { struct Renamed: 1 { next: Ref<Renamed>, flags: u32, value: u64 } }
    crate::portable! { struct First: 1 { second: Ref<Second>, text: [u8; 4] } }
    crate::portable! { struct Second: 1 { third: Ref<Third>, count: u32 } }
    crate::portable! { struct Third: 1 { first: Ref<First>, node: Ref<Node> } }
    crate::portable! { struct FirstOfOther: 1 { second: Ref<SecondOfOther>, text: [u8; 4] } }
    crate::portable! { struct SecondOfOther: 1 { third: Ref<ThirdOfOther>, count: u32 } }
    crate::portable! { struct ThirdOfOther: 1 { first: Ref<First>, node: Ref<Other> } }
    crate::portable! { struct Whole: 1 { first: [First; 2], at: f64 } }

    /// A layout differs when a field does, at any depth of structs, and three references deep.
    #[test]
    fn layout_differs_with_every_field_that_references_reach() {
        let layouts = [
            Node::LAYOUT,
            Newer::LAYOUT,
            Other::LAYOUT,
            Renamed::LAYOUT,
            First::LAYOUT,
            FirstOfOther::LAYOUT,
            Second::LAYOUT,
            Whole::LAYOUT,
            <Ref<Node>>::LAYOUT,
            <Ref<Other>>::LAYOUT,
            <Ref<Newer>>::LAYOUT,
            <[Ref<Node>; 2]>::LAYOUT,
            <[u32; 2]>::LAYOUT,
            u32::LAYOUT,
        ];
        for (index, layout) in layouts.iter().enumerate() {
            assert!(!layouts[..index].contains(layout), "{index}");
        }
        // The way to the difference is three references long from `FirstOfOther`.
        assert_eq!(First::SHAPE_2, FirstOfOther::SHAPE_2);
        assert_eq!(<[Node; 3] as Portable>::SHAPE_3, <[Node; 3]>::LAYOUT);
        const { assert!(Whole::IS_PORTABLE && <[Node; 2]>::IS_PORTABLE) };
        const { assert!(!usize::IS_PORTABLE && !<*mut u8>::IS_PORTABLE) };
    }

    /// Roots on media carry these numbers, and other languages compute them.
    #[test]
    fn layouts_are_those_of_every_language() {
        assert_eq!([Node::LAYOUT, First::LAYOUT, Whole::LAYOUT], PINNED);
    }

    const PINNED: [u64; 3] = [0xE850_0785_2806_A773, 0xF19C_71EE_76EE_AAAD, 0xCCDA_CFF2_969F_F358];
}
