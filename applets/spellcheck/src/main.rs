//! Spell checker whose dictionaries live in a persistent heap; see the library. Here: the heap is
//! attached, the exit status set.

#![forbid(unsafe_code)]

use std::io::{Write, stderr, stdout};
use std::process::ExitCode;

use holdfast_guest::{AttachError, Heap, OpenError, attach, attach_portable};
use holdfast_spellcheck::arena::HeapArena;
#[cfg(target_family = "wasm")]
use holdfast_spellcheck::arena::VolatileArena;
use holdfast_spellcheck::command::{self, STATUS_ERROR};
use holdfast_spellcheck::options::Options;

fn main() -> ExitCode {
    ExitCode::from(run().unwrap_or_else(|message| {
        // Where standard error is closed there is no one to tell.
        let _ = stderr().write_all(["spellcheck: ", &message, "\n"].concat().as_bytes());
        STATUS_ERROR
    }))
}

fn run() -> Result<u8, String> {
    let options = Options::parse(std::env::args().skip(1)).map_err(|error| error.to_string())?;
    let (mut out, mut notes) = (stdout().lock(), stderr().lock());
    let status = match command::run_without_tables(&options, &mut out) {
        Ok(Some(status)) => Ok(status),
        #[cfg(target_family = "wasm")]
        Ok(None) if options.volatile => {
            command::run(&mut VolatileArena::default(), &options, &mut out, &mut notes)
        }
        // Ordinary memory has no addresses of 4 bytes there.
        #[cfg(not(target_family = "wasm"))]
        Ok(None) if options.volatile => {
            return Err("--volatile is for the applet in WebAssembly; grant a heap".to_owned());
        }
        Ok(None) => {
            let heap = attached()
                .map_err(|error| format!("{error} (or keep none: --volatile --dict DIR)"))?;
            command::run(&mut HeapArena::new(heap), &options, &mut out, &mut notes)
        }
        Err(error) => Err(error),
    };
    status.map_err(|error| error.to_string())
}

/// The heap: a portable one, or one that an earlier version made.
fn attached() -> Result<Heap, AttachError> {
    match attach_portable() {
        Err(AttachError::Open(OpenError::NotPortable { .. })) => attach(),
        attached => attached,
    }
}
