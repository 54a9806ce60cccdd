//! An applet's file: its hash, and its signature if it has one.
//!
//! Invariants:
//! - A [`AppletFile`] with a [`Signature`] was verified: the key signed exactly the bytes that were
//!   hashed here. Nothing is read twice for that.
//! - A file that changes while it is read is an error.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use holdfast_sys::file::FileStamp;
use sha2::{Digest, Sha256};

use crate::block::Content;
use crate::container::{LocateError, SignatureFault, Source, locate};
use crate::identity::CodeHash;
use crate::names::ApplicationName;
use crate::publisher::Publisher;

/// Bytes hashed at once.
const PIECE_BYTES: usize = 256 << 10;

/// A verified signature: what the publisher says of the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    publisher: Publisher,
    application: ApplicationName,
}

impl Signature {
    /// Who signed it. That somebody has the key of this name is the publisher's word until
    /// [`crate::Publishers`] has compared it with the key known under the name.
    #[must_use]
    pub fn publisher(&self) -> &Publisher {
        &self.publisher
    }

    /// The application that the program is a version of.
    #[must_use]
    pub fn application(&self) -> &ApplicationName {
        &self.application
    }
}

/// Why a program's file tells nothing of whose it is.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SignatureError {
    /// There is a signature, and it is not good.
    #[error(transparent)]
    Fault(#[from] SignatureFault),
    /// The file was written to while it was read.
    #[error("the program's file was changed while it was read; start again")]
    Changed,
    /// The kernel refused.
    #[error("cannot read the program's file: {0}")]
    Io(io::Error),
}

impl From<LocateError> for SignatureError {
    fn from(error: LocateError) -> SignatureError {
        match error {
            LocateError::Fault(fault) => SignatureError::Fault(fault),
            LocateError::Io(error) => error.into(),
        }
    }
}

impl From<io::Error> for SignatureError {
    fn from(error: io::Error) -> SignatureError {
        match error.kind() {
            // It had these bytes when its length was asked for.
            io::ErrorKind::UnexpectedEof => SignatureError::Changed,
            _ => SignatureError::Io(error),
        }
    }
}

/// What is known of an applet's file from its bytes alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppletFile {
    hash: CodeHash,
    signature: Option<Signature>,
    /// Of the file before it was read; `None` for bytes, and where a stamp tells nothing.
    stamp: Option<FileStamp>,
}

impl AppletFile {
    /// Opens the file at a path and reads it, as [`AppletFile::of_file`] does. What is started later
    /// must be compared with it.
    ///
    /// # Errors
    /// As there.
    pub fn of_path(path: &Path) -> Result<AppletFile, SignatureError> {
        // A pipe without a writer would keep the opening waiting for ever.
        if !path.metadata()?.is_file() {
            return Err(SignatureError::Io(no_file()));
        }
        AppletFile::of_file(&File::open(path)?)
    }

    /// Reads an open file from its start, wherever its offset is, and verifies its signature. The
    /// host must run what this descriptor shows: see [`AppletFile::is_unchanged`].
    ///
    /// # Errors
    /// `Fault` for a signature that is not good: the program must not run as an unsigned one.
    /// `Changed`; `Io` when the kernel refuses, and for what is no regular file.
    pub fn of_file(file: &File) -> Result<AppletFile, SignatureError> {
        let found = file.metadata()?;
        if !found.is_file() {
            return Err(SignatureError::Io(no_file()));
        }
        let stamp = FileStamp::of_settled(file)?;
        let program = read(file, found.len(), stamp)?;
        // One that grew meanwhile would run with more than was hashed; and what was looked at first
        // must still be there at the end.
        let now = file.metadata()?;
        let is_same = now.len() == found.len()
            && (now.ctime(), now.ctime_nsec()) == (found.ctime(), found.ctime_nsec());
        match is_same {
            true => Ok(program),
            false => Err(SignatureError::Changed),
        }
    }

    /// The same of a file in memory. The host must run these bytes, not read the file again.
    ///
    /// # Errors
    /// `Fault`, as [`AppletFile::of_file`].
    pub fn of_bytes(bytes: &[u8]) -> Result<AppletFile, SignatureError> {
        read(bytes, bytes.len() as u64, None)
    }

