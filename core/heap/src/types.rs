//! Types of roots: a number for how a value lies in memory, so that a program never takes bytes of
//! another layout for its own.
//!
//! Invariants:
//! - The number is a hash over the names, places and layouts of all fields, down to the integers; a
//!   struct's own name is no part of it. It is stored on media, so the way it is computed is part
//!   of the format.
//! - What a link leads to is part of it, with the pointers there as plain ones: types may point to
//!   each other in a circle.

use core::ptr::NonNull;

use crate::pointer_map::PointerMap;

/// A layout and the version of its meaning, as a typed root carries them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RootType {
    /// [`Typed::LAYOUT`].
    pub layout: u64,
    /// [`Typed::VERSION`].
    pub version: u32,
}

impl RootType {
    /// The type of `T`.
    #[must_use]
    pub const fn of<T: Typed>() -> RootType {
        RootType { layout: T::LAYOUT, version: T::VERSION }
    }

    /// The type of `T` as a program stored it that had plain pointers in the place of links, or did
    /// not hash what they lead to.
    #[must_use]
    pub const fn outline_of<T: Typed>() -> RootType {
        RootType { layout: T::OUTLINE, version: T::VERSION }
    }

    /// Whether a root of this type may be used as a `T`.
    pub(crate) fn is_of<T: Typed>(self) -> bool {
        self == RootType::of::<T>() || self == RootType::outline_of::<T>()
    }
}

/// A value that may lie in a heap, and be found there by a later build of the program; see
/// [`typed!`](crate::typed!).
///
/// # Safety
/// Implementations promise that the layout does not depend on the compiler (`repr(C)` or an
/// integer), that any bytes, zeroes among them, are a valid value, and that [`Typed::LAYOUT`]
/// differs when the layout does.
pub unsafe trait Typed: Copy {
    /// Hash of how the value lies in memory, and of what its links lead to.
    const LAYOUT: u64;
    /// The same, with every pointer a plain one.
    const OUTLINE: u64 = Self::LAYOUT;
    /// Raised when the meaning changes and the layout does not.
    const VERSION: u32 = 0;
    /// Where its pointers are; without that a heap that holds such a value is never moved. It must
    /// name every pointer.
    const POINTERS: PointerMap = PointerMap::Unknown;
    /// Whether it is [`Portable`](crate::Portable): a portable heap has roots of no other types.
    const IS_PORTABLE: bool = false;
}

/// FNV-1a, 64 bits: short, and computed by the compiler.
const fn hash_bytes(mut hash: u64, bytes: &[u8]) -> u64 {
    let mut index = 0;
    while index < bytes.len() {
        hash = (hash ^ bytes[index] as u64).wrapping_mul(0x0000_0100_0000_01B3);
        index += 1;
    }
    hash
}

pub(crate) const fn hash_word(hash: u64, word: u64) -> u64 {
    hash_bytes(hash, &word.to_le_bytes())
}

/// Hash of a kind of value with its size and alignment in bytes: the start of every
/// [`Typed::LAYOUT`].
#[must_use]
pub const fn layout_start(kind: &str, bytes: usize, align_bytes: usize) -> u64 {
    let hash = hash_bytes(0xCBF2_9CE4_8422_2325, kind.as_bytes());
    hash_word(hash_word(hash, bytes as u64), align_bytes as u64)
}

/// Continues a layout with a field: its name, its offset in bytes, and its own layout.
#[must_use]
pub const fn layout_field(hash: u64, name: &str, offset: usize, layout: u64) -> u64 {
    let hash = hash_word(hash_bytes(hash, name.as_bytes()), name.len() as u64);
    hash_word(hash_word(hash, offset as u64), layout)
}

macro_rules! plain {
    ($is_portable:literal: $($type:ty)*) => {$(
        // SAFETY: any bytes are a value of it, and its layout is the machine's.
        unsafe impl Typed for $type {
            const LAYOUT: u64 = layout_start(stringify!($type), size_of::<$type>(), align_of::<$type>());
            const POINTERS: PointerMap = PointerMap::Plain;
            const IS_PORTABLE: bool = $is_portable;
        }
    )*};
}

plain!(true: u8 u16 u32 u64 i8 i16 i32 i64 f32 f64);
// Of the machine's width, or aligned as the compiler likes.
plain!(false: usize isize u128 i128);

// SAFETY: elements follow each other without a gap.
unsafe impl<T: Typed, const LENGTH: usize> Typed for [T; LENGTH] {
    const LAYOUT: u64 = layout_field(
        layout_start("array", size_of::<Self>(), align_of::<Self>()),
        "",
        LENGTH,
        T::LAYOUT,
    );
    const OUTLINE: u64 = layout_field(
        layout_start("array", size_of::<Self>(), align_of::<Self>()),
        "",
        LENGTH,
        T::OUTLINE,
    );
    const POINTERS: PointerMap =
        PointerMap::Elements { bytes: size_of::<T>(), length: LENGTH, of: &T::POINTERS };
    const IS_PORTABLE: bool = T::IS_PORTABLE;
}

