//! The C calls that read documents. Every `unsafe` here leans on the contract in
//! `holdfast_document.h`: pointers are NULL where the header allows it and valid otherwise.
//!
//! Invariant: results are written only after success.

#![allow(unreachable_pub, reason = "exported by symbol name")]

use std::ffi::{c_char, c_int};
use std::ptr::{null, null_mut};

use holdfast_dom::{DomError, Node, Selector};

use crate::documents::{read, read_node, status, text};
use crate::failure::{Failure, note};
use crate::session::with_documents;

/// `struct nv_doc_attribute_place`.
#[repr(C)]
pub struct AttributePlace {
    name_space: c_int,
    prefix: *const c_char,
    prefix_size: usize,
    name: *const c_char,
    name_size: usize,
    value: *const c_char,
    value_size: usize,
}

/// # Safety
/// `place` must be NULL or lead to room for a value.
unsafe fn put<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: not NULL, so valid by the contract.
        unsafe { place.write(value) }
    }
}

fn node(result: Result<u32, c_int>) -> u32 {
    result.unwrap_or(0)
}

/// Where a text lies.
type Place = (*const c_char, usize);

fn place(text: &str) -> Place {
    (text.as_ptr().cast(), text.len())
}

/// # Safety
/// As for [`put`].
unsafe fn found(text: Result<Place, c_int>, size: *mut usize) -> *const c_char {
    match text {
        Ok((start, bytes)) => {
            // SAFETY: per the contract.
            unsafe { put(size, bytes) };
            start
        }
        Err(_) => null(),
    }
}

/// A text into a caller's buffer, cut at a character, with a NUL behind it.
///
/// # Safety
/// `buffer` must lead to `room` bytes, or `room` be 0; `length` as for [`put`].
unsafe fn copy_out(text: &str, buffer: *mut c_char, room: usize, length: *mut usize) {
    if room > 0 && !buffer.is_null() {
        let end = text.floor_char_boundary(room - 1);
        // SAFETY: `end` bytes and one more are in the caller's buffer, which is not in the heap: a
        // text of ours is a copy.
        unsafe {
            buffer.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), end);
            buffer.add(end).write(0);
        }
    }
    // SAFETY: per the contract.
    unsafe { put(length, text.len()) };
}

/// # Safety
/// As for [`copy_out`].
unsafe fn written(
    document: u64,
    id: u32,
    buffer: (*mut c_char, usize),
    length: *mut usize,
    work: impl FnOnce(Node<'_>) -> Result<String, DomError>,
) -> c_int {
    let written = read_node(document, id, |node| Ok(Some(work(node)?)));
    status(written.map(|text| {
        let (buffer, room) = buffer;
        // SAFETY: per the contract.
        unsafe { copy_out(&text, buffer, room, length) }
    }))
}

/// See `holdfast_document.h`.
///
/// # Safety
/// `buffer` must lead to `room` bytes, or `room` be 0; `length` and `count` be NULL or lead to room
/// for a value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nv_doc_names(
    buffer: *mut c_char,
    room: usize,
    length: *mut usize,
    count: *mut usize,
) -> c_int {
    let names = with_documents(Ok, |documents, ()| {
        let mut names: Vec<String> = documents.names().map(|name| format!("{name}\0")).collect();
        names.sort_unstable();
        Ok(names)
    });
    status(names.map(|names| {
        let all = names.concat();
        // SAFETY: per the contract. The last NUL is the one that ends the text.
        unsafe {
            copy_out(all.strip_suffix('\0').unwrap_or(""), buffer, room, length);
            put(count, names.len());
        }
    }))
}

/// See `holdfast_document.h`.
#[unsafe(no_mangle)]
pub extern "C" fn nv_doc_check(document: u64) -> c_int {
    status(read(document, |document| Ok(document.check().map(drop)?)))
}

/// See `holdfast_document.h`.
#[unsafe(no_mangle)]
pub extern "C" fn nv_doc_kind(document: u64, id: u32) -> c_int {
    read_node(document, id, |node| Ok(Some(node.kind() as c_int))).unwrap_or(0)
}

