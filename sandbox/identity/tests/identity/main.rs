//! Identities of applets, from the files that tell them to the heaps that they open.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod ownership;
mod signatures;
mod trust;

use std::path::{Path, PathBuf};

use holdfast_identity::{ApplicationName, PublisherKey, PublisherName, sign};

/// A publisher whose secret key is this byte, 32 times.
fn publisher(secret: u8, name: &str) -> PublisherKey {
    PublisherKey::from_bytes([secret; 32], PublisherName::parse(name).unwrap())
}

fn application(name: &str) -> ApplicationName {
    ApplicationName::parse(name).unwrap()
}

/// A module that differs from others in one constant.
fn module(constant: i32) -> Vec<u8> {
    let text = format!(
        "(module (memory 1) (func (export \"_start\") (drop (i32.const {constant})))
           (data (i32.const 0) \"some data\"))"
    );
    wat::parse_str(text).unwrap()
}

/// Such a module in a file.
fn module_file(directory: &Path, name: &str, constant: i32) -> PathBuf {
    let path = directory.join(name);
    std::fs::write(&path, module(constant)).unwrap();
    path
}

/// A signed module in a file.
fn signed_file(directory: &Path, name: &str, constant: i32, by: &PublisherKey) -> PathBuf {
    let path = module_file(directory, name, constant);
    sign(&path, by, &application("notes")).unwrap();
    path
}