macro_rules! pointer {
    ($($type:ty)*) => {$(
        // SAFETY: any bytes are a pointer, as long as it is not followed; what it points to is not
        // looked at, because types may point to each other in a circle. `Link` knows it.
        unsafe impl<T> Typed for $type {
            const LAYOUT: u64 = layout_start("pointer", size_of::<Self>(), align_of::<Self>());
        }
    )*};
}

pointer!(*mut T *const T Option<NonNull<T>>);

/// Declares a `repr(C)` struct of [`Typed`] fields with its version, and implements [`Typed`] for
/// it.
///
/// ```
/// holdfast_heap::typed! {
///     /// What the applet counts.
///     pub struct Counters: 1 {
///         /// Starts so far.
///         pub starts: u64,
///         /// The last words.
///         pub words: [u32; 4],
///     }
/// }
/// assert_eq!(size_of::<Counters>(), 24);
/// ```
#[macro_export]
macro_rules! typed {
    (
        $(#[$attribute:meta])*
        $visible:vis struct $name:ident: $version:literal {
            $($(#[$field_attribute:meta])* $field_visible:vis $field:ident: $type:ty),* $(,)?
        }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy)]
        #[repr(C)]
        $visible struct $name {
            $($(#[$field_attribute])* $field_visible $field: $type,)*
        }

        #[allow(unsafe_code)]
        // SAFETY: `repr(C)`, every field is `Typed`, and the hash covers each with its place.
        unsafe impl $crate::Typed for $name {
            const LAYOUT: u64 = {
                let hash =
                    $crate::types::layout_start("struct", size_of::<$name>(), align_of::<$name>());
                $(let hash = $crate::types::layout_field(
                    hash,
                    stringify!($field),
                    core::mem::offset_of!($name, $field),
                    <$type as $crate::Typed>::LAYOUT,
                );)*
                hash
            };
            const OUTLINE: u64 = {
                let hash =
                    $crate::types::layout_start("struct", size_of::<$name>(), align_of::<$name>());
                $(let hash = $crate::types::layout_field(
                    hash,
                    stringify!($field),
                    core::mem::offset_of!($name, $field),
                    <$type as $crate::Typed>::OUTLINE,
                );)*
                hash
            };
            const VERSION: u32 = $version;
            const POINTERS: $crate::PointerMap = $crate::PointerMap::Fields(&[
                $((core::mem::offset_of!($name, $field), <$type as $crate::Typed>::POINTERS)),*
            ]);
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    typed! { struct Plain: 1 { a: u64, b: u32 } }
    typed! { struct SameLayout: 2 { a: u64, b: u32 } }
    typed! { struct OtherName: 1 { a: u64, c: u32 } }
    typed! { struct OtherType: 1 { a: u64, b: i32 } }
    typed! { struct OtherOrder: 1 { b: u32, a: u64 } }
    typed! { struct Inner: 1 { inner: [Plain; 2] } }
    typed! { struct OtherInner: 1 { inner: [OtherName; 2] } }

    /// A layout differs with every name type and place at any depth.
    #[test]
    fn layout_differs_with_names_types_and_places() {
        assert_eq!(Plain::LAYOUT, SameLayout::LAYOUT);
        assert_ne!(RootType::of::<Plain>(), RootType::of::<SameLayout>());
        let layouts = [
            Plain::LAYOUT,
            OtherName::LAYOUT,
            OtherType::LAYOUT,
            OtherOrder::LAYOUT,
            Inner::LAYOUT,
            OtherInner::LAYOUT,
            <[u32; 4]>::LAYOUT,
            <[u32; 5]>::LAYOUT,
            <[[u32; 2]; 2]>::LAYOUT,
        ];
        for (index, layout) in layouts.iter().enumerate() {
            assert!(!layouts[..index].contains(layout), "{index}");
        }
    }

    #[test]
    fn layouts_are_what_they_were_when_they_were_stored() {
        // Roots on media carry these numbers.
        assert_eq!(u64::LAYOUT, PINNED[0]);
        assert_eq!(<[u8; 3]>::LAYOUT, PINNED[1]);
        assert_eq!(Plain::LAYOUT, PINNED[2]);
    }

    const PINNED: [u64; 3] = [0xAF4C_548B_CC96_4472, 0x882F_2A6B_00C9_9DF7, 0x9F0E_6476_3C75_B272];
}
