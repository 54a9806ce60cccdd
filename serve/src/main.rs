//! The program `holdfast-serve` (`holdfast serve`): serves a page whose applets run on this machine,
//! and shows or forgets the origins that may use it.

#![forbid(unsafe_code)]
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod args;

use std::process::ExitCode;

use holdfast_command::exit::{FOUND, Failure, NOT_FOUND, OTHER, USAGE};
use holdfast_command::output::{print, say};
use holdfast_command::program;
use holdfast_region::Places;
use holdfast_serve::{OriginRecord, RecordError, ServeConfig, ServeError, ServeLimits, Server};

use crate::args::Cli;

fn main() -> ExitCode {
    ExitCode::from(program::run(std::env::args_os(), dispatch))
}

fn dispatch(cli: Cli) -> Result<u8, Failure> {
    let places = Places::from_env()?;
    let record = OriginRecord::of(&places);
    if cli.origins {
        let origins = record.list().map_err(record_failure)?;
        print(&origins.iter().map(|origin| format!("{origin}\n")).collect::<String>())?;
        return Ok(0);
    }
    if let Some(origin) = &cli.forget {
        let was_known = record.forget(origin).map_err(record_failure)?;
        if !was_known {
            say(format_args!(
                "{origin} is not allowed; `holdfast serve --origins` lists those that are"
            ));
        }
        return Ok(if was_known { 0 } else { FOUND });
    }
    serve(cli, places)
}

fn record_failure(error: RecordError) -> Failure {
    Failure::new(OTHER, error)
}

fn serve(cli: Cli, places: Places) -> Result<u8, Failure> {
    let web = cli
        .web
        .ok_or_else(|| Failure::new(USAGE, "nothing to serve; name a directory with --web DIR"))?;
    // Files that an applet or its heap makes too large are errors.
    holdfast_sys::file_size_signal::ignore();
    holdfast_keeper_client::use_for_room();
    let mut limits = ServeLimits::default();
    limits.heap_bytes = cli.heap_size;
    limits.heaps_per_origin = cli.heaps_per_origin;
    limits.memory_bytes = cli.memory;
    limits.call_timeout = cli.timeout;
    limits.applets = cli.applets;
    let config = ServeConfig {
        web,
        listen: cli.listen,
        app: cli.app,
        allow: cli.allow,
        asks: !cli.never_ask,
        limits,
    };
    let server = Server::bind(config, places).map_err(|error| {
        let code = match &error {
            ServeError::NotLoopback { .. }
            | ServeError::Unreachable { .. }
            | ServeError::Name { .. } => USAGE,
            ServeError::Directory { .. } => NOT_FOUND,
            _ => OTHER,
        };
        Failure::new(code, error)
    })?;
    server.stop_on_signals().map_err(|error| Failure::new(OTHER, error))?;
    print(&format!("{}/\n", server.url()))?;
    server.run();
    Ok(0)
}
