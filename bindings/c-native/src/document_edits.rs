//! The C calls that open, parse and change documents. Every `unsafe` here leans on the contract in
//! `holdfast_document.h`: pointers are NULL where the header allows it and valid otherwise.

#![allow(unreachable_pub, reason = "exported by symbol name")]

use std::ffi::{c_char, c_int};
use std::fs::File;
use std::io::Read;
use std::path::Path;

use holdfast_dom::{ChangeError, Namespace, ParseLimits, ParseOptions};

use crate::documents::{self, bytes, edit, renumber, sized_text, status, text};
use crate::failure::{Failure, note};

/// `struct nv_doc_limits`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct DocLimits {
    source_bytes: u64,
    nodes: u64,
    depth: u64,
    attributes: u64,
    text_bytes: u64,
    all_attributes: u64,
    names: u64,
    token_parts: u64,
}

/// # Safety
/// `limits` must be NULL or lead to limits.
unsafe fn options(limits: *const DocLimits) -> ParseOptions {
    let default = ParseLimits::default();
    if limits.is_null() {
        return ParseOptions { limits: default, ..ParseOptions::default() };
    }
    // SAFETY: not NULL, so valid by the contract.
    let limits = unsafe { *limits };
    let or = |given: u64, default| if given == 0 { default } else { given };
    let or_short =
        |given, default: u32| u32::try_from(or(given, default.into())).unwrap_or(u32::MAX);
    let limits = ParseLimits {
        source_bytes: or(limits.source_bytes, default.source_bytes),
        nodes: or_short(limits.nodes, default.nodes),
        depth: or_short(limits.depth, default.depth),
        attributes: or_short(limits.attributes, default.attributes),
        text_bytes: or(limits.text_bytes, default.text_bytes),
        all_attributes: or_short(limits.all_attributes, default.all_attributes),
        names: or_short(limits.names, default.names),
        token_parts: or(limits.token_parts, default.token_parts),
    };
    ParseOptions { limits, ..ParseOptions::default() }
}

/// See `holdfast_document.h`.
///
/// # Safety
/// `name` must be NULL or a C string, `html` lead to `size` bytes, `limits` be NULL or lead to
/// limits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nv_doc_parse(
    name: *const c_char,
    html: *const u8,
    size: usize,
    limits: *const DocLimits,
) -> c_int {
    // SAFETY: per the contract.
    let (name, html, options) = unsafe { (text(name), bytes(html, size), options(limits)) };
    match (name, html) {
        (Ok(name), Ok(html)) => status(documents::parse(name, || Ok(Box::new(html)), &options)),
        (Err(failure), _) | (_, Err(failure)) => note(&failure),
    }
}

/// See `holdfast_document.h`.
///
/// # Safety
/// `name` and `path` must be NULL or C strings, `limits` NULL or lead to limits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nv_doc_parse_file(
    name: *const c_char,
    path: *const c_char,
    limits: *const DocLimits,
) -> c_int {
    // SAFETY: per the contract.
    let (name, path, options) = unsafe { (text(name), text(path), options(limits)) };
    let open = |path: &str| -> Result<Box<dyn Read>, Failure> {
        let opened = File::open(Path::new(path));
        let opened = opened.map_err(|source| Failure::NoFile { path: path.to_owned(), source })?;
        Ok(Box::new(opened))
    };
    match (name, path) {
        (Ok(name), Ok(path)) => status(documents::parse(name, || open(path), &options)),
        (Err(failure), _) | (_, Err(failure)) => note(&failure),
    }
}

/// See `holdfast_document.h`.
///
/// # Safety
/// `name` must be NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nv_doc_open(name: *const c_char) -> u64 {
    // SAFETY: per the contract.
    match unsafe { text(name) } {
        Ok(name) => documents::open(name).unwrap_or(0),
        Err(failure) => {
            note(&failure);
            0
        }
    }
}

/// See `holdfast_document.h`.
#[unsafe(no_mangle)]
pub extern "C" fn nv_doc_close(document: u64) -> c_int {
    status(documents::close(document))
}

/// See `holdfast_document.h`.
///
/// # Safety
/// `name` must be NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nv_doc_compact(name: *const c_char) -> c_int {
    // SAFETY: per the contract.
    match unsafe { text(name) } {
        Ok(name) => status(renumber(name, |documents| documents.compact(name))),
        Err(failure) => note(&failure),
    }
}

