//! `holdfast-page-engine`: all that `holdfast-page` does not do itself, with the window. See
//! [`holdfast_page::command`].

#![forbid(unsafe_code)]

mod keys;
mod window;

use std::process::ExitCode;

fn main() -> ExitCode {
    holdfast_page::command::run(window::show)
}
