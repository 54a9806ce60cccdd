//! The standard input of a native applet: a descriptor that is never a terminal.
#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{self, IsTerminal, PipeWriter, Read, Seek, Write, pipe, stdin};
use std::os::fd::{AsFd, OwnedFd};
use std::thread;

use holdfast_sys::file::{anonymous, await_input_for};
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

/// A pipe into which a thread copies what is typed. The thread ends with the applet, which is the
/// last to have the other end.
fn relayed() -> io::Result<OwnedFd> {
    let (reader, writer) = pipe()?;
    // Not the host's own stream with its lock, which would be kept from the host while no one
    // types.
    let typed = File::from(stdin().as_fd().try_clone_to_owned()?);
    // The applet sees the end of its input; and the typist sees it end.
    let relay = move || drop(pass_on(typed, writer));
    thread::Builder::new().name("holdfast-stdin".into()).spawn(relay)?;
    Ok(reader.into())
}

fn pass_on(mut typed: File, mut to: PipeWriter) -> io::Result<()> {
    let mut buffer = [0; 4096];
    while await_input_for(&typed, &to)? {
        match typed.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => to.write_all(buffer.get(..count).unwrap_or_default())?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    /// Typed input reaches the applet, and the thread that forwards it ends when the applet ends.
    ///
    /// Guarantee: sandbox/changed-pages
    #[test]
    fn forwarder_ends_with_the_applet() {
        let (silent, mut typist) = pipe().unwrap();
        let (mut applet, writer) = pipe().unwrap();
        let (tell, told) = channel();
        thread::spawn(move || tell.send(pass_on(File::from(OwnedFd::from(silent)), writer)));
        typist.write_all(b"line\n").unwrap();
        let mut line = [0; 5];
        applet.read_exact(&mut line).unwrap();
        assert_eq!(&line, b"line\n");
        // No one types, and no one ends the input.
        drop(applet);
        assert!(told.recv_timeout(Duration::from_secs(10)).expect("it is there for ever").is_ok());
    }
}
