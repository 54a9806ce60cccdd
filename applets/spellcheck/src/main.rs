//! Spell checker whose dictionaries live in a persistent heap; see the library. Here: the heap is
//! attached, the exit status set.

#![forbid(unsafe_code)]

use std::process::ExitCode;

#[cfg(target_family = "wasm")]
fn main() -> ExitCode {
    use std::io::Write;

    use holdfast_spellcheck::command::STATUS_ERROR;

    ExitCode::from(run().unwrap_or_else(|message| {
        // Where standard error is closed there is no one to tell.
        let _ = std::io::stderr().write_all(["spellcheck: ", &message, "\n"].concat().as_bytes());
        STATUS_ERROR
    }))
}

#[cfg(target_family = "wasm")]
fn run() -> Result<u8, String> {
    use std::io::{stderr, stdout};

    use holdfast_spellcheck::arena::{HeapArena, VolatileArena};
    use holdfast_spellcheck::command;
    use holdfast_spellcheck::options::Options;

    let options = Options::parse(std::env::args().skip(1)).map_err(|error| error.to_string())?;
    let (mut out, mut notes) = (stdout().lock(), stderr().lock());
    let status = match command::run_without_tables(&options, &mut out) {
        Ok(Some(status)) => Ok(status),
        Ok(None) if options.volatile => {
            command::run(&mut VolatileArena::default(), &options, &mut out, &mut notes)
        }
        Ok(None) => {
            let heap = holdfast_guest::attach()
                .map_err(|error| format!("{error} (or keep none: --volatile --dict DIR)"))?;
            command::run(&mut HeapArena::new(heap), &options, &mut out, &mut notes)
        }
        Err(error) => Err(error),
    };
    status.map_err(|error| error.to_string())
}

/// Built natively only so that the workspace builds as a whole: there is no heap to attach to.
#[cfg(not(target_family = "wasm"))]
fn main() -> ExitCode {
    eprintln!(
        "spellcheck is an applet; build it with --target wasm32-wasip1 and start it with `holdfast run`"
    );
    ExitCode::from(holdfast_spellcheck::command::STATUS_ERROR)
}