/// See `holdfast_document.h`.
#[unsafe(no_mangle)]
pub extern "C" fn nv_doc_parent(document: u64, id: u32) -> u32 {
    node(read_node(document, id, |node| Ok(node.parent().map(Node::id))))
}

/// See `holdfast_document.h`.
#[unsafe(no_mangle)]
pub extern "C" fn nv_doc_first_child(document: u64, id: u32) -> u32 {
    node(read_node(document, id, |node| Ok(node.first_child().map(Node::id))))
}

/// See `holdfast_document.h`.
#[unsafe(no_mangle)]
pub extern "C" fn nv_doc_last_child(document: u64, id: u32) -> u32 {
    node(read_node(document, id, |node| Ok(node.last_child().map(Node::id))))
}

/// See `holdfast_document.h`.
#[unsafe(no_mangle)]
pub extern "C" fn nv_doc_next_sibling(document: u64, id: u32) -> u32 {
    node(read_node(document, id, |node| Ok(node.next_sibling().map(Node::id))))
}

/// See `holdfast_document.h`.
#[unsafe(no_mangle)]
pub extern "C" fn nv_doc_previous_sibling(document: u64, id: u32) -> u32 {
    node(read_node(document, id, |node| Ok(node.previous_sibling().map(Node::id))))
}

/// See `holdfast_document.h`.
#[unsafe(no_mangle)]
pub extern "C" fn nv_doc_template_contents(document: u64, id: u32) -> u32 {
    node(read_node(document, id, |node| Ok(node.template_contents().map(Node::id))))
}

/// See `holdfast_document.h`.
///
/// # Safety
/// `size` must be NULL or lead to a `size_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nv_doc_name(document: u64, id: u32, size: *mut usize) -> *const c_char {
    let name = read_node(document, id, |node| Ok(node.name().map(place)));
    // SAFETY: per the contract.
    unsafe { found(name, size) }
}

/// See `holdfast_document.h`.
#[unsafe(no_mangle)]
pub extern "C" fn nv_doc_namespace(document: u64, id: u32) -> c_int {
    read_node(document, id, |node| Ok(node.namespace().map(|namespace| namespace as c_int)))
        .unwrap_or(0)
}

/// See `holdfast_document.h`.
///
/// # Safety
/// `name` must be NULL or a C string, `size` NULL or lead to a `size_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nv_doc_attribute(
    document: u64,
    id: u32,
    name: *const c_char,
    size: *mut usize,
) -> *const c_char {
    // SAFETY: per the contract.
    unsafe {
        found(read_node(document, id, |node| Ok(node.attribute(text(name)?).map(place))), size)
    }
}

/// See `holdfast_document.h`.
///
/// # Safety
/// `count` must be NULL or lead to a `size_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nv_doc_attribute_count(
    document: u64,
    id: u32,
    count: *mut usize,
) -> c_int {
    let counted = read_node(document, id, |node| Ok(Some(node.attributes().len())));
    // SAFETY: per the contract.
    status(counted.map(|counted| unsafe { put(count, counted) }))
}

/// See `holdfast_document.h`.
///
/// # Safety
/// `into` must be NULL or lead to room for a value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nv_doc_attribute_at(
    document: u64,
    id: u32,
    index: usize,
    into: *mut AttributePlace,
) -> c_int {
    let found = read_node(document, id, |node| {
        let Some(attribute) = node.attributes().nth(index) else { return Ok(None) };
        let (name, name_size) = place(attribute.name);
        let (value, value_size) = place(attribute.value);
        let (prefix, prefix_size) = attribute.prefix.map_or((null(), 0), place);
        let name_space = attribute.namespace as c_int;
        Ok(Some(AttributePlace {
            name_space,
            prefix,
            prefix_size,
            name,
            name_size,
            value,
            value_size,
        }))
    });
    // SAFETY: per the contract.
    status(found.map(|found| unsafe { put(into, found) }))
}

