//! A growing array in the heap: a header, which is a root, and its elements in one object.
//! TypeScript reads and writes the elements in place; here the array is made, opened and given more
//! room.
//!
//! Invariant: what fails for want of room changes nothing.

use holdfast_heap::{Backing, Heap, Ref, RootType, portable};

use crate::bytes;
use crate::fault::{Code, Fault};

portable! {
    /// The root of an array.
    pub struct ArrayHeader: 1 {
        /// `room` elements, one behind the other; none in an array that never had one.
        pub elements: Ref<u64>,
        /// Elements that count.
        pub length: u32,
        /// Elements that there is room for.
        pub room: u32,
        /// Bytes of an element.
        pub element_bytes: u32,
        /// The layout of an element, as a root of it would carry it.
        pub element_layout: u64,
    }
}

const HEADER_BYTES: u64 = size_of::<ArrayHeader>() as u64;
const ROOM_FIRST: u32 = 8;

/// Makes an empty array under a name; the offset of its header.
///
/// # Errors
/// [`Code::Exists`], [`Code::Argument`] for a bad name or no bytes, [`Code::Full`],
/// [`Code::ReadOnly`].
pub fn create<B: Backing>(
    heap: &mut Heap<B>,
    name: &str,
    element_bytes: u32,
    element_layout: u64,
) -> Result<u64, Fault> {
    if element_bytes == 0 {
        return Err(Fault::new(Code::Argument, "an element has at least one byte"));
    }
    let object = heap.create_root_of(name, HEADER_BYTES, RootType::of::<ArrayHeader>())?;
    let at = heap.offset_of(object).unwrap_or(0);
    let elements = Ref::null();
    let header = ArrayHeader { elements, length: 0, room: 0, element_bytes, element_layout };
    bytes::store_new(heap, at, header)?;
    Ok(at)
}

/// The array of a name, by the offset of its header; `None` where there is nothing of that name.
///
/// # Errors
/// [`Code::Layout`] for something else, also an array of other elements; [`Code::Corrupt`].
pub fn open<B: Backing>(
    heap: &Heap<B>,
    name: &str,
    element_bytes: u32,
    element_layout: u64,
) -> Result<Option<u64>, Fault> {
    let Some(root) = heap.root_typed::<ArrayHeader>(name)? else { return Ok(None) };
    let at = heap.offset_of(root.cast()).unwrap_or(0);
    let header = header(heap, at)?;
    if (header.element_bytes, header.element_layout) != (element_bytes, element_layout) {
        let text = format!(
            "the array has elements of {} bytes and layout {:#018x}, and the program wants \
             {element_bytes} bytes and {element_layout:#018x}",
            header.element_bytes, header.element_layout
        );
        return Err(Fault::new(Code::Layout, text));
    }
    Ok(Some(at))
}

/// The header at an offset, with elements that lie in an object of the heap.
///
/// # Errors
/// [`Code::Corrupt`].
pub fn header<B: Backing>(heap: &Heap<B>, at: u64) -> Result<ArrayHeader, Fault> {
    let header: ArrayHeader = bytes::load(heap, at)?;
    let bytes = u64::from(header.room) * u64::from(header.element_bytes);
    let sound = header.length <= header.room
        && header.element_bytes != 0
        && (header.room == 0 || bytes <= bytes::usable(heap, header.elements.offset()));
    if sound {
        Ok(header)
    } else {
        Err(Fault::corrupt("the header of an array contradicts itself"))
    }
}

/// Makes room for so many elements, and for more where that is less than half as much again.
///
/// # Errors
/// [`Code::Full`], [`Code::ReadOnly`], [`Code::Corrupt`].
pub fn reserve<B: Backing>(heap: &mut Heap<B>, at: u64, room: u32) -> Result<(), Fault> {
    let old = header(heap, at)?;
    if room <= old.room {
        return Ok(());
    }
    let generous = room.max(ROOM_FIRST).max(old.room.saturating_add(old.room / 2));
    let bytes_of = |room: u32| u64::from(room) * u64::from(old.element_bytes);
    let (elements, room) = match bytes::allocate(heap, bytes_of(generous)) {
        Ok(elements) => (elements, generous),
        Err(fault) if fault.code == Code::Full && generous > room => {
            (bytes::allocate(heap, bytes_of(room))?, room)
        }
        Err(fault) => return Err(fault),
    };
    let reference = Ref::at(elements);
    let reference = reference.ok_or_else(|| Fault::corrupt("an object lies out of reach"))?;
    if old.room > 0 {
        bytes::copy_new(heap, old.elements.offset(), elements, bytes_of(old.length))?;
    }
    bytes::store(heap, at, ArrayHeader { elements: reference, room, ..old })?;
    if old.room > 0 {
        bytes::free(heap, old.elements.offset())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use holdfast_heap::Typed;

    /// Growth keeps the elements, and a rollback brings the room back that was there.
    #[test]
    fn growth_keeps_elements_and_is_rolled_back() {
        let mut heap = testing::heap(16 << 20);
        let at = create(&mut heap, "array", 8, u64::LAYOUT).unwrap();
        reserve(&mut heap, at, 5).unwrap();
        let first = header(&heap, at).unwrap();
        assert_eq!((first.length, first.room), (0, ROOM_FIRST));
        for index in 0..5 {
            bytes::store(&mut heap, first.elements.offset() + index * 8, index + 100).unwrap();
        }
        bytes::store(&mut heap, at, ArrayHeader { length: 5, ..first }).unwrap();
        heap.begin().unwrap();
        reserve(&mut heap, at, 1000).unwrap();
        assert_eq!(header(&heap, at).unwrap().room, 1000);
        heap.abort().unwrap();
        assert_eq!(header(&heap, at).unwrap().room, ROOM_FIRST);
        reserve(&mut heap, at, 9).unwrap();
        let grown = header(&heap, at).unwrap();
        assert_eq!(grown.room, 12);
        for index in 0..5 {
            let stored: u64 = bytes::load(&heap, grown.elements.offset() + index * 8).unwrap();
            assert_eq!(stored, index + 100);
        }
        assert_eq!(open(&heap, "array", 8, u64::LAYOUT).unwrap(), Some(at));
        assert_eq!(open(&heap, "array", 8, f64::LAYOUT).unwrap_err().code, Code::Layout);
        let told = reserve(&mut heap, at, u32::MAX).unwrap_err();
        assert_eq!((told.code, header(&heap, at).unwrap().room), (Code::Full, 12));
    }

    /// Roots on media carry this number.
    #[test]
    fn layout_is_what_it_was() {
        assert_eq!(ArrayHeader::LAYOUT, PINNED);
    }

    const PINNED: u64 = 0x1BC6_BCE9_38BD_98F7;
}
