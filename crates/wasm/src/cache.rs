//! Where compiled applets are kept between runs.
//!
//! Compiled code is trusted like this program itself, so the directory must belong to the user and be
//! closed to everybody else. Without a usable directory an applet is compiled anew on every run.
#![forbid(unsafe_code)]

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

use wasmtime::{Cache, CacheConfig};

/// Opens the cache in `directory`, creating it if need be; otherwise says why there is none.
pub(crate) fn open(directory: &Path) -> Result<Cache, String> {
    let told = |reason: String| format!("no cache of compiled applets in {}: {reason}", directory.display());
    make_private(directory).map_err(told)?;
    let mut config = CacheConfig::new();
    config.with_directory(directory);
    Cache::new(config).map_err(|error| told(format!("{error:#}")))
}

fn make_private(directory: &Path) -> Result<(), String> {
    match fs::DirBuilder::new().recursive(true).mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error.to_string()),
        _ => {}
    }
    let metadata = fs::symlink_metadata(directory).map_err(|error| error.to_string())?;
    if !metadata.is_dir() {
        return Err("it is not a directory".to_owned());
    }
    if metadata.uid() != holdfast_sys::file::effective_user() {
        return Err("it belongs to another user".to_owned());
    }
    if metadata.mode() & 0o022 != 0 {
        return Err("others may write to it; `chmod 700` it".to_owned());
    }
    Ok(())
}