    /// Whether the file still has the bytes that were read: at once where the file system keeps
    /// change times, else by reading it again. A process that had a shared writable mapping of the
    /// file before can change it unnoticed, so a host that runs files which others may write copies
    /// them first.
    ///
    /// # Errors
    /// What the kernel reports.
    pub fn is_unchanged(&self, file: &File) -> io::Result<bool> {
        if self.stamp.is_some() && self.stamp == FileStamp::of_settled(file)? {
            return Ok(true);
        }
        let len_bytes = file.metadata()?.len();
        match hash_of(file, len_bytes, &[]) {
            Ok((_, whole)) => Ok(whole == self.hash.to_bytes()),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// SHA-256 of the whole file.
    #[must_use]
    pub fn hash(&self) -> CodeHash {
        self.hash
    }

    /// The signature, which is verified; `None` when the file has none.
    #[must_use]
    pub fn signature(&self) -> Option<&Signature> {
        self.signature.as_ref()
    }
}

fn no_file() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file")
}

fn read<S: Source + ?Sized>(
    source: &S,
    len_bytes: u64,
    stamp: Option<FileStamp>,
) -> Result<AppletFile, SignatureError> {
    let located = locate(source, len_bytes)?;
    let content_bytes = located.as_ref().map_or(len_bytes, |located| located.content_bytes);
    let tail = located.as_ref().map_or(&[][..], |located| &located.tail);
    let (sha256, whole) = hash_of(source, content_bytes, tail)?;
    let hash = CodeHash::from_bytes(whole);
    let Some(located) = located else { return Ok(AppletFile { hash, signature: None, stamp }) };
    let (block, content) = (located.block, Content { len_bytes: content_bytes, sha256 });
    if !block.verifies(&content) {
        return Err(SignatureFault::Forged {
            publisher: block.publisher.name().to_string(),
            application: block.application.to_string(),
        }
        .into());
    }
    let signature = Some(Signature { publisher: block.publisher, application: block.application });
    Ok(AppletFile { hash, signature, stamp })
}

/// SHA-256 of the first `content_bytes` of a source, and of these with a tail that was read before.
fn hash_of<S: Source + ?Sized>(
    source: &S,
    content_bytes: u64,
    tail: &[u8],
) -> io::Result<([u8; 32], [u8; 32])> {
    let mut hasher = Sha256::new();
    let mut piece = vec![0; PIECE_BYTES.min(usize::try_from(content_bytes).unwrap_or(PIECE_BYTES))];
    let mut at = 0;
    while at < content_bytes {
        let wanted = (content_bytes - at).min(piece.len() as u64) as usize;
        match source.read_at(&mut piece[..wanted], at) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(more) => {
                hasher.update(&piece[..more]);
                at += more as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let content = hasher.clone().finalize().into();
    Ok((content, hasher.chain_update(tail).finalize().into()))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::block::Block;
    use crate::container::section_of;
    use crate::names::PublisherName;
    use crate::publisher::PublisherKey;

    /// A file of which the signature is another one each time that it is read.
    struct Flickering<'a> {
        files: [&'a [u8]; 2],
        content_bytes: u64,
        tail_reads: Cell<usize>,
    }

    impl Source for Flickering<'_> {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            if offset + buffer.len() as u64 <= self.content_bytes {
                return self.files[0].read_at(buffer, offset);
            }
            let reads = self.tail_reads.replace(self.tail_reads.get() + 1);
            self.files[reads.min(1)].read_at(buffer, offset)
        }
    }

    /// The hash is of the signature that was verified, not of one that is there later.
    #[test]
    fn hash_and_signature_are_of_the_same_bytes() {
        let content = b"\0asm\x01\0\0\0".to_vec();
        let signed = |application: &str| {
            let key = PublisherKey::from_bytes([1; 32], PublisherName::parse("Acme").unwrap());
            let application = ApplicationName::parse(application).unwrap();
            let sha256 = Sha256::digest(&content).into();
            let len_bytes = content.len() as u64;
            let block = Block::sign(&key, &application, &Content { len_bytes, sha256 });
            [content.clone(), section_of(&block)].concat()
        };
        let (one, two) = (signed("one"), signed("two"));
        assert_eq!(one.len(), two.len());
        let files = [one.as_slice(), two.as_slice()];
        // However often the file is read before its tail is.
        for first_reads in 0..4 {
            let content_bytes = content.len() as u64;
            let source = Flickering { files, content_bytes, tail_reads: Cell::new(0) };
            let source = Delayed { source, left: Cell::new(first_reads) };
            let found = match read(&source, one.len() as u64, None) {
                Ok(found) => found,
                Err(SignatureError::Fault(_)) => continue,
                Err(error) => panic!("{error}"),
            };
            let application = found.signature().unwrap().application().as_str();
            let meant = if application == "one" { &one } else { &two };
            assert_eq!(found.hash().to_bytes(), <[u8; 32]>::from(Sha256::digest(meant)));
        }
    }

    /// Shows the first of the two files for some reads more.
    struct Delayed<'a> {
        source: Flickering<'a>,
        left: Cell<usize>,
    }

    impl Source for Delayed<'_> {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            match self.left.get() {
                0 => self.source.read_at(buffer, offset),
                left => {
                    self.left.set(left - 1);
                    self.source.files[0].read_at(buffer, offset)
                }
            }
        }
    }
}
