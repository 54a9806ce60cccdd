//! What a native applet has as its standard input: a descriptor that is nobody's terminal.
#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{self, IsTerminal, Read, Seek, Write, copy, pipe, stdin};
use std::os::fd::{AsFd, OwnedFd};
use std::thread;

use holdfast_sys::file::anonymous;
use holdfast_wasm::Input;

/// The descriptor; `None` for nothing to read.
pub(crate) fn standard(input: &Input) -> io::Result<Option<OwnedFd>> {
    Ok(match input {
        Input::Bytes(bytes) => Some(holding(bytes)?.into()),
        Input::Inherit if stdin().is_terminal() => Some(relayed()?),
        Input::Inherit => Some(stdin().as_fd().try_clone_to_owned()?),
        _ => None,
    })
}

/// A file in memory that begins with these bytes.
fn holding(bytes: &[u8]) -> io::Result<File> {
    let mut file = anonymous("holdfast-input", bytes.len() as u64)?;
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file)
}

/// A pipe into which a thread copies what is typed. The thread outlives the applet if nobody types: it ends with the
/// first line that nobody reads, or with the host.
fn relayed() -> io::Result<OwnedFd> {
    let (reader, mut writer) = pipe()?;
    thread::Builder::new().name("holdfast-stdin".into()).spawn(move || {
        // The applet sees the end of its input; whoever typed sees it end.
        let _ = copy(&mut stdin().lock().by_ref(), &mut writer);
    })?;
    Ok(reader.into())
}
