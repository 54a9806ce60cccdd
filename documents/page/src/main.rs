//! `holdfast-page`, the small one: see [`holdfast_page::command`].

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    holdfast_page::command::front()
}
