//! Files and folders of this machine.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use blitz_traits::net::Url;

use crate::fetch::{
    Fetch, FetchAnswer, FetchError, FetchRequest, FetchedBytes, Purpose, folder, sniff,
};

/// Gives files, and nothing else.
#[derive(Clone, Copy, Debug, Default)]
pub struct Files;

impl Fetch for Files {
    fn fetch(&self, wanted: &FetchRequest<'_>) -> Result<FetchAnswer, FetchError> {
        if wanted.url.scheme() != "file" {
            return Err(FetchError::Refused("only files are read"));
        }
        let path = wanted.url.to_file_path().map_err(|()| FetchError::NotFound)?;
        let is_folder = wanted.purpose == Purpose::Page && path.is_dir();
        let read = if is_folder {
            folder::page_of(&path, wanted.bytes_max)
        } else {
            read_file(&path, wanted.bytes_max)
        };
        let bytes = read.map_err(|error| match error.kind() {
            io::ErrorKind::FileTooLarge => FetchError::TooLarge { bytes_max: wanted.bytes_max },
            _ => FetchError::Read(error),
        })?;
        let is_page = wanted.purpose != Purpose::Page || is_folder || sniff::is_named_page(&path);
        if let (false, Some(kind)) = (is_page, sniff::binary_kind(&bytes)) {
            return Err(FetchError::Binary { kind });
        }
        let url = if is_folder { Url::from_directory_path(&path).ok() } else { None };
        Ok(FetchAnswer::Bytes(FetchedBytes::new(url.unwrap_or_else(|| wanted.url.clone()), bytes)))
    }
}

/// Reads a regular file of no more than `bytes_max` bytes.
pub(crate) fn read_file(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    // Asked first: opening a pipe waits for its other end.
    let about = std::fs::metadata(path)?;
    if !about.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    let mut bytes = Vec::with_capacity(about.len().min(bytes_max) as usize + 1);
    File::open(path)?.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        let message = format!("it has more than {bytes_max} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(bytes)
}