/// See `holdfast_document.h`.
///
/// # Safety
/// `name` must be NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nv_doc_remove(name: *const c_char) -> c_int {
    // SAFETY: per the contract.
    match unsafe { text(name) } {
        Ok(name) => status(renumber(name, |documents| documents.remove(name))),
        Err(failure) => note(&failure),
    }
}

/// See `holdfast_document.h`.
///
/// # Safety
/// `name` must be NULL or a C string, `value` lead to `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nv_doc_set_attribute(
    document: u64,
    node: u32,
    name: *const c_char,
    value: *const c_char,
    size: usize,
) -> c_int {
    // SAFETY: per the contract.
    match unsafe { (text(name), sized_text(value, size)) } {
        (Ok(name), Ok(value)) => {
            status(edit(document, |edit| edit.set_attribute(node, name, value)))
        }
        (Err(failure), _) | (_, Err(failure)) => note(&failure),
    }
}

/// See `holdfast_document.h`.
///
/// # Safety
/// `name` must be NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nv_doc_remove_attribute(
    document: u64,
    node: u32,
    name: *const c_char,
) -> c_int {
    // SAFETY: per the contract.
    let removed = match unsafe { text(name) } {
        Ok(name) => edit(document, |edit| edit.remove_attribute(node, name)),
        Err(failure) => Err(note(&failure)),
    };
    status(removed.and_then(|had_it| if had_it { Ok(()) } else { Err(note(&Failure::Nothing)) }))
}

/// See `holdfast_document.h`.
///
/// # Safety
/// `content` must lead to `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nv_doc_set_text(
    document: u64,
    node: u32,
    content: *const c_char,
    size: usize,
) -> c_int {
    // SAFETY: per the contract.
    match unsafe { sized_text(content, size) } {
        Ok(content) => status(edit(document, |edit| edit.set_text(node, content))),
        Err(failure) => note(&failure),
    }
}

/// See `holdfast_document.h`.
///
/// # Safety
/// `name` must be NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nv_doc_create_element(
    document: u64,
    name_space: c_int,
    name: *const c_char,
) -> u32 {
    let namespace = u8::try_from(name_space).ok().and_then(Namespace::parse);
    // SAFETY: per the contract.
    match (unsafe { text(name) }, namespace) {
        (Ok(name), Some(namespace)) => {
            edit(document, |edit| edit.create_element(namespace, name)).unwrap_or(0)
        }
        (Ok(_), None) => {
            note(&Failure::from(holdfast_dom::DomError::from(ChangeError::BadName)));
            0
        }
        (Err(failure), _) => {
            note(&failure);
            0
        }
    }
}

/// See `holdfast_document.h`.
///
/// # Safety
/// `content` must lead to `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nv_doc_create_text(
    document: u64,
    content: *const c_char,
    size: usize,
) -> u32 {
    // SAFETY: per the contract.
    match unsafe { sized_text(content, size) } {
        Ok(content) => edit(document, |edit| edit.create_text(content)).unwrap_or(0),
        Err(failure) => {
            note(&failure);
            0
        }
    }
}

/// See `holdfast_document.h`.
///
/// # Safety
/// `content` must lead to `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nv_doc_create_comment(
    document: u64,
    content: *const c_char,
    size: usize,
) -> u32 {
    // SAFETY: per the contract.
    match unsafe { sized_text(content, size) } {
        Ok(content) => edit(document, |edit| edit.create_comment(content)).unwrap_or(0),
        Err(failure) => {
            note(&failure);
            0
        }
    }
}

/// See `holdfast_document.h`.
#[unsafe(no_mangle)]
pub extern "C" fn nv_doc_append(document: u64, parent: u32, child: u32) -> c_int {
    status(edit(document, |edit| edit.append(parent, child)))
}

/// See `holdfast_document.h`.
#[unsafe(no_mangle)]
pub extern "C" fn nv_doc_insert_before(document: u64, sibling: u32, child: u32) -> c_int {
    status(edit(document, |edit| edit.insert_before(sibling, child)))
}

/// See `holdfast_document.h`.
#[unsafe(no_mangle)]
pub extern "C" fn nv_doc_detach(document: u64, node: u32) -> c_int {
    status(edit(document, |edit| edit.remove(node)))
}