/// See `holdfast_document.h`.
///
/// # Safety
/// `size` must be NULL or lead to a `size_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nv_doc_data(document: u64, id: u32, size: *mut usize) -> *const c_char {
    let data = read_node(document, id, |node| Ok(node.data().map(place)));
    // SAFETY: per the contract.
    unsafe { found(data, size) }
}

/// See `holdfast_document.h`.
///
/// # Safety
/// `buffer` must lead to `room` bytes, or `room` be 0; `length` be NULL or lead to a `size_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nv_doc_text(
    document: u64,
    id: u32,
    buffer: *mut c_char,
    room: usize,
    length: *mut usize,
) -> c_int {
    // SAFETY: the same contract.
    unsafe { written(document, id, (buffer, room), length, |node| node.text()) }
}

/// See `holdfast_document.h`.
///
/// # Safety
/// As for [`nv_doc_text`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nv_doc_html(
    document: u64,
    id: u32,
    buffer: *mut c_char,
    room: usize,
    length: *mut usize,
) -> c_int {
    // SAFETY: the same contract.
    unsafe { written(document, id, (buffer, room), length, |node| node.html()) }
}

/// See `holdfast_document.h`.
///
/// # Safety
/// As for [`nv_doc_text`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nv_doc_inner_html(
    document: u64,
    id: u32,
    buffer: *mut c_char,
    room: usize,
    length: *mut usize,
) -> c_int {
    // SAFETY: the same contract.
    unsafe { written(document, id, (buffer, room), length, |node| node.inner_html()) }
}

/// See `holdfast_document.h`.
///
/// # Safety
/// `selector` must be NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nv_doc_select(document: u64, scope: u32, selector: *const c_char) -> u32 {
    node(read_node(document, scope, |node| {
        // SAFETY: per the contract.
        let selector = Selector::parse(unsafe { text(selector) }?)?;
        Ok(node.select_first(&selector)?.map(Node::id))
    }))
}

/// See `holdfast_document.h`.
///
/// # Safety
/// `selector` must be NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nv_doc_closest(document: u64, id: u32, selector: *const c_char) -> u32 {
    node(read_node(document, id, |node| {
        // SAFETY: per the contract.
        let selector = Selector::parse(unsafe { text(selector) }?)?;
        Ok(node.closest(&selector)?.map(Node::id))
    }))
}

/// See `holdfast_document.h`.
///
/// # Safety
/// `selector` must be NULL or a C string; `nodes` and `count` lead to room for a value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nv_doc_select_all(
    document: u64,
    scope: u32,
    selector: *const c_char,
    nodes: *mut *mut u32,
    count: *mut usize,
) -> c_int {
    let selected = read_node(document, scope, |node| {
        // SAFETY: per the contract.
        let selector = Selector::parse(unsafe { text(selector) }?)?;
        Ok(Some(node.select(&selector)?.into_iter().map(Node::id).collect::<Vec<u32>>()))
    });
    let array = selected.and_then(|selected| Ok((c_array(&selected)?, selected.len())));
    status(array.map(|(array, selected)| {
        // SAFETY: per the contract.
        unsafe {
            put(nodes, array);
            put(count, selected);
        }
    }))
}

/// An array for `nv_doc_free`; NULL for an empty one.
fn c_array(nodes: &[u32]) -> Result<*mut u32, c_int> {
    if nodes.is_empty() {
        return Ok(null_mut());
    }
    // SAFETY: any size may be asked for.
    let array: *mut u32 = unsafe { libc::malloc(size_of_val(nodes)) }.cast();
    if array.is_null() {
        return Err(note(&Failure::NoMemory));
    }
    // SAFETY: as large as that, aligned for every type, and new.
    unsafe { array.copy_from_nonoverlapping(nodes.as_ptr(), nodes.len()) };
    Ok(array)
}

/// See `holdfast_document.h`.
///
/// # Safety
/// `nodes` must be NULL or what `nv_doc_select_all` gave, once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nv_doc_free(nodes: *mut u32) {
    // SAFETY: it came from malloc.
    unsafe { libc::free(nodes.cast()) }
}
