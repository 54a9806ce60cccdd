//! Output that is passed on to the host's own standard output and standard error.
//!
//! On a thread for each stream, because the reader of the host's output may be slow, and only this
//! program may have to wait for that. The threads end with the program: no other process has the
//! other end of its pipes.

#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::Arc;

use crate::inmate::Inmate;

const BUFFER_BYTES: usize = 64 << 10;

/// Where to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Stream {
    /// Standard output.
    Output,
    /// Standard error.
    Error,
}

/// Passes on what the program writes until no process can write any more.
pub(crate) fn start(inmate: Arc<Inmate>, reader: File, to: Stream) -> io::Result<()> {
    inmate.count_relay(true);
    let counted = inmate.clone();
    let started = std::thread::Builder::new().name("holdfast-relay".to_owned()).spawn(move || {
        pass_on(&inmate, reader, to);
        inmate.count_relay(false);
    });
    if started.is_err() {
        counted.count_relay(false);
    }
    started.map(drop)
}

fn pass_on(inmate: &Inmate, mut reader: File, to: Stream) {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let bytes = match reader.read(&mut buffer) {
            Ok(0) => return,
            Ok(count) => buffer.get(..count).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return,
        };
        let passed_on = match to {
            // What is lost there is no result, and there is no one to tell.
            Stream::Error => io::stderr().lock().write_all(bytes).or(Ok(())),
            Stream::Output => {
                let mut output = io::stdout().lock();
                output.write_all(bytes).and_then(|()| output.flush())
            }
        };
        // A result that is lost must not look like one that was received.
        if let Err(error) = passed_on {
            inmate.lose_output(format!("its output cannot be written: {error}"));
            return;
        }
        inmate.count_output(bytes.len());
    }
}
